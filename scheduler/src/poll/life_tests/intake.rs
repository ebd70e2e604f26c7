//! Reports that come late, cannot be stored, or carry holds, and loops that end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use common::faults::Faults;
use common::policy::Rule;
use common::queue::{Delivery, QueueDepth, QueueError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::poll::intake::probe;

const PATIENCE: Duration = Duration::from_secs(120);

/// A queue with something wrong.
pub(super) struct Faulty {
    queue: MemoryQueue<FetchReport>,
    /// `receive` panics.
    panics: bool,
    /// `depth` never answers.
    silent: AtomicBool,
    /// The first delivery arrived an hour ago.
    old: bool,
    pub(super) received: AtomicUsize,
}

impl Faulty {
    pub(super) fn new() -> Self {
        let (silent, received) = (AtomicBool::new(false), AtomicUsize::new(0));
        Faulty { queue: MemoryQueue::new(1 << 20), panics: false, silent, old: false, received }
    }
}

#[async_trait]
impl Queue<FetchReport> for Faulty {
    async fn publish(&self, items: &[FetchReport]) -> Result<(), QueueError> {
        self.queue.publish(items).await
    }

    async fn receive(&self) -> Result<Delivery<FetchReport>, QueueError> {
        assert!(!self.panics, "the test wants it");
        let delivery = self.queue.receive().await?;
        let first = self.received.fetch_add(1, Ordering::SeqCst) == 0;
        let hour_ago = Instant::now().checked_sub(Duration::from_secs(3600)).unwrap();
        Ok(if self.old && first { delivery.arrived_at(hour_ago) } else { delivery })
    }

    async fn pause(&self) {
        self.queue.pause().await;
    }

    async fn depth(&self) -> Result<QueueDepth, QueueError> {
        if self.silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.queue.depth().await
    }

    async fn check(&self) -> Result<(), QueueError> {
        Ok(())
    }
}

/// Settles reports as long as `meanwhile` takes.
pub(super) async fn settling<T>(fleet: &Fleet, meanwhile: impl Future<Output = T>) -> T {
    let stop = CancellationToken::new();
    let run = fleet.intake.run(&*fleet.clock, &stop);
    let ended = async {
        let ended = tokio::time::timeout(PATIENCE, meanwhile).await;
        stop.cancel();
        ended.expect("in time")
    };
    tokio::join!(run, ended).1
}

pub(super) async fn until(mut condition: impl AsyncFnMut() -> bool) {
    while !condition().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn over(store: Arc<dyn Store>, reports: Arc<Faulty>, config: Config) -> Fleet {
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    Fleet::with(config, store, clock, Arc::new(MemoryGate::new(Timestamp::EPOCH)), reports).await
}

pub(super) async fn memory() -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap())
}

#[tokio::test]
async fn a_scheduler_that_could_not_store_claims_again_although_no_report_comes() {
    let fleet = Fleet::new().await;
    let storing = &fleet.ops.condition.storing;
    storing.failed("the database was away".to_owned());
    settling(&fleet, until(async || storing.works())).await;
}

#[tokio::test]
async fn reports_in_hand_do_not_count_as_waiting_and_others_do() {
    let fleet = Fleet::new().await;
    fleet.add("http://a.example/").await;
    let report = report(&fleet.dispatched().await[0], fleet.clock.now(), not_modified());
    fleet.reports.publish(&[report]).await.unwrap();
    fleet.ops.condition.storing.failed("the database was away".to_owned());
    let probed = probe(fleet.results.clone(), false, fleet.clock.now()).await.unwrap();
    fleet.intake.judge(&probed, 0);
    assert!(!fleet.ops.condition.storing.works(), "one waits");
    fleet.ops.condition.storing.failed("the database was away again".to_owned());
    fleet.intake.judge(&probed, 1);
    assert!(!fleet.ops.condition.storing.works(), "that was asked before the last failure");
    let probed = probe(fleet.results.clone(), false, fleet.clock.now()).await.unwrap();
    fleet.intake.judge(&probed, 1);
    assert!(!fleet.ops.condition.storing.works(), "it is in hand, and the store may only answer");
    let probed = probe(fleet.results.clone(), true, fleet.clock.now()).await.unwrap();
    fleet.intake.judge(&probed, 1);
    assert!(fleet.ops.condition.storing.works(), "it is in hand, and others were stored");
}

