//! Feeds as dispatch, results and the reconciler read them.

use common::feed::Feed;
use common::time::Timestamp;
use common::url::FeedId;

use super::{PostgresStore, numbers};
use crate::row::{FeedRow, JobColumns, PlaceColumns, readable};
use crate::{FeedRef, HistoryEntry, JobRow, Placement, StoreError, history};

/// The columns of a [`FeedRow`].
macro_rules! feed_columns {
    () => {
        "id, url, sealed, host, added, status, subscribers, active_subscribers, sla, important, interval_ms, calm, private, version, \
         next_due, wake_at, hold_until, etag, last_modified, validators_url, content_hash, title, entries, moved_from, \
         onward, merged_into, state, rhythm, terms"
    };
}
pub(super) use feed_columns;

impl PostgresStore {
    pub(super) async fn one_feed(&self, which: &FeedRef) -> Result<Option<Feed>, StoreError> {
        const ACTION: &str = "read a feed";
        const BY_ID: &str = concat!("SELECT ", feed_columns!(), " FROM feeds WHERE id = $1");
        const BY_URL: &str = concat!(
            "SELECT ",
            feed_columns!(),
            " FROM feeds WHERE url_digest = sha256(convert_to($1, 'UTF8')) AND credentials = ''"
        );
        let query = match which {
            FeedRef::Id(id) => sqlx::query_as::<_, FeedRow>(BY_ID).bind(id.0),
            FeedRef::Url(url) => sqlx::query_as(BY_URL).bind(url.as_str()),
        };
        let mut on = self.session(ACTION).await?;
        let row = query.fetch_optional(&mut *on).await.map_err(StoreError::on(ACTION))?;
        on.keep();
        row.map(Feed::try_from).transpose()
    }

    pub(super) async fn feed_rows(&self, ids: &[FeedId]) -> Result<Vec<Feed>, StoreError> {
        const ACTION: &str = "read feeds";
        let query =
            sqlx::query_as::<_, FeedRow>(concat!("SELECT ", feed_columns!(), " FROM feeds WHERE id = ANY ($1)"));
        let mut on = self.session(ACTION).await?;
        let rows = query.bind(numbers(ids.iter().copied())).fetch_all(&mut *on).await;
        let rows = rows.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(readable(rows))
    }

    pub(super) async fn job_rows(&self, ids: &[FeedId]) -> Result<Vec<JobRow>, StoreError> {
        const ACTION: &str = "read what jobs need";
        let query = sqlx::query_as::<_, JobColumns>(include_str!("jobs.sql"));
        let mut on = self.session(ACTION).await?;
        let rows = query.bind(numbers(ids.iter().copied())).fetch_all(&mut *on).await;
        let rows = rows.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(readable(rows))
    }

    pub(super) async fn places(&self, after: FeedId, limit: u32) -> Result<Vec<Placement>, StoreError> {
        const ACTION: &str = "read when feeds are due";
        let query = sqlx::query_as::<_, PlaceColumns>(include_str!("placements.sql"));
        let mut on = self.session(ACTION).await?;
        let rows = query.bind(after.0).bind(i64::from(limit)).fetch_all(&mut *on).await;
        let rows = rows.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(readable(rows))
    }

    pub(super) async fn polls(&self, id: FeedId) -> Result<Option<Vec<HistoryEntry>>, StoreError> {
        const ACTION: &str = "read a feed's history";
        let query = sqlx::query_scalar::<_, Vec<u8>>("SELECT history FROM feeds WHERE id = $1").bind(id.0);
        let mut on = self.session(ACTION).await?;
        let ring = query.fetch_optional(&mut *on).await.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(ring.map(|ring| history::read(&ring)))
    }

    /// A past wake moves up to `now`, so that a fetch that began before does not answer the new wish; a future one is never
    /// postponed; none comes before the end of a hold.
    pub(super) async fn wake_feeds(
        &self,
        ids: &[FeedId],
        at: Timestamp,
        now: Timestamp,
    ) -> Result<Vec<Placement>, StoreError> {
        const ACTION: &str = "wake feeds";
        let query = sqlx::query_as::<_, PlaceColumns>(include_str!("wake.sql"));
        let query = query.bind(numbers(ids.iter().copied())).bind(at.millis()).bind(now.millis());
        let mut on = self.session(ACTION).await?;
        let rows = query.fetch_all(&mut *on).await.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(readable(rows))
    }
}
