//! Feeds whose URL changes.

use super::*;
use crate::{Move, Moved, Unmove, Unmoved};

fn to(url: &str) -> Move {
    let NewFeed { url, host, .. } = new_feed(url);
    Move { url, host, category: Category::D, same: false, others: Vec::new() }
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
    assert_eq!(published(&*store).await, [("feed.moved".to_owned(), None)]);
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
    assert!(store.erase_feed(survivor, at(9_000)).await.unwrap());
    assert_eq!(feed(&*store, id).await.merged_into, None);
}

pub(crate) async fn a_feed_joins_only_one_with_its_labels_and_no_sum_is_too_large(backend: &dyn Backend) {
    let store = backend.open().await;
    let labelled = |(url, label, subscribers): (&str, &str, u32)| {
        let marks = Marks { labels: vec![label.to_owned()], external_id: None };
        let audience =
            Audience { subscribers, active_subscribers: subscribers, sla: label == "blue", ..Audience::default() };
        NewFeed { marks, audience, ..new_feed(url) }
    };
    let feeds =
        [("https://a.org/feed", "red", 9), ("https://a.org/1", "blue", 2), ("https://a.org/2", "red", u32::MAX)]
            .map(labelled);
    let ids: Vec<FeedId> = store.add_feeds(&feeds, at(1)).await.unwrap().iter().map(|added| added.id).collect();
    let before = feed(&*store, ids[0]).await;
    let merge = async |number: usize, same: bool| {
        let version = feed(&*store, ids[number]).await.version;
        store.move_feed(ids[number], version, &Move { same, ..to("https://a.org/feed") }, at(20)).await.unwrap()
    };
    assert_eq!(merge(1, true).await, Moved::Stale);
    assert_eq!(feed(&*store, ids[1]).await.status, Status::Active);
    assert_eq!(merge(1, false).await, Moved::Into(ids[0]), "a page of others leads there");
    let after = feed(&*store, ids[0]).await;
    assert_eq!((after.audience, after.audience_at, &after.calm), (before.audience, before.audience_at, &before.calm));
    let own = &feeds[1].audience;
    for erased in [false, true] {
        let page = feed(&*store, ids[1]).await;
        assert_eq!((page.status, &page.audience), (Status::Merged, own), "it keeps its readers");
        if erased {
            assert!(store.erase_feed(ids[1], at(25)).await.unwrap());
        } else {
            let back = Unmove { host: page.host, category: page.category, state: page.state };
            assert_eq!(store.unmove_feed(ids[1], page.version, &back, at(22)).await.unwrap(), Unmoved::Apart(ids[0]));
            let apart = feed(&*store, ids[1]).await;
            assert_eq!((apart.status, &apart.audience, apart.calm), (Status::Active, own, feeds[1].calm.clone()));
            assert_eq!(merge(1, false).await, Moved::Into(ids[0]));
        }
        let after = feed(&*store, ids[0]).await;
        assert_eq!(
            (after.audience, &after.calm),
            (before.audience, &before.calm),
            "it brought nobody, and takes nobody along"
        );
    }

    assert_eq!(merge(2, true).await, Moved::Into(ids[0]));
    let survivor = feed(&*store, ids[0]).await;
    assert_eq!((survivor.audience.subscribers, survivor.audience.active_subscribers), (u32::MAX, u32::MAX));
    let change = FeedChange {
        private: Some(true),
        expects: Some((survivor.version, survivor.audience)),
        ..FeedChange::default()
    };
    assert!(store.change_feed(ids[0], &change, at(30)).await.unwrap().is_some(), "it can be changed");
}

pub(crate) async fn a_feed_that_is_taken_back_waits_for_its_servers_hold(backend: &dyn Backend) {
    let store = backend.open().await;
    add(&*store, "https://a.org/feed").await;
    let id = add(&*store, "https://a.org/").await;
    let mut held = verdict_on(&feed(&*store, id).await, 10, not_modified(Validators::default()));
    held.decision.state.hold_until = Some(at(5_000));
    store.apply(&[held], Duration::ZERO, at(10)).await.unwrap();
    let before = feed(&*store, id).await;
    assert_eq!(before.state.hold_until, Some(at(5_000)));
    let to = Move { same: true, ..to("https://a.org/feed") };
    store.move_feed(id, before.version, &to, at(20)).await.unwrap();
    let merged = feed(&*store, id).await;
    let back = Unmove { host: before.host, category: before.category, state: merged.state };
    store.unmove_feed(id, merged.version, &back, at(30)).await.unwrap();
    let apart = feed(&*store, id).await;
    assert_eq!((apart.status, apart.next_due), (Status::Active, Some(at(5_000))));
    assert_eq!(apart.state.hold_until, Some(at(5_000)));
}

