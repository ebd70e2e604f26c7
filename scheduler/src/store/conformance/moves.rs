//! Feeds that turn out to be somewhere else.

use super::*;
use crate::store::{Move, Moved};

fn to(url: &str) -> Move {
    let NewFeed { url, host, .. } = new_feed(url);
    Move { url, host, category: Category::D }
}

pub(crate) async fn a_moved_feed_starts_anew_and_keeps_its_number_audience_and_history(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/").await;
    let onward = Onward { expired: true, ..Onward::default() };
    let ending = Document { onward, ..Document::default() };
    poll(&*store, id, 5, Outcome::Modified(Box::new(ending))).await;
    poll(&*store, id, 10, failed(FailureKind::NotAFeed)).await;
    let before = feed(&*store, id).await;
    let moved = store.move_feed(id, before.version, &to("https://b.org/feed"), at(20)).await.unwrap();
    assert_eq!(moved, Moved::Here);
    let after = feed(&*store, id).await;
    assert_eq!((after.url.as_str(), after.host.as_str()), ("https://b.org/feed", "b.org:443"));
    assert_eq!((after.moved_from.as_deref(), after.next_due), (Some("https://a.org/"), Some(at(20))));
    assert_eq!((after.state, after.audience), (PollState::default(), before.audience));
    assert_eq!(after.version, Version(before.version.0 + 1));
    assert_eq!((after.onward, before.onward.expired), (Onward::default(), true));
    assert_eq!(store.history(id).await.unwrap().unwrap().len(), 2);
    assert_eq!(told(&*store).await, [("feed.moved".to_owned(), None)]);
    poll(&*store, id, 30, modified(vec![entry("1", "one")])).await;
    assert_eq!(feed(&*store, id).await.entries, 1);
}

pub(crate) async fn a_feed_that_moves_onto_a_known_one_is_merged_into_it(backend: &dyn Backend) {
    let store = backend.open().await;
    let survivor = add(&*store, "https://a.org/feed").await;
    let id = add(&*store, "https://a.org/").await;
    let version = feed(&*store, id).await.version;
    let moved = store.move_feed(id, version, &to("https://a.org/feed"), at(20)).await.unwrap();
    assert_eq!(moved, Moved::Into(survivor));
    let after = feed(&*store, id).await;
    assert_eq!((after.status, after.merged_into, after.next_due), (Status::Merged, Some(survivor), None));
    assert_eq!(feed(&*store, survivor).await.audience.subscribers, 2, "its readers read the survivor");
    assert_eq!(feed(&*store, survivor).await.calm, [midnight(2), midnight(2)].concat(), "so do the calm ones");
    assert!(store.jobs_for(&[id]).await.unwrap().is_empty());
    assert!(store.erase_feed(survivor).await.unwrap());
    assert_eq!(feed(&*store, id).await.merged_into, None);
}

pub(crate) async fn a_feed_of_another_version_or_a_retired_one_is_not_moved(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/").await;
    let before = feed(&*store, id).await;
    let there = to("https://a.org/feed");
    assert_eq!(store.move_feed(id, Version(before.version.0 + 1), &there, at(20)).await.unwrap(), Moved::Stale);
    assert_eq!(store.move_feed(id, before.version, &to("https://a.org/"), at(20)).await.unwrap(), Moved::Stale);
    assert_eq!(store.move_feed(FeedId(99), before.version, &there, at(20)).await.unwrap(), Moved::Stale);
    assert_eq!(feed(&*store, id).await, before);
    let pause = FeedChange { status: Some(Status::Paused), ..FeedChange::default() };
    let paused = store.change_feed(id, &pause, at(5)).await.unwrap().unwrap();
    assert_eq!(store.move_feed(id, paused.version, &there, at(20)).await.unwrap(), Moved::Stale);
    assert!(told(&*store).await.is_empty());
}
