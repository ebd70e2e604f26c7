//! What is remembered between two polls.

use super::*;
use crate::outcome::OutcomeKind;

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
        let rhythm = Rhythm::from_bytes(&decision.state.rhythm.to_bytes());
        let read = PollState { rhythm, ..serde_json::from_str(&json).unwrap() };
        assert_eq!(read, decision.state, "{json}");
    }
}

#[test]
fn failures_teach_nothing_about_the_rhythm() {
    let watched = live(&reader(), [news(1), news(1)], &plain());
    let failing = ask(&after(&reader(), &watched[1]), &answered(500), &plain());
    assert_eq!(failing.state.rhythm, watched[1].state.rhythm);
}

#[test]
fn a_ping_causes_a_poll_of_a_feed_that_no_person_ended() {
    let heard: Vec<Status> = Status::ALL.into_iter().filter(|status| status.hears_pings()).collect();
    assert_eq!(heard, [Status::Active, Status::Gone, Status::Blacklisted]);
}

#[test]
fn a_status_is_read_by_its_name_alone() {
    for status in Status::ALL {
        assert_eq!(status.as_str().parse::<Status>(), Ok(status));
    }
    assert!("asleep".parse::<Status>().unwrap_err().contains("active, paused, gone"));
}

#[test]
fn signatures_and_pings_are_stored_only_if_something_is_known_about_them() {
    let nothing = serde_json::to_string(&PollState::default()).unwrap();
    for (name, state) in [
        ("signing", PollState { signing: Signing::Wanted, ..PollState::default() }),
        ("fruitless_wakes", PollState { fruitless_wakes: 3, ..PollState::default() }),
    ] {
        let json = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<PollState>(&json).unwrap(), state);
        assert_eq!((json.contains(name), nothing.contains(name)), (true, false), "{json}");
    }
}
