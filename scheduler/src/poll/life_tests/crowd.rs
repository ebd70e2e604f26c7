//! One host that owns half of all feeds: the other hosts' feeds do not wait for it, and each feed that waits there costs one
//! park and one unpark.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::document::Validators;
use common::host_gate::{AcquireRequest, Acquired, Isolation, Release, fresh_nonce};
use common::job::FetchJob;
use common::metrics::Metrics;
use common::queue::Queue;
use common::queue::memory::MemoryQueue;
use common::report::{FetchReport, Outcome};
use common::time::{Clock, ManualClock, Timestamp};
use common::url::FeedId;

use crate::ops::AddFeed;
use crate::run::{Backends, Scheduler};
use store::sqlite::SqliteStore;

use super::watched::Watched;

const OTHERS: usize = 300;
const STEP: Duration = Duration::from_millis(100);
/// Claimed at once: far fewer than are due.
const BATCH: usize = 50;

/// The outcome of a run.
struct Run {
    /// When each feed of another host was polled, since they all became due.
    lags: Vec<Duration>,
    crowd_asked: usize,
    parked: usize,
    unparked: usize,
}

/// All feeds are due at once; each fetch takes a step of the clock.
async fn run(crowd: usize, time: Duration) -> Run {
    let mut config = common::config::defaults();
    config.policy.hot_minutes = false;
    config.scheduler.claim_batch = BATCH;
    let start = Timestamp::from_millis(1_790_000_000_000);
    let clock = Arc::new(ManualClock::new(start));
    let schedule = Arc::new(Watched::default());
    let jobs: Arc<MemoryQueue<FetchJob>> = Arc::new(MemoryQueue::new(8 << 20));
    let backends = Backends {
        schedule: schedule.clone(),
        jobs: jobs.clone(),
        reports: Arc::new(MemoryQueue::new(8 << 20)),
        ..Backends::in_memory(Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap()))
    };
    let clock_for_all: Arc<dyn Clock> = clock.clone();
    let scheduler = Scheduler::new(&backends, &Arc::new(config), &Arc::new(Metrics::new()), &clock_for_all);
    assert!(scheduler.reconciler.open_gate(&*clock).await.unwrap());
    // The crowd first: by number it comes before all others.
    let names = (0..crowd).map(|n| format!("http://crowd.example/{n}"));
    let urls = names.chain((0..OTHERS).map(|n| format!("http://host{n}.example/feed")));
    let feed = |url: String| AddFeed::of(url.parse().unwrap());
    scheduler.ops.add(&urls.map(feed).collect::<Vec<_>>(), None).await.unwrap();

    let mut asked: HashMap<FeedId, Timestamp> = HashMap::new();
    let mut crowd_asked = 0;
    while clock.now().since(start) < time {
        let now = clock.now();
        while scheduler.dispatcher.round(now, usize::MAX).await.unwrap().claimed > 0 {}
        clock.advance(STEP);
        let mut reports = Vec::new();
        while jobs.depth().await.unwrap().items > 0 {
            let delivery = jobs.receive().await.unwrap();
            for job in &delivery.items {
                if job.host.to_string().starts_with("crowd") {
                    crowd_asked += 1;
                } else {
                    asked.entry(job.feed).or_insert(now);
                }
                reports.push(fetch(&scheduler, job, clock.now()).await);
            }
            delivery.ack().await.unwrap();
        }
        scheduler.results.settle(reports, clock.now()).await.unwrap();
    }
    assert_eq!(asked.len(), OTHERS);
    Run {
        lags: asked.values().map(|at| at.since(start)).collect(),
        crowd_asked,
        parked: schedule.parked.load(Ordering::Relaxed),
        unparked: schedule.unparked.load(Ordering::Relaxed),
    }
}

async fn fetch(scheduler: &Scheduler, job: &FetchJob, now: Timestamp) -> FetchReport {
    let gate = &scheduler.ops.gate;
    let request = AcquireRequest {
        host: job.host.clone(),
        limits: scheduler.ops.rules.get().limits_of(&job.host),
        ticket: job.ticket,
        feed: job.feed,
        version: job.version,
        deadline: now.after(Duration::from_secs(30)),
        leased_until: Timestamp::EPOCH,
        nonce: fresh_nonce(),
        isolation: Isolation::None,
    };
    let Acquired::Granted(permit) = gate.acquire(&request, now).await.unwrap() else { panic!("not granted") };
    let remembered = Some(Duration::from_secs(240));
    gate.release(&permit, Release { remembered, next_start_in: None }, now).await.unwrap();
    let outcome = Outcome::NotModified { validators: Validators::default() };
    FetchReport::of(job.feed, job.version, job.host.clone(), now, outcome)
}

#[tokio::test]
async fn a_host_with_half_of_all_feeds_delays_nobody_else_and_a_waiting_feed_costs_one_park() {
    let time = Duration::from_secs(60);
    let alone = run(0, time).await;
    let crowded = run(OTHERS, time).await;
    let worst = |run: &Run| run.lags.iter().max().copied().unwrap();
    assert_eq!(worst(&crowded), worst(&alone));
    // A request a second, from the first moment on.
    assert!((55..=60).contains(&crowded.crowd_asked), "{}", crowded.crowd_asked);
    // All but the first wait; one of them is called too early once, because the first request left later than it was
    // reserved for.
    let waiting = OTHERS - 1;
    let parked = crowded.parked - alone.parked;
    assert!((waiting..=waiting + 1).contains(&parked), "{parked}");
    assert!(crowded.unparked - alone.unparked <= crowded.crowd_asked, "{}", crowded.unparked - alone.unparked);
}
