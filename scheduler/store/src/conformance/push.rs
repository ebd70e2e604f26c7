//! Push subscriptions: one for each feed, acted on by one process at a time.

use common::push::{PushKind, PushState, RELIABLE_AFTER};
use common::secrets::Sealed;

use super::*;
use crate::{NewPush, OwedPace, PushClaim, PushHeard, PushSubscription, PushWish};

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
    PushHeard { feed, at: at(seconds), light, settled: true }
}

/// Applies a poll that found an entry, and says whether a push announced it.
async fn learn(store: &dyn Store, feed: FeedId, seconds: u64, announced: bool) {
    let found = modified(vec![entry(&seconds.to_string(), "new")]);
    let claim = PushClaim { since: announced.then(|| at(0)) };
    let verdict = Verdict { push: Some(claim), ..verdict(store, feed, seconds, found).await };
    assert_eq!(new_entries(&apply(store, &[verdict], seconds).await[0]), (1, 0));
}

/// Returns a verified subscription whose pushes are reliable.
async fn reliable(store: &dyn Store, feed: FeedId, id: &str) -> PushSubscription {
    store.want_pushes(&[wish(feed, id, "https://hub.example/")], at(1)).await.unwrap();
    let verified = PushSubscription { state: PushState::Verified, lease_until: Some(at(9999)), ..the(store, id).await };
    assert!(store.store_push(&verified).await.unwrap());
    for number in 0..RELIABLE_AFTER {
        learn(store, feed, 10 + u64::from(number), true).await;
    }
    the(store, id).await
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
    assert!(store.push_hosts(at(4), at(60), 10).await.unwrap().is_empty());
    assert_eq!(store.push_hosts(at(5), at(60), 10).await.unwrap(), ["hub.example"]);
    let due = store.push_due("hub.example", at(5), 10).await.unwrap();
    assert_eq!(due.len(), 1);
    assert!(store.push_hosts(at(59), at(90), 10).await.unwrap().is_empty(), "another process acts at this host");
    assert_eq!(store.push_hosts(at(60), at(90), 10).await.unwrap().len(), 1, "and died");

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
    for number in 0..RELIABLE_AFTER {
        learn(&*store, id, 10 + u64::from(number), true).await;
    }
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
    learn(&*store, id, 50, false).await;
    let row = the(&*store, "a").await;
    assert_eq!((row.announced, row.missed, row.deliveries), (0, 1, u64::from(RELIABLE_AFTER)));
    assert!(!feed(&*store, id).await.push.unwrap().is_reliable());
}

pub(crate) async fn feeds_with_and_without_subscriptions_are_found_with_what_they_announce(backend: &dyn Backend) {
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
    assert!(store.erase_feed(ids[0], at(9_000)).await.unwrap());
    let rows = store.subscribed(FeedId(0), 10).await.unwrap();
    let seen: Vec<_> = rows.iter().map(|row| (FeedId(row.feed_id), row.status.as_deref(), row.private)).collect();
    let expected =
        [(ids[0], None, None), (ids[1], Some("paused"), Some(false)), (ids[2], Some("removed"), Some(false))];
    assert_eq!(seen, expected);
    assert_eq!((&*rows[1].subscribed_hub, rows[1].hub.as_deref()), ("https://hub.example/", None));
    assert_eq!(store.subscribed(ids[0], 1).await.unwrap(), rows[1..2]);

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
    let known = async || store.jobs_for(&[id]).await.unwrap()[0].known.clone();
    let known_before = known().await;
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
    let pushed = known_before.after_push([entry("2", "two").fingerprint()]);
    assert_eq!(known().await, pushed, "polls know what was pushed, and not the form that was not stored");
    assert_eq!(store.history(id).await.unwrap().unwrap().len(), 1);
    let kinds: Vec<String> = published(&*store).await.into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["entry.new", "entry.new"]);
    // A poll that finds the same entry later stores it no second time.
    let found = poll(&*store, id, 9, modified(vec![entry("2", "two"), entry("1", "one")])).await;
    assert_eq!(new_entries(&found), (0, 0));
}

