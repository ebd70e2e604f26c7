//! The items of a path over time, and the validators that follow from them.
//!
//! Deterministic: the n-th item of a path has the same id, title and link in every run. Items are never withdrawn, so
//! that [`Origin::truth`](crate::Origin::truth) is what a perfect client would have stored.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use common::time::Timestamp;

use super::feed::{Conditions, Feed, Item, Pace, Stamp, Tag};
use super::mix::mix;

/// Minimum interval between automatic items: a period of zero must not publish in an endless loop.
const SHORTEST: Duration = Duration::from_millis(1);

/// The items of one path, and the state of its validators.
#[derive(Debug)]
pub(super) struct FeedState {
    path: Arc<str>,
    pace: Pace,
    headlines: Arc<[String]>,
    items: Vec<Item>,
    /// The number of items at each revision, from the first on.
    counts: Vec<usize>,
    appeared: u64,
    next: Option<Duration>,
    revision: u64,
    modified: Timestamp,
    fresh: u64,
}

/// The current validators as header values.
pub(super) struct Current {
    pub(super) tag: Option<Vec<u8>>,
    pub(super) stamp: Option<Vec<u8>>,
}

impl FeedState {
    pub(super) fn new(path: Arc<str>, feed: &Feed, started: Timestamp) -> Self {
        let mut state = FeedState {
            path,
            pace: feed.pace.clone(),
            headlines: Arc::clone(&feed.headlines),
            items: Vec::new(),
            counts: vec![0],
            appeared: 0,
            next: None,
            revision: 0,
            modified: whole_seconds(started.before(Duration::from_secs(24 * 3600))),
            fresh: 0,
        };
        for number in 0..feed.initial {
            let hours = u64::try_from(feed.initial - number).unwrap_or(u64::MAX);
            state.add(
                started.before(Duration::from_secs(3600).saturating_mul(u32::try_from(hours).unwrap_or(u32::MAX))),
            );
        }
        state.next = state.following(Duration::ZERO);
        state
    }

    fn following(&self, last: Duration) -> Option<Duration> {
        match &self.pace {
            Pace::Manual => None,
            Pace::Every(period) => Some(last + (*period).max(SHORTEST)),
            Pace::Random { mean, seed } => Some(last + mean.mul_f64(exponential(*seed, self.appeared)).max(SHORTEST)),
            Pace::At(times) => times.get(usize::try_from(self.appeared).unwrap_or(usize::MAX)).copied(),
        }
    }

    /// Adds the items that have appeared automatically until `now`.
    pub(super) fn advance(&mut self, now: Duration, started: Timestamp) {
        while let Some(due) = self.next.filter(|due| *due <= now) {
            self.add(started.after(due));
            self.appeared += 1;
            self.next = self.following(due);
        }
    }

    /// Publishes one item.
    pub(super) fn add(&mut self, at: Timestamp) {
        let number = self.items.len();
        let name = self.path.trim_matches('/').replace('/', ".");
        let headline = number.checked_rem(self.headlines.len()).map(|turn| self.headlines[turn].clone());
        self.items.push(Item {
            id: format!("urn:scripted:{name}:{number}"),
            title: headline.unwrap_or_else(|| format!("Item {number} of {name}")),
            link: format!("https://example.org/{name}/items/{number}"),
            published: whole_seconds(at),
        });
        self.touch(at);
    }

    /// Changes the validators, whether or not the items have changed.
    pub(super) fn touch(&mut self, at: Timestamp) {
        self.revision += 1;
        self.counts.push(self.items.len());
        self.modified = whole_seconds(at).max(self.modified.after(Duration::from_secs(1)));
    }

    pub(super) fn items(&self) -> &[Item] {
        &self.items
    }

