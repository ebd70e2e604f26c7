//! The scheduler's half of a feed's life over the embedded backends, with a stopped clock: every row of the crash table
//! that does not need a real process to die.

mod archives;
mod crowd;
mod edits;
mod faults;
mod hosts;
mod intake;
mod late;
mod logins;
mod logs;
mod moves;
mod names;
mod parts;
mod pause;
mod proofs;
mod quarantine;
mod redirects;
mod refreshes;
mod refusals;
mod requeue;
mod rules;
mod watchdog;
mod watched;

use std::sync::Arc;
use std::time::Duration;

use common::config::Config;
use common::document::Validators;
use common::feed::Feed;
use common::host_gate::HostGate;
use common::host_gate::memory::MemoryGate;
use common::job::FetchJob;
use common::metrics::Metrics;
use common::outcome::FailureKind;
use common::policy::{Audience, Status};
use common::push::PushedBody;
use common::queue::Queue;
use common::queue::memory::MemoryQueue;
use common::report::{FetchReport, Outcome};
use common::time::{Clock, ManualClock, Timestamp};
use common::url::{FeedId, Version};

use crate::ops::{AddFeed, Ops};
use crate::poll::dispatch::{Dispatcher, Round};
use crate::poll::intake::Intake;
use crate::poll::results::Results;
use crate::run::{Backends, Scheduler};
use crate::upkeep::reconcile::Reconciler;
use store::sqlite::SqliteStore;
use store::{FeedRef, Store};

/// A scheduler without loops: the test runs each step.
struct Fleet {
    ops: Arc<Ops>,
    dispatcher: Dispatcher,
    results: Arc<Results>,
    intake: Intake,
    reconciler: Reconciler,
    jobs: Arc<MemoryQueue<FetchJob>>,
    reports: Arc<dyn Queue<FetchReport>>,
    clock: Arc<ManualClock>,
}

const GAP: Duration = Duration::from_secs(1);

fn config() -> Config {
    let mut config = common::config::defaults();
    config.policy.hot_minutes = false;
    config
}

