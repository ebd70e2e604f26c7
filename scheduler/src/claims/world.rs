//! The state that the model explores: everything that the parts of a fleet share, and what each part is in the middle of.

use common::host_gate::Permit;
use common::host_gate::state::GateState;
use common::job::FetchJob;

use crate::schedule::Band;
use crate::schedule::mirror::Mirror;

/// What the store has of a feed; times are in milliseconds, as everywhere in the model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) version: i64,
    /// `None`: gone.
    pub(super) next_due: Option<i64>,
    pub(super) wake: Option<i64>,
    /// How the feed came to be not polled any more, if it is that.
    pub(super) live: bool,
}

/// A message with one job.
#[derive(Clone, Debug)]
pub(super) struct QueuedJob {
    pub(super) job: FetchJob,
    /// With a worker, unacked.
    pub(super) taken: bool,
}

/// How a fetch ended, or why there was none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Answer {
    Good,
    Throttled { until: i64 },
    Gone,
    Crashed,
    Deferred { until: i64 },
}

/// A message with one report.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Report {
    pub(super) feed: i64,
    pub(super) version: i64,
    /// By the worker's clock.
    pub(super) started: i64,
    pub(super) answer: Answer,
    pub(super) answers_wake: Option<i64>,
    /// No wake came since the fetch began: what the protocol has to find out from clocks.
    pub(super) fresh: bool,
    /// With a scheduler, unacked.
    pub(super) taken: bool,
}

/// What a scheduler is in the middle of.
#[derive(Clone, Debug)]
pub(super) enum Task {
    /// It claimed a feed and read its row.
    Claimed { feed: i64, row: Row, now: i64, parked: bool },
    /// It has a place at the host for this job.
    Reserved { job: Box<FetchJob> },
    /// It was refused a place.
    Refused { feed: i64, until: i64, woken: bool },
    /// Its job is in the queue; its lease may end at `until`.
    Published { feed: i64, until: i64 },
    /// It received a report and has not put its hold on the gate yet.
    Received { report: Report, give_up: i64, ahead: i64 },
    /// It has not decided on it yet.
    Held { report: Report, give_up: i64 },
    /// It stored the verdict (or there is none, for a Deferred); the schedule does not know. `due`: none, take it out.
    Stored { report: Report, due: Option<i64>, woken: bool, give_up: i64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// The request is out.
    Fetching,
    /// The hold that the server asked for is on the gate.
    Holding,
    /// The report is confirmed.
    Published,
    /// The place is given back; the job is not acked.
    Released,
}

/// What a worker is in the middle of.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) phase: Phase,
    pub(super) job: FetchJob,
    /// By its own clock.
    pub(super) started: i64,
    /// Its request is over by then, in truth.
    pub(super) deadline: i64,
    pub(super) permit: Option<Permit>,
    pub(super) answer: Answer,
    /// No wake came since it began.
    pub(super) fresh: bool,
    /// It sleeps past its deadline.
    pub(super) stalled: bool,
    /// The delivery is still its own.
    pub(super) mine: bool,
}

/// A gate's marks: which loss of memory is being repaired. What Redis keeps beside [`GateState`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Marks {
    /// The loading that opened it.
    pub(super) open: Option<u64>,
    /// A loading, and when the gate may open.
    pub(super) loading: Option<(u64, i64, i64)>,
}

/// A scheduler that loads holds into a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Loader {
    pub(super) nonce: u64,
    pub(super) begun: i64,
}

/// What must never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Broken {
    /// Two requests for one feed, both within the life of their tokens.
    Double,
    /// More requests to the host than allowed, counted alike.
    Parallel,
    /// A report accepted whose version was answered already.
    AcceptedTwice,
    /// A request before the end of a hold that somebody alive knows of.
    HeldAsked,
    /// A version fetched again although its report was published and its place released.
    Refetched,
    /// Two starts at the host closer than its gap.
    Gap,
    /// A feed that killed its workers as often as allowed, asked again.
    Deadly,
}

