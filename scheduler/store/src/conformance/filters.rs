//! Entries and events that consumers choose.

use common::labels::Marks;

use super::*;
use crate::{EntryFeed, EntryRef, EventFilter, EventQuery};

/// Two feeds: the first with a label and English entries 1 and 2, the second with entry 3 in German; then entry 1 changes, and the
/// first feed is gone.
async fn stored(store: &dyn Store) -> [FeedId; 2] {
    let marks = Marks { labels: vec!["green".into()], external_id: Some("x-1".into()) };
    let new = [NewFeed { marks, ..new_feed("https://a.org/feed") }, new_feed("https://b.org/feed")];
    let ids: Vec<FeedId> = store.add_feeds(&new, at(0)).await.unwrap().iter().map(|added| added.id).collect();
    let spoken = |id: &str, title: &str, language: &str| Entry { language: Some(language.into()), ..entry(id, title) };
    poll(store, ids[0], 10, modified(vec![spoken("1", "one", "en"), spoken("2", "two Zebras", "en-gb")])).await;
    poll(store, ids[1], 20, modified(vec![spoken("3", "drei", "de")])).await;
    poll(store, ids[0], 30, modified(vec![spoken("1", "one, corrected", "en")])).await;
    let mut gone = verdict(store, ids[0], 40, failed(FailureKind::Dns)).await;
    gone.decision.notices = Notice::Gone.into();
    apply(store, &[gone], 40).await;
    [ids[0], ids[1]]
}

fn query(filter: EventFilter) -> EventQuery {
    EventQuery { filter, ..EventQuery::after(0, 100) }
}

async fn entry_ids(store: &dyn Store, query: &EventQuery) -> Vec<String> {
    store.find_entries(query).await.unwrap().items.into_iter().map(|stored| stored.entry.id).collect()
}

async fn event_kinds(store: &dyn Store, query: &EventQuery) -> Vec<String> {
    store.find_events(query).await.unwrap().items.into_iter().map(|event| event.kind).collect()
}

pub(crate) async fn entries_and_events_carry_their_feed(backend: &dyn Backend) {
    let store = backend.open().await;
    let [one, _] = stored(&*store).await;
    let expected = EntryFeed {
        feed_url: Some("https://a.org/feed".into()),
        feed_title: Some("a title".into()),
        marks: Marks { labels: vec!["green".into()], external_id: Some("x-1".into()) },
    };
    let entries = store.entries(Some(one), 0, 10).await.unwrap().items;
    assert_eq!(entries.iter().map(|stored| &stored.feed).collect::<Vec<_>>(), [&expected; 2]);
    let events =
        store.find_events(&query(EventFilter { feed: Some(one), ..EventFilter::default() })).await.unwrap().items;
    assert!(events.len() > 3 && events.iter().all(|event| event.feed == expected));
    assert!(events.iter().filter_map(|event| event.entry.as_ref()).all(|entry| entry.feed == expected));
}

pub(crate) async fn consumers_get_what_their_filters_let_through(backend: &dyn Backend) {
    let store = backend.open().await;
    let [one, two] = stored(&*store).await;
    let all = EventFilter::default;
    for (filter, entries) in [
        (all(), vec!["2", "3", "1"]),
        (EventFilter { feed: Some(two), ..all() }, vec!["3"]),
        (EventFilter { host: Some(HostKey::new("a.org:443")), ..all() }, vec!["2", "1"]),
        (EventFilter { label: Some("green".into()), ..all() }, vec!["2", "1"]),
        (EventFilter { label: Some("gre".into()), ..all() }, vec![]),
        (EventFilter { visible: vec!["blue".into(), "green".into()], ..all() }, vec!["2", "1"]),
        (EventFilter { category: Some(Category::B), ..all() }, vec![]),
        (EventFilter { language: Some("EN".into()), ..all() }, vec!["2", "1"]),
        (EventFilter { text: Some("zEBRA".into()), ..all() }, vec!["2"]),
        (EventFilter { kinds: vec!["entry.updated".into()], ..all() }, vec!["1"]),
        (EventFilter { since: Some(at(20)), ..all() }, vec!["3", "1"]),
        (EventFilter { since: Some(at(99)), ..all() }, vec![]),
    ] {
        assert_eq!(entry_ids(&*store, &query(filter.clone())).await, entries, "{filter:?}");
        let newest = EventQuery { newest: true, ..query(filter.clone()) };
        let reversed: Vec<&str> = entries.iter().copied().rev().collect();
        assert_eq!(entry_ids(&*store, &newest).await, reversed, "{filter:?}, newest first");
    }
    let kinds = |kinds: &[&str]| EventFilter { kinds: kinds.iter().map(|kind| (*kind).to_owned()).collect(), ..all() };
    assert_eq!(
        event_kinds(&*store, &query(kinds(&["feed.gone", "entry.updated"]))).await,
        ["entry.updated", "feed.gone"]
    );
    let german = EventFilter { language: Some("de".into()), ..all() };
    assert_eq!(event_kinds(&*store, &query(german)).await, ["entry.new"], "events without an entry have no language");
    let of_entries = EventFilter { feed: Some(one), ..kinds(&["entry.*"]) };
    assert_eq!(event_kinds(&*store, &query(of_entries)).await, ["entry.new", "entry.new", "entry.updated"]);
    let mut shared = 0;
    for number in 1..=3 {
        let part = Some(crate::Part { number, of: 3 });
        shared += entry_ids(&*store, &query(EventFilter { part, ..all() })).await.len();
    }
    assert_eq!(shared, 3, "each feed is in one part");
}

