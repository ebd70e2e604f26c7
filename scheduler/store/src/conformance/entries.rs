//! Entries and events: unique, numbered in commit order, reported as new only once.

use common::entry::{Author, Enclosure, Entry, EntryDetails, Extension, Fingerprint, Geo, Number, Podcast};

use super::*;
use crate::{EventFilter, EventQuery};

async fn titles(store: &dyn Store, id: Option<FeedId>) -> Vec<(i64, String)> {
    let (mut titles, mut after) = (Vec::new(), 0);
    loop {
        let EventPage { items, more, .. } = store.entries(id, after, 10_000).await.unwrap();
        titles.extend(items.into_iter().map(|item: StoredEntry| (item.seq, item.entry.title.unwrap_or_default())));
        if !more {
            return titles;
        }
        after = titles.last().unwrap().0;
    }
}

fn kinds(events: &[(String, Option<String>)]) -> Vec<(&str, Option<&str>)> {
    events.iter().map(|(kind, title)| (kind.as_str(), title.as_deref())).collect()
}

pub(crate) async fn an_entry_is_stored_once_however_often_it_comes(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let applied = poll(&*store, id, 10, modified(vec![entry("1", "one"), entry("2", "two")])).await;
    assert_eq!(new_entries(&applied), (2, 0));
    let applied =
        poll(&*store, id, 20, modified(vec![entry("3", "three"), entry("2", "two"), entry("1", "one")])).await;
    assert_eq!(new_entries(&applied), (1, 0));
    assert_eq!(feed(&*store, id).await.entries, 3);
    assert_eq!(titles(&*store, None).await, [(2, "one".into()), (3, "two".into()), (4, "three".into())]);
    assert_eq!(published(&*store).await.len(), 3);
}

pub(crate) async fn two_feeds_may_have_entries_of_the_same_id(backend: &dyn Backend) {
    let store = backend.open().await;
    let ids = [add(&*store, "https://a.org/1").await, add(&*store, "https://a.org/2").await];
    let verdicts = [
        verdict(&*store, ids[0], 10, modified(vec![entry("1", "of the first")])).await,
        verdict(&*store, ids[1], 10, modified(vec![entry("1", "of the second")])).await,
    ];
    let applied = apply(&*store, &verdicts, 10).await;
    assert_eq!(applied.iter().map(new_entries).collect::<Vec<_>>(), [(1, 0), (1, 0)]);
    assert_eq!(titles(&*store, Some(ids[0])).await, [(3, "of the first".into())]);
    assert_eq!(titles(&*store, Some(ids[1])).await, [(4, "of the second".into())]);
}

/// A document may begin with its oldest entry as well as with its newest one; without all dates its own order counts.
pub(crate) async fn a_documents_entries_are_numbered_by_their_dates(backend: &dyn Backend) {
    let store = backend.open().await;
    let dated = |id: &str, seconds: u64| Entry { published: Some(at(seconds)), ..entry(id, id) };
    let up = add(&*store, "https://a.org/up").await;
    poll(&*store, up, 100, modified(vec![dated("1", 10), dated("2", 20), dated("3", 30)])).await;
    let down = add(&*store, "https://a.org/down").await;
    poll(&*store, down, 100, modified(vec![dated("3", 30), dated("2", 20), dated("1", 10)])).await;
    let undated = add(&*store, "https://a.org/undated").await;
    let as_listed = modified(vec![dated("2", 20), entry("x", "x"), dated("1", 10)]);
    poll(&*store, undated, 100, as_listed.clone()).await;
    for feed in [up, down] {
        let titles: Vec<String> = titles(&*store, Some(feed)).await.into_iter().map(|(_, title)| title).collect();
        assert_eq!(titles, ["1", "2", "3"]);
    }
    let Outcome::Modified(document) = &as_listed else { panic!("it is a document") };
    let listed: Vec<_> = document.entries.iter().map(|entry| entry.id.clone()).collect();
    let titles: Vec<String> = titles(&*store, Some(undated)).await.into_iter().map(|(_, title)| title).collect();
    assert_eq!(titles, listed);
    let stored = store.newest_entries(Some(up), 1).await.unwrap().remove(0);
    assert_eq!((stored.seen, stored.stored), (at(100), at(100)));
}

