//! Failures of our own network.

use super::table::TRANSIENT;
use super::*;

#[test]
fn few_kinds_of_failure_may_be_our_own_and_after_one_the_request_may_have_arrived() {
    let those = |may: fn(FailureKind) -> bool| -> Vec<FailureKind> {
        FailureKind::ALL.into_iter().filter(|failure| may(*failure)).collect()
    };
    assert_eq!(those(may_be_ours), TRANSIENT);
    assert_eq!(those(may_have_arrived), [FailureKind::Truncated]);
}

#[test]
fn what_our_own_network_failed_is_tried_again_soon_but_during_no_hold_and_no_skipped_hour() {
    let config = plain();
    let policy = Policy { config: &config, load: 0.0, price: config.price };
    let spared = |state: PollState| spare(&Subject { state, ..reader() }, noon(), NO_SALT, &policy);
    let usual = spared(PollState::default());
    assert_eq!((usual.next_due, rules(&usual)), (Some(noon().after(5 * MINUTE)), vec![Rule::OurFault]));
    let later = noon().after(2 * HOUR);
    for (hold, kept, due) in [
        (later, Some(later), later),
        (noon(), None, noon().after(5 * MINUTE)),
        (noon().before(HOUR), None, noon().after(5 * MINUTE)),
    ] {
        let decision = spared(PollState { hold_until: Some(hold), ..PollState::default() });
        assert_eq!((decision.state.hold_until, decision.next_due), (kept, Some(due)));
    }
    let hints = FeedHints { skip_hours: 1 << 12, ..FeedHints::default() };
    let skipped = spared(PollState { hints, ..PollState::default() });
    assert_eq!(skipped.next_due, Some(at("2026-10-07T13:00:00Z")));
    assert_eq!(rules(&skipped), [Rule::OurFault, Rule::Skip]);
}

#[test]
fn a_request_that_may_have_arrived_is_repeated_no_sooner_than_our_own_floors_allow() {
    let policy = Policy { config: &plain(), load: 0.0, price: 0.1 };
    let sla = Subject { audience: Audience { sla: true, ..Audience::default() }, ..reader() };
    let ruled = Subject { host_interval: Some(3 * HOUR), ..reader() };
    let waits = [sla, reader(), ruled]
        .map(|subject| spare_arrived(&subject, noon(), NO_SALT, &policy).next_due.unwrap().since(noon()));
    assert_eq!(waits, [MINUTE, 15 * MINUTE, 3 * HOUR]);
}
