//! Requeues: each feed is woken once, at the rate, whichever process takes the steps.

use std::collections::BTreeSet;

use common::policy::Penalty;

use super::*;
use crate::requeues::MOST_REQUEUES;
use crate::{NewRequeue, Requeue, RequeueFilter, RequeueState};

fn wanted(filter: RequeueFilter) -> NewRequeue {
    NewRequeue { filter, rate: 10.0, lift_penalties: false, by: "a test".into(), matched: 7, queued: 5 }
}

async fn begun(store: &dyn Store, new: &NewRequeue, now: u64) -> i64 {
    store.begin_requeue(new, at(now)).await.unwrap().unwrap().id
}

async fn some_feeds(store: &dyn Store, count: usize) -> Vec<FeedId> {
    let new: Vec<NewFeed> = (0..count)
        .map(|number| {
            let later =
                NewFeed { first_due: at(100_000), ..new_feed(&format!("https://h{}.org/{number}", number % 3)) };
            NewFeed { category: if number % 2 == 0 { Category::D } else { Category::B }, ..later }
        })
        .collect();
    store.add_feeds(&new, at(0)).await.unwrap().iter().map(|added| added.id).collect()
}

/// Takes one step per second, starting at `from`, until the requeue ends; returns the feeds woken by each.
async fn taken_to_its_end(store: &dyn Store, id: i64, from: u64) -> Vec<Vec<FeedId>> {
    let mut steps = Vec::new();
    for second in from.. {
        assert!(second < from + 1000, "it never ends: {steps:?}");
        let mut woken = Vec::new();
        loop {
            let step = store.step_requeue(id, at(second)).await.unwrap();
            assert!(step.woken.iter().all(|place| place.wake));
            woken.extend(step.woken.iter().map(|place| place.id));
            if step.done {
                steps.push(woken);
                return steps;
            }
            if !step.again {
                break;
            }
        }
        steps.push(woken);
    }
    steps
}

async fn the(store: &dyn Store, id: i64) -> Requeue {
    store.requeues(false).await.unwrap().into_iter().find(|requeue| requeue.id == id).unwrap()
}

async fn everybody(store: &dyn Store, filter: RequeueFilter, lift_penalties: bool) -> BTreeSet<FeedId> {
    let id = begun(store, &NewRequeue { lift_penalties, rate: 5000.0, ..wanted(filter) }, 0).await;
    taken_to_its_end(store, id, 1).await.concat().into_iter().collect()
}

pub(crate) async fn a_requeue_wakes_each_feed_once_and_no_faster_than_its_rate(backend: &dyn Backend) {
    let store = backend.open().await;
    let feeds = some_feeds(&*store, 25).await;
    let id = begun(&*store, &wanted(RequeueFilter::default()), 10).await;
    assert_eq!(store.step_requeue(id, at(10)).await.unwrap().woken, [], "nothing is allowed yet");
    let later = add(&*store, "https://later.org/").await;
    let mut steps = taken_to_its_end(&*store, id, 11).await;
    for step in &mut steps {
        step.sort();
    }
    assert_eq!(steps, [&feeds[..10], &feeds[10..20], &feeds[20..]], "without {later}, which came after it");
    let ended = the(&*store, id).await;
    assert_eq!((ended.state, ended.woken, ended.ended), (RequeueState::Done, 25, Some(at(13))));
    assert_eq!((ended.matched, ended.queued, ended.by.as_str()), (7, 5, "a test"));
    assert_eq!(store.step_requeue(id, at(99)).await.unwrap(), Default::default());
    assert_eq!(store.requeues(true).await.unwrap(), []);
    assert_eq!(feed(&*store, feeds[3]).await.wake_at, Some(at(11)));
}

