//! A Redis server as the seams use it, or the master that sentinels name: one multiplexed connection per process and server, made
//! when it is first needed and again whenever it is lost, and scripts that run over it.
//!
//! A server that is away or stands still costs every caller a bounded time and an error; nobody waits for its return, and
//! the first call after it finds the way back. What is not in here: what the scripts do, and any retry beyond the one that a
//! lost connection asks for. Every script must bear being run twice, because one that timed out may still have run.

mod address;
mod error;
mod node;
pub mod rights;
#[cfg(any(test, feature = "conformance"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::redis::{ErrorKind, FromRedisValue, RedisError, Script, ScriptInvocation};
use tokio::time::Instant;

use self::address::{Address, TlsFiles};
pub use self::error::ServerError;
use self::node::{Limits, Node};
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
    node: Node,
    limits: Limits,
    namespace: String,
    check: Script,
    /// A difference between the clocks was logged, and still exists.
    skewed: AtomicBool,
}

impl RedisServer {
    /// The Redis that the configuration names. Only an unreadable URL and unreadable files are errors: whether the server is
    /// there shows at the first call, and may change at any time.
    pub fn connect(config: &ServerConfig, namespace: &str) -> Result<Self, RedisError> {
        Self::connect_within(Limits::default(), config, namespace)
    }

    fn connect_within(limits: Limits, config: &ServerConfig, namespace: &str) -> Result<Self, RedisError> {
        let files = TlsFiles::of(config);
        files.read()?;
        let refused = |reason| RedisError::from((ErrorKind::InvalidClientConfig, "the URL", reason));
        let address = match RedisUrl::parse(&config.url).map_err(refused)? {
            RedisUrl::Server(info) => Address::server(info, files),
            RedisUrl::Sentinel { nodes, service } => Address::of_sentinels(nodes, service, files),
        };
        let shared = Shared {
            node: Node::new(address, limits),
            limits,
            namespace: namespace.to_owned(),
            check: Script::new(include_str!("redis/check.lua")),
            skewed: AtomicBool::new(false),
        };
        Ok(RedisServer { shared: Arc::new(shared) })
    }

    /// The prefix of all keys of this fleet.
    pub fn namespace(&self) -> &str {
        &self.shared.namespace
    }

    /// Runs a script that may run twice: after a connection that broke before the answer it is sent once more. `fill` gets
    /// the run of the server's process, for what must not outlive it.
    pub async fn eval<T: FromRedisValue>(
        &self,
        script: &Script,
        fill: impl Fn(&mut ScriptInvocation<'_>, &str) + Send + Sync,
    ) -> Result<T, ServerError> {
        let (node, deadline) = (&self.shared.node, Instant::now() + self.shared.limits.call);
        match node.eval(script, &fill, deadline).await {
            Err(ServerError::Unreachable(_)) => node.eval(script, &fill, deadline).await,
            other => other,
        }
    }

    /// How long a call may take.
    pub fn patience(&self) -> Duration {
        self.shared.limits.call
    }

    /// Checks that the server answers, that its clock agrees with ours, and that it keeps what it is given. Returns the value
    /// of `key`.
    pub async fn check_reading(&self, key: &str, clock: &dyn Clock) -> Result<Option<String>, ServerError> {
        let (before, asked) = (clock.now(), Instant::now());
        let answer = self.eval(&self.shared.check, |call, _| {
            call.key(key).key(format!("{key}:writable"));
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
