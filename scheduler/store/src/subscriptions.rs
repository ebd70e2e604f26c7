//! Subscriptions: targets to which schedulers send the events that a filter lets through.
//!
//! A subscription is a row: its settings, and how far deliveries are. One scheduler at a time holds its lease, by the
//! database's clock, and only the holder moves its progress on. The row keeps the range of events of a request before
//! it is sent, so that whichever scheduler sends it again sends the same range under the same id.

use std::sync::Arc;
use std::time::Duration;

use common::named;
use common::outcome::DeliveryOutcome;
use common::secrets::Sealed;
use common::time::Timestamp;
use common::url::FeedId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlx_macros::FromRow;

use super::hub::{Hub, IntentMode};
use super::{DeliveryFormat, EventFilter, StoreError};

named! {
    /// How events reach a subscriber.
    SubscriptionKind {
        /// Signed requests to its target.
        Webhook = "webhook",
        /// Notifications of the WebSub hub to a callback.
        Websub = "websub",
    }
}

named! {
    /// Whether a subscription is delivered to.
    SubscriptionState {
        /// Events are sent.
        Active = "active",
        /// A person stopped it; events wait as long as they are kept.
        Paused = "paused",
        /// It was stopped because its target failed for too long, or accepts no more requests.
        Disabled = "disabled",
    }
}

/// The maximum number of subscriptions: a scheduler holds all those that it serves in memory.
pub const MOST_SUBSCRIPTIONS: i64 = 5_000;
/// How long the renewal of a lease that has ended may take to be confirmed.
pub(super) const RENEWAL: Duration = Duration::from_secs(3600);
/// Deliveries of a subscription that are remembered.
pub const KEPT_DELIVERIES: usize = 20;
/// The maximum number of events in a request.
pub const MOST_BATCH: u32 = 500;

/// A person's settings of a subscription.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// How events reach the subscriber.
    pub kind: SubscriptionKind,
    /// Where requests go.
    pub target: String,
    /// Which events.
    pub filter: EventFilter,
    /// How they are written.
    pub format: DeliveryFormat,
    /// The maximum number of events in a request.
    pub batch: u32,
    /// How long an event may wait for others to share its request.
    pub delay: Duration,
}

/// A subscription that is to be added.
#[derive(Clone, Debug)]
pub struct NewSubscription {
    /// What is wanted.
    pub wish: Wish,
    /// What requests are signed with.
    pub secret: Sealed,
    /// The caller.
    pub by: String,
    /// Events after this number are sent.
    pub after: i64,
    /// Its topic and its lease, at the hub.
    pub hub: Option<Hub>,
}

/// A subscription and how far its deliveries are.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscription {
    /// Its number.
    pub id: i64,
    /// What is wanted.
    pub wish: Wish,
    /// Whether it is delivered to.
    pub state: SubscriptionState,
    /// Why it is disabled.
    pub reason: Option<String>,
    /// What requests are signed with; empty: nothing, at the hub.
    pub secret: Sealed,
    /// The secret before the last rotation, with which requests are signed too until then.
    pub old_secret: Option<(Sealed, Timestamp)>,
    /// The caller that added it.
    pub by: String,
    /// When.
    pub created: Timestamp,
    /// Counts changes by people.
    pub revision: i64,
    /// Counts replays, and changes of the filter or the format: requests after one have other ids than those before.
    pub replays: i64,
    /// How far deliveries are.
    pub progress: Progress,
    /// Its topic and its lease, at the hub.
    pub hub: Option<Hub>,
}

