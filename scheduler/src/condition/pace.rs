//! The fleet's own pace: a token bucket over all polls, for small installations and for fleets with a budget.

use std::time::Duration;

use common::config::Config;
use common::time::Timestamp;

/// Polls that may be started, refilled with time. Unlimited when nothing limits it.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    per_second: f64,
    /// What a slow round may make up for.
    most: f64,
    /// What of it is kept while nothing is due: a burst after a rest.
    kept: f64,
    tokens: f64,
    at: Timestamp,
}

/// `worker.gentle`: the Windows RSS Platform's token bucket.
const GENTLE_PER_SECOND: f64 = 1.0;
const GENTLE_BURST: f64 = 4.0;
/// Of a second's polls, the part that may burst: after an outage of ours the rate stays near the pace from the first second.
const BURST: f64 = 0.1;
/// A bucket that holds one poll loses what flows in between the moment at which it is full and the next look.
const LEAST_BURST: f64 = 2.0;

impl Pace {
    /// Returns a full bucket, as `worker.gentle` and `policy.polls_per_second` say.
    pub fn new(config: &Config, now: Timestamp) -> Self {
        let (per_second, most, kept) = match limit(config) {
            Some(limit) if config.worker.gentle => (limit, GENTLE_BURST, GENTLE_BURST),
            Some(limit) => (limit, limit, BURST * limit),
            None => (f64::INFINITY, f64::INFINITY, f64::INFINITY),
        };
        Pace { per_second, most, kept, tokens: kept.max(LEAST_BURST), at: now }
    }

    /// Returns how many polls this one of `schedulers` may start now: each has an equal share of the fleet's pace.
    pub fn room(&mut self, now: Timestamp, schedulers: usize) -> usize {
        if self.per_second.is_finite() {
            let passed: Duration = now.since(self.at);
            let share = schedulers.max(1) as f64;
            let kept = self.tokens.min((self.kept / share).max(LEAST_BURST));
            let refilled = kept + passed.as_secs_f64() * self.per_second / share;
            self.tokens = refilled.min((self.most / share).max(LEAST_BURST));
            self.at = now;
        }
        // A float's whole part saturates into usize.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturating is what is wanted")]
        let room = self.tokens.max(0.0) as usize;
        room
    }

    /// Takes the number of polls that were started.
    pub fn spend(&mut self, polls: usize) {
        if self.per_second.is_finite() {
            self.tokens -= polls as f64;
        }
    }
}

/// Polls a second that may be started, if the configuration limits them.
pub(crate) fn limit(config: &Config) -> Option<f64> {
    match (config.worker.gentle, config.policy.polls_per_second) {
        (true, _) => Some(GENTLE_PER_SECOND),
        (false, limit) => (limit > 0.0).then_some(limit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gentle_is_four_at_once_and_one_a_second() {
        let mut config = common::config::defaults();
        config.worker.gentle = true;
        let start = Timestamp::from_millis(1_000_000);
        let mut pace = Pace::new(&config, start);
        assert_eq!(pace.room(start, 1), 4);
        pace.spend(4);
        assert_eq!(pace.room(start.after(Duration::from_millis(900)), 1), 0);
        assert_eq!(pace.room(start.after(Duration::from_millis(2100)), 1), 2);
        assert_eq!(pace.room(start.after(Duration::from_secs(1000)), 1), 4);
    }

    #[test]
    fn two_schedulers_share_the_pace() {
        let mut config = common::config::defaults();
        config.policy.polls_per_second = 10.0;
        let start = Timestamp::from_millis(1_000_000);
        let mut paces = [Pace::new(&config, start), Pace::new(&config, start)];
        let mut started = 0;
        for second in 0..100 {
            for pace in &mut paces {
                let room = pace.room(start.after(Duration::from_secs(second)), 2);
                pace.spend(room);
                started += room;
            }
        }
        assert!((990..=1010).contains(&started), "{started}");
    }

    #[test]
    fn a_rest_earns_a_small_burst_and_a_slow_round_loses_nothing() {
        let mut config = common::config::defaults();
        config.policy.polls_per_second = 200.0;
        let start = Timestamp::from_millis(1_790_000_000_000);
        let mut pace = Pace::new(&config, start);
        for tick in 0..100 {
            assert!(pace.room(start.after(tick * Duration::from_millis(50)), 1) <= 30, "nothing is due");
        }
        let (mut now, mut started) = (start.after(Duration::from_secs(5)), 0);
        for _ in 0..10 {
            now = now.after(Duration::from_millis(800));
            let room = pace.room(now, 1);
            pace.spend(room);
            started += room;
        }
        assert!((1600..=1630).contains(&started), "{started}");
    }

    #[test]
    fn a_slow_pace_is_kept_however_seldom_somebody_looks() {
        let mut config = common::config::defaults();
        config.policy.polls_per_second = 0.53;
        let start = Timestamp::from_millis(1_790_000_000_000);
        let mut pace = Pace::new(&config, start);
        let mut started = 0;
        for tick in 1..=7200 {
            let room = pace.room(start.after(tick * Duration::from_millis(500)), 1);
            pace.spend(room);
            started += room;
        }
        assert!((1905..=1912).contains(&started), "0.53 a second for an hour: {started}");
    }

    #[test]
    fn without_a_limit_there_is_always_room() {
        let mut pace = Pace::new(&common::config::defaults(), Timestamp::EPOCH);
        pace.spend(1_000_000);
        assert_eq!(pace.room(Timestamp::EPOCH, 1), usize::MAX);
    }
}
