//! Feeds: what people do to them, how they move, and how they are read.

use std::collections::HashSet;

use async_trait::async_trait;
use common::archive::ArchiveRead;
use common::feed::Feed;
use common::policy::Status;
use common::secrets::Credentials;
use common::time::Timestamp;
use common::url::{FeedId, Version};
use sqlx::{Connection, PgConnection};

use super::connection::{in_transaction, on_connection};
use super::urls::lock_urls;
use super::{PostgresStore, column, list, moves, news, numbers};
use crate::columns::{CHUNK, added_terms, feed_changes, interval_millis, pack_archive, pack_calm, pack_labels};
use crate::hub::hub_feeds;
use crate::listing;
use crate::moves::{MERGED_WITH, REMOVE_MERGED};
use crate::news::{News, ids_of_new};
use crate::row::{FeedRow, PlaceColumns, feed_columns, push_column, readable};
use crate::{
    Added, FeedChange, FeedQuery, FeedRef, Feeds, HistoryEntry, Move, Moved, NewFeed, Page, Placement, Polls,
    StoreError, Unmove, Unmoved, VersionedChanges, Wakes, history,
};

feed_changes!(PgConnection, concat!(include_str!("feed_change.sql"), " RETURNING ", feed_columns!()));

#[async_trait]
impl Feeds for PostgresStore {
    async fn add_feeds(&self, feeds: &[NewFeed], now: Timestamp) -> Result<Vec<Added>, StoreError> {
        in_transaction!(self, "add feeds", |tx| {
            lock_urls(&mut *tx).await?;
            let mut added = Vec::with_capacity(feeds.len());
            for chunk in feeds.chunks(CHUNK) {
                added.extend(add_chunk(&mut *tx, chunk, now).await?);
            }
            news::tell(tx, &News::added(ids_of_new(&added)), now).await?;
            Ok(added)
        })
    }

    async fn feed(&self, which: &FeedRef) -> Result<Option<Feed>, StoreError> {
        const BY_ID: &str = concat!("SELECT ", feed_columns!(), ", ", push_column!(), " FROM feeds WHERE id = $1");
        const BY_URL: &str = concat!(
            "SELECT ",
            feed_columns!(),
            ", ",
            push_column!(),
            " FROM feeds WHERE url_digest = sha256(convert_to($1, 'UTF8')) AND credentials = ''"
        );
        let row = on_connection!(self, "read a feed", |on| {
            let query = match which {
                FeedRef::Id(id) => sqlx::query_as::<_, FeedRow>(BY_ID).bind(id.0),
                FeedRef::Url(url) => sqlx::query_as(BY_URL).bind(url.as_str()),
            };
            query.fetch_optional(on).await
        });
        row?.map(Feed::try_from).transpose()
    }

    async fn feeds(&self, query: &FeedQuery) -> Result<Page<Feed>, StoreError> {
        let list = || list::view(self, query, async |view, query| listing::list(view, query).await);
        self.call(list::ACTION, list).await
    }

    async fn feeds_among(&self, query: &FeedQuery, ids: &[FeedId]) -> Result<Vec<Feed>, StoreError> {
        let list = || {
            let ids = ids.iter().map(|id| id.0).collect();
            list::view(self, query, async |view, query| listing::among(view, query, ids).await)
        };
        self.call(list::ACTION, list).await
    }

    async fn change_feed(&self, id: FeedId, change: &FeedChange, now: Timestamp) -> Result<Option<Feed>, StoreError> {
        const ACTION: &str = "change a feed";
        let changes = [(id, change)];
        let rows = self.call(ACTION, || change_rows(self, ACTION, &changes, now)).await?;
        rows.into_iter().next().map(Feed::try_from).transpose()
    }

    /// Rows are locked in the order of their numbers, as everywhere.
    async fn change_feeds(&self, changes: &[(FeedId, FeedChange)], now: Timestamp) -> Result<Vec<Feed>, StoreError> {
        const ACTION: &str = "change feeds";
        let mut in_order: Vec<(FeedId, &FeedChange)> = changes.iter().map(|(id, change)| (*id, change)).collect();
        in_order.sort_by_key(|(id, _)| *id);
        Ok(readable(self.call(ACTION, || change_rows(self, ACTION, &in_order, now)).await?))
    }

