//! P44: when a poll starts with HEAD.

use super::*;
use crate::report::Probe;

const LARGE: u64 = 100_000;
const SPENT: u32 = 800;

/// Returns a poll with this probe and a body of `wire_bytes` bytes.
fn probed(report: FetchReport, probe: Probe, wire_bytes: u64) -> FetchReport {
    FetchReport { probe: Some(probe), wire_bytes, ..report }
}

/// Returns a full download without new content.
fn in_vain(wire_bytes: u64) -> FetchReport {
    probed(same_bytes(validators()), Probe::Known, wire_bytes)
}

fn enough() -> FetchReport {
    probed(same_bytes(validators()), Probe::Enough { spent: SPENT, length: Some(LARGE) }, 0)
}

fn not_enough() -> FetchReport {
    probed(news(1), Probe::NotEnough { spent: SPENT }, LARGE)
}

/// Returns the state after these reports.
fn after_all(before: HeadFirst, reports: impl IntoIterator<Item = FetchReport>) -> HeadFirst {
    let subject = Subject { state: PollState { head_first: before, ..PollState::default() }, ..reader() };
    live(&subject, reports, &plain()).last().map_or(before, |decision| decision.state.head_first)
}

/// Returns the advice after these reports.
fn advice(reports: impl IntoIterator<Item = FetchReport>) -> Option<bool> {
    after_all(HeadFirst::default(), reports).advice()
}

fn on() -> HeadFirst {
    after_all(HeadFirst::default(), again(&in_vain(LARGE), 3))
}

#[test]
fn p44_it_begins_after_three_large_downloads_in_vain_and_nothing_else() {
    assert_eq!((advice([]), HeadFirst::default().is_unknown()), (None, true));
    assert_eq!(advice(again(&in_vain(LARGE), 2)), None);
    assert_eq!(on().advice(), Some(true));
    assert_eq!(advice(again(&in_vain(10_000), 20)), None, "small ones are not worth it");
    assert_eq!(advice(again(&same_bytes(validators()), 20)), None, "other validators each time: HEAD could not tell");
    for between in [news(1), unchanged()] {
        let reports = [again(&in_vain(LARGE), 2), vec![between], again(&in_vain(LARGE), 2)].concat();
        assert_eq!(advice(reports), None, "not in a row");
    }
    let with_failures = [in_vain(LARGE), answered(500), in_vain(LARGE), throttled(None), in_vain(LARGE)];
    assert_eq!(advice(with_failures), Some(true), "failures say nothing");
}

#[test]
fn p44_it_goes_on_while_it_saves() {
    let mut head = on();
    for _ in 0..20 {
        head = after_all(head, again(&not_enough(), 4));
        assert_eq!(head.advice(), Some(true), "one success pays for four in vain");
        head = after_all(head, [enough()]);
    }
    let wasted = after_all(head, again(&not_enough(), 6));
    assert_eq!(wasted.advice(), Some(false), "six times in vain is the end, even against a rule");
}

#[test]
fn p44_what_is_saved_is_counted_in_bytes() {
    let small = probed(same_bytes(validators()), Probe::Enough { spent: SPENT, length: Some(500) }, 0);
    assert_eq!(advice(again(&small, 4)), Some(true));
    assert_eq!(advice(again(&small, 20)), Some(false), "it spends more than the body has");
    let unknown = probed(same_bytes(validators()), Probe::Enough { spent: SPENT, length: None }, 0);
    assert_eq!(advice(again(&unknown, 20)), Some(false), "nobody knows that it saves");
    let not_modified = FetchReport { http_status: Some(304), ..enough() };
    assert_eq!(advice(again(&not_modified, 20)), Some(false), "a GET would have been answered 304 as well");
    let known = after_all(on(), again(&unknown, 20));
    assert_eq!(known.advice(), Some(true), "the last download told the length");
}

#[test]
fn p44_a_refusal_ends_it_and_each_end_doubles_the_patience() {
    let refused = probed(same_bytes(validators()), Probe::Refused, LARGE);
    let mut head = on();
    for downloads in [6, 12, 24] {
        head = after_all(head, [refused.clone()]);
        head = after_all(head, again(&in_vain(LARGE), downloads - 1));
        assert_eq!(head.advice(), Some(false), "{downloads}");
        head = after_all(head, [in_vain(LARGE)]);
        assert_eq!(head.advice(), Some(true), "{downloads}");
    }
    let failed = probed(failed(FailureKind::Timeout), Probe::Refused, 0);
    assert_eq!(after_all(on(), [failed]).advice(), Some(false), "silence is one as well");
    assert_eq!(after_all(HeadFirst::default(), again(&refused, 300)).advice(), Some(false), "and nothing overflows");
}

