//! The events that consumers get of what people do to feeds.

use common::labels::Marks;
use common::policy::{Audience, Category, Status};
use common::url::FeedId;

use super::{Backend, add, at, feed, new_feed};
use crate::{Event, EventFilter, EventQuery, FeedChange, LabelChange, Move, Moved, NewFeed, Store, Unmove, Unmoved};

fn labelled(url: &str, label: &str) -> NewFeed {
    let marks = Marks { labels: vec![label.to_owned()], external_id: Some("mine".to_owned()) };
    NewFeed { marks, title: Some("a title".to_owned()), ..new_feed(url) }
}

fn readers(subscribers: u32) -> FeedChange {
    let audience = Audience { subscribers, ..Audience::default() };
    FeedChange { audience: Some((audience, Category::C)), ..FeedChange::default() }
}

fn status(status: Status) -> FeedChange {
    FeedChange { status: Some(status), ..FeedChange::default() }
}

/// Returns the events after a number: kind, feed, and the settings that changed.
async fn news(store: &dyn Store, after: &mut i64) -> Vec<(String, i64, String)> {
    let page = store.find_events(&EventQuery::after(*after, 5_000)).await.unwrap();
    *after = page.next;
    page.items.into_iter().map(|event| (event.kind, event.feed_id.0, event.changed.join(" "))).collect()
}

fn published(kind: &str, feed: FeedId, changed: &str) -> (String, i64, String) {
    (kind.to_owned(), feed.0, changed.to_owned())
}

async fn with_label(store: &dyn Store, label: &str) -> Vec<Event> {
    let filter = EventFilter { visible: vec![label.to_owned()], ..EventFilter::default() };
    store.find_events(&EventQuery { filter, ..EventQuery::after(0, 100) }).await.unwrap().items
}

pub(crate) async fn feeds_that_come_and_go_are_published_once(backend: &dyn Backend) {
    let store = backend.open().await;
    let mut after = 0;
    let new = [labelled("https://a.org/1", "blue"), new_feed("https://a.org/2"), labelled("https://a.org/1", "blue")];
    let ids: Vec<FeedId> = store.add_feeds(&new, at(0)).await.unwrap().into_iter().map(|added| added.id).collect();
    let (one, two) = (ids[0], ids[1]);
    assert_eq!(news(&*store, &mut after).await, [published("feed.added", one, ""), published("feed.added", two, "")]);
    store.add_feeds(&new, at(1)).await.unwrap();
    assert_eq!(news(&*store, &mut after).await, [], "they were known");

    for (now, expected) in [(2, vec![published("feed.removed", one, "")]), (3, vec![])] {
        store.change_feed(one, &status(Status::Removed), at(now)).await.unwrap();
        assert_eq!(news(&*store, &mut after).await, expected);
    }
    store.add_feeds(&new[..1], at(4)).await.unwrap();
    assert_eq!(news(&*store, &mut after).await, [published("feed.added", one, "")], "it is polled again");
    store.change_feed(one, &status(Status::Removed), at(5)).await.unwrap();
    store.change_feed(one, &status(Status::Active), at(6)).await.unwrap();
    assert_eq!(news(&*store, &mut after).await, [published("feed.removed", one, ""), published("feed.added", one, "")]);

    assert!(store.erase_feed(two, at(7)).await.unwrap());
    assert!(!store.erase_feed(two, at(8)).await.unwrap());
    assert_eq!(news(&*store, &mut after).await, [published("feed.removed", two, "")]);
    store.change_feed(one, &status(Status::Removed), at(9)).await.unwrap();
    store.erase_feed(one, at(10)).await.unwrap();
    assert_eq!(
        news(&*store, &mut after).await,
        [published("feed.removed", one, "")],
        "once, though it was erased later"
    );
}

pub(crate) async fn a_removed_feed_is_recognised_by_those_who_had_it(backend: &dyn Backend) {
    let store = backend.open().await;
    let new = [labelled("https://a.org/1", "blue"), labelled("https://a.org/2", "red")];
    for added in store.add_feeds(&new, at(0)).await.unwrap() {
        store.erase_feed(added.id, at(1)).await.unwrap();
    }
    let seen = with_label(&*store, "blue").await;
    let [removed] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(removed.kind, "feed.removed");
    assert_eq!(removed.feed.feed_url.as_deref(), Some("https://a.org/1"));
    assert_eq!((removed.feed.feed_title.as_deref(), removed.host.as_deref()), (Some("a title"), Some("a.org:443")));
    assert_eq!(removed.feed.marks, labelled("https://a.org/1", "blue").marks);
}