pub(crate) async fn at_a_hub_renewals_go_first_and_a_freed_host_is_due_with_its_next_row(backend: &dyn Backend) {
    let store = backend.open().await;
    for number in 0..4 {
        let id = add(&*store, &format!("https://a{number}.example/feed")).await;
        store.want_pushes(&[wish(id, &number.to_string(), "https://hub.example/")], at(1)).await.unwrap();
    }
    let of = the(&*store, "3").await;
    let renewed = PushSubscription { lease_until: Some(at(100)), act_at: at(50), ..of };
    assert!(store.store_push(&renewed).await.unwrap());
    let due = store.push_due("hub.example", at(60), 2).await.unwrap();
    assert_eq!(due.iter().map(|of| &*of.id).collect::<Vec<_>>(), ["3", "0"], "although new requests wait for longer");

    let held = async |seconds| store.push_hosts(at(seconds), at(seconds + 30), 10).await.unwrap();
    assert_eq!(held(10).await, ["hub.example"]);
    // Its gate is closed until 200: new requests wait, and the lease is looked at.
    store.free_push_host("hub.example", Some(at(200))).await.unwrap();
    assert!(held(49).await.is_empty());
    assert_eq!(held(50).await, ["hub.example"]);
    store.remove_push("3", 2).await.unwrap();
    store.free_push_host("hub.example", Some(at(200))).await.unwrap();
    assert!(held(199).await.is_empty());
    // A row that is stored meanwhile is seen at its time.
    let of = the(&*store, "0").await;
    assert!(store.store_push(&PushSubscription { act_at: at(120), ..of }).await.unwrap());
    assert_eq!(held(120).await, ["hub.example"]);
    for number in 0..3 {
        let of = the(&*store, &number.to_string()).await;
        assert!(store.remove_push(&of.id, of.revision).await.unwrap());
    }
    store.free_push_host("hub.example", None).await.unwrap();
    assert!(held(9_000).await.is_empty(), "nothing is left there");
}

pub(crate) async fn a_feed_is_owed_its_own_pace_from_the_fault_until_it_has_it(backend: &dyn Backend) {
    let store = backend.open().await;
    let mut ids = Vec::new();
    for name in ["missed", "lapsed", "left", "fine"] {
        let id = add(&*store, &format!("https://{name}.example/feed")).await;
        reliable(&*store, id, name).await;
        ids.push(id);
    }
    assert!(store.owed_paces(10).await.unwrap().is_empty());
    learn(&*store, ids[0], 60, false).await;
    assert!(
        store.store_push(&PushSubscription { state: PushState::Lapsed, ..the(&*store, "lapsed").await }).await.unwrap()
    );
    store.want_pushes(&[PushWish { feed: ids[2], wanted: None }], at(60)).await.unwrap();
    let owed = store.owed_paces(10).await.unwrap();
    let expected = ["missed", "lapsed", "left"].into_iter().zip(&ids);
    let expected: Vec<OwedPace> =
        expected.map(|(id, feed)| OwedPace { id: id.to_owned(), feed_id: feed.0, owed: 1 }).collect();
    assert_eq!(owed, expected);
    // What is found again before it is settled stays.
    for number in 0..RELIABLE_AFTER {
        learn(&*store, ids[0], 70 + u64::from(number), true).await;
    }
    learn(&*store, ids[0], 90, false).await;
    store.paces_restored(&owed).await.unwrap();
    let left: Vec<_> = store.owed_paces(10).await.unwrap().into_iter().map(|of| (of.id, of.owed)).collect();
    assert_eq!(left, [("missed".to_owned(), 2)]);
}

