//! The subscriber's half of WebSub and rssCloud over the embedded backends, with a hub that is a function and a stopped
//! clock. What `websub.rocks` tests of subscribers is here (200 to 205, 300 to 302) and in the worker's tests (100 to
//! 104).

mod faults;

use std::collections::HashMap;
use std::sync::Mutex;

use aws_lc_rs::hmac;
use common::config::Config;
use common::delivery::{DeliveryAnswer, DeliveryRequest};
use common::document::Document;
use common::entry::Entry;
use common::feed::Feed;
use common::known::KnownEntries;
use common::metrics::Metrics;
use common::outcome::DeliveryOutcome;
use common::policy::Rule;
use common::push::RELIABLE_AFTER;
use common::queue::Queue;
use common::queue::memory::MemoryQueue;
use common::report::{FetchReport, Outcome};
use common::time::{Clock, ManualClock, Timestamp};
use common::url::FeedId;
use store::FeedRef;
use store::sqlite::SqliteStore;

use super::address::path;
use super::callback::{Callbacks, PushDelivery, Taken, Verification, Verified};
use super::pace::OwnPace;
use super::*;
use crate::delivery::sender::{Answering, Sender};
use crate::ops::pings::Pings;
use crate::ops::{AddFeed, EditFeed};
use crate::poll::results::Results;
use crate::run::{Backends, Scheduler};

const FEED: &str = "https://a.example/feed";
const HUB: &str = "https://hub.example/";

/// The answer of the hub: status and `Location`.
type Hub = dyn Fn(&DeliveryRequest) -> (u16, Option<String>) + Send + Sync;

/// URL and form of a request.
type Request = (String, HashMap<String, String>);

struct World {
    store: Arc<SqliteStore>,
    ops: Arc<Ops>,
    results: Arc<Results>,
    callbacks: Callbacks,
    jobs: Arc<MemoryQueue<common::job::FetchJob>>,
    clock: Arc<ManualClock>,
    sent: Arc<Mutex<Vec<Request>>>,
}

fn config() -> Config {
    let mut config = common::config::defaults();
    config.policy.hot_minutes = false;
    config.policy.salt = 0.0;
    config.host.gap = Duration::ZERO;
    config.api.public_url = "https://fleet.example".into();
    config.secrets.key = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, [7; 32]);
    config
}

impl World {
    async fn new() -> Self {
        Self::with(config(), |_| (202, None)).await
    }

