//! The store: feeds, entries, events and holds. It is the truth; schedule and gate are rebuilt from it.
//!
//! The trait has operations, not queries. It decides nothing about polling: it stores what `decide` said.
//!
//! Each implementation guarantees:
//! - [`Polls::apply`] is one transaction: entries first, feed rows after them, events last, numbered under one lock so that
//!   commit order is `seq` order;
//! - a report of another version changes nothing;
//! - entries are unique per feed and identity;
//! - audience, url and status belong to people, poll state and validators to `apply`: neither overwrites the other's.

pub mod audit;
#[cfg(test)]
mod conformance;
mod counts;
pub mod cursor;
mod delivery_format;
mod error;
mod filter;
mod history;
mod hosts;
mod hub;
mod job_keys;
mod lead;
mod listing;
mod marked;
mod news;
mod page_size;
pub mod postgres;
pub mod push;
mod quota;
mod refusals;
pub mod requeues;
mod row;
mod seams;
mod source;
pub mod sqlite;
mod statement;
mod stretch;
pub mod subscriptions;
#[cfg(any(test, feature = "conformance"))]
pub mod testing;
mod texts;
mod verdicts;
mod wanted;

#[cfg(any(test, feature = "conformance"))]
pub use verdicts::{row_after, wake_after};

use common::archive::ArchiveRead;
use common::calm::CalmGroup;
use common::document::{ContentHash, Validators};
use common::entry::Entry;
use common::feed::{Feed, OverQuota};
use common::host::HostKey;
use common::job::Detour;
use common::known::KnownEntries;
use common::labels::Marks;
use common::last_error::LastError;
use common::outcome::{FailureKind, OutcomeKind};
use common::policy::{Audience, Category, Decision, PollState, Status, Terms};
use common::report::FetchReport;
use common::secrets::{Credentials, Sealed};
use common::time::Timestamp;
use common::url::{FeedId, FeedUrl, Version};
use serde::{Deserialize, Serialize};

pub use audit::{AuditLine, AuditOutcome, AuditQuery, AuditSort, Audited};
pub use delivery_format::DeliveryFormat;
pub use error::StoreError;
pub use filter::{EventFilter, EventQuery, Lowered, Part};
pub use hosts::{AcceptedPolicy, HostOrders, HostQuery, HostRow, NewPolicy};
pub use hub::{ANONYMOUS, Hub, HubFeed, Intent, IntentMode, MOST_AT_HUB, Stray, StrayQuery};
pub use job_keys::StoredJobKeys;
pub use page_size::PAGE_BYTES;
pub use push::{NewPush, OwedPace, PushClaim, PushCount, PushHeard, PushSubscription, PushWish, Subscribed, Unpushed};
pub use refusals::{HostRefusal, RefusedHost};
pub use requeues::{NewRequeue, Requeue, RequeueFilter, RequeuePlan, RequeueState, RequeueStep};
pub use row::never;
pub use seams::{
    Audits, Deliveries, Events, Feeds, Hosts, HubSubscriptions, Polls, PushLosses, PushUpkeep, Pushes, Requeues, Seals,
    Store, Subscriptions, Upkeep, VersionedChanges, Wakes,
};
pub use subscriptions::{
    Advance, Delivery, DeliveryShare, DeliveryTurn, NewSubscription, Progress, Subscription, SubscriptionChange,
    SubscriptionCount, SubscriptionKind, SubscriptionState, Wish,
};
pub use wanted::reaches;

/// A feed to be added.
#[derive(Clone, Debug)]
pub struct NewFeed {
    /// Where it is polled.
    pub url: FeedUrl,
    /// What it is fetched with: part of its identity.
    pub credentials: Option<Credentials>,
    /// What its requests are charged to.
    pub host: HostKey,
    /// Its readers.
    pub audience: Audience,
    /// Subscribers who want it at midnight.
    pub calm: Vec<CalmGroup>,
    /// The category that follows from the audience.
    pub category: Category,
    /// Unknown to pings and the publisher's page.
    pub private: bool,
    /// What the caller notes on it.
    pub marks: Marks,
    /// The caller's name for it: its title until the feed itself has one.
    pub title: Option<String>,
    /// When to poll it first.
    pub first_due: Timestamp,
    /// A person adds it, one by one: a known feed that is gone, blacklisted or quarantined is tried again, and where it turns
    /// out to be a page, its host is searched for a feed.
    pub by_hand: bool,
    /// The hub adds it for its subscribers, and may release it when they are gone, unless another caller adds it.
    pub hub: bool,
}

