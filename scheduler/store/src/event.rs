//! Events and entries as consumers read them.

use common::entry::Entry;
use common::labels::Marks;
use common::last_error::LastError;
use common::policy::Category;
use common::time::Timestamp;
use common::url::FeedId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An entry in the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StoredEntry {
    /// The number of its newest version, in the order of storage.
    pub seq: i64,
    /// Whose entry.
    pub feed_id: FeedId,
    /// When it was first stored.
    pub seen: Timestamp,
    /// When this form of it was stored.
    #[serde(skip)]
    pub stored: Timestamp,
    /// Its feed as it is now.
    #[serde(flatten)]
    pub feed: EntryFeed,
    /// The entry.
    #[serde(flatten)]
    pub entry: Entry,
}

/// What an entry says of its feed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EntryFeed {
    /// The feed's current URL; absent if it was erased, except in `feed.removed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feed_url: Option<String>,
    /// The feed's title now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feed_title: Option<String>,
    /// What the caller notes on it.
    #[serde(flatten)]
    pub marks: Marks,
}

/// An event for consumers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its place in the order of all events.
    pub seq: i64,
    /// What happened, such as `entry.new`, `feed.gone`.
    pub kind: String,
    /// To which feed; zero for `subscription.*`.
    pub feed_id: FeedId,
    /// To which subscription, for `subscription.*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription: Option<i64>,
    /// The labels to which that subscription was limited then: callers with all of them see it too.
    #[serde(skip)]
    pub limited_to: Vec<String>,
    /// When it was stored.
    pub at: Timestamp,
    /// The feed as it is now; nothing when it was erased, unless the event is about that.
    #[serde(flatten)]
    pub feed: EntryFeed,
    /// The feed's category now.
    #[serde(skip)]
    pub category: Option<Category>,
    /// The host that the feed is polled at now; absent when it was erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The feed that it turned out to be, when it is merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_into: Option<FeedId>,
    /// The settings that changed, for `feed.changed`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// The last good poll before the gap, for `feed.overflowed`; the newest entry, for `feed.silent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Why the feed failed, if that is what happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<LastError>,
    /// The entry, for `entry.*`, in its newest form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<StoredEntry>,
}

/// Which entry is meant.
#[derive(Clone, Debug)]
pub enum EntryRef {
    /// The one that was announced by the event with this number, in its newest form.
    Seq(i64),
    /// By its feed and its id there.
    Id(FeedId, String),
}

/// A part of the events.
#[derive(Clone, Debug)]
pub struct EventPage<T> {
    /// Changes when the store was restored from a backup: cursors of another epoch mean nothing.
    pub epoch: String,
    /// Nothing from this `seq` on was taken by retention; a cursor below `oldest - 1` missed something.
    pub oldest: i64,
    /// The items, by `seq`.
    pub items: Vec<T>,
    /// The number behind which the next page begins: everything up to it was looked at.
    pub next: i64,
    /// There may be further items behind it now: the page ended at its limit, at [`PAGE_BYTES`](crate::PAGE_BYTES), or where as many were looked at as a
    /// call looks at.
    pub more: bool,
}

impl<T> Default for EventPage<T> {
    fn default() -> Self {
        EventPage { epoch: String::new(), oldest: 0, items: Vec::new(), next: 0, more: false }
    }
}

/// A process's wish to be the one that passes events on to the exchange.
#[derive(Clone, Copy, Debug)]
pub struct RelayTurn<'a> {
    /// Which process: a name that no other one has.
    pub holder: &'a str,
    /// The exchange has all events up to here; zero when the process knows of none.
    pub confirmed: i64,
    /// The epoch of this number: in another epoch it is ignored.
    pub epoch: &'a str,
    /// How long the turn lasts by the database's clock, unless it is prolonged before.
    pub lasts: std::time::Duration,
}
