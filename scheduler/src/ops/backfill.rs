//! Requests that the fleet fetches the older entries of a feed.

use common::archive::ArchiveRead;
use common::feed::Feed;
use common::policy::Status;
use common::time::Timestamp;
use common::url::FeedId;

use super::{Ops, TRIES};
use crate::error::BackendError;
use crate::poll::subject::placement_slot;
use store::{FeedRef, StoreError};

/// The outcome of the request.
#[derive(Debug)]
pub enum Backfill {
    /// It began.
    Begun(Box<Feed>),
    /// The feed is not polled.
    NotPolled(Box<Feed>),
    /// Its document links to no older entries on its own host.
    NoArchive(Box<Feed>),
    /// `policy.archive_pages` is 0.
    Off,
}

/// Has the entries of a feed read that are dated `since` or later, page by page, as far as it links to them. `None`: there is
/// no such feed.
pub async fn backfill(ops: &Ops, id: FeedId, since: Timestamp) -> Result<Option<Backfill>, BackendError> {
    if ops.condition.config.get().policy.archive_pages == 0 {
        return Ok(Some(Backfill::Off));
    }
    for _ in 0..TRIES {
        let now = ops.clock.now();
        let Some(feed) = ops.store.feed(&FeedRef::Id(id)).await? else { return Ok(None) };
        let Some(poll_due) = feed.poll_due().filter(|_| feed.status == Status::Active) else {
            return Ok(Some(Backfill::NotPolled(Box::new(feed))));
        };
        let wished = ArchiveRead::wished(feed.archive.as_ref(), &feed.url, &feed.onward, since, poll_due);
        let Some(archive) = wished else {
            return Ok(Some(Backfill::NoArchive(Box::new(feed))));
        };
        if let Some(place) = ops.store.begin_archive(id, feed.version, &archive, now).await? {
            ops.schedule.lower(&[placement_slot(&place)], now).await?;
            let feed = ops.store.feed(&FeedRef::Id(id)).await?;
            return Ok(feed.map(|feed| Backfill::Begun(Box::new(feed))));
        }
    }
    Err(StoreError::Outdated.into())
}
