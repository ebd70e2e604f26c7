//! A Redis Cluster of several masters with replicas.

use std::time::Duration;

use super::groups::{announced, through, wait_for};
use super::network::Network;
use super::{PrivateServer, patient};
use crate::redis::{RedisServer, Slot};
use crate::testing::Port;

/// A master that is silent for this long is down for the others.
pub const NODE_TIMEOUT: Duration = Duration::from_secs(3);
const SLOTS: usize = 16_384;

/// A cluster, gone with the test.
pub struct Clustered {
    /// The servers: the masters in the beginning, then a replica of each, then another one of each, and so on.
    pub servers: Vec<PrivateServer>,
    /// What lies between them, if it can be cut.
    pub network: Option<Network>,
    masters: usize,
    /// Where each node announces that clients and the other nodes reach it.
    ports: Vec<[u16; 2]>,
    _buses: Vec<Port>,
}

impl Clustered {
    /// Starts this many masters, each with a replica if they are to have one, and waits until all agree.
    pub fn started(masters: usize, with_replicas: bool) -> Self {
        Self::of(masters, with_replicas, PrivateServer::started)
    }

    /// The same with servers that `start` starts with these arguments.
    pub fn of(masters: usize, with_replicas: bool, start: impl Fn(&[&str]) -> PrivateServer) -> Self {
        let count = if with_replicas { 2 * masters } else { masters };
        Self::made(masters, count, None, start)
    }

    /// Starts this many masters with two replicas each, over a network that can be cut, in which server `n` has the number `n`.
    /// They get these arguments. Must be called in a runtime.
    pub fn over_network(masters: usize, arguments: &[&str]) -> Self {
        let start = |own: &[&str]| PrivateServer::started(&[own, arguments].concat());
        Self::made(masters, 3 * masters, Some(Network::default()), start)
    }

    fn made(masters: usize, count: usize, network: Option<Network>, start: impl Fn(&[&str]) -> PrivateServer) -> Self {
        let timeout = NODE_TIMEOUT.as_millis().to_string();
        let buses: Vec<Port> = (0..count).map(|_| Port::reserved()).collect();
        let mut ports = Vec::new();
        let server = |(number, bus): (u8, &Port)| {
            let doors = network.as_ref().map(|network| [network.door(number), network.door(number)]);
            let announced = doors.iter().flat_map(|[clients, bus]| {
                let port = ["--cluster-announce-bus-port".to_owned(), bus.port.to_string()];
                announced(number, "cluster-", clients.port).into_iter().chain(port)
            });
            let announced: Vec<String> = announced.collect();
            let announced: Vec<&str> = announced.iter().map(String::as_str).collect();
            let number = bus.number().to_string();
            let own = ["--cluster-enabled", "yes", "--cluster-port", &number, "--cluster-node-timeout", &timeout];
            let common = [
                "--cluster-require-full-coverage",
                "no",
                "--cluster-replica-validity-factor",
                "0",
                "--cluster-allow-replica-migration",
                "no",
                "--repl-diskless-sync-delay",
                "0",
                "--repl-ping-replica-period",
                "1",
            ];
            let server = start(&[&own[..], &common[..], &announced[..]].concat());
            let [clients, nodes] = doors.as_ref().map_or([None; 2], |[clients, bus]| [Some(clients), Some(bus)]);
            ports.push([through(clients, server.port), through(nodes, bus.number())]);
            server
        };
        let servers = (0..).zip(&buses).map(server).collect();
        let cluster = Clustered { servers, network, masters, ports, _buses: buses };
        cluster.join();
        cluster
    }

