//! A schedule that lost its memory is filled from a store of a million feeds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use common::config::{Config, ServerConfig};
use common::host::HostKey;
use common::host_gate::redis::RedisGate;
use common::live_rules::LiveRules;
use common::metrics::Metrics;
use common::policy::Category;
use common::queue::memory::MemoryQueue;
use common::redis::RedisServer;
use common::time::{Clock, SystemClock, Timestamp};
use scheduler::condition::Condition;
use scheduler::schedule::ScheduleView;
use scheduler::schedule::redis::RedisSchedule;
use scheduler::upkeep::orders::Orders;
use scheduler::upkeep::reconcile::Reconciler;
use store::Feeds;
use store::postgres::PostgresStore;
use store::{NewFeed, Store};

const FEEDS: usize = 1_000_000;
/// Added in one transaction.
const ADDED_AT_ONCE: usize = 1_000;
const FAR: Duration = Duration::from_secs(30 * 86_400);

pub(crate) async fn measure(server: &RedisServer, postgres: &str) -> anyhow::Result<()> {
    let store = PostgresStore::open(&ServerConfig::at(postgres), "redis_bench").await?;
    let now = SystemClock.now();
    let begun = Instant::now();
    for numbers in (0..FEEDS).collect::<Vec<_>>().chunks(ADDED_AT_ONCE) {
        let feeds: Vec<NewFeed> = numbers.iter().map(|number| feed(*number, now)).collect::<Result<_, _>>()?;
        store.add_feeds(&feeds, now).await?;
    }
    println!("rebuild: {FEEDS} feeds added to PostgreSQL in {:.1} s", begun.elapsed().as_secs_f64());

    let config: Config = common::config::load(None, std::iter::empty(), &[])?.config;
    let schedule = Arc::new(RedisSchedule::new(server.clone(), 1));
    let store: Arc<dyn Store> = Arc::new(store);
    let gate = Arc::new(RedisGate::new(server.clone(), Duration::ZERO));
    let rules = Arc::new(LiveRules::new(&config));
    let (condition, metrics) = (Arc::new(Condition::new(&config)), Arc::new(Metrics::new()));
    let orders = Orders::new(store.clone(), gate.clone(), schedule.clone(), rules, condition.clone(), metrics.clone());
    let reconciler = Reconciler {
        condition,
        metrics,
        orders: Arc::new(orders),
        store,
        schedule: schedule.clone(),
        gate,
        reports: Arc::new(MemoryQueue::new(1)),
        config: Arc::new(config),
    };
    let begun = Instant::now();
    let filled = reconciler.rebuild(&SystemClock).await?.context("the schedule was whole")?;
    println!("rebuild: {filled} feeds in {:.1} s (at most 60 s a million)", begun.elapsed().as_secs_f64());
    ensure!(schedule.depth(now).await?.feeds == FEEDS, "feeds are missing");
    let begun = Instant::now();
    let corrected = reconciler.schedule_once(&SystemClock).await?;
    println!("compared again: {corrected} corrected in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}

fn feed(number: usize, now: Timestamp) -> anyhow::Result<NewFeed> {
    let host = format!("h{}.example", number / 4);
    Ok(NewFeed::of(
        HostKey::new(&host),
        format!("https://{host}/feed-{number}.xml").parse()?,
        Category::D,
        now.after(FAR),
    ))
}
