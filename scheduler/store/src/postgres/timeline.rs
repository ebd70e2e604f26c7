//! Binds the epoch of events to the server's history.
//!
//! A server that was promoted from a standby that lagged, or restored from an archive, continues from an earlier point
//! and issues numbers of events again. PostgreSQL itself marks that: such a server is on another timeline, and a
//! restored dump is on a server with another identifier. So each new connection looks at both. Where they differ from
//! those under which the events were numbered, the store gets a new epoch: consumers with a cursor of the old one get
//! an error (410) instead of missing events.

use std::sync::Mutex;

use sqlx::{Executor, PgConnection, Row};

/// The first eight digits of a log file's name are the timeline that is being written; the control file's entry follows only
/// with the first checkpoint after a promotion.
const HISTORY: &str = "SELECT (SELECT system_identifier FROM pg_control_system())::text || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)";

/// The code of the error with which a standby refuses to name the position that it writes.
const IN_RECOVERY: &str = "55000";

/// Why the server's history cannot be read; `None` while it can.
#[derive(Debug, Default)]
pub(super) struct Unreadable(Mutex<Option<String>>);

impl Unreadable {
    pub(super) fn reason(&self) -> Option<String> {
        common::lock(&self.0).clone()
    }

    fn end(&self) {
        *common::lock(&self.0) = None;
    }

    /// Logs it when it begins, and not for each connection.
    fn note(&self, reason: &str) {
        let before = common::lock(&self.0).replace(reason.to_owned());
        if before.is_none() {
            tracing::warn!(
                reason,
                "cannot read the timeline of the database server: if a standby that lags is promoted, consumers miss events; grant \
                 EXECUTE on pg_control_system, pg_current_wal_lsn and pg_walfile_name, as `feedfleet setup postgres` does"
            );
        }
    }
}

/// Gives the store a new epoch if this connection's server has another history than the one that numbered the events.
///
/// A standby is used as it is; a server that refuses to say its history is too, and `unreadable` has the reason.
pub(super) async fn bind_epoch(on: &mut PgConnection, unreadable: &Unreadable) -> Result<(), sqlx::Error> {
    // As texts, without being prepared: each runs once per connection, and preparing it would be one question more.
    let history: String = match on.fetch_one(HISTORY).await {
        Ok(row) => row.try_get(0)?,
        Err(sqlx::Error::Database(error)) => {
            if error.code().as_deref() != Some(IN_RECOVERY) {
                unreadable.note(error.message());
            }
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    unreadable.end();
    let known = on.fetch_optional("SELECT history FROM store").await?;
    let known: Option<String> = known.map(|row| row.try_get(0)).transpose()?;
    if known.as_ref().is_none_or(|known| *known == history) {
        return Ok(());
    }
    // Of several that see it at once, one changes it.
    let sql = "UPDATE store SET history = $1, epoch = CASE WHEN history = '' THEN epoch \
               ELSE left(replace(gen_random_uuid()::text, '-', ''), 16) END, \
               epochs = CASE WHEN history = '' THEN epochs ELSE epochs + 1 END \
               WHERE history <> $1 RETURNING epoch";
    let epoch: Option<String> = sqlx::query_scalar(sql).bind(&history).fetch_optional(&mut *on).await?;
    match (epoch, known.as_deref()) {
        (Some(epoch), Some(before)) if !before.is_empty() => {
            tracing::warn!(before, history, epoch, "the database server was replaced; the events begin a new epoch");
        }
        _ => {}
    }
    Ok(())
}
