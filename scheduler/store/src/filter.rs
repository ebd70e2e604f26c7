//! Which entries and events a consumer wants, and how a page of them is chosen.
//!
//! A call looks at a bounded number of them ([`SCANNED`]), whatever is wanted: it reads short lines in the order of
//! their numbers, keeps those that match, and reads in full only the entries of a page. Where the scan ends the page
//! ends, even with fewer items than requested, or none; its [`next`](EventPage::next) continues from there. Filters
//! look at lines in the same way in both databases.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

use common::host::HostKey;
use common::labels::Marks;
use common::policy::Category;
use common::time::Timestamp;
use common::url::FeedId;
use serde::{Deserialize, Serialize};
use sqlx_macros::FromRow;

use super::columns::{pack_labels, read_error, read_marks};
use super::news::About;
use super::page_size::fitting;
use super::{Event, EventPage, StoredEntry};

/// Lines that a call with a filter looks at.
const SCANNED: u32 = 2_000;
/// Lines that it looks at first, for each item that is wanted and besides.
const FEW_PER_ITEM: u32 = 4;
const FEW: u32 = 32;
/// Entries that a call reads in full to look at their texts, at most.
const READ: usize = 500;

/// Which entries or events to read, and from where.
#[derive(Clone, Debug, Default)]
pub struct EventQuery {
    /// Which ones.
    pub filter: EventFilter,
    /// Begins with the newest.
    pub newest: bool,
    /// Continues behind this number: after it, or with `newest` before it. Zero: from the beginning of that order.
    pub after: i64,
    /// The maximum number of items.
    pub limit: u32,
    /// The maximum number of lines to look at, if fewer than usual: a short look ends soon.
    pub look: Option<u32>,
}

/// Which entries and events match: those that meet all conditions that are set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventFilter {
    /// Of one of these kinds: a kind, or the beginning of one followed by `*`. Empty: of any kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// Of this feed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feed: Option<FeedId>,
    /// Of feeds on this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostKey>,
    /// Of feeds with this label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Of feeds with one of these labels: all that the caller may see. Empty: everything.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub visible: Vec<String>,
    /// Of feeds in this category.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    /// Entries in this language: `en` matches `en-gb` too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Entries with this in their title, authors, categories or text, in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Of feeds in this part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// Stored at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// A share of all feeds: consumers that each take another part of the same number get every feed once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Which part, from 1.
    pub number: u32,
    /// How many parts there are.
    pub of: u32,
}

impl Part {
    /// The largest number of parts.
    pub const MOST: u32 = 1_024;

    /// Returns whether a feed is in this part. A feed's part never changes.
    pub fn has(self, feed: FeedId) -> bool {
        let hash = xxhash_rust::xxh3::xxh3_64(&feed.0.to_le_bytes());
        hash % u64::from(self.of.max(1)) == u64::from(self.number.saturating_sub(1))
    }
}

impl std::str::FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        let numbers = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((number, of)) if (1..=of).contains(&number) && of <= Self::MOST => Ok(Part { number, of }),
            _ => Err(format!("it must be K/N with K from 1 to N and N at most {}, such as 1/4", Self::MOST)),
        }
    }
}

/// An event, or an entry as the event that announced its newest form, before anything of it is read in full.
#[derive(Clone, Debug, FromRow)]
pub(crate) struct Line {
    pub(crate) seq: i64,
    at: i64,
    kind: String,
    feed_id: i64,
    subscription: Option<i64>,
    /// The entry's newest form, if it is kept.
    entry: Option<i64>,
    /// Bytes of the entry's texts.
    bytes: Option<i64>,
    feed_url: Option<String>,
    feed_title: Option<String>,
    labels: Option<String>,
    external_id: Option<String>,
    merged_into: Option<i64>,
    host: Option<String>,
    category: Option<String>,
    error: Option<String>,
    about: Option<String>,
    /// What `about` says.
    #[sqlx(skip)]
    changed: Vec<String>,
    #[sqlx(skip)]
    since: Option<Timestamp>,
    #[sqlx(skip)]
    limited_to: Vec<String>,
}

/// The texts of an entry in which filters look, in lower case: made when a filter looks for the first time.
#[derive(Debug, Default)]
pub struct Lowered(OnceLock<String>);

