//! What consumers read: entries in their newest form, and events, both by `seq`.

use std::collections::HashMap;

use async_trait::async_trait;
use common::time::Timestamp;
use common::url::FeedId;
use sqlx::{FromRow, PgConnection};

use super::PostgresStore;
use super::connection::{SNAPSHOT, in_transaction, on_connection};
use crate::page_size::{cut_events, fitting};
use crate::row::{EntryRow, readable};
use crate::{Event, EventPage, Events, RelayTurn, StoreError, StoredEntry};

#[derive(FromRow)]
struct EventRow {
    seq: i64,
    at: i64,
    kind: String,
    feed_id: i64,
    feed_url: Option<String>,
    host: Option<String>,
    merged_into: Option<i64>,
    entry: Option<i64>,
}

#[async_trait]
impl Events for PostgresStore {
    async fn entries(
        &self,
        feed: Option<FeedId>,
        after: i64,
        limit: u32,
    ) -> Result<EventPage<StoredEntry>, StoreError> {
        in_transaction!(self, "read entries", SNAPSHOT, |tx| {
            let (sizes, rows) = match feed {
                Some(_) => (
                    sqlx::query_scalar::<_, i64>(include_str!("entry_sizes.sql")),
                    sqlx::query_as::<_, EntryRow>(include_str!("entries_of_feed.sql")),
                ),
                None => (
                    sqlx::query_scalar(include_str!("entry_sizes_all.sql")),
                    sqlx::query_as(include_str!("entries.sql")),
                ),
            };
            let feed = feed.map(|feed| feed.0);
            let sizes = sizes.bind(after).bind(i64::from(limit));
            let sizes = if let Some(feed) = feed { sizes.bind(feed) } else { sizes };
            let sizes = sizes.fetch_all(&mut *tx).await?;
            let (found, fitting) = (sizes.len(), fitting(sizes));
            let rows = rows.bind(after).bind(fitting as i64);
            let rows = if let Some(feed) = feed { rows.bind(feed) } else { rows };
            let rows = rows.fetch_all(&mut *tx).await?;
            let (epoch, _, entries_gone) = bounds(tx).await?;
            Ok(EventPage { epoch, oldest: entries_gone + 1, items: readable(rows), cut: fitting < found })
        })
    }

    async fn newest_entries(&self, feed: Option<FeedId>, limit: u32) -> Result<Vec<StoredEntry>, StoreError> {
        on_connection!(self, "read entries", |on| {
            let query = match feed {
                Some(feed) => sqlx::query_as::<_, EntryRow>(include_str!("last_entries_of_feed.sql")).bind(feed.0),
                None => sqlx::query_as(include_str!("last_entries.sql")),
            };
            Ok(readable(query.bind(i64::from(limit)).fetch_all(on).await?))
        })
    }

    /// Walks back over what is newer, by number: a day's entries for a midnight.
    async fn last_entry_before(&self, at: Timestamp) -> Result<i64, StoreError> {
        on_connection!(self, "read entries", |on| {
            let sql = "SELECT seq FROM entries WHERE stored < $1 ORDER BY seq DESC LIMIT 1";
            let seq: Option<i64> = sqlx::query_scalar(sql).bind(at.millis()).fetch_optional(on).await?;
            Ok(seq.unwrap_or(0))
        })
    }

    async fn events(&self, after: i64, limit: u32) -> Result<EventPage<Event>, StoreError> {
        in_transaction!(self, "read events", SNAPSHOT, |tx| {
            let events = sqlx::query_as::<_, EventRow>(include_str!("events.sql")).bind(after).bind(i64::from(limit));
            let mut rows = events.fetch_all(&mut *tx).await?;
            let wanted: Vec<i64> = rows.iter().filter_map(|row| row.entry).collect();
            let sizes = sqlx::query_as(include_str!("entry_sizes_by_seq.sql")).bind(wanted).fetch_all(&mut *tx).await?;
            let cut = cut_events(&mut rows, sizes, |row: &EventRow| row.entry);
            let wanted: Vec<i64> = rows.iter().filter_map(|row| row.entry).collect();
            let entries = sqlx::query_as::<_, EntryRow>(include_str!("entries_by_seq.sql")).bind(wanted);
            let entries = entries.fetch_all(&mut *tx).await?;
            let (epoch, events_gone, _) = bounds(tx).await?;
            let entries: HashMap<i64, StoredEntry> =
                readable(entries).into_iter().map(|entry: StoredEntry| (entry.seq, entry)).collect();
            let event = |row: EventRow| Event {
                seq: row.seq,
                kind: row.kind,
                feed_id: FeedId(row.feed_id),
                at: Timestamp::from_millis(row.at),
                feed_url: row.feed_url,
                host: row.host,
                merged_into: row.merged_into.map(FeedId),
                entry: row.entry.and_then(|seq| entries.get(&seq).cloned()),
            };
            Ok(EventPage { epoch, oldest: events_gone + 1, items: rows.into_iter().map(event).collect(), cut })
        })
    }

    async fn latest_seq(&self) -> Result<i64, StoreError> {
        let sql = "SELECT seq FROM store";
        on_connection!(self, "read events", |on| sqlx::query_scalar(sql).fetch_one(on).await)
    }

    async fn relay_turn(&self, turn: &RelayTurn<'_>) -> Result<Option<i64>, StoreError> {
        let lasts = i64::try_from(turn.lasts.as_millis()).unwrap_or(i64::MAX);
        on_connection!(self, "take the turn to pass events on", |on| {
            let take = sqlx::query_scalar(include_str!("relay_turn.sql")).bind(turn.holder).bind(lasts);
            take.bind(turn.confirmed).bind(turn.epoch).fetch_optional(on).await
        })
    }
}

/// The epoch, and the last numbers of events and of entries that are gone: everything above is there, unless an erased feed
/// took it along.
async fn bounds(on: &mut PgConnection) -> Result<(String, i64, i64), sqlx::Error> {
    sqlx::query_as("SELECT epoch, events_gone, entries_gone FROM store").fetch_one(on).await
}