    async fn with(
        config: Config,
        hub: impl Fn(&DeliveryRequest) -> (u16, Option<String>) + Send + Sync + 'static,
    ) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
        Self::over(Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap()), clock, config, hub).await
    }

    /// Another process over the same store.
    async fn restarted(&self, config: Config) -> Self {
        Self::over(Arc::clone(&self.store), Arc::clone(&self.clock), config, |_| (202, None)).await
    }

    async fn over(
        store: Arc<SqliteStore>,
        clock: Arc<ManualClock>,
        config: Config,
        hub: impl Fn(&DeliveryRequest) -> (u16, Option<String>) + Send + Sync + 'static,
    ) -> Self {
        let jobs = Arc::new(MemoryQueue::new(1 << 26));
        let backends = Backends { jobs: jobs.clone(), ..Backends::in_memory(store.clone()) };
        let for_all: Arc<dyn Clock> = clock.clone();
        let scheduler = Scheduler::new(&backends, &Arc::new(config), &Arc::new(Metrics::new()), &for_all);
        scheduler.reconciler.rebuild(&*clock).await.unwrap();
        assert!(scheduler.reconciler.open_gate(&*clock).await.unwrap());
        let sent: Arc<Mutex<Vec<Request>>> = Arc::default();
        let hub: Arc<Hub> = Arc::new(hub);
        let (log, now) = (Arc::clone(&sent), Arc::clone(&clock));
        let send = move |request: DeliveryRequest| {
            let form = url::form_urlencoded::parse(request.body.as_deref().unwrap_or_default()).into_owned().collect();
            log.lock().unwrap().push((request.url.to_string(), form));
            let (status, location) = hub(&request);
            let outcome = DeliveryOutcome::of_status(status);
            let retry_after = (status == 429).then(|| now.now().after(Duration::from_secs(365 * 86_400)));
            let unanswered = DeliveryAnswer::unanswered(outcome, "");
            let answer = DeliveryAnswer { status: Some(status), location, retry_after, ..unanswered };
            let answering: Answering = Box::pin(std::future::ready(answer));
            answering
        };
        let Scheduler { ops, results, .. } = scheduler;
        assert!(ops.sender.set(Sender { send: Box::new(send), judge: Box::new(|_| Ok(())) }).is_ok());
        let callbacks = Callbacks::new(ops.clone(), Pings::new(ops.clone()));
        World { store, ops, results, callbacks, jobs, clock, sent }
    }

    async fn add(&self, url: &str) -> FeedId {
        let feed = AddFeed::of(url.parse().unwrap());
        self.ops.add(&[feed], None).await.unwrap()[0].id
    }

    async fn feed(&self, id: FeedId) -> Feed {
        self.ops.feed(&FeedRef::Id(id)).await.unwrap().unwrap()
    }

    async fn push(&self, id: FeedId) -> PushSubscription {
        self.ops.store.pushes_of(&[id]).await.unwrap().remove(0)
    }

    /// Settles a poll that found these entries, the newest first.
    async fn polled(&self, id: FeedId, document: Document, entries: &[u32]) {
        let document = brought(document, entries);
        let feed = self.feed(id).await;
        let outcome = Outcome::Modified(Box::new(document));
        let report = FetchReport {
            http_status: Some(200),
            ..FetchReport::of(id, feed.version, feed.host, self.clock.now(), outcome)
        };
        self.results.settle(vec![report], self.clock.now()).await.unwrap();
    }

    /// Settles what a worker read of deliveries.
    async fn pushed(&self, id: FeedId, entries: &[u32]) {
        let feed = self.feed(id).await;
        let outcome = Outcome::Modified(Box::new(brought(Document::default(), entries)));
        let report =
            FetchReport { pushed: true, ..FetchReport::of(id, feed.version, feed.host, self.clock.now(), outcome) };
        self.results.settle(vec![report], self.clock.now()).await.unwrap();
    }

    async fn act(&self) -> usize {
        let acted = self.act_alone().await;
        OwnPace::of(&self.ops).restore_owed(self.clock.now()).await.unwrap();
        acted
    }

    /// The same before anything else looks.
    async fn act_alone(&self) -> usize {
        let mut it = Subscriber::new(self.ops.clone());
        it.act(&CancellationToken::new()).await.unwrap();
        let mut acted = 0;
        while let Some(ended) = it.running.join_next().await {
            acted += done(ended).unwrap();
        }
        acted
    }

    /// One look of the upkeep.
    async fn upkeep(&self) {
        Upkeep::new(self.ops.clone()).look().await.unwrap();
    }

    fn sent(&self) -> Vec<Request> {
        std::mem::take(&mut self.sent.lock().unwrap())
    }

    async fn verify(&self, id: &str, mode: &str, topic: &str, lease: u64) -> Verified {
        let asked = Verification {
            mode: mode.into(),
            topic: topic.into(),
            challenge: "xyz".into(),
            lease_seconds: Some(lease),
            reason: String::new(),
        };
        self.callbacks.verify(id, &asked).await.unwrap()
    }

    /// Returns a feed with a subscription that its hub has verified.
    async fn subscribed(&self) -> (FeedId, PushSubscription) {
        let id = self.add(FEED).await;
        self.polled(id, announcing(HUB), &[1]).await;
        assert_eq!(self.act().await, 1);
        let of = self.push(id).await;
        assert_eq!(self.verify(&of.id, "subscribe", FEED, 864_000).await, Verified::Challenge("xyz".into()));
        self.sent();
        (id, self.push(id).await)
    }

    fn secret(&self, of: &PushSubscription) -> String {
        self.ops.secrets.open_push(of.secret.as_ref().unwrap()).unwrap()
    }

    async fn deliver(&self, id: &str, delivery: PushDelivery) -> Taken {
        match self.callbacks.admit(id, PushKind::WebSub).await.unwrap() {
            Ok(admitted) => self.callbacks.deliver(admitted, delivery).await.unwrap(),
            Err(refused) => refused,
        }
    }

    async fn notify(&self, id: &str, url: &str) -> Taken {
        match self.callbacks.admit(id, PushKind::RssCloud).await.unwrap() {
            Ok(admitted) => self.callbacks.notify(admitted, url).await.unwrap(),
            Err(refused) => refused,
        }
    }

    async fn jobs(&self) -> Vec<common::job::FetchJob> {
        let mut jobs = Vec::new();
        while self.jobs.depth().await.unwrap().items > 0 {
            let delivery = self.jobs.receive().await.unwrap();
            jobs.extend(delivery.items.clone());
            delivery.ack().await.unwrap();
        }
        jobs
    }
}

