//! The suite on SQLite, and what only SQLite has.

use async_trait::async_trait;
use tempfile::TempDir;

use super::SqliteStore;
use crate::store::Store;
use crate::store::conformance::{Backend, stamp};

/// A database in a folder of its own.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn url(&self) -> String {
        format!("sqlite://{}/feedfleet.db", self.0.path().display())
    }
}

#[async_trait]
impl Backend for Folder {
    async fn open(&self) -> Box<dyn Store> {
        Box::new(SqliteStore::open(&self.url()).await.unwrap())
    }
}

stamp!(Folder::new());
