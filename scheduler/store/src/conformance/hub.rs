//! Subscriptions at the WebSub hub, and the feeds that it added for them.

use common::config::HubAccess;
use common::secrets::Sealed;

use super::logins::{ring, with_login};
use super::*;
use crate::{
    DeliveryFormat, DeliveryTurn, EventFilter, Hub, HubFeed, Intent, IntentMode, Move, Moved, NewSubscription, Stray,
    StrayQuery, Subscription, SubscriptionChange, SubscriptionKind, SubscriptionState, Wish,
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
    wish.filter.feed = Some(add(&*store, "https://a.org/").await);
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
    let mut nowhere = wish.clone();
    nowhere.filter.feed = Some(FeedId(7_000));
    let nowhere = SubscriptionChange { wish: Some(nowhere), revision: 2, ..SubscriptionChange::default() };
    let refused = store.change_subscription(one.id, &nowhere).await;
    assert!(matches!(refused, Err(StoreError::Outdated)), "a feed that was released meanwhile: {refused:?}");
    assert_eq!(store.hub_subscription(TOPIC, "https://s.org/1").await.unwrap(), Some(changed));

    assert!(!store.end_subscription(one.id, 1).await.unwrap(), "somebody changed it");
    assert!(store.end_subscription(one.id, 2).await.unwrap());
    assert!(!store.end_subscription(one.id, 2).await.unwrap());
    assert_eq!(store.subscriptions(0, 10).await.unwrap(), [two]);
}

/// Has the subscriber verified for a renewal.
async fn renewing(store: &dyn Store, of: &Subscription) -> Subscription {
    asked(store, of, IntentMode::Subscribe).await
}

/// Has the subscriber of a confirmed subscription verified.
async fn asked(store: &dyn Store, of: &Subscription, mode: IntentMode) -> Subscription {
    let asked = Intent { is_first: false, mode, ..intent() };
    let hub = of.hub.clone().map(|hub| Hub { intent: Some(asked), ..hub });
    let change = SubscriptionChange { hub, revision: of.revision, ..SubscriptionChange::default() };
    store.change_subscription(of.id, &change).await.unwrap().unwrap()
}

pub(crate) async fn a_subscription_ends_with_its_lease_unless_its_renewal_is_being_confirmed(backend: &dyn Backend) {
    let store = backend.open().await;
    let renewing = renewing(&*store, &added(&*store, "https://s.org/1", None, at(60)).await).await;
    let first = added(&*store, "https://s.org/3", None, at(30)).await;
    assert_eq!(store.unconfirmed_callbacks().await.unwrap(), ["https://s.org/3"]);
    assert_eq!(store.expire_subscriptions(at(30)).await.unwrap(), 1, "a first request has its own time only");
    assert!(store.unconfirmed_callbacks().await.unwrap().is_empty() && first.id > renewing.id);
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
        let mut found = store.hub_feeds(at(1)).await.unwrap();
        found.sort_by_key(|found| found.feed);
        found
    };
    assert_eq!(store.hub_feeds(at(0)).await.unwrap(), [], "their subscriptions are about to name them");
    assert_eq!((store.hub_additions(at(0)).await.unwrap(), store.hub_additions(at(1)).await.unwrap()), (2, 0));
    assert_eq!(found().await, [counted(ids[0], 0), counted(ids[1], 0)]);
    // A feed that is added has one subscriber.
    let one = added(&*store, "https://s.org/1", Some(ids[0]), at(60)).await;
    assert_eq!(found().await, [counted(ids[0], 0), counted(ids[1], 0)], "a first request is not counted");
    confirm(&*store, &one).await;
    assert_eq!(found().await, [counted(ids[1], 0)]);
    let two = confirm(&*store, &added(&*store, "https://s.org/2", Some(ids[0]), at(60)).await).await;
    added(&*store, "https://s.org/3", Some(known), at(60)).await;
    assert_eq!(found().await, [counted(ids[0], 2), counted(ids[1], 0)]);
    assert!(store.end_subscription(two.id, 2).await.unwrap());
    assert!(store.erase_feed(ids[1], at(9_000)).await.unwrap());
    assert_eq!(found().await, []);
    store.expire_subscriptions(at(9_999)).await.unwrap();
    assert_eq!(found().await, [counted(ids[0], 0)]);
    add(&*store, "https://a.org/").await;
    assert_eq!(found().await, [], "it is somebody else's too");
}

