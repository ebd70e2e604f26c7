//! The gate in front of every host: spacing, parallelism, holds, and the guard that keeps two workers off one feed.
//!
//! A scheduler reserves a slot at the host before it publishes a job; the ticket travels in the job; the worker redeems
//! it when it starts. The gate knows nothing of schedules, HTTP or policy.
//!
//! Each implementation guarantees, over all processes that share it:
//! - starts at one host are at least [`HostLimits::gap`] apart once the burst is used, and at most
//!   [`HostLimits::parallel`] tickets or requests are outstanding at once;
//! - no start before a hold or an operator's block has passed, of which neither touches the other;
//! - one live permit a feed; a version whose report was released as reported is not granted again, and before its job's lease ends not
//!   even if the store has begun another epoch meanwhile and gives the version out again;
//! - `release` frees only what its own `acquire` took;
//! - a version that was started without a report is started again only in [`Isolation`];
//! - operators' rules are kept as text and shown to every process that shares the gate; they mean nothing to the gate
//!   itself;
//! - a gate that lost its memory refuses everything until [`GateUpkeep::open`] was called with a mark that is still valid,
//!   and each host for at least its gap after that loss.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod journal;
pub mod memory;
pub mod redis;
pub mod state;

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::host::{HostKey, HostLimits};
use crate::time::{Clock, Timestamp};
use crate::url::{FeedId, Version};

/// A slot at a host, reserved for one job. Opaque; unique over all gates' lifetimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ticket(pub u64);

/// A request for a slot at a host.
#[derive(Clone, Debug)]
pub struct ReserveRequest {
    /// Which host.
    pub host: HostKey,
    /// Its pace.
    pub limits: HostLimits,
    /// The ticket ends here if it is not redeemed: the job's `expires`.
    pub expires: Timestamp,
}

/// The answer to a [`ReserveRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// A slot.
    Ticket(Ticket),
    /// None before this time.
    Refused {
        /// When to try again.
        until: Timestamp,
    },
}

/// A request to start a fetch now.
#[derive(Clone, Debug)]
pub struct AcquireRequest {
    /// Which host.
    pub host: HostKey,
    /// Its pace.
    pub limits: HostLimits,
    /// The reserved slot, redeemed by this call whatever the answer.
    pub ticket: Ticket,
    /// Which feed.
    pub feed: FeedId,
    /// The job's version.
    pub version: Version,
    /// The request has ended by then: life of the permit.
    pub deadline: Timestamp,
    /// When the job's lease ends: until then the schedule hides the feed.
    pub leased_until: Timestamp,
    /// Names the permit. A caller that gets no answer releases it by this name: the grant may have taken effect.
    pub nonce: u64,
    /// What else runs in the caller's process.
    pub isolation: Isolation,
}

impl AcquireRequest {
    /// Returns the permit that a grant of this request gives.
    pub fn permit(&self) -> Permit {
        Permit { host: self.host.clone(), feed: Some(self.feed), version: self.version, nonce: self.nonce }
    }
}

/// Returns a name for an acquire that no other one has.
pub fn fresh_nonce() -> u64 {
    rand::rng().random()
}

/// Names a worker's acquires. Seeded with a number, it always returns the same names.
#[derive(Debug)]
pub struct Nonces(Mutex<StdRng>);

impl Nonces {
    /// Names that follow from `seed`.
    pub fn seeded(seed: u64) -> Self {
        Nonces(Mutex::new(StdRng::seed_from_u64(seed)))
    }

    /// Returns a name that no other acquire has.
    pub fn fresh(&self) -> u64 {
        crate::lock(&self.0).random()
    }
}

impl Default for Nonces {
    fn default() -> Self {
        Nonces::seeded(fresh_nonce())
    }
}

/// What runs beside a fetch in the same process, and so may be the reason when that process dies.
///
/// A feed whose earlier start has no report is a suspect: it may have killed its worker, or have been there when
/// another feed did. Isolation finds out which, so that only a feed that kills its worker while nothing else runs is
/// quarantined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isolation {
    /// Anything.
    #[default]
    None,
    /// Fetches of feeds that are not suspects, and of a few that are.
    FewSuspects,
    /// Nothing.
    Alone,
}

impl Isolation {
    /// Returns what a version needs that was started this many times without a report.
    pub fn needed_after(starts: u32) -> Self {
        match starts {
            0 => Isolation::None,
            1 => Isolation::FewSuspects,
            _ => Isolation::Alone,
        }
    }
}

/// A request to start a fetch without a ticket.
#[derive(Clone, Debug)]
pub struct ExtraRequest<'a> {
    /// Which host.
    pub host: &'a HostKey,
    /// Its pace.
    pub limits: HostLimits,
    /// The permit under which the caller works already, if any.
    pub during: Option<&'a Permit>,
    /// The request has ended by then: life of the permit.
    pub deadline: Timestamp,
}

/// The answer to an [`AcquireRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// Start now.
    Granted(Permit),
    /// This version was reported: ack the job, fetch nothing.
    Reported,
    /// Started before without a report. Nothing is taken or counted: acquire again with this isolation.
    Suspect(Isolation),
    /// Started several times and never reported: report `crashed`, fetch nothing. Carries the permit to release.
    Crashed(Permit),
    /// Not before this time.
    NotNow {
        /// When to try again.
        until: Timestamp,
    },
}

/// The right to one request, until its deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    /// Which host.
    pub host: HostKey,
    /// Which feed; `None` for a request that belongs to no job (a redirect hop, discovery).
    pub feed: Option<FeedId>,
    /// The version that is being fetched.
    pub version: Version,
    /// Names this very acquire.
    pub nonce: u64,
}

