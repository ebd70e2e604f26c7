//! B2, B9 and B10: clocks that are set, and clocks that are off.

use std::time::{Duration, Instant};

use common::redis::testing::PrivateServer;
use load_tests::{FakeClock, Origin, Script, loopback};
use store::Events;

use super::super::consumers::holder;
use super::super::harness::{Cluster, Kind, Role, Servers, Urls, until};
use super::{Replay, assert_rested, config, feed, path};
use crate::harness::{PATIENCE, watch_stalls};

/// B2: Redis' clock is ten minutes ahead for some seconds while a host is held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_heeded_although_the_clock_of_redis_was_ahead_for_a_moment() {
    const REST: Duration = Duration::from_secs(40);
    let (folder, servers) = (tempfile::tempdir().unwrap(), Servers::shared());
    let clock = FakeClock::right(&folder.path().join("redis")).unwrap();
    let redis = PrivateServer::started_with(&clock.variables());
    let urls = Urls { redis: redis.url(), ..Urls::of(&servers) };
    let throttling = |n: u16| match n {
        0 => feed(n).then(Script::status(429).header("Retry-After", REST.as_secs().to_string())).then(feed(n)),
        _ => feed(n),
    };
    let replay = Replay::new(4, Duration::from_secs(2), &servers, urls, throttling).await;
    let roles = replay.begin().await;
    let throttled = replay.origin.wait_for(&path(0), 2, PATIENCE).await[1].clone();
    assert_eq!(throttled.status, Some(429));
    clock.set(600_000).unwrap();
    let off = "clock is";
    until("the roles notice it", async || roles.iter().all(|role| role.stderr().contains(off))).await;
    clock.set(0).unwrap();
    replay.two_rounds(&roles).await;
    let requests = replay.origin.wait_for(&path(0), 3, REST + PATIENCE).await;
    assert_rested(&throttled, &requests[2], REST);
}

/// B9: two machines, a scheduler and a worker each, whose clocks are 0.9 s behind and ahead of Redis'.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_that_are_almost_two_seconds_apart_break_no_gap() {
    const FEEDS: u16 = 8;
    const REQUESTS: usize = 40;
    let (gap, interval) = (Duration::from_secs(1), Duration::from_secs(4));
    let (folder, servers) = (tempfile::tempdir().unwrap(), Servers::shared());
    let origin = Origin::listen(&loopback(1, 0)).await.unwrap();
    let stalls = watch_stalls(&origin);
    let urls: Vec<String> = (0..FEEDS).map(|n| origin.url(&path(n))).collect();
    for n in 0..FEEDS {
        origin.set(&path(n), feed(n));
    }
    let config = config(interval).replace("gap = \"0s\"", "gap = \"1s\"");
    let cluster = Cluster::new(&servers, Urls::of(&servers), &config).await;
    cluster.add(&urls, interval).await;
    let mut roles: Vec<Role> = Vec::new();
    for (name, off) in [("behind", -900), ("ahead", 900)] {
        let clock = FakeClock::right(&folder.path().join(name)).unwrap();
        clock.set(off).unwrap();
        for kind in [Kind::Scheduler, Kind::Worker] {
            roles.push(cluster.start_with(kind, &Urls::of(&servers), &clock.variables()));
        }
    }
    let begun = Instant::now();
    assert!(origin.wait_for_total(REQUESTS, PATIENCE).await, "{}", roles[0].stderr());
    let mut starts: Vec<Duration> = origin.log().iter().map(|record| record.start).collect();
    starts.sort();
    let gaps = starts.windows(2).map(|pair| pair[1] - pair[0] + stalls.seen().near(pair[0]));
    let shortest = gaps.min().unwrap();
    println!("{REQUESTS} requests in {:.1?}, at least {shortest:.2?} apart", begun.elapsed());
    // The origin sees arrivals.
    assert!(shortest > gap / 2, "{shortest:?}");
}

/// B10: a scheduler that is an hour ahead passes events on, and is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_turn_of_a_scheduler_that_is_an_hour_ahead_ends_with_it() {
    let (folder, servers) = (tempfile::tempdir().unwrap(), Servers::shared());
    let urls = Urls::of(&servers);
    let replay = Replay::new(6, Duration::from_secs(2), &servers, urls.clone(), feed).await;
    let database = sqlx::PgPool::connect(&servers.postgres).await.unwrap();
    let clock = FakeClock::right(&folder.path().join("ahead")).unwrap();
    clock.set(3_600_000).unwrap();
    let mut ahead = replay.cluster.start_with(Kind::Scheduler, &urls, &clock.variables());
    until("it passes events on", async || !holder(&replay.cluster, &database).await.is_empty()).await;
    let its_own = holder(&replay.cluster, &database).await;
    ahead.kill();
    let killed = Instant::now();
    let _roles = replay.begin().await;
    until("another one does", async || holder(&replay.cluster, &database).await != its_own).await;
    println!(
        "another scheduler passes events on {:.1?} after the death of one that was an hour ahead",
        killed.elapsed()
    );
    let cursor = format!(r#"SELECT cursor FROM "{}".relay"#, replay.cluster.namespace);
    until("every event is passed on", async || {
        let passed: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(cursor.clone())).fetch_one(&database).await.unwrap();
        passed > 0 && passed >= replay.cluster.store.latest_seq().await.unwrap()
    })
    .await;
}
