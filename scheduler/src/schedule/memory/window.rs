//! Times in four bytes: milliseconds in a sliding window of 49 days around now.
//!
//! A time outside of the window is clamped to its edge. In the past that only loses the order among feeds that are more
//! than ten days overdue. A feed due more than 38 days ahead may be claimed early: the dispatcher then sees that the
//! stored time is in the future and puts the feed back without polling it.

use common::time::Timestamp;

/// The window that times are relative to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    start: i64,
}

/// How much of the past the window covers. The rest, 39 days, is in the future: no policy waits longer than 30 days
/// plus salt.
const PAST: i64 = 10 * DAY;
/// How far `now` may drift before the window moves.
const DRIFT: i64 = DAY;
const DAY: i64 = 24 * 60 * 60 * 1000;

impl Window {
    /// Creates the window around a time.
    pub(super) fn around(now: Timestamp) -> Self {
        Window { start: now.millis() - PAST }
    }

    /// Returns true if `now` has drifted too far.
    pub(super) fn is_off(self, now: Timestamp) -> bool {
        (now.millis() - PAST - self.start).abs() > DRIFT
    }

    pub(super) fn key(self, at: Timestamp) -> u32 {
        u32::try_from((at.millis() - self.start).max(0)).unwrap_or(u32::MAX)
    }

    pub(super) fn time(self, key: u32) -> Timestamp {
        Timestamp::from_millis(self.start + i64::from(key))
    }

    /// Converts a key of this window to one of another. A key at the lower edge stays there.
    pub(super) fn rekey(self, key: u32, other: Window) -> u32 {
        if key == 0 { 0 } else { other.key(self.time(key)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(days: i64) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000 + days * DAY)
    }

    #[test]
    fn times_of_the_window_are_exact_and_others_stand_at_its_edges() {
        let window = Window::around(at(0));
        for days in [-10, -1, 0, 39] {
            assert_eq!(window.time(window.key(at(days))), at(days));
        }
        assert_eq!(window.time(window.key(at(-400))), at(-10));
        assert!(window.time(window.key(Timestamp::MAX)) < at(40));
    }

    #[test]
    fn a_moved_window_keeps_times_and_what_was_long_overdue() {
        let (old, new) = (Window::around(at(0)), Window::around(at(2)));
        assert!(old.is_off(at(2)) && !old.is_off(at(1)) && old.is_off(at(-2)));
        assert_eq!(new.time(old.rekey(old.key(at(30)), new)), at(30));
        assert_eq!(old.rekey(old.key(at(-11)), new), 0);
        // Setting the clock back does not delay anything that was due.
        assert_eq!(new.rekey(new.key(at(-11)), old), 0);
    }
}
