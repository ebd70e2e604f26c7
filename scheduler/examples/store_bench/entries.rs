//! Fills a store with feeds and entries, for measurements of the pages (`dev/pages.py`). Polling is paused in it.

use anyhow::Context;
use sqlx::{AssertSqlSafe, Connection, Executor};

use crate::lists::{fill_postgres, fill_sqlite};

/// One feed in fifty has a label.
const LABELS: &str = "UPDATE feeds SET labels = '[\"harbour\"]' WHERE id % 50 = 0";

/// How many of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amount {
    feeds: i64,
    entries: i64,
}

impl Amount {
    pub(crate) fn read(feeds: &str, entries: &str) -> anyhow::Result<Self> {
        Ok(Amount {
            feeds: feeds.parse().context("a number of feeds")?,
            entries: entries.parse().context("a number of entries")?,
        })
    }

    /// Returns the number of the last event that was stored.
    pub(crate) fn last_event(self) -> i64 {
        self.entries
    }

    /// For an empty store that is up to date.
    pub(crate) async fn fill_sqlite(self, path: &str) -> anyhow::Result<()> {
        fill_sqlite(path, usize::try_from(self.feeds)?).await?;
        let mut on = sqlx::SqliteConnection::connect(&format!("sqlite://{path}")).await?;
        on.execute("PRAGMA cache_size = -262144; PRAGMA synchronous = OFF").await?;
        on.execute(LABELS).await?;
        let entries = sqlx::query(include_str!("entries_sqlite.sql"));
        entries.bind(self.entries).bind(self.feeds).execute(&mut on).await?;
        let numbers = "UPDATE store SET entries = ?1, paused = TRUE";
        sqlx::query(numbers).bind(self.entries).execute(&mut on).await?;
        let last = "INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?1)";
        sqlx::query(last).bind(self.entries).execute(&mut on).await?;
        on.execute("ANALYZE; PRAGMA wal_checkpoint(TRUNCATE)").await?;
        on.close().await?;
        Ok(())
    }

    /// For an empty store that is up to date.
    pub(crate) async fn fill_postgres(self, url: &str, schema: &str) -> anyhow::Result<()> {
        fill_postgres(url, schema, usize::try_from(self.feeds)?).await?;
        let mut on = sqlx::PgConnection::connect(url).await?;
        on.execute(AssertSqlSafe(format!("SET search_path = \"{schema}\""))).await?;
        on.execute(LABELS).await?;
        let entries = sqlx::query(include_str!("entries_postgres.sql"));
        entries.bind(self.entries).bind(self.feeds).execute(&mut on).await?;
        let numbers = "UPDATE store SET entries = $1, seq = $1, paused = TRUE";
        sqlx::query(numbers).bind(self.entries).execute(&mut on).await?;
        on.execute("VACUUM ANALYZE").await?;
        on.close().await?;
        Ok(())
    }
}
