//! The store: feeds, entries, events and holds. It is the truth; schedule and gate are rebuilt from it.
//!
//! The trait speaks operations, not queries. It decides nothing about polling: it stores what `decide` said.
//!
//! Each implementation guarantees:
//! - [`Store::apply`] is one transaction: entries first, feed rows after them, events last, numbered under one lock so that
//!   commit order is `seq` order;
//! - a report of another version changes nothing;
//! - entries are unique per feed and identity;
//! - audience, url and status belong to people, poll state and validators to `apply`: neither overwrites the other's.

#[cfg(test)]
mod conformance;
mod counts;
pub mod cursor;
mod error;
mod history;
mod hosts;
mod listing;
pub mod postgres;
pub mod requeues;
mod row;
pub mod sqlite;
#[cfg(any(test, feature = "conformance"))]
pub mod testing;
mod texts;
mod verdicts;

#[cfg(any(test, feature = "conformance"))]
pub use verdicts::{row_after, wake_after};

use async_trait::async_trait;
use common::calm::CalmGroup;
use common::document::{ContentHash, Validators};
use common::entry::Entry;
use common::feed::Feed;
use common::host::{HostKey, HostRule};
use common::known::KnownEntries;
use common::outcome::{FailureKind, OutcomeKind};
use common::policy::{Audience, Category, Decision, PollState, Status, Terms};
use common::report::FetchReport;
use common::secrets::{Credentials, Sealed};
use common::time::Timestamp;
use common::url::{FeedId, FeedUrl, Version};
use serde::{Deserialize, Serialize};

pub use error::StoreError;
pub use hosts::{HostOrders, HostQuery, HostRow};
pub use requeues::{NewRequeue, Requeue, RequeueFilter, RequeuePlan, RequeueState, RequeueStep};

/// A feed to be added.
#[derive(Clone, Debug)]
pub struct NewFeed {
    /// Where it is polled.
    pub url: FeedUrl,
    /// What it is fetched with: part of its identity.
    pub credentials: Option<Credentials>,
    /// What its requests are charged to.
    pub host: HostKey,
    /// Who reads it.
    pub audience: Audience,
    /// Who wants it at midnight.
    pub calm: Vec<CalmGroup>,
    /// The category that follows from the audience.
    pub category: Category,
    /// Unknown to pings and the publisher's page.
    pub private: bool,
    /// When to poll it first.
    pub first_due: Timestamp,
}

/// What became of a [`NewFeed`].
#[derive(Clone, Debug, PartialEq)]
pub struct Added {
    /// Its number.
    pub id: FeedId,
    /// It is in the store since this call; otherwise it was known.
    pub new: bool,
    /// It was known but not polled any more (gone, blacklisted, quarantined, removed), and gets one try.
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
    /// Subscribers in all: for the `User-Agent` and for the order of waiting.
    pub subscribers: u32,
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
}

/// What became of a [`Verdict`].
#[derive(Clone, Debug, PartialEq)]
pub enum Applied {
    /// Another version: nothing changed.
    Stale,
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
        /// The host's hold after this report, if the report asked for one.
        host_hold: Option<Timestamp>,
    },
}

/// A feed's place in the schedule by the store's word.
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
    /// Who reads it, and the category that follows.
    pub audience: Option<(Audience, Category)>,
    /// Who wants it at midnight.
    pub calm: Option<Vec<CalmGroup>>,
    /// Unknown to pings and the publisher's page.
    pub private: Option<bool>,
    /// Pause, resume, remove; raises the version when it changes something.
    pub status: Option<Status>,
    /// Another login, or none; raises the version and drops the validators, which belong to the login that gave them.
    pub credentials: Option<Option<Credentials>>,
    /// A new due time, with the terms that made it.
    pub next_due: Option<(Timestamp, Terms)>,
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
    /// It is the same document under another URL: all that is known of it stays, and it is due as before. Otherwise it starts
    /// anew.
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

/// What became of an [`Unmove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmoved {
    /// Another version, or it never moved: nothing changed.
    Stale,
    /// Another feed has the old URL: nothing changed.
    Taken(FeedId),
    /// It has its old URL again and is due as before.
    Back,
    /// It is no longer merged into that one, which gives its readers back; it is due at once.
    Apart(FeedId),
}

