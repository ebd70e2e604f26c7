//! What consumers read: entries in their newest form, and events, both by `seq`.

use std::collections::HashMap;

use common::time::Timestamp;
use common::url::FeedId;
use sqlx::{Connection, FromRow, PgConnection};

use super::PostgresStore;
use crate::row::{EntryRow, readable};
use crate::{Event, EventPage, RelayTurn, StoreError, StoredEntry};

const ACTION: &str = "read events";
/// All statements see one snapshot: retention must not take something between the rows and the answer to what is kept.
pub(super) const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

#[derive(FromRow)]
struct EventRow {
    seq: i64,
    at: i64,
    kind: String,
    feed_id: i64,
    feed_url: Option<String>,
    merged_into: Option<i64>,
    entry: Option<i64>,
}

impl PostgresStore {
    pub(super) async fn stored_entries(
        &self,
        feed: Option<FeedId>,
        after: i64,
        limit: u32,
    ) -> Result<EventPage<StoredEntry>, StoreError> {
        let query = match feed {
            Some(_) => sqlx::query_as::<_, EntryRow>(include_str!("entries_of_feed.sql")),
            None => sqlx::query_as(include_str!("entries.sql")),
        };
        let query = query.bind(after).bind(i64::from(limit));
        let query = if let Some(feed) = feed { query.bind(feed.0) } else { query };
        let mut on = self.session(ACTION).await?;
        let mut tx = on.begin_with(SNAPSHOT).await.map_err(StoreError::on(ACTION))?;
        let rows = query.fetch_all(&mut *tx).await.map_err(StoreError::on(ACTION))?;
        let (epoch, _, entries_gone) = bounds(&mut tx).await?;
        tx.commit().await.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(EventPage { epoch, oldest: entries_gone + 1, items: readable(rows) })
    }

    pub(super) async fn last_entries(&self, feed: Option<FeedId>, limit: u32) -> Result<Vec<StoredEntry>, StoreError> {
        let query = match feed {
            Some(feed) => sqlx::query_as::<_, EntryRow>(include_str!("last_entries_of_feed.sql")).bind(feed.0),
            None => sqlx::query_as(include_str!("last_entries.sql")),
        };
        let mut on = self.session(ACTION).await?;
        let rows = query.bind(i64::from(limit)).fetch_all(&mut *on).await.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(readable(rows))
    }

    /// Walks back over what is newer, by number: a day's entries for a midnight.
    pub(super) async fn seq_before(&self, at: Timestamp) -> Result<i64, StoreError> {
        let sql = "SELECT seq FROM entries WHERE stored < $1 ORDER BY seq DESC LIMIT 1";
        let mut on = self.session(ACTION).await?;
        let seq: Option<i64> =
            sqlx::query_scalar(sql).bind(at.millis()).fetch_optional(&mut *on).await.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(seq.unwrap_or(0))
    }

    pub(super) async fn last_seq(&self) -> Result<i64, StoreError> {
        let mut on = self.session(ACTION).await?;
        let seq = sqlx::query_scalar("SELECT seq FROM store").fetch_one(&mut *on).await;
        let seq = seq.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(seq)
    }

    pub(super) async fn take_relay_turn(
        &self,
        turn: &RelayTurn<'_>,
        now: Timestamp,
    ) -> Result<Option<i64>, StoreError> {
        const ACTION: &str = "take the turn to pass events on";
        let mut on = self.session(ACTION).await?;
        let take = sqlx::query_scalar(include_str!("relay_turn.sql")).bind(turn.holder).bind(turn.until.millis());
        let cursor = take.bind(now.millis()).bind(turn.confirmed).fetch_optional(&mut *on).await;
        let cursor = cursor.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(cursor)
    }

    pub(super) async fn stored_events(&self, after: i64, limit: u32) -> Result<EventPage<Event>, StoreError> {
        let mut on = self.session(ACTION).await?;
        let mut tx = on.begin_with(SNAPSHOT).await.map_err(StoreError::on(ACTION))?;
        let events = sqlx::query_as::<_, EventRow>(include_str!("events.sql")).bind(after).bind(i64::from(limit));
        let rows = events.fetch_all(&mut *tx).await.map_err(StoreError::on(ACTION))?;
        let wanted: Vec<i64> = rows.iter().filter_map(|row| row.entry).collect();
        let entries = sqlx::query_as::<_, EntryRow>(include_str!("entries_by_seq.sql")).bind(wanted);
        let entries = entries.fetch_all(&mut *tx).await.map_err(StoreError::on(ACTION))?;
        let (epoch, events_gone, _) = bounds(&mut tx).await?;
        tx.commit().await.map_err(StoreError::on(ACTION))?;
        on.keep();
        let entries: HashMap<i64, StoredEntry> =
            readable(entries).into_iter().map(|entry: StoredEntry| (entry.seq, entry)).collect();
        let event = |row: EventRow| Event {
            seq: row.seq,
            kind: row.kind,
            feed_id: FeedId(row.feed_id),
            at: Timestamp::from_millis(row.at),
            feed_url: row.feed_url,
            merged_into: row.merged_into.map(FeedId),
            entry: row.entry.and_then(|seq| entries.get(&seq).cloned()),
        };
        Ok(EventPage { epoch, oldest: events_gone + 1, items: rows.into_iter().map(event).collect() })
    }
}

/// The epoch, and the last numbers of events and of entries that are gone: everything above is there, unless an erased feed
/// took it along.
async fn bounds(on: &mut PgConnection) -> Result<(String, i64, i64), StoreError> {
    let query = sqlx::query_as("SELECT epoch, events_gone, entries_gone FROM store");
    query.fetch_one(on).await.map_err(StoreError::on(ACTION))
}