    pub(super) fn visible(&self, feed: &Feed) -> Range<usize> {
        self.items.len().saturating_sub(feed.shown)..self.items.len()
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn modified(&self) -> Timestamp {
        self.modified
    }

    fn tag_at(&self, feed: &Feed, revision: u64) -> Option<Vec<u8>> {
        let path = self.path.bytes().fold(7_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte));
        let bare = format!("{path:x}-{revision}");
        match &feed.tag {
            Tag::None => None,
            Tag::Strong | Tag::Suffix(_) => Some(format!("\"{bare}\"").into_bytes()),
            Tag::Weak => Some(format!("W/\"{bare}\"").into_bytes()),
            Tag::Text(text) => Some(with_revision(text, revision)),
            Tag::FreshOn304 => Some(format!("\"{bare}-{}\"", self.fresh).into_bytes()),
        }
    }

    /// Returns the current validators.
    pub(super) fn current(&self, feed: &Feed) -> Current {
        let tag = self.tag_at(feed, self.revision);
        let stamp = match &feed.stamp {
            Stamp::None => None,
            Stamp::Date => Some(http_date(self.modified).into_bytes()),
            Stamp::Text(text) => Some(with_revision(text, self.revision)),
        };
        Current { tag, stamp }
    }

    /// Returns the first item that a client with this tag does not have; `None` if the tag does not belong to this
    /// path.
    pub(super) fn known_until(&self, feed: &Feed, none_match: &[u8]) -> Option<usize> {
        let revision = (0..self.revision).rev().find(|revision| {
            let then = self.tag_at(feed, *revision);
            then.is_some_and(|tag| tag_matches(none_match, &tag))
        })?;
        self.counts.get(usize::try_from(revision).ok()?).copied()
    }

    /// Returns whether a request with these conditions gets a 304; if so, generates the next fresh tag.
    pub(super) fn not_modified(&mut self, feed: &Feed, none_match: Option<&[u8]>, since: Option<&[u8]>) -> bool {
        let current = self.current(feed);
        let tag = none_match.map(|sent| current.tag.as_deref().is_some_and(|tag| tag_matches(sent, tag)));
        let date = since.map(|sent| current.stamp.as_deref().is_some_and(|stamp| stamp_matches(sent, stamp)));
        let same = match feed.conditions {
            Conditions::Exact => tag.or(date).unwrap_or(false),
            Conditions::All => (tag.is_some() || date.is_some()) && tag.unwrap_or(true) && date.unwrap_or(true),
            Conditions::Ignored => false,
        };
        if same && matches!(feed.tag, Tag::FreshOn304) {
            self.fresh += 1;
        }
        same
    }
}

/// Compares bytes with the whole value, with one member of a list, or with `*`.
fn tag_matches(sent: &[u8], tag: &[u8]) -> bool {
    sent == tag || sent == b"*" || sent.split(|byte| *byte == b',').any(|member| member.trim_ascii() == tag)
}

fn stamp_matches(sent: &[u8], stamp: &[u8]) -> bool {
    let date = |bytes: &[u8]| std::str::from_utf8(bytes).ok().and_then(|text| httpdate::parse_http_date(text).ok());
    sent == stamp || date(sent).is_some_and(|sent| Some(sent) == date(stamp))
}

fn with_revision(text: &[u8], revision: u64) -> Vec<u8> {
    match text.windows(2).position(|pair| pair == b"{}") {
        Some(at) => [&text[..at], revision.to_string().as_bytes(), &text[at + 2..]].concat(),
        None => text.to_vec(),
    }
}

/// Formats an HTTP date (IMF-fixdate).
pub(crate) fn http_date(at: Timestamp) -> String {
    let seconds = u64::try_from(at.unix_seconds()).unwrap_or(0);
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds))
}

fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_millis(at.unix_seconds().saturating_mul(1000))
}

/// Draws from the exponential distribution with mean 1, determined by seed and number.
#[expect(clippy::cast_precision_loss, reason = "53 random bits are what a fraction holds")]
fn exponential(seed: u64, number: u64) -> f64 {
    let bits = mix(seed ^ mix(number));
    let fraction = ((bits >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -fraction.ln()
}
