//! Deliveries and pushes. No simulated feed announces a hub, and nobody subscribes.

use async_trait::async_trait;
use common::secrets::Sealed;
use common::time::Timestamp;
use common::url::FeedId;
use store::{
    Advance, Deliveries, DeliveryShare, DeliveryTurn, HubFeed, HubSubscriptions, NewSubscription, OwedPace, PushCount,
    PushHeard, PushLosses, PushSubscription, PushUpkeep, PushWish, Pushes, StoreError, Stray, StrayQuery, Subscribed,
    Subscription, SubscriptionChange, SubscriptionCount, Subscriptions, Unpushed,
};

use super::SeenStore;
use crate::blocking::run;

#[async_trait]
impl Subscriptions for SeenStore {
    async fn add_subscription(
        &self,
        new: &NewSubscription,
        now: Timestamp,
    ) -> Result<Option<Subscription>, StoreError> {
        run(self.server.current().add_subscription(new, now))
    }

    async fn subscriptions(&self, after: i64, limit: u32) -> Result<Vec<Subscription>, StoreError> {
        run(self.server.current().subscriptions(after, limit))
    }

    async fn subscriptions_among(&self, ids: &[i64]) -> Result<Vec<Subscription>, StoreError> {
        run(self.server.current().subscriptions_among(ids))
    }

    async fn change_subscription(
        &self,
        id: i64,
        change: &SubscriptionChange,
    ) -> Result<Option<Subscription>, StoreError> {
        run(self.server.current().change_subscription(id, change))
    }

    async fn remove_subscription(&self, id: i64) -> Result<bool, StoreError> {
        run(self.server.current().remove_subscription(id))
    }

    async fn end_subscription(&self, id: i64, revision: i64) -> Result<bool, StoreError> {
        run(self.server.current().end_subscription(id, revision))
    }

    async fn reseal_subscription(&self, id: i64, sealed: [&[u8]; 2]) -> Result<bool, StoreError> {
        run(self.server.current().reseal_subscription(id, sealed))
    }
}

#[async_trait]
impl HubSubscriptions for SeenStore {
    async fn hub_subscription(&self, topic: &str, callback: &str) -> Result<Option<Subscription>, StoreError> {
        run(self.server.current().hub_subscription(topic, callback))
    }

    async fn expire_subscriptions(&self, now: Timestamp) -> Result<u64, StoreError> {
        run(self.server.current().expire_subscriptions(now))
    }

    async fn hub_feeds(&self, added_before: Timestamp) -> Result<Vec<HubFeed>, StoreError> {
        run(self.server.current().hub_feeds(added_before))
    }

    async fn release_hub_feed(&self, id: FeedId, now: Timestamp) -> Result<bool, StoreError> {
        run(self.server.current().release_hub_feed(id, now))
    }

    async fn hub_additions(&self, since: Timestamp) -> Result<u64, StoreError> {
        run(self.server.current().hub_additions(since))
    }

    async fn unconfirmed_callbacks(&self) -> Result<Vec<String>, StoreError> {
        run(self.server.current().unconfirmed_callbacks())
    }

    async fn anonymous_subscriptions(&self, host: &str) -> Result<u64, StoreError> {
        run(self.server.current().anonymous_subscriptions(host))
    }

    async fn stray_subscriptions(&self, query: StrayQuery) -> Result<Vec<Stray>, StoreError> {
        run(self.server.current().stray_subscriptions(query))
    }
}

#[async_trait]
impl Deliveries for SeenStore {
    async fn lease_subscriptions(&self, turn: &DeliveryTurn<'_>) -> Result<DeliveryShare, StoreError> {
        run(self.server.current().lease_subscriptions(turn))
    }

    async fn advance_subscriptions(
        &self,
        holder: &str,
        advances: &[Advance],
        now: Timestamp,
    ) -> Result<Vec<i64>, StoreError> {
        run(self.server.current().advance_subscriptions(holder, advances, now))
    }

    async fn count_subscriptions(&self) -> Result<Vec<SubscriptionCount>, StoreError> {
        run(self.server.current().count_subscriptions())
    }
}

#[async_trait]
impl Pushes for SeenStore {
    async fn want_pushes(&self, wishes: &[PushWish], now: Timestamp) -> Result<u64, StoreError> {
        let wishes = wishes.to_vec();
        self.call("want_pushes", move |store| run(store.want_pushes(&wishes, now))).await
    }

    async fn push(&self, id: &str) -> Result<Option<PushSubscription>, StoreError> {
        run(self.server.current().push(id))
    }

    async fn pushes_of(&self, feeds: &[FeedId]) -> Result<Vec<PushSubscription>, StoreError> {
        run(self.server.current().pushes_of(feeds))
    }

    async fn push_hosts(&self, now: Timestamp, until: Timestamp, limit: u32) -> Result<Vec<String>, StoreError> {
        run(self.server.current().push_hosts(now, until, limit))
    }

    async fn push_due(&self, host: &str, now: Timestamp, limit: u32) -> Result<Vec<PushSubscription>, StoreError> {
        run(self.server.current().push_due(host, now, limit))
    }

    async fn free_push_host(&self, host: &str, not_before: Option<Timestamp>) -> Result<(), StoreError> {
        run(self.server.current().free_push_host(host, not_before))
    }

    async fn store_push(&self, changed: &PushSubscription) -> Result<bool, StoreError> {
        run(self.server.current().store_push(changed))
    }

    async fn remove_push(&self, id: &str, revision: i64) -> Result<bool, StoreError> {
        run(self.server.current().remove_push(id, revision))
    }
}

#[async_trait]
impl PushLosses for SeenStore {
    async fn heard_pushes(&self, heard: &[PushHeard]) -> Result<(), StoreError> {
        run(self.server.current().heard_pushes(heard))
    }

    async fn await_push(&self, feed: FeedId, at: Timestamp) -> Result<(), StoreError> {
        run(self.server.current().await_push(feed, at))
    }

    async fn lost_pushes(&self, before: Timestamp, limit: u32) -> Result<Vec<FeedId>, StoreError> {
        run(self.server.current().lost_pushes(before, limit))
    }

    async fn forget_lost_pushes(&self, feeds: &[FeedId], before: Timestamp) -> Result<(), StoreError> {
        run(self.server.current().forget_lost_pushes(feeds, before))
    }

    async fn owed_paces(&self, limit: u32) -> Result<Vec<OwedPace>, StoreError> {
        run(self.server.current().owed_paces(limit))
    }

    async fn paces_restored(&self, of: &[OwedPace]) -> Result<(), StoreError> {
        run(self.server.current().paces_restored(of))
    }
}

#[async_trait]
impl PushUpkeep for SeenStore {
    async fn forget_left_pushes(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        run(self.server.current().forget_left_pushes(before, limit))
    }

    async fn subscribed(&self, after: FeedId, limit: u32) -> Result<Vec<Subscribed>, StoreError> {
        run(self.server.current().subscribed(after, limit))
    }

    async fn unpushed(&self, after: FeedId, limit: u32) -> Result<Vec<Unpushed>, StoreError> {
        run(self.server.current().unpushed(after, limit))
    }

    async fn push_secrets(&self, after: &str, limit: u32) -> Result<Vec<(String, Sealed)>, StoreError> {
        run(self.server.current().push_secrets(after, limit))
    }

    async fn reseal_push(&self, id: &str, sealed: [&[u8]; 2]) -> Result<bool, StoreError> {
        run(self.server.current().reseal_push(id, sealed))
    }

    async fn count_pushes(&self) -> Result<Vec<PushCount>, StoreError> {
        run(self.server.current().count_pushes())
    }
}
