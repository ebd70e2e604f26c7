//! Reports that come after their permits have ended.

use std::sync::atomic::Ordering;

use common::document::Document;
use common::entry::Entry;
use common::faults::{Fault, Faults, Faulty};
use common::host_gate::Acquired;

use super::intake::{self, settling, unsalted, until};
use super::*;
use crate::poll::late;

/// Longer than the gate remembers that a version was reported.
const FORGOTTEN: Duration = Duration::from_secs(241);

#[tokio::test]
async fn after_a_late_report_the_report_of_a_second_fetch_is_waited_for() {
    let (fleet, interval) = unsalted().await;
    let id = fleet.add("http://a.example/").await;
    let job = &fleet.dispatched().await[0];
    let first = fleet.work(job, not_modified()).await;
    fleet.clock.advance(interval * 10);
    fleet.settle(first).await;
    assert!(fleet.dispatched().await.is_empty());
    let wait = interval.max(fleet.ops.config.fetch.deadline());
    let due = fleet.clock.now().after(wait);
    assert_eq!(fleet.feed(id).await.next_due, Some(due), "in the store, in case the schedule is lost");
    fleet.clock.advance(wait);
    assert_eq!(fleet.dispatched_ids().await, [id]);
}

#[tokio::test]
async fn a_report_that_comes_after_its_permit_has_ended_plans_the_next_poll_from_its_arrival() {
    let (fleet, interval) = unsalted().await;
    let deadline = fleet.ops.config.fetch.deadline();
    assert!(interval > deadline);
    for (wait, late) in [(deadline, false), (deadline + Duration::from_millis(1), true)] {
        let id = fleet.add(&format!("http://{late}.example/")).await;
        let job = &fleet.dispatched().await[0];
        let first = fleet.work(job, not_modified()).await;
        let asked = first.started;
        // Its report waits; if the schedule has lost its lease, another job for the feed may be in flight when its permit has ended.
        let now = fleet.clock.advance(wait);
        fleet.settle(first).await;
        let due = if late { now } else { asked }.after(interval);
        assert_eq!(fleet.feed(id).await.next_due, Some(due));
    }
}

#[tokio::test]
async fn a_job_for_a_version_whose_report_was_stored_late_is_not_granted_when_the_gate_has_forgotten_it() {
    for (failed_over, outcome) in [(false, not_modified()), (true, not_modified()), (false, Outcome::Gone)] {
        let fleet = Fleet::new().await;
        fleet.add("http://a.example/").await;
        let first = &fleet.dispatched().await[0];
        let late = fleet.work(first, outcome).await;
        // Nobody can store reports, until the gate has forgotten this one.
        fleet.clock.advance(FORGOTTEN);
        if failed_over {
            fleet.ops.store.begin_epoch().await.unwrap();
        }
        let second = &fleet.dispatched().await[0];
        assert_eq!((second.version, second.epochs > first.epochs), (first.version, failed_over));
        fleet.settle(late).await;
        assert_eq!(fleet.acquired(second).await, Acquired::Reported);
    }
}

#[tokio::test]
async fn a_late_report_is_not_stored_while_the_gate_cannot_be_told_that_its_version_was_reported() {
    let late_report = async |planned: Option<usize>| {
        let faults = Faults::at(planned.map(|call| (call, Fault::Before)));
        let gate: Arc<dyn HostGate> = Arc::new(MemoryGate::new(Timestamp::EPOCH));
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
        let gate = Arc::new(Faulty::new(gate, &faults));
        let fleet = Fleet::with(
            config(),
            Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap()),
            clock,
            gate,
            Arc::new(MemoryQueue::new(1 << 20)),
        )
        .await;
        let id = fleet.add("http://a.example/").await;
        let late = fleet.work(&fleet.dispatched().await[0], not_modified()).await;
        fleet.clock.advance(FORGOTTEN);
        let second = fleet.dispatched().await.remove(0);
        (fleet, faults, id, late, second)
    };
    let (_, faults, ..) = late_report(None).await;
    let (fleet, faults, id, late, second) = late_report(Some(faults.calls())).await;
    let now = fleet.clock.now();
    assert_eq!(fleet.results.settle(vec![late.clone()], now).await.unwrap(), std::slice::from_ref(&late));
    assert_eq!(faults.struck()[0].1, "release");
    assert_eq!(fleet.feed(id).await.state.last_polled, None);
    fleet.settle(late).await;
    assert!(fleet.feed(id).await.state.last_polled.is_some());
    assert_eq!(fleet.acquired(&second).await, Acquired::Reported);
}

