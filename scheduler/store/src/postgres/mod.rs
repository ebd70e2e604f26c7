//! The store on PostgreSQL: any number of processes, one schema, which the namespace names.
//!
//! A batch costs a handful of statements whatever its size: its rows cross as arrays, in the order of their numbers.
//! Five rules keep transactions of several processes apart:
//! - rows are locked in one order: feeds by number (in `apply`, those with a document before the others), then hosts by name, then the
//!   row of `store`; a transaction that has to write more of a feed holds its row first;
//! - the row of `store` is the lock under which events are numbered, taken last and held until the transaction ends, so
//!   that a reader that sees a number has seen, or can never see, all smaller ones;
//! - `apply` looks at rows of polls without a document without locking them and writes those that are still as they were; if one is
//!   not, it begins again and locks all of them first. A report of another version therefore changes nothing, whichever process applies it;
//! - a call ends within half a minute (`Limits`), whatever the server does, and within seconds when its connection was
//!   lost (`silence`);
//! - after a failover, connections go to the host that accepts writes (`primary`).
//!
//! No statement selects `*`: PostgreSQL refuses to run a prepared one any further after a migration added a column.

mod apply;
mod audit;
mod connection;
mod entries;
mod events;
mod feeds;
mod hosts;
mod list;
mod moves;
mod news;
mod open;
mod pooler;
mod primary;
mod push;
mod requeues;
mod rows;
mod search;
pub mod setup;
mod silence;
mod subscriptions;
#[cfg(test)]
mod tests;
mod timeline;
mod upkeep;
mod urls;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use common::config::QuotaConfig;
use common::url::FeedId;
use sqlx::PgPool;

use self::primary::Servers;
use self::silence::Connections;
use super::StoreError;

/// How often a transaction is tried that the server ended in favour of another one.
const TRIES: u32 = 5;

/// A store in one schema of a PostgreSQL database. See [`PostgresStore::open`].
#[derive(Clone, Debug)]
pub struct PostgresStore {
    pool: PgPool,
    limits: Limits,
    connections: Arc<Connections>,
    servers: Arc<Servers>,
    /// What one feed may cost.
    quota: QuotaConfig,
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// A call. The server's own limits are shorter.
    pub(crate) call: Duration,
    /// A statement, at the server; waiting for a lock, or for our next statement in a transaction, half of it.
    pub(crate) statement: Duration,
    /// Waiting for a free connection, or making one.
    pub(crate) acquire: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Limits { call: seconds(30), statement: seconds(20), acquire: seconds(5) }
    }
}

impl PostgresStore {
    /// Limits what one feed may cost. Without it nothing is limited.
    #[must_use]
    pub fn within(mut self, quota: QuotaConfig) -> Self {
        self.quota = quota;
        self
    }

    /// Runs a call, and tries it again while the server ends it in favour of another transaction: nothing of it is
    /// stored then.
    async fn call<T, Tried>(&self, action: &'static str, call: impl Fn() -> Tried) -> Result<T, StoreError>
    where
        Tried: Future<Output = Result<T, StoreError>>,
    {
        let calls = async {
            for _ in 1..TRIES {
                match call().await {
                    Err(error) if error.lost_to_another() => {}
                    ended => return ended,
                }
            }
            call().await
        };
        let begun = tokio::time::Instant::now();
        let heard = async {
            let lost = || Err(StoreError::Late { action, limit: begun.elapsed() });
            self.connections.heard(calls).await.unwrap_or_else(lost)
        };
        let done = bounded(action, self.limits.call, heard).await;
        if done.as_ref().is_err_and(StoreError::ends_sessions) {
            // The server ended other idle connections too, or will refuse what they write.
            self.connections.note_loss();
        }
        done
    }
}

/// Returns the future's result, or [`StoreError::Late`] when it takes longer than `limit`.
async fn bounded<T>(
    action: &'static str,
    limit: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::time::timeout(limit, call).await.unwrap_or(Err(StoreError::Late { action, limit }))
}

/// Returns a column of a batch.
fn column<'a, Row, Value>(rows: &'a [Row], value: impl Fn(&'a Row) -> Value) -> Vec<Value> {
    rows.iter().map(value).collect()
}

/// Returns a text as PostgreSQL accepts it: the one character that it does not store, and that JSON feeds can contain,
/// becomes the replacement character.
fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{FFFD}")) } else { Cow::Borrowed(text) }
}

fn optional_text(of: &Option<String>) -> Option<Cow<'_, str>> {
    of.as_deref().map(text)
}

/// Feeds' numbers for `= ANY`, in order.
fn numbers(ids: impl IntoIterator<Item = FeedId>) -> Vec<i64> {
    let mut numbers: Vec<i64> = ids.into_iter().map(|id| id.0).collect();
    numbers.sort_unstable();
    numbers
}
