//! The newest events, kept in memory by the common reader. Subscriptions that an event wakes take it from here, so that a thousand of
//! them do not read it from the store a thousand times.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::policy::Category;
use common::url::FeedId;
use tokio::time::Instant;

use store::{Event, EventFilter, EventPage, EventQuery, Lowered};

/// How long an event is kept: what it says of its feed and its entry may be as old as this.
const KEPT: Duration = Duration::from_secs(10);
/// Bytes of text, and events, that are kept.
const BYTES: usize = 4 << 20;
const EVENTS: usize = 2_000;

/// An event, and what was made of it for filters.
pub(super) struct RecentEvent {
    event: Event,
    lowered: Lowered,
    bytes: usize,
    at: Instant,
}

impl RecentEvent {
    pub(super) fn seq(&self) -> i64 {
        self.event.seq
    }

    pub(super) fn matches(&self, filter: &EventFilter) -> bool {
        filter.matches_lowered(&self.event, &self.lowered)
    }
}

/// A page of events that the reader for all has read.
pub(super) struct RecentPage {
    items: Vec<Arc<RecentEvent>>,
    /// Everything up to this number was looked at.
    pub(super) next: i64,
    /// What the events are about: most subscriptions match nothing of a page, and need not look at each of its events.
    feeds: HashSet<FeedId>,
    hosts: HashSet<String>,
    labels: HashSet<String>,
    kinds: HashSet<String>,
    categories: HashSet<Category>,
    /// Of its entries; an empty text is of those that name none.
    languages: HashSet<String>,
}

impl RecentPage {
    fn new(items: Vec<Arc<RecentEvent>>, next: i64) -> Self {
        let events = || items.iter().map(|recent| &recent.event);
        let feeds = events().map(|event| event.feed_id).collect();
        let hosts = events().filter_map(|event| event.host.clone()).collect();
        let labels = events().flat_map(|event| event.feed.marks.labels.iter().chain(&event.limited_to));
        let labels = labels.cloned().collect();
        let kinds = events().map(|event| event.kind.clone()).collect();
        let categories = events().filter_map(|event| event.category).collect();
        let entries = events().filter_map(|event| event.entry.as_ref());
        let languages = entries.map(|stored| stored.entry.language.clone().unwrap_or_default()).collect();
        RecentPage { items, next, feeds, hosts, labels, kinds, categories, languages }
    }

    /// Returns the events behind this number that match.
    pub(super) fn matching<'a>(&'a self, after: i64, filter: &'a EventFilter) -> impl Iterator<Item = &'a RecentEvent> {
        let from = if self.may_match(filter) {
            self.items.partition_point(|recent| recent.seq() <= after)
        } else {
            self.items.len()
        };
        self.items[from..].iter().map(Arc::as_ref).filter(|recent| recent.matches(filter))
    }

    fn may_match(&self, filter: &EventFilter) -> bool {
        filter.feed.is_none_or(|feed| self.feeds.contains(&feed))
            && self.kinds.iter().any(|kind| filter.matches_kind(kind))
            && filter.category.is_none_or(|category| self.categories.contains(&category))
            && (!filter.reads_texts() || self.languages.iter().any(|language| filter.matches_language(language)))
            && filter.part.is_none_or(|part| self.feeds.iter().any(|feed| part.has(*feed)))
            && filter.host.as_ref().is_none_or(|host| self.hosts.contains(host.as_str()))
            && filter.label.as_ref().is_none_or(|label| self.labels.contains(label))
            && (filter.visible.is_empty() || filter.visible.iter().any(|label| self.labels.contains(label)))
    }
}

/// The newest events.
#[derive(Default)]
pub(super) struct Recent(Mutex<Inside>);

#[derive(Default)]
struct Inside {
    /// All events after this number, and up to `end`, are kept.
    begin: i64,
    end: i64,
    epoch: String,
    oldest: i64,
    items: VecDeque<Arc<RecentEvent>>,
    bytes: usize,
}

impl Inside {
    /// Forgets the oldest events until the rest is young and small enough.
    fn trim(&mut self, now: Instant) {
        while let Some(first) = self.items.front() {
            let is_old = now.duration_since(first.at) > KEPT;
            if !is_old && self.bytes <= BYTES && self.items.len() <= EVENTS {
                break;
            }
            (self.begin, self.bytes) = (first.seq(), self.bytes - first.bytes);
            self.items.pop_front();
        }
    }
}

