//! What can go wrong with a store, by what the reader of the message can do about it.

use std::path::PathBuf;
use std::time::Duration;

use common::time::ClocksDiffer;
use common::url::FeedId;
use sqlx::migrate::MigrateError;
use sqlx::postgres::PgDatabaseError;

/// The store's own trouble.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database did not do it.
    #[error("the store could not {action}")]
    Database {
        /// What was being attempted.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: sqlx::Error,
    },
    /// No connection to the database could be made in time. Nothing was begun.
    #[error("the store could not {action}")]
    Unconnected {
        /// What was being attempted.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: sqlx::Error,
    },
    /// No room is left. Nothing was half-written; it works again when there is room.
    #[error("the store could not {action}: the disk is full")]
    Full {
        /// What was being attempted.
        action: &'static str,
        /// The database's words.
        #[source]
        source: sqlx::Error,
    },
    /// The database did not end it in time. Whether it was done is unknown.
    #[error("the store could not {action}: the database did not answer within {limit:?}")]
    Late {
        /// What was being attempted.
        action: &'static str,
        /// How long it may take.
        limit: Duration,
    },
    /// The database's clock and ours differ: due times would have different meanings.
    #[error("the store's database cannot be used")]
    Clock(#[source] ClocksDiffer),
    /// The folder of the database cannot be used.
    #[error("the store cannot use {path}; it needs a folder that it may write to")]
    Unusable {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The database's file may only be read.
    #[error("cannot write {path}: permission denied; give the file to the user that runs feedfleet")]
    Unwritable {
        /// The database.
        path: PathBuf,
    },
    /// Another process has the database open.
    #[error("{path} is in use by another feedfleet; stop that one, or take another folder")]
    InUse {
        /// The database.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{path} is not a feedfleet database; move it away, or use another folder")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The store's URL is not of a kind that this program knows.
    #[error("'{url}' is not a store; write sqlite://FOLDER/feedfleet.db, or sqlite::memory: to keep nothing")]
    Url {
        /// As it was given, without its password.
        url: String,
    },
    /// A proxy gives each transaction another session of the database.
    #[error(
        "the store's database is behind a proxy that gives each transaction another session (PgBouncer with pool_mode = \
         transaction); set pool_mode = session for feedfleet's database or user, or connect to PostgreSQL directly"
    )]
    SharedSessions,
    /// The database cannot keep every text.
    #[error(
        "the store's database has the encoding {encoding}; create one with UTF8: \
         CREATE DATABASE name TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C.UTF-8'"
    )]
    Encoding {
        /// Its name at PostgreSQL, such as `SQL_ASCII`.
        encoding: String,
    },
    /// The schema could not be migrated.
    #[error("the store's schema could not be brought up to date")]
    Migrate(#[source] Box<MigrateError>),
    /// The database was written by a newer program.
    #[error("the database has schema version {found}, this program knows up to {known}: run a newer feedfleet")]
    TooNew {
        /// Its version.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// A stored value that this program cannot read.
    #[error("feed {feed} has an unreadable {column} in the store: {reason}")]
    Corrupt {
        /// Whose row.
        feed: FeedId,
        /// Which column.
        column: &'static str,
        /// Why.
        reason: String,
    },
    /// A stored value of a subscription that this program cannot read.
    #[error("subscription {id} has an unreadable {what} in the store")]
    Subscription {
        /// Which one.
        id: i64,
        /// Which value.
        what: &'static str,
    },
    /// A stored value of a push subscription that this program cannot read.
    #[error("the push subscription of feed {feed} has an unreadable {what} in the store")]
    Push {
        /// Of which feed.
        feed: FeedId,
        /// Which value.
        what: &'static str,
    },
    /// Another feed has the identity that a feed was to get.
    #[error("another feed has this URL with these credentials; remove one of them")]
    Taken,
    /// What was to be changed is no longer as it was when the change was made; nothing was stored.
    #[error("another request made a change at the same time; try again")]
    Outdated,
    /// A cursor that does not come from a page of this list.
    #[error("'{0}' is not a cursor of this list; use the one that the previous page returned")]
    Cursor(String),
    /// The store does not sort this many feeds by due time: the schedule has them in that order.
    #[error("more than {most} feeds are listed by due time from the schedule only")]
    NotSorted {
        /// The most.
        most: u32,
    },
}

impl StoreError {
    /// Returns whether the database refuses these very rows (a constraint, a size), so that trying again is useless,
    /// but the rest of the batch may be stored without the offending one. Otherwise it is out of order.
    pub fn refuses_data(&self) -> bool {
        match self {
            StoreError::Database { source, .. } => {
                matches!(sqlite_code(source), Some(CONSTRAINT | MISMATCH | TOO_BIG))
                    || postgres_state(source).is_some_and(refused_by_postgres)
            }
            StoreError::Corrupt { .. } => true,
            _ => false,
        }
    }

    /// Returns whether the database ended the transaction in favour of another one. Nothing of it is stored, and it may
    /// be tried again.
    pub(crate) fn lost_to_another(&self) -> bool {
        match self {
            StoreError::Database { source, .. } => {
                matches!(postgres_state(source), Some(SERIALIZATION_FAILURE | DEADLOCK))
            }
            _ => false,
        }
    }

    /// Returns whether the server ended a step of a migration because another session has a lock that it needs. Nothing of that step is
    /// stored, and it may be tried again.
    pub(crate) fn is_of_a_lock(&self) -> bool {
        let source = match self {
            StoreError::Database { source, .. } => source,
            StoreError::Migrate(error) => match &**error {
                MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _) => source,
                _ => return false,
            },
            _ => return false,
        };
        waited_for_a_lock(source)
    }

    /// Returns whether the server's end, or its change to a standby, affects other connections too. That no new connection could be
    /// made says nothing of them: the server may be slow.
    pub(crate) fn ends_sessions(&self) -> bool {
        match self {
            StoreError::Database { source: sqlx::Error::Io(_), .. } => true,
            StoreError::Database { source, .. } => {
                postgres_state(source).is_some_and(|state| state == READ_ONLY || ENDS.contains(&state))
            }
            _ => false,
        }
    }

    /// Returns whether the cause is the database's server or machine, or a clock, so that every process is affected.
    pub fn is_servers(&self) -> bool {
        let closed = |source: &sqlx::Error| matches!(source, sqlx::Error::PoolTimedOut | sqlx::Error::Tls(_));
        match self {
            StoreError::Database { source, .. } => self.ends_sessions() || closed(source),
            StoreError::Unconnected { .. } | StoreError::Full { .. } | StoreError::Late { .. } => true,
            StoreError::Clock(_) => true,
            _ => false,
        }
    }

    /// Returns whether the same call may work later, because only the database's server or its machine is out of order.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            StoreError::Database { .. }
                | StoreError::Unconnected { .. }
                | StoreError::Full { .. }
                | StoreError::Late { .. }
        )
    }

    /// For `map_err`, where a feed's identity is changed: like [`StoreError::on`], or [`StoreError::Taken`].
    pub(crate) fn of_identity(action: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
        move |source| match source.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation) {
            true => StoreError::Taken,
            false => StoreError::on(action)(source),
        }
    }

    /// For `map_err`, where a connection is taken from the pool or made.
    pub(crate) fn unconnected(action: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
        move |source| match source {
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut => {
                StoreError::Unconnected { action, source }
            }
            source => StoreError::on(action)(source),
        }
    }

    /// For `map_err`: names what was being attempted.
    pub(crate) fn on(action: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
        move |source| match (sqlite_code(&source), postgres_state(&source)) {
            (Some(FULL), _) | (_, Some(DISK_FULL)) => StoreError::Full { action, source },
            // Only this connection names its statements.
            (_, Some(NO_STATEMENT | OTHER_STATEMENT)) => StoreError::SharedSessions,
            _ => StoreError::Database { action, source },
        }
    }
}

