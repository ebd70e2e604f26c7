//! The hub with a scripted subscriber: the questions it gets, what follows from its answers, and what is delivered to
//! it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::config::HubAccess;
use common::delivery::{DeliveryAnswer, DeliveryRequest};
use common::document::Document;
use common::entry::Entry;
use common::known::KnownEntries;
use common::labels::HUB_LABEL;
use common::metrics::Metrics;
use common::outcome::DeliveryOutcome;
use common::policy::{Category, Decision, Notices, PollState, Rule, Status, Terms};
use common::report::{FetchReport, Outcome};
use common::time::{Clock, ManualClock, Timestamp};
use common::url::FeedId;
use common::webhook::hub_signature;
use tokio_util::sync::CancellationToken;

use super::sender::{Answering, Sender};
use super::tending::round;
use crate::ops::hub::{HubRefusal, HubRequest};
use crate::ops::{self, AddFeed, EditFeed, Ops};
use crate::run::{Backends, Scheduler};
use store::sqlite::SqliteStore;
use store::{DeliveryFormat, FeedRef, IntentMode, Move, Moved, Subscription, SubscriptionState, Verdict};

pub(super) const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
pub(super) const TOPIC: &str = "https://a.example/feed.xml";
const CALLBACK: &str = "https://s.example/callback?id=7";
/// A target that accepts everything, whatever the subscriber says.
pub(super) const WITNESS: &str = "https://witness.example/";

/// What the subscriber answers to questions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Says {
    Yes,
    No,
    Nothing,
    /// Notifications: it is gone. Questions: no.
    Gone,
    /// Questions: no response, ever.
    Silence,
    /// Questions: come back in a day.
    Tomorrow,
}

/// A scheduler's half of the hub, and a subscriber.
pub(super) struct World {
    pub(super) ops: Arc<Ops>,
    pub(super) clock: Arc<ManualClock>,
    says: Arc<Mutex<Says>>,
    pub(super) got: Arc<Mutex<Vec<DeliveryRequest>>>,
    /// What the witness got.
    pub(super) seen: Arc<Mutex<Vec<DeliveryRequest>>>,
    _folder: tempfile::TempDir,
    delivering: (tokio::task::JoinHandle<()>, CancellationToken),
}

pub(super) fn request() -> HubRequest {
    HubRequest {
        mode: IntentMode::Subscribe,
        topic: TOPIC.into(),
        callback: CALLBACK.into(),
        lease: Some(600),
        secret: Some("s3cret".into()),
        format: DeliveryFormat::Atom,
        by: "hub".into(),
    }
}

pub(super) fn feed(url: &str) -> AddFeed {
    AddFeed::of(url.parse().unwrap())
}

