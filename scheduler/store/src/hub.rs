//! What a subscription at the WebSub hub has beside others: its topic, its lease, and what waits for the subscriber's word.

use std::collections::HashSet;

use common::config::HubAccess;
use common::named;
use common::secrets::Sealed;
use common::time::Timestamp;
use common::url::FeedId;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::{DeliveryFormat, NewFeed};

/// The maximum number of subscriptions at the hub: the rest of
/// [`MOST_SUBSCRIPTIONS`](crate::subscriptions::MOST_SUBSCRIPTIONS) is left to webhooks.
pub const MOST_AT_HUB: u64 = 4_000;
/// The name under which the hub adds subscriptions without a token.
pub const ANONYMOUS: &str = "hub";

named! {
    /// The kind of request to a subscriber.
    IntentMode {
        /// Verifies a new subscription, or a renewal.
        Subscribe = "subscribe",
        /// Verifies the end of a subscription.
        Unsubscribe = "unsubscribe",
        /// Notifies that the hub ends it.
        Denied = "denied",
    }
}

/// The part of a subscription that is at the hub.
#[derive(Clone, Debug, PartialEq)]
pub struct Hub {
    /// The URL that the subscriber named, as it wrote it.
    pub topic: String,
    /// When the subscription ends unless it is renewed. Until the first confirmation: when the request is forgotten.
    pub until: Timestamp,
    /// The next question or notification for the subscriber.
    pub intent: Option<Intent>,
}

/// The next question or notification for a subscriber.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intent {
    /// What.
    pub mode: IntentMode,
    /// The subscription does not exist yet: nothing is delivered, and without a confirmation it is removed.
    #[serde(default)]
    pub is_first: bool,
    /// How long it lasts once it is confirmed, in seconds.
    #[serde(default)]
    pub lease: u64,
    /// What notifications are signed with once it is confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Sealed>,
    /// How entries are written once it is confirmed.
    pub format: DeliveryFormat,
    /// Why the hub ends it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Requests so far.
    #[serde(default)]
    pub tries: u32,
    /// When the next one is sent; at once if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
}

impl Intent {
    /// The hub ends a subscription.
    pub fn denied(reason: &str) -> Self {
        Intent {
            mode: IntentMode::Denied,
            is_first: false,
            lease: 0,
            secret: None,
            format: DeliveryFormat::Atom,
            reason: reason.to_owned(),
            tries: 0,
            next_try: None,
        }
    }
}

/// A feed that the hub added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubFeed {
    /// Which.
    pub feed: FeedId,
    /// Confirmed subscriptions to it, of all kinds.
    pub subscriptions: u32,
}

/// A confirmed subscription at the hub that ends, or whose feed turned out to be another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// The subscription's number.
    pub id: i64,
    /// The feed that its feed turned out to be; `None`: the subscription ends.
    pub merged_into: Option<FeedId>,
}

/// A page of [`Stray`]s.
#[derive(Clone, Copy, Debug)]
pub struct StrayQuery {
    /// After the subscription of this number.
    pub after: i64,
    /// Whose subscriptions end because the hub is closed to them. Those without a token also end when their feed is private.
    pub access: HubAccess,
}

impl StrayQuery {
    /// Returns whether all subscriptions end, and whether those without a token do.
    pub(crate) fn closed(&self) -> (bool, bool) {
        (self.access == HubAccess::Off, matches!(self.access, HubAccess::Off | HubAccess::Token))
    }
}

/// Identifies the pair of a topic and a callback. Of equal keys the texts are still to be compared.
pub(crate) fn hub_key(topic: &str, callback: &str) -> String {
    format!("{:032x}", xxh3_128(format!("{topic}\n{callback}").as_bytes()))
}

impl Hub {
    /// Reads the columns of a row; `None` for a webhook. `Err`: they cannot be read.
    pub(crate) fn of_row(topic: Option<String>, until: Option<i64>, intent: Option<&str>) -> Result<Option<Self>, ()> {
        let Some((topic, until)) = topic.zip(until) else { return Ok(None) };
        let intent = intent.map(serde_json::from_str).transpose().map_err(|_| ())?;
        Ok(Some(Hub { topic, until: Timestamp::from_millis(until), intent }))
    }

    /// Returns its intent as JSON.
    pub(crate) fn intent_json(&self) -> Option<String> {
        self.intent.as_ref().and_then(|intent| serde_json::to_string(intent).ok())
    }
}

/// Which feeds of an addition belong to the hub.
pub(crate) struct HubFeeds {
    /// Those that it added.
    pub(crate) added: Vec<i64>,
    /// Known ones that another caller adds: they stay when its subscribers leave.
    pub(crate) kept: Vec<i64>,
}

/// Sorts feeds that are being added, which have these numbers and of which these are new.
pub(crate) fn hub_feeds(feeds: &[NewFeed], ids: &[i64], inserted: &HashSet<i64>) -> HubFeeds {
    let of = |hub: bool, is_new: bool| {
        let fits = |(feed, id): &(&NewFeed, &i64)| feed.hub == hub && inserted.contains(*id) == is_new;
        feeds.iter().zip(ids).filter(fits).map(|(_, id)| *id).collect()
    };
    HubFeeds { added: of(true, true), kept: of(false, false) }
}
