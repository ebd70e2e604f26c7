//! The schedule: when each live feed is due, and which feeds wait for a busy host.
//!
//! It is an index over the store's due times and can be deleted at any time. It knows no URLs and makes no decisions.
//!
//! Each implementation guarantees:
//! - a claim sets an entry's score to the end of its lease and never removes it;
//! - a fifth of every claim is reserved for each band but the most urgent, so that a backlog in one band never starves
//!   another. The rest goes to the most urgent feeds first: after an outage the feeds with the most readers come first;
//! - a lower during a live lease keeps the lease and is remembered: the next `put` makes the feed due;
//! - a `put` that comes after the end of its caller's lease undoes no lower;
//! - a host with parked feeds always has one timed head in the schedule (in each shard), whatever process dies;
//!   claiming it claims the top parked feed and sets the head to the lease's end while others stay parked; if the feed is
//!   parked there again, the head moves on to when the host can be polled, so that nothing is claimed of a host on hold;
//! - a schedule that lost its memory reports that until it is rebuilt.

#[cfg(test)]
pub mod conformance;
pub mod memory;
#[cfg(test)]
pub(crate) mod mirror;
#[cfg(test)]
mod mirror_tests;
pub mod redis;

use std::time::Duration;

use async_trait::async_trait;
use common::host::HostKey;
use common::named;
use common::policy::Category;
use common::redis::ServerError;
use common::time::{Clock, Timestamp};
use common::url::FeedId;

named! {
    /// A set of the schedule, with a guaranteed share of every claim; the most urgent first.
    Band {
        /// Category A and wakes.
        Urgent = "urgent",
        /// Category B.
        Prompt = "prompt",
        /// Categories C and F.
        Steady = "steady",
        /// Category D: one subscriber.
        Patient = "patient",
    }
}

impl Band {
    /// Returns the band of a feed of this category that waits for its due time (`wake` is false) or was woken.
    pub fn of(category: Category, wake: bool) -> Band {
        match category {
            _ if wake => Band::Urgent,
            Category::A => Band::Urgent,
            Category::B => Band::Prompt,
            Category::C | Category::F => Band::Steady,
            Category::D => Band::Patient,
        }
    }

    /// Returns what is reserved of a claim for each band: a fifth, and nothing for the most urgent, which has the first
    /// choice of the rest. The fractions of small claims are rounded up or down depending on the time of the call, in a
    /// sequence that never repeats for long (multiples of the golden ratio), so that over time they also add up to a
    /// fifth.
    pub(crate) fn shares(limit: usize, now: Timestamp) -> [usize; 4] {
        let turn = now.millis() as f64 * GOLDEN_RATIO;
        Band::ALL.map(|band| {
            let fifth = limit as f64 / 5.0 + (turn + f64::from(band as u8) / 5.0).fract();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded down, as is meant")]
            let share = fifth as usize;
            if band == Band::Urgent { 0 } else { share }
        })
    }
}

/// The fractional parts of its multiples are evenly distributed.
const GOLDEN_RATIO: f64 = 0.618_033_988_749_894_9;

/// A feed and when it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The feed.
    pub feed: FeedId,
    /// When it is due.
    pub due_at: Timestamp,
    /// Its band.
    pub band: Band,
}

/// A feed that the claimant may work on until the lease ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The feed.
    pub feed: FeedId,
    /// The host in whose parked set it was.
    pub parked_at: Option<HostKey>,
    /// An earlier claim of it ended without a put: its owner died or was too slow.
    pub lease_expired: bool,
}

/// A feed that has to wait for its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parking {
    /// The feed.
    pub feed: FeedId,
    /// The busy host.
    pub host: HostKey,
    /// When the host can be polled again, as far as is known.
    pub until: Timestamp,
    /// The feed's band.
    pub band: Band,
    /// Order among the host's parked feeds, lowest first: due time minus a bonus for weight.
    pub rank: i64,
}

/// What a scheduler did of late, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Feeds claimed that were not claimed before for the same due time.
    pub claimed: f64,
    /// Polls started.
    pub started: f64,
}

/// The contents of the schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// All feeds.
    pub feeds: usize,
    /// Of these, due now.
    pub due: usize,
    /// Of these, parked.
    pub parked: usize,
    /// Claimed, under a lease.
    pub leased: usize,
    /// The time of the next claim: a due time, a host's head, or a lease's end; may have passed.
    pub next: Option<Timestamp>,
    /// The oldest due time of each band, if it has passed.
    pub oldest: [Option<Timestamp>; 4],
}

/// Proof that a scan of the store started after the schedule's last loss of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebuildMark(pub(crate) Vec<String>);

