//! Section 4, row by row.

use super::*;

pub(super) const TRANSIENT: [FailureKind; 5] =
    [FailureKind::Dns, FailureKind::Connect, FailureKind::Tls, FailureKind::Timeout, FailureKind::Truncated];
const BAD_FEED: [FailureKind; 5] = [
    FailureKind::NotAFeed,
    FailureKind::Malformed,
    FailureKind::TooLarge,
    FailureKind::Redirects,
    FailureKind::RefusedAddress,
];

/// Without our own floor, so that the first delays are visible.
pub(super) fn unfloored() -> PolicyConfig {
    PolicyConfig { min_interval: SECOND, ..plain() }
}

#[test]
fn transient_failures_are_tried_again_soon_then_normally_then_boxed() {
    let m = MINUTE;
    let expected = [5 * m, 10 * m, 20 * m, 40 * m, HOUR, 4 * HOUR, 8 * HOUR, 16 * HOUR, DAY, DAY];
    let soft: Vec<_> = [408, 421, 425, 502, 503, 504, 520, 522, 524, 530].map(answered).into();
    for report in TRANSIENT.map(failed).into_iter().chain(soft) {
        let decisions = live(&reader(), again(&report, 10), &unfloored());
        assert_eq!(delays(&decisions), expected, "{:?}", report.outcome);
        assert!(decisions[..5].iter().all(|decision| decision.state.penalty.is_none()));
        assert!(decisions[5..].iter().all(|decision| decision.state.penalty.is_some()));
    }
}

#[test]
fn our_own_floor_holds_for_second_tries_too() {
    let decisions = live(&reader(), again(&failed(FailureKind::Connect), 4), &plain());
    assert_eq!(delays(&decisions), [15 * MINUTE, 15 * MINUTE, 20 * MINUTE, 40 * MINUTE]);
}

#[test]
fn server_errors_are_boxed_for_four_hours_doubling_to_a_day() {
    for status in [500, 501, 505, 507, 599] {
        let decisions = live(&reader(), again(&answered(status), 5), &plain());
        assert_eq!(delays(&decisions), [4 * HOUR, 8 * HOUR, 16 * HOUR, DAY, DAY], "{status}");
    }
}

#[test]
fn client_errors_are_boxed_for_a_day() {
    for status in [400, 401, 402, 403, 404, 405, 406, 418, 451, 499] {
        let decisions = live(&reader(), again(&answered(status), 3), &plain());
        assert_eq!(delays(&decisions), [DAY, DAY, DAY], "{status}");
        assert_eq!(decisions[0].state.penalty.unwrap().kind, FailureKind::Status);
    }
}

#[test]
fn a_soft_status_of_the_host_is_passing_trouble() {
    let soft = Subject { soft_statuses: &[404, 500], ..reader() };
    assert_eq!(delay(&ask(&soft, &answered(404), &unfloored())), 5 * MINUTE);
    assert_eq!(delay(&ask(&soft, &answered(500), &unfloored())), 5 * MINUTE);
    assert_eq!(delay(&ask(&soft, &answered(403), &unfloored())), DAY);
}

#[test]
fn a_soft_status_that_other_feeds_of_the_host_get_too_is_never_boxed_for_as_long_as_the_rule_says() {
    let soft = Subject { soft_statuses: &[404], soft_alike: true, soft_for: DAY, ..reader() };
    let decisions = live(&soft, again(&answered(404), 40), &plain());
    let boxed = decisions.iter().find(|decision| decision.state.penalty.is_some()).unwrap();
    assert!(boxed.state.last_polled.unwrap().since(noon()) >= DAY);
    assert_eq!(delays(&decisions)[..6], [15, 15, 20, 40, 60, 60].map(|minutes| minutes * MINUTE));
    let alone = live(&Subject { soft_alike: false, ..soft }, again(&answered(404), 6), &plain());
    assert!(alone[5].state.penalty.is_some());
    let other = live(&soft, again(&answered(403), 1), &plain());
    assert!(other[0].state.penalty.is_some(), "another status");
}

