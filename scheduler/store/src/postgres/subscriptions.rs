//! Subscriptions and the leases under which they are delivered.
//!
//! Rows of subscriptions are locked in the order of their numbers, and before the row of `store`.

use std::collections::HashMap;

use async_trait::async_trait;
use common::time::Timestamp;
use common::url::FeedId;
use sqlx::{Executor, PgConnection};

use super::connection::{in_transaction, on_connection};
use super::feeds::erase_from;
use super::upkeep::HASHED;
use super::urls::lock_urls;
use super::{PostgresStore, column, text};
use crate::hub::hub_key;
use crate::subscriptions::{
    MOST_SUBSCRIPTIONS, RENEWAL, SubscriptionRow, beginnings, counted, readable, subscription_columns,
};
use crate::{
    ANONYMOUS, Advance, Deliveries, DeliveryShare, DeliveryTurn, Hub, HubFeed, HubSubscriptions, NewSubscription,
    StoreError, Stray, StrayQuery, Subscription, SubscriptionChange, SubscriptionCount, Subscriptions,
};

const ALL: &str = concat!("SELECT ", subscription_columns!(), " FROM subscriptions WHERE id > $1 ORDER BY id LIMIT $2");
const LOCKED: &str = concat!("SELECT ", subscription_columns!(), " FROM subscriptions WHERE id = $1 FOR UPDATE");
const OF_KEY: &str = concat!("SELECT ", subscription_columns!(), " FROM subscriptions WHERE hub_key = $1");
const AMONG: &str = concat!("SELECT ", subscription_columns!(), " FROM subscriptions WHERE id = ANY ($1) ORDER BY id");
/// Those with something to deliver or to verify; of a paused one, only that it ends.
macro_rules! served {
    () => {
        "(state = 'active' OR intent IS NOT NULL AND (state = 'disabled' OR (intent::json ->> 'mode') = 'unsubscribe'))"
    };
}
/// The database's clock, in milliseconds.
macro_rules! clock {
    () => {
        "floor(1000 * extract(epoch FROM clock_timestamp()))::bigint"
    };
}

#[async_trait]
impl Subscriptions for PostgresStore {
    async fn add_subscription(
        &self,
        new: &NewSubscription,
        now: Timestamp,
    ) -> Result<Option<Subscription>, StoreError> {
        const SQL: &str = concat!(
            "INSERT INTO subscriptions (kind, state, target, filter, format, batch, delay, secret, by_whom, created, progress, ",
            "hub_key, topic, lease_until, intent) ",
            "SELECT $1, 'active', $2, $3, $4, $5, $6, $7, $8, $9, json_build_object('cursor', $10::bigint)::text, ",
            "$12, $13, $14, $15 WHERE (SELECT count(*) FROM subscriptions) < $11 ",
            "ON CONFLICT (hub_key) WHERE hub_key IS NOT NULL DO NOTHING RETURNING ",
            subscription_columns!()
        );
        let wish = &new.wish;
        let row = on_connection!(self, "add a subscription", |on| {
            let add = sqlx::query_as::<_, SubscriptionRow>(SQL).bind(wish.kind.as_str()).bind(text(&wish.target));
            let add = add.bind(wish.filter_json()).bind(wish.format.as_str()).bind(i64::from(wish.batch));
            let add = add.bind(wish.delay_millis()).bind(new.secret.as_bytes()).bind(text(&new.by));
            let add = add.bind(now.millis()).bind(new.after).bind(MOST_SUBSCRIPTIONS);
            let hub = new.hub.as_ref();
            let add =
                add.bind(hub.map(|hub| hub_key(&hub.topic, &wish.target))).bind(hub.map(|hub| hub.topic.as_str()));
            let add = add.bind(hub.map(|hub| hub.until.millis())).bind(hub.and_then(Hub::intent_json));
            add.fetch_optional(on).await
        })?;
        row.map(Subscription::try_from).transpose()
    }

    async fn subscriptions(&self, after: i64, limit: u32) -> Result<Vec<Subscription>, StoreError> {
        on_connection!(self, "list subscriptions", |on| {
            Ok(readable(sqlx::query_as(ALL).bind(after).bind(i64::from(limit)).fetch_all(on).await?))
        })
    }

