//! Push subscriptions.

use std::collections::BTreeSet;

use async_trait::async_trait;
use common::push::RELIABLE_AFTER;
use common::secrets::Sealed;
use common::time::Timestamp;
use common::url::FeedId;
use sqlx::SqliteConnection;

use super::batch::id_list;
use super::{SqliteStore, in_transaction};
use crate::push::{
    MOST_LEFT, PushRow, counted, host_due, hub_host, in_turn, push_changes, push_columns, readable, sealed, sql,
};
use crate::{
    OwedPace, PushCount, PushHeard, PushLosses, PushSubscription, PushUpkeep, PushWish, Pushes, StoreError, Subscribed,
    Unpushed,
};

const OF_FEEDS: &str = concat!(
    "SELECT ",
    push_columns!(),
    " FROM push_subscriptions WHERE feed_id IN (SELECT value FROM json_each(?1)) AND state <> 'unsubscribing'"
);
pub(super) const TAKE_HOSTS: &str = "UPDATE push_hosts SET taken_until = ?2 WHERE host IN ( \
    SELECT host FROM push_hosts WHERE due_at <= ?1 AND taken_until <= ?1 ORDER BY due_at LIMIT ?3) RETURNING host";

push_changes!(SqliteConnection, any);

/// SQLite stores every text.
fn any(text: &str) -> &str {
    text
}

#[async_trait]
impl Pushes for SqliteStore {
    async fn want_pushes(&self, wishes: &[PushWish], now: Timestamp) -> Result<u64, StoreError> {
        let wishes: Vec<&PushWish> = wishes.iter().collect();
        in_transaction!(self, "store what feeds announce", |tx| want(tx, &wishes, now).await)
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

    async fn push_hosts(&self, now: Timestamp, until: Timestamp, limit: u32) -> Result<Vec<String>, StoreError> {
        let take = sqlx::query_scalar(TAKE_HOSTS).bind(now.millis()).bind(until.millis()).bind(limit);
        take.fetch_all(&self.writer).await.map_err(StoreError::on("take hosts of hubs that are due"))
    }

    async fn push_due(&self, host: &str, now: Timestamp, limit: u32) -> Result<Vec<PushSubscription>, StoreError> {
        let due = sqlx::query_as(sql::DUE).bind(host).bind(now.millis()).bind(limit).fetch_all(&self.readers).await;
        Ok(in_turn(readable(due.map_err(StoreError::on("read push subscriptions that are due"))?), limit))
    }

    async fn free_push_host(&self, host: &str, not_before: Option<Timestamp>) -> Result<(), StoreError> {
        in_transaction!(self, "free the host of a hub", |tx| free(tx, host, not_before).await)
    }

    async fn store_push(&self, changed: &PushSubscription) -> Result<bool, StoreError> {
        in_transaction!(self, "store a push subscription", |tx| store(tx, changed).await)
    }

    async fn remove_push(&self, id: &str, revision: i64) -> Result<bool, StoreError> {
        let removed = sqlx::query(sql::REMOVE).bind(id).bind(revision).execute(&self.writer).await;
        Ok(removed.map_err(StoreError::on("remove a push subscription"))?.rows_affected() > 0)
    }
}

#[async_trait]
impl PushLosses for SqliteStore {
    async fn heard_pushes(&self, heard: &[PushHeard]) -> Result<(), StoreError> {
        in_transaction!(self, "count pushes", |tx| {
            for push in heard {
                let count = sqlx::query(sql::HEARD).bind(push.feed.0).bind(push.at.millis()).bind(push.light);
                count.bind(push.settled).execute(&mut *tx).await?;
            }
            Ok(())
        })
    }

    async fn await_push(&self, feed: FeedId, at: Timestamp) -> Result<(), StoreError> {
        let noted = sqlx::query(sql::AWAIT).bind(feed.0).bind(at.millis()).execute(&self.writer).await;
        noted.map(drop).map_err(StoreError::on("note that a delivery was accepted"))
    }

    async fn lost_pushes(&self, before: Timestamp, limit: u32) -> Result<Vec<FeedId>, StoreError> {
        let feeds = sqlx::query_scalar(sql::LOST).bind(before.millis()).bind(limit).fetch_all(&self.readers).await;
        let feeds: Vec<i64> = feeds.map_err(StoreError::on("find deliveries that were lost"))?;
        Ok(feeds.into_iter().map(FeedId).collect())
    }

    async fn forget_lost_pushes(&self, feeds: &[FeedId], before: Timestamp) -> Result<(), StoreError> {
        in_transaction!(self, "note that deliveries were lost", |tx| {
            for feed in feeds {
                sqlx::query(sql::FORGET_LOST).bind(feed.0).bind(before.millis()).execute(&mut *tx).await?;
            }
            Ok(())
        })
    }

    async fn owed_paces(&self, limit: u32) -> Result<Vec<OwedPace>, StoreError> {
        let owed = sqlx::query_as(sql::OWED).bind(limit).fetch_all(&self.readers).await;
        owed.map_err(StoreError::on("find feeds that are to get their own pace back"))
    }

    async fn paces_restored(&self, of: &[OwedPace]) -> Result<(), StoreError> {
        in_transaction!(self, "note that feeds have their own pace", |tx| {
            for of in of {
                sqlx::query(sql::PAID).bind(&of.id).bind(of.owed).execute(&mut *tx).await?;
            }
            Ok(())
        })
    }
}

#[async_trait]
impl PushUpkeep for SqliteStore {
    async fn forget_left_pushes(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        let removed = sqlx::query(sql::FORGET_LEFT).bind(before.millis()).bind(limit).execute(&self.writer).await;
        Ok(removed.map_err(StoreError::on("remove push subscriptions that were left"))?.rows_affected())
    }

    async fn subscribed(&self, after: FeedId, limit: u32) -> Result<Vec<Subscribed>, StoreError> {
        let feeds = sqlx::query_as(sql::SUBSCRIBED).bind(after.0).bind(limit).fetch_all(&self.readers).await;
        feeds.map_err(StoreError::on("read what subscribed feeds announce"))
    }

    async fn unpushed(&self, after: FeedId, limit: u32) -> Result<Vec<Unpushed>, StoreError> {
        let feeds = sqlx::query_as(sql::UNPUSHED).bind(after.0).bind(limit).fetch_all(&self.readers).await;
        feeds.map_err(StoreError::on("find feeds that announce a hub"))
    }

    async fn push_secrets(&self, after: &str, limit: u32) -> Result<Vec<(String, Sealed)>, StoreError> {
        let rows = sqlx::query_as(sql::SECRETS).bind(after).bind(limit).fetch_all(&self.readers).await;
        Ok(sealed(rows.map_err(StoreError::on("read the secrets of push subscriptions"))?))
    }

    async fn reseal_push(&self, id: &str, sealed: [&[u8]; 2]) -> Result<bool, StoreError> {
        let [old, new] = sealed;
        let done = sqlx::query(sql::RESEAL).bind(id).bind(old).bind(new).execute(&self.writer).await;
        let done = done.map_err(StoreError::on("store the secret of a push subscription under the new key"))?;
        Ok(done.rows_affected() > 0)
    }

    async fn count_pushes(&self) -> Result<Vec<PushCount>, StoreError> {
        let rows = sqlx::query_as(sql::COUNT).fetch_all(&self.readers).await;
        Ok(counted(rows.map_err(StoreError::on("count push subscriptions"))?))
    }
}
