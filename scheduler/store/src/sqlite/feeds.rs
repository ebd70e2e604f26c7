//! Feeds as dispatch, results and the reconciler read them.

use std::collections::HashSet;

use async_trait::async_trait;
use common::archive::ArchiveRead;
use common::feed::Feed;
use common::secrets::Credentials;
use common::time::Timestamp;
use common::url::{FeedId, Version};
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, Row, SqliteConnection};

use super::batch::{Batch, id_list};
use super::list::View;
use super::{SqliteStore, in_transaction, moves, news};
use crate::columns::{CHUNK, added_terms, feed_changes, interval_millis, pack_archive, pack_calm, pack_labels};
use crate::hub::hub_feeds;
use crate::moves::{MERGED_WITH, REMOVE_MERGED};
use crate::news::{News, ids_of_new};
use crate::row::{FeedRow, PlaceColumns, push_column, readable};
use crate::{
    Added, FeedChange, FeedQuery, FeedRef, Feeds, HistoryEntry, Move, Moved, NewFeed, Page, Placement, Polls,
    StoreError, Unmove, Unmoved, VersionedChanges, Wakes, history, listing,
};

feed_changes!(SqliteConnection, include_str!("feed_change.sql"));

#[async_trait]
impl Feeds for SqliteStore {
    async fn add_feeds(&self, feeds: &[NewFeed], now: Timestamp) -> Result<Vec<Added>, StoreError> {
        in_transaction!(self, "add feeds", |tx| {
            let mut added = Vec::with_capacity(feeds.len());
            for chunk in feeds.chunks(CHUNK) {
                let chunk = add_chunk(tx, chunk, now).await?;
                news::tell(tx, &News::added(ids_of_new(&chunk)), now).await?;
                added.extend(chunk);
            }
            Ok(added)
        })
    }

    async fn feed(&self, which: &FeedRef) -> Result<Option<Feed>, StoreError> {
        let query = match which {
            FeedRef::Id(id) => {
                sqlx::query(concat!("SELECT *, ", push_column!(), " FROM feeds WHERE id = ?1")).bind(id.0)
            }
            FeedRef::Url(url) => {
                let sql = concat!("SELECT *, ", push_column!(), " FROM feeds WHERE url = ?1 AND credentials = x''");
                sqlx::query(sql).bind(url.to_string())
            }
        };
        let failed = "read a feed";
        let row = query.fetch_optional(&self.readers).await.map_err(StoreError::on(failed))?;
        let Some(row) = row else { return Ok(None) };
        FeedRow::from_row(&row).map_err(StoreError::on(failed))?.try_into().map(Some)
    }

    async fn feeds(&self, query: &FeedQuery) -> Result<Page<Feed>, StoreError> {
        let mut tx = self.readers.begin().await.map_err(StoreError::on("list feeds"))?;
        listing::list(&mut View(&mut tx), query).await
    }

    async fn feeds_among(&self, query: &FeedQuery, ids: &[FeedId]) -> Result<Vec<Feed>, StoreError> {
        let mut on = self.readers.acquire().await.map_err(StoreError::on("list feeds"))?;
        listing::among(&mut View(&mut on), query, ids.iter().map(|id| id.0).collect()).await
    }

    async fn change_feed(&self, id: FeedId, change: &FeedChange, now: Timestamp) -> Result<Option<Feed>, StoreError> {
        let failed = "change a feed";
        let mut tx = self.write(failed).await?;
        let before = news::known(&mut tx, &[id.0]).await.map_err(StoreError::on(failed))?;
        let row = change_row(&mut tx, id, change, now).await?;
        let Some(row) = row else { return Ok(None) };
        let feed = row.try_into()?;
        news::tell_changes(&mut tx, Vec::new(), &before, now).await.map_err(StoreError::on(failed))?;
        tx.commit().await.map_err(StoreError::on(failed))?;
        Ok(Some(feed))
    }

    async fn change_feeds(&self, changes: &[(FeedId, FeedChange)], now: Timestamp) -> Result<Vec<Feed>, StoreError> {
        let failed = "change feeds";
        let mut tx = self.write(failed).await?;
        let ids: Vec<i64> = changes.iter().map(|(id, _)| id.0).collect();
        let before = news::known(&mut tx, &ids).await.map_err(StoreError::on(failed))?;
        let mut rows = Vec::with_capacity(changes.len());
        for (id, change) in changes {
            rows.extend(change_row(&mut tx, *id, change, now).await?);
        }
        news::tell_changes(&mut tx, Vec::new(), &before, now).await.map_err(StoreError::on(failed))?;
        tx.commit().await.map_err(StoreError::on(failed))?;
        Ok(readable(rows))
    }