    async fn subscriptions_among(&self, ids: &[i64]) -> Result<Vec<Subscription>, StoreError> {
        on_connection!(self, "read subscriptions", |on| {
            Ok(readable(sqlx::query_as(AMONG).bind(ids).fetch_all(on).await?))
        })
    }

    async fn change_subscription(
        &self,
        id: i64,
        change: &SubscriptionChange,
    ) -> Result<Option<Subscription>, StoreError> {
        let changed = in_transaction!(self, "change a subscription", |tx| {
            let row: Option<SubscriptionRow> = sqlx::query_as(LOCKED).bind(id).fetch_optional(&mut *tx).await?;
            let Some(row) = row else { return Ok(Ok(None)) };
            let mut changed = match Subscription::try_from(row) {
                Ok(changed) => changed,
                Err(error) => return Ok(Err(error)),
            };
            if !change.apply(&mut changed) {
                return Ok(Err(StoreError::Outdated));
            }
            if let Some(feed) = change.named_feed(&changed) {
                let exists = sqlx::query("SELECT 1 FROM feeds WHERE id = $1 FOR KEY SHARE").bind(feed.0);
                if exists.fetch_optional(&mut *tx).await?.is_none() {
                    return Ok(Err(StoreError::Outdated));
                }
            }
            store(tx, &changed).await?;
            Ok(Ok(Some(changed)))
        });
        changed?
    }

    async fn remove_subscription(&self, id: i64) -> Result<bool, StoreError> {
        on_connection!(self, "remove a subscription", |on| {
            let remove = sqlx::query("DELETE FROM subscriptions WHERE id = $1").bind(id).execute(on).await?;
            Ok(remove.rows_affected() > 0)
        })
    }

    async fn end_subscription(&self, id: i64, revision: i64) -> Result<bool, StoreError> {
        on_connection!(self, "end a subscription", |on| {
            let sql = "DELETE FROM subscriptions WHERE id = $1 AND revision = $2";
            Ok(sqlx::query(sql).bind(id).bind(revision).execute(on).await?.rows_affected() > 0)
        })
    }

    async fn reseal_subscription(&self, id: i64, sealed: [&[u8]; 2]) -> Result<bool, StoreError> {
        let [old, new] = sealed;
        on_connection!(self, "store the secret of a subscription under the new key", |on| {
            let sql = "UPDATE subscriptions SET secret = CASE WHEN secret = $2 THEN $3 ELSE secret END, \
                       old_secret = CASE WHEN old_secret = $2 THEN $3 ELSE old_secret END \
                       WHERE id = $1 AND (secret = $2 OR old_secret = $2)";
            Ok(sqlx::query(sql).bind(id).bind(old).bind(new).execute(on).await?.rows_affected() > 0)
        })
    }
}

#[async_trait]
impl HubSubscriptions for PostgresStore {
    async fn hub_subscription(&self, topic: &str, callback: &str) -> Result<Option<Subscription>, StoreError> {
        let row = on_connection!(self, "find a subscription", |on| {
            sqlx::query_as::<_, SubscriptionRow>(OF_KEY).bind(hub_key(topic, callback)).fetch_optional(on).await
        })?;
        let found = row.map(Subscription::try_from).transpose()?;
        Ok(found.filter(|found| found.is_at_hub(topic, callback)))
    }

    async fn expire_subscriptions(&self, now: Timestamp) -> Result<u64, StoreError> {
        on_connection!(self, "remove the subscriptions whose lease ended", |on| {
            let sql = "DELETE FROM subscriptions WHERE lease_until <= $1 AND (intent IS NULL OR lease_until <= $2 \
                       OR (intent::json ->> 'is_first')::boolean)";
            let expire = sqlx::query(sql).bind(now.millis()).bind(now.before(RENEWAL).millis());
            Ok(expire.execute(on).await?.rows_affected())
        })
    }

