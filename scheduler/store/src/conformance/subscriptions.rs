//! Subscriptions: their leases, and progress that only the holder of a lease makes.

use std::time::Duration;

use common::outcome::DeliveryOutcome;
use common::secrets::Sealed;

use super::*;
use crate::{
    ANONYMOUS, Advance, Delivery, DeliveryFormat, DeliveryTurn, EventFilter, EventQuery, Hub, NewSubscription,
    Progress, Subscription, SubscriptionChange, SubscriptionKind, SubscriptionState, Wish,
};

fn wish(target: &str) -> Wish {
    Wish {
        kind: SubscriptionKind::Webhook,
        target: target.into(),
        filter: EventFilter { kinds: vec!["entry.*".into()], label: Some("tech".into()), ..EventFilter::default() },
        format: DeliveryFormat::JsonFeed,
        batch: 7,
        delay: Duration::from_millis(1_500),
    }
}

async fn added(store: &dyn Store, target: &str) -> Subscription {
    let secret = Sealed::from_bytes(vec![1, 2, 3]);
    let new = NewSubscription { wish: wish(target), secret, by: "ann".into(), after: 5, hub: None };
    store.add_subscription(&new, at(1)).await.unwrap().unwrap()
}

fn turn<'a>(holder: &'a str, idle: &'a [i64]) -> DeliveryTurn<'a> {
    DeliveryTurn { holder, lasts: Duration::from_secs(60), idle }
}

/// Progress to this cursor, from the one with which a subscription was added.
async fn advance(store: &dyn Store, id: i64, revision: i64, cursor: i64) -> Advance {
    let delivery = Delivery {
        at: at(3),
        id: "msg_1".into(),
        attempt: 1,
        events: 2,
        first: 6,
        last: cursor,
        outcome: DeliveryOutcome::ServerError,
        status: Some(500),
        duration: 0.25,
        detail: "no\0".into(),
    };
    let progress =
        Progress { cursor, failures: 1, failing_since: Some(at(3)), deliveries: vec![delivery], ..Progress::default() };
    let epoch = store.events(0, 1).await.unwrap().epoch.into();
    Advance { epoch, id, revision, from: (5, 0), progress, disable: None }
}

async fn the(store: &dyn Store, id: i64) -> Subscription {
    store.subscriptions_among(&[id]).await.unwrap().remove(0)
}

pub(crate) async fn a_subscription_is_kept_changed_and_removed(backend: &dyn Backend) {
    let store = backend.open().await;
    let one = added(&*store, "https://a.example/hook").await;
    let two = added(&*store, "https://b.example/hook").await;
    assert_eq!((one.wish.clone(), one.by.as_str(), one.created), (wish("https://a.example/hook"), "ann", at(1)));
    assert_eq!((one.state, one.progress.cursor, one.revision), (SubscriptionState::Active, 5, 1));
    assert_eq!(store.subscriptions(0, 10).await.unwrap(), [one.clone(), two.clone()]);
    assert_eq!(store.subscriptions(one.id, 10).await.unwrap(), std::slice::from_ref(&two));

    let change = SubscriptionChange {
        wish: Some(Wish { batch: 1, ..one.wish.clone() }),
        state: Some(SubscriptionState::Paused),
        secret: Some((Sealed::from_bytes(vec![9]), at(100))),
        replay_after: Some(2),
        revision: 1,
        ..SubscriptionChange::default()
    };
    let changed = store.change_subscription(one.id, &change).await.unwrap().unwrap();
    assert_eq!((changed.wish.batch, changed.state), (1, SubscriptionState::Paused));
    assert_eq!((changed.progress.cursor, changed.replays, changed.revision), (2, 1, 2));
    let secrets = (changed.secret.as_bytes(), changed.old_secret.as_ref().map(|(old, until)| (old.as_bytes(), *until)));
    assert_eq!(secrets, (&[9][..], Some((&[1, 2, 3][..], at(100)))));
    assert_eq!(the(&*store, one.id).await, changed);
    assert!(matches!(store.change_subscription(one.id, &change).await, Err(StoreError::Outdated)));
    let other = Wish { filter: EventFilter::default(), ..changed.wish.clone() };
    let change = SubscriptionChange { wish: Some(other.clone()), revision: 2, ..Default::default() };
    let refiltered = store.change_subscription(one.id, &change).await.unwrap().unwrap();
    assert_eq!((refiltered.wish, refiltered.replays), (other, 2), "its next requests have other ids");
    let changed = the(&*store, one.id).await;
    assert_eq!(changed.progress.pending, 0);
    assert!(store.change_subscription(999, &change).await.unwrap().is_none());

    assert!(store.reseal_subscription(one.id, [&[1, 2, 3], &[4]]).await.unwrap());
    assert!(!store.reseal_subscription(one.id, [&[1, 2, 3], &[4]]).await.unwrap());
    assert_eq!(the(&*store, one.id).await.old_secret, Some((Sealed::from_bytes(vec![4]), at(100))));
    let mut counts = store.count_subscriptions().await.unwrap();
    counts.sort();
    let kind = SubscriptionKind::Webhook;
    let expected = [(kind, SubscriptionState::Active, false, 1), (kind, SubscriptionState::Paused, false, 1)];
    assert_eq!(counts, expected);
    assert!(store.remove_subscription(one.id).await.unwrap());
    assert!(!store.remove_subscription(one.id).await.unwrap());
    assert_eq!(store.subscriptions(0, 10).await.unwrap(), [two]);
}

