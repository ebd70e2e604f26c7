//! 1.1 to 1.12: what a stranger met in a first day with a cluster.

use std::time::Duration;

use load_tests::proxy::{FaultProxy, Faults};

use super::super::harness::{Cluster, Kind, Role, Servers, Urls, address, through, until};
use super::super::readiness::until as until_status;
use super::{Replay, config, feed, redis, with_own_redis};

async fn metric(role: &mut Role, name: &str) -> Option<f64> {
    let text = role.get("/metrics").await.1;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// 1.1: each answer of PostgreSQL is 0.6 s late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgresql_with_late_answers_slows_the_fleet_and_is_not_taken_for_a_clock() {
    let servers = Servers::shared();
    let plain = Urls::of(&servers);
    let proxy = FaultProxy::before(address(&plain.store)).await.unwrap();
    let urls = Urls { store: through(&plain.store, &proxy), ..plain };
    let replay = Replay::new(20, Duration::from_secs(2), &servers, urls, feed).await;
    let mut roles = replay.begin().await;
    proxy.set(Faults { delay: Duration::from_millis(300), ..Faults::default() });
    tokio::time::sleep(replay.interval * 2).await;
    let all = replay.two_rounds(&roles).await;
    println!("two rounds of {} feeds took {all:.1?} with answers that are 0.6 s late", replay.feeds);
    assert_eq!(roles[0].get("/healthz").await.0, 200);
    let log = roles[0].stderr();
    assert!(!log.contains("clock"), "{log}");
}

/// 1.4: `noeviction`, and `maxmemory` is reached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_redis_makes_no_role_ready_and_is_named() {
    let (shared, own, urls) = with_own_redis();
    let replay = Replay::new(5, Duration::from_secs(2), &shared, urls, feed).await;
    let mut roles = replay.begin().await;
    let set = |bytes: &str| {
        redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(bytes).exec(&mut redis(&own)).unwrap();
    };
    set("1");
    for role in &mut roles {
        until_status(role, "/readyz", 503).await;
        let why = role.get("/readyz").await.1;
        assert!(why.contains("OOM"), "{:?}: {why}", role.kind);
    }
    set("0");
    for role in &mut roles {
        until_status(role, "/readyz", 200).await;
    }
    replay.two_rounds(&roles).await;
}

/// 1.2 and 1.3: both roles name the cause, in the log and in their readiness.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_named_by_both_roles() {
    let (shared, own, urls) = with_own_redis();
    redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("right").exec(&mut redis(&own)).unwrap();
    let wrong = Urls { redis: own.redis.replace("redis://", "redis://:wrong@"), ..urls };
    let cluster = Cluster::new(&shared, wrong, "").await;
    let why = "Password authentication failed";
    for kind in [Kind::Scheduler, Kind::Worker] {
        let mut role = cluster.start(kind);
        until_status(&mut role, "/readyz", 503).await;
        until("the cause is reported", async || role.get("/readyz").await.1.contains(why)).await;
        until("the cause is logged", async || role.stderr().contains(why)).await;
        assert!(!role.stderr().contains(":wrong@"), "{}", role.stderr());
    }
}

/// 1.8: PostgreSQL is not there when a scheduler starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduler_without_postgresql_answers_calls_with_the_reason() {
    let servers = Servers::shared();
    let cluster = Cluster::new(&servers, Urls::of(&servers), "").await;
    let away = Urls { store: "postgres://u:hunter2@127.0.0.1:1/x".to_owned(), ..Urls::of(&servers) };
    let mut scheduler = cluster.start_with(Kind::Scheduler, &away, &[]);
    until("the reason is reported", async || {
        let (status, why) = scheduler.get("/api/v1/stats").await;
        assert!(!why.contains("hunter2"), "{why}");
        status == 503 && why.contains("Connection refused")
    })
    .await;
}

/// 1.9: Redis is emptied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_that_is_closed_after_a_loss_is_reported_wherever_one_looks() {
    let (shared, own, urls) = with_own_redis();
    let replay = Replay::new(5, Duration::from_secs(2), &shared, urls, feed).await;
    let [mut scheduler, worker] = replay.begin().await;
    assert_eq!(metric(&mut scheduler, "feedfleet_gate_open").await, Some(1.0));
    let _: () = redis::cmd("FLUSHALL").query(&mut redis(&own)).unwrap();
    until("the metric says it", async || metric(&mut scheduler, "feedfleet_gate_open").await == Some(0.0)).await;
    let stats: serde_json::Value = serde_json::from_str(&scheduler.get("/api/v1/stats").await.1).unwrap();
    let closed = stats["gate_closed"].as_str().unwrap();
    assert!(closed.contains("it opens at"), "{closed}");
    let explained = scheduler.get("/api/v1/feeds/1/explain").await.1;
    assert!(explained.contains("the host gate is closed"), "{explained}");
    until("it opens", async || metric(&mut scheduler, "feedfleet_gate_open").await == Some(1.0)).await;
    replay.two_rounds(&[scheduler, worker]).await;
}

/// 1.10: another scheduler of the fleet has another policy, and other keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedulers_share_one_policy_and_say_so_when_other_keys_differ() {
    let servers = Servers::shared();
    let cluster = Cluster::new(&servers, Urls::of(&servers), &config(Duration::from_secs(2))).await;
    let mut first = cluster.start(Kind::Scheduler);
    first.address();
    cluster.configure(&format!("{}[retention]\nevents = \"90d\"\n", config(Duration::from_secs(60))));
    let second = cluster.start(Kind::Scheduler);
    let adopted = "new policy and host rules are in force";
    until("the first one works by the newer policy", async || first.stderr().contains(adopted)).await;
    let line = "another scheduler of this fleet has a different configuration";
    until("both say that they differ", async || [&first, &second].iter().all(|role| role.stderr().contains(line)))
        .await;
}
