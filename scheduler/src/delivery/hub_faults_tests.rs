//! The hub among hostile and broken subscribers, feeds that move, and operators who change their mind.

use std::time::Duration;

use common::config::HubAccess;
use common::delivery::DeliveryRequest;
use common::secrets::{Keyring, Login};
use common::time::{Clock, Timestamp};
use common::url::FeedId;
use common::webhook::SignatureKind;

use super::hub_tests::*;
use super::tending::{Tending, round};
use crate::ops::hub::{HubRefusal, HubRequest, MOST_PER_HOST};
use crate::ops::subscriptions::{EditSubscription, From, WantedSecret};
use crate::ops::unmove::unmove;
use crate::ops::{self, AddFeed, EditFeed};
use crate::upkeep::reseal::Resealing;
use store::{DeliveryFormat, EventFilter, Hub, IntentMode, NewSubscription, SubscriptionKind, SubscriptionState, Wish};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns the body of a notification.
fn text(request: &DeliveryRequest) -> String {
    String::from_utf8(request.body.clone().unwrap()).unwrap()
}

impl World {
    /// Adds a subscription to the witness, and waits until the deliveries have it: they have read all others as they were before.
    pub(super) async fn witness(&self) {
        let kinds = ["feed.added", "entry.new"].map(str::to_owned).to_vec();
        let wish = Wish {
            kind: SubscriptionKind::Webhook,
            target: WITNESS.into(),
            filter: EventFilter { kinds, ..EventFilter::default() },
            format: DeliveryFormat::Feedfleet,
            batch: 500,
            delay: Duration::ZERO,
        };
        let secret = WantedSecret::Generated(SignatureKind::Hmac);
        ops::subscriptions::add(&self.ops, wish, secret, From::After(0), "ann").await.unwrap();
        self.witnessed("feed.added").await;
    }

    /// Waits until the deliveries have woken those that wait for this event.
    pub(super) async fn witnessed(&self, part: &str) {
        let is_in = |request: &DeliveryRequest| text(request).contains(part);
        self.until(part, async |world| world.seen.lock().unwrap().iter().any(is_in).then_some(())).await;
    }
}

#[tokio::test]
async fn callbacks_that_never_answer_delay_no_notification() {
    let world = World::new(HubAccess::Known).await;
    let id = world.ops.add(&[feed(TOPIC)], None).await.unwrap()[0].id;
    world.ask(&request()).await;
    world.settled().await;
    world.say(Says::Silence);
    // More than all lanes together have slots.
    for number in 0..20 {
        world.ask(&HubRequest { callback: format!("https://s{number}.example/"), ..request() }).await;
    }
    world.requests(2).await;
    world.witness().await;
    world.entry(id, "1").await;
    world.until("notification", async |world| world.notified().first().cloned()).await;
    world.end().await;
}

#[tokio::test]
async fn first_requests_of_one_host_and_those_that_are_put_off_end_soon() {
    let world = World::new(HubAccess::Known).await;
    world.ops.add(&[feed(TOPIC)], None).await.unwrap();
    world.say(Says::Tomorrow);
    let of = |number: usize| HubRequest { callback: format!("https://s.example/{number}"), ..request() };
    for number in 0..50 {
        world.ask(&of(number)).await;
    }
    let refused = ops::hub::accept(&world.ops, &of(50)).await.unwrap_err();
    assert!(matches!(refused, HubRefusal::Busy { .. }), "{refused:?}");
    let by_token = HubRequest { by: "reader".into(), ..of(50) };
    world.ask(&by_token).await;
    let other = HubRequest { callback: "https://t.example/".into(), ..request() };
    world.ask(&other).await;
    let put_off =
        world.until("question that is put off", async |world| world.subscription().await?.hub?.intent?.next_try).await;
    assert!(put_off.since(world.clock.now()) <= MINUTE, "{put_off}");
    world.clock.advance(10 * MINUTE);
    round(&world.ops).await.unwrap();
    assert!(world.subscription().await.is_none());
    world.end().await;
}

