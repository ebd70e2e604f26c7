//! How far the older entries of a feed were read: pages that the feed links to (RFC 5005, JSON Feed's `next_url`), one
//! after the other. Each page is a separate request, queued and paced like a poll.
//!
//! This happens after an overflow, up to the entries that were known before it, and because a person requested it. Both
//! may be wanted at once: the pages are read until both have what they want.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::document::{Document, Onward};
use crate::entry::Entry;
use crate::known::KnownEntries;
use crate::time::Timestamp;
use crate::url::FeedUrl;

/// A page that fails is tried again after the feed's next poll, until this many failed.
const TRIES: u8 = 3;
/// A page that its server throttles is tried again for this long.
const LONGEST_THROTTLE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Entries known before an overflow that are taken from the report of an earlier version.
const REMEMBERED: usize = 64;
/// Dates at multiples of a quarter of an hour are days without a time: midnight in any time zone.
const DAY_ONLY: i64 = 15 * 60 * 1_000;

/// Reading a feed's older entries, between two of its pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArchiveRead {
    /// The page to be read next.
    pub next: FeedUrl,
    /// Entries that are dated before are not wanted.
    pub since: Timestamp,
    /// A person requested entries since then. Earlier versions wrote only `since` for that, and nothing in `before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wished: Option<Timestamp>,
    /// Entries that were known before the gap: a page with one of them closes it. Empty if there is no gap to close.
    #[serde(default, skip_serializing_if = "KnownEntries::is_empty")]
    pub before: KnownEntries,
    /// Since when the gap that they close exists: an older one stays. Earlier versions did not write it, and closed any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Timestamp>,
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
    /// When the server first throttled the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_since: Option<Timestamp>,
    /// A page was read only in part: what it lacks may be what is missing, so no gap is closed any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_holes: bool,
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// The page contains an entry that was known before the gap: nothing between is missing.
    pub overlaps: bool,
    /// All of its entries are dated before those that are wanted, at least one of them with a time: a day alone proves nothing.
    pub is_past: bool,
    /// If the page overlaps: since when the gap that it closes exists. `None`: any.
    pub gap: Option<Timestamp>,
    /// Returns how reading continues. `None`: everything that is wanted was read, or a limit was reached, or the feed
    /// links to no further page.
    pub next: Option<ArchiveRead>,
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
        Some(ArchiveRead {
            next,
            since,
            wished: None,
            before,
            gap: None,
            poll_due,
            read: Vec::new(),
            bytes: 0,
            entries: 0,
            failures: 0,
            throttled_since: None,
            has_holes: false,
        })
    }

    /// Begins or continues because a person requests the entries since a time. A read in progress continues; it starts
    /// again from the first page if older entries are wanted now, because those were left out. `None` if the feed links
    /// to no page.
    pub fn wished(
        current: Option<&ArchiveRead>,
        url: &FeedUrl,
        onward: &Onward,
        since: Timestamp,
        poll_due: Timestamp,
    ) -> Option<Self> {
        let earlier = current.and_then(ArchiveRead::wish).map_or(since, |wish| wish.min(since));
        let reading = match current {
            Some(current) if current.since <= since => current.clone(),
            Some(current) => {
                let begun = Self::begin(url, onward, since, current.before.clone(), poll_due)?;
                ArchiveRead { gap: current.gap, ..begun }
            }
            None => Self::begin(url, onward, since, KnownEntries::default(), poll_due)?,
        };
        Some(ArchiveRead { wished: Some(earlier), ..reading })
    }

    /// Begins at the first page after an overflow, in addition to what was being read before: entries that are dated `since` or later
    /// are wanted. The entries before this overflow were known at `gap`.
    pub fn recovery(
        current: Option<&ArchiveRead>,
        url: &FeedUrl,
        document: &Document,
        (since, gap): (Timestamp, Timestamp),
        poll_due: Timestamp,
    ) -> Option<Self> {
        // A gap that is being read is read up to where it began.
        let since = current.map_or(since, |current| current.since.min(since));
        let recovered = current.filter(|current| !current.before.is_empty());
        let (before, gap) = recovered
            .map_or_else(|| (known_before(document), Some(gap)), |recovered| (recovered.before.clone(), recovered.gap));
        let begun = Self::begin(url, &document.onward, since, before, poll_due)?;
        // The limits hold for both, or a feed that overflows at each poll would be read for ever.
        let (bytes, entries) = current.map_or((0, 0), |current| (current.bytes, current.entries));
        Some(ArchiveRead { wished: current.and_then(ArchiveRead::wish), gap, bytes, entries, ..begun })
    }

    /// Returns the time since which a person wants entries.
    fn wish(&self) -> Option<Timestamp> {
        self.wished.or_else(|| (self.before.is_empty() && self.gap.is_none()).then_some(self.since))
    }

    /// Follows a page that was read, and leaves the entries in it that are wanted.
    pub fn after(mut self, document: &mut Document, bytes: u64, limits: ArchiveLimits) -> Step {
        self.read.push(hash(&self.next));
        self.bytes = self.bytes.saturating_add(bytes);
        self.entries = self.entries.saturating_add(u64::from(document.all_entries));
        (self.failures, self.throttled_since) = (0, None);
        let overlaps = !self.before.is_empty() && document.all_entries > 0 && !document.none_known;
        // One without a date may be as new as any.
        let dates: Option<Vec<_>> = document.entries.iter().map(date).collect();
        let newest = dates.and_then(|dates| dates.into_iter().max());
        let is_before = newest.is_some_and(|newest| newest < self.since);
        let is_past = is_before && document.entries.iter().filter_map(time).next().is_some();
        document.entries.retain(|entry| date(entry).is_none_or(|date| date >= self.since));
        let (wish, gap, is_whole) = (self.wish(), self.gap.filter(|_| overlaps), !self.has_holes);
        if overlaps {
            (self.before, self.gap) = (KnownEntries::default(), None);
            self.since = wish.unwrap_or(self.since);
        }
        let is_done = is_before || (overlaps && wish.is_none_or(|wish| newest.is_some_and(|newest| newest < wish)));
        let is_within = self.read.len() < limits.pages as usize
            && self.bytes < limits.bytes
            && self.entries < limits.entries
            && document.all_entries > 0;
        let next = link(&self.next, &document.onward)
            .filter(|next| !is_done && is_within && !self.read.contains(&hash(next)))
            .map(|next| ArchiveRead { next, ..self });
        Step { overlaps: overlaps && is_whole, is_past: is_past && is_whole, gap, next }
    }

    /// Follows a page of which only a part could be read. It is tried again like one that failed; after that the pages behind it are
    /// read, and the gap stays.
    pub fn after_part(mut self, document: &mut Document, bytes: u64, limits: ArchiveLimits) -> Step {
        let (since, again) = (self.since, self.clone().after_failure());
        if again.next.is_none() {
            self.has_holes = true;
            return self.after(document, bytes, limits);
        }
        document.entries.retain(|entry| date(entry).is_none_or(|date| date >= since));
        again
    }

    /// Follows a page that its server throttled until a time: it is tried again then, but not for ever.
    pub fn after_throttle(mut self, now: Timestamp) -> Step {
        let since = *self.throttled_since.get_or_insert(now);
        Step { next: (now.since(since) < LONGEST_THROTTLE).then_some(self), ..Step::default() }
    }

    /// Follows a page that could not be read: it is tried again a few times.
    pub fn after_failure(mut self) -> Step {
        self.failures += 1;
        Step { next: (self.failures < TRIES).then_some(self), ..Step::default() }
    }
}