impl Fleet {
    async fn new() -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
        let store = Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap());
        Self::over(config(), store, clock, Timestamp::EPOCH).await
    }

    /// Returns a process that finds this store: schedule, gate and queues are empty.
    async fn over(config: Config, store: Arc<dyn Store>, clock: Arc<ManualClock>, born: Timestamp) -> Self {
        let reports = Arc::new(MemoryQueue::new(1 << 20));
        Self::with(config, store, clock, Arc::new(MemoryGate::new(born)), reports).await
    }

    /// The same, with this gate and this queue of reports.
    async fn with(
        config: Config,
        store: Arc<dyn Store>,
        clock: Arc<ManualClock>,
        gate: Arc<dyn HostGate>,
        reports: Arc<dyn Queue<FetchReport>>,
    ) -> Self {
        Self::of(config, Backends { gate, reports, ..Backends::in_memory(store) }, clock).await
    }

    /// The same, over these backends but for the queue of jobs.
    async fn of(config: Config, backends: Backends, clock: Arc<ManualClock>) -> Self {
        let (jobs, reports) = (Arc::new(MemoryQueue::new(1 << 20)), backends.reports.clone());
        let backends = Backends { jobs: jobs.clone(), ..backends };
        let clock_for_all: Arc<dyn Clock> = clock.clone();
        let scheduler = Scheduler::new(&backends, &Arc::new(config), &Arc::new(Metrics::new()), &clock_for_all);
        let Scheduler { ops, dispatcher, results, intake, reconciler, .. } = scheduler;
        reconciler.rebuild(&*clock).await.unwrap();
        assert!(reconciler.open_gate(&*clock).await.unwrap());
        Fleet { ops, dispatcher, results, intake, reconciler, jobs, reports, clock }
    }

    /// One over a file, into which faults are put; the file goes with the folder.
    async fn over_a_file() -> (Self, rusqlite::Connection, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("feedfleet.db");
        let store = Arc::new(SqliteStore::open(&format!("sqlite://{}", path.display())).await.unwrap());
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
        let fleet = Self::over(config(), store, clock, Timestamp::EPOCH).await;
        (fleet, rusqlite::Connection::open(&path).unwrap(), folder)
    }

    /// The same store, found by a new process.
    async fn restart(self) -> Self {
        let born = self.clock.now();
        Self::over(config(), self.ops.store.clone(), self.clock, born).await
    }

    async fn add(&self, url: &str) -> FeedId {
        let feed = AddFeed::of(url.parse().unwrap());
        self.ops.add(&[feed], None).await.unwrap()[0].id
    }

    async fn feed(&self, id: FeedId) -> Feed {
        self.ops.feed(&FeedRef::Id(id)).await.unwrap().unwrap()
    }

    /// Runs one dispatch round; returns the jobs that it published, acked.
    async fn dispatched(&self) -> Vec<FetchJob> {
        self.dispatcher.round(self.clock.now(), usize::MAX).await.unwrap();
        let mut jobs = Vec::new();
        while self.jobs.depth().await.unwrap().items > 0 {
            let delivery = self.jobs.receive().await.unwrap();
            jobs.extend(delivery.items.clone());
            delivery.ack().await.unwrap();
        }
        jobs
    }

    async fn dispatched_ids(&self) -> Vec<FeedId> {
        self.dispatched().await.iter().map(|job| job.feed).collect()
    }

    async fn settle(&self, report: FetchReport) {
        assert_eq!(self.results.settle(vec![report], self.clock.now()).await.unwrap(), [], "nothing waits");
    }

    /// Redeems a job's ticket as a worker does, and reports.
    async fn work(&self, job: &FetchJob, outcome: Outcome) -> FetchReport {
        use common::host_gate::{Acquired, Release};
        let now = self.clock.now();
        let Acquired::Granted(permit) = self.acquired(job).await else { panic!("not granted") };
        let remembered = Some(Duration::from_secs(240));
        self.ops.gate.release(&permit, Release { remembered, next_start_in: None }, now).await.unwrap();
        report(job, now, outcome)
    }

    /// Redeems a job's ticket as a worker does.
    async fn acquired(&self, job: &FetchJob) -> common::host_gate::Acquired {
        use common::host_gate::{AcquireRequest, Isolation, fresh_nonce};
        let now = self.clock.now();
        let request = AcquireRequest {
            host: job.host.clone(),
            limits: self.ops.rules.get().limits_of(&job.host),
            ticket: job.ticket,
            feed: job.feed,
            version: job.gate_version(),
            deadline: now.after(Duration::from_secs(30)),
            leased_until: job.expires.after(self.ops.config.scheduler.fetch_lease),
            nonce: fresh_nonce(),
            isolation: Isolation::None,
        };
        self.ops.gate.acquire(&request, now).await.unwrap()
    }

    /// Returns the report as the worker sends it that was given this very job.
    async fn signed(&self, report: FetchReport) -> FetchReport {
        let FetchReport { feed, version, host, answers_wake: wake_at, .. } = report.clone();
        let expires = report.started.after(Duration::from_secs(60));
        let pushed = report.pushed.then(|| Box::new(PushedBody { content_type: None, body: Vec::new() }));
        let any = common::queue::conformance::job(report.feed.0);
        let mut job = [FetchJob { feed, version, host, wake_at, expires, pushed, ..any }];
        self.ops.condition.proofs.sign(&mut job, &*self.ops.store, report.started).await.unwrap();
        FetchReport { mac: job[0].mac.clone(), ..report }
    }
}

fn report(job: &FetchJob, started: Timestamp, outcome: Outcome) -> FetchReport {
    FetchReport {
        duration: Duration::from_millis(20),
        answers_wake: job.wake_at,
        mac: job.mac.clone(),
        ..FetchReport::of(job.feed, job.version, job.host.clone(), started, outcome)
    }
}

fn not_modified() -> Outcome {
    Outcome::NotModified { validators: Validators::default() }
}

