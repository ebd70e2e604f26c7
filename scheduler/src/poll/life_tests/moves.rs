//! Feeds that turn out to be others which were merged, or erased, before.

use common::document::Document;
use common::entry::Entry;
use common::labels::{HUB_LABEL, Marks};
use common::policy::Category;
use common::secrets::Login;

use super::*;
use crate::ops::EditFeed;

const OLD: &str = "http://old.example/feed";
const NEW: &str = "http://new.example/feed";

/// Polls what is due; this feed's document says that its URL is another one.
async fn renamed(fleet: &Fleet, id: FeedId, to: &str) {
    for job in fleet.dispatched().await {
        let report = fleet.work(&job, not_modified()).await;
        let permanent_url = (job.feed == id).then(|| to.parse().unwrap());
        fleet.settle(FetchReport { permanent_url, ..report }).await;
    }
}

/// Returns a feed and the one that it was merged into.
async fn merged(fleet: &Fleet) -> [FeedId; 2] {
    let [old, new] = [fleet.add(OLD).await, fleet.add(NEW).await];
    renamed(fleet, old, NEW).await;
    assert_eq!(fleet.feed(old).await.merged_into, Some(new));
    [old, new]
}

#[tokio::test]
async fn a_page_that_announces_a_merged_feed_becomes_the_feed_that_this_one_became() {
    let fleet = Fleet::new().await;
    let [_, survivor] = merged(&fleet).await;
    let id = fleet.add("http://page.example/").await;
    let job = fleet.dispatched().await.remove(0);
    assert_eq!(job.feed, id);
    let outcome = Outcome::Failed { failure: FailureKind::NotAFeed, detail: "a page".into() };
    let report = fleet.work(&job, outcome).await;
    fleet.settle(FetchReport { announced: vec![OLD.parse().unwrap()], ..report }).await;
    let page = fleet.feed(id).await;
    assert_eq!((page.status, page.merged_into), (Status::Merged, Some(survivor)));
    assert_eq!(fleet.feed(survivor).await.audience.subscribers, 3);
}

#[tokio::test]
async fn a_feed_that_is_found_where_another_lost_its_survivor_is_polled_there() {
    let fleet = Fleet::new().await;
    let [old, survivor] = merged(&fleet).await;
    assert!(fleet.ops.erase(survivor).await.unwrap());
    let id = fleet.add("http://third.example/feed").await;
    renamed(&fleet, id, OLD).await;
    assert_eq!(fleet.feed(id).await.merged_into, Some(old));
    assert_eq!(fleet.feed(old).await.status, Status::Active);
    fleet.clock.advance(GAP);
    assert_eq!(fleet.dispatched_ids().await, [old]);
}

#[tokio::test]
async fn a_feed_that_a_person_paused_takes_no_other_in() {
    let fleet = Fleet::new().await;
    let [old, new] = [fleet.add(OLD).await, fleet.add(NEW).await];
    let pause = EditFeed { status: Some(Status::Paused), ..EditFeed::default() };
    fleet.ops.edit(new, &pause).await.unwrap().unwrap();
    renamed(&fleet, old, NEW).await;
    let feed = fleet.feed(old).await;
    assert_eq!((feed.status, feed.merged_into, feed.url.as_str()), (Status::Active, None, OLD));
}

#[tokio::test]
async fn a_feed_is_planned_again_for_the_readers_that_another_brings() {
    let fleet = Fleet::new().await;
    let new = fleet.add(NEW).await;
    let job = fleet.dispatched().await.remove(0);
    fleet.settle(fleet.work(&job, not_modified()).await).await;
    let before = fleet.feed(new).await;
    let audience = Audience { sla: true, ..Audience::default() };
    let old = AddFeed { audience, ..AddFeed::of(OLD.parse().unwrap()) };
    let old = fleet.ops.add(&[old], None).await.unwrap()[0].id;
    renamed(&fleet, old, NEW).await;
    assert_eq!(fleet.feed(old).await.merged_into, Some(new));
    let after = fleet.feed(new).await;
    assert_eq!((after.category, after.version), (Category::A, before.version));
    let promise = fleet.ops.config.policy.category.a.promise;
    assert!(after.next_due.unwrap() <= before.state.last_polled.unwrap().after(promise));
    assert!(after.next_due < before.next_due, "{:?} {:?}", after.next_due, before.next_due);
    fleet.clock.advance(promise);
    assert_eq!(fleet.dispatched_ids().await, [new]);
}

#[tokio::test]
async fn a_feed_whose_labels_another_lacks_is_not_merged_into_that_one() {
    for (label, merges) in [("red", false), (HUB_LABEL, true)] {
        let fleet = Fleet::new().await;
        let new = fleet.add(NEW).await;
        let removed = EditFeed { status: Some(Status::Removed), ..EditFeed::default() };
        fleet.ops.edit(new, &removed).await.unwrap().unwrap();
        let marks = Marks { labels: vec![label.to_owned()], external_id: None };
        let page = AddFeed { marks, ..AddFeed::of("http://page.example/".parse().unwrap()) };
        let page = fleet.ops.add(&[page], None).await.unwrap()[0].id;
        let job = fleet.dispatched().await.remove(0);
        let outcome = Outcome::Failed { failure: FailureKind::NotAFeed, detail: "a page".into() };
        let report = fleet.work(&job, outcome).await;
        fleet.settle(FetchReport { announced: vec![NEW.parse().unwrap()], ..report }).await;
        let there = fleet.feed(new).await;
        assert_eq!(fleet.feed(page).await.merged_into.is_some(), merges);
        assert_eq!(there.status, if merges { Status::Active } else { Status::Removed });
        assert_eq!(there.audience.subscribers, 1 + u32::from(merges));
    }
}