pub(crate) async fn a_requeue_goes_on_where_it_was_after_a_reopening(backend: &dyn Backend) {
    let store = backend.open().await;
    let feeds = some_feeds(&*store, 25).await;
    let id = begun(&*store, &wanted(RequeueFilter::default()), 10).await;
    let mut woken: Vec<FeedId> =
        store.step_requeue(id, at(11)).await.unwrap().woken.iter().map(|place| place.id).collect();
    assert_eq!(woken.len(), 10);
    drop(store);
    let store = backend.open().await;
    let running = store.requeues(true).await.unwrap();
    assert_eq!(running.iter().map(|requeue| (requeue.id, requeue.woken)).collect::<Vec<_>>(), [(id, 10)]);
    let first = store.step_requeue(id, at(900)).await.unwrap().woken;
    assert_eq!(first.len(), 11, "a second's worth and one, however long nobody came");
    woken.extend(first.iter().map(|place| place.id));
    woken.extend(taken_to_its_end(&*store, id, 901).await.concat());
    woken.sort();
    assert_eq!(woken, feeds);
}

pub(crate) async fn steps_taken_at_once_wake_nobody_twice(backend: &dyn Backend) {
    let store = backend.open().await;
    let feeds = some_feeds(&*store, 60).await;
    let id = begun(&*store, &NewRequeue { rate: 20.0, ..wanted(RequeueFilter::default()) }, 0).await;
    let mut woken = Vec::new();
    for second in 1..=200 {
        let (first, other) = tokio::join!(store.step_requeue(id, at(second)), store.step_requeue(id, at(second)));
        for step in [first, other] {
            woken.extend(step.unwrap().woken.into_iter().map(|place| place.id));
        }
        assert!(woken.len() as u64 <= 20 * second, "faster than its rate");
        if woken.len() == feeds.len() {
            break;
        }
    }
    woken.sort();
    assert_eq!(woken, feeds);
}

pub(crate) async fn a_cancelled_requeue_wakes_nobody_any_more(backend: &dyn Backend) {
    let store = backend.open().await;
    some_feeds(&*store, 25).await;
    let id = begun(&*store, &wanted(RequeueFilter::default()), 0).await;
    store.step_requeue(id, at(1)).await.unwrap();
    assert!(store.cancel_requeue(id, at(2)).await.unwrap());
    assert!(!store.cancel_requeue(id, at(3)).await.unwrap());
    assert!(!store.cancel_requeue(id + 1, at(3)).await.unwrap());
    assert_eq!(store.step_requeue(id, at(4)).await.unwrap(), Default::default());
    let cancelled = the(&*store, id).await;
    assert_eq!((cancelled.state, cancelled.woken, cancelled.ended), (RequeueState::Cancelled, 10, Some(at(2))));
}

pub(crate) async fn only_so_many_requeues_run_at_once_and_ended_ones_are_forgotten(backend: &dyn Backend) {
    let store = backend.open().await;
    add(&*store, "https://a.org/feed").await;
    for _ in 0..MOST_REQUEUES {
        begun(&*store, &wanted(RequeueFilter::default()), 0).await;
    }
    assert_eq!(store.begin_requeue(&wanted(RequeueFilter::default()), at(0)).await.unwrap(), None);
    let first = store.requeues(true).await.unwrap().last().unwrap().id;
    for _ in 0..130 {
        let running = store.requeues(true).await.unwrap().last().unwrap().id;
        assert!(store.cancel_requeue(running, at(1)).await.unwrap());
        begun(&*store, &wanted(RequeueFilter::default()), 1).await;
    }
    let all = store.requeues(false).await.unwrap();
    assert!(all.len() <= 121 && all.is_sorted_by_key(|requeue| -requeue.id), "{}", all.len());
    assert!(all.iter().all(|requeue| requeue.id != first));
}

