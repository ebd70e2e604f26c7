//! Leases of subscriptions among several processes.

use std::time::Duration;

use common::secrets::Sealed;

use super::Schema;
use crate::conformance::at;
use crate::{
    Deliveries, DeliveryFormat, DeliveryTurn, EventFilter, NewSubscription, SubscriptionKind, Subscriptions, Wish,
};

/// Each process gets its share, none gets what another one holds, and what a dead one held is taken over.
#[tokio::test]
async fn schedulers_share_subscriptions_and_take_over_from_a_dead_one() {
    let schema = Schema::default();
    let store = schema.store().await;
    let mut all = Vec::new();
    for number in 0..6 {
        let wish = Wish {
            kind: SubscriptionKind::Webhook,
            target: format!("https://{number}.example/"),
            filter: EventFilter::default(),
            format: DeliveryFormat::Feedfleet,
            batch: 1,
            delay: Duration::ZERO,
        };
        let secret = Sealed::from_bytes(vec![1]);
        let new = NewSubscription { wish, secret, by: "ann".into(), after: 0, hub: None };
        all.push(store.add_subscription(&new, at(1)).await.unwrap().unwrap().id);
    }
    let lease = async |holder: &str, lasts: Duration, idle: &[i64]| -> Vec<i64> {
        let turn = DeliveryTurn { holder, lasts, idle };
        store.lease_subscriptions(&turn).await.unwrap().held.into_iter().map(|(id, _)| id).collect()
    };
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
