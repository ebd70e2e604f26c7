//! Feeds that turn out to be somewhere else.

use common::feed::{FeedId, Version};
use common::time::Timestamp;
use sqlx::SqliteConnection;

use super::SqliteStore;
use super::people::added_terms;
use crate::store::{Move, Moved, StoreError};

impl SqliteStore {
    pub(super) async fn move_to(
        &self,
        id: FeedId,
        version: Version,
        to: &Move,
        now: Timestamp,
    ) -> Result<Moved, StoreError> {
        const ACTION: &str = "move a feed";
        let mut tx = self.write(ACTION).await?;
        let moved = move_on(&mut tx, id, version, to, now).await.map_err(StoreError::on(ACTION))?;
        tx.commit().await.map_err(StoreError::on(ACTION))?;
        Ok(moved)
    }
}

async fn move_on(
    on: &mut SqliteConnection,
    id: FeedId,
    version: Version,
    to: &Move,
    now: Timestamp,
) -> Result<Moved, sqlx::Error> {
    let credentials: Option<Vec<u8>> =
        sqlx::query_scalar("SELECT credentials FROM feeds WHERE id = ?1 AND version = ?2 AND status = 'active'")
            .bind(id.0)
            .bind(version.0)
            .fetch_optional(&mut *on)
            .await?;
    let Some(credentials) = credentials else { return Ok(Moved::Stale) };
    let known: Option<i64> = sqlx::query_scalar("SELECT id FROM feeds WHERE url = ?1 AND credentials = ?2")
        .bind(to.url.as_str())
        .bind(credentials)
        .fetch_optional(&mut *on)
        .await?;
    if known == Some(id.0) {
        return Ok(Moved::Stale);
    }
    match known {
        Some(survivor) => {
            let add = sqlx::query(include_str!("move_into.sql")).bind(id.0).bind(survivor).bind(now.millis());
            add.execute(&mut *on).await?;
            let sql = "UPDATE feeds SET status = 'merged', version = version + 1, next_due = NULL, wake_at = NULL, \
                       failure = NULL, penalty = NULL, terms = x'', merged_into = ?2 WHERE id = ?1";
            sqlx::query(sql).bind(id.0).bind(survivor).execute(&mut *on).await?;
        }
        None => {
            sqlx::query(include_str!("move_here.sql"))
                .bind(id.0)
                .bind(to.url.as_str())
                .bind(to.host.as_str())
                .bind(to.category.as_str())
                .bind(now.millis())
                .bind(added_terms(now))
                .execute(&mut *on)
                .await?;
        }
    }
    let told = sqlx::query("INSERT INTO events (at, kind, feed_id) VALUES (?1, 'feed.moved', ?2)");
    told.bind(now.millis()).bind(id.0).execute(on).await?;
    Ok(known.map_or(Moved::Here, |survivor| Moved::Into(FeedId(survivor))))
}
