//! The watchdog: when it barks, and what excuses a silence.

use common::config::ServerConfig;
use common::host::HostKey;
use common::redis::RedisServer;

use super::intake::memory;
use super::*;
use crate::condition::gate::Closed;
use crate::schedule::Schedule;
use crate::schedule::memory::MemorySchedule;
use crate::schedule::redis::RedisSchedule;

#[tokio::test]
async fn the_watchdog_barks_when_feeds_are_due_and_nothing_is_polled_and_only_without_a_reason() {
    let mut config = config();
    (config.scheduler.queue_lease, config.scheduler.fetch_lease) = (Duration::from_millis(10), Duration::ZERO);
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let backends = Backends::in_memory(memory().await);
    let for_all: Arc<dyn Clock> = clock.clone();
    let scheduler = Scheduler::new(&backends, &Arc::new(config), &Arc::new(Metrics::new()), &for_all);
    scheduler.boot().await.unwrap();
    let feed = AddFeed::of("http://a.example/".parse().unwrap());
    scheduler.ops.add(&[feed], None).await.unwrap();
    clock.advance(Duration::from_secs(60));
    let look = async || {
        tokio::time::sleep(Duration::from_millis(60)).await;
        scheduler.watch.look(&*clock).await;
        (scheduler.ops.condition.watchdog.alarm().is_some(), scheduler.ops.metrics.watchdog.get())
    };
    scheduler.ops.set_paused(true).await.unwrap();
    assert_eq!(look().await, (false, 0), "a person paused it");
    scheduler.ops.set_paused(false).await.unwrap();
    assert_eq!(look().await, (true, 1), "feeds are due, and nobody dispatches");
    scheduler.dispatcher.round(clock.now(), usize::MAX).await.unwrap();
    assert_eq!(look().await, (false, 0), "nothing is due any more");
}

/// Returns a scheduler whose leases are a few milliseconds, and that has only just begun.
fn impatient(store: Arc<dyn Store>, schedule: Arc<dyn Schedule>) -> Scheduler {
    let mut config = config();
    (config.scheduler.queue_lease, config.scheduler.fetch_lease) = (Duration::from_millis(10), Duration::ZERO);
    let backends = Backends {
        store,
        schedule,
        gate: Arc::new(MemoryGate::new(Timestamp::EPOCH)),
        jobs: Arc::new(MemoryQueue::new(1 << 20)),
        reports: Arc::new(MemoryQueue::new(1 << 20)),
    };
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    Scheduler::new(&backends, &Arc::new(config), &Arc::new(Metrics::new()), &clock)
}

#[tokio::test]
async fn the_watchdog_barks_when_a_call_fails_for_long_and_not_when_a_server_is_away() {
    let clock = ManualClock::new(Timestamp::from_millis(1_790_000_000_000));
    let alarm = async |scheduler: &Scheduler| {
        for _ in 0..2 {
            scheduler.watch.look(&clock).await;
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        scheduler.watch.look(&clock).await;
        scheduler.ops.condition.watchdog.alarm()
    };
    let nowhere = RedisServer::connect(&ServerConfig::at("redis://127.0.0.1:1"), "nowhere").unwrap();
    let away = impatient(memory().await, Arc::new(RedisSchedule::new(nowhere, 1)));
    assert_eq!(alarm(&away).await, None, "a new process could not reach it either");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feedfleet.db");
    let store = SqliteStore::open(&format!("sqlite://{}", path.display())).await.unwrap();
    rusqlite::Connection::open(&path).unwrap().execute_batch("ALTER TABLE store RENAME TO elsewhere").unwrap();
    let stuck = impatient(Arc::new(store), Arc::new(MemorySchedule::default()));
    let why = alarm(&stuck).await.expect("nobody knows whether feeds are due");
    assert!(why.contains("it is not known whether feeds are due: the store could not"), "{why}");
}

#[tokio::test]
async fn neither_a_closed_gate_nor_a_fault_of_our_own_network_makes_the_watchdog_bark() {
    let mut config = config();
    (config.scheduler.queue_lease, config.scheduler.fetch_lease) = (Duration::from_nanos(1), Duration::ZERO);
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let for_all: Arc<dyn Clock> = clock.clone();
    let backends = Backends::in_memory(memory().await);
    let scheduler = Scheduler::new(&backends, &Arc::new(config), &Arc::new(Metrics::new()), &for_all);
    scheduler.boot().await.unwrap();
    let feed = AddFeed::of("http://a.example/".parse().unwrap());
    let id = scheduler.ops.add(&[feed], None).await.unwrap()[0].id;
    let now = clock.advance(Duration::from_secs(60));
    let condition = &scheduler.ops.condition;
    let barks = async || {
        scheduler.watch.look(&*clock).await;
        condition.watchdog.alarm().is_some()
    };
    assert!(barks().await, "a feed is due, and nobody dispatches");
    condition.gate.note(Some(Closed { since: now, why: "a test", until: None, parts: (1, 1) }), now);
    assert!(!barks().await, "the gate is closed");
    condition.gate.note(None, now);
    assert!(barks().await);
    let mut well = scheduler.ops.feed(&FeedRef::Id(id)).await.unwrap().unwrap();
    well.state.last_success = Some(now);
    let failed = ["a", "b", "c"].map(|name| {
        let outcome = Outcome::Failed { failure: FailureKind::Connect, detail: String::new() };
        FetchReport::of(id, well.version, HostKey::new(&format!("{name}.example:443")), now, outcome)
    });
    condition.our_fault.observe(failed.iter().map(|report| (&well, report)), now);
    assert!(!barks().await, "our own network is away");
}
