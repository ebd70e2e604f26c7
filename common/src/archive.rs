//! How far the older entries of a feed were read: pages that the feed links to (RFC 5005, JSON Feed's `next_url`), one after the
//! other, each a request of its own that is queued and paced like a poll.
//!
//! This happens after an overflow, up to the entries that were known before it, and because a person asked for it.

use serde::{Deserialize, Serialize};

use crate::document::{Document, Onward};
use crate::entry::Entry;
use crate::known::KnownEntries;
use crate::time::Timestamp;
use crate::url::FeedUrl;

/// A page that fails is tried again after the feed's next poll, until this many failed.
const TRIES: u8 = 3;
/// Entries known before an overflow that are remembered: some of them may be deleted meanwhile.
const REMEMBERED: usize = 64;

/// Reading a feed's older entries, between two of its pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArchiveRead {
    /// The page to be read next.
    pub next: FeedUrl,
    /// Entries that are dated before are not wanted.
    pub since: Timestamp,
    /// Entries that were known before the gap: a page with one of them is the last. Empty if a person asked.
    #[serde(default, skip_serializing_if = "KnownEntries::is_empty")]
    pub before: KnownEntries,
    /// When the feed itself is polled.
    pub poll_due: Timestamp,
    /// Hashes of the pages that were read, so that a circle ends.
    #[serde(default)]
    pub read: Vec<u64>,
    /// Bytes that they had on the wire.
    #[serde(default)]
    pub bytes: u64,
    /// Entries that they contained.
    #[serde(default)]
    pub entries: u64,
    /// Requests for the next page that failed.
    #[serde(default)]
    pub failures: u8,
}

/// How much is read at a time.
#[derive(Clone, Copy, Debug)]
pub struct ArchiveLimits {
    /// Pages.
    pub pages: u32,
    /// Bytes on the wire.
    pub bytes: u64,
    /// Entries.
    pub entries: u64,
}

/// What follows from a page.
#[derive(Clone, Debug, PartialEq)]
pub enum Onwards {
    /// Another page.
    More(ArchiveRead),
    /// All that is wanted and that the feed offers was read.
    Done,
    /// A limit was reached, or the next page cannot be read: entries may be missing.
    GivenUp,
}

impl ArchiveRead {
    /// Begins at the page that the document of a feed at `url` links to; `None` if it links to none.
    pub fn begin(
        url: &FeedUrl,
        onward: &Onward,
        since: Timestamp,
        before: KnownEntries,
        poll_due: Timestamp,
    ) -> Option<Self> {
        let next = link(url, onward)?;
        Some(ArchiveRead { next, since, before, poll_due, read: Vec::new(), bytes: 0, entries: 0, failures: 0 })
    }

    /// Returns the entries that were known before this document, as many as are remembered.
    pub fn known_before(document: &Document) -> KnownEntries {
        let own = usize::try_from(document.all_entries).unwrap_or(usize::MAX);
        KnownEntries::default().after_document(document.known.iter().skip(own).take(REMEMBERED))
    }

    /// Follows a page that was read, and leaves the entries in it that are wanted.
    pub fn after(mut self, document: &mut Document, bytes: u64, limits: ArchiveLimits) -> Onwards {
        self.read.push(hash(&self.next));
        self.bytes = self.bytes.saturating_add(bytes);
        self.entries = self.entries.saturating_add(u64::from(document.all_entries));
        self.failures = 0;
        let reached = !self.before.is_empty() && !document.none_known;
        let newest = document.entries.iter().filter_map(date).max();
        let is_past = newest.is_some_and(|newest| newest < self.since);
        document.entries.retain(|entry| date(entry).is_none_or(|date| date >= self.since));
        let goes_on = !reached && !is_past && document.all_entries > 0;
        let Some(next) = link(&self.next, &document.onward).filter(|_| goes_on) else {
            return Onwards::Done;
        };
        let is_within = self.read.len() < limits.pages as usize && self.bytes < limits.bytes;
        if !is_within || self.entries >= limits.entries || self.read.contains(&hash(&next)) {
            return Onwards::GivenUp;
        }
        Onwards::More(ArchiveRead { next, ..self })
    }

    /// Follows a page that could not be read.
    pub fn after_failure(mut self) -> Onwards {
        self.failures += 1;
        if self.failures >= TRIES { Onwards::GivenUp } else { Onwards::More(self) }
    }
}

/// Returns the page with older entries that the document at `url` links to. Only one of the same host: otherwise any feed could have
/// dozens of requests sent to somebody else.
fn link(url: &FeedUrl, onward: &Onward) -> Option<FeedUrl> {
    let page: FeedUrl = onward.prev_archive.as_ref().or(onward.next.as_ref())?.parse().ok()?;
    Some(page).filter(|page| page.as_url().host() == url.as_url().host())
}

