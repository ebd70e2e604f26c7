//! Opening: the file, the pragmas, the schema.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use common::config::{QuotaConfig, without_password};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{SqliteExecutor, SqlitePool};

use super::SqliteStore;
use super::lock::lock;
use crate::StoreError;
use crate::error::{NOT_A_DATABASE, READ_ONLY_FILE, sqlite_code};

/// Connections that read. Each may use its own thread and [`READER_CACHE`].
const READERS: u32 = 4;
/// Page cache of the writer and of each reader: memory is bounded whatever the size of the database. KiB, negative as
/// SQLite requires.
const WRITER_CACHE: &str = "-8192";
const READER_CACHE: &str = "-2048";
/// Rows that a connection's thread may be ahead of their reader: the default of 50 makes the two wait for each other.
const ROWS_BUFFERED: usize = 1_000;
/// Pages in the log before they are folded back. The default of 1,000 is two batches: nearly every page of hot feeds would be
/// written twice. 8,000 are 32 MB.
const LOG_PAGES: &str = "8000";
/// Bytes of log that stay on the disk after a burst made it longer.
const LOG_LIMIT: &str = "67108864";

impl SqliteStore {
    /// Opens the database, makes it when it is missing, and migrates its schema.
    ///
    /// `url` is `sqlite://FOLDER/feedfleet.db` or a path, both taken as they are (no %-escapes, no options), or
    /// `sqlite::memory:` or `:memory:` for a store that ends with its last handle. A file is locked for this process: a
    /// second one gets [`StoreError::InUse`]. A database of a newer program returns [`StoreError::TooNew`].
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        match location(url)? {
            Location::Memory => Self::open_memory().await,
            Location::File(path) => Self::open_file(&path).await,
        }
    }

    async fn open_memory() -> Result<Self, StoreError> {
        // One connection that is never let go: with it the database would be gone.
        let pool = SqlitePoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
        let options = SqliteConnectOptions::new().in_memory(true);
        let pool = pool.connect_with(options).await.map_err(StoreError::on("be opened in memory"))?;
        migrate(&pool).await?;
        Ok(SqliteStore { writer: pool.clone(), readers: pool, quota: QuotaConfig::NONE, lock: None })
    }

    async fn open_file(path: &Path) -> Result<Self, StoreError> {
        let lock = lock(path)?;
        let is_new = fs::symlink_metadata(path).is_err();
        let opened = Self::open_locked(path).await;
        if opened.is_err() && is_new && fs::symlink_metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0) {
            // Nothing could be written into it, on a full disk for example. The next start would refuse an empty file. The error of
            // opening says more than that of removing.
            let _ = fs::remove_file(path);
        }
        Ok(SqliteStore { lock: Some(lock), ..opened? })
    }

    /// The file is locked, so that no other process uses it.
    async fn open_locked(path: &Path) -> Result<Self, StoreError> {
        let base = SqliteConnectOptions::new()
            .filename(path)
            .busy_timeout(Duration::from_secs(10))
            .row_buffer_size(ROWS_BUFFERED);
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
            .connect_with(writing(base.clone()))
            .await
            .map_err(|error| unopened(path, error))?;
        check_owner(&writer, path).await?;
        check_writable(&writer, path).await?;
        migrate(&writer).await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .max_lifetime(None)
            .test_before_acquire(false)
            .connect_lazy_with(base.read_only(true).pragma("cache_size", READER_CACHE));
        Ok(SqliteStore { writer, readers, quota: QuotaConfig::NONE, lock: None })
    }
}

/// `synchronous = FULL` syncs the log at each commit. With NORMAL a power cut cannot harm the database either, but
/// takes back the last commits: feeds whose addition was already confirmed to a person, and events whose numbers would
/// then be issued a second time, so that a consumer that had read further misses the new ones. A batch of reports is
/// one commit: at 500 a batch the syncs cost about a sixth of the rows a second.
///
/// `secure_delete = ON` overwrites what is deleted with zeros, so that the file does not keep the texts of erased feeds. A page that
/// becomes free is therefore written once more. `FAST` saves that, and leaves the texts in free pages.
fn writing(options: SqliteConnectOptions) -> SqliteConnectOptions {
    options
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .pragma("cache_size", WRITER_CACHE)
        .pragma("wal_autocheckpoint", LOG_PAGES)
        .pragma("journal_size_limit", LOG_LIMIT)
        .pragma("secure_delete", "ON")
}

