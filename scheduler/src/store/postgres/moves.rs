//! Feeds that turn out to be somewhere else.

use common::feed::{FeedId, Version};
use common::time::Timestamp;
use sqlx::{Connection, PgConnection};

use super::PostgresStore;
use super::people::{added_terms, give_out_urls};
use crate::store::{Move, Moved, StoreError};

impl PostgresStore {
    pub(super) async fn move_to(
        &self,
        id: FeedId,
        version: Version,
        to: &Move,
        now: Timestamp,
    ) -> Result<Moved, StoreError> {
        const ACTION: &str = "move a feed";
        let mut on = self.session(ACTION).await?;
        let mut tx = on.begin().await.map_err(StoreError::on(ACTION))?;
        let moved = move_on(&mut tx, id, version, to, now).await.map_err(StoreError::on(ACTION))?;
        tx.commit().await.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(moved)
    }
}

async fn move_on(
    on: &mut PgConnection,
    id: FeedId,
    version: Version,
    to: &Move,
    now: Timestamp,
) -> Result<Moved, sqlx::Error> {
    give_out_urls(&mut *on).await?;
    let look = sqlx::query_as(include_str!("move_before.sql")).bind(id.0).bind(version.0).bind(to.url.as_str());
    let rows: Vec<(i64, bool, bool)> = look.fetch_all(&mut *on).await?;
    let may_move = rows.iter().any(|(_, fresh, there)| *fresh && !there);
    if !may_move {
        return Ok(Moved::Stale);
    }
    let known = rows.iter().find(|(_, _, there)| *there).map(|(id, ..)| *id);
    match known {
        Some(survivor) => {
            let add = sqlx::query(include_str!("move_into.sql")).bind(id.0).bind(survivor).bind(now.millis());
            add.execute(&mut *on).await?;
            sqlx::query(include_str!("move_merged.sql")).bind(id.0).bind(survivor).execute(&mut *on).await?;
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
    let take = sqlx::query_scalar(include_str!("apply_numbers.sql")).bind(1_i64).bind(0_i64);
    let last: i64 = take.fetch_one(&mut *on).await?;
    let told = sqlx::query("INSERT INTO events (seq, at, kind, feed_id) VALUES ($1, $2, 'feed.moved', $3)");
    told.bind(last + 1).bind(now.millis()).bind(id.0).execute(on).await?;
    Ok(known.map_or(Moved::Here, |survivor| Moved::Into(FeedId(survivor))))
}