/// Returns the page with older entries that the document at `url` links to. Only one of the same host: otherwise any
/// feed could have dozens of requests sent to a foreign host.
fn link(url: &FeedUrl, onward: &Onward) -> Option<FeedUrl> {
    let page: FeedUrl = onward.prev_archive.as_ref().or(onward.next.as_ref())?.parse().ok()?;
    Some(page).filter(|page| page.as_url().host() == url.as_url().host())
}

/// Returns the entries that were known before this document, as many as are remembered.
fn known_before(document: &Document) -> KnownEntries {
    if !document.known_before.is_empty() {
        return document.known_before.clone();
    }
    let own = usize::try_from(document.all_entries).unwrap_or(usize::MAX);
    KnownEntries::default().after_document(document.known.iter().skip(own).take(REMEMBERED))
}

fn date(entry: &Entry) -> Option<Timestamp> {
    entry.published.or(entry.updated)
}

/// Returns an entry's date if it has a time, and not only a day.
pub fn time(entry: &Entry) -> Option<Timestamp> {
    date(entry).filter(|date| date.millis() % DAY_ONLY != 0)
}

fn hash(url: &FeedUrl) -> u64 {
    xxhash_rust::xxh3::xxh3_64(url.as_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ArchiveLimits = ArchiveLimits { pages: 3, bytes: 1_000, entries: 50 };

    fn at(day: u64) -> Timestamp {
        Timestamp::EPOCH.after(Duration::from_secs(day * 86_400))
    }

    fn entry(day: u64) -> Entry {
        Entry { id: day.to_string(), published: Some(at(day).after(Duration::from_secs(1))), ..Entry::default() }
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

    fn next(step: Step) -> ArchiveRead {
        step.next.expect("it goes on")
    }

    #[test]
    fn pages_are_followed_up_to_an_entry_that_was_known_before_the_gap() {
        let before = KnownEntries::default().after_document((60..70).map(|day| entry(day).fingerprint()));
        let read = begun(at(69), &before);
        let mut second = page(80..90, &before, Some(3));
        let read = next(read.after(&mut second, 10, LIMITS));
        assert_eq!((second.entries.len(), read.next.as_str()), (10, "https://a.example/feed?paged=3"));
        let again: ArchiveRead = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
        assert_eq!(again, read);
        let mut third = page(65..80, &before, Some(4));
        assert_eq!(read.after(&mut third, 10, LIMITS), Step { overlaps: true, ..Step::default() });
        assert_eq!(third.entries.len(), 10, "older ones were known, or are not wanted");
    }

    #[test]
    fn an_archive_that_ends_before_a_known_entry_proves_nothing() {
        let before = KnownEntries::default().after_document((60..70).map(|day| entry(day).fingerprint()));
        for last in [page(80..90, &before, None), page(80..80, &before, Some(3))] {
            assert_eq!(begun(at(69), &before).after(&mut last.clone(), 10, LIMITS), Step::default());
        }
    }

    #[test]
    fn the_end_of_the_archive_and_the_time_end_it_too() {
        let none = KnownEntries::default();
        let past = Step { is_past: true, ..Step::default() };
        assert_eq!(begun(at(0), &none).after(&mut page(80..90, &none, None), 10, LIMITS), Step::default());
        assert_eq!(begun(at(0), &none).after(&mut page(80..80, &none, Some(3)), 10, LIMITS), Step::default());
        let mut older = page(80..90, &none, Some(3));
        assert!(begun(at(85), &none).after(&mut older, 10, LIMITS).next.is_some());
        assert_eq!(older.entries.len(), 5);
        assert_eq!(begun(at(90), &none).after(&mut page(80..90, &none, Some(3)), 10, LIMITS), past);
        let links_to = |next: &str| link(&feed(), &Onward { next: Some(next.into()), ..Onward::default() });
        assert_eq!(links_to("javascript:x"), None);
        assert_eq!(links_to("https://b.example/feed?paged=2"), None, "another host");
        assert!(links_to("http://a.example/feed?paged=2").is_some());
    }

    #[test]
    fn a_persons_wish_and_a_gap_are_read_together_and_each_to_its_own_end() {
        let before = KnownEntries::default().after_document((70..80).map(|day| entry(day).fingerprint()));
        let onward = page(90..100, &KnownEntries::default(), Some(2)).onward;
        let wished = |current: &ArchiveRead, day| {
            ArchiveRead::wished(Some(current), &feed(), &onward, at(day), at(100)).unwrap()
        };
        let recovery = next(begun(at(79), &before).after(&mut page(85..90, &before, Some(3)), 10, LIMITS));
        // What is wanted is within its range: the recovery continues where it is, and still knows where it ends.
        let same = wished(&recovery, 85);
        assert_eq!((&same.next, &same.before, same.since), (&recovery.next, &before, at(79)));
        assert!(same.after(&mut page(75..85, &before, Some(4)), 10, LIMITS).next.is_none());
        // Older entries are wanted: from the first page again, over the known entries, and up to that day.
        let both = wished(&recovery, 50);
        assert_eq!((both.next.as_str(), both.read.len()), ("https://a.example/feed?paged=2", 0));
        let step = both.after(&mut page(75..90, &before, Some(3)), 10, LIMITS);
        assert!(step.overlaps);
        let rest = next(step);
        assert_eq!((rest.since, rest.before.is_empty()), (at(50), true));
        assert!(rest.after(&mut page(40..45, &KnownEntries::default(), Some(4)), 10, LIMITS).is_past);

        // An overflow while a person's wish is read: from the first page, for both.
        let wish = ArchiveRead::wished(None, &feed(), &onward, at(50), at(100)).unwrap();
        let mut document = page(110..120, &before, Some(2));
        document.onward = onward.clone();
        let read = ArchiveRead::recovery(Some(&wish), &feed(), &document, (at(99), at(99)), at(120)).unwrap();
        assert_eq!((read.since, read.wished, read.before.is_empty()), (at(50), Some(at(50)), false));
        assert_eq!(read.gap, Some(at(99)));
        // And another overflow before that was read: what was known before the first one ends both.
        let later = ArchiveRead::recovery(Some(&read), &feed(), &document, (at(119), at(119)), at(130)).unwrap();
        assert_eq!((later.since, later.gap, later.before), (at(50), Some(at(99)), read.before));
    }

    #[test]
    fn what_was_known_before_a_long_or_repetitive_document_ends_its_recovery() {
        let known = KnownEntries::default().after_document((0..10).map(|day| entry(day).fingerprint()));
        let twice = (100..105).chain(100..105).rev().map(entry).collect::<Vec<_>>();
        for entries in [(100..1_000).rev().map(entry).collect(), twice] {
            let mut document = Document::default();
            document.keep_news(entries, &known);
            document.onward.next = Some("https://a.example/feed?paged=2".into());
            let json = serde_json::to_string(&document).unwrap();
            let document: Document = serde_json::from_str(&json).unwrap();
            let read = ArchiveRead::recovery(None, &feed(), &document, (at(8), at(9)), at(1_000)).unwrap();
            assert_eq!((&read.before, read.wish(), read.gap), (&known, None, Some(at(9))));
            let step = read.after(&mut page(5..20, &known, None), 10, LIMITS);
            assert_eq!((step.overlaps, step.gap), (true, Some(at(9))));
        }
        assert!(page(5..20, &known, None).known_before.is_empty(), "no overflow");
    }

    #[test]
    fn days_without_a_time_end_the_reading_and_prove_nothing() {
        let day_only = |day| Entry { published: Some(at(day)), ..entry(day) };
        let mut older = Document::default();
        older.keep_news((60..70).map(day_only).collect(), &KnownEntries::default());
        older.onward.next = Some("https://a.example/feed?paged=3".into());
        assert_eq!(begun(at(80), &KnownEntries::default()).after(&mut older, 10, LIMITS), Step::default());
    }

    #[test]
    fn an_entry_without_a_date_may_be_new_and_does_not_end_the_reading() {
        let undated = Entry { published: None, ..entry(88) };
        let with = |entries: Vec<Entry>| {
            let mut page = Document::default();
            page.keep_news(entries, &KnownEntries::default());
            page.onward.next = Some("https://a.example/feed?paged=3".into());
            begun(at(80), &KnownEntries::default()).after(&mut page, 10, LIMITS)
        };
        assert!(with(vec![entry(20)]).is_past);
        let step = with(vec![undated, entry(20)]);
        assert!(!step.is_past && step.next.is_some());
    }

    #[test]
    fn a_page_that_is_read_in_part_is_tried_again_and_then_closes_no_gap() {
        let before = KnownEntries::default().after_document((60..70).map(|day| entry(day).fingerprint()));
        let mut read = begun(at(69), &before);
        for _ in 1..TRIES {
            let again = next(read.clone().after_part(&mut page(85..90, &before, Some(3)), 10, LIMITS));
            assert_eq!((&again.next, again.read.len(), again.has_holes), (&read.next, 0, false));
            read = again;
        }
        let behind = next(read.after_part(&mut page(85..90, &before, Some(3)), 10, LIMITS));
        let again: ArchiveRead = serde_json::from_str(&serde_json::to_string(&behind).unwrap()).unwrap();
        assert_eq!((again.has_holes, again.failures), (true, 0));
        let end = again.after(&mut page(65..80, &before, Some(4)), 10, LIMITS);
        assert_eq!(end, Step { gap: end.gap, ..Step::default() }, "it ends there, and proves nothing");
    }

    #[test]
    fn circles_and_limits_give_up() {
        let none = KnownEntries::default();
        let after = |next: u32, entries: u64, bytes: u64| {
            begun(at(0), &none).after(&mut page(100 - entries..100, &none, Some(next)), bytes, LIMITS)
        };
        assert_eq!(after(2, 5, 10), Step::default(), "the page itself");
        assert_eq!(after(3, 50, 10), Step::default(), "entries");
        assert_eq!(after(3, 5, 1_000), Step::default(), "bytes");
        let mut read = begun(at(0), &none);
        for number in 3..5 {
            read = next(read.after(&mut page(80..85, &none, Some(number)), 10, LIMITS));
        }
        assert_eq!(read.after(&mut page(80..85, &none, Some(5)), 10, LIMITS), Step::default(), "pages");
        let throttled = |day| begun(at(0), &none).after_throttle(at(1)).next?.after_throttle(at(day)).next;
        assert_eq!((throttled(7).is_some(), throttled(8)), (true, None), "a week");
        let again = next(throttled(7).unwrap().after(&mut page(80..85, &none, Some(3)), 10, LIMITS));
        assert!(again.after_throttle(at(8)).next.is_some(), "of another page");
        let twice = next(next(begun(at(0), &none).after_failure()).after_failure());
        assert_eq!(twice.after_failure(), Step::default());
    }
}
