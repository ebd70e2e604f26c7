//! What consumers read: entries in their newest form, and events, both by `seq`.

use async_trait::async_trait;
use common::time::Timestamp;
use sqlx::{Row, SqliteConnection};

use super::{SqliteStore, in_snapshot};
use crate::columns::entry_identity_of;
use crate::filter::{Chosen, Line};
use crate::row::{EntryRow, readable};
use crate::since::Since;
use crate::{EntryRef, Event, EventPage, EventQuery, Events, RelayTurn, StoreError, StoredEntry};

const ACTION: &str = "read events";

/// An entry with what it says of its feed.
macro_rules! whole_entries {
    ($which:literal) => {
        concat!(
            "SELECT entries.*, feeds.url AS feed_url, feeds.title AS feed_title, feeds.labels, feeds.external_id ",
            "FROM entries LEFT JOIN feeds ON feeds.id = entries.feed_id ",
            $which
        )
    };
}

/// The bytes of an entry's texts. Lengths are read from the rows' heads.
macro_rules! bytes {
    () => {
        "coalesce(octet_length(entries.title), 0) + coalesce(octet_length(entries.summary), 0) \
         + coalesce(octet_length(entries.content), 0) + coalesce(octet_length(entries.enclosures), 0) \
         + coalesce(octet_length(entries.details), 0)"
    };
}

/// Lines of entries between ?1 and ?2, at most ?3.
macro_rules! entry_lines {
    ($of:literal, $order:literal) => {
        concat!(
            "SELECT entries.seq, entries.stored AS at, entries.feed_id, entries.seq AS entry, ",
            "CASE WHEN entries.seen = entries.stored THEN 'entry.new' ELSE 'entry.updated' END AS kind, NULL AS subscription, ",
            bytes!(),
            " AS bytes, feeds.url AS feed_url, feeds.title AS feed_title, feeds.labels, feeds.external_id, feeds.merged_into, ",
            "feeds.host, feeds.category, NULL AS error, NULL AS about ",
            "FROM (SELECT seq FROM entries WHERE seq > ?1 AND seq < ?2",
            $of,
            " ORDER BY seq",
            $order,
            " LIMIT ?3) AS line CROSS JOIN entries ON entries.seq = line.seq LEFT JOIN feeds ON feeds.id = entries.feed_id ",
            "ORDER BY line.seq",
            $order
        )
    };
}

/// Lines of events between ?1 and ?2, at most ?3, each with its feed as it is now and its entry's newest form.
macro_rules! event_lines {
    ($order:literal) => {
        concat!(
            "SELECT line.seq, line.at, line.kind, line.feed_id, line.subscription, entries.seq AS entry, ",
            bytes!(),
            " AS bytes, feeds.url AS feed_url, feeds.title AS feed_title, feeds.labels, feeds.external_id, feeds.merged_into, ",
            "feeds.host, feeds.category, line.error, line.about ",
            "FROM (SELECT * FROM events WHERE seq > ?1 AND seq < ?2 ORDER BY seq",
            $order,
            " LIMIT ?3) AS line ",
            "LEFT JOIN entry_identities AS known ON known.feed_id = line.feed_id AND known.identity = line.identity ",
            "LEFT JOIN entries ON entries.seq = known.seq ",
            "LEFT JOIN feeds ON feeds.id = line.feed_id ",
            "ORDER BY line.seq",
            $order
        )
    };
}

/// How a table's numbers are found by their times.
struct Times {
    /// Its first and its last number: two statements, because one that asks for both reads the whole table.
    numbers: &'static str,
    /// The first line from the number ?1 on.
    from: &'static str,
    /// The first number from ?1 on whose time is ?2 or later. Few lines are earlier: it begins near the place.
    since: &'static str,
}