/// The outcome of a [`NewFeed`].
#[derive(Clone, Debug, PartialEq)]
pub struct Added {
    /// Its number.
    pub id: FeedId,
    /// It is in the store since this call; otherwise it was known.
    pub new: bool,
    /// It was known but not polled any more, and gets one try: one that was removed, or one that was gone, blacklisted or
    /// quarantined and is added [by hand](NewFeed::by_hand).
    pub revived: bool,
}

/// What is needed to build a job for a live feed.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRow {
    /// Which feed.
    pub id: FeedId,
    /// Its version.
    pub version: Version,
    /// Where to fetch.
    pub url: FeedUrl,
    /// What to fetch it with.
    pub credentials: Option<Sealed>,
    /// Its category, for its band.
    pub category: Category,
    /// When it is due by the store's word.
    pub next_due: Timestamp,
    /// A wake, if one waits.
    pub wake_at: Option<Timestamp>,
    /// For the conditional request.
    pub validators: Validators,
    /// The last accepted body's hash.
    pub content_hash: Option<ContentHash>,
    /// Entries that need not be reported again.
    pub known: KnownEntries,
    /// Whether to begin with HEAD: [`HeadFirst::advice`](common::policy::HeadFirst::advice).
    pub head_first: Option<bool>,
    /// Until then no delta is requested.
    pub no_delta_until: Option<Timestamp>,
    /// How many epochs the store has begun.
    pub epochs: u32,
    /// Its requests are signed.
    pub signed: bool,
    /// Where its last fetch continues, if a busy host interrupted it.
    pub detour: Option<Detour>,
    /// [`NewFeed::by_hand`]
    pub by_hand: bool,
    /// Subscribers in all, calm ones included: for the `User-Agent` and for the order of waiting.
    pub subscribers: u32,
    /// How far its older entries were read, while they are.
    pub archive: Option<ArchiveRead>,
    /// The row is for a page of these, not for the feed: never set by the store.
    pub page: bool,
}

impl StoreStats {
    /// Returns the share of the active feeds that were read and of which no entry can be missing; 1 without any feed.
    pub fn complete_ratio(&self) -> f64 {
        let active = self.feeds.iter().filter(|(_, status, _)| *status == Status::Active);
        match active.map(|(.., feeds)| *feeds).sum::<u64>() {
            0 => 1.0,
            active => 1.0 - self.incomplete.min(active) as f64 / active as f64,
        }
    }
}

impl JobRow {
    /// The earlier of `next_due` and a wake.
    pub fn due(&self) -> Timestamp {
        self.wake_at.map_or(self.next_due, |wake| wake.min(self.next_due))
    }
}

/// A report with the decision on it, ready to be stored.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What the worker said. Never a Deferred.
    pub report: FetchReport,
    /// What follows.
    pub decision: Decision,
    /// The category that the feed has now.
    pub category: Category,
    /// [`audience_at`](common::feed::Feed::audience_at) of the state that this was decided on.
    pub audience_at: Timestamp,
    /// What its new entries say of the feed's push subscription, if it has one.
    pub push: Option<PushClaim>,
    /// How far its older entries are read afterwards; `None`: they are not.
    pub archive: Option<ArchiveRead>,
    /// What the feed's row said when this was decided; `None`: the store reads it once more.
    pub seen: Option<Box<Seen>>,
}

/// What decides how a [`Verdict`] is stored, of the row that it was decided on: so that the row need not be read a second time.
#[derive(Clone, Debug)]
pub struct Seen {
    category: Category,
    status: Status,
    host: HostKey,
    wake_at: Option<Timestamp>,
    validators: Validators,
}

impl Seen {
    /// Returns what was seen of a feed.
    pub fn of(feed: &Feed) -> Self {
        Seen {
            category: feed.category,
            status: feed.status,
            host: feed.host.clone(),
            wake_at: feed.wake_at,
            validators: feed.validators.clone(),
        }
    }
}

