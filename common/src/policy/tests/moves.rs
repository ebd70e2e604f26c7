//! Permanent redirects of healthy feeds.

use super::*;
use crate::policy::PollState;

/// Returns the state after these polls: hours since noon, redirect target, and whether the answer was good.
fn polled(polls: &[(u32, Option<&str>, bool)], before: PollState) -> PollState {
    polls.iter().fold(before, |state, (hours, to, well)| {
        let answer = if *well { unchanged() } else { failed(FailureKind::Timeout) };
        let moved_to = to.map(|to| to.parse().unwrap());
        let report = FetchReport { started: noon().after(HOUR * *hours), moved_to, ..answer };
        ask(&Subject { state, ..reader() }, &report, &plain()).state
    })
}

const NEW: Option<&str> = Some("https://new.example/feed");
const OTHER: Option<&str> = Some("https://other.example/feed");

fn settled(polls: &[(u32, Option<&str>, bool)]) -> bool {
    move_is_settled(&polled(polls, PollState::default()), &plain())
}

#[test]
fn a_move_is_settled_after_the_same_target_came_several_times_over_at_least_a_day() {
    assert!(settled(&[(0, NEW, true), (12, NEW, true), (24, NEW, true)]));
    assert!(!settled(&[(0, NEW, true), (12, NEW, true), (23, NEW, true)]), "not a day");
    assert!(!settled(&[(0, NEW, true), (48, NEW, true)]), "not several times");
    assert!(settled(&[(0, NEW, true), (6, NEW, true), (12, NEW, false), (30, NEW, true)]), "a failure says nothing");
}

#[test]
fn another_target_or_none_begins_the_count_anew() {
    assert!(!settled(&[(0, NEW, true), (12, None, true), (24, NEW, true), (36, NEW, true)]));
    assert!(!settled(&[(0, OTHER, true), (12, OTHER, true), (24, NEW, true)]));
    assert!(settled(&[(0, OTHER, true), (12, NEW, true), (24, NEW, true), (36, NEW, true)]));
    assert!(!settled(&[(0, None, true), (24, None, true), (48, None, true)]));
}

#[test]
fn a_target_that_was_declined_never_counts_and_another_one_does() {
    let declined = PollState { declined: Some(move_target(&NEW.unwrap().parse().unwrap())), ..PollState::default() };
    let polls = |to| [(0, to, true), (24, to, true), (48, to, true), (72, to, true)];
    assert!(!move_is_settled(&polled(&polls(NEW), declined), &plain()));
    assert!(move_is_settled(&polled(&polls(OTHER), declined), &plain()));
}
