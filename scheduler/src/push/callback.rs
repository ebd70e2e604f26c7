//! What hubs and clouds send: verifications of our requests, refusals, deliveries and notifications. Anybody can send these, so all
//! are judged by what the store has of the subscription, which its unguessable id names; none is taken at its word.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::feed::Feed;
use common::host_gate::Ticket;
use common::job::FetchJob;
use common::known::KnownEntries;
use common::policy::Status;
use common::push::{PushKind, PushState, PushedBody, is_signed};
use common::time::Timestamp;
use rand::RngExt;
use store::{PushHeard, PushSubscription};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::learn::Pace;
use super::state;
use crate::error::BackendError;
use crate::ops::Ops;
use crate::ops::pings::Pings;

/// The largest delivery that is read, in bytes; a larger one causes a poll.
pub const MAX_BODY_BYTES: usize = 1024 * 1024;
/// Deliveries in progress at once: each holds its body in memory.
const IN_PROGRESS: usize = 64;
/// How long a delivery waits for its turn.
const TURN_WAIT: Duration = Duration::from_secs(5);
/// How often the queue's depth is read.
const DEPTH_EVERY: Duration = Duration::from_millis(100);
/// How often a verification is judged again because something else changed the subscription.
const TRIES: usize = 3;
/// The longest challenge that is echoed, and the longest reason that is kept.
const LONGEST_CHALLENGE: usize = 2_000;
const LONGEST_REASON: usize = 200;

/// A hub's verification of intent, or its refusal (WebSub, sections 5.2 and 5.3).
#[derive(Clone, Debug, Default)]
pub struct Verification {
    /// `hub.mode`
    pub mode: String,
    /// `hub.topic`
    pub topic: String,
    /// `hub.challenge`
    pub challenge: String,
    /// `hub.lease_seconds`
    pub lease_seconds: Option<u64>,
    /// `hub.reason`
    pub reason: String,
}

/// How a verification is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verified {
    /// With this challenge.
    Challenge(String),
    /// With success, and nothing more.
    Noted,
    /// As something that we did not ask for.
    Refused,
}

/// A hub's delivery.
#[derive(Clone, Debug, Default)]
pub struct PushDelivery {
    /// `X-Hub-Signature`
    pub signature: Option<String>,
    /// `Content-Type`
    pub content_type: Option<String>,
    /// The body is compressed, which hubs do not do: it is not read.
    pub is_encoded: bool,
    /// The topic that the delivery says it is of (`Link`, `rel=self`).
    pub topic: Option<String>,
    /// The body; `None` if it is larger than [`MAX_BODY_BYTES`].
    pub body: Option<Vec<u8>>,
}

/// What became of a delivery or a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is read, or its feed is polled.
    Accepted,
    /// It is not signed as it must be, or not expected: counted, and answered like one that is accepted, so that nobody learns which
    /// signatures fit.
    Ignored,
    /// We left that subscription, or never had it.
    Gone,
    /// There are too many at once: to be sent again.
    Busy,
}

/// Answers hubs and clouds.
pub struct Callbacks {
    ops: Arc<Ops>,
    pings: Pings,
    places: Semaphore,
    /// When the queue's depth was read, and whether there was room.
    room: Mutex<Option<(Instant, bool)>>,
}

impl Callbacks {
    /// For the feeds of this fleet.
    pub fn new(ops: Arc<Ops>, pings: Pings) -> Self {
        Callbacks { ops, pings, places: Semaphore::new(IN_PROGRESS), room: Mutex::default() }
    }

    async fn subscription(&self, id: &str, kind: PushKind) -> Result<Option<PushSubscription>, BackendError> {
        let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_id {
            return Ok(None);
        }
        Ok(self.ops.store.push(id).await?.filter(|of| of.kind == kind))
    }

    /// Answers a hub that verifies a request. Only a request that waits for this is confirmed, and only for its topic.
    pub async fn verify(&self, id: &str, asked: &Verification) -> Result<Verified, BackendError> {
        for _ in 0..TRIES {
            let Some(of) = self.subscription(id, PushKind::WebSub).await?.filter(|of| of.topic == asked.topic) else {
                break;
            };
            let now = self.ops.clock.now();
            let spread = rand::rng().random::<f64>();
            let challenge = || Verified::Challenge(asked.challenge.clone());
            let is_challenge = !asked.challenge.is_empty() && asked.challenge.len() <= LONGEST_CHALLENGE;
            let (done, answer) = match asked.mode.as_str() {
                "subscribe" if is_challenge => {
                    let lease = asked.lease_seconds.map_or(self.ops.config.push.lease, Duration::from_secs);
                    let lease = lease.max(Duration::from_secs(1));
                    let Some(verified) = state::verified(&of, lease, now, spread) else { break };
                    (self.ops.store.store_push(&verified).await?, challenge())
                }
                "unsubscribe" if is_challenge => {
                    let is_left = of.state == PushState::Unsubscribing && state::is_pending(&of, now);
                    if !is_left {
                        break;
                    }
                    (self.ops.store.remove_push(&of.id, of.revision).await?, challenge())
                }
                "denied" => (self.deny(&of, &asked.reason, now, spread).await?, Verified::Noted),
                _ => break,
            };
            if done {
                return Ok(answer);
            }
        }
        self.ops.metrics.pushes.with_label_values(&["websub_refused"]).inc();
        Ok(Verified::Refused)
    }

    async fn deny(
        &self,
        of: &PushSubscription,
        reason: &str,
        now: Timestamp,
        spread: f64,
    ) -> Result<bool, BackendError> {
        if of.state == PushState::Unsubscribing {
            return Ok(self.ops.store.remove_push(&of.id, of.revision).await?);
        }
        let reason = format!("the hub denied it: {}", common::words::plain(reason, LONGEST_REASON));
        let denied = state::denied(of, reason, now, spread);
        let stored = self.ops.store.store_push(&denied).await?;
        if stored && state::is_live(of) {
            Pace::of(&self.ops).restore(&[of.feed], now).await?;
        }
        Ok(stored)
    }

