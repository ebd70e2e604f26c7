//! A Redis server as the seams use it: one multiplexed connection per process and server, made when it is first needed and
//! again whenever it is lost, and scripts that run over it.
//!
//! A server that is away or stands still costs every caller a bounded time and an error; nobody waits for its return, and
//! the first call after it finds the way back. What is not in here: what the scripts do, and any retry beyond the one that a
//! lost connection asks for. Every script must bear being run twice, because one that timed out may still have run.

pub mod rights;
#[cfg(any(test, feature = "conformance"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use ::redis::{
    AsyncConnectionConfig, Client, ErrorKind, FromRedisValue, IntoConnectionInfo, RedisError, Script, ScriptInvocation,
    ServerErrorKind,
};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

use crate::time::{Clock, ClocksDiffer, Timestamp, clocks_agree};

/// After a failed attempt to connect, calls fail at once for this long, doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest such pause: a server that is back is noticed within it.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Clocks that are synchronised differ by less. Nothing depends on it: gaps, holds and leases are judged by the server's clock.
const SKEW_WARNING: Duration = Duration::from_millis(100);
/// The kernel ends a connection on which the server acknowledged nothing for this long, sent data and probes alike.
const TCP_SILENCE: Duration = Duration::from_secs(5);
/// How long an idle connection stays unprobed, and the pause between two probes.
const TCP_PROBE: Duration = Duration::from_secs(2);

/// One Redis server, and the prefix of everything that is kept there. Clones share the connection.
#[derive(Clone)]
pub struct RedisServer {
    shared: Arc<Shared>,
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// A call is over by then, a new connection included.
    call: Duration,
    /// A connection is made and greeted within this, so that a caller who finds none can still use it.
    connect: Duration,
}

impl Default for Limits {
    /// Well above the slowest script, well below any lease.
    fn default() -> Self {
        Limits { call: Duration::from_secs(2), connect: Duration::from_secs(1) }
    }
}

struct Shared {
    client: Client,
    limits: Limits,
    namespace: String,
    check: Script,
    /// The connection, if there is one.
    link: std::sync::Mutex<Option<Link>>,
    /// A difference between the clocks was logged, and still exists.
    skewed: AtomicBool,
    /// Held by the task that connects; the others wait, each until its own deadline.
    attempts: Mutex<Attempts>,
}

#[derive(Default)]
struct Attempts {
    /// Counts connections, so that a late error does not close the next one.
    connections: u64,
    /// The last attempt, if it failed.
    failure: Option<Failure>,
}

struct Failure {
    error: ServerError,
    pause: Duration,
    at: Instant,
}

#[derive(Clone)]
struct Link {
    number: u64,
    connection: MultiplexedConnection,
    /// The server's process, by Redis' own name for it.
    run: Arc<str>,
}

