//! Calm delivery: feeds that are only read at midnight.

use super::*;
use crate::calm::{CalmGroup, next_window};
use crate::policy::hot_minute::is_hot;

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
fn a_feed_with_calm_readers_alone_is_polled_in_the_quarter_hour_before_their_midnight_and_not_otherwise() {
    // The clocks go back on the 25th.
    let expected = ["2026-10-23T21:45:00.000Z", "2026-10-24T21:45:00.000Z", "2026-10-25T22:45:00.000Z"];
    assert_eq!(polls(&[group("Europe/Paris")], &plain(), &[0.0; 3]), expected);
    let latest = polls(&[group("Europe/Paris")], &plain(), &[0.999; 3]);
    assert!(latest[0].starts_with("2026-10-23T21:58") && latest[1].starts_with("2026-10-24T21:58"), "{latest:?}");
}

#[test]
fn the_polls_of_a_midnight_are_spread_over_the_open_minutes_before_it_and_never_past_it() {
    let config = PolicyConfig { hot_minutes: true, ..plain() };
    let mut minutes = [0; 60];
    for place in 0..1000 {
        let draw = f64::from(place) / 1000.0;
        for due in polls(&[group("Europe/Paris"), group("Asia/Kathmandu")], &config, &[draw; 4]) {
            let (hour, minute) = (&due[11..13], due[14..16].parse::<usize>().unwrap());
            // Nepal's midnight is at 18:15 UTC.
            assert!(if hour == "18" { minute < 14 } else { ["21", "22"].contains(&hour) && minute >= 45 }, "{due}");
            minutes[minute] += usize::from(hour != "18");
        }
    }
    let busy: Vec<usize> = (0..60).filter(|minute| minutes[*minute] > 0).collect();
    assert_eq!(busy, [46, 47, 48, 49, 51, 52, 53, 54, 56, 57, 58], "no hot minute, and the last one is for the fetch");
    let (least, most) = (busy.iter().map(|minute| minutes[*minute]).min(), minutes.iter().max());
    assert!(least.unwrap() * 11 > most.unwrap() * 10, "{minutes:?}");
}

#[test]
fn the_quarter_hour_becomes_an_hour_only_under_load() {
    let groups = [group("Europe/Paris")];
    let subject = Subject { calm: &groups, ..readers(0) };
    let due = |load: f64, salt: f64| {
        let policy = Policy { config: &plain(), load, price: 0.1 };
        let draw = Draw { salt, minute: 0.5 };
        decide(&subject, &unchanged(), noon(), draw, &policy).next_due.unwrap().to_string()[11..16].to_owned()
    };
    assert_eq!([due(0.0, 0.0), due(1.0, 0.0), due(1.0, 0.999)], ["21:45", "21:00", "21:58"].map(str::to_owned));
}

#[test]
fn a_load_that_changes_leaves_one_poll_before_each_midnight() {
    let groups = [group("Europe/Paris"), group("Asia/Kathmandu")];
    let config = plain();
    let mut subject = Subject { calm: &groups, ..readers(0) };
    let mut started = at("2026-10-07T21:50:00Z");
    // Each poll is planned under the load of the one before it.
    let polls = [1.0, 0.0, 1.0, 0.5, 0.0, 0.0].map(|load| {
        let policy = Policy { config: &config, load, price: config.price };
        let decision = decide(&subject, &FetchReport { started, ..unchanged() }, started, NO_SALT, &policy);
        subject = after(&subject, &decision);
        started = decision.next_due.unwrap();
        started.to_string()[8..16].to_owned()
    });
    assert_eq!(polls, ["08T17:15", "08T21:45", "09T17:15", "09T21:22", "10T18:00", "10T21:45"]);
}

