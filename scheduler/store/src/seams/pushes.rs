//! The seams of push subscriptions.

use async_trait::async_trait;
use common::secrets::Sealed;
use common::time::Timestamp;
use common::url::FeedId;

use crate::{OwedPace, PushCount, PushHeard, PushSubscription, PushWish, StoreError, Subscribed, Unpushed};

/// Push subscriptions: this fleet's requests to hubs and clouds.
#[async_trait]
pub trait Pushes: Send + Sync {
    /// Synchronises subscriptions with what feeds announce. A subscription with another hub or topic than wanted is
    /// left ([`PushState::Unsubscribing`](common::push::PushState)), and a wanted one that is not there is created;
    /// both are due now. Returns how many changed.
    async fn want_pushes(&self, wishes: &[PushWish], now: Timestamp) -> Result<u64, StoreError>;

    /// The subscription with this id.
    async fn push(&self, id: &str) -> Result<Option<PushSubscription>, StoreError>;

    /// The subscriptions of these feeds that are not being left.
    async fn pushes_of(&self, feeds: &[FeedId]) -> Result<Vec<PushSubscription>, StoreError>;

    /// At most `limit` hosts of hubs that have something due by `now` and that no process holds. They are held until `until`.
    async fn push_hosts(&self, now: Timestamp, until: Timestamp, limit: u32) -> Result<Vec<String>, StoreError>;

    /// At most `limit` subscriptions at a host that are due by `now`, renewals before new requests.
    async fn push_due(&self, host: &str, now: Timestamp, limit: u32) -> Result<Vec<PushSubscription>, StoreError>;

    /// Lets other processes take a host again when something is due there; new requests not before `not_before`.
    async fn free_push_host(&self, host: &str, not_before: Option<Timestamp>) -> Result<(), StoreError>;

    /// Stores a changed subscription, all but its counters, if it still has this revision; returns whether it had.
    async fn store_push(&self, changed: &PushSubscription) -> Result<bool, StoreError>;

    /// Removes a subscription of this revision, unless its feed is owed its own pace; returns whether it did.
    async fn remove_push(&self, id: &str, revision: i64) -> Result<bool, StoreError>;
}

/// Pushes that arrived, and those that were lost.
#[async_trait]
pub trait PushLosses: Send + Sync {
    /// Counts pushes that arrived.
    async fn heard_pushes(&self, heard: &[PushHeard]) -> Result<(), StoreError>;

    /// Notes that a delivery for a feed was accepted: until it is counted ([`heard_pushes`](Self::heard_pushes)), it may be lost.
    async fn await_push(&self, feed: FeedId, at: Timestamp) -> Result<(), StoreError>;

    /// At most `limit` feeds of which deliveries were accepted before `before`, the last one too, and not all were counted.
    async fn lost_pushes(&self, before: Timestamp, limit: u32) -> Result<Vec<FeedId>, StoreError>;

    /// Expects nothing more of these feeds' deliveries that were accepted before `before`.
    async fn forget_lost_pushes(&self, feeds: &[FeedId], before: Timestamp) -> Result<(), StoreError>;

    /// At most `limit` feeds that are to get their own pace back, because their subscription ended or their pushes missed something.
    async fn owed_paces(&self, limit: u32) -> Result<Vec<OwedPace>, StoreError>;

    /// Notes that these feeds have their own pace, unless they are owed it once more by now.
    async fn paces_restored(&self, of: &[OwedPace]) -> Result<(), StoreError>;
}

/// What the rounds over all push subscriptions read and remove.
#[async_trait]
pub trait PushUpkeep: Send + Sync {
    /// Removes at most `limit` subscriptions that are being left since before `before`. Returns how many.
    async fn forget_left_pushes(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError>;

    /// Feeds after `after` with a subscription that is not being left, by number, at most `limit`.
    async fn subscribed(&self, after: FeedId, limit: u32) -> Result<Vec<Subscribed>, StoreError>;

    /// Feeds after `after` that announce a hub or a cloud and have no subscription, by number, at most `limit`.
    async fn unpushed(&self, after: FeedId, limit: u32) -> Result<Vec<Unpushed>, StoreError>;

    /// Ids and secrets of the subscriptions that have one, by id, after `after`, at most `limit`.
    async fn push_secrets(&self, after: &str, limit: u32) -> Result<Vec<(String, Sealed)>, StoreError>;

    /// Replaces the secret of a subscription, if it still is the first of these, by the second.
    async fn reseal_push(&self, id: &str, sealed: [&[u8]; 2]) -> Result<bool, StoreError>;

    /// Counts subscriptions.
    async fn count_pushes(&self) -> Result<Vec<PushCount>, StoreError>;
}