#[tokio::test]
async fn a_feed_added_by_hand_is_a_job_at_once_and_again_when_it_is_due() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    let jobs = fleet.dispatched().await;
    assert_eq!(jobs.len(), 1);
    assert!(fleet.dispatched().await.is_empty(), "hidden by its lease");
    let report = fleet.work(&jobs[0], not_modified()).await;
    fleet.settle(report).await;

    let feed = fleet.feed(id).await;
    assert_eq!(feed.version.0, jobs[0].version.0 + 1);
    let next = feed.next_due.unwrap();
    fleet.clock.advance(next.since(fleet.clock.now()) - Duration::from_millis(1));
    assert!(fleet.dispatched().await.is_empty());
    fleet.clock.advance(Duration::from_millis(1));
    assert_eq!(fleet.dispatched_ids().await, [id]);
}

#[tokio::test]
async fn a_report_that_comes_twice_changes_nothing_the_second_time() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    let job = &fleet.dispatched().await[0];
    let report = fleet.work(job, not_modified()).await;
    fleet.settle(report.clone()).await;
    let once = fleet.feed(id).await;
    fleet.clock.advance(Duration::from_secs(5));
    fleet.settle(report).await;
    assert_eq!(fleet.feed(id).await, once);
}

#[tokio::test]
async fn a_report_that_comes_again_after_the_answer_to_its_storing_was_lost_ends_its_feeds_lease() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    let job = &fleet.dispatched().await[0];
    let report = fleet.work(job, not_modified()).await;
    fleet.settle(report.clone()).await;
    let next = fleet.feed(id).await.next_due.unwrap();
    // The scheduler took it for not stored, and left the feed to its lease.
    let hidden = crate::schedule::Slot { feed: id, due_at: next, band: crate::schedule::Band::Steady };
    fleet
        .ops
        .schedule
        .put(&[crate::schedule::Slot { due_at: fleet.clock.now(), ..hidden }], fleet.clock.now())
        .await
        .unwrap();
    let long = next.since(fleet.clock.now()) * 2;
    assert_eq!(fleet.ops.schedule.claim_due(fleet.clock.now(), 10, long).await.unwrap().len(), 1);
    fleet.settle(report).await;
    fleet.clock.advance(next.since(fleet.clock.now()) - Duration::from_millis(1));
    assert!(fleet.dispatched().await.is_empty());
    fleet.clock.advance(Duration::from_millis(1));
    assert_eq!(fleet.dispatched_ids().await, [id]);
}

#[tokio::test]
async fn a_version_that_a_failed_over_store_gives_out_again_is_not_taken_for_the_one_that_was_polled() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    // Polled; a standby that lags has lost the report.
    fleet.work(&fleet.dispatched().await[0], not_modified()).await;
    fleet.ops.store.begin_epoch().await.unwrap();
    let due = crate::schedule::Slot { feed: id, due_at: fleet.clock.now(), band: crate::schedule::Band::Steady };
    fleet.ops.schedule.put(&[due], fleet.clock.now()).await.unwrap();
    // Its host received a request, and receives the next one when the lease of the first job has ended.
    fleet.clock.advance(Duration::from_secs(120));
    let jobs = fleet.dispatched().await;
    let report = fleet.work(&jobs[0], not_modified()).await;
    fleet.settle(report).await;
    assert_eq!(fleet.feed(id).await.version.0, jobs[0].version.0 + 1);
}

#[tokio::test]
async fn died_after_claim_before_publish_the_lease_brings_the_feed_back() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    let claims = fleet.ops.schedule.claim_due(fleet.clock.now(), 10, Duration::from_secs(120)).await.unwrap();
    assert_eq!(claims.len(), 1);
    fleet.clock.advance(Duration::from_secs(119));
    assert!(fleet.dispatched().await.is_empty());
    fleet.clock.advance(Duration::from_secs(1));
    assert_eq!(fleet.dispatched_ids().await, [id]);
}