/// An error of the schedule.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// The backend failed.
    #[error("the schedule could not {action}")]
    Backend {
        /// What was being attempted.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// One of the schedule's servers is away. What concerns the others was done.
    #[error("a part of the schedule could not {action}")]
    PartAway {
        /// What was being attempted.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl ScheduleError {
    /// Returns the error unless only a part of the schedule is away: for changes of claimed feeds that the end of their leases, or the
    /// part's filling from the store, makes up for.
    pub fn unless_part_away(self) -> Result<(), Self> {
        match self {
            ScheduleError::PartAway { .. } => Ok(()),
            error @ ScheduleError::Backend { .. } => Err(error),
        }
    }

    /// Returns whether the server, its settings or the machines' clocks are the reason, so that every process meets it.
    pub(crate) fn is_servers(&self) -> bool {
        match self {
            ScheduleError::PartAway { .. } => true,
            ScheduleError::Backend { source, .. } => {
                source.downcast_ref::<ServerError>().is_some_and(|error| error.is_away() || !error.is_refusal())
            }
        }
    }
}

/// See the module documentation for the guarantees of an implementation.
#[async_trait]
pub trait Schedule: ScheduleUpkeep + ScheduleView {
    /// Sets feeds' due times and ends their leases and parking. A wake remembered during the lease makes a feed due
    /// now. A feed whose lease has ended may have been woken since: without a lease it is brought forward only, and parked in
    /// a more urgent band it stays parked.
    async fn put(&self, slots: &[Slot], now: Timestamp) -> Result<(), ScheduleError>;

    /// The same, and puts feeds off that wait for an earlier time or at a host: for callers that know that they were
    /// not woken.
    async fn put_off(&self, slots: &[Slot], now: Timestamp) -> Result<(), ScheduleError>;

    /// Brings feeds forward, never back. During a live lease the score stays and the wake is remembered; a parked feed
    /// goes to the front of its host's set, whose head is due no later than the feed.
    async fn lower(&self, slots: &[Slot], now: Timestamp) -> Result<(), ScheduleError>;

    /// Adds feeds that are missing, and brings those that are later than `slot.due_at + slack` forward to `due_at`.
    /// Parked feeds stay, as their host has a head, and so do leases that end by `now + slack`. Returns how many were
    /// wrong. Used by reconcile.
    async fn correct(&self, slots: &[Slot], slack: Duration, now: Timestamp) -> Result<usize, ScheduleError>;

    /// Removes feeds.
    async fn remove(&self, feeds: &[FeedId]) -> Result<(), ScheduleError>;

    /// Claims up to `limit` due feeds until `now + lease`. A backend with a clock of its own goes by that: a call may arrive late.
    async fn claim_due(&self, now: Timestamp, limit: usize, lease: Duration) -> Result<Vec<Claim>, ScheduleError>;

    /// The same of the most urgent band alone.
    async fn claim_urgent(&self, now: Timestamp, limit: usize, lease: Duration) -> Result<Vec<Claim>, ScheduleError>;

    /// Extends the leases of claimed feeds to `until` where they would end earlier. Does not change feeds whose lease
    /// has ended.
    async fn extend(&self, feeds: &[FeedId], until: Timestamp) -> Result<(), ScheduleError>;

    /// Parks claimed feeds at their hosts and makes sure that the hosts have timed heads. Of several parkings of
    /// one feed any one counts. Where a host's feeds in one call have leases that end at different times, its head is at the time of
    /// any one that may come first.
    async fn park(&self, parkings: &[Parking]) -> Result<(), ScheduleError>;

    /// Brings the heads of hosts forward to the time at which they can be polled again. An optimisation only.
    async fn unpark(&self, hosts: &[(HostKey, Timestamp)]) -> Result<(), ScheduleError>;
}

/// Filling the schedule again, and checking it. See the module documentation for the guarantees of an implementation.
#[async_trait]
pub trait ScheduleUpkeep: Send + Sync {
    /// Returns `Some` while the schedule has lost its memory (emptied, restored from an old dump, never filled) and
    /// [`Schedule::correct`] must be called for every feed of the store.
    async fn begin_rebuild(&self) -> Result<Option<RebuildMark>, ScheduleError>;

    /// Returns whether the loss behind the mark affects a feed: [`Schedule::correct`] need not be called for others.
    fn is_lost(&self, _mark: &RebuildMark, _feed: FeedId) -> bool {
        true
    }

    /// Marks the schedule as complete: [`Schedule::correct`] was called for every feed since the mark was returned. Returns
    /// false if the schedule has lost its memory again since then.
    async fn finish_rebuild(&self, mark: &RebuildMark) -> Result<bool, ScheduleError>;

    /// Checks that the schedule can be used, at least in part, and that its clock agrees with ours. The clock is read around the
    /// question, so that a stall of ours is not mistaken for a wrong clock.
    async fn check(&self, clock: &dyn Clock) -> Result<(), ScheduleError>;

    /// The same of all its parts: readiness depends on it.
    async fn check_whole(&self, clock: &dyn Clock) -> Result<(), ScheduleError> {
        self.check(clock).await
    }
}

/// What the schedule contains.
#[async_trait]
pub trait ScheduleView: Send + Sync {
    /// Returns up to `limit` feeds that wait after a position, or from the start, by due time and id. The times are the
    /// schedule's, which may be ahead of the store's for a while.
    async fn waiting(
        &self,
        after: Option<(Timestamp, FeedId)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, FeedId)>, ScheduleError>;

    /// The same in reverse: up to `limit` feeds that wait before a position, or up to the end, the last one first.
    async fn waiting_before(
        &self,
        before: Option<(Timestamp, FeedId)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, FeedId)>, ScheduleError>;

    /// Returns up to `limit` feeds that are claimed or parked, in any order.
    async fn taken(&self, limit: usize) -> Result<Vec<FeedId>, ScheduleError>;

    /// Notes that this scheduler has the configuration with this hash, and returns those of all schedulers that did so within the
    /// last half minute. Where there is only one, nothing is noted.
    async fn configurations(&self, _own: &str) -> Result<Vec<String>, ScheduleError> {
        Ok(Vec::new())
    }

    /// Notes what this scheduler did of late, and returns what each scheduler did that noted it within the last minute and a half.
    /// Where there is only one, nothing is noted.
    async fn rates(&self, _own: &str, rates: Rates) -> Result<Vec<Rates>, ScheduleError> {
        Ok(vec![rates])
    }

    /// Returns what the schedule contains.
    async fn depth(&self, now: Timestamp) -> Result<Depth, ScheduleError>;
}
