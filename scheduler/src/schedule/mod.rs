//! The schedule: when each live feed is due, and which feeds wait for a busy host.
//!
//! It is an index over the store's due times and can be deleted at any time. It knows no URLs and decides nothing.
//!
//! Each implementation guarantees:
//! - a claim re-scores an entry to the end of its lease and never removes it;
//! - each band gets a fifth of every claim, so that a backlog in one never keeps another from being claimed, and what is
//!   left goes to the most urgent: after an outage the feeds with the most readers come first;
//! - a lower under a live lease keeps the lease and is remembered: the next `put` makes the feed due;
//! - a host with parked feeds always has one timed head in the schedule (in each shard of it), whatever dies; claiming it
//!   claims the top parked feed and re-arms the head at the lease's end while others stay parked;
//! - a schedule that lost its memory says so until it was rebuilt.

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
use common::policy::Category;
use common::time::Timestamp;
use common::url::FeedId;

/// Sets of the schedule, each with a guaranteed share of every claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Band {
    /// Category A and wakes.
    Urgent,
    /// Category B.
    Prompt,
    /// Categories C and F.
    Steady,
    /// Category D: one subscriber.
    Patient,
}

impl Band {
    /// All of them, most urgent first.
    pub const ALL: [Band; 4] = [Band::Urgent, Band::Prompt, Band::Steady, Band::Patient];

    /// The band of a feed of this category that waits for its due time (`wake` false) or was woken.
    pub fn of(category: Category, wake: bool) -> Band {
        match category {
            _ if wake => Band::Urgent,
            Category::A => Band::Urgent,
            Category::B => Band::Prompt,
            Category::C | Category::F => Band::Steady,
            Category::D => Band::Patient,
        }
    }

    /// What is kept of a claim for each band: a fifth, and nothing for the most urgent, which has the first choice of the rest.
    /// The fractions of small claims are rounded up or down by the time of the call, never alike for long (a multiple of the
    /// golden ratio), so that over a while they add up to a fifth as well.
    pub(crate) fn shares(limit: usize, now: Timestamp) -> [usize; 4] {
        let turn = now.millis() as f64 * GOLDEN_RATIO;
        Band::ALL.map(|band| {
            let fifth = limit as f64 / 5.0 + (turn + f64::from(band as u8) / 5.0).fract();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded down, as is meant")]
            let share = fifth as usize;
            if band == Band::Urgent { 0 } else { share }
        })
    }

    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Band::Urgent => "urgent",
            Band::Prompt => "prompt",
            Band::Steady => "steady",
            Band::Patient => "patient",
        }
    }
}

/// The fractional part of its multiples is never alike for long.
const GOLDEN_RATIO: f64 = 0.618_033_988_749_894_9;

/// A feed and when it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Which feed.
    pub feed: FeedId,
    /// When.
    pub due_at: Timestamp,
    /// In which set.
    pub band: Band,
}

/// A feed that somebody may now work on until the lease ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which feed.
    pub feed: FeedId,
    /// It came out of this host's parked set.
    pub parked_at: Option<HostKey>,
    /// An earlier claim of it ended without a put: whoever held it died or was too slow.
    pub lease_expired: bool,
}

/// A feed that has to wait for its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parking {
    /// Which feed.
    pub feed: FeedId,
    /// The busy host.
    pub host: HostKey,
    /// The host may be asked again then, as far as is known.
    pub until: Timestamp,
    /// The feed's set.
    pub band: Band,
    /// Order among the host's parked feeds, lowest first: due time less a bonus for weight.
    pub rank: i64,
}

/// What is in the schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Feeds in all.
    pub feeds: usize,
    /// Of these, due now.
    pub due: usize,
    /// Of these, parked.
    pub parked: usize,
    /// Claimed, under a lease.
    pub leased: usize,
    /// When something is to be claimed next: a due time, a host's head, or a lease's end; may have passed.
    pub next: Option<Timestamp>,
    /// The oldest due time of each band, if it has passed.
    pub oldest: [Option<Timestamp>; 4],
}

/// Proof that a walk over the store began after the schedule's last loss of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebuildMark(pub(crate) Vec<String>);

/// The schedule's own trouble.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// The backend did not do it.
    #[error("the schedule could not {action}")]
    Backend {
        /// What was being attempted.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// See the module's page for what an implementation guarantees.
#[async_trait]
pub trait Schedule: Send + Sync {
    /// Sets feeds' due times and ends their leases and parking. A wake remembered under the lease makes a feed due now.
    async fn put(&self, slots: &[Slot], now: Timestamp) -> Result<(), ScheduleError>;

    /// Brings feeds forward, never back. Under a live lease the score stays and the wish is remembered; a parked feed
    /// goes to the front of its host's set.
    async fn lower(&self, slots: &[Slot], now: Timestamp) -> Result<(), ScheduleError>;

    /// Adds feeds that are absent, and brings those that stand later than `slot.due_at + slack` forward to `due_at`;
    /// parked feeds stay, their host has a head, and so do leases that end by `now + slack`. Gives how many were wrong. For
    /// reconcile.
    async fn correct(&self, slots: &[Slot], slack: Duration, now: Timestamp) -> Result<usize, ScheduleError>;

    /// Takes feeds out.
    async fn remove(&self, feeds: &[FeedId]) -> Result<(), ScheduleError>;

    /// Claims at most `limit` due feeds until `now + lease`.
    async fn claim_due(&self, now: Timestamp, limit: usize, lease: Duration) -> Result<Vec<Claim>, ScheduleError>;

    /// Lets the leases of claimed feeds end at `until` where they would end earlier. Feeds that are under no lease any more are
    /// left alone.
    async fn extend(&self, feeds: &[FeedId], until: Timestamp) -> Result<(), ScheduleError>;

    /// Parks claimed feeds at their hosts and sees to the hosts' timed heads.
    async fn park(&self, parkings: &[Parking]) -> Result<(), ScheduleError>;

    /// Hosts can be asked again at these times: brings their heads forward. Nothing depends on it.
    async fn unpark(&self, hosts: &[(HostKey, Timestamp)]) -> Result<(), ScheduleError>;

    /// `Some` while the schedule has lost its memory (emptied, restored from an old dump, never filled) and every feed of the
    /// store must be shown to [`Self::correct`].
    async fn begin_rebuild(&self) -> Result<Option<RebuildMark>, ScheduleError>;

    /// Every feed was shown to [`Self::correct`] since the mark was given. False if the schedule lost its memory again since.
    async fn finish_rebuild(&self, mark: &RebuildMark) -> Result<bool, ScheduleError>;

    /// The schedule can be reached, and its clock agrees with `now`: readiness depends on it.
    async fn check(&self, now: Timestamp) -> Result<(), ScheduleError>;

    /// What waits behind a place, or from the beginning: `limit` feeds, at least one, by due time and number. A time is as the
    /// schedule has it, which may be a while ahead of the store's.
    async fn waiting(
        &self,
        after: Option<(Timestamp, FeedId)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, FeedId)>, ScheduleError>;

    /// Feeds that do not wait for their time: those that are claimed, and those that are parked; `limit` at most, any of them.
    async fn taken(&self, limit: usize) -> Result<Vec<FeedId>, ScheduleError>;

    /// What is in it.
    async fn depth(&self, now: Timestamp) -> Result<Depth, ScheduleError>;
}
