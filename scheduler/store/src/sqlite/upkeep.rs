//! Everything about the store as a whole: numbers, the pause, holds, retention.

use async_trait::async_trait;
use common::job_keys::JobKey;
use common::secrets::Credentials;
use common::time::Timestamp;
use common::url::FeedId;
use sqlx::SqliteConnection;

use super::hosts::count_change;
use super::{SqliteStore, in_snapshot, in_transaction};
use crate::job_keys::{DELETE, KEEP, KEYS, KeyRow, UNSIGNED, deleted_before, has_old, missing};
use crate::row::{SealColumns, readable};
use crate::{OldSeal, Seals, StoreError, StoreStats, StoredJobKeys, Upkeep};

/// Rows of each kind that one call of `prune` deletes at most: some ten milliseconds for other writers.
const PRUNED: i64 = 2_000;

#[async_trait]
impl Upkeep for SqliteStore {
    /// From counters. Events are numbered without gaps, and retention takes them from the low end.
    async fn stats(&self, now: Timestamp) -> Result<StoreStats, StoreError> {
        let (counts, (entries, events, hosts_held)) = in_snapshot!(self, "count what it holds", |tx| {
            let counts = super::list::counts(tx).await?;
            let numbers = sqlx::query_as::<_, (i64, i64, i64)>(include_str!("stats.sql")).bind(now.millis());
            Ok((counts, numbers.fetch_one(tx).await?))
        })?;
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        Ok(StoreStats {
            incomplete: counts.incomplete(),
            silent: counts.silent,
            feeds: counts.classes,
            penalised: counts.penalised,
            entries: count(entries),
            events: count(events),
            hosts_held: count(hosts_held),
            timeline_unreadable: None,
        })
    }

    /// Nothing: they are added up as they come.
    async fn fold_counts(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn check(&self, _: Timestamp) -> Result<(), StoreError> {
        self.paused().await.map(drop)
    }

    /// Closes all connections, which folds the write-ahead log into the database.
    async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    async fn paused(&self) -> Result<bool, StoreError> {
        let paused = sqlx::query_scalar("SELECT paused FROM store").fetch_one(&self.readers);
        paused.await.map_err(StoreError::on("tell whether polling is paused"))
    }

    async fn set_paused(&self, paused: bool) -> Result<(), StoreError> {
        let set = sqlx::query("UPDATE store SET paused = ?1").bind(paused).execute(&self.writer);
        set.await.map_err(StoreError::on("pause or resume polling"))?;
        Ok(())
    }

    async fn begin_epoch(&self) -> Result<String, StoreError> {
        const SQL: &str = "UPDATE store SET epoch = lower(hex(randomblob(8))), epochs = epochs + 1 RETURNING epoch";
        sqlx::query_scalar(SQL).fetch_one(&self.writer).await.map_err(StoreError::on("begin an epoch"))
    }

    async fn price(&self) -> Result<Option<f64>, StoreError> {
        let price = sqlx::query_scalar("SELECT price FROM store").fetch_one(&self.readers);
        price.await.map_err(StoreError::on("read the price of a poll"))
    }

    async fn adjust_price(&self, before: Option<f64>, price: f64) -> Result<bool, StoreError> {
        let change = sqlx::query("UPDATE store SET price = ?2 WHERE price IS ?1").bind(before).bind(price);
        let done = change.execute(&self.writer).await.map_err(StoreError::on("change the price of a poll"))?;
        Ok(done.rows_affected() > 0)
    }

    /// Takes from the low end of the numbers only, and stops at the first row that stays: so one number shows a
    /// consumer whether it missed something.
    async fn prune(&self, events: Timestamp, entries: Option<Timestamp>) -> Result<u64, StoreError> {
        in_transaction!(self, "delete old events and entries", |tx| {
            let mut gone = prune_events(tx, events).await?;
            if let Some(before) = entries {
                gone += prune_entries(tx, before).await?;
            }
            // They are not polled any more: their feeds are gone.
            let refusals = sqlx::query("DELETE FROM host_refusals WHERE until < ?1").bind(events.millis());
            if refusals.execute(&mut *tx).await?.rows_affected() > 0 {
                count_change(tx).await?;
            }
            let holds =
                "DELETE FROM host_holds WHERE host IN (SELECT host FROM host_holds WHERE held_until < ?1 LIMIT ?2)";
            sqlx::query(holds).bind(events.millis()).bind(PRUNED).execute(&mut *tx).await?;
            let blocks = sqlx::query("DELETE FROM host_blocks WHERE blocked_until < ?1").bind(events.millis());
            blocks.execute(tx).await?;
            Ok(gone)
        })
    }
}

#[async_trait]
impl Seals for SqliteStore {
    async fn job_keys(&self, known: &[JobKey], fresh: &JobKey) -> Result<StoredJobKeys, StoreError> {
        const ACTION: &str = "read the keys that sign jobs";
        // Reads do not wait for writers.
        let mut keys: Vec<KeyRow> =
            sqlx::query_as(KEYS).fetch_all(&self.readers).await.map_err(StoreError::on(ACTION))?;
        if !missing(&keys, known, fresh).is_empty() || has_old(&keys, fresh.made) {
            keys = in_transaction!(self, ACTION, |tx| {
                let stored: Vec<KeyRow> = sqlx::query_as(KEYS).fetch_all(&mut *tx).await?;
                for key in missing(&stored, known, fresh) {
                    let keep = sqlx::query(KEEP).bind(key.id).bind(&key.secret[..]).bind(key.made.millis());
                    keep.execute(&mut *tx).await?;
                }
                sqlx::query(DELETE).bind(deleted_before(fresh.made)).execute(&mut *tx).await?;
                sqlx::query_as(KEYS).fetch_all(tx).await
            })?;
        }
        let unsigned = sqlx::query_scalar(UNSIGNED).fetch_one(&self.readers);
        let unsigned = unsigned.await.map_err(StoreError::on(ACTION))?;
        Ok(StoredJobKeys::of(keys, unsigned))
    }