#[tokio::test]
async fn one_host_of_callbacks_does_not_fill_the_hub() {
    let world = World::new(HubAccess::Known).await;
    let id = world.ops.add(&[feed(TOPIC)], None).await.unwrap()[0].id;
    world.say(Says::Silence);
    let of = |host: &str, number: u64| HubRequest { callback: format!("https://{host}/?n={number}"), ..request() };
    world.ask(&of("s.example", 0)).await;
    let first = world.subscription().await.unwrap();
    for number in 1..MOST_PER_HOST {
        let mut wish = first.wish.clone();
        (wish.target, wish.filter.feed) = (of("s.example:8443", number).callback, Some(id));
        let hub = Some(Hub { topic: TOPIC.into(), until: world.clock.now().after(MINUTE), intent: None });
        let confirmed = NewSubscription { wish, secret: first.secret.clone(), by: "hub".into(), after: 0, hub };
        world.ops.store.add_subscription(&confirmed, world.clock.now()).await.unwrap().unwrap();
    }
    let refused = ops::hub::accept(&world.ops, &of("s.example", MOST_PER_HOST)).await.unwrap_err();
    assert!(matches!(refused, HubRefusal::Busy { .. }), "{refused:?}");
    world.ask(&of("www.s.example", MOST_PER_HOST)).await;
    world.ask(&HubRequest { by: "reader".into(), ..of("s.example", MOST_PER_HOST) }).await;
    world.end().await;
}

#[tokio::test]
async fn a_request_in_the_name_of_a_disabled_subscriber_enables_nothing() {
    let world = World::new(HubAccess::Known).await;
    let id = world.ops.add(&[feed(TOPIC)], None).await.unwrap()[0].id;
    world.ask(&request()).await;
    world.settled().await;
    world.say(Says::Gone);
    world.entry(id, "1").await;
    let disabled = async |world: &World| {
        let found = world.subscription().await?;
        let is_asked = found.hub.as_ref()?.intent.is_some();
        (found.state == SubscriptionState::Disabled && !is_asked).then_some(found)
    };
    world.until("disabled subscription", &disabled).await;
    for mode in [IntentMode::Subscribe, IntentMode::Unsubscribe] {
        let asked = world.got.lock().unwrap().len();
        world.ask(&HubRequest { mode, ..request() }).await;
        assert_eq!(world.subscription().await.unwrap().state, SubscriptionState::Disabled, "{mode}");
        world.requests(asked + 1).await;
        world.until("refusal", &disabled).await;
    }
    assert_eq!(world.notified().len(), 1);
    world.clock.advance(MINUTE);
    world.say(Says::Yes);
    world.ask(&request()).await;
    world
        .until("enabled subscription", async |world| {
            (world.subscription().await?.state == SubscriptionState::Active).then_some(())
        })
        .await;
    world.until("notification", async |world| world.notified().get(1).cloned()).await;
    world.end().await;
}

#[tokio::test]
async fn a_question_that_waits_is_kept_and_delays_no_notification() {
    let world = World::new(HubAccess::Known).await;
    let id = world.ops.add(&[feed(TOPIC)], None).await.unwrap()[0].id;
    world.ask(&request()).await;
    world.settled().await;
    world.say(Says::Tomorrow);
    world.ask(&HubRequest { lease: Some(1_200), ..request() }).await;
    let pending = async |world: &World| {
        let intent = world.subscription().await?.hub?.intent?;
        (intent.tries == 1).then_some(intent)
    };
    let before = world.until("question that is put off", &pending).await;
    for mode in [IntentMode::Subscribe, IntentMode::Unsubscribe] {
        let refused = ops::hub::accept(&world.ops, &HubRequest { mode, ..request() }).await.unwrap_err();
        assert!(matches!(refused, HubRefusal::Busy { wait, .. } if wait <= MINUTE), "{mode} {refused:?}");
    }
    for number in 1..=2 {
        world.entry(id, &number.to_string()).await;
        world.until("notification", async |world| (world.notified().len() == number).then_some(())).await;
    }
    assert_eq!(world.until("question", &pending).await, before);
    world.say(Says::Yes);
    world.clock.advance(MINUTE);
    let until = world.settled().await.unwrap().hub.unwrap().until;
    assert_eq!(until, world.clock.now().after(Duration::from_secs(1_200)));
    world.end().await;
}