impl Lowered {
    fn of(&self, stored: &StoredEntry) -> &str {
        self.0.get_or_init(|| {
            let entry = &stored.entry;
            let texts = [&entry.title, &entry.author, &entry.summary, &entry.content].into_iter().flatten();
            // What is looked for has no control characters, and so is never found across two texts.
            texts.chain(&entry.categories).map(|text| text.to_lowercase()).collect::<Vec<_>>().join("\0")
        })
    }
}

/// What is known of an event, or of an entry, before anything of it is read in full.
struct Facts<'a> {
    kind: &'a str,
    feed: FeedId,
    at: i64,
    host: Option<&'a str>,
    category: Option<Category>,
    limited_to: &'a [String],
}

impl EventFilter {
    /// Returns whether every line that is read matches: of any feed, or of this one, when only its lines are read.
    fn is_open(&self, reads_feed: bool) -> bool {
        let feed = self.feed.filter(|_| reads_feed);
        EventFilter { since: self.since, feed, ..EventFilter::default() } == *self
    }

    /// Returns whether entries must be read in full to know whether they match: other events do not.
    pub fn reads_texts(&self) -> bool {
        self.text.is_some() || self.language.is_some()
    }

    fn matches_line(&self, line: &Line) -> bool {
        let marks = || Cow::Owned(read_marks(line.labels.as_deref(), None));
        let facts = Facts {
            kind: &line.kind,
            feed: FeedId(line.feed_id),
            at: line.at,
            host: line.host.as_deref(),
            category: line.category.as_deref().and_then(Category::from_name),
            limited_to: &line.limited_to,
        };
        self.matches_facts(&facts, marks) && (!self.reads_texts() || line.entry.is_some())
    }

    /// Returns whether an event that was read in full matches.
    pub fn matches(&self, event: &Event) -> bool {
        self.matches_lowered(event, &Lowered::default())
    }

    /// The same for an event that many filters look at.
    pub fn matches_lowered(&self, event: &Event, lowered: &Lowered) -> bool {
        let facts = Facts {
            kind: &event.kind,
            feed: event.feed_id,
            at: event.at.millis(),
            host: event.host.as_deref(),
            category: event.category,
            limited_to: &event.limited_to,
        };
        self.matches_facts(&facts, || Cow::Borrowed(&event.feed.marks))
            && self.matches_entry(event.entry.as_ref(), lowered)
    }

    fn matches_facts<'a>(&self, facts: &Facts<'_>, marks: impl FnOnce() -> Cow<'a, Marks>) -> bool {
        self.matches_kind(facts.kind)
            && self.feed.is_none_or(|wanted| wanted == facts.feed)
            && self.part.is_none_or(|part| part.has(facts.feed))
            && self.since.is_none_or(|since| facts.at >= since.millis())
            && self.host.as_ref().is_none_or(|host| facts.host == Some(host.as_str()))
            && self.category.is_none_or(|category| facts.category == Some(category))
            && (self.label.is_none() && self.shows_limited(facts.limited_to) || self.matches_labels(&marks()))
    }

    fn matches_entry(&self, entry: Option<&StoredEntry>, lowered: &Lowered) -> bool {
        match entry {
            Some(entry) => self.matches_texts(entry, lowered),
            None => !self.reads_texts(),
        }
    }

    /// Returns whether events of this kind can match.
    pub fn matches_kind(&self, kind: &str) -> bool {
        let matches = |wanted: &String| match wanted.strip_suffix('*') {
            Some(beginning) => kind.starts_with(beginning),
            None => kind == wanted,
        };
        self.kinds.is_empty() || self.kinds.iter().any(matches)
    }

    fn matches_labels(&self, marks: &Marks) -> bool {
        self.label.as_ref().is_none_or(|label| marks.labels.contains(label)) && self.shows(marks)
    }

    /// Returns whether the caller may see anything, or a subscription with this limit, if there is one.
    fn shows_limited(&self, limited_to: &[String]) -> bool {
        let is_within = || limited_to.iter().all(|label| self.visible.contains(label));
        self.visible.is_empty() || !limited_to.is_empty() && is_within()
    }

    /// Returns whether the caller may see a feed with these labels.
    pub fn shows(&self, marks: &Marks) -> bool {
        self.visible.is_empty() || self.visible.iter().any(|label| marks.labels.contains(label))
    }

    fn matches_texts(&self, stored: &StoredEntry, lowered: &Lowered) -> bool {
        let entry = &stored.entry;
        let has_text = |wanted: &String| lowered.of(stored).contains(&wanted.to_lowercase());
        self.matches_language(entry.language.as_deref().unwrap_or_default()) && self.text.as_ref().is_none_or(has_text)
    }

    /// Returns whether entries in this language can match.
    pub fn matches_language(&self, language: &str) -> bool {
        self.language.as_ref().is_none_or(|wanted| {
            let rest = language.strip_prefix(wanted.to_ascii_lowercase().as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
        })
    }
}

