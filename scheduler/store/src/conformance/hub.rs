//! Subscriptions at the WebSub hub, and the feeds that it added for them.

use common::secrets::Sealed;

use super::*;
use crate::{
    DeliveryFormat, EventFilter, Hub, HubFeed, Intent, IntentMode, Move, NewSubscription, Stray, Subscription,
    SubscriptionChange, SubscriptionKind, SubscriptionState, Wish,
};

const TOPIC: &str = "https://a.org/feed?b=1";

fn intent() -> Intent {
    let secret = Some(Sealed::from_bytes(vec![1, 2]));
    Intent { mode: IntentMode::Subscribe, is_first: true, lease: 60, secret, ..Intent::denied("") }
}

fn new(callback: &str, feed: Option<FeedId>, until: Timestamp) -> NewSubscription {
    let kinds = vec!["entry.new".to_owned()];
    NewSubscription {
        wish: Wish {
            kind: SubscriptionKind::Websub,
            target: callback.into(),
            filter: EventFilter { kinds, feed, ..EventFilter::default() },
            format: DeliveryFormat::Atom,
            batch: 100,
            delay: Duration::ZERO,
        },
        secret: Sealed::from_bytes(Vec::new()),
        by: "hub".into(),
        after: 3,
        hub: Some(Hub { topic: TOPIC.into(), until, intent: Some(intent()) }),
    }
}

async fn added(store: &dyn Store, callback: &str, feed: Option<FeedId>, until: Timestamp) -> Subscription {
    store.add_subscription(&new(callback, feed, until), at(1)).await.unwrap().unwrap()
}

/// Confirms a subscription.
async fn confirm(store: &dyn Store, of: &Subscription) -> Subscription {
    let hub = of.hub.clone().map(|hub| Hub { intent: None, ..hub });
    let change = SubscriptionChange { hub, revision: of.revision, ..SubscriptionChange::default() };
    store.change_subscription(of.id, &change).await.unwrap().unwrap()
}

pub(crate) async fn a_callback_has_one_subscription_to_a_topic(backend: &dyn Backend) {
    let store = backend.open().await;
    let one = added(&*store, "https://s.org/1", None, at(60)).await;
    assert_eq!(one.hub, Some(Hub { topic: TOPIC.into(), until: at(60), intent: Some(intent()) }));
    assert!(store.add_subscription(&new("https://s.org/1", None, at(70)), at(2)).await.unwrap().is_none());
    let two = added(&*store, "https://s.org/2", None, at(60)).await;
    assert_eq!(store.hub_subscription(TOPIC, "https://s.org/1").await.unwrap(), Some(one.clone()));
    assert_eq!(store.hub_subscription(TOPIC, "https://s.org/3").await.unwrap(), None);

    let mut wish = one.wish.clone();
    wish.filter.feed = Some(FeedId(7));
    let change = SubscriptionChange {
        wish: Some(wish.clone()),
        state: Some(SubscriptionState::Active),
        secret: Some((Sealed::from_bytes(vec![9]), at(0))),
        hub: Some(Hub { topic: TOPIC.into(), until: at(99), intent: None }),
        revision: 1,
        ..SubscriptionChange::default()
    };
    let changed = store.change_subscription(one.id, &change).await.unwrap().unwrap();
    assert_eq!((&changed.wish, changed.old_secret.is_none()), (&wish, true), "there is no rotation at the hub");
    assert_eq!(changed.hub, Some(Hub { topic: TOPIC.into(), until: at(99), intent: None }));
    assert_eq!(store.hub_subscription(TOPIC, "https://s.org/1").await.unwrap(), Some(changed));

    assert!(!store.end_subscription(one.id, 1).await.unwrap(), "somebody changed it");
    assert!(store.end_subscription(one.id, 2).await.unwrap());
    assert!(!store.end_subscription(one.id, 2).await.unwrap());
    assert_eq!(store.subscriptions(0, 10).await.unwrap(), [two]);
}