    async fn hub_feeds(&self, added_before: Timestamp) -> Result<Vec<HubFeed>, StoreError> {
        in_transaction!(self, "count the subscriptions of feeds", |tx| {
            tx.execute(HASHED).await?;
            let find = sqlx::query_as(include_str!("hub_feeds.sql")).bind(added_before.millis());
            let rows: Vec<(i64, i64)> = find.fetch_all(tx).await?;
            let read =
                |(feed, count)| HubFeed { feed: FeedId(feed), subscriptions: u32::try_from(count).unwrap_or(u32::MAX) };
            Ok(rows.into_iter().map(read).collect())
        })
    }

    async fn release_hub_feed(&self, id: FeedId, now: Timestamp) -> Result<bool, StoreError> {
        in_transaction!(self, "release a feed of the hub", |tx| release(tx, id, now).await)
    }

    async fn hub_additions(&self, since: Timestamp) -> Result<u64, StoreError> {
        on_connection!(self, "count the feeds that the hub added", |on| {
            let count = sqlx::query_scalar("SELECT count(*) FROM hub_feeds WHERE added > $1").bind(since.millis());
            let count: i64 = count.fetch_one(on).await?;
            Ok(count.unsigned_abs())
        })
    }

    async fn unconfirmed_callbacks(&self) -> Result<Vec<String>, StoreError> {
        on_connection!(self, "find unconfirmed subscriptions", |on| {
            let sql = "SELECT target FROM subscriptions WHERE intent IS NOT NULL AND by_whom = $1 \
                       AND (intent::json ->> 'is_first')::boolean LIMIT 1000";
            sqlx::query_scalar(sql).bind(ANONYMOUS).fetch_all(on).await
        })
    }

    async fn anonymous_subscriptions(&self, host: &str) -> Result<u64, StoreError> {
        let of_host = beginnings(&text(host));
        on_connection!(self, "count the subscriptions of a host", |on| {
            let sql = "SELECT count(*) FROM subscriptions WHERE kind = 'websub' AND by_whom = $1 \
                       AND EXISTS (SELECT 1 FROM UNNEST($2::text[]) AS of_host (beginning) WHERE starts_with(target, beginning))";
            let count: i64 = sqlx::query_scalar(sql).bind(ANONYMOUS).bind(&of_host[..]).fetch_one(on).await?;
            Ok(count.unsigned_abs())
        })
    }

    async fn stray_subscriptions(&self, query: StrayQuery) -> Result<Vec<Stray>, StoreError> {
        on_connection!(self, "find subscriptions without a feed", |on| {
            let (all, anonymous) = query.closed();
            let find = sqlx::query_as(include_str!("hub_strays.sql")).bind(query.after).bind(all).bind(anonymous);
            let rows: Vec<(i64, Option<i64>)> = find.bind(ANONYMOUS).fetch_all(on).await?;
            Ok(rows.into_iter().map(|(id, feed)| Stray { id, merged_into: feed.map(FeedId) }).collect())
        })
    }
}

#[async_trait]
impl Deliveries for PostgresStore {
    async fn lease_subscriptions(&self, turn: &DeliveryTurn<'_>) -> Result<DeliveryShare, StoreError> {
        in_transaction!(self, "take the subscriptions to deliver", |tx| lease(tx, turn).await)
    }

    async fn advance_subscriptions(
        &self,
        holder: &str,
        advances: &[Advance],
        now: Timestamp,
    ) -> Result<Vec<i64>, StoreError> {
        in_transaction!(self, "store what was delivered", |tx| advance(tx, holder, advances, now).await)
    }

    async fn count_subscriptions(&self) -> Result<Vec<SubscriptionCount>, StoreError> {
        on_connection!(self, "count subscriptions", |on| {
            let sql = "SELECT kind, state, failing, count(*) FROM subscriptions GROUP BY kind, state, failing";
            Ok(counted(sqlx::query_as(sql).fetch_all(on).await?))
        })
    }
}

