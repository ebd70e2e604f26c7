//! What feeds publish over their whole histories: how often `feed.silent` is published although a feed continues, how
//! soon after its last post, and which feeds lose entries when they post more than a document holds.

use common::config::PolicyConfig;
use serde::Serialize;

use super::decided::adaptive;
use super::histories::{DAY, HOUR, Series};
use super::lives::live;
use super::random::Random;

/// Posts of a burst, and the time that they take.
const BURST: usize = 50;
const BURST_TAKES: f64 = HOUR;
/// The mean time between bursts of a feed.
const BETWEEN_BURSTS: f64 = 30.0 * DAY;
/// Posts less than this apart are one post, as for the policy.
const TOGETHER: f64 = HOUR;
const YEAR: f64 = 365.0 * DAY;
/// How long a feed is watched after its last post.
const WATCHED_ON: f64 = 3.0 * YEAR;

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Watched {
    /// Feeds.
    pub feeds: usize,
    /// Feeds among these that link to older entries: every second one.
    pub archived: usize,
    /// The time from the first to the last post, of all feeds together.
    pub feed_years: f64,
    /// Events `feed.silent` before the last post, per feed and year.
    pub silent_per_feed_year: f64,
    /// The same of the feed with the most, per year or history, whichever is longer.
    pub most_silent_per_year: f64,
    /// The longest time from a last post to `feed.silent`, in longest pauses of that feed.
    pub latest_silence: f64,
    /// Feeds of whose end nothing is published within three years: they paused too rarely before, or too long.
    pub never_silent: usize,
    /// The median time from a last post to `feed.silent`, in usual gaps: the median gap between that feed's posts.
    pub silence_in_usual_gaps: f64,
    /// Feeds whose end is published within three of their usual gaps.
    pub silent_within_three_usual_gaps: usize,
    /// Bursts that were added to the histories.
    pub bursts: usize,
    /// Polls before which entries were pushed out of the document.
    pub losses: usize,
    /// Of these, how many continued an overflow that an earlier poll had published: no document had overlapped since.
    pub continued: usize,
    /// Entries of feeds without an archive that no document had when it was polled.
    pub lost: usize,
    /// Entries of feeds with an archive that no document and no page had.
    pub lost_with_archive: usize,
    /// Pages that were read for these.
    pub pages: usize,
    /// Feeds that lost some.
    pub feeds_that_lost: usize,
    /// Losses, of feeds with and without an archive, that were neither published as `feed.overflowed` nor continued one that was.
    pub unnamed: usize,
    /// Events `feed.overflowed` before which nothing was lost: the document was new as a whole, and not more.
    pub false_overflows: usize,
}

impl Watched {
    /// Polls all histories from beginning to end, each with one subscriber, as they are and with bursts added.
    pub fn run(histories: &[Series], config: &PolicyConfig) -> Self {
        let config = adaptive(config);
        let mut watched = Watched { feeds: histories.len(), ..Watched::default() };
        let mut random = Random::new(1);
        let (mut alarms, mut waits) = (0, Vec::new());
        for (number, series) in histories.iter().filter(|series| series.times.len() > 1).enumerate() {
            let posts = &series.times;
            let (first, last) = (posts[0], posts[posts.len() - 1]);
            let years = (last - first) / YEAR;
            let life = live(posts, last + WATCHED_ON, false, &config, &mut random);
            let false_alarms = life.silent.iter().filter(|at| **at <= last).count();
            alarms += false_alarms;
            watched.feed_years += years;
            watched.most_silent_per_year = watched.most_silent_per_year.max(per_year(false_alarms, years));
            match life.silent.iter().find(|at| **at > last) {
                Some(at) => {
                    let waited = (at - last) / longest_pause(posts);
                    watched.latest_silence = watched.latest_silence.max(waited);
                    waits.push((at - last) / usual_gap(posts));
                }
                // One that fell silent before its last post began, and posted within an hour of it, is silent still.
                None => watched.never_silent += 1,
            }
            let (with_bursts, bursts) = with_bursts(posts, &mut random);
            let has_archive = number % 2 == 1;
            let life = live(&with_bursts, last, has_archive, &config, &mut random);
            watched.archived += usize::from(has_archive);
            watched.bursts += bursts;
            watched.losses += life.losses;
            watched.continued += life.continued;
            watched.unnamed += life.unnamed;
            watched.false_overflows += life.false_overflows;
            watched.feeds_that_lost += usize::from(life.lost > 0);
            watched.pages += life.pages;
            *(if has_archive { &mut watched.lost_with_archive } else { &mut watched.lost }) += life.lost;
        }
        watched.silent_within_three_usual_gaps = waits.iter().filter(|waited| **waited <= 3.0).count();
        watched.silence_in_usual_gaps = median(waits);
        watched.silent_per_feed_year = per_year(alarms, watched.feed_years);
        watched
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of events")]
fn per_year(alarms: usize, years: f64) -> f64 {
    alarms as f64 / years.max(1.0)
}

fn longest_pause(posts: &[f64]) -> f64 {
    posts.windows(2).map(|pair| pair[1] - pair[0]).fold(TOGETHER, f64::max)
}

/// Returns the median gap between posts, without gaps inside a group of posts.
fn usual_gap(posts: &[f64]) -> f64 {
    let gaps = posts.windows(2).map(|pair| pair[1] - pair[0]).filter(|gap| *gap >= TOGETHER);
    median(gaps.collect()).max(TOGETHER)
}

/// Returns the upper median; 0 of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Adds bursts after some posts; returns their number too.
fn with_bursts(posts: &[f64], random: &mut Random) -> (Vec<f64>, usize) {
    let mut all = Vec::with_capacity(posts.len());
    let (mut next, mut bursts) = (posts[0] + random.exponential(BETWEEN_BURSTS), 0);
    for post in posts {
        all.push(*post);
        if *post >= next {
            all.extend((1..BURST).map(|_| post + random.fraction() * BURST_TAKES));
            next = post + random.exponential(BETWEEN_BURSTS);
            bursts += 1;
        }
    }
    all.sort_by(f64::total_cmp);
    (all, bursts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::histories::generated;

    #[test]
    fn every_loss_is_named_archives_lose_nothing_and_silence_is_noticed_within_three_pauses() {
        let config = common::config::defaults().policy;
        let watched = Watched::run(&generated(3, 6), &config);
        assert!(watched.bursts > 100 && watched.lost > 100 && watched.pages > 100, "{watched:?}");
        assert_eq!((watched.unnamed, watched.lost_with_archive), (0, 0), "{watched:?}");
        assert!(watched.continued * 2 < watched.losses, "{watched:?}");
        assert!(watched.silent_per_feed_year <= 1.0 && watched.most_silent_per_year <= 1.0, "{watched:?}");
        assert!(watched.latest_silence <= 3.0 && watched.silence_in_usual_gaps > 0.0, "{watched:?}");
        let none = Watched::run(&generated(3, 1), &PolicyConfig { silent_factor: 0.0, archive_pages: 0, ..config });
        assert_eq!((none.silent_per_feed_year, none.never_silent), (0.0, none.feeds), "{none:?}");
    }
}
