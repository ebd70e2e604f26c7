//! A master with replicas, and the sentinels that watch them.

use std::time::{Duration, Instant};

use super::network::{Door, Network};
use super::{PATIENCE, PrivateServer};

/// The name by which the sentinels know the master.
pub const SERVICE: &str = "main";
/// A server that is silent for this long is down for a sentinel.
pub const DOWN_AFTER: Duration = Duration::from_secs(3);

/// The number of the sentinels in a network.
const SENTINELS: u8 = 100;

/// A master with two replicas under three sentinels, gone with it.
pub struct Watched {
    /// The servers; the first one is the master in the beginning.
    pub servers: Vec<PrivateServer>,
    /// Those that watch them.
    pub sentinels: Vec<PrivateServer>,
    /// What lies between them, if it can be cut.
    pub network: Option<Network>,
    /// The port that each server announces.
    ports: Vec<u16>,
}

impl Watched {
    /// Starts them, and waits until each of them knows the others. The servers get these arguments.
    pub fn started(arguments: &[&str]) -> Self {
        Self::of(arguments, None)
    }

    /// The same over a network that can be cut, in which server `n` has the number `n`. Must be called in a runtime.
    pub fn over_network(arguments: &[&str]) -> Self {
        Self::of(arguments, Some(Network::default()))
    }

    fn of(arguments: &[&str], network: Option<Network>) -> Self {
        let mut ports: Vec<u16> = Vec::new();
        let mut server = |number: u8| {
            let mut all =
                ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"].map(str::to_owned).to_vec();
            all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
            let door = network.as_ref().map(|network| network.door(number));
            all.extend(door.iter().flat_map(|door| announced(number, "replica-", door.port)));
            if let Some(master) = ports.first() {
                all.extend(["--replicaof", "127.0.0.1", &master.to_string()].map(str::to_owned));
            }
            let server = PrivateServer::started(&all.iter().map(String::as_str).collect::<Vec<_>>());
            ports.push(through(door.as_ref(), server.port));
            server
        };
        let servers: Vec<PrivateServer> = (0..3).map(&mut server).collect();
        let port = ports[0];
        for replica in &servers[1..] {
            wait_for("a replica is in sync", || {
                replica.cli(&["INFO", "replication"]).contains("master_link_status:up")
            });
        }
        // Sentinels count as servers, so they are on the side of those that are not cut off.
        let source = network.as_ref().map_or_else(String::new, |_| {
            format!("bind-source-addr {}\nsentinel announce-ip 127.0.0.1\n", Network::source(SENTINELS))
        });
        let lines = format!(
            "port PORT\n{source}sentinel monitor {SERVICE} 127.0.0.1 {port} 2\n\
             sentinel down-after-milliseconds {SERVICE} {}\n\
             sentinel failover-timeout {SERVICE} 2000\nsentinel parallel-syncs {SERVICE} 2\n",
            DOWN_AFTER.as_millis()
        );
        let sentinels = [(); 3].map(|()| PrivateServer::sentinel(&lines));
        let watched = Watched { servers, sentinels: Vec::from(sentinels), network, ports };
        watched.wait_until_known();
        watched
    }

    /// Waits until each sentinel knows the others and both replicas.
    pub fn wait_until_known(&self) {
        for sentinel in &self.sentinels {
            wait_for("a sentinel knows all others", || {
                let words = sentinel.cli(&["SENTINEL", "MASTER", SERVICE]);
                let words: Vec<&str> = words.lines().collect();
                let value = |name: &str| words.iter().position(|word| *word == name).map(|at| words[at + 1]);
                value("num-slaves") == Some("2")
                    && value("num-other-sentinels") == Some("2")
                    && value("flags") == Some("master")
            });
            wait_for("both replicas are usable", || {
                let words = sentinel.cli(&["SENTINEL", "REPLICAS", SERVICE]);
                let words: Vec<&str> = words.lines().collect();
                let count = |pair: [&str; 2]| words.windows(2).filter(|words| *words == pair).count();
                count(["flags", "slave"]) == 2 && count(["master-link-status", "ok"]) == 2
            });
        }
    }

    /// Waits until all servers and sentinels know each other; returns which server is the master: on a loaded machine
    /// it may have changed.
    pub fn settled(&self) -> usize {
        wait_for("all sentinels agree", || self.master().is_some());
        self.wait_until_known();
        self.master().unwrap()
    }

    /// Returns the URL of the group.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
        format!("redis-sentinel://{}/0?sentinelServiceName={SERVICE}", hosts.join(","))
    }

    /// Returns the port that a server announces, to which clients connect.
    pub fn port(&self, server: usize) -> u16 {
        self.ports[server]
    }

    /// Returns which server all sentinels name as the master, if they agree.
    pub fn master(&self) -> Option<usize> {
        let named = |sentinel: &PrivateServer| {
            sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]).lines().nth(1).map(str::to_owned)
        };
        let ports: Vec<Option<String>> = self.sentinels.iter().map(named).collect();
        let port = ports.first()?.clone()?;
        let agreed = ports.iter().all(|other| other.as_ref() == Some(&port));
        self.ports.iter().position(|announced| agreed && announced.to_string() == port)
    }

    /// Waits until another server than `old`, which may be frozen, is the master and says so itself; returns which.
    pub fn wait_for_another(&self, old: usize) -> usize {
        wait_for("another server is the master", || {
            let another = self.master().filter(|master| *master != old);
            another.is_some_and(|master| self.servers[master].cli(&["ROLE"]).starts_with("master"))
        });
        self.master().unwrap()
    }

    /// Waits until a server is a replica in sync.
    pub fn wait_for_replica(&self, server: usize) {
        wait_for("the old master is a replica", || {
            let info = self.servers[server].cli(&["INFO", "replication"]);
            info.contains("role:slave") && info.contains("master_link_status:up")
        });
    }

    /// The replicas receive nothing that is written from now on, until [`Self::resume_replication`].
    pub fn cut_replication(&self) {
        let master = self.master().unwrap();
        for server in &self.servers {
            assert_eq!(server.cli(&["CONFIG", "SET", "masterauth", "none-is-wanted"]), "OK");
        }
        self.servers[master].cli(&["CLIENT", "KILL", "TYPE", "replica"]);
    }

    /// Lets the replicas that run connect to their master again.
    pub fn resume_replication(&self) {
        for server in &self.servers {
            server.cli(&["CONFIG", "SET", "masterauth", ""]);
        }
    }
}

/// Returns the arguments with which a server connects from its own address and announces its door.
pub(super) fn announced(number: u8, kind: &str, port: u16) -> [String; 6] {
    [
        "--bind-source-addr".to_owned(),
        Network::source(number).to_string(),
        format!("--{kind}announce-ip"),
        "127.0.0.1".to_owned(),
        format!("--{kind}announce-port"),
        port.to_string(),
    ]
}

/// Returns the port that others use to reach this one: the door's, if there is one.
pub(super) fn through(door: Option<&Door>, port: u16) -> u16 {
    door.map_or(port, |door| {
        door.lead_to(port);
        door.port
    })
}

/// Waits until something is true.
pub(super) fn wait_for(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
