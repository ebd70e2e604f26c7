//! A connection in use. What was interrupted on it is never continued.
//!
//! A call may be dropped at any point, by its time limit or by its caller, while a statement runs. Such a connection, and
//! one on which something failed, is closed; only one that did all it was asked goes back into the pool, and not for longer
//! than [`RETURN_LIMIT`]: a server that stopped answering would otherwise keep the pool's places.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, Postgres};

use super::PostgresStore;
use crate::StoreError;

const RETURN_LIMIT: Duration = Duration::from_secs(5);

/// A connection until it is [kept](Session::keep), or closed by being dropped.
pub(super) struct Session(PoolConnection<Postgres>);

impl PostgresStore {
    /// Takes a connection out of the pool, or makes one.
    pub(super) async fn session(&self, action: &'static str) -> Result<Session, StoreError> {
        let mut connection = self.pool.acquire().await.map_err(StoreError::on(action))?;
        connection.close_on_drop();
        Ok(Session(connection))
    }
}

impl Session {
    /// Gives the connection back: all that was asked of it is done.
    pub(super) fn keep(mut self) {
        let returned = self.0.return_to_pool();
        tokio::spawn(async move {
            // Too late: it is closed.
            let _ = tokio::time::timeout(RETURN_LIMIT, returned).await;
        });
    }
}

impl Deref for Session {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.0
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.0
    }
}