/// How far the deliveries of a subscription are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// All events up to this number were delivered or do not match.
    pub cursor: i64,
    /// The last event of the request that is in flight or will be retried; zero: there is none.
    pub pending: i64,
    /// When the first event of that request was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Timestamp>,
    /// Requests that failed since the last success.
    pub failures: u32,
    /// When the first of them failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Timestamp>,
    /// Milliseconds since then in which the retry was due and no scheduler ran.
    #[serde(skip_serializing_if = "is_zero")]
    pub untried: u64,
    /// When the request is retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
    /// Events delivered so far.
    pub delivered: u64,
    /// The number behind which retention had deleted events before they were delivered, the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_after: Option<i64>,
    /// The last requests, the newest first, at most [`KEPT_DELIVERIES`].
    pub deliveries: Vec<Delivery>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A request to the target of a subscription.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Delivery {
    /// When it was sent.
    pub at: Timestamp,
    /// Its `webhook-id`.
    pub id: String,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// The number of its events.
    pub events: u32,
    /// The `seq` of the first one.
    pub first: i64,
    /// The `seq` of the last one.
    pub last: i64,
    /// The result.
    pub outcome: DeliveryOutcome,
    /// The status code of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long the target took to respond, in seconds.
    pub duration: f64,
    /// Why it failed, or how the response begins.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// What a person changes about a subscription. `None` leaves as it is.
#[derive(Clone, Debug, Default)]
pub struct SubscriptionChange {
    /// What is wanted. Another target starts without failures.
    pub wish: Option<Wish>,
    /// Whether it is delivered to. A subscription that is resumed starts without failures.
    pub state: Option<SubscriptionState>,
    /// Another secret, and until when the one before signs too; at the hub it does not.
    pub secret: Option<(Sealed, Timestamp)>,
    /// Events after this number are sent, whether they were before or not.
    pub replay_after: Option<i64>,
    /// Its lease and the pending question to its subscriber, at the hub.
    pub hub: Option<Hub>,
    /// A request to be remembered.
    pub delivery: Option<Delivery>,
    /// The revision from which the change was made: nothing changes if the subscription has another one by now.
    pub revision: i64,
}

impl SubscriptionChange {
    /// Changes a subscription; returns whether it still had the revision.
    ///
    /// At the hub, a feed that is named again must exist: see [`SubscriptionChange::named_feed`].
    pub(crate) fn apply(&self, to: &mut Subscription) -> bool {
        if to.revision != self.revision {
            return false;
        }
        to.revision += 1;
        let mut starts_again = self.replay_after.is_some();
        if let Some(wish) = &self.wish {
            starts_again |= wish.target != to.wish.target;
            if (&wish.filter, wish.format) != (&to.wish.filter, to.wish.format) {
                // The request that was to be retried would have other events under its id.
                to.replays += 1;
                starts_again |= to.progress.pending > 0;
                (to.progress.pending, to.progress.waiting_since) = (0, None);
            }
            to.wish = wish.clone();
        }
        if let Some(state) = self.state {
            starts_again |= state == SubscriptionState::Active;
            (to.state, to.reason) = (state, None);
        }
        if let Some((secret, old_until)) = &self.secret {
            let before = std::mem::replace(&mut to.secret, secret.clone());
            to.old_secret = (to.wish.kind == SubscriptionKind::Webhook).then_some((before, *old_until));
        }
        if let Some(hub) = &self.hub {
            to.hub = Some(hub.clone());
        }
        if let Some(delivery) = &self.delivery {
            to.progress.note(delivery.clone());
        }
        if starts_again {
            to.progress.start_again();
        }
        if let Some(after) = self.replay_after {
            to.replays += 1;
            let progress = &mut to.progress;
            (progress.cursor, progress.pending, progress.waiting_since) = (after, 0, None);
        }
        true
    }
}

impl SubscriptionChange {
    /// Returns the feed that a subscription at the hub names after this change. Its row is locked, so that it is not released at the
    /// same time.
    pub(crate) fn named_feed(&self, changed: &Subscription) -> Option<FeedId> {
        self.wish.as_ref().filter(|_| changed.hub.is_some()).and_then(|wish| wish.filter.feed)
    }
}

/// A scheduler's wish to deliver its share of the subscriptions.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryTurn<'a> {
    /// Which process: a name that no other one has.
    pub holder: &'a str,
    /// How long leases last by the database's clock unless they are renewed before. Zero: lets all go.
    pub lasts: Duration,
    /// Subscriptions without a request in flight, which others may have if this process holds more than its share.
    pub idle: &'a [i64],
}