impl World {
    pub(super) async fn new(access: HubAccess) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("feedfleet.db");
        let store = SqliteStore::open(&format!("sqlite://{}", path.display())).await.unwrap();
        let backends = Backends::in_memory(Arc::new(store));
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
        let shared: Arc<dyn Clock> = clock.clone();
        let mut config = common::config::defaults();
        config.secrets.key = KEY.into();
        config.api.public_url = "https://hub.example/".into();
        config.delivery.hub = access;
        config.delivery.concurrency = 8;
        let ops = Scheduler::new(&backends, &Arc::new(config), &Arc::new(Metrics::new()), &shared).ops;
        let says = Arc::new(Mutex::new(Says::Yes));
        let [got, seen]: [Arc<Mutex<Vec<DeliveryRequest>>>; 2] = Default::default();
        let (script, logs) = (Arc::clone(&says), [Arc::clone(&got), Arc::clone(&seen)]);
        let send = move |request: DeliveryRequest| {
            let is_seen = request.url.as_str() == WITNESS;
            let says = if is_seen { Says::Yes } else { *script.lock().unwrap() };
            let answer = answer(says, &request);
            logs[usize::from(is_seen)].lock().unwrap().push(request);
            let answering: Answering = match answer {
                Some(answer) => Box::pin(std::future::ready(answer)),
                None => Box::pin(std::future::pending()),
            };
            answering
        };
        assert!(ops.sender.set(Sender { send: Box::new(send), judge: Box::new(|_| Ok(())) }).is_ok());
        let delivering = deliver(&ops);
        World { ops, clock, says, got, seen, _folder: folder, delivering }
    }

    pub(super) fn say(&self, says: Says) {
        *self.says.lock().unwrap() = says;
    }

    pub(super) async fn subscription(&self) -> Option<Subscription> {
        self.ops.store.subscriptions(0, 10).await.unwrap().into_iter().find(|it| it.hub.is_some())
    }

    pub(super) async fn until<T>(&self, what: &str, found: impl AsyncFn(&World) -> Option<T>) -> T {
        for _ in 0..1_000 {
            if let Some(found) = found(self).await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let subscription = self.subscription().await;
        panic!("no {what}: {:?}, {subscription:?}", self.got.lock().unwrap());
    }

    /// Waits until this number of requests has arrived.
    pub(super) async fn requests(&self, count: usize) -> Vec<DeliveryRequest> {
        self.until("request", async |world| {
            let got = world.got.lock().unwrap().clone();
            (got.len() >= count).then_some(got)
        })
        .await
    }

    pub(super) async fn ask(&self, request: &HubRequest) {
        ops::hub::accept(&self.ops, request).await.unwrap();
    }

    /// Waits until no question is pending.
    pub(super) async fn settled(&self) -> Option<Subscription> {
        self.until("end of questions", async |world| match world.subscription().await {
            Some(it) if it.hub.as_ref().unwrap().intent.is_some() => None,
            settled => Some(settled),
        })
        .await
    }

    /// Stores a good poll of the feed with this entry.
    pub(super) async fn entry(&self, feed: FeedId, id: &str) {
        self.entries(feed, vec![id.to_owned()]).await;
    }

    /// Stores a good poll of the feed with these entries.
    pub(super) async fn entries(&self, feed: FeedId, ids: Vec<String>) {
        let feed = self.ops.feed(&FeedRef::Id(feed)).await.unwrap().unwrap();
        let now = self.clock.now();
        let mut document = Document::default();
        let entries = ids.into_iter().map(|id| Entry { id, ..Entry::default() }).collect();
        document.keep_news(entries, &KnownEntries::default());
        let outcome = Outcome::Modified(Box::new(document));
        let state = PollState { last_polled: Some(now), last_status: Some(200), ..feed.state };
        let mut terms = Terms::default();
        terms.push(Rule::Category, now.after(Duration::from_secs(600)));
        let report = FetchReport::of(feed.id, feed.version, feed.host.clone(), now, outcome);
        let next_due = terms.last().map(|term| term.due);
        let (status, notices) = (feed.status, Notices::default());
        let decision = Decision { state, status, next_due, terms, host_hold: None, notices };
        let verdict = Verdict {
            report,
            decision,
            category: Category::D,
            audience_at: feed.audience_at,
            push: None,
            archive: None,
            seen: None,
        };
        self.ops.store.apply(&[verdict], Duration::from_secs(1), now).await.unwrap();
    }

    /// Returns the notifications so far.
    pub(super) fn notified(&self) -> Vec<DeliveryRequest> {
        self.got.lock().unwrap().iter().filter(|got| got.body.is_some()).cloned().collect()
    }

    /// Returns the first request of this mode.
    pub(super) fn asked(&self, mode: &str) -> Option<DeliveryRequest> {
        self.got.lock().unwrap().iter().find(|got| query(got, "hub.mode").as_deref() == Some(mode)).cloned()
    }

    /// Has a feed found at another URL; returns the feed that it is merged into.
    pub(super) async fn moved(&self, id: FeedId, to: &str) -> Option<FeedId> {
        let of = self.ops.feed(&FeedRef::Id(id)).await.unwrap().unwrap();
        let (url, host) = (to.parse().unwrap(), of.host.clone());
        let to = Move { url, host, category: Category::D, same: true, others: Vec::new() };
        match self.ops.store.move_feed(id, of.version, &to, self.clock.now()).await.unwrap() {
            Moved::Into(survivor) => Some(survivor),
            Moved::Here => None,
            Moved::Stale => panic!("it did not move"),
        }
    }

    pub(super) async fn merge(&self, id: FeedId, into: FeedId) {
        let survivor = self.ops.feed(&FeedRef::Id(into)).await.unwrap().unwrap();
        assert_eq!(self.moved(id, survivor.url.as_str()).await, Some(into));
    }

    /// Stops the deliveries, which stores the cursors, and has another process continue.
    pub(super) async fn restart(&mut self) {
        self.delivering.1.cancel();
        (&mut self.delivering.0).await.unwrap();
        self.delivering = deliver(&self.ops);
    }

    pub(super) async fn end(self) {
        self.delivering.1.cancel();
        self.delivering.0.await.unwrap();
    }
}

