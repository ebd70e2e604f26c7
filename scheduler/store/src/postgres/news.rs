//! Publishes what people do to feeds, in the transaction that does it.

use common::time::Timestamp;
use sqlx::PgConnection;

use super::column;
use crate::news::{Known, News, known_columns, news};

/// Returns what people set of these feeds, by number. Their rows are locked in that order.
pub(super) async fn known(on: &mut PgConnection, ids: &[i64]) -> Result<Vec<Known>, sqlx::Error> {
    let sql = concat!("SELECT ", known_columns!(), " FROM feeds WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE");
    sqlx::query_as(sql).bind(ids).fetch_all(on).await
}

/// Publishes how feeds differ from what they were, after all other events. Last in its transaction: see [`tell`].
pub(super) async fn tell_changes(
    on: &mut PgConnection,
    mut first: Vec<News>,
    before: &[Known],
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let ids: Vec<i64> = before.iter().map(Known::id).collect();
    first.extend(news(before, &known(on, &ids).await?));
    tell(on, &first, now).await
}

/// Publishes events, in this order. Last in its transaction: it takes the row of `store`.
pub(super) async fn tell(on: &mut PgConnection, news: &[News], now: Timestamp) -> Result<(), sqlx::Error> {
    if news.is_empty() {
        return Ok(());
    }
    let count = i64::try_from(news.len()).unwrap_or(i64::MAX);
    let take = sqlx::query_scalar(include_str!("apply_numbers.sql")).bind(count).bind(0_i64);
    let last: i64 = take.fetch_one(&mut *on).await?;
    sqlx::query(include_str!("tell.sql"))
        .bind(last)
        .bind(now.millis())
        .bind(column(news, |event| event.kind))
        .bind(column(news, |event| event.feed))
        .bind(column(news, |event| event.about.as_deref()))
        .execute(on)
        .await?;
    Ok(())
}
