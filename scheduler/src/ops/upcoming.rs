//! Lists of feeds by due time in a fleet of any size.
//!
//! No index of the store has due times, because every poll would write it; the schedule has them. So a list of more
//! feeds than the store sorts is walked along the schedule: the feeds behind the cursor, a few at a time, go through
//! the filters in the store. A page ends after [`FeedQuery::MOST_SORTED`] feeds were looked at, even with fewer feeds
//! than requested, or none: its cursor continues from there. After all that is due the store lists what is never due.
//!
//! Feeds that are being polled, or wait for a busy host, have no due time in the schedule. At most [`TAKEN`] of them
//! are looked up in the store and shown where they were due; those beyond that are listed again when they wait.

use std::collections::{HashMap, HashSet};

use common::feed::Feed;
use common::policy::Status;
use common::time::Timestamp;
use common::url::FeedId;

use crate::error::BackendError;
use crate::schedule::Schedule;
use store::cursor::{self, Position};
use store::{FeedQuery, Page, Store, StoreError, fitting, never};

/// Feeds that are claimed or parked of which a page shows those that belong there, at most.
pub const TAKEN: usize = 500;
/// How many more feeds than the last time are looked at, until the page is full.
const GROWTH: usize = 4;

type Due = (Timestamp, FeedId);

/// A page of feeds, in any order. It ends where their texts would take more than a page may.
pub async fn feeds(
    store: &dyn Store,
    schedule: &dyn Schedule,
    query: &FeedQuery,
    now: Timestamp,
) -> Result<Page<Feed>, BackendError> {
    let page = of_any_size(store, schedule, query, now).await?;
    let sizes = page.items.iter().map(|feed| i64::try_from(feed.text_bytes()).unwrap_or(i64::MAX));
    let fitting = fitting(sizes);
    if fitting == page.items.len() {
        return Ok(page);
    }
    // Read again, so that its cursor is that of the last one.
    drop(page);
    let shorter = FeedQuery { limit: u32::try_from(fitting).unwrap_or(query.limit), ..query.clone() };
    of_any_size(store, schedule, &shorter, now).await
}

async fn of_any_size(
    store: &dyn Store,
    schedule: &dyn Schedule,
    query: &FeedQuery,
    now: Timestamp,
) -> Result<Page<Feed>, BackendError> {
    match store.feeds(query).await {
        Err(StoreError::NotSorted { .. }) => {}
        page => return Ok(page?),
    }
    let after = cursor::position(query)?.filter(|place| place.value < never(Status::Active));
    let after = after.map(|place| (Timestamp::from_millis(place.value), FeedId(place.id)));
    let (mut found, end) = along(store, schedule, query, after).await?;
    let is_ahead = |one: Due, other: Due| if query.reversed { one > other } else { one < other };
    let belongs =
        |place: Due| after.is_none_or(|after| is_ahead(after, place)) && end.is_none_or(|end| !is_ahead(end, place));
    // What is taken was due.
    let nearest = if query.reversed { end } else { after };
    if nearest.is_none_or(|(at, _)| at <= now) {
        let taken = store.feeds_among(query, &schedule.taken(TAKEN).await?).await?;
        // One that was claimed in between waited a moment ago.
        let waiting: HashSet<FeedId> = found.iter().map(|(_, feed)| feed.id).collect();
        let places = taken.into_iter().filter_map(|feed| Some(((feed.due()?, feed.id), feed)));
        found.extend(places.filter(|(place, feed)| belongs(*place) && !waiting.contains(&feed.id)));
    }
    found.sort_by_key(|(place, _)| *place);
    if query.reversed {
        found.reverse();
    }
    let limit = query.limit as usize;
    let cut = (found.len() > limit).then(|| found[limit - 1].0);
    found.truncate(limit);
    let place = |(at, id): Due| Position::new(query, at.millis(), id.0);
    let next = match (cut.or(end), query.status) {
        (Some(last), _) => Some(place(last)),
        (None, None) if !query.reversed => Some(Position::new(query, never(Status::Active), 0)),
        (None, _) => None,
    };
    Ok(Page { items: found.into_iter().map(|(_, feed)| feed).collect(), next: next.map(Position::cursor) })
}

/// Feeds that wait behind a place and pass the filters: a page of them, or those among as many as may be looked at. And
/// the last one that was looked at, unless it was the last of all.
async fn along(
    store: &dyn Store,
    schedule: &dyn Schedule,
    query: &FeedQuery,
    after: Option<Due>,
) -> Result<(Vec<(Due, Feed)>, Option<Due>), BackendError> {
    let wanted = query.limit as usize + 1;
    let (mut found, mut end) = (Vec::new(), after);
    let (mut looked, mut step) = (0, wanted);
    while found.len() < wanted && looked < FeedQuery::MOST_SORTED as usize {
        step = step.min(FeedQuery::MOST_SORTED as usize - looked);
        let waiting = match query.reversed {
            false => schedule.waiting(end, step).await?,
            true => schedule.waiting_before(end, step).await?,
        };
        let ids: Vec<FeedId> = waiting.iter().map(|(_, id)| *id).collect();
        let passed = store.feeds_among(query, &ids).await?;
        let mut passed: HashMap<FeedId, Feed> = passed.into_iter().map(|feed| (feed.id, feed)).collect();
        // The schedule may still have what is polled no more.
        let live = waiting.iter().filter_map(|place| Some((*place, passed.remove(&place.1)?)));
        found.extend(live.filter(|(_, feed)| feed.status == Status::Active));
        if waiting.len() < step {
            return Ok((found, None));
        }
        looked += step;
        step *= GROWTH;
        end = waiting.last().copied();
    }
    Ok((found, end))
}