fn deliver(ops: &Arc<Ops>) -> (tokio::task::JoinHandle<()>, CancellationToken) {
    let (ops, stop) = (Arc::clone(ops), CancellationToken::new());
    let stopped = stop.clone();
    (tokio::spawn(async move { super::share::Share::new(ops).run(&stopped).await }), stop)
}

pub(super) fn query(request: &DeliveryRequest, name: &str) -> Option<String> {
    request.url.query_pairs().find(|(field, _)| field == name).map(|(_, value)| value.into_owned())
}

fn answer(says: Says, request: &DeliveryRequest) -> Option<DeliveryAnswer> {
    let challenge = query(request, "hub.challenge");
    let (outcome, body) = match (challenge, says) {
        (Some(_), Says::Silence) => return None,
        (Some(_), Says::Tomorrow) => {
            let retry_after = Some(Timestamp::from_millis(1_790_000_000_000).after(Duration::from_secs(86_400)));
            let answer = DeliveryAnswer::unanswered(DeliveryOutcome::Throttled, "");
            return Some(DeliveryAnswer { retry_after, ..answer });
        }
        (None, Says::Gone) => (DeliveryOutcome::Gone, String::new()),
        (Some(challenge), Says::Yes) => (DeliveryOutcome::Delivered, challenge),
        (Some(_), Says::No | Says::Gone) => (DeliveryOutcome::Rejected, String::new()),
        (_, Says::Nothing) => (DeliveryOutcome::Timeout, String::new()),
        (None, _) => (DeliveryOutcome::Delivered, String::new()),
    };
    Some(DeliveryAnswer::unanswered(outcome, body))
}

#[tokio::test]
async fn a_confirmed_subscriber_has_its_feed_polled_and_one_that_leaves_releases_it() {
    let world = World::new(HubAccess::Open).await;
    world.ask(&request()).await;
    let asked = world.requests(1).await.remove(0);
    let named = |name| query(&asked, name).unwrap();
    assert_eq!((named("id"), named("hub.mode"), named("hub.topic")), ("7".into(), "subscribe".into(), TOPIC.into()));
    assert_eq!((named("hub.lease_seconds"), asked.body.as_ref()), ("600".into(), None));
    let confirmed = world.settled().await.unwrap();
    let hub = confirmed.hub.clone().unwrap();
    assert_eq!(hub.until, world.clock.now().after(Duration::from_secs(600)));
    let id = confirmed.wish.filter.feed.unwrap();
    let added = world.ops.feed(&FeedRef::Id(id)).await.unwrap().unwrap();
    assert_eq!((added.url.as_str(), &added.marks.labels[..]), (TOPIC, &[HUB_LABEL.to_owned()][..]));
    assert_eq!(confirmed.progress.deliveries[0].id, "hub.mode=subscribe");
    assert!(!format!("{confirmed:?}").contains("s3cret"));

    world.ask(&HubRequest { callback: "https://t.example/".into(), ..request() }).await;
    world
        .until("second subscription", async |world| {
            let all = world.ops.store.subscriptions(0, 10).await.unwrap();
            (all.len() == 2 && all.iter().all(|it| it.hub.as_ref().unwrap().intent.is_none())).then_some(())
        })
        .await;
    round(&world.ops).await.unwrap();
    let of = async || world.ops.feed(&FeedRef::Id(id)).await.unwrap();
    assert_eq!(of().await.unwrap().audience.subscribers, 2, "it is polled as its subscribers want it");

    world.ask(&HubRequest { mode: IntentMode::Unsubscribe, ..request() }).await;
    world.until("end of the first", async |world| (world.subscription().await.unwrap().id == 2).then_some(())).await;
    round(&world.ops).await.unwrap();
    assert_eq!(of().await.unwrap().audience.subscribers, 1);
    // The other one does not renew.
    world.clock.advance(Duration::from_secs(601));
    round(&world.ops).await.unwrap();
    assert!(world.subscription().await.is_none() && of().await.is_none());
    world.end().await;
}