/// Merges a feed into the one with this URL.
async fn merge(store: &dyn Store, id: FeedId, into: &str) {
    let of = feed(store, id).await;
    let NewFeed { url, host, .. } = new_feed(into);
    let to = Move { url, host, category: Category::D, same: true, others: Vec::new() };
    assert!(matches!(store.move_feed(id, of.version, &to, at(2)).await.unwrap(), Moved::Into(_)));
}

pub(crate) async fn a_feed_is_released_only_while_nobody_wants_it(backend: &dyn Backend) {
    let store = backend.open().await;
    let of_hub = async |url: &str| {
        let feeds = [NewFeed { hub: true, ..new_feed(url) }];
        store.add_feeds(&feeds, at(1)).await.unwrap()[0].id
    };
    let [one, two, three] =
        [of_hub("https://a.org/").await, of_hub("https://b.org/").await, of_hub("https://c.org/").await];
    let own = add(&*store, "https://own.org/").await;
    assert!(!store.release_hub_feed(own, at(9_000)).await.unwrap(), "the hub did not add it");

    // Listed, and then subscribed to again.
    assert_eq!(store.hub_feeds(at(9)).await.unwrap().len(), 3);
    let wanted = confirm(&*store, &added(&*store, "https://s.org/1", Some(one), at(60)).await).await;
    assert!(!store.release_hub_feed(one, at(9_000)).await.unwrap(), "it has a subscription");
    add(&*store, "https://b.org/").await;
    assert!(!store.release_hub_feed(two, at(9_000)).await.unwrap(), "somebody else added it");
    assert!(store.release_hub_feed(three, at(9_000)).await.unwrap());
    assert!(!store.release_hub_feed(three, at(9_000)).await.unwrap());

    // A merged feed stays while its survivor has subscriptions: the merge can be taken back.
    merge(&*store, one, "https://b.org/").await;
    assert!(!store.release_hub_feed(one, at(9_000)).await.unwrap(), "its subscription did not follow yet");
    let mut wish = wanted.wish.clone();
    wish.filter.feed = Some(two);
    let follow = SubscriptionChange { wish: Some(wish), revision: wanted.revision, ..SubscriptionChange::default() };
    store.change_subscription(wanted.id, &follow).await.unwrap().unwrap();
    assert!(!store.release_hub_feed(one, at(9_000)).await.unwrap());
    assert_eq!(store.hub_feeds(at(9)).await.unwrap(), []);
    assert!(store.end_subscription(wanted.id, 3).await.unwrap());
    assert!(store.release_hub_feed(one, at(9_000)).await.unwrap());
}

pub(crate) async fn a_feed_that_others_merge_into_is_not_released(backend: &dyn Backend) {
    let store = backend.open().await;
    let of_hub = async |url: &str| {
        let feeds = [NewFeed { hub: true, ..new_feed(url) }];
        store.add_feeds(&feeds, at(1)).await.unwrap()[0].id
    };
    let (own, survivor) = (add(&*store, "https://own.org/").await, of_hub("https://a.org/").await);
    merge(&*store, own, "https://a.org/").await;
    assert_eq!(store.hub_feeds(at(9)).await.unwrap(), [], "it is the operator's now, and so are its subscribers");
    assert!(!store.release_hub_feed(survivor, at(9_000)).await.unwrap());

    let (one, two) = (of_hub("https://b.org/").await, of_hub("https://c.org/").await);
    merge(&*store, one, "https://c.org/").await;
    assert!(!store.release_hub_feed(two, at(9_000)).await.unwrap(), "another feed is merged into it");
    assert_eq!(store.hub_feeds(at(9)).await.unwrap(), [HubFeed { feed: one, subscriptions: 0 }]);
    assert!(
        store.release_hub_feed(one, at(9_000)).await.unwrap() && store.release_hub_feed(two, at(9_000)).await.unwrap()
    );
}