/// A rare match comes after more lines than a call looks at.
pub(crate) async fn a_page_looks_at_so_many_and_goes_on_where_it_ended(backend: &dyn Backend) {
    let store = backend.open().await;
    let [one, two] = [add(&*store, "https://a.org/").await, add(&*store, "https://b.org/").await];
    for round in 0..3_u64 {
        let many = (0..1_500).map(|number| entry(&format!("{round}-{number}"), "frequent")).collect();
        poll(&*store, one, 10 + round, modified(many)).await;
    }
    poll(&*store, two, 20, modified(vec![entry("rare", "rare")])).await;
    let last = store.latest_seq().await.unwrap();
    for (newest, look) in [(false, None), (true, None), (true, Some(500))] {
        for filter in [
            EventFilter { host: Some(HostKey::new("b.org:443")), ..EventFilter::default() },
            EventFilter { text: Some("RARE".into()), ..EventFilter::default() },
        ] {
            // The first two events are those of the feeds.
            let (mut found, mut after, mut pages) = (Vec::new(), if newest { 0 } else { 2 }, 0);
            loop {
                let kinds = vec!["entry.*".to_owned()];
                let query =
                    EventQuery { filter: EventFilter { kinds, ..filter.clone() }, newest, after, limit: 10, look };
                let events = store.find_events(&query).await.unwrap();
                let page = store.find_entries(&query).await.unwrap();
                assert_eq!((events.next.max(3), events.items.len()), (page.next, page.items.len()));
                found.extend(page.items.iter().map(|stored| stored.entry.id.clone()));
                pages += 1;
                let moved = if newest { after == 0 || page.next < after } else { page.next > after };
                assert!(moved, "{after} -> {}", page.next);
                after = page.next;
                if !page.more {
                    break;
                }
            }
            assert_eq!((found, after), (vec!["rare".to_owned()], if newest { last - 4_500 } else { last }));
            let least = if look.is_some() { 9 } else { 3 };
            assert!(pages >= least, "{pages} pages for 4,501 entries");
        }
    }
}

pub(crate) async fn an_entry_is_found_by_its_numbers_and_its_id(backend: &dyn Backend) {
    let store = backend.open().await;
    let [one, two] = stored(&*store).await;
    let events = store.find_events(&query(EventFilter::default())).await.unwrap().items;
    let announced: Vec<i64> = events
        .iter()
        .filter(|event| event.entry.as_ref().is_some_and(|entry| entry.entry.id == "1"))
        .map(|event| event.seq)
        .collect();
    assert_eq!(announced.len(), 2);
    let newest = store.entry(&EntryRef::Id(one, "1".into())).await.unwrap().unwrap();
    assert_eq!((newest.seq, newest.entry.title.as_deref()), (announced[1], Some("one, corrected")));
    for seq in &announced {
        assert_eq!(store.entry(&EntryRef::Seq(*seq)).await.unwrap().as_ref(), Some(&newest));
    }
    assert_eq!(store.entry(&EntryRef::Id(two, "1".into())).await.unwrap(), None);
    assert_eq!(store.entry(&EntryRef::Seq(1_000)).await.unwrap(), None);
    let of_feed = events.iter().find(|event| event.kind == "feed.gone").unwrap().seq;
    assert_eq!(store.entry(&EntryRef::Seq(of_feed)).await.unwrap(), None);
    store.prune(at(1_000), None).await.unwrap();
    assert_eq!(store.entry(&EntryRef::Seq(announced[1])).await.unwrap(), Some(newest), "without its event");
}