/// The outcome of a [`Verdict`].
#[derive(Clone, Debug, PartialEq)]
pub enum Applied {
    /// Another version: nothing changed.
    Stale,
    /// A person changed the audience since the decision: nothing changed, and it is to be decided again.
    Outdated,
    /// Stored.
    Stored {
        /// Where the schedule should hold the feed: the earlier of `next_due` and a wake that is still unanswered;
        /// `None`: not polled any more.
        due: Option<Timestamp>,
        /// A wake is still unanswered.
        wake: bool,
        /// Entries that were not stored before.
        new_entries: u32,
        /// Entries that were stored with other content.
        updated_entries: u32,
        /// The host's hold after this report, if the report requests one.
        host_hold: Option<Timestamp>,
        /// What was left out because of quotas.
        over_quota: OverQuota,
    },
}

/// A feed's place in the schedule as the store has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// Which feed.
    pub id: FeedId,
    /// What its requests are charged to.
    pub host: HostKey,
    /// For its band.
    pub category: Category,
    /// The earlier of `next_due` and `wake_at`.
    pub due: Timestamp,
    /// A wake waits.
    pub wake: bool,
}

/// A change that a person makes to a feed. `None` leaves as it is.
#[derive(Clone, Debug, Default)]
pub struct FeedChange {
    /// Its readers, and the category that follows.
    pub audience: Option<(Audience, Category)>,
    /// Subscribers who want it at midnight.
    pub calm: Option<Vec<CalmGroup>>,
    /// Unknown to pings and the publisher's page.
    pub private: Option<bool>,
    /// Its labels.
    pub labels: Option<LabelChange>,
    /// The caller's own id, or none.
    pub external_id: Option<Option<String>>,
    /// Pause, resume, remove; raises the version when it changes something.
    pub status: Option<Status>,
    /// Another login, or none; raises the version and drops the validators, which belong to the old login.
    pub credentials: Option<Option<Credentials>>,
    /// A new due time, with the terms that made it.
    pub next_due: Option<(Timestamp, Terms)>,
    /// What the change was made from: where the feed has another version or audience by now, nothing changes
    /// ([`StoreError::Outdated`]).
    pub expects: Option<(Version, Audience)>,
}

/// A change of a feed's labels: where it has others than `before` by now, nothing changes ([`StoreError::Outdated`], if
/// [`FeedChange::expects`] is set).
#[derive(Clone, Debug, PartialEq)]
pub struct LabelChange {
    /// The labels from which the new ones were made.
    pub before: Vec<String>,
    /// The new labels, sorted, each once.
    pub after: Vec<String>,
}

/// Where a feed turns out to be.
#[derive(Clone, Debug)]
pub struct Move {
    /// Its new URL.
    pub url: FeedUrl,
    /// What requests to it are charged to.
    pub host: HostKey,
    /// The category that the feed has there.
    pub category: Category,
    /// What else the page announces that the feed is taken from.
    pub others: Vec<FeedUrl>,
    /// It is the same document under another URL: all that is known of it stays, and it is due as before. Otherwise it starts
    /// from scratch.
    pub same: bool,
}

/// How a move is taken back.
#[derive(Clone, Debug)]
pub struct Unmove {
    /// What requests to the old URL are charged to.
    pub host: HostKey,
    /// The category that the feed has there.
    pub category: Category,
    /// What is to be remembered of the feed.
    pub state: PollState,
}

/// The outcome of an [`Unmove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmoved {
    /// Another version, or it never moved: nothing changed.
    Stale,
    /// Another feed has the old URL: nothing changed.
    Taken(FeedId),
    /// It has its old URL again and is due as before.
    Back,
    /// It is no longer merged into that one, which returns its readers; it is due at once.
    Apart(FeedId),
}

/// The maximum number of other feeds of a page that are kept, and the maximum length of their URLs.
const OTHERS: usize = 5;
const LONGEST_OTHER: usize = 500;

impl Move {
    /// Returns the page's other feeds as they are stored; none are NULL.
    fn packed_others(&self) -> Option<String> {
        let urls = self.others.iter().map(FeedUrl::as_str).filter(|url| url.len() <= LONGEST_OTHER);
        let others: Vec<&str> = urls.take(OTHERS).collect();
        if others.is_empty() { None } else { serde_json::to_string(&others).ok() }
    }

    /// Credentials are sealed for an origin: a feed that has some (their name is not empty) does not leave it.
    fn is_allowed(&self, from: &str, credentials: &[u8]) -> bool {
        credentials.is_empty() || from.parse().is_ok_and(|from| self.url.has_origin_of(&from))
    }
}

