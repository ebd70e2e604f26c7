//! Leases of subscriptions among several processes.

use std::time::Duration;

use common::secrets::Sealed;

use super::Schema;
use crate::conformance::at;
use crate::postgres::PostgresStore;
use crate::{
    Deliveries, DeliveryFormat, DeliveryTurn, EventFilter, NewSubscription, SubscriptionChange, SubscriptionKind,
    Subscriptions, Wish,
};

fn wish(target: &str) -> Wish {
    Wish {
        kind: SubscriptionKind::Webhook,
        target: target.to_owned(),
        filter: EventFilter::default(),
        format: DeliveryFormat::Feedfleet,
        batch: 1,
        delay: Duration::ZERO,
    }
}

async fn subscribed(store: &PostgresStore, targets: &[&str]) -> Vec<i64> {
    let mut all = Vec::new();
    for target in targets {
        let secret = Sealed::from_bytes(vec![1]);
        let new = NewSubscription { wish: wish(target), secret, by: "ann".into(), after: 0, hub: None };
        all.push(store.add_subscription(&new, at(1)).await.unwrap().unwrap().id);
    }
    all
}

async fn leased(store: &PostgresStore, holder: &str, lasts: Duration, idle: &[i64]) -> Vec<i64> {
    let turn = DeliveryTurn { holder, lasts, idle };
    store.lease_subscriptions(&turn).await.unwrap().held.into_iter().map(|(id, _)| id).collect()
}

/// Each process gets its share, none gets what another one holds, and what a dead one held is taken over.
#[tokio::test]
async fn schedulers_share_subscriptions_and_take_over_from_a_dead_one() {
    let schema = Schema::default();
    let store = schema.store().await;
    let targets: Vec<String> = (0..6).map(|number| format!("https://{number}.example/")).collect();
    let all = subscribed(&store, &targets.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let lease = async |holder: &str, lasts: Duration, idle: &[i64]| leased(&store, holder, lasts, idle).await;
    let minute = Duration::from_secs(60);
    assert_eq!(lease("x", minute, &[]).await, all);
    assert_eq!(lease("y", minute, &[]).await, [0; 0], "all are held");
    assert_eq!(lease("x", minute, &[]).await, all, "nothing is idle");
    assert_eq!(lease("x", minute, &all[..1]).await, all[1..]);
    assert_eq!(lease("x", minute, &all).await.len(), 3);
    let of_y = lease("y", minute, &[]).await;
    assert_eq!(of_y.len(), 3);
    // One that ends in order lets its own go at once, one that dies when its lease ends.
    assert_eq!(lease("y", Duration::ZERO, &[]).await, [0; 0]);
    assert_eq!(lease("x", Duration::from_millis(1), &[]).await, all);
    loop {
        if lease("z", minute, &[]).await.len() == all.len() {
            break;
        }
        tokio::task::yield_now().await;
    }
}

/// Two processes at one host would have twice its limits.
#[tokio::test]
async fn all_subscriptions_to_one_target_host_belong_to_one_scheduler() {
    let schema = Schema::default();
    let store = schema.store().await;
    let targets = [
        "https://a.example/1",
        "https://a.example/2",
        "https://user:secret@a.example/3?to=https://b.example/",
        "https://b.example/1",
        "https://a.example:8443/1",
        "https://b.example/2",
    ];
    let all = subscribed(&store, &targets).await;
    let (of_a, of_b, other) = ([all[0], all[1], all[2]], [all[3], all[5]], all[4]);
    let lease = async |holder: &str, idle: &[i64]| leased(&store, holder, Duration::from_secs(60), idle).await;
    assert_eq!(lease("x", &[]).await, all);
    assert_eq!(lease("y", &[]).await, [0; 0]);
    assert_eq!(lease("x", &[all[0], all[3], all[5]]).await, [all[0], all[1], all[2], other], "one of a's is not idle");
    assert_eq!(lease("x", &all).await, of_a, "the smallest hosts go first");
    assert_eq!(lease("y", &[]).await, [all[3], other, all[5]]);
    // What is added goes to the process that sends to its host, also beyond its share.
    let added = subscribed(&store, &["https://a.example/4", "https://a.example/5", "https://c.example/"]).await;
    assert_eq!(lease("y", &[]).await, [all[3], other, all[5], added[2]]);
    assert_eq!(lease("x", &[]).await, [&of_a[..], &added[..2]].concat());
    assert_eq!(lease("x", &all).await, [&of_a[..], &added[..2]].concat(), "a host is never divided");
    // So does one whose target changes.
    let change = SubscriptionChange { wish: Some(wish("https://a.example/6")), revision: 1, ..Default::default() };
    store.change_subscription(of_b[0], &change).await.unwrap().unwrap();
    assert_eq!(lease("y", &[]).await, [other, all[5], added[2]]);
    assert_eq!(lease("x", &[]).await, [&of_a[..], &of_b[..1], &added[..2]].concat());
}

/// A process that is frozen in the middle of its look keeps its locks until PostgreSQL ends its session.
#[tokio::test]
async fn a_frozen_process_keeps_no_other_from_renewing_its_lease() {
    let schema = Schema::default();
    let store = schema.store().await;
    let all = subscribed(&store, &["https://a.example/", "https://b.example/"]).await;
    let minute = Duration::from_secs(60);
    assert_eq!(leased(&store, "frozen", Duration::from_millis(1), &[]).await, all);
    let mut frozen = schema.connection().await;
    let look = "BEGIN; UPDATE delivery_leases SET held_until = held_until + 5000; \
                SELECT pg_advisory_xact_lock(hashtextextended('feedfleet deliveries ' || current_schema(), 0))";
    sqlx::Executor::execute(&mut frozen, look).await.unwrap();
    assert_eq!(leased(&store, "x", minute, &[]).await, [0; 0], "it takes nothing meanwhile");
    sqlx::Executor::execute(&mut frozen, "ROLLBACK").await.unwrap();
    assert_eq!(leased(&store, "x", minute, &[]).await, all);
}