/// What a process holds after it renewed its lease, and where the store is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeliveryShare {
    /// The store's epoch. In another one nothing that the process knew of its subscriptions holds.
    pub epoch: String,
    /// The newest number of an event. One that was lower than before says the same: another server took over without the last
    /// transactions.
    pub newest: i64,
    /// The subscriptions, by number, each with its revision.
    pub held: Vec<(i64, i64)>,
}

/// Progress that the holder of a lease made.
#[derive(Clone, Debug)]
pub struct Advance {
    /// The store's epoch when it was made. In another one its numbers mean other events, although the row may be the same: a server
    /// that took over has the last row of the one before, and not its last events.
    pub epoch: Arc<str>,
    /// Of which subscription.
    pub id: i64,
    /// The revision from which it was made.
    pub revision: i64,
    /// The cursor and the pending number from which it was made: nothing is stored if the row has others, because the holder lost
    /// its lease for a while and another process made progress.
    pub from: (i64, i64),
    /// How far deliveries are.
    pub progress: Progress,
    /// The subscription is disabled, for this reason, which is also published (`subscription.disabled`).
    pub disable: Option<String>,
}

impl Advance {
    /// Returns whether it was made in the store's epoch, and from the progress that a row has.
    pub(super) fn follows(&self, row: &str, epoch: &str) -> bool {
        *self.epoch == *epoch && serde_json::from_str(row).is_ok_and(|progress: Progress| progress.place() == self.from)
    }
}

impl Subscription {
    /// Returns whether events are delivered: not before the first confirmation, and not after the hub ended it.
    pub fn is_delivered(&self) -> bool {
        let intent = self.hub.as_ref().and_then(|hub| hub.intent.as_ref());
        let is_confirmed = intent.is_none_or(|intent| !intent.is_first && intent.mode != IntentMode::Denied);
        self.state == SubscriptionState::Active && is_confirmed
    }

    /// Returns whether it has something to deliver or to verify: of one that is disabled, that it is wanted again; of one that is
    /// paused, only that it ends.
    pub fn is_served(&self) -> bool {
        let asked = self.hub.as_ref().and_then(|hub| hub.intent.as_ref()).map(|intent| intent.mode);
        match self.state {
            SubscriptionState::Active => true,
            SubscriptionState::Disabled => asked.is_some(),
            SubscriptionState::Paused => asked == Some(IntentMode::Unsubscribe),
        }
    }

    /// Returns whether this is the subscription of a callback to a topic.
    pub(super) fn is_at_hub(&self, topic: &str, callback: &str) -> bool {
        self.wish.target == callback && self.hub.as_ref().is_some_and(|hub| hub.topic == topic)
    }
}

/// Subscriptions of a kind in a state, and whether their last request failed.
pub type SubscriptionCount = (SubscriptionKind, SubscriptionState, bool, u64);

/// A subscription as both databases hold it.
#[derive(Debug, FromRow)]
pub(super) struct SubscriptionRow {
    pub(super) id: i64,
    kind: String,
    state: String,
    reason: Option<String>,
    target: String,
    filter: String,
    format: String,
    batch: i64,
    delay: i64,
    secret: Vec<u8>,
    old_secret: Option<Vec<u8>>,
    old_secret_until: Option<i64>,
    by_whom: String,
    created: i64,
    revision: i64,
    replays: i64,
    progress: String,
    topic: Option<String>,
    lease_until: Option<i64>,
    intent: Option<String>,
}

/// The columns of a [`SubscriptionRow`].
macro_rules! subscription_columns {
    () => {
        "id, kind, state, reason, target, filter, format, batch, delay, secret, old_secret, old_secret_until, by_whom, created, \
         revision, replays, progress, topic, lease_until, intent"
    };
}
pub(super) use subscription_columns;