/// The outcome of a permit's request, for [`HostGate::release`]. Lengths of time, because a worker's clock is not the gate's, and may be
/// wrong by then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// For how long the feed's version counts as reported; `None`: it may be fetched again.
    pub remembered: Option<Duration>,
    /// What is left of the host's gap after the request really left. A new connection takes its time after the acquire, a kept
    /// one does not: the host's next start counts from here.
    pub next_start_in: Option<Duration>,
}

/// Proof that a loading of holds began after the gate's last loss of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadMark(pub String);

/// The gate's own trouble. What a host does is never an error.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The backend did not do it.
    #[error("the host gate could not {action}")]
    Backend {
        /// What was being attempted.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// One of its servers is away. What concerns the others was done.
    #[error("a part of the host gate could not {action}")]
    PartAway {
        /// What was being attempted.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// See the module's page for what an implementation guarantees.
#[async_trait]
pub trait HostGate: GateUpkeep {
    /// Reserves a slot for each request, in order; returns one answer each.
    async fn reserve(&self, requests: &[ReserveRequest], now: Timestamp) -> Result<Vec<Reservation>, GateError>;

    /// Redeems a ticket and starts a request. Re-checks gap and hold without charging the host twice.
    /// An unknown or ended ticket is `NotNow`.
    async fn acquire(&self, request: &AcquireRequest, now: Timestamp) -> Result<Acquired, GateError>;

    /// Starts a request that has no ticket: a redirect hop, discovery, a single fetch. `Err(until)` inside when it must
    /// wait. `during` is the permit under which the caller works already: at its own host the hop uses that permit's
    /// slot, so that only the gap and the hold are checked.
    async fn acquire_extra(
        &self,
        request: &ExtraRequest<'_>,
        now: Timestamp,
    ) -> Result<Result<Permit, Timestamp>, GateError>;

    /// Releases what the permit's acquire took, if it still holds it.
    async fn release(&self, permit: &Permit, release: Release, now: Timestamp) -> Result<(), GateError>;

    /// Returns a ticket that will not be redeemed (its job was never published, or expired).
    async fn cancel(&self, host: &HostKey, ticket: Ticket, now: Timestamp) -> Result<(), GateError>;

    /// Lets nothing start at each host before its time; a later hold stays. Times and `now` are the caller's: the gate takes the
    /// difference by its own clock.
    async fn hold(&self, holds: &[(HostKey, Timestamp)], now: Timestamp) -> Result<(), GateError>;

    /// Nothing starts at the host before `until` by an operator's word; `None` takes that word back. The last word counts. A
    /// does not affect a hold set by the server.
    async fn block(&self, host: &HostKey, until: Option<Timestamp>, now: Timestamp) -> Result<(), GateError>;
}

/// What schedulers do to the gate as a whole: its rules, its loading, its state. See the module's page.
#[async_trait]
pub trait GateUpkeep: Send + Sync {
    /// Shows the rules that operators set to all workers, in place of what was shown before. Cheap when they are the same.
    async fn show_rules(&self, rules: &str) -> Result<(), GateError>;

    /// Returns the rules that are shown; `None` when these are the `known` ones, or when none are: a gate that lost its
    /// memory shows none until a scheduler shows them again.
    async fn shown_rules(&self, known: Option<&str>) -> Result<Option<String>, GateError>;

    /// `Some` while the gate has lost its memory and the holds must be loaded again.
    async fn begin_loading(&self, now: Timestamp) -> Result<Option<LoadMark>, GateError>;

    /// Returns when the gate can open at the earliest, whatever is loaded; `None`: at once.
    fn opens_at(&self, _mark: &LoadMark) -> Option<Timestamp> {
        None
    }

    /// Returns whether the loss behind the mark affects a host: holds of others need not be loaded before
    /// [`Self::open`].
    fn is_lost(&self, _mark: &LoadMark, _host: &HostKey) -> bool {
        true
    }

    /// Returns how many parts of the gate the loss behind the mark affects, and how many there are.
    fn parts_lost(&self, _mark: &LoadMark) -> (usize, usize) {
        (1, 1)
    }

    /// Opens the gate after the holds were loaded; false if it lost its memory again since `mark` was given, or if requests
    /// from before the loss could still be out when it was given: then a new loading must begin.
    async fn open(&self, mark: &LoadMark, now: Timestamp) -> Result<bool, GateError>;

    /// Opens the gate of a fleet that never sent a request: there is no gap to wait for and no hold to load.
    async fn open_new(&self, now: Timestamp) -> Result<(), GateError>;

    /// Checks that the gate can be used, at least in part, and that its clock agrees with ours. The clock is read around the question,
    /// so that a stall of ours is not mistaken for a wrong clock.
    async fn check(&self, clock: &dyn Clock) -> Result<(), GateError>;

    /// The same of all its parts: readiness depends on it.
    async fn check_whole(&self, clock: &dyn Clock) -> Result<(), GateError> {
        self.check(clock).await
    }

    /// Returns hosts that are held or blocked now.
    async fn held(&self, now: Timestamp) -> Result<usize, GateError>;
}

/// How often a version may start without a report before the feed counts as one that kills workers. The last of these starts
/// was alone in its process.
pub const STARTS_WITHOUT_REPORT: u32 = 3;

/// When to try again while the gate has not been opened.
pub const UNOPENED_RETRY: Duration = Duration::from_secs(1);
