//! The store as a whole: numbers, the pause, the price, retention, keys, its clock.

use std::time::Instant;

use async_trait::async_trait;
use common::job_keys::JobKey;
use common::secrets::Credentials;
use common::time::{Timestamp, clocks_agree};
use common::url::FeedId;
use sqlx::{Connection, PgConnection};

use super::PostgresStore;
use super::connection::{in_transaction, on_connection};
use super::hosts::count_change;
use super::urls::url_lock;
use crate::job_keys::{DELETE, KEEP, KEYS, KeyRow, UNSIGNED, deleted_before, has_old, missing};
use crate::row::{SealColumns, readable};
use crate::{OldSeal, Seals, StoreError, StoreStats, StoredJobKeys, Upkeep};

/// Rows of each kind that one call of `prune` deletes at most: some ten milliseconds for other writers.
const PRUNED: i64 = 2_000;
/// Changes that one call adds to the counters at most: a fraction of a second.
const FOLDED: i64 = 20_000;
/// For transactions that are meant to read a table from end to end.
pub(super) const WHOLE_TABLES: &str = "SET LOCAL enable_seqscan = on";
/// For transactions that join with counted or grouped rows, which have no index: a loop would compare each with each.
pub(super) const HASHED: &str = "SET LOCAL enable_hashjoin = on";

#[async_trait]
impl Upkeep for PostgresStore {
    /// From counters. Events are numbered without gaps, and retention takes them from the low end.
    async fn stats(&self, now: Timestamp) -> Result<StoreStats, StoreError> {
        in_transaction!(self, "count what it holds", |tx| {
            let counts = super::list::counts(&mut *tx).await?;
            let stats = sqlx::query_as(include_str!("stats.sql")).bind(now.millis());
            let (entries, events, hosts_held): (i64, i64, i64) = stats.fetch_one(tx).await?;
            let count = |number: i64| u64::try_from(number).unwrap_or(0);
            Ok(StoreStats {
                incomplete: counts.incomplete(),
                silent: counts.silent,
                feeds: counts.classes,
                penalised: counts.penalised,
                entries: count(entries),
                events: count(events),
                hosts_held: count(hosts_held),
                timeline_unreadable: self.servers.timeline_unreadable(),
            })
        })
    }

    /// Nothing, while another process does it or adds feeds.
    async fn fold_counts(&self) -> Result<(), StoreError> {
        in_transaction!(self, "add up its counters", |tx| fold_some(tx).await)
    }

    /// The server read its clock after `now` and before its answer came.
    async fn check(&self, now: Timestamp) -> Result<(), StoreError> {
        let asked = Instant::now();
        let sql = "SELECT floor(1000 * extract(epoch FROM clock_timestamp()))::bigint";
        let theirs = on_connection!(self, "be reached", |on| sqlx::query_scalar(sql).fetch_one(on).await)?;
        let theirs = Timestamp::from_millis(theirs);
        clocks_agree(theirs.clamp(now, now.after(asked.elapsed())), theirs).map_err(StoreError::Clock)
    }

    /// Closes all connections once they are free, for at most as long as a call may take.
    async fn close(&self) {
        // Then they end with the process.
        let _ = tokio::time::timeout(self.limits.call, self.pool.close()).await;
    }

    async fn paused(&self) -> Result<bool, StoreError> {
        let sql = "SELECT paused FROM store";
        on_connection!(self, "tell whether polling is paused", |on| sqlx::query_scalar(sql).fetch_one(on).await)
    }

    async fn set_paused(&self, paused: bool) -> Result<(), StoreError> {
        on_connection!(self, "pause or resume polling", |on| {
            sqlx::query("UPDATE store SET paused = $1").bind(paused).execute(on).await.map(drop)
        })
    }

    async fn begin_epoch(&self) -> Result<String, StoreError> {
        let sql = "UPDATE store SET epoch = left(replace(gen_random_uuid()::text, '-', ''), 16), epochs = epochs + 1 \
                   RETURNING epoch";
        on_connection!(self, "begin an epoch", |on| sqlx::query_scalar(sql).fetch_one(on).await)
    }

    async fn price(&self) -> Result<Option<f64>, StoreError> {
        let sql = "SELECT price FROM store";
        on_connection!(self, "read the price of a poll", |on| sqlx::query_scalar(sql).fetch_one(on).await)
    }

    async fn adjust_price(&self, before: Option<f64>, price: f64) -> Result<bool, StoreError> {
        on_connection!(self, "change the price of a poll", |on| {
            let sql = "UPDATE store SET price = $2 WHERE price IS NOT DISTINCT FROM $1";
            Ok(sqlx::query(sql).bind(before).bind(price).execute(on).await?.rows_affected() > 0)
        })
    }

    /// Takes from the low end of the numbers only, and stops at the first row that stays: so one number shows a
    /// consumer whether it missed something.
    async fn prune(&self, events: Timestamp, entries: Option<Timestamp>) -> Result<u64, StoreError> {
        on_connection!(self, "delete old events and entries", |on| {
            // They are not polled any more: their feeds are gone.
            let refusals = sqlx::query("DELETE FROM host_refusals WHERE until < $1").bind(events.millis());
            if refusals.execute(&mut *on).await?.rows_affected() > 0 {
                count_change(&mut *on).await?;
            }
            let holds = "DELETE FROM host_holds WHERE host IN (SELECT host FROM host_holds WHERE held_until < $1 \
                         ORDER BY host LIMIT $2 FOR UPDATE SKIP LOCKED)";
            sqlx::query(holds).bind(events.millis()).bind(PRUNED).execute(&mut *on).await?;
            let blocks = sqlx::query("DELETE FROM host_blocks WHERE blocked_until < $1").bind(events.millis());
            blocks.execute(&mut *on).await?;
            let mut gone = prune_events(&mut *on, events).await?;
            if let Some(before) = entries {
                gone += prune_entries(on, before).await?;
            }
            Ok(gone)
        })
    }
}