impl Move {
    /// Credentials are sealed for an origin: a feed that has some (their name is not empty) does not leave it.
    fn is_allowed(&self, from: &str, credentials: &[u8]) -> bool {
        credentials.is_empty() || from.parse().is_ok_and(|from| self.url.has_origin_of(&from))
    }
}

/// What became of a [`Move`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Another version, not live, or not to be moved there: nothing changed.
    Stale,
    /// The feed has the new URL; it is due at once if it starts anew.
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

/// How a list of feeds is ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedSort {
    /// By number.
    #[default]
    Id,
    /// Most subscribers first.
    Subscribers,
    /// Next due first, by the earlier of due time and wake; behind them those that are never due, by status.
    NextDue,
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
    /// In this order.
    pub sort: FeedSort,
    /// After this cursor of an earlier page.
    pub after: Option<String>,
    /// At most so many.
    pub limit: u32,
}

impl FeedQuery {
    /// Feeds that are put in order at once, at most.
    pub const MOST_SORTED: u32 = listing::MOST;
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
    /// The entry.
    #[serde(flatten)]
    pub entry: Entry,
}

/// What consumers are told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its place in the order of all events.
    pub seq: i64,
    /// What happened, such as `entry.new`, `feed.gone`.
    pub kind: String,
    /// To which feed.
    pub feed_id: FeedId,
    /// When it was stored.
    pub at: Timestamp,
    /// The feed's URL now; `None`: it was erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed_url: Option<String>,
    /// The feed that it turned out to be, when it is merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_into: Option<FeedId>,
    /// The entry, for `entry.*`, in its newest form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<StoredEntry>,
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
}

/// A process's wish to be the one that passes events on to the exchange.
#[derive(Clone, Copy, Debug)]
pub struct RelayTurn<'a> {
    /// Which process: a name that no other one has.
    pub holder: &'a str,
    /// The exchange has all events up to here; zero when the process knows of none.
    pub confirmed: i64,
    /// When the turn ends, unless it is prolonged before.
    pub until: Timestamp,
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
}

/// See the module's page for what an implementation guarantees.
#[async_trait]
pub trait Store: Send + Sync {
    /// Adds feeds, or finds them known; one answer each, in order.
    async fn add_feeds(&self, feeds: &[NewFeed], now: Timestamp) -> Result<Vec<Added>, StoreError>;

    /// One feed, or `None`.
    async fn feed(&self, which: &FeedRef) -> Result<Option<Feed>, StoreError>;

    /// A page of feeds. [`StoreError::NotSorted`]: of more than [`FeedQuery::MOST_SORTED`] the schedule has the order by due time.
    async fn feeds(&self, query: &FeedQuery) -> Result<Page<Feed>, StoreError>;

    /// Of these feeds, at most [`FeedQuery::MOST_SORTED`], all that a query's filters let through, in any order.
    async fn feeds_among(&self, query: &FeedQuery, ids: &[FeedId]) -> Result<Vec<Feed>, StoreError>;

    /// Changes a feed; gives it as it is afterwards, or `None` when there is no such feed. [`StoreError::Taken`]: another feed
    /// has its URL with the credentials that it was to have.
    async fn change_feed(&self, id: FeedId, change: &FeedChange, now: Timestamp) -> Result<Option<Feed>, StoreError>;

    /// Changes many feeds, each once, in one transaction; gives those that exist as they are afterwards, in any order.
    async fn change_feeds(&self, changes: &[(FeedId, FeedChange)], now: Timestamp) -> Result<Vec<Feed>, StoreError>;

    /// Erases a feed with its entries and history. False when there is none.
    async fn erase_feed(&self, id: FeedId) -> Result<bool, StoreError>;

    /// Drops a feed's validators and content hash, so that the next poll reads it whole. False when there is none.
    async fn forget_validators(&self, id: FeedId) -> Result<bool, StoreError>;