#[tokio::test]
async fn a_job_in_the_queue_hides_its_feed_for_the_whole_lease_and_not_only_for_the_claims() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    assert_eq!(fleet.dispatched_ids().await, [id], "and lost");
    fleet.clock.advance(Duration::from_secs(119));
    assert_eq!(fleet.dispatcher.round(fleet.clock.now(), usize::MAX).await.unwrap(), Round::default());
    fleet.clock.advance(Duration::from_secs(1));
    assert_eq!(fleet.dispatched_ids().await, [id]);
}

#[tokio::test]
async fn died_after_apply_before_rescheduling_the_stored_time_wins_and_nothing_is_polled() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    let job = &fleet.dispatched().await[0];
    let report = fleet.work(job, not_modified()).await;
    fleet.settle(report).await;
    // What a crash between the two leaves behind: the schedule still shows the end of the lease.
    let lease_end = fleet.clock.now().after(Duration::from_secs(120));
    let slot = crate::schedule::Slot { feed: id, due_at: lease_end, band: crate::schedule::Band::Steady };
    fleet.ops.schedule.put(&[slot], fleet.clock.now()).await.unwrap();
    fleet.clock.advance(Duration::from_secs(120));
    assert!(fleet.dispatched().await.is_empty());
    let next = fleet.feed(id).await.next_due.unwrap();
    fleet.clock.advance(next.since(fleet.clock.now()));
    assert_eq!(fleet.dispatched_ids().await, [id]);
}

#[tokio::test]
async fn a_deferred_moves_the_feed_and_nothing_else() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    let before = fleet.feed(id).await;
    let job = &fleet.dispatched().await[0];
    let until = fleet.clock.now().after(Duration::from_secs(40));
    fleet.settle(report(job, fleet.clock.now(), Outcome::Deferred { until })).await;
    assert_eq!(fleet.feed(id).await, before);
    fleet.clock.advance(Duration::from_secs(39));
    assert!(fleet.dispatched().await.is_empty());
    // The ticket of the deferred job ends with its `expires`; until then its host is busy.
    fleet.clock.advance(Duration::from_secs(22));
    assert_eq!(fleet.dispatched_ids().await, [id]);
}

#[tokio::test]
async fn a_wake_in_mid_fetch_is_answered_by_a_fetch_that_began_after_it() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    let job = &fleet.dispatched().await[0];
    let report = fleet.work(job, not_modified()).await;
    fleet.clock.advance(Duration::from_secs(3));
    assert_eq!(fleet.ops.wake(&[id]).await.unwrap(), 1);
    fleet.settle(report).await;
    let again = fleet.dispatched().await;
    assert_eq!(again.len(), 1, "the wake was lost");
    // At once: the fetch need not be later than the clocks' allowed difference, for the job knew of the wake.
    let report = fleet.work(&again[0], not_modified()).await;
    fleet.settle(report).await;
    assert_eq!(fleet.feed(id).await.wake_at, None);
    assert!(fleet.dispatched().await.is_empty());
}

#[tokio::test]
async fn a_feed_whose_row_cannot_be_read_stays_in_the_schedule_and_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feedfleet.db");
    let store = Arc::new(SqliteStore::open(&format!("sqlite://{}", path.display())).await.unwrap());
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let fleet = Fleet::over(config(), store, clock, Timestamp::EPOCH).await;
    let id = fleet.add("http://a.example/").await;
    let other = rusqlite::Connection::open(&path).unwrap();
    let set = |url: &str| other.execute("UPDATE feeds SET url = ?1", [url]).unwrap();
    set("no URL");
    assert!(fleet.dispatched().await.is_empty());
    let feeds = async || fleet.ops.schedule.depth(fleet.clock.now()).await.unwrap().feeds;
    assert_eq!((feeds().await, fleet.ops.metrics.unreadable_feeds.get()), (1, 1));
    // A person repairs it.
    set("http://a.example/");
    fleet.clock.advance(Duration::from_secs(600));
    assert_eq!(fleet.dispatched_ids().await, [id]);
}

