//! Lists of feeds in pages.

use common::feed::Feed;
use sqlx::{QueryBuilder, Sqlite};

use super::SqliteStore;
use crate::store::cursor::{self, Place};
use crate::store::{FeedQuery, FeedSort, Page, StoreError};

impl SqliteStore {
    pub(super) async fn list(&self, query: &FeedQuery) -> Result<Page<Feed>, StoreError> {
        let after = cursor::place(query)?;
        let mut sql = QueryBuilder::<Sqlite>::new("SELECT * FROM feeds WHERE true");
        filter(&mut sql, query);
        // One more than asked for tells whether there is a next page.
        order(&mut sql, query.sort, after);
        sql.push(" LIMIT ").push_bind(i64::from(query.limit) + 1);
        let rows = sql.build_query_as().fetch_all(&self.readers).await.map_err(StoreError::on("list feeds"))?;
        Ok(cursor::page(query, rows))
    }
}

fn filter(sql: &mut QueryBuilder<Sqlite>, query: &FeedQuery) {
    if let Some(text) = &query.text {
        let pattern = cursor::containing(text);
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
    let (value, id) = after.map_or((0, 0), |place| (place.value, place.id));
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
