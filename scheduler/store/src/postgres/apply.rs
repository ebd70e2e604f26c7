//! What the loops of a poll read and write. Verdicts become rows in `apply`, in one transaction for the batch.
//!
//! The rows are looked at without being locked. The first statement that writes is the feeds' own update, which takes
//! only rows that are as they were then, and holds them: from there on this transaction alone writes what belongs to
//! these feeds. Then come documents, older forms of entries and holds; last the numbers of events are taken, and the
//! rows with these numbers are written. So no transaction waits for the numbers longer than it takes to write entries
//! and events. A reader sees all of it or nothing.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use common::config::QuotaConfig;
use common::feed::Feed;
use common::host::HostKey;
use common::job::Detour;
use common::known::KnownEntries;
use common::outcome::FailureKind;
use common::policy::{HostHold, Status};
use common::push::RELIABLE_AFTER;
use common::time::Timestamp;
use common::url::{FeedId, Version};
use sqlx::{Connection, Executor, PgConnection};

use super::connection::{in_transaction, on_connection};
use super::upkeep::WHOLE_TABLES;
use super::{PostgresStore, column, entries, numbers, optional_text, text};
use crate::changes::{self, Change, NewEvent};
use crate::columns::{pack_archive, pack_detour, pack_onward, pack_state, pack_terms};
use crate::quota::Spent;
use crate::row::{FeedRow, JobColumns, PlaceColumns, feed_columns, push_column, readable};
use crate::verdicts::{self, Before, Fresh, HostHolds, Tally};
use crate::{Applied, JobRow, Placement, Polls, StoreError, Verdict, history};

const ACTION: &str = "apply reports";