pub(crate) async fn the_newest_entries_come_newest_first(backend: &dyn Backend) {
    let store = backend.open().await;
    let ids = [add(&*store, "https://a.org/1").await, add(&*store, "https://a.org/2").await];
    poll(&*store, ids[0], 10, modified(vec![entry("1", "one"), entry("2", "two")])).await;
    poll(&*store, ids[1], 20, modified(vec![entry("1", "of the other")])).await;
    poll(&*store, ids[0], 30, modified(vec![entry("1", "one, mended"), entry("2", "two")])).await;
    let newest = async |feed, limit| {
        let entries = store.newest_entries(feed, limit).await.unwrap();
        entries.into_iter().map(|stored| stored.entry.title.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(newest(Some(ids[0]), 9).await, ["one, mended", "two"]);
    assert_eq!(newest(None, 2).await, ["one, mended", "of the other"]);
    assert_eq!(newest(Some(ids[1]), 9).await, ["of the other"]);
}

pub(crate) async fn changed_content_is_an_update_with_a_new_number(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    poll(&*store, id, 10, modified(vec![entry("1", "one"), entry("2", "two")])).await;
    let applied = poll(&*store, id, 20, modified(vec![entry("1", "one, mended"), entry("2", "two")])).await;
    assert_eq!(new_entries(&applied), (0, 1));
    assert_eq!(feed(&*store, id).await.entries, 2);
    assert_eq!(store.stats(at(20)).await.unwrap().entries, 2);
    let items = store.entries(Some(id), 0, 10).await.unwrap().items;
    let seen: Vec<_> = items.iter().map(|item| (item.seq, item.seen, item.entry.title.as_deref())).collect();
    assert_eq!(seen, [(3, at(10), Some("two")), (4, at(10), Some("one, mended"))]);
    assert_eq!(published(&*store).await.last(), Some(&("entry.updated".into(), Some("one, mended".into()))));
}

/// Returns what a worker reports when the contents of these entries do not fit into its report.
fn stripped(entries: Vec<Entry>) -> Outcome {
    let mut document = document(entries);
    let identities: Vec<_> = document.entries.iter().map(|entry| Fingerprint::of_identity(&entry.id)).collect();
    document.stripped = KnownEntries::default().after_document(identities);
    for entry in &mut document.entries {
        (entry.content, entry.cut) = (None, true);
    }
    Outcome::Modified(Box::new(document))
}

pub(crate) async fn an_entry_without_its_texts_replaces_nothing_and_gets_them_later(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let long = |id: &str, title: &str| Entry { content: Some(format!("all of {title}")), ..entry(id, title) };
    let contents = async || {
        let items = store.entries(Some(id), 0, 10).await.unwrap().items;
        items.into_iter().map(|item| (item.entry.id, item.entry.content)).collect::<Vec<_>>()
    };
    let shown = |id: &str, content: Option<&str>| (id.to_owned(), content.map(str::to_owned));
    poll(&*store, id, 10, modified(vec![long("1", "one")])).await;
    let edited = || vec![long("1", "one, mended"), long("2", "two")];
    assert_eq!(new_entries(&poll(&*store, id, 20, stripped(edited())).await), (1, 0));
    assert_eq!(contents().await, [shown("1", Some("all of one")), shown("2", None)], "nothing is lost");
    assert_eq!(new_entries(&poll(&*store, id, 30, stripped(edited())).await), (0, 0));
    assert_eq!(kinds(&published(&*store).await), [("entry.new", Some("one")), ("entry.new", Some("two"))]);

    assert_eq!(new_entries(&poll(&*store, id, 40, modified(edited())).await), (0, 2));
    assert_eq!(contents().await, [shown("1", Some("all of one, mended")), shown("2", Some("all of two"))]);
    assert_eq!(new_entries(&poll(&*store, id, 50, stripped(edited())).await), (0, 0));
}

pub(crate) async fn an_identity_twice_in_a_document_is_one_entry(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let twice = || modified(vec![entry("1", "one"), entry("1", "another"), entry("2", "two")]);
    assert_eq!(new_entries(&poll(&*store, id, 10, twice()).await), (2, 0));
    assert_eq!(new_entries(&poll(&*store, id, 20, twice()).await), (0, 0), "nothing changed");
    assert_eq!(titles(&*store, None).await, [(2, "one".into()), (3, "two".into())]);
}

pub(crate) async fn every_part_of_an_entry_comes_back_equal(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let enclosure = |url: &str, length| Enclosure {
        url: url.into(),
        media_type: Some("audio/mpeg".into()),
        length,
        duration: Number::new(61.5),
        alt: Some("\u{1F600}".into()),
        ..Enclosure::default()
    };
    let podcast = Podcast { episode: Some(7.into()), explicit: Some(false), ..Podcast::default() };
    let details = EntryDetails {
        image: Some("https://a.org/i.png".into()),
        authors: vec![Author { name: "Ann".into(), email: Some("ann@a.org".into()), ..Author::default() }],
        geo: Some(Geo { lat: Number::new(-1.25).unwrap(), lon: 3.into() }),
        podcast: Some(Box::new(podcast)),
        extensions: [(
            "x:y".into(),
            vec![Extension::Text("z".into()), Extension::Element([("a".into(), "b".into())].into())],
        )]
        .into(),
        ..EntryDetails::default()
    };
    let whole = Entry {
        id: "urn:x '\"\\ \u{1F600}".into(),
        url: Some("https://a.org/?a=%20&b=[1]".into()),
        title: Some("line\nbreak, tab\t, \u{202E}, \u{7F}".into()),
        published: Some(at(1)),
        updated: Some(at(2)),
        author: Some(String::new()),
        summary: Some("]},{\"".into()),
        content: Some("<p>ü</p>".repeat(10_000)),
        enclosures: vec![enclosure("https://a.org/1.mp3", Some(u64::MAX >> 1)), enclosure("", None)],
        categories: vec!["Häfen & \"Kräne\"".into(), String::new()],
        language: Some("pt-br".into()),
        links: vec!["https://b.org/?q='1'".into(), "https://c.org/".into()],
        first_words: Some("Nebel,\u{1F32B} \\ nichts".into()),
        cut: true,
        details: Some(Box::new(details)),
    };
    let bare = Entry { id: String::new(), ..Entry::default() };
    poll(&*store, id, 10, modified(vec![whole.clone(), bare.clone()])).await;
    let items = store.entries(None, 0, 10).await.unwrap().items;
    assert_eq!(items.iter().map(|item| &item.entry).collect::<Vec<_>>(), [&whole, &bare]);
    assert_eq!(store.events(1, 1).await.unwrap().items[0].entry.as_ref(), Some(&items[0]));
}

pub(crate) async fn what_is_only_shown_of_an_entry_is_no_update_by_itself(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let tagged = |title: &str, tag: &str| Entry {
        categories: vec![tag.into()],
        language: Some("en".into()),
        ..entry("1", title)
    };
    poll(&*store, id, 10, modified(vec![tagged("one", "fog")])).await;
    // These polls have no fingerprints, as after an upgrade of the parser: each report contains the entry again.
    assert_eq!(new_entries(&poll(&*store, id, 20, modified(vec![tagged("one", "rain")])).await), (0, 0));
    assert_eq!(new_entries(&poll(&*store, id, 30, modified(vec![entry("1", "one")])).await), (0, 0));
    assert_eq!((titles(&*store, None).await, published(&*store).await.len()), (vec![(2, "one".into())], 1));
    assert_eq!(new_entries(&poll(&*store, id, 40, modified(vec![tagged("one, mended", "rain")])).await), (0, 1));
    assert_eq!(store.entries(None, 0, 10).await.unwrap().items[0].entry, tagged("one, mended", "rain"));
}

pub(crate) async fn thousands_of_long_entries_are_stored_in_order(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let long =
        |number: usize| Entry { content: Some("x".repeat(4000)), ..entry(&number.to_string(), &number.to_string()) };
    let applied = poll(&*store, id, 10, modified((0..5000).map(long).collect())).await;
    assert_eq!(new_entries(&applied), (5000, 0));
    let expected: Vec<(i64, String)> = (2..=5001).map(|seq| (seq, (seq - 2).to_string())).collect();
    assert_eq!(titles(&*store, None).await, expected);
}

pub(crate) async fn pages_end_at_their_bytes_and_nothing_is_left_out(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let long = |number: usize| Entry { content: Some("x".repeat(1 << 20)), ..entry(&number.to_string(), "long") };
    poll(&*store, id, 10, modified((0..20).map(long).collect())).await;
    // A text larger than any page is a page alone, and each event of an entry shows it.
    let huge = |text: &str| Entry { content: Some(text.repeat(5 << 20)), ..entry("huge", "huge") };
    poll(&*store, id, 20, modified(vec![huge("xy")])).await;
    poll(&*store, id, 30, modified(vec![huge("yz")])).await;
    let bounded = |bytes: usize, items: usize| assert!(items == 1 || bytes as i64 <= PAGE_BYTES, "{bytes} in {items}");
    for feed in [None, Some(id)] {
        let (mut seen, mut after, mut cuts) = (Vec::new(), 0, 0);
        loop {
            let page = store.entries(feed, after, 1000).await.unwrap();
            bounded(page.items.iter().map(|item| item.entry.text_bytes()).sum(), page.items.len());
            seen.extend(page.items.iter().map(|item| item.seq));
            cuts += i32::from(page.more);
            if page.items.is_empty() {
                break;
            }
            after = *seen.last().unwrap();
        }
        let expected: Vec<i64> = (2..=21).chain([23]).collect();
        assert_eq!((seen, cuts), (expected, 3));
    }
    // Behind the event of the feed.
    let (mut seen, mut after) = (0, 1);
    loop {
        let page = store.events(after, 1000).await.unwrap();
        let size = |event: &Event| event.entry.as_ref().map_or(0, |stored| stored.entry.text_bytes());
        bounded(page.items.iter().map(size).sum(), page.items.len());
        seen += page.items.len();
        let Some(last) = page.items.last() else { break };
        assert!(page.more || last.seq == 23);
        after = last.seq;
    }
    assert_eq!(seen, 22);
}

pub(crate) async fn events_of_a_batch_stand_in_its_order_with_entries_in_their_newest_form(backend: &dyn Backend) {
    let store = backend.open().await;
    let ids = [add(&*store, "https://a.org/1").await, add(&*store, "https://a.org/2").await];
    let mut second = verdict(&*store, ids[1], 10, modified(vec![entry("2", "two")])).await;
    second.decision.notices = Notices::of(Some(Notice::Recovered), Some(Notice::Failing));
    let first = verdict(&*store, ids[0], 10, modified(vec![entry("1", "one"), entry("0", "zero")])).await;
    apply(&*store, &[second, first], 11).await;
    poll(&*store, ids[1], 20, modified(vec![entry("2", "two, mended")])).await;
    let events = published(&*store).await;
    let expected = [
        ("entry.new", Some("two, mended")),
        ("feed.recovered", None),
        ("feed.failing", None),
        ("entry.new", Some("one")),
        ("entry.new", Some("zero")),
        ("entry.updated", Some("two, mended")),
    ];
    assert_eq!(kinds(&events), expected);
    let page = store.events(5, 2).await.unwrap();
    let seen: Vec<(i64, FeedId, Timestamp)> =
        page.items.iter().map(|event: &Event| (event.seq, event.feed_id, event.at)).collect();
    assert_eq!(seen, [(6, ids[0], at(11)), (7, ids[0], at(11))]);
    assert_eq!(page.epoch, store.entries(None, 0, 1).await.unwrap().epoch);
    assert_eq!(store.events(8, 10).await.unwrap().items, []);
}

pub(crate) async fn numbers_go_on_after_everything_was_deleted(backend: &dyn Backend) {
    let store = backend.open().await;
    assert_eq!(store.latest_seq().await.unwrap(), 0);
    let id = add(&*store, "https://a.org/feed").await;
    poll(&*store, id, 10, modified(vec![entry("1", "one")])).await;
    assert_eq!(store.prune(at(100), Some(at(100))).await.unwrap(), 3);
    assert_eq!(store.latest_seq().await.unwrap(), 2);
    poll(&*store, id, 200, modified(vec![entry("2", "two")])).await;
    assert_eq!(titles(&*store, None).await, [(3, "two".into())]);
    assert_eq!(store.events(0, 10).await.unwrap().items[0].seq, 3);
}

pub(crate) async fn an_entry_that_retention_took_never_comes_back_as_new(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    poll(&*store, id, 10, modified(vec![entry("1", "one"), entry("2", "two")])).await;
    assert_eq!(store.prune(at(0), Some(at(11))).await.unwrap(), 2);
    assert_eq!(feed(&*store, id).await.entries, 0);
    assert_eq!(
        kinds(&published(&*store).await),
        [("entry.new", None), ("entry.new", None)],
        "published, but no longer kept"
    );

    let applied = poll(&*store, id, 20, modified(vec![entry("1", "one"), entry("2", "two, mended")])).await;
    assert_eq!(new_entries(&applied), (0, 1));
    assert_eq!(titles(&*store, Some(id)).await, [(4, "two, mended".into())]);
    for (kind, found) in [("entry.new", 0), ("entry.updated", 1)] {
        let filter = EventFilter { kinds: vec![kind.to_owned()], ..EventFilter::default() };
        let entries = store.find_entries(&EventQuery { filter, ..EventQuery::after(0, 100) }).await.unwrap();
        assert_eq!(entries.items.len(), found, "{kind}");
    }
    assert_eq!((feed(&*store, id).await.entries, store.stats(at(20)).await.unwrap().entries), (1, 1));
}

pub(crate) async fn an_unchanged_entry_that_its_feed_still_has_is_deleted_and_does_not_come_back(
    backend: &dyn Backend,
) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let both = |second: &str| modified(vec![entry("1", "one"), entry("2", second)]);
    poll(&*store, id, 10, both("two")).await;
    poll(&*store, id, 20, both("two, mended")).await;
    poll(&*store, id, 30, both("two, mended")).await;
    assert_eq!(store.prune(at(0), Some(at(15))).await.unwrap(), 1, "one changed later");
    assert_eq!(new_entries(&poll(&*store, id, 40, both("two, mended")).await), (0, 0));
    assert_eq!(titles(&*store, Some(id)).await, [(4, "two, mended".into())]);
}

pub(crate) async fn retention_takes_the_oldest_first_and_tells_how_far_it_went(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let fresh = store.events(1, 10).await.unwrap();
    assert_eq!((fresh.items, fresh.oldest), (vec![], 1));
    for (number, started) in [10, 20, 30].into_iter().enumerate() {
        poll(&*store, id, started, modified(vec![entry(&number.to_string(), &started.to_string())])).await;
    }
    assert_eq!(store.prune(at(20), Some(at(25))).await.unwrap(), 2 + 2);
    assert_eq!(store.prune(at(20), Some(at(25))).await.unwrap(), 0);
    let (events, entries) = (store.events(0, 10).await.unwrap(), store.entries(None, 0, 10).await.unwrap());
    assert_eq!((events.oldest, events.items[0].seq), (3, 3));
    assert_eq!((entries.oldest, entries.items[0].seq), (4, 4));
    assert_eq!(store.prune(at(40), None).await.unwrap(), 2);
    let events = store.events(0, 10).await.unwrap();
    assert_eq!(
        (events.oldest, events.items),
        (5, vec![]),
        "a consumer of the second still learns that it missed the third"
    );
    assert_eq!((titles(&*store, None).await.len(), feed(&*store, id).await.entries), (1, 1));
}

pub(crate) async fn one_process_at_a_time_has_the_turn_to_pass_events_on(backend: &dyn Backend) {
    let store = backend.open().await;
    // By the database's clock: how far ours is off does not count.
    let long = Duration::from_secs(60);
    let id = add(&*store, "https://a.org/feed").await;
    poll(&*store, id, 10, modified((1..=8).map(|number| entry(&number.to_string(), "one of eight")).collect())).await;
    let epoch = store.events(0, 1).await.unwrap().epoch;
    let turn = async |holder: &str, confirmed: i64, lasts: Duration| {
        store.relay_turn(&RelayTurn { holder, confirmed, epoch: &epoch, lasts }).await.unwrap()
    };
    assert_eq!(turn("one", 0, long).await, Some(0));
    assert_eq!(turn("two", 0, long).await, None);
    assert_eq!(turn("one", 7, Duration::from_secs(2)).await, Some(7));
    assert_eq!(turn("two", 0, long).await, None, "it was prolonged");
    tokio::time::sleep(Duration::from_millis(2_050)).await;
    assert_eq!(turn("two", 0, long).await, Some(7), "it is over");
    assert_eq!(turn("one", 8, long).await, None);
    assert_eq!(turn("two", 5, Duration::ZERO).await, Some(7), "the cursor never goes back; and the turn is given up");
    assert_eq!(turn("one", 8, long).await, Some(8));
    let elsewhere = RelayTurn { holder: "one", confirmed: 9, epoch: "another", lasts: long };
    assert_eq!(store.relay_turn(&elsewhere).await.unwrap(), Some(8), "that number is of another history");
    assert_eq!(turn("one", 1000, long).await, Some(9), "no event has such a number yet");
}
