//! The state that the model explores: everything that the parts of a fleet share, and what each part is doing.

use common::host_gate::Permit;
use common::host_gate::state::GateState;
use common::job::FetchJob;

use crate::schedule::Band;
use crate::schedule::mirror::Mirror;

/// A feed's row in the store; times are in milliseconds, as everywhere in the model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) version: i64,
    /// `None`: the feed is gone.
    pub(super) next_due: Option<i64>,
    pub(super) wake: Option<i64>,
    /// Whether the feed is still polled.
    pub(super) live: bool,
}

/// A message with one job.
#[derive(Clone, Debug)]
pub(super) struct QueuedJob {
    pub(super) job: FetchJob,
    /// Delivered to a worker, and unacknowledged.
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
    /// Whether no wake came since the fetch started; the protocol has to infer this from clocks.
    pub(super) fresh: bool,
    /// Delivered to a scheduler, and unacknowledged.
    pub(super) taken: bool,
}

/// The state of a scheduler's task.
#[derive(Clone, Debug)]
pub(super) enum Task {
    /// Has claimed a feed and read its row.
    Claimed { feed: i64, row: Row, now: i64, parked: bool },
    /// Has reserved a slot at the host for this job.
    Reserved { job: Box<FetchJob> },
    /// Was refused a slot.
    Refused { feed: i64, until: i64, woken: bool },
    /// Has published the job; its lease may end at `until`.
    Published { feed: i64, until: i64 },
    /// Has received a report, before setting its hold on the gate.
    Received { report: Report, give_up: i64, ahead: i64 },
    /// Before deciding on the report.
    Held { report: Report, give_up: i64 },
    /// Has stored the verdict (none for a Deferred), before updating the schedule. `due`: `None` removes the feed.
    Stored { report: Report, due: Option<i64>, woken: bool, give_up: i64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// The request is in flight.
    Fetching,
    /// The hold that the server requested is set on the gate.
    Holding,
    /// The broker has confirmed the report.
    Published,
    /// The slot is released; the job is not yet acknowledged.
    Released,
}

/// The state of a worker's job.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) phase: Phase,
    pub(super) job: FetchJob,
    /// By its own clock.
    pub(super) started: i64,
    /// The real time by which its request ends.
    pub(super) deadline: i64,
    pub(super) permit: Option<Permit>,
    pub(super) answer: Answer,
    /// Whether no wake came since it started.
    pub(super) fresh: bool,
    /// Whether it stalls past its deadline.
    pub(super) stalled: bool,
    /// Whether the delivery still belongs to it.
    pub(super) mine: bool,
}

/// A gate's marks: which loss of memory is being repaired. Redis stores them next to [`GateState`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Marks {
    /// The nonce of the loading that opened it.
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

/// The violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Broken {
    /// Two requests for one feed, both while their tokens are valid.
    Double,
    /// More requests to the host than allowed.
    Parallel,
    /// A report was accepted for a version that was already answered.
    AcceptedTwice,
    /// A request before the end of a hold that some live part knows about.
    HeldAsked,
    /// A version was fetched again after its report was published and its slot released.
    Refetched,
    /// Two requests to the host started with less than its gap between them.
    Gap,
    /// A feed that had crashed its workers the maximum number of times was requested again.
    Deadly,
}

/// The whole fleet.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) now: i64,
    pub(super) rows: Vec<Row>,
    /// The host's hold in the store.
    pub(super) stored_hold: i64,
    pub(super) schedule: Mirror,
    pub(super) gate: GateState,
    pub(super) marks: Marks,
    pub(super) last_mark: u64,
    pub(super) jobs: Vec<QueuedJob>,
    pub(super) reports: Vec<Report>,
    pub(super) tasks: Vec<Task>,
    pub(super) works: Vec<Work>,
    /// A wake that is stored but has not reached the schedule: feed and time.
    pub(super) waking: Option<(i64, i64)>,
    pub(super) loader: Option<Loader>,
    /// Feeds whose parts in flight take longer than a lease.
    pub(super) late: Vec<bool>,
    pub(super) faults: u8,
    pub(super) wakes: u8,
    pub(super) throttles: u8,
    pub(super) truth: Truth,
    pub(super) broken: Option<Broken>,
}

/// What an outside observer knows.
#[derive(Clone, Debug)]
pub(super) struct Truth {
    /// The time before which the server accepts no requests.
    pub(super) asked: i64,
    pub(super) last_start: i64,
    /// Wakes that no accepted fetch has answered.
    pub(super) owed: Vec<bool>,
    /// Versions whose report was published and slot released, and until when they must not be fetched again.
    pub(super) reported: Vec<(i64, i64)>,
    /// Requests for a version that did not lead to a report.
    pub(super) starts: Vec<(i64, u8)>,
}

impl Task {
    /// Returns the progress, to order tasks.
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
    /// Returns true if its request is in flight and its token valid.
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

    /// Returns true if some part works on the feed, or a message about it is in flight.
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

/// Returns the band of a feed of the model.
pub(super) fn band(woken: bool) -> Band {
    Band::of(common::policy::Category::C, woken)
}
