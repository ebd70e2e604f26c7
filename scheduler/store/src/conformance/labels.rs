//! Labels and callers' own ids of feeds.

use common::labels::Marks;

use super::*;
use crate::LabelChange;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn marked(url: &str, labels: &[&str], external_id: Option<&str>) -> NewFeed {
    let marks = Marks { labels: names(labels), external_id: external_id.map(str::to_owned) };
    NewFeed { marks, ..new_feed(url) }
}

fn relabelled(before: &[&str], after: &[&str]) -> FeedChange {
    let labels = Some(LabelChange { before: names(before), after: names(after) });
    FeedChange { labels, ..FeedChange::default() }
}

async fn listed(store: &dyn Store, query: FeedQuery) -> Vec<i64> {
    let page = store.feeds(&FeedQuery { limit: 50, ..query }).await.unwrap();
    page.items.into_iter().map(|feed| feed.id.0).collect()
}

async fn with_label(store: &dyn Store, label: &str) -> Vec<i64> {
    listed(store, FeedQuery { label: Some(label.into()), ..FeedQuery::default() }).await
}

pub(crate) async fn labels_and_ids_are_kept_changed_and_found(backend: &dyn Backend) {
    let store = backend.open().await;
    let new = [
        marked("https://a.org/1", &["green", "sp\"ecial, \u{dc}"], Some("x-1")),
        marked("https://a.org/2", &["green"], Some("x-1")),
        new_feed("https://a.org/3"),
    ];
    let ids: Vec<FeedId> = store.add_feeds(&new, at(0)).await.unwrap().iter().map(|added| added.id).collect();
    let [one, two, three] = [ids[0].0, ids[1].0, ids[2].0];
    assert_eq!(feed(&*store, ids[0]).await.marks, new[0].marks);
    assert_eq!(feed(&*store, ids[2]).await.marks, Marks::default());
    assert_eq!(with_label(&*store, "green").await, [one, two]);
    assert_eq!(with_label(&*store, "sp\"ecial, \u{dc}").await, [one]);
    assert_eq!(with_label(&*store, "gre").await, [0_i64; 0]);
    let of_caller = FeedQuery { external_id: Some("x-1".into()), ..FeedQuery::default() };
    assert_eq!(listed(&*store, of_caller.clone()).await, [one, two]);
    let both = FeedQuery { label: Some("sp\"ecial, \u{dc}".into()), ..of_caller };
    assert_eq!(listed(&*store, both).await, [one]);

    let version = feed(&*store, ids[0]).await.version;
    let changed =
        store.change_feed(ids[0], &relabelled(&["green", "sp\"ecial, \u{dc}"], &["blue"]), at(1)).await.unwrap();
    let changed = changed.unwrap();
    assert_eq!((changed.marks.labels, changed.version), (names(&["blue"]), version), "jobs stay valid");
    let other = FeedChange { external_id: Some(None), ..relabelled(&[], &["blue", "green"]) };
    store.change_feeds(&[(ids[2], other)], at(1)).await.unwrap();
    assert_eq!(
        (with_label(&*store, "green").await, with_label(&*store, "blue").await),
        (vec![two, three], vec![one, three])
    );
    let renamed = FeedChange { external_id: Some(Some("x-2".into())), ..FeedChange::default() };
    store.change_feed(ids[1], &renamed, at(2)).await.unwrap();
    assert_eq!(feed(&*store, ids[1]).await.marks, Marks { labels: names(&["green"]), external_id: Some("x-2".into()) });
    assert_eq!(feed(&*store, ids[0]).await.marks.external_id.as_deref(), Some("x-1"));

    store.erase_feed(ids[2], at(9_000)).await.unwrap();
    assert_eq!((with_label(&*store, "green").await, with_label(&*store, "blue").await), (vec![two], vec![one]));
}

pub(crate) async fn a_change_of_labels_that_was_made_from_others_changes_nothing(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = store.add_feeds(&[marked("https://a.org/", &["a"], None)], at(0)).await.unwrap()[0].id;
    let before = feed(&*store, id).await;
    let change = |from: &[&str], to: &[&str]| FeedChange {
        expects: Some((before.version, before.audience)),
        ..relabelled(from, to)
    };
    store.change_feed(id, &change(&["a"], &["a", "b"]), at(1)).await.unwrap();
    let outdated = store.change_feed(id, &change(&["a"], &["a", "c"]), at(1)).await;
    assert!(matches!(outdated, Err(StoreError::Outdated)));
    assert_eq!(feed(&*store, id).await.marks.labels, names(&["a", "b"]));
}

pub(crate) async fn a_given_title_stays_until_the_feed_has_one(backend: &dyn Backend) {
    let store = backend.open().await;
    let new = NewFeed { title: Some("mine".into()), ..new_feed("https://a.org/") };
    let id = store.add_feeds(&[new], at(0)).await.unwrap()[0].id;
    let untitled = Document { title: None, ..document(vec![]) };
    poll(&*store, id, 10, Outcome::Modified(Box::new(untitled))).await;
    assert_eq!(feed(&*store, id).await.title.as_deref(), Some("mine"));
    let found = store.feeds(&FeedQuery { text: Some("MINE".into()), limit: 9, ..FeedQuery::default() }).await.unwrap();
    assert_eq!(found.items.len(), 1);
    poll(&*store, id, 20, modified(vec![])).await;
    assert_eq!(feed(&*store, id).await.title.as_deref(), Some("a title"));
}

pub(crate) async fn adding_known_feeds_uses_up_no_numbers(backend: &dyn Backend) {
    let store = backend.open().await;
    let new: Vec<NewFeed> = (0..50).map(|number| new_feed(&format!("https://a.org/{number}"))).collect();
    for _ in 0..3 {
        store.add_feeds(&new, at(0)).await.unwrap();
    }
    let next = add(&*store, "https://b.org/").await;
    assert_eq!(next, FeedId(51));
}
