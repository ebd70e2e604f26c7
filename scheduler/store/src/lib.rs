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
mod changes;
mod columns;
#[cfg(test)]
mod conformance;
mod counts;
pub mod cursor;
mod delivery_format;
mod error;
mod event;
mod feed_query;
mod filter;
mod history;
mod hosts;
mod hub;
mod job_keys;
mod lead;
mod listing;
mod marked;
mod moves;
mod news;
mod page_size;
pub mod postgres;
pub mod push;
mod quota;
mod refusals;
pub mod requeues;
mod row;
mod seams;
mod since;
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
use common::feed::{Feed, OverQuota};
use common::host::HostKey;
use common::job::Detour;
use common::known::KnownEntries;
use common::labels::Marks;
use common::outcome::{FailureKind, OutcomeKind};
use common::policy::{Audience, Category, Decision, Status, Terms};
use common::report::FetchReport;
use common::secrets::{Credentials, Sealed};
use common::time::Timestamp;
use common::url::{FeedId, FeedUrl, Version};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use audit::{AuditLine, AuditOutcome, AuditQuery, AuditSort, Audited};
pub use delivery_format::DeliveryFormat;
pub use error::StoreError;
pub use event::{EntryFeed, EntryRef, Event, EventPage, RelayTurn, StoredEntry};
pub use feed_query::{FeedQuery, FeedSort, Page};
pub use filter::{EventFilter, EventQuery, Lowered, Part};
pub use hosts::{AcceptedPolicy, HostOrders, HostQuery, HostRow, NewPolicy};
pub use hub::{ANONYMOUS, Hub, HubFeed, Intent, IntentMode, MOST_AT_HUB, Stray, StrayQuery};
pub use job_keys::StoredJobKeys;
pub use moves::{Move, Moved, Unmove, Unmoved};
pub use page_size::{PAGE_BYTES, fitting};
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

impl NewFeed {
    /// Returns a feed of which nothing else is known.
    pub fn of(host: HostKey, url: FeedUrl, category: Category, first_due: Timestamp) -> Self {
        NewFeed {
            url,
            credentials: None,
            host,
            audience: Audience::default(),
            calm: Vec::new(),
            category,
            private: false,
            marks: Marks::default(),
            title: None,
            first_due,
            by_hand: false,
            hub: false,
        }
    }
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
    polled_day: i64,
    /// It has something that most feeds do not have.
    has_rare: bool,
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
            polled_day: columns::day_of(feed.state.last_polled),
            has_rare: columns::has_rare(feed),
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
    /// How far its archive was read, with a new due time of the feed itself; needs [`FeedChange::expects`].
    pub archive: Option<ArchiveRead>,
    /// What the change was made from: where the feed has another version or audience by now, nothing changes
    /// ([`StoreError::Outdated`]).
    pub expects: Option<(Version, Audience)>,
}

/// A fetch that a later job of its feed continues.
#[derive(Clone, Debug)]
pub struct Interruption {
    /// Whose.
    pub feed: FeedId,
    /// As the job had it.
    pub version: Version,
    /// Where it continues, if not from its beginning.
    pub detour: Option<Detour>,
    /// Until when not even a wake has the feed polled, with the terms of that due time.
    pub wait: Option<(Timestamp, Terms)>,
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

/// One poll in a feed's history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Poll")]
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
    /// Bytes of the body, on the wire.
    pub bytes: u64,
    /// How long it took, in seconds.
    pub duration: f64,
    /// What was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_due: Option<Timestamp>,
    /// The rules that made it, in order.
    #[schemars(with = "Vec<String>")]
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
