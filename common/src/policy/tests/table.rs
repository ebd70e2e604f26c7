//! Section 4, row by row, and section 5.

use super::*;

const TRANSIENT: [FailureKind; 5] =
    [FailureKind::Dns, FailureKind::Connect, FailureKind::Tls, FailureKind::Timeout, FailureKind::Truncated];
const BAD_FEED: [FailureKind; 5] = [
    FailureKind::NotAFeed,
    FailureKind::Malformed,
    FailureKind::TooLarge,
    FailureKind::Redirects,
    FailureKind::RefusedAddress,
];

/// Without our own floor, so that the first delays are visible.
fn unfloored() -> PolicyConfig {
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
fn a_403_is_a_refusal_unless_the_feed_is_asked_with_a_signature_next() {
    let unsigned = FetchReport { wants_signature: true, ..answered(403) };
    assert!(!is_refusal(&unsigned, Signing::Unknown));
    assert!(is_refusal(&unsigned, Signing::Useless(Timestamp::MAX)), "a signature was of no use");
    assert!(is_refusal(&answered(403), Signing::Wanted), "it was signed");
}

#[test]
fn what_is_asked_with_a_signature_next_is_not_boxed_unless_it_was_asked_so_before() {
    let unsigned = FetchReport { wants_signature: true, ..answered(403) };
    let first = ask(&reader(), &unsigned, &unfloored());
    assert_eq!((delay(&first), first.state.penalty), (5 * MINUTE, None));
    let signed = Subject { state: PollState { signing: Signing::Wanted, ..PollState::default() }, ..reader() };
    assert_eq!(delay(&ask(&signed, &unsigned, &unfloored())), DAY);
}

#[test]
fn only_what_answers_a_signed_request_with_activities_is_asked_with_a_signature_further() {
    let subject = |signing| Subject { state: PollState { signing, ..PollState::default() }, ..reader() };
    let after = |report: FetchReport| super::ask(&subject(Signing::Wanted), &report, &plain()).state.signing;
    assert_eq!(after(FetchReport { wants_signature: true, ..news(1) }), Signing::Wanted);
    assert_eq!(after(same_bytes(Validators::default())), Signing::Wanted, "nothing new is known");
    assert_eq!(after(news(1)), Signing::Unknown, "an ordinary feed that was refused once");
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
fn retry_after_holds_the_feed_in_full_and_its_host() {
    let until = noon().after(5 * HOUR);
    let decision = ask(&reader(), &throttled(Some(until)), &plain());
    assert_eq!(
        (decision.next_due, decision.state.hold_until, decision.host_hold),
        (Some(until), Some(until), Some(until))
    );
    assert_eq!(rules(&decision), [Rule::Category, Rule::RetryAfter]);
    assert_eq!((decision.state.consecutive_failures, decision.state.penalty), (0, None), "throttling is no failure");
}

#[test]
fn a_short_retry_after_does_not_make_the_feed_due_earlier_than_usual() {
    assert_eq!(delay(&ask(&reader(), &throttled(Some(noon().after(SECOND))), &plain())), HOUR);
}

#[test]
fn an_absurd_retry_after_counts_thirty_days_and_shows_the_ceiling() {
    let decision = ask(&reader(), &throttled(Some(Timestamp::MAX)), &plain());
    assert_eq!(delay(&decision), 30 * DAY);
    assert_eq!(decision.state.hold_until, decision.next_due);
    assert_eq!(rules(&decision), [Rule::Category, Rule::RetryAfter, Rule::Ceiling]);
}

#[test]
fn a_past_retry_after_counts_as_none() {
    let decision = ask(&reader(), &throttled(Some(noon().before(SECOND))), &plain());
    assert_eq!(delay(&decision), 4 * HOUR);
}

#[test]
fn throttling_without_a_time_doubles_from_four_hours_and_stretches_the_interval() {
    let decisions = live(&reader(), again(&throttled(None), 5), &plain());
    assert_eq!(delays(&decisions), [4 * HOUR, 8 * HOUR, 16 * HOUR, DAY, DAY]);
    assert_eq!(decisions[0].state.stretch, 1.5);
    assert_eq!(decisions[1].state.stretch, 2.25);
    let life = again(&throttled(None), 2).into_iter().chain(again(&unchanged(), 30));
    let delays = delays(&live(&reader(), life, &plain())[2..]);
    assert_eq!(delays[0].as_secs() / 60, 128, "2.25 hours, less a twentieth");
    assert!(delays.is_sorted_by(|before, next| before >= next), "it shrinks with good answers");
    assert_eq!(delays[29], HOUR);
}

#[test]
fn a_standing_hold_outlives_other_answers() {
    let until = noon().after(5 * DAY);
    let held = after(&reader(), &ask(&reader(), &throttled(Some(until)), &plain()));
    let later = noon().after(HOUR);
    for report in [unchanged(), answered(500), throttled(Some(later.after(SECOND))), throttled(None)] {
        let decision = ask(&held, &FetchReport { started: later, ..report }, &plain());
        assert_eq!(decision.next_due, Some(until));
    }
    let over = ask(&held, &FetchReport { started: until, ..unchanged() }, &plain());
    assert_eq!(over.state.hold_until, None);
}

#[test]
fn throttling_inside_a_run_of_failures_opens_no_box() {
    let decisions = live(&reader(), [answered(404), throttled(Some(noon().after(25 * HOUR))), answered(500)], &plain());
    assert_eq!(delays(&decisions), [DAY, DAY, DAY]);
    assert!(decisions[1].state.penalty.is_some());
}

#[test]
fn throttling_outside_a_run_of_failures_puts_off_no_retry() {
    let decisions = live(&reader(), [throttled(None), failed(FailureKind::Timeout)], &plain());
    assert_eq!(decisions[0].state.failure_delay, Duration::ZERO);
    assert_eq!(delay(&decisions[1]), 15 * MINUTE);
}

#[test]
fn a_host_is_held_for_an_hour_until_a_second_feed_is_throttled() {
    let (now, asked) = (noon(), noon().after(DAY));
    let an_hour = now.after(HOUR);
    let hold = |until, asked| HostHold { until, asked, cause: FeedId(1) };
    assert_eq!(host_hold(None, FeedId(1), asked, now), an_hour);
    assert_eq!(host_hold(None, FeedId(1), now.after(SECOND), now), now.after(SECOND));
    let alone = hold(an_hour, asked);
    assert_eq!(host_hold(Some(&alone), FeedId(2), asked, now), asked, "a second feed: in full");
    assert_eq!(host_hold(Some(&alone), FeedId(2), an_hour, an_hour), asked, "though it asked for less, after the hour");
    let later = now.after(HOUR / 2);
    assert_eq!(host_hold(Some(&alone), FeedId(1), asked, later), later.after(HOUR), "the same one again");
    assert_eq!(host_hold(Some(&hold(asked, an_hour)), FeedId(1), an_hour, now), asked, "never earlier");
    assert_eq!(host_hold(Some(&hold(now, now)), FeedId(2), asked, now), an_hour, "the earlier hold is over");
}

#[test]
fn a_used_up_limit_holds_the_host_for_an_hour_at_most_and_changes_nothing_else() {
    let limited =
        |report: &FetchReport, wait| FetchReport { limited_until: Some(noon().after(wait)), ..report.clone() };
    let gone = report(Outcome::Gone, Some(410));
    for report in [unchanged(), news(1), answered(404), answered(502), failed(FailureKind::Timeout), gone] {
        let without = ask(&reader(), &report, &plain());
        let asked = [(10 * MINUTE, Some(10 * MINUTE)), (DAY, Some(HOUR + SECOND)), (Duration::ZERO, None)];
        for (wait, held) in asked {
            let decision = ask(&reader(), &limited(&report, wait), &plain());
            assert_eq!(decision.host_hold, held.map(|held| noon().after(held)), "{:?}", report.http_status);
            assert_eq!(Decision { host_hold: None, ..decision }, without);
        }
    }
    let (until, ten_minutes) = (noon().after(2 * HOUR), Some(noon().after(10 * MINUTE)));
    for busy in [throttled(Some(until)), throttled(None), failed(FailureKind::Blocked)] {
        let decision = ask(&reader(), &limited(&busy, 10 * MINUTE), &plain());
        assert_eq!(decision, ask(&reader(), &busy, &plain()), "throttling says it already");
    }
    let retired = Subject { status: Status::Gone, ..reader() };
    assert_eq!(ask(&retired, &limited(&answered(500), 10 * MINUTE), &plain()).host_hold, ten_minutes);
    let policy = Policy { config: &plain(), load: 0.0, price: 0.1 };
    let refused = limited(&answered(403), 10 * MINUTE);
    assert_eq!(host_refused(&reader(), &refused, until, noon(), NO_SALT, &policy).host_hold, ten_minutes);
}

#[test]
fn a_used_up_limit_holds_a_host_for_an_hour_whichever_feeds_show_it() {
    let (now, asked) = (noon(), noon().after(DAY));
    let an_hour = now.after(HOUR);
    let hold = |until, asked| HostHold { until, asked, cause: FeedId(1) };
    assert_eq!(limit_hold(None, FeedId(1), asked, now), hold(an_hour, asked));
    assert_eq!(limit_hold(None, FeedId(1), now.after(SECOND), now), hold(now.after(SECOND), now.after(SECOND)));
    assert_eq!(limit_hold(Some(&hold(now, asked)), FeedId(2), asked, now), hold(an_hour, asked), "not in full");
    assert_eq!(limit_hold(Some(&hold(asked, asked)), FeedId(2), an_hour, now), hold(asked, asked), "never earlier");
    let ended = hold(now, now);
    assert_eq!(limit_hold(Some(&ended), FeedId(2), an_hour, now).cause, FeedId(2), "the earlier hold has ended");
}

#[test]
fn a_hosts_limit_counts_until_it_ends_and_for_an_hour_after_the_response_at_most() {
    let limited =
        |report: FetchReport, wait: Duration| FetchReport { limited_until: Some(noon().after(wait)), ..report };
    let held = |wait: Duration, late: Duration| {
        held_by_limit(&limited(unchanged(), wait), noon().after(late)).map(|until| until.since(noon()))
    };
    let ten = 10 * MINUTE;
    assert_eq!([held(ten, SECOND), held(DAY, SECOND)], [Some(ten), Some(HOUR + SECOND)]);
    assert_eq!([held(ten, ten), held(ten, HOUR)], [None; 2], "it has ended");
    assert_eq!(held_by_limit(&unchanged(), noon()), None);

    let gone = ask(&reader(), &limited(report(Outcome::Gone, Some(410)), ten), &plain());
    assert_eq!(gone.host_hold, Some(noon().after(ten)));
    let policy = Policy { config: &plain(), load: 0.0, price: 0.1 };
    for status in [Status::Active, Status::Gone] {
        let (subject, refused) = (Subject { status, ..reader() }, limited(answered(403), ten));
        let decision = host_refused(&subject, &refused, noon().after(2 * HOUR), noon(), NO_SALT, &policy);
        assert_eq!(decision.host_hold, Some(noon().after(ten)), "{status}");
    }
}

#[test]
fn a_retry_after_that_ends_as_the_request_starts_counts_as_none() {
    assert_eq!(delay(&ask(&reader(), &throttled(Some(noon())), &plain())), 4 * HOUR);
    let good = FetchReport { retry_after: Some(noon()), ..unchanged() };
    assert_eq!(ask(&reader(), &good, &plain()), ask(&reader(), &unchanged(), &plain()));
}

#[test]
fn a_retry_after_below_its_ceiling_shows_no_ceiling_where_skipped_time_follows() {
    let hints = FeedHints { skip_hours: 1 << 17, ..FeedHints::default() };
    let known = after(&reader(), &ask(&reader(), &hinted(1, hints), &plain()));
    let decision = ask(&known, &throttled(Some(noon().after(5 * HOUR))), &plain());
    assert_eq!(rules(&decision), [Rule::Category, Rule::RetryAfter, Rule::Skip]);
    assert_eq!(decision.next_due, Some(at("2026-10-07T18:00:00Z")));
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

#[test]
fn what_is_known_about_signatures_follows_from_each_answer() {
    let wants = |report: FetchReport| FetchReport { wants_signature: true, ..report };
    let malformed = FetchReport { http_status: Some(403), ..failed(FailureKind::Malformed) };
    let (standing, ended) = (Signing::Useless(noon().after(SECOND)), Signing::Useless(noon()));
    let useless = Signing::Useless(noon().after(30 * DAY));
    for (before, report, expected) in [
        (Signing::Unknown, wants(answered(403)), Signing::Wanted),
        (Signing::Unknown, answered(403), Signing::Unknown),
        (standing, wants(answered(403)), standing),
        (ended, wants(answered(403)), Signing::Wanted),
        (ended, answered(403), Signing::Unknown),
        (Signing::Wanted, answered(401), useless),
        (Signing::Wanted, answered(403), useless),
        (Signing::Wanted, wants(answered(403)), Signing::Wanted),
        (Signing::Wanted, answered(500), Signing::Wanted),
        (Signing::Wanted, malformed, Signing::Wanted),
    ] {
        assert_eq!(before.after(&report, noon()), expected, "{before:?} {:?}", report.http_status);
        let is_tried = before != Signing::Wanted && expected == Signing::Wanted;
        assert_eq!(before.is_tried_after(&report), is_tried, "{before:?} {:?}", report.http_status);
    }
    assert!(!Signing::Unknown.is_tried_after(&wants(news(1))), "it was not refused");
}

#[test]
fn a_refused_feed_is_tried_again_soon_only_if_the_next_request_is_signed() {
    let wants = || FetchReport { wants_signature: true, ..answered(403) };
    for (signing, report, expected) in [
        (Signing::Unknown, wants(), 15 * MINUTE),
        (Signing::Unknown, answered(403), DAY),
        (Signing::Useless(noon().after(DAY)), wants(), DAY),
        (Signing::Wanted, answered(403), DAY),
    ] {
        let subject = Subject { state: PollState { signing, ..PollState::default() }, ..reader() };
        assert_eq!(delay(&ask(&subject, &report, &plain())), expected, "{signing:?}");
    }
}

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
