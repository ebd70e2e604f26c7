//! What must hold when processes die, hubs are slow or hostile, queues forget, and people change their minds.

use super::*;
use crate::ops;
use crate::upkeep::reseal::Resealing;

/// Returns a dated entry, this long before now.
fn dated(world: &World, id: u32, ago: Duration) -> Entry {
    Entry { id: id.to_string(), published: Some(world.clock.now().before(ago)), ..Entry::default() }
}

impl World {
    /// Settles a poll that found exactly these entries.
    async fn found(&self, id: FeedId, mut document: Document, entries: Vec<Entry>) {
        document.keep_news(entries, &KnownEntries::default());
        let feed = self.feed(id).await;
        let outcome = Outcome::Modified(Box::new(document));
        let report = FetchReport::of(id, feed.version, feed.host, self.clock.now(), outcome);
        self.results.settle(vec![report], self.clock.now()).await.unwrap();
    }
}

#[tokio::test]
async fn a_lease_that_expired_while_nobody_looked_stretches_no_interval() {
    let world = World::with(fixed(), |_| (202, None)).await;
    let (id, of, unpushed) = reliable(&world).await;
    // No loop of any scheduler runs.
    world.clock.advance(of.lease_until.unwrap().since(world.clock.now()) + Duration::from_secs(1));
    world.polled(id, announcing(HUB), &[101, 100, 1]).await;
    let feed = world.feed(id).await;
    assert_eq!(feed.push.as_ref().unwrap().state, PushState::Verified);
    assert!(planned(&feed) <= unpushed, "{:?}", planned(&feed));
}

#[tokio::test]
async fn pushes_that_are_switched_off_are_left_and_their_feeds_get_their_pace_back() {
    let world = World::with(fixed(), |_| (202, None)).await;
    let (id, of, unpushed) = reliable(&world).await;
    let mut off = fixed();
    off.push.websub = false;
    let off = world.restarted(off).await;
    off.upkeep().await;
    off.upkeep().await;
    assert_eq!(off.ops.store.push(&of.id).await.unwrap().unwrap().state, PushState::Unsubscribing);
    assert!(planned(&off.feed(id).await) <= unpushed);
    assert_eq!(off.act().await, 1);
    assert_eq!(off.sent()[0].1["hub.mode"], "unsubscribe");
}

#[tokio::test]
async fn a_process_that_dies_after_it_stored_a_fault_leaves_the_feed_its_old_pace() {
    for fault in ["lapsed", "denied", "left"] {
        let world = World::with(fixed(), |_| (202, None)).await;
        let (id, of, unpushed) = reliable(&world).await;
        let row = world.push(id).await;
        // The process that notes the fault does nothing more.
        match fault {
            "lapsed" => assert!(world.store_push(PushSubscription { state: PushState::Lapsed, ..row }).await),
            "denied" => assert!(world.store_push(PushSubscription { state: PushState::Denied, ..row }).await),
            _ => {
                let wish = PushWish { feed: id, wanted: None };
                world.ops.store.want_pushes(&[wish], world.clock.now()).await.unwrap();
                let left = world.ops.store.push(&of.id).await.unwrap().unwrap();
                assert!(!world.ops.store.remove_push(&of.id, left.revision).await.unwrap(), "it is owed its pace");
            }
        }
        assert!(planned(&world.feed(id).await) > unpushed, "{fault}");
        let next = world.restarted(fixed()).await;
        next.upkeep().await;
        assert!(planned(&next.feed(id).await) <= unpushed, "{fault}");
        assert!(next.ops.store.owed_paces(10).await.unwrap().is_empty(), "{fault}: once");
    }
}

impl World {
    async fn store_push(&self, of: PushSubscription) -> bool {
        self.ops.store.store_push(&of).await.unwrap()
    }
}

