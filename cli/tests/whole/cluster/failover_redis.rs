//! Redis with a master that is killed, frozen or cut off, again and again, under a fleet: one that sentinels watch, and one of a cluster.

use std::collections::HashSet;
use std::time::Duration;

use common::config::ServerConfig;
use common::feed::Feed;
use common::host_gate::GateUpkeep;
use common::host_gate::redis::RedisGate;
use common::redis::testing::PrivateServer;
use common::redis::testing::cluster::Clustered;
use common::redis::testing::groups::Watched;
use common::redis::testing::network::{Clients, Network};
use common::redis::{RedisServer, Slot};
use scheduler::schedule::redis::RedisSchedule;
use tokio::time::Instant;

use super::consumers::Consumer;
use super::failover::{LONG, SHORT, assert_nothing_lost, back_within, rounds};
use super::harness::{Kind, Role, Servers, Urls};
use super::load::{Load, Size, now};
use super::recovery::until_usual_rate;
use crate::harness::PATIENCE;

const SHARDS: u16 = 16;

/// What the documentation demands against a split brain: `down-after-milliseconds` and `cluster-node-timeout` are 3 s too.
const FENCE: [&str; 4] = ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "3"];

/// How a master is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Killed,
    Frozen,
    /// It runs, and nobody reaches it.
    CutOff,
    /// A split brain: it is cut off from all servers, and half of the fleet's processes still reach it.
    HalfSplit,
    /// A split brain in which all of the fleet's processes still reach it.
    Split,
}

/// The calls to a silent master have timed out by then, and the other feeds were polled.
const TIMEOUTS: Duration = Duration::from_secs(3);

/// The fleet stands still if it polls less than three quarters of at least this many feeds that are due and need nothing of the lost
/// master.
const ENOUGH: usize = 10;

/// How many of these the short form has, one round of each.
const SHORT_LOSSES: usize = 4;

impl Loss {
    /// Returns which of the roles still reach a master that is cut off.
    fn clients(self, roles: &[Role]) -> Clients {
        match self {
            Loss::HalfSplit => Clients::Of(roles.iter().step_by(2).map(Role::id).collect()),
            Loss::Split => Clients::All,
            _ => Clients::None,
        }
    }
}

/// Servers of which one is elected for another.
enum Group {
    Sentinels(Box<Watched>),
    Cluster(Box<Clustered>),
}

impl Group {
    fn url(&self) -> String {
        match self {
            Group::Sentinels(group) => group.url(),
            Group::Cluster(cluster) => cluster.url(),
        }
    }

    fn parts(&mut self) -> (&mut Vec<PrivateServer>, &Network) {
        match self {
            Group::Sentinels(group) => (&mut group.servers, group.network.as_ref().unwrap()),
            Group::Cluster(cluster) => (&mut cluster.servers, cluster.network.as_ref().unwrap()),
        }
    }

    /// Returns the port at which the fleet knows a server.
    fn port(&self, server: usize) -> u16 {
        match self {
            Group::Sentinels(group) => group.port(server),
            Group::Cluster(cluster) => cluster.port(server),
        }
    }

    /// Returns how masters are lost, in turn. The short form has another split brain for each kind of group.
    fn losses(&self) -> [Loss; 5] {
        let [first, last] = match self {
            Group::Sentinels(_) => [Loss::HalfSplit, Loss::Split],
            Group::Cluster(_) => [Loss::Split, Loss::HalfSplit],
        };
        [Loss::Killed, Loss::Frozen, Loss::CutOff, first, last]
    }

    /// Returns the master that is to be lost: of a cluster the one that has a slot.
    fn master(&self, slot: Slot) -> usize {
        match self {
            Group::Sentinels(group) => group.settled(),
            Group::Cluster(cluster) => {
                cluster.wait_until_whole();
                cluster.owner(slot)
            }
        }
    }

    fn lose(&mut self, master: usize, loss: Loss, roles: &[Role]) {
        let (servers, network) = self.parts();
        match loss {
            Loss::Killed => servers[master].kill(),
            Loss::Frozen => servers[master].signal("STOP"),
            Loss::CutOff | Loss::HalfSplit | Loss::Split => {
                network.cut_off(u8::try_from(master).unwrap(), loss.clients(roles));
            }
        }
    }

