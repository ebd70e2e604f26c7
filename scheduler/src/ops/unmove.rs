//! Takes back a feed's move.

use common::feed::Feed;
use common::policy::{PollState, category, move_target};
use common::url::FeedId;

use crate::error::BackendError;
use crate::ops::Ops;
use crate::poll::subject::{new_subject, slot};
use store::{FeedRef, Unmove, Unmoved};

/// The outcome of taking a move back.
#[derive(Clone, Debug)]
pub enum TakenBack {
    /// It is where it was before.
    Done(Box<Feed>),
    /// It never moved, or was changed at the same moment.
    NotMoved,
    /// This feed has the old URL by now.
    Taken(FeedId),
}

/// Looks at a feed whose reports come in between looking and writing.
const TRIES: usize = 10;

/// Takes a feed back to where it was before it moved or was merged; the same move is not made again. `None`: there is no
/// such feed.
pub async fn unmove(ops: &Ops, id: FeedId) -> Result<Option<TakenBack>, BackendError> {
    let now = ops.clock.now();
    for _ in 0..TRIES {
        let Some(feed) = ops.store.feed(&FeedRef::Id(id)).await? else { return Ok(None) };
        let survivor = match feed.merged_into {
            Some(survivor) => ops.store.feed(&FeedRef::Id(survivor)).await?,
            None => None,
        };
        let before = match (&survivor, &feed.moved_from) {
            (Some(_), _) => feed.url.clone(),
            (None, Some(from)) => match from.parse() {
                Ok(from) => from,
                Err(_) => return Ok(Some(TakenBack::NotMoved)),
            },
            (None, None) => return Ok(Some(TakenBack::NotMoved)),
        };
        let there = survivor.map_or_else(|| feed.url.clone(), |survivor| survivor.url);
        let rules = ops.rules.get();
        let back = Unmove {
            host: rules.for_url(before.as_url()).key,
            category: category(&new_subject(&rules, &before, feed.audience, &feed.calm, feed.credentials.is_some())),
            state: PollState { declined: Some(move_target(&there)), sighting: None, ..feed.state },
        };
        match ops.store.unmove_feed(id, feed.version, &back, now).await? {
            // A report was stored meanwhile.
            Unmoved::Stale => continue,
            Unmoved::Taken(other) => return Ok(Some(TakenBack::Taken(other))),
            Unmoved::Back | Unmoved::Apart(_) => {}
        }
        let Some(feed) = ops.store.feed(&FeedRef::Id(id)).await? else { return Ok(None) };
        if let Some(due_at) = feed.due() {
            ops.schedule.put(&[slot(&rules, &feed, due_at)], now).await?;
        }
        return Ok(Some(TakenBack::Done(Box::new(feed))));
    }
    Ok(Some(TakenBack::NotMoved))
}