impl EventQuery {
    /// Returns a page in the order of the numbers, of everything.
    pub fn after(after: i64, limit: u32) -> Self {
        EventQuery { after, limit, ..EventQuery::default() }
    }

    /// Returns how many lines to read, of all feeds or only of the filter's: first a few, which suffice if many of them
    /// match, and then as many as a call looks at.
    pub(crate) fn scans(&self, reads_feed: bool) -> Vec<u32> {
        let scanned = self.look.map_or(SCANNED, |look| look.min(SCANNED));
        let most = if self.filter.is_open(reads_feed) { self.limit } else { scanned.max(self.limit) };
        let few = self.limit.saturating_mul(FEW_PER_ITEM).saturating_add(FEW);
        if few < most / 2 { vec![few, most] } else { vec![most] }
    }

    /// Returns whether a page that was read from a few lines is the page.
    pub(crate) fn suffices<T>(&self, page: &EventPage<T>) -> bool {
        !page.more || page.items.len() >= self.limit as usize
    }

    /// Returns the number from which on a page looks for the first line at its time or later, which is at `near` or behind it.
    pub(crate) fn looks_from(&self, near: i64) -> i64 {
        if self.newest { near } else { near.max(self.after.saturating_add(1)) }
    }

    /// Returns the numbers between which lines are read, both exclusive; `since` is the first number at that time or
    /// later.
    pub(crate) fn bounds(&self, since: i64) -> (i64, i64) {
        match (self.newest, self.after) {
            (false, after) => (after.max(since - 1), i64::MAX),
            (true, 0) => (since - 1, i64::MAX),
            (true, after) => (since - 1, after),
        }
    }

    /// Keeps the lines that match and fit into a page, of as many as were to be read.
    pub(crate) fn choose(&self, lines: Vec<Line>, scanned: u32) -> Chosen {
        let whole = lines.len() < scanned as usize;
        let last = lines.last().map(|line| line.seq);
        let mut lines: Vec<Line> = lines.into_iter().filter(|line| self.filter.matches_line(line)).collect();
        let matching = lines.len();
        let most = if self.filter.reads_texts() { READ } else { self.limit as usize };
        lines.truncate(most);
        lines.truncate(fitting(lines.iter().map(|line| line.bytes.unwrap_or(0))));
        let all = lines.len() == matching;
        let looked = if all { last } else { lines.last().map(|line| line.seq) };
        Chosen { lines, next: looked.unwrap_or(self.after), more: !(all && whole) }
    }

    /// Makes a page of entries.
    pub(crate) fn entries(
        &self,
        chosen: Chosen,
        entries: Vec<StoredEntry>,
        (epoch, oldest): (String, i64),
    ) -> EventPage<StoredEntry> {
        let Chosen { lines, next, more } = chosen;
        let mut by_seq = by_seq(entries);
        let found = lines.iter().filter_map(|line| by_seq.remove(&line.seq));
        let items = found.filter(|entry| self.filter.matches_texts(entry, &Lowered::default())).collect();
        self.page(items, |entry: &StoredEntry| entry.seq, EventPage { epoch, oldest, items: Vec::new(), next, more })
    }

    /// Makes a page of events.
    pub(crate) fn events(
        &self,
        chosen: Chosen,
        entries: Vec<StoredEntry>,
        (epoch, oldest): (String, i64),
    ) -> EventPage<Event> {
        let Chosen { lines, next, more } = chosen;
        let by_seq = by_seq(entries);
        let texts = |event: &Event| self.filter.matches_entry(event.entry.as_ref(), &Lowered::default());
        let items = lines.into_iter().map(|line| line.event(&by_seq)).filter(texts).collect();
        self.page(items, |event: &Event| event.seq, EventPage { epoch, oldest, items: Vec::new(), next, more })
    }