#[tokio::test]
async fn nothing_is_claimed_while_the_job_queue_is_full() {
    let fleet = Fleet::new().await;
    fleet.add("http://a.example/").await;
    let mut full = config();
    full.scheduler.max_queued_jobs = 0;
    let fleet = Fleet::over(full, fleet.ops.store.clone(), fleet.clock, Timestamp::EPOCH).await;
    let round = fleet.dispatcher.round(fleet.clock.now(), usize::MAX).await.unwrap();
    assert_eq!(round, Round { queue_full: true, ..Round::default() });
    let depth = fleet.ops.schedule.depth(fleet.clock.now()).await.unwrap();
    assert_eq!((depth.due, depth.leased), (1, 0), "it was not hidden by a claim");
}

#[tokio::test]
async fn nothing_is_claimed_while_reports_cannot_be_stored() {
    let fleet = Fleet::new().await;
    fleet.add("http://a.example/").await;
    fleet.ops.condition.storing.failed("the disk is full".to_owned());
    assert!(fleet.dispatched().await.is_empty());
    fleet.ops.condition.storing.recovered();
    assert_eq!(fleet.dispatched().await.len(), 1);
}

#[tokio::test]
async fn reconcile_finds_what_a_lost_schedule_forgot_and_corrects_what_an_old_one_has_too_late() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/").await;
    fleet.ops.schedule.remove(&[id]).await.unwrap();
    assert!(fleet.dispatched().await.is_empty());
    assert_eq!(fleet.reconciler.schedule_once(&*fleet.clock).await.unwrap(), 1);
    assert_eq!(fleet.reconciler.schedule_once(&*fleet.clock).await.unwrap(), 0);
    assert_eq!(fleet.dispatched_ids().await, [id]);
}

#[tokio::test]
async fn failures_are_retried_later_and_later() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/").await;
    let mut last = Duration::ZERO;
    for _ in 0..8 {
        let job = &fleet.dispatched().await[0];
        let outcome = Outcome::Failed { failure: FailureKind::Timeout, detail: "no answer".into() };
        let started = fleet.clock.now();
        let report = fleet.work(job, outcome).await;
        fleet.settle(report).await;
        let next = fleet.feed(id).await.next_due.unwrap();
        assert!(next.since(started).mul_f64(1.11) >= last, "{last:?} then {:?}", next.since(started));
        last = next.since(started);
        fleet.clock.advance(last);
    }
    assert_eq!(fleet.feed(id).await.state.consecutive_failures, 8);
}

#[tokio::test]
async fn a_page_that_never_was_a_feed_is_left_for_the_feed_that_it_announces_and_only_once() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/").await;
    let page = async |announced: &str| {
        let job = &fleet.dispatched().await[0];
        let outcome = Outcome::Failed { failure: FailureKind::NotAFeed, detail: "a page".into() };
        let report = fleet.work(job, outcome).await;
        fleet.settle(FetchReport { announced: vec![announced.parse().unwrap()], ..report }).await;
        fleet.clock.advance(Duration::from_secs(3600 * 24));
        fleet.feed(id).await
    };
    let moved = page("http://b.example/feed").await;
    assert_eq!((moved.url.as_str(), moved.moved_from.as_deref()), ("http://b.example/feed", Some("http://a.example/")));
    let events = fleet.ops.store.events(0, 10).await.unwrap().items;
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["feed.added", "feed.moved"], "consumers see no failure of a page that leads to its feed");
    let again = page("http://c.example/").await;
    assert_eq!((again.url.as_str(), again.state.consecutive_failures), ("http://b.example/feed", 1));
    let job = &fleet.dispatched().await[0];
    assert_eq!((job.url.as_str(), job.host.as_str()), ("http://b.example/feed", "b.example:443"));
    let good = fleet.work(job, not_modified()).await;
    fleet.settle(good).await;
    fleet.clock.advance(Duration::from_secs(3600 * 24));
    assert_eq!(page("http://c.example/").await.url.as_str(), "http://b.example/feed");
}
