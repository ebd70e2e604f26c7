//! What hubs and clouds send: verifications of our requests, refusals, deliveries and notifications. Strangers can send
//! these too, so each is judged by what the store has of the subscription, which its unguessable id names; none is
//! trusted.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::feed::Feed;
use common::host::HostKey;
use common::host_gate::Ticket;
use common::job::FetchJob;
use common::policy::Status;
use common::push::{PushKind, PushState, PushedBody, is_signed};
use common::time::Timestamp;
use rand::RngExt;
use store::{JobRow, PushHeard, PushSubscription};
use tokio::time::Instant;

use super::limits::{Budgets, QueueDepth, Room, Turn, Turns};
use super::state;
use super::wish::may_stay;
use crate::error::BackendError;
use crate::ops::Ops;
use crate::ops::pings::Pings;

/// The largest delivery that is read, in bytes; a larger one causes a poll.
pub const MAX_BODY_BYTES: usize = 1024 * 1024;
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
    /// As something that we did not request.
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

/// The outcome of a delivery or a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is read, or its feed is polled.
    Accepted,
    /// It is not signed as it must be, or not expected: counted, and answered like one that is accepted, so that a
    /// sender cannot learn which signatures fit.
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
    turns: Turns,
    budgets: Budgets,
    depth: Mutex<Option<QueueDepth>>,
}

/// A call for a subscription that exists, which may send its body now.
#[derive(Debug)]
pub struct Admitted {
    of: PushSubscription,
    _turn: Turn,
}

impl Callbacks {
    /// For the feeds of this fleet.
    pub fn new(ops: Arc<Ops>, pings: Pings) -> Self {
        Callbacks { ops, pings, turns: Turns::new(), budgets: Budgets::new(), depth: Mutex::default() }
    }

    async fn subscription(&self, id: &str, kind: PushKind) -> Result<Option<PushSubscription>, BackendError> {
        let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_id {
            return Ok(None);
        }
        Ok(self.ops.store.push(id).await?.filter(|of| of.kind == kind))
    }

    /// Removes a subscription that was left; false if something else changed it. One whose feed is still owed its own pace stays until it
    /// has that.
    async fn remove_left(&self, of: &PushSubscription) -> Result<bool, BackendError> {
        let store = &self.ops.store;
        Ok(store.remove_push(&of.id, of.revision).await?
            || store.push(&of.id).await?.is_none_or(|still| still.revision == of.revision))
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
                    match state::verified(&of, lease, now, spread) {
                        Some(verified) => (self.ops.store.store_push(&verified).await?, challenge()),
                        None => (state::is_verified_again(&of, lease, now), challenge()),
                    }
                }
                "unsubscribe" if is_challenge => {
                    let is_left = of.state == PushState::Unsubscribing && state::is_pending(&of, now);
                    if !is_left {
                        break;
                    }
                    (self.remove_left(&of).await?, challenge())
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
        Ok(self.ops.store.store_push(&state::denied(of, reason, now, spread)).await?)
    }

    /// Lets a delivery or notification in, before anything of its body is read: only for a subscription that is not being left, and
    /// when it is its hub's turn.
    pub async fn admit(&self, id: &str, kind: PushKind) -> Result<Result<Admitted, Taken>, BackendError> {
        let of = self.subscription(id, kind).await?;
        let is_expected = |of: &PushSubscription| match of.kind {
            PushKind::WebSub => !matches!(of.state, PushState::Unsubscribing | PushState::Denied),
            PushKind::RssCloud => of.state != PushState::Unsubscribing,
        };
        let Some(of) = of.filter(is_expected) else {
            if kind == PushKind::WebSub {
                self.count("websub_gone");
            }
            return Ok(Err(Taken::Gone));
        };
        let turn = self.turns.take(of.host()).await;
        Ok(turn.map(|turn| Admitted { of, _turn: turn }).ok_or(Taken::Busy))
    }

    fn count(&self, kind: &str) {
        self.ops.metrics.pushes.with_label_values(&[kind]).inc();
    }

