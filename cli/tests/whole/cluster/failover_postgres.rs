//! PostgreSQL fails over to a standby again and again, by kill -9 and by partition, to a synchronous one and to one that lags.

use std::time::Duration;

use common::time::Timestamp;
use load_tests::Record;
use load_tests::proxy::{Direction, FaultProxy, Faults};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, PgConnection, PgPool};
use store::Events;
use tokio::time::Instant;

use super::consumers::{Consumer, event_seqs};
use super::failover::{self, back_within, rounds};
use super::harness::{Kind, Role, Servers, Urls, address};
use super::load::{Load, Size, now};
use super::recovery::until_usual_rate;
use crate::harness::PATIENCE;

/// Smaller than of the other servers, as the consumer reads all events. The trouble is how long a standby lags when it is promoted.
const SHORT: Size = Size {
    feeds: 200,
    hosts: 80,
    interval: Duration::from_secs(5),
    trouble: Duration::from_secs(2),
    ..failover::SHORT
};
const LONG: Size = Size { trouble: Duration::from_secs(5), ..failover::LONG };
const NAMES: [&str; 2] = ["postgres", "postgres2"];

/// Two servers, the proxies through which the roles reach them, and which of them is the primary.
struct Pair {
    proxies: [FaultProxy; 2],
    urls: [String; 2],
    primary: usize,
}

impl Pair {
    async fn start(servers: &mut Servers) -> Self {
        servers.standby(NAMES[1], NAMES[0]);
        let urls = servers.postgres_pair();
        let mut proxies = Vec::new();
        for url in &urls {
            proxies.push(FaultProxy::before(address(url)).await.unwrap());
        }
        let hosts: Vec<String> = proxies.iter().map(|proxy| proxy.address().to_string()).collect();
        servers.postgres = format!("postgres://postgres@{}/postgres", hosts.join(","));
        Pair { proxies: proxies.try_into().unwrap(), urls, primary: 0 }
    }

    async fn on(&self, server: usize) -> PgConnection {
        self.urls[server].parse::<PgConnectOptions>().unwrap().connect().await.unwrap()
    }

    async fn set(&self, server: usize, setting: String) {
        let mut on = self.on(server).await;
        on.execute(AssertSqlSafe(format!("ALTER SYSTEM SET {setting}"))).await.unwrap();
        on.execute("SELECT pg_reload_conf()").await.unwrap();
    }

