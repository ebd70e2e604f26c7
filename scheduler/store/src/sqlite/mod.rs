//! The store on SQLite: one machine, one process, one file.
//!
//! One connection writes, a few read. The single writer is what makes commit order and `seq` order the same, and lets
//! `apply` look at rows and then write them without their changing in between. A batch costs a handful of statements
//! whatever its size: it crosses as two parameters (`batch`), what every poll changes as values (`rows`). The namespace is the file.

mod apply;
mod audit;
mod backup;
mod batch;
mod entries;
mod events;
mod feeds;
mod hosts;
mod list;
mod lock;
mod moves;
mod news;
mod open;
mod push;
mod requeues;
mod rows;
mod subscriptions;
#[cfg(test)]
mod tests;
mod upkeep;

use common::config::QuotaConfig;
use sqlx::pool::PoolConnection;
use sqlx::{Sqlite, SqlitePool, Transaction};

use super::StoreError;

pub use backup::{Backup, BackupError};

/// Runs a call that reads from one snapshot: `work` is a block over the connection `tx`.
macro_rules! in_snapshot {
    ($store:expr, $action:expr, |$tx:ident| $work:expr) => {{
        let done: Result<_, sqlx::Error> = async {
            let mut transaction = $store.readers.begin().await?;
            let $tx = &mut *transaction;
            $work
        }
        .await;
        done.map_err($crate::StoreError::on($action))
    }};
}

/// Runs a call whose work is one transaction that may write: `work` is a block over the connection `tx`. A macro for the
/// same reason as PostgreSQL's.
macro_rules! in_transaction {
    ($store:expr, $action:expr, |$tx:ident| $work:expr) => {
        async {
            let mut transaction = $store.write($action).await?;
            let $tx = &mut *transaction;
            let done: Result<_, sqlx::Error> = async { $work }.await;
            let done = done.map_err($crate::StoreError::on($action))?;
            transaction.commit().await.map_err($crate::StoreError::on($action))?;
            Ok::<_, $crate::StoreError>(done)
        }
        .await
    };
}

use {in_snapshot, in_transaction};

/// A store in one SQLite database. See [`SqliteStore::open`].
#[derive(Debug)]
pub struct SqliteStore {
    /// One connection.
    writer: SqlitePool,
    /// A few connections; in memory the writer's own, because no other connection sees its database.
    readers: SqlitePool,
    /// What one feed may cost.
    quota: QuotaConfig,
    /// Held as long as the database is open. Last, so that it is let go last.
    lock: Option<lock::Lock>,
}

impl SqliteStore {
    /// Limits what one feed may cost. Without it nothing is limited.
    #[must_use]
    pub fn within(mut self, quota: QuotaConfig) -> Self {
        self.quota = quota;
        self
    }

    /// Returns a connection for what each poll reads: the writer's if it is free, whose page cache holds what was just written. A
    /// reader's cache is empty after each commit.
    async fn warm(&self) -> Result<PoolConnection<Sqlite>, sqlx::Error> {
        match self.writer.try_acquire() {
            Some(writer) => Ok(writer),
            None => self.readers.acquire().await,
        }
    }

    /// Begins the one transaction that may write.
    async fn write(&self, action: &'static str) -> Result<Transaction<'static, Sqlite>, StoreError> {
        const BEGIN: &str = "BEGIN IMMEDIATE";
        let begun = match self.writer.begin_with(BEGIN).await {
            // A commit that the disk refuses ends the transaction for SQLite, but not for the connection, which would
            // refuse every further one.
            Err(sqlx::Error::InvalidSavePointStatement) if self.lock.is_some() => {
                let stuck = self.writer.acquire().await.map_err(StoreError::on(action))?;
                stuck.close().await.map_err(StoreError::on(action))?;
                self.writer.begin_with(BEGIN).await
            }
            begun => begun,
        };
        begun.map_err(StoreError::on(action))
    }
}