pub(crate) async fn a_merged_feed_that_is_erased_takes_its_readers_along(backend: &dyn Backend) {
    let store = backend.open().await;
    let survivor = add(&*store, "https://a.org/feed").await;
    let id = add(&*store, "https://a.org/").await;
    let before = feed(&*store, survivor).await;
    let version = feed(&*store, id).await.version;
    store.move_feed(id, version, &to("https://a.org/feed"), at(20)).await.unwrap();
    let merged = feed(&*store, survivor).await;
    assert_eq!(merged.audience.subscribers, 2);
    assert!(store.erase_feed(id, at(9_000)).await.unwrap());
    let after = feed(&*store, survivor).await;
    assert_eq!((after.audience, after.calm), (before.audience, before.calm));
    assert_ne!(after.audience_at, merged.audience_at, "a decision for the readers before is to be made again");
}

pub(crate) async fn what_was_merged_into_an_erased_feed_is_removed_and_can_be_added_again(backend: &dyn Backend) {
    let store = backend.open().await;
    let survivor = add(&*store, "https://a.org/feed").await;
    let id = add(&*store, "https://a.org/").await;
    let version = feed(&*store, id).await.version;
    store.move_feed(id, version, &to("https://a.org/feed"), at(20)).await.unwrap();
    let (merged, before) = (feed(&*store, id).await, store.latest_seq().await.unwrap());
    assert!(store.erase_feed(survivor, at(30)).await.unwrap());
    let removed = feed(&*store, id).await;
    assert_eq!((removed.status, removed.merged_into), (Status::Removed, None));
    assert_eq!(removed.version, Version(merged.version.0 + 1));
    let events = store.events(before, 9).await.unwrap().items;
    let published: Vec<_> = events.iter().map(|event| (event.kind.as_str(), event.feed_id)).collect();
    assert_eq!(published, [("feed.removed", survivor), ("feed.removed", id)]);
    let Audit { kept, right } = backend.audit().await;
    assert_eq!(kept, right);

    let added = store.add_feeds(&[new_feed("https://a.org/")], at(40)).await.unwrap();
    assert_eq!(added, [Added { id, new: false, revived: true }]);
    assert_eq!(feed(&*store, id).await.status, Status::Active);
    assert_eq!(store.jobs_for(&[id]).await.unwrap().len(), 1);
}

pub(crate) async fn a_feed_that_moves_onto_a_merged_one_is_merged_into_what_that_one_became(backend: &dyn Backend) {
    let store = backend.open().await;
    let mut ids = Vec::new();
    for number in 0..9 {
        ids.push(add(&*store, &format!("https://a.org/{number}")).await);
    }
    let merge = async |from: usize, into: usize| {
        let version = feed(&*store, ids[from]).await.version;
        store.move_feed(ids[from], version, &to(&format!("https://a.org/{into}")), at(20)).await.unwrap()
    };
    for number in 0..6 {
        assert_eq!(merge(number, number + 1).await, Moved::Into(ids[number + 1]));
    }
    assert_eq!(merge(7, 1).await, Moved::Into(ids[6]));
    assert_eq!(feed(&*store, ids[7]).await.merged_into, Some(ids[6]));
    assert_eq!(feed(&*store, ids[6]).await.audience.subscribers, 8, "the readers of all");
    assert_eq!(merge(6, 1).await, Moved::Stale, "it is this very feed");
    assert_eq!(merge(8, 0).await, Moved::Stale, "after more merges than are followed");
    for id in [ids[6], ids[8]] {
        assert_eq!(feed(&*store, id).await.status, Status::Active);
    }

    let before = store.latest_seq().await.unwrap();
    assert!(store.erase_feed(ids[6], at(30)).await.unwrap());
    for id in ids[..6].iter().chain([&ids[7]]) {
        let removed = feed(&*store, *id).await;
        assert_eq!((removed.status, removed.merged_into), (Status::Removed, None), "over others too");
    }
    assert_eq!(store.events(before, 20).await.unwrap().items.len(), 8, "of each");
    let Audit { kept, right } = backend.audit().await;
    assert_eq!(kept, right);
}