    async fn until(&self, server: usize, sql: &'static str) {
        let mut on = self.on(server).await;
        let deadline = Instant::now() + PATIENCE;
        while !sqlx::query_scalar::<_, bool>(sql).fetch_one(&mut on).await.unwrap() {
            assert!(Instant::now() < deadline, "never true: {sql}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Promotes the standby after the primary was killed or cut off; returns when.
    async fn fail_over(&mut self, servers: &Servers, round: Round, lag: Duration) -> Timestamp {
        let (primary, standby) = (self.primary, 1 - self.primary);
        if round.synchronous {
            self.set(primary, format!("synchronous_standby_names = '{}'", NAMES[standby])).await;
            self.until(primary, "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'").await;
            tokio::time::sleep(lag).await;
        } else {
            self.set(standby, "primary_conninfo = ''".to_owned()).await;
            self.until(primary, "SELECT count(*) = 0 FROM pg_stat_replication").await;
            tokio::time::sleep(lag).await;
        }
        if round.by_partition {
            self.proxies[primary].set(Faults { stall: Some(Direction::ToClient), ..Faults::default() });
        } else {
            servers.signal(NAMES[primary], "KILL");
        }
        // The time that a tool for failovers takes to notice.
        tokio::time::sleep(Duration::from_secs(2)).await;
        self.set(standby, "synchronous_standby_names = ''".to_owned()).await;
        let promote = sqlx::query_scalar::<_, bool>("SELECT pg_promote()");
        assert!(promote.fetch_one(&mut self.on(standby).await).await.unwrap());
        self.primary = standby;
        now()
    }

    /// Makes the former primary the standby of the present one.
    fn repair(&self, servers: &Servers, round: Round) {
        let former = 1 - self.primary;
        if round.by_partition {
            servers.signal(NAMES[former], "KILL");
        }
        servers.standby(NAMES[former], NAMES[self.primary]);
        self.proxies[former].set(Faults::default());
    }
}

#[derive(Clone, Copy, Debug)]
struct Round {
    synchronous: bool,
    by_partition: bool,
}

/// Returns the longest time between two requests of any feeds since this moment.
fn longest_stand(log: &[Record], since: Timestamp) -> Duration {
    let mut moments: Vec<Timestamp> = log.iter().map(|record| record.wall).filter(|wall| *wall >= since).collect();
    moments.sort();
    moments.windows(2).map(|pair| pair[1].since(pair[0])).max().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_of_postgresql_loses_no_feed_and_hides_no_event() {
    let size = Size::pick(SHORT, LONG);
    let count = rounds(2);
    let mut servers = Servers::own(true);
    let mut pair = Pair::start(&mut servers).await;
    let load = Load::new(size, &servers, Urls::of(&servers), "").await;
    let database = PgPool::connect(&pair.urls[0]).await.unwrap();
    load.cluster.watch_versions(&database).await;
    load.throttle_some_hosts();
    database.close().await;
    let kinds = [Kind::Scheduler, Kind::Scheduler, Kind::Worker, Kind::Worker];
    let mut roles: Vec<Role> = kinds.into_iter().map(|kind| load.cluster.start(kind)).collect();
    let folder = tempfile::tempdir().unwrap();
    let mut consumer = Consumer::new(folder.path(), "consumer.py");
    consumer.start(&[&roles[0].address()]);
    load.warm_up().await;

    let mut store_lost: Vec<Timestamp> = Vec::new();
    let mut times = Vec::new();
    for number in 0..count {
        // Kills and partitions, to synchronous and lagging ones: all four within four rounds.
        let round = Round { synchronous: number % 2 == 0, by_partition: number % 4 == 1 || number % 4 == 2 };
        until_usual_rate(&load).await;
        let begun = now();
        let before = load.cluster.store.events(0, 1).await.unwrap().epoch;
        let promoted = pair.fail_over(&servers, round, size.trouble).await;
        let log_before = load.origin.request_count();
        until_usual_rate(&load).await;
        let recovered = now();
        assert!(load.origin.request_count() > log_before);
        let took = recovered.since(promoted);
        let epoch = load.cluster.store.events(0, 1).await.unwrap().epoch;
        assert_ne!(epoch, before, "{round:?}");
        // What the standby did not have yet, and what the former primary stored alone.
        store_lost.extend([begun, promoted]);
        let stood = longest_stand(&load.origin.log(), begun);
        println!("{round:?}: usual rate {took:?} after the promotion; no request at all for at most {stood:?}");
        times.push(took);
        pair.repair(&servers, round);
    }
    let truth = load.truth();
    let settled = now();
    // A host that throttles is held meanwhile.
    tokio::time::sleep(size.worst_gap() + size.hold()).await;
    load.until_known(&truth).await;
    let log = load.origin.log();
    let until = now();
    for role in roles.drain(2..) {
        role.stop().await;
    }
    load.until_quiet().await;
    let events = event_seqs(&load.cluster).await;
    let epoch = load.cluster.store.events(0, 1).await.unwrap().epoch;
    let followed = consumer.wait_for_all(&epoch, &events).await;
    for role in roles {
        role.stop().await;
    }

    let database = PgPool::connect(&pair.urls[pair.primary]).await.unwrap();
    let (lost, doubled) = load.lost_and_doubled(&truth).await;
    let (twice, reports) = load.cluster.versions_reached_twice(&database).await;
    load.cluster.assert_well_counted(&database).await;
    let feeds = load.cluster.feeds().await.len();
    let proof = load.prove(&log, &database, &[], &store_lost).await;
    let manners = load.manners(&log, proof.undone());
    let last: Vec<_> = log.iter().filter(|record| record.wall >= settled).cloned().collect();
    let silence = load.longest_silence(&last, until);
    println!("{count} failovers; usual rate after {times:?}; {} requests, {reports} accepted reports", log.len());
    println!("{} events in the last epoch; {manners:?}", events.len());
    assert_eq!((lost.len(), doubled, twice, size.feeds - feeds), (0, 0, 0, 0), "{lost:?}");
    assert!(
        followed == events,
        "the consumer has every event of the last epoch, once and in order: {} of {}",
        followed.len(),
        events.len()
    );
    assert!(log.iter().any(|record| record.status == Some(429)), "no host was held");
    assert!(silence <= size.longest_gap() + size.hold(), "{silence:?}");
    assert!(times.iter().all(|took| *took <= back_within()), "{times:?}");
    proof.assert_holds();
    manners.assert_clean();
}
