//! Calm delivery: feeds that are only read at midnight.

use super::*;
use crate::calm::CalmGroup;

fn group(zone: &str) -> CalmGroup {
    CalmGroup { zone: zone.parse().unwrap(), subscribers: 5 }
}

/// Returns the times at which a feed with only these groups is polled.
fn polls(groups: &[CalmGroup], config: &PolicyConfig, draws: &[f64]) -> Vec<String> {
    let mut subject = Subject { calm: groups, ..readers(0) };
    let mut started = at("2026-10-23T12:00:00Z");
    let polled = draws.iter().map(|draw| {
        let policy = Policy { config, load: 0.0, price: config.price };
        let report = FetchReport { started, ..unchanged() };
        let decision = decide(&subject, &report, started, Draw { salt: *draw, minute: *draw }, &policy);
        subject.state = decision.state;
        started = decision.next_due.unwrap();
        started.to_string()
    });
    polled.collect()
}

#[test]
fn a_feed_with_calm_readers_alone_is_polled_in_the_hour_before_their_midnight_and_not_otherwise() {
    // The clocks go back on the 25th.
    let expected = ["2026-10-23T21:00:00.000Z", "2026-10-24T21:00:00.000Z", "2026-10-25T22:00:00.000Z"];
    assert_eq!(polls(&[group("Europe/Paris")], &plain(), &[0.0; 3]), expected);
    let latest = polls(&[group("Europe/Paris")], &plain(), &[0.999; 3]);
    assert!(latest[0].starts_with("2026-10-23T21:44") && latest[1].starts_with("2026-10-24T21:44"), "{latest:?}");
}

#[test]
fn hot_minutes_do_not_lead_past_midnight() {
    let config = PolicyConfig { hot_minutes: true, ..plain() };
    for place in 0..100 {
        let draw = f64::from(place) / 100.0;
        for due in polls(&[group("Europe/Paris"), group("Asia/Kathmandu")], &config, &[draw; 4]) {
            let hour = if due.contains("T17") || due.contains("T18") { "T17:15".."T18:15" } else { "T21:00".."T23:00" };
            assert!(hour.contains(&&due[10..16]), "{due}");
        }
    }
}

#[test]
fn one_poll_serves_all_zones_with_the_same_midnight() {
    let both = polls(&[group("Europe/Paris"), group("Europe/Berlin")], &plain(), &[0.0; 2]);
    assert_eq!(both, polls(&[group("Europe/Paris")], &plain(), &[0.0; 2]));
}

#[test]
fn readers_who_do_not_wait_for_midnight_are_served_as_ever_and_publishers_floors_hold() {
    let groups = [group("Europe/Paris")];
    let config = plain();
    let with_reader = Subject { calm: &groups, ..reader() };
    assert_eq!(delay(&ask(&with_reader, &unchanged(), &config)), HOUR);
    let calm = Subject { calm: &groups, ..readers(0) };
    let fresh = FetchReport { fresh_for: Some(20 * HOUR), ..unchanged() };
    assert!(delay(&ask(&calm, &fresh, &config)) >= 20 * HOUR);
    assert_eq!(rules(&ask(&calm, &unchanged(), &config))[0], Rule::Calm);
    let dear = same_bytes(Validators::default());
    assert_eq!(
        ask(&calm, &dear, &config).next_due,
        ask(&calm, &unchanged(), &config).next_due,
        "midnight does not wait"
    );
}

#[test]
fn a_failing_poll_is_tried_again_before_midnight() {
    let groups = [group("Europe/Paris")];
    let calm = Subject { calm: &groups, ..readers(0) };
    let report = FetchReport { started: at("2026-10-23T21:10:00Z"), ..failed(FailureKind::Timeout) };
    let decision = decide(&calm, &report, report.started, NO_SALT, &Policy { config: &plain(), load: 0.0, price: 0.1 });
    assert_eq!(delay(&decision), 15 * MINUTE);
}
