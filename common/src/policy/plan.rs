//! A due time in the making: every rule moves it through here, so that no move goes unrecorded.
//!
//! Rules 1 to 5 speak of intervals from the last poll on; holds, salt and hot minutes speak of points in time and come
//! after them. Skipped hours and days are looked at after every step once they are known.

use std::time::Duration;

use super::skip::Skip;
use super::terms::{Rule, Terms};
use crate::time::Timestamp;

/// The due time so far, and how it came about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// The start of the last poll: intervals count from here.
    pub(super) base: Timestamp,
    /// The interval without skipped time, holds, salt and hot minutes.
    pub(super) interval: Duration,
    /// The longest floor so far: no later rule goes below it.
    pub(super) floor: Duration,
    /// The due time.
    pub(super) due: Timestamp,
    /// What moved it.
    pub(super) terms: Terms,
    /// The midnight of calm delivery that it should not pass.
    pub(super) midnight: Option<Timestamp>,
    skip: Skip,
}

impl Plan {
    /// A plan that begins with `interval`.
    pub(super) fn new(base: Timestamp, rule: Rule, interval: Duration) -> Self {
        let due = base.after(interval);
        let mut terms = Terms::default();
        terms.push(rule, due);
        Plan { base, interval, floor: Duration::ZERO, due, terms, midnight: None, skip: Skip::default() }
    }

    /// Another interval, longer or shorter.
    pub(super) fn set(&mut self, rule: Rule, interval: Duration) {
        self.interval = interval;
        let asked = self.base.after(interval);
        if self.skip.end(asked) != self.due {
            self.move_to(rule, asked);
            self.leave_skipped();
        }
    }

    /// An interval that is at least this long, whatever comes after.
    pub(super) fn at_least(&mut self, rule: Rule, floor: Duration) {
        self.floor = self.floor.max(floor);
        if floor > self.interval {
            self.set(rule, floor);
        }
    }

    /// An interval that is at most this long.
    pub(super) fn at_most(&mut self, ceiling: Duration) {
        if self.interval > ceiling {
            self.set(Rule::Ceiling, ceiling);
        }
    }

    /// From here on skipped hours and days count.
    pub(super) fn skip(&mut self, skip: Skip) {
        self.skip = skip;
        self.leave_skipped();
    }

    /// Not due before `at`.
    pub(super) fn not_before(&mut self, rule: Rule, at: Timestamp) {
        if at > self.due {
            self.move_to(rule, at);
            self.leave_skipped();
        }
    }

    /// Due at this very time.
    pub(super) fn move_to(&mut self, rule: Rule, due: Timestamp) {
        if due != self.due {
            self.due = due;
            self.terms.push(rule, due);
        }
    }

    /// Moves out of skipped time.
    pub(super) fn leave_skipped(&mut self) {
        self.move_to(Rule::Skip, self.skip.end(self.due));
    }
}

/// `interval` times `factor`; what no duration can hold saturates.
pub(super) fn scaled(interval: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(interval.as_secs_f64() * factor.max(0.0)).unwrap_or(Duration::MAX)
}
