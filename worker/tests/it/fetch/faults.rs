//! The whole worker beside a gate and queues that fail at one given call, and workers that die over a feed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::config::Config;
use common::faults::{Fault, Faults, Faulty};
use common::host::HostRules;
use common::host_gate::memory::MemoryGate;
use common::host_gate::{GateUpkeep, HostGate, LoadMark, Nonces, Reservation, ReserveRequest, Ticket};
use common::job::FetchJob;
use common::live_rules::LiveRules;
use common::metrics::Metrics;
use common::outcome::FailureKind;
use common::queue::Queue;
use common::queue::memory::MemoryQueue;
use common::report::{FetchReport, Outcome};
use common::time::{Clock, ClockWatch, SystemClock, Timestamp};
use common::url::{FeedId, FeedUrl, Version};
use load_tests::{Feed, Origin, Script};
use tokio_util::sync::CancellationToken;
use worker::fetch::Fetcher;
use worker::own_holds::OwnHolds;
use worker::poll::Poller;
use worker::run::Worker;

/// How long anything may take: far beyond what a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a scheduler and its servers are to a worker: jobs are published, and again when they are deferred.
struct World {
    origin: Origin,
    config: Arc<Config>,
    gate: Arc<dyn HostGate>,
    jobs: Arc<dyn Queue<FetchJob>>,
    reports: Arc<dyn Queue<FetchReport>>,
}

impl World {
    async fn start() -> Self {
        let origin = Origin::listen(&load_tests::loopback(1, 0)).await.unwrap();
        let mut config: Config = common::config::load(None, std::iter::empty(), &[]).unwrap().config;
        config.fetch.allow_networks = vec!["127.0.0.0/8".parse().unwrap()];
        config.fetch.allow_ports = vec!["1-65535".to_owned()];
        config.fetch.timeout = Duration::from_secs(3);
        config.host_rule.clear();
        (config.host.gap, config.host.parallel) = (Duration::ZERO, 100);
        let gate = MemoryGate::new(Timestamp::EPOCH);
        gate.open(&LoadMark(String::new()), SystemClock.now()).await.unwrap();
        World {
            origin,
            config: Arc::new(config),
            gate: Arc::new(gate),
            jobs: Arc::new(MemoryQueue::new(1 << 20)),
            reports: Arc::new(MemoryQueue::new(1 << 20)),
        }
    }

    /// Returns a worker that has these faults in front of its gate and of its queue of reports.
    fn worker(&self, faults: &Arc<Faults>) -> Worker {
        let rules = HostRules::new(self.config.host.clone(), Vec::new());
        let poller = Poller {
            fetcher: Box::new(Fetcher::new(&self.config.fetch, &rules).unwrap()),
            gate: Arc::new(Faulty::new(Arc::clone(&self.gate), faults)),
            rules: Arc::new(LiveRules::new(&self.config)),
            config: Arc::clone(&self.config),
            clock: Arc::new(SystemClock),
            metrics: Arc::new(Metrics::new()),
            secrets: Arc::default(),
            watch: ClockWatch::default(),
            nonces: Nonces::default(),
            own_holds: OwnHolds::default(),
        };
        let reports = Arc::new(Faulty::new(Arc::clone(&self.reports), faults));
        Worker { poller: Arc::new(poller), jobs: Arc::clone(&self.jobs), reports }
    }