    /// Its events stay until retention takes them; of it they hold its number, and the last one what it was.
    async fn erase_feed(&self, id: FeedId, now: Timestamp) -> Result<bool, StoreError> {
        in_transaction!(self, "erase a feed", |tx| erase_from(tx, id, now).await)
    }

    async fn erase_pages(&self, before: Timestamp, now: Timestamp) -> Result<u64, StoreError> {
        in_transaction!(self, "erase pages whose feed is known", |tx| erase_pages(tx, before, now).await)
    }

    async fn forget_validators(&self, id: FeedId) -> Result<bool, StoreError> {
        let sql = "UPDATE feeds SET etag = NULL, last_modified = NULL, validators_url = NULL, content_hash = NULL WHERE id = ?1";
        let done = sqlx::query(sql).bind(id.0).execute(&self.writer).await;
        Ok(done.map_err(StoreError::on("forget a feed's validators"))?.rows_affected() > 0)
    }

    async fn history(&self, id: FeedId) -> Result<Option<Vec<HistoryEntry>>, StoreError> {
        let ring = sqlx::query_scalar::<_, Vec<u8>>("SELECT history FROM feeds WHERE id = ?1").bind(id.0);
        let ring = ring.fetch_optional(&self.readers).await.map_err(StoreError::on("read a feed's history"))?;
        Ok(ring.map(|ring| history::read(&ring)))
    }
}

#[async_trait]
impl VersionedChanges for SqliteStore {
    async fn begin_archive(
        &self,
        id: FeedId,
        version: Version,
        archive: &ArchiveRead,
        now: Timestamp,
    ) -> Result<Option<Placement>, StoreError> {
        let begun = sqlx::query_as::<_, PlaceColumns>(include_str!("begin_archive.sql")).bind(id.0).bind(version.0);
        let begun = begun.bind(pack_archive(archive)).bind(now.millis()).fetch_optional(&self.writer).await;
        begun.map_err(StoreError::on("begin to read an archive"))?.map(Placement::try_from).transpose()
    }

    async fn move_feed(&self, id: FeedId, version: Version, to: &Move, now: Timestamp) -> Result<Moved, StoreError> {
        in_transaction!(self, "move a feed", |tx| moves::move_on(tx, id, version, to, now).await)
    }

    async fn unmove_feed(
        &self,
        id: FeedId,
        version: Version,
        back: &Unmove,
        now: Timestamp,
    ) -> Result<Unmoved, StoreError> {
        in_transaction!(self, "take back a feed's move", |tx| moves::move_back(tx, id, version, back, now).await)
    }
}

#[async_trait]
impl Wakes for SqliteStore {
    async fn wake(&self, ids: &[FeedId], at: Timestamp, now: Timestamp) -> Result<Vec<Placement>, StoreError> {
        wake_rows(self, ids, at, now, false).await
    }

    async fn wake_pinged(&self, ids: &[FeedId], at: Timestamp, now: Timestamp) -> Result<Vec<Placement>, StoreError> {
        wake_rows(self, ids, at, now, true).await
    }

    async fn feeds_of_site(&self, links: &[String], limit: u32) -> Result<Vec<Feed>, StoreError> {
        let failed = "find the feeds of a site";
        let mut ids: Vec<i64> = Vec::new();
        for link in links {
            let of_link = sqlx::query_scalar::<_, i64>(include_str!("feeds_of_site.sql")).bind(link).bind(limit);
            ids.extend(of_link.fetch_all(&self.readers).await.map_err(StoreError::on(failed))?);
        }
        ids.sort_unstable();
        ids.truncate(limit as usize);
        let ids: Vec<FeedId> = ids.into_iter().map(FeedId).collect();
        let mut feeds = self.states_for(&ids).await?;
        feeds.sort_by_key(|feed| feed.id);
        Ok(feeds)
    }
}

/// A past wake moves up to `now`, so that a fetch that began before does not answer the new wish; a future one is never
/// postponed; none comes before the end of a hold.
async fn wake_rows(
    store: &SqliteStore,
    ids: &[FeedId],
    at: Timestamp,
    now: Timestamp,
    retired_too: bool,
) -> Result<Vec<Placement>, StoreError> {
    in_transaction!(store, "wake feeds", |tx| {
        let query = sqlx::query_as::<_, PlaceColumns>(include_str!("wake.sql")).bind(id_list(ids.iter().copied()));
        let query = query.bind(at.millis()).bind(now.millis()).bind(retired_too);
        Ok(readable(query.fetch_all(tx).await?))
    })
}

/// Pages that are erased in a call.
const PAGES: i64 = 100;