    /// Its events stay until retention takes them; of it they hold its number, and the last one what it was.
    async fn erase_feed(&self, id: FeedId, now: Timestamp) -> Result<bool, StoreError> {
        in_transaction!(self, "erase a feed", |tx| {
            // Until it is erased, no feed is merged into it.
            lock_urls(&mut *tx).await?;
            erase_from(tx, id, now).await
        })
    }

    async fn erase_pages(&self, before: Timestamp, now: Timestamp) -> Result<u64, StoreError> {
        in_transaction!(self, "erase pages whose feed is known", |tx| erase_pages(tx, before, now).await)
    }

    async fn forget_validators(&self, id: FeedId) -> Result<bool, StoreError> {
        on_connection!(self, "forget a feed's validators", |on| {
            let sql = "UPDATE feeds SET etag = NULL, last_modified = NULL, validators_url = NULL, content_hash = NULL \
                       WHERE id = $1";
            Ok(sqlx::query(sql).bind(id.0).execute(on).await?.rows_affected() > 0)
        })
    }

    async fn history(&self, id: FeedId) -> Result<Option<Vec<HistoryEntry>>, StoreError> {
        on_connection!(self, "read a feed's history", |on| {
            let query = sqlx::query_scalar::<_, Vec<u8>>("SELECT history FROM feeds WHERE id = $1").bind(id.0);
            Ok(query.fetch_optional(on).await?.map(|ring| history::read(&ring)))
        })
    }
}

