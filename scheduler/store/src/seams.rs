//! The seams of the store. The crate's page says what an implementation guarantees.

mod deliveries;
mod pushes;

use std::time::Duration;

use async_trait::async_trait;
use common::archive::ArchiveRead;
use common::feed::Feed;
use common::host::{HostKey, HostRule};
use common::job_keys::JobKey;
use common::secrets::Credentials;
use common::time::Timestamp;
use common::url::{FeedId, Version};

use crate::{
    AcceptedPolicy, Added, Applied, AuditLine, AuditQuery, Audited, EntryRef, Event, EventFilter, EventPage,
    EventQuery, FeedChange, FeedQuery, FeedRef, HistoryEntry, HostOrders, HostQuery, HostRefusal, HostRow,
    Interruption, JobRow, Move, Moved, NewFeed, NewPolicy, NewRequeue, OldSeal, Page, Placement, RefusedHost,
    RelayTurn, Requeue, RequeueFilter, RequeuePlan, RequeueStep, StoreError, StoreStats, StoredEntry, StoredJobKeys,
    Unmove, Unmoved, Verdict,
};

pub use self::deliveries::{Deliveries, HubSubscriptions, Subscriptions};
pub use self::pushes::{PushLosses, PushUpkeep, Pushes};

/// Declares the store as the sum of its seams.
macro_rules! store {
    ($($seam:ident)+) => {
        /// Everything at once, for the code that wires a fleet together.
        pub trait Store: $($seam +)+ {}

        impl<Every: $($seam +)+> Store for Every {}
    };
}

store! {
    Polls Feeds VersionedChanges Wakes Hosts Events Subscriptions HubSubscriptions Deliveries Pushes PushLosses PushUpkeep
    Requeues Audits Upkeep Seals
}

/// What the loops of a poll read and write: jobs, states, verdicts, holds.
#[async_trait]
pub trait Polls: Send + Sync {
    /// The rows of the feeds among `ids` that are live (active), in any order.
    async fn jobs_for(&self, ids: &[FeedId]) -> Result<Vec<JobRow>, StoreError>;

    /// Those among `ids` that are live, readable or not: what of them [`Polls::jobs_for`] leaves out has an unreadable row.
    async fn live_among(&self, ids: &[FeedId]) -> Result<Vec<FeedId>, StoreError>;

    /// Keeps where and when the next jobs of these feeds continue, until their versions rise. Feeds of other versions are not
    /// changed.
    async fn interrupt(&self, interruptions: &[Interruption]) -> Result<(), StoreError>;

    /// Keeps holds that servers requested of feeds in reports that change nothing else. A longer one that is there stays.
    async fn keep_holds(&self, holds: &[(HostKey, Timestamp, FeedId)]) -> Result<(), StoreError>;

    /// Feeds as [`common::policy::decide`] needs them, in any order; those that do not exist are left out.
    async fn states_for(&self, ids: &[FeedId]) -> Result<Vec<Feed>, StoreError>;

    /// Stores verdicts in one transaction; one answer each, in order. Of two on the same feed the second is stale. A wake
    /// that the job knew of as past ([`answers_wake`](common::report::FetchReport::answers_wake)), or that is older than the fetch's start by more than
    /// `clock_skew`, is answered by it and cleared. When the database refuses a row ([`StoreError::refuses_data`]) nothing
    /// of the batch is stored.
    async fn apply(
        &self,
        verdicts: &[Verdict],
        clock_skew: Duration,
        now: Timestamp,
    ) -> Result<Vec<Applied>, StoreError>;

    /// Live feeds by number, after `after`, at most `limit`: for rebuilding and checking the schedule.
    async fn placements(&self, after: FeedId, limit: u32) -> Result<Vec<Placement>, StoreError>;

    /// Hosts that are held, and until when.
    async fn holds(&self, now: Timestamp) -> Result<Vec<(HostKey, Timestamp)>, StoreError>;

    /// Live feeds that are due by `at`. Reads every feed.
    async fn overdue(&self, at: Timestamp) -> Result<u64, StoreError>;

    /// Live feeds of category A whose next poll comes later after the last one than `longest`: their SLA cannot be kept. Those whose
    /// pushes were reliable at the last poll are left out.
    async fn sla_unmet(&self, longest: Duration) -> Result<u64, StoreError>;
}

/// What people and moves do to feeds, and lists of them.
#[async_trait]
pub trait Feeds: Send + Sync {
    /// Adds feeds, or finds them known; one answer each, in order.
    async fn add_feeds(&self, feeds: &[NewFeed], now: Timestamp) -> Result<Vec<Added>, StoreError>;

    /// One feed, or `None`.
    async fn feed(&self, which: &FeedRef) -> Result<Option<Feed>, StoreError>;

