//! A role with a wrong clock leaves the broker's messages to others, and resumes when its clock is right.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use common::config::{Config, ServerConfig};
use common::document::Validators;
use common::host::HostKey;
use common::host_gate::redis::RedisGate;
use common::host_gate::{HostGate, Nonces, Ticket};
use common::job::FetchJob;
use common::live_rules::LiveRules;
use common::metrics::Metrics;
use common::queue::memory::MemoryQueue;
use common::queue::rabbitmq::{Broker, Prefetch, RabbitQueue};
use common::queue::{Delivery, Message, Queue};
use common::redis::RedisServer;
use common::report::{FetchReport, Outcome};
use common::time::{Clock, ClockWatch, SystemClock, Timestamp};
use common::url::{FeedId, Version};
use rand::RngExt;
use scheduler::ops::AddFeed;
use scheduler::schedule::redis::RedisSchedule;
use scheduler::{Backends, Scheduler};
use store::sqlite::SqliteStore;
use tokio_util::sync::CancellationToken;
use worker::fetch::Fetcher;
use worker::own_holds::OwnHolds;
use worker::poll::Poller;
use worker::run::Worker;

use super::harness::Servers;
use crate::harness::PATIENCE;

/// Messages in the queue; the role with the wrong clock receives half of them.
const MESSAGES: u16 = 40;
const HOUR: i64 = 3_600_000;

/// The machine's clock, ahead by this many milliseconds.
struct OffClock(AtomicI64);

impl Clock for OffClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(SystemClock.now().millis() + self.0.load(Ordering::SeqCst))
    }
}

/// One queue in two processes.
struct Shared<T> {
    /// The one with the wrong clock.
    ours: (Broker, Arc<RabbitQueue<T>>),
    other: (Broker, RabbitQueue<T>),
}

impl<T: Message> Shared<T> {
    fn new(servers: &Servers, namespace: &str) -> Self {
        let broker = || Broker::connect(&ServerConfig::at(&servers.rabbitmq), namespace, &Metrics::new()).unwrap();
        let (ours, other) = (broker(), broker());
        let queue = Arc::new(ours.queue(Prefetch::Unacked(MESSAGES / 2)));
        let others = other.queue(Prefetch::Unacked(MESSAGES));
        Shared { ours: (ours, queue), other: (other, others) }
    }

