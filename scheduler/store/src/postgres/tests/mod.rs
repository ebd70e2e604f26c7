//! The suite on PostgreSQL, and what only PostgreSQL has.

mod concurrent;
mod failover;
mod faults;
mod leases;
mod own;
mod proxies;
mod roles;
mod schema;
mod tls;

use async_trait::async_trait;
use common::config::QuotaConfig;
use sqlx::{AssertSqlSafe, Executor};

use crate::Store;
use crate::conformance::upgrades::rows_of_the_first_program;
use crate::conformance::{Audit, Backend, stamp};
use crate::testing::Schema;

impl Schema {
    /// Waits until one of the store's statements waits for a lock; returns the process that runs it.
    async fn waiting(&self) -> i32 {
        let sql = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE $1 AND wait_event_type = 'Lock'";
        let mut observer = self.connection().await;
        loop {
            let waiting = sqlx::query_scalar(sql).bind(format!("feedfleet % {}", self.0));
            if let Some(process) = waiting.fetch_optional(&mut observer).await.unwrap() {
                return process;
            }
            tokio::task::yield_now().await;
        }
    }
}

#[async_trait]
impl Backend for Schema {
    async fn open(&self) -> Box<dyn Store> {
        Box::new(self.store().await)
    }

    async fn open_within(&self, quota: QuotaConfig) -> Box<dyn Store> {
        Box::new(self.store().await.within(quota))
    }

    fn another(&self) -> Box<dyn Backend> {
        Box::new(Schema::default())
    }

    async fn is_left_by(&self, version: i64) -> bool {
        let mut migrations = sqlx_macros::migrate!("migrations/postgres");
        if !migrations.version_exists(version) {
            return false;
        }
        let mut on = self.connection().await;
        on.execute(AssertSqlSafe(format!("CREATE SCHEMA \"{}\"", self.0))).await.unwrap();
        migrations.set_locking(false).run_direct(Some(version), &mut on, false).await.unwrap();
        let digest = [", url_digest", ", sha256('https://a.org/feed')"];
        on.execute(AssertSqlSafe(rows_of_the_first_program(r"'\x", digest))).await.unwrap();
        on.execute("UPDATE store SET seq = 1").await.unwrap();
        true
    }

    async fn number_audit_from(&self, number: i64) {
        let sql = format!("ALTER TABLE audit ALTER COLUMN id RESTART WITH {number}");
        self.connection().await.execute(AssertSqlSafe(sql)).await.unwrap();
    }

    async fn audit(&self) -> Audit {
        let mut on = self.connection().await;
        let mut lines = async |sql: &'static str| {
            let rows: Vec<(String, String, i64)> = sqlx::query_as(sql).fetch_all(&mut on).await.unwrap();
            rows.into_iter().map(|(kind, name, feeds)| format!("{kind} {name} {feeds}")).collect::<Vec<_>>()
        };
        let counted = "SELECT kind, name, sum(feeds)::bigint FROM \
                       (SELECT * FROM feed_counts UNION ALL SELECT * FROM feed_count_changes) AS counted \
                       GROUP BY kind, name HAVING sum(feeds) <> 0 ORDER BY 1, 2";
        let mut kept = lines(counted).await;
        let mut right = lines(include_str!("../../conformance/recount.sql")).await;
        kept.extend(lines("SELECT 'text', text, place FROM feed_texts ORDER BY place").await);
        let texts = "SELECT 'text', url, 2 * id FROM feeds UNION ALL \
                     SELECT 'text', title, 2 * id + 1 FROM feeds WHERE title IS NOT NULL ORDER BY 3";
        right.extend(lines(texts).await);
        Audit { kept, right }
    }
}

stamp!(Schema::default());
