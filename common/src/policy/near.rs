//! Chooses the due time of a feed whose interval follows from the adaptive rule (rules 6 and 7 in one step), while minutes are
//! evenly used: a random moment in the open minutes between half a salt before the due time and half a salt after it.
//!
//! The wide way (`salt`, then `hot_minute`) adds the whole salt and moves what is due in a hot minute up to a quarter of an
//! hour ahead, which costs feeds at the shortest interval a tenth of their delay. It keeps minutes even in every fleet;
//! this one does not. So [`super::Minutes`] chooses: near, unless the near minute is already fuller than others.
//!
//! The adaptive rule's intervals are estimates, not promises. Salt may therefore shorten them, but never below a floor: our
//! own, the publisher's, a hold, the present. Where a floor leaves no room, half a salt is added.

use super::hot_minute::{MINUTE, hot_until, is_hot};
use super::plan::{Plan, scaled};
use super::{Draw, Rule, hot_minute};
use crate::config::PolicyConfig;
use crate::time::Timestamp;

const HOUR: i64 = 60 * MINUTE;
/// The open time of each hour, from any moment on.
const OPEN_PER_HOUR: i64 = 45 * MINUTE;
/// Hot minutes repeat with this period, except for the first ones of an hour.
const MARK: i64 = 5 * MINUTE;
/// The open time after a hot minute over which a poll is placed for which salt reaches no open minute.
const STRETCH: i64 = 4 * MINUTE;

/// Moves the plan to a moment of the open minutes near its due time, and not before `earliest`.
pub(super) fn apply(plan: &mut Plan, earliest: Timestamp, draw: Draw, config: &PolicyConfig) {
    let half = scaled(plan.interval, config.salt / 2.0);
    let due = plan.due;
    // What moved the due time away from the interval's end (skipped time, a hold, a late report) is a floor.
    let first = match due == plan.base.after(plan.interval) {
        true => due.before(half).max(plan.base.after(plan.floor.max(plan.least))).max(earliest).min(due),
        false => due,
    };
    let last = due.after(half);
    if config.hot_minutes {
        let open = open_between(first, last);
        if open > 0 {
            plan.move_to(Rule::Salt, open_moment(first, share(open, draw.salt)));
        } else if is_hot(first) {
            let interval = i64::try_from(plan.interval.as_millis()).unwrap_or(i64::MAX);
            let stretch = STRETCH.min(interval.max(MINUTE));
            plan.move_to(Rule::HotMinute, open_moment(first, share(stretch, draw.minute)));
        }
    } else {
        plan.move_to(Rule::Salt, first.after(scaled(last.since(first), draw.salt.clamp(0.0, 1.0))));
    }
    // Skipped time ends at a full hour, which is hot.
    hot_minute::apply(plan, config.hot_minutes, config.salt, draw.minute);
}

/// Returns the milliseconds outside of hot minutes.
fn open_between(first: Timestamp, last: Timestamp) -> i64 {
    let (first, last) = (first.millis(), last.millis());
    (last - first) - (hot_until(last) - hot_until(first))
}

/// Returns the moment after `first` before which there are `open` milliseconds outside of hot minutes.
fn open_moment(first: Timestamp, open: i64) -> Timestamp {
    let mut at = first.millis() + open / OPEN_PER_HOUR * HOUR;
    let mut rest = open % OPEN_PER_HOUR;
    // At most the thirteen marks of an hour: each round leaves one, or returns.
    loop {
        let mark = at - at.rem_euclid(MARK);
        let hot = if mark.rem_euclid(HOUR) == 0 { 4 * MINUTE } else { MINUTE };
        at = at.max(mark + hot);
        let left = mark + MARK - at;
        if rest < left {
            return Timestamp::from_millis(at + rest);
        }
        rest -= left;
        at = mark + MARK;
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a part of an interval in milliseconds"
)]
fn share(length: i64, draw: f64) -> i64 {
    ((length as f64 * draw.clamp(0.0, 1.0)) as i64).min(length - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_reaches_every_open_moment_of_a_range_and_no_hot_one() {
        let start = Timestamp::from_millis(1_790_000_000_000);
        for offset in 0..60 {
            let first = start.after(std::time::Duration::from_millis(offset * 60_000 + 17));
            for minutes in [1, 4, 9, 45, 46, 200] {
                let last = Timestamp::from_millis(first.millis() + minutes * MINUTE);
                let open = open_between(first, last);
                let by_hand =
                    (0..minutes * 60).filter(|second| !is_hot(Timestamp::from_millis(first.millis() + second * 1000)));
                let by_hand = i64::try_from(by_hand.count()).unwrap() * 1000;
                assert!((open - by_hand).abs() <= 1000 * (1 + minutes / 4), "{offset} {minutes}: {open} and {by_hand}");
                if open > 0 {
                    let moments: Vec<_> = (0..open).step_by(7001).map(|rest| open_moment(first, rest)).collect();
                    assert!(moments.iter().all(|at| (first..last).contains(at) && !is_hot(*at)), "{first} {moments:?}");
                    assert!(moments.is_sorted());
                    assert!(last.since(open_moment(first, open - 1)) <= std::time::Duration::from_secs(4 * 60 + 1));
                }
            }
        }
    }

    #[test]
    fn open_time_counts_over_whole_hours_and_the_last_draw_stays_within_it() {
        // 45 open minutes of the first hour, then 1:04 and 1:06 to 1:09; the next open moment is 1:11.
        assert_eq!(open_moment(Timestamp::EPOCH, 50 * MINUTE), Timestamp::from_millis(71 * MINUTE));
        assert_eq!([0.0, 0.5, 1.0].map(|draw| share(100, draw)), [0, 50, 99]);
    }
}