    fn join(&self) {
        let (first, share) = (&self.servers[0], SLOTS.div_ceil(self.masters));
        for (at, server) in self.servers.iter().enumerate() {
            server.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]);
            if at < self.masters {
                let [first, last] = [at * share, ((at + 1) * share).min(SLOTS) - 1].map(|slot| slot.to_string());
                assert_eq!(server.cli(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]), "OK");
            }
            if at > 0 {
                let [port, bus] = self.ports[at].map(|port| port.to_string());
                assert_eq!(first.cli(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]), "OK");
            }
        }
        for server in &self.servers {
            wait_for("all nodes know each other", || {
                let nodes = server.cli(&["CLUSTER", "NODES"]);
                nodes.lines().count() == self.servers.len() && !nodes.contains("handshake")
            });
        }
        for (at, replica) in self.servers.iter().enumerate().skip(self.masters) {
            let master = self.servers[at % self.masters].cli(&["CLUSTER", "MYID"]);
            wait_for("a replica follows its master", || replica.cli(&["CLUSTER", "REPLICATE", &master]) == "OK");
        }
        self.wait_until_whole();
    }

    /// Waits until all servers run, all slots have masters, and the replicas are in sync.
    pub fn wait_until_whole(&self) {
        for server in &self.servers {
            wait_for("a node sees the whole cluster", || {
                let info = server.cli(&["CLUSTER", "INFO"]);
                let nodes = server.cli(&["CLUSTER", "NODES"]);
                info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384") && !nodes.contains("fail")
            });
            wait_for("a replica is in sync", || {
                let info = server.cli(&["INFO", "replication"]);
                info.contains("role:master") || info.contains("master_link_status:up")
            });
        }
    }

    /// Returns the URL of the cluster: it names some of the nodes.
    pub fn url(&self) -> String {
        let scheme = if self.servers[0].tls { "rediss-cluster" } else { "redis-cluster" };
        let hosts: Vec<String> = self.ports.iter().take(3).map(|[port, _]| format!("127.0.0.1:{port}")).collect();
        format!("{scheme}://{}/", hosts.join(","))
    }

    /// Returns the port that a server announces, to which clients connect.
    pub fn port(&self, server: usize) -> u16 {
        self.ports[server][0]
    }

    /// Returns a separate connection, as another process would have.
    pub fn client(&self, namespace: &str) -> RedisServer {
        patient(&self.url(), namespace)
    }

    /// Returns which server has a slot, as this one sees it.
    pub fn owner_seen_by(&self, server: usize, slot: Slot) -> Option<usize> {
        let nodes = self.servers[server].cli(&["CLUSTER", "NODES"]);
        let has = |line: &&str| {
            line.contains("master")
                && !line.contains("fail")
                && line.split(' ').skip(8).any(|word| holds(word, slot.number()))
        };
        let line = nodes.lines().find(has)?.to_owned();
        self.ports.iter().position(|[port, _]| line.contains(&format!(":{port}@")))
    }

    /// Returns which server has a slot: all that run must agree.
    pub fn owner(&self, slot: Slot) -> usize {
        let mut owner = None;
        wait_for("all agree who has a slot", || {
            let seen: Vec<_> = (0..self.servers.len())
                .filter(|server| self.servers[*server].is_running())
                .map(|server| self.owner_seen_by(server, slot))
                .collect();
            owner = seen.first().copied().flatten();
            owner.is_some() && seen.iter().all(|other| *other == owner)
        });
        owner.unwrap()
    }

    /// Waits until another server than this one, which may be frozen, has a slot; returns which.
    pub fn wait_for_another(&self, old: usize, slot: Slot) -> usize {
        let mut found = None;
        wait_for("a replica is elected", || {
            let witness = (0..self.servers.len()).find(|server| *server != old && self.servers[*server].is_running());
            found = witness.and_then(|witness| self.owner_seen_by(witness, slot)).filter(|owner| *owner != old);
            found.is_some_and(|new| self.servers[new].cli(&["ROLE"]).starts_with("master"))
        });
        found.unwrap()
    }

    /// Begins to move a slot: until [`Self::finish_move`] its keys are on both servers.
    pub fn begin_move(&self, slot: Slot, to: usize) {
        let (from, slot) = (self.owner(slot), slot.number().to_string());
        let [source, target] = [from, to].map(|server| self.servers[server].cli(&["CLUSTER", "MYID"]));
        assert_eq!(self.servers[to].cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]), "OK");
        assert_eq!(self.servers[from].cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]), "OK");
    }

    /// Moves up to this many keys of a slot; returns how many are left.
    pub fn move_keys(&self, slot: Slot, from: usize, to: usize, count: usize) -> usize {
        let (number, port) = (slot.number().to_string(), self.servers[to].port.to_string());
        let keys = self.servers[from].cli(&["CLUSTER", "GETKEYSINSLOT", &number, &count.to_string()]);
        let keys: Vec<&str> = keys.lines().filter(|key| !key.is_empty()).collect();
        if !keys.is_empty() {
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "REPLACE", "KEYS"];
            words.extend(&keys);
            self.servers[from].cli(&words);
        }
        self.servers[from].cli(&["CLUSTER", "COUNTKEYSINSLOT", &number]).parse().unwrap()
    }

    /// Moves what is left of a slot, and says that it is moved.
    pub fn finish_move(&self, slot: Slot, from: usize, to: usize) {
        let (number, id) = (slot.number().to_string(), self.servers[to].cli(&["CLUSTER", "MYID"]));
        wait_for("all keys of a slot have moved", || {
            self.move_keys(slot, from, to, 100) == 0
                && self.servers[to].cli(&["CLUSTER", "SETSLOT", &number, "NODE", &id]) == "OK"
                && self.servers[from].cli(&["CLUSTER", "SETSLOT", &number, "NODE", &id]) == "OK"
        });
    }
}

/// Returns whether a word of `CLUSTER NODES` contains a slot.
fn holds(word: &str, slot: u16) -> bool {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    match (first.parse::<u16>(), last.parse::<u16>()) {
        (Ok(first), Ok(last)) => (first..=last).contains(&slot),
        _ => false,
    }
}
