//! A schedule of 16 shards, and the gate, over a Redis Cluster of 1, 2 and 3 masters that this program starts.
//!
//! The masters share this machine's cores with the client, so the rate is not what as many machines would reach: that follows from how long
//! the busiest master is busy for each feed.

use common::config::ServerConfig;
use common::redis::RedisServer;
use common::redis::testing::cluster::Clustered;
use redis::aio::MultiplexedConnection;

use crate::shards::{AT_ONCE, figures, percentiles};
use crate::{BATCH, gate};

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
    let server = RedisServer::connect(&ServerConfig::at(&cluster.url()), "bench")?;
    let figures = figures(&server, &mut connections, feeds, SHARDS).await?;
    println!(
        "{masters:>7}  {:>10.0}  {:>12.1}  {:>11.0}  {:>18}  {:>18.2}  {:>21.2}  {:>11.0}  {:>18}",
        figures.put,
        figures.bytes,
        figures.alone.0,
        percentiles(figures.alone.1),
        figures.busy.iter().sum::<f64>(),
        figures.busy.iter().copied().fold(0.0, f64::max),
        figures.at_once.0,
        percentiles(figures.at_once.1)
    );
    Ok(())
}
