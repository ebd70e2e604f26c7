//! What the loops of a poll read and write. In `apply` verdicts become rows, in one transaction for the batch.
//!
//! The order is fixed: versions are looked at, then entries, feed rows, host holds and at last events are written. A
//! reader sees all of it or nothing. A report that finds another version than its own touches nothing. Rows of polls without a
//! document are not looked at where their verdicts hold what was seen: if one is not as it was then, the batch begins again and
//! looks at all of them.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use common::config::QuotaConfig;
use common::feed::Feed;
use common::host::HostKey;
use common::policy::HostHold;
use common::push::RELIABLE_AFTER;
use common::time::Timestamp;
use common::url::FeedId;
use sqlx::{FromRow, Sqlite, SqliteConnection, Transaction};

use super::batch::{Batch, id_list};
use super::rows::ACTION;
use super::{SqliteStore, entries, rows};
use crate::changes::{self, Change, NewEvent};
use crate::columns::{pack_detour, pack_terms};
use crate::quota::Spent;
use crate::row::{FeedRow, JobColumns, PlaceColumns, readable};
use crate::verdicts::{self, Before, Fresh, HostHolds, Tally};
use crate::{Applied, Interruption, JobRow, Placement, Polls, StoreError, Verdict};

#[async_trait]
impl Polls for SqliteStore {
    async fn jobs_for(&self, ids: &[FeedId]) -> Result<Vec<JobRow>, StoreError> {
        let failed = "read what jobs need";
        let mut connection = self.warm().await.map_err(StoreError::on(failed))?;
        let rows: Vec<JobColumns> = sqlx::query_as(include_str!("jobs.sql"))
            .bind(id_list(ids.iter().copied()))
            .fetch_all(&mut *connection)
            .await
            .map_err(StoreError::on(failed))?;
        Ok(readable(rows))
    }

    async fn live_among(&self, ids: &[FeedId]) -> Result<Vec<FeedId>, StoreError> {
        let sql = "SELECT id FROM feeds WHERE id IN (SELECT value FROM json_each(?1)) AND status = 'active'";
        let live: Vec<i64> = sqlx::query_scalar(sql)
            .bind(id_list(ids.iter().copied()))
            .fetch_all(&self.readers)
            .await
            .map_err(StoreError::on("tell which feeds are live"))?;
        Ok(live.into_iter().map(FeedId).collect())
    }

    async fn interrupt(&self, interruptions: &[Interruption]) -> Result<(), StoreError> {
        let failed = "keep where fetches continue";
        let mut tx = self.write(failed).await?;
        for Interruption { feed, version, detour, wait } in interruptions {
            sqlx::query(include_str!("interrupt.sql"))
                .bind(feed.0)
                .bind(version.0)
                .bind(detour.as_ref().map(|detour| pack_detour(*version, detour)))
                .bind(wait.map(|(until, _)| until.millis()))
                .bind(wait.map(|(_, terms)| pack_terms(&terms)))
                .execute(&mut *tx)
                .await
                .map_err(StoreError::on(failed))?;
        }
        tx.commit().await.map_err(StoreError::on(failed))
    }

    async fn keep_holds(&self, holds: &[(HostKey, Timestamp, FeedId)]) -> Result<(), StoreError> {
        const SQL: &str = "INSERT INTO host_holds (host, held_until, feed_id) VALUES (?1, ?2, ?3) ON CONFLICT (host) \
                           DO UPDATE SET held_until = excluded.held_until, feed_id = excluded.feed_id \
                           WHERE excluded.held_until > host_holds.held_until";
        let failed = "keep the hosts' holds";
        let mut tx = self.write(failed).await?;
        for (host, until, feed) in holds {
            let keep = sqlx::query(SQL).bind(host.as_str()).bind(until.millis()).bind(feed.0);
            keep.execute(&mut *tx).await.map_err(StoreError::on(failed))?;
        }
        tx.commit().await.map_err(StoreError::on(failed))
    }

    async fn states_for(&self, ids: &[FeedId]) -> Result<Vec<Feed>, StoreError> {
        let failed = "read feeds";
        let mut connection = self.warm().await.map_err(StoreError::on(failed))?;
        let rows: Vec<FeedRow> = sqlx::query_as(include_str!("states.sql"))
            .bind(id_list(ids.iter().copied()))
            .fetch_all(&mut *connection)
            .await
            .map_err(StoreError::on(failed))?;
        Ok(readable(rows))
    }

    async fn apply(
        &self,
        verdicts: &[Verdict],
        clock_skew: Duration,
        now: Timestamp,
    ) -> Result<Vec<Applied>, StoreError> {
        for reads_all in [false, true] {
            let tx = self.write(ACTION).await?;
            if let Some(answers) = apply(tx, verdicts, &self.quota, clock_skew, now, reads_all).await? {
                return Ok(answers);
            }
        }
        Err(StoreError::on(ACTION)(sqlx::Error::RowNotFound))
    }

