//! Subscriptions and the leases under which they are delivered.

use async_trait::async_trait;
use common::time::Timestamp;
use common::url::FeedId;
use sqlx::SqliteConnection;

use super::SqliteStore;
use super::feeds::erase_from;
use crate::hub::hub_key;
use crate::subscriptions::{
    MOST_SUBSCRIPTIONS, RENEWAL, SubscriptionRow, beginnings, counted, readable, subscription_columns,
};
use crate::{
    ANONYMOUS, Advance, Deliveries, DeliveryShare, DeliveryTurn, Hub, HubFeed, HubSubscriptions, NewSubscription,
    StoreError, Stray, StrayQuery, Subscription, SubscriptionChange, SubscriptionCount, Subscriptions,
};

const ALL: &str = concat!("SELECT ", subscription_columns!(), " FROM subscriptions WHERE id > ?1 ORDER BY id LIMIT ?2");
const ONE: &str = concat!("SELECT ", subscription_columns!(), " FROM subscriptions WHERE id = ?1");
const OF_KEY: &str = concat!("SELECT ", subscription_columns!(), " FROM subscriptions WHERE hub_key = ?1");
const AMONG: &str = concat!(
    "SELECT ",
    subscription_columns!(),
    " FROM subscriptions WHERE id IN (SELECT value FROM json_each(?1)) ORDER BY id"
);
/// Those with something to deliver or to verify; of a paused one, only that it ends.
macro_rules! served {
    () => {
        "(state = 'active' OR intent IS NOT NULL AND (state = 'disabled' OR json_extract(intent, '$.mode') = 'unsubscribe'))"
    };
}

#[async_trait]
impl Subscriptions for SqliteStore {
    async fn add_subscription(
        &self,
        new: &NewSubscription,
        now: Timestamp,
    ) -> Result<Option<Subscription>, StoreError> {
        const ACTION: &str = "add a subscription";
        let sql = concat!(
            "INSERT INTO subscriptions (kind, state, target, filter, format, batch, delay, secret, by_whom, created, progress, ",
            "hub_key, topic, lease_until, intent) ",
            "SELECT ?1, 'active', ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, json_object('cursor', ?10), ?12, ?13, ?14, ?15 ",
            "WHERE (SELECT count(*) FROM subscriptions) < ?11 ",
            "ON CONFLICT (hub_key) WHERE hub_key IS NOT NULL DO NOTHING RETURNING ",
            subscription_columns!()
        );
        let wish = &new.wish;
        let add = sqlx::query_as::<_, SubscriptionRow>(sql).bind(wish.kind.as_str()).bind(&wish.target);
        let add = add.bind(wish.filter_json()).bind(wish.format.as_str()).bind(wish.batch).bind(wish.delay_millis());
        let add = add.bind(new.secret.as_bytes()).bind(&new.by).bind(now.millis()).bind(new.after);
        let add = add.bind(MOST_SUBSCRIPTIONS).bind(new.hub.as_ref().map(|hub| hub_key(&hub.topic, &wish.target)));
        let add = add.bind(new.hub.as_ref().map(|hub| &hub.topic)).bind(new.hub.as_ref().map(|hub| hub.until.millis()));
        let add = add.bind(new.hub.as_ref().and_then(Hub::intent_json));
        let row = add.fetch_optional(&self.writer).await.map_err(StoreError::on(ACTION))?;
        row.map(Subscription::try_from).transpose()
    }

    async fn subscriptions(&self, after: i64, limit: u32) -> Result<Vec<Subscription>, StoreError> {
        let rows = sqlx::query_as(ALL).bind(after).bind(limit).fetch_all(&self.readers).await;
        Ok(readable(rows.map_err(StoreError::on("list subscriptions"))?))
    }

    async fn subscriptions_among(&self, ids: &[i64]) -> Result<Vec<Subscription>, StoreError> {
        let ids = serde_json::json!(ids).to_string();
        let rows = sqlx::query_as(AMONG).bind(ids).fetch_all(&self.readers).await;
        Ok(readable(rows.map_err(StoreError::on("read subscriptions"))?))
    }

