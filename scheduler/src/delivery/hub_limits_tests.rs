//! What strangers cannot learn from the hub or make it do, and what a pause does not stop.

use std::sync::Arc;
use std::time::Duration;

use common::config::HubAccess;
use common::policy::Status;

use super::attempt::Attempts;
use super::hub_tests::*;
use super::lanes::Lanes;
use super::recent::Recent;
use super::saver::Saver;
use super::targets::{REFUSALS, Refusals};
use super::tending::round;
use crate::ops::hub::{HubRefusal, HubRequest};
use crate::ops::subscriptions::EditSubscription;
use crate::ops::{self, AddFeed, EditFeed};
use store::{IntentMode, Subscription, SubscriptionState};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns why a topic is refused.
async fn refusal(world: &World, topic: &str) -> String {
    let request = HubRequest { topic: topic.into(), ..request() };
    match ops::hub::accept(&world.ops, &request).await {
        Err(HubRefusal::Unknown(why)) => why,
        other => panic!("{topic}: {other:?}"),
    }
}

#[tokio::test]
async fn a_private_feed_looks_like_an_unknown_one_also_after_it_ended_or_was_merged() {
    let private = |name: &str| AddFeed { private: true, ..feed(&format!("https://a.example/{name}")) };
    let removed = EditFeed { status: Some(Status::Removed), ..EditFeed::default() };
    let names = ["polled", "ended", "merged"];
    for access in [HubAccess::Known, HubAccess::Open] {
        let world = World::new(access).await;
        let feeds = [private(names[0]), private(names[1]), private(names[2]), feed(TOPIC), feed("https://b.example/")];
        let ids: Vec<_> = world.ops.add(&feeds, None).await.unwrap().iter().map(|added| added.id).collect();
        world.ops.edit(ids[1], &removed).await.unwrap();
        world.merge(ids[2], ids[3]).await;
        world.ops.edit(ids[4], &removed).await.unwrap();
        let expected = match access {
            HubAccess::Known => refusal(&world, "https://a.example/unknown").await,
            _ => refusal(&world, "https://b.example/").await,
        };
        for name in names {
            assert_eq!(refusal(&world, &format!("https://a.example/{name}")).await, expected, "{access} {name}");
        }
        world.end().await;
    }
}

#[tokio::test]
async fn what_a_feed_publishes_after_it_became_private_is_not_delivered() {
    let world = World::new(HubAccess::Known).await;
    let added = world.ops.add(&[feed(TOPIC), feed("https://b.example/feed.xml")], None).await.unwrap();
    let other = HubRequest { topic: "https://b.example/feed.xml".into(), ..request() };
    for request in [request(), other] {
        world.ask(&request).await;
    }
    world
        .until("confirmations", async |world| {
            let all = world.ops.store.subscriptions(0, 10).await.unwrap();
            (all.len() == 2 && all.iter().all(|it| it.hub.as_ref().unwrap().intent.is_none())).then_some(())
        })
        .await;
    let hide = EditFeed { private: Some(true), ..EditFeed::default() };
    world.ops.edit(added[0].id, &hide).await.unwrap();
    // Before the next round ends the subscription.
    world.entry(added[0].id, "https://a.example/hidden").await;
    world.entry(added[1].id, "https://b.example/1").await;
    world.until("notification", async |world| world.notified().first().cloned()).await;
    round(&world.ops).await.unwrap();
    world.until("denial", async |world| world.asked("denied")).await;
    let bodies = world.notified().into_iter().map(|sent| String::from_utf8(sent.body.unwrap()).unwrap());
    for body in bodies {
        assert!(!body.contains("hidden"), "{body}");
    }
    world.end().await;
}

#[tokio::test]
async fn what_was_read_of_a_feed_before_it_was_hidden_or_erased_is_not_written() {
    let world = World::new(HubAccess::Known).await;
    let id = world.ops.add(&[feed(TOPIC)], None).await.unwrap()[0].id;
    world.ask(&request()).await;
    let of = world.settled().await.unwrap();
    let ops = Arc::clone(&world.ops);
    let attempts = Attempts {
        lanes: Lanes::new(8),
        saver: Saver::new(Arc::clone(&ops.store), Arc::clone(&ops.clock), "test".to_owned()),
        recent: Recent::default(),
        refusals: Refusals::default(),
        ops,
    };
    let is_written = async |of: &Subscription| attempts.body(of, "e", Vec::new()).await.unwrap().is_some();
    assert!(is_written(&of).await);
    let with_token = Subscription { by: "reader".into(), ..of.clone() };
    let hide = EditFeed { private: Some(true), ..EditFeed::default() };
    world.ops.edit(id, &hide).await.unwrap();
    assert_eq!((is_written(&of).await, is_written(&with_token).await), (false, true));
    assert!(world.ops.erase(id).await.unwrap());
    assert!(!is_written(&with_token).await);
    world.end().await;
}

#[tokio::test]
async fn a_host_of_callbacks_that_keeps_refusing_is_not_asked_at_once_for_each_further_request() {
    let world = World::new(HubAccess::Known).await;
    world.ops.add(&[feed(TOPIC)], None).await.unwrap();
    world.say(Says::No);
    // One refusal begins the wait, and two requests are left over.
    for number in 0..REFUSALS + 3 {
        world.ask(&HubRequest { callback: format!("https://s.example/{number}"), ..request() }).await;
    }
    let left = async |count: usize| {
        world
            .until("refusals", async |world| {
                (world.ops.store.subscriptions(0, 100).await.unwrap().len() == count).then_some(())
            })
            .await;
    };
    left(2).await;
    // A caller with a token does not wait, and its request comes after those of the others would have.
    world.ask(&HubRequest { by: "reader".into(), ..request() }).await;
    world
        .until("refusal", async |world| {
            let all = world.ops.store.subscriptions(0, 100).await.unwrap();
            all.iter().all(|it| it.by != "reader").then_some(())
        })
        .await;
    left(2).await;
    world.clock.advance(2 * MINUTE);
    left(1).await;
    world.clock.advance(2 * MINUTE);
    left(0).await;
    world.end().await;
}

#[tokio::test]
async fn a_subscriber_may_leave_while_its_subscription_is_paused_and_may_not_resume_it() {
    let world = World::new(HubAccess::Known).await;
    let id = world.ops.add(&[feed(TOPIC)], None).await.unwrap()[0].id;
    world.ask(&request()).await;
    let of = world.settled().await.unwrap().id;
    let pause = EditSubscription { state: Some(SubscriptionState::Paused), ..EditSubscription::default() };
    ops::subscriptions::edit(&world.ops, of, &pause).await.unwrap();
    assert!(matches!(ops::hub::accept(&world.ops, &request()).await, Err(HubRefusal::Paused)));
    let leave = HubRequest { mode: IntentMode::Unsubscribe, ..request() };

    // Somebody else asks in its name.
    world.say(Says::No);
    world.ask(&leave).await;
    world.entry(id, "1").await;
    assert_eq!(world.settled().await.unwrap().state, SubscriptionState::Paused);
    world.clock.advance(MINUTE);
    world.say(Says::Yes);
    world.ask(&leave).await;
    assert!(world.settled().await.is_none());
    assert!(world.notified().is_empty());
    world.end().await;
}
