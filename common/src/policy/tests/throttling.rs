//! Section 5: throttling.

use super::*;

#[test]
fn retry_after_holds_the_feed_in_full_and_its_host() {
    let until = noon().after(5 * HOUR);
    let decision = ask(&reader(), &throttled(Some(until)), &plain());
    assert_eq!(
        (decision.next_due, decision.state.hold_until, decision.host_hold),
        (Some(until), Some(until), Some(until))
    );
    assert_eq!(rules(&decision), [Rule::Category, Rule::RetryAfter]);
    assert_eq!((decision.state.consecutive_failures, decision.state.penalty), (0, None), "throttling is not a failure");
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
