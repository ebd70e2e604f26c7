//! Everything about the store as a whole: numbers, the pause, holds, retention, its clock.

use std::time::{Duration, Instant};

use common::host::HostKey;
use common::time::{Timestamp, clocks_agree};
use sqlx::{Connection, Executor, PgConnection};

use super::PostgresStore;
use super::people::url_lock;
use crate::{StoreError, StoreStats};

/// Rows of each kind that one call of `prune` deletes at most: some ten milliseconds for the others who wait to write.
const PRUNED: i64 = 2_000;
/// Changes that one call adds to the counters at most: a fraction of a second.
const FOLDED: i64 = 20_000;
/// For transactions that are meant to read a table from end to end.
pub(super) const WHOLE_TABLES: &str = "SET LOCAL enable_seqscan = on";

impl PostgresStore {
    pub(super) async fn host_holds(&self, now: Timestamp) -> Result<Vec<(HostKey, Timestamp)>, StoreError> {
        const ACTION: &str = "read the hosts' holds";
        let query = sqlx::query_as("SELECT host, held_until FROM host_holds WHERE held_until > $1").bind(now.millis());
        let mut on = self.session(ACTION).await?;
        let rows: Vec<(String, i64)> = query.fetch_all(&mut *on).await.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(rows.into_iter().map(|(host, until)| (HostKey::new(&host), Timestamp::from_millis(until))).collect())
    }

    /// From counters. Events are numbered without gaps, and retention takes them from the low end.
    pub(super) async fn numbers(&self, now: Timestamp) -> Result<StoreStats, StoreError> {
        let failed = StoreError::on;
        const ACTION: &str = "count what it holds";
        let mut on = self.session(ACTION).await?;
        let mut tx = on.begin().await.map_err(failed(ACTION))?;
        let counts = super::list::counts(&mut tx).await.map_err(failed(ACTION))?;
        let (entries, events, hosts_held): (i64, i64, i64) = sqlx::query_as(include_str!("stats.sql"))
            .bind(now.millis())
            .fetch_one(&mut *tx)
            .await
            .map_err(failed(ACTION))?;
        tx.commit().await.map_err(failed(ACTION))?;
        on.keep();
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
        const ACTION: &str = "count what is due";
        let sql = "SELECT count(*) FROM feeds WHERE status = 'active' AND next_due <= $1";
        let mut on = self.session(ACTION).await?;
        let mut tx = on.begin().await.map_err(StoreError::on(ACTION))?;
        tx.execute(WHOLE_TABLES).await.map_err(StoreError::on(ACTION))?;
        let count = sqlx::query_scalar(sql).bind(at.millis()).fetch_one(&mut *tx).await;
        let count: i64 = count.map_err(StoreError::on(ACTION))?;
        tx.commit().await.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Nothing, while somebody else does it or adds feeds.
    pub(super) async fn fold(&self) -> Result<(), StoreError> {
        const ACTION: &str = "add up its counters";
        let mut on = self.session(ACTION).await?;
        let mut tx = on.begin().await.map_err(StoreError::on(ACTION))?;
        fold_some(&mut tx).await.map_err(StoreError::on(ACTION))?;
        tx.commit().await.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(())
    }

    pub(super) async fn count_sla_unmet(&self, longest: Duration) -> Result<u64, StoreError> {
        const ACTION: &str = "count the SLAs that cannot be kept";
        let longest = i64::try_from(longest.as_millis()).unwrap_or(i64::MAX);
        let mut on = self.session(ACTION).await?;
        let count = sqlx::query_scalar(include_str!("sla_unmet.sql")).bind(longest).fetch_one(&mut *on).await;
        let count: i64 = count.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// The server read its clock after `now` and before its answer came.
    pub(super) async fn compare_clocks(&self, now: Timestamp) -> Result<(), StoreError> {
        const ACTION: &str = "be reached";
        let asked = Instant::now();
        let mut on = self.session(ACTION).await?;
        let sql = "SELECT floor(1000 * extract(epoch FROM clock_timestamp()))::bigint";
        let theirs = sqlx::query_scalar(sql).fetch_one(&mut *on).await.map_err(StoreError::on(ACTION))?;
        on.keep();
        let theirs = Timestamp::from_millis(theirs);
        clocks_agree(theirs.clamp(now, now.after(asked.elapsed())), theirs).map_err(StoreError::Clock)
    }

    pub(super) async fn is_paused(&self) -> Result<bool, StoreError> {
        const ACTION: &str = "tell whether polling is paused";
        let mut on = self.session(ACTION).await?;
        let paused = sqlx::query_scalar("SELECT paused FROM store").fetch_one(&mut *on).await;
        let paused = paused.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(paused)
    }

    pub(super) async fn pause(&self, paused: bool) -> Result<(), StoreError> {
        const ACTION: &str = "pause or resume polling";
        let mut on = self.session(ACTION).await?;
        let set = sqlx::query("UPDATE store SET paused = $1").bind(paused).execute(&mut *on).await;
        set.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(())
    }

    pub(super) async fn renew_epoch(&self) -> Result<String, StoreError> {
        const ACTION: &str = "begin an epoch";
        const SQL: &str =
            "UPDATE store SET epoch = left(replace(gen_random_uuid()::text, '-', ''), 16) RETURNING epoch";
        let mut on = self.session(ACTION).await?;
        let epoch = sqlx::query_scalar(SQL).fetch_one(&mut *on).await.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(epoch)
    }

    pub(super) async fn agreed_price(&self) -> Result<Option<f64>, StoreError> {
        const ACTION: &str = "read the price of a poll";
        let mut on = self.session(ACTION).await?;
        let price = sqlx::query_scalar("SELECT price FROM store").fetch_one(&mut *on).await;
        let price = price.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(price)
    }

    pub(super) async fn change_price(&self, before: Option<f64>, price: f64) -> Result<bool, StoreError> {
        const ACTION: &str = "change the price of a poll";
        let mut on = self.session(ACTION).await?;
        let sql = "UPDATE store SET price = $2 WHERE price IS NOT DISTINCT FROM $1";
        let done = sqlx::query(sql).bind(before).bind(price).execute(&mut *on).await;
        let done = done.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(done.rows_affected() > 0)
    }

    /// Takes from the low end of the numbers only, and stops at the first row that stays: so one number tells a consumer
    /// whether it missed something.
    pub(super) async fn prune_some(&self, events: Timestamp, entries: Option<Timestamp>) -> Result<u64, StoreError> {
        const ACTION: &str = "delete old events and entries";
        let mut on = self.session(ACTION).await?;
        let mut gone = prune_events(&mut on, events).await.map_err(StoreError::on(ACTION))?;
        if let Some(before) = entries {
            gone += prune_entries(&mut on, before).await.map_err(StoreError::on(ACTION))?;
        }
        on.keep();
        Ok(gone)
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
