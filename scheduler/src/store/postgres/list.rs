//! Lists of feeds in pages.

use common::feed::Feed;
use sqlx::{Connection, Executor, Postgres, QueryBuilder};

use super::PostgresStore;
use super::feeds::feed_columns;
use crate::store::cursor::{self, Place};
use crate::store::{FeedQuery, FeedSort, Page, StoreError};

impl PostgresStore {
    pub(super) async fn list(&self, query: &FeedQuery) -> Result<Page<Feed>, StoreError> {
        const ACTION: &str = "list feeds";
        let after = cursor::place(query)?;
        let mut sql = QueryBuilder::<Postgres>::new(concat!("SELECT ", feed_columns!(), " FROM feeds WHERE true"));
        filter(&mut sql, query);
        // One more than asked for tells whether there is a next page.
        order(&mut sql, query.sort, after);
        sql.push(" LIMIT ").push_bind(i64::from(query.limit) + 1);
        let mut on = self.session(ACTION).await?;
        let mut tx = on.begin().await.map_err(StoreError::on(ACTION))?;
        tx.execute(super::upkeep::WHOLE_TABLES).await.map_err(StoreError::on(ACTION))?;
        // Not kept: a plan that fits one page's values need not fit another's.
        let rows = sql.build_query_as().persistent(false).fetch_all(&mut *tx).await.map_err(StoreError::on(ACTION))?;
        tx.commit().await.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(cursor::page(query, rows))
    }
}

fn filter(sql: &mut QueryBuilder<Postgres>, query: &FeedQuery) {
    if let Some(text) = &query.text {
        let pattern = cursor::containing(&super::text(text));
        sql.push(" AND (url ILIKE ").push_bind(pattern.clone()).push(r" ESCAPE '\'");
        sql.push(" OR title ILIKE ").push_bind(pattern).push(r" ESCAPE '\')");
    }
    if let Some(host) = &query.host {
        sql.push(" AND host = ").push_bind(super::text(host.as_str()).into_owned());
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
fn order(sql: &mut QueryBuilder<Postgres>, sort: FeedSort, after: Option<Place>) {
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
            let due = "CASE WHEN status = 'active' THEN next_due ELSE 9223372036854775807 END";
            if after.is_some() {
                sql.push(format!(" AND ({due}, id) > (")).push_bind(value).push(", ").push_bind(id).push(")");
            }
            sql.push(format!(" ORDER BY {due}, id"));
        }
    }
}