/// Erases pages that known feeds took in up to `before`; leaves those to which a caller gave something. Returns how many it looked at.
async fn erase_pages(on: &mut SqliteConnection, before: Timestamp, now: Timestamp) -> Result<u64, sqlx::Error> {
    let look = sqlx::query_as(include_str!("known_pages.sql")).bind(before.millis()).bind(PAGES);
    let pages: Vec<(i64, bool)> = look.fetch_all(&mut *on).await?;
    for (id, is_plain) in &pages {
        if *is_plain {
            erase_from(on, FeedId(*id), now).await?;
        }
        sqlx::query("DELETE FROM known_pages WHERE feed_id = ?1").bind(id).execute(&mut *on).await?;
    }
    Ok(pages.len() as u64)
}

/// Erases a feed, and removes those that were merged into it.
pub(super) async fn erase_from(on: &mut SqliteConnection, id: FeedId, now: Timestamp) -> Result<bool, sqlx::Error> {
    let mut ids: Vec<i64> = sqlx::query_scalar(MERGED_WITH).bind(id.0).fetch_all(&mut *on).await?;
    ids.push(id.0);
    let before = news::known(on, &ids).await?;
    moves::leave_survivor(&mut *on, id).await?;
    sqlx::query(REMOVE_MERGED).bind(id.0).execute(&mut *on).await?;
    let erase = sqlx::query_scalar("DELETE FROM feeds WHERE id = ?1 RETURNING entries").bind(id.0);
    let entries: Option<i64> = erase.fetch_optional(&mut *on).await?;
    sqlx::query("UPDATE store SET entries = entries - ?1").bind(entries.unwrap_or(0)).execute(&mut *on).await?;
    news::tell_changes(on, Vec::new(), &before, now).await?;
    Ok(entries.is_some())
}

/// Adds at most [`CHUNK`] feeds. The same URL twice is one feed.
async fn add_chunk(on: &mut SqliteConnection, feeds: &[NewFeed], now: Timestamp) -> Result<Vec<Added>, sqlx::Error> {
    rename_logins(on, feeds).await?;
    let rows = new_rows(feeds);
    let revive = rows.clone().query(include_str!("feeds_revive.sql"));
    let mut revived: HashSet<i64> = ids(&revive.fetch_all(&mut *on).await?)?;
    let insert = rows.clone().query(include_str!("feeds_insert.sql")).bind(now.millis());
    let mut inserted: HashSet<i64> = ids(&insert.fetch_all(&mut *on).await?)?;
    let find = rows.query(include_str!("feeds_find.sql"));
    let found: Vec<i64> = ids(&find.fetch_all(&mut *on).await?)?;
    let of_hub = hub_feeds(feeds, &found, &inserted);
    if !of_hub.added.is_empty() {
        let sql = "INSERT INTO hub_feeds (feed_id, added) SELECT value, ?2 FROM json_each(?1) WHERE true ON CONFLICT DO NOTHING";
        let add = sqlx::query(sql).bind(serde_json::json!(of_hub.added).to_string()).bind(now.millis());
        add.execute(&mut *on).await?;
    }
    if !of_hub.kept.is_empty() {
        let sql = "DELETE FROM hub_feeds WHERE feed_id IN (SELECT value FROM json_each(?1))";
        sqlx::query(sql).bind(serde_json::json!(of_hub.kept).to_string()).execute(&mut *on).await?;
    }
    // Taken out of the sets, so that of a URL that comes twice only the first is answered as new.
    let answer = |id| Added { id: FeedId(id), new: inserted.remove(&id), revived: revived.remove(&id) };
    Ok(found.into_iter().map(answer).collect())
}

fn new_rows(feeds: &[NewFeed]) -> Batch {
    let mut rows = Batch::default();
    for feed in feeds {
        rows.row(|row| {
            row.text(feed.url.as_str());
            row.text(feed.host.as_str());
            row.int(i64::from(feed.audience.subscribers));
            row.int(i64::from(feed.audience.active_subscribers));
            row.int(i64::from(feed.audience.sla));
            row.int(i64::from(feed.audience.important));
            row.int(interval_millis(feed.audience));
            row.int(i64::from(feed.private));
            row.word(feed.category.as_str());
            row.int(feed.first_due.millis());
            row.bytes(added_terms(feed.first_due).as_slice());
            row.text(pack_calm(&feed.calm).as_deref());
            row.bytes(feed.credentials.as_ref().map(|credentials| &credentials.id.0[..]));
            row.bytes(feed.credentials.as_ref().map(|credentials| credentials.sealed.as_bytes()));
            row.int(i64::from(feed.by_hand));
            row.text(pack_labels(&feed.marks.labels).as_deref());
            row.text(feed.marks.external_id.as_deref());
            row.text(feed.title.as_deref());
        });
    }
    rows
}

/// Returns the first column of each row.
fn ids<Ids: FromIterator<i64>>(rows: &[SqliteRow]) -> Result<Ids, sqlx::Error> {
    rows.iter().map(|row| row.try_get(0)).collect()
}
