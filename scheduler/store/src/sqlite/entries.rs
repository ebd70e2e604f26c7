//! Entries inside `apply`: the entries of a document are looked up by identity, and only what is new or changed is
//! written.

use common::time::Timestamp;
use sqlx::{FromRow, SqliteConnection};

use super::batch::Batch;
use crate::StoreError;
use crate::changes::{Change, Form, reported};
use crate::columns::{pack_details, pack_enclosures};
use crate::verdicts::Fresh;

const ACTION: &str = "store entries";
/// Bytes of text, and entries, that one statement inserts: a batch of long reports is not copied whole once more.
const CHUNK_BYTES: usize = 4 << 20;
const CHUNK_ENTRIES: usize = 2_000;

/// Returns what the verdicts' documents change.
pub(super) async fn changes<'a>(on: &mut SqliteConnection, fresh: &[Fresh<'a>]) -> Result<Vec<Change<'a>>, StoreError> {
    let mut changes = reported(fresh);
    if changes.is_empty() {
        return Ok(changes);
    }
    let mut lookup = Batch::default();
    for change in &changes {
        lookup.row(|row| {
            row.int(change.feed.0);
            row.bytes(change.identity.as_slice());
        });
    }
    let rows = lookup.query(include_str!("entries_before.sql")).fetch_all(on);
    for row in rows.await.map_err(StoreError::on(ACTION))? {
        let (number, seq, fingerprint, seen) = FromRow::from_row(&row).map_err(StoreError::on(ACTION))?;
        let number: i64 = number;
        if let Some(change) = usize::try_from(number).ok().and_then(|number| changes.get_mut(number)) {
            change.stored = Some(Form { seq, fingerprint, seen });
        }
    }
    changes.retain(Change::is_change);
    Ok(changes)
}

/// Writes the changes: older forms go, identities learn their newest form, entries come.
pub(super) async fn write(on: &mut SqliteConnection, changes: &[Change<'_>], now: Timestamp) -> Result<(), StoreError> {
    let mut older = Batch::default();
    let mut identities = Batch::default();
    for change in changes {
        if let Some(form) = change.stored {
            older.row(|row| row.int(form.seq));
        }
        identities.row(|row| {
            row.int(change.feed.0);
            row.bytes(change.identity.as_slice());
            row.int(change.seq);
            row.int(change.fingerprint);
        });
    }
    older.run(on, include_str!("entries_delete.sql"), ACTION).await?;
    identities.run(on, include_str!("entries_identify.sql"), ACTION).await?;
    let mut entries = Batch::default();
    for change in changes {
        entry_row(&mut entries, change, now);
        if entries.len() == CHUNK_ENTRIES || entries.size() > CHUNK_BYTES {
            std::mem::take(&mut entries).run(on, include_str!("entries_insert.sql"), ACTION).await?;
        }
    }
    entries.run(on, include_str!("entries_insert.sql"), ACTION).await
}

fn entry_row(entries: &mut Batch, change: &Change<'_>, now: Timestamp) {
    let entry = change.entry;
    let enclosures = (!entry.enclosures.is_empty()).then(|| pack_enclosures(&entry.enclosures));
    entries.row(|row| {
        row.int(change.seq);
        row.int(change.feed.0);
        row.bytes(change.identity.as_slice());
        row.int(change.seen(now));
        row.int(now.millis());
        row.int(entry.published.map(Timestamp::millis));
        row.int(entry.updated.map(Timestamp::millis));
        row.int(i64::from(entry.cut));
        row.text(entry.id.as_str());
        row.text(entry.url.as_deref());
        row.text(entry.title.as_deref());
        row.text(entry.author.as_deref());
        row.text(enclosures.as_deref());
        row.text(entry.summary.as_deref());
        row.text(entry.content.as_deref());
        row.text(pack_details(entry).as_deref());
    });
}