    async fn old_seals(&self, current: &[u8], after: FeedId, limit: u32) -> Result<Vec<OldSeal>, StoreError> {
        let rows = sqlx::query_as::<_, SealColumns>(include_str!("seals.sql")).bind(current).bind(after.0).bind(limit);
        let rows = rows.fetch_all(&self.readers).await;
        Ok(readable(rows.map_err(StoreError::on("look for credentials of an old key"))?))
    }

    async fn reseal(&self, old: &OldSeal, credentials: &Credentials) -> Result<bool, StoreError> {
        let seal = sqlx::query(include_str!("seal_anew.sql")).bind(old.id.0).bind(old.sealed.as_bytes());
        let seal = seal.bind(&credentials.id.0[..]).bind(credentials.sealed.as_bytes());
        let done = seal.execute(&self.writer).await.map_err(StoreError::on("store credentials under the new key"))?;
        Ok(done.rows_affected() > 0)
    }
}

async fn prune_events(on: &mut SqliteConnection, before: Timestamp) -> Result<u64, sqlx::Error> {
    let until = sqlx::query_scalar(include_str!("prune_events_until.sql")).bind(before.millis()).bind(PRUNED);
    let last: Option<i64> = until.fetch_one(&mut *on).await?;
    let Some(last) = last else { return Ok(0) };
    let gone = sqlx::query("DELETE FROM events WHERE seq <= ?1").bind(last).execute(&mut *on).await?;
    sqlx::query("UPDATE store SET events_gone = ?1").bind(last).execute(on).await?;
    Ok(gone.rows_affected())
}

async fn prune_entries(on: &mut SqliteConnection, before: Timestamp) -> Result<u64, sqlx::Error> {
    let until = sqlx::query_scalar(include_str!("prune_entries_until.sql")).bind(before.millis()).bind(PRUNED);
    let last: Option<i64> = until.fetch_one(&mut *on).await?;
    let Some(last) = last else { return Ok(0) };
    sqlx::query(include_str!("prune_entries_count.sql")).bind(last).execute(&mut *on).await?;
    let gone = sqlx::query("DELETE FROM entries WHERE seq <= ?1").bind(last).execute(&mut *on).await?;
    let count = i64::try_from(gone.rows_affected()).unwrap_or(i64::MAX);
    let update = sqlx::query("UPDATE store SET entries_gone = ?1, entries = entries - ?2").bind(last).bind(count);
    update.execute(on).await?;
    Ok(gone.rows_affected())
}
