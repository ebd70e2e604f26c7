//! What the response to a request changes: a success moves the cursor, a failure is retried, and some failures disable a
//! subscription.

use std::time::Duration;

use common::delivery::DeliveryAnswer;
use common::outcome::DeliveryOutcome;
use common::time::Timestamp;
use rand::RngExt;

use super::backoff::next_try;
use store::Progress;

/// Returns whether a request failed because of this scheduler, and not because of its target.
pub(super) fn is_ours(outcome: DeliveryOutcome) -> bool {
    matches!(outcome, DeliveryOutcome::Unsigned | DeliveryOutcome::Shortage)
}

/// Notes the response to a request that was sent and answered at these times; returns why the subscription is disabled, if it is.
pub(super) fn settle(
    progress: &mut Progress,
    answer: &DeliveryAnswer,
    events: u32,
    give_up_after: Duration,
    (at, now): (Timestamp, Timestamp),
) -> Option<String> {
    if answer.outcome == DeliveryOutcome::Delivered {
        (progress.cursor, progress.pending, progress.waiting_since) = (progress.pending, 0, None);
        progress.start_again();
        progress.delivered += u64::from(events);
        return None;
    }
    progress.failures = progress.failures.saturating_add(1);
    let next = next_try(progress.failures, answer.retry_after, rand::rng().random(), now);
    let due = progress.next_try.replace(next);
    if progress.failing_since.is_some() {
        let late = due.map_or(Duration::ZERO, |due| at.since(due));
        let lost = if is_ours(answer.outcome) { late + next.since(at) } else { late };
        progress.untried = progress.untried.saturating_add(u64::try_from(lost.as_millis()).unwrap_or(u64::MAX));
    }
    if is_ours(answer.outcome) {
        return None;
    }
    let since = *progress.failing_since.get_or_insert(now);
    if answer.outcome == DeliveryOutcome::Gone {
        return Some("the target answered 410 Gone: it wants no more requests".to_owned());
    }
    let tried = now.since(since).saturating_sub(Duration::from_millis(progress.untried));
    (tried >= give_up_after).then(|| {
        let last = match answer.status {
            Some(status) => format!("status {status}"),
            None => answer.detail.clone(),
        };
        let days = common::duration::as_text(give_up_after);
        format!("its requests have failed for {days} (delivery.give_up_after); the last one: {last}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(outcome: DeliveryOutcome) -> DeliveryAnswer {
        DeliveryAnswer { status: Some(500), ..DeliveryAnswer::unanswered(outcome, "no") }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + seconds * 1000)
    }

    /// Returns a request that is sent when it is due.
    fn settled(progress: &mut Progress, outcome: DeliveryOutcome, now: Timestamp) -> Option<String> {
        progress.next_try = progress.next_try.map(|_| now);
        settle(progress, &answer(outcome), 2, Duration::from_secs(86_400), (now, now))
    }

    #[test]
    fn a_failure_is_retried_for_days_and_then_the_subscription_is_disabled() {
        let mut progress = Progress { cursor: 3, pending: 9, waiting_since: Some(at(0)), ..Progress::default() };
        assert_eq!(settled(&mut progress, DeliveryOutcome::ServerError, at(0)), None);
        assert_eq!((progress.failures, progress.failing_since, progress.pending), (1, Some(at(0)), 9));
        assert!(progress.next_try > Some(at(0)));
        assert_eq!(settled(&mut progress, DeliveryOutcome::Timeout, at(86_399)), None);
        let why = settled(&mut progress, DeliveryOutcome::ServerError, at(86_400)).unwrap();
        assert!(why.contains("for 1day") && why.contains("status 500"), "{why}");
        assert_eq!((progress.cursor, progress.failures), (3, 3), "nothing is skipped");

        assert_eq!(settled(&mut progress, DeliveryOutcome::Delivered, at(86_401)), None);
        let expected = Progress { cursor: 9, delivered: 2, ..Progress::default() };
        assert_eq!(progress, expected);
        assert!(settled(&mut progress, DeliveryOutcome::Gone, at(0)).unwrap().contains("410"));
    }

    #[test]
    fn time_without_a_scheduler_and_failures_of_the_scheduler_disable_nothing() {
        let day = Duration::from_secs(86_400);
        let mut progress = Progress { pending: 9, ..Progress::default() };
        assert_eq!(settled(&mut progress, DeliveryOutcome::Timeout, at(0)), None);
        progress.next_try = Some(at(10));
        let late = (at(90_000), at(90_001));
        assert_eq!(settle(&mut progress, &answer(DeliveryOutcome::Timeout), 2, day, late), None);
        assert_eq!((progress.failures, progress.untried), (2, 89_990_000));
        assert!(settled(&mut progress, DeliveryOutcome::Timeout, at(86_400 + 89_990)).is_some());

        // The target fails, then the scheduler for a month, then the target again.
        let mut progress = Progress { pending: 9, ..Progress::default() };
        assert_eq!(settled(&mut progress, DeliveryOutcome::Timeout, at(0)), None);
        while progress.next_try < Some(at(30 * 86_400)) {
            let due = progress.next_try.unwrap();
            assert_eq!(settle(&mut progress, &answer(DeliveryOutcome::Unsigned), 2, day, (due, due)), None);
        }
        let due = progress.next_try.unwrap();
        assert_eq!(settle(&mut progress, &answer(DeliveryOutcome::Timeout), 2, day, (due, due)), None);
        assert!(settled(&mut progress, DeliveryOutcome::Timeout, due.after(day)).is_some());

        let mut progress = Progress { pending: 9, ..Progress::default() };
        for (outcome, seconds) in [(DeliveryOutcome::Shortage, 0), (DeliveryOutcome::Unsigned, 900_000)] {
            assert_eq!(settled(&mut progress, outcome, at(seconds)), None);
            assert!(progress.failing_since.is_none() && progress.next_try > Some(at(seconds)), "{outcome:?}");
        }
    }
}
