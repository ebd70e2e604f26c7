//! What consumers read: entries in their newest form, and events, both by `seq`.

use std::collections::HashMap;

use async_trait::async_trait;
use common::time::Timestamp;
use common::url::FeedId;
use sqlx::{FromRow, Row, SqliteConnection};

use super::SqliteStore;
use crate::page_size::{cut_events, fitting};
use crate::row::{EntryRow, readable};
use crate::{Event, EventPage, Events, RelayTurn, StoreError, StoredEntry};

const ACTION: &str = "read events";

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
impl Events for SqliteStore {
    async fn entries(
        &self,
        feed: Option<FeedId>,
        after: i64,
        limit: u32,
    ) -> Result<EventPage<StoredEntry>, StoreError> {
        // One snapshot: retention must not take something between the rows and the answer to what is kept.
        let mut tx = self.readers.begin().await.map_err(StoreError::on(ACTION))?;
        let (sizes, rows) = match feed {
            Some(_) => (
                sqlx::query_scalar::<_, i64>(include_str!("entry_sizes.sql")),
                sqlx::query_as::<_, EntryRow>(
                    "SELECT * FROM entries WHERE feed_id = ?3 AND seq > ?1 ORDER BY seq LIMIT ?2",
                ),
            ),
            None => (
                sqlx::query_scalar(include_str!("entry_sizes_all.sql")),
                sqlx::query_as("SELECT * FROM entries WHERE seq > ?1 ORDER BY seq LIMIT ?2"),
            ),
        };
        let feed = feed.map(|feed| feed.0);
        let sizes = sizes.bind(after).bind(limit);
        let sizes = if let Some(feed) = feed { sizes.bind(feed) } else { sizes };
        let sizes = sizes.fetch_all(&mut *tx).await.map_err(StoreError::on(ACTION))?;
        let (found, fitting) = (sizes.len(), fitting(sizes));
        let rows = rows.bind(after).bind(fitting as i64);
        let rows = if let Some(feed) = feed { rows.bind(feed) } else { rows };
        let rows = rows.fetch_all(&mut *tx).await.map_err(StoreError::on(ACTION))?;
        let (epoch, oldest) = bounds(&mut tx, "entries_gone").await?;
        Ok(EventPage { epoch, oldest, items: readable(rows), cut: fitting < found })
    }

    async fn newest_entries(&self, feed: Option<FeedId>, limit: u32) -> Result<Vec<StoredEntry>, StoreError> {
        let query = match feed {
            Some(feed) => sqlx::query_as("SELECT * FROM entries WHERE feed_id = ?2 ORDER BY seq DESC LIMIT ?1")
                .bind(limit)
                .bind(feed.0),
            None => sqlx::query_as("SELECT * FROM entries ORDER BY seq DESC LIMIT ?1").bind(limit),
        };
        let rows: Vec<EntryRow> = query.fetch_all(&self.readers).await.map_err(StoreError::on(ACTION))?;
        Ok(readable(rows))
    }

    /// Walks back over what is newer, by number: a day's entries for a midnight.
    async fn last_entry_before(&self, at: Timestamp) -> Result<i64, StoreError> {
        let sql = "SELECT seq FROM entries WHERE stored < ?1 ORDER BY seq DESC LIMIT 1";
        let seq = sqlx::query_scalar(sql).bind(at.millis()).fetch_optional(&self.readers).await;
        Ok(seq.map_err(StoreError::on(ACTION))?.unwrap_or(0))
    }

    async fn events(&self, after: i64, limit: u32) -> Result<EventPage<Event>, StoreError> {
        let mut tx = self.readers.begin().await.map_err(StoreError::on(ACTION))?;
        let mut rows: Vec<EventRow> = sqlx::query_as(include_str!("events.sql"))
            .bind(after)
            .bind(limit)
            .fetch_all(&mut *tx)
            .await
            .map_err(StoreError::on(ACTION))?;
        let wanted: Vec<i64> = rows.iter().filter_map(|row| row.entry).collect();
        let sizes: Vec<(i64, i64)> = sqlx::query_as(include_str!("entry_sizes_by_seq.sql"))
            .bind(serde_json::json!(wanted).to_string())
            .fetch_all(&mut *tx)
            .await
            .map_err(StoreError::on(ACTION))?;
        let cut = cut_events(&mut rows, sizes, |row| row.entry);
        let wanted: Vec<i64> = rows.iter().filter_map(|row| row.entry).collect();
        let entries: Vec<EntryRow> =
            sqlx::query_as("SELECT * FROM entries WHERE seq IN (SELECT value FROM json_each(?1))")
                .bind(serde_json::json!(wanted).to_string())
                .fetch_all(&mut *tx)
                .await
                .map_err(StoreError::on(ACTION))?;
        let (epoch, oldest) = bounds(&mut tx, "events_gone").await?;
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
        Ok(EventPage { epoch, oldest, items: rows.into_iter().map(event).collect(), cut })
    }

    /// From SQLite's own counter, which pruning does not turn back.
    async fn latest_seq(&self) -> Result<i64, StoreError> {
        let query = sqlx::query_scalar("SELECT seq FROM sqlite_sequence WHERE name = 'events'");
        let seq: Option<i64> = query.fetch_optional(&self.readers).await.map_err(StoreError::on(ACTION))?;
        Ok(seq.unwrap_or(0))
    }

    async fn relay_turn(&self, turn: &RelayTurn<'_>) -> Result<Option<i64>, StoreError> {
        let lasts = i64::try_from(turn.lasts.as_millis()).unwrap_or(i64::MAX);
        let take = sqlx::query_scalar(include_str!("relay_turn.sql")).bind(turn.holder).bind(lasts);
        let cursor = take.bind(turn.confirmed).bind(turn.epoch).fetch_optional(&self.writer).await;
        cursor.map_err(StoreError::on("take the turn to pass events on"))
    }
}

/// The epoch, and the oldest number that may still be there: everything above it is, unless an erased feed took it along.
async fn bounds(on: &mut SqliteConnection, column: &'static str) -> Result<(String, i64), StoreError> {
    let row = sqlx::query("SELECT * FROM store").fetch_one(on).await.map_err(StoreError::on(ACTION))?;
    let read = || Ok((row.try_get("epoch")?, row.try_get::<i64, _>(column)? + 1));
    read().map_err(StoreError::on(ACTION))
}