    /// Publishes a job for the feed at this path, as soon as its host has a place.
    async fn dispatch(&self, feed: i64, path: &str) {
        let url: FeedUrl = self.origin.url(path).parse().unwrap();
        let rules = HostRules::new(self.config.host.clone(), Vec::new());
        let host = rules.for_url(url.as_url());
        let begun = Instant::now();
        let (ticket, expires) = loop {
            assert!(begun.elapsed() < PATIENCE, "the host never has a place");
            let now = SystemClock.now();
            let expires = now.after(Duration::from_secs(10));
            let request = ReserveRequest { host: host.key.clone(), limits: host.limits, expires };
            match self.gate.reserve(&[request], now).await.unwrap()[0] {
                Reservation::Ticket(ticket) => break (ticket, expires),
                Reservation::Refused { .. } => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        self.jobs.publish(&[job(feed, url, host.key, ticket, expires)]).await.unwrap();
    }

    /// Returns the next report, in the end.
    async fn report(&self) -> FetchReport {
        let received = tokio::time::timeout(PATIENCE, self.reports.receive()).await.expect("a report in the end");
        let delivery = received.unwrap();
        let report = delivery.items[0].clone();
        assert_eq!(delivery.items.len(), 1);
        delivery.ack().await.unwrap();
        report
    }

    /// Dispatches a feed until it is not deferred any more; returns that report.
    async fn polled(&self, path: &str) -> FetchReport {
        loop {
            self.dispatch(1, path).await;
            let report = self.report().await;
            if !matches!(report.outcome, Outcome::Deferred { .. }) {
                return report;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

fn job(feed: i64, url: FeedUrl, host: common::host::HostKey, ticket: Ticket, expires: Timestamp) -> FetchJob {
    FetchJob { subscribers: 3, ..FetchJob::of(FeedId(feed), Version(1), host, url, ticket, expires) }
}

/// Runs one life with these faults: a feed that is throttled. Returns the number of calls.
async fn throttled_life(faults: Arc<Faults>) -> usize {
    let world = World::start().await;
    world.origin.set("/feed", Script::status(429).header("Retry-After", "300"));
    let (worker, stop) = (world.worker(&faults), CancellationToken::new());
    let running = {
        let stop = stop.clone();
        tokio::spawn(async move { worker.run(&stop).await })
    };
    let report = world.polled("/feed").await;
    let struck = faults.struck();
    assert!(matches!(report.outcome, Outcome::Throttled { retry_after: Some(_) }), "{struck:?}: {report:?}");
    assert_eq!(world.origin.request_count(), 1, "{struck:?}");
    // The gate gets what it was owed before the slot at the host is free.
    stop.cancel();
    tokio::time::timeout(PATIENCE, running).await.expect("the worker stops").unwrap().unwrap();
    assert_eq!(world.gate.held(SystemClock.now()).await.unwrap(), 1, "{struck:?}: the host is held");
    assert_eq!(world.jobs.depth().await.unwrap().items, 0, "{struck:?}: the job is done");
    faults.calls()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_throttled_fetch_ends_in_one_report_and_one_hold_whichever_call_fails() {
    let calls = throttled_life(Faults::at([])).await;
    assert!(calls >= 5, "{calls}");
    let short = Duration::from_millis(2_200);
    let kinds = [Fault::Before, Fault::After, Fault::Late(short), Fault::Silent(short)];
    let mut lives = tokio::task::JoinSet::new();
    for call in 0..calls + 4 {
        for fault in kinds {
            lives.spawn(throttled_life(Faults::at([(call, fault)])));
        }
    }
    while let Some(lived) = lives.join_next().await {
        lived.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_the_gate_that_are_lost_again_and_again_quarantine_nobody() {
    // The first call reads the rules, the second checks the clock, the third acquires; after a loss the gate is checked
    // again.
    for lost in 2..12 {
        let world = World::start().await;
        world.origin.set("/feed", Script::feed(Feed::rss()));
        let faults = Faults::at((lost..lost + 4).map(|call| (call, Fault::After)));
        let (worker, stop) = (world.worker(&faults), CancellationToken::new());
        let running = {
            let stop = stop.clone();
            tokio::spawn(async move { worker.run(&stop).await })
        };
        let report = world.polled("/feed").await;
        assert!(matches!(report.outcome, Outcome::Modified(_)), "{:?}: {report:?}", faults.struck());
        assert_eq!(world.origin.request_count(), 1, "{:?}", faults.struck());
        stop.cancel();
        running.await.unwrap().unwrap();
        if lost > 6 && faults.struck().len() < 4 {
            break;
        }
    }
}

/// A worker in a separate runtime, which can be killed.
struct Victim(Option<tokio::runtime::Runtime>);

impl Victim {
    fn start(worker: Worker) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(async move { worker.run(&CancellationToken::new()).await });
        Victim(Some(runtime))
    }

    fn kill(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.kill();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_that_kills_its_worker_is_found_and_none_of_forty_innocent_ones_is_blamed() {
    const INNOCENT: i64 = 40;
    let world = World::start().await;
    let slow = Duration::from_millis(1_500);
    for feed in 1..=INNOCENT {
        world.origin.set(&format!("/{feed}"), Script::feed(Feed::rss()).delay(slow));
    }
    world.origin.set("/0", Script::silent());
    let healthy = Faults::at([]);
    let mut victim = Victim::start(world.worker(&healthy));
    for feed in 0..=INNOCENT {
        world.dispatch(feed, &format!("/{feed}")).await;
    }
    let (mut deaths, mut killers, mut done) = (0, BTreeSet::new(), BTreeSet::new());
    let mut deferred: BTreeMap<i64, Instant> = BTreeMap::new();
    let begun = Instant::now();
    while done.len() + killers.len() <= usize::try_from(INNOCENT).unwrap() {
        assert!(begun.elapsed() < PATIENCE * 2, "{} done, {deaths} deaths", done.len());
        // A worker that requests this feed dies of it a moment later.
        if world.origin.log().iter().filter(|record| record.target() == "/0").count() > deaths {
            deaths += 1;
            tokio::time::sleep(Duration::from_millis(300)).await;
            victim.kill();
            victim = Victim::start(world.worker(&healthy));
        }
        if let Ok(received) = tokio::time::timeout(Duration::from_millis(20), world.reports.receive()).await {
            let delivery = received.unwrap();
            for report in &delivery.items {
                match &report.outcome {
                    Outcome::Deferred { .. } => {
                        deferred.insert(report.feed.0, Instant::now() + Duration::from_millis(500));
                    }
                    Outcome::Failed { failure: FailureKind::Crashed, .. } => drop(killers.insert(report.feed.0)),
                    _ => drop(done.insert(report.feed.0)),
                }
            }
            delivery.ack().await.unwrap();
        }
        let again: Vec<i64> = deferred.iter().filter(|(_, at)| **at <= Instant::now()).map(|(feed, _)| *feed).collect();
        for feed in again {
            deferred.remove(&feed);
            world.dispatch(feed, &format!("/{feed}")).await;
        }
    }
    assert_eq!(killers, BTreeSet::from([0]), "after {deaths} deaths");
    assert_eq!(deaths, 3);
}