/// No other transaction gives feeds URLs meanwhile, or adds this one.
async fn release(on: &mut PgConnection, id: FeedId, now: Timestamp) -> Result<bool, sqlx::Error> {
    lock_urls(&mut *on).await?;
    let lock = "SELECT id FROM feeds WHERE id = $1 OR id = (SELECT merged_into FROM feeds WHERE id = $1) ORDER BY id FOR UPDATE";
    sqlx::query(lock).bind(id.0).execute(&mut *on).await?;
    let may: bool = sqlx::query_scalar(include_str!("hub_release.sql")).bind(id.0).fetch_one(&mut *on).await?;
    if may { erase_from(on, id, now).await } else { Ok(false) }
}

/// A subscription with another target may belong to another process: the one that sends to its host.
async fn store(on: &mut PgConnection, changed: &Subscription) -> Result<(), sqlx::Error> {
    let sql = "UPDATE subscriptions SET state = $2, reason = $3, target = $4, filter = $5, format = $6, batch = $7, delay = $8, \
               secret = $9, old_secret = $10, old_secret_until = $11, revision = $12, replays = $13, progress = $14, failing = $15, \
               lease_until = $16, intent = $17, holder = CASE WHEN target = $4 THEN holder ELSE '' END WHERE id = $1";
    let (wish, progress) = (&changed.wish, &changed.progress);
    let (old, until) = changed.old_secret.as_ref().map(|(old, until)| (old.as_bytes(), until.millis())).unzip();
    let set = sqlx::query(sql).bind(changed.id).bind(changed.state.as_str()).bind(&changed.reason);
    let set = set.bind(text(&wish.target)).bind(wish.filter_json()).bind(wish.format.as_str());
    let set = set.bind(i64::from(wish.batch)).bind(wish.delay_millis()).bind(changed.secret.as_bytes());
    let set = set.bind(old).bind(until).bind(changed.revision).bind(changed.replays);
    let set = set.bind(progress.packed()).bind(progress.failures > 0);
    let set = set.bind(changed.hub.as_ref().map(|hub| hub.until.millis()));
    set.bind(changed.hub.as_ref().and_then(Hub::intent_json)).execute(on).await?;
    Ok(())
}

/// Each process takes an equal share of the active subscriptions, and lets idle ones go that are beyond it. All subscriptions to one
/// target host go to the same process, so that its limits at the host are the fleet's.
async fn lease(on: &mut PgConnection, turn: &DeliveryTurn<'_>) -> Result<DeliveryShare, sqlx::Error> {
    let lasts = i64::try_from(turn.lasts.as_millis()).unwrap_or(i64::MAX);
    if lasts == 0 {
        let end = sqlx::query("DELETE FROM delivery_leases WHERE holder = $1").bind(turn.holder);
        end.execute(on).await?;
        return Ok(DeliveryShare::default());
    }
    // A process that is frozen may have its own row locked.
    let renew = concat!(
        "WITH ended AS (DELETE FROM delivery_leases WHERE holder IN (SELECT holder FROM delivery_leases WHERE held_until < ",
        clock!(),
        " AND holder <> $1 FOR UPDATE SKIP LOCKED)) INSERT INTO delivery_leases (holder, held_until) VALUES ($1, ",
        clock!(),
        " + $2) ON CONFLICT (holder) DO UPDATE SET held_until = excluded.held_until"
    );
    sqlx::query(renew).bind(turn.holder).bind(lasts).execute(&mut *on).await?;
    // One process at a time: two that looked at the same time could each take some of a host's subscriptions. Nobody waits for a
    // process that is frozen with the lock: the others keep what they hold, and look again a second later.
    let lock = "SELECT pg_try_advisory_xact_lock(hashtextextended('feedfleet deliveries ' || current_schema(), 0))";
    if sqlx::query_scalar(lock).fetch_one(&mut *on).await? {
        balance(on, turn).await?;
    }
    let held = concat!("SELECT id, revision FROM subscriptions WHERE ", served!(), " AND holder = $1 ORDER BY id");
    let held = sqlx::query_as(held).bind(turn.holder).fetch_all(&mut *on).await?;
    let (epoch, newest) = sqlx::query_as("SELECT epoch, seq FROM store").fetch_one(on).await?;
    Ok(DeliveryShare { epoch, newest, held })
}