#[test]
fn p44_a_server_that_honours_conditions_is_asked_with_get_again() {
    assert_eq!(after_all(on(), [unchanged()]).advice(), None);
}

#[test]
fn p44_now_and_then_a_body_proves_the_validators() {
    let long = after_all(on(), again(&enough(), 49));
    assert_eq!(long.advice(), Some(true));
    let longest = after_all(long, [enough()]);
    assert_eq!(longest.advice(), Some(false), "this poll is a GET");
    assert_eq!(after_all(longest, [in_vain(LARGE)]).advice(), Some(true), "and it goes on");
    let hidden = probed(news(1), Probe::Known, LARGE);
    let liar = after_all(longest, [hidden]);
    assert_eq!(liar.advice(), Some(false), "the validators stayed over a new entry");
    assert_eq!(after_all(liar, again(&in_vain(LARGE), 2000)).advice(), Some(false), "for good");
    let clock = probed(news(0), Probe::Known, LARGE);
    assert_eq!(after_all(longest, [clock]).advice(), Some(true), "other bytes without anything new hide nothing");
}

#[test]
fn p44_a_head_that_was_enough_is_as_cheap_as_a_304() {
    let dear = live(&reader(), again(&in_vain(LARGE), 10), &plain()).pop().unwrap();
    let cheap = live(&reader(), again(&enough(), 10), &plain()).pop().unwrap();
    assert_eq!((cheap.state.ignored_conditions, cheap.state.equal_downloads), (0, 0));
    assert!(delay(&cheap) < delay(&dear), "nothing stretches its interval");
}

#[test]
fn p44_what_is_known_survives_the_store() {
    for head_first in [HeadFirst::default(), on(), after_all(on(), [enough(), not_enough()])] {
        let state = PollState { head_first, ..PollState::default() };
        let json = serde_json::to_string(&state).unwrap();
        assert_eq!(json.contains("head_first"), !head_first.is_unknown(), "no byte where there is nothing to know");
        assert_eq!(serde_json::from_str::<PollState>(&json).unwrap(), state);
    }
}

/// Returns what is known, by its fields as they are stored.
fn stored(in_vain: u16, full_bytes: u64, credit: u32, run: u16, given_up: u8) -> HeadFirst {
    let fields = serde_json::json!({
        "in_vain": in_vain, "full_bytes": full_bytes, "credit": credit, "run": run, "given_up": given_up,
    });
    serde_json::from_value(fields).unwrap()
}

#[test]
fn p44_each_answer_changes_its_own_part_of_what_is_known() {
    let before = stored(2, 70_000, 1000, 5, 1);
    let refused = probed(same_bytes(validators()), Probe::Refused, LARGE);
    let lost = |probe: Probe| probed(failed(FailureKind::Timeout), probe, 10_000);
    for (before, report, expected) in [
        (before, enough(), stored(2, 70_000, 4096, 6, 1)),
        (before, not_enough(), stored(2, LARGE, 200, 0, 1)),
        (before, lost(Probe::NotEnough { spent: SPENT }), stored(2, 70_000, 200, 0, 1)),
        (before, refused, stored(0, 70_000, 0, 0, 2)),
        (before, lost(Probe::Known), before),
        (before, unchanged(), stored(0, 70_000, 0, 0, 1)),
        (before, news(1), stored(0, 70_000, 1000, 0, 1)),
        (before, in_vain(10_000), stored(2, 10_000, 1000, 0, 1)),
        (before, in_vain(32 * 1024), stored(3, 32 * 1024, 1000, 0, 1)),
        (stored(2, 70_000, 0, 5, 0), in_vain(10_000), stored(2, 70_000, 0, 0, 0)),
        (stored(0, 0, 1000, 0, 0), enough(), stored(0, 0, 4096, 1, 0)),
    ] {
        assert_eq!(before.after(&report), expected, "{:?} {:?}", report.probe, report.outcome);
    }
}