#[test]
fn a_refusal_that_is_the_hosts_counts_nothing_against_the_feed_and_waits_for_the_hosts_rest() {
    let config = plain();
    let policy = Policy { config: &config, load: 0.0, price: config.price };
    let report = answered(403);
    let ask = |subject: &Subject<'_>, hours: u32| {
        host_refused(subject, &report, noon().after(hours * HOUR), noon(), NO_SALT, &policy)
    };
    let decision = ask(&reader(), 16);
    assert_eq!((delay(&decision), decision.state.penalty), (16 * HOUR, None));
    assert_eq!((decision.state.consecutive_failures, decision.state.last_status), (0, Some(403)));
    assert_eq!(rules(&decision).last(), Some(&Rule::HostRefuses));
    assert_eq!(delay(&ask(&reader(), 0)), HOUR, "its own interval");
    let boxed = super::ask(&reader(), &answered(403), &plain());
    let again = ask(&after(&reader(), &boxed), 1);
    assert_eq!((delay(&again), again.state.consecutive_failures), (DAY, 1), "an earlier run stays as it was");
    let gone = ask(&Subject { status: Status::Blacklisted, ..reader() }, 1);
    assert_eq!((gone.status, gone.next_due), (Status::Blacklisted, None));
    let is_refusal = |report: &FetchReport| is_refusal(report, Signing::Unknown);
    assert!(is_refusal(&answered(451)) && is_refusal(&failed(FailureKind::Blocked)) && !is_refusal(&answered(401)));
}

#[test]
fn bad_feeds_wait_their_interval_or_an_hour_and_double_to_a_day() {
    for kind in BAD_FEED {
        let decisions = live(&reader(), again(&failed(kind), 7), &plain());
        let hours = [1, 2, 4, 8, 16, 24, 24].map(|hours| hours * HOUR);
        assert_eq!(delays(&decisions), hours, "{kind}");
    }
    let popular = live(&readers(100), again(&failed(FailureKind::Malformed), 2), &plain());
    assert_eq!(delays(&popular), [HOUR, 2 * HOUR], "an hour where the interval is shorter");
    let slow = Subject { audience: Audience { interval: Some(3 * HOUR), ..Audience::default() }, ..reader() };
    let slow = live(&slow, again(&failed(FailureKind::NotAFeed), 2), &plain());
    assert_eq!(delays(&slow), [3 * HOUR, 6 * HOUR], "the interval where it is longer");
}

#[test]
fn an_answer_without_sense_is_treated_like_a_bad_feed() {
    for status in [204, 206, 226, 304] {
        assert_eq!(delay(&ask(&reader(), &answered(status), &plain())), HOUR, "{status}");
    }
    assert_eq!(delay(&ask(&reader(), &failed(FailureKind::Status), &plain())), HOUR, "no status at all");
}

#[test]
fn no_box_is_shorter_than_the_interval_of_a_feed_that_is_well() {
    let weekly = Subject { audience: Audience { interval: Some(7 * DAY), ..Audience::default() }, ..reader() };
    for report in [answered(500), answered(404), failed(FailureKind::Malformed)] {
        assert_eq!(delays(&live(&weekly, again(&report, 3), &plain())), [7 * DAY; 3], "{:?}", report.http_status);
    }
}

#[test]
fn in_a_mixed_run_the_delay_never_shrinks() {
    let run = [
        failed(FailureKind::Dns),
        answered(500),
        failed(FailureKind::Timeout),
        answered(500),
        failed(FailureKind::NotAFeed),
        failed(FailureKind::Dns),
    ];
    let decisions = live(&reader(), run, &plain());
    let expected = [15 * MINUTE, 4 * HOUR, 4 * HOUR, 8 * HOUR, 16 * HOUR, DAY];
    assert_eq!(delays(&decisions), expected);
    assert!(decisions[1..].iter().all(|decision| decision.state.penalty.is_some()), "only a good answer opens the box");
    assert_eq!(decisions[4].state.penalty.unwrap().kind, FailureKind::NotAFeed, "the latest reason is shown");
}

#[test]
fn one_good_answer_clears_the_box() {
    for good in [unchanged(), news(1), same_bytes(validators())] {
        let decisions = live(&reader(), [answered(500), answered(500), good, answered(500)], &plain());
        let state = &decisions[2].state;
        assert_eq!((state.penalty, state.consecutive_failures, state.failing_since), (None, 0, None));
        assert_eq!(delay(&decisions[2]), HOUR);
        assert_eq!(delay(&decisions[3]), 4 * HOUR, "a new run");
        let notices: Vec<_> = decisions.iter().map(|decision| decision.notices.first()).collect();
        assert_eq!(notices, [Some(Notice::Penalised), None, Some(Notice::Recovered), Some(Notice::Penalised)]);
    }
}

#[test]
fn passing_trouble_is_no_news() {
    let decisions = live(&reader(), [failed(FailureKind::Dns), unchanged()], &plain());
    assert!(decisions.iter().all(|decision| decision.notices.first().is_none()));
}