pub(crate) async fn a_subscription_ends_with_its_lease_unless_its_renewal_is_being_confirmed(backend: &dyn Backend) {
    let store = backend.open().await;
    let renewing = added(&*store, "https://s.org/1", None, at(60)).await;
    let confirmed = confirm(&*store, &added(&*store, "https://s.org/2", None, at(60)).await).await;
    assert_eq!(store.expire_subscriptions(at(59)).await.unwrap(), 0);
    assert_eq!(store.expire_subscriptions(at(60)).await.unwrap(), 1);
    assert_eq!(store.subscriptions(0, 10).await.unwrap(), std::slice::from_ref(&renewing));
    assert!(confirmed.id > renewing.id);
    assert_eq!(store.expire_subscriptions(at(60 + 3599)).await.unwrap(), 0);
    assert_eq!(store.expire_subscriptions(at(60 + 3600)).await.unwrap(), 1);
}

pub(crate) async fn feeds_that_only_the_hub_wants_are_counted_until_somebody_else_adds_them(backend: &dyn Backend) {
    let store = backend.open().await;
    let of_hub = |url: &str| NewFeed { hub: true, ..new_feed(url) };
    let known = add(&*store, "https://known.org/").await;
    let feeds = [of_hub("https://a.org/"), of_hub("https://b.org/"), of_hub("https://known.org/")];
    let ids: Vec<FeedId> = store.add_feeds(&feeds, at(1)).await.unwrap().iter().map(|added| added.id).collect();
    assert_eq!(ids[2], known);
    let counted = |feed, subscriptions| HubFeed { feed, subscriptions };
    let found = async || {
        let mut found = store.hub_feeds().await.unwrap();
        found.sort_by_key(|found| found.feed);
        found
    };
    assert_eq!(found().await, [counted(ids[0], 0), counted(ids[1], 0)]);
    // A feed that is added has one subscriber.
    added(&*store, "https://s.org/1", Some(ids[0]), at(60)).await;
    assert_eq!(found().await, [counted(ids[1], 0)]);
    let two = added(&*store, "https://s.org/2", Some(ids[0]), at(60)).await;
    added(&*store, "https://s.org/3", Some(known), at(60)).await;
    assert_eq!(found().await, [counted(ids[0], 2), counted(ids[1], 0)]);
    assert!(store.end_subscription(two.id, 1).await.unwrap());
    assert!(store.erase_feed(ids[1]).await.unwrap());
    assert_eq!(found().await, []);
    store.expire_subscriptions(at(9_999)).await.unwrap();
    assert_eq!(found().await, [counted(ids[0], 0)]);
    add(&*store, "https://a.org/").await;
    assert_eq!(found().await, [], "it is somebody else's too");
}

pub(crate) async fn subscriptions_whose_feed_is_gone_or_merged_are_found(backend: &dyn Backend) {
    let store = backend.open().await;
    let [one, two, three] = [
        add(&*store, "https://a.org/").await,
        add(&*store, "https://b.org/").await,
        add(&*store, "https://c.org/").await,
    ];
    let mut subscriptions = Vec::new();
    for (number, feed) in [one, two, three].into_iter().enumerate() {
        subscriptions.push(added(&*store, &format!("https://s.org/{number}"), Some(feed), at(60)).await);
    }
    assert!(store.erase_feed(one).await.unwrap());
    let of = feed(&*store, two).await;
    let NewFeed { url, host, .. } = new_feed("https://c.org/");
    let to = Move { url, host, category: Category::D, same: true, others: Vec::new() };
    store.move_feed(two, of.version, &to, at(2)).await.unwrap();
    assert_eq!(store.stray_subscriptions().await.unwrap(), [], "they are not confirmed yet");
    for subscription in &subscriptions {
        confirm(&*store, subscription).await;
    }
    let strays = [
        Stray { id: subscriptions[0].id, merged_into: None },
        Stray { id: subscriptions[1].id, merged_into: Some(three) },
    ];
    assert_eq!(store.stray_subscriptions().await.unwrap(), strays);
}
