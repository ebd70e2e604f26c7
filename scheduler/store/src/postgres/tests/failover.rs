//! A primary that is killed, made read-only or cut off, and a standby that is promoted.

use std::time::{Duration, Instant};

use common::config::ServerConfig;
use common::testing::{Port, Stalls};
use common::url::FeedId;

use super::faults::Proxy;
use super::own::{FIRST, Own, PATIENCE, SECOND};
use crate::conformance::{add, apply, entry, feed, modified, new_entries, poll, verdict};
use crate::postgres::{Limits, PostgresStore};
use crate::{Events, StoreError, Upkeep};

/// The most that finding a promoted standby may take: it takes seconds, but the servers share a busy machine with other tests.
const FOUND: Duration = Duration::from_secs(30);

/// With one poll of one entry stored.
async fn opened(url: &str) -> (PostgresStore, FeedId) {
    let store = PostgresStore::open(&ServerConfig::at(url), "test").await.unwrap();
    let id = add(&store, "https://a.org/feed").await;
    assert_eq!(new_entries(&poll(&store, id, 10, modified(vec![entry("1", "one")])).await), (1, 0));
    (store, id)
}

async fn epoch(store: &PostgresStore) -> String {
    store.events(0, 1).await.unwrap().epoch
}

/// Waits until a change is stored again; returns how long it took, less the time for which we stood still.
async fn until_it_writes(store: &PostgresStore) -> Duration {
    let (begun, stalls) = (Instant::now(), Stalls::watched());
    while let Err(error) = store.set_paused(false).await {
        assert!(error.may_pass(), "{error:?}");
        assert!(begun.elapsed() < PATIENCE, "never: {error:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    begun.elapsed().saturating_sub(stalls.so_far())
}

#[tokio::test]
async fn after_a_synchronous_standby_is_promoted_everything_that_was_stored_is_there() {
    let own = Own::pair();
    own.synchronous().await;
    let (store, id) = opened(&own.url(&[FIRST, SECOND])).await;
    // Idle connections and used ones.
    futures_util::future::join_all((0..6).map(|_| store.paused())).await;
    let mut known = vec![entry("1", "one")];
    for number in 2..40 {
        known.push(entry(&number.to_string(), "more"));
        assert_eq!(new_entries(&poll(&store, id, 10 * number, modified(known.clone())).await), (1, 0));
    }
    let (before, seq) = (epoch(&store).await, store.latest_seq().await.unwrap());
    own.kill(FIRST);
    let while_away = store.set_paused(false).await.unwrap_err();
    assert!(while_away.may_pass(), "{while_away:?}");
    own.promote().await;
    let took = until_it_writes(&store).await;
    println!("the promoted standby is used {took:?} after its promotion");
    assert!(took < FOUND, "{took:?}");

    assert_eq!(store.latest_seq().await.unwrap(), seq);
    assert_eq!(feed(&store, id).await.entries, 39);
    assert_eq!(new_entries(&poll(&store, id, 500, modified(known)).await), (0, 0), "all are known");
    // Whether a promoted standby has everything cannot be seen from it.
    assert_ne!(epoch(&store).await, before);
}

#[tokio::test]
async fn after_a_lagging_standby_is_promoted_consumers_see_another_epoch_and_what_is_lost_is_stored_again() {
    let own = Own::pair();
    let (store, id) = opened(&own.url(&[FIRST, SECOND])).await;
    let before = (epoch(&store).await, store.latest_seq().await.unwrap());
    let mut first = own.on(FIRST).await;
    let written: String = sqlx::query_scalar("SELECT pg_current_wal_lsn()::text").fetch_one(&mut first).await.unwrap();
    let replayed = format!("SELECT pg_last_wal_replay_lsn() >= '{written}'");
    own.until(SECOND, &replayed).await;
    own.lagging().await;
    let known = vec![entry("1", "one"), entry("2", "two"), entry("3", "three")];
    assert_eq!(new_entries(&poll(&store, id, 20, modified(known.clone())).await), (2, 0));
    assert_eq!(store.latest_seq().await.unwrap(), before.1 + 2);
    own.kill(FIRST);
    own.promote().await;
    let took = until_it_writes(&store).await;
    println!("the promoted standby is used {took:?} after its promotion");

    assert_eq!((feed(&store, id).await.entries, store.latest_seq().await.unwrap()), (1, before.1), "two were lost");
    assert_ne!(epoch(&store).await, before.0, "their numbers are given to others");
    assert_eq!(new_entries(&poll(&store, id, 30, modified(known)).await), (2, 0));
}

#[tokio::test]
async fn a_standby_is_passed_over_and_a_primary_that_became_read_only_is_left() {
    let own = Own::pair();
    let (store, id) = opened(&own.url(&[SECOND, FIRST])).await;
    let fetched = verdict(&store, id, 20, modified(vec![entry("1", "one"), entry("2", "two")])).await;
    own.synchronous().await;
    // What this connection writes is stored on both.
    store.set_paused(false).await.unwrap();
    let address = "SELECT inet_server_port()";
    let port: i32 = sqlx::query_scalar(address).fetch_one(&mut *store.acquire("test").await.unwrap()).await.unwrap();
    assert_eq!(port, i32::from(own.port(FIRST)));

    // As a tool for failovers fences a former primary: its sessions stay open.
    own.set(FIRST, "SET synchronous_standby_names = '';SET default_transaction_read_only = on").await;
    own.promote().await;
    let took = until_it_writes(&store).await;
    println!("the promoted standby is used {took:?} after its promotion");
    assert!(took < FOUND, "{took:?}");
    assert_eq!(new_entries(&apply(&store, std::slice::from_ref(&fetched), 21).await[0]), (1, 0));
    for _ in 0..20 {
        let mut on = store.acquire("test").await.unwrap();
        let port: i32 = sqlx::query_scalar(address).fetch_one(&mut *on).await.unwrap();
        assert_eq!(port, i32::from(own.port(SECOND)), "no connection is left at the former primary");
        on.keep();
    }
}

#[tokio::test]
async fn a_primary_that_is_cut_off_is_left_when_a_standby_is_promoted() {
    let own = Own::pair();
    own.synchronous().await;
    let proxy = Proxy::before(&own.url(&[FIRST])).await;
    let hosts = format!("@127.0.0.1:{},127.0.0.1:{}/", proxy.port, own.port(SECOND));
    let (store, _) = opened(&format!("postgres://postgres{hosts}postgres")).await;
    futures_util::future::join_all((0..6).map(|_| store.paused())).await;
    proxy.stall(true);
    // In use when it happens.
    let busy = tokio::spawn({
        let store = store.clone();
        async move { store.set_paused(false).await }
    });
    own.promote().await;
    let took = until_it_writes(&store).await;
    println!("the promoted standby is used {took:?} after its promotion");
    assert!(took < FOUND, "{took:?}");
    // It ended, one way or the other.
    let _ = tokio::time::timeout(Limits::default().call * 2, busy).await.unwrap().unwrap();
    proxy.stall(false);
    for _ in 0..20 {
        let mut on = store.acquire("test").await.unwrap();
        let port: i32 = sqlx::query_scalar("SELECT inet_server_port()").fetch_one(&mut *on).await.unwrap();
        assert_eq!(port, i32::from(own.port(SECOND)), "the former primary is back and nobody returns to it");
        on.keep();
    }
}

#[tokio::test]
async fn while_no_host_accepts_writes_each_ones_reason_is_given() {
    let own = Own::pair();
    let nobody = Port::reserved();
    let port = nobody.number();
    let hosts = format!("postgres://postgres:secret@127.0.0.1:{},127.0.0.1:{port}/postgres", own.port(SECOND));
    let error = PostgresStore::open(&ServerConfig::at(&hosts), "test").await.unwrap_err();
    assert!(error.may_pass());
    let text = common::causes::causes(&error);
    for part in
        ["no host of store.url accepts writes", &format!("127.0.0.1:{} is a standby", own.port(SECOND)), "refused"]
    {
        assert!(text.contains(part) && !text.contains("secret"), "{text}");
    }

    let (store, _) = opened(&own.url(&[FIRST, SECOND])).await;
    own.kill(FIRST);
    let mut said = String::new();
    let begun = Instant::now();
    while !said.contains("is a standby") {
        assert!(begun.elapsed() < PATIENCE, "{said}");
        said = common::causes::causes(&store.set_paused(false).await.unwrap_err());
    }
}

/// With one host there is no search: the connection may be to a standby, for example behind an address that moves.
#[tokio::test]
async fn a_connection_made_before_its_server_was_promoted_does_not_hide_the_new_epoch() {
    let own = Own::pair();
    let (writer, _) = opened(&own.url(&[FIRST])).await;
    let before = epoch(&writer).await;
    own.until(SECOND, "SELECT to_regclass('test.events') IS NOT NULL").await;
    own.until(SECOND, "SELECT count(*) > 0 FROM test.events").await;
    let store = PostgresStore::open(&ServerConfig::at(&own.url(&[SECOND])), "test").await.unwrap();
    assert_eq!(epoch(&store).await, before, "a standby can be read");
    let refused = store.set_paused(true).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Database { .. }), "{refused:?}");
    assert_eq!(epoch(&store).await, before);
    own.kill(FIRST);
    own.promote().await;
    assert_ne!(epoch(&store).await, before);
}
