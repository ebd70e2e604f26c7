//! Subscriptions as the API shows them.

use common::policy::Category;
use common::secrets::Keyring;
use common::time::Timestamp;
use common::url::FeedId;
use serde::{Deserialize, Serialize};

use store::{
    Delivery, DeliveryFormat, EventFilter, IntentMode, Part, Subscription, SubscriptionKind, SubscriptionState,
};

/// A subscription.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubscriptionView {
    /// Its number.
    pub id: i64,
    /// How events reach the subscriber.
    pub kind: SubscriptionKind,
    /// Whether it is delivered to.
    pub state: SubscriptionState,
    /// Why it is disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where requests go.
    pub target: String,
    /// Which events.
    pub filter: FilterView,
    /// Only of feeds with one of these labels, to which the token that added it is limited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limited_to: Vec<String>,
    /// How they are written.
    pub format: DeliveryFormat,
    /// The maximum number of events in a request.
    pub batch: u32,
    /// How long an event may wait for others to share its request, in seconds.
    pub delay: f64,
    /// How requests are signed; absent when its secret cannot be opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// The key that verifies them, for Ed25519.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// The secret: when it was generated or set by this request only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Until then requests are signed with the secret before too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_secret_until: Option<Timestamp>,
    /// The feed's URL, at the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// When it ends unless its subscriber renews it, at the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<Timestamp>,
    /// The next question or notification for its subscriber, at the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asks: Option<IntentMode>,
    /// When it was added.
    pub created: Timestamp,
    /// The caller that added it.
    pub by: String,
    /// All events up to this number were delivered or do not match.
    pub cursor: i64,
    /// Seconds since the first event of the request that is in flight or will be retried was stored; 0 when there is none.
    pub lag: f64,
    /// Events delivered so far.
    pub delivered: u64,
    /// Requests that failed since the last success.
    pub failures: u32,
    /// When the first of them failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Timestamp>,
    /// When the next one is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
    /// Retention deleted events up to this number before they were delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_up_to: Option<i64>,
    /// The last request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Delivery>,
}

/// Which events, under the names of the parameters of `GET /events`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the parameters are documented where events are listed")]
pub struct FilterView {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feed: Option<FeedId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub q: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
}

impl FilterView {
    fn of(filter: EventFilter) -> Self {
        FilterView {
            kind: (!filter.kinds.is_empty()).then(|| filter.kinds.join(",")),
            feed: filter.feed,
            host: filter.host.map(|host| host.as_str().to_owned()),
            label: filter.label,
            category: filter.category,
            language: filter.language,
            q: filter.text,
            part: filter.part.map(|Part { number, of }| format!("{number}/{of}")),
        }
    }
}

impl SubscriptionView {
    /// Shows a subscription; its secret stays hidden.
    pub fn of(subscription: Subscription, secrets: &Keyring, now: Timestamp) -> Self {
        let (lease_until, topic, asks) = match &subscription.hub {
            Some(hub) => (Some(hub.until), Some(hub.topic.clone()), hub.intent.as_ref().map(|intent| intent.mode)),
            None => (None, None, None),
        };
        let is_signed = subscription.hub.is_some() && !subscription.secret.as_bytes().is_empty();
        let secret = secrets.open_webhook(&subscription.secret).ok();
        let old_secret_until = subscription.old_secret.map(|(_, until)| until).filter(|until| *until > now);
        let Subscription { id, wish, state, reason, by, created, progress, .. } = subscription;
        SubscriptionView {
            id,
            kind: wish.kind,
            state,
            reason,
            target: wish.target,
            limited_to: wish.filter.visible.clone(),
            filter: FilterView::of(wish.filter),
            format: wish.format,
            batch: wish.batch,
            delay: wish.delay.as_secs_f64(),
            signature: match is_signed {
                true => Some("x-hub-signature".to_owned()),
                false => secret.as_ref().map(|secret| secret.kind().as_str().to_owned()),
            },
            public_key: secret.and_then(|secret| secret.public_key()),
            secret: None,
            old_secret_until,
            topic,
            lease_until,
            asks,
            created,
            by,
            cursor: progress.cursor,
            lag: progress.waiting_since.map_or(0.0, |since| now.since(since).as_secs_f64()),
            delivered: progress.delivered,
            failures: progress.failures,
            failing_since: progress.failing_since,
            next_try: progress.next_try,
            lost_up_to: progress.lost_after,
            last: progress.deliveries.into_iter().next(),
        }
    }
}
