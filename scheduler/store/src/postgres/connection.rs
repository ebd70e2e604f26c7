//! A connection in use. What was interrupted on it is never continued.
//!
//! A call may be dropped at any point, by its time limit or by its caller, while a statement runs. Such a connection,
//! and one on which something failed, is closed. Only a connection whose statements all succeeded goes back into the
//! pool, and not for longer than [`RETURN_LIMIT`]: a server that stopped answering would otherwise keep the pool's
//! places.

use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, Postgres};

use super::PostgresStore;
use super::open::CONNECTIONS;
use super::primary::Servers;
use super::silence::InUse;
use crate::StoreError;

const RETURN_LIMIT: Duration = Duration::from_secs(5);

/// A connection until it is [kept](StoreConnection::keep), or closed by being dropped.
pub(super) struct StoreConnection {
    connection: PoolConnection<Postgres>,
    servers: Arc<Servers>,
    /// The term in which it was acquired.
    term: u64,
    _in_use: InUse,
}

/// All statements see one snapshot: retention must not delete something between the rows and the answer to what is kept.
pub(super) const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

impl PostgresStore {
    /// Takes a connection out of the pool, or opens one.
    pub(super) async fn acquire(&self, action: &'static str) -> Result<StoreConnection, StoreError> {
        // Before it is made: then its server is at least the one of this term.
        let term = self.servers.term();
        let is_busy = || self.connections.used() >= CONNECTIONS as usize;
        let mut connection =
            self.servers.acquire(&self.pool, is_busy).await.map_err(StoreError::unconnected(action))?;
        connection.close_on_drop();
        let servers = Arc::clone(&self.servers);
        Ok(StoreConnection { connection, servers, term, _in_use: self.connections.in_use() })
    }
}

/// Runs a call whose work is one statement, or several that need no transaction: `work` is a block over the connection
/// `on`. A macro, because the compiler cannot yet prove that the futures of async closures over references are `Send`.
macro_rules! on_connection {
    ($store:expr, $action:expr, |$on:ident| $work:expr) => {
        $store
            .call($action, || async {
                let mut session = $store.acquire($action).await?;
                let $on = &mut *session;
                let done: Result<_, sqlx::Error> = async { $work }.await;
                let done = done.map_err($crate::StoreError::on($action))?;
                session.keep();
                Ok(done)
            })
            .await
    };
}

/// Runs a call whose work is one transaction, begun by `$begin` if that is given.
macro_rules! in_transaction {
    ($store:expr, $action:expr, |$tx:ident| $work:expr) => {
        in_transaction!($store, $action, "BEGIN", |$tx| $work)
    };
    ($store:expr, $action:expr, $begin:expr, |$tx:ident| $work:expr) => {
        on_connection!($store, $action, |on| {
            let mut transaction = sqlx::Connection::begin_with(&mut *on, $begin).await?;
            let $tx = &mut *transaction;
            let done: Result<_, sqlx::Error> = async { $work }.await;
            let done = done?;
            transaction.commit().await?;
            Ok(done)
        })
    };
}

pub(super) use {in_transaction, on_connection};

impl StoreConnection {
    /// Returns the connection to the pool: all its statements are done. One of an earlier term is closed.
    pub(super) fn keep(mut self) {
        if self.term != self.servers.term() {
            return;
        }
        let mut returned = Box::pin(self.connection.return_to_pool());
        let (servers, term) = (Arc::clone(&self.servers), self.term);
        tokio::spawn(async move {
            // It is checked before it is idle again, and the term may end meanwhile.
            let returned = poll_fn(|context| match servers.term() == term {
                true => returned.as_mut().poll(context),
                false => Poll::Ready(()),
            });
            // Too late: it is closed.
            let _ = tokio::time::timeout(RETURN_LIMIT, returned).await;
        });
    }
}

impl Deref for StoreConnection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for StoreConnection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}
