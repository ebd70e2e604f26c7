//! Refuses a proxy that gives each transaction another session.
//!
//! Settings, locks and prepared statements of one connection would belong to another one's transactions: reads would
//! find the wrong schema, or none. Such a proxy gives a session that one connection has just used to the next
//! connection, although the first is still open; a server never does.

use std::time::Duration;

use sqlx::{ConnectOptions, Executor, PgConnection, Row};

use super::primary::Servers;
use crate::StoreError;

/// Other processes may take a session in between.
const ROUNDS: u32 = 3;
/// Beyond it nothing is known: a proxy that gives each connection a session may have none to spare.
const PATIENCE: Duration = Duration::from_secs(2);

/// Fails if the sessions of two open connections change, or are the same one.
pub(super) async fn refuse_shared_sessions(servers: &Servers, on: &mut PgConnection) -> Result<(), StoreError> {
    match tokio::time::timeout(PATIENCE, are_shared(servers, on)).await {
        Ok(Ok(true)) => Err(StoreError::SharedSessions),
        // What else is wrong shows when the connection is used.
        Ok(Ok(false) | Err(_)) | Err(_) => Ok(()),
    }
}

async fn are_shared(servers: &Servers, on: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let mut other = servers.options().connect().await?;
    let mut seen: Option<[i32; 2]> = None;
    for _ in 0..ROUNDS {
        let first = session(on).await?;
        if session(&mut other).await? == first {
            return Ok(true);
        }
        other.execute("BEGIN").await?;
        let second = session(&mut other).await?;
        let again = session(on).await?;
        other.execute("ROLLBACK").await?;
        if first == second || first != again || seen.is_some_and(|seen| seen != [first, second]) {
            return Ok(true);
        }
        seen = Some([first, second]);
    }
    Ok(false)
}

/// Returns the process that serves this connection, without a prepared statement.
async fn session(on: &mut PgConnection) -> Result<i32, sqlx::Error> {
    on.fetch_one("SELECT pg_backend_pid()").await?.try_get(0)
}