#[tokio::test]
async fn what_is_not_confirmed_changes_nothing() {
    let world = World::new(HubAccess::Open).await;
    world.say(Says::No);
    world.ask(&request()).await;
    assert!(world.settled().await.is_none());
    let feeds = async || world.ops.feed(&FeedRef::Url(TOPIC.parse().unwrap())).await.unwrap();
    assert!(feeds().await.is_none(), "a feed is added for those who mean it");

    world.say(Says::Yes);
    world.ask(&request()).await;
    let before = world.settled().await.unwrap();
    world.say(Says::No);
    for mode in [IntentMode::Subscribe, IntentMode::Unsubscribe] {
        world.ask(&HubRequest { mode, lease: Some(1_200), secret: None, ..request() }).await;
        let after = world.settled().await.unwrap();
        assert_eq!((after.hub, &after.secret), (before.hub.clone(), &before.secret), "{mode}");
    }
    let unknown = HubRequest { mode: IntentMode::Unsubscribe, callback: "https://t.example/".into(), ..request() };
    assert!(matches!(ops::hub::accept(&world.ops, &unknown).await, Err(HubRefusal::Unknown(_))));

    world.say(Says::Yes);
    let too_soon = ops::hub::accept(&world.ops, &request()).await.unwrap_err();
    assert!(matches!(too_soon, HubRefusal::Busy { wait, .. } if wait == Duration::from_secs(60)), "{too_soon:?}");
    world.clock.advance(Duration::from_secs(60));
    world.ask(&HubRequest { lease: Some(1_200), secret: None, ..request() }).await;
    let renewed = world.settled().await.unwrap();
    assert_eq!(renewed.id, before.id, "a renewal is not another subscription");
    assert_eq!(renewed.hub.unwrap().until, world.clock.now().after(Duration::from_secs(1_200)));
    assert!(renewed.secret.as_bytes().is_empty());
    world.end().await;
}

#[tokio::test]
async fn a_subscriber_that_does_not_answer_is_asked_again_some_times() {
    let world = World::new(HubAccess::Open).await;
    world.say(Says::Nothing);
    world.ask(&request()).await;
    for tries in 1..5 {
        world.requests(tries).await;
        world
            .until("next try", async |world| {
                let hub = world.subscription().await?.hub?;
                (hub.intent?.tries as usize == tries).then_some(())
            })
            .await;
        world.clock.advance(Duration::from_secs(60));
    }
    assert!(world.settled().await.is_none());
    assert_eq!(world.got.lock().unwrap().len(), 5);
    world.end().await;
}

#[tokio::test]
async fn notifications_are_signed_and_say_how_the_feed_is() {
    let world = World::new(HubAccess::Known).await;
    let id = world.ops.add(&[feed(TOPIC)], None).await.unwrap()[0].id;
    world.ask(&request()).await;
    assert_eq!(world.settled().await.unwrap().wish.filter.feed, Some(id));
    world.entry(id, "https://a.example/1").await;
    let sent = world.requests(2).await.remove(1);
    let body = sent.body.clone().unwrap();
    let field = |name: &str| sent.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value.clone());
    assert_eq!(field("content-type").unwrap(), "application/atom+xml");
    let link = format!("<https://hub.example/hub>; rel=\"hub\", <{TOPIC}>; rel=\"self\"");
    assert_eq!(field("link").unwrap(), link);
    assert_eq!(field("x-hub-signature").unwrap(), hub_signature("s3cret", &body));
    let text = String::from_utf8(body).unwrap();
    for part in [
        "<link rel=\"hub\" href=\"https://hub.example/hub\"/>",
        "<link rel=\"self\" href=\"https://a.example/feed.xml\"/>",
        "<id>https://a.example/1</id>",
        "<feedfleet:status xmlns:feedfleet=\"urn:feedfleet:atom\"",
        "last_status=\"200\"",
        "next_due=",
    ] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }

    world.ask(&HubRequest { secret: None, format: DeliveryFormat::JsonFeed, ..request() }).await;
    world.settled().await;
    world.entry(id, "2").await;
    let sent = world.requests(4).await.remove(3);
    assert!(sent.fields.iter().all(|(name, _)| *name != "x-hub-signature"));
    let body: serde_json::Value = serde_json::from_slice(&sent.body.unwrap()).unwrap();
    assert_eq!((&body["items"][0]["id"], &body["feed_url"]), (&"2".into(), &TOPIC.into()));
    assert!(body["_feedfleet"]["status"]["next_due"].is_string(), "{body}");
    assert!(body["items"][0].get("_feedfleet").is_none(), "labels and ids are the operator's: {body}");

    // The lease ends: later events are not delivered.
    world.clock.advance(Duration::from_secs(601));
    world.witness().await;
    for entry in ["third", "fourth"] {
        // What the one before began has ended by then.
        world.entry(id, entry).await;
        world.witnessed(entry).await;
    }
    assert_eq!(world.got.lock().unwrap().len(), 4);
    round(&world.ops).await.unwrap();
    assert!(world.subscription().await.is_none());
    assert!(world.ops.feed(&FeedRef::Id(id)).await.unwrap().is_some(), "the hub did not add it");
    world.end().await;
}

