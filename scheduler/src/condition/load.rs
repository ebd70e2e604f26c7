//! How loaded the fleet is, from 0 to 1. The load stretches the intervals of mode `classes` within their ranges, and the windows
//! before a midnight in which calm feeds are polled.
//!
//! The load is the higher of two signs: how late the oldest due feed is (except parked feeds, which wait for their hosts and not
//! for us), and how full the job queue is. It is smoothed, so that one slow moment does not lengthen intervals of hours.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The load, shared by the code that measures it and the code that decides by it.
#[derive(Debug, Default)]
pub struct Load(AtomicU64);

/// A lag that counts as full load.
const FULL_LAG: Duration = Duration::from_secs(600);
/// The share of a new observation.
const SMOOTHING: f64 = 0.2;

impl Load {
    /// Returns the load now, 0 to 1.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// Takes in an observation: the age of the oldest due time that has passed, and the share of the job queue that is
    /// taken.
    pub(crate) fn observe(&self, lag: Duration, queue_share: f64) {
        let lag = lag.as_secs_f64() / FULL_LAG.as_secs_f64();
        let seen = lag.max(queue_share).clamp(0.0, 1.0);
        let load = self.get() + (seen - self.get()) * SMOOTHING;
        self.0.store(load.to_bits(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_follows_lag_or_backlog_smoothly_and_stays_between_0_and_1() {
        let load = Load::default();
        assert_eq!(load.get(), 0.0);
        load.observe(Duration::from_secs(300), 0.0);
        assert!((load.get() - 0.1).abs() < 1e-9);
        for _ in 0..100 {
            load.observe(Duration::MAX, 7.0);
        }
        assert!(load.get() > 0.99 && load.get() <= 1.0);
        for _ in 0..100 {
            load.observe(Duration::ZERO, 0.5);
        }
        assert!((load.get() - 0.5).abs() < 0.01);
    }
}