/// Returns a fleet over a gate that can be away in part.
async fn in_parts(reports: Arc<dyn Queue<FetchReport>>) -> (Fleet, Arc<Faults>) {
    let faults = Faults::at([]);
    let gate: Arc<dyn HostGate> = Arc::new(Faulty::new(Arc::new(MemoryGate::new(Timestamp::EPOCH)) as _, &faults));
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let store = Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap());
    (Fleet::with(config(), store, clock, gate, reports).await, faults)
}

#[tokio::test]
async fn a_late_report_that_waits_for_a_part_of_the_gate_comes_again_alone_and_is_counted_once() {
    let reports = Arc::new(intake::Faulty::new());
    let (fleet, faults) = in_parts(reports.clone()).await;
    let [waits, pushed] = [fleet.add("http://a.example/").await, fleet.add("http://b.example/").await];
    let jobs = fleet.dispatched().await;
    let late = fleet.work(&jobs[0], not_modified()).await;
    let entries = vec![Entry { id: "1".to_owned(), ..Entry::default() }];
    let read = Outcome::Modified(Box::new(Document { entries, ..Document::default() }));
    fleet.clock.advance(FORGOTTEN);
    let delivered = FetchReport { pushed: true, ..report(&jobs[1], fleet.clock.now(), read) };
    let delivered = fleet.signed(delivered).await;
    faults.part_away([fleet.feed(waits).await.host]);
    // In one message.
    reports.publish(&[late.clone(), delivered]).await.unwrap();
    settling(&fleet, async {
        until(async || fleet.feed(pushed).await.entries > 0).await;
        until(async || reports.received.load(Ordering::SeqCst) >= 5).await;
        let waiting = fleet.feed(waits).await;
        assert_eq!((waiting.version, waiting.state.last_polled), (late.version, None), "it waits");
        assert_eq!(fleet.feed(pushed).await.wake_at, None, "what came beside it does not come again");
        assert_eq!(fleet.ops.metrics.stale_reports.get(), 0);
        faults.part_away([]);
        until(async || fleet.feed(waits).await.version > late.version).await;
    })
    .await;
    assert_eq!(reports.depth().await.unwrap().items, 0);
}

#[tokio::test]
async fn a_late_report_of_a_fetch_that_continued_elsewhere_is_remembered_there() {
    let (fleet, faults) = in_parts(Arc::new(MemoryQueue::new(1 << 20))).await;
    fleet.add("http://a.example/").await;
    let until = fleet.clock.now().after(GAP);
    let job = &fleet.dispatched().await[0];
    let interrupted = redirects::interrupted(&fleet, job, until).await;
    fleet.settle(interrupted).await;
    fleet.clock.advance(GAP);
    let job = &fleet.dispatched().await[0];
    assert_eq!(job.host.name(), "hub.example");
    let late = fleet.work(job, not_modified()).await;
    fleet.clock.advance(FORGOTTEN);
    let second = &fleet.dispatched().await[0];
    faults.part_away([job.host.clone()]);
    let now = fleet.clock.now();
    assert_eq!(
        fleet.results.settle(vec![late.clone()], now).await.unwrap(),
        std::slice::from_ref(&late),
        "it waits for that host"
    );
    faults.part_away([]);
    fleet.settle(late).await;
    assert_eq!(fleet.acquired(second).await, Acquired::Reported);
}

#[tokio::test]
async fn only_a_request_after_the_one_that_planned_a_live_feed_proves_anything() {
    let (fleet, _) = unsalted().await;
    let id = fleet.add("http://a.example/").await;
    let job = fleet.dispatched().await.remove(0);
    fleet.settle(fleet.work(&job, not_modified()).await).await;
    let feed = fleet.feed(id).await;
    let planned_by = feed.state.last_polled.unwrap();
    let interval = feed.next_due.unwrap().since(planned_by);
    let later = planned_by.after(Duration::from_secs(60));
    let proves = |feed: &Feed, outcome: Outcome| late::due_after_stale(feed, &report(&job, later, outcome));
    assert_eq!(proves(&feed, not_modified()), Some(later.after(interval)));
    assert_eq!(proves(&feed, Outcome::Deferred { until: later }), None, "nothing was requested");
    assert_eq!(proves(&Feed { status: Status::Paused, ..feed.clone() }, not_modified()), None);
    let page = FetchReport { page: true, ..report(&job, later, not_modified()) };
    assert_eq!(late::due_after_stale(&feed, &page), None, "of its archive");

    let [first, second] = [report(&job, planned_by, not_modified()), report(&job, later, not_modified())];
    let deferred = report(&job, later.after(interval), Outcome::Deferred { until: later });
    let latest = late::latest_requests(&[second, first, deferred]);
    assert_eq!(latest.into_values().collect::<Vec<_>>(), [later]);
}