    /// A page of feeds. [`StoreError::NotSorted`]: of more than [`FeedQuery::MOST_SORTED`] the schedule has the order by due time.
    async fn feeds(&self, query: &FeedQuery) -> Result<Page<Feed>, StoreError>;

    /// Of these feeds, at most [`FeedQuery::MOST_SORTED`], all that a query's filters let through, in any order.
    async fn feeds_among(&self, query: &FeedQuery, ids: &[FeedId]) -> Result<Vec<Feed>, StoreError>;

    /// Changes a feed; returns it with the change, or `None` when there is no such feed. [`StoreError::Taken`]: another
    /// feed has its URL with the credentials that it was to have.
    async fn change_feed(&self, id: FeedId, change: &FeedChange, now: Timestamp) -> Result<Option<Feed>, StoreError>;

    /// Changes many feeds, each once, in one transaction; returns those that exist with their changes, in any order.
    async fn change_feeds(&self, changes: &[(FeedId, FeedChange)], now: Timestamp) -> Result<Vec<Feed>, StoreError>;

    /// Erases a feed with its entries and history, and removes the feeds that were merged into it. False when there is none.
    async fn erase_feed(&self, id: FeedId, now: Timestamp) -> Result<bool, StoreError>;

    /// Erases pages that were added before a known feed took them in, up to `before`; a bounded number a call. Keeps
    /// those to which a caller gave something: readers, labels, their own number, an interval or importance. Returns
    /// how many it looked at.
    async fn erase_pages(&self, before: Timestamp, now: Timestamp) -> Result<u64, StoreError>;

    /// Drops a feed's validators and content hash, so that the next poll reads it whole. False when there is none.
    async fn forget_validators(&self, id: FeedId) -> Result<bool, StoreError>;

    /// The last polls of a feed, newest first; `None` when there is no such feed.
    async fn history(&self, id: FeedId) -> Result<Option<Vec<HistoryEntry>>, StoreError>;
}

/// Changes of a feed that are made only while it has the version that the caller knows.
#[async_trait]
pub trait VersionedChanges: Send + Sync {
    /// Has the older entries of a feed of this version read, from now on; raises the version. `None`: it has another one, or is not
    /// polled.
    async fn begin_archive(
        &self,
        id: FeedId,
        version: Version,
        archive: &ArchiveRead,
        now: Timestamp,
    ) -> Result<Option<Placement>, StoreError>;

    /// Gives a live feed of this version another URL; it keeps its number, its audience and its history, and more if it is the
    /// [same](Move::same). Consumers get the event `feed.moved`. A feed with credentials moves inside of its origin only.
    async fn move_feed(&self, id: FeedId, version: Version, to: &Move, now: Timestamp) -> Result<Moved, StoreError>;

    /// Takes a feed of this version back to where it was before it moved or was merged. Consumers of events are
    /// notified (`feed.moved`).
    async fn unmove_feed(
        &self,
        id: FeedId,
        version: Version,
        back: &Unmove,
        now: Timestamp,
    ) -> Result<Unmoved, StoreError>;
}

/// Feeds that are polled before they are due, and those that a ping wakes.
#[async_trait]
pub trait Wakes: Send + Sync {
    /// Requests a poll of these feeds at `at`: a past wake that is still unanswered moves up to `now`, a future one is
    /// never postponed, and none comes before the end of the feed's own hold. Returns the live ones with their places.
    async fn wake(&self, ids: &[FeedId], at: Timestamp, now: Timestamp) -> Result<Vec<Placement>, StoreError>;

    /// The same for feeds that were pinged: blacklisted and gone ones are polled once too, and keep their status until that
    /// poll's report.
    async fn wake_pinged(&self, ids: &[FeedId], at: Timestamp, now: Timestamp) -> Result<Vec<Placement>, StoreError>;

    /// At most `limit` feeds that name one of these addresses as their site, and that pings reach: public ones that are polled, or
    /// that a ping has polled once. In the order of their numbers.
    async fn feeds_of_site(&self, links: &[String], limit: u32) -> Result<Vec<Feed>, StoreError>;
}

/// What operators say about hosts, and lists of hosts.
#[async_trait]
pub trait Hosts: Send + Sync {
    /// What operators say about hosts; `None` when that is still what it was at the change number `known`.
    async fn host_orders(&self, known: Option<i64>) -> Result<Option<HostOrders>, StoreError>;

    /// Sets an operator's rule, in place of an earlier one of the same domain. False, and nothing changed, when there are
    /// [`HostOrders::MOST_RULES`] already.
    async fn set_host_rule(&self, rule: &HostRule, now: Timestamp) -> Result<bool, StoreError>;

