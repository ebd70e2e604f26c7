//! Subscriptions as the API shows them.

use common::policy::Category;
use common::secrets::Keyring;
use common::time::Timestamp;
use common::url::FeedId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use store::{
    Delivery, DeliveryFormat, EventFilter, IntentMode, Part, Subscription, SubscriptionKind, SubscriptionState,
};

/// A subscription.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Subscription")]
pub struct SubscriptionView {
    /// Its number.
    pub id: i64,
    /// webhook: signed requests to the target; websub: notifications of the WebSub hub to a callback.
    pub kind: SubscriptionKind,
    /// Whether it is delivered to.
    pub state: SubscriptionState,
    /// Why it is disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where requests go.
    pub target: String,
    /// Which events.
    #[schemars(with = "serde_json::Value", extend("$ref" = "#/components/schemas/SubscriptionFilter"))]
    pub filter: FilterView,
    /// Only of feeds with one of these labels, to which the token that added it is limited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limited_to: Vec<String>,
    /// feedfleet: events as the API shows them; jsonfeed: entries as a JSON Feed; atom: entries as an Atom feed.
    pub format: DeliveryFormat,
    /// The maximum number of events in a request; 100 by default.
    #[schemars(range(min = 1, max = 500))]
    pub batch: u32,
    /// How long an event may wait for others to share its request, in seconds; 0 by default.
    #[schemars(range(min = 0, max = 3600))]
    pub delay: f64,
    /// How requests are signed; absent if the secret of a webhook cannot be decrypted, or if a subscriber of the hub gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["hmac-sha256", "ed25519", "x-hub-signature"]))]
    pub signature: Option<String>,
    /// The key that verifies requests (whpk_), for ed25519.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// Only in the response to the request that generated or set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Until then requests are signed with the previous secret too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_secret_until: Option<Timestamp>,
    /// websub: the feed's URL, as the subscriber wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// websub: when it ends unless its subscriber renews it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<Timestamp>,
    /// websub: what the next request to its subscriber asks it to confirm; denied: that the hub ends the subscription.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asks: Option<IntentMode>,
    /// When it was added.
    pub created: Timestamp,
    /// Who added it: the name of a token, loopback, or hub.
    pub by: String,
    /// All events up to this `seq` were delivered or do not match.
    pub cursor: i64,
    /// Seconds since the first event of the request that is in flight or will be retried was stored; 0 if there is
    /// none.
    pub lag: f64,
    /// Events delivered so far.
    pub delivered: u64,
    /// Failed requests since the last accepted one.
    pub failures: u32,
    /// When the first request since the last accepted one failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Timestamp>,
    /// When the request is retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
    /// Retention deleted events up to this `seq` before they were delivered.
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
    /// Returns its state in a word: one that is active may be failing.
    pub fn state_text(&self) -> &'static str {
        let is_failing = self.state == SubscriptionState::Active && self.failures > 0;
        if is_failing { "failing" } else { self.state.as_str() }
    }

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