pub(crate) async fn a_requeue_reaches_what_its_filter_names(backend: &dyn Backend) {
    let store = backend.open().await;
    let feeds = some_feeds(&*store, 12).await;
    let of = |places: &[usize]| places.iter().map(|place| feeds[*place]).collect::<BTreeSet<_>>();
    let all = RequeueFilter::default;
    let one = RequeueFilter { feed: Some(feeds[4]), ..all() };
    assert_eq!(everybody(&*store, one, false).await, of(&[4]));
    let some = RequeueFilter { feeds: vec![feeds[4], FeedId(9999), feeds[1]], ..all() };
    assert_eq!(everybody(&*store, some, false).await, of(&[1, 4]));
    let hosts = ["h0.org:443", "h1.org:443", "h9.org:443"].map(HostKey::new).to_vec();
    let on_hosts = RequeueFilter { hosts: hosts.clone(), ..all() };
    assert_eq!(everybody(&*store, on_hosts, false).await, of(&[0, 1, 3, 4, 6, 7, 9, 10]));
    let both = RequeueFilter { hosts, category: Some(Category::B), ..all() };
    let plan = store.plan_requeue(&both, false).await.unwrap();
    assert_eq!(plan.classes, [(Category::B, Status::Active, false, 4)]);
    assert_eq!((plan.hosts, plan.largest), (2, vec![(HostKey::new("h0.org:443"), 2), (HostKey::new("h1.org:443"), 2)]));
    assert_eq!(everybody(&*store, both, false).await, of(&[1, 3, 7, 9]));
    let mut soon = verdict(&*store, feeds[5], 10, failed(FailureKind::Dns)).await;
    soon.decision.next_due = Some(at(50));
    apply(&*store, &[soon], 10).await;
    let failing = RequeueFilter { failure: Some(FailureKind::Dns), ..all() };
    assert_eq!(everybody(&*store, failing, false).await, of(&[5]));
    for (place, status) in [(2, 403), (3, 404), (4, 451)] {
        let mut refused = verdict(&*store, feeds[place], 10, failed(FailureKind::Status)).await;
        refused.report.http_status = Some(status);
        apply(&*store, &[refused], 10).await;
    }
    let refused = RequeueFilter { http_statuses: vec![403, 451], ..all() };
    assert_eq!(everybody(&*store, refused, false).await, of(&[2, 4]));
    assert_eq!(everybody(&*store, RequeueFilter { due_before: Some(at(51)), ..all() }, false).await, of(&[5]));
    assert_eq!(everybody(&*store, RequeueFilter { due_before: Some(at(50)), ..all() }, false).await, of(&[]));
    assert_eq!(
        store.plan_requeue(&RequeueFilter { feed: Some(FeedId(9999)), ..all() }, true).await.unwrap(),
        Default::default()
    );
}

pub(crate) async fn penalties_are_lifted_only_when_asked_and_holds_never(backend: &dyn Backend) {
    let store = backend.open().await;
    let feeds = some_feeds(&*store, 7).await;
    let mut boxed = verdict(&*store, feeds[0], 10, failed(FailureKind::Dns)).await;
    boxed.decision.state.penalty = Some(Penalty { kind: FailureKind::Dns, until: at(90_000) });
    let mut held = verdict(&*store, feeds[1], 10, Outcome::Throttled { retry_after: Some(at(90_000)) }).await;
    held.decision.state.hold_until = Some(at(90_000));
    held.decision.host_hold = None;
    let before = apply(&*store, &[boxed, held], 10).await;
    assert!(before.iter().all(|applied| matches!(applied, Applied::Stored { .. })));
    let out = [Status::Blacklisted, Status::Quarantined, Status::Paused, Status::Gone];
    for (id, status) in feeds[2..].iter().zip(out) {
        let change = FeedChange { status: Some(status), ..FeedChange::default() };
        store.change_feed(*id, &change, at(10)).await.unwrap().unwrap();
    }
    let of = |places: &[usize]| places.iter().map(|place| feeds[*place]).collect::<BTreeSet<_>>();
    assert_eq!(everybody(&*store, RequeueFilter::default(), false).await, of(&[1, 6]));
    let waiting = feed(&*store, feeds[1]).await;
    assert_eq!((waiting.wake_at, waiting.due()), (Some(at(90_000)), Some(at(3610))));
    let version = feed(&*store, feeds[2]).await.version;
    assert_eq!(everybody(&*store, RequeueFilter::default(), true).await, of(&[0, 1, 2, 3, 6]));
    for id in &feeds[2..4] {
        let tried = feed(&*store, *id).await;
        assert_eq!((tried.status, tried.due()), (Status::Active, Some(at(1))));
    }
    assert_ne!(feed(&*store, feeds[2]).await.version, version, "a report on it as it was before is stale");
    let boxed = feed(&*store, feeds[0]).await;
    assert!(
        boxed.wake_at.is_some() && boxed.state.penalty.is_some(),
        "a good answer ends the penalty, and nothing else"
    );
    assert_eq!(feed(&*store, feeds[4]).await.status, Status::Paused);
}
