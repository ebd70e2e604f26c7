//! Push subscriptions. Rows are locked in the order of their feeds.

use async_trait::async_trait;
use common::secrets::Sealed;
use common::time::Timestamp;
use common::url::FeedId;

use super::connection::{in_transaction, on_connection};
use super::{PostgresStore, numbers, optional_text, text};
use crate::push::{PushRow, counted, push_columns, readable, sql};
use crate::{PushCount, PushHeard, PushSubscription, PushWish, Pushes, StoreError, Unpushed};

const OF_FEEDS: &str = concat!(
    "SELECT ",
    push_columns!(),
    " FROM push_subscriptions WHERE feed_id = ANY ($1) AND state <> 'unsubscribing'"
);
const DUE: &str = concat!(
    "UPDATE push_subscriptions SET act_at = $2 WHERE id IN (",
    "SELECT id FROM push_subscriptions WHERE act_at <= $1 ORDER BY act_at LIMIT $3 FOR UPDATE SKIP LOCKED) RETURNING ",
    push_columns!()
);

#[async_trait]
impl Pushes for PostgresStore {
    async fn want_pushes(&self, wishes: &[PushWish], now: Timestamp) -> Result<u64, StoreError> {
        let mut in_order: Vec<&PushWish> = wishes.iter().collect();
        in_order.sort_by_key(|wish| wish.feed);
        in_transaction!(self, "store what feeds announce", |tx| {
            let mut changed = 0;
            for wish in &in_order {
                let wanted = wish.wanted.as_ref();
                let left = sqlx::query(sql::LEAVE_OTHER).bind(wish.feed.0).bind(wanted.map(|new| new.kind.as_str()));
                let left = left.bind(wanted.map(|new| text(&new.hub))).bind(wanted.map(|new| text(&new.topic)));
                changed += left.bind(now.millis()).execute(&mut *tx).await?.rows_affected();
                let Some(new) = wanted else { continue };
                let add = sqlx::query(sql::ADD).bind(&new.id).bind(wish.feed.0).bind(new.kind.as_str());
                let add = add.bind(text(&new.hub)).bind(text(&new.topic));
                let add = add.bind(new.secret.as_ref().map(Sealed::as_bytes)).bind(now.millis());
                changed += add.execute(&mut *tx).await?.rows_affected();
            }
            Ok(changed)
        })
    }

    async fn push(&self, id: &str) -> Result<Option<PushSubscription>, StoreError> {
        let row = on_connection!(self, "read a push subscription", |on| {
            sqlx::query_as::<_, PushRow>(sql::ONE).bind(text(id)).fetch_optional(on).await
        })?;
        row.map(PushSubscription::try_from).transpose()
    }

    async fn pushes_of(&self, feeds: &[FeedId]) -> Result<Vec<PushSubscription>, StoreError> {
        on_connection!(self, "read push subscriptions", |on| {
            let query = sqlx::query_as(OF_FEEDS).bind(numbers(feeds.iter().copied()));
            Ok(readable(query.fetch_all(on).await?))
        })
    }

    async fn push_due(
        &self,
        now: Timestamp,
        again: Timestamp,
        limit: u32,
    ) -> Result<Vec<PushSubscription>, StoreError> {
        on_connection!(self, "take push subscriptions that are due", |on| {
            let take = sqlx::query_as(DUE).bind(now.millis()).bind(again.millis()).bind(i64::from(limit));
            Ok(readable(take.fetch_all(on).await?))
        })
    }

    async fn store_push(&self, changed: &PushSubscription) -> Result<bool, StoreError> {
        on_connection!(self, "store a push subscription", |on| {
            let store = sqlx::query(sql::STORE).bind(&changed.id).bind(changed.revision);
            let store = store.bind(changed.secret.as_ref().map(Sealed::as_bytes)).bind(changed.state.as_str());
            let store = store.bind(changed.asked_at.map(Timestamp::millis));
            let store = store.bind(changed.lease_until.map(Timestamp::millis)).bind(changed.act_at.millis());
            let store = store.bind(i64::from(changed.failures)).bind(optional_text(&changed.reason));
            Ok(store.execute(on).await?.rows_affected() > 0)
        })
    }

    async fn remove_push(&self, id: &str, revision: i64) -> Result<bool, StoreError> {
        on_connection!(self, "remove a push subscription", |on| {
            Ok(sqlx::query(sql::REMOVE).bind(id).bind(revision).execute(on).await?.rows_affected() > 0)
        })
    }

    async fn heard_pushes(&self, heard: &[PushHeard]) -> Result<(), StoreError> {
        let mut in_order: Vec<&PushHeard> = heard.iter().collect();
        in_order.sort_by_key(|push| push.feed);
        in_transaction!(self, "count pushes", |tx| {
            for push in &in_order {
                let count = sqlx::query(sql::HEARD).bind(push.feed.0).bind(i64::from(push.counts));
                let count = count.bind(push.at.millis()).bind(push.light).bind(i64::from(push.announced));
                count.execute(&mut *tx).await?;
            }
            Ok(())
        })
    }

    async fn missed_pushes(&self, feeds: &[FeedId]) -> Result<(), StoreError> {
        in_transaction!(self, "count missed pushes", |tx| {
            for feed in numbers(feeds.iter().copied()) {
                sqlx::query(sql::MISSED).bind(feed).execute(&mut *tx).await?;
            }
            Ok(())
        })
    }

    async fn leave_pushes(&self, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
        on_connection!(self, "leave push subscriptions", |on| {
            let left = sqlx::query(sql::LEAVE).bind(now.millis()).bind(i64::from(limit));
            Ok(left.execute(on).await?.rows_affected())
        })
    }

    async fn unpushed(&self, after: FeedId, limit: u32) -> Result<Vec<Unpushed>, StoreError> {
        on_connection!(self, "find feeds that announce a hub", |on| {
            sqlx::query_as(sql::UNPUSHED).bind(after.0).bind(i64::from(limit)).fetch_all(on).await
        })
    }

    async fn count_pushes(&self) -> Result<Vec<PushCount>, StoreError> {
        on_connection!(self, "count push subscriptions", |on| {
            Ok(counted(sqlx::query_as(sql::COUNT).fetch_all(on).await?))
        })
    }
}
