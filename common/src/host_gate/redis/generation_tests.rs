//! What a failover of the gate to another server, and back, does to processes that saw all of it or a part.

use super::tests::{FETCH, LIMITS, PATIENCE, acquire, ends, host, now, opened, reserve};
use super::*;
use crate::redis::testing::{CuttingProxy, PrivateServer};
use crate::time::SystemClock;
use crate::url::FeedId;

#[tokio::test]
async fn a_server_that_was_the_gate_before_another_one_is_not_open_when_it_comes_back() {
    let (first, second) = (PrivateServer::started(&[]), PrivateServer::started(&[]));
    let proxy = CuttingProxy::before(first.port).await;
    let [scheduler, worker] = [(); 2].map(|()| RedisGate::new(proxy.client("aba"), Duration::ZERO));
    opened(&scheduler).await;
    worker.check(&SystemClock).await.unwrap();

    proxy.lead_to(second.port);
    opened(&scheduler).await;
    worker.check(&SystemClock).await.unwrap();
    let hold = now().after(Duration::from_secs(240));
    worker.hold(&[(host(), hold)], now()).await.unwrap();
    assert!(ends(reserve(&scheduler, LIMITS).await.unwrap_err(), hold));

    // The first server ran all the time, and knows nothing of the hold.
    proxy.lead_to(first.port);
    assert!(reserve(&scheduler, LIMITS).await.is_err());
    assert!(matches!(acquire(&worker, Ticket(1), 1, now(), FETCH).await, Acquired::NotNow { .. }));
    let mark = scheduler.begin_loading(now()).await.unwrap().expect("an older gate counts as lost");
    scheduler.hold(&[(host(), hold)], now()).await.unwrap();
    assert!(scheduler.open(&mark, now()).await.unwrap());
    assert!(ends(reserve(&scheduler, LIMITS).await.unwrap_err(), hold));
    assert_eq!(scheduler.begin_loading(now()).await.unwrap(), None);
}

#[tokio::test]
async fn a_server_that_was_the_gate_before_is_loaded_by_schedulers_that_did_not_see_the_other_one() {
    let (first, second) = (PrivateServer::started(&[]), PrivateServer::started(&[]));
    let proxy = CuttingProxy::before(first.port).await;
    let [scheduler, worker] = [(); 2].map(|()| RedisGate::new(proxy.client("fresh-aba"), Duration::ZERO));
    opened(&scheduler).await;
    proxy.lead_to(second.port);
    opened(&scheduler).await;
    worker.check(&SystemClock).await.unwrap();

    proxy.lead_to(first.port);
    let fresh = RedisGate::new(proxy.client("fresh-aba"), Duration::ZERO);
    assert_eq!(fresh.begin_loading(now()).await.unwrap(), None, "it cannot know");
    assert!(matches!(acquire(&worker, Ticket(1), 1, now(), FETCH).await, Acquired::NotNow { .. }));
    assert!(reserve(&fresh, LIMITS).await.is_err(), "the worker knew");
    opened(&fresh).await;
    tokio::time::sleep(LIMITS.gap).await;
    let ticket = reserve(&fresh, LIMITS).await.unwrap();
    assert!(matches!(acquire(&worker, ticket, 1, now(), FETCH).await, Acquired::Granted(_)));
}

#[tokio::test]
async fn a_server_that_was_the_gate_before_one_that_was_not_open_yet_is_not_open_when_it_comes_back() {
    let (first, second) = (PrivateServer::started(&[]), PrivateServer::started(&[]));
    let proxy = CuttingProxy::before(first.port).await;
    let scheduler = RedisGate::new(proxy.client("loading-aba"), Duration::ZERO);
    opened(&scheduler).await;
    proxy.lead_to(second.port);
    let nonce = |mark: Option<LoadMark>| group::of_text(&mark.expect("it is not open").0)[0].nonce.clone();
    let loading = nonce(scheduler.begin_loading(now()).await.unwrap());
    assert_eq!(nonce(scheduler.begin_loading(now()).await.unwrap()), loading);
    let hold = now().after(Duration::from_secs(240));
    scheduler.hold(&[(host(), hold)], now()).await.unwrap();

    proxy.lead_to(first.port);
    assert!(reserve(&scheduler, LIMITS).await.is_err());
    assert!(scheduler.begin_loading(now()).await.unwrap().is_some(), "it lacks the hold");
}