    fn wait_for_another(&self, master: usize, slot: Slot) {
        match self {
            Group::Sentinels(group) => group.wait_for_another(master),
            Group::Cluster(cluster) => cluster.wait_for_another(master, slot),
        };
    }

    /// A master that is only cut off remains a master, and refuses to write.
    fn assert_fenced(&mut self, master: usize) {
        let server = &self.parts().0[master];
        assert!(server.cli(&["ROLE"]).starts_with("master"), "it knows of the other one");
        let begun = Instant::now();
        loop {
            let answer = server.cli(&["SET", "fence", "1"]);
            if ["NOREPLICAS", "CLUSTERDOWN"].iter().any(|code| answer.contains(code)) {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(5), "the old master still writes: {answer}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn repair(&mut self, master: usize, loss: Loss) {
        let (servers, network) = self.parts();
        match loss {
            Loss::Killed => servers[master].start(),
            Loss::Frozen => servers[master].signal("CONT"),
            Loss::CutOff | Loss::HalfSplit | Loss::Split => network.heal(),
        }
        match self {
            Group::Sentinels(group) => group.wait_for_replica(master),
            Group::Cluster(cluster) => cluster.wait_until_whole(),
        }
    }
}

/// Where the fleet's memory of each feed is in a cluster.
struct Places(Vec<(String, [Slot; 2])>);

impl Places {
    /// Reads them: the due time of a feed is at one master, and what the gate knows of its host perhaps at another.
    async fn of(load: &Load, urls: &Urls, gate: &RedisGate) -> Self {
        let server = RedisServer::connect(&ServerConfig::at(&urls.redis), &load.cluster.namespace).unwrap();
        let schedule = RedisSchedule::new(server, SHARDS);
        let place =
            |feed: Feed| (feed.url.as_url().path().to_owned(), [schedule.slot_of(feed.id), gate.slot_of(&feed.host)]);
        Places(load.cluster.feeds().await.into_iter().map(place).collect())
    }

    /// Returns the feeds that need nothing of this master: none without a cluster.
    fn apart_from(&self, master: usize, group: &Group) -> HashSet<String> {
        let Group::Cluster(cluster) = group else { return HashSet::new() };
        let slots: HashSet<Slot> = self.0.iter().flat_map(|(_, slots)| *slots).collect();
        let lost: HashSet<Slot> = slots.into_iter().filter(|slot| cluster.owner(*slot) == master).collect();
        let apart = self.0.iter().filter(|(_, slots)| slots.iter().all(|slot| !lost.contains(slot)));
        apart.map(|(path, _)| path.clone()).collect()
    }
}

/// Waits until readiness names the server that is away.
async fn until_named(role: &mut Role, port: u16) {
    let begun = Instant::now();
    loop {
        let (status, why) = role.get("/readyz").await;
        if status == 503 && why.contains(&format!("127.0.0.1:{port}")) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{status} {why}");
    }
}

/// Waits until requests to all hosts may start: a part whose master was lost is closed for about as long as a lease.
async fn until_open(roles: &mut [Role]) {
    let begun = Instant::now();
    for role in roles {
        while !role.get("/metrics").await.1.lines().any(|line| line == "feedfleet_gate_open 1") {
            assert!(begun.elapsed() < PATIENCE, "the gate is not open: {}", role.stderr());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn masters_are_lost(mut group: Group) {
    let size = Size::pick(SHORT, LONG);
    let servers = Servers::own_with(&["postgres", "rabbitmq"], true);
    let urls = Urls { store: servers.postgres.clone(), redis: group.url(), queue: servers.rabbitmq.clone() };
    let load = Load::new(size, &servers, urls.clone(), "").await;
    let database = sqlx::PgPool::connect(&servers.postgres).await.unwrap();
    load.cluster.watch_versions(&database).await;
    load.throttle_some_hosts();
    let (is_cluster, shards) = (matches!(group, Group::Cluster(_)), SHARDS.to_string());
    // A shard has more due after an election than its part of a round's limit, so that the round claims from it twice.
    let batch = (size.feeds * 4 / 5).min(500).to_string();
    let for_cluster = [("FEEDFLEET_SCHEDULE__SHARDS", shards.as_str()), ("FEEDFLEET_SCHEDULER__CLAIM_BATCH", &batch)];
    let variables = if is_cluster { &for_cluster[..] } else { &[] };
    // A gate that is loaded first would gather all feeds at the moment of its opening.
    let server = RedisServer::connect(&ServerConfig::at(&urls.redis), &load.cluster.namespace).unwrap();
    let parts = server.parts(SHARDS.into());
    let gate = RedisGate::new(server, Duration::ZERO);
    gate.open_new(now()).await.unwrap();
    let places = Places::of(&load, &urls, &gate).await;
    let kinds = [Kind::Scheduler, Kind::Scheduler, Kind::Worker, Kind::Worker];
    let start = |kind| load.cluster.start_with(kind, &urls, variables);
    let mut roles: Vec<Role> = kinds.into_iter().map(start).collect();
    let folder = tempfile::tempdir().unwrap();
    let mut consumer = Consumer::new(folder.path(), "consumer.py");
    consumer.start(&[&roles[0].address()]);
    load.warm_up().await;

    let (mut gate_lost, mut slowest, mut stood_still) = (Vec::new(), Duration::ZERO, Vec::new());
    let (rounds, losses) = (rounds(SHORT_LOSSES), group.losses());
    for round in 0..rounds {
        until_open(&mut roles[..2]).await;
        until_usual_rate(&load).await;
        let (loss, slot) = (losses[round % losses.len()], parts[round * 6 % parts.len()].slot);
        let lost = tokio::task::block_in_place(|| group.master(slot));
        let others = tokio::task::block_in_place(|| places.apart_from(lost, &group));
        let (begun, requests) = (now(), load.origin.request_count());
        group.lose(lost, loss, &roles);
        let clock = Instant::now();
        if is_cluster && loss == Loss::Killed {
            until_named(&mut roles[0], group.port(lost)).await;
        }
        tokio::task::block_in_place(|| group.wait_for_another(lost, slot));
        let ended = now();
        gate_lost.extend([begun, ended]);
        let (elected, meanwhile) = (clock.elapsed(), load.origin.request_count() - requests);
        let (due, polled) = load.due_and_polled(&others, begun, ended.before(TIMEOUTS));
        if due >= ENOUGH && 4 * polled < 3 * due {
            stood_still.push(format!("{loss:?}: {polled} of {due}"));
        }
        let back = until_usual_rate(&load).await;
        if matches!(loss, Loss::CutOff | Loss::HalfSplit | Loss::Split) {
            tokio::task::block_in_place(|| group.assert_fenced(lost));
        }
        slowest = slowest.max(back);
        println!(
            "{}. server {lost} {loss:?}: another master after {elected:?} and {meanwhile} requests, {polled} of {due} feeds polled that \
             were due and need nothing of it, usual rate {back:?} later",
            round + 1,
        );
        tokio::task::block_in_place(|| group.repair(lost, loss));
        load.until_stored().await;
    }
    println!("{rounds} failovers, usual rate after at most {slowest:?}");
    assert_nothing_lost(&load, roles, &database, &gate_lost, &consumer).await;
    assert!(stood_still.is_empty(), "feeds of other masters were not polled: {stood_still:?}");
    assert!(slowest < back_within(), "{slowest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn masters_that_sentinels_replace_cost_seconds_and_nothing_else() {
    let group = tokio::task::block_in_place(|| Watched::over_network(&FENCE));
    masters_are_lost(Group::Sentinels(Box::new(group))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn masters_of_a_cluster_that_are_lost_cost_their_own_hosts_seconds_and_nothing_else() {
    let cluster = tokio::task::block_in_place(|| Clustered::over_network(3, &FENCE));
    masters_are_lost(Group::Cluster(Box::new(cluster))).await;
}
