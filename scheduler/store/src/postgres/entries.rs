//! Entries inside `apply`: the entries of a document are looked up by identity, and only what is new or changed is
//! written.

use common::time::Timestamp;
use sqlx::PgConnection;

use super::{column, optional_text, text};
use crate::StoreError;
use crate::changes::{Change, Form, reported};
use crate::columns::{pack_details, pack_enclosures};
use crate::verdicts::Fresh;

const ACTION: &str = "store entries";
/// Bytes of text, and entries, that one statement inserts, or a little more.
const CHUNK_BYTES: usize = 4 << 20;
const CHUNK_ENTRIES: usize = 2_000;

/// Returns what the verdicts' documents change. Their feeds' rows are locked: no other transaction writes these
/// entries.
pub(super) async fn changes<'a>(on: &mut PgConnection, fresh: &[Fresh<'a>]) -> Result<Vec<Change<'a>>, StoreError> {
    let mut changes = reported(fresh);
    if changes.is_empty() {
        return Ok(changes);
    }
    let rows: Vec<(i64, i64, i64, Option<i64>)> = sqlx::query_as(include_str!("entries_before.sql"))
        .bind(column(&changes, |change| change.feed.0))
        .bind(column(&changes, |change| change.identity))
        .fetch_all(on)
        .await
        .map_err(StoreError::on(ACTION))?;
    for (number, seq, fingerprint, seen) in rows {
        if let Some(change) = usize::try_from(number).ok().and_then(|number| changes.get_mut(number)) {
            change.stored = Some(Form { seq, fingerprint, seen });
        }
    }
    changes.retain(Change::is_change);
    Ok(changes)
}

/// Deletes the forms that others follow.
pub(super) async fn delete_older(on: &mut PgConnection, changes: &[Change<'_>]) -> Result<(), StoreError> {
    let older: Vec<i64> = changes.iter().filter_map(|change| change.stored.map(|form| form.seq)).collect();
    if !older.is_empty() {
        let delete = sqlx::query("DELETE FROM entries WHERE seq = ANY ($1)").bind(older);
        delete.execute(on).await.map_err(StoreError::on(ACTION))?;
    }
    Ok(())
}

/// Writes the changes, which have their numbers: identities learn their newest form, entries come.
pub(super) async fn write(on: &mut PgConnection, changes: &[Change<'_>], now: Timestamp) -> Result<(), StoreError> {
    if changes.is_empty() {
        return Ok(());
    }
    sqlx::query(include_str!("entries_identify.sql"))
        .bind(column(changes, |change| change.feed.0))
        .bind(column(changes, |change| change.identity))
        .bind(column(changes, |change| change.seq))
        .bind(column(changes, |change| change.fingerprint))
        .execute(&mut *on)
        .await
        .map_err(StoreError::on(ACTION))?;
    let mut rest = changes;
    while !rest.is_empty() {
        let (chunk, further) = rest.split_at(chunk(rest));
        insert(on, chunk, now).await?;
        rest = further;
    }
    Ok(())
}

/// Returns how many of the changes one statement takes.
fn chunk(changes: &[Change<'_>]) -> usize {
    let mut bytes = 0;
    let fits = changes.iter().take(CHUNK_ENTRIES).take_while(|change| {
        let fits = bytes < CHUNK_BYTES;
        bytes += change.entry.text_bytes();
        fits
    });
    fits.count()
}

async fn insert(on: &mut PgConnection, changes: &[Change<'_>], now: Timestamp) -> Result<(), StoreError> {
    let enclosures = |change: &Change<'_>| {
        let enclosures = &change.entry.enclosures;
        (!enclosures.is_empty()).then(|| pack_enclosures(enclosures))
    };
    sqlx::query(include_str!("entries_insert.sql"))
        .bind(now.millis())
        .bind(column(changes, |change| change.seq))
        .bind(column(changes, |change| change.feed.0))
        .bind(column(changes, |change| change.identity))
        .bind(column(changes, |change| change.seen(now)))
        .bind(column(changes, |change| change.entry.published.map(Timestamp::millis)))
        .bind(column(changes, |change| change.entry.updated.map(Timestamp::millis)))
        .bind(column(changes, |change| change.entry.cut))
        .bind(column(changes, |change| text(&change.entry.id)))
        .bind(column(changes, |change| optional_text(&change.entry.url)))
        .bind(column(changes, |change| optional_text(&change.entry.title)))
        .bind(column(changes, |change| optional_text(&change.entry.author)))
        .bind(column(changes, enclosures))
        .bind(column(changes, |change| optional_text(&change.entry.summary)))
        .bind(column(changes, |change| optional_text(&change.entry.content)))
        .bind(column(changes, |change| pack_details(change.entry)))
        .execute(on)
        .await
        .map_err(StoreError::on(ACTION))?;
    Ok(())
}
