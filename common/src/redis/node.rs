//! One connection to one server, made when it is first needed and again whenever it is lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, FromRedisValue, RedisError, Script, ScriptInvocation, ServerErrorKind,
};
use futures_util::FutureExt;
use tokio::sync::Mutex;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::address::Address;
use super::error::ServerError;

/// After a failed attempt to connect, calls fail at once for this long, doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest such pause: a server that is back is noticed within it.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// A call ends by then, a new connection included.
    pub(super) call: Duration,
    /// A connection is made and greeted within this, so that a caller that finds none can still use it.
    pub(super) connect: Duration,
}

impl Default for Limits {
    /// Well above the slowest script, well below any lease.
    fn default() -> Self {
        Limits { call: Duration::from_secs(2), connect: Duration::from_secs(1) }
    }
}

/// A server, and the connection to it.
pub(super) struct Node {
    address: Address,
    limits: Limits,
    state: std::sync::Mutex<State>,
    /// Held by the task that connects; the others wait, each until its own deadline.
    attempts: Mutex<Attempts>,
    /// A task connects for [`Node::eval_promptly`].
    reconnecting: AtomicBool,
}

/// Both change together: an error that stayed beside a new connection would fail calls for as long as that connection lasts.
#[derive(Default)]
struct State {
    /// The connection, if there is one.
    link: Option<Link>,
    /// The error of the last failed attempt or timeout; removed by the next connection.
    trouble: Option<ServerError>,
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
    /// A call over it got no answer in time.
    silent: CancellationToken,
}

impl Node {
    pub(super) fn new(address: Address, limits: Limits) -> Self {
        Node {
            address,
            limits,
            state: std::sync::Mutex::default(),
            attempts: Mutex::default(),
            reconnecting: AtomicBool::new(false),
        }
    }