fn date(entry: &Entry) -> Option<Timestamp> {
    entry.published.or(entry.updated)
}

fn hash(url: &FeedUrl) -> u64 {
    xxhash_rust::xxh3::xxh3_64(url.as_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIMITS: ArchiveLimits = ArchiveLimits { pages: 3, bytes: 1_000, entries: 50 };

    fn at(day: u64) -> Timestamp {
        Timestamp::EPOCH.after(Duration::from_secs(day * 86_400))
    }

    fn entry(day: u64) -> Entry {
        Entry { id: day.to_string(), published: Some(at(day)), ..Entry::default() }
    }

    /// Returns a page of these days' entries that links to this page.
    fn page(days: std::ops::Range<u64>, known: &KnownEntries, next: Option<u32>) -> Document {
        let mut document = Document::default();
        document.onward.next = next.map(|page| format!("https://a.example/feed?paged={page}"));
        document.keep_news(days.rev().map(entry).collect(), known);
        document
    }

    fn feed() -> FeedUrl {
        "https://a.example/feed".parse().unwrap()
    }

    fn begun(since: Timestamp, before: &KnownEntries) -> ArchiveRead {
        let onward = page(90..100, &KnownEntries::default(), Some(2)).onward;
        ArchiveRead::begin(&feed(), &onward, since, before.clone(), at(100)).unwrap()
    }

    #[test]
    fn pages_are_followed_up_to_an_entry_that_was_known_before_the_gap() {
        let before = KnownEntries::default().after_document((60..70).map(|day| entry(day).fingerprint()));
        let read = begun(at(69), &before);
        let mut second = page(80..90, &before, Some(3));
        let Onwards::More(read) = read.after(&mut second, 10, LIMITS) else { panic!("it goes on") };
        assert_eq!((second.entries.len(), read.next.as_str()), (10, "https://a.example/feed?paged=3"));
        let again: ArchiveRead = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
        assert_eq!(again, read);
        let mut third = page(65..80, &before, Some(4));
        assert_eq!(read.after(&mut third, 10, LIMITS), Onwards::Done);
        assert_eq!(third.entries.len(), 10, "older ones were known, or are not wanted");
    }

    #[test]
    fn the_end_of_the_archive_and_the_time_end_it_too() {
        let none = KnownEntries::default();
        assert_eq!(begun(at(0), &none).after(&mut page(80..90, &none, None), 10, LIMITS), Onwards::Done);
        assert_eq!(begun(at(0), &none).after(&mut page(80..80, &none, Some(3)), 10, LIMITS), Onwards::Done);
        let mut older = page(80..90, &none, Some(3));
        assert!(matches!(begun(at(85), &none).after(&mut older, 10, LIMITS), Onwards::More(_)));
        assert_eq!(older.entries.len(), 5);
        assert_eq!(begun(at(90), &none).after(&mut page(80..90, &none, Some(3)), 10, LIMITS), Onwards::Done);
        let links_to = |next: &str| link(&feed(), &Onward { next: Some(next.into()), ..Onward::default() });
        assert_eq!(links_to("javascript:x"), None);
        assert_eq!(links_to("https://b.example/feed?paged=2"), None, "another host");
        assert!(links_to("http://a.example/feed?paged=2").is_some());
    }

    #[test]
    fn circles_and_limits_give_up() {
        let none = KnownEntries::default();
        let after = |next: u32, entries: u64, bytes: u64| {
            begun(at(0), &none).after(&mut page(100 - entries..100, &none, Some(next)), bytes, LIMITS)
        };
        assert_eq!(after(2, 5, 10), Onwards::GivenUp, "the page itself");
        assert_eq!(after(3, 50, 10), Onwards::GivenUp, "entries");
        assert_eq!(after(3, 5, 1_000), Onwards::GivenUp, "bytes");
        let mut read = begun(at(0), &none);
        for number in 3..5 {
            let Onwards::More(next) = read.after(&mut page(80..85, &none, Some(number)), 10, LIMITS) else { panic!() };
            read = next;
        }
        assert_eq!(read.after(&mut page(80..85, &none, Some(5)), 10, LIMITS), Onwards::GivenUp, "pages");
        let Onwards::More(once) = begun(at(0), &none).after_failure() else { panic!() };
        let Onwards::More(twice) = once.after_failure() else { panic!() };
        assert_eq!(twice.after_failure(), Onwards::GivenUp);
    }
}