// Primary result codes, https://www.sqlite.org/rescode.html
/// The file, or its log, may only be read.
pub(crate) const READ_ONLY_FILE: i32 = 8;
const FULL: i32 = 13;
const TOO_BIG: i32 = 18;
const CONSTRAINT: i32 = 19;
const MISMATCH: i32 = 20;
/// The file is not a database.
pub(crate) const NOT_A_DATABASE: i32 = 26;

/// Returns the primary result code, when SQLite reported one: the low byte of the extended code.
pub(crate) fn sqlite_code(error: &sqlx::Error) -> Option<i32> {
    let error = error.as_database_error()?.try_downcast_ref::<sqlx::sqlite::SqliteError>()?;
    let extended: i32 = sqlx::error::DatabaseError::code(error)?.parse().ok()?;
    Some(extended & 0xff)
}

// SQLSTATEs, https://www.postgresql.org/docs/current/errcodes-appendix.html
const DISK_FULL: &str = "53100";
const SERIALIZATION_FAILURE: &str = "40001";
const DEADLOCK: &str = "40P01";
const LOCK_NOT_AVAILABLE: &str = "55P03";
const PROGRAM_LIMIT: &str = "54000";
const READ_ONLY: &str = "25006";
const NO_STATEMENT: &str = "26000";
const OTHER_STATEMENT: &str = "42P05";
/// The server shuts down, crashed, or does not take connections yet or any more.
const ENDS: [&str; 3] = ["57P01", "57P02", "57P03"];

/// Data exceptions, violated constraints, and rows or fields beyond the program's limits.
fn refused_by_postgres(state: &str) -> bool {
    state.starts_with("22") || state.starts_with("23") || state == PROGRAM_LIMIT
}

/// Returns whether PostgreSQL ended a statement because another session has a lock that it needs.
pub(crate) fn waited_for_a_lock(error: &sqlx::Error) -> bool {
    matches!(postgres_state(error), Some(LOCK_NOT_AVAILABLE | DEADLOCK))
}

/// Returns the SQLSTATE, when PostgreSQL reported one.
pub(crate) fn postgres_state(error: &sqlx::Error) -> Option<&str> {
    Some(error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_could_not_be_made_says_nothing_of_the_others() {
        let cut = || sqlx::Error::Io(std::io::ErrorKind::NotConnected.into());
        assert!(StoreError::on("be used")(cut()).ends_sessions());
        for source in [cut(), sqlx::Error::PoolTimedOut] {
            let error = StoreError::unconnected("be used")(source);
            assert!(!error.ends_sessions() && error.is_servers() && error.may_pass());
        }
    }
}