/// The whole fleet.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) now: i64,
    pub(super) rows: Vec<Row>,
    /// The host's hold, as stored.
    pub(super) stored_hold: i64,
    pub(super) schedule: Mirror,
    pub(super) gate: GateState,
    pub(super) marks: Marks,
    pub(super) last_mark: u64,
    pub(super) jobs: Vec<QueuedJob>,
    pub(super) reports: Vec<Report>,
    pub(super) tasks: Vec<Task>,
    pub(super) works: Vec<Work>,
    /// A wake that is stored and not yet lowered: feed and time.
    pub(super) waking: Option<(i64, i64)>,
    pub(super) loader: Option<Loader>,
    /// Feeds whose parts in flight are slower than a lease.
    pub(super) late: Vec<bool>,
    pub(super) faults: u8,
    pub(super) wakes: u8,
    pub(super) throttles: u8,
    pub(super) truth: Truth,
    pub(super) broken: Option<Broken>,
}

/// What an observer outside of the fleet knows.
#[derive(Clone, Debug)]
pub(super) struct Truth {
    /// The server wants to be left alone until then.
    pub(super) asked: i64,
    pub(super) last_start: i64,
    /// Wakes that no accepted fetch answered.
    pub(super) owed: Vec<bool>,
    /// Versions whose report was published and released, and until when they must not be fetched again.
    pub(super) reported: Vec<(i64, i64)>,
    /// Starts of a version that brought no report.
    pub(super) starts: Vec<(i64, u8)>,
}

impl Task {
    /// How far it is, for an order among tasks.
    pub(super) fn rank(&self) -> (u8, i64) {
        match self {
            Task::Claimed { now, .. } => (0, *now),
            Task::Reserved { job } => (1, job.expires.millis()),
            Task::Refused { until, .. } => (2, *until),
            Task::Published { until, .. } => (6, *until),
            Task::Received { give_up, .. } => (3, *give_up),
            Task::Held { give_up, .. } => (4, *give_up),
            Task::Stored { give_up, .. } => (5, *give_up),
        }
    }

    pub(super) fn feed(&self) -> i64 {
        match self {
            Task::Claimed { feed, .. } | Task::Refused { feed, .. } | Task::Published { feed, .. } => *feed,
            Task::Reserved { job } => job.feed.0,
            Task::Received { report, .. } | Task::Held { report, .. } | Task::Stored { report, .. } => report.feed,
        }
    }

    pub(super) fn report(&self) -> Option<&Report> {
        match self {
            Task::Received { report, .. } | Task::Held { report, .. } | Task::Stored { report, .. } => Some(report),
            _ => None,
        }
    }

    pub(super) fn report_mut(&mut self) -> Option<&mut Report> {
        match self {
            Task::Received { report, .. } | Task::Held { report, .. } | Task::Stored { report, .. } => Some(report),
            _ => None,
        }
    }
}

impl Work {
    /// Its request is out and within the life of its token.
    pub(super) fn flies(&self, now: i64) -> bool {
        matches!(self.phase, Phase::Fetching | Phase::Holding) && self.deadline > now
    }
}

impl World {
    pub(super) fn row(&self, feed: i64) -> &Row {
        &self.rows[index(feed)]
    }

    pub(super) fn row_mut(&mut self, feed: i64) -> &mut Row {
        &mut self.rows[index(feed)]
    }

    pub(super) fn feeds(&self) -> impl Iterator<Item = i64> + use<> {
        0..self.rows.len() as i64
    }

    /// Somebody works on the feed, or something of it is on its way.
    pub(super) fn busy(&self, feed: i64) -> bool {
        self.tasks.iter().any(|task| task.feed() == feed)
            || self.jobs.iter().any(|queued| queued.job.feed.0 == feed && (queued.taken || self.now <= expires(queued)))
            || self.works.iter().any(|work| work.job.feed.0 == feed)
            || self.reports.iter().any(|report| report.feed == feed)
    }
}

pub(super) fn index(feed: i64) -> usize {
    usize::try_from(feed).unwrap()
}

pub(super) fn expires(queued: &QueuedJob) -> i64 {
    queued.job.expires.millis()
}

/// The band of a feed of the model.
pub(super) fn band(woken: bool) -> Band {
    Band::of(common::policy::Category::C, woken)
}