    /// Gives a live feed of this version another URL; it keeps its number, its audience and its history, and more if it is the
    /// [same](Move::same). Whoever reads events is told (`feed.moved`). A feed with credentials moves inside of its origin only.
    async fn move_feed(&self, id: FeedId, version: Version, to: &Move, now: Timestamp) -> Result<Moved, StoreError>;

    /// Takes a feed of this version back to where it was before it moved or was merged. Whoever reads events is told
    /// (`feed.moved`).
    async fn unmove_feed(
        &self,
        id: FeedId,
        version: Version,
        back: &Unmove,
        now: Timestamp,
    ) -> Result<Unmoved, StoreError>;

    /// The rows of the feeds among `ids` that are live (active), in any order.
    async fn jobs_for(&self, ids: &[FeedId]) -> Result<Vec<JobRow>, StoreError>;

    /// Feeds as [`common::policy::decide`] needs them, in any order; those that do not exist are left out.
    async fn states_for(&self, ids: &[FeedId]) -> Result<Vec<Feed>, StoreError>;

    /// Stores verdicts in one transaction; one answer each, in order. Of two on the same feed the second is stale. A wake
    /// that the job knew of as past ([`FetchReport::answers_wake`]), or that is older than the fetch's start by more than
    /// `clock_skew`, is answered by it and cleared. When the database refuses a row ([`StoreError::refuses_data`]) nothing
    /// of the batch is stored.
    async fn apply(
        &self,
        verdicts: &[Verdict],
        clock_skew: std::time::Duration,
        now: Timestamp,
    ) -> Result<Vec<Applied>, StoreError>;

    /// Wants these feeds polled at `at`: a past wake that is still unanswered moves up to `now`, a future one is never
    /// postponed, and none comes before the end of the feed's own hold. Gives the live ones with their places.
    async fn wake(&self, ids: &[FeedId], at: Timestamp, now: Timestamp) -> Result<Vec<Placement>, StoreError>;

    /// What a requeue of these feeds would do.
    async fn plan_requeue(&self, filter: &RequeueFilter, lift_penalties: bool) -> Result<RequeuePlan, StoreError>;

    /// Begins a requeue of the feeds that there are now. `None`, and nothing begun, when 20 run
    /// already.
    async fn begin_requeue(&self, new: &NewRequeue, now: Timestamp) -> Result<Option<Requeue>, StoreError>;

    /// Requeues, the newest first: those that run, or these and the last hundred that ended.
    async fn requeues(&self, running: bool) -> Result<Vec<Requeue>, StoreError>;

    /// Calls a requeue off; false when it does not run.
    async fn cancel_requeue(&self, id: i64, now: Timestamp) -> Result<bool, StoreError>;

    /// Wakes the next feeds of a requeue, as [`Store::wake`] does, and no more than its rate allows by `now`; feeds that are
    /// not polled get one try where penalties are lifted. In one transaction with the requeue's progress; nothing when
    /// another process takes a step meanwhile, or the requeue does not run.
    async fn step_requeue(&self, id: i64, now: Timestamp) -> Result<RequeueStep, StoreError>;

    /// Live feeds by number, after `after`, at most `limit`: for rebuilding and checking the schedule.
    async fn placements(&self, after: FeedId, limit: u32) -> Result<Vec<Placement>, StoreError>;

    /// Hosts that are held, and until when.
    async fn holds(&self, now: Timestamp) -> Result<Vec<(HostKey, Timestamp)>, StoreError>;

    /// What operators say about hosts; `None` when that is still what it was at the change number `known`.
    async fn host_orders(&self, known: Option<i64>) -> Result<Option<HostOrders>, StoreError>;

    /// Sets an operator's rule, in place of an earlier one of the same domain. False, and nothing changed, when there are
    /// [`HostOrders::MOST_RULES`] already.
    async fn set_host_rule(&self, rule: &HostRule, now: Timestamp) -> Result<bool, StoreError>;

    /// Takes an operator's rule back; false when there is none of this domain.
    async fn remove_host_rule(&self, domain: &str) -> Result<bool, StoreError>;

    /// Blocks hosts until then, or lifts their blocks. Holds that servers asked for are no business of it.
    async fn block_hosts(&self, hosts: &[HostKey], until: Option<Timestamp>) -> Result<(), StoreError>;

