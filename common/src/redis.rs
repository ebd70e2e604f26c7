//! A Redis server as the seams use it, the master that sentinels name, or a Redis Cluster: one multiplexed connection per process and
//! server, made when it is first needed and again whenever it is lost, and scripts that run over it.
//!
//! A server that is away or hangs costs every caller a bounded time and an error; no caller waits for its return, and
//! the first call after it reconnects. What is not in here: what the scripts do, and any retry beyond the one after a
//! lost connection. Every script must be safe to run twice, because one that timed out may still have run.

mod address;
mod cluster;
mod error;
mod node;
pub mod rights;
mod slot;
#[cfg(any(test, feature = "conformance"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::redis::{ErrorKind, FromRedisValue, RedisError, Script, ScriptInvocation, ServerErrorKind};
use futures_util::future::join_all;
use tokio::time::Instant;

use self::address::{Address, TlsPaths};
use self::cluster::Cluster;
pub use self::error::ServerError;
use self::node::{Limits, Node};
pub use self::slot::{Part, Slot};
use crate::config::{RedisUrl, ServerConfig};
use crate::time::{Clock, Timestamp, clocks_agree};

/// Clocks that are synchronised differ by less. Nothing depends on it: gaps, holds and leases are judged by the server's clock.
const SKEW_WARNING: Duration = Duration::from_millis(100);

/// A Redis, and the prefix of everything that is kept there. Clones share the connections.
#[derive(Clone)]
pub struct RedisServer {
    shared: Arc<Shared>,
}

struct Shared {
    topology: Topology,
    limits: Limits,
    namespace: String,
    check: Script,
    /// A difference between the clocks was logged, and still exists.
    skewed: AtomicBool,
}

enum Topology {
    /// All keys are at one server.
    One(Box<Node>),
    /// Each key is at the master that has its slot.
    Cluster(Arc<Cluster>),
}

/// What [`RedisServer::check`] found for each part: nothing where another part of the same server was checked, or else the value of the
/// part's key.
pub type Checked = Vec<Option<Result<Option<String>, ServerError>>>;

impl RedisServer {
    /// Returns the Redis that the configuration names. Only an unreadable URL and unreadable files are errors: whether
    /// the server is there shows at the first call, and may change at any time.
    pub fn connect(config: &ServerConfig, namespace: &str) -> Result<Self, RedisError> {
        Self::connect_within(Limits::default(), config, namespace)
    }

    fn connect_within(limits: Limits, config: &ServerConfig, namespace: &str) -> Result<Self, RedisError> {
        let files = TlsPaths::of(config);
        files.read()?;
        let refused = |reason| RedisError::from((ErrorKind::InvalidClientConfig, "the URL", reason));
        let one = |address| Topology::One(Box::new(Node::new(address, limits)));
        let topology = match RedisUrl::parse(&config.url).map_err(refused)? {
            RedisUrl::Server(info) => one(Address::server(info, files)),
            RedisUrl::Sentinel { nodes, service } => one(Address::of_sentinels(nodes, service, files)),
            RedisUrl::Cluster { nodes } => Topology::Cluster(Arc::new(Cluster::new(nodes, files, limits))),
        };
        let shared = Shared {
            topology,
            limits,
            namespace: namespace.to_owned(),
            check: Script::new(include_str!("redis/check.lua")),
            skewed: AtomicBool::new(false),
        };
        Ok(RedisServer { shared: Arc::new(shared) })
    }

    /// Returns the prefix of all keys of this fleet.
    pub fn namespace(&self) -> &str {
        &self.shared.namespace
    }

    /// Returns whether the servers are a cluster, whose masters each keep some of the parts.
    pub fn is_cluster(&self) -> bool {
        matches!(self.shared.topology, Topology::Cluster(_))
    }

    /// Returns the part for what is kept once.
    pub fn whole(&self) -> Part {
        Part::whole(self.namespace())
    }

    /// Returns parts that spread evenly over the masters of a cluster.
    pub fn parts(&self, count: usize) -> Vec<Part> {
        let part = if self.is_cluster() { Part::spread } else { Part::anywhere };
        (0..count).map(|number| part(self.namespace(), number, count)).collect()
    }