    async fn change_subscription(
        &self,
        id: i64,
        change: &SubscriptionChange,
    ) -> Result<Option<Subscription>, StoreError> {
        const ACTION: &str = "change a subscription";
        let mut tx = self.write(ACTION).await?;
        let row: Option<SubscriptionRow> =
            sqlx::query_as(ONE).bind(id).fetch_optional(&mut *tx).await.map_err(StoreError::on(ACTION))?;
        let Some(row) = row else { return Ok(None) };
        let mut changed = Subscription::try_from(row)?;
        if !change.apply(&mut changed) {
            return Err(StoreError::Outdated);
        }
        if let Some(feed) = change.named_feed(&changed) {
            let exists = sqlx::query("SELECT 1 FROM feeds WHERE id = ?1").bind(feed.0).fetch_optional(&mut *tx).await;
            if exists.map_err(StoreError::on(ACTION))?.is_none() {
                return Err(StoreError::Outdated);
            }
        }
        store(&mut tx, &changed).await.map_err(StoreError::on(ACTION))?;
        tx.commit().await.map_err(StoreError::on(ACTION))?;
        Ok(Some(changed))
    }

    async fn remove_subscription(&self, id: i64) -> Result<bool, StoreError> {
        let remove = sqlx::query("DELETE FROM subscriptions WHERE id = ?1").bind(id).execute(&self.writer).await;
        Ok(remove.map_err(StoreError::on("remove a subscription"))?.rows_affected() > 0)
    }

    async fn end_subscription(&self, id: i64, revision: i64) -> Result<bool, StoreError> {
        let sql = "DELETE FROM subscriptions WHERE id = ?1 AND revision = ?2";
        let end = sqlx::query(sql).bind(id).bind(revision).execute(&self.writer).await;
        Ok(end.map_err(StoreError::on("end a subscription"))?.rows_affected() > 0)
    }

    async fn reseal_subscription(&self, id: i64, sealed: [&[u8]; 2]) -> Result<bool, StoreError> {
        let sql = "UPDATE subscriptions SET secret = iif(secret = ?2, ?3, secret), \
                   old_secret = iif(old_secret = ?2, ?3, old_secret) WHERE id = ?1 AND (secret = ?2 OR old_secret = ?2)";
        let [old, new] = sealed;
        let done = sqlx::query(sql).bind(id).bind(old).bind(new).execute(&self.writer).await;
        Ok(done.map_err(StoreError::on("store the secret of a subscription under the new key"))?.rows_affected() > 0)
    }
}

#[async_trait]
impl HubSubscriptions for SqliteStore {
    async fn hub_subscription(&self, topic: &str, callback: &str) -> Result<Option<Subscription>, StoreError> {
        let find = sqlx::query_as::<_, SubscriptionRow>(OF_KEY).bind(hub_key(topic, callback));
        let row = find.fetch_optional(&self.readers).await.map_err(StoreError::on("find a subscription"))?;
        let found = row.map(Subscription::try_from).transpose()?;
        Ok(found.filter(|found| found.is_at_hub(topic, callback)))
    }

    async fn expire_subscriptions(&self, now: Timestamp) -> Result<u64, StoreError> {
        let sql = "DELETE FROM subscriptions WHERE lease_until <= ?1 AND (intent IS NULL OR lease_until <= ?2 \
                   OR json_extract(intent, '$.is_first'))";
        let expire = sqlx::query(sql).bind(now.millis()).bind(now.before(RENEWAL).millis()).execute(&self.writer).await;
        Ok(expire.map_err(StoreError::on("remove the subscriptions whose lease ended"))?.rows_affected())
    }

    async fn hub_feeds(&self, added_before: Timestamp) -> Result<Vec<HubFeed>, StoreError> {
        let find = sqlx::query_as(include_str!("hub_feeds.sql")).bind(added_before.millis());
        let rows: Result<Vec<(i64, u32)>, _> = find.fetch_all(&self.readers).await;
        let rows = rows.map_err(StoreError::on("count the subscriptions of feeds"))?;
        Ok(rows.into_iter().map(|(feed, subscriptions)| HubFeed { feed: FeedId(feed), subscriptions }).collect())
    }

