//! A schedule of 10 million feeds in 1, 4 and 16 sorted sets: memory, how fast feeds are claimed, and how long a claim takes.
//!
//! On one server more sets buy no speed, because it has one thread: they are for a Redis Cluster, and this measures their price.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use common::redis::RedisServer;
use common::time::{Clock, SystemClock, Timestamp};
use redis::aio::MultiplexedConnection;
use scheduler::schedule::redis::RedisSchedule;
use scheduler::schedule::{Schedule, ScheduleView, Slot};

use crate::{BATCH, LEASE, PAGE, empty, rate, script_time, slot, used_memory};

/// Feeds claimed by each number of claimers.
const CLAIMS: usize = 200_000;
/// Schedulers that claim at the same time.
pub(crate) const AT_ONCE: usize = 4;

pub(crate) async fn measure(
    server: &RedisServer,
    connection: &MultiplexedConnection,
    feeds: usize,
) -> anyhow::Result<()> {
    println!("a schedule of {feeds} feeds, claims of {BATCH}, by one scheduler and by {AT_ONCE} at once");
    println!(
        "{:>6}  {:>10}  {:>12}  {:>11}  {:>18}  {:>16}  {:>11}  {:>18}",
        "shards",
        "put, /s",
        "bytes a feed",
        "claims, /s",
        "p50, p99, ms",
        "server us a feed",
        "at once, /s",
        "p50, p99, ms"
    );
    for shards in [1, 4, 16] {
        row(server, connection.clone(), feeds, shards).await?;
        empty(connection.clone()).await?;
    }
    Ok(())
}

async fn row(server: &RedisServer, connection: MultiplexedConnection, feeds: usize, shards: u16) -> anyhow::Result<()> {
    let figures = figures(server, &mut [connection], feeds, shards).await?;
    println!(
        "{shards:>6}  {:>10.0}  {:>12.1}  {:>11.0}  {:>18}  {:>16.2}  {:>11.0}  {:>18}",
        figures.put,
        figures.bytes,
        figures.alone.0,
        percentiles(figures.alone.1),
        figures.busy[0],
        figures.at_once.0,
        percentiles(figures.at_once.1)
    );
    Ok(())
}

/// What a schedule costs.
pub(crate) struct Figures {
    /// Feeds put a second.
    pub(crate) put: f64,
    /// Bytes that a feed takes.
    pub(crate) bytes: f64,
    /// Microseconds that each server spends in scripts for each feed that is claimed.
    pub(crate) busy: Vec<f64>,
    /// Feeds claimed a second by one, and how long each claim took.
    pub(crate) alone: (f64, Vec<Duration>),
    /// The same by several.
    pub(crate) at_once: (f64, Vec<Duration>),
}

/// Fills a schedule over servers with these connections, and claims from it.
pub(crate) async fn figures(
    server: &RedisServer,
    connections: &mut [MultiplexedConnection],
    feeds: usize,
    shards: u16,
) -> anyhow::Result<Figures> {
    let now = SystemClock.now();
    let schedule = Arc::new(RedisSchedule::new(server.clone(), shards));
    let before = memory(connections).await?;
    let begun = Instant::now();
    for first in (1..=i64::try_from(feeds)?).step_by(PAGE) {
        let slots: Vec<Slot> = (first..first + PAGE as i64).map(|feed| slot(now, feed)).collect();
        schedule.put(&slots, now).await?;
    }
    let put = rate(feeds, begun);
    ensure!(schedule.depth(now).await?.feeds == feeds, "feeds are missing");
    let bytes = memory(connections).await?.saturating_sub(before) as f64 / feeds as f64;
    let before = times(connections).await?;
    let alone = claim(&schedule, 1, now).await?;
    let after = times(connections).await?;
    let busy = after.iter().zip(before).map(|(after, before)| (after - before) / CLAIMS as f64).collect();
    let at_once = claim(&schedule, AT_ONCE, now).await?;
    Ok(Figures { put, bytes, busy, alone, at_once })
}

async fn memory(connections: &mut [MultiplexedConnection]) -> anyhow::Result<u64> {
    let mut sum = 0;
    for connection in connections {
        sum += used_memory(connection).await?;
    }
    Ok(sum)
}

async fn times(connections: &mut [MultiplexedConnection]) -> anyhow::Result<Vec<f64>> {
    let mut times = Vec::new();
    for connection in connections {
        times.push(script_time(connection).await?);
    }
    Ok(times)
}

/// Returns feeds a second, and how long each claim took.
async fn claim(schedule: &Arc<RedisSchedule>, claimers: usize, now: Timestamp) -> anyhow::Result<(f64, Vec<Duration>)> {
    let begun = Instant::now();
    let mut claiming = tokio::task::JoinSet::new();
    for _ in 0..claimers {
        let schedule = Arc::clone(schedule);
        claiming.spawn(async move {
            let mut latencies = Vec::new();
            for _ in 0..CLAIMS / BATCH / claimers {
                let asked = Instant::now();
                ensure!(schedule.claim_due(now, BATCH, LEASE).await?.len() == BATCH, "too few feeds were due");
                latencies.push(asked.elapsed());
            }
            Ok(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(claimed) = claiming.join_next().await {
        latencies.extend(claimed??);
    }
    Ok((rate(latencies.len() * BATCH, begun), latencies))
}

pub(crate) fn percentiles(mut latencies: Vec<Duration>) -> String {
    latencies.sort();
    let at = |percent: usize| latencies[(latencies.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    format!("{:.2}, {:.2}", at(50), at(99))
}