pub(super) enum Location {
    Memory,
    File(PathBuf),
}

pub(super) fn location(url: &str) -> Result<Location, StoreError> {
    let path = match url.strip_prefix("sqlite:") {
        Some(rest) => rest.strip_prefix("//").unwrap_or(rest),
        None => url,
    };
    let refused = || StoreError::Url { url: without_password(url) };
    match path {
        ":memory:" => Ok(Location::Memory),
        "" => Err(refused()),
        path if path.contains("://") => Err(refused()),
        path => Ok(Location::File(PathBuf::from(path))),
    }
}

/// Returns what the first connection's failure means.
pub(super) fn unopened(path: &Path, error: sqlx::Error) -> StoreError {
    match sqlite_code(&error) {
        Some(NOT_A_DATABASE) => StoreError::Foreign { path: path.to_owned() },
        Some(READ_ONLY_FILE) => StoreError::Unwritable { path: path.to_owned() },
        Some(_) if path.is_dir() => {
            StoreError::Unusable { path: path.to_owned(), source: io::Error::from(io::ErrorKind::IsADirectory) }
        }
        _ => StoreError::on("be opened")(error),
    }
}

/// Refuses a database that another program made: our tables have no place in it.
pub(super) async fn check_owner<'c>(on: impl SqliteExecutor<'c>, path: &Path) -> Result<(), StoreError> {
    let sql = "SELECT count(*) > 0 AND NOT max(name = '_sqlx_migrations') FROM sqlite_schema WHERE type = 'table'";
    let foreign: Option<bool> = sqlx::query_scalar(sql).fetch_one(on).await.map_err(|error| unopened(path, error))?;
    if foreign == Some(true) { Err(StoreError::Foreign { path: path.to_owned() }) } else { Ok(()) }
}

/// Refuses a file that this user may not write to: SQLite opens it all the same, and fails at the first change.
pub(super) async fn check_writable(pool: &SqlitePool, path: &Path) -> Result<(), StoreError> {
    let tried = async {
        let mut change = pool.begin().await?;
        // BEGIN IMMEDIATE succeeds there. Nothing uses this number, and nothing is stored.
        sqlx::query("PRAGMA user_version = 0").execute(&mut *change).await?;
        change.rollback().await
    };
    tried.await.map_err(|error| unopened(path, error))
}

async fn migrate(pool: &SqlitePool) -> Result<(), StoreError> {
    const ACTION: &str = "look at its schema";
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name = '_sqlx_migrations'";
    let tables: i64 = sqlx::query_scalar(sql).fetch_one(pool).await.map_err(StoreError::on(ACTION))?;
    let found: i64 = match tables {
        0 => 0,
        _ => sqlx::query_scalar("SELECT coalesce(max(version), 0) FROM _sqlx_migrations")
            .fetch_one(pool)
            .await
            .map_err(StoreError::on(ACTION))?,
    };
    let migrations = sqlx_macros::migrate!("migrations/sqlite");
    let known = migrations.iter().map(|migration| migration.version).max().unwrap_or(0);
    if found > known {
        return Err(StoreError::TooNew { found, known });
    }
    migrations.run(pool).await.map_err(|error| StoreError::Migrate(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{add, at, entry, modified, poll};
    use crate::{Feeds, Upkeep};

    #[tokio::test]
    async fn the_file_keeps_no_text_of_an_erased_feed() {
        const TEXT: &str = "a text that its author withdrew";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("feedfleet.db");
        let has_text = || fs::read(&path).unwrap().windows(TEXT.len()).any(|bytes| bytes == TEXT.as_bytes());
        let url = path.to_str().unwrap();

        let store = SqliteStore::open(url).await.unwrap();
        let id = add(&store, "https://a.org/feed").await;
        // One within a page, one of several pages.
        poll(&store, id, 10, modified(vec![entry("1", TEXT), entry("2", &TEXT.repeat(1000))])).await;
        store.close().await;
        drop(store);
        assert!(has_text());

        let store = SqliteStore::open(url).await.unwrap();
        assert!(store.erase_feed(id, at(20)).await.unwrap());
        store.close().await;
        assert!(!has_text());
    }
}