impl TryFrom<SubscriptionRow> for Subscription {
    type Error = StoreError;

    fn try_from(row: SubscriptionRow) -> Result<Self, StoreError> {
        let unreadable = |what| StoreError::Subscription { id: row.id, what };
        let old_secret = row.old_secret.clone().zip(row.old_secret_until);
        let hub = Hub::of_row(row.topic.clone(), row.lease_until, row.intent.as_deref());
        Ok(Subscription {
            wish: Wish {
                kind: SubscriptionKind::from_name(&row.kind).ok_or_else(|| unreadable("kind"))?,
                target: row.target.clone(),
                filter: serde_json::from_str(&row.filter).map_err(|_| unreadable("filter"))?,
                format: DeliveryFormat::from_name(&row.format).ok_or_else(|| unreadable("format"))?,
                batch: u32::try_from(row.batch).map_err(|_| unreadable("batch"))?,
                delay: Duration::from_millis(u64::try_from(row.delay).map_err(|_| unreadable("delay"))?),
            },
            state: SubscriptionState::from_name(&row.state).ok_or_else(|| unreadable("state"))?,
            progress: serde_json::from_str(&row.progress).map_err(|_| unreadable("progress"))?,
            hub: hub.map_err(|()| unreadable("intent"))?,
            id: row.id,
            reason: row.reason,
            secret: Sealed::from_bytes(row.secret),
            old_secret: old_secret.map(|(secret, until)| (Sealed::from_bytes(secret), Timestamp::from_millis(until))),
            by: row.by_whom,
            created: Timestamp::from_millis(row.created),
            revision: row.revision,
            replays: row.replays,
        })
    }
}

/// Returns the subscriptions that can be read; the others are logged, and nothing is delivered to them.
pub(super) fn readable(rows: Vec<SubscriptionRow>) -> Vec<Subscription> {
    let read = |row: SubscriptionRow| {
        Subscription::try_from(row).map_err(|error| tracing::error!(%error, "a subscription is left out")).ok()
    };
    rows.into_iter().filter_map(read).collect()
}

impl Progress {
    /// Forgets the failures.
    pub fn start_again(&mut self) {
        (self.failures, self.failing_since, self.untried, self.next_try) = (0, None, 0, None);
    }

    /// Remembers a request, and forgets the oldest of too many.
    pub fn note(&mut self, delivery: Delivery) {
        self.deliveries.insert(0, delivery);
        self.deliveries.truncate(KEPT_DELIVERIES);
    }

    /// Returns the cursor and the pending number.
    pub fn place(&self) -> (i64, i64) {
        (self.cursor, self.pending)
    }

    /// Returns its JSON: numbers and texts, which JSON can hold.
    pub(super) fn packed(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Wish {
    pub(super) fn delay_millis(&self) -> i64 {
        i64::try_from(self.delay.as_millis()).unwrap_or(i64::MAX)
    }

    pub(super) fn filter_json(&self) -> String {
        serde_json::to_string(&self.filter).unwrap_or_default()
    }
}

/// Returns how the URLs of targets on this host begin.
pub(super) fn beginnings(host: &str) -> [String; 4] {
    [("http", '/'), ("http", ':'), ("https", '/'), ("https", ':')]
        .map(|(scheme, end)| format!("{scheme}://{host}{end}"))
}

/// Counts as rows say them.
pub(super) fn counted(rows: Vec<(String, String, bool, i64)>) -> Vec<SubscriptionCount> {
    let read = |(kind, state, failing, count): (String, String, bool, i64)| {
        let (kind, state) = (SubscriptionKind::from_name(&kind)?, SubscriptionState::from_name(&state)?);
        Some((kind, state, failing, u64::try_from(count).unwrap_or(0)))
    };
    rows.into_iter().filter_map(read).collect()
}
