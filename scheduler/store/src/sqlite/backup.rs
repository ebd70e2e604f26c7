//! A consistent copy of the database while it is in use.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::RngExt;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use super::SqliteStore;
use super::open::{Location, check_owner, location, unopened};
use crate::StoreError;

/// What a copy holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backup {
    /// Feeds.
    pub feeds: u64,
    /// Entries.
    pub entries: u64,
    /// The file's size.
    pub bytes: u64,
}

/// Why there is no copy. Nothing is left behind then.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is nothing to copy.
    #[error("there is no store at {path}; name its folder with --data")]
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// The store keeps nothing.
    #[error("a store in memory cannot be copied; run the fleet with --data FOLDER to keep what it finds")]
    Memory,
    /// The copy would overwrite something.
    #[error("{path} exists; name a file that does not exist yet")]
    Exists {
        /// What exists.
        path: PathBuf,
    },
    /// The copy's place cannot be written to.
    #[error("{path} cannot be written; name a file in a folder that exists and may be written to")]
    Unwritable {
        /// The copy.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The database did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

const ACTION: &str = "be copied";

impl SqliteStore {
    /// Copies the database at `url` to the file `to`, which must not exist, as it is at one moment; a fleet that works
    /// on it continues meanwhile. The copy has a separate epoch: after a restore numbers of events are issued again,
    /// and consumers must not take the new events for those that they have read.
    pub async fn backup(url: &str, to: &Path) -> Result<Backup, BackupError> {
        let from = match location(url)? {
            Location::Memory => return Err(BackupError::Memory),
            Location::File(path) => path,
        };
        if !from.is_file() {
            return Err(BackupError::Missing { path: from });
        }
        // Before the work, which may take long. The link at its end checks again.
        check_free(to)?;
        let partial = Partial::beside(to)?;
        copy(&from, &partial.0, to).await
    }
}

/// The unfinished copy. Removed when it is dropped, also because the backup was interrupted.
struct Partial(PathBuf);

impl Partial {
    /// Creates it beside its place, so that it can be linked there.
    fn beside(to: &Path) -> Result<Self, BackupError> {
        let name = to.file_name().unwrap_or_default().to_string_lossy();
        // Numbers of processes repeat: in a container each backup is the first one.
        let number: u32 = rand::rng().random();
        let path = to.with_file_name(format!(".{name}.{number:08x}.partial"));
        // SQLite copies into an empty file.
        match File::options().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(_) => Ok(Partial(path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(BackupError::Exists { path }),
            Err(source) => Err(BackupError::Unwritable { path: to.to_owned(), source }),
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let mut journal = self.0.clone().into_os_string();
        journal.push("-journal");
        // After a rename neither is there.
        let _ = (fs::remove_file(&self.0), fs::remove_file(journal));
    }
}

/// Refuses a name that is taken, also by a link that leads nowhere.
fn check_free(to: &Path) -> Result<(), BackupError> {
    match fs::symlink_metadata(to) {
        Ok(_) => Err(BackupError::Exists { path: to.to_owned() }),
        Err(_) => Ok(()),
    }
}

/// Gives the finished copy its name. Overwrites nothing.
fn publish(partial: &Path, to: &Path) -> Result<(), BackupError> {
    match fs::hard_link(partial, to) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(BackupError::Exists { path: to.to_owned() }),
        // Some file systems have no hard links.
        Err(_) => {
            check_free(to)?;
            fs::rename(partial, to).map_err(|source| BackupError::Unwritable { path: to.to_owned(), source })
        }
    }
}

async fn copy(from: &Path, partial: &Path, to: &Path) -> Result<Backup, BackupError> {
    let unwritable = |source| BackupError::Unwritable { path: to.to_owned(), source };
    let options = SqliteConnectOptions::new().filename(from).read_only(true).busy_timeout(Duration::from_secs(10));
    let mut source = options.connect().await.map_err(|error| unopened(from, error))?;
    check_owner(&mut source, from).await?;
    let target = partial.to_string_lossy().into_owned();
    sqlx::query("VACUUM INTO ?1").bind(target).execute(&mut source).await.map_err(StoreError::on(ACTION))?;
    source.close().await.map_err(StoreError::on(ACTION))?;

    let mut copy = SqliteConnectOptions::new().filename(partial).connect().await.map_err(StoreError::on(ACTION))?;
    let (feeds, entries) = begin_epoch(&mut copy).await.map_err(StoreError::on(ACTION))?;
    copy.close().await.map_err(StoreError::on(ACTION))?;
    let file = File::open(partial).map_err(unwritable)?;
    file.sync_all().map_err(unwritable)?;
    let bytes = file.metadata().map_err(unwritable)?.len();
    publish(partial, to)?;
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    Ok(Backup { feeds: count(feeds), entries: count(entries), bytes })
}

/// Gives the copy its epoch; returns how many feeds and entries it has.
async fn begin_epoch(copy: &mut SqliteConnection) -> Result<(i64, i64), sqlx::Error> {
    let column = "SELECT count(*) > 0 FROM pragma_table_info('store') WHERE name = 'epochs'";
    // A store that has not been migrated since does not count its epochs.
    let is_counted: bool = sqlx::query_scalar(column).fetch_one(&mut *copy).await?;
    let sql = match is_counted {
        true => "UPDATE store SET epoch = lower(hex(randomblob(8))), epochs = epochs + 1",
        false => "UPDATE store SET epoch = lower(hex(randomblob(8)))",
    };
    sqlx::query(sql).execute(&mut *copy).await?;
    sqlx::query_as("SELECT (SELECT count(*) FROM feeds), entries FROM store").fetch_one(copy).await
}

#[cfg(test)]
mod tests {

    use common::time::Timestamp;

    use super::*;
    use crate::NewFeed;
    use crate::{Events, Feeds, Polls, Upkeep};

    fn url(folder: &Path, name: &str) -> String {
        format!("sqlite://{}", folder.join(name).display())
    }

    async fn with_feeds(url: &str, feeds: usize) -> SqliteStore {
        let store = SqliteStore::open(url).await.unwrap();
        let feed = |number| {
            NewFeed::of(
                common::host::HostKey::new("a.example:80"),
                format!("http://a.example/{number}").parse().unwrap(),
                common::policy::Category::D,
                Timestamp::EPOCH,
            )
        };
        let feeds: Vec<NewFeed> = (0..feeds).map(feed).collect();
        store.add_feeds(&feeds, Timestamp::EPOCH).await.unwrap();
        store
    }

    #[tokio::test]
    async fn a_copy_beside_a_running_fleet_is_whole_and_has_an_epoch_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let store = with_feeds(&url(folder.path(), "feedfleet.db"), 3).await;
        let to = folder.path().join("copy.db");
        let backup = SqliteStore::backup(&url(folder.path(), "feedfleet.db"), &to).await.unwrap();
        assert_eq!((backup.feeds, backup.entries), (3, 0));
        assert_eq!(backup.bytes, fs::metadata(&to).unwrap().len());
        store.set_paused(true).await.unwrap();
        let copy = SqliteStore::open(&url(folder.path(), "copy.db")).await.unwrap();
        assert!(!copy.paused().await.unwrap(), "it has its own life");
        let epoch = async |store: &SqliteStore| store.events(0, 1).await.unwrap().epoch;
        assert_ne!(epoch(&store).await, epoch(&copy).await);
        assert_eq!(copy.placements(common::url::FeedId(0), 10).await.unwrap().len(), 3);
    }

    #[tokio::test]
    async fn a_store_at_rest_is_copied_too() {
        let folder = tempfile::tempdir().unwrap();
        let from = url(folder.path(), "feedfleet.db");
        with_feeds(&from, 1).await.close().await;
        let backup = SqliteStore::backup(&from, &folder.path().join("copy.db")).await.unwrap();
        assert_eq!(backup.feeds, 1);
    }

    #[tokio::test]
    async fn nothing_is_overwritten_and_nothing_half_done_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let from = url(folder.path(), "feedfleet.db");
        let to = folder.path().join("copy.db");
        let missing = SqliteStore::backup(&from, &to).await;
        assert!(matches!(missing, Err(BackupError::Missing { .. })), "{missing:?}");
        with_feeds(&from, 1).await.close().await;
        fs::write(&to, "mine").unwrap();
        assert!(matches!(SqliteStore::backup(&from, &to).await, Err(BackupError::Exists { .. })));
        assert_eq!(fs::read(&to).unwrap(), b"mine");
        let nowhere = SqliteStore::backup(&from, &folder.path().join("no/such/folder.db")).await;
        assert!(matches!(nowhere, Err(BackupError::Unwritable { .. })));
        assert!(matches!(SqliteStore::backup("sqlite::memory:", &to).await, Err(BackupError::Memory)));
        fs::write(folder.path().join("other.db"), "SQLite it is not, whatever its name may say").unwrap();
        let foreign = SqliteStore::backup(&url(folder.path(), "other.db"), &folder.path().join("new.db")).await;
        assert!(matches!(foreign, Err(BackupError::Store(StoreError::Foreign { .. }))), "{foreign:?}");
        assert_eq!(files(folder.path()), ["copy.db", "feedfleet.db", "feedfleet.lock", "other.db"]);
    }

    fn files(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn an_interrupted_backup_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let from = url(folder.path(), "feedfleet.db");
        with_feeds(&from, 1).await.close().await;
        let to = folder.path().join("copies");
        fs::create_dir(&to).unwrap();
        let copy = to.join("copy.db");
        let mut backup = Box::pin(SqliteStore::backup(&from, &copy));
        let first_poll = std::future::poll_fn(|context| std::task::Poll::Ready(backup.as_mut().poll(context)));
        assert!(first_poll.await.is_pending(), "it has begun");
        let begun = files(&to);
        assert!(begun.len() == 1 && begun[0].ends_with(".partial"), "{begun:?}");
        drop(backup);
        assert!(files(&to).is_empty(), "{:?}", files(&to));
    }

    #[test]
    fn a_copy_that_is_finished_gets_its_name_only_if_that_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let (partial, to) = (folder.path().join("partial"), folder.path().join("copy.db"));
        fs::write(&partial, "whole").unwrap();
        publish(&partial, &to).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"whole");
        assert!(matches!(publish(&partial, &to), Err(BackupError::Exists { .. })));
        std::os::unix::fs::symlink("nowhere", folder.path().join("link.db")).unwrap();
        assert!(matches!(check_free(&folder.path().join("link.db")), Err(BackupError::Exists { .. })));
    }

    #[tokio::test]
    async fn a_store_that_has_not_been_migrated_is_copied_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let from = url(folder.path(), "feedfleet.db");
        with_feeds(&from, 2).await.close().await;
        let file = folder.path().join("feedfleet.db");
        let mut old = SqliteConnectOptions::new().filename(&file).connect().await.unwrap();
        sqlx::query("ALTER TABLE store DROP COLUMN epochs").execute(&mut old).await.unwrap();
        let epoch = "SELECT epoch FROM store";
        let before: String = sqlx::query_scalar(epoch).fetch_one(&mut old).await.unwrap();
        old.close().await.unwrap();
        let to = folder.path().join("copy.db");
        let backup = SqliteStore::backup(&from, &to).await.unwrap();
        assert_eq!(backup.feeds, 2);
        let mut copy = SqliteConnectOptions::new().filename(&to).connect().await.unwrap();
        let after: String = sqlx::query_scalar(epoch).fetch_one(&mut copy).await.unwrap();
        assert_ne!(after, before, "the copy has its own epoch");
    }
}