    /// Takes an operator's rule back; false when there is none of this domain.
    async fn remove_host_rule(&self, domain: &str) -> Result<bool, StoreError>;

    /// Blocks hosts until then, or lifts their blocks. Does not affect holds that servers requested.
    async fn block_hosts(&self, hosts: &[HostKey], until: Option<Timestamp>) -> Result<(), StoreError>;

    /// Offers policy and host rules of a configuration to the fleet. Returns what is in force after it: the offered one as a
    /// new version if the fleet never accepted it before, or if a person [decided](NewPolicy::decided) so; otherwise the one
    /// that was in force.
    async fn accept_policy(&self, offered: &NewPolicy<'_>, now: Timestamp) -> Result<AcceptedPolicy, StoreError>;

    /// Stores that a host refuses us. The first time it is published (`host.refusing`); each time the host rests longer, unless
    /// it rests already. Returns what is stored then; `None` if it [refuses us no more](RefusedHost::is_known).
    async fn refuse_host(&self, refused: &RefusedHost<'_>, now: Timestamp) -> Result<Option<HostRefusal>, StoreError>;

    /// Stores that a host which refused us answered for this feed, and publishes it (`host.recovered`). False if it refused
    /// nothing.
    async fn host_answers(&self, host: &HostKey, feed: FeedId, now: Timestamp) -> Result<bool, StoreError>;

    /// A page of hosts by name: those that have feeds, a hold, a block or an operator's rule.
    async fn hosts(&self, query: &HostQuery, now: Timestamp) -> Result<Page<HostRow>, StoreError>;

    /// Returns what is known of these hosts, in any order.
    async fn hosts_among(&self, hosts: &[HostKey], now: Timestamp) -> Result<Vec<HostRow>, StoreError>;

    /// The number of hosts that have feeds, at most one more than [`HostQuery::MOST_COUNTED`]. Hosts that were added in the last minutes
    /// may be missing.
    async fn count_hosts(&self) -> Result<u64, StoreError>;
}

/// What consumers read, and the turn to relay it.
#[async_trait]
pub trait Events: Send + Sync {
    /// Entries that match, in the order of the numbers of their newest forms, at most [`PAGE_BYTES`](crate::PAGE_BYTES)
    /// of text (one entry in any case). Looks at a bounded number of entries: a page may have fewer than requested, or
    /// none, and yet a next one.
    async fn find_entries(&self, query: &EventQuery) -> Result<EventPage<StoredEntry>, StoreError>;

    /// The same of events.
    async fn find_events(&self, query: &EventQuery) -> Result<EventPage<Event>, StoreError>;

    /// One entry in its newest form, or `None`: it is unknown, or retention took it.
    async fn entry(&self, which: &EntryRef) -> Result<Option<StoredEntry>, StoreError>;

    /// Entries with a larger `seq` than `after`, of one feed or of all, as [`Events::find_entries`] finds them.
    async fn entries(
        &self,
        feed: Option<FeedId>,
        after: i64,
        limit: u32,
    ) -> Result<EventPage<StoredEntry>, StoreError> {
        let filter = EventFilter { feed, ..EventFilter::default() };
        self.find_entries(&EventQuery { filter, ..EventQuery::after(after, limit) }).await
    }

    /// The newest entries of one feed or of all, the newest first, at most `limit`.
    async fn newest_entries(&self, feed: Option<FeedId>, limit: u32) -> Result<Vec<StoredEntry>, StoreError> {
        let filter = EventFilter { feed, ..EventFilter::default() };
        let page = self.find_entries(&EventQuery { filter, newest: true, limit, ..EventQuery::default() }).await?;
        Ok(page.items)
    }

    /// The largest `seq` of an entry whose newest form was stored before `at`; zero when there is none.
    async fn last_entry_before(&self, at: Timestamp) -> Result<i64, StoreError>;

    /// Events with a larger `seq` than `after`, as [`Events::find_events`] finds them.
    async fn events(&self, after: i64, limit: u32) -> Result<EventPage<Event>, StoreError> {
        self.find_events(&EventQuery::after(after, limit)).await
    }

    /// Returns the newest `seq` issued, zero before the first: the starting point of a consumer that wants only what is
    /// new.
    async fn latest_seq(&self) -> Result<i64, StoreError>;

    /// Takes or keeps the turn to pass events on; returns the number of the last event that was passed on. `None`:
    /// another process has it.
    async fn relay_turn(&self, turn: &RelayTurn<'_>) -> Result<Option<i64>, StoreError>;
}

/// Requeues: what they would do, their beginning, steps and end.
#[async_trait]
pub trait Requeues: Send + Sync {
    /// What a requeue of these feeds would do.
    async fn plan_requeue(&self, filter: &RequeueFilter, lift_penalties: bool) -> Result<RequeuePlan, StoreError>;

    /// Begins a requeue of the feeds that there are now. `None`, and nothing begun, when 20 run
    /// already.
    async fn begin_requeue(&self, new: &NewRequeue, now: Timestamp) -> Result<Option<Requeue>, StoreError>;

    /// Requeues, the newest first: those that run, or these and the last hundred that ended.
    async fn requeues(&self, running: bool) -> Result<Vec<Requeue>, StoreError>;

    /// Calls a requeue off; false when it does not run.
    async fn cancel_requeue(&self, id: i64, now: Timestamp) -> Result<bool, StoreError>;

    /// Wakes the next feeds of a requeue, as [`Wakes::wake`] does, and no more than its rate allows by `now`; feeds that are
    /// not polled get one try where penalties are lifted. In one transaction with the requeue's progress; nothing when
    /// another process takes a step meanwhile, or the requeue does not run.
    async fn step_requeue(&self, id: i64, now: Timestamp) -> Result<RequeueStep, StoreError>;
}

/// Which changes were requested, and by which caller: see [`crate::audit`].
#[async_trait]
pub trait Audits: Send + Sync {
    /// Adds lines, and stores the outcomes of changes with these numbers (the caller, what they are about, outcome,
    /// status and duration), all in one transaction. Returns the numbers of the lines added.
    async fn write_audit(&self, added: &[Audited], ended: &[(i64, Audited)]) -> Result<Vec<i64>, StoreError>;

    /// Returns lines in the order of a column.
    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditLine>, StoreError>;

    /// Returns the number of lines; [`AuditQuery::MOST_COUNTED`] and one stand for all larger numbers.
    async fn count_audit(&self) -> Result<u64, StoreError>;

    /// Deletes lines that are older, the oldest first and a bounded number a call; returns how many.
    async fn prune_audit(&self, before: Timestamp) -> Result<u64, StoreError>;
}

/// The store as a whole: numbers, the pause, the price, retention, keys, its clock.
#[async_trait]
pub trait Upkeep: Send + Sync {
    /// Numbers about everything, from counters.
    async fn stats(&self, now: Timestamp) -> Result<StoreStats, StoreError>;

    /// Adds up what was counted apart, so that the next look at the counters is quick; a bounded number a call. Called
    /// at intervals: the counts are right without it.
    async fn fold_counts(&self) -> Result<(), StoreError>;

    /// The store can be reached, and its clock agrees with `now`: readiness depends on it.
    async fn check(&self, now: Timestamp) -> Result<(), StoreError>;

    /// Ends everything in order; nothing works after it. Without it nothing is lost either.
    async fn close(&self);

    /// Returns whether a person paused all polling.
    async fn paused(&self) -> Result<bool, StoreError>;

    /// Pauses or resumes all polling.
    async fn set_paused(&self, paused: bool) -> Result<(), StoreError>;

    /// Gives the store a new epoch, after it was restored from a backup: numbers of events will be issued again, and
    /// consumers must not take the new events for those that they have read. Returns it.
    async fn begin_epoch(&self) -> Result<String, StoreError>;

    /// The price of a poll that the schedulers agreed on; `None`: none yet.
    async fn price(&self) -> Result<Option<f64>, StoreError>;

    /// Sets the price if it still is `before`; false when another process was faster.
    async fn adjust_price(&self, before: Option<f64>, price: f64) -> Result<bool, StoreError>;

    /// Deletes events older than `events`, and entries whose newest form is older than `entries` (`None`: keeps them),
    /// oldest first and a bounded number a call; returns how many rows were deleted. Identities of deleted entries are
    /// kept, so that they never come back as new.
    async fn prune(&self, events: Timestamp, entries: Option<Timestamp>) -> Result<u64, StoreError>;
}

/// Keys that schedulers share, and credentials that are sealed with an older one.
#[async_trait]
pub trait Seals: Send + Sync {
    /// The keys with which schedulers sign jobs. Stores those of `known` first that the store has lost, and adds `fresh`, made now, when
    /// there is none, or none made within the last 30 days; deletes what is older than 60. Safe from several processes: all get the
    /// same keys.
    async fn job_keys(&self, known: &[JobKey], fresh: &JobKey) -> Result<StoredJobKeys, StoreError>;

    /// Feeds after `after` whose credentials do not begin with `current`, by number, at most `limit`.
    async fn old_seals(&self, current: &[u8], after: FeedId, limit: u32) -> Result<Vec<OldSeal>, StoreError>;

    /// Replaces the credentials of a feed by the same ones, sealed again; returns false if they were changed in the meantime.
    async fn reseal(&self, old: &OldSeal, credentials: &Credentials) -> Result<bool, StoreError>;
}