pub(crate) async fn subscriptions_that_nobody_may_have_any_more_are_found(backend: &dyn Backend) {
    let store = backend.open().await;
    let private = NewFeed { private: true, ..new_feed("https://p.org/") };
    let with_credentials = with_login("https://l.org/", "ann", &ring(1, &[]));
    let hidden = store.add_feeds(&[private, with_credentials], at(1)).await.unwrap();
    let public = add(&*store, "https://a.org/").await;
    let mut ids = Vec::new();
    for feed in [hidden[0].id, hidden[1].id, public] {
        for by in ["hub", "reader"] {
            let callback = format!("https://s.org/{}", ids.len());
            let new = NewSubscription { by: by.into(), ..new(&callback, Some(feed), at(60)) };
            let added = store.add_subscription(&new, at(1)).await.unwrap().unwrap();
            ids.push(confirm(&*store, &added).await.id);
        }
    }
    for (access, expected) in [
        (HubAccess::Open, vec![ids[0], ids[2]]),
        (HubAccess::Known, vec![ids[0], ids[2]]),
        (HubAccess::Token, vec![ids[0], ids[2], ids[4]]),
        (HubAccess::Off, ids.clone()),
    ] {
        let query = |after| StrayQuery { after, access };
        let found: Vec<i64> = store.stray_subscriptions(query(0)).await.unwrap().iter().map(|stray| stray.id).collect();
        assert_eq!(found, expected, "{access}");
        assert_eq!(store.stray_subscriptions(query(*expected.last().unwrap())).await.unwrap(), []);
    }
}

pub(crate) async fn a_disabled_subscription_is_leased_while_its_subscriber_is_asked(backend: &dyn Backend) {
    let store = backend.open().await;
    let one = confirm(&*store, &added(&*store, "https://s.org/1", None, at(60)).await).await;
    let disable = SubscriptionChange {
        state: Some(SubscriptionState::Disabled),
        revision: one.revision,
        ..SubscriptionChange::default()
    };
    let disabled = store.change_subscription(one.id, &disable).await.unwrap().unwrap();
    let turn = DeliveryTurn { holder: "one", lasts: Duration::from_secs(60), idle: &[] };
    let held = async || store.lease_subscriptions(&turn).await.unwrap().held;
    assert_eq!(held().await, []);
    let asked = renewing(&*store, &disabled).await;
    assert_eq!((asked.state, held().await), (SubscriptionState::Disabled, vec![(one.id, asked.revision)]));

    // One that is paused only while its subscriber is asked whether it ends.
    let pause = SubscriptionChange {
        state: Some(SubscriptionState::Paused),
        revision: asked.revision,
        ..SubscriptionChange::default()
    };
    let paused = store.change_subscription(one.id, &pause).await.unwrap().unwrap();
    assert_eq!(held().await, []);
    let leaving = self::asked(&*store, &paused, IntentMode::Unsubscribe).await;
    assert_eq!((leaving.state, held().await), (SubscriptionState::Paused, vec![(one.id, leaving.revision)]));
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
    assert!(store.erase_feed(one, at(9_000)).await.unwrap());
    merge(&*store, two, "https://c.org/").await;
    let query = StrayQuery { after: 0, access: HubAccess::Open };
    assert_eq!(store.stray_subscriptions(query).await.unwrap(), [], "they are not confirmed yet");
    for subscription in &subscriptions {
        confirm(&*store, subscription).await;
    }
    let strays = [
        Stray { id: subscriptions[0].id, merged_into: None },
        Stray { id: subscriptions[1].id, merged_into: Some(three) },
    ];
    assert_eq!(store.stray_subscriptions(query).await.unwrap(), strays);
}
