//! The suite on PostgreSQL, and what only PostgreSQL has.

use async_trait::async_trait;
use rand::RngExt;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::PostgresStore;
use crate::store::Store;
use crate::store::conformance::{Backend, stamp};

/// A schema of its own, dropped at the end.
struct Schema(String);

impl Schema {
    fn new() -> Self {
        Schema(format!("test-{:016x}", rand::rng().random::<u64>()))
    }

    async fn store(&self) -> PostgresStore {
        PostgresStore::open(&url(), &self.0).await.unwrap()
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let drop = AssertSqlSafe(format!("DROP SCHEMA IF EXISTS \"{}\" CASCADE", self.0));
        // A runtime of its own: this one may be ending.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { PgConnection::connect(&url()).await.unwrap().execute(drop).await.unwrap() });
        });
        assert!(dropping.join().is_ok() || std::thread::panicking(), "the schema could not be dropped");
    }
}

#[async_trait]
impl Backend for Schema {
    async fn open(&self) -> Box<dyn Store> {
        Box::new(self.store().await)
    }

    fn another(&self) -> Box<dyn Backend> {
        Box::new(Schema::new())
    }
}

stamp!(Schema::new());

/// Where the tests' server is.
fn url() -> String {
    std::env::var("FEEDFLEET_TEST_POSTGRES").expect(
        "this test needs a PostgreSQL: run dev/test, or `dev/services up postgres` and `eval \"$(dev/services urls)\"`",
    )
}
