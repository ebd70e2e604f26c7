//! Connections that went silent: the network, or something in it, no longer carries them, and neither side closes them.
//!
//! A statement that waits for a lock and one whose question or answer was lost look alike from here. So when calls take
//! long, a query over a new connection shows how many of our statements the server works on. Fewer than we wait for,
//! twice in a row, means that some are lost: the calls end, their connections are closed, and no connection that was
//! idle at that time is used again. Those that are still at a host that is no longer in use are lost at once. The
//! driver does not let us set TCP's own limit on our side of the connection.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use tokio::time::{Instant, timeout};

use super::primary::Servers;

/// A call that takes longer is looked at.
const SLOW: Duration = Duration::from_secs(2);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a look may take, connecting included; beyond it nothing is known.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long an idle connection may take to prove that it still carries.
const PING: Duration = Duration::from_secs(1);

/// What is known of a process's connections.
pub(super) struct Connections {
    /// The name under which the server lists them, and no other process's.
    name: String,
    servers: Arc<Servers>,
    state: Mutex<State>,
    /// One looks for all.
    looking: tokio::sync::Mutex<Option<Look>>,
}

#[derive(Default)]
struct State {
    last: u64,
    /// Connections in use, since when, and at which host.
    used: HashMap<u64, (Instant, usize)>,
    /// Connections that were idle then are not trusted.
    lost: Option<Instant>,
}

/// What the last look found.
struct Look {
    at: Instant,
    fewer: bool,
    lost: bool,
}

/// A connection in use, until dropped.
pub(super) struct InUse {
    connections: Arc<Connections>,
    number: u64,
}

impl Connections {
    pub(super) fn new(name: String, servers: Arc<Servers>) -> Arc<Self> {
        Arc::new(Connections { name, servers, state: Mutex::default(), looking: tokio::sync::Mutex::default() })
    }

    pub(super) fn in_use(self: &Arc<Self>) -> InUse {
        let host = self.servers.host();
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        state.used.insert(number, (Instant::now(), host));
        InUse { connections: Arc::clone(self), number }
    }

    /// Returns how many connections are in use.
    pub(super) fn used(&self) -> usize {
        self.lock().used.len()
    }

    /// Returns whether an idle connection may be used: it answers a ping, or was used a moment ago.
    pub(super) async fn may_use(&self, connection: &mut PgConnection, idle: Duration, trusted: Duration) -> bool {
        let idle_since = Instant::now().checked_sub(idle);
        if self.lock().lost.is_some_and(|lost| idle_since.is_none_or(|since| since <= lost)) {
            return false;
        }
        if idle_since.is_some_and(|since| !self.servers.is_here(since)) {
            return false;
        }
        if idle <= trusted {
            return true;
        }
        match timeout(PING, connection.ping()).await {
            Ok(answered) => answered.is_ok(),
            Err(_) => {
                self.note_loss();
                false
            }
        }
    }

    /// Returns the call's result; `None` when its connection was lost.
    pub(super) async fn heard<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        let mut call = std::pin::pin!(call);
        if let Ok(ended) = timeout(SLOW, &mut call).await {
            return Some(ended);
        }
        loop {
            tokio::select! {
                biased;
                ended = &mut call => return Some(ended),
                lost = self.look() => if lost {
                    return None;
                },
            }
            if let Ok(ended) = timeout(LOOK_EVERY, &mut call).await {
                return Some(ended);
            }
        }
    }

    /// Returns whether some connections are lost.
    async fn look(&self) -> bool {
        let mut last = self.looking.lock().await;
        if let Some(look) = last.as_ref().filter(|look| look.at.elapsed() < LOOK_EVERY) {
            return look.lost;
        }
        let slow = |state: &State| -> HashSet<u64> {
            state.used.iter().filter(|(_, (since, _))| since.elapsed() > SLOW).map(|(number, _)| *number).collect()
        };
        let waiting = slow(&self.lock());
        let working = timeout(PATIENCE, self.working()).await;
        // Without those that ended while it was looked at.
        let waiting = self.lock().used.keys().filter(|number| waiting.contains(number)).count();
        let here = self.servers.host();
        let left = self.lock().used.values().any(|(since, host)| *host != here && since.elapsed() > SLOW);
        let fewer = matches!(working, Ok(Ok(working)) if working < waiting);
        let twice = fewer
            && last.as_ref().is_some_and(|before| before.fewer && before.at.elapsed() < 2 * LOOK_EVERY + PATIENCE);
        let lost = left || twice;
        if lost && !left {
            tracing::warn!(waiting, "connections to PostgreSQL went silent; they are replaced");
        }
        if lost {
            self.note_loss();
        }
        *last = Some(Look { at: Instant::now(), fewer, lost });
        lost
    }

    /// For how many of our connections the server works, or did a moment ago. An error if it does not even list the one that asks.
    async fn working(&self) -> Result<usize, sqlx::Error> {
        let mut on = self.servers.connect().await?;
        // As a text, without being prepared: that would be a question more, and the server may be far away.
        let sql = format!(
            "SELECT count(*) FILTER (WHERE pid <> pg_backend_pid() \
             AND (state = 'active' OR clock_timestamp() - state_change < interval '1 second')), \
             coalesce(bool_or(pid = pg_backend_pid() AND state = 'active'), false) \
             FROM pg_stat_activity WHERE application_name = '{}'",
            self.name.replace('\'', "''")
        );
        let row = on.fetch_one(AssertSqlSafe(sql)).await?;
        let (working, is_listed): (i64, bool) = (row.try_get(0)?, row.try_get(1)?);
        if !is_listed {
            // A proxy gives sessions other names, or the server keeps no list: then the others are not found either.
            return Err(sqlx::Error::RowNotFound);
        }
        // Closed, or dropped: it is not needed any more.
        let _ = on.close().await;
        Ok(usize::try_from(working).unwrap_or(usize::MAX))
    }

    /// Idle connections are used no more.
    pub(super) fn note_loss(&self) {
        self.lock().lost = Some(Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        common::lock(&self.state)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.connections.lock().used.remove(&self.number);
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("name", &self.name).finish_non_exhaustive()
    }
}