    async fn placements(&self, after: FeedId, limit: u32) -> Result<Vec<Placement>, StoreError> {
        let rows: Vec<PlaceColumns> = sqlx::query_as(include_str!("placements.sql"))
            .bind(after.0)
            .bind(limit)
            .fetch_all(&self.readers)
            .await
            .map_err(StoreError::on("read when feeds are due"))?;
        Ok(readable(rows))
    }

    async fn holds(&self, now: Timestamp) -> Result<Vec<(HostKey, Timestamp)>, StoreError> {
        let rows: Vec<(String, i64)> = sqlx::query_as("SELECT host, held_until FROM host_holds WHERE held_until > ?1")
            .bind(now.millis())
            .fetch_all(&self.readers)
            .await
            .map_err(StoreError::on("read the hosts' holds"))?;
        Ok(rows.into_iter().map(|(host, until)| (HostKey::new(&host), Timestamp::from_millis(until))).collect())
    }

    async fn overdue(&self, at: Timestamp) -> Result<u64, StoreError> {
        let sql = "SELECT count(*) FROM feeds WHERE status = 'active' AND next_due <= ?1";
        let count: i64 = sqlx::query_scalar(sql)
            .bind(at.millis())
            .fetch_one(&self.readers)
            .await
            .map_err(StoreError::on("count what is due"))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    async fn sla_unmet(&self, longest: Duration) -> Result<u64, StoreError> {
        let count: i64 = sqlx::query_scalar(include_str!("sla_unmet.sql"))
            .bind(i64::try_from(longest.as_millis()).unwrap_or(i64::MAX))
            .bind(RELIABLE_AFTER)
            .fetch_one(&self.readers)
            .await
            .map_err(StoreError::on("count the SLAs that cannot be kept"))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }
}

/// `None`, and nothing stored, when a row that was not read is not as it was when its verdict was decided.
async fn apply(
    mut tx: Transaction<'static, Sqlite>,
    verdicts: &[Verdict],
    quota: &QuotaConfig,
    clock_skew: Duration,
    now: Timestamp,
    reads_all: bool,
) -> Result<Option<Vec<Applied>>, StoreError> {
    let (mut fresh, answers) = verdicts::fresh(verdicts, rows_before(&mut tx, verdicts, reads_all).await?);
    if fresh.is_empty() {
        return Ok(Some(answers));
    }
    let mut changes = entries::changes(&mut tx, &fresh).await?;
    let mut spent = changes::keep_within(&fresh, &mut changes, quota, now);
    verdicts::note_cuts(&mut fresh, &spent);
    let new_events = number(&mut tx, &fresh, &mut changes).await?;
    let mut tallies = changes::tallies(&fresh, &changes);
    make_room(&mut tx, quota, (&fresh, &changes), &mut spent, &mut tallies, now).await?;
    entries::write(&mut tx, &changes, now).await?;
    if !rows::write_feeds(&mut tx, (&fresh, &changes), &tallies, &spent, clock_skew).await? {
        tx.rollback().await.map_err(StoreError::on(ACTION))?;
        return Ok(None);
    }
    learn(&mut tx, &fresh, &changes).await?;
    let holds = write_holds(&mut tx, &fresh, now).await?;
    write_events(&mut tx, &new_events, &tallies, now).await?;
    tx.commit().await.map_err(StoreError::on(ACTION))?;
    Ok(Some(verdicts::answers(answers, &fresh, &tallies, &holds, &spent, clock_skew)))
}

/// Deletes the oldest rows of feeds that would have more than they may.
async fn make_room(
    tx: &mut SqliteConnection,
    quota: &QuotaConfig,
    (fresh, changes): (&[Fresh<'_>], &[Change<'_>]),
    spent: &mut [Option<Spent>],
    tallies: &mut [Tally],
    now: Timestamp,
) -> Result<(), StoreError> {
    const ACTION: &str = "make room for entries";
    let uncounted = changes::uncounted(fresh, spent, quota);
    if !uncounted.is_empty() {
        let count = "SELECT feed_id, count(*) FROM entry_identities WHERE feed_id IN (SELECT value FROM json_each(?1)) \
                     GROUP BY feed_id";
        let rows: Vec<(i64, i64)> =
            sqlx::query_as(count).bind(id_list(uncounted)).fetch_all(&mut *tx).await.map_err(StoreError::on(ACTION))?;
        changes::count(fresh, spent, quota, rows);
    }
    for (number, spent) in spent.iter_mut().enumerate() {
        let Some(spent) = spent else { continue };
        let feed = fresh[number].verdict.report.feed;
        let (excess, mut gone) = (spent.excess(quota), Vec::<i64>::new());
        if excess > 0 {
            let kept = serde_json::json!(changes::stored_forms(changes, number)).to_string();
            let delete = sqlx::query_scalar(include_str!("quota_identities.sql")).bind(feed.0).bind(kept);
            let there = serde_json::json!(changes::still_there(&fresh[number])).to_string();
            gone = delete
                .bind(excess.cast_signed())
                .bind(there)
                .fetch_all(&mut *tx)
                .await
                .map_err(StoreError::on(ACTION))?;
            let delete = sqlx::query("DELETE FROM entries WHERE seq IN (SELECT value FROM json_each(?1))")
                .bind(serde_json::json!(gone).to_string());
            let deleted = delete.execute(&mut *tx).await.map_err(StoreError::on(ACTION))?;
            tallies[number].more -= deleted.rows_affected().cast_signed();
        }
        spent.settled(gone.len() as u64, now);
    }
    Ok(())
}

async fn rows_before(
    on: &mut SqliteConnection,
    verdicts: &[Verdict],
    reads_all: bool,
) -> Result<Vec<Before>, StoreError> {
    let (mut rows, mut unseen) = (Vec::with_capacity(verdicts.len()), Vec::new());
    for verdict in verdicts {
        match Before::seen(verdict).filter(|_| !reads_all) {
            Some(seen) => rows.push(seen),
            None => unseen.push(verdict.report.feed),
        }
    }
    if !unseen.is_empty() {
        let read = sqlx::query_scalar(include_str!("apply_before.sql")).bind(id_list(unseen)).fetch_one(on);
        let read: String = read.await.map_err(StoreError::on(ACTION))?;
        let read: Vec<Before> =
            serde_json::from_str(&read).map_err(|error| StoreError::on(ACTION)(sqlx::Error::Decode(error.into())))?;
        // Behind the others: of a feed with several verdicts, what was read counts.
        rows.extend(read);
    }
    Ok(rows)
}

/// Gives every change its `seq`. No other transaction can take numbers meanwhile.
async fn number(
    on: &mut SqliteConnection,
    fresh: &[Fresh<'_>],
    changes: &mut [Change<'_>],
) -> Result<Vec<NewEvent>, StoreError> {
    if changes::events(fresh, changes) == 0 {
        return Ok(Vec::new());
    }
    let sql = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events'";
    let last: i64 = sqlx::query_scalar(sql).fetch_one(on).await.map_err(StoreError::on(ACTION))?;
    Ok(changes::number(fresh, changes, last))
}

/// Counts what new entries say of their feeds' pushes.
async fn learn(tx: &mut SqliteConnection, fresh: &[Fresh<'_>], changes: &[Change<'_>]) -> Result<(), StoreError> {
    for (is_announced, feeds) in changes::learned(fresh, changes) {
        if feeds.is_empty() {
            continue;
        }
        let learned = sqlx::query(include_str!("learned.sql")).bind(id_list(feeds)).bind(is_announced);
        let learned = learned.bind(RELIABLE_AFTER);
        learned.execute(&mut *tx).await.map_err(StoreError::on(ACTION))?;
    }
    Ok(())
}

/// Stores the holds that hosts requested; returns the hold that follows from each verdict that requests one, by its
/// number.
async fn write_holds(
    tx: &mut SqliteConnection,
    fresh: &[Fresh<'_>],
    now: Timestamp,
) -> Result<HashMap<usize, Timestamp>, StoreError> {
    let mut hosts = Batch::default();
    for host in verdicts::throttled_hosts(fresh) {
        hosts.row(|row| row.text(host.as_str()));
    }
    if hosts.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = hosts.query(include_str!("apply_holds_before.sql")).fetch_all(&mut *tx);
    let rows = rows.await.map_err(StoreError::on(ACTION))?;
    let mut held = HostHolds::new();
    for row in &rows {
        let (host, until, asked, feed) = <(String, i64, i64, i64)>::from_row(row).map_err(StoreError::on(ACTION))?;
        let (until, asked) = (Timestamp::from_millis(until), Timestamp::from_millis(asked));
        held.insert(HostKey::new(&host), HostHold { until, asked, cause: FeedId(feed) });
    }
    let (held, holds) = verdicts::new_holds(fresh, held, now);
    let mut rows = Batch::default();
    for (host, hold) in &held {
        rows.row(|row| {
            row.text(host.as_str());
            row.int(hold.until.millis());
            row.int(hold.cause.0);
        });
    }
    rows.run(tx, include_str!("apply_holds.sql"), ACTION).await?;
    Ok(holds)
}

async fn write_events(
    tx: &mut SqliteConnection,
    new_events: &[NewEvent],
    tallies: &[Tally],
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut events = Batch::default();
    for event in new_events {
        events.row(|row| {
            row.int(event.seq);
            row.int(now.millis());
            row.word(event.kind);
            row.int(event.feed.0);
            row.bytes(event.identity.as_ref().map(<[u8; 16]>::as_slice));
            row.text(event.error.as_deref());
            row.text(event.about.as_deref());
        });
    }
    events.run(&mut *tx, include_str!("apply_events.sql"), ACTION).await?;
    let more: i64 = tallies.iter().map(|tally| tally.more).sum();
    if more != 0 {
        let add = sqlx::query("UPDATE store SET entries = entries + ?1").bind(more);
        add.execute(tx).await.map_err(StoreError::on(ACTION))?;
    }
    Ok(())
}
