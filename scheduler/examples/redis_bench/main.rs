//! What Redis can carry: the schedule's claims beside a bare script that does nothing else (T5), its memory (T13), how
//! long a lost schedule takes to be filled, and the gate's calls. `redis_bench REDIS_URL [POSTGRES_URL]`, or the
//! schedule in several sorted sets, `redis_bench REDIS_URL shards FEEDS`; the Redis should be private and empty.
//! `redis_bench nodes FEEDS` measures the schedule over clusters that it starts.
//!
//! Called by dev/bench.

mod bare;
mod gate;
mod nodes;
mod rebuild;
mod shards;

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use common::config::ServerConfig;
use common::redis::RedisServer;
use common::time::{Clock, SystemClock, Timestamp};
use common::url::FeedId;
use redis::aio::MultiplexedConnection;
use scheduler::schedule::redis::RedisSchedule;
use scheduler::schedule::{Band, Schedule, ScheduleView, Slot};

use crate::bare::Bare;

/// Feeds in the schedule.
const FEEDS: usize = 2_500_000;
/// Feeds claimed by one call.
const BATCH: usize = 500;
/// Feeds claimed by each side in a round.
const CLAIMS: usize = 100_000;
const ROUNDS: usize = 7;
const LEASE: Duration = Duration::from_secs(3_600);
/// Feeds handed to the schedule at once.
const PAGE: usize = 10_000;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (url, postgres, in_shards) = match &arguments[..] {
        [part, feeds] if part == "nodes" => return nodes::measure(feeds.parse()?).await,
        [url] => (url, None, None),
        [url, postgres] => (url, Some(postgres), None),
        [url, part, feeds] if part == "shards" => (url, None, Some(feeds.parse()?)),
        _ => anyhow::bail!(
            "usage: redis_bench REDIS_URL [POSTGRES_URL], redis_bench REDIS_URL shards FEEDS, or redis_bench nodes FEEDS"
        ),
    };
    // Emptying a full server takes a while.
    let patient = redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(60)));
    let client = redis::Client::open(url.as_str())?;
    let connection = client.get_multiplexed_async_connection_with_config(&patient).await?;
    let server = RedisServer::connect(&ServerConfig::at(url), "bench")?;
    if let Some(feeds) = in_shards {
        return shards::measure(&server, &connection, feeds).await;
    }
    schedule(&server, connection.clone()).await?;
    empty(connection.clone()).await?;
    gate::measure(&server, Some(connection.clone())).await?;
    empty(connection.clone()).await?;
    if let Some(postgres) = postgres {
        rebuild::measure(&server, postgres).await?;
        empty(connection).await?;
    }
    Ok(())
}

/// T13 and T5.
async fn schedule(server: &RedisServer, mut connection: MultiplexedConnection) -> anyhow::Result<()> {
    let now = SystemClock.now();
    let schedule = RedisSchedule::new(server.clone(), 1);
    let before = used_memory(&mut connection).await?;
    let begun = Instant::now();
    for first in (1..=FEEDS as i64).step_by(PAGE) {
        let slots: Vec<Slot> = (first..first + PAGE as i64).map(|feed| slot(now, feed)).collect();
        schedule.put(&slots, now).await?;
    }
    println!("put: {:.0} feeds/s by {PAGE}", rate(FEEDS, begun));
    ensure!(schedule.depth(now).await?.feeds == FEEDS, "feeds are missing");
    let bytes = used_memory(&mut connection).await?.saturating_sub(before);
    println!("T13 memory, bytes a feed: {:.1} (floor 125, stretch 115)", bytes as f64 / FEEDS as f64);

    let mut bare = Bare::filled(connection.clone(), now).await?;
    println!("claims of {BATCH} of {FEEDS}, feeds/s");
    println!("{:>5}  {:>10}  {:>11}  {:>5}  {:>16}", "round", "feedfleet", "bare script", "ratio", "server us a feed");
    let (mut ratios, mut costs) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let before = script_time(&mut connection).await?;
        let begun = Instant::now();
        for _ in 0..CLAIMS / BATCH {
            ensure!(schedule.claim_due(now, BATCH, LEASE).await?.len() == BATCH, "too few feeds were due");
        }
        let ours = rate(CLAIMS, begun);
        let between = script_time(&mut connection).await?;
        let begun = Instant::now();
        for _ in 0..CLAIMS / BATCH {
            ensure!(bare.claim(now).await? == BATCH, "too few members were due");
        }
        let theirs = rate(CLAIMS, begun);
        // The first round is the warm-up.
        if round > 0 {
            let after = script_time(&mut connection).await?;
            let [own, bare] = [between - before, after - between].map(|micros| micros / CLAIMS as f64);
            println!("{round:>5}  {ours:>10.0}  {theirs:>11.0}  {:>5.2}  {own:>7.2} {bare:>8.2}", ours / theirs);
            ratios.push(ours / theirs);
            costs.push(bare / own);
        }
    }
    ratios.sort_by(f64::total_cmp);
    costs.sort_by(f64::total_cmp);
    println!("by the server's own time in scripts: {:.2}", costs[ROUNDS / 2]);
    println!("T5 claims over the bare script's: {:.2} (floor 0.6, stretch 0.8)", ratios[ROUNDS / 2]);
    Ok(())
}

fn slot(now: Timestamp, feed: i64) -> Slot {
    Slot { feed: FeedId(feed), due_at: due(now, feed), band: Band::Steady }
}

/// Returns all of them due in the last hour, in no order.
fn due(now: Timestamp, feed: i64) -> Timestamp {
    Timestamp::from_millis(now.millis() - 1 - feed * 61_803 % 3_600_000)
}

fn rate(count: usize, begun: Instant) -> f64 {
    count as f64 / begun.elapsed().as_secs_f64()
}

async fn used_memory(connection: &mut MultiplexedConnection) -> anyhow::Result<u64> {
    let info: String = redis::cmd("INFO").arg("memory").query_async(connection).await?;
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).context("no used_memory")?;
    Ok(line.parse()?)
}

/// Microseconds that the server has spent in scripts: a figure that the client does not disturb.
async fn script_time(connection: &mut MultiplexedConnection) -> anyhow::Result<f64> {
    let info: String = redis::cmd("INFO").arg("commandstats").query_async(connection).await?;
    let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:")).context("no script ran yet")?;
    let micros = line.split(',').find_map(|part| part.strip_prefix("usec=")).context("no usec")?;
    Ok(micros.parse()?)
}

async fn empty(mut connection: MultiplexedConnection) -> anyhow::Result<()> {
    Ok(redis::cmd("FLUSHALL").arg("SYNC").query_async(&mut connection).await?)
}