impl Recent {
    /// Keeps a page that was read behind this number.
    pub(super) fn keep(&self, after: i64, page: EventPage<Event>) -> RecentPage {
        let at = Instant::now();
        let recent = |event: Event| {
            let bytes = event.entry.as_ref().map_or(0, |stored| stored.entry.text_bytes());
            Arc::new(RecentEvent { event, lowered: Lowered::default(), bytes, at })
        };
        let items: Vec<Arc<RecentEvent>> = page.items.into_iter().map(recent).collect();
        let mut inside = common::lock(&self.0);
        if after != inside.end || page.epoch != inside.epoch {
            *inside = Inside { begin: after, epoch: page.epoch, ..Inside::default() };
        }
        (inside.end, inside.oldest) = (page.next, page.oldest);
        inside.bytes += items.iter().map(|recent| recent.bytes).sum::<usize>();
        inside.items.extend(items.iter().cloned());
        inside.trim(at);
        RecentPage::new(items, page.next)
    }

    /// Forgets everything.
    pub(super) fn forget(&self) {
        *common::lock(&self.0) = Inside::default();
    }

    /// Returns a page of events in the order of their numbers; `None` if some of them are not kept.
    pub(super) fn read(&self, query: &EventQuery) -> Option<EventPage<Event>> {
        let limit = query.limit as usize;
        let (mut page, found) = {
            let mut inside = common::lock(&self.0);
            inside.trim(Instant::now());
            if inside.epoch.is_empty() || query.after < inside.begin || query.after > inside.end {
                return None;
            }
            let from = inside.items.partition_point(|recent| recent.seq() <= query.after);
            let behind = inside.items.range(from..).cloned().collect::<Vec<_>>();
            let (epoch, oldest, next) = (inside.epoch.clone(), inside.oldest, inside.end);
            (EventPage { epoch, oldest, items: Vec::new(), next, more: false }, behind)
        };
        for recent in found.iter().filter(|recent| recent.matches(&query.filter)) {
            if page.items.len() == limit {
                page.more = true;
                page.next = page.items.last().map_or(query.after, |event: &Event| event.seq);
                break;
            }
            page.items.push(recent.event.clone());
        }
        Some(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(seqs: std::ops::RangeInclusive<i64>) -> EventPage<Event> {
        let event = |seq: i64| {
            let kind = if seq % 2 == 0 { "feed.gone" } else { "host.refusing" };
            serde_json::from_value(serde_json::json!({ "seq": seq, "kind": kind, "feed_id": 0, "at": "2026-01-01T00:00:00Z", "labels": [] }))
                .unwrap()
        };
        let next = *seqs.end();
        EventPage { epoch: "e".into(), oldest: 1, items: seqs.map(event).collect(), next, more: false }
    }

    fn read(recent: &Recent, after: i64, limit: u32) -> Option<(Vec<i64>, i64, bool)> {
        let filter = EventFilter { kinds: vec!["feed.*".into()], ..EventFilter::default() };
        let page = recent.read(&EventQuery { filter, ..EventQuery::after(after, limit) })?;
        Some((page.items.iter().map(|event| event.seq).collect(), page.next, page.more))
    }

    #[test]
    fn a_page_finds_what_matches_whatever_it_is_filtered_by() {
        let event = |seq: i64, feed: i64, host: &str, labels: &[&str]| -> Event {
            serde_json::from_value(serde_json::json!({
                "seq": seq, "kind": "feed.gone", "feed_id": feed, "host": host, "at": "2026-01-01T00:00:00Z", "labels": labels,
            }))
            .unwrap()
        };
        let items = vec![event(1, 7, "a:443", &["x"]), event(2, 7, "b:443", &[]), event(3, 8, "a:443", &["y", "x"])];
        let page = EventPage { epoch: "e".into(), oldest: 1, items, next: 3, more: false };
        let page = Recent::default().keep(0, page);
        let found = |after: i64, filter: serde_json::Value| -> Vec<i64> {
            page.matching(after, &serde_json::from_value(filter).unwrap()).map(RecentEvent::seq).collect()
        };
        assert_eq!(found(0, serde_json::json!({})), [1, 2, 3]);
        assert_eq!(found(1, serde_json::json!({})), [2, 3]);
        assert!(found(3, serde_json::json!({})).is_empty());
        assert_eq!(found(0, serde_json::json!({ "feed": 7 })), [1, 2]);
        assert!(found(0, serde_json::json!({ "feed": 9 })).is_empty());
        assert_eq!(found(0, serde_json::json!({ "host": "a:443" })), [1, 3]);
        assert!(found(0, serde_json::json!({ "host": "c:443" })).is_empty());
        assert_eq!(found(0, serde_json::json!({ "label": "x" })), [1, 3]);
        assert!(found(0, serde_json::json!({ "label": "z" })).is_empty());
        assert_eq!(found(0, serde_json::json!({ "visible": ["z", "y"] })), [3]);
        assert!(found(0, serde_json::json!({ "visible": ["z"] })).is_empty());
        // Each condition is met, but by different events.
        assert!(found(0, serde_json::json!({ "feed": 8, "host": "b:443" })).is_empty());
        assert_eq!(found(0, serde_json::json!({ "kinds": ["entry.*", "feed.*"] })), [1, 2, 3]);
        assert!(found(0, serde_json::json!({ "kinds": ["entry.*"] })).is_empty());
        // Each feed is in one part.
        let in_parts = (1..=4).map(|number| found(0, serde_json::json!({ "part": { "number": number, "of": 4 } })));
        let mut in_parts: Vec<i64> = in_parts.flatten().collect();
        in_parts.sort_unstable();
        assert_eq!(in_parts, [1, 2, 3]);
        assert!(found(0, serde_json::json!({ "text": "x" })).is_empty(), "there is no entry");

        let limited = Event { limited_to: vec!["z".into()], ..event(4, 0, "c:443", &[]) };
        let page = EventPage { epoch: "e".into(), oldest: 1, items: vec![limited], next: 4, more: false };
        let page = Recent::default().keep(3, page);
        let visible = |labels: &[&str]| -> usize {
            let visible = labels.iter().map(|label| (*label).to_owned()).collect();
            page.matching(3, &EventFilter { visible, ..EventFilter::default() }).count()
        };
        assert_eq!((visible(&["z", "y"]), visible(&["y"])), (1, 0), "a subscription of the caller");
    }

    #[test]
    fn a_page_finds_entries_by_category_language_and_text() {
        let event = |seq: i64, category: &str, language: &str, title: &str| -> Event {
            let entry = serde_json::json!({
                "seq": seq, "feed_id": 7, "seen": "2026-01-01T00:00:00Z", "id": "e", "language": language, "title": title,
                "labels": [],
            });
            let event = serde_json::json!({
                "seq": seq, "kind": "entry.new", "feed_id": 7, "at": "2026-01-01T00:00:00Z", "labels": [], "entry": entry,
            });
            Event { category: Category::from_name(category), ..serde_json::from_value(event).unwrap() }
        };
        let items = vec![event(1, "B", "en-gb", "Fog"), event(2, "C", "de", "Nebel"), event(3, "B", "en", "Snow")];
        let page = EventPage { epoch: "e".into(), oldest: 1, items, next: 3, more: false };
        let page = Recent::default().keep(0, page);
        let found = |filter: serde_json::Value| -> Vec<i64> {
            page.matching(0, &serde_json::from_value(filter).unwrap()).map(RecentEvent::seq).collect()
        };
        assert_eq!(found(serde_json::json!({ "category": "B" })), [1, 3]);
        assert!(found(serde_json::json!({ "category": "A" })).is_empty());
        assert_eq!(found(serde_json::json!({ "language": "en" })), [1, 3]);
        assert_eq!(found(serde_json::json!({ "language": "en-GB" })), [1]);
        assert!(found(serde_json::json!({ "language": "fr" })).is_empty());
        assert_eq!(found(serde_json::json!({ "text": "fog" })), [1]);
        assert_eq!(found(serde_json::json!({ "text": "snow", "language": "en" })), [3]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_is_read_as_from_the_store_and_what_is_not_is_not_missed() {
        let recent = Recent::default();
        assert_eq!(read(&recent, 0, 9), None);
        recent.keep(10, page(11..=14));
        recent.keep(14, page(15..=16));
        assert_eq!(read(&recent, 9, 9), None, "11 may not be the first after it");
        assert_eq!(read(&recent, 17, 9), None, "there may be events that were not read");
        assert_eq!(read(&recent, 10, 9), Some((vec![12, 14, 16], 16, false)));
        assert_eq!(read(&recent, 12, 1), Some((vec![14], 14, true)));
        assert_eq!(read(&recent, 14, 1), Some((vec![16], 16, false)));
        assert_eq!(read(&recent, 16, 9), Some((vec![], 16, false)));
        // A page that does not follow the one before.
        recent.keep(20, page(21..=22));
        assert_eq!(read(&recent, 16, 9), None);
        assert_eq!(read(&recent, 20, 9), Some((vec![22], 22, false)));
        tokio::time::advance(KEPT + Duration::from_secs(1)).await;
        assert_eq!(read(&recent, 20, 9), None, "too old");
        assert_eq!(read(&recent, 22, 9), Some((vec![], 22, false)));
        recent.keep(22, page(23..=2_500));
        assert_eq!(read(&recent, 22, 9), None, "too many");
        assert!(read(&recent, 600, 9).is_some());
        recent.forget();
        assert_eq!(read(&recent, 2_500, 9), None);
    }
}
