//! Cursors of lists of feeds.
//!
//! A cursor names the last feed of the page before by its place in the order, so that a page costs the same wherever it
//! lies, and feeds that are added meanwhile neither repeat nor hide one.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::feed::Feed;
use serde::{Deserialize, Serialize};

use super::row::{FeedRow, readable};
use super::{FeedQuery, FeedSort, Page, StoreError};

/// Where a page ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Place {
    sort: FeedSort,
    /// The feed's value in the order.
    pub(super) value: i64,
    /// The feed's number.
    pub(super) id: i64,
}

/// The place that the query's cursor names.
pub(super) fn place(query: &FeedQuery) -> Result<Option<Place>, StoreError> {
    let Some(cursor) = &query.after else { return Ok(None) };
    let place = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|json| serde_json::from_slice::<Place>(&json).ok());
    let place = place.filter(|place| place.sort == query.sort);
    place.map(Some).ok_or_else(|| StoreError::Cursor(cursor.clone()))
}

/// The page that these rows make, of which there is one more than asked for when there is a next page.
pub(super) fn page(query: &FeedQuery, mut rows: Vec<FeedRow>) -> Page<Feed> {
    let more = rows.len() > query.limit as usize;
    rows.truncate(query.limit as usize);
    let next = rows.last().filter(|_| more).map(|last| {
        let value = match query.sort {
            FeedSort::Id => 0,
            FeedSort::Subscribers => last.subscribers(),
            FeedSort::NextDue => last.place_in_time(),
        };
        let place = Place { sort: query.sort, value, id: last.id() };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&place).unwrap_or_default())
    });
    Page { items: readable(rows), next }
}

/// A pattern for LIKE with `\` as its escape: everything that contains `text`.
pub(super) fn containing(text: &str) -> String {
    format!("%{}%", text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_"))
}
