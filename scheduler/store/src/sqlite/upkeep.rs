//! Everything about the store as a whole: numbers, the pause, holds, retention.

use std::time::Duration;

use common::host::HostKey;
use common::time::Timestamp;
use sqlx::SqliteConnection;

use super::SqliteStore;
use crate::{StoreError, StoreStats};

/// Rows of each kind that one call of `prune` deletes at most: some ten milliseconds for the others who wait to write.
const PRUNED: i64 = 2_000;

impl SqliteStore {
    pub(super) async fn host_holds(&self, now: Timestamp) -> Result<Vec<(HostKey, Timestamp)>, StoreError> {
        let rows: Vec<(String, i64)> = sqlx::query_as("SELECT host, held_until FROM host_holds WHERE held_until > ?1")
            .bind(now.millis())
            .fetch_all(&self.readers)
            .await
            .map_err(StoreError::on("read the hosts' holds"))?;
        Ok(rows.into_iter().map(|(host, until)| (HostKey::new(&host), Timestamp::from_millis(until))).collect())
    }

    /// From counters. Events are numbered without gaps, and retention takes them from the low end.
    pub(super) async fn numbers(&self, now: Timestamp) -> Result<StoreStats, StoreError> {
        let failed = StoreError::on;
        const ACTION: &str = "count what it holds";
        let mut tx = self.readers.begin().await.map_err(failed(ACTION))?;
        let counts = super::list::counts(&mut tx).await.map_err(failed(ACTION))?;
        let (entries, events, hosts_held): (i64, i64, i64) = sqlx::query_as(include_str!("stats.sql"))
            .bind(now.millis())
            .fetch_one(&mut *tx)
            .await
            .map_err(failed(ACTION))?;
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        Ok(StoreStats {
            feeds: counts.classes,
            penalised: counts.penalised,
            entries: count(entries),
            events: count(events),
            hosts_held: count(hosts_held),
        })
    }

    pub(super) async fn count_overdue(&self, at: Timestamp) -> Result<u64, StoreError> {
        let sql = "SELECT count(*) FROM feeds WHERE status = 'active' AND next_due <= ?1";
        let count: i64 = sqlx::query_scalar(sql)
            .bind(at.millis())
            .fetch_one(&self.readers)
            .await
            .map_err(StoreError::on("count what is due"))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    pub(super) async fn count_sla_unmet(&self, longest: Duration) -> Result<u64, StoreError> {
        let count: i64 = sqlx::query_scalar(include_str!("sla_unmet.sql"))
            .bind(i64::try_from(longest.as_millis()).unwrap_or(i64::MAX))
            .fetch_one(&self.readers)
            .await
            .map_err(StoreError::on("count the SLAs that cannot be kept"))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    pub(super) async fn is_paused(&self) -> Result<bool, StoreError> {
        let paused = sqlx::query_scalar("SELECT paused FROM store").fetch_one(&self.readers);
        paused.await.map_err(StoreError::on("tell whether polling is paused"))
    }

    pub(super) async fn pause(&self, paused: bool) -> Result<(), StoreError> {
        let set = sqlx::query("UPDATE store SET paused = ?1").bind(paused).execute(&self.writer);
        set.await.map_err(StoreError::on("pause or resume polling"))?;
        Ok(())
    }

    pub(super) async fn renew_epoch(&self) -> Result<String, StoreError> {
        const SQL: &str = "UPDATE store SET epoch = lower(hex(randomblob(8))) RETURNING epoch";
        sqlx::query_scalar(SQL).fetch_one(&self.writer).await.map_err(StoreError::on("begin an epoch"))
    }

    pub(super) async fn agreed_price(&self) -> Result<Option<f64>, StoreError> {
        let price = sqlx::query_scalar("SELECT price FROM store").fetch_one(&self.readers);
        price.await.map_err(StoreError::on("read the price of a poll"))
    }

    pub(super) async fn change_price(&self, before: Option<f64>, price: f64) -> Result<bool, StoreError> {
        let change = sqlx::query("UPDATE store SET price = ?2 WHERE price IS ?1").bind(before).bind(price);
        let done = change.execute(&self.writer).await.map_err(StoreError::on("change the price of a poll"))?;
        Ok(done.rows_affected() > 0)
    }

    /// Takes from the low end of the numbers only, and stops at the first row that stays: so one number tells a consumer
    /// whether it missed something.
    pub(super) async fn prune_some(&self, events: Timestamp, entries: Option<Timestamp>) -> Result<u64, StoreError> {
        const ACTION: &str = "delete old events and entries";
        let mut tx = self.write(ACTION).await?;
        let mut gone = prune_events(&mut tx, events).await.map_err(StoreError::on(ACTION))?;
        if let Some(before) = entries {
            gone += prune_entries(&mut tx, before).await.map_err(StoreError::on(ACTION))?;
        }
        tx.commit().await.map_err(StoreError::on(ACTION))?;
        Ok(gone)
    }
}

async fn prune_events(on: &mut SqliteConnection, before: Timestamp) -> Result<u64, sqlx::Error> {
    let last: Option<i64> = sqlx::query_scalar(include_str!("prune_events_until.sql"))
        .bind(before.millis())
        .bind(PRUNED)
        .fetch_one(&mut *on)
        .await?;
    let Some(last) = last else { return Ok(0) };
    let gone = sqlx::query("DELETE FROM events WHERE seq <= ?1").bind(last).execute(&mut *on).await?;
    sqlx::query("UPDATE store SET events_gone = ?1").bind(last).execute(on).await?;
    Ok(gone.rows_affected())
}

async fn prune_entries(on: &mut SqliteConnection, before: Timestamp) -> Result<u64, sqlx::Error> {
    let last: Option<i64> = sqlx::query_scalar(include_str!("prune_entries_until.sql"))
        .bind(before.millis())
        .bind(PRUNED)
        .fetch_one(&mut *on)
        .await?;
    let Some(last) = last else { return Ok(0) };
    sqlx::query(include_str!("prune_entries_count.sql")).bind(last).execute(&mut *on).await?;
    let gone = sqlx::query("DELETE FROM entries WHERE seq <= ?1").bind(last).execute(&mut *on).await?;
    let count = i64::try_from(gone.rows_affected()).unwrap_or(i64::MAX);
    let update = sqlx::query("UPDATE store SET entries_gone = ?1, entries = entries - ?2").bind(last).bind(count);
    update.execute(on).await?;
    Ok(gone.rows_affected())
}