#[test]
fn a_poll_that_was_planned_otherwise_serves_its_midnight_too_when_the_load_falls() {
    let groups = [group("Europe/Paris")];
    let config = plain();
    let calm = Subject { calm: &groups, ..readers(0) };
    let at_load = |load: f64| Policy { config: &config, load, price: config.price };
    let next = |subject: &Subject<'_>, started: Timestamp| {
        let report = FetchReport { started, ..unchanged() };
        decide(subject, &report, started, NO_SALT, &at_load(0.0)).next_due.unwrap()
    };
    let refused = host_refused(&calm, &answered(403), noon(), noon(), NO_SALT, &at_load(1.0));
    assert_eq!(refused.next_due, Some(at("2026-10-07T21:00:00Z")));
    assert_eq!(next(&after(&calm, &refused), refused.next_due.unwrap()), at("2026-10-08T21:45:00Z"));

    // It had a daily interval, and gets calm subscribers.
    let unread = decide(&readers(0), &unchanged(), noon(), NO_SALT, &at_load(1.0));
    let subject = Subject { calm: &groups, ..after(&readers(0), &unread) };
    let (due, terms) = replan(&subject, noon().after(2 * DAY), noon(), NO_SALT, &at_load(1.0)).unwrap();
    assert_eq!((due, terms.last().unwrap().due), (at("2026-10-07T21:45:00Z"), due));
    assert_eq!(next(&subject, due), at("2026-10-08T21:45:00Z"));

    // Its host gets an interval.
    let subject = Subject { host_interval: Some(HOUR), ..subject };
    let (due, _) = postponed(&subject, noon(), NO_SALT, &at_load(1.0)).unwrap();
    assert_eq!(due, at("2026-10-07T21:45:00Z"));
    assert_eq!(next(&subject, due), at("2026-10-08T21:45:00Z"));

    // India's midnight is at 18:30 UTC, and the publisher has hour 18 skipped: the narrowest window is too late.
    let groups = [group("Asia/Kolkata")];
    let skipped = hinted(0, FeedHints { skip_hours: 1 << 18, ..FeedHints::default() });
    let unread = decide(&readers(0), &skipped, noon(), NO_SALT, &at_load(1.0));
    let subject = Subject { calm: &groups, ..after(&readers(0), &unread) };
    let (due, _) = replan(&subject, noon().after(2 * DAY), noon(), NO_SALT, &at_load(1.0)).unwrap();
    assert_eq!(due, at("2026-10-07T17:30:00Z"));
}

#[test]
fn an_edit_that_changes_nothing_leaves_a_feed_at_its_place_in_the_window() {
    let groups = [group("Europe/Paris")];
    for hot_minutes in [true, false] {
        let config = PolicyConfig { hot_minutes, ..plain() };
        let policy = Policy { config: &config, load: 0.0, price: config.price };
        let subject = Subject { calm: &groups, ..readers(0) };
        let planned = |salt: f64| decide(&subject, &unchanged(), noon(), Draw { salt, minute: 0.5 }, &policy);
        let decision = planned(0.5);
        let edited = after(&subject, &decision);
        assert_eq!(replan(&edited, decision.next_due.unwrap(), noon(), NO_SALT, &policy), None, "{hot_minutes}");
        assert_eq!(planned(1.0).next_due, Some(at("2026-10-07T21:58:59.999Z")), "the largest draw is the last moment");
    }
}

#[test]
fn the_poll_before_a_midnight_is_never_put_off_past_it_by_skipped_time_within_the_window() {
    // Nepal's midnight is at 18:15 UTC. Under full load the window is open from 17:15 to 18:14, the last 14 minutes of it are skipped.
    let groups = [group("Asia/Kathmandu")];
    let skipped = hinted(0, FeedHints { skip_hours: 1 << 18, ..FeedHints::default() });
    for hot_minutes in [true, false] {
        let config = PolicyConfig { hot_minutes, ..plain() };
        let policy = Policy { config: &config, load: 1.0, price: config.price };
        let subject = Subject { calm: &groups, ..readers(0) };
        let due = |salt: f64| decide(&subject, &skipped, noon(), Draw { salt, minute: 0.5 }, &policy).next_due.unwrap();
        let dues: Vec<Timestamp> = (0..=100).map(|place| due(f64::from(place) / 100.0)).collect();
        assert!(dues.is_sorted(), "{dues:?}");
        let first = if hot_minutes { "2026-10-07T17:16:00Z" } else { "2026-10-07T17:15:00Z" };
        assert_eq!((dues[0], dues[100]), (at(first), at("2026-10-07T17:59:59.999Z")));
        assert!(!hot_minutes || dues.iter().all(|due| !is_hot(*due)), "{dues:?}");
    }
}

#[test]
fn with_other_readers_it_is_polled_as_ever_and_before_each_midnight_too() {
    let groups = [group("Europe/Paris")];
    let config = plain();
    let six_hours = |subscribers| Subject {
        audience: Audience { subscribers, active_subscribers: subscribers, ..Audience::default() },
        calm: &groups,
        ..reader()
    };
    let at_interval = |started: &str, subscribers: u32| {
        let started = at(started);
        let policy = Policy { config: &config, load: 0.0, price: config.price };
        let report = FetchReport { started, ..unchanged() };
        decide(&six_hours(subscribers), &report, started, NO_SALT, &policy).next_due.unwrap()
    };
    let own = delay(&ask(&reader(), &unchanged(), &config));
    let before = at("2026-10-23T21:45:00Z").before(own).after(SECOND);
    assert_eq!(at_interval(&before.to_string(), 1), before.after(own), "its own poll serves that midnight");
    let early = at("2026-10-23T21:59:30Z").before(own);
    assert_eq!(at_interval(&early.to_string(), 1), at("2026-10-23T21:45:00Z"), "its own poll would miss it");
    assert_eq!(at_interval("2026-10-23T21:50:00Z", 1), at("2026-10-23T21:50:00Z").after(own), "and once is enough");
}

