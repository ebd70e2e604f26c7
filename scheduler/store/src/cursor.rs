//! Cursors of lists of feeds.
//!
//! A cursor names the last feed of the page before by its position in the order, so that a page costs the same wherever
//! it is, and feeds that are added meanwhile neither repeat nor hide one.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::feed::Feed;
use serde::{Deserialize, Serialize};

use super::row::{FeedRow, readable};
use super::{FeedQuery, FeedSort, Page, StoreError};

/// Where a page ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Position {
    sort: FeedSort,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    reversed: bool,
    /// The feed's value in the order.
    pub value: i64,
    /// The feed's number.
    pub id: i64,
}

/// The position that the query's cursor names.
pub fn position(query: &FeedQuery) -> Result<Option<Position>, StoreError> {
    let Some(cursor) = &query.after else { return Ok(None) };
    let position = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|json| serde_json::from_slice::<Position>(&json).ok());
    let is_of_list = |position: &Position| (position.sort, position.reversed) == (query.sort, query.reversed);
    let position = position.filter(is_of_list);
    position.map(Some).ok_or_else(|| StoreError::Cursor(cursor.clone()))
}

impl Position {
    /// The position of a feed in the order of a query.
    pub fn new(query: &FeedQuery, value: i64, id: i64) -> Self {
        Position { sort: query.sort, reversed: query.reversed, value, id }
    }

    /// Returns the cursor that names this position.
    pub fn cursor(self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&self).unwrap_or_default())
    }

    fn of(row: &FeedRow, query: &FeedQuery) -> Self {
        let value = match query.sort {
            FeedSort::Id => 0,
            FeedSort::Subscribers => row.subscribers(),
            FeedSort::NextDue => row.due_order(),
            FeedSort::Category => row.category_order(),
            FeedSort::LastPolled => row.polled_order(),
        };
        Position::new(query, value, row.id())
    }
}

/// Returns the page that these rows make. There is one row more than requested when there is a next page. A page that
/// is not full continues behind `looked_at`.
pub(super) fn page(query: &FeedQuery, mut rows: Vec<FeedRow>, looked_at: Option<Position>) -> Page<Feed> {
    let more = rows.len() > query.limit as usize;
    rows.truncate(query.limit as usize);
    let last = rows.last().filter(|_| more).map(|last| Position::of(last, query));
    Page { items: readable(rows), next: last.or(looked_at).map(Position::cursor) }
}

/// A pattern for LIKE with `\` as its escape: everything that contains `text`.
pub(super) fn containing(text: &str) -> String {
    format!("%{}%", text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_"))
}