    /// Runs a script. `fill` gets the run of the server's process.
    pub(super) async fn eval<T: FromRedisValue>(
        &self,
        script: &Script,
        fill: &(impl Fn(&mut ScriptInvocation<'_>, &str) + Send + Sync),
        deadline: Instant,
    ) -> Result<T, ServerError> {
        let link = self.link_by(deadline).await?;
        self.eval_over(link, script, fill, deadline).await
    }

    /// Runs a script as [`Self::eval`] does, but waits for a first connection only: after a failed attempt or a timeout every
    /// call fails immediately until a task has connected, also those that wait for an answer already, so that a node that is away
    /// delays no call to the others.
    pub(super) async fn eval_promptly<T: FromRedisValue>(
        self: &Arc<Self>,
        script: &Script,
        fill: &(impl Fn(&mut ScriptInvocation<'_>, &str) + Send + Sync),
        deadline: Instant,
    ) -> Result<T, ServerError> {
        let link = self.link_promptly(deadline).await?;
        let silent = link.silent.clone();
        tokio::select! {
            biased;
            answer = self.eval_over(link, script, fill, deadline) => answer,
            () = silent.cancelled() => Err(self.silent()),
        }
    }

    /// Sends a command, over a connection that is made as for [`Self::eval_promptly`]. An answer that comes too late closes
    /// nothing: the command may have waited for a slow script.
    pub(super) async fn query_promptly<T: FromRedisValue>(
        self: &Arc<Self>,
        command: &Cmd,
        deadline: Instant,
    ) -> Result<T, ServerError> {
        let mut link = self.link_promptly(deadline).await?;
        match timeout_at(deadline, command.query_async(&mut link.connection)).await {
            Ok(answer) => self.judged(Ok(answer), link.number),
            Err(_) => Err(self.silent()),
        }
    }

    async fn eval_over<T: FromRedisValue>(
        &self,
        mut link: Link,
        script: &Script,
        fill: &(impl Fn(&mut ScriptInvocation<'_>, &str) + Send + Sync),
        deadline: Instant,
    ) -> Result<T, ServerError> {
        let mut invocation = script.prepare_invoke();
        fill(&mut invocation, &link.run);
        let answer = timeout_at(deadline, invocation.invoke_async(&mut link.connection)).await;
        self.judged(answer, link.number)
    }

    /// Returns whether the last attempt to connect failed or a call timed out, and no connection was made since.
    pub(super) fn is_in_trouble(&self) -> bool {
        self.state().trouble.is_some()
    }

    /// Returns an answer, or closes the connection on which none came.
    fn judged<T>(&self, answer: Result<Result<T, RedisError>, Elapsed>, link: u64) -> Result<T, ServerError> {
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if ends_connection(&error) => {
                self.close(link, None);
                Err(ServerError::Unreachable(error))
            }
            Ok(Err(error)) => Err(ServerError::Refused(error)),
            Err(_) => {
                self.close(link, Some(self.silent()));
                Err(self.silent())
            }
        }
    }

    fn silent(&self) -> ServerError {
        ServerError::Silent(self.limits.call)
    }

    async fn link_by(&self, deadline: Instant) -> Result<Link, ServerError> {
        timeout_at(deadline, self.link()).await.unwrap_or_else(|_| Err(self.silent()))
    }

    async fn link_promptly(self: &Arc<Self>, deadline: Instant) -> Result<Link, ServerError> {
        let trouble = self.state().trouble.clone();
        let Some(error) = trouble else { return self.link_by(deadline).await };
        if !self.reconnecting.swap(true, Ordering::AcqRel) {
            let node = Arc::clone(self);
            tokio::spawn(async move {
                // Why it failed is returned by the next calls.
                let _ = node.link().await;
                node.reconnecting.store(false, Ordering::Release);
            });
        }
        Err(error)
    }

    /// Returns the connection, made now if there is none. Attempts are spaced: between two of them all calls fail at
    /// once.
    async fn link(&self) -> Result<Link, ServerError> {
        if let Some(link) = &self.state().link {
            return Ok(link.clone());
        }
        let mut attempts = self.attempts.lock().await;
        if let Some(link) = &self.state().link {
            return Ok(link.clone());
        }
        if let Some(failure) = attempts.failure.as_ref().filter(|failure| failure.at.elapsed() < failure.pause) {
            return Err(failure.error.clone());
        }
        let limits = self.limits;
        // Boxed, because its type is deep.
        let error = match timeout(limits.connect, greet(&self.address, limits).boxed()).await {
            Ok(Ok((connection, run))) => {
                attempts.connections += 1;
                attempts.failure = None;
                let link = Link { number: attempts.connections, connection, run, silent: CancellationToken::new() };
                *self.state() = State { link: Some(link.clone()), trouble: None };
                return Ok(link);
            }
            Ok(Err(error)) => ServerError::Unreachable(error),
            Err(_) => ServerError::Silent(limits.connect),
        };
        let pause = attempts.failure.as_ref().map_or(FIRST_PAUSE, |last| (last.pause * 2).min(LONGEST_PAUSE));
        attempts.failure = Some(Failure { error: error.clone(), pause, at: Instant::now() });
        self.state().trouble = Some(error.clone());
        Err(error)
    }

    /// Forgets a connection that failed, and remembers the error if there is one, unless another connection took its place already.
    fn close(&self, number: u64, trouble: Option<ServerError>) {
        let mut state = self.state();
        let closed = state.link.take_if(|link| link.number == number);
        if let (Some(link), Some(_)) = (closed, &trouble) {
            state.trouble = trouble;
            link.silent.cancel();
        }
    }

    /// Returns whether there is a connection.
    #[cfg(test)]
    pub(super) fn is_connected(&self) -> bool {
        self.state().link.is_some()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        crate::lock(&self.state)
    }
}

/// Connects, and queries which process answers.
async fn greet(address: &Address, limits: Limits) -> Result<(MultiplexedConnection, Arc<str>), RedisError> {
    // Half for the sentinels, half for the server that they name.
    let client = address.client(limits.connect / 2).await?;
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

/// Returns whether the connection is of no more use: it broke or timed out, or the server is a replica now, or a master that its
/// replicas have left, so that another one may be the master by now.
fn ends_connection(error: &RedisError) -> bool {
    let replica = error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly);
    let deserted = error.code() == Some("NOREPLICAS");
    replica || deserted || error.is_unrecoverable_error() || error.is_io_error()
}