/// Returns when a feed is polled in the 30 days from noon on whose server always gives this answer. Each poll starts this `late`.
fn polls_of_a_month(
    subject: &Subject<'_>,
    answer: &FetchReport,
    late: Duration,
    config: &PolicyConfig,
) -> Vec<Timestamp> {
    let policy = Policy { config, load: 0.0, price: config.price };
    let (mut subject, mut minutes, mut started, mut polls) = (*subject, Minutes::default(), noon(), Vec::new());
    while started < noon().after(30 * DAY) {
        polls.push(started);
        let place = f64::from(u32::try_from(polls.len() * 37 % 100).unwrap()) / 100.0;
        let draws = [Draw { salt: place, minute: place }; 2];
        let report = FetchReport { started, ..answer.clone() };
        let decision = minutes.decide(&subject, &report, started, draws, &policy);
        subject = after(&subject, &decision);
        started = decision.next_due.unwrap().after(late);
    }
    polls
}

#[test]
fn a_feed_with_other_readers_that_is_expensive_to_poll_misses_no_midnight() {
    let groups = [group("Europe/Paris")];
    let modes = [PolicyMode::Classes, PolicyMode::Adaptive];
    for (mode, hot_minutes) in modes.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        let config = PolicyConfig { mode, hot_minutes, ..plain() };
        let mixed = Subject { calm: &groups, ..reader() };
        let polls = polls_of_a_month(&mixed, &same_bytes(Validators::default()), Duration::ZERO, &config);
        let mut before = noon();
        for _ in 0..30 {
            let window = next_window(&groups, before, 0.0).unwrap();
            let met = polls.iter().filter(|poll| (window.start..window.end()).contains(*poll)).count();
            assert_eq!(met, 1, "{} {mode:?} {hot_minutes}: {polls:?}", window.midnight);
            before = window.midnight;
        }
    }
}

#[test]
fn a_publishers_floor_stays_above_a_midnight_of_a_feed_with_other_readers() {
    let groups = [group("Europe/Paris")];
    let mixed = Subject { calm: &groups, ..reader() };
    let fresh = FetchReport { fresh_for: Some(11 * HOUR), ..unchanged() };
    assert_eq!(delay(&ask(&mixed, &fresh, &plain())), 11 * HOUR, "23:07 is after midnight, and no sooner is allowed");
    let shorter = FetchReport { fresh_for: Some(9 * HOUR), ..same_bytes(Validators::default()) };
    let decision = ask(&mixed, &shorter, &plain());
    assert_eq!(decision.next_due, Some(at("2026-10-07T21:45:00Z")), "doubled for its cost, it would miss midnight");
    assert_eq!(rules(&decision).last(), Some(&Rule::Calm));
}

