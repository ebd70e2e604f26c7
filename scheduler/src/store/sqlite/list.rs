//! Lists of feeds in pages.
//!
//! A cursor names the last feed of the page before by its place in the order, so that a page costs the same wherever it
//! lies, and feeds that are added meanwhile neither repeat nor hide one.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::feed::Feed;
use sqlx::{QueryBuilder, Sqlite};

use super::SqliteStore;
use crate::store::row::{FeedRow, readable};
use crate::store::{FeedQuery, FeedSort, Page, StoreError};

/// Where a page ended: the feed's value in the order, and its number.
type Place = (FeedSort, i64, i64);

impl SqliteStore {
    pub(super) async fn list(&self, query: &FeedQuery) -> Result<Page<Feed>, StoreError> {
        let after = query.after.as_deref().map(|cursor| read_cursor(cursor, query.sort)).transpose()?;
        let mut sql = QueryBuilder::<Sqlite>::new("SELECT * FROM feeds WHERE true");
        filter(&mut sql, query);
        // One more than asked for tells whether there is a next page.
        order(&mut sql, query.sort, after);
        sql.push(" LIMIT ").push_bind(i64::from(query.limit) + 1);
        let mut rows: Vec<FeedRow> =
            sql.build_query_as().fetch_all(&self.readers).await.map_err(StoreError::on("list feeds"))?;
        let more = rows.len() > query.limit as usize;
        rows.truncate(query.limit as usize);
        let next =
            rows.last().filter(|_| more).map(|last| write_cursor((query.sort, value(query.sort, last), last.id())));
        Ok(Page { items: readable(rows), next })
    }
}

fn filter(sql: &mut QueryBuilder<Sqlite>, query: &FeedQuery) {
    if let Some(text) = &query.text {
        let pattern = format!("%{}%", text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_"));
        sql.push(" AND (url LIKE ").push_bind(pattern.clone()).push(r" ESCAPE '\'");
        sql.push(" OR title LIKE ").push_bind(pattern).push(r" ESCAPE '\')");
    }
    if let Some(host) = &query.host {
        sql.push(" AND host = ").push_bind(host.as_str().to_owned());
    }
    if let Some(category) = query.category {
        sql.push(" AND category = ").push_bind(category.as_str());
    }
    if let Some(status) = query.status {
        sql.push(" AND status = ").push_bind(status.as_str());
    }
    if let Some(failure) = query.failure {
        sql.push(" AND failure = ").push_bind(failure.as_str());
    }
}

/// Feeds that are never due stand at the end: `i64::MAX`.
fn order(sql: &mut QueryBuilder<Sqlite>, sort: FeedSort, after: Option<Place>) {
    let (value, id) = after.map_or((0, 0), |(_, value, id)| (value, id));
    match sort {
        FeedSort::Id => {
            sql.push(" AND id > ").push_bind(id).push(" ORDER BY id");
        }
        FeedSort::Subscribers => {
            if after.is_some() {
                sql.push(" AND (subscribers, -id) < (").push_bind(value).push(", ").push_bind(-id).push(")");
            }
            sql.push(" ORDER BY subscribers DESC, id");
        }
        FeedSort::NextDue => {
            let due = "iif(status = 'active', next_due, 9223372036854775807)";
            if after.is_some() {
                sql.push(format!(" AND ({due}, id) > (")).push_bind(value).push(", ").push_bind(id).push(")");
            }
            sql.push(format!(" ORDER BY {due}, id"));
        }
    }
}

fn value(sort: FeedSort, row: &FeedRow) -> i64 {
    match sort {
        FeedSort::Id => 0,
        FeedSort::Subscribers => row.subscribers(),
        FeedSort::NextDue => row.place_in_time(),
    }
}

fn write_cursor(place: Place) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&place).unwrap_or_default())
}

fn read_cursor(cursor: &str, sort: FeedSort) -> Result<Place, StoreError> {
    let place = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|json| serde_json::from_slice::<Place>(&json).ok());
    place.filter(|place| place.0 == sort).ok_or_else(|| StoreError::Cursor(cursor.to_owned()))
}
