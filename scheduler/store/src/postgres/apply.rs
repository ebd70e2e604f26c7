//! What the loops of a poll read and write. Verdicts become rows in `apply`, in one transaction for the batch.
//!
//! Rows of polls without a document are looked at without being locked. The first statement that writes is their own update, which
//! takes only rows that are as they were then, and holds them; rows of documents and deliveries are locked when they are read. From
//! there on this transaction alone writes what belongs to these feeds. Then come documents, older forms of entries and holds; last the
//! numbers of events are taken, and the rows with these numbers are written. So no transaction waits for the numbers longer than it
//! takes to write entries and events. A reader sees all of it or nothing.

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
use sqlx::{Connection, Executor, PgConnection};

use super::connection::{in_transaction, on_connection};
use super::rows::ACTION;
use super::upkeep::WHOLE_TABLES;
use super::{PostgresStore, column, entries, numbers, rows, text};
use crate::changes::{self, Change, NewEvent};
use crate::columns::{pack_detour, pack_terms};
use crate::quota::Spent;
use crate::row::{FeedRow, JobColumns, PlaceColumns, feed_columns, push_column, readable};
use crate::verdicts::{self, Before, Fresh, HostHolds, Tally};
use crate::{Applied, Interruption, JobRow, Placement, Polls, StoreError, Verdict};

/// How the rows of polls without a document are looked at. Those of documents and pushes are always locked: what they cost depends on
/// what was stored before, and so they are written once all of that is known.
#[derive(Clone, Copy)]
enum Look {
    /// Not at all where the verdict holds what was seen: another transaction may change them before they are written.
    Free,
    /// Locked. Costs as much as writing them once more.
    Locked,
}

#[async_trait]
impl Polls for PostgresStore {
    async fn jobs_for(&self, ids: &[FeedId]) -> Result<Vec<JobRow>, StoreError> {
        on_connection!(self, "read what jobs need", |on| {
            let query = sqlx::query_as::<_, JobColumns>(include_str!("jobs.sql"));
            Ok(readable(query.bind(numbers(ids.iter().copied())).fetch_all(on).await?))
        })
    }

    async fn live_among(&self, ids: &[FeedId]) -> Result<Vec<FeedId>, StoreError> {
        on_connection!(self, "tell which feeds are live", |on| {
            let sql = "SELECT id FROM feeds WHERE id = ANY ($1) AND status = 'active'";
            let live: Vec<i64> = sqlx::query_scalar(sql).bind(numbers(ids.iter().copied())).fetch_all(on).await?;
            Ok(live.into_iter().map(FeedId).collect())
        })
    }

    /// Rows are locked in the order of their numbers, as everywhere.
    async fn interrupt(&self, interruptions: &[Interruption]) -> Result<(), StoreError> {
        let mut in_order: Vec<&Interruption> = interruptions.iter().collect();
        in_order.sort_by_key(|interruption| interruption.feed);
        in_transaction!(self, "keep where fetches continue", |tx| {
            for Interruption { feed, version, detour, wait } in &in_order {
                sqlx::query(include_str!("interrupt.sql"))
                    .bind(feed.0)
                    .bind(version.0)
                    .bind(detour.as_ref().map(|detour| pack_detour(*version, detour)))
                    .bind(wait.map(|(until, _)| until.millis()))
                    .bind(wait.map(|(_, terms)| pack_terms(&terms)))
                    .execute(&mut *tx)
                    .await?;
            }
            Ok(())
        })
    }

    async fn keep_holds(&self, holds: &[(HostKey, Timestamp, FeedId)]) -> Result<(), StoreError> {
        const SQL: &str = "INSERT INTO host_holds (host, held_until, feed_id) VALUES ($1, $2, $3) ON CONFLICT (host) \
                           DO UPDATE SET held_until = excluded.held_until, feed_id = excluded.feed_id \
                           WHERE excluded.held_until > host_holds.held_until";
        let mut in_order: Vec<&(HostKey, Timestamp, FeedId)> = holds.iter().collect();
        in_order.sort();
        in_transaction!(self, "keep the hosts' holds", |tx| {
            for (host, until, feed) in &in_order {
                let keep = sqlx::query(SQL).bind(text(host.as_str())).bind(until.millis()).bind(feed.0);
                keep.execute(&mut *tx).await?;
            }
            Ok(())
        })
    }