const ENTRY_TIMES: Times = Times {
    numbers: "SELECT (SELECT min(seq) FROM entries), (SELECT max(seq) FROM entries)",
    from: "SELECT seq, stored FROM entries WHERE seq >= ?1 ORDER BY seq LIMIT 1",
    since: "SELECT seq FROM entries WHERE seq >= ?1 AND stored >= ?2 ORDER BY seq LIMIT 1",
};
const EVENT_TIMES: Times = Times {
    numbers: "SELECT (SELECT min(seq) FROM events), (SELECT max(seq) FROM events)",
    from: "SELECT seq, at FROM events WHERE seq >= ?1 ORDER BY seq LIMIT 1",
    since: "SELECT seq FROM events WHERE seq >= ?1 AND at >= ?2 ORDER BY seq LIMIT 1",
};
/// The last entry before the number ?1 that was stored before ?2.
const LAST_ENTRY: &str = "SELECT seq FROM entries WHERE seq < ?1 AND stored < ?2 ORDER BY seq DESC LIMIT 1";

/// For the check of plans.
#[cfg(test)]
pub(super) const LINES: [&str; 9] = [
    entry_lines!(" AND feed_id = ?4", " DESC"),
    event_lines!(""),
    ENTRY_TIMES.numbers,
    ENTRY_TIMES.from,
    ENTRY_TIMES.since,
    EVENT_TIMES.numbers,
    EVENT_TIMES.from,
    EVENT_TIMES.since,
    LAST_ENTRY,
];

#[async_trait]
impl Events for SqliteStore {
    async fn find_entries(&self, query: &EventQuery) -> Result<EventPage<StoredEntry>, StoreError> {
        let sql = match (query.filter.feed, query.newest) {
            (None, false) => entry_lines!("", ""),
            (None, true) => entry_lines!("", " DESC"),
            (Some(_), false) => entry_lines!(" AND feed_id = ?4", ""),
            (Some(_), true) => entry_lines!(" AND feed_id = ?4", " DESC"),
        };
        let feed = query.filter.feed.map(|feed| feed.0);
        // One snapshot: retention must not take something between the rows and the answer to what is kept.
        in_snapshot!(self, ACTION, |tx| {
            let bounds = bounds(tx, "entries_gone").await?;
            let mut page = EventPage::default();
            for scanned in query.scans(feed.is_some()) {
                let chosen = choose(tx, query, (sql, feed, scanned), &ENTRY_TIMES).await?;
                let entries = whole(tx, &chosen).await?;
                page = query.entries(chosen, entries, bounds.clone());
                if query.suffices(&page) {
                    break;
                }
            }
            Ok(page)
        })
    }

    async fn find_events(&self, query: &EventQuery) -> Result<EventPage<Event>, StoreError> {
        let sql = if query.newest { event_lines!(" DESC") } else { event_lines!("") };
        in_snapshot!(self, ACTION, |tx| {
            let bounds = bounds(tx, "events_gone").await?;
            let mut page = EventPage::default();
            for scanned in query.scans(false) {
                let chosen = choose(tx, query, (sql, None, scanned), &EVENT_TIMES).await?;
                let entries = whole(tx, &chosen).await?;
                page = query.events(chosen, entries, bounds.clone());
                if query.suffices(&page) {
                    break;
                }
            }
            Ok(page)
        })
    }

    async fn entry(&self, which: &EntryRef) -> Result<Option<StoredEntry>, StoreError> {
        let of_event = "SELECT known.seq FROM events JOIN entry_identities AS known ON known.feed_id = events.feed_id \
                        AND known.identity = events.identity WHERE events.seq = ?1";
        let seq: Option<i64> = match which {
            EntryRef::Seq(seq) => {
                let newest = sqlx::query_scalar(of_event).bind(seq).fetch_optional(&self.readers).await;
                // Retention may have taken the event and left the entry.
                Some(newest.map_err(StoreError::on(ACTION))?.unwrap_or(*seq))
            }
            EntryRef::Id(feed, id) => {
                let sql = "SELECT seq FROM entry_identities WHERE feed_id = ?1 AND identity = ?2";
                let known = sqlx::query_scalar(sql).bind(feed.0).bind(entry_identity_of(id).to_vec());
                known.fetch_optional(&self.readers).await.map_err(StoreError::on(ACTION))?
            }
        };
        let Some(seq) = seq else { return Ok(None) };
        let row = sqlx::query_as::<_, EntryRow>(whole_entries!("WHERE entries.seq = ?1")).bind(seq);
        let row = row.fetch_optional(&self.readers).await.map_err(StoreError::on(ACTION))?;
        row.map(StoredEntry::try_from).transpose()
    }