#[async_trait]
impl VersionedChanges for PostgresStore {
    async fn begin_archive(
        &self,
        id: FeedId,
        version: Version,
        archive: &ArchiveRead,
        now: Timestamp,
    ) -> Result<Option<Placement>, StoreError> {
        let begun = on_connection!(self, "begin to read an archive", |on| {
            let begun = sqlx::query_as::<_, PlaceColumns>(include_str!("begin_archive.sql"));
            let begun = begun.bind(id.0).bind(version.0).bind(pack_archive(archive)).bind(now.millis());
            begun.fetch_optional(on).await
        })?;
        begun.map(Placement::try_from).transpose()
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
impl Wakes for PostgresStore {
    async fn wake(&self, ids: &[FeedId], at: Timestamp, now: Timestamp) -> Result<Vec<Placement>, StoreError> {
        wake_rows(self, ids, at, now, false).await
    }

    async fn wake_pinged(&self, ids: &[FeedId], at: Timestamp, now: Timestamp) -> Result<Vec<Placement>, StoreError> {
        wake_rows(self, ids, at, now, true).await
    }

    async fn feeds_of_site(&self, links: &[String], limit: u32) -> Result<Vec<Feed>, StoreError> {
        let ids: Vec<i64> = on_connection!(self, "find the feeds of a site", |on| {
            let query = sqlx::query_scalar(include_str!("feeds_of_site.sql")).bind(links).bind(i64::from(limit));
            query.fetch_all(on).await
        })?;
        let ids: Vec<FeedId> = ids.into_iter().map(FeedId).collect();
        let mut feeds = self.states_for(&ids).await?;
        feeds.sort_by_key(|feed| feed.id);
        Ok(feeds)
    }
}

/// Changes feeds, which are in the order of their numbers, in one transaction.
async fn change_rows(
    store: &PostgresStore,
    action: &'static str,
    changes: &[(FeedId, &FeedChange)],
    now: Timestamp,
) -> Result<Vec<FeedRow>, StoreError> {
    let mut on = store.acquire(action).await?;
    let mut tx = on.begin().await.map_err(StoreError::on(action))?;
    let before = news::known(&mut tx, &numbers(changes.iter().map(|(id, _)| *id))).await;
    let before = before.map_err(StoreError::on(action))?;
    let mut rows = Vec::with_capacity(changes.len());
    for (id, change) in changes {
        rows.extend(change_row(&mut tx, *id, change, now).await?);
    }
    news::tell_changes(&mut tx, Vec::new(), &before, now).await.map_err(StoreError::on(action))?;
    tx.commit().await.map_err(StoreError::on(action))?;
    on.keep();
    Ok(rows)
}

/// A past wake moves up to `now`, so that a fetch that began before does not answer the new wish; a future one is never
/// postponed; none comes before the end of a hold.
async fn wake_rows(
    store: &PostgresStore,
    ids: &[FeedId],
    at: Timestamp,
    now: Timestamp,
    retired_too: bool,
) -> Result<Vec<Placement>, StoreError> {
    on_connection!(store, "wake feeds", |on| {
        let query = sqlx::query_as::<_, PlaceColumns>(include_str!("wake.sql"));
        let query = query.bind(numbers(ids.iter().copied())).bind(at.millis()).bind(now.millis()).bind(retired_too);
        Ok(readable(query.fetch_all(on).await?))
    })
}

/// Adds at most [`CHUNK`] feeds. The same URL twice is one feed.
async fn add_chunk(on: &mut PgConnection, feeds: &[NewFeed], now: Timestamp) -> Result<Vec<Added>, sqlx::Error> {
    rename_logins(on, feeds).await?;
    let urls = column(feeds, |feed| feed.url.as_str());
    let logins = column(feeds, |feed| feed.credentials.as_ref().map_or(&[][..], |login| &login.id.0[..]));
    let insert = sqlx::query_scalar(include_str!("feeds_insert.sql"))
        .bind(now.millis())
        .bind(&urls)
        .bind(column(feeds, |feed| feed.host.as_str()))
        .bind(column(feeds, |feed| i64::from(feed.audience.subscribers)))
        .bind(column(feeds, |feed| i64::from(feed.audience.active_subscribers)))
        .bind(column(feeds, |feed| feed.audience.sla))
        .bind(column(feeds, |feed| feed.audience.important))
        .bind(column(feeds, |feed| interval_millis(feed.audience)))
        .bind(column(feeds, |feed| feed.private))
        .bind(column(feeds, |feed| feed.category.as_str()))
        .bind(column(feeds, |feed| feed.first_due.millis()))
        .bind(column(feeds, |feed| added_terms(feed.first_due)))
        .bind(column(feeds, |feed| pack_calm(&feed.calm)))
        .bind(&logins)
        .bind(column(feeds, |feed| feed.credentials.as_ref().map(|login| login.sealed.as_bytes())))
        .bind(column(feeds, |feed| feed.by_hand))
        .bind(column(feeds, |feed| pack_labels(&feed.marks.labels)))
        .bind(column(feeds, |feed| feed.marks.external_id.as_deref()))
        .bind(column(feeds, |feed| feed.title.as_deref()));
    let mut inserted: HashSet<i64> = insert.fetch_all(&mut *on).await?.into_iter().collect();
    let find = sqlx::query_as(include_str!("feeds_find.sql")).bind(&urls).bind(&logins);
    let found: Vec<(Option<i64>, Option<String>)> = find.fetch_all(&mut *on).await?;
    let mut revived = revive(on, feeds, &found).await?;
    // None: erased in this very moment.
    let ids: Option<Vec<i64>> = found.into_iter().map(|(id, _)| id).collect();
    let ids = ids.ok_or(sqlx::Error::RowNotFound)?;
    let of_hub = hub_feeds(feeds, &ids, &inserted);
    if !of_hub.added.is_empty() {
        let sql = "INSERT INTO hub_feeds (feed_id, added) SELECT DISTINCT UNNEST($1::bigint[]), $2::bigint ON CONFLICT DO NOTHING";
        sqlx::query(sql).bind(of_hub.added).bind(now.millis()).execute(&mut *on).await?;
    }
    if !of_hub.kept.is_empty() {
        let sql = "DELETE FROM hub_feeds WHERE feed_id = ANY ($1)";
        sqlx::query(sql).bind(of_hub.kept).execute(&mut *on).await?;
    }
    // Taken out of the sets, so that of a URL that comes twice only the first is answered as new.
    let answer = |id| Added { id: FeedId(id), new: inserted.remove(&id), revived: revived.remove(&id) };
    Ok(ids.into_iter().map(answer).collect())
}

/// Reactivates those of the found feeds that are not polled any more; returns which.
async fn revive(
    on: &mut PgConnection,
    feeds: &[NewFeed],
    found: &[(Option<i64>, Option<String>)],
) -> Result<HashSet<i64>, sqlx::Error> {
    // Of those that are merged the statement takes only the ones whose survivor is gone.
    let live = [Status::Active, Status::Paused].map(Status::as_str);
    let retired = |(feed, (id, status)): (_, &(Option<i64>, Option<String>))| {
        (*id).filter(|_| status.as_deref().is_some_and(|status| !live.contains(&status))).map(|id| (id, feed))
    };
    let mut retired: Vec<(i64, &NewFeed)> = feeds.iter().zip(found).filter_map(retired).collect();
    if retired.is_empty() {
        return Ok(HashSet::new());
    }
    retired.sort_by_key(|(id, _)| *id);
    let revive = sqlx::query_scalar(include_str!("feeds_revive.sql"))
        .bind(column(&retired, |(id, _)| *id))
        .bind(column(&retired, |(_, feed)| feed.first_due.millis()))
        .bind(column(&retired, |(_, feed)| added_terms(feed.first_due)))
        .bind(column(&retired, |(_, feed)| feed.by_hand));
    Ok(revive.fetch_all(on).await?.into_iter().collect())
}

/// Pages that are erased in a call.
const PAGES: i64 = 100;

/// Erases pages that known feeds took in up to `before`; leaves those to which a caller gave something. Returns how many it looked at.
async fn erase_pages(on: &mut PgConnection, before: Timestamp, now: Timestamp) -> Result<u64, sqlx::Error> {
    lock_urls(&mut *on).await?;
    let look = sqlx::query_as(include_str!("known_pages.sql")).bind(before.millis()).bind(PAGES);
    let pages: Vec<(i64, bool)> = look.fetch_all(&mut *on).await?;
    let looked: Vec<i64> = pages.iter().map(|(id, _)| *id).collect();
    let plain: Vec<i64> = pages.iter().filter(|(_, is_plain)| *is_plain).map(|(id, _)| *id).collect();
    sqlx::query("DELETE FROM known_pages WHERE feed_id = ANY ($1)").bind(looked).execute(&mut *on).await?;
    erase_all(on, &plain, now).await?;
    Ok(pages.len() as u64)
}

/// Erases a feed, and removes those that were merged into it. The caller holds the lock of URLs.
pub(super) async fn erase_from(on: &mut PgConnection, id: FeedId, now: Timestamp) -> Result<bool, sqlx::Error> {
    Ok(erase_all(on, &[id.0], now).await? > 0)
}

/// Erases feeds, and removes those that were merged into them; returns how many were there. The caller holds the lock of URLs. The
/// rows of all feeds are locked by number before anything is written, and the row of `store` once they are erased: in between
/// another transaction that has it may want a feed's row.
async fn erase_all(on: &mut PgConnection, feeds: &[i64], now: Timestamp) -> Result<usize, sqlx::Error> {
    let mut ids = feeds.to_vec();
    for id in feeds {
        let merged: Vec<i64> = sqlx::query_scalar(MERGED_WITH).bind(*id).fetch_all(&mut *on).await?;
        ids.extend(merged);
    }
    let before = news::known(on, &ids).await?;
    let mut entries: Vec<i64> = Vec::new();
    for id in feeds {
        entries.extend(erase_one(on, FeedId(*id)).await?);
    }
    if entries.is_empty() {
        return Ok(0);
    }
    let gone: i64 = entries.iter().sum();
    sqlx::query("UPDATE store SET entries = entries - $1").bind(gone).execute(&mut *on).await?;
    news::tell_changes(on, Vec::new(), &before, now).await?;
    Ok(entries.len())
}

/// Erases a feed whose row is locked; returns how many entries it had, or `None` when there is no such feed.
async fn erase_one(on: &mut PgConnection, id: FeedId) -> Result<Option<i64>, sqlx::Error> {
    moves::leave_survivor(&mut *on, id).await?;
    sqlx::query(REMOVE_MERGED).bind(id.0).execute(&mut *on).await?;
    let erase = sqlx::query_scalar("DELETE FROM feeds WHERE id = $1 RETURNING entries").bind(id.0);
    let entries: Option<i64> = erase.fetch_optional(&mut *on).await?;
    if entries.is_some() {
        sqlx::query("DELETE FROM entry_identities WHERE feed_id = $1").bind(id.0).execute(&mut *on).await?;
        sqlx::query("DELETE FROM entries WHERE feed_id = $1").bind(id.0).execute(&mut *on).await?;
    }
    Ok(entries)
}