#[tokio::test]
async fn a_hub_with_a_long_backlog_delays_no_other_hub_and_has_one_task() {
    let world = World::new().await;
    for number in 0..3 * OF_HOST {
        let id = world.add(&format!("https://a{number}.example/feed")).await;
        world.polled(id, announcing("https://large.example/"), &[1]).await;
    }
    world.clock.advance(Duration::from_secs(1));
    let id = world.add(FEED).await;
    world.polled(id, announcing(HUB), &[1]).await;
    assert_eq!(world.act().await, OF_HOST as usize + 1);
    assert!(world.sent().iter().any(|(url, _)| url == HUB), "the other hub does not wait behind the backlog");

    // While a scheduler acts on a host, no other one does.
    let now = world.clock.now();
    let held = world.ops.store.push_hosts(now, now.after(TAKEN_FOR), 10).await.unwrap();
    assert_eq!(held, ["large.example"]);
    assert_eq!(world.act().await, 0);
    world.clock.advance(TAKEN_FOR + Duration::from_secs(1));
    assert_eq!(world.act().await, OF_HOST as usize, "until it dies");
}

#[tokio::test]
async fn a_hub_behind_a_closed_gate_is_asked_once_and_its_backlog_stays_as_it_is() {
    let world = World::new().await;
    for number in 0..5 {
        let id = world.add(&format!("https://a{number}.example/feed")).await;
        world.polled(id, announcing(HUB), &[1]).await;
    }
    let host = world.ops.rules.get().for_url(&HUB.parse().unwrap()).key;
    let until = world.clock.now().after(Duration::from_secs(3600));
    world.ops.gate.hold(&[(host, until)], world.clock.now()).await.unwrap();
    assert_eq!((world.act().await, world.act().await), (1, 0));
    assert!(world.sent().is_empty());
    world.clock.advance(Duration::from_secs(3 * 3600));
    assert_eq!(world.act().await, 5);
}

#[tokio::test]
async fn a_hub_that_always_says_when_to_retry_is_given_up() {
    let world = World::with(config(), |_| (503, None)).await;
    let id = world.add(FEED).await;
    world.polled(id, announcing(HUB), &[1]).await;
    for failures in 1..=5 {
        assert_eq!(world.act().await, 1);
        let of = world.push(id).await;
        assert_eq!(of.failures, failures);
        world.clock.advance(of.act_at.since(world.clock.now()));
    }
}

#[tokio::test]
async fn a_feed_with_another_topic_in_each_document_has_few_subscriptions_and_those_that_are_left_go() {
    let world = World::new().await;
    let id = world.add(FEED).await;
    for number in 0..20 {
        world.clock.advance(Duration::from_secs(60));
        let topic = format!("https://a.example/{number}");
        world.polled(id, Document { self_link: Some(topic), ..announcing(HUB) }, &[1]).await;
    }
    let count = async || world.ops.store.count_pushes().await.unwrap().iter().map(|count| count.2).sum::<u64>();
    assert_eq!(count().await, 4);
    world.clock.advance(Duration::from_secs(25 * 3600));
    world.upkeep().await;
    assert!(count().await <= 1, "left subscriptions are removed whatever their hub says");
}

