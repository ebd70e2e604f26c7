//! A due time in progress: every rule moves it through this type, so that every move is recorded.
//!
//! Rules 1 to 5 work with intervals from the last poll; holds, salt and hot minutes work with points in time and follow
//! them. Once skipped hours and days are known, every step takes them into account.

use std::time::Duration;

use super::skip::Skip;
use super::terms::{Rule, Terms};
use crate::calm::Window;
use crate::time::Timestamp;

/// The due time so far, and the terms that led to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// The start of the last poll: intervals count from here.
    pub(super) base: Timestamp,
    /// The interval before skipped time, holds, salt and hot minutes.
    pub(super) interval: Duration,
    /// The longest floor so far; later rules do not go below it.
    pub(super) floor: Duration,
    /// The same for a retry after a failure: a document's hints say how long it stays as it is, not how long to leave a
    /// server alone, so they count up to the ceiling of the penalty box.
    pub(super) retry_floor: Duration,
    /// What counts as the normal interval after a failure, at most: a hint beyond the ceiling of the penalty box does not.
    pub(super) longest_retry: Duration,
    /// The shortest interval that the base interval's own rule allows; salt does not go below it.
    pub(super) least: Duration,
    /// The due time.
    pub(super) due: Timestamp,
    /// The rules that moved it.
    pub(super) terms: Terms,
    /// The window before a midnight in which the poll should happen, for calm delivery.
    pub(super) window: Option<Window>,
    skip: Skip,
}

impl Plan {
    /// Creates a plan that starts with `interval`.
    pub(super) fn new(base: Timestamp, rule: Rule, interval: Duration) -> Self {
        let due = base.after(interval);
        let mut terms = Terms::default();
        terms.push(rule, due);
        Plan {
            base,
            interval,
            floor: Duration::ZERO,
            retry_floor: Duration::ZERO,
            longest_retry: Duration::MAX,
            least: Duration::ZERO,
            due,
            terms,
            window: None,
            skip: Skip::default(),
        }
    }

    /// Sets another interval, longer or shorter.
    pub(super) fn set(&mut self, rule: Rule, interval: Duration) {
        self.interval = interval;
        let asked = self.base.after(interval);
        if self.skip.end(asked) != self.due {
            self.move_to(rule, asked);
            self.leave_skipped();
        }
    }

    /// Raises the interval to at least `floor`, for this and all later rules.
    pub(super) fn at_least(&mut self, rule: Rule, floor: Duration) {
        self.floor = self.floor.max(floor);
        self.retry_floor = self.retry_floor.max(floor);
        if floor > self.interval {
            self.set(rule, floor);
        }
    }

    /// Limits the interval to `ceiling`.
    pub(super) fn at_most(&mut self, ceiling: Duration) {
        if self.interval > ceiling {
            self.set(Rule::Ceiling, ceiling);
        }
    }

    /// Sets the skipped hours and days, which count from here on.
    pub(super) fn skip(&mut self, skip: Skip) {
        self.skip = skip;
        self.leave_skipped();
    }

    /// Moves the due time to `at` if it is earlier.
    pub(super) fn not_before(&mut self, rule: Rule, at: Timestamp) {
        if at > self.due {
            self.move_to(rule, at);
            self.leave_skipped();
        }
    }

    /// Returns true if the adaptive rule chose the interval that the plan started with.
    pub(super) fn is_adaptive(&self) -> bool {
        self.terms.first().is_some_and(|term| term.rule == Rule::Adaptive)
    }

    /// Sets the due time.
    pub(super) fn move_to(&mut self, rule: Rule, due: Timestamp) {
        if due != self.due {
            self.due = due;
            self.terms.push(rule, due);
        }
    }

    /// Returns `at`, or the end of the skipped time that contains it.
    pub(super) fn unskipped(&self, at: Timestamp) -> Timestamp {
        self.skip.end(at)
    }

    /// Moves the due time out of skipped time.
    pub(super) fn leave_skipped(&mut self) {
        self.move_to(Rule::Skip, self.skip.end(self.due));
    }
}

/// Returns `interval` times `factor`, saturating at [`Duration::MAX`].
pub(super) fn scaled(interval: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(interval.as_secs_f64() * factor.max(0.0)).unwrap_or(Duration::MAX)
}
