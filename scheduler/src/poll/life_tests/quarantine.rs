//! Feeds that kill workers, and the pings that come for them.

use super::*;
use crate::ops::pings::Pings;

#[tokio::test]
async fn a_ping_does_not_end_the_quarantine_of_a_feed_that_kills_workers_and_a_person_does() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    let jobs = fleet.dispatched().await;
    let crashed = Outcome::Failed { failure: FailureKind::Crashed, detail: String::new() };
    let report = fleet.work(&jobs[0], crashed).await;
    fleet.settle(report).await;
    let feed = fleet.feed(id).await;
    let next = feed.next_due.unwrap();
    assert_eq!((feed.status, feed.hears_pings()), (Status::Active, false));
    assert!(next >= fleet.clock.now().after(Duration::from_secs(3600)));

    let pings = Pings::new(fleet.ops.clone());
    assert!(pings.ping(&[feed.url]).await.unwrap(), "its caller does not learn of it");
    let now = fleet.clock.now();
    assert!(fleet.ops.store.wake_pinged(&[id], now, now).await.unwrap().is_empty(), "nor does the store");
    assert_eq!(fleet.feed(id).await.wake_at, None);
    fleet.clock.advance(Duration::from_secs(60));
    assert!(fleet.dispatched().await.is_empty());
    let left = next.since(fleet.clock.now());
    fleet.clock.advance(left - Duration::from_millis(1));
    assert!(fleet.dispatched().await.is_empty(), "not before the hour");

    assert_eq!(fleet.ops.wake(&[id]).await.unwrap(), 1);
    assert_eq!(fleet.dispatched_ids().await, [id], "a person may");
}
