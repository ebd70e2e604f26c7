//! What `apply` writes to the rows of feeds.

use std::collections::HashMap;
use std::time::Duration;

use common::known::KnownEntries;
use common::outcome::FailureKind;
use common::policy::Status;
use common::push::RELIABLE_AFTER;
use common::time::Timestamp;
use common::url::FeedId;
use serde::Serialize;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres};

use super::{column, numbers, optional_text};
use crate::changes::{self, Change};
use crate::columns::{pack_archive, pack_onward, pack_state, pack_terms};
use crate::quota::Spent;
use crate::verdicts::{self, Fresh, Tally};
use crate::{StoreError, history};

pub(super) const ACTION: &str = "apply reports";

/// The report is on a poll with a document, which [`write_documents`] writes.
pub(super) fn replaces_document(fresh: &Fresh<'_>) -> bool {
    fresh.document().is_some() && !fresh.is_pushed() && !fresh.is_page()
}

/// Writes polls without a document, or pages; returns how many rows were still as they were.
pub(super) async fn write_polls(
    on: &mut PgConnection,
    fresh: &[&Fresh<'_>],
    clock_skew: Duration,
) -> Result<u64, StoreError> {
    if fresh.is_empty() {
        return Ok(0);
    }
    let mut rows: Vec<&Fresh<'_>> = fresh.to_vec();
    rows.sort_unstable_by_key(|fresh| fresh.row.id);
    let query = bind_polls(sqlx::query(include_str!("apply_poll.sql")), &rows, clock_skew);
    Ok(query.execute(on).await.map_err(StoreError::on(ACTION))?.rows_affected())
}

/// What most polls have none of, as JSON: see `apply_poll.sql`.
#[derive(Default, PartialEq, Serialize)]
struct Rare<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    woken_before: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wake_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold_until: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    penalty: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gap_since: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    silent_since: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    archive: Option<String>,
}

/// Returns what is rare about a poll; `None` for most.
fn rare(fresh: &Fresh<'_>, clock_skew: Duration) -> Option<String> {
    let (standing, state) = (fresh.new_standing(), fresh.state());
    let rare = Rare {
        category: standing.map(|(category, ..)| category),
        status: standing.map(|(_, status, _)| Status::as_str(status)),
        host: standing.map(|(.., host)| host),
        woken_before: fresh.row.wake_at,
        wake_at: fresh.unanswered_wake(clock_skew).map(Timestamp::millis),
        hold_until: state.hold_until.map(Timestamp::millis),
        failure: fresh.failure().map(FailureKind::as_str),
        penalty: state.penalty.map(|penalty| penalty.kind.as_str()),
        error: fresh.error(),
        gap_since: verdicts::gap_column(fresh),
        silent_since: state.silent_since.map(Timestamp::millis),
        archive: fresh.archive().and_then(pack_archive),
    };
    // A struct of texts and numbers. An empty text would be refused as JSON.
    (rare != Rare::default()).then(|| serde_json::to_string(&rare).unwrap_or_default())
}

/// Binds what every poll changes: the parameters 1 to 11.
fn bind_polls<'q>(
    query: Query<'q, Postgres, PgArguments>,
    rows: &'q [&Fresh<'_>],
    clock_skew: Duration,
) -> Query<'q, Postgres, PgArguments> {
    let states = column(rows, |fresh| fresh.state());
    query
        .bind(column(rows, |fresh| fresh.row.id))
        .bind(column(rows, |fresh| fresh.row.version))
        .bind(column(rows, |fresh| fresh.row.audience_at))
        .bind(column(rows, |fresh| fresh.next_due().map(Timestamp::millis)))
        .bind(column(&states, |state| pack_state(state)))
        .bind(column(&states, |state| state.rhythm.to_bytes()))
        .bind(column(rows, |fresh| pack_terms(&fresh.terms())))
        .bind(column(rows, |fresh| fresh.history()))
        .bind(column(rows, |fresh| verdicts::polled_day(fresh)))
        .bind(column(rows, |fresh| rare(fresh, clock_skew)))
        .bind(i32::try_from(history::EARLIER).unwrap_or(i32::MAX))
}

/// Writes polls with a document, in one update for both: a row that is written twice within a transaction fits into its page only once.
pub(super) async fn write_documents(
    on: &mut PgConnection,
    fresh: &[Fresh<'_>],
    tallies: &[Tally],
    spent: &[Option<Spent>],
    clock_skew: Duration,
) -> Result<(), StoreError> {
    let brought = fresh.iter().zip(tallies).zip(spent).filter(|((fresh, _), _)| replaces_document(fresh));
    let rows: Vec<_> =
        brought.filter_map(|((fresh, tally), spent)| Some((fresh, tally, spent, fresh.document()?))).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let polls = column(&rows, |(fresh, ..)| *fresh);
    bind_polls(sqlx::query(include_str!("apply_document.sql")), &polls, clock_skew)
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
        .bind(column(&rows, |(_, _, spent, _)| spent.as_ref().map(|spent| spent.budget.packed())))
        .execute(on)
        .await
        .map_err(StoreError::on(ACTION))?;
    Ok(())
}

/// Writes the validators of answers that confirm a document with other ones.
pub(super) async fn write_validators(on: &mut PgConnection, fresh: &[Fresh<'_>]) -> Result<(), StoreError> {
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
pub(super) async fn write_pushes(
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