/// The outcome of a [`Move`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Another version, not live, or not to be moved there: nothing changed.
    Stale,
    /// The feed has the new URL; it is due at once if it starts from scratch.
    Here,
    /// Another feed has that URL: this one is merged into it, and its readers are added there.
    Into(FeedId),
}

/// A feed whose credentials are sealed with another key than the one in force.
#[derive(Clone, Debug, PartialEq)]
pub struct OldSeal {
    /// Which feed.
    pub id: FeedId,
    /// Where they are sent.
    pub url: FeedUrl,
    /// The credentials.
    pub sealed: Sealed,
}

/// Which feed is meant.
#[derive(Clone, Debug)]
pub enum FeedRef {
    /// By number.
    Id(FeedId),
    /// By URL, of those without credentials.
    Url(FeedUrl),
}

common::named! {
    /// How a list of feeds is ordered.
    #[derive(Default)]
    FeedSort {
        /// By number.
        #[default]
        Id = "id",
        /// Most subscribers first.
        Subscribers = "subscribers",
        /// Next due first, by the earlier of due time and wake; behind them those that are never due, by status.
        NextDue = "next_due",
        /// By category, and by number within one.
        Category = "category",
        /// Those that were polled the longest time ago first. Among more than [`FeedQuery::MOST_SORTED`] feeds: by the day of the
        /// last poll, and by number within a day.
        LastPolled = "last_polled",
    }
}

/// Which feeds to list. A call looks at a bounded number of feeds: a page may have fewer than `limit`, or none, and yet a next
/// one.
#[derive(Clone, Debug, Default)]
pub struct FeedQuery {
    /// Part of the title or the URL, case-insensitive.
    pub text: Option<String>,
    /// On this host.
    pub host: Option<HostKey>,
    /// In this category.
    pub category: Option<Category>,
    /// With this status.
    pub status: Option<Status>,
    /// Failing in this way at the last poll.
    pub failure: Option<FailureKind>,
    /// Failing in any way at the last poll.
    pub failing: bool,
    /// With this label.
    pub label: Option<String>,
    /// With this id of the caller's own.
    pub external_id: Option<String>,
    /// With one of these labels: all that the caller may see. Empty: all feeds.
    pub visible: Vec<String>,
    /// In this order.
    pub sort: FeedSort,
    /// In the opposite of that order.
    pub reversed: bool,
    /// After this cursor of an earlier page.
    pub after: Option<String>,
    /// The maximum number to return.
    pub limit: u32,
}

impl FeedQuery {
    /// Returns whether every feed is in the list.
    pub(crate) fn has_no_filter(&self) -> bool {
        let texts = [&self.text, &self.label, &self.external_id].into_iter().all(Option::is_none);
        let classes = self.category.is_none() && self.status.is_none() && self.failure.is_none() && !self.failing;
        texts && classes && self.host.is_none() && self.visible.is_empty()
    }

    /// Feeds that are put in order at once, at most.
    pub const MOST_SORTED: u32 = 2_000;
}

/// A part of a list.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<String>,
}

/// An entry in the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredEntry {
    /// The number of the event that announced its newest form.
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EntryFeed {
    /// Where it is polled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feed_url: Option<String>,
    /// Its title.
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
    /// There may be further items behind it now: the page ended at its limit, at [`PAGE_BYTES`], or where as many were looked at as a
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

/// One poll in a feed's history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// When the fetch started.
    pub at: Timestamp,
    /// How it ended.
    pub outcome: OutcomeKind,
    /// The kind of failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureKind>,
    /// The HTTP status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Bytes on the wire.
    pub bytes: u64,
    /// How long it took, in seconds.
    pub duration: f64,
    /// What was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_due: Option<Timestamp>,
    /// The rules that made it.
    pub reasons: Vec<common::policy::Rule>,
}

/// Numbers about the whole store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreStats {
    /// Feeds by category and status.
    pub feeds: Vec<(Category, Status, u64)>,
    /// Feeds in the penalty box, by failure.
    pub penalised: Vec<(FailureKind, u64)>,
    /// Entries stored.
    pub entries: u64,
    /// Events stored.
    pub events: u64,
    /// Hosts held now.
    pub hosts_held: u64,
    /// Active feeds that were not read yet, or of which entries may be missing.
    pub incomplete: u64,
    /// Active feeds that are silent.
    pub silent: u64,
    /// Why the database server's timeline cannot be read, so that the promotion of a standby that lagged would go unnoticed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline_unreadable: Option<String>,
}
