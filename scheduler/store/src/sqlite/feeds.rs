//! Feeds as dispatch, results and the reconciler read them.

use common::feed::Feed;
use common::time::Timestamp;
use common::url::FeedId;
use sqlx::{FromRow, Row};

use super::SqliteStore;
use super::batch::id_list;
use crate::row::{FeedRow, JobColumns, PlaceColumns, readable};
use crate::{FeedRef, HistoryEntry, JobRow, Placement, StoreError, history};

impl SqliteStore {
    pub(super) async fn one_feed(&self, which: &FeedRef) -> Result<Option<Feed>, StoreError> {
        let query = match which {
            FeedRef::Id(id) => sqlx::query("SELECT * FROM feeds WHERE id = ?1").bind(id.0),
            FeedRef::Url(url) => {
                sqlx::query("SELECT * FROM feeds WHERE url = ?1 AND credentials = x''").bind(url.to_string())
            }
        };
        let failed = "read a feed";
        let row = query.fetch_optional(&self.readers).await.map_err(StoreError::on(failed))?;
        let Some(row) = row else { return Ok(None) };
        FeedRow::from_row(&row).map_err(StoreError::on(failed))?.try_into().map(Some)
    }

    pub(super) async fn feed_rows(&self, ids: &[FeedId]) -> Result<Vec<Feed>, StoreError> {
        let rows: Vec<FeedRow> = sqlx::query_as(include_str!("states.sql"))
            .bind(id_list(ids.iter().copied()))
            .fetch_all(&self.readers)
            .await
            .map_err(StoreError::on("read feeds"))?;
        Ok(readable(rows))
    }

    pub(super) async fn job_rows(&self, ids: &[FeedId]) -> Result<Vec<JobRow>, StoreError> {
        let rows: Vec<JobColumns> = sqlx::query_as(include_str!("jobs.sql"))
            .bind(id_list(ids.iter().copied()))
            .fetch_all(&self.readers)
            .await
            .map_err(StoreError::on("read what jobs need"))?;
        Ok(readable(rows))
    }

    pub(super) async fn places(&self, after: FeedId, limit: u32) -> Result<Vec<Placement>, StoreError> {
        let rows: Vec<PlaceColumns> = sqlx::query_as(include_str!("placements.sql"))
            .bind(after.0)
            .bind(limit)
            .fetch_all(&self.readers)
            .await
            .map_err(StoreError::on("read when feeds are due"))?;
        Ok(readable(rows))
    }

    pub(super) async fn polls(&self, id: FeedId) -> Result<Option<Vec<HistoryEntry>>, StoreError> {
        let failed = "read a feed's history";
        let row = sqlx::query("SELECT history FROM feeds WHERE id = ?1")
            .bind(id.0)
            .fetch_optional(&self.readers)
            .await
            .map_err(StoreError::on(failed))?;
        let Some(row) = row else { return Ok(None) };
        let ring: Vec<u8> = row.try_get(0).map_err(StoreError::on(failed))?;
        Ok(Some(history::read(&ring)))
    }

    /// A past wake moves up to `now`, so that a fetch that began before does not answer the new wish; a future one is never
    /// postponed; none comes before the end of a hold.
    pub(super) async fn wake_feeds(
        &self,
        ids: &[FeedId],
        at: Timestamp,
        now: Timestamp,
    ) -> Result<Vec<Placement>, StoreError> {
        let failed = "wake feeds";
        let mut tx = self.write(failed).await?;
        let rows: Vec<PlaceColumns> = sqlx::query_as(include_str!("wake.sql"))
            .bind(id_list(ids.iter().copied()))
            .bind(at.millis())
            .bind(now.millis())
            .fetch_all(&mut *tx)
            .await
            .map_err(StoreError::on(failed))?;
        tx.commit().await.map_err(StoreError::on(failed))?;
        Ok(readable(rows))
    }
}
