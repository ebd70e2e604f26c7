//! Push subscriptions. Rows are locked in the order of their feeds.

use std::collections::BTreeSet;

use async_trait::async_trait;
use common::push::RELIABLE_AFTER;
use common::secrets::Sealed;
use common::time::Timestamp;
use common::url::FeedId;
use sqlx::{Executor, PgConnection};

use super::connection::{in_transaction, on_connection};
use super::upkeep::WHOLE_TABLES;
use super::{PostgresStore, numbers, text};
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
    " FROM push_subscriptions WHERE feed_id = ANY ($1) AND state <> 'unsubscribing'"
);
const TAKE_HOSTS: &str = "UPDATE push_hosts SET taken_until = $2 WHERE host IN ( \
    SELECT host FROM push_hosts WHERE due_at <= $1 AND taken_until <= $1 ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED) \
    RETURNING host";
/// Locks a host, so that what is written meanwhile is seen afterwards.
const LOCK_HOST: &str = "SELECT due_at FROM push_hosts WHERE host = $1 FOR UPDATE";

push_changes!(PgConnection, text);

#[async_trait]
impl Pushes for PostgresStore {
    async fn want_pushes(&self, wishes: &[PushWish], now: Timestamp) -> Result<u64, StoreError> {
        let mut in_order: Vec<&PushWish> = wishes.iter().collect();
        in_order.sort_by_key(|wish| wish.feed);
        in_transaction!(self, "store what feeds announce", |tx| want(tx, &in_order, now).await)
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

    async fn push_hosts(&self, now: Timestamp, until: Timestamp, limit: u32) -> Result<Vec<String>, StoreError> {
        on_connection!(self, "take hosts of hubs that are due", |on| {
            let take = sqlx::query_scalar(TAKE_HOSTS).bind(now.millis()).bind(until.millis()).bind(i64::from(limit));
            take.fetch_all(on).await
        })
    }

    async fn push_due(&self, host: &str, now: Timestamp, limit: u32) -> Result<Vec<PushSubscription>, StoreError> {
        on_connection!(self, "read push subscriptions that are due", |on| {
            let due = sqlx::query_as(sql::DUE).bind(host).bind(now.millis()).bind(i64::from(limit));
            Ok(in_turn(readable(due.fetch_all(on).await?), limit))
        })
    }

    async fn free_push_host(&self, host: &str, not_before: Option<Timestamp>) -> Result<(), StoreError> {
        in_transaction!(self, "free the host of a hub", |tx| {
            let _: Option<i64> = sqlx::query_scalar(LOCK_HOST).bind(host).fetch_optional(&mut *tx).await?;
            free(tx, host, not_before).await
        })
    }

    async fn store_push(&self, changed: &PushSubscription) -> Result<bool, StoreError> {
        in_transaction!(self, "store a push subscription", |tx| store(tx, changed).await)
    }

    async fn remove_push(&self, id: &str, revision: i64) -> Result<bool, StoreError> {
        on_connection!(self, "remove a push subscription", |on| {
            Ok(sqlx::query(sql::REMOVE).bind(id).bind(revision).execute(on).await?.rows_affected() > 0)
        })
    }
}

#[async_trait]
impl PushLosses for PostgresStore {
    async fn heard_pushes(&self, heard: &[PushHeard]) -> Result<(), StoreError> {
        let mut in_order: Vec<&PushHeard> = heard.iter().collect();
        in_order.sort_by_key(|push| push.feed);
        in_transaction!(self, "count pushes", |tx| {
            for push in &in_order {
                let count = sqlx::query(sql::HEARD).bind(push.feed.0).bind(push.at.millis()).bind(push.light);
                count.bind(push.settled).execute(&mut *tx).await?;
            }
            Ok(())
        })
    }

    async fn await_push(&self, feed: FeedId, at: Timestamp) -> Result<(), StoreError> {
        on_connection!(self, "note that a delivery was accepted", |on| {
            sqlx::query(sql::AWAIT).bind(feed.0).bind(at.millis()).execute(on).await?;
            Ok(())
        })
    }