    async fn publish(&self, item: impl Fn(i64) -> T) {
        within("the broker takes messages", async {
            for number in 1..=i64::from(MESSAGES) {
                while self.other.1.publish(&[item(number)]).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        })
        .await;
    }

    /// Checks that the other process receives everything.
    async fn other_gets_all(&self) -> Vec<Delivery<T>> {
        within("the other process gets every message", async {
            let mut all = Vec::new();
            while all.len() < usize::from(MESSAGES) {
                all.push(self.other.1.receive().await.unwrap());
            }
            all
        })
        .await
    }

    /// Returns everything from the other process to the queue.
    async fn other_leaves(&self, all: Vec<Delivery<T>>) {
        self.other.1.pause().await;
        drop(all);
    }

    async fn end(self) {
        self.ours.0.close().await;
        self.other.0.close().await;
    }
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

fn namespace() -> String {
    format!("whole-{}-{}", std::process::id(), rand::rng().random::<u32>())
}

fn config() -> Arc<Config> {
    let mut config = common::config::defaults();
    config.worker.concurrency = 4;
    Arc::new(config)
}

fn job(number: i64) -> FetchJob {
    FetchJob {
        subscribers: 1,
        ..FetchJob::of(
            FeedId(number),
            Version(0),
            HostKey::new("127.0.0.1:9"),
            format!("http://127.0.0.1:9/{number}").parse().unwrap(),
            Ticket(1),
            SystemClock.now().after(PATIENCE * 10),
        )
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_a_worker_whose_clock_is_off_are_worked_by_others() {
    let (servers, namespace, config) = (Servers::shared(), namespace(), config());
    let clock = Arc::new(OffClock(AtomicI64::new(HOUR)));
    let jobs = Shared::<FetchJob>::new(&servers, &namespace);
    let reports = Arc::new(MemoryQueue::<FetchReport>::new(1 << 20));
    let redis = RedisServer::connect(&ServerConfig::at(&servers.redis), &namespace).unwrap();
    let gate: Arc<dyn HostGate> = Arc::new(RedisGate::new(redis, config.fetch.deadline()));
    let rules = Arc::new(LiveRules::new(&config));
    let poller = Poller {
        fetcher: Box::new(Fetcher::new(&config.fetch, &rules.get()).unwrap()),
        gate,
        rules,
        config,
        clock: clock.clone(),
        metrics: Arc::new(Metrics::new()),
        secrets: Arc::default(),
        watch: ClockWatch::default(),
        nonces: Nonces::default(),
        own_holds: OwnHolds::default(),
    };
    let worker = Worker { poller: Arc::new(poller), jobs: jobs.ours.1.clone(), reports: reports.clone() };
    let stop = CancellationToken::new();
    let working = tokio::spawn({
        let stop = stop.clone();
        async move { worker.run(&stop).await }
    });
    jobs.publish(job).await;
    let all = jobs.other_gets_all().await;
    assert_eq!(reports.depth().await.unwrap().items, 0, "nothing is asked, and nothing is said");
    clock.0.store(0, Ordering::SeqCst);
    jobs.other_leaves(all).await;
    within("the worker reports on each job", async {
        let mut reported = 0;
        while reported < usize::from(MESSAGES) {
            let delivery = reports.receive().await.unwrap();
            reported += delivery.items.len();
            delivery.ack().await.unwrap();
        }
    })
    .await;
    stop.cancel();
    within("the worker stops", working).await.unwrap().unwrap();
    jobs.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_of_a_scheduler_whose_clock_is_off_are_settled_by_others() {
    let (servers, namespace, config) = (Servers::shared(), namespace(), config());
    let clock = Arc::new(OffClock(AtomicI64::new(-HOUR)));
    let reports = Shared::<FetchReport>::new(&servers, &namespace);
    let redis = RedisServer::connect(&ServerConfig::at(&servers.redis), &namespace).unwrap();
    let backends = Backends {
        schedule: Arc::new(RedisSchedule::new(redis, config.schedule.shards)),
        reports: reports.ours.1.clone(),
        ..Backends::in_memory(Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap()))
    };
    let metrics = Arc::new(Metrics::new());
    let its_clock: Arc<dyn Clock> = clock.clone();
    let scheduler = Scheduler::new(&backends, &config, &metrics, &its_clock);
    let feed = AddFeed::of("http://127.0.0.1:9/".parse().unwrap());
    let feed = scheduler.ops.add(&[feed], Some(&[0.5])).await.unwrap()[0].id;
    // For another version of the feed: when settled, they are counted and change nothing.
    let stale = |number| FetchJob { feed, version: Version(1000 + number), ..job(number) };
    let mut signed: Vec<FetchJob> = (0..=i64::from(MESSAGES)).map(stale).collect();
    let proofs = &scheduler.ops.condition.proofs;
    proofs.sign(&mut signed, &*backends.store, SystemClock.now()).await.unwrap();
    let stop = CancellationToken::new();
    let settling = tokio::spawn({
        let stop = stop.clone();
        async move { scheduler.intake.run(&*its_clock, &stop).await }
    });
    let stale = |number: i64| {
        let job = &signed[usize::try_from(number).unwrap()];
        let outcome = Outcome::NotModified { validators: Validators::default() };
        let report = FetchReport::of(job.feed, job.version, job.host.clone(), SystemClock.now(), outcome);
        FetchReport { mac: job.mac.clone(), ..report }
    };
    reports.publish(stale).await;
    let all = reports.other_gets_all().await;
    assert_eq!(metrics.stale_reports.get(), 0, "nothing is settled");
    clock.0.store(0, Ordering::SeqCst);
    reports.other_leaves(all).await;
    within("the scheduler settles each report", async {
        while metrics.stale_reports.get() < u64::from(MESSAGES) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    stop.cancel();
    within("the scheduler stops", settling).await.unwrap();
    reports.end().await;
}