pub(crate) async fn deliveries_that_are_accepted_and_not_counted_are_lost(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.example/feed").await;
    store.want_pushes(&[wish(id, "a", "https://hub.example/")], at(1)).await.unwrap();
    store.await_push(id, at(10)).await.unwrap();
    store.await_push(id, at(20)).await.unwrap();
    store.heard_pushes(&[PushHeard { feed: id, at: at(21), light: true, settled: false }]).await.unwrap();
    store.heard_pushes(&[heard(id, 21, false)]).await.unwrap();
    assert!(store.lost_pushes(at(10), 10).await.unwrap().is_empty(), "it may be in the queue");
    assert_eq!(store.lost_pushes(at(20), 10).await.unwrap(), [id]);
    for later in [30, 40] {
        store.await_push(id, at(later)).await.unwrap();
        store.heard_pushes(&[heard(id, later, false)]).await.unwrap();
        assert_eq!(store.lost_pushes(at(20), 10).await.unwrap(), [id], "those behind it do not hide it");
    }
    store.await_push(id, at(45)).await.unwrap();
    store.forget_lost_pushes(&[id], at(20)).await.unwrap();
    assert!(
        store.lost_pushes(at(99), 10).await.unwrap().is_empty(),
        "the poll, which is later, finds what came meanwhile"
    );
    store.await_push(id, at(50)).await.unwrap();
    assert!(store.lost_pushes(at(50), 10).await.unwrap().is_empty(), "it is counted from then");
    store.heard_pushes(&[heard(id, 41, false), heard(id, 42, false)]).await.unwrap();
    assert!(store.lost_pushes(at(99), 10).await.unwrap().is_empty());
}

pub(crate) async fn a_feed_is_not_subscribed_while_many_of_its_subscriptions_are_being_left(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.example/feed").await;
    for number in 0..10 {
        let wish = wish(id, &number.to_string(), &format!("https://hub{number}.example/"));
        store.want_pushes(&[wish], at(number)).await.unwrap();
    }
    let all: u64 = store.count_pushes().await.unwrap().iter().map(|count| count.2).sum();
    assert_eq!(all, 4);
    assert_eq!(store.forget_left_pushes(at(2), 10).await.unwrap(), 1, "the first, which was left at 1");
    assert_eq!(store.forget_left_pushes(at(99), 10).await.unwrap(), 3);
    assert_eq!(store.want_pushes(&[wish(id, "x", "https://hub.example/")], at(99)).await.unwrap(), 1);
}

pub(crate) async fn secrets_are_read_in_pages_and_replaced_once(backend: &dyn Backend) {
    let store = backend.open().await;
    for id in ["c", "a", "b", "none"] {
        let feed = add(&*store, &format!("https://{id}.example/feed")).await;
        let mut wish = wish(feed, id, "https://hub.example/");
        if let Some(new) = wish.wanted.as_mut().filter(|new| new.id == "none") {
            new.secret = None;
        }
        store.want_pushes(&[wish], at(1)).await.unwrap();
    }
    let ids = async |after: &str, limit| {
        let page = store.push_secrets(after, limit).await.unwrap();
        assert!(page.iter().all(|(_, secret)| *secret == Sealed::from_bytes(vec![1, 2])));
        page.into_iter().map(|(id, _)| id).collect::<Vec<_>>()
    };
    assert_eq!(ids("", 2).await, ["a", "b"]);
    assert_eq!(ids("b", 2).await, ["c"]);
    let before = the(&*store, "a").await;
    assert!(store.reseal_push("a", [&[1, 2], &[3]]).await.unwrap());
    assert!(!store.reseal_push("a", [&[1, 2], &[4]]).await.unwrap(), "it is another one by now");
    let after = the(&*store, "a").await;
    let secret = Some(Sealed::from_bytes(vec![3]));
    assert_eq!(after, PushSubscription { secret, revision: before.revision + 1, ..before.clone() });
    assert!(!store.store_push(&before).await.unwrap(), "the old secret would come back");
}