const REFUSED: Verified = Verified::Refused;

fn announcing(hub: &str) -> Document {
    Document { hub: Some(hub.to_owned()), self_link: Some(FEED.to_owned()), ..Document::default() }
}

fn brought(mut document: Document, entries: &[u32]) -> Document {
    let entries = entries.iter().map(|id| Entry { id: id.to_string(), ..Entry::default() }).collect();
    document.keep_news(entries, &KnownEntries::default());
    document
}

fn signed(secret: &str, body: &[u8]) -> PushDelivery {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), body);
    let digits: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    PushDelivery {
        signature: Some(format!("sha256={digits}")),
        content_type: Some("application/atom+xml".into()),
        body: Some(body.to_vec()),
        ..PushDelivery::default()
    }
}

#[tokio::test]
async fn a_feed_that_announces_a_hub_is_subscribed_and_left_when_it_goes() {
    let world = World::new().await;
    let id = world.add(FEED).await;
    world.polled(id, announcing(HUB), &[1]).await;
    assert_eq!((world.act().await, world.act().await), (1, 0));
    let of = world.push(id).await;
    let (url, form) = world.sent().remove(0);
    let secret = world.secret(&of);
    let callback = format!("https://fleet.example/websub/{}", of.id);
    let expected = [
        ("hub.callback", callback.as_str()),
        ("hub.mode", "subscribe"),
        ("hub.topic", FEED),
        ("hub.verify", "async"),
        ("hub.lease_seconds", "864000"),
        ("hub.secret", &secret),
    ];
    assert_eq!(url, HUB);
    assert_eq!(form, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    assert_eq!(world.feed(id).await.push.unwrap().state, PushState::Pending);
    assert_eq!(world.verify(&of.id, "subscribe", FEED, 864_000).await, Verified::Challenge("xyz".into()));
    assert_eq!(world.feed(id).await.push.unwrap().state, PushState::Verified);

    // The same document again causes no request.
    world.clock.advance(Duration::from_secs(3600));
    world.polled(id, announcing(HUB), &[1]).await;
    assert_eq!(world.act().await, 0);

    world
        .ops
        .edit(id, &EditFeed { status: Some(common::policy::Status::Removed), ..EditFeed::default() })
        .await
        .unwrap();
    assert_eq!(world.verify(&of.id, "unsubscribe", FEED, 0).await, REFUSED, "nobody asked for that yet");
    assert_eq!(world.act().await, 1);
    let (_, form) = world.sent().remove(0);
    assert_eq!((&*form["hub.mode"], &*form["hub.topic"], form.get("hub.secret")), ("unsubscribe", FEED, None));
    let body = signed(&secret, b"<feed/>");
    assert_eq!(world.deliver(&of.id, body).await, Taken::Gone);
    assert_eq!(world.verify(&of.id, "unsubscribe", FEED, 0).await, Verified::Challenge("xyz".into()));
    assert_eq!(world.ops.store.push(&of.id).await.unwrap(), None);
}

/// websub.rocks 200: a topic whose `rel=self` is another URL.
#[tokio::test]
async fn rocks_200_the_self_link_is_subscribed_and_not_the_url() {
    let world = World::new().await;
    let id = world.add(FEED).await;
    let own = "https://a.example/canonical";
    world.polled(id, Document { self_link: Some(own.into()), ..announcing(HUB) }, &[1]).await;
    world.act().await;
    assert_eq!(world.sent()[0].1["hub.topic"], own);
    let of = world.push(id).await;
    assert_eq!(world.verify(&of.id, "subscribe", FEED, 60).await, REFUSED);
    assert_eq!(world.verify(&of.id, "subscribe", own, 60).await, Verified::Challenge("xyz".into()));
}

/// websub.rocks 201 and 202: the topic redirects; the document at its end says what is subscribed, and what it is called there.
#[tokio::test]
async fn rocks_201_and_202_what_a_topic_redirects_to_is_subscribed() {
    let world = World::new().await;
    let id = world.add("https://old.example/feed").await;
    world.polled(id, announcing(HUB), &[1]).await;
    world.act().await;
    assert_eq!(world.sent()[0].1["hub.topic"], FEED);
    assert_eq!(world.feed(id).await.push.unwrap().topic, FEED);
}

/// websub.rocks 203 and 204: the hub redirects.
#[tokio::test]
async fn rocks_203_and_204_redirects_of_the_hub_are_followed_with_the_same_form() {
    for status in [301, 302, 307, 308] {
        let world = World::with(config(), move |request| match request.url.as_str() {
            HUB => (status, Some("/elsewhere".into())),
            _ => (202, None),
        })
        .await;
        let id = world.add(FEED).await;
        world.polled(id, announcing(HUB), &[1]).await;
        world.act().await;
        let sent = world.sent();
        assert_eq!(sent.iter().map(|(url, _)| &**url).collect::<Vec<_>>(), [HUB, "https://hub.example/elsewhere"]);
        assert_eq!(sent[0].1, sent[1].1);
        assert_eq!(world.push(id).await.failures, 0);
    }
    let insecure = World::with(config(), |_| (307, Some("http://hub.example/".into()))).await;
    let id = insecure.add(FEED).await;
    insecure.polled(id, announcing(HUB), &[1]).await;
    insecure.act().await;
    assert_eq!(insecure.sent().len(), 1, "a secret does not go to http");
    assert!(insecure.push(id).await.reason.unwrap().contains("push.secret_over_http"));
    let endless = World::with(config(), |_| (307, Some("/".into()))).await;
    let id = endless.add(FEED).await;
    endless.polled(id, announcing(HUB), &[1]).await;
    endless.act().await;
    assert!(endless.push(id).await.reason.unwrap().contains("too often"));
}

/// websub.rocks 205: a verification with another topic.
#[tokio::test]
async fn rocks_205_what_was_not_requested_is_not_confirmed() {
    let world = World::new().await;
    let id = world.add(FEED).await;
    world.polled(id, announcing(HUB), &[1]).await;
    let of = world.push(id).await;
    assert_eq!(world.verify(&of.id, "subscribe", FEED, 60).await, REFUSED, "before it was requested");
    world.act().await;
    for (token, mode, topic) in [
        (&*of.id, "subscribe", "https://a.example/other"),
        (&of.id, "unsubscribe", FEED),
        (&of.id, "publish", FEED),
        (&of.id, "", FEED),
        (&"0".repeat(32), "subscribe", FEED),
        ("../../x", "subscribe", FEED),
    ] {
        assert_eq!(world.verify(token, mode, topic, 60).await, REFUSED, "{token} {mode} {topic}");
    }
    let empty = Verification { mode: "subscribe".into(), topic: FEED.into(), ..Verification::default() };
    assert_eq!(world.callbacks.verify(&of.id, &empty).await.unwrap(), REFUSED, "without a challenge");
    assert_eq!(world.push(id).await.state, PushState::Pending);
    assert_eq!(world.verify(&of.id, "subscribe", FEED, 60).await, Verified::Challenge("xyz".into()));
    let confirmed = world.push(id).await;
    let again = world.verify(&of.id, "subscribe", FEED, 60).await;
    assert_eq!(again, Verified::Challenge("xyz".into()), "the hub may not have got the answer");
    assert_eq!(world.push(id).await, confirmed, "which changes nothing");
    assert_eq!(world.verify(&of.id, "subscribe", FEED, 86_400).await, REFUSED);
    world.clock.advance(Duration::from_secs(3600));
    assert_eq!(world.verify(&of.id, "subscribe", FEED, 60).await, REFUSED, "long afterwards");
}

/// A hub with short leases must not be able to have us call another host at each renewal.
#[tokio::test]
async fn renewals_of_short_leases_stay_at_the_hubs_host() {
    const OTHER: &str = "https://other.example/";
    let world = World::with(config(), |request| match request.url.as_str() {
        HUB => (307, Some(OTHER.into())),
        _ => (202, None),
    })
    .await;
    let id = world.add(FEED).await;
    world.polled(id, announcing(HUB), &[1]).await;
    world.act().await;
    assert_eq!(world.sent().iter().map(|(url, _)| &**url).collect::<Vec<_>>(), [HUB, OTHER], "the first request");
    let of = world.push(id).await;
    let mut elsewhere = Vec::new();
    for second in 0..600 {
        world.verify(&of.id, "subscribe", FEED, 1).await;
        world.clock.advance(Duration::from_secs(1));
        world.act().await;
        elsewhere.extend(world.sent().iter().filter(|(url, _)| url == OTHER).map(|_| second));
    }
    assert!((1..=10).contains(&elsewhere.len()), "{elsewhere:?}");
    let long = 864_000;
    while world.verify(&of.id, "subscribe", FEED, long).await == REFUSED {
        world.clock.advance(Duration::from_secs(60));
        world.act().await;
    }
    world.sent();
    world.clock.advance(Duration::from_secs(long / 2));
    world.act().await;
    assert_eq!(world.sent().iter().map(|(url, _)| &**url).collect::<Vec<_>>(), [HUB, OTHER], "a renewal of a long one");
}

#[tokio::test]
async fn a_delivery_is_not_lost_while_the_hub_has_not_verified_a_renewal() {
    let world = World::new().await;
    let (id, of) = world.subscribed().await;
    world.clock.advance(Duration::from_secs(5 * 86_400));
    assert_eq!(world.act().await, 1, "a renewal");
    let body = PushDelivery { signature: None, ..signed("the one before", b"<feed/>") };
    assert_eq!(world.deliver(&of.id, body).await, Taken::Accepted);
    assert!(world.jobs().await.is_empty() && world.feed(id).await.wake_at.is_some(), "it only causes a poll");
}

/// websub.rocks 300 to 302.
#[tokio::test]
async fn rocks_300_to_302_only_what_is_signed_is_read_and_all_is_answered_alike() {
    let world = World::new().await;
    let (id, of) = world.subscribed().await;
    let body = b"<feed xmlns='http://www.w3.org/2005/Atom'/>";
    let right = signed(&world.secret(&of), body);
    assert_eq!(world.deliver(&of.id, right.clone()).await, Taken::Accepted);
    let job = world.jobs().await.remove(0);
    assert_eq!((job.feed, job.url.as_str()), (id, FEED));
    let pushed = job.pushed.unwrap();
    assert_eq!((&*pushed.body, pushed.content_type.as_deref()), (&body[..], Some("application/atom+xml")));

    let wrong = [
        PushDelivery { signature: None, ..right.clone() },
        PushDelivery { signature: Some("sha256=00".into()), ..right.clone() },
        PushDelivery { body: Some(b"<feed/>".to_vec()), ..right.clone() },
        signed("guessed", body),
    ];
    for delivery in wrong {
        assert_eq!(world.deliver(&of.id, delivery.clone()).await, Taken::Ignored, "{delivery:?}");
    }
    assert!(world.jobs().await.is_empty());
    assert_eq!(world.feed(id).await.wake_at, None, "and nothing is polled");
    assert_eq!(world.ops.metrics.pushes.with_label_values(&["websub_forged"]).get(), 4);
    assert_eq!(world.deliver(&"1".repeat(32), right).await, Taken::Gone);
}

#[tokio::test]
async fn light_deliveries_and_those_of_another_topic_only_cause_a_poll() {
    let world = World::new().await;
    let (id, of) = world.subscribed().await;
    let secret = world.secret(&of);
    for delivery in [
        signed(&secret, b""),
        PushDelivery { body: None, ..PushDelivery::default() },
        PushDelivery { is_encoded: true, ..signed(&secret, b"<feed/>") },
        PushDelivery { topic: Some("https://a.example/other".into()), ..signed(&secret, b"<feed/>") },
    ] {
        assert_eq!(world.deliver(&of.id, delivery.clone()).await, Taken::Accepted);
        assert!(world.jobs().await.is_empty() && world.feed(id).await.wake_at.is_some(), "{delivery:?}");
    }
    assert_eq!(world.push(id).await.deliveries, 3, "one that is too large may be anybody's");
}

#[tokio::test]
async fn a_hub_over_http_gets_no_secret_and_its_deliveries_are_not_stored() {
    let world = World::new().await;
    let id = world.add(FEED).await;
    world.polled(id, announcing("http://hub.example/"), &[1]).await;
    world.act().await;
    assert_eq!(world.sent()[0].1.get("hub.secret"), None);
    let of = world.push(id).await;
    world.verify(&of.id, "subscribe", FEED, 60).await;
    assert_eq!(world.deliver(&of.id, signed("", b"<feed/>")).await, Taken::Accepted);
    assert!(world.jobs().await.is_empty() && world.feed(id).await.wake_at.is_some());
}

#[tokio::test]
async fn a_hub_over_http_that_may_have_no_secret_any_more_is_asked_without_one() {
    let mut over_http = config();
    over_http.push.secret_over_http = true;
    let world = World::with(over_http, |_| (202, None)).await;
    let id = world.add(FEED).await;
    world.polled(id, announcing("http://hub.example/"), &[1]).await;
    world.act().await;
    let of = world.push(id).await;
    world.verify(&of.id, "subscribe", FEED, 60).await;
    assert!(world.sent()[0].1.contains_key("hub.secret") && world.push(id).await.secret.is_some());
    let next = world.restarted(config()).await;
    next.clock.advance(Duration::from_secs(61));
    next.act().await;
    let form = &next.sent()[0].1;
    assert_eq!((&*form["hub.mode"], form.get("hub.secret")), ("subscribe", None));
    next.verify(&of.id, "subscribe", FEED, 60).await;
    let of = next.push(id).await;
    assert_eq!((of.state, of.secret), (PushState::Verified, None));
}

#[tokio::test]
async fn what_a_delivery_brings_is_stored_once_and_changes_no_due_time() {
    let world = World::new().await;
    let (id, _) = world.subscribed().await;
    let before = world.feed(id).await;
    for entries in [&[2][..], &[2], &[4, 3], &[3, 2, 1]] {
        world.clock.advance(Duration::from_secs(1));
        world.pushed(id, entries).await;
    }
    let after = world.feed(id).await;
    assert_eq!((after.entries, after.next_due, after.version), (4, before.next_due, before.version));
    assert_eq!(after.state, before.state);
    let kinds: Vec<String> = world.ops.store.events(1, 100).await.unwrap().items.into_iter().map(|e| e.kind).collect();
    assert_eq!(kinds, ["entry.new"; 4]);
    let push = after.push.unwrap();
    assert_eq!((push.announced, push.deliveries), (2, 4));
}

#[tokio::test]
async fn a_delivery_that_cannot_be_read_has_its_feed_polled() {
    let world = World::new().await;
    let (id, _) = world.subscribed().await;
    let feed = world.feed(id).await;
    let outcome = Outcome::Deferred { until: world.clock.now() };
    let report =
        FetchReport { pushed: true, ..FetchReport::of(id, feed.version, feed.host, world.clock.now(), outcome) };
    world.results.settle(vec![report], world.clock.now()).await.unwrap();
    assert!(world.feed(id).await.wake_at.is_some());
}

/// Returns a feed whose pushes proved reliable, and the interval that it has without them.
async fn reliable(world: &World) -> (FeedId, PushSubscription, Duration) {
    let (id, of) = world.subscribed().await;
    let unpushed = planned(&world.feed(id).await);
    for entry in 0..RELIABLE_AFTER {
        world.clock.advance(Duration::from_secs(600));
        world.pushed(id, &[100 + entry]).await;
    }
    assert!(world.feed(id).await.push.unwrap().is_reliable());
    world.clock.advance(Duration::from_secs(600));
    world.polled(id, announcing(HUB), &[101, 100, 1]).await;
    let feed = world.feed(id).await;
    assert!(feed.terms.iter().any(|term| term.rule == Rule::Pushed), "{:?}", feed.terms);
    assert!(planned(&feed) > unpushed, "{:?} after {unpushed:?}", planned(&feed));
    (id, of, unpushed)
}

fn planned(feed: &Feed) -> Duration {
    feed.next_due.unwrap().since(feed.state.last_polled.unwrap())
}

#[tokio::test]
async fn an_entry_that_was_not_announced_brings_the_old_pace_back() {
    let world = World::with(fixed(), |_| (202, None)).await;
    let (id, _, unpushed) = reliable(&world).await;
    world.clock.advance(Duration::from_secs(3 * 3600));
    world.polled(id, announcing(HUB), &[7, 1]).await;
    let feed = world.feed(id).await;
    assert_eq!((feed.push.as_ref().unwrap().announced, feed.push.as_ref().unwrap().missed), (0, 1));
    assert!(planned(&feed) <= unpushed, "{:?}", planned(&feed));
}

#[tokio::test]
async fn a_denied_a_lapsed_and_a_dead_subscription_bring_the_old_pace_back_within_an_interval() {
    for fault in ["denied", "lapsed", "dead"] {
        let world = World::with(fixed(), |_| (500, None)).await;
        // The hub of this world refuses every request: the subscription is verified by hand.
        let id = world.add(FEED).await;
        world.polled(id, announcing(HUB), &[1]).await;
        let verified = PushSubscription {
            state: PushState::Verified,
            lease_until: Some(world.clock.now().after(Duration::from_secs(4 * 3600))),
            act_at: world.clock.now().after(Duration::from_secs(2 * 3600)),
            ..world.push(id).await
        };
        assert!(world.ops.store.store_push(&verified).await.unwrap());
        for entry in 0..RELIABLE_AFTER {
            world.pushed(id, &[100 + entry]).await;
        }
        world.polled(id, announcing(HUB), &[100, 1]).await;
        let of = world.push(id).await;
        let slow = world.feed(id).await;
        assert!(planned(&slow) >= Duration::from_secs(10 * 3600), "{:?}", planned(&slow));
        match fault {
            "denied" => {
                assert_eq!(world.verify(&of.id, "denied", FEED, 0).await, Verified::Noted);
            }
            "lapsed" => {
                world.clock.advance(Duration::from_secs(4 * 3600 + 1));
                world.act().await;
            }
            _ => {
                world.clock.advance(Duration::from_secs(2 * 3600));
                for _ in 0..3 {
                    assert_eq!(world.act().await, 1);
                    let next = world.push(id).await.act_at;
                    world.clock.advance(next.since(world.clock.now()));
                }
            }
        }
        world.upkeep().await;
        let feed = world.feed(id).await;
        assert!(!feed.push.unwrap().is_reliable(), "{fault}");
        let due = feed.next_due.unwrap();
        assert!(due <= world.clock.now().after(INTERVAL), "{fault}: {due} at {}", world.clock.now());
    }
}

const INTERVAL: Duration = Duration::from_secs(3600);

/// Every feed has the same interval.
fn fixed() -> Config {
    let mut config = config();
    config.policy.mode = common::config::PolicyMode::Classes;
    config.policy.no_validator_factor = 1.0;
    (config.policy.category.d.interval, config.policy.category.d.interval_max) = (INTERVAL, INTERVAL);
    config
}

#[tokio::test]
async fn leases_of_five_seconds_have_no_gap() {
    let world = World::new().await;
    let (id, of) = world.subscribed().await;
    // From here on the hub grants five seconds, and verifies 50 ms after each request.
    let short = PushSubscription {
        lease_until: Some(world.clock.now().after(Duration::from_secs(5))),
        act_at: world.clock.now().after(Duration::from_secs(2)),
        ..of.clone()
    };
    assert!(world.ops.store.store_push(&short).await.unwrap());
    let mut renewals = 0;
    for _ in 0..(2 * 60 * 5) {
        world.clock.advance(Duration::from_millis(150));
        if world.act().await > 0 {
            world.clock.advance(Duration::from_millis(50));
            assert_eq!(world.verify(&of.id, "subscribe", FEED, 5).await, Verified::Challenge("xyz".into()));
            renewals += 1;
        }
        let push = world.push(id).await;
        assert_eq!(push.state, PushState::Verified);
        assert!(push.lease_until.unwrap() > world.clock.now(), "a gap after {renewals} renewals");
    }
    assert!((30..70).contains(&renewals), "{renewals} renewals in 90 s to 2 minutes");
}

#[tokio::test]
async fn another_hub_or_topic_replaces_the_subscription_and_the_old_one_is_left() {
    let world = World::new().await;
    let (id, of) = world.subscribed().await;
    world.clock.advance(Duration::from_secs(3600));
    world.polled(id, announcing("https://other.example/"), &[1]).await;
    assert_eq!(world.act().await, 2);
    let mut modes: Vec<(String, String)> =
        world.sent().into_iter().map(|(url, mut form)| (url, form.remove("hub.mode").unwrap())).collect();
    modes.sort();
    let expected = [(HUB, "unsubscribe"), ("https://other.example/", "subscribe")];
    assert_eq!(modes, expected.map(|(url, mode)| (url.to_owned(), mode.to_owned())));
    assert_ne!(world.push(id).await.id, of.id);
    world.polled(id, Document::default(), &[1]).await;
    assert!(world.ops.store.pushes_of(&[id]).await.unwrap().is_empty(), "it announces no hub any more");
}

#[tokio::test]
async fn clouds_are_registered_with_challenged_and_have_their_feeds_polled() {
    let world = World::new().await;
    let id = world.add(FEED).await;
    let cloud = Document { cloud: Some("c.example:5337/pleaseNotify http-post".into()), ..Document::default() };
    world.polled(id, cloud, &[1]).await;
    let of = world.push(id).await;
    assert_eq!(world.callbacks.challenge(&of.id, FEED, "abc").await.unwrap(), None, "before the registration");
    world.act().await;
    let (url, form) = world.sent().remove(0);
    assert_eq!(
        (&*url, &*form["url1"], &*form["path"]),
        ("http://c.example:5337/pleaseNotify", FEED, &*path(PushKind::RssCloud, &of.id))
    );
    let of = world.push(id).await;
    assert_eq!(of.state, PushState::Verified);
    let renewal = of.act_at.since(world.clock.now());
    assert!(renewal > Duration::from_secs(21 * 3600) && renewal <= Duration::from_secs(24 * 3600));
    assert_eq!(world.notify(&of.id, "https://a.example/other").await, Taken::Ignored);
    assert_eq!(world.feed(id).await.wake_at, None);
    assert_eq!(world.notify(&of.id, FEED).await, Taken::Accepted);
    assert!(world.feed(id).await.wake_at.is_some());
    assert_eq!(world.deliver(&of.id, PushDelivery::default()).await, Taken::Gone, "it is no hub's");
    // What the poll finds was announced.
    world.clock.advance(Duration::from_secs(120));
    world.polled(id, Document { cloud: Some(of.hub.clone()), ..Document::default() }, &[2, 1]).await;
    assert_eq!(world.push(id).await.announced, 1);
}

#[tokio::test]
async fn feeds_that_announced_a_hub_before_pushes_were_on_are_found() {
    let mut off = config();
    off.push.websub = false;
    off.push.rsscloud = false;
    let world = World::with(off, |_| (202, None)).await;
    let id = world.add(FEED).await;
    world.polled(id, announcing(HUB), &[1]).await;
    assert!(world.ops.store.pushes_of(&[id]).await.unwrap().is_empty());
    let on = World::with(config(), |_| (202, None)).await;
    let id = on.add(FEED).await;
    on.polled(id, announcing(HUB), &[1]).await;
    on.ops.store.remove_push(&on.push(id).await.id, 1).await.unwrap();
    let mut it = Upkeep::new(on.ops.clone());
    it.sweep().await.unwrap();
    assert_eq!(on.push(id).await.hub, HUB);
    it.sweep().await.unwrap();
    assert!(it.is_swept(), "the sweep ends");
}