/// How rows are looked at.
#[derive(Clone, Copy)]
enum Look {
    /// Without a lock, or not at all where the verdict holds what was seen: another transaction may change them before
    /// they are written.
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
    async fn keep_detours(&self, detours: &[(FeedId, Version, Detour)]) -> Result<(), StoreError> {
        let mut in_order: Vec<&(FeedId, Version, Detour)> = detours.iter().collect();
        in_order.sort_by_key(|(feed, ..)| *feed);
        in_transaction!(self, "keep where fetches continue", |tx| {
            for (feed, version, detour) in &in_order {
                sqlx::query("UPDATE feeds SET detour = $3 WHERE id = $1 AND version = $2")
                    .bind(feed.0)
                    .bind(version.0)
                    .bind(pack_detour(*version, detour))
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
            let count: i64 = sqlx::query_scalar(include_str!("sla_unmet.sql")).bind(longest).fetch_one(on).await?;
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
    let (fresh, answers) = verdicts::fresh(verdicts, rows_before(&mut tx, verdicts, look).await?);
    if fresh.is_empty() {
        tx.rollback().await.map_err(StoreError::on(ACTION))?;
        return Ok(Some(answers));
    }
    let (pushed, polled): (Vec<&Fresh<'_>>, Vec<&Fresh<'_>>) = fresh.iter().partition(|fresh| fresh.is_pushed());
    // The rows of pushes must be locked, as those of polls are by being written.
    let is_held = pushed.is_empty() || matches!(look, Look::Locked);
    if !is_held || write_polls(&mut tx, &polled, clock_skew).await? < polled.len() as u64 {
        tx.rollback().await.map_err(StoreError::on(ACTION))?;
        return Ok(None);
    }
    let mut changes = entries::changes(&mut tx, &fresh).await?;
    let mut spent = changes::keep_within(&fresh, &mut changes, quota, now);
    let mut tallies = changes::tallies(&fresh, &changes);
    make_room(&mut tx, quota, (&fresh, &changes), &mut spent, &mut tallies, now).await?;
    write_documents(&mut tx, &fresh, &tallies, &spent).await?;
    write_pushes(&mut tx, (&fresh, &changes), &tallies, &spent).await?;
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
    let (query, mut seen) = match look {
        Look::Free => (sqlx::query_as(include_str!("apply_before.sql")), verdicts.iter().map(Before::seen).collect()),
        Look::Locked => (sqlx::query_as(LOCKED), vec![None; verdicts.len()]),
    };
    let unseen = verdicts.iter().zip(&seen).filter(|(_, seen)| seen.is_none());
    let unseen: Vec<FeedId> = unseen.map(|(verdict, _)| verdict.report.feed).collect();
    let mut rows = match unseen.is_empty() {
        true => Vec::new(),
        false => query.bind(numbers(unseen)).fetch_all(on).await.map_err(StoreError::on(ACTION))?,
    };
    rows.extend(seen.drain(..).flatten());
    Ok(rows)
}

/// Writes what every poll changes; returns how many rows were still as they were.
async fn write_polls(on: &mut PgConnection, fresh: &[&Fresh<'_>], clock_skew: Duration) -> Result<u64, StoreError> {
    if fresh.is_empty() {
        return Ok(0);
    }
    let mut rows: Vec<&Fresh<'_>> = fresh.to_vec();
    rows.sort_unstable_by_key(|fresh| fresh.row.id);
    let standings = column(&rows, |fresh| fresh.new_standing());
    let state = |fresh: &&Fresh<'_>| fresh.verdict.decision.state;
    let written = sqlx::query(include_str!("apply_poll.sql"))
        .bind(column(&rows, |fresh| fresh.row.id))
        .bind(column(&rows, |fresh| fresh.row.version))
        .bind(column(&rows, |fresh| fresh.row.audience_at))
        .bind(column(&rows, |fresh| fresh.row.wake_at))
        .bind(column(&standings, |standing| standing.map(|(category, ..)| category)))
        .bind(column(&standings, |standing| standing.map(|(_, status, _)| Status::as_str(status))))
        .bind(column(&standings, |standing| standing.map(|(.., host)| host)))
        .bind(column(&rows, |fresh| fresh.verdict.decision.next_due.map(Timestamp::millis)))
        .bind(column(&rows, |fresh| fresh.unanswered_wake(clock_skew).map(Timestamp::millis)))
        .bind(column(&rows, |fresh| state(fresh).hold_until.map(Timestamp::millis)))
        .bind(column(&rows, |fresh| fresh.failure().map(FailureKind::as_str)))
        .bind(column(&rows, |fresh| state(fresh).penalty.map(|penalty| penalty.kind.as_str())))
        .bind(column(&rows, |fresh| pack_state(&fresh.verdict.decision.state)))
        .bind(column(&rows, |fresh| state(fresh).rhythm.to_bytes()))
        .bind(column(&rows, |fresh| pack_terms(&fresh.verdict.decision.terms)))
        .bind(column(&rows, |fresh| fresh.history()))
        .bind(column(&rows, |fresh| fresh.error()))
        .bind(i32::try_from(history::EARLIER).unwrap_or(i32::MAX))
        .bind(column(&rows, |fresh| verdicts::gap_column(fresh)))
        .bind(column(&rows, |fresh| state(fresh).silent_since.map(Timestamp::millis)))
        .bind(column(&rows, |fresh| fresh.verdict.archive.as_ref().and_then(pack_archive)))
        .bind(column(&rows, |fresh| verdicts::polled_day(fresh)))
        .execute(on)
        .await
        .map_err(StoreError::on(ACTION))?;
    Ok(written.rows_affected())
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

async fn write_documents(
    on: &mut PgConnection,
    fresh: &[Fresh<'_>],
    tallies: &[Tally],
    spent: &[Option<Spent>],
) -> Result<(), StoreError> {
    let brought = |((fresh, tally), spent)| Fresh::document(fresh).map(|document| (fresh, tally, spent, document));
    let rows = fresh.iter().zip(tallies).zip(spent).filter(|((fresh, _), _)| !fresh.is_pushed() && !fresh.is_page());
    let rows: Vec<_> = rows.filter_map(brought).collect();
    if !rows.is_empty() {
        sqlx::query(include_str!("apply_document.sql"))
            .bind(column(&rows, |(fresh, ..)| fresh.row.id))
            .bind(column(&rows, |(_, tally, ..)| tally.more))
            .bind(column(&rows, |(.., document)| optional_text(&document.validators.etag)))
            .bind(column(&rows, |(.., document)| optional_text(&document.validators.last_modified)))
            .bind(column(&rows, |(.., document)| optional_text(&document.validators.for_url)))
            .bind(column(&rows, |(.., document)| document.content_hash.map(|hash| hash.0.to_be_bytes())))
            .bind(column(&rows, |(.., document)| optional_text(&document.title)))
            .bind(column(&rows, |(.., document)| optional_text(&document.link)))
            .bind(column(&rows, |(.., document)| optional_text(&document.hub)))
            .bind(column(&rows, |(.., document)| optional_text(&document.self_link)))
            .bind(column(&rows, |(.., document)| optional_text(&document.cloud)))
            .bind(column(&rows, |(.., document)| document.known.to_bytes()))
            .bind(column(&rows, |(.., document)| pack_onward(&document.onward)))
            .bind(column(&rows, |(.., spent, _)| spent.as_ref().map(|spent| spent.budget.packed())))
            .execute(&mut *on)
            .await
            .map_err(StoreError::on(ACTION))?;
    }
    let rows: Vec<_> = fresh.iter().filter_map(|fresh| Some((fresh.row.id, fresh.new_validators()?))).collect();
    if !rows.is_empty() {
        sqlx::query(include_str!("apply_validators.sql"))
            .bind(column(&rows, |(id, _)| *id))
            .bind(column(&rows, |(_, new)| optional_text(&new.etag)))
            .bind(column(&rows, |(_, new)| optional_text(&new.last_modified)))
            .bind(column(&rows, |(_, new)| optional_text(&new.for_url)))
            .execute(on)
            .await
            .map_err(StoreError::on(ACTION))?;
    }
    Ok(())
}

/// Writes the content of deliveries, and what new entries say about their feeds' pushes.
async fn write_pushes(
    on: &mut PgConnection,
    (fresh, changes): (&[Fresh<'_>], &[Change<'_>]),
    tallies: &[Tally],
    spent: &[Option<Spent>],
) -> Result<(), StoreError> {
    let pushed: Vec<FeedId> =
        fresh.iter().filter(|fresh| fresh.is_pushed()).map(|fresh| FeedId(fresh.row.id)).collect();
    let mut known = HashMap::new();
    if !pushed.is_empty() {
        let read = sqlx::query_as("SELECT id, known FROM feeds WHERE id = ANY ($1)").bind(numbers(pushed));
        let read: Vec<(i64, Vec<u8>)> = read.fetch_all(&mut *on).await.map_err(StoreError::on(ACTION))?;
        known.extend(read);
    }
    let mut rows = Vec::new();
    for (number, fresh) in fresh.iter().enumerate().filter(|(_, fresh)| fresh.is_pushed()) {
        let known = known.get(&fresh.row.id).map_or(&[][..], Vec::as_slice);
        let known = changes::known_after_push(known, changes, number);
        rows.push((fresh.row.id, tallies[number].more, known, &spent[number]));
    }
    let pages = fresh.iter().zip(tallies).zip(spent).filter(|((fresh, _), _)| fresh.is_page());
    rows.extend(pages.map(|((fresh, tally), spent)| (fresh.row.id, tally.more, None, spent)));
    if !rows.is_empty() {
        sqlx::query(include_str!("apply_push.sql"))
            .bind(column(&rows, |(id, ..)| *id))
            .bind(column(&rows, |(_, more, ..)| *more))
            .bind(column(&rows, |(.., known, _)| known.as_ref().map(KnownEntries::to_bytes)))
            .bind(column(&rows, |(.., spent)| spent.as_ref().map(|spent| spent.budget.packed())))
            .execute(&mut *on)
            .await
            .map_err(StoreError::on(ACTION))?;
    }
    for (is_announced, feeds) in changes::learned(fresh, changes) {
        if feeds.is_empty() {
            continue;
        }
        let learned = sqlx::query(include_str!("learned.sql")).bind(numbers(feeds)).bind(is_announced);
        let learned = learned.bind(i64::from(RELIABLE_AFTER));
        learned.execute(&mut *on).await.map_err(StoreError::on(ACTION))?;
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

/// Gives every change and event its `seq`. Until this transaction ends no other one can take numbers.
async fn number(
    on: &mut PgConnection,
    fresh: &[Fresh<'_>],
    changes: &mut [Change<'_>],
    tallies: &[Tally],
) -> Result<Vec<NewEvent>, StoreError> {
    let events = changes::events(fresh, changes);
    if events == 0 {
        return Ok(Vec::new());
    }
    let more: i64 = tallies.iter().map(|tally| tally.more).sum();
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