pub(crate) async fn a_page_that_another_was_merged_into_is_not_erased(backend: &dyn Backend) {
    let store = backend.open().await;
    let known = add(&*store, "https://a.org/feed").await;
    let unread = Audience { subscribers: 0, active_subscribers: 0, ..Audience::default() };
    let plain = |url: &str| NewFeed { calm: Vec::new(), audience: unread, ..new_feed(url) };
    let pages = [plain("https://a.org/1"), plain("https://a.org/2")];
    let ids: Vec<FeedId> = store.add_feeds(&pages, at(0)).await.unwrap().iter().map(|added| added.id).collect();
    for (id, into) in [(ids[0], "https://a.org/2"), (ids[1], "https://a.org/feed")] {
        let version = feed(&*store, id).await.version;
        store.move_feed(id, version, &to(into), at(20)).await.unwrap();
    }
    assert_eq!(store.erase_pages(at(20), at(30)).await.unwrap(), 2);
    assert_eq!(store.feed(&FeedRef::Id(ids[0])).await.unwrap(), None);
    assert_eq!(feed(&*store, ids[1]).await.merged_into, Some(known));
}

pub(crate) async fn a_page_whose_feed_was_known_is_erased_unless_a_caller_gave_it_something(backend: &dyn Backend) {
    let store = backend.open().await;
    let known = add(&*store, "https://a.org/feed").await;
    let plain = |url: &str| NewFeed { calm: Vec::new(), ..new_feed(url) };
    let labelled = Marks { labels: vec!["news".to_owned()], ..Marks::default() };
    let named = Marks { external_id: Some("7".to_owned()), ..Marks::default() };
    let read = Audience { subscribers: 12, ..Audience::default() };
    let pages = [
        plain("https://a.org/"),
        NewFeed { marks: labelled, ..plain("https://a.org/1") },
        NewFeed { marks: named, ..plain("https://a.org/2") },
        NewFeed { audience: read, ..plain("https://a.org/3") },
        plain("https://a.org/4"),
        plain("https://a.org/same"),
    ];
    let ids: Vec<FeedId> = store.add_feeds(&pages, at(0)).await.unwrap().iter().map(|added| added.id).collect();
    for (page, id) in pages.iter().zip(&ids) {
        let same = page.url.as_str().ends_with("same");
        let version = feed(&*store, *id).await.version;
        let moved = store.move_feed(*id, version, &Move { same, ..to("https://a.org/feed") }, at(20)).await.unwrap();
        assert_eq!(moved, Moved::Into(known));
    }
    let taken_back = feed(&*store, ids[4]).await;
    let apart = back("https://a.org/4", taken_back.state);
    store.unmove_feed(ids[4], taken_back.version, &apart, at(21)).await.unwrap();
    let audience = feed(&*store, known).await.audience;

    assert_eq!(store.erase_pages(at(19), at(30)).await.unwrap(), 0, "too early");
    assert_eq!(store.erase_pages(at(20), at(30)).await.unwrap(), 5, "a feed that only moved stays");
    assert_eq!(store.erase_pages(at(20), at(30)).await.unwrap(), 0);
    let mut left = Vec::new();
    for id in &ids {
        left.push(store.feed(&FeedRef::Id(*id)).await.unwrap().is_some());
    }
    assert_eq!(left, [false, true, true, true, true, true]);
    assert_eq!(feed(&*store, known).await.audience.subscribers, audience.subscribers - 1);
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
    assert!(published(&*store).await.is_empty());
}

fn back(url: &str, state: PollState) -> Unmove {
    Unmove { host: new_feed(url).host, category: Category::D, state }
}

