//! The responses of a virtual fleet's feeds: posts from histories, all moved by whole weeks onto one calendar.

use std::time::Duration;

use common::document::Document;
use common::entry::Entry;
use common::time::Timestamp;
use load_tests::simulate::{ITEMS_SHOWN, Random, SampledFeed};

/// The share of all feeds that is on big platforms.
const ON_PLATFORMS: f64 = 0.2;
/// The number of big platforms.
const PLATFORMS: usize = 5;
const WEEK: f64 = 7.0 * 86_400.0;

/// All feeds, and which hosts are up.
pub(super) struct Answers {
    pub(super) feeds: Vec<SampledFeed>,
    /// The host of each feed, and how many of its posts were seen; `None` before its first response.
    places: Vec<(usize, Option<usize>)>,
    hosts: usize,
    /// The share of the hosts that refuse connections.
    pub(super) down: f64,
}

/// Moves feeds by whole weeks so that each starts in the week before `start`; hours and weekdays do not change.
pub(super) fn on_one_calendar(feeds: &mut [SampledFeed], start: Timestamp) {
    let start = start.millis() as f64 / 1000.0;
    for feed in feeds {
        let weeks = ((start - feed.start) / WEEK).floor() * WEEK;
        feed.shown.iter_mut().chain(&mut feed.posts).for_each(|post| *post += weeks);
        feed.start += weeks;
        feed.end += weeks;
    }
}

impl Answers {
    pub(super) fn new(feeds: Vec<SampledFeed>, hosts: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let hosts = hosts.max(PLATFORMS + 1);
        let place = |_: &SampledFeed| match random.fraction() < ON_PLATFORMS {
            true => (random.below(PLATFORMS), None),
            false => (PLATFORMS + random.below(hosts - PLATFORMS), None),
        };
        let places = feeds.iter().map(place).collect();
        Answers { feeds, places, hosts, down: 0.0 }
    }

    pub(super) fn url(&self, number: usize) -> String {
        format!("http://host{}.example/feed/{number}", self.places[number].0)
    }

    /// Returns the posts since the last response, limited to the newest; `None` if the host is down.
    pub(super) fn ask(&mut self, number: usize, now: Timestamp) -> Option<Vec<f64>> {
        let (host, seen) = &mut self.places[number];
        // The last hosts are down, so that platforms go down last.
        if *host as f64 >= self.hosts as f64 * (1.0 - self.down) {
            return None;
        }
        let now = now.millis() as f64 / 1000.0;
        let feed = &self.feeds[number];
        let until = feed.posts.partition_point(|post| *post <= now);
        let new = &feed.posts[seen.unwrap_or(0)..until];
        let before = if seen.is_none() { &feed.shown[..] } else { &[] };
        *seen = Some(until);
        let mut shown: Vec<f64> = before.iter().chain(new).copied().collect();
        shown.drain(..shown.len().saturating_sub(ITEMS_SHOWN));
        Some(shown)
    }
}

/// Returns a document in which these posts are new.
pub(super) fn document(posts: &[f64]) -> Document {
    let entry = |(number, post): (usize, &f64)| Entry {
        id: format!("{post} {number}"),
        published: Some(Timestamp::EPOCH.after(Duration::from_secs_f64(post.max(0.0)))),
        ..Entry::default()
    };
    let entries: Vec<Entry> = posts.iter().enumerate().map(entry).collect();
    let new_entries = u32::try_from(entries.len()).unwrap_or(u32::MAX);
    Document { new_entries, all_entries: new_entries, entries, ..Document::default() }
}