#[tokio::test]
async fn a_feed_that_becomes_private_or_ends_or_whose_host_is_excluded_is_left_and_no_longer_named_to_its_hub() {
    for change in ["private", "removed", "rule"] {
        let world = World::new().await;
        let (id, of) = world.subscribed().await;
        let secret = world.secret(&of);
        let edit = EditFeed::default();
        match change {
            "private" => drop(world.ops.edit(id, &EditFeed { private: Some(true), ..edit }).await.unwrap()),
            "removed" => {
                let status = Some(common::policy::Status::Removed);
                world.ops.edit(id, &EditFeed { status, ..edit }).await.unwrap();
            }
            _ => {
                let rule =
                    common::host::HostRule { r#match: "a.example".into(), push: Some(false), ..Default::default() };
                ops::hosts::set_rule(&world.ops, &rule).await.unwrap();
            }
        }
        assert_eq!(world.deliver(&of.id, signed(&secret, b"<feed/>")).await, Taken::Gone, "{change}");
        // The renewal that was due leaves it instead.
        world.clock.advance(Duration::from_secs(5 * 86_400));
        world.act().await;
        world.act().await;
        let modes: Vec<String> =
            world.sent().into_iter().map(|(_, mut form)| form.remove("hub.mode").unwrap()).collect();
        assert_eq!(modes, ["unsubscribe"], "{change}");
    }
}

#[tokio::test]
async fn the_upkeep_leaves_what_no_other_step_led_to() {
    let world = World::new().await;
    let (id, of) = world.subscribed().await;
    world.ops.erase(id).await.unwrap();
    world.upkeep().await;
    assert_eq!(world.ops.store.push(&of.id).await.unwrap().unwrap().state, PushState::Unsubscribing);
}

#[tokio::test]
async fn beyond_the_budget_of_a_feed_deliveries_only_cause_polls() {
    let world = World::new().await;
    let (id, of) = world.subscribed().await;
    let body = vec![b'x'; super::super::callback::MAX_BODY_BYTES];
    for _ in 0..12 {
        assert_eq!(world.deliver(&of.id, signed(&world.secret(&of), &body)).await, Taken::Accepted);
    }
    // Budgets grow with time, and a machine may be slow.
    let read = world.jobs().await.len();
    assert!((7..=9).contains(&read), "{read} of 12 were read");
    assert!(world.feed(id).await.wake_at.is_some());
    assert_eq!(world.push(id).await.light_at, Some(world.clock.now()));
}

#[tokio::test]
async fn a_delivery_that_was_accepted_and_lost_has_its_feed_polled() {
    let world = World::new().await;
    let (id, of) = world.subscribed().await;
    let delivery = || signed(&world.secret(&of), b"<feed/>");
    // One that is read: nothing follows.
    assert_eq!(world.deliver(&of.id, delivery()).await, Taken::Accepted);
    world.pushed(id, &[2]).await;
    world.clock.advance(Duration::from_secs(600));
    world.upkeep().await;
    assert_eq!(world.feed(id).await.wake_at, None);
    // One that is accepted, and then the process and its queue are gone.
    assert_eq!(world.deliver(&of.id, delivery()).await, Taken::Accepted);
    let next = world.restarted(config()).await;
    next.clock.advance(Duration::from_secs(60));
    next.upkeep().await;
    assert_eq!(next.feed(id).await.wake_at, None, "it may still be in the queue");
    next.clock.advance(Duration::from_secs(180));
    next.upkeep().await;
    assert!(next.feed(id).await.wake_at.is_some());
    assert!(next.ops.store.lost_pushes(Timestamp::MAX, 10).await.unwrap().is_empty(), "once");
}

#[tokio::test]
async fn what_the_quotas_left_out_of_a_delivery_a_poll_brings() {
    let mut config = config();
    config.quota.entries_per_day = 1;
    let store = SqliteStore::open("sqlite::memory:").await.unwrap().within(config.quota);
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let world = World::over(Arc::new(store), clock, config, |_| (202, None)).await;
    let (id, _) = world.subscribed().await;
    world.pushed(id, &[2, 3]).await;
    assert!(world.feed(id).await.wake_at.is_some());
}

#[tokio::test]
async fn a_ping_that_got_lost_is_not_hidden_by_the_next_one() {
    let world = World::with(fixed(), |_| (202, None)).await;
    let id = world.add(FEED).await;
    let cloud = || Document { cloud: Some("c.example:5337/pleaseNotify http-post".into()), ..Document::default() };
    world.found(id, cloud(), vec![dated(&world, 1, Duration::ZERO)]).await;
    world.act().await;
    let of = world.push(id).await;
    world.clock.advance(Duration::from_secs(6 * 3600));
    assert_eq!(world.notify(&of.id, FEED).await, Taken::Accepted);
    let (new, lost) = (dated(&world, 3, Duration::ZERO), dated(&world, 2, Duration::from_secs(3 * 3600)));
    world.clock.advance(Duration::from_secs(60));
    world.found(id, cloud(), vec![new, lost]).await;
    let push = world.push(id).await;
    assert_eq!((push.announced, push.missed), (0, 1), "an entry that is three hours older than the ping");

    world.clock.advance(Duration::from_secs(3600));
    assert_eq!(world.notify(&of.id, FEED).await, Taken::Accepted);
    let new = dated(&world, 4, Duration::from_secs(300));
    world.found(id, cloud(), vec![new]).await;
    let push = world.push(id).await;
    assert_eq!((push.announced, push.missed), (1, 1), "an entry that is dated shortly before its ping");
}

#[tokio::test]
async fn an_old_entry_in_a_new_delivery_counts_as_missed() {
    let world = World::with(fixed(), |_| (202, None)).await;
    let (id, ..) = reliable(&world).await;
    let mut document = Document::default();
    let entries = vec![dated(&world, 301, Duration::ZERO), dated(&world, 300, Duration::from_secs(5 * 3600))];
    document.keep_news(entries, &KnownEntries::default());
    let (feed, now) = (world.feed(id).await, world.clock.now());
    let outcome = Outcome::Modified(Box::new(document));
    let report = FetchReport { pushed: true, ..FetchReport::of(id, feed.version, feed.host, now, outcome) };
    world.results.settle(vec![report], now).await.unwrap();
    let push = world.push(id).await;
    assert_eq!((push.announced, push.missed), (0, 1), "its own delivery did not arrive");
}

#[tokio::test]
async fn a_job_of_a_delivery_knows_the_feeds_entries_and_where_its_document_was_found() {
    let world = World::new().await;
    let (id, of) = world.subscribed().await;
    let elsewhere = "https://b.example/there/feed";
    let validators = common::document::Validators { for_url: Some(elsewhere.into()), ..Default::default() };
    world.clock.advance(Duration::from_secs(3600));
    world.polled(id, Document { validators, ..announcing(HUB) }, &[1]).await;
    world.pushed(id, &[2]).await;
    world.deliver(&of.id, signed(&world.secret(&of), b"<feed/>")).await;
    let job = world.jobs().await.remove(0);
    assert_eq!(job.validators.for_url.as_deref(), Some(elsewhere));
    for entry in ["1", "2"] {
        assert!(job.known.contains(Entry { id: entry.into(), ..Entry::default() }.fingerprint()), "{entry}");
    }
}

/// The configuration with this key, and these older ones. That of the other tests is 7.
fn with_keys(key: u8, old: &[u8]) -> Config {
    let text = |byte: u8| base64::Engine::encode(&base64::prelude::BASE64_STANDARD, [byte; 32]);
    let mut config = config();
    (config.secrets.key, config.secrets.old_keys) = (text(key), old.iter().map(|key| text(*key)).collect());
    config
}

#[tokio::test]
async fn deliveries_are_read_after_the_key_was_changed_and_the_old_one_removed() {
    let world = World::new().await;
    let (id, of) = world.subscribed().await;
    let secret = world.secret(&of);
    let both = world.restarted(with_keys(8, &[7])).await;
    Resealing::default().round(&*both.ops.store, &both.ops.secrets).await.unwrap();
    let new = both.restarted(with_keys(8, &[])).await;
    assert_eq!(new.secret(&new.push(id).await), secret);
    assert_eq!(new.deliver(&of.id, signed(&secret, b"<feed/>")).await, Taken::Accepted);
    assert_eq!(new.jobs().await.len(), 1);
}

#[tokio::test]
async fn a_secret_that_no_key_opens_is_replaced_with_the_renewal_and_deliveries_until_then_cause_polls() {
    let world = World::new().await;
    let (id, of) = world.subscribed().await;
    let secret = world.secret(&of);
    let lost = world.restarted(with_keys(8, &[])).await;
    assert_eq!(lost.deliver(&of.id, signed(&secret, b"<feed/>")).await, Taken::Accepted);
    assert!(lost.jobs().await.is_empty() && lost.feed(id).await.wake_at.is_some());
    assert_eq!(lost.push(id).await.deliveries, 0, "it may be anybody's");
    lost.clock.advance(Duration::from_secs(5 * 86_400));
    assert_eq!(lost.act().await, 1);
    let (_, form) = lost.sent().remove(0);
    let fresh = lost.secret(&lost.push(id).await);
    assert!(form["hub.secret"] == fresh && fresh != secret);
    assert_eq!(lost.verify(&of.id, "subscribe", FEED, 864_000).await, Verified::Challenge("xyz".into()));
    assert_eq!(lost.deliver(&of.id, signed(&fresh, b"<feed/>")).await, Taken::Accepted);
    assert_eq!(lost.jobs().await.len(), 1);
}

#[tokio::test]
async fn a_subscription_from_before_the_key_gets_its_secret_with_the_renewal() {
    let mut keyless = config();
    keyless.secrets.key.clear();
    let world = World::with(keyless, |_| (202, None)).await;
    let (id, of) = world.subscribed().await;
    assert_eq!(of.secret, None);
    let world = world.restarted(config()).await;
    world.clock.advance(Duration::from_secs(5 * 86_400));
    assert_eq!(world.act().await, 1);
    let (_, form) = world.sent().remove(0);
    let secret = world.secret(&world.push(id).await);
    assert_eq!(form["hub.secret"], secret);
    assert_eq!(world.verify(&of.id, "subscribe", FEED, 864_000).await, Verified::Challenge("xyz".into()));
    assert_eq!(world.deliver(&of.id, signed(&secret, b"<feed/>")).await, Taken::Accepted);
    assert_eq!(world.jobs().await.len(), 1);
}

#[tokio::test]
async fn a_hub_that_wants_a_rest_holds_its_host_for_an_hour_at_most_and_after_a_restart() {
    let world = World::with(config(), |_| (429, None)).await;
    let id = world.add(FEED).await;
    world.polled(id, announcing(HUB), &[1]).await;
    world.act().await;
    assert_eq!(world.sent().len(), 1);
    let now = world.clock.now();
    let holds = world.ops.store.holds(now).await.unwrap();
    assert_eq!(holds.iter().map(|(_, until)| until.since(now)).collect::<Vec<_>>(), [Duration::from_secs(3600)]);
    // Another feed at the same hub, in a process that has lost the gate's memory.
    let restarted = world.restarted(config()).await;
    let other = restarted.add("https://other.example/feed").await;
    restarted.polled(other, announcing(HUB), &[1]).await;
    restarted.act().await;
    assert_eq!(restarted.sent(), []);
    let later = restarted.clock.advance(Duration::from_secs(3601));
    assert_eq!(restarted.ops.gate.held(later).await.unwrap(), 0);
}

#[tokio::test]
async fn a_hub_that_verifies_at_once_that_a_feed_leaves_is_answered_although_the_feed_is_owed_its_pace() {
    let world = World::with(fixed(), |_| (202, None)).await;
    let (id, of, _) = reliable(&world).await;
    let wish = PushWish { feed: id, wanted: None };
    world.ops.store.want_pushes(&[wish], world.clock.now()).await.unwrap();
    world.act_alone().await;
    assert_eq!(world.sent().last().unwrap().1["hub.mode"], "unsubscribe");
    assert_eq!(world.verify(&of.id, "unsubscribe", FEED, 0).await, Verified::Challenge("xyz".into()));
}
