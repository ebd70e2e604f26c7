//! A part of the schedule that is away.

use std::sync::atomic::Ordering;

use super::watched::Watched;
use super::*;
use crate::ops;

/// Returns a fleet over a schedule of which a part can be away, and two feeds with a job each.
async fn in_parts() -> (Fleet, Arc<Watched>, [FeedId; 2], Vec<FetchJob>) {
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let schedule = Arc::new(Watched::default());
    let store = Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap());
    let backends = Backends { schedule: schedule.clone(), ..Backends::in_memory(store) };
    let fleet = Fleet::of(config(), backends, clock).await;
    let feeds = [fleet.add("http://a.example/").await, fleet.add("http://b.example/").await];
    let jobs = fleet.dispatched().await;
    (fleet, schedule, feeds, jobs)
}

#[tokio::test]
async fn a_pushed_report_whose_part_of_the_schedule_is_away_keeps_no_other_from_being_stored() {
    let (fleet, schedule, [pushed, polled], jobs) = in_parts().await;
    // Without a new entry, so that its feed is polled.
    let empty = Outcome::Modified(Box::default());
    let delivered = FetchReport { pushed: true, ..report(&jobs[0], fleet.clock.now(), empty) };
    let other = fleet.work(&jobs[1], not_modified()).await;
    schedule.is_away.store(true, Ordering::Relaxed);
    let waiting = fleet.results.settle(vec![delivered, other], fleet.clock.now()).await.unwrap();
    assert_eq!(waiting, []);
    assert!(fleet.feed(polled).await.state.last_polled.is_some());
    assert!(fleet.feed(pushed).await.wake_at.is_some(), "the store knows it, and fills the part");
}

#[tokio::test]
async fn a_feed_that_becomes_one_that_had_ended_is_polled_there_also_when_a_part_of_the_schedule_is_away() {
    let (fleet, schedule, [old, survivor], jobs) = in_parts().await;
    let gone = fleet.work(&jobs[1], Outcome::Gone).await;
    fleet.settle(gone).await;
    assert_eq!(fleet.feed(survivor).await.status, Status::Gone);
    let permanent_url = Some("http://b.example/".parse().unwrap());
    let renamed = fleet.work(&jobs[0], not_modified()).await;
    schedule.is_away.store(true, Ordering::Relaxed);
    fleet.settle(FetchReport { permanent_url, ..renamed }).await;
    assert_eq!(fleet.feed(old).await.merged_into, Some(survivor));
    assert_eq!(fleet.feed(survivor).await.status, Status::Active);
}

#[tokio::test]
async fn what_is_missing_in_other_parts_is_found_while_one_is_away() {
    let (fleet, schedule, ..) = in_parts().await;
    // More than the reconciler reads at once.
    let feeds: Vec<_> = (0..150).map(|host| AddFeed::of(format!("http://h{host}.example/").parse().unwrap())).collect();
    let ids: Vec<FeedId> = fleet.ops.add(&feeds, None).await.unwrap().into_iter().map(|added| added.id).collect();
    fleet.ops.schedule.remove(&ids).await.unwrap();
    schedule.is_away.store(true, Ordering::Relaxed);
    assert!(fleet.reconciler.schedule_once(&*fleet.clock).await.is_err(), "not all could be compared");
    schedule.is_away.store(false, Ordering::Relaxed);
    assert_eq!(fleet.ops.schedule.depth(fleet.clock.now()).await.unwrap().feeds, 152);
}

#[tokio::test]
async fn the_feeds_of_a_lifted_block_come_when_their_part_of_the_schedule_is_back() {
    let (fleet, schedule, ..) = in_parts().await;
    let id = fleet.add("http://c.example/").await;
    let host = "c.example".parse().unwrap();
    ops::hosts::block(&fleet.ops, &host, Duration::from_secs(3600)).await.unwrap();
    assert!(fleet.dispatched().await.is_empty());
    schedule.is_away.store(true, Ordering::Relaxed);
    ops::hosts::unblock(&fleet.ops, &host).await.unwrap();
    assert!(fleet.dispatched().await.is_empty(), "it waits for the end of the block");
    schedule.is_away.store(false, Ordering::Relaxed);
    fleet.reconciler.orders.look(fleet.clock.now()).await.unwrap();
    assert_eq!(fleet.dispatched_ids().await, [id]);
}