pub(crate) async fn only_the_holder_of_a_lease_makes_progress(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = added(&*store, "https://a.example/hook").await.id;
    assert_eq!(store.advance_subscriptions("x", &[advance(&*store, id, 1, 9).await], at(2)).await.unwrap(), [0; 0]);
    assert_eq!(store.lease_subscriptions(&turn("x", &[])).await.unwrap().held, [(id, 1)]);
    assert_eq!(store.advance_subscriptions("y", &[advance(&*store, id, 1, 9).await], at(2)).await.unwrap(), [0; 0]);
    assert_eq!(store.advance_subscriptions("x", &[advance(&*store, id, 2, 9).await], at(2)).await.unwrap(), [0; 0]);
    assert_eq!(the(&*store, id).await.progress.cursor, 5);
    let both = [advance(&*store, id + 1, 1, 7).await, advance(&*store, id, 1, 9).await];
    assert_eq!(store.advance_subscriptions("x", &both, at(2)).await.unwrap(), [id]);
    let kept = the(&*store, id).await;
    assert_eq!((kept.progress.cursor, kept.progress.failures, kept.revision), (9, 1, 1));
    assert_eq!((kept.progress.deliveries.len(), kept.progress.failing_since), (1, Some(at(3))));
    assert!(store.count_subscriptions().await.unwrap()[0].2, "it is failing");

    let late = advance(&*store, id, 1, 7).await;
    assert_eq!(store.advance_subscriptions("x", &[late], at(2)).await.unwrap(), [0; 0], "from an older cursor");
    let next = async |revision, cursor| Advance { from: (9, 0), ..advance(&*store, id, revision, cursor).await };
    assert_eq!(store.advance_subscriptions("x", &[next(1, 9).await], at(2)).await.unwrap(), [id]);

    let resume = SubscriptionChange { state: Some(SubscriptionState::Active), revision: 1, ..Default::default() };
    store.change_subscription(id, &resume).await.unwrap();
    assert_eq!(store.advance_subscriptions("x", &[next(1, 11).await], at(2)).await.unwrap(), [0; 0]);
    assert_eq!(the(&*store, id).await.progress.failures, 0, "a person started it again");
    assert_eq!(store.lease_subscriptions(&turn("x", &[])).await.unwrap().held, [(id, 2)]);
}

/// A server that took over has the same row and fewer events.
pub(crate) async fn progress_that_was_made_in_another_epoch_is_not_stored(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = added(&*store, "https://a.example/hook").await.id;
    store.lease_subscriptions(&turn("x", &[])).await.unwrap();
    let before = advance(&*store, id, 1, 9).await;
    store.begin_epoch().await.unwrap();
    assert_eq!(store.advance_subscriptions("x", &[before], at(2)).await.unwrap(), [0; 0]);
    assert_eq!(the(&*store, id).await.progress.cursor, 5);
    let after = advance(&*store, id, 1, 9).await;
    assert_eq!(store.advance_subscriptions("x", &[after], at(2)).await.unwrap(), [id]);
}

