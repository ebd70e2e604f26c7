//! Persistent failures: readers are notified once per run of failures, and again when the run ends.

use super::*;

/// Returns a feed that was read and posts this many items a day.
fn posting(per_day: f32) -> Subject<'static> {
    let rhythm = Rhythm::steady(per_day * 1_000.0, 1_000.0, noon());
    let state = PollState { rhythm, last_success: Some(noon()), ..PollState::default() };
    Subject { state, ..reader() }
}

/// Plays refusals until after ten days, then a good answer. Returns when `feed.failing` was published after the first
/// failure, and how often it and `feed.recovered` were.
fn notified(subject: &Subject<'_>, report: &FetchReport) -> (Option<Duration>, usize, usize) {
    let mut decisions = live(subject, again(report, 200), &plain());
    let first = decisions[0].state.last_polled.unwrap();
    decisions.retain(|decision| decision.state.last_polled.unwrap().since(first) < 10 * DAY);
    let last = decisions.last().unwrap();
    let good = FetchReport { started: last.next_due.unwrap(), ..unchanged() };
    decisions.push(ask(&after(subject, last), &good, &plain()));
    let is = |wanted| move |decision: &&Decision| decision.notices.iter().any(|notice| notice == wanted);
    let failing: Vec<_> = decisions.iter().filter(is(Notice::Failing)).collect();
    let at = failing.first().map(|decision| decision.state.last_polled.unwrap().since(first));
    (at, failing.len(), decisions.iter().filter(is(Notice::Recovered)).count())
}

#[test]
fn readers_are_told_once_a_feed_has_failed_for_the_time_of_two_posts() {
    // Boxed for a day at a time: the first poll after the time has passed.
    for (per_day, days) in [(24.0, 1), (1.1, 2), (0.55, 4), (0.1, 7)] {
        assert_eq!(notified(&posting(per_day), &answered(403)), (Some(days * DAY), 1, 1), "{per_day} posts a day");
    }
}

#[test]
fn a_busy_feed_is_told_of_within_hours_and_one_failure_alone_never() {
    let (at, times, recovered) = notified(&posting(24.0), &failed(FailureKind::Timeout));
    assert!((6 * HOUR..=14 * HOUR).contains(&at.unwrap()), "{at:?}");
    assert_eq!((times, recovered), (1, 1));
    let config = PolicyConfig {
        failing: crate::config::FailingConfig { posts: 0.0, min: Duration::ZERO, max: Duration::ZERO },
        ..plain()
    };
    let decisions = live(&posting(24.0), again(&answered(403), 2), &config);
    let notices = decisions.iter().map(|decision| decision.notices.iter().collect::<Vec<_>>());
    assert_eq!(notices.collect::<Vec<_>>(), [vec![Notice::Penalised], vec![Notice::Failing]]);
}

#[test]
fn the_longest_times_that_can_be_configured_do_not_overflow() {
    let failing = crate::config::FailingConfig { posts: f64::MAX, min: Duration::ZERO, max: Duration::MAX };
    let config = PolicyConfig { failing, ..plain() };
    let decisions = live(&posting(24.0), again(&answered(403), 2), &config);
    assert!(decisions.iter().all(|decision| !decision.state.failing));
}

#[test]
fn a_feed_that_was_never_read_is_told_of_after_the_shortest_time() {
    let (at, times, _) = notified(&reader(), &answered(500));
    assert_eq!((at, times), (Some(12 * HOUR), 1), "polls after 4 and 12 hours; the shortest time is 6");
}

#[test]
fn a_feed_that_fails_again_is_told_of_again() {
    let week = || again(&answered(403), 7);
    let reports = week().into_iter().chain([unchanged()]).chain(week()).chain([unchanged()]);
    let decisions = live(&posting(1.0), reports, &plain());
    let notices: Vec<Notice> =
        decisions.iter().flat_map(|decision| decision.notices.iter().collect::<Vec<_>>()).collect();
    let run = [Notice::Penalised, Notice::Failing, Notice::Recovered];
    assert_eq!(notices, [run, run].concat());
}

#[test]
fn an_end_of_trouble_that_never_entered_the_box_is_told_too() {
    let state = PollState { failing: true, failing_since: Some(noon()), consecutive_failures: 3, ..posting(1.0).state };
    let subject = Subject { state, ..reader() };
    let back = ask(&subject, &unchanged(), &plain());
    assert_eq!((back.notices, back.state.failing), (Notice::Recovered.into(), false));
}

#[test]
fn a_notice_that_is_taken_out_leaves_the_other() {
    let both = Notices::of(Some(Notice::Penalised), Some(Notice::Failing));
    assert_eq!(both.without(Notice::Penalised), Notices::of(None, Some(Notice::Failing)));
    assert_eq!(both.without(Notice::Failing), Notices::of(Some(Notice::Penalised), None));
    assert_eq!(both.without(Notice::Gone), both);
}
