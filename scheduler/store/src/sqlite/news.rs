//! Publishes what people do to feeds, in the transaction that does it.

use common::time::Timestamp;
use sqlx::SqliteConnection;

use super::batch::Batch;
use crate::news::{Known, News, known_columns, news};

/// Returns what people set of these feeds, by number.
pub(super) async fn known(on: &mut SqliteConnection, ids: &[i64]) -> Result<Vec<Known>, sqlx::Error> {
    let sql =
        concat!("SELECT ", known_columns!(), " FROM feeds WHERE id IN (SELECT value FROM json_each(?1)) ORDER BY id");
    sqlx::query_as(sql).bind(serde_json::json!(ids).to_string()).fetch_all(on).await
}

/// Publishes how feeds differ from what they were, after what else there is to publish.
pub(super) async fn tell_changes(
    on: &mut SqliteConnection,
    mut first: Vec<News>,
    before: &[Known],
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let ids: Vec<i64> = before.iter().map(Known::id).collect();
    first.extend(news(before, &known(on, &ids).await?));
    tell(on, &first, now).await
}

/// Publishes events, in this order.
pub(super) async fn tell(on: &mut SqliteConnection, news: &[News], now: Timestamp) -> Result<(), sqlx::Error> {
    let mut events = Batch::default();
    for event in news {
        events.row(|row| {
            row.word(event.kind);
            row.int(event.feed);
            row.text(event.about.as_deref());
        });
    }
    if !events.is_empty() {
        events.query(include_str!("tell.sql")).bind(now.millis()).execute(on).await?;
    }
    Ok(())
}