pub(crate) async fn a_feed_that_is_the_same_elsewhere_keeps_what_is_known_of_it_and_can_be_taken_back(
    backend: &dyn Backend,
) {
    let store = backend.open().await;
    let (old, new) = ("https://a.org/feed", "https://b.org/feed");
    let id = add(&*store, old).await;
    poll(&*store, id, 10, modified(vec![entry("1", "one")])).await;
    let before = feed(&*store, id).await;
    let same = Move { same: true, ..to(new) };
    assert_eq!(store.move_feed(id, before.version, &same, at(20)).await.unwrap(), Moved::Here);
    let there = feed(&*store, id).await;
    assert_eq!((there.url.as_str(), there.host.as_str(), there.moved_from.as_deref()), (new, "b.org:443", Some(old)));
    assert_eq!(there.version, Version(before.version.0 + 1));
    let known = |feed: &Feed| (feed.state, feed.next_due, feed.entries, feed.content_hash, feed.title.clone());
    assert_eq!(known(&there), known(&before));
    assert_eq!(store.jobs_for(&[id]).await.unwrap()[0].known.len(), 1);

    let state = PollState { declined: Some(7), ..there.state };
    let stale = store.unmove_feed(id, before.version, &back(old, state), at(30)).await.unwrap();
    assert_eq!(stale, Unmoved::Stale);
    let other = add(&*store, old).await;
    let taken = store.unmove_feed(id, there.version, &back(old, state), at(30)).await.unwrap();
    assert_eq!(taken, Unmoved::Taken(other));
    assert_eq!(feed(&*store, id).await, there);
    assert!(store.erase_feed(other, at(9_000)).await.unwrap());
    assert_eq!(store.unmove_feed(id, there.version, &back(old, state), at(30)).await.unwrap(), Unmoved::Back);
    let again = feed(&*store, id).await;
    assert_eq!((again.url.as_str(), again.host.as_str(), again.moved_from), (old, "a.org:443", None));
    assert_eq!((again.state, again.version), (state, Version(there.version.0 + 1)));
    assert_eq!(store.feed(&FeedRef::Url(old.parse().unwrap())).await.unwrap().map(|feed| feed.id), Some(id));
    assert_eq!(store.feed(&FeedRef::Url(new.parse().unwrap())).await.unwrap(), None);
    let unmoved = store.unmove_feed(id, again.version, &back(old, state), at(40)).await.unwrap();
    assert_eq!(unmoved, Unmoved::Stale, "there is nothing more to take back");
    let moves = published(&*store).await.into_iter().filter(|(kind, _)| kind == "feed.moved").count();
    assert_eq!(moves, 2);
}

pub(crate) async fn validators_stay_with_the_url_that_gave_them(backend: &dyn Backend) {
    let store = backend.open().await;
    let given = |for_url: Option<&str>| Validators {
        etag: Some("\"1\"".into()),
        last_modified: None,
        for_url: for_url.map(str::to_owned),
    };
    let new = "https://b.org/feed";
    for (number, (before, after, back_again)) in [
        (None, Some("https://a.org/0"), None),
        (Some(new), None, Some(new)),
        (Some("https://cdn.org/feed"), Some("https://cdn.org/feed"), Some("https://cdn.org/feed")),
    ]
    .into_iter()
    .enumerate()
    {
        let old = format!("https://a.org/{number}");
        let id = add(&*store, &old).await;
        let document = Document { validators: given(before), ..Document::default() };
        poll(&*store, id, 10, Outcome::Modified(Box::new(document))).await;
        let version = feed(&*store, id).await.version;
        store.move_feed(id, version, &Move { same: true, ..to(new) }, at(20)).await.unwrap();
        let there = feed(&*store, id).await;
        assert_eq!(there.validators, given(after));
        store.unmove_feed(id, there.version, &back(&old, there.state), at(30)).await.unwrap();
        assert_eq!(feed(&*store, id).await.validators, given(back_again));
    }
}

pub(crate) async fn a_merged_feed_that_is_taken_back_has_its_readers_again(backend: &dyn Backend) {
    let store = backend.open().await;
    let survivor = add(&*store, "https://a.org/feed").await;
    let id = add(&*store, "https://b.org/feed").await;
    let before = feed(&*store, id).await;
    let there = Move { same: true, ..to("https://a.org/feed") };
    assert_eq!(store.move_feed(id, before.version, &there, at(20)).await.unwrap(), Moved::Into(survivor));
    let merged = feed(&*store, id).await;
    let state = PollState { declined: Some(7), ..merged.state };
    let apart = store.unmove_feed(id, merged.version, &back("https://b.org/feed", state), at(30)).await.unwrap();
    assert_eq!(apart, Unmoved::Apart(survivor));
    let alone = feed(&*store, id).await;
    assert_eq!((alone.status, alone.merged_into, alone.next_due), (Status::Active, None, Some(at(30))));
    assert_eq!((alone.audience, alone.calm, alone.state), (before.audience, before.calm, state));
    let left = feed(&*store, survivor).await;
    assert_eq!((left.audience.subscribers, left.audience.active_subscribers, left.calm), (1, 1, midnight(2)));
    assert_eq!(store.jobs_for(&[id]).await.unwrap().len(), 1);
}
