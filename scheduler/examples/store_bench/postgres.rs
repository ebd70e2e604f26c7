//! T7: the store on PostgreSQL beside its bare part: one UPDATE FROM UNNEST a batch, with the columns of `apply_poll.sql`,
//! sorted by feed, and nothing around it. Both sides cross through the same client library.

use anyhow::{Context, ensure};
use common::config::ServerConfig;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use store::postgres::PostgresStore;

use crate::bare::{POLL, RING, Row};
use crate::feeds::BenchFeeds;
use crate::{FEEDS, compare, fill};
use store::Upkeep;

pub(crate) async fn beside_postgres(url: &str) -> anyhow::Result<()> {
    let [ours, theirs] = ["ours", "bare"].map(|side| format!("feedfleet-bench-{side}-{}", std::process::id()));
    let mut fleet = BenchFeeds::new(FEEDS)?;
    let store = PostgresStore::open(&ServerConfig::at(url), &ours).await?;
    let copy = PostgresStore::open(&ServerConfig::at(url), &theirs).await?;
    fill(&mut fleet, &[&store, &copy]).await?;
    copy.close().await;
    let mut bare = Bare::open(url, &theirs).await?;
    for schema in [&ours, &theirs] {
        bare.fill_histories(schema).await?;
    }
    let ratio = compare(&mut fleet, &store, "bare UNNEST", async |rows| bare.update(rows).await).await?;
    println!("T7 rows/s over bare UNNEST's: {ratio:.2} (floor 0.6, stretch 0.8)");
    for schema in [&ours, &theirs] {
        let (hot, feeds) = bare.shape(schema).await?;
        println!("{schema}: {hot:.1} % of the polls stayed on their page, {feeds:.0} bytes a feed");
    }
    store.close().await;
    for schema in [&ours, &theirs] {
        bare.0.execute(AssertSqlSafe(format!("DROP SCHEMA \"{schema}\" CASCADE"))).await?;
    }
    Ok(())
}

/// A connection to a schema that the store made.
struct Bare(PgConnection);

impl Bare {
    async fn open(url: &str, schema: &str) -> anyhow::Result<Self> {
        let mut connection = PgConnection::connect(url).await?;
        connection.execute(AssertSqlSafe(format!("SET search_path = \"{schema}\""))).await?;
        Ok(Bare(connection))
    }

    /// Gives every feed as long a history as it has after twenty polls, and each side the same start.
    async fn fill_histories(&mut self, schema: &str) -> anyhow::Result<()> {
        let fill = format!("UPDATE \"{schema}\".feeds SET history = decode(repeat('01', {RING}), 'hex')");
        self.0.execute(AssertSqlSafe(fill)).await?;
        self.0.execute(AssertSqlSafe(format!("VACUUM (FULL, ANALYZE) \"{schema}\".feeds"))).await?;
        let reset = sqlx::query("SELECT pg_stat_reset_single_table_counters(to_regclass($1))");
        reset.bind(format!("\"{schema}\".feeds")).execute(&mut self.0).await?;
        Ok(())
    }

    async fn update(&mut self, rows: &[Row]) -> anyhow::Result<()> {
        let mut rows: Vec<&Row> = rows.iter().collect();
        rows.sort_unstable_by_key(|row| row.id);
        let update = sqlx::query(
            "UPDATE feeds SET version = feeds.version + 1, next_due = new.next_due, wake_at = NULL, hold_until = NULL, \
             failure = NULL, penalty = NULL, state = new.state, rhythm = new.rhythm, terms = new.terms, \
             history = new.poll || substr(feeds.history, 1, $8) \
             FROM UNNEST($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bytea[], $6::bytea[], $7::bytea[]) \
             AS new (id, version, next_due, state, rhythm, terms, poll) \
             WHERE feeds.id = new.id AND feeds.version = new.version",
        );
        let done = update
            .bind(rows.iter().map(|row| row.id).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.version).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.next_due).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.state.as_str()).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.rhythm.as_slice()).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.terms.as_slice()).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.poll.as_slice()).collect::<Vec<_>>())
            .bind(i32::try_from(RING)? - i32::try_from(POLL)?)
            .execute(&mut self.0)
            .await?;
        ensure!(done.rows_affected() == rows.len() as u64, "a feed has another version");
        Ok(())
    }

    /// Returns the share of updates that stayed on their page, in percent, and the bytes of table a feed.
    async fn shape(&mut self, schema: &str) -> anyhow::Result<(f64, f64)> {
        let sql = "SELECT n_tup_upd, n_tup_hot_upd, pg_relation_size(relid) FROM pg_stat_user_tables \
                   WHERE schemaname = $1 AND relname = 'feeds'";
        let row = sqlx::query_as(sql).bind(schema).fetch_optional(&mut self.0).await?;
        let (updates, hot, bytes): (i64, i64, i64) = row.context("the table is gone")?;
        Ok((100.0 * hot as f64 / updates.max(1) as f64, bytes as f64 / FEEDS as f64))
    }
}
