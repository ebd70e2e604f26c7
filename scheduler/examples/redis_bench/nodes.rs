//! A schedule of 16 shards, and the gate, over a Redis Cluster of 1, 2 and 3 masters that this program starts.
//!
//! The masters share this machine's cores with the client, so the rate is not what as many machines would reach: that follows from how long
//! the busiest master is busy for each feed.

use std::sync::Arc;
use std::time::Instant;

use anyhow::ensure;
use common::config::ServerConfig;
use common::redis::RedisServer;
use common::redis::testing::cluster::Clustered;
use common::time::{Clock, SystemClock};
use redis::aio::MultiplexedConnection;
use scheduler::schedule::redis::RedisSchedule;
use scheduler::schedule::{Schedule, Slot};

use crate::shards::{AT_ONCE, CLAIMS, claim, percentiles};
use crate::{BATCH, PAGE, gate, rate, script_time, slot, used_memory};

const SHARDS: u16 = 16;

pub(crate) async fn measure(feeds: usize) -> anyhow::Result<()> {
    println!(
        "a schedule of {feeds} feeds in {SHARDS} shards over a cluster, claims of {BATCH}, by one scheduler and by {AT_ONCE} at once"
    );
    println!(
        "{:>7}  {:>10}  {:>12}  {:>11}  {:>18}  {:>18}  {:>21}  {:>11}  {:>18}",
        "masters",
        "put, /s",
        "bytes a feed",
        "claims, /s",
        "p50, p99, ms",
        "all us a feed",
        "busiest us a feed",
        "at once, /s",
        "p50, p99, ms"
    );
    for masters in 1..=3 {
        let cluster = tokio::task::block_in_place(|| Clustered::started(masters, false));
        row(&cluster, masters, feeds).await?;
    }
    for masters in 1..=3 {
        let cluster = tokio::task::block_in_place(|| Clustered::started(masters, false));
        println!("{masters} masters");
        gate::measure(&RedisServer::connect(&ServerConfig::at(&cluster.url()), "bench")?, None).await?;
    }
    Ok(())
}

async fn row(cluster: &Clustered, masters: usize, feeds: usize) -> anyhow::Result<()> {
    let mut connections: Vec<MultiplexedConnection> = Vec::new();
    for server in &cluster.servers {
        connections.push(redis::Client::open(server.url())?.get_multiplexed_async_connection().await?);
    }
    let now = SystemClock.now();
    let server = RedisServer::connect(&ServerConfig::at(&cluster.url()), "bench")?;
    let schedule = Arc::new(RedisSchedule::new(server, SHARDS));
    let before = memory(&mut connections).await?;
    let begun = Instant::now();
    for first in (1..=i64::try_from(feeds)?).step_by(PAGE) {
        let slots: Vec<Slot> = (first..first + PAGE as i64).map(|feed| slot(now, feed)).collect();
        schedule.put(&slots, now).await?;
    }
    let put = rate(feeds, begun);
    ensure!(schedule.depth(now).await?.feeds == feeds, "feeds are missing");
    let bytes = memory(&mut connections).await?.saturating_sub(before) as f64 / feeds as f64;
    let before = times(&mut connections).await?;
    let (alone, alone_latency) = claim(&schedule, 1, now).await?;
    let busy: Vec<f64> = times(&mut connections)
        .await?
        .iter()
        .zip(before)
        .map(|(after, before)| (after - before) / CLAIMS as f64)
        .collect();
    let (together, latency) = claim(&schedule, AT_ONCE, now).await?;
    println!(
        "{masters:>7}  {put:>10.0}  {bytes:>12.1}  {alone:>11.0}  {:>18}  {:>18.2}  {:>21.2}  {together:>11.0}  {:>18}",
        percentiles(alone_latency),
        busy.iter().sum::<f64>(),
        busy.iter().copied().fold(0.0, f64::max),
        percentiles(latency)
    );
    Ok(())
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