    async fn states_for(&self, ids: &[FeedId]) -> Result<Vec<Feed>, StoreError> {
        const SQL: &str = concat!("SELECT ", feed_columns!(), ", ", push_column!(), " FROM feeds WHERE id = ANY ($1)");
        on_connection!(self, "read feeds", |on| {
            let query = sqlx::query_as::<_, FeedRow>(SQL).bind(numbers(ids.iter().copied()));
            Ok(readable(query.fetch_all(on).await?))
        })
    }

    async fn apply(
        &self,
        verdicts: &[Verdict],
        clock_skew: Duration,
        now: Timestamp,
    ) -> Result<Vec<Applied>, StoreError> {
        self.call(ACTION, || async {
            let mut on = self.acquire(ACTION).await?;
            let mut answers = apply(&mut on, verdicts, &self.quota, clock_skew, now, Look::Free).await?;
            if answers.is_none() {
                answers = apply(&mut on, verdicts, &self.quota, clock_skew, now, Look::Locked).await?;
            }
            on.keep();
            answers.ok_or_else(|| StoreError::on(ACTION)(sqlx::Error::RowNotFound))
        })
        .await
    }

    async fn placements(&self, after: FeedId, limit: u32) -> Result<Vec<Placement>, StoreError> {
        on_connection!(self, "read when feeds are due", |on| {
            let query = sqlx::query_as::<_, PlaceColumns>(include_str!("placements.sql"));
            Ok(readable(query.bind(after.0).bind(i64::from(limit)).fetch_all(on).await?))
        })
    }

    async fn holds(&self, now: Timestamp) -> Result<Vec<(HostKey, Timestamp)>, StoreError> {
        on_connection!(self, "read the hosts' holds", |on| {
            let query = sqlx::query_as("SELECT host, held_until FROM host_holds WHERE held_until > $1");
            let rows: Vec<(String, i64)> = query.bind(now.millis()).fetch_all(on).await?;
            Ok(rows.into_iter().map(|(host, until)| (HostKey::new(&host), Timestamp::from_millis(until))).collect())
        })
    }

    async fn overdue(&self, at: Timestamp) -> Result<u64, StoreError> {
        in_transaction!(self, "count what is due", |tx| {
            tx.execute(WHOLE_TABLES).await?;
            let sql = "SELECT count(*) FROM feeds WHERE status = 'active' AND next_due <= $1";
            let count: i64 = sqlx::query_scalar(sql).bind(at.millis()).fetch_one(tx).await?;
            Ok(u64::try_from(count).unwrap_or(0))
        })
    }

    async fn sla_unmet(&self, longest: Duration) -> Result<u64, StoreError> {
        let longest = i64::try_from(longest.as_millis()).unwrap_or(i64::MAX);
        on_connection!(self, "count the SLAs that cannot be kept", |on| {
            let count = sqlx::query_scalar(include_str!("sla_unmet.sql"));
            let count: i64 = count.bind(longest).bind(i64::from(RELIABLE_AFTER)).fetch_one(on).await?;
            Ok(u64::try_from(count).unwrap_or(0))
        })
    }
}

