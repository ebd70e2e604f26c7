//! Calls that fail in the middle of a round.

use common::faults::{Fault, Faults, Faulty};

use super::*;

#[tokio::test]
async fn jobs_that_are_in_the_queue_stay_hidden_when_others_of_their_round_could_not_be_published() {
    let mut fleet = Fleet::new().await;
    let batch = fleet.dispatcher.config.worker.job_batch;
    let mut feeds = Vec::new();
    for n in 0..batch + 3 {
        feeds.push(fleet.add(&format!("https://h{n}.org/feed")).await);
    }
    // The queue's depth is asked for first, then come the messages.
    let faults = Faults::at([(2, Fault::Before)]);
    let queue: Arc<dyn Queue<FetchJob>> = fleet.jobs.clone();
    fleet.dispatcher.jobs = Arc::new(Faulty::new(queue, &faults));
    fleet.dispatcher.round(fleet.clock.now(), usize::MAX).await.unwrap_err();
    assert_eq!(faults.struck().len(), 1);
    let published = fleet.jobs.receive().await.unwrap();
    let hidden: Vec<FeedId> = published.items.iter().map(|job| job.feed).collect();
    assert_eq!(hidden.len(), batch);
    published.ack().await.unwrap();
    // The claims of those that were not published end soon, and theirs alone.
    fleet.clock.advance(fleet.dispatcher.config.scheduler.claim_lease + GAP);
    let mut again = fleet.dispatched_ids().await;
    again.sort_unstable();
    feeds.retain(|feed| !hidden.contains(feed));
    assert_eq!(again, feeds);
}

#[tokio::test]
async fn a_late_report_does_not_put_off_a_feed_that_a_person_has_just_wanted_polled() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    let first = &fleet.dispatched().await[0];
    let report = fleet.work(first, not_modified()).await;
    fleet.settle(report).await;
    let next = fleet.feed(id).await.next_due.unwrap();
    fleet.clock.advance(next.since(fleet.clock.now()));
    let second = &fleet.dispatched().await[0];
    let late = fleet.work(second, not_modified()).await;
    fleet.clock.advance(GAP);
    let pause = store::FeedChange { status: Some(Status::Paused), ..Default::default() };
    fleet.ops.store.change_feed(id, &pause, fleet.clock.now()).await.unwrap();
    fleet.ops.try_once(&fleet.feed(id).await, fleet.clock.now()).await.unwrap();
    fleet.settle(late).await;
    // The lease of the fetch before ends.
    fleet.clock.advance(Duration::from_secs(120));
    assert_eq!(fleet.dispatched_ids().await, [id]);
}

#[tokio::test]
async fn only_a_stored_report_counts_as_progress() {
    let fleet = Fleet::new().await;
    fleet.add("http://a.example/feed").await;
    let job = &fleet.dispatched().await[0];
    let watchdog = &fleet.results.condition.watchdog;
    std::thread::sleep(Duration::from_millis(1));
    assert!(watchdog.judge(GAP, Duration::from_nanos(1)));
    let report = fleet.work(job, not_modified()).await;
    let stale = FetchReport { version: Version(99), ..report.clone() };
    let deferred = FetchReport { outcome: Outcome::Deferred { until: fleet.clock.now() }, ..report.clone() };
    for useless in [stale, deferred] {
        fleet.settle(useless).await;
        assert!(watchdog.alarm().is_some());
    }
    fleet.settle(report).await;
    assert_eq!(watchdog.alarm(), None);
}
