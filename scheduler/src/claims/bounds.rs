//! How large a world the model explores, what may go wrong in it, and which protection is taken out.

use std::collections::HashMap;
use std::sync::Mutex;

use common::host::{HostKey, HostLimits};
use common::url::FeedUrl;

use super::Sight;

/// Milliseconds, all of them multiples of a second, so that few points in time differ.
pub(super) const START: i64 = 1_000_000_000;
/// Later than anything that comes.
pub(super) const FAR: i64 = 200_000_000_000_000;
/// A feed's next due time while it lies ahead: it comes by a step of its own, whenever nothing of the feed is under way.
pub(super) const AHEAD: i64 = FAR / 2;
pub(super) const GAP: i64 = 1_000;
/// How long a fetch takes at most: life of a token.
pub(super) const DEADLINE: i64 = 2_000;
pub(super) const QUEUE_LEASE: i64 = 1_000;
pub(super) const LEASE: i64 = QUEUE_LEASE + 3_000;
/// Until a job is in the queue.
pub(super) const CLAIM_LEASE: i64 = 1_000;
/// How long a version counts as reported, as in the worker.
pub(super) const REMEMBERED: i64 = 2 * LEASE;
pub(super) const RETRY_AFTER: i64 = 6_000;
/// How far clocks may be apart: `scheduler.clock_skew`.
pub(super) const SKEW: i64 = 1_000;

/// What keeps the protocol whole. Each can be taken out, to see that the model notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protection {
    /// Parking keeps a timed head of the host in the schedule.
    ParkedHead,
    /// A release frees only what its own acquire took.
    OwnRelease,
    /// A lower under a lease is remembered for the next put.
    RememberedWake,
    /// Reconcile looks at `wake_at`.
    ReconciledWake,
    /// Holds are loaded only while no report is queued.
    DrainedReports,
    /// An acquire checks the hold again.
    HoldAtAcquire,
    /// A gate that was lost again meanwhile is not opened.
    LoadFence,
    /// A claim re-scores, and does not remove.
    Lease,
    /// Reconcile at all.
    Reconcile,
    /// Reports of another version are stale.
    VersionCheck,
    /// One live token a feed.
    Token,
    /// Reported versions are remembered.
    ReportedMemory,
    /// A Deferred does not count as reported.
    DeferredIsNoReport,
    /// An apply clears only wakes that its fetch answered.
    YoungerWakes,
    /// A further wake moves a past one up to now.
    WakeMovesUp,
    /// Tickets and requests that nobody gives back end.
    TicketLife,
    /// A ticket lives as long as its job.
    LongTicket,
    /// An acquire takes only tickets that the gate knows.
    TicketCheck,
    /// A gate without its memory is closed.
    BirthMark,
    /// It stays closed for a fetch's time.
    FetchDeadline,
    /// A worker puts a hold on the gate before it gives its place back.
    HoldFirst,
    /// A job is acked after its report.
    LateAck,
    /// A feed that killed its workers is not asked again.
    CrashCount,
    /// A start charges the host's gap.
    GapCharge,
    /// A host is not asked within its gap of the gate's loss.
    GapAfterLoss,
}

/// What may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A worker is killed.
    Worker,
    /// A worker's delivery goes to another one while it works.
    Redeliver,
    /// A worker sleeps past its deadline.
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
    /// The schedule comes back from an old dump, in which feeds are due much too late.
    Restore,
    /// The gate is emptied.
    Gate,
    /// Both.
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

    /// All but a late one, which makes the worlds of every other kind many more.
    pub(super) fn prompt() -> Vec<Kind> {
        Self::ALL.into_iter().filter(|kind| *kind != Kind::Late).collect()
    }
}

/// A fleet of two workers with one host.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) feeds: i64,
    pub(super) parallel: u32,
    /// Jobs that fit into the queue.
    pub(super) queue: usize,
    /// How long a job may wait.
    pub(super) queue_lease: i64,
    /// What schedulers can do at once.
    pub(super) tasks: usize,
    pub(super) wakes: u8,
    /// How often the server answers 429.
    pub(super) throttles: u8,
    /// The first feed may answer 410.
    pub(super) gone: bool,
    /// Some clocks are ahead by this.
    pub(super) skew: i64,
    pub(super) kinds: Vec<Kind>,
    pub(super) faults: u8,
    pub(super) removed: Vec<Protection>,
    /// What must be seen on the way.
    pub(super) sights: Vec<Sight>,
    pub(super) url: FeedUrl,
    pub(super) host: HostKey,
    /// How long a calm fleet needs from a world to a goal.
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
