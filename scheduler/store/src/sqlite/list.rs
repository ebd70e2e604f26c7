//! Lists of feeds in pages, and the counters and texts that lead to them.

use sqlx::query::QueryAs;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{AssertSqlSafe, Sqlite, SqliteConnection};

use crate::StoreError;
use crate::counts::Counts;
use crate::row::{FeedRow, feed_columns};
use crate::source::{Dialect, MOST, Source};
use crate::statement::{Statement, Value};
use crate::texts::Trigrams;

const ACTION: &str = "list feeds";

/// The counters but for those of hosts.
pub(super) async fn counts(on: &mut SqliteConnection) -> Result<Counts, sqlx::Error> {
    let sql = "SELECT kind, name, feeds FROM feed_counts WHERE kind IN ('class', 'failure', 'penalty', 'standing')";
    let rows = sqlx::query_as(sql);
    Ok(Counts::read(rows.fetch_all(on).await?))
}

pub(super) struct View<'a>(pub(super) &'a mut SqliteConnection);

impl Source for View<'_> {
    fn dialect(&self) -> Dialect {
        Dialect {
            columns: feed_columns!(),
            like: ["GLOB ", ""],
            containing,
            among: ["IN (SELECT value FROM json_each(", "))"],
            names_indexes: true,
            last_polled: "coalesce(CAST(round(1000 * unixepoch(state ->> '$.last_polled', 'subsec')) AS INTEGER), 0)",
            most_places: 30_000,
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
        let count = sqlx::query_scalar("SELECT feeds FROM feed_counts WHERE kind = 'host' AND name = ?1").bind(host);
        let count: Option<i64> = count.fetch_optional(&mut *self.0).await.map_err(StoreError::on(ACTION))?;
        Ok(count.map_or(0, |count| u64::try_from(count).unwrap_or(0)))
    }

    fn trigrams(&self, text: &str) -> Option<Trigrams> {
        Trigrams::of(text)
    }

    async fn texts(&mut self, from: u64, feeds: u32) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT url || char(10) || coalesce(title, '') FROM feeds WHERE id > ?1 ORDER BY id LIMIT ?2";
        let texts = sqlx::query_scalar(sql).bind(i64::try_from(from).unwrap_or(i64::MAX)).bind(feeds);
        texts.fetch_all(&mut *self.0).await.map_err(StoreError::on(ACTION))
    }

    async fn with_text(&mut self, _: &str, trigrams: &Trigrams) -> Result<Vec<i64>, StoreError> {
        // Each is a separate token; the index does not know phrases.
        let quoted: Vec<String> =
            trigrams.iter().map(|trigram| format!("\"{}\"", trigram.replace('"', "\"\""))).collect();
        let sql = "SELECT rowid / 2 FROM feed_texts WHERE feed_texts MATCH ?1 LIMIT ?2";
        let query = sqlx::query_scalar(sql).bind(quoted.join(" ")).bind(i64::from(MOST) + 1);
        query.fetch_all(&mut *self.0).await.map_err(StoreError::on(ACTION))
    }
}

/// A pattern for GLOB: everything that contains `text`, in upper or lower case. LIKE knows the cases of ASCII letters only.
fn containing(text: &str) -> String {
    let forms = text.chars().map(|letter| {
        let (mut lower, mut upper) = (letter.to_lowercase(), letter.to_uppercase());
        match (lower.next(), lower.next(), upper.next(), upper.next()) {
            (Some(lower), None, Some(upper), None) if lower != upper => format!("[{letter}{lower}{upper}]"),
            _ if matches!(letter, '*' | '?' | '[') => format!("[{letter}]"),
            _ => letter.to_string(),
        }
    });
    format!("*{}*", forms.collect::<String>())
}

pub(super) fn bound<Row>(statement: Statement) -> QueryAs<'static, Sqlite, Row, SqliteArguments>
where
    Row: for<'r> sqlx::FromRow<'r, SqliteRow>,
{
    let mut query = sqlx::query_as(AssertSqlSafe(statement.sql));
    for value in statement.values {
        query = match value {
            Value::Int(number) => query.bind(number),
            Value::Text(text) => query.bind(text),
            Value::Ints(numbers) => query.bind(serde_json::json!(numbers).to_string()),
        };
    }
    query
}