    async fn release_hub_feed(&self, id: FeedId, now: Timestamp) -> Result<bool, StoreError> {
        const ACTION: &str = "release a feed of the hub";
        let mut tx = self.write(ACTION).await?;
        let may = sqlx::query_scalar(include_str!("hub_release.sql")).bind(id.0).fetch_one(&mut *tx).await;
        let may: bool = may.map_err(StoreError::on(ACTION))?;
        let released = may && erase_from(&mut tx, id, now).await.map_err(StoreError::on(ACTION))?;
        tx.commit().await.map_err(StoreError::on(ACTION))?;
        Ok(released)
    }

    async fn hub_additions(&self, since: Timestamp) -> Result<u64, StoreError> {
        let count = sqlx::query_scalar("SELECT count(*) FROM hub_feeds WHERE added > ?1").bind(since.millis());
        let count: i64 =
            count.fetch_one(&self.readers).await.map_err(StoreError::on("count the feeds that the hub added"))?;
        Ok(count.unsigned_abs())
    }

    async fn unconfirmed_callbacks(&self) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT target FROM subscriptions WHERE intent IS NOT NULL AND by_whom = ?1 \
                   AND json_extract(intent, '$.is_first') LIMIT 1000";
        let found = sqlx::query_scalar(sql).bind(ANONYMOUS).fetch_all(&self.readers).await;
        found.map_err(StoreError::on("find unconfirmed subscriptions"))
    }

    async fn anonymous_subscriptions(&self, host: &str) -> Result<u64, StoreError> {
        let sql = "SELECT count(*) FROM subscriptions WHERE kind = 'websub' AND by_whom = ?1 \
                   AND EXISTS (SELECT 1 FROM json_each(?2) WHERE substr(target, 1, length(value)) = value)";
        let count = sqlx::query_scalar(sql).bind(ANONYMOUS).bind(serde_json::json!(beginnings(host)).to_string());
        let count: i64 =
            count.fetch_one(&self.readers).await.map_err(StoreError::on("count the subscriptions of a host"))?;
        Ok(count.unsigned_abs())
    }

    async fn stray_subscriptions(&self, query: StrayQuery) -> Result<Vec<Stray>, StoreError> {
        let (all, anonymous) = query.closed();
        let find = sqlx::query_as(include_str!("hub_strays.sql")).bind(query.after).bind(all).bind(anonymous);
        let rows: Result<Vec<(i64, Option<i64>)>, _> = find.bind(ANONYMOUS).fetch_all(&self.readers).await;
        let rows = rows.map_err(StoreError::on("find subscriptions without a feed"))?;
        Ok(rows.into_iter().map(|(id, feed)| Stray { id, merged_into: feed.map(FeedId) }).collect())
    }
}

#[async_trait]
impl Deliveries for SqliteStore {
    async fn lease_subscriptions(&self, turn: &DeliveryTurn<'_>) -> Result<DeliveryShare, StoreError> {
        const ACTION: &str = "take the subscriptions to deliver";
        let mut tx = self.write(ACTION).await?;
        let leased = lease(&mut tx, turn).await.map_err(StoreError::on(ACTION))?;
        tx.commit().await.map_err(StoreError::on(ACTION))?;
        Ok(leased)
    }

    async fn advance_subscriptions(
        &self,
        holder: &str,
        advances: &[Advance],
        now: Timestamp,
    ) -> Result<Vec<i64>, StoreError> {
        const ACTION: &str = "store what was delivered";
        let mut tx = self.write(ACTION).await?;
        let mut stored = Vec::new();
        for advance in advances {
            if advance_in(&mut tx, holder, advance, now).await.map_err(StoreError::on(ACTION))? {
                stored.push(advance.id);
            }
        }
        tx.commit().await.map_err(StoreError::on(ACTION))?;
        Ok(stored)
    }

    async fn count_subscriptions(&self) -> Result<Vec<SubscriptionCount>, StoreError> {
        let sql = "SELECT kind, state, failing, count(*) FROM subscriptions GROUP BY kind, state, failing";
        let rows = sqlx::query_as(sql).fetch_all(&self.readers).await;
        Ok(counted(rows.map_err(StoreError::on("count subscriptions"))?))
    }
}