#[tokio::test]
async fn a_new_feed_that_is_not_merged_for_its_labels_keeps_its_entries() {
    let fleet = Fleet::new().await;
    fleet.add(NEW).await;
    let marks = Marks { labels: vec!["red".to_owned()], external_id: None };
    let old = AddFeed { marks, ..AddFeed::of(OLD.parse().unwrap()) };
    let old = fleet.ops.add(&[old], None).await.unwrap()[0].id;
    for job in fleet.dispatched().await {
        let entry = Entry { id: "1".into(), ..Entry::default() };
        let document = Document { entries: vec![entry], new_entries: 1, all_entries: 1, ..Document::default() };
        let report = fleet.work(&job, Outcome::Modified(Box::new(document))).await;
        let permanent_url = (job.feed == old).then(|| NEW.parse().unwrap());
        fleet.settle(FetchReport { permanent_url, ..report }).await;
    }
    let feed = fleet.feed(old).await;
    assert_eq!((feed.merged_into, feed.entries), (None, 1));
}

#[tokio::test]
async fn the_move_of_a_feed_with_a_login_revives_no_feed_without_it() {
    let mut config = config();
    config.secrets.key = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=".into();
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let store = Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap());
    let fleet = Fleet::over(config, store, clock, Timestamp::EPOCH).await;
    let there = fleet.add("http://old.example/new").await;
    let removed = EditFeed { status: Some(Status::Removed), ..EditFeed::default() };
    fleet.ops.edit(there, &removed).await.unwrap().unwrap();
    let feed = AddFeed { login: Some(Login::new("me", "secret").unwrap()), ..AddFeed::of(OLD.parse().unwrap()) };
    let feed = fleet.ops.add(&[feed], None).await.unwrap()[0].id;
    renamed(&fleet, feed, "http://old.example/new").await;
    assert_eq!(fleet.feed(feed).await.url.as_str(), "http://old.example/new");
    assert_eq!(fleet.feed(there).await.status, Status::Removed);
}

#[tokio::test]
async fn the_feed_that_a_page_announces_waits_for_the_time_that_their_server_asked_for() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://page.example/").await;
    let job = fleet.dispatched().await.remove(0);
    let outcome = Outcome::Failed { failure: FailureKind::NotAFeed, detail: "a page".into() };
    let report = fleet.work(&job, outcome).await;
    let hour = Duration::from_secs(3600);
    let retry_after = Some(fleet.clock.now().after(hour));
    fleet
        .settle(FetchReport { announced: vec!["http://page.example/feed".parse().unwrap()], retry_after, ..report })
        .await;
    assert_eq!(fleet.feed(id).await.url.as_str(), "http://page.example/feed");
    fleet.clock.advance(hour - Duration::from_millis(1));
    assert!(fleet.dispatched().await.is_empty());
    fleet.clock.advance(GAP);
    assert_eq!(fleet.dispatched_ids().await, [id]);
}

#[tokio::test]
async fn a_permanent_redirect_is_followed_when_it_has_lasted_and_takes_no_login_to_another_origin() {
    let own = "http://old.example/other";
    for (has_login, to, follows) in [(false, NEW, true), (true, NEW, false), (true, own, true)] {
        let mut config = config();
        config.secrets.key = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=".into();
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
        let store = Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap());
        let fleet = Fleet::over(config, store, clock, Timestamp::EPOCH).await;
        let login = has_login.then(|| Login::new("ann", "s3cret").unwrap());
        let feed = AddFeed { login, ..AddFeed::of(OLD.parse().unwrap()) };
        let id = fleet.ops.add(&[feed], None).await.unwrap()[0].id;
        let mut polls = 0;
        for _ in 0..20 {
            for job in fleet.dispatched().await {
                polls += 1;
                let moved_to = Some(to.parse().unwrap()).filter(|to| *to != job.url);
                let report = fleet.work(&job, not_modified()).await;
                fleet.settle(FetchReport { moved_to, ..report }).await;
            }
            fleet.clock.advance(Duration::from_secs(12 * 3600));
        }
        assert!(polls > 4, "{polls}");
        let expected = if follows { to } else { OLD };
        assert_eq!(fleet.feed(id).await.url.as_str(), expected, "with a login: {has_login}");
    }
}

#[tokio::test]
async fn what_an_operator_took_back_stays_apart_although_its_document_says_otherwise() {
    let fleet = Fleet::new().await;
    let [old, new] = merged(&fleet).await;
    assert!(crate::ops::unmove::unmove(&fleet.ops, old).await.unwrap().is_some());
    fleet.clock.advance(Duration::from_secs(86_400));
    renamed(&fleet, old, NEW).await;
    let feed = fleet.feed(old).await;
    assert_eq!((feed.status, feed.merged_into, feed.url.as_str()), (Status::Active, None, OLD));
    assert_eq!(fleet.feed(new).await.status, Status::Active);
}
