//! What consumers read: entries in their newest form, and events, both by `seq`.

use async_trait::async_trait;
use common::time::Timestamp;
use sqlx::PgConnection;

use super::PostgresStore;
use super::connection::{SNAPSHOT, in_transaction, on_connection};
use crate::columns::entry_identity_of;
use crate::filter::{Chosen, Line};
use crate::row::{EntryRow, readable};
use crate::since::Since;
use crate::{EntryRef, Event, EventPage, EventQuery, Events, RelayTurn, StoreError, StoredEntry};

/// An entry with what it says of its feed.
macro_rules! whole_entries {
    ($which:literal) => {
        concat!(
            "SELECT entries.seq, entries.feed_id, entries.seen, entries.stored, entries.published, entries.updated, entries.cut, entries.id, ",
            "entries.url, entries.title, entries.author, entries.enclosures, entries.summary, entries.content, entries.details, ",
            "feeds.url AS feed_url, feeds.title AS feed_title, feeds.labels, feeds.external_id ",
            "FROM entries LEFT JOIN feeds ON feeds.id = entries.feed_id ",
            $which
        )
    };
}
const ENTRIES_BY_SEQ: &str = whole_entries!("WHERE entries.seq = ANY ($1)");

/// What a line says of an entry's texts and of its feed. Lengths are known without reading the texts.
macro_rules! shared_columns {
    () => {
        "(coalesce(octet_length(entries.title), 0) + coalesce(octet_length(entries.summary), 0) \
         + coalesce(octet_length(entries.content), 0) + coalesce(octet_length(entries.enclosures), 0) \
         + coalesce(octet_length(entries.details), 0))::bigint AS bytes, \
         feeds.url AS feed_url, feeds.title AS feed_title, feeds.labels, feeds.external_id, feeds.merged_into, feeds.host, \
         feeds.category"
    };
}

/// Lines of entries between $1 and $2, at most $3.
macro_rules! entry_lines {
    ($of:literal, $order:literal) => {
        concat!(
            "SELECT entries.seq, entries.stored AS at, entries.feed_id, entries.seq AS entry, ",
            "CASE WHEN entries.seen = entries.stored THEN 'entry.new' ELSE 'entry.updated' END AS kind, ",
            "NULL::bigint AS subscription, ",
            shared_columns!(),
            ", NULL AS error, NULL AS about ",
            "FROM (SELECT seq, feed_id, seen, stored, title, summary, content, enclosures, details FROM entries ",
            "WHERE seq > $1 AND seq < $2",
            $of,
            " ORDER BY seq",
            $order,
            " LIMIT $3) AS entries LEFT JOIN feeds ON feeds.id = entries.feed_id ORDER BY entries.seq",
            $order
        )
    };
}

