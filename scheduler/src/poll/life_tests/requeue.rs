//! A requeue in a feed's life: polled conditionally, at the hosts' pace, never past a hold, once.

use common::document::Document;

use super::*;
use crate::upkeep::requeue::RequeueRunner;
use store::{NewRequeue, RequeueFilter};

impl Fleet {
    async fn requeue_all(&self, rate: f64) -> i64 {
        let by = "a test".to_owned();
        let filter = RequeueFilter::default();
        let new = NewRequeue { filter, rate, lift_penalties: false, by, matched: 0, queued: 0 };
        self.ops.store.begin_requeue(&new, self.clock.now()).await.unwrap().unwrap().id
    }

    async fn drip(&self) {
        let (store, schedule) = (self.ops.store.clone(), self.ops.schedule.clone());
        RequeueRunner { store, schedule, condition: self.ops.condition.clone() }.round(&*self.clock).await.unwrap();
    }

    async fn answered(&self, jobs: &[FetchJob], outcome: impl Fn(&FetchJob) -> Outcome) {
        for job in jobs {
            let report = self.work(job, outcome(job)).await;
            self.settle(report).await;
        }
    }
}

fn read(_: &FetchJob) -> Outcome {
    Outcome::Modified(Box::new(Document { validators: validators(), ..Document::default() }))
}

fn validators() -> Validators {
    Validators { etag: Some("\"a\"".into()), ..Validators::default() }
}

#[tokio::test]
async fn requeued_feeds_are_polled_conditionally_once_and_a_gap_apart_at_each_host() {
    let fleet = Fleet::new().await;
    for host in ["a.org", "b.org"] {
        for number in 0..3 {
            fleet.add(&format!("https://{host}/{number}")).await;
        }
    }
    for _ in 0..3 {
        let jobs = fleet.dispatched().await;
        fleet.answered(&jobs, read).await;
        fleet.clock.advance(GAP);
    }
    assert_eq!(fleet.dispatched_ids().await, [], "all were polled and none is due");

    fleet.requeue_all(6.0).await;
    fleet.clock.advance(Duration::from_secs(1));
    fleet.drip().await;
    let mut asked = Vec::new();
    for _ in 0..4 {
        let jobs = fleet.dispatched().await;
        let mut hosts: Vec<_> = jobs.iter().map(|job| job.host.clone()).collect();
        hosts.sort();
        hosts.dedup();
        assert_eq!(hosts.len(), jobs.len(), "one of each host at a time");
        assert!(jobs.iter().all(|job| job.validators == validators() && job.wake_at.is_some()));
        fleet.answered(&jobs, read).await;
        asked.extend(jobs.iter().map(|job| job.feed));
        fleet.clock.advance(GAP);
        fleet.drip().await;
    }
    asked.sort();
    assert_eq!(asked, (1..=6).map(FeedId).collect::<Vec<_>>());
    assert!(fleet.ops.store.requeues(true).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_held_host_is_asked_when_its_hold_ends_and_not_before() {
    let fleet = Fleet::new().await;
    let (one, two) = (fleet.add("https://a.org/1").await, fleet.add("https://a.org/2").await);
    let until = fleet.clock.now().after(Duration::from_secs(600));
    let jobs = fleet.dispatched().await;
    assert_eq!(jobs.iter().map(|job| job.feed).collect::<Vec<_>>(), [one]);
    fleet.answered(&jobs, |_| Outcome::Throttled { retry_after: Some(until) }).await;
    fleet.ops.gate.hold(&[(jobs[0].host.clone(), until)], fleet.clock.now()).await.unwrap();
    fleet.requeue_all(100.0).await;
    for _ in 0..11 {
        fleet.clock.advance(Duration::from_secs(50));
        fleet.drip().await;
        assert_eq!(fleet.dispatched_ids().await, []);
    }
    fleet.clock.advance(Duration::from_secs(60));
    let first = fleet.dispatched().await;
    fleet.answered(&first, read).await;
    fleet.clock.advance(GAP);
    let mut both: Vec<FeedId> = first.iter().map(|job| job.feed).chain(fleet.dispatched_ids().await).collect();
    both.sort();
    assert_eq!(both, [one, two]);
}

#[tokio::test]
async fn a_process_that_dies_half_way_leaves_the_rest_to_the_next_one() {
    let fleet = Fleet::new().await;
    for number in 0..6 {
        fleet.add(&format!("https://h{number}.org/")).await;
    }
    fleet.answered(&fleet.dispatched().await, read).await;
    fleet.requeue_all(3.0).await;
    fleet.clock.advance(Duration::from_secs(1));
    // Stored, and the process died before its schedule heard of it.
    let id = fleet.ops.store.requeues(true).await.unwrap()[0].id;
    assert_eq!(fleet.ops.store.step_requeue(id, fleet.clock.now()).await.unwrap().woken.len(), 3);
    let fleet = fleet.restart().await;
    fleet.clock.advance(GAP * 2);
    let first = fleet.dispatched().await;
    assert_eq!(first.len(), 3);
    fleet.answered(&first, read).await;
    fleet.drip().await;
    let second = fleet.dispatched().await;
    let mut asked: Vec<FeedId> = first.iter().chain(&second).map(|job| job.feed).collect();
    asked.sort();
    assert_eq!(asked, (1..=6).map(FeedId).collect::<Vec<_>>());
}

/// A clock on a machine so slow that time passes between any two looks at it.
struct Slow(Arc<ManualClock>);

impl Clock for Slow {
    fn now(&self) -> Timestamp {
        self.0.advance(Duration::from_millis(30))
    }
}

#[tokio::test]
async fn what_a_rate_allows_while_slow_steps_are_taken_is_not_lost() {
    let fleet = Fleet::new().await;
    const FEEDS: usize = 2_000;
    let added = (0..FEEDS).map(|number| AddFeed::of(format!("https://h{number}.org/").parse().unwrap()));
    fleet.ops.add(&added.collect::<Vec<_>>(), None).await.unwrap();
    fleet.requeue_all(10_000.0).await;
    fleet.clock.advance(Duration::from_millis(100));
    let (store, schedule) = (fleet.ops.store.clone(), fleet.ops.schedule.clone());
    let runner = RequeueRunner { store, schedule, condition: fleet.ops.condition.clone() };
    runner.round(&Slow(fleet.clock.clone())).await.unwrap();
    assert!(fleet.ops.store.requeues(true).await.unwrap().is_empty(), "all were woken in one round");
}
