//! What tests of several crates need of a store.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "for tests")]

use std::time::Duration;

use common::config::ServerConfig;
use rand::RngExt;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::postgres::{Limits, PostgresStore};

/// A schema of a test, dropped at its end.
pub struct Schema(pub(crate) String);

impl Default for Schema {
    /// Returns a schema with a random name; the store creates it.
    fn default() -> Self {
        Schema(format!("test-{:016x}", rand::rng().random::<u64>()))
    }
}

impl Schema {
    /// Returns the store, which has time: an unoptimised test on a busy machine may be away in the middle of a
    /// transaction for longer than a process in production may.
    pub async fn store(&self) -> PostgresStore {
        let patience = Duration::from_secs(240);
        let limits = Limits { call: patience, statement: patience, acquire: patience };
        PostgresStore::open_within(limits, &ServerConfig::at(&url()), &self.0).await.unwrap()
    }

    /// Returns a connection beside the store's, whose statements mean this schema.
    pub async fn connection(&self) -> PgConnection {
        let mut connection = PgConnection::connect(&url()).await.unwrap();
        connection.execute(AssertSqlSafe(format!("SET search_path = \"{}\"", self.0))).await.unwrap();
        connection
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return; // left to be looked at
        }
        // Connections that are not closed yet may be within a transaction, and have its locks until its time limit.
        let drop = AssertSqlSafe(format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'feedfleet % {0}'; \
             DROP SCHEMA IF EXISTS \"{0}\" CASCADE",
            self.0
        ));
        // A separate runtime: this one may be ending.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { PgConnection::connect(&url()).await.unwrap().execute(drop).await.unwrap() });
        });
        dropping.join().unwrap();
    }
}

/// Returns where the tests' server is.
pub(crate) fn url() -> String {
    std::env::var("FEEDFLEET_TEST_POSTGRES").expect(
        "this test needs a PostgreSQL: run dev/test, or `dev/services up postgres` and `eval \"$(dev/services urls)\"`",
    )
}