/// No scheduler looked at the server while it was the gate.
#[tokio::test]
async fn what_was_written_to_a_gate_that_nobody_began_to_load_closes_the_one_before_it() {
    let permit = Permit { host: host(), nonce: 1, feed: Some(FeedId(1)), version: Version(1) };
    let until = now().after(FETCH);
    for write in ["hold", "block", "release"] {
        let (first, second) = (PrivateServer::started(&[]), PrivateServer::started(&[]));
        let proxy = CuttingProxy::before(first.port).await;
        let scheduler = RedisGate::new(proxy.client("unseen"), Duration::ZERO);
        opened(&scheduler).await;
        let worker = RedisGate::new(proxy.client("unseen"), Duration::ZERO);
        worker.check(&SystemClock).await.unwrap();
        proxy.lead_to(second.port);
        let written = match write {
            "hold" => worker.hold(&[(host(), until)], now()).await,
            "block" => worker.block(&host(), Some(until), now()).await,
            _ => worker.release(&permit, Release::default(), now()).await,
        };
        written.unwrap();

        proxy.lead_to(first.port);
        assert!(matches!(acquire(&worker, Ticket(1), 1, now(), FETCH).await, Acquired::NotNow { .. }), "{write}");
        assert!(scheduler.begin_loading(now()).await.unwrap().is_some(), "the worker knew: {write}");
    }
}

/// The gate goes to another server and back, and to the other one once more. The schedulers that saw it there first are gone.
#[tokio::test]
async fn a_gate_that_was_being_loaded_is_not_opened_with_what_it_had_before_another_one_was_used() {
    let (first, second) = (PrivateServer::started(&[]), PrivateServer::started(&[]));
    let proxy = CuttingProxy::before(first.port).await;
    let [gone, worker] = [(); 2].map(|()| RedisGate::new(proxy.client("aba-loading"), Duration::ZERO));
    opened(&gone).await;
    worker.check(&SystemClock).await.unwrap();
    proxy.lead_to(second.port);
    gone.begin_loading(now()).await.unwrap().expect("it has lost its memory");
    worker.check(&SystemClock).await.unwrap();

    proxy.lead_to(first.port);
    let next = RedisGate::new(proxy.client("aba-loading"), Duration::ZERO);
    assert_eq!(next.begin_loading(now()).await.unwrap(), None, "it cannot know");
    assert!(matches!(acquire(&worker, Ticket(1), 1, now(), FETCH).await, Acquired::NotNow { .. }), "the worker knows");
    assert!(next.begin_loading(now()).await.unwrap().is_some(), "and the gate is closed to all");
}

/// A worker that saw several generations, and then a server without memory and a scheduler without a past.
#[tokio::test]
async fn a_gate_that_a_fresh_scheduler_opens_after_a_loss_is_open_to_workers_that_saw_many_generations() {
    let private = PrivateServer::started(&[]);
    let [scheduler, worker] = [(); 2].map(|()| RedisGate::new(private.client("fresh"), Duration::ZERO));
    for _ in 0..3 {
        private.cli(&["FLUSHALL"]);
        opened(&scheduler).await;
        worker.check(&SystemClock).await.unwrap();
    }
    for new_fleet in [false, true] {
        private.cli(&["FLUSHALL"]);
        let fresh = RedisGate::new(private.client("fresh"), Duration::ZERO);
        if new_fleet {
            fresh.open_new(now()).await.unwrap();
        } else {
            opened(&fresh).await;
        }
        tokio::time::sleep(LIMITS.gap).await;
        let ticket = reserve(&fresh, LIMITS).await.unwrap();
        worker.check(&SystemClock).await.unwrap();
        let acquired = acquire(&worker, ticket, 1, now(), PATIENCE).await;
        assert!(matches!(acquired, Acquired::Granted(_)), "new fleet: {new_fleet}: {acquired:?}");
    }
}