pub(crate) async fn a_subscription_that_is_disabled_is_published_once(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = added(&*store, "https://a.example/hook").await.id;
    let share = store.lease_subscriptions(&turn("x", &[])).await.unwrap();
    assert_eq!((share.held, share.newest), (vec![(id, 1)], 0));
    assert_eq!(share.epoch, store.events(0, 1).await.unwrap().epoch);
    let end = Advance { disable: Some("it failed".into()), ..advance(&*store, id, 1, 9).await };
    assert_eq!(store.advance_subscriptions("x", std::slice::from_ref(&end), at(7)).await.unwrap(), [id]);
    assert_eq!(store.advance_subscriptions("x", &[end], at(8)).await.unwrap(), [0; 0]);
    let kept = the(&*store, id).await;
    assert_eq!((kept.state, kept.reason.as_deref()), (SubscriptionState::Disabled, Some("it failed")));
    let events = store.events(0, 10).await.unwrap().items;
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!((event.kind.as_str(), event.subscription, event.at), ("subscription.disabled", Some(id), at(7)));
    let share = store.lease_subscriptions(&turn("x", &[])).await.unwrap();
    assert_eq!((share.held, share.newest), (vec![], event.seq));
    let filter = EventFilter { kinds: vec!["subscription.*".into()], ..EventFilter::default() };
    assert!(filter.matches(event));
    assert!(!EventFilter { label: Some("tech".into()), ..filter }.matches(event), "it is of no feed");

    // Of callers with labels only those with all labels of a limited one learn of it.
    let filter = EventFilter { visible: vec!["blue".into()], ..EventFilter::default() };
    let limited = Wish { filter, ..wish("https://b.example/hook") };
    let secret = Sealed::from_bytes(vec![1, 2, 3]);
    let new = NewSubscription { wish: limited, secret, by: "ann".into(), after: 5, hub: None };
    let other = store.add_subscription(&new, at(1)).await.unwrap().unwrap().id;
    store.lease_subscriptions(&turn("x", &[])).await.unwrap();
    let end = Advance { disable: Some("it failed".into()), ..advance(&*store, other, 1, 9).await };
    assert_eq!(store.advance_subscriptions("x", &[end], at(9)).await.unwrap(), [other]);
    for (labels, expected) in [(vec![], vec![id, other]), (vec!["blue", "red"], vec![other]), (vec!["red"], vec![])] {
        let visible = labels.iter().map(|label: &&str| (*label).to_owned()).collect();
        let filter = EventFilter { visible, ..EventFilter::default() };
        let query = EventQuery { filter: filter.clone(), ..EventQuery::after(0, 10) };
        let found = store.find_events(&query).await.unwrap().items;
        assert!(found.iter().all(|event| filter.matches(event)), "{labels:?}");
        let found: Vec<i64> = found.iter().filter_map(|event| event.subscription).collect();
        assert_eq!(found, expected, "{labels:?}");
    }
}

pub(crate) async fn subscriptions_without_a_token_are_counted_by_the_host_of_their_callback(backend: &dyn Backend) {
    let store = backend.open().await;
    for (target, by) in [
        ("https://a.example/1", ANONYMOUS),
        ("http://a.example/2", ANONYMOUS),
        ("https://a.example:8443/3", ANONYMOUS),
        ("https://a.example/4", "ann"),
        ("https://a.example.org/5", ANONYMOUS),
        ("https://b.example/?https://a.example/", ANONYMOUS),
    ] {
        let hub = Some(Hub { topic: "https://f.example/".into(), until: at(60), intent: None });
        let wish = Wish { kind: SubscriptionKind::Websub, ..wish(target) };
        let new = NewSubscription { wish, secret: Sealed::from_bytes(Vec::new()), by: by.into(), after: 0, hub };
        store.add_subscription(&new, at(1)).await.unwrap().unwrap();
    }
    added(&*store, "https://a.example/hook").await;
    for (host, count) in [("a.example", 3), ("a.example.org", 1), ("b.example", 1), ("example", 0)] {
        assert_eq!(store.anonymous_subscriptions(host).await.unwrap(), count, "{host}");
    }
}
