//! When a failed request is retried.

use std::time::Duration;

use common::time::Timestamp;

/// Before the first retry; doubles with each failure.
const FIRST: Duration = Duration::from_secs(1);
/// Between two retries, at most.
const CEILING: Duration = Duration::from_secs(6 * 3600);
/// The maximum wait that a target can request.
const LONGEST_HOLD: Duration = Duration::from_secs(86_400);

/// Returns when to retry after this number of failures in a row. `draw` from [0, 1) spreads retries by a quarter either way; a
/// `Retry-After` is never undercut.
pub(super) fn next_try(failures: u32, retry_after: Option<Timestamp>, draw: f64, now: Timestamp) -> Timestamp {
    let doubled = FIRST.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(CEILING);
    let by_backoff = now.after(doubled.mul_f64(0.75 + draw / 2.0));
    let wished = retry_after.map(|at| at.min(now.after(LONGEST_HOLD)));
    wished.map_or(by_backoff, |at| at.max(by_backoff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_come_ever_later_up_to_a_ceiling_and_never_before_a_retry_after() {
        let now = Timestamp::from_millis(1_000_000);
        let wait = |failures, draw| next_try(failures, None, draw, now).since(now).as_secs_f64();
        assert_eq!([wait(1, 0.5), wait(2, 0.5), wait(8, 0.5)], [1.0, 2.0, 128.0]);
        assert_eq!([wait(1, 0.0), wait(1, 1.0)], [0.75, 1.25]);
        assert_eq!([wait(40, 0.5), wait(u32::MAX, 0.5)], [21_600.0; 2]);
        let held = |seconds| next_try(1, Some(now.after(Duration::from_secs(seconds))), 0.5, now).since(now).as_secs();
        assert_eq!([held(0), held(90), held(1_000_000)], [1, 90, 86_400]);
    }
}
