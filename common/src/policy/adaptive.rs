//! Adaptive mode: how often does a feed post, and which interval is that worth?
//!
//! The posting rate is a Gamma estimate over a decaying window: items seen, over time watched, both fading with a time
//! constant of 30 days, so that constant space follows a feed whose habits change.
//!
//! Not built yet, and to be put here: hours and weekdays at which a feed likes to post (a profile that bends the rate, and
//! a walk along it in place of the square root), and the controller that moves the price so that the fleet's polls fit its
//! capacity (it stands outside of the pure policy and changes `price` alone).

use std::time::Duration;

use crate::entry::Entry;
use crate::feed::RateEstimate;
use crate::time::Timestamp;

/// Items and watching fade with this time constant, in days: long enough for a monthly feed, short enough to notice that
/// a feed went quiet.
const MEMORY_DAYS: f64 = 30.0;
/// What is assumed of a feed before anything was seen: half an item in ten days, an item in twenty days.
const PRIOR_ITEMS: f64 = 0.5;
const PRIOR_DAYS: f64 = 10.0;
const SECONDS_PER_DAY: f64 = 86_400.0;

/// The interval at which the expected waiting of a feed's subscribers is worth the price of a poll: with posts at a
/// constant `rate`, sqrt(2 price / (weight x rate)), the least total waiting that a budget of polls can buy.
/// `price` is in subscriber-hours.
pub(super) fn interval(rate: &RateEstimate, weight: f64, price: f64) -> Duration {
    let per_hour = rate.per_day() / 24.0;
    let hours = (2.0 * price / (weight * per_hour)).sqrt();
    Duration::try_from_secs_f64(hours * 3600.0).unwrap_or(Duration::MAX)
}

impl RateEstimate {
    /// The expected number of items a day. Never zero.
    pub fn per_day(&self) -> f64 {
        let (items, days) = (f64::from(self.items), f64::from(self.days));
        (items.max(0.0) + PRIOR_ITEMS) / (days.max(0.0) + PRIOR_DAYS)
    }

    /// The estimate after a good answer at `at` that brought `new_items` since the last one.
    #[must_use]
    pub fn observed(self, new_items: u32, at: Timestamp) -> Self {
        let Some(before) = self.at else { return RateEstimate { at: Some(at), ..self } };
        let days = days_between(before, at);
        let kept = (-days / MEMORY_DAYS).exp();
        RateEstimate {
            items: narrow(f64::from(self.items) * kept + f64::from(new_items)),
            days: narrow(f64::from(self.days) * kept + MEMORY_DAYS * (1.0 - kept)),
            at: Some(at.max(before)),
        }
    }

    /// The estimate that a feed's first document allows: its dated entries are the history that we did not watch. Dates
    /// that lie ahead count for nothing, and without dates nothing is known.
    #[must_use]
    pub fn from_history(entries: &[Entry], at: Timestamp) -> Self {
        let ages = entries.iter().filter_map(|entry| entry.published.or(entry.updated)).filter(|date| *date <= at);
        let (mut items, mut oldest) = (0.0, 0.0_f64);
        for age in ages.map(|date| days_between(date, at)) {
            items += (-age / MEMORY_DAYS).exp();
            oldest = oldest.max(age);
        }
        let days = MEMORY_DAYS * (1.0 - (-oldest / MEMORY_DAYS).exp());
        RateEstimate { items: narrow(items), days: narrow(days), at: Some(at) }
    }
}

fn days_between(earlier: Timestamp, later: Timestamp) -> f64 {
    later.since(earlier).as_secs_f64() / SECONDS_PER_DAY
}

#[expect(clippy::cast_possible_truncation, reason = "seven digits are plenty for an estimate, and half the space")]
fn narrow(value: f64) -> f32 {
    value as f32
}