/// `None`, and nothing stored, when a row changed between looking and writing.
async fn apply(
    on: &mut PgConnection,
    verdicts: &[Verdict],
    quota: &QuotaConfig,
    clock_skew: Duration,
    now: Timestamp,
    look: Look,
) -> Result<Option<Vec<Applied>>, StoreError> {
    let mut tx = on.begin().await.map_err(StoreError::on(ACTION))?;
    let (mut fresh, answers) = verdicts::fresh(verdicts, rows_before(&mut tx, verdicts, look).await?);
    if fresh.is_empty() {
        tx.rollback().await.map_err(StoreError::on(ACTION))?;
        return Ok(Some(answers));
    }
    let is_poll = |fresh: &&Fresh<'_>| !fresh.is_pushed() && !fresh.is_page() && !rows::replaces_document(fresh);
    let polled: Vec<&Fresh<'_>> = fresh.iter().filter(is_poll).collect();
    if rows::write_polls(&mut tx, &polled, clock_skew).await? < polled.len() as u64 {
        tx.rollback().await.map_err(StoreError::on(ACTION))?;
        return Ok(None);
    }
    let mut changes = entries::changes(&mut tx, &fresh).await?;
    let mut spent = changes::keep_within(&fresh, &mut changes, quota, now);
    verdicts::note_cuts(&mut fresh, &spent);
    // What follows from a page depends on what the quotas left of it. Its row was locked when it was read.
    let pages: Vec<&Fresh<'_>> = fresh.iter().filter(|fresh| fresh.is_page()).collect();
    if rows::write_polls(&mut tx, &pages, clock_skew).await? < pages.len() as u64 {
        tx.rollback().await.map_err(StoreError::on(ACTION))?;
        return Ok(None);
    }
    let mut tallies = changes::tallies(&fresh, &changes);
    make_room(&mut tx, quota, (&fresh, &changes), &mut spent, &mut tallies, now).await?;
    rows::write_documents(&mut tx, &fresh, &tallies, &spent, clock_skew).await?;
    rows::write_validators(&mut tx, &fresh).await?;
    rows::write_pushes(&mut tx, (&fresh, &changes), &tallies, &spent).await?;
    entries::delete_older(&mut tx, &changes).await?;
    let holds = write_holds(&mut tx, &fresh, now).await?;
    let new_events = number(&mut tx, &fresh, &mut changes, &tallies).await?;
    entries::write(&mut tx, &changes, now).await?;
    write_events(&mut tx, &new_events, now).await?;
    tx.commit().await.map_err(StoreError::on(ACTION))?;
    Ok(Some(verdicts::answers(answers, &fresh, &tallies, &holds, &spent, clock_skew)))
}

async fn rows_before(on: &mut PgConnection, verdicts: &[Verdict], look: Look) -> Result<Vec<Before>, StoreError> {
    const LOCKED: &str = concat!(include_str!("apply_before.sql"), "ORDER BY id FOR NO KEY UPDATE");
    let seen: Vec<Option<Before>> = match look {
        Look::Free => verdicts.iter().map(Before::seen).collect(),
        Look::Locked => vec![None; verdicts.len()],
    };
    let unseen = verdicts.iter().zip(&seen).filter(|(_, seen)| seen.is_none());
    let unseen: Vec<FeedId> = unseen.map(|(verdict, _)| verdict.report.feed).collect();
    let mut rows: Vec<Before> = seen.into_iter().flatten().collect();
    if !unseen.is_empty() {
        let read = sqlx::query_as(LOCKED).bind(numbers(unseen)).fetch_all(on);
        let read: Vec<Before> = read.await.map_err(StoreError::on(ACTION))?;
        // Behind the others: of a feed with several verdicts, what was read counts. Only that has its quota.
        rows.extend(read);
    }
    Ok(rows)
}

