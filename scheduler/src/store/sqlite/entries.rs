//! Entries inside `apply`: what a document brings is looked up by identity, and only what is new or changed is written.

use std::collections::HashSet;

use common::entry::Entry;
use common::feed::FeedId;
use common::time::Timestamp;
use sqlx::{FromRow, SqliteConnection};

use super::apply::Fresh;
use super::batch::Batch;
use crate::store::StoreError;
use crate::store::row::{entry_identity, pack_enclosures};

const ACTION: &str = "store entries";
/// Bytes of text, and entries, that one statement inserts: a batch of long reports is not copied whole once more.
const CHUNK_BYTES: usize = 4 << 20;
const CHUNK_ENTRIES: usize = 2_000;

/// An entry that is new, or has other content than the store.
pub(super) struct Change<'a> {
    /// Which of the fresh verdicts brought it. Changes stand in the order of verdicts and documents.
    pub(super) fresh: usize,
    pub(super) identity: [u8; 16],
    /// The number of its event; given later.
    pub(super) seq: i64,
    feed: FeedId,
    entry: &'a Entry,
    fingerprint: i64,
    stored: Option<Before>,
}

/// What the store has of an entry.
#[derive(Clone, Copy)]
struct Before {
    seq: i64,
    fingerprint: i64,
    /// When it was first seen; `None`: retention took the entry and left the identity.
    seen: Option<i64>,
}

impl Change<'_> {
    /// The feed never had it. Otherwise it is an update.
    pub(super) fn is_new(&self) -> bool {
        self.stored.is_none()
    }

    /// There is one more row afterwards: it is new, or comes back with other content after retention took it.
    pub(super) fn is_stored_anew(&self) -> bool {
        self.stored.is_none_or(|before| before.seen.is_none())
    }
}

/// What the verdicts' documents change.
pub(super) async fn changes<'a>(on: &mut SqliteConnection, fresh: &[Fresh<'a>]) -> Result<Vec<Change<'a>>, StoreError> {
    let mut changes = Vec::new();
    let mut lookup = Batch::default();
    for (number, fresh) in fresh.iter().enumerate() {
        let mut seen = HashSet::new();
        for entry in fresh.document().map_or(&[][..], |document| &document.entries) {
            let identity = entry_identity(entry);
            // A document that has an identity twice would otherwise update its own entry with every poll.
            if !seen.insert(identity) {
                continue;
            }
            let feed = fresh.verdict.report.feed;
            let fingerprint = entry.fingerprint().0.cast_signed();
            lookup.row(|row| {
                row.int(feed.0);
                row.bytes(identity.as_slice());
            });
            changes.push(Change { fresh: number, identity, seq: 0, feed, entry, fingerprint, stored: None });
        }
    }
    if changes.is_empty() {
        return Ok(changes);
    }
    let rows = lookup.query(include_str!("entries_before.sql")).fetch_all(on);
    for row in rows.await.map_err(StoreError::on(ACTION))? {
        let (number, seq, fingerprint, seen) = FromRow::from_row(&row).map_err(StoreError::on(ACTION))?;
        let number: i64 = number;
        if let Some(change) = usize::try_from(number).ok().and_then(|number| changes.get_mut(number)) {
            change.stored = Some(Before { seq, fingerprint, seen });
        }
    }
    changes.retain(|change| change.stored.is_none_or(|before| before.fingerprint != change.fingerprint));
    Ok(changes)
}

/// Writes the changes: older forms go, identities learn their newest form, entries come.
pub(super) async fn write(on: &mut SqliteConnection, changes: &[Change<'_>], now: Timestamp) -> Result<(), StoreError> {
    let mut older = Batch::default();
    let mut identities = Batch::default();
    for change in changes {
        if let Some(before) = change.stored {
            older.row(|row| row.int(before.seq));
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
        row.int(change.stored.and_then(|before| before.seen).unwrap_or(now.millis()));
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
    });
}
