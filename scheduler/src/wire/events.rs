//! Entries and events.

use common::entry::canonical_url;
use common::last_error::ExplainedError;
use common::time::Timestamp;
use common::url::FeedId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use store::{EntryFeed, Event, StoredEntry};

/// Every kind of event.
pub const EVENT_KINDS: [&str; 17] = [
    "entry.new",
    "entry.updated",
    "feed.added",
    "feed.changed",
    "feed.removed",
    "feed.gone",
    "feed.moved",
    "feed.failing",
    "feed.penalised",
    "feed.recovered",
    "feed.blacklisted",
    "feed.quarantined",
    "feed.overflowed",
    "feed.silent",
    "host.refusing",
    "host.recovered",
    "subscription.disabled",
];

/// An entry as callers see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Entry")]
pub struct EntryView {
    /// The entry, its texts as the publisher wrote them.
    #[serde(flatten)]
    pub stored: StoredEntry,
    /// What to display: the title, else the first words, else the URL.
    #[serde(default)]
    pub display_title: String,
    /// Its address without tracking, AMP and redirects, where that is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canonical_url: Option<String>,
    /// With html=sanitised: the summary as HTML that is safe to display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary_html: Option<String>,
    /// With html=sanitised: the content as HTML that is safe to display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_html: Option<String>,
}

impl EntryView {
    /// Returns the entry alone.
    pub fn of(mut stored: StoredEntry) -> Self {
        stored.entry.name_authors();
        stored.entry.name_types();
        let display_title = stored.entry.display_title().to_owned();
        let canonical_url = stored.entry.url.as_deref().and_then(canonical_url);
        EntryView { stored, display_title, canonical_url, summary_html: None, content_html: None }
    }
}

/// A part of the entries, in the order in which they were stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EntryList {
    /// Changes when the store is restored from a backup; cursors of another epoch are invalid.
    pub epoch: String,
    /// The oldest `seq` that is kept; 0 while there is none.
    pub oldest: i64,
    /// The entries, by `seq`.
    pub items: Vec<EntryView>,
    /// The cursor to continue with (`after=`), now or when there is more.
    pub next: i64,
    /// There may be further items now, even if there are fewer than `limit`, or none.
    #[serde(default)]
    pub more: bool,
}

/// An event for consumers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Event")]
pub struct EventView {
    /// Its number in the order of all events, and the cursor after it.
    pub seq: i64,
    /// The epoch of that number; absent in lists, which contain it once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// What happened.
    #[schemars(extend("enum" = EVENT_KINDS))]
    pub kind: String,
    /// The feed; 0 for `subscription.*`.
    pub feed_id: FeedId,
    /// The subscription, for `subscription.*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription: Option<i64>,
    /// The feed as it is now; when it was erased, its URL and title are absent, except in `feed.removed`.
    #[serde(flatten)]
    pub feed: EntryFeed,
    /// The host that the feed is polled at now; absent when it was erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The feed that it was merged into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_into: Option<FeedId>,
    /// When it was stored.
    pub at: Timestamp,
    /// The settings that changed, in `feed.changed`: status, subscribers, active_subscribers, sla, important, interval,
    /// private, calm, labels, external_id, credentials.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// In `feed.overflowed` the last good poll before the gap; in `feed.silent` the newest entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Why the feed failed, if that is what happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ExplainedError>,
    /// For `entry.*` the entry as it is now, its `seq` that of its newest form; absent when it is not kept any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryView>,
}

impl EventView {
    /// Returns the event in a list.
    pub fn of(event: Event) -> Self {
        let Event {
            seq,
            kind,
            feed_id,
            subscription,
            at,
            feed,
            host,
            merged_into,
            changed,
            since,
            error,
            entry,
            category: _,
            limited_to: _,
        } = event;
        let (error, entry) = (error.map(ExplainedError::from), entry.map(EntryView::of));
        EventView {
            seq,
            epoch: None,
            kind,
            feed_id,
            subscription,
            feed,
            host,
            merged_into,
            at,
            changed,
            since,
            error,
            entry,
        }
    }

    /// Returns the event alone.
    pub fn in_epoch(event: Event, epoch: &str) -> Self {
        EventView { epoch: Some(epoch.to_owned()), ..Self::of(event) }
    }
}

/// A part of the events, in the order in which they were stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventList {
    /// Changes when the store is restored from a backup; cursors of another epoch are invalid.
    pub epoch: String,
    /// The oldest `seq` that may still be stored.
    pub oldest: i64,
    /// The events, by `seq`.
    pub items: Vec<EventView>,
    /// The cursor to continue with (`after=`), now or when there is more.
    pub next: i64,
    /// There may be further items now, even if there are fewer than `limit`, or none.
    #[serde(default)]
    pub more: bool,
}