async fn store(on: &mut SqliteConnection, changed: &Subscription) -> Result<(), sqlx::Error> {
    let sql = "UPDATE subscriptions SET state = ?2, reason = ?3, target = ?4, filter = ?5, format = ?6, batch = ?7, delay = ?8, \
               secret = ?9, old_secret = ?10, old_secret_until = ?11, revision = ?12, replays = ?13, progress = ?14, failing = ?15, \
               lease_until = ?16, intent = ?17 WHERE id = ?1";
    let (wish, progress) = (&changed.wish, &changed.progress);
    let (old, until) = changed.old_secret.as_ref().map(|(old, until)| (old.as_bytes(), until.millis())).unzip();
    let set = sqlx::query(sql).bind(changed.id).bind(changed.state.as_str()).bind(&changed.reason).bind(&wish.target);
    let set = set.bind(wish.filter_json()).bind(wish.format.as_str()).bind(wish.batch).bind(wish.delay_millis());
    let set = set.bind(changed.secret.as_bytes()).bind(old).bind(until).bind(changed.revision).bind(changed.replays);
    let set = set.bind(progress.packed()).bind(progress.failures > 0);
    let set = set.bind(changed.hub.as_ref().map(|hub| hub.until.millis()));
    set.bind(changed.hub.as_ref().and_then(Hub::intent_json)).execute(on).await?;
    Ok(())
}

/// One process has the database: what an earlier one held is taken over at once.
async fn lease(on: &mut SqliteConnection, turn: &DeliveryTurn<'_>) -> Result<DeliveryShare, sqlx::Error> {
    if turn.lasts.is_zero() {
        return Ok(DeliveryShare::default());
    }
    let take = concat!("UPDATE subscriptions SET holder = ?1 WHERE ", served!(), " AND holder <> ?1");
    sqlx::query(take).bind(turn.holder).execute(&mut *on).await?;
    let held = concat!("SELECT id, revision FROM subscriptions WHERE ", served!(), " AND holder = ?1 ORDER BY id");
    let held = sqlx::query_as(held).bind(turn.holder).fetch_all(&mut *on).await?;
    let store = "SELECT epoch, (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events') FROM store";
    let (epoch, newest) = sqlx::query_as(store).fetch_one(on).await?;
    Ok(DeliveryShare { epoch, newest, held })
}

async fn advance_in(
    on: &mut SqliteConnection,
    holder: &str,
    advance: &Advance,
    now: Timestamp,
) -> Result<bool, sqlx::Error> {
    let before = sqlx::query_as("SELECT progress, epoch FROM subscriptions, store WHERE id = ?1").bind(advance.id);
    let before: Option<(String, String)> = before.fetch_optional(&mut *on).await?;
    if !before.is_some_and(|(progress, epoch)| advance.follows(&progress, &epoch)) {
        return Ok(false);
    }
    let sql = "UPDATE subscriptions SET progress = ?4, failing = ?5, reason = coalesce(?6, reason), \
               state = iif(?6 IS NULL, state, 'disabled') WHERE id = ?1 AND holder = ?2 AND revision = ?3 AND state = 'active'";
    let progress = &advance.progress;
    let set = sqlx::query(sql).bind(advance.id).bind(holder).bind(advance.revision).bind(progress.packed());
    let set = set.bind(progress.failures > 0).bind(&advance.disable).execute(&mut *on).await?;
    let stored = set.rows_affected() > 0;
    if stored && advance.disable.is_some() {
        let sql = "INSERT INTO events (at, kind, feed_id, subscription, about) \
                   SELECT ?1, 'subscription.disabled', 0, id, iif(json_type(filter, '$.visible') IS NULL, NULL, \
                   json_object('limited_to', json_extract(filter, '$.visible'))) FROM subscriptions WHERE id = ?2";
        sqlx::query(sql).bind(now.millis()).bind(advance.id).execute(on).await?;
    }
    Ok(stored)
}
