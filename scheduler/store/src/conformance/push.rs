//! Push subscriptions: one for each feed, acted on by one process at a time.

use common::push::{PushKind, PushState, RELIABLE_AFTER};
use common::secrets::Sealed;

use super::*;
use crate::{NewPush, PushHeard, PushSubscription, PushWish};

fn wish(feed: FeedId, id: &str, hub: &str) -> PushWish {
    let wanted = NewPush {
        id: id.to_owned(),
        kind: PushKind::WebSub,
        hub: hub.to_owned(),
        topic: "https://a.example/feed".to_owned(),
        secret: Some(Sealed::from_bytes(vec![1, 2])),
    };
    PushWish { feed, wanted: Some(wanted) }
}

async fn the(store: &dyn Store, id: &str) -> PushSubscription {
    store.push(id).await.unwrap().expect("the subscription exists")
}

fn heard(feed: FeedId, seconds: u64, light: bool) -> PushHeard {
    PushHeard { feed, at: at(seconds), light, counts: true, announced: true }
}

pub(crate) async fn a_feed_has_one_push_subscription_and_leaves_the_one_before(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.example/feed").await;
    assert_eq!(store.want_pushes(&[wish(id, "a", "https://hub.example/")], at(1)).await.unwrap(), 1);
    let one = the(&*store, "a").await;
    assert_eq!(
        (one.state, one.act_at, one.revision, &*one.hub),
        (PushState::Pending, at(1), 1, "https://hub.example/")
    );
    assert_eq!(one.secret, Some(Sealed::from_bytes(vec![1, 2])));
    let again = store.want_pushes(&[wish(id, "b", "https://hub.example/")], at(2)).await.unwrap();
    assert_eq!((again, store.push("b").await.unwrap()), (0, None), "the same one is not created again");

    assert_eq!(store.want_pushes(&[wish(id, "c", "https://other.example/")], at(3)).await.unwrap(), 2);
    let (left, now) = (the(&*store, "a").await, the(&*store, "c").await);
    assert_eq!((left.state, left.act_at, now.state), (PushState::Unsubscribing, at(3), PushState::Pending));
    assert_eq!(store.pushes_of(&[id]).await.unwrap(), [now]);
    store.want_pushes(&[PushWish { feed: id, wanted: None }], at(4)).await.unwrap();
    assert!(store.pushes_of(&[id]).await.unwrap().is_empty());
    assert_eq!(feed(&*store, id).await.push, None);
    assert_eq!(store.count_pushes().await.unwrap(), [(PushKind::WebSub, PushState::Unsubscribing, 2)]);
}

pub(crate) async fn a_push_subscription_is_due_once_and_changes_from_its_revision(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.example/feed").await;
    store.want_pushes(&[wish(id, "a", "https://hub.example/")], at(5)).await.unwrap();
    assert!(store.push_due(at(4), at(60), 10).await.unwrap().is_empty());
    let due = store.push_due(at(5), at(60), 10).await.unwrap();
    assert_eq!(due.len(), 1);
    assert!(store.push_due(at(59), at(90), 10).await.unwrap().is_empty(), "another process acts on it");
    assert_eq!(store.push_due(at(60), at(90), 10).await.unwrap().len(), 1, "and died");

    let verified = PushSubscription {
        state: PushState::Verified,
        lease_until: Some(at(1000)),
        act_at: at(500),
        asked_at: None,
        failures: 3,
        reason: Some("no\u{1}".to_owned()),
        secret: None,
        ..due[0].clone()
    };
    assert!(store.store_push(&verified).await.unwrap());
    assert_eq!(the(&*store, "a").await, PushSubscription { revision: 2, ..verified.clone() });
    assert!(!store.store_push(&verified).await.unwrap(), "made from an older revision");
    assert!(!store.remove_push("a", 1).await.unwrap() && store.remove_push("a", 2).await.unwrap());
}