    async fn lost_pushes(&self, before: Timestamp, limit: u32) -> Result<Vec<FeedId>, StoreError> {
        on_connection!(self, "find deliveries that were lost", |on| {
            let feeds = sqlx::query_scalar(sql::LOST).bind(before.millis()).bind(i64::from(limit));
            let feeds: Vec<i64> = feeds.fetch_all(on).await?;
            Ok(feeds.into_iter().map(FeedId).collect())
        })
    }

    async fn forget_lost_pushes(&self, feeds: &[FeedId], before: Timestamp) -> Result<(), StoreError> {
        in_transaction!(self, "note that deliveries were lost", |tx| {
            for feed in numbers(feeds.iter().copied()) {
                sqlx::query(sql::FORGET_LOST).bind(feed).bind(before.millis()).execute(&mut *tx).await?;
            }
            Ok(())
        })
    }

    async fn owed_paces(&self, limit: u32) -> Result<Vec<OwedPace>, StoreError> {
        on_connection!(self, "find feeds that are to get their own pace back", |on| {
            sqlx::query_as(sql::OWED).bind(i64::from(limit)).fetch_all(on).await
        })
    }

    async fn paces_restored(&self, of: &[OwedPace]) -> Result<(), StoreError> {
        let mut in_order: Vec<&OwedPace> = of.iter().collect();
        in_order.sort_by_key(|of| of.feed_id);
        in_transaction!(self, "note that feeds have their own pace", |tx| {
            for of in &in_order {
                sqlx::query(sql::PAID).bind(&of.id).bind(of.owed).execute(&mut *tx).await?;
            }
            Ok(())
        })
    }
}

#[async_trait]
impl PushUpkeep for PostgresStore {
    async fn forget_left_pushes(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        on_connection!(self, "remove push subscriptions that were left", |on| {
            let removed = sqlx::query(sql::FORGET_LEFT).bind(before.millis()).bind(i64::from(limit));
            Ok(removed.execute(on).await?.rows_affected())
        })
    }

    async fn subscribed(&self, after: FeedId, limit: u32) -> Result<Vec<Subscribed>, StoreError> {
        on_connection!(self, "read what subscribed feeds announce", |on| {
            sqlx::query_as(sql::SUBSCRIBED).bind(after.0).bind(i64::from(limit)).fetch_all(on).await
        })
    }

    async fn unpushed(&self, after: FeedId, limit: u32) -> Result<Vec<Unpushed>, StoreError> {
        on_connection!(self, "find feeds that announce a hub", |on| {
            sqlx::query_as(sql::UNPUSHED).bind(after.0).bind(i64::from(limit)).fetch_all(on).await
        })
    }

    async fn push_secrets(&self, after: &str, limit: u32) -> Result<Vec<(String, Sealed)>, StoreError> {
        on_connection!(self, "read the secrets of push subscriptions", |on| {
            let rows = sqlx::query_as(sql::SECRETS).bind(text(after)).bind(i64::from(limit));
            Ok(sealed(rows.fetch_all(on).await?))
        })
    }

    async fn reseal_push(&self, id: &str, sealed: [&[u8]; 2]) -> Result<bool, StoreError> {
        let [old, new] = sealed;
        on_connection!(self, "store the secret of a push subscription under the new key", |on| {
            Ok(sqlx::query(sql::RESEAL).bind(text(id)).bind(old).bind(new).execute(on).await?.rows_affected() > 0)
        })
    }

    async fn count_pushes(&self) -> Result<Vec<PushCount>, StoreError> {
        in_transaction!(self, "count push subscriptions", |tx| {
            tx.execute(WHOLE_TABLES).await?;
            Ok(counted(sqlx::query_as(sql::COUNT).fetch_all(tx).await?))
        })
    }
}