    /// A page of hosts by name: those that have feeds, a hold, a block or an operator's rule.
    async fn hosts(&self, query: &HostQuery, now: Timestamp) -> Result<Page<HostRow>, StoreError>;

    /// Entries with a larger `seq` than `after`, of one feed or of all, at most `limit`.
    async fn entries(&self, feed: Option<FeedId>, after: i64, limit: u32)
    -> Result<EventPage<StoredEntry>, StoreError>;

    /// The newest entries of one feed or of all, the newest first, at most `limit`.
    async fn newest_entries(&self, feed: Option<FeedId>, limit: u32) -> Result<Vec<StoredEntry>, StoreError>;

    /// The largest `seq` of an entry whose newest form was stored before `at`; zero when there is none.
    async fn last_entry_before(&self, at: Timestamp) -> Result<i64, StoreError>;

    /// Events with a larger `seq` than `after`, at most `limit`.
    async fn events(&self, after: i64, limit: u32) -> Result<EventPage<Event>, StoreError>;

    /// The newest `seq` given out, zero before the first: where somebody who wants only what is new begins.
    async fn latest_seq(&self) -> Result<i64, StoreError>;

    /// Takes or keeps the turn to pass events on; gives the number of the last event that was. `None`: another process has it.
    async fn relay_turn(&self, turn: &RelayTurn<'_>, now: Timestamp) -> Result<Option<i64>, StoreError>;

    /// The last polls of a feed, newest first; `None` when there is no such feed.
    async fn history(&self, id: FeedId) -> Result<Option<Vec<HistoryEntry>>, StoreError>;

    /// Numbers about everything, from counters.
    async fn stats(&self, now: Timestamp) -> Result<StoreStats, StoreError>;

    /// Live feeds that are due by `at`. Reads every feed.
    async fn overdue(&self, at: Timestamp) -> Result<u64, StoreError>;

    /// Adds up what was counted apart, so that the next look at the counters is quick; a bounded number a call. For now and
    /// then: the counts are right without it.
    async fn fold_counts(&self) -> Result<(), StoreError>;

    /// Live feeds of category A whose next poll comes later after the last one than `longest`: their SLA cannot be kept.
    async fn sla_unmet(&self, longest: std::time::Duration) -> Result<u64, StoreError>;

    /// The store can be reached, and its clock agrees with `now`: readiness depends on it.
    async fn check(&self, now: Timestamp) -> Result<(), StoreError>;

    /// Ends everything in order; nothing works after it. Without it nothing is lost either.
    async fn close(&self);

    /// Is all polling paused by a person?
    async fn paused(&self) -> Result<bool, StoreError>;

    /// Pauses or resumes all polling.
    async fn set_paused(&self, paused: bool) -> Result<(), StoreError>;

    /// Gives the store a new epoch, after it was restored from a backup: numbers of events will be given out again, and
    /// consumers must not take the new ones for those that they have read. Returns it.
    async fn begin_epoch(&self) -> Result<String, StoreError>;

    /// The price of a poll that the schedulers agreed on; `None`: none yet.
    async fn price(&self) -> Result<Option<f64>, StoreError>;

    /// Sets the price if it still is `before`; false when somebody was faster.
    async fn adjust_price(&self, before: Option<f64>, price: f64) -> Result<bool, StoreError>;

    /// Feeds after `after` whose credentials do not begin with `current`, by number, at most `limit`.
    async fn old_seals(&self, current: &[u8], after: FeedId, limit: u32) -> Result<Vec<OldSeal>, StoreError>;

    /// Replaces the credentials of a feed by the same ones, sealed anew; false when they were changed meanwhile.
    async fn reseal(&self, old: &OldSeal, credentials: &Credentials) -> Result<bool, StoreError>;

    /// Deletes events older than `events`, and entries whose newest form is older than `entries` (`None`: keeps them),
    /// oldest first and a bounded number a call; gives how many rows went. Identities of deleted entries are kept, so that
    /// they never come back as new.
    async fn prune(&self, events: Timestamp, entries: Option<Timestamp>) -> Result<u64, StoreError>;
}