    fn page<T>(&self, mut items: Vec<T>, seq: fn(&T) -> i64, page: EventPage<T>) -> EventPage<T> {
        let cut = items.len() > self.limit as usize;
        items.truncate(self.limit as usize);
        let next = items.last().filter(|_| cut).map_or(page.next, seq);
        EventPage { items, next, more: page.more || cut, ..page }
    }
}

/// What a page will have, and where the next one begins.
pub(crate) struct Chosen {
    lines: Vec<Line>,
    next: i64,
    more: bool,
}

impl Chosen {
    /// Returns the entries that are to be read in full.
    pub(crate) fn entries(&self) -> Vec<i64> {
        let mut seqs: Vec<i64> = self.lines.iter().filter_map(|line| line.entry).collect();
        seqs.sort_unstable();
        seqs.dedup();
        seqs
    }
}

fn by_seq(entries: Vec<StoredEntry>) -> HashMap<i64, StoredEntry> {
    entries.into_iter().map(|entry| (entry.seq, entry)).collect()
}

impl Line {
    /// Reads a row. Of an erased feed it has what the event itself says.
    pub(crate) fn read<'r, Row: sqlx::Row>(row: &'r Row) -> Result<Line, sqlx::Error>
    where
        Line: sqlx::FromRow<'r, Row>,
    {
        let mut line = <Line as sqlx::FromRow<'r, Row>>::from_row(row)?;
        if line.about.is_some() {
            let about = About::read(line.about.take().as_deref());
            (line.changed, line.since, line.limited_to) = (about.changed, about.since, about.limited_to);
            if let (None, Some(removed)) = (&line.feed_url, about.feed) {
                (line.feed_url, line.feed_title) = (Some(removed.url), removed.title);
                (line.host, line.category) = (Some(removed.host.as_str().to_owned()), Some(removed.category));
                (line.labels, line.external_id) = (pack_labels(&removed.marks.labels), removed.marks.external_id);
            }
        }
        Ok(line)
    }

    fn event(self, entries: &HashMap<i64, StoredEntry>) -> Event {
        Event {
            seq: self.seq,
            feed_id: FeedId(self.feed_id),
            subscription: self.subscription,
            limited_to: self.limited_to,
            at: Timestamp::from_millis(self.at),
            feed: super::EntryFeed {
                feed_url: self.feed_url,
                feed_title: self.feed_title,
                marks: read_marks(self.labels.as_deref(), self.external_id),
            },
            category: self.category.as_deref().and_then(Category::from_name),
            host: self.host,
            merged_into: self.merged_into.map(FeedId),
            changed: self.changed,
            since: self.since,
            error: read_error(self.error.as_deref()),
            entry: self.entry.and_then(|seq| entries.get(&seq).cloned()),
            kind: self.kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_and_each_feed_is_in_one_of_them() {
        for wrong in ["", "1", "0/4", "5/4", "1/0", "1/1025", "a/b", "-1/4"] {
            assert!(wrong.parse::<Part>().is_err(), "{wrong}");
        }
        let parts: Vec<Part> = (1..=4).map(|number| format!("{number}/4").parse().unwrap()).collect();
        let mut sizes = [0; 4];
        for feed in 0..4_000 {
            let of: Vec<usize> = (0..4).filter(|part| parts[*part].has(FeedId(feed))).collect();
            let [part] = of[..] else { panic!("feed {feed} is in {of:?}") };
            sizes[part] += 1;
        }
        assert!(sizes.iter().all(|size| (900..1_100).contains(size)), "{sizes:?}");
    }

    #[test]
    fn kinds_are_whole_or_the_beginning() {
        let filter = |kinds: &[&str]| EventFilter {
            kinds: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
            ..EventFilter::default()
        };
        assert!(filter(&[]).matches_kind("feed.gone"));
        assert!(filter(&["entry.new", "feed.gone"]).matches_kind("feed.gone"));
        assert!(filter(&["entry.*"]).matches_kind("entry.updated"));
        assert!(!filter(&["entry.*", "feed"]).matches_kind("feed.gone"));
    }
}