#[test]
fn the_box_is_shown_until_the_very_next_try() {
    let config = PolicyConfig { hot_minutes: true, ..plain() };
    let draw = Draw { salt: 0.3, minute: 0.3 };
    let decision =
        decide(&reader(), &answered(404), noon(), draw, &Policy { config: &config, load: 0.0, price: config.price });
    assert_eq!(Some(decision.state.penalty.unwrap().until), decision.next_due);
}

#[test]
fn p17_a_retry_after_is_a_floor_under_every_outcome_and_holds_a_person_back_too() {
    let asks = |report: FetchReport, wait: Duration| FetchReport { retry_after: Some(noon().after(wait)), ..report };
    for report in [unchanged(), news(1), answered(502), answered(404), answered(408), answered(522)] {
        let two_days = ask(&reader(), &asks(report.clone(), 2 * DAY), &plain());
        assert_eq!(delay(&two_days), 2 * DAY, "{:?}", report.http_status);
        assert_eq!(two_days.state.hold_until, Some(noon().after(2 * DAY)));
        assert_eq!(two_days.host_hold, None, "one feed's answer holds no host");
        let soon = ask(&reader(), &asks(report.clone(), SECOND), &plain());
        assert_eq!(delay(&soon), delay(&ask(&reader(), &report, &plain())), "a floor makes nothing faster or slower");
    }
    let for_ever = ask(&reader(), &asks(answered(500), 1000 * DAY), &plain());
    assert_eq!(delay(&for_ever), 30 * DAY, "up to the ceiling");
    assert!(rules(&for_ever).contains(&Rule::RetryAfter));
}

#[test]
fn p42_a_server_whose_deltas_are_of_no_use_is_asked_for_none_for_a_while() {
    let unusable = FetchReport { unusable_delta: true, ..answered(226) };
    let decisions = live(&reader(), [unusable, unchanged()], &plain());
    let until = decisions[0].state.no_delta_until.unwrap();
    assert_eq!(until, noon().after(30 * DAY));
    assert_eq!(decisions[1].state.no_delta_until, Some(until), "a good answer without one proves nothing");
    let later = Subject { state: PollState { no_delta_until: Some(noon()), ..PollState::default() }, ..reader() };
    assert_eq!(ask(&later, &unchanged(), &plain()).state.no_delta_until, None);
}

#[test]
fn a_site_that_blocks_is_left_alone_and_so_is_its_host() {
    let decisions = live(&reader(), again(&failed(FailureKind::Blocked), 5), &plain());
    assert_eq!(delays(&decisions), [4 * HOUR, 8 * HOUR, 16 * HOUR, DAY, DAY]);
    assert!(decisions.iter().all(|decision| decision.host_hold == decision.next_due));
    assert_eq!(decisions[0].state.penalty.unwrap().kind, FailureKind::Blocked);
    assert_eq!(ask(&reader(), &failed(FailureKind::NotAFeed), &plain()).host_hold, None);
}

#[test]
fn gone_is_gone_at_once() {
    let decision = ask(&reader(), &report(Outcome::Gone, Some(410)), &plain());
    assert_eq!((decision.status, decision.next_due), (Status::Gone, None));
    assert_eq!(decision.notices, Notice::Gone.into());
    assert_eq!(decision.state.consecutive_failures, 0, "not an error");
}

#[test]
fn a_feed_that_kills_workers_is_quarantined_for_an_hour_then_for_a_day_and_polled_again() {
    let decisions = live(&reader(), again(&failed(FailureKind::Crashed), 3), &plain());
    let hour = Duration::from_secs(3600);
    let mut before = noon();
    for (decision, longest) in decisions.iter().zip([hour * 2, hour * 25, hour * 25]) {
        let due = decision.next_due.expect("it is polled again");
        assert_eq!(decision.status, Status::Active);
        assert_eq!(decision.state.penalty.unwrap().kind, FailureKind::Crashed);
        let waits = due.since(before);
        assert!(waits >= longest / 2 && waits <= longest, "{waits:?}");
        before = due;
    }
    let notices: Vec<_> = decisions.iter().map(|decision| decision.notices.first()).collect();
    assert_eq!(notices, [Some(Notice::Quarantined), None, Some(Notice::Failing)]);
}

#[test]
fn ninety_days_of_failures_blacklist_a_feed() {
    let decisions = live(&reader(), again(&answered(403), 120), &plain());
    let (last, before): (Vec<&Decision>, Vec<&Decision>) =
        decisions.iter().partition(|decision| decision.next_due.is_none());
    assert_eq!(before.len(), 90, "a try a day");
    assert_eq!((last[0].status, last[0].notices.first()), (Status::Blacklisted, Some(Notice::Blacklisted)));
    let mixed = [failed(FailureKind::Dns), answered(500), failed(FailureKind::Malformed)];
    let kinds = (0..400).map(|index| mixed[index % 3].clone());
    assert!(live(&reader(), kinds, &plain()).iter().any(|decision| decision.status == Status::Blacklisted));
}

