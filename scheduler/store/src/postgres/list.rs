//! Lists of feeds in pages, and the counters and texts that lead to them.

use sqlx::postgres::PgArguments;
use sqlx::query::QueryAs;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Postgres};

use super::PostgresStore;
use super::connection::SNAPSHOT;
use crate::counts::Counts;
use crate::cursor;
use crate::row::{FeedRow, feed_columns};
use crate::source::{Dialect, MOST, Source};
use crate::statement::{Statement, Value};
use crate::texts::Trigrams;
use crate::{FeedQuery, StoreError};

pub(super) const ACTION: &str = "list feeds";
/// An index that has the feeds in order is followed, however few feeds the planner thinks that it would have to sort.
pub(super) const ALONG_INDEXES: &str = "SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off";

/// Reads from one view of the feeds.
pub(super) async fn view<T>(
    store: &PostgresStore,
    query: &FeedQuery,
    read: impl AsyncFnOnce(&mut View<'_>, &FeedQuery) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut on = store.acquire(ACTION).await?;
    let mut tx = on.begin_with(SNAPSHOT).await.map_err(StoreError::on(ACTION))?;
    tx.execute(ALONG_INDEXES).await.map_err(StoreError::on(ACTION))?;
    let text = query.text.as_deref().map(|text| super::text(text).into_owned());
    let query = FeedQuery { text, ..query.clone() };
    let found = read(&mut View(&mut tx), &query).await;
    if found.as_ref().is_err_and(StoreError::may_pass) {
        return found;
    }
    tx.commit().await.map_err(StoreError::on(ACTION))?;
    on.keep();
    found
}

/// The counters but for those of hosts.
pub(super) async fn counts(on: &mut PgConnection) -> Result<Counts, sqlx::Error> {
    Ok(Counts::read(sqlx::query_as(include_str!("counts.sql")).fetch_all(on).await?))
}

pub(super) struct View<'a>(pub(super) &'a mut PgConnection);

impl Source for View<'_> {
    fn dialect(&self) -> Dialect {
        Dialect {
            columns: feed_columns!(),
            like: ["ILIKE ", r" ESCAPE '\'"],
            containing: cursor::containing,
            among: ["= ANY (", ")"],
            names_indexes: false,
            last_polled: "coalesce((1000 * extract(epoch FROM (state::json ->> 'last_polled')::timestamptz))::bigint, 0)",
            // Each that has all of them is also compared with the text itself.
            most_places: 6_000,
        }
    }

    async fn rows(&mut self, statement: Statement) -> Result<Vec<FeedRow>, StoreError> {
        let rows = bound(statement).fetch_all(&mut *self.0).await;
        rows.map_err(StoreError::on(ACTION))
    }

    async fn position(&mut self, statement: Statement) -> Result<Option<(i64, i64)>, StoreError> {
        let place = bound(statement).fetch_optional(&mut *self.0).await;
        place.map_err(StoreError::on(ACTION))
    }

    async fn numbers(&mut self, statement: Statement) -> Result<Vec<i64>, StoreError> {
        let rows: Vec<(i64,)> = bound(statement).fetch_all(&mut *self.0).await.map_err(StoreError::on(ACTION))?;
        Ok(rows.into_iter().map(|(number,)| number).collect())
    }

    async fn counts(&mut self) -> Result<Counts, StoreError> {
        counts(self.0).await.map_err(StoreError::on(ACTION))
    }

    async fn of_host(&mut self, host: &str) -> Result<u64, StoreError> {
        let count = sqlx::query_scalar(include_str!("count_of_host.sql")).bind(super::text(host));
        let count: i64 = count.fetch_one(&mut *self.0).await.map_err(StoreError::on(ACTION))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    fn trigrams(&self, text: &str) -> Option<Trigrams> {
        Trigrams::of_words(text)
    }

    async fn texts(&mut self, from: u64, feeds: u32) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT text FROM feed_texts WHERE place > 2 * $1::bigint + 1 ORDER BY place LIMIT $2";
        let texts = sqlx::query_scalar(sql).bind(i64::try_from(from).unwrap_or(0)).bind(i64::from(feeds));
        texts.fetch_all(&mut *self.0).await.map_err(StoreError::on(ACTION))
    }

    async fn with_text(&mut self, text: &str, trigrams: &Trigrams) -> Result<Vec<i64>, StoreError> {
        self.0.execute("SET LOCAL enable_bitmapscan = on").await.map_err(StoreError::on(ACTION))?;
        // The index is searched for these trigrams alone; the whole text is compared with what it finds.
        let trigrams: Vec<String> = trigrams.iter().map(cursor::containing).collect();
        let mut sql = r"SELECT place / 2 FROM feed_texts WHERE (text || '') ILIKE $1 ESCAPE '\'".to_owned();
        for number in 0..trigrams.len() {
            sql.push_str(&format!(r" AND text ILIKE ${} ESCAPE '\'", number + 3));
        }
        sql.push_str(" LIMIT $2");
        // Not kept: each number of trigrams is a different statement.
        let query = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false);
        let mut query = query.bind(cursor::containing(text)).bind(i64::from(MOST) + 1);
        for trigram in trigrams {
            query = query.bind(trigram);
        }
        let ids = query.fetch_all(&mut *self.0).await.map_err(StoreError::on(ACTION))?;
        self.0.execute("SET LOCAL enable_bitmapscan = off").await.map_err(StoreError::on(ACTION))?;
        Ok(ids)
    }
}

pub(super) fn bound<Row>(statement: Statement) -> QueryAs<'static, Postgres, Row, PgArguments>
where
    Row: for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow>,
{
    // Not kept: a plan that fits one page's values need not fit another's.
    let mut query = sqlx::query_as(AssertSqlSafe(statement.sql)).persistent(false);
    for value in statement.values {
        query = match value {
            Value::Int(number) => query.bind(number),
            Value::Text(text) => query.bind(text),
            Value::Ints(numbers) => query.bind(numbers),
        };
    }
    query
}
