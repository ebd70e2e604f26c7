//! The offline optimum: the polls of a client that knows every posting time in advance. No rule can be better; it shows
//! how much of the delay is caused by missing knowledge.

use super::figures::{Figures, Tally};
use super::sample::SampledFeed;
use super::trial::feed_days;

/// The minimum time between two polls, in seconds.
const SPACING: f64 = 15.0 * 60.0;
/// The maximum number of posts found by one poll.
const GATHERED: usize = 200;

/// Returns the cheapest polls at this price of a poll, in subscriber-seconds of delay.
pub(super) fn run(sample: &[SampledFeed], price: f64) -> Figures {
    let mut tally = Tally::default();
    for feed in sample {
        let weight = f64::from(feed.subscribers);
        let mut upto = feed.posts.len();
        let before = cheapest(&feed.posts, weight, price);
        while upto > 0 {
            let from = before[upto];
            let poll = feed.posts[upto - 1];
            tally.polled(false, f64::INFINITY);
            tally.found(feed.posts[from..upto].iter().map(|post| poll - post), weight, 0);
            upto = from;
        }
    }
    tally.figures(feed_days(sample))
}

/// Returns, for each number of posts, how many of them the polls before the last one have found. A poll coincides with
/// a post, since a later one would only add delay.
fn cheapest(posts: &[f64], weight: f64, price: f64) -> Vec<usize> {
    let mut best = vec![f64::INFINITY; posts.len() + 1];
    let mut before = vec![0; posts.len() + 1];
    best[0] = 0.0;
    for upto in 1..=posts.len() {
        let poll = posts[upto - 1];
        let mut delay = 0.0;
        for from in (0..upto).rev() {
            delay += weight * (poll - posts[from]);
            let too_long = upto - from > GATHERED || delay > 3.0 * price + 1.0;
            if too_long && best[upto].is_finite() {
                break;
            }
            let too_soon = from > 0 && (f64::EPSILON..SPACING).contains(&(poll - posts[from - 1]));
            let cost = best[from] + price + delay;
            if !too_soon && cost < best[upto] {
                (best[upto], before[upto]) = (cost, from);
            }
        }
    }
    before
}