    /// Walks back from a place near it: over what was stored within a few minutes, and not over the whole day since a midnight.
    async fn last_entry_before(&self, at: Timestamp) -> Result<i64, StoreError> {
        in_snapshot!(self, ACTION, |tx| {
            let behind = found(tx, &ENTRY_TIMES, Since::behind(at)).await?;
            let last = sqlx::query_scalar(LAST_ENTRY).bind(behind).bind(at.millis());
            let seq: Option<i64> = last.fetch_optional(tx).await?;
            Ok(seq.unwrap_or(0))
        })
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

/// Returns the lines of a page, of as many as are `scanned`.
async fn choose(
    on: &mut SqliteConnection,
    query: &EventQuery,
    (sql, feed, scanned): (&'static str, Option<i64>, u32),
    times: &Times,
) -> Result<Chosen, sqlx::Error> {
    let since = match query.filter.since {
        None => 0,
        Some(since) => first_since(on, query, times, since).await?,
    };
    let (low, high) = query.bounds(since);
    let lines = sqlx::query(sql).bind(low).bind(high).bind(scanned);
    let lines = if let Some(feed) = feed { lines.bind(feed) } else { lines };
    let rows = lines.fetch_all(on).await?;
    Ok(query.choose(rows.iter().map(Line::read).collect::<Result<Vec<_>, _>>()?, scanned))
}

/// Returns the first number that the page may have at which something was stored at `since` or later, or one behind all of them.
async fn first_since(
    on: &mut SqliteConnection,
    query: &EventQuery,
    times: &Times,
    since: Timestamp,
) -> Result<i64, sqlx::Error> {
    let near = query.looks_from(found(on, times, Since::before(since)).await?);
    let first = sqlx::query_scalar(times.since).bind(near).bind(since.millis());
    let first: Option<i64> = first.fetch_optional(on).await?;
    Ok(first.unwrap_or(i64::MAX))
}

/// Returns the number that a search finds.
async fn found(on: &mut SqliteConnection, times: &Times, search: Since) -> Result<i64, sqlx::Error> {
    let (first, last): (Option<i64>, Option<i64>) = sqlx::query_as(times.numbers).fetch_one(&mut *on).await?;
    let mut search = search.among(first, last);
    while let Some(probe) = search.probe() {
        search.note(probe, sqlx::query_as(times.from).bind(probe).fetch_optional(&mut *on).await?);
    }
    Ok(search.found())
}

/// Returns the entries of a page.
async fn whole(on: &mut SqliteConnection, chosen: &Chosen) -> Result<Vec<StoredEntry>, sqlx::Error> {
    let sql = whole_entries!("WHERE entries.seq IN (SELECT value FROM json_each(?1))");
    let rows = sqlx::query_as::<_, EntryRow>(sql).bind(serde_json::json!(chosen.entries()).to_string());
    Ok(readable(rows.fetch_all(on).await?))
}

/// Returns the epoch, and the oldest number that may still be there: everything above it is, unless an erased feed took
/// it along.
async fn bounds(on: &mut SqliteConnection, column: &'static str) -> Result<(String, i64), sqlx::Error> {
    let row = sqlx::query("SELECT * FROM store").fetch_one(on).await?;
    Ok((row.try_get("epoch")?, row.try_get::<i64, _>(column)? + 1))
}