/// Lines of events between $1 and $2, at most $3, each with its feed as it is now and its entry's newest form.
macro_rules! event_lines {
    ($order:literal) => {
        concat!(
            "SELECT line.seq, line.at, line.kind, line.feed_id, line.subscription, entries.seq AS entry, ",
            shared_columns!(),
            ", line.error, line.about ",
            "FROM (SELECT seq, at, kind, feed_id, subscription, identity, error, about FROM events WHERE seq > $1 AND seq < $2 ORDER BY seq",
            $order,
            " LIMIT $3) AS line ",
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
    /// Its first and its last number.
    numbers: &'static str,
    /// The first line from the number $1 on.
    from: &'static str,
    /// The first number from $1 on whose time is $2 or later. Few lines are earlier: it begins near the place.
    since: &'static str,
}

const ENTRY_TIMES: Times = Times {
    numbers: "SELECT min(seq), max(seq) FROM entries",
    from: "SELECT seq, stored FROM entries WHERE seq >= $1 ORDER BY seq LIMIT 1",
    since: "SELECT seq FROM entries WHERE seq >= $1 AND stored >= $2 ORDER BY seq LIMIT 1",
};
const EVENT_TIMES: Times = Times {
    numbers: "SELECT min(seq), max(seq) FROM events",
    from: "SELECT seq, at FROM events WHERE seq >= $1 ORDER BY seq LIMIT 1",
    since: "SELECT seq FROM events WHERE seq >= $1 AND at >= $2 ORDER BY seq LIMIT 1",
};
/// The last entry before the number $1 that was stored before $2.
const LAST_ENTRY: &str = "SELECT seq FROM entries WHERE seq < $1 AND stored < $2 ORDER BY seq DESC LIMIT 1";

/// For the check of plans.
#[cfg(test)]
pub(super) const STATEMENTS: [&str; 9] = [
    whole_entries!("WHERE entries.seq = ANY ($1)"),
    entry_lines!(" AND feed_id = $4", " DESC"),
    entry_lines!("", ""),
    event_lines!(""),
    ENTRY_TIMES.from,
    ENTRY_TIMES.since,
    EVENT_TIMES.from,
    EVENT_TIMES.since,
    LAST_ENTRY,
];

#[async_trait]
impl Events for PostgresStore {
    async fn find_entries(&self, query: &EventQuery) -> Result<EventPage<StoredEntry>, StoreError> {
        let sql = match (query.filter.feed, query.newest) {
            (None, false) => entry_lines!("", ""),
            (None, true) => entry_lines!("", " DESC"),
            (Some(_), false) => entry_lines!(" AND feed_id = $4", ""),
            (Some(_), true) => entry_lines!(" AND feed_id = $4", " DESC"),
        };
        let feed = query.filter.feed.map(|feed| feed.0);
        in_transaction!(self, "read entries", SNAPSHOT, |tx| {
            let (epoch, _, entries_gone) = bounds(tx).await?;
            let mut page = EventPage::default();
            for scanned in query.scans(feed.is_some()) {
                let chosen = choose(tx, query, (sql, feed, scanned), &ENTRY_TIMES).await?;
                let entries = whole(tx, &chosen).await?;
                page = query.entries(chosen, entries, (epoch.clone(), entries_gone + 1));
                if query.suffices(&page) {
                    break;
                }
            }
            Ok(page)
        })
    }

    async fn find_events(&self, query: &EventQuery) -> Result<EventPage<Event>, StoreError> {
        let sql = if query.newest { event_lines!(" DESC") } else { event_lines!("") };
        in_transaction!(self, "read events", SNAPSHOT, |tx| {
            let (epoch, events_gone, _) = bounds(tx).await?;
            let mut page = EventPage::default();
            for scanned in query.scans(false) {
                let chosen = choose(tx, query, (sql, None, scanned), &EVENT_TIMES).await?;
                let entries = whole(tx, &chosen).await?;
                page = query.events(chosen, entries, (epoch.clone(), events_gone + 1));
                if query.suffices(&page) {
                    break;
                }
            }
            Ok(page)
        })
    }

    async fn entry(&self, which: &EntryRef) -> Result<Option<StoredEntry>, StoreError> {
        const OF_EVENT: &str = "SELECT known.seq FROM events JOIN entry_identities AS known \
                                ON known.feed_id = events.feed_id AND known.identity = events.identity WHERE events.seq = $1";
        const OF_ID: &str = "SELECT seq FROM entry_identities WHERE feed_id = $1 AND identity = $2";
        let row: Option<EntryRow> = in_transaction!(self, "read an entry", SNAPSHOT, |tx| {
            let seq: Option<i64> = match which {
                EntryRef::Seq(seq) => {
                    let newest = sqlx::query_scalar(OF_EVENT).bind(seq).fetch_optional(&mut *tx).await?;
                    // Retention may have taken the event and left the entry.
                    Some(newest.unwrap_or(*seq))
                }
                EntryRef::Id(feed, id) => {
                    let known = sqlx::query_scalar(OF_ID).bind(feed.0).bind(entry_identity_of(id).to_vec());
                    known.fetch_optional(&mut *tx).await?
                }
            };
            let row = sqlx::query_as::<_, EntryRow>(ENTRIES_BY_SEQ).bind(Vec::from_iter(seq));
            row.fetch_optional(&mut *tx).await
        })?;
        row.map(StoredEntry::try_from).transpose()
    }

    /// Walks back from a place near it: over what was stored within a few minutes, and not over the whole day since a midnight.
    async fn last_entry_before(&self, at: Timestamp) -> Result<i64, StoreError> {
        in_transaction!(self, "read entries", SNAPSHOT, |tx| {
            let behind = found(tx, &ENTRY_TIMES, Since::behind(at)).await?;
            let last = sqlx::query_scalar(LAST_ENTRY).bind(behind).bind(at.millis());
            let seq: Option<i64> = last.fetch_optional(&mut *tx).await?;
            Ok(seq.unwrap_or(0))
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

/// Returns the lines of a page.
async fn choose(
    on: &mut PgConnection,
    query: &EventQuery,
    (sql, feed, scanned): (&'static str, Option<i64>, u32),
    times: &Times,
) -> Result<Chosen, sqlx::Error> {
    let since = match query.filter.since {
        None => 0,
        Some(since) => first_since(on, query, times, since).await?,
    };
    let (low, high) = query.bounds(since);
    let lines = sqlx::query(sql).bind(low).bind(high).bind(i64::from(scanned));
    let lines = if let Some(feed) = feed { lines.bind(feed) } else { lines };
    let rows = lines.fetch_all(on).await?;
    Ok(query.choose(rows.iter().map(Line::read).collect::<Result<Vec<_>, _>>()?, scanned))
}

/// Returns the first number that the page may have at which something was stored at `since` or later, or one behind all of them.
async fn first_since(
    on: &mut PgConnection,
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
async fn found(on: &mut PgConnection, times: &Times, search: Since) -> Result<i64, sqlx::Error> {
    let (first, last): (Option<i64>, Option<i64>) = sqlx::query_as(times.numbers).fetch_one(&mut *on).await?;
    let mut search = search.among(first, last);
    while let Some(probe) = search.probe() {
        search.note(probe, sqlx::query_as(times.from).bind(probe).fetch_optional(&mut *on).await?);
    }
    Ok(search.found())
}

/// Returns the entries of a page.
async fn whole(on: &mut PgConnection, chosen: &Chosen) -> Result<Vec<StoredEntry>, sqlx::Error> {
    let rows = sqlx::query_as::<_, EntryRow>(ENTRIES_BY_SEQ).bind(chosen.entries()).fetch_all(on).await?;
    Ok(readable(rows))
}

/// Returns the epoch, and the last numbers of events and of entries that are gone: everything above is there, unless an
/// erased feed took it along.
async fn bounds(on: &mut PgConnection) -> Result<(String, i64, i64), sqlx::Error> {
    sqlx::query_as("SELECT epoch, events_gone, entries_gone FROM store").fetch_one(on).await
}