#[test]
fn a_success_in_between_starts_the_ninety_days_anew() {
    let reports = again(&answered(404), 80).into_iter().chain([unchanged()]).chain(again(&answered(404), 80));
    assert!(live(&reader(), reports, &plain()).iter().all(|decision| decision.status == Status::Active));
}

#[test]
fn time_in_which_nobody_asked_is_no_failure() {
    let first = ask(&reader(), &failed(FailureKind::Dns), &plain());
    let subject = after(&reader(), &first);
    let half_a_year_later = noon().after(180 * DAY);
    let second = ask(&subject, &FetchReport { started: half_a_year_later, ..failed(FailureKind::Dns) }, &plain());
    assert_eq!(second.status, Status::Active);
}

#[test]
fn a_feed_that_was_retired_comes_back_by_a_good_fetch_alone() {
    let state =
        PollState { failing_since: Some(noon().before(100 * DAY)), consecutive_failures: 99, ..PollState::default() };
    for status in [Status::Blacklisted, Status::Gone] {
        let retired = Subject { status, state, ..reader() };
        for bad in [answered(500), failed(FailureKind::Malformed), throttled(None)] {
            let still = ask(&retired, &bad, &plain());
            assert_eq!((still.status, still.next_due, still.notices.first()), (status, None, None), "{bad:?}");
        }
        let back = ask(&retired, &unchanged(), &plain());
        assert_eq!((back.status, back.notices.first()), (Status::Active, Some(Notice::Recovered)));
        assert!(back.next_due.is_some());
    }
    let gone = report(Outcome::Gone, Some(410));
    let blacklisted = ask(&Subject { status: Status::Blacklisted, state, ..reader() }, &gone, &plain());
    assert_eq!((blacklisted.status, blacklisted.notices.first()), (Status::Gone, Some(Notice::Gone)));
    let again = ask(&Subject { status: Status::Gone, state, ..reader() }, &gone, &plain());
    assert_eq!((again.status, again.notices.first()), (Status::Gone, None), "consumers are told once");
    let until = noon().after(5 * HOUR);
    let throttled = ask(&Subject { status: Status::Gone, state, ..reader() }, &throttled(Some(until)), &plain());
    assert_eq!((throttled.state.hold_until, throttled.host_hold), (Some(until), Some(until)), "a hold is kept");
}

#[test]
fn pings_before_a_feed_was_retired_do_not_delay_the_first_one_after() {
    let state =
        PollState { fruitless_wakes: 200, failing_since: Some(noon().before(100 * DAY)), ..PollState::default() };
    let woken = |report: FetchReport| FetchReport { answers_wake: Some(noon()), ..report };
    let subject = Subject { state, ..reader() };
    for last in [answered(404), report(Outcome::Gone, Some(410))] {
        let retired = ask(&subject, &woken(last.clone()), &plain());
        assert_eq!(retired.state.fruitless_wakes, 0);
        let tried = Subject { state: retired.state, status: retired.status, ..reader() };
        assert_eq!(ask(&tried, &woken(last), &plain()).state.fruitless_wakes, 1, "those after do");
    }
}

#[test]
fn what_a_person_ended_stays_ended() {
    for status in [Status::Removed, Status::Merged] {
        let decision = ask(&Subject { status, ..reader() }, &unchanged(), &plain());
        assert_eq!((decision.status, decision.next_due, decision.notices.first()), (status, None, None));
    }
    let paused = ask(&Subject { status: Status::Paused, ..reader() }, &unchanged(), &plain());
    assert_eq!(paused.status, Status::Paused, "a fetch that was under way does not resume a feed");
}

#[test]
fn a_soft_status_is_boxed_as_soon_as_the_run_has_lasted_as_long_as_the_rule_says() {
    let is_boxed = |long: Duration| {
        let state = PollState {
            last_polled: Some(noon().before(HOUR)),
            failing_since: Some(noon().before(long)),
            failure_delay: HOUR,
            consecutive_failures: 9,
            ..PollState::default()
        };
        let soft = Subject { soft_statuses: &[404], soft_alike: true, soft_for: DAY, state, ..reader() };
        ask(&soft, &answered(404), &plain()).state.penalty.is_some()
    };
    assert_eq!([DAY - SECOND, DAY].map(is_boxed), [false, true]);
}
