//! Published and textbook rules, as in the reference simulation: each has a parameter that changes its number of polls,
//! so that all can be compared at the same number. All keep the study's floor of 15 minutes.

use std::collections::VecDeque;

use super::histories::{DAY, HOUR};
use super::random::Random;
use super::sample::SampledFeed;
use super::trial::Rule;

const MINUTE: f64 = 60.0;
const SHORTEST: f64 = 15.0 * MINUTE;
const LONGEST: f64 = 24.0 * HOUR;

/// Polls every feed each `interval` seconds.
pub(super) struct Fixed {
    pub(super) interval: f64,
}

impl Rule for Fixed {
    fn first_within(&self) -> f64 {
        self.interval
    }

    fn interval(&mut self, _: f64, _: &[f64], _: &mut Random) -> f64 {
        self.interval
    }
}

/// The items that a poller remembers, newest last.
struct Remembered(VecDeque<f64>);

/// More than any rule uses.
const REMEMBERED: usize = 2000;

impl Remembered {
    fn new(feed: &SampledFeed) -> Self {
        Remembered(feed.shown.iter().copied().collect())
    }

    fn add(&mut self, new: &[f64]) {
        self.0.extend(new);
        let surplus = self.0.len().saturating_sub(REMEMBERED);
        self.0.drain(..surplus);
    }

    #[expect(clippy::cast_precision_loss, reason = "at most 2,000")]
    fn count_since(&self, at: f64) -> f64 {
        (self.0.len() - self.0.partition_point(|item| *item < at)) as f64
    }

    fn newest(&self) -> Option<f64> {
        self.0.back().copied()
    }

    /// Returns the mean gap between the newest `count` items; `None` without items.
    #[expect(clippy::cast_precision_loss, reason = "a small count")]
    fn mean_gap(&self, count: usize) -> Option<f64> {
        let from = self.0.len().saturating_sub(count);
        let gaps = (self.0.len() - from).saturating_sub(1).max(1) as f64;
        Some((self.newest()? - self.0.get(from)?) / gaps)
    }
}

/// miniflux' `entry_frequency`: a week divided by the week's entries.
pub(super) struct Miniflux {
    seen: Remembered,
    factor: f64,
}

impl Miniflux {
    pub(super) fn new(feed: &SampledFeed, factor: f64) -> Self {
        Miniflux { seen: Remembered::new(feed), factor }
    }
}

impl Rule for Miniflux {
    fn interval(&mut self, at: f64, new: &[f64], _: &mut Random) -> f64 {
        self.seen.add(new);
        let count = self.seen.count_since(at - 7.0 * DAY);
        if count == 0.0 { LONGEST } else { (7.0 * DAY / (count * self.factor)).clamp(SHORTEST, LONGEST) }
    }
}

/// CommaFeed's empirical interval: half the mean gap of the last twenty entries, with steps for silent feeds.
pub(super) struct Commafeed {
    seen: Remembered,
    factor: f64,
}

impl Commafeed {
    pub(super) fn new(feed: &SampledFeed, factor: f64) -> Self {
        Commafeed { seen: Remembered::new(feed), factor }
    }
}

impl Rule for Commafeed {
    fn interval(&mut self, at: f64, new: &[f64], _: &mut Random) -> f64 {
        self.seen.add(new);
        let (Some(newest), Some(gap)) = (self.seen.newest(), self.seen.mean_gap(20)) else {
            return LONGEST * self.factor;
        };
        let silent_days = (at - newest) / DAY;
        let interval = match silent_days {
            30.0.. => 24.0 * HOUR,
            14.0.. => 12.0 * HOUR,
            7.0.. => 6.0 * HOUR,
            _ => (gap / 2.0).clamp(5.0 * MINUTE, 6.0 * HOUR),
        };
        SHORTEST.max(interval * self.factor)
    }
}

/// NewsBlur's `get_next_scheduled_update`, with all subscribers counted as premium.
pub(super) struct Newsblur {
    seen: Remembered,
    subscribers: u32,
    factor: f64,
}

impl Newsblur {
    pub(super) fn new(feed: &SampledFeed, factor: f64) -> Self {
        Newsblur { seen: Remembered::new(feed), subscribers: feed.subscribers, factor }
    }
}

impl Rule for Newsblur {
    fn interval(&mut self, at: f64, new: &[f64], random: &mut Random) -> f64 {
        self.seen.add(new);
        let per_day = self.seen.count_since(at - 30.0 * DAY) / 30.0;
        let several = self.subscribers > 1;
        let minutes = if per_day >= 1.0 {
            match self.subscribers {
                11.. => 6.0,
                2.. => 15.0,
                _ => 60.0,
            }
        } else if per_day > 0.0 {
            if several { 60.0 - per_day * 60.0 } else { 60.0 * 12.0 * (1.0 - per_day) }
        } else {
            let newest = self.seen.newest().unwrap_or(at - 90.0 * DAY);
            let silent_months = (at - newest) / (30.0 * DAY);
            (if several { 60.0 * 6.0 } else { 60.0 * 12.0 }) * silent_months.max(1.0)
        };
        let interval = minutes.min(60.0 * 12.0) * MINUTE;
        let interval = interval + random.fraction() * interval / 4.0;
        (interval * self.factor).clamp(SHORTEST, 48.0 * HOUR)
    }
}

/// The square-root rule at an estimated rate: the price rule without profiles, salt and hot minutes. The estimate is
/// the policy's, as in the reference: a decayed count over a decayed observation time.
pub(super) struct SquareRoot {
    items: f64,
    watched: f64,
    at: f64,
    /// Subscribers divided by twice the price, in subscriber-seconds.
    weight: f64,
}

const MEMORY: f64 = 30.0 * DAY;
const PRIOR_ITEMS: f64 = 0.5;
const PRIOR_TIME: f64 = 10.0 * DAY;

impl SquareRoot {
    pub(super) fn new(feed: &SampledFeed, price: f64) -> Self {
        let oldest = feed.shown.first().map_or(feed.start, |oldest| oldest - 1.0);
        let weight = f64::from(feed.subscribers) / (2.0 * price);
        let mut rule = SquareRoot { items: 0.0, watched: 0.0, at: oldest, weight };
        feed.shown.iter().for_each(|item| rule.observe(*item, 1.0));
        rule.observe(feed.start, 0.0);
        rule
    }

    fn observe(&mut self, at: f64, new: f64) {
        let kept = (-(at - self.at).max(0.0) / MEMORY).exp();
        self.items = self.items * kept + new;
        self.watched = self.watched * kept + MEMORY * (1.0 - kept);
        self.at = self.at.max(at);
    }
}

impl Rule for SquareRoot {
    #[expect(clippy::cast_precision_loss, reason = "at most what a document shows")]
    fn interval(&mut self, at: f64, new: &[f64], _: &mut Random) -> f64 {
        self.observe(at, new.len() as f64);
        let rate = (self.items + PRIOR_ITEMS) / (self.watched + PRIOR_TIME);
        (1.0 / (self.weight * rate)).sqrt().clamp(SHORTEST, LONGEST)
    }
}