    /// Takes a delivery. One that is signed is read by a worker as if a fetch had brought it; any other one of a subscription without a
    /// secret, and one that cannot be read, only causes a poll.
    pub async fn deliver(&self, id: &str, delivery: PushDelivery) -> Result<Taken, BackendError> {
        let Ok(Ok(_turn)) = tokio::time::timeout(TURN_WAIT, self.places.acquire()).await else {
            return Ok(Taken::Busy);
        };
        let count = |kind| self.ops.metrics.pushes.with_label_values(&[kind]).inc();
        let of = self.subscription(id, PushKind::WebSub).await?;
        let Some(of) = of.filter(|of| !matches!(of.state, PushState::Unsubscribing | PushState::Denied)) else {
            count("websub_gone");
            return Ok(Taken::Gone);
        };
        let secret = of.secret.as_ref().map(|sealed| self.ops.secrets.open_push(sealed)).transpose();
        let Ok(secret) = secret else { return Ok(Taken::Busy) };
        // What is too large to be read is not checked either: it causes a poll at the pace of pings.
        let signed = match (&secret, &delivery.body) {
            (Some(secret), Some(body)) => is_signed(secret, delivery.signature.as_deref().unwrap_or_default(), body),
            (Some(_), None) | (None, _) => false,
        };
        if secret.is_some() && !signed && delivery.body.is_some() || of.state == PushState::Pending {
            count("websub_forged");
            return Ok(Taken::Ignored);
        }
        let is_of_topic = delivery.topic.as_ref().is_none_or(|topic| *topic == of.topic);
        let body = delivery.body.filter(|body| signed && is_of_topic && !delivery.is_encoded && !body.is_empty());
        let feed = self.feed(&of).await?;
        match (feed, body) {
            (Some(feed), Some(body)) if feed.status == Status::Active => {
                if !self.has_room().await? {
                    return Ok(Taken::Busy);
                }
                let pushed = PushedBody { content_type: delivery.content_type, body };
                self.ops.jobs.publish(&[self.job(feed, pushed)]).await?;
                count("websub");
                Ok(Taken::Accepted)
            }
            (Some(feed), _) => {
                count("websub_light");
                self.light(&feed).await?;
                Ok(Taken::Accepted)
            }
            (None, _) => Ok(Taken::Gone),
        }
    }

    /// Answers a cloud that checks a registration: with its challenge, if the feed is the one that was registered just now.
    pub async fn challenge(&self, id: &str, url: &str, challenge: &str) -> Result<Option<String>, BackendError> {
        let of = self.subscription(id, PushKind::RssCloud).await?;
        let is_asked = of.is_some_and(|of| of.topic == url && state::is_pending(&of, self.ops.clock.now()));
        Ok(Some(challenge.to_owned()).filter(|challenge| is_asked && challenge.len() <= LONGEST_CHALLENGE))
    }

    /// Takes a cloud's notification: the feed is polled.
    pub async fn notify(&self, id: &str, url: &str) -> Result<Taken, BackendError> {
        let Ok(Ok(_turn)) = tokio::time::timeout(TURN_WAIT, self.places.acquire()).await else {
            return Ok(Taken::Busy);
        };
        let of = self.subscription(id, PushKind::RssCloud).await?;
        let Some(of) = of.filter(|of| of.state != PushState::Unsubscribing) else { return Ok(Taken::Gone) };
        if of.topic != url {
            return Ok(Taken::Ignored);
        }
        self.ops.metrics.pushes.with_label_values(&["rsscloud"]).inc();
        let Some(feed) = self.feed(&of).await? else { return Ok(Taken::Gone) };
        self.light(&feed).await?;
        Ok(Taken::Accepted)
    }

    async fn feed(&self, of: &PushSubscription) -> Result<Option<Feed>, BackendError> {
        Ok(self.ops.store.states_for(&[of.feed]).await?.pop())
    }

    /// Has a feed polled soon, at the pace of pings.
    async fn light(&self, feed: &Feed) -> Result<(), BackendError> {
        let at = self.ops.clock.now();
        let heard = PushHeard { feed: feed.id, at, light: true, counts: true, announced: false };
        self.ops.store.heard_pushes(&[heard]).await?;
        self.pings.announced(feed).await
    }

    /// Whether the queue takes more: deliveries must not keep polls from being dispatched.
    async fn has_room(&self) -> Result<bool, BackendError> {
        let known = *common::lock(&self.room);
        if let Some((at, has_room)) = known
            && at.elapsed() < DEPTH_EVERY
        {
            return Ok(has_room);
        }
        let has_room = self.ops.jobs.depth().await?.items < (self.ops.config.scheduler.max_queued_jobs / 2).max(1);
        *common::lock(&self.room) = Some((Instant::now(), has_room));
        Ok(has_room)
    }

    fn job(&self, feed: Feed, pushed: PushedBody) -> FetchJob {
        FetchJob {
            feed: feed.id,
            version: feed.version,
            host: feed.host,
            url: feed.url,
            credentials: None,
            ticket: Ticket(0),
            expires: self.ops.clock.now().after(self.ops.config.scheduler.queue_lease),
            validators: Default::default(),
            content_hash: None,
            // The store knows what it has.
            known: KnownEntries::default(),
            wake_at: None,
            head_first: None,
            without_delta: false,
            signed: false,
            detour: None,
            search: false,
            subscribers: 0,
            pushed: Some(Box::new(pushed)),
        }
    }
}
