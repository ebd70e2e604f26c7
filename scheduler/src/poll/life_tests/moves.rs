//! Feeds that turn out to be others which were merged, or erased, before.

use super::*;

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