    /// Takes a delivery. One that is signed is read by a worker like a fetched document; any other one of a
    /// subscription without a secret, one that cannot be read or checked, and one beyond its feed's or its hub's budget
    /// only causes a poll.
    pub async fn deliver(&self, admitted: Admitted, mut delivery: PushDelivery) -> Result<Taken, BackendError> {
        let Admitted { of, _turn } = admitted;
        let secret = of.secret.as_ref().map(|sealed| self.ops.secrets.open_push(sealed).ok());
        if secret == Some(None) {
            // No key opens it, and nothing can be checked with it. The renewal replaces it.
            delivery.body = None;
        }
        let has_secret = secret.is_some();
        let signed = match (secret.flatten(), &delivery.body) {
            (Some(secret), Some(body)) => is_signed(&secret, delivery.signature.as_deref().unwrap_or_default(), body),
            (Some(_), None) | (None, _) => false,
        };
        // Until the hub has verified a request with a new secret, it signs with the one before, or not at all.
        let is_forged = has_secret && !signed && delivery.body.is_some() && of.asked_at.is_none();
        if is_forged || of.state == PushState::Pending {
            self.count("websub_forged");
            return Ok(Taken::Ignored);
        }
        let Some(feed) = self.feed(&of).await? else { return Ok(Taken::Gone) };
        let is_of_topic = delivery.topic.as_ref().is_none_or(|topic| *topic == of.topic);
        let body = delivery.body.filter(|body| signed && is_of_topic && !delivery.is_encoded && !body.is_empty());
        let is_unchecked = has_secret && !signed;
        let row = match &body {
            Some(body) if self.budgets.take(of.feed, of.host(), body.len(), Instant::now()) => {
                match self.room(body.len()).await? {
                    Room::Full => return Ok(Taken::Busy),
                    Room::TooLarge => None,
                    Room::Free => self.ops.store.jobs_for(&[of.feed]).await?.pop(),
                }
            }
            _ => None,
        };
        match (row, body) {
            (Some(row), Some(body)) if feed.status == Status::Active => {
                let pushed = PushedBody { content_type: delivery.content_type, body };
                // First: a queue may forget what it took, and the hub sends nothing twice.
                let now = self.ops.clock.now();
                self.ops.store.await_push(of.feed, now).await?;
                let mut job = [self.job(row, feed.host, pushed)];
                self.ops.condition.proofs.sign(&mut job, &*self.ops.store, now).await?;
                self.ops.jobs.publish(&job).await?;
                self.count("websub");
            }
            // A body that is too large to be checked, or that no key can check, may be from any sender: it causes a poll, and
            // does not count for or against the hub.
            _ if is_unchecked => {
                self.count("websub_light");
                self.pings.announced(&feed).await?;
            }
            _ => {
                self.count("websub_light");
                self.light(&feed).await?;
            }
        }
        Ok(Taken::Accepted)
    }

    /// Answers a cloud that checks a registration: with its challenge, if the feed is the one that was registered just now.
    pub async fn challenge(&self, id: &str, url: &str, challenge: &str) -> Result<Option<String>, BackendError> {
        let of = self.subscription(id, PushKind::RssCloud).await?;
        let is_asked = of.is_some_and(|of| of.topic == url && state::is_pending(&of, self.ops.clock.now()));
        Ok(Some(challenge.to_owned()).filter(|challenge| is_asked && challenge.len() <= LONGEST_CHALLENGE))
    }

    /// Takes a cloud's notification: the feed is polled.
    pub async fn notify(&self, admitted: Admitted, url: &str) -> Result<Taken, BackendError> {
        let Admitted { of, _turn } = admitted;
        if of.topic != url {
            return Ok(Taken::Ignored);
        }
        self.count("rsscloud");
        let Some(feed) = self.feed(&of).await? else { return Ok(Taken::Gone) };
        self.light(&feed).await?;
        Ok(Taken::Accepted)
    }

    /// Returns the feed of a subscription, unless the subscription is to be left.
    async fn feed(&self, of: &PushSubscription) -> Result<Option<Feed>, BackendError> {
        let feed = self.ops.store.states_for(&[of.feed]).await?.pop();
        Ok(feed.filter(|feed| may_stay(of, feed, &self.ops.config, &self.ops.rules.get())))
    }

    /// Has a feed polled soon, at the pace of pings.
    async fn light(&self, feed: &Feed) -> Result<(), BackendError> {
        let at = self.ops.clock.now();
        self.ops.store.heard_pushes(&[PushHeard { feed: feed.id, at, light: true, settled: false }]).await?;
        self.pings.announced(feed).await
    }

    /// Returns whether the queue takes a delivery: deliveries must not keep polls from being dispatched.
    async fn room(&self, bytes: usize) -> Result<Room, BackendError> {
        let is_old = common::lock(&self.depth).is_none_or(|depth| depth.is_old());
        if is_old {
            let taken = self.ops.jobs.depth().await?.taken(self.ops.config.scheduler.max_queued_jobs);
            *common::lock(&self.depth) = Some(QueueDepth::read(taken));
        }
        let most = (self.ops.config.scheduler.max_queued_jobs / 2).max(1);
        Ok(common::lock(&self.depth).as_mut().map_or(Room::Full, |depth| depth.room(bytes, most)))
    }

    /// The validators say where the feed's last document was found, the known entries by which ids; neither is requested with.
    fn job(&self, row: JobRow, host: HostKey, pushed: PushedBody) -> FetchJob {
        FetchJob {
            validators: row.validators,
            known: row.known,
            pushed: Some(Box::new(pushed)),
            ..FetchJob::of(
                row.id,
                row.version,
                host,
                row.url,
                Ticket(0),
                self.ops.clock.now().after(self.ops.config.scheduler.queue_lease),
            )
        }
    }
}
