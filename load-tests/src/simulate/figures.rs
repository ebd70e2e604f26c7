//! The results of a simulation.

use serde::Serialize;

use super::sample::ITEMS_SHOWN;

/// The minimum interval between scheduled polls.
const FLOOR: f64 = 15.0 * 60.0;
/// Times are rounded to milliseconds; the maximum rounding error.
const ROUNDING: f64 = 0.002;

/// The results of a policy on one or more samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Polls per feed and day.
    pub polls_per_feed_day: f64,
    /// From an item's publication to the poll that found it, weighted by the feed's subscribers.
    pub weighted_mean_minutes: f64,
    /// The 95th percentile of the delay, with the same weights.
    pub weighted_p95_minutes: f64,
    /// The mean delay with equal weight for each item.
    pub unweighted_mean_minutes: f64,
    /// Polls per published item.
    pub polls_per_item: f64,
    /// The share of items that were pushed out of the document before a poll saw them.
    pub missed_share: f64,
    /// The same share of the items that a poll every 15 minutes would have seen.
    #[serde(skip)]
    pub missed_of_catchable: f64,
    /// The share of polls in hot minutes.
    pub hot_share: f64,
    /// Polls less than 15 minutes after the previous one.
    #[serde(skip)]
    pub under_floor: f64,
    /// Items missed.
    #[serde(skip)]
    pub missed: f64,
}

/// Counters of a running simulation.
#[derive(Default)]
pub(super) struct Tally {
    polls: u64,
    hot: u64,
    under_floor: u64,
    missed: usize,
    uncatchable: usize,
    /// Delay in seconds, and weight.
    delays: Vec<(f64, f64)>,
}

impl Tally {
    pub(super) fn polled(&mut self, hot: bool, interval: f64) {
        self.polls += 1;
        self.hot += u64::from(hot);
        self.under_floor += u64::from(interval < FLOOR - ROUNDING);
    }

    pub(super) fn found(&mut self, delays: impl Iterator<Item = f64>, weight: f64, missed: usize) {
        self.delays.extend(delays.map(|delay| (delay, weight)));
        self.missed += missed;
    }

    /// Counts the items of a feed that even a poll at every floor would not see, because more come within one than a document
    /// shows.
    pub(super) fn counted_uncatchable(&mut self, posts: &[f64]) {
        let together = posts.chunk_by(|one, next| (one / FLOOR).floor() == (next / FLOOR).floor());
        self.uncatchable += together.map(|posts| posts.len().saturating_sub(ITEMS_SHOWN)).sum::<usize>();
    }

    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    pub(super) fn figures(mut self, feed_days: f64) -> Figures {
        let items = self.delays.len() as f64;
        let polls = self.polls as f64;
        let total: f64 = self.delays.iter().map(|(_, weight)| weight).sum();
        let weighted: f64 = self.delays.iter().map(|(delay, weight)| delay * weight).sum();
        let plain: f64 = self.delays.iter().map(|(delay, _)| delay).sum();
        self.delays.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut below = 0.0;
        let p95 = self.delays.iter().find(|(_, weight)| {
            below += weight;
            below >= 0.95 * total
        });
        Figures {
            polls_per_feed_day: polls / feed_days,
            weighted_mean_minutes: weighted / total.max(1.0) / 60.0,
            weighted_p95_minutes: p95.map_or(0.0, |(delay, _)| delay / 60.0),
            unweighted_mean_minutes: plain / items.max(1.0) / 60.0,
            polls_per_item: polls / items.max(1.0),
            missed_share: self.missed as f64 / items.max(1.0),
            missed_of_catchable: self.missed.saturating_sub(self.uncatchable) as f64
                / (items - self.uncatchable as f64).max(1.0),
            hot_share: self.hot as f64 / polls.max(1.0),
            under_floor: self.under_floor as f64,
            missed: self.missed as f64,
        }
    }
}

impl Figures {
    /// Combines several samples: each counts the same, however many items its feeds happen to post.
    #[expect(clippy::cast_precision_loss, reason = "a handful of samples")]
    pub fn pooled(all: &[Figures]) -> Figures {
        let mean = |figure: fn(&Figures) -> f64| all.iter().map(figure).sum::<f64>() / all.len().max(1) as f64;
        Figures {
            polls_per_feed_day: mean(|one| one.polls_per_feed_day),
            weighted_mean_minutes: mean(|one| one.weighted_mean_minutes),
            weighted_p95_minutes: mean(|one| one.weighted_p95_minutes),
            unweighted_mean_minutes: mean(|one| one.unweighted_mean_minutes),
            polls_per_item: mean(|one| one.polls_per_item),
            missed_share: mean(|one| one.missed_share),
            missed_of_catchable: mean(|one| one.missed_of_catchable),
            hot_share: mean(|one| one.hot_share),
            under_floor: all.iter().map(|one| one.under_floor).sum(),
            missed: all.iter().map(|one| one.missed).sum(),
        }
    }
}