#[async_trait]
impl Seals for PostgresStore {
    async fn job_keys(&self, known: &[JobKey], fresh: &JobKey) -> Result<StoredJobKeys, StoreError> {
        const ACTION: &str = "read the keys that sign jobs";
        let keys: Vec<KeyRow> = on_connection!(self, ACTION, |on| sqlx::query_as(KEYS).fetch_all(&mut *on).await)?;
        if !missing(&keys, known, fresh).is_empty() || has_old(&keys, fresh.made) {
            in_transaction!(self, ACTION, |tx| {
                // Of two that make the first key at once, the second waits here and finds it.
                sqlx::query("SELECT FROM store FOR UPDATE").execute(&mut *tx).await?;
                let stored: Vec<KeyRow> = sqlx::query_as(KEYS).fetch_all(&mut *tx).await?;
                for key in missing(&stored, known, fresh) {
                    let keep = sqlx::query(KEEP).bind(key.id).bind(&key.secret[..]).bind(key.made.millis());
                    keep.execute(&mut *tx).await?;
                }
                sqlx::query(DELETE).bind(deleted_before(fresh.made)).execute(&mut *tx).await?;
                Ok(())
            })?;
        }
        on_connection!(self, ACTION, |on| {
            let keys = sqlx::query_as(KEYS).fetch_all(&mut *on).await?;
            let unsigned = sqlx::query_scalar(UNSIGNED).fetch_one(on).await?;
            Ok(StoredJobKeys::of(keys, unsigned))
        })
    }

    async fn old_seals(&self, current: &[u8], after: FeedId, limit: u32) -> Result<Vec<OldSeal>, StoreError> {
        on_connection!(self, "look for credentials of an old key", |on| {
            let seals = sqlx::query_as::<_, SealColumns>(include_str!("seals.sql")).bind(current);
            Ok(readable(seals.bind(after.0).bind(i64::from(limit)).fetch_all(on).await?))
        })
    }

    async fn reseal(&self, old: &OldSeal, credentials: &Credentials) -> Result<bool, StoreError> {
        on_connection!(self, "store credentials under the new key", |on| {
            let seal = sqlx::query(include_str!("seal_anew.sql")).bind(old.id.0).bind(old.sealed.as_bytes());
            let seal = seal.bind(&credentials.id.0[..]).bind(credentials.sealed.as_bytes());
            Ok(seal.execute(on).await?.rows_affected() > 0)
        })
    }
}

async fn fold_some(on: &mut PgConnection) -> Result<(), sqlx::Error> {
    let lock = concat!("SELECT pg_try_advisory_xact_lock(", url_lock!(), ")");
    if !sqlx::query_scalar::<_, bool>(lock).fetch_one(&mut *on).await? {
        return Ok(());
    }
    let fold = sqlx::query_as(include_str!("counts_fold.sql")).bind(FOLDED);
    let folded: Vec<(String, String, i64)> = fold.fetch_all(&mut *on).await?;
    let empty: Vec<String> =
        folded.into_iter().filter(|(kind, _, feeds)| kind == "host" && *feeds == 0).map(|(_, name, _)| name).collect();
    if !empty.is_empty() {
        let drop = sqlx::query("DELETE FROM feed_counts WHERE kind = 'host' AND name = ANY ($1) AND feeds = 0");
        drop.bind(empty).execute(on).await?;
    }
    Ok(())
}

async fn prune_events(on: &mut PgConnection, before: Timestamp) -> Result<u64, sqlx::Error> {
    let mut tx = on.begin().await?;
    let delete = sqlx::query_scalar(include_str!("prune_events.sql")).bind(before.millis()).bind(PRUNED);
    let gone: Vec<i64> = delete.fetch_all(&mut *tx).await?;
    let Some(last) = gone.iter().max() else { return tx.rollback().await.map(|()| 0) };
    let tell = sqlx::query("UPDATE store SET events_gone = greatest(events_gone, $1)").bind(last);
    tell.execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(gone.len() as u64)
}

async fn prune_entries(on: &mut PgConnection, before: Timestamp) -> Result<u64, sqlx::Error> {
    let mut tx = on.begin().await?;
    let until = sqlx::query_scalar(include_str!("prune_entries_until.sql")).bind(before.millis()).bind(PRUNED);
    let last: Option<i64> = until.fetch_one(&mut *tx).await?;
    let Some(last) = last else { return tx.rollback().await.map(|()| 0) };
    sqlx::query(include_str!("prune_entries_lock.sql")).bind(last).bind(PRUNED).execute(&mut *tx).await?;
    let gone: i64 = sqlx::query_scalar(include_str!("prune_entries.sql")).bind(last).fetch_one(&mut *tx).await?;
    let tell = "UPDATE store SET entries_gone = greatest(entries_gone, $1), entries = entries - $2";
    sqlx::query(tell).bind(last).bind(gone).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(u64::try_from(gone).unwrap_or(0))
}
