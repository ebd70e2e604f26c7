//! Runs a rule on a sample: feed by feed, poll by poll, with only the information that a poller has.

use common::time::Timestamp;

use super::figures::{Figures, Tally};
use super::histories::{DAY, HOUR};
use super::random::Random;
use super::sample::{ITEMS_SHOWN, SampledFeed};

/// The delay of a post that is pushed, in seconds.
const PUSH: f64 = 1.0;

/// A rule for the interval to the next poll.
pub(super) trait Rule {
    /// Returns the time in seconds within which the feed is first polled.
    fn first_within(&self) -> f64 {
        6.0 * HOUR
    }

    /// Returns whether pushes bring the posts, so that subscribers wait for no poll.
    fn is_pushed(&self) -> bool {
        false
    }

    /// Returns the seconds from a poll `at` that found these new items (the newest ones, ascending) to the next poll.
    fn interval(&mut self, at: f64, new: &[f64], random: &mut Random) -> f64;
}

/// Returns whether `at` is in a minute that polite pollers avoid: the first four of an hour and the first of every
/// five.
pub(super) fn is_hot(at: f64) -> bool {
    let minute = (at / 60.0).floor().rem_euclid(60.0);
    minute < 4.0 || minute % 5.0 == 0.0
}

/// Runs a rule, created for each feed, over a sample.
pub(super) fn run<R: Rule>(sample: &[SampledFeed], mut rule_for: impl FnMut(&SampledFeed) -> R) -> Figures {
    let mut tally = Tally::default();
    for feed in sample {
        let mut random = Random::from_fraction(feed.seed);
        let mut rule = rule_for(feed);
        let mut at = feed.start + random.fraction() * rule.first_within().min(6.0 * HOUR);
        let weight = f64::from(feed.subscribers);
        let mut seen = 0;
        while at < feed.end {
            let until = seen + feed.posts[seen..].partition_point(|post| *post <= at);
            let new = &feed.posts[seen..until];
            let shown = &new[new.len().saturating_sub(ITEMS_SHOWN)..];
            seen = until;
            let interval = rule.interval(at, shown, &mut random);
            tally.polled(is_hot(at), interval);
            let delay = |post: &f64| if rule.is_pushed() { PUSH } else { at - post };
            let missed = if rule.is_pushed() { 0 } else { new.len() - shown.len() };
            tally.found(new.iter().map(delay), weight, missed);
            at += interval;
        }
        if !rule.is_pushed() {
            tally.counted_uncatchable(&feed.posts);
        }
        // The next poll, after the end, finds what was posted after the last poll.
        let delay = |post: &f64| if rule.is_pushed() { PUSH } else { at - post };
        tally.found(feed.posts[seen..].iter().map(delay), weight, 0);
    }
    tally.figures(feed_days(sample))
}

/// Returns the number of feeds times simulated days.
pub(super) fn feed_days(sample: &[SampledFeed]) -> f64 {
    sample.iter().map(|feed| (feed.end - feed.start) / DAY).sum()
}

/// Converts a time of the simulation to the policy's type.
#[expect(clippy::cast_possible_truncation, reason = "saturates at times that no history has")]
pub(super) fn timestamp(at: f64) -> Timestamp {
    Timestamp::from_millis((at * 1000.0) as i64)
}

/// Converts it back.
#[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 fit into 53 bits for ages")]
pub(super) fn seconds(at: Timestamp) -> f64 {
    at.millis() as f64 / 1000.0
}