#[tokio::test]
async fn subscribers_of_a_feed_that_is_gone_are_told() {
    let world = World::new(HubAccess::Open).await;
    world.ask(&request()).await;
    let id = world.settled().await.unwrap().wish.filter.feed.unwrap();
    world.ops.erase(id).await.unwrap();
    round(&world.ops).await.unwrap();
    let told = world.requests(2).await.remove(1);
    assert_eq!(query(&told, "hub.mode").unwrap(), "denied");
    assert_eq!(query(&told, "hub.reason").unwrap(), "the feed is no longer polled here");
    assert!(world.settled().await.is_none());

    let id = world.ops.add(&[feed(TOPIC)], None).await.unwrap()[0].id;
    let removed = EditFeed { status: Some(Status::Removed), ..EditFeed::default() };
    world.ops.edit(id, &removed).await.unwrap();
    let refused = ops::hub::accept(&world.ops, &request()).await;
    assert!(matches!(refused, Err(HubRefusal::Unknown(why)) if why.contains("no longer polled")));
    world.end().await;
}

#[tokio::test]
async fn who_may_subscribe_to_what_is_up_to_the_operator() {
    let world = World::new(HubAccess::Known).await;
    let is_unknown = async |topic: &str| {
        let request = HubRequest { topic: topic.into(), ..request() };
        matches!(ops::hub::accept(&world.ops, &request).await, Err(HubRefusal::Unknown(_)))
    };
    let private = AddFeed { private: true, ..feed("https://a.example/private") };
    world.ops.add(&[private, feed(TOPIC)], None).await.unwrap();
    assert!(is_unknown("https://a.example/other").await);
    assert!(is_unknown("https://a.example/private").await);
    assert!(!is_unknown(TOPIC).await);
    for (topic, callback) in [
        ("https://a.example/feed.xml#x", CALLBACK),
        ("https://a.example/a b", CALLBACK),
        ("https://ann:s3cret@a.example/", CALLBACK),
        ("a.example", "https://s.example/#x"),
        (TOPIC, "https://s.example/#x"),
        (TOPIC, "ftp://s.example/"),
        (TOPIC, "https://ann:s3cret@s.example/"),
    ] {
        let request = HubRequest { topic: topic.into(), callback: callback.into(), ..request() };
        let refused = ops::hub::accept(&world.ops, &request).await.unwrap_err();
        assert!(matches!(refused, HubRefusal::Bad(_)), "{topic} {callback}: {refused:?}");
        assert!(!refused.to_string().contains("s3cret"));
    }
    let paused = |state| ops::subscriptions::EditSubscription { state: Some(state), ..Default::default() };
    let id = world.settled().await.unwrap().id;
    ops::subscriptions::edit(&world.ops, id, &paused(SubscriptionState::Paused)).await.unwrap();
    assert!(matches!(ops::hub::accept(&world.ops, &request()).await, Err(HubRefusal::Paused)));
    world.end().await;
}
