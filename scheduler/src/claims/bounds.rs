//! How large a world the model explores, which faults occur in it, and which protection is removed.

use std::collections::HashMap;
use std::sync::Mutex;

use common::host::{HostKey, HostLimits};
use common::url::FeedUrl;

use super::Sight;

/// Milliseconds, all of them multiples of a second, so that few points in time differ.
pub(super) const START: i64 = 1_000_000_000;
/// Later than any event.
pub(super) const FAR: i64 = 200_000_000_000_000;
/// A feed's next due time while it is in the future: a separate step reaches it, whenever nothing of the feed is in
/// flight.
pub(super) const AHEAD: i64 = FAR / 2;
pub(super) const GAP: i64 = 1_000;
/// The maximum duration of a fetch, and the lifetime of a token.
pub(super) const DEADLINE: i64 = 2_000;
pub(super) const QUEUE_LEASE: i64 = 1_000;
pub(super) const LEASE: i64 = QUEUE_LEASE + 3_000;
/// The lease until a job is in the queue.
pub(super) const CLAIM_LEASE: i64 = 1_000;
/// How long a version counts as reported, as in the worker.
pub(super) const REMEMBERED: i64 = 2 * LEASE;
pub(super) const RETRY_AFTER: i64 = 6_000;
/// The maximum difference between clocks: `scheduler.clock_skew`.
pub(super) const SKEW: i64 = 1_000;

/// The protections of the protocol. Each can be removed, to check that the model notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protection {
    /// Parking keeps a timed head of the host in the schedule.
    ParkedHead,
    /// A release frees only what its own acquire took.
    OwnRelease,
    /// A lower during a lease is remembered for the next put.
    RememberedWake,
    /// Reconcile considers `wake_at`.
    ReconciledWake,
    /// Holds are loaded only while no report is queued.
    DrainedReports,
    /// An acquire checks the hold again.
    HoldAtAcquire,
    /// A gate that was lost again during loading is not opened.
    LoadFence,
    /// A claim re-scores the feed instead of removing it.
    Lease,
    /// Reconcile runs at all.
    Reconcile,
    /// Reports for another version are stale.
    VersionCheck,
    /// A feed has at most one live token.
    Token,
    /// Workers remember reported versions.
    ReportedMemory,
    /// A Deferred does not count as reported.
    DeferredIsNoReport,
    /// An apply clears only wakes that its fetch answered.
    YoungerWakes,
    /// A further wake moves a past one up to now.
    WakeMovesUp,
    /// Tickets and requests that are never released expire.
    TicketLife,
    /// A ticket lives as long as its job.
    LongTicket,
    /// An acquire accepts only tickets that the gate knows.
    TicketCheck,
    /// A gate that has lost its memory is closed.
    BirthMark,
    /// It stays closed for the duration of a fetch.
    FetchDeadline,
    /// A worker sets a hold on the gate before it releases its slot.
    HoldFirst,
    /// A job is acknowledged after its report.
    LateAck,
    /// A feed that crashed its workers is not polled again.
    CrashCount,
    /// Starting a request charges the host's gap.
    GapCharge,
    /// A host is not polled within its gap after the gate's loss.
    GapAfterLoss,
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A worker is killed.
    Worker,
    /// A worker's delivery goes to another one while it works.
    Redeliver,
    /// A worker stalls past its deadline.
    Pause,
    /// Everything of a feed in flight takes longer than its lease.
    Late,
    /// A scheduler is killed.
    Scheduler,
    /// A report is delivered twice.
    Twice,
    /// The database refuses a report.
    Refuse,
    /// The schedule is emptied.
    Schedule,
    /// The schedule is restored from an old dump, in which feeds are due much too late.
    Restore,
    /// The gate is emptied.
    Gate,
    /// Schedule and gate are both emptied.
    Redis,
}

impl Kind {
    pub(super) const ALL: [Kind; 11] = [
        Kind::Worker,
        Kind::Redeliver,
        Kind::Pause,
        Kind::Late,
        Kind::Scheduler,
        Kind::Twice,
        Kind::Refuse,
        Kind::Schedule,
        Kind::Restore,
        Kind::Gate,
        Kind::Redis,
    ];

    /// Returns all kinds but `Late`, which multiplies the worlds of every other kind.
    pub(super) fn prompt() -> Vec<Kind> {
        Self::ALL.into_iter().filter(|kind| *kind != Kind::Late).collect()
    }
}

/// A fleet of two workers with one host.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) feeds: i64,
    pub(super) parallel: u32,
    /// The capacity of the job queue.
    pub(super) queue: usize,
    /// How long a job may wait in the queue.
    pub(super) queue_lease: i64,
    /// The number of concurrent tasks of schedulers.
    pub(super) tasks: usize,
    pub(super) wakes: u8,
    /// How often the server may respond with 429.
    pub(super) throttles: u8,
    /// Whether the first feed may respond with 410.
    pub(super) gone: bool,
    /// By how much some clocks are ahead.
    pub(super) skew: i64,
    pub(super) kinds: Vec<Kind>,
    pub(super) faults: u8,
    pub(super) removed: Vec<Protection>,
    /// Sights that must occur during exploration.
    pub(super) sights: Vec<Sight>,
    pub(super) url: FeedUrl,
    pub(super) host: HostKey,
    /// How long a calm fleet takes from a world to a goal.
    pub(super) known: Mutex<HashMap<(i64, u64), i64>>,
}

impl Fleet {
    pub(super) fn new(feeds: i64) -> Self {
        let url: FeedUrl = "http://a/feed".parse().unwrap();
        Fleet {
            feeds,
            parallel: 1,
            queue: 2,
            queue_lease: QUEUE_LEASE,
            tasks: 2,
            wakes: 0,
            throttles: 0,
            gone: false,
            skew: 0,
            kinds: Vec::new(),
            faults: 0,
            removed: Vec::new(),
            sights: Vec::new(),
            host: HostKey::new("a:80"),
            url,
            known: Mutex::default(),
        }
    }

    pub(super) fn faults(self, faults: u8, kinds: &[Kind]) -> Self {
        Fleet { faults, kinds: kinds.to_vec(), ..self }
    }

    pub(super) fn without(self, removed: &[Protection]) -> Self {
        Fleet { removed: removed.to_vec(), ..self }
    }

    pub(super) fn has(&self, protection: Protection) -> bool {
        !self.removed.contains(&protection)
    }

    pub(super) fn limits(&self) -> HostLimits {
        HostLimits { gap: std::time::Duration::from_millis(GAP.unsigned_abs()), burst: 1, parallel: self.parallel }
    }
}