#[tokio::test]
async fn settlements_go_on_while_the_queue_does_not_tell_its_depth() {
    let reports = Arc::new(Faulty::new());
    let fleet = over(memory().await, reports.clone(), config()).await;
    let ids = [fleet.add("http://a.example/").await, fleet.add("http://b.example/").await];
    fleet.ops.condition.storing.failed("the database was away".to_owned());
    reports.silent.store(true, Ordering::SeqCst);
    settling(&fleet, async {
        for id in ids {
            let version = fleet.feed(id).await.version;
            let host = fleet.feed(id).await.host;
            let report = FetchReport::of(id, version, host, fleet.clock.now(), not_modified());
            let report = fleet.signed(report).await;
            reports.publish(&[report]).await.unwrap();
            until(async || fleet.feed(id).await.version > version).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_hold_is_on_the_gate_before_its_report_can_be_settled() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feedfleet.db");
    let store = Arc::new(SqliteStore::open(&format!("sqlite://{}", path.display())).await.unwrap());
    let fleet = over(store, Arc::new(Faulty::new()), config()).await;
    let (slow, held) = (fleet.add("http://slow.example/").await, fleet.add("http://held.example/").await);
    let versions = [fleet.feed(slow).await.version, fleet.feed(held).await.version];
    // A scheduler makes a key before its first claim.
    fleet.ops.condition.proofs.ready(&*fleet.ops.store, fleet.clock.now()).await.unwrap();
    // Every other writer waits.
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    settling(&fleet, async {
        let now = fleet.clock.now();
        for (id, outcome) in [(slow, not_modified()), (held, Outcome::Throttled { retry_after: None })] {
            let feed = fleet.feed(id).await;
            let report = fleet.signed(FetchReport::of(id, feed.version, feed.host, now, outcome)).await;
            fleet.reports.publish(&[report]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        until(async || fleet.ops.gate.held(now).await.unwrap() == 1).await;
        let stored = [fleet.feed(slow).await.version, fleet.feed(held).await.version];
        assert_eq!(stored, versions, "nothing is settled yet");
        other.execute_batch("ROLLBACK").unwrap();
    })
    .await;
}

#[tokio::test]
async fn only_reports_whose_holds_a_part_that_is_away_must_take_wait_for_it_and_claims_continue() {
    let faults = Faults::at([]);
    let gate: Arc<dyn HostGate> = Arc::new(MemoryGate::new(Timestamp::EPOCH));
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let reports = Arc::new(Faulty::new());
    let gate = Arc::new(common::faults::Faulty::new(gate, &faults));
    let fleet = Fleet::with(config(), memory().await, clock, gate, reports.clone()).await;
    let [held, free] = [fleet.add("http://held.example/").await, fleet.add("http://free.example/").await];
    let mut batch = Vec::new();
    for job in fleet.dispatched().await {
        let throttled = Outcome::Throttled { retry_after: None };
        batch.push(fleet.work(&job, if job.feed == held { throttled } else { not_modified() }).await);
    }
    let version = batch[0].version;
    faults.part_away([fleet.feed(held).await.host]);
    // In one message: what belongs to other parts is settled, and what does not comes again.
    reports.publish(&batch).await.unwrap();
    let now = fleet.clock.now();
    settling(&fleet, async {
        until(async || fleet.feed(free).await.version > version).await;
        until(async || reports.received.load(Ordering::SeqCst) >= 5).await;
        assert!(fleet.ops.condition.storing.works(), "only a part is away");
        let unsettled = fleet.feed(held).await;
        assert_eq!((unsettled.version, unsettled.state.last_polled), (version, None));
        assert_eq!(fleet.ops.gate.held(now).await.unwrap(), 0);
        let next = fleet.add("http://next.example/").await;
        assert_eq!(fleet.dispatched_ids().await, [next], "claims continue");
        faults.part_away([]);
        until(async || fleet.feed(held).await.version > version).await;
    })
    .await;
    assert_eq!(fleet.ops.gate.held(now).await.unwrap(), 1);
    assert_eq!(reports.depth().await.unwrap().items, 0);
}

#[tokio::test]
async fn a_stored_hold_that_a_part_could_not_take_is_put_on_it_as_soon_as_it_is_back() {
    let faults = Faults::at([]);
    let gate: Arc<dyn HostGate> = Arc::new(MemoryGate::new(Timestamp::EPOCH));
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let gate = Arc::new(common::faults::Faulty::new(gate, &faults));
    let fleet = Fleet::with(config(), memory().await, clock, gate, Arc::new(Faulty::new())).await;
    let id = fleet.add("http://held.example/").await;
    let job = &fleet.dispatched().await[0];
    let throttled = fleet.work(job, Outcome::Throttled { retry_after: None }).await;
    let (host, now) = (fleet.feed(id).await.host, fleet.clock.now());
    // The part went away after the report was received.
    faults.part_away([host]);
    fleet.settle(throttled).await;
    assert_eq!(fleet.ops.gate.held(now).await.unwrap(), 0);
    let stop = CancellationToken::new();
    let reconciled = fleet.reconciler.run(&*fleet.clock, &stop);
    let back = async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(fleet.ops.gate.held(now).await.unwrap(), 0, "it is still away");
        faults.part_away([]);
        until(async || fleet.ops.gate.held(now).await.unwrap() == 1).await;
    };
    let in_time = async {
        let ended = tokio::time::timeout(Duration::from_secs(30), back).await;
        stop.cancel();
        ended
    };
    let (_, ended) = tokio::join!(reconciled, in_time);
    ended.expect("before the stored holds are loaded anyway");
}

#[tokio::test]
async fn a_report_that_waited_here_for_too_long_is_returned_and_settled_afresh() {
    for old in [true, false] {
        let reports = Arc::new(Faulty { old, ..Faulty::new() });
        let fleet = over(memory().await, reports.clone(), config()).await;
        let id = fleet.add("http://a.example/").await;
        let job = &fleet.dispatched().await[0];
        reports.publish(&[report(job, fleet.clock.now(), not_modified())]).await.unwrap();
        settling(&fleet, until(async || fleet.feed(id).await.version > job.version)).await;
        assert_eq!(reports.received.load(Ordering::SeqCst), 1 + usize::from(old));
        // What went back may carry a hold: a new gate stays closed for a while.
        let gate = &fleet.ops.condition.gate;
        assert_eq!(gate.took_all_reports_before(Timestamp::EPOCH), !old);
    }
}

#[tokio::test]
async fn a_loop_that_panics_ends_the_scheduler_and_says_which() {
    let reports = Arc::new(Faulty { panics: true, ..Faulty::new() });
    let backends = Backends { reports, ..Backends::in_memory(memory().await) };
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let scheduler = Arc::new(Scheduler::new(&backends, &Arc::new(config()), &Arc::new(Metrics::new()), &clock));
    let ended = tokio::time::timeout(PATIENCE, scheduler.run(&CancellationToken::new())).await.expect("it ends");
    assert_eq!(ended.unwrap_err().to_string(), "the scheduler's results loop ended before shutdown");
}

/// Returns a fleet whose due times have no random part, and what it waits between two polls.
pub(super) async fn unsalted() -> (Fleet, Duration) {
    let mut config = config();
    config.policy.salt = 0.0;
    let fleet = over(memory().await, Arc::new(Faulty::new()), config).await;
    let id = fleet.add("http://like-all-others.example/").await;
    let job = &fleet.dispatched().await[0];
    let polled = fleet.work(job, not_modified()).await;
    fleet.settle(polled.clone()).await;
    let interval = fleet.feed(id).await.next_due.unwrap().since(polled.started);
    assert!(fleet.ops.erase(id).await.unwrap());
    (fleet, interval)
}

#[tokio::test]
async fn a_stale_report_of_a_later_request_keeps_its_server_from_being_asked_too_soon() {
    let (fleet, interval) = unsalted().await;
    let id = fleet.add("http://a.example/").await;
    let job = &fleet.dispatched().await[0];
    let first = fleet.work(job, not_modified()).await;
    // Its report could not be sent; the lease ended, and another worker fetched the feed.
    let later = fleet.clock.advance(interval * 10);
    let second = report(job, later, not_modified());
    fleet.settle(first).await;
    let due = later.after(interval.max(fleet.ops.config.fetch.deadline()));
    assert_eq!(fleet.feed(id).await.next_due, Some(due), "its interval ended long ago");
    fleet.settle(second).await;
    fleet.clock.advance(interval - Duration::from_millis(1));
    assert!(fleet.dispatched().await.is_empty(), "within an interval of the second request");
    fleet.clock.advance(Duration::from_millis(1));
    assert_eq!(fleet.dispatched_ids().await, [id]);
}

#[tokio::test]
async fn what_a_stale_report_proves_is_stored_and_outlasts_the_schedule() {
    let (fleet, interval) = unsalted().await;
    let id = fleet.add("http://a.example/").await;
    let job = &fleet.dispatched().await[0];
    let first = fleet.work(job, not_modified()).await;
    fleet.settle(first).await;
    let later = fleet.clock.advance(interval / 2);
    let second = report(job, later, not_modified());
    fleet.settle(second.clone()).await;
    let before = fleet.feed(id).await;
    assert_eq!(before.next_due, Some(later.after(interval)));
    assert_eq!(before.terms.last().map(|term| (term.rule, term.due)), Some((Rule::Late, later.after(interval))));
    fleet.settle(second).await;
    assert_eq!(fleet.feed(id).await, before, "the same once more");
    // Long after the leases that explain a difference.
    fleet.clock.advance(interval - Duration::from_millis(1));
    assert_eq!(fleet.reconciler.schedule_once(&*fleet.clock).await.unwrap(), 0);
    assert!(fleet.dispatched().await.is_empty());
    fleet.clock.advance(Duration::from_millis(1));
    assert_eq!(fleet.dispatched_ids().await, [id]);
}

#[tokio::test]
async fn of_two_requests_whose_reports_come_together_the_next_poll_counts_from_the_later_one() {
    for later_first in [false, true] {
        let (fleet, interval) = unsalted().await;
        let id = fleet.add("http://a.example/").await;
        let job = &fleet.dispatched().await[0];
        let first = fleet.work(job, not_modified()).await;
        let later = fleet.clock.advance(interval * 10);
        let mut both = vec![first, report(job, later, not_modified())];
        if later_first {
            both.reverse();
        }
        fleet.results.settle(both, later).await.unwrap();
        assert_eq!(fleet.feed(id).await.next_due, Some(later.after(interval)));
        assert_eq!(fleet.ops.metrics.stale_reports.get(), 1);
    }
}

#[tokio::test]
async fn where_the_queue_is_never_empty_a_lease_without_a_failure_is_enough() {
    let fleet = Fleet::new().await;
    fleet.add("http://a.example/").await;
    let report = report(&fleet.dispatched().await[0], fleet.clock.now(), not_modified());
    fleet.reports.publish(&[report]).await.unwrap();
    let (storing, scheduler) = (&fleet.ops.condition.storing, &fleet.ops.config.scheduler);
    tokio::time::pause();
    storing.failed("the database was away".to_owned());
    let lease = scheduler.queue_lease + scheduler.fetch_lease;
    for (passes, works) in [(lease, false), (Duration::from_millis(1), true)] {
        tokio::time::advance(passes).await;
        let probed = probe(fleet.results.clone(), true, fleet.clock.now()).await.unwrap();
        fleet.intake.judge(&probed, 0);
        assert_eq!(storing.works(), works);
    }
}