/// Deletes the oldest rows of feeds that would have more than they may. The feeds' rows are locked: no other
/// transaction writes their entries.
async fn make_room(
    on: &mut PgConnection,
    quota: &QuotaConfig,
    (fresh, changes): (&[Fresh<'_>], &[Change<'_>]),
    spent: &mut [Option<Spent>],
    tallies: &mut [Tally],
    now: Timestamp,
) -> Result<(), StoreError> {
    const ACTION: &str = "make room for entries";
    let uncounted = changes::uncounted(fresh, spent, quota);
    if !uncounted.is_empty() {
        let count = "SELECT feed_id, count(*) FROM entry_identities WHERE feed_id = ANY ($1) GROUP BY feed_id";
        let rows: Vec<(i64, i64)> =
            sqlx::query_as(count).bind(numbers(uncounted)).fetch_all(&mut *on).await.map_err(StoreError::on(ACTION))?;
        changes::count(fresh, spent, quota, rows);
    }
    for (number, spent) in spent.iter_mut().enumerate() {
        let Some(spent) = spent else { continue };
        let feed = fresh[number].verdict.report.feed;
        let (excess, mut gone) = (spent.excess(quota), Vec::<i64>::new());
        if excess > 0 {
            let kept = changes::stored_forms(changes, number);
            let delete = sqlx::query_scalar(include_str!("quota_identities.sql")).bind(feed.0).bind(kept);
            let delete = delete.bind(excess.cast_signed()).bind(changes::still_there(&fresh[number]));
            gone = delete.fetch_all(&mut *on).await.map_err(StoreError::on(ACTION))?;
            let delete = sqlx::query("DELETE FROM entries WHERE seq = ANY ($1)").bind(&gone).execute(&mut *on);
            tallies[number].more -= delete.await.map_err(StoreError::on(ACTION))?.rows_affected().cast_signed();
        }
        spent.settled(gone.len() as u64, now);
    }
    Ok(())
}

/// Stores the holds that hosts requested; returns the hold that follows from each verdict that requests one, by its
/// number.
async fn write_holds(
    on: &mut PgConnection,
    fresh: &[Fresh<'_>],
    now: Timestamp,
) -> Result<HashMap<usize, Timestamp>, StoreError> {
    let hosts = verdicts::throttled_hosts(fresh);
    if hosts.is_empty() {
        return Ok(HashMap::new());
    }
    let look = sqlx::query_as(include_str!("apply_holds_before.sql")).bind(column(&hosts, |host| text(host.as_str())));
    let rows: Vec<(String, i64, i64, i64)> = look.fetch_all(&mut *on).await.map_err(StoreError::on(ACTION))?;
    let held: HostHolds = rows
        .into_iter()
        .map(|(host, until, asked, feed)| {
            let (until, asked) = (Timestamp::from_millis(until), Timestamp::from_millis(asked));
            (HostKey::new(&host), HostHold { until, asked, cause: FeedId(feed) })
        })
        .collect();
    let (held, holds) = verdicts::new_holds(fresh, held, now);
    let held: Vec<_> = held.iter().collect();
    sqlx::query(include_str!("apply_holds.sql"))
        .bind(column(&held, |(host, _)| text(host.as_str())))
        .bind(column(&held, |(_, hold)| hold.until.millis()))
        .bind(column(&held, |(_, hold)| hold.cause.0))
        .execute(on)
        .await
        .map_err(StoreError::on(ACTION))?;
    Ok(holds)
}

/// Gives every change and event its `seq`, and counts the entries. Until this transaction ends no other one can take numbers.
async fn number(
    on: &mut PgConnection,
    fresh: &[Fresh<'_>],
    changes: &mut [Change<'_>],
    tallies: &[Tally],
) -> Result<Vec<NewEvent>, StoreError> {
    let events = changes::events(fresh, changes);
    let more: i64 = tallies.iter().map(|tally| tally.more).sum();
    // Quotas may delete entries where nothing is new.
    if events == 0 && more == 0 {
        return Ok(Vec::new());
    }
    let take = sqlx::query_scalar(include_str!("apply_numbers.sql")).bind(events as i64).bind(more);
    let last: i64 = take.fetch_one(on).await.map_err(StoreError::on(ACTION))?;
    Ok(changes::number(fresh, changes, last))
}

async fn write_events(on: &mut PgConnection, new_events: &[NewEvent], now: Timestamp) -> Result<(), StoreError> {
    if new_events.is_empty() {
        return Ok(());
    }
    sqlx::query(include_str!("apply_events.sql"))
        .bind(now.millis())
        .bind(column(new_events, |event| event.seq))
        .bind(column(new_events, |event| event.kind))
        .bind(column(new_events, |event| event.feed.0))
        .bind(column(new_events, |event| event.identity))
        .bind(column(new_events, |event| event.error.as_deref()))
        .bind(column(new_events, |event| event.about.as_deref()))
        .execute(on)
        .await
        .map_err(StoreError::on(ACTION))?;
    Ok(())
}
