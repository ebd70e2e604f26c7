//! The lock that keeps a second process from a database.

use std::fs::{DirBuilder, File, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use tracing::warn;

use crate::StoreError;

/// The lock on a database, held until it is dropped. It is let go in words: a process that another thread starts at that
/// moment has a copy of the descriptor for an instant, and the lock would live as long as the copy.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            warn!(%error, "the lock on the data folder was not let go; it ends with this process");
        }
    }
}

/// Takes the lock file beside the database (`feedfleet.db` has `feedfleet.lock`), making the folder if need be. The
/// operating system lets the lock go when the process ends, however it ends; the file stays.
pub(super) fn lock(database: &Path) -> Result<Lock, StoreError> {
    let unusable = |path: &Path| {
        let path = path.to_owned();
        |source| StoreError::Unusable { path, source }
    };
    if let Some(folder) = database.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        // URLs with tokens are in the database, and keys.
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unusable(folder))?;
    }
    let path = database.with_extension("lock");
    let file = File::options().create(true).append(true).open(&path).map_err(unusable(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path: database.to_owned() }),
        Err(TryLockError::Error(source)) => Err(unusable(&path)(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::SqliteStore;

    #[tokio::test]
    async fn a_second_process_leaves_the_file_alone_into_which_the_first_has_written_nothing_yet() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("feedfleet.db");
        let first = lock(&database).unwrap();
        File::create_new(&database).unwrap();
        let second = SqliteStore::open(database.to_str().unwrap()).await.unwrap_err();
        assert!(matches!(second, StoreError::InUse { .. }));
        assert!(database.exists());
        drop(first);
    }

    #[test]
    fn a_lock_ends_with_its_holder_even_while_a_copy_of_its_descriptor_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("feedfleet.db");
        let first = lock(&database).unwrap();
        let copy = first.0.try_clone().unwrap();
        drop(first);
        lock(&database).unwrap();
        drop(copy);
    }
}
