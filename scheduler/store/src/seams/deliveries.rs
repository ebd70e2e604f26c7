//! The seams of deliveries: subscriptions, those at the hub, and who delivers to them.

use async_trait::async_trait;
use common::time::Timestamp;
use common::url::FeedId;

use crate::{
    Advance, DeliveryShare, DeliveryTurn, HubFeed, NewSubscription, StoreError, Stray, StrayQuery, Subscription,
    SubscriptionChange, SubscriptionCount,
};

/// Subscriptions, and the leases under which schedulers deliver to them.
#[async_trait]
pub trait Subscriptions: Send + Sync {
    /// Adds a subscription. `None`, and nothing added, when there are
    /// [`MOST_SUBSCRIPTIONS`](crate::subscriptions::MOST_SUBSCRIPTIONS) already, or one of the same topic and callback.
    async fn add_subscription(&self, new: &NewSubscription, now: Timestamp)
    -> Result<Option<Subscription>, StoreError>;

    /// Subscriptions by number, after `after`, at most `limit`.
    async fn subscriptions(&self, after: i64, limit: u32) -> Result<Vec<Subscription>, StoreError>;

    /// Those of these numbers that there are, by number.
    async fn subscriptions_among(&self, ids: &[i64]) -> Result<Vec<Subscription>, StoreError>;

    /// Changes a subscription; returns it as it is afterwards, or `None` when there is none. [`StoreError::Outdated`]: it has
    /// another revision by now.
    async fn change_subscription(
        &self,
        id: i64,
        change: &SubscriptionChange,
    ) -> Result<Option<Subscription>, StoreError>;

    /// Removes a subscription; false when there is none.
    async fn remove_subscription(&self, id: i64) -> Result<bool, StoreError>;

    /// Removes a subscription unless it has another revision by now; false when it has, or there is none.
    async fn end_subscription(&self, id: i64, revision: i64) -> Result<bool, StoreError>;

    /// Replaces a secret of a subscription, if it still is the first of these, by the second.
    async fn reseal_subscription(&self, id: i64, sealed: [&[u8]; 2]) -> Result<bool, StoreError>;
}

/// Subscriptions at the hub, and the feeds that they added.
#[async_trait]
pub trait HubSubscriptions: Send + Sync {
    /// The subscription of a callback to a topic, at the hub.
    async fn hub_subscription(&self, topic: &str, callback: &str) -> Result<Option<Subscription>, StoreError>;

    /// Removes the subscriptions at the hub whose lease has ended, but for those whose renewal is being confirmed: these have
    /// an hour for that. First requests have no more time than their own. Returns the number of subscriptions.
    async fn expire_subscriptions(&self, now: Timestamp) -> Result<u64, StoreError>;

    /// Returns up to 500 feeds that the hub added: those that can be released and were added before this time, and those whose
    /// number of subscribers is not the number of their confirmed subscriptions. Merged feeds are kept, and not counted, while
    /// their survivor has subscriptions.
    async fn hub_feeds(&self, added_before: Timestamp) -> Result<Vec<HubFeed>, StoreError>;

    /// Erases a feed if only the hub wants it: the hub added it, no other caller did since, no confirmed subscription
    /// names it or the feed that it was merged into, and no feed is merged into it. False otherwise.
    async fn release_hub_feed(&self, id: FeedId, now: Timestamp) -> Result<bool, StoreError>;

    /// Returns the number of feeds that the hub added after this time and that still are its own.
    async fn hub_additions(&self, since: Timestamp) -> Result<u64, StoreError>;

    /// Returns the callbacks of up to 1,000 first requests without a token that are not confirmed.
    async fn unconfirmed_callbacks(&self) -> Result<Vec<String>, StoreError>;

    /// Returns the number of subscriptions at the hub without a token, confirmed or not, that have callbacks on this host: as URLs
    /// name it, on any port.
    async fn anonymous_subscriptions(&self, host: &str) -> Result<u64, StoreError>;

    /// Returns up to 500 confirmed subscriptions at the hub, by number, whose feed was merged, removed or erased, is
    /// gone, or may not be delivered to them, and whose subscriber was not notified.
    async fn stray_subscriptions(&self, query: StrayQuery) -> Result<Vec<Stray>, StoreError>;
}

/// The leases under which schedulers deliver to subscriptions.
#[async_trait]
pub trait Deliveries: Send + Sync {
    /// Renews this process's lease by the database's clock, and takes its share of the active subscriptions.
    async fn lease_subscriptions(&self, turn: &DeliveryTurn<'_>) -> Result<DeliveryShare, StoreError>;

    /// Stores progress in one transaction; returns the subscriptions of which it was stored: those that `holder` still
    /// holds, that were not changed or removed meanwhile, and of which no other process stored progress meanwhile.
    async fn advance_subscriptions(
        &self,
        holder: &str,
        advances: &[Advance],
        now: Timestamp,
    ) -> Result<Vec<i64>, StoreError>;

    /// Counts subscriptions.
    async fn count_subscriptions(&self) -> Result<Vec<SubscriptionCount>, StoreError>;
}