    /// Runs a script at the server that keeps a part. The script may run twice: after a connection that broke before the answer it is
    /// sent once more. `fill` gets the run of the server's process, for what must not outlive it.
    pub async fn eval<T: FromRedisValue>(
        &self,
        slot: Slot,
        script: &Script,
        fill: impl Fn(&mut ScriptInvocation<'_>, &str) + Send + Sync,
    ) -> Result<T, ServerError> {
        let deadline = Instant::now() + self.shared.limits.call;
        let node = match &self.shared.topology {
            Topology::One(node) => node,
            Topology::Cluster(cluster) => return cluster.eval(slot, script, &fill, deadline).await,
        };
        match node.eval(script, &fill, deadline).await {
            Err(ServerError::Unreachable(_)) => node.eval(script, &fill, deadline).await,
            Err(ServerError::Refused(error)) if error.kind() == ErrorKind::Server(ServerErrorKind::Moved) => {
                Err(ServerError::Clustered)
            }
            other => other,
        }
    }

    /// Returns how long a call may take.
    pub fn patience(&self) -> Duration {
        self.shared.limits.call
    }

    /// Checks each server that keeps one of these parts, by the first of its parts: that it answers, that its clock agrees with ours, and
    /// that it keeps what it is given. Reads the part's key of this name.
    pub async fn check(&self, parts: &[Part], name: &str, clock: &dyn Clock) -> Checked {
        let mut servers: HashSet<String> = HashSet::new();
        let mut checks = Vec::with_capacity(parts.len());
        for part in parts {
            let is_first = match self.server_of(part.slot).await {
                Ok(server) => servers.insert(server),
                // The check returns the error.
                Err(_) => servers.insert(String::new()),
            };
            checks.push(is_first.then(|| self.check_reading(part.slot, format!("{}{name}", part.tag), clock)));
        }
        join_all(checks.into_iter().map(async |check| match check {
            Some(check) => Some(check.await),
            None => None,
        }))
        .await
    }

    /// Returns a name of the server that keeps a slot, as far as is known.
    async fn server_of(&self, slot: Slot) -> Result<String, ServerError> {
        match &self.shared.topology {
            Topology::One(_) => Ok(String::new()),
            Topology::Cluster(cluster) => cluster.owner(slot, Instant::now() + self.shared.limits.call).await,
        }
    }

    async fn check_reading(&self, slot: Slot, key: String, clock: &dyn Clock) -> Result<Option<String>, ServerError> {
        let (before, asked) = (clock.now(), Instant::now());
        let answer = self.eval(slot, &self.shared.check, |call, _| {
            call.key(&key).key(format!("{key}:writable"));
        });
        let (seconds, micros, policy, refusal, value): (i64, i64, String, String, Option<String>) = answer.await?;
        let theirs = Timestamp::from_millis(seconds * 1000 + micros / 1000);
        // It read its clock somewhere between our question and its answer.
        let ours = theirs.clamp(before, before.after(asked.elapsed()));
        clocks_agree(ours, theirs)?;
        self.warn_of_skew(ours.since(theirs).max(theirs.since(ours)));
        match (policy.as_str(), refusal.is_empty()) {
            ("noeviction", true) => Ok(value),
            ("noeviction", false) => Err(ServerError::ReadOnly(refusal)),
            _ => Err(ServerError::Evicts(policy)),
        }
    }

    /// Logs when the clocks have drifted apart further than they do where they are synchronised.
    fn warn_of_skew(&self, skew: Duration) {
        if skew > SKEW_WARNING && !self.shared.skewed.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                ?skew,
                "this machine's clock and Redis's differ; synchronise both before they stop the fleet"
            );
        } else if skew < SKEW_WARNING / 2 {
            self.shared.skewed.store(false, Ordering::Relaxed);
        }
    }
}

/// Returns the error of a check that counts. If each part `must_answer`, every error counts. Otherwise an error counts if
/// its server answers, or if none does: while a server is away, the parts at the others continue.
pub fn fault(checked: &Checked, must_answer: bool) -> Option<ServerError> {
    let errors: Vec<&ServerError> = checked.iter().flatten().filter_map(|checked| checked.as_ref().err()).collect();
    let some_answers = checked.iter().flatten().any(Result::is_ok);
    let counts = |error: &&&ServerError| must_answer || !some_answers || !error.is_away();
    errors.iter().find(counts).map(|error| (*error).clone())
}