pub(crate) async fn a_feed_says_how_reliable_its_pushes_are(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.example/feed").await;
    store.want_pushes(&[wish(id, "a", "https://hub.example/a b")], at(1)).await.unwrap();
    let verified =
        PushSubscription { state: PushState::Verified, lease_until: Some(at(99)), ..the(&*store, "a").await };
    assert!(store.store_push(&verified).await.unwrap());
    let pushes: Vec<PushHeard> = (0..RELIABLE_AFTER).map(|n| heard(id, 10 + u64::from(n), n == 2)).collect();
    store.heard_pushes(&pushes).await.unwrap();
    for feed in [feed(&*store, id).await, store.states_for(&[id]).await.unwrap().remove(0)] {
        let push = feed.push.unwrap();
        assert!(push.is_reliable());
        assert_eq!((&*push.topic, push.deliveries), ("https://a.example/feed", u64::from(RELIABLE_AFTER)));
        assert_eq!(
            (&*push.hub, push.lease_until, push.light_at),
            ("https://hub.example/a b", Some(at(99)), Some(at(12)))
        );
        assert_eq!(push.heard_at, Some(at(9 + u64::from(RELIABLE_AFTER))));
    }
    store.missed_pushes(&[id]).await.unwrap();
    let row = the(&*store, "a").await;
    assert_eq!((row.announced, row.missed, row.deliveries), (0, 1, u64::from(RELIABLE_AFTER)));
    assert!(!feed(&*store, id).await.push.unwrap().is_reliable());
}

pub(crate) async fn feeds_that_end_leave_their_hubs_and_feeds_with_hubs_are_found(backend: &dyn Backend) {
    let store = backend.open().await;
    let mut ids = Vec::new();
    for name in ["erased", "paused", "removed", "plain", "hub"] {
        ids.push(add(&*store, &format!("https://{name}.example/feed")).await);
    }
    let wishes: Vec<PushWish> = ids[..3].iter().map(|id| wish(*id, &id.to_string(), "https://hub.example/")).collect();
    store.want_pushes(&wishes, at(1)).await.unwrap();
    for (id, status) in [(ids[1], Status::Paused), (ids[2], Status::Removed)] {
        let change = FeedChange { status: Some(status), ..FeedChange::default() };
        store.change_feed(id, &change, at(2)).await.unwrap();
    }
    assert!(store.erase_feed(ids[0]).await.unwrap());
    assert_eq!(store.leave_pushes(at(3), 10).await.unwrap(), 2);
    let mut states = Vec::new();
    for id in &ids[..3] {
        states.push(the(&*store, &id.to_string()).await.state);
    }
    assert_eq!(states, [PushState::Unsubscribing, PushState::Pending, PushState::Unsubscribing]);

    let announcing = Document { hub: Some("https://hub.example/".to_owned()), ..document(vec![entry("1", "one")]) };
    poll(&*store, ids[4], 4, Outcome::Modified(Box::new(announcing))).await;
    let unpushed = store.unpushed(FeedId(0), 10).await.unwrap();
    assert_eq!(unpushed.iter().map(|feed| FeedId(feed.id)).collect::<Vec<_>>(), [ids[4]]);
    assert_eq!((unpushed[0].hub.as_deref(), unpushed[0].private), (Some("https://hub.example/"), false));
    assert!(store.unpushed(ids[4], 10).await.unwrap().is_empty());
}

pub(crate) async fn a_push_adds_entries_and_changes_nothing_of_the_polls(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.example/feed").await;
    poll(&*store, id, 1, modified(vec![entry("1", "one")])).await;
    let before = feed(&*store, id).await;
    let known = store.jobs_for(&[id]).await.unwrap()[0].known.clone();
    let mut pushed = verdict_on(&before, 5, modified(vec![entry("2", "two"), entry("1", "one")]));
    (pushed.report.pushed, pushed.report.version) = (true, Version(0));
    pushed.decision.next_due = None;
    assert_eq!(new_entries(&apply(&*store, &[pushed.clone()], 5).await[0]), (1, 0));
    assert_eq!(new_entries(&apply(&*store, &[pushed.clone()], 6).await[0]), (0, 0), "a delivery that is repeated");
    let newest = store.latest_seq().await.unwrap();
    pushed.report.outcome = modified(vec![entry("1", "an older form, perhaps")]);
    assert_eq!(new_entries(&apply(&*store, &[pushed], 7).await[0]), (0, 0), "polls alone know which form is newer");
    assert_eq!(store.latest_seq().await.unwrap(), newest, "no update is published");
    let after = feed(&*store, id).await;
    assert_eq!(after, Feed { entries: 2, over_quota: after.over_quota, ..before });
    assert_eq!(store.jobs_for(&[id]).await.unwrap()[0].known, known);
    assert_eq!(store.history(id).await.unwrap().unwrap().len(), 1);
    let kinds: Vec<String> = told(&*store).await.into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["entry.new", "entry.new"]);
    // A poll that finds the same entry later stores it no second time.
    let found = poll(&*store, id, 9, modified(vec![entry("2", "two"), entry("1", "one")])).await;
    assert_eq!(new_entries(&found), (0, 0));
}