/// Returns two feeds. A notification of the first one waits to be retried, and so does a question, for a shorter time.
async fn failing_while_a_question_waits() -> (World, [FeedId; 2]) {
    let world = World::new(HubAccess::Known).await;
    let added = world.ops.add(&[feed(TOPIC), feed("https://b.example/feed.xml")], None).await.unwrap();
    world.ask(&request()).await;
    world.settled().await;
    world.say(Says::Nothing);
    world.entry(added[0].id, "https://a.example/1").await;
    let failed = async |times: u32| {
        world
            .until("failure", async |world| (world.subscription().await?.progress.failures == times).then_some(()))
            .await;
    };
    failed(1).await;
    world.clock.advance(MINUTE);
    // From here the retry takes at least 1.5 s, and the question 1.25 s at most.
    failed(2).await;
    world.ask(&request()).await;
    world.until("question", async |world| (world.subscription().await?.hub?.intent?.tries == 1).then_some(())).await;
    // The next look of the deliveries reads that.
    world.witness().await;
    (world, [added[0].id, added[1].id])
}

/// Has the subscriber confirm, and waits until it was notified of these entries since.
async fn notified_once_confirmed(world: &World, entries: &[&str]) {
    let before = world.notified().len();
    world.say(Says::Yes);
    world.clock.advance(MINUTE);
    for entry in entries {
        let is_in = |request: &DeliveryRequest| text(request).contains(*entry);
        world.until(entry, async |world| world.notified()[before..].iter().any(is_in).then_some(())).await;
    }
}

#[tokio::test]
async fn an_entry_drops_no_notification_that_waits_beside_a_question() {
    let (world, ids) = failing_while_a_question_waits().await;
    let before = world.subscription().await.unwrap().progress;
    assert!(before.pending > before.cursor);
    for (id, entry) in [(ids[0], "https://a.example/2"), (ids[1], "https://b.example/1")] {
        // What the one before began has ended by then.
        world.entry(id, entry).await;
        world.witnessed(entry).await;
    }
    assert_eq!(world.subscription().await.unwrap().progress, before);
    notified_once_confirmed(&world, &["https://a.example/1", "https://a.example/2"]).await;
    world.end().await;
}

#[tokio::test]
async fn an_entry_of_another_feed_moves_no_cursor_over_a_notification_that_waits_beside_a_question() {
    let (mut world, ids) = failing_while_a_question_waits().await;
    world.entry(ids[1], "https://b.example/1").await;
    world.witnessed("https://b.example/1").await;
    world.restart().await;
    notified_once_confirmed(&world, &["https://a.example/1"]).await;
    world.end().await;
}

/// Returns a subscription to the first of two feeds, of which an entry was not delivered when it was merged into the second one. That one
/// has a new entry since.
async fn merged_before_all_was_delivered() -> (World, [FeedId; 2]) {
    let world = World::new(HubAccess::Known).await;
    let added = world.ops.add(&[feed(TOPIC), feed("https://b.example/feed.xml")], None).await.unwrap();
    let ids = [added[0].id, added[1].id];
    world.ask(&HubRequest { lease: Some(86_400), ..request() }).await;
    world.settled().await;
    world.say(Says::Nothing);
    world.entry(ids[0], "https://a.example/before").await;
    world.until("failure", async |world| (world.subscription().await?.progress.failures > 0).then_some(())).await;
    world.merge(ids[0], ids[1]).await;
    world.entry(ids[1], "https://b.example/since").await;
    (world, ids)
}

async fn feed_now(world: &World) -> FeedId {
    world.subscription().await.unwrap().wish.filter.feed.unwrap()
}

/// Waits until the subscriber was notified of this.
async fn delivered(world: &World, part: &str) {
    let is_in = |request: &DeliveryRequest| text(request).contains(part);
    world.until(part, async |world| world.notified().iter().any(is_in).then_some(())).await;
}