/// Why Redis did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ServerError {
    /// No connection, or it broke.
    #[error("redis cannot be reached")]
    Unreachable(#[source] RedisError),
    /// A connection, but no answer in time. What was asked may still happen.
    #[error("redis did not answer within {0:?}")]
    Silent(Duration),
    /// It answered, and refused.
    #[error("redis refused")]
    Refused(#[source] RedisError),
    /// Times in it would mean different things to us and to others.
    #[error("redis is not used")]
    Clock(#[from] ClocksDiffer),
    /// Its settings would lose what is kept there.
    #[error("redis has maxmemory-policy {0}, which forgets keys at will; set it to noeviction")]
    Evicts(String),
    /// Its memory is full, it is a replica, or its disk is.
    #[error("redis accepts no writes: {0}; if its memory is full, raise maxmemory or remove what else is in it")]
    ReadOnly(String),
}

impl RedisServer {
    /// The server at `redis://` or `rediss://`, with user and password if it wants them. Only an unreadable URL is an error:
    /// whether the server is there shows at the first call, and may change at any time.
    pub fn connect(url: &str, namespace: &str) -> Result<Self, RedisError> {
        Self::connect_within(Limits::default(), url, namespace)
    }

    fn connect_within(limits: Limits, url: &str, namespace: &str) -> Result<Self, RedisError> {
        let shared = Shared {
            client: Client::open(url.into_connection_info()?.set_tcp_settings(tcp_settings()))?,
            limits,
            namespace: namespace.to_owned(),
            check: Script::new(include_str!("redis/check.lua")),
            link: std::sync::Mutex::default(),
            skewed: AtomicBool::new(false),
            attempts: Mutex::default(),
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
        let deadline = Instant::now() + self.shared.limits.call;
        match self.attempt(script, &fill, deadline).await {
            Err(ServerError::Unreachable(_)) => self.attempt(script, &fill, deadline).await,
            other => other,
        }
    }

    async fn attempt<T: FromRedisValue>(
        &self,
        script: &Script,
        fill: &(impl Fn(&mut ScriptInvocation<'_>, &str) + Send + Sync),
        deadline: Instant,
    ) -> Result<T, ServerError> {
        let silent = ServerError::Silent(self.shared.limits.call);
        let Ok(link) = timeout_at(deadline, self.link()).await else { return Err(silent) };
        let mut link = link?;
        let mut invocation = script.prepare_invoke();
        fill(&mut invocation, &link.run);
        match timeout_at(deadline, invocation.invoke_async(&mut link.connection)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if ends_connection(&error) => {
                self.close(link.number);
                Err(ServerError::Unreachable(error))
            }
            Ok(Err(error)) => Err(ServerError::Refused(error)),
            Err(_) => {
                self.close(link.number);
                Err(silent)
            }
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

    /// The connection, made now if there is none. Attempts are spaced: between two of them everybody fails at once.
    async fn link(&self) -> Result<Link, ServerError> {
        if let Some(link) = &*self.current() {
            return Ok(link.clone());
        }
        let mut attempts = self.shared.attempts.lock().await;
        if let Some(link) = &*self.current() {
            return Ok(link.clone());
        }
        if let Some(failure) = attempts.failure.as_ref().filter(|failure| failure.at.elapsed() < failure.pause) {
            return Err(failure.error.clone());
        }
        let limits = self.shared.limits;
        let error = match timeout(limits.connect, greet(&self.shared.client, limits)).await {
            Ok(Ok((connection, run))) => {
                attempts.connections += 1;
                attempts.failure = None;
                let link = Link { number: attempts.connections, connection, run };
                *self.current() = Some(link.clone());
                return Ok(link);
            }
            Ok(Err(error)) => ServerError::Unreachable(error),
            Err(_) => ServerError::Silent(limits.connect),
        };
        let pause = attempts.failure.as_ref().map_or(FIRST_PAUSE, |last| (last.pause * 2).min(LONGEST_PAUSE));
        attempts.failure = Some(Failure { error: error.clone(), pause, at: Instant::now() });
        Err(error)
    }

    /// Forgets a connection that failed, unless another one took its place already.
    fn close(&self, number: u64) {
        self.current().take_if(|link| link.number == number);
    }

    fn current(&self) -> MutexGuard<'_, Option<Link>> {
        crate::lock(&self.shared.link)
    }
}

fn tcp_settings() -> TcpSettings {
    let probes = TcpKeepalive::new().with_time(TCP_PROBE).with_interval(TCP_PROBE);
    TcpSettings::default().set_nodelay(true).set_keepalive(probes).set_user_timeout(TCP_SILENCE)
}

/// Connects, and asks which process answers.
async fn greet(client: &Client, limits: Limits) -> Result<(MultiplexedConnection, Arc<str>), RedisError> {
    // No response timeout: the driver's would return an error and keep the connection. Ours closes it.
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(limits.connect)).set_response_timeout(None);
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    let info: String = ::redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
    let run = info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap_or_default();
    if run.is_empty() {
        return Err((ErrorKind::UnexpectedReturnType, "INFO server has no run_id").into());
    }
    Ok((connection, run.into()))
}

/// Returns whether the connection is of no more use: it broke or timed out, or the server is a replica now.
fn ends_connection(error: &RedisError) -> bool {
    let replica = error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly);
    replica || error.is_unrecoverable_error() || error.is_io_error()
}