pub(crate) async fn changes_are_published_with_their_settings_and_nothing_else_is(backend: &dyn Backend) {
    let store = backend.open().await;
    let ids = [add(&*store, "https://a.org/1").await, add(&*store, "https://a.org/2").await];
    let mut after = 0;
    news(&*store, &mut after).await;
    let labels = LabelChange { before: vec![], after: vec!["blue".to_owned()] };
    let changes = [
        (readers(7), "subscribers active_subscribers"),
        (status(Status::Paused), "status"),
        (
            FeedChange { private: Some(true), external_id: Some(Some("x".into())), ..FeedChange::default() },
            "private external_id",
        ),
        (FeedChange { labels: Some(labels), ..FeedChange::default() }, "labels"),
    ];
    for (change, changed) in changes {
        let subscribers = feed(&*store, ids[0]).await.audience;
        store.change_feed(ids[0], &change, at(1)).await.unwrap();
        let changed = match subscribers.active_subscribers == feed(&*store, ids[0]).await.audience.active_subscribers {
            true => changed.replace(" active_subscribers", ""),
            false => changed.to_owned(),
        };
        assert_eq!(news(&*store, &mut after).await, [published("feed.changed", ids[0], &changed)]);
        let again = FeedChange { labels: None, ..change };
        store.change_feed(ids[0], &again, at(2)).await.unwrap();
        store.change_feeds(&[(ids[0], again)], at(2)).await.unwrap();
        assert_eq!(news(&*store, &mut after).await, [], "{changed}: it was so already");
    }
    let both = [(ids[1], readers(9)), (FeedId(999), readers(9)), (ids[0], readers(7))];
    store.change_feeds(&both, at(3)).await.unwrap();
    let told_of = news(&*store, &mut after).await;
    assert_eq!(
        told_of.iter().map(|(kind, id, _)| (kind.as_str(), *id)).collect::<Vec<_>>(),
        [("feed.changed", ids[1].0)]
    );
    // A due time is not a setting.
    let due = FeedChange { next_due: Some((at(99), common::policy::Terms::default())), ..FeedChange::default() };
    store.change_feed(ids[1], &due, at(4)).await.unwrap();
    assert_eq!(news(&*store, &mut after).await, []);
}

pub(crate) async fn a_merge_is_published_at_both_feeds(backend: &dyn Backend) {
    let store = backend.open().await;
    let ids = [add(&*store, "https://a.org/1").await, add(&*store, "https://a.org/2").await];
    for id in ids {
        store.change_feed(id, &readers(5), at(1)).await.unwrap();
    }
    let mut after = 0;
    news(&*store, &mut after).await;
    let from = feed(&*store, ids[0]).await;
    let to = Move {
        url: "https://a.org/2".parse().unwrap(),
        host: from.host.clone(),
        category: Category::D,
        others: vec![],
        same: false,
    };
    let moved = store.move_feed(ids[0], from.version, &to, at(2)).await.unwrap();
    assert_eq!(moved, Moved::Into(ids[1]));
    let kinds =
        |news: Vec<(String, i64, String)>| news.into_iter().map(|(kind, feed, _)| (kind, feed)).collect::<Vec<_>>();
    let both = [("feed.moved".to_owned(), ids[0].0), ("feed.changed".to_owned(), ids[1].0)];
    assert_eq!(kinds(news(&*store, &mut after).await), both);
    let version = feed(&*store, ids[0]).await.version;
    let back = Unmove { host: from.host.clone(), category: Category::D, state: from.state };
    assert_eq!(store.unmove_feed(ids[0], version, &back, at(3)).await.unwrap(), Unmoved::Apart(ids[1]));
    assert_eq!(kinds(news(&*store, &mut after).await), both);
    let version = feed(&*store, ids[0]).await.version;
    store.move_feed(ids[0], version, &to, at(4)).await.unwrap();
    news(&*store, &mut after).await;
    store.erase_feed(ids[0], at(5)).await.unwrap();
    let gone = [("feed.removed".to_owned(), ids[0].0), ("feed.changed".to_owned(), ids[1].0)];
    assert_eq!(kinds(news(&*store, &mut after).await), gone);
}

pub(crate) async fn thousands_of_added_feeds_are_read_in_pages(backend: &dyn Backend) {
    let store = backend.open().await;
    let new: Vec<NewFeed> = (0..3_000).map(|number| new_feed(&format!("https://a.org/{number}"))).collect();
    let added = store.add_feeds(&new, at(0)).await.unwrap();
    let (mut after, mut seen) = (0, Vec::new());
    loop {
        let page = store.find_events(&EventQuery::after(after, 1_000)).await.unwrap();
        assert!(page.items.len() <= 1_000);
        after = page.next;
        seen.extend(page.items.into_iter().map(|event| event.feed_id));
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, added.iter().map(|added| added.id).collect::<Vec<_>>());
}
