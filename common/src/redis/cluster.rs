//! A Redis Cluster: a connection to each master, and the map of slots that says which of them to call.
//!
//! The driver's own cluster connection answers all calls from one task, which waits while it reconnects, so that a node
//! that hangs delays the calls to all others. Here each master is a separate [`Node`]. The map is read again after
//! `MOVED`, after `CLUSTERDOWN`, and while a node cannot be used: by one task for all callers, and not more often than
//! [`SURVEY_PAUSE`].

mod map;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{
    ConnectionAddr, ConnectionInfo, ErrorKind, FromRedisValue, Script, ScriptInvocation, ServerErrorKind, cmd,
};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout_at};

use self::map::Map;
pub(super) use self::map::all_addresses;
use super::address::{Address, TlsPaths};
use super::error::ServerError;
use super::node::{Limits, Node};
use super::slot::Slot;

/// Between two readings of the map.
const SURVEY_PAUSE: Duration = Duration::from_millis(100);
/// How long nodes have to answer what the map is.
const SURVEY: Duration = Duration::from_millis(500);
/// How long the others have once most have answered: the one that got a slot knows it first.
const SURVEY_REST: Duration = Duration::from_millis(50);
/// Between two tries of a call that the cluster cannot serve yet: the first, doubled each time, and the longest.
const RETRY: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(100)];

/// A cluster.
pub(super) struct Cluster {
    /// Some of its nodes, as the URL names them.
    seeds: Vec<ConnectionInfo>,
    files: TlsPaths,
    limits: Limits,
    known: std::sync::Mutex<Known>,
    /// When the map was read last; held by the task that reads it.
    surveyed: Mutex<Option<Instant>>,
    /// The nodes in use, by address.
    nodes: std::sync::Mutex<HashMap<String, Arc<Node>>>,
}

/// What is known of the cluster.
#[derive(Clone, Default)]
struct Known {
    /// Counts readings, successful or not.
    readings: u64,
    map: Arc<Map>,
    /// Why the last reading failed, if it did.
    failure: Option<ServerError>,
}

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    /// Nothing.
    Fail,
    /// The slot has another master, or none at the moment.
    Reread,
    /// The slot is being moved, and the keys of a script are on both nodes.
    Wait,
    /// The connection broke, or there is none.
    Reconnect,
}

impl Remedy {
    fn of(error: &ServerError) -> Self {
        let refused = match error {
            ServerError::Unreachable(_) => return Remedy::Reconnect,
            ServerError::Refused(error) => error.kind(),
            _ => return Remedy::Fail,
        };
        match refused {
            ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::ClusterDown) => Remedy::Reread,
            // With ASKING, the other node would answer the same to a script some of whose keys do not exist.
            ErrorKind::Server(ServerErrorKind::Ask | ServerErrorKind::TryAgain) => Remedy::Wait,
            _ => Remedy::Fail,
        }
    }
}

impl Cluster {
    pub(super) fn new(seeds: Vec<ConnectionInfo>, files: TlsPaths, limits: Limits) -> Self {
        Cluster {
            seeds,
            files,
            limits,
            known: std::sync::Mutex::default(),
            surveyed: Mutex::default(),
            nodes: std::sync::Mutex::default(),
        }
    }