#[test]
fn calm_readers_count_for_the_category_and_not_for_the_interval() {
    let group = |subscribers| [CalmGroup { zone: "Europe/Paris".parse().unwrap(), subscribers }];
    let with = |subscribers: u32, calm: &[CalmGroup]| category(&Subject { calm, ..readers(subscribers) });
    assert_eq!(
        [with(0, &group(1)), with(0, &group(2)), with(1, &group(1)), with(0, &group(500))],
        [Category::D, Category::C, Category::C, Category::B]
    );
    let many = group(500);
    let config = plain();
    let mixed = Subject { calm: &many, ..reader() };
    assert_eq!(delay(&ask(&mixed, &unchanged(), &config)), delay(&ask(&reader(), &unchanged(), &config)));
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
fn a_calm_feed_whose_publisher_asks_for_a_day_is_polled_before_midnights_and_not_more_often() {
    let groups = [group("Europe/Paris")];
    let calm = Subject { calm: &groups, ..readers(0) };
    let ttl = hinted(0, FeedHints { ttl: Some(DAY), ..FeedHints::default() });
    let answers = [FetchReport { fresh_for: Some(DAY), ..unchanged() }, ttl];
    for (answer, hot_minutes) in answers.iter().flat_map(|answer| [(answer, false), (answer, true)]) {
        let config = PolicyConfig { hot_minutes, ..plain() };
        let polls = polls_of_a_month(&calm, answer, 20 * SECOND, &config);
        // A quarter of an hour is short for polls a day and 20 s apart: now and then a midnight is left out.
        assert!(polls.len() > 22, "{polls:?}");
        assert!(polls.windows(2).all(|pair| pair[1].since(pair[0]) >= DAY), "{polls:?}");
        let is_before_midnight = |poll: &Timestamp| {
            let window = next_window(&groups, poll.before(HOUR), 0.0).unwrap();
            (window.start..window.midnight).contains(poll)
        };
        assert!(polls[1..].iter().all(is_before_midnight), "{polls:?}");
    }
}

#[test]
fn a_floor_past_a_window_leads_to_the_first_one_that_it_leaves_open() {
    let groups = [group("Europe/Paris"), group("Asia/Kathmandu")];
    let due = |groups: &[CalmGroup], started: &str, answer: FetchReport| {
        let report = FetchReport { started: at(started), ..answer };
        let policy = Policy { config: &plain(), load: 0.0, price: 0.1 };
        decide(&Subject { calm: groups, ..readers(0) }, &report, report.started, NO_SALT, &policy).next_due.unwrap()
    };
    let daily = || FetchReport { fresh_for: Some(DAY), ..unchanged() };
    assert_eq!(due(&groups[..1], "2026-10-07T12:07:00Z", daily()), at("2026-10-08T21:45:00Z"));
    assert_eq!(due(&groups, "2026-10-07T21:50:00Z", daily()), at("2026-10-08T21:50:00Z"), "Paris's has begun");
    let skipped = |hour: u32| hinted(0, FeedHints { skip_hours: 1 << hour, ..FeedHints::default() });
    assert_eq!(due(&groups, "2026-10-07T12:07:00Z", skipped(18)), at("2026-10-07T21:45:00Z"));
    let never = due(&groups[..1], "2026-10-07T12:07:00Z", skipped(21));
    assert_eq!(never, at("2026-10-07T22:00:00Z"), "every window is skipped");
}

#[test]
fn an_interval_that_a_person_set_for_all_feeds_stays_beside_midnights() {
    let groups = [group("Europe/Paris")];
    let config = PolicyConfig { interval: 11 * HOUR, ..plain() };
    let mixed = Subject { calm: &groups, ..reader() };
    assert_eq!(delay(&ask(&mixed, &unchanged(), &config)), 11 * HOUR, "although 23:07 is after midnight");
    let calm = Subject { calm: &groups, ..readers(0) };
    assert_eq!(ask(&calm, &unchanged(), &config).next_due, Some(at("2026-10-07T21:45:00Z")));
    let daily = Audience { interval: Some(DAY), ..calm.audience };
    assert_eq!(delay(&ask(&Subject { audience: daily, ..calm }, &unchanged(), &config)), DAY);
}

#[test]
fn a_failing_poll_is_tried_again_before_midnight() {
    let groups = [group("Europe/Paris")];
    let calm = Subject { calm: &groups, ..readers(0) };
    let report = FetchReport { started: at("2026-10-23T21:10:00Z"), ..failed(FailureKind::Timeout) };
    let decision = decide(&calm, &report, report.started, NO_SALT, &Policy { config: &plain(), load: 0.0, price: 0.1 });
    assert_eq!(delay(&decision), 15 * MINUTE);
}

#[test]
fn an_sla_or_importance_counts_for_more_than_midnights_of_a_feed_without_other_readers() {
    let groups = [group("Europe/Paris")];
    let nobody = readers(0).audience;
    let (sla, important) = (Audience { sla: true, ..nobody }, Audience { important: true, ..nobody });
    for (audience, interval) in [(sla, MINUTE), (important, 15 * MINUTE)] {
        let subject = Subject { audience, calm: &groups, ..reader() };
        assert_eq!(delay(&ask(&subject, &unchanged(), &plain())), interval, "{audience:?}");
    }
}

#[test]
fn a_draw_is_a_place_in_the_eleven_open_minutes_before_midnight() {
    let config = PolicyConfig { hot_minutes: true, ..plain() };
    for (draw, due) in [(0.0, "21:46:00"), (0.5, "21:52:30"), (4.0 / 11.0, "21:51:00")] {
        let polls = polls(&[group("Europe/Paris")], &config, &[draw]);
        assert_eq!(polls, [format!("2026-10-23T{due}.000Z")], "{draw}");
    }
}