#[tokio::test]
async fn a_merge_of_long_ago_is_found_by_further_rounds_and_what_came_since_is_delivered() {
    let (mut world, ids) = merged_before_all_was_delivered().await;
    // More events than one look reads.
    let third = world.ops.add(&[feed("https://c.example/feed.xml")], None).await.unwrap()[0].id;
    world.entries(third, (0..2_100).map(|number| number.to_string()).collect()).await;
    world.say(Says::Yes);
    world.clock.advance(MINUTE);
    delivered(&world, "https://a.example/before").await;
    // The cursor in the store passes all of them.
    let newest = world.ops.store.latest_seq().await.unwrap();
    for _ in 0..100 {
        if world.subscription().await.unwrap().progress.cursor >= newest {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.restart().await;
    }
    assert_eq!(world.subscription().await.unwrap().progress.cursor, newest);
    let mut tending = Tending::new(1);
    tending.round(&world.ops).await.unwrap();
    assert_eq!(feed_now(&world).await, ids[0], "the merge is not found yet");
    tending.round(&world.ops).await.unwrap();
    assert_eq!(feed_now(&world).await, ids[1]);
    delivered(&world, "https://b.example/since").await;
    world.end().await;
}

#[tokio::test]
async fn a_renewal_after_a_merge_loses_nothing_from_before_it() {
    let (world, ids) = merged_before_all_was_delivered().await;
    world.say(Says::Yes);
    world.ask(&HubRequest { lease: Some(86_400), format: DeliveryFormat::JsonFeed, ..request() }).await;
    world.settled().await;
    assert_eq!(feed_now(&world).await, ids[0]);
    world.clock.advance(MINUTE);
    // In the format of the renewal: the first try was in the one before.
    delivered(&world, "\"id\":\"https://a.example/before\"").await;
    world.until("progress", async |world| (world.subscription().await?.progress.pending == 0).then_some(())).await;
    round(&world.ops).await.unwrap();
    assert_eq!(feed_now(&world).await, ids[1]);
    delivered(&world, "https://b.example/since").await;
    world.end().await;
}

#[tokio::test]
async fn a_subscription_follows_a_merge_when_everything_before_it_was_delivered() {
    let (world, ids) = merged_before_all_was_delivered().await;
    round(&world.ops).await.unwrap();
    assert_eq!(feed_now(&world).await, ids[0], "an entry of before the merge is not delivered yet");
    world.say(Says::Yes);
    world.clock.advance(MINUTE);
    delivered(&world, "https://a.example/before").await;
    world.until("progress", async |world| (world.subscription().await?.progress.pending == 0).then_some(())).await;
    round(&world.ops).await.unwrap();
    assert_eq!(feed_now(&world).await, ids[1]);
    delivered(&world, "https://b.example/since").await;

    // The operator takes the merge back: the next renewal is for the topic's own feed again.
    unmove(&world.ops, ids[0]).await.unwrap().unwrap();
    world.ask(&HubRequest { lease: Some(86_400), ..request() }).await;
    world.settled().await;
    assert_eq!(feed_now(&world).await, ids[0]);
    world.end().await;
}

#[tokio::test]
async fn a_subscription_to_a_feed_that_moved_can_be_renewed() {
    let world = World::new(HubAccess::Known).await;
    let id = world.ops.add(&[feed(TOPIC)], None).await.unwrap()[0].id;
    world.ask(&request()).await;
    world.settled().await;
    assert!(world.moved(id, "https://elsewhere.example/feed.xml").await.is_none());
    world.ask(&request()).await;
    assert_eq!(world.settled().await.unwrap().wish.filter.feed, Some(id));
    world.end().await;
}

#[tokio::test]
async fn subscribers_of_a_feed_that_becomes_private_and_of_a_closed_hub_are_denied() {
    let world = World::new(HubAccess::Known).await;
    let private = AddFeed { private: true, ..feed("https://b.example/private") };
    let ids: Vec<_> = world.ops.add(&[feed(TOPIC), private], None).await.unwrap().iter().map(|it| it.id).collect();
    world.ask(&request()).await;
    world.settled().await;
    // A public feed that turns out to be a private one.
    world.merge(ids[0], ids[1]).await;
    round(&world.ops).await.unwrap();
    let denied = world.until("denial", async |world| world.asked("denied")).await;
    assert_eq!(query(&denied, "hub.reason").unwrap(), "the feed is no longer polled here");
    assert!(world.settled().await.is_none());
    world.end().await;

    let login = Login::new("ann", "secret").unwrap();
    for edit in [
        EditFeed { private: Some(true), ..EditFeed::default() },
        EditFeed { login: Some(Some(login)), ..EditFeed::default() },
    ] {
        let world = World::new(HubAccess::Known).await;
        let id = world.ops.add(&[feed(TOPIC)], None).await.unwrap()[0].id;
        world.ask(&request()).await;
        world.settled().await;
        world.ops.edit(id, &edit).await.unwrap();
        round(&world.ops).await.unwrap();
        world.entry(id, "1").await;
        world.until("denial", async |world| world.asked("denied")).await;
        assert!(world.settled().await.is_none());
        assert!(world.notified().is_empty(), "{edit:?}");
        world.end().await;
    }

    // One that an operator has paused, too.
    let world = World::new(HubAccess::Known).await;
    let id = world.ops.add(&[feed(TOPIC)], None).await.unwrap()[0].id;
    world.ask(&request()).await;
    let paused = world.settled().await.unwrap();
    let pause = EditSubscription { state: Some(SubscriptionState::Paused), ..EditSubscription::default() };
    ops::subscriptions::edit(&world.ops, paused.id, &pause).await.unwrap();
    world.ops.edit(id, &EditFeed { private: Some(true), ..EditFeed::default() }).await.unwrap();
    round(&world.ops).await.unwrap();
    world.until("denial", async |world| world.asked("denied")).await;
    assert!(world.settled().await.is_none());
    world.end().await;

    let world = World::new(HubAccess::Token).await;
    world.ask(&request()).await;
    world.settled().await;
    world.ask(&HubRequest { callback: "https://t.example/".into(), by: "reader".into(), ..request() }).await;
    round(&world.ops).await.unwrap();
    let denied = world.until("denial", async |world| world.asked("denied")).await;
    assert_eq!(query(&denied, "hub.reason").unwrap(), "this hub is closed");
    world.until("the other one", async |world| (world.subscription().await?.by == "reader").then_some(())).await;
    world.end().await;
}

#[tokio::test]
async fn feeds_are_added_for_strangers_at_a_limited_rate_and_not_released_at_once() {
    let world = World::new(HubAccess::Open).await;
    let of = |number: usize| HubRequest { topic: format!("https://f{number}.example/"), ..request() };
    let all = async || world.ops.store.subscriptions(0, 100).await.unwrap();
    let added = async |count: usize| {
        world
            .until("confirmations", async |_| {
                let all = all().await;
                (all.iter().filter(|it| it.wish.filter.feed.is_some()).count() == count).then_some(())
            })
            .await;
    };
    for number in 0..10 {
        world.ask(&of(number)).await;
    }
    added(10).await;
    for number in 0..10 {
        world.ask(&HubRequest { mode: IntentMode::Unsubscribe, ..of(number) }).await;
    }
    world.until("end", async |world| world.subscription().await.is_none().then_some(())).await;
    round(&world.ops).await.unwrap();
    let additions = async || world.ops.store.hub_additions(Timestamp::EPOCH).await.unwrap();
    assert_eq!(additions().await, 10, "they were added a moment ago");
    let refused = ops::hub::accept(&world.ops, &of(10)).await.unwrap_err();
    assert!(matches!(refused, HubRefusal::Busy { .. }), "{refused:?}");
    world.clock.advance(Duration::from_secs(11));
    world.ask(&of(10)).await;
    added(1).await;
    round(&world.ops).await.unwrap();
    assert_eq!(additions().await, 1, "the others are released");
    world.end().await;
}

#[tokio::test]
async fn the_secret_of_a_request_that_waits_is_sealed_with_the_new_key() {
    let world = World::new(HubAccess::Known).await;
    world.ops.add(&[feed(TOPIC)], None).await.unwrap();
    world.say(Says::Tomorrow);
    world.ask(&request()).await;
    world.until("question", async |world| world.subscription().await?.hub?.intent?.next_try).await;
    let mut config = common::config::defaults().secrets;
    config.key = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=".into();
    config.old_keys = vec![KEY.into()];
    let keys = Keyring::new(&config);
    Resealing::default().round(&*world.ops.store, &keys).await.unwrap();
    let secret = world.subscription().await.unwrap().hub.unwrap().intent.unwrap().secret.unwrap();
    assert!(keys.is_current(&secret));
    assert_eq!(keys.open_hub(&secret).as_deref(), Ok("s3cret"));
    world.end().await;
}
