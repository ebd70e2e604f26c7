//! What can go wrong with a store, by what the reader of the message can do about it.

use std::path::PathBuf;

use common::feed::FeedId;

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
    /// No room is left. Nothing was half-written; it works again when there is room.
    #[error("the store could not {action}: the disk is full")]
    Full {
        /// What was being attempted.
        action: &'static str,
        /// The database's words.
        #[source]
        source: sqlx::Error,
    },
    /// The place of the database cannot be used.
    #[error("the store cannot use {path}; it needs a folder that it may write to")]
    Unusable {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// Another process has the database open.
    #[error("{path} is in use by another feedfleet; stop that one, or take another folder")]
    InUse {
        /// The database.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{path} is no feedfleet database; move it away, or take another folder")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The store's URL is none that this program knows.
    #[error("'{url}' is no store; write sqlite://FOLDER/feedfleet.db, or sqlite::memory: to keep nothing")]
    Url {
        /// As it was given.
        url: String,
    },
    /// The schema could not be brought up to date.
    #[error("the store's schema could not be brought up to date")]
    Migrate(#[source] Box<sqlx::migrate::MigrateError>),
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
    /// A cursor that no page of this list gave.
    #[error("'{0}' is no cursor of this list; take the one that the page before gave")]
    Cursor(String),
}

impl StoreError {
    /// Does the database refuse these very rows (a constraint, a size), so that trying again is useless, but the rest of the
    /// batch may do without the offending one? Otherwise it is out of order.
    pub fn refuses_data(&self) -> bool {
        match self {
            StoreError::Database { source, .. } => {
                matches!(sqlite_code(source), Some(CONSTRAINT | MISMATCH | TOO_BIG))
            }
            StoreError::Corrupt { .. } => true,
            _ => false,
        }
    }

    /// For `map_err`: names what was being attempted.
    pub(crate) fn on(action: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
        move |source| match sqlite_code(&source) {
            Some(FULL) => StoreError::Full { action, source },
            _ => StoreError::Database { action, source },
        }
    }
}

// Primary result codes, https://www.sqlite.org/rescode.html
const FULL: i32 = 13;
const TOO_BIG: i32 = 18;
const CONSTRAINT: i32 = 19;
const MISMATCH: i32 = 20;
/// The file is not a database.
pub(crate) const NOT_A_DATABASE: i32 = 26;

/// The primary result code, when SQLite gave one: the low byte of the extended code.
pub(crate) fn sqlite_code(error: &sqlx::Error) -> Option<i32> {
    let error = error.as_database_error()?.try_downcast_ref::<sqlx::sqlite::SqliteError>()?;
    let extended: i32 = sqlx::error::DatabaseError::code(error)?.parse().ok()?;
    Some(extended & 0xff)
}