    /// Runs a script at the master of a slot. `fill` gets the run of that server's process.
    pub(super) async fn eval<T: FromRedisValue>(
        self: &Arc<Self>,
        slot: Slot,
        script: &Script,
        fill: &(impl Fn(&mut ScriptInvocation<'_>, &str) + Send + Sync),
        deadline: Instant,
    ) -> Result<T, ServerError> {
        let [mut pause, longest] = RETRY;
        let mut was_sent_again = false;
        loop {
            let known = self.known_by(deadline).await?;
            let Some(address) = known.map.owner(slot) else {
                self.survey_beside();
                return Err(ServerError::Unserved(slot.0));
            };
            let node = self.node(address);
            let error = match node.eval_promptly(script, fill, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let remedy = Remedy::of(&error);
            match remedy {
                Remedy::Reconnect if !was_sent_again && !node.is_in_trouble() => {
                    was_sent_again = true;
                    continue;
                }
                Remedy::Reconnect | Remedy::Fail => {
                    if error.is_away() {
                        self.survey_beside();
                    }
                    return Err(of_node(address, error));
                }
                Remedy::Reread => {
                    self.survey(known.readings, deadline).await;
                    if self.known().map.owner(slot) != Some(address) {
                        continue;
                    }
                }
                Remedy::Wait => {}
            }
            let retry = Instant::now() + pause;
            if retry >= deadline {
                return Err(of_node(address, error));
            }
            sleep_until(retry).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// Returns the address of the master that has a slot, as far as is known.
    pub(super) async fn owner(self: &Arc<Self>, slot: Slot, deadline: Instant) -> Result<String, ServerError> {
        let known = self.known_by(deadline).await?;
        known.map.owner(slot).map(str::to_owned).ok_or(ServerError::Unserved(slot.0))
    }

    fn known(&self) -> Known {
        crate::lock(&self.known).clone()
    }

    /// Returns what is known, once something is. After a failed reading calls fail immediately for a moment.
    async fn known_by(self: &Arc<Self>, deadline: Instant) -> Result<Known, ServerError> {
        let known = self.known();
        if !known.map.masters().is_empty() {
            return Ok(known);
        }
        if let Some(failure) = &known.failure
            && self.surveyed.try_lock().is_ok_and(|last| last.is_some_and(|last| last.elapsed() < SURVEY_PAUSE))
        {
            return Err(failure.clone());
        }
        self.survey(known.readings, deadline).await;
        let known = self.known();
        match known.failure {
            _ if !known.map.masters().is_empty() => Ok(known),
            Some(failure) => Err(failure),
            None => Err(ServerError::Silent(self.limits.call)),
        }
    }

    /// Reads the map again, unless that was done since these readings.
    async fn survey(self: &Arc<Self>, readings: u64, deadline: Instant) {
        let work = async {
            let mut last = self.surveyed.lock().await;
            if self.known().readings != readings {
                return;
            }
            if let Some(last) = *last {
                sleep_until(last + SURVEY_PAUSE).await;
            }
            let answered = self.answered().boxed().await;
            *last = Some(Instant::now());
            self.note(answered);
        };
        // The caller has its own answer for a deadline that passes.
        let _ = timeout_at(deadline, work).await;
    }

    /// Reads the map again while the caller continues, unless that was done a moment ago.
    fn survey_beside(self: &Arc<Self>) {
        let Ok(last) = self.surveyed.try_lock() else { return };
        if last.is_some_and(|last| last.elapsed() < SURVEY_PAUSE) {
            return;
        }
        drop(last);
        let (cluster, readings) = (Arc::clone(self), self.known().readings);
        tokio::spawn(async move { cluster.survey(readings, Instant::now() + SURVEY * 4).await });
    }

    fn note(&self, answered: Result<Map, ServerError>) {
        let mut known = crate::lock(&self.known);
        known.readings += 1;
        match answered {
            Ok(map) => {
                if !known.map.masters().is_empty() && *known.map != map {
                    tracing::info!(masters = ?map.masters(), "the Redis Cluster has other masters or other slots");
                }
                (known.map, known.failure) = (Arc::new(map), None);
            }
            Err(error) => known.failure = Some(error),
        }
        let seeds: Vec<String> = self.seeds.iter().map(|seed| seed.addr().to_string()).collect();
        let map = Arc::clone(&known.map);
        drop(known);
        // Calls in progress keep theirs.
        crate::lock(&self.nodes).retain(|address, _| map.masters().contains(address) || seeds.contains(address));
    }

    /// Queries the masters; those that the URL names only if most of the masters do not answer.
    async fn answered(self: &Arc<Self>) -> Result<Map, ServerError> {
        let masters = self.known().map.masters().to_vec();
        let (mut answers, mut failure) = self.answers(&masters).await;
        if answers.len() * 2 <= masters.len() {
            let seeds = self.seeds.iter().map(|seed| seed.addr().to_string());
            let others: Vec<String> = seeds.filter(|seed| !masters.contains(seed)).collect();
            let (more, other_failure) = self.answers(&others).await;
            answers.extend(more);
            failure = other_failure.or(failure);
        }
        let no_slots = || ServerError::Refused((ErrorKind::Client, "no node of the cluster names a master").into());
        let by_name = self.seeds.iter().any(|seed| matches!(seed.addr(), ConnectionAddr::TcpTls { .. }));
        Map::of_answers(&answers, by_name).ok_or_else(|| failure.unwrap_or_else(no_slots))
    }

    /// Returns what these nodes answer, and why one did not.
    async fn answers(self: &Arc<Self>, addresses: &[String]) -> (Vec<(String, String)>, Option<ServerError>) {
        let (mut command, limit) = (cmd("CLUSTER"), Instant::now() + SURVEY.min(self.limits.call));
        command.arg("NODES");
        let ask = async |address: &String| (address.clone(), self.node(address).query_promptly(&command, limit).await);
        let mut asked: FuturesUnordered<_> = addresses.iter().map(ask).collect();
        let (mut answers, mut failure, mut until) = (Vec::new(), None, limit);
        while let Ok(Some((address, answer))) = timeout_at(until, asked.next()).await {
            match answer {
                Ok(answer) => answers.push((address, answer)),
                Err(error) => failure = Some(of_node(&address, error)),
            }
            if answers.len() * 2 > addresses.len() {
                until = until.min(Instant::now() + SURVEY_REST);
            }
        }
        (answers, failure)
    }

    /// Returns the node at an address: the connection to it is made when it is first needed.
    fn node(&self, address: &str) -> Arc<Node> {
        let mut nodes = crate::lock(&self.nodes);
        if let Some(node) = nodes.get(address) {
            return Arc::clone(node);
        }
        let node = Arc::new(Node::new(Address::server(self.info(address), self.files.clone()), self.limits));
        nodes.insert(address.to_owned(), Arc::clone(&node));
        node
    }

    /// Returns how to connect to an address: with the URL's credentials.
    fn info(&self, address: &str) -> ConnectionInfo {
        let seed = self.seeds.iter().find(|seed| seed.addr().to_string() == address);
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        let port = port.parse().unwrap_or_default();
        match (seed, self.seeds.first()) {
            (Some(seed), _) => seed.clone(),
            (None, Some(first)) => first.clone().set_addr(match first.addr() {
                ConnectionAddr::TcpTls { insecure, .. } => {
                    ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure: *insecure, tls_params: None }
                }
                _ => ConnectionAddr::Tcp(host.to_owned(), port),
            }),
            (None, None) => unreachable!("a URL names a host"),
        }
    }
}

fn of_node(address: &str, error: ServerError) -> ServerError {
    ServerError::Node { node: address.into(), source: Box::new(error) }
}
