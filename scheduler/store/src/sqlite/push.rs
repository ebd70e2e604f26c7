//! Push subscriptions.

use async_trait::async_trait;
use common::secrets::Sealed;
use common::time::Timestamp;
use common::url::FeedId;

use super::SqliteStore;
use super::batch::id_list;
use crate::push::{PushRow, counted, push_columns, readable, sql};
use crate::{PushCount, PushHeard, PushSubscription, PushWish, Pushes, StoreError, Unpushed};

const OF_FEEDS: &str = concat!(
    "SELECT ",
    push_columns!(),
    " FROM push_subscriptions WHERE feed_id IN (SELECT value FROM json_each(?1)) AND state <> 'unsubscribing'"
);
const DUE: &str = concat!(
    "UPDATE push_subscriptions SET act_at = ?2 WHERE id IN (",
    "SELECT id FROM push_subscriptions WHERE act_at <= ?1 ORDER BY act_at LIMIT ?3) RETURNING ",
    push_columns!()
);

#[async_trait]
impl Pushes for SqliteStore {
    async fn want_pushes(&self, wishes: &[PushWish], now: Timestamp) -> Result<u64, StoreError> {
        const ACTION: &str = "store what feeds announce";
        let mut tx = self.write(ACTION).await?;
        let mut changed = 0;
        for wish in wishes {
            let wanted = wish.wanted.as_ref();
            let left = sqlx::query(sql::LEAVE_OTHER).bind(wish.feed.0).bind(wanted.map(|new| new.kind.as_str()));
            let left = left.bind(wanted.map(|new| &new.hub)).bind(wanted.map(|new| &new.topic)).bind(now.millis());
            changed += left.execute(&mut *tx).await.map_err(StoreError::on(ACTION))?.rows_affected();
            let Some(new) = wanted else { continue };
            let add = sqlx::query(sql::ADD).bind(&new.id).bind(wish.feed.0).bind(new.kind.as_str()).bind(&new.hub);
            let add = add.bind(&new.topic).bind(new.secret.as_ref().map(Sealed::as_bytes)).bind(now.millis());
            changed += add.execute(&mut *tx).await.map_err(StoreError::on(ACTION))?.rows_affected();
        }
        tx.commit().await.map_err(StoreError::on(ACTION))?;
        Ok(changed)
    }

    async fn push(&self, id: &str) -> Result<Option<PushSubscription>, StoreError> {
        let row = sqlx::query_as::<_, PushRow>(sql::ONE).bind(id).fetch_optional(&self.readers).await;
        row.map_err(StoreError::on("read a push subscription"))?.map(PushSubscription::try_from).transpose()
    }

    async fn pushes_of(&self, feeds: &[FeedId]) -> Result<Vec<PushSubscription>, StoreError> {
        let ids = id_list(feeds.iter().copied());
        let rows = sqlx::query_as(OF_FEEDS).bind(ids).fetch_all(&self.readers).await;
        Ok(readable(rows.map_err(StoreError::on("read push subscriptions"))?))
    }

    async fn push_due(
        &self,
        now: Timestamp,
        again: Timestamp,
        limit: u32,
    ) -> Result<Vec<PushSubscription>, StoreError> {
        let take = sqlx::query_as(DUE).bind(now.millis()).bind(again.millis()).bind(limit);
        Ok(readable(
            take.fetch_all(&self.writer).await.map_err(StoreError::on("take push subscriptions that are due"))?,
        ))
    }

    async fn store_push(&self, changed: &PushSubscription) -> Result<bool, StoreError> {
        let store = sqlx::query(sql::STORE).bind(&changed.id).bind(changed.revision);
        let store = store.bind(changed.secret.as_ref().map(Sealed::as_bytes)).bind(changed.state.as_str());
        let store =
            store.bind(changed.asked_at.map(Timestamp::millis)).bind(changed.lease_until.map(Timestamp::millis));
        let store = store.bind(changed.act_at.millis()).bind(changed.failures).bind(&changed.reason);
        let stored = store.execute(&self.writer).await.map_err(StoreError::on("store a push subscription"))?;
        Ok(stored.rows_affected() > 0)
    }

    async fn remove_push(&self, id: &str, revision: i64) -> Result<bool, StoreError> {
        let removed = sqlx::query(sql::REMOVE).bind(id).bind(revision).execute(&self.writer).await;
        Ok(removed.map_err(StoreError::on("remove a push subscription"))?.rows_affected() > 0)
    }

    async fn heard_pushes(&self, heard: &[PushHeard]) -> Result<(), StoreError> {
        const ACTION: &str = "count pushes";
        let mut tx = self.write(ACTION).await?;
        for push in heard {
            let count = sqlx::query(sql::HEARD).bind(push.feed.0).bind(i64::from(push.counts)).bind(push.at.millis());
            let count = count.bind(push.light).bind(i64::from(push.announced));
            count.execute(&mut *tx).await.map_err(StoreError::on(ACTION))?;
        }
        tx.commit().await.map_err(StoreError::on(ACTION))
    }

    async fn missed_pushes(&self, feeds: &[FeedId]) -> Result<(), StoreError> {
        const ACTION: &str = "count missed pushes";
        let mut tx = self.write(ACTION).await?;
        for feed in feeds {
            sqlx::query(sql::MISSED).bind(feed.0).execute(&mut *tx).await.map_err(StoreError::on(ACTION))?;
        }
        tx.commit().await.map_err(StoreError::on(ACTION))
    }

    async fn leave_pushes(&self, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
        let left = sqlx::query(sql::LEAVE).bind(now.millis()).bind(limit).execute(&self.writer).await;
        Ok(left.map_err(StoreError::on("leave push subscriptions"))?.rows_affected())
    }

    async fn unpushed(&self, after: FeedId, limit: u32) -> Result<Vec<Unpushed>, StoreError> {
        let feeds = sqlx::query_as(sql::UNPUSHED).bind(after.0).bind(limit).fetch_all(&self.readers).await;
        feeds.map_err(StoreError::on("find feeds that announce a hub"))
    }

    async fn count_pushes(&self) -> Result<Vec<PushCount>, StoreError> {
        let rows = sqlx::query_as(sql::COUNT).fetch_all(&self.readers).await;
        Ok(counted(rows.map_err(StoreError::on("count push subscriptions"))?))
    }
}
