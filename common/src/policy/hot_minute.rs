//! Minutes in which everybody else polls (rule 7): the first four of an hour and the first of each five. Cron jobs and
//! careless readers start there; we keep away.
//!
//! A due time in such a minute moves to a uniformly drawn moment of the open minutes among the next fifteen, so that the
//! minute after a hot one does not become the new rush.

use std::time::Duration;

use super::Rule;
use super::plan::Plan;
use crate::time::Timestamp;

const MINUTE: i64 = 60_000;
/// How far a due time is moved at most.
const REACH: Duration = Duration::from_secs(15 * 60);
/// A move out of a hot minute may end in skipped time, whose end is the start of an hour: a second move then stays in the
/// hour. One more than that can ever take.
const ROUNDS: usize = 4;

/// Moves the plan until it is neither in skipped time nor, if `avoid`, in a hot minute.
pub(super) fn apply(plan: &mut Plan, avoid: bool, draw: f64) {
    let mut draw = draw.clamp(0.0, 1.0);
    plan.leave_skipped();
    for _ in 0..ROUNDS {
        if !avoid || !is_hot(plan.due) {
            return;
        }
        plan.move_to(Rule::HotMinute, moved(plan.due, plan.interval, draw));
        plan.leave_skipped();
        draw = next_draw(draw);
    }
}

/// Is this in a minute that we keep away from?
pub(super) fn is_hot(at: Timestamp) -> bool {
    let minute = at.millis() / MINUTE % 60;
    minute < 4 || minute % 5 == 0
}

/// A moment of the open minutes of the next fifteen. A feed that is polled more often than that moves by its own interval
/// at most, or into the first open minute.
fn moved(due: Timestamp, interval: Duration, draw: f64) -> Timestamp {
    let start = due.millis();
    let own_minute = start - start % MINUTE;
    let minutes = (1..=15).map(|ahead| own_minute + ahead * MINUTE);
    let open = minutes.filter(|minute| !is_hot(Timestamp::from_millis(*minute)));
    let first = open.clone().next().unwrap_or(own_minute);
    let reach = i64::try_from(interval.min(REACH).as_millis()).unwrap_or(0);
    let end = (start + reach).max(first + MINUTE);
    // What of each open minute lies before the end.
    let parts = open.map(|minute| (minute, (end - minute).clamp(0, MINUTE)));
    let mut rest = share(parts.clone().map(|(_, length)| length).sum(), draw);
    for (minute, length) in parts {
        if rest < length {
            return Timestamp::from_millis(minute + rest);
        }
        rest -= length;
    }
    Timestamp::from_millis(first)
}

/// The millisecond of `total` that a draw stands for, below `total`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "at most fifteen minutes of milliseconds"
)]
fn share(total: i64, draw: f64) -> i64 {
    ((total as f64 * draw) as i64).min(total - 1)
}

/// A further draw, determined by the last: the finaliser of SplitMix64, whose outputs pass for independent.
#[expect(clippy::cast_precision_loss, reason = "53 bits are what a number between 0 and 1 holds")]
fn next_draw(draw: f64) -> f64 {
    let mut bits = draw.to_bits().wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}
