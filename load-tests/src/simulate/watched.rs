//! What feeds publish over their whole histories: how often `feed.silent` is published although a feed goes on, how
//! soon after its last post, and which feeds lose entries when they post more than a document holds.

use common::config::PolicyConfig;
use common::document::{Document, Validators};
use common::entry::Entry;
use common::host::HostKey;
use common::policy::{Audience, Draw, Notice, Policy, Subject, decide};
use common::report::{FetchReport, Outcome};
use common::url::{FeedId, Version};
use serde::Serialize;

use super::decided::adaptive;
use super::histories::{DAY, HOUR, Series};
use super::random::Random;
use super::trial::{seconds, timestamp};

/// Entries of a document.
const WINDOW: usize = 20;
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
    /// Bursts that were added to the histories.
    pub bursts: usize,
    /// Entries that no document had when it was polled.
    pub lost: usize,
    /// Feeds that lost some.
    pub feeds_that_lost: usize,
    /// Of these, how many did not publish `feed.overflowed`.
    pub unnamed: usize,
    /// Feeds that published it and lost nothing.
    pub false_overflows: usize,
}

/// One feed's life.
struct Life {
    /// Times of `feed.silent`.
    silent: Vec<f64>,
    overflows: usize,
    lost: usize,
}

impl Watched {
    /// Polls all histories from beginning to end, each with one subscriber, as they are and with bursts added.
    pub fn run(histories: &[Series], config: &PolicyConfig) -> Self {
        let config = adaptive(config);
        let mut watched = Watched { feeds: histories.len(), ..Watched::default() };
        let mut random = Random::new(1);
        let mut alarms = 0;
        for series in histories.iter().filter(|series| series.times.len() > 1) {
            let posts = &series.times;
            let (first, last) = (posts[0], posts[posts.len() - 1]);
            let years = (last - first) / YEAR;
            let life = live(posts, last + WATCHED_ON, &config, &mut random);
            let false_alarms = life.silent.iter().filter(|at| **at <= last).count();
            alarms += false_alarms;
            watched.feed_years += years;
            watched.most_silent_per_year = watched.most_silent_per_year.max(per_year(false_alarms, years));
            match life.silent.iter().find(|at| **at > last) {
                Some(at) => {
                    let waited = (at - last) / longest_pause(posts);
                    watched.latest_silence = watched.latest_silence.max(waited);
                }
                // One that fell silent before its last post began, and posted within an hour of it, is silent still.
                None => watched.never_silent += 1,
            }
            let (with_bursts, bursts) = with_bursts(posts, &mut random);
            let life = live(&with_bursts, last, &config, &mut random);
            watched.bursts += bursts;
            watched.lost += life.lost;
            watched.feeds_that_lost += usize::from(life.lost > 0);
            watched.unnamed += usize::from(life.lost > 0 && life.overflows == 0);
            watched.false_overflows += usize::from(life.lost == 0 && life.overflows > 0);
        }
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

/// Polls a feed from its first post on, until this time.
fn live(posts: &[f64], until: f64, config: &PolicyConfig, random: &mut Random) -> Life {
    let mut subject = Subject::new(Audience::default(), None);
    let mut report = FetchReport {
        http_status: Some(304),
        conditional: true,
        ..FetchReport::of(FeedId(1), Version(1), HostKey::new("a.example:443"), timestamp(0.0), Outcome::Gone)
    };
    let validators = Validators { etag: Some("\"1\"".to_owned()), ..Validators::default() };
    let (mut at, mut seen) = (posts[0], 0);
    let mut life = Life { silent: Vec::new(), overflows: 0, lost: 0 };
    while at < until {
        let all = seen + posts[seen..].partition_point(|post| *post <= at);
        let new = &posts[seen..all];
        let shown = &new[new.len().saturating_sub(WINDOW)..];
        life.lost += new.len() - shown.len();
        report.started = timestamp(at);
        report.outcome = if new.is_empty() {
            Outcome::NotModified { validators: validators.clone() }
        } else {
            let dated = |post: &f64| Entry { published: Some(timestamp(*post)), ..Entry::default() };
            let count = |entries: usize| u32::try_from(entries).unwrap_or(u32::MAX);
            Outcome::Modified(Box::new(Document {
                validators: validators.clone(),
                entries: shown.iter().map(dated).collect(),
                new_entries: count(shown.len()),
                all_entries: count(all.min(WINDOW)),
                none_known: seen > 0 && shown.len() == WINDOW,
                ..Document::default()
            }))
        };
        seen = all;
        let draw = Draw { salt: random.fraction(), minute: random.fraction() };
        let decision =
            decide(&subject, &report, report.started, draw, &Policy { config, load: 0.0, price: config.price });
        for notice in decision.notices.iter() {
            match notice {
                Notice::Silent => life.silent.push(at),
                Notice::Overflowed => life.overflows += 1,
                _ => {}
            }
        }
        subject.state = decision.state;
        at = decision.next_due.map_or(f64::INFINITY, seconds);
    }
    life
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::histories::generated;

    #[test]
    fn every_feed_that_loses_entries_is_named_and_silence_is_noticed_within_three_pauses() {
        let config = common::config::defaults().policy;
        let watched = Watched::run(&generated(3, 6), &config);
        assert!(watched.bursts > 100 && watched.lost > 100, "{watched:?}");
        assert_eq!(watched.unnamed, 0, "{watched:?}");
        assert!(watched.silent_per_feed_year <= 1.0 && watched.most_silent_per_year <= 1.0, "{watched:?}");
        assert!(watched.latest_silence <= 3.0, "{watched:?}");
        let off = Watched::run(&generated(3, 1), &PolicyConfig { silent_factor: 0.0, ..config });
        assert_eq!((off.silent_per_feed_year, off.never_silent), (0.0, off.feeds), "{off:?}");
    }
}
