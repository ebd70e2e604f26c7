//! What the hub does beside its subscribers' requests: leases end, feeds of which nobody wants more are released, and subscribers
//! learn that their feed is gone. Every scheduler does it; a step that another one did already changes nothing.

use std::sync::Arc;
use std::time::Duration;

use common::policy::Audience;
use common::url::FeedId;
use tokio_util::sync::CancellationToken;

use crate::condition::failure_log::FailureLog;
use crate::error::BackendError;
use crate::ops::{AudienceEdit, EditFeed, Ops};
use store::{FeedRef, Hub, Intent, StoreError, Stray, SubscriptionChange};

/// Between two rounds.
const EVERY: Duration = Duration::from_secs(5);
const GONE: &str = "the feed is no longer polled here";

/// Tends the hub until stopped.
pub(super) async fn tend(ops: &Arc<Ops>, stop: &CancellationToken) {
    let mut tending = FailureLog::new("tending the hub's subscriptions");
    while !stop.is_cancelled() {
        tending.note(round(ops).await);
        stop.run_until_cancelled(tokio::time::sleep(EVERY)).await;
    }
}

/// Does what is to be done now.
pub(super) async fn round(ops: &Ops) -> Result<(), BackendError> {
    ops.store.expire_subscriptions(ops.clock.now()).await?;
    for stray in ops.store.stray_subscriptions().await? {
        match follow(ops, &stray).await {
            Err(StoreError::Outdated) => {}
            followed => followed?,
        }
    }
    for found in ops.store.hub_feeds().await? {
        match found.subscriptions {
            0 => release(ops, found.feed).await?,
            subscribers => count(ops, found.feed, subscribers).await?,
        }
    }
    Ok(())
}

/// Follows a feed to the one that it turned out to be, or tells the subscriber that it is gone.
async fn follow(ops: &Ops, stray: &Stray) -> Result<(), StoreError> {
    let Some(found) = ops.subscription(stray.id).await? else { return Ok(()) };
    let Some(hub) = &found.hub else { return Ok(()) };
    let change = match stray.merged_into {
        Some(feed) => {
            let mut wish = found.wish.clone();
            wish.filter.feed = Some(feed);
            SubscriptionChange { wish: Some(wish), ..SubscriptionChange::default() }
        }
        None => {
            let hub = Hub { intent: Some(Intent::denied(GONE)), ..hub.clone() };
            SubscriptionChange { hub: Some(hub), ..SubscriptionChange::default() }
        }
    };
    let change = SubscriptionChange { revision: found.revision, ..change };
    ops.store.change_subscription(found.id, &change).await.map(drop)
}

/// Erases a feed that only the hub wanted.
async fn release(ops: &Ops, feed: FeedId) -> Result<(), BackendError> {
    tracing::info!(%feed, "the last subscriber of the hub left; erasing the feed that was added for it");
    ops.erase(feed).await?;
    Ok(())
}

/// Has a feed polled as that number of subscribers wants it.
async fn count(ops: &Ops, id: FeedId, subscribers: u32) -> Result<(), BackendError> {
    let Some(feed) = ops.feed(&FeedRef::Id(id)).await? else { return Ok(()) };
    let audience = Audience { subscribers, active_subscribers: subscribers, ..feed.audience };
    let audience = AudienceEdit::between(feed.audience, audience);
    ops.edit(id, &EditFeed { audience, ..EditFeed::default() }).await?;
    Ok(())
}
