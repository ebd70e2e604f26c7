//! Servers that are down for a while, stop responding, lose their memory, or are slow and unreliable to reach.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::time::Timestamp;
use load_tests::Record;
use load_tests::proxy::{Direction, FaultProxy, Faults};

use super::harness::{Kind, Role, Servers, Urls, address, through};
use super::load::{Load, Size, now};
use super::readiness::until;
use super::recovery::until_usual_rate;

const SHORT: Size = Size {
    feeds: 300,
    hosts: 100,
    interval: Duration::from_secs(6),
    gap: Duration::from_millis(50),
    trouble: Duration::from_secs(6),
    leases: 1,
};
const LONG: Size = Size {
    feeds: 5_000,
    hosts: 500,
    interval: Duration::from_secs(30),
    gap: Duration::from_millis(50),
    trouble: Duration::from_secs(300),
    leases: 1,
};
/// The maximum number of log lines of a role for one outage.
const LINES: usize = 25;

async fn start(load: &Load) -> Vec<Role> {
    let kinds = [Kind::Scheduler, Kind::Scheduler, Kind::Worker, Kind::Worker, Kind::Worker];
    let roles = kinds.into_iter().map(|kind| load.cluster.start(kind)).collect();
    load.warm_up().await;
    roles
}

fn memory(roles: &[Role]) -> u64 {
    roles.iter().map(Role::memory).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_stop_or_freeze_cost_time_and_nothing_else() {
    let size = Size::pick(SHORT, LONG);
    let servers = Servers::own(true);
    let load = Load::new(size, &servers, Urls::of(&servers), "").await;
    let database = sqlx::PgPool::connect(&servers.postgres).await.unwrap();
    load.cluster.watch_versions(&database).await;
    database.close().await;
    let mut roles = start(&load).await;
    let troubles = ["rabbitmq", "postgres", "redis"].map(|name| [(name, false), (name, true)]).concat();
    // A durable Redis that is started again is another run of it, and its gate is loaded again.
    let mut gate_lost: Vec<Timestamp> = Vec::new();
    for (name, frozen) in troubles {
        until_usual_rate(&load).await;
        let before: Vec<usize> = roles.iter().map(|role| role.stderr().lines().count()).collect();
        let small = memory(&roles);
        if frozen {
            servers.signal(name, "STOP");
        } else {
            servers.stop(name);
        }
        tokio::time::sleep(size.trouble).await;
        for role in &mut roles {
            let (status, _) = role.get("/healthz").await;
            assert_eq!(status, 200, "{:?} while {name} is away", role.kind);
            let concerned = role.kind == Kind::Scheduler || name != "postgres";
            // A frozen server is noticed by a timeout.
            if concerned {
                until(role, "/readyz", 503).await;
            } else {
                let (status, why) = role.get("/readyz").await;
                assert_eq!(status, 200, "{:?} while {name} is away: {why}", role.kind);
            }
        }
        if frozen {
            servers.signal(name, "CONT");
        } else {
            servers.up(name);
            gate_lost.extend((name == "redis").then(now));
        }
        let back = until_usual_rate(&load).await;
        load.until_stored().await;
        let grown = memory(&roles).saturating_sub(small);
        let lines: Vec<usize> =
            roles.iter().zip(&before).map(|(role, before)| role.stderr().lines().count() - before).collect();
        println!(
            "{name} {} for {:?}: usual rate {back:?} after its return, memory of all roles grew by {} MiB, lines {lines:?}",
            if frozen { "frozen" } else { "stopped" },
            size.trouble,
            grown >> 20,
        );
        let most = lines.iter().max().copied().unwrap_or(0);
        assert!(most <= LINES, "{}", roles[lines.iter().position(|lines| *lines == most).unwrap()].stderr());
    }
    let truth = load.truth();
    let settled = now();
    tokio::time::sleep(size.worst_gap()).await;
    load.until_known(&truth).await;
    let log = load.origin.log();
    let end = now();
    for role in roles {
        role.stop().await;
    }
    let (lost, doubled) = load.lost_and_doubled(&truth).await;
    assert_eq!((lost.len(), doubled), (0, 0), "{lost:?}");
    let last: Vec<Record> = log.iter().filter(|record| record.wall >= settled).cloned().collect();
    assert!(load.longest_silence(&last, end) <= size.longest_gap());
    let database = sqlx::PgPool::connect(&servers.postgres).await.unwrap();
    let proof = load.prove(&log, &database, &gate_lost, &[]).await;
    let manners = load.manners(&log, proof.undone());
    println!("{manners:?}");
    proof.assert_holds();
    manners.assert_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_forgets_or_remembers_an_old_state_is_put_right_and_nobody_is_asked_early() {
    let size = Size::pick(SHORT, LONG);
    let servers = Servers::own(false);
    let cap = format!("polls_per_second = {:?}", size.rate() * 1.15);
    let load = Load::new(size, &servers, Urls::of(&servers), &cap).await;
    let roles = start(&load).await;
    redis::cmd("SAVE").exec_async(&mut connection(&servers).await).await.unwrap();
    tokio::time::sleep(size.trouble).await;

    for (what, old) in [("FLUSHALL", false), ("an old dump", true)] {
        until_usual_rate(&load).await;
        let asked = load.origin.request_count();
        if old {
            // The dump is from the start; a regular shutdown would save a new one.
            servers.signal("redis", "KILL");
            servers.up("redis");
        } else {
            redis::cmd("FLUSHALL").exec_async(&mut connection(&servers).await).await.unwrap();
        }
        let wiped = now();
        tokio::time::sleep(size.worst_gap() + size.interval).await;
        let log = load.origin.log();
        let since: Vec<Record> = log[asked..].to_vec();
        let silence = load.longest_silence(&since, now());
        let peak = peak_rate(&since, wiped);
        println!(
            "{what}: every feed asked again, longest silence {silence:?}, peak {peak:.0}/s of {:.0}/s",
            size.rate()
        );
        assert!(silence <= size.longest_gap() + size.interval, "{silence:?}");
        assert!(peak <= 1.35 * size.rate().max(10.0), "{peak}");
        let manners = load.manners(&log, BTreeSet::new());
        println!("{manners:?}");
        manners.assert_clean();
    }
    for role in roles {
        role.stop().await;
    }
}

async fn connection(servers: &Servers) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(servers.redis.as_str()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// Returns requests per second in the busiest ten seconds after `from`: what a stall delayed comes together with what
/// is due then.
fn peak_rate(log: &[Record], from: Timestamp) -> f64 {
    let mut seconds: BTreeMap<u64, usize> = BTreeMap::new();
    for record in log.iter().filter(|record| record.wall >= from) {
        *seconds.entry(record.wall.since(from).as_secs()).or_default() += 1;
    }
    let last = seconds.keys().last().copied().unwrap_or(0);
    let window = |first: u64| seconds.range(first..first + 10).map(|(_, count)| count).sum::<usize>() as f64 / 10.0;
    (0..=last.saturating_sub(10)).map(window).fold(0.0, f64::max)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_and_unreliable_ways_to_the_servers_cost_at_most_half_the_rate() {
    let mut size = Size::pick(SHORT, LONG);
    size.trouble = size.trouble.min(Duration::from_secs(60));
    // A cut costs a lease; with an unreliable network, such short leases occur only in tests. One that is shorter than the slow way
    // of a report polls a feed twice.
    size.interval = size.interval.max(Duration::from_secs(15));
    size.leases = 2;
    let servers = Servers::own(true);
    let proxies = [
        FaultProxy::before(address(&servers.postgres)).await.unwrap(),
        FaultProxy::before(address(&servers.redis)).await.unwrap(),
        FaultProxy::before(address(&servers.rabbitmq)).await.unwrap(),
    ];
    let urls = Urls {
        store: through(&servers.postgres, &proxies[0]),
        redis: through(&servers.redis, &proxies[1]),
        queue: through(&servers.rabbitmq, &proxies[2]),
    };
    let load = Load::new(size, &servers, urls, "").await;
    let roles = start(&load).await;
    let delay = Duration::from_millis(100);
    let slow = Faults { delay, ..Faults::default() };
    let unreliable = Faults { delay, cut: 0.05, ..Faults::default() };
    for (what, faults) in [("200 ms a round trip", slow), ("and 5 % of connections cut", unreliable)] {
        for proxy in &proxies {
            proxy.set(faults);
        }
        tokio::time::sleep(size.interval).await;
        // The feeds became due together while the gate was closed at the start, and stay together. Over a slow network a round of them
        // takes longer than the interval, so two intervals may contain only one round: half the rate.
        let rate = load.rate_over((4 * size.interval).max(size.trouble)).await;
        println!("{what}: {rate:.0} polls/s of {:.0}", size.rate());
        assert!(rate >= 0.5 * size.rate(), "{rate}");
    }
    for (name, proxy) in ["PostgreSQL", "Redis", "RabbitMQ"].into_iter().zip(&proxies) {
        for direction in [Direction::ToServer, Direction::ToClient] {
            proxy.set(Faults { stall: Some(direction), ..Faults::default() });
            tokio::time::sleep(size.trouble).await;
            proxy.set(Faults::default());
            let back = until_usual_rate(&load).await;
            println!("{name} stalled {direction:?} for {:?}: usual rate {back:?} later", size.trouble);
        }
    }
    let truth = load.truth();
    tokio::time::sleep(size.worst_gap()).await;
    load.until_known(&truth).await;
    for role in roles {
        role.stop().await;
    }
    let cuts: usize = proxies.iter().map(FaultProxy::cuts).sum();
    let (lost, doubled) = load.lost_and_doubled(&truth).await;
    assert_eq!((lost.len(), doubled), (0, 0), "{lost:?}");
    let manners = load.manners(&load.origin.log(), BTreeSet::new());
    println!("{cuts} connections were cut; {manners:?}");
    manners.assert_clean();
}
