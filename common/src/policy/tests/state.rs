//! What is remembered between two polls.

use super::*;
use crate::entry::Entry;
use crate::feed::RateEstimate;
use crate::report::OutcomeKind;

#[test]
fn every_answer_is_remembered() {
    let decision = ask(&reader(), &answered(404), &plain());
    let state = decision.state;
    assert_eq!((state.last_polled, state.last_status), (Some(noon()), Some(404)));
    assert_eq!((state.last_outcome, state.consecutive_failures), (Some(OutcomeKind::Failed), 1));
    assert_eq!((state.failing_since, state.last_success), (Some(noon()), None));

    let state = ask(&reader(), &unchanged(), &plain()).state;
    assert_eq!((state.last_success, state.last_changed), (Some(noon()), None));
    let state = ask(&reader(), &news(2), &plain()).state;
    assert_eq!((state.last_success, state.last_changed), (Some(noon()), Some(noon())));
    let state = ask(&reader(), &failed(FailureKind::Dns), &plain()).state;
    assert_eq!(state.last_status, None, "no answer came");
}

#[test]
fn a_run_is_counted_from_its_first_failure() {
    let decisions = live(&reader(), again(&answered(500), 3), &plain());
    assert_eq!(decisions[2].state.failing_since, Some(noon()));
    assert_eq!(decisions[2].state.consecutive_failures, 3);
}

#[test]
fn state_survives_the_store_unchanged_so_that_a_restart_changes_no_decision() {
    let config = PolicyConfig { mode: PolicyMode::Adaptive, ..plain() };
    let reports = [news(3), failed(FailureKind::Dns), failed(FailureKind::Dns), answered(500), throttled(None)];
    for decision in live(&reader(), reports, &config) {
        let json = serde_json::to_string(&decision.state).unwrap();
        assert_eq!(serde_json::from_str::<PollState>(&json).unwrap(), decision.state, "{json}");
    }
}

fn entries(ages: &[Duration]) -> Vec<Entry> {
    ages.iter().map(|age| Entry { published: Some(noon().before(*age)), ..Entry::default() }).collect()
}

#[test]
fn the_first_documents_dates_stand_for_the_history_that_was_not_watched() {
    let daily: Vec<_> = (0..30).map(|day| day * DAY).collect();
    let rate = RateEstimate::from_history(&entries(&daily), noon()).per_day();
    assert!((0.6..=1.0).contains(&rate), "{rate}");
    let yearly = RateEstimate::from_history(&entries(&[DAY, 365 * DAY, 730 * DAY]), noon()).per_day();
    assert!(yearly < 0.05, "{yearly}");
    let unknown = RateEstimate::default().per_day();
    assert_eq!(unknown, 0.05, "an item in twenty days");
    assert_eq!(RateEstimate::from_history(&[Entry::default()], noon()).per_day(), unknown, "without dates");
    let ahead = Entry { published: Some(noon().after(DAY)), ..Entry::default() };
    assert_eq!(RateEstimate::from_history(&[ahead], noon()).per_day(), unknown, "announced for tomorrow");

    let document = Document { entries: entries(&daily), new_entries: 30, ..Document::default() };
    let first = report(Outcome::Modified(Box::new(document)), Some(200));
    assert_eq!(ask(&reader(), &first, &plain()).state.rate.per_day(), rate, "and not 30 items at once");
}

#[test]
fn the_rate_follows_what_is_seen_and_fades() {
    let mut rate = RateEstimate::default().observed(0, noon());
    for day in 1..=120 {
        rate = rate.observed(4, noon().after(day * DAY));
    }
    assert!((rate.per_day() - 3.1).abs() < 0.1, "four a day, drawn to the prior by a quarter: {}", rate.per_day());
    let quiet = rate.observed(0, noon().after(210 * DAY));
    assert!(quiet.per_day() < 0.2, "{}", quiet.per_day());
    assert_eq!(rate.observed(0, noon()).at, rate.at, "a clock that went back moves nothing");
}

#[test]
fn failures_teach_nothing_about_the_rate() {
    let watched = live(&reader(), [news(1), news(1)], &plain());
    let failing = ask(&after(&reader(), &watched[1]), &answered(500), &plain());
    assert_eq!(failing.state.rate, watched[1].state.rate);
}