/// Lets subscriptions go and takes others until the process has its share.
async fn balance(on: &mut PgConnection, turn: &DeliveryTurn<'_>) -> Result<(), sqlx::Error> {
    on.execute(HASHED).await?;
    let counts = concat!(
        "SELECT count(*), count(*) FILTER (WHERE holder = $1), (SELECT count(*) FROM delivery_leases WHERE holder <> $1 AND held_until >= ",
        clock!(),
        ") FROM subscriptions WHERE ",
        served!()
    );
    let (active, held, others): (i64, i64, i64) = sqlx::query_as(counts).bind(turn.holder).fetch_one(&mut *on).await?;
    let share = (active + others) / (others + 1);
    if held > share {
        let free = sqlx::query(include_str!("subscriptions_free.sql")).bind(turn.holder).bind(turn.idle);
        free.bind(held - share).execute(&mut *on).await?;
    }
    let take = sqlx::query(include_str!("subscriptions_take.sql")).bind(turn.holder);
    take.bind(share - held).execute(&mut *on).await?;
    Ok(())
}

async fn advance(
    on: &mut PgConnection,
    holder: &str,
    advances: &[Advance],
    now: Timestamp,
) -> Result<Vec<i64>, sqlx::Error> {
    let lock = "SELECT it.id, it.progress, store.epoch FROM subscriptions AS it, store WHERE it.id = ANY ($1) ORDER BY it.id \
                FOR UPDATE OF it";
    let rows = sqlx::query_as(lock).bind(column(advances, |advance| advance.id)).fetch_all(&mut *on).await?;
    let rows: HashMap<i64, (String, String)> =
        rows.into_iter().map(|(id, progress, epoch)| (id, (progress, epoch))).collect();
    let follows = |it: &&Advance| rows.get(&it.id).is_some_and(|(progress, epoch)| it.follows(progress, epoch));
    let advances: Vec<&Advance> = advances.iter().filter(follows).collect();
    let advances = &advances[..];
    let sql = "UPDATE subscriptions AS it SET progress = new.progress, failing = new.failing, \
               reason = coalesce(new.reason, it.reason), \
               state = CASE WHEN new.reason IS NULL THEN it.state ELSE 'disabled' END \
               FROM UNNEST($2::bigint[], $3::bigint[], $4::text[], $5::boolean[], $6::text[]) \
               AS new (id, revision, progress, failing, reason) \
               WHERE it.id = new.id AND it.holder = $1 AND it.revision = new.revision AND it.state = 'active' RETURNING it.id";
    let set = sqlx::query_scalar(sql).bind(holder).bind(column(advances, |advance| advance.id));
    let set = set.bind(column(advances, |advance| advance.revision));
    let set = set.bind(column(advances, |advance| text(&advance.progress.packed()).into_owned()));
    let set = set.bind(column(advances, |advance| advance.progress.failures > 0));
    let set = set.bind(column(advances, |advance| advance.disable.as_deref().map(|why| text(why).into_owned())));
    let stored: Vec<i64> = set.fetch_all(&mut *on).await?;
    let disabled: Vec<i64> =
        advances.iter().filter(|it| it.disable.is_some() && stored.contains(&it.id)).map(|it| it.id).collect();
    if !disabled.is_empty() {
        let count = i64::try_from(disabled.len()).unwrap_or(i64::MAX);
        let take = sqlx::query_scalar(include_str!("apply_numbers.sql")).bind(count).bind(0_i64);
        let last: i64 = take.fetch_one(&mut *on).await?;
        let sql = "INSERT INTO events (seq, at, kind, feed_id, subscription, about) \
                   SELECT $1 + place, $2, 'subscription.disabled', 0, it.id, CASE WHEN (it.filter::json -> 'visible') IS NOT NULL \
                   THEN json_build_object('limited_to', it.filter::json -> 'visible')::text END \
                   FROM UNNEST($3::bigint[]) WITH ORDINALITY AS new (id, place) JOIN subscriptions AS it ON it.id = new.id";
        sqlx::query(sql).bind(last).bind(now.millis()).bind(&disabled).execute(on).await?;
    }
    Ok(stored)
}
