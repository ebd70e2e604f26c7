//! A model checker for the claim protocol: it explores every order in which two schedulers, two workers, time and
//! faults can interact.
//!
//! The state is a small fleet with one host. The decisions are made by production code: the gate's [`GateState`], what
//! dispatch does with a claim ([`crate::poll::dispatch::sort`], [`crate::poll::dispatch::job`]), and what a verdict
//! does to a row ([`store::row_after`]). Two interfaces are replaced by mirrors, which tests compare with the real
//! ones: the schedule (`schedule/mirror.rs`, compared with memory and Redis) and a wake in the database
//! ([`store::wake_after`], in the store's conformance suite). Two things were transcribed from the code and are not
//! compared with it: the order of a worker's steps (`worker/src/poll.rs`), and the marks of a lost gate
//! (`begin_loading.lua`, `open.lua`).
//!
//! Time jumps from one expiry to the next. It cannot pass the end of a token, a job or a lease that covers live work,
//! unless that is the fault under test. A feed's next due time comes whenever nothing of the feed is in flight. In
//! fleets with `skew` each step may see a clock that is ahead by it. Not modelled: batches, redirects, bands other than
//! the wake's.

mod bounds;
mod calm;
mod dispatching;
mod faults;
mod image;
mod tests;
mod time;
mod working;
mod world;

use common::host_gate::state::GateState;
use common::time::Timestamp;
use stateright::{Model, Property};

use self::bounds::{Fleet, Kind, Protection, START};
use self::dispatching::at;
use self::faults::Fault;
use self::world::{Answer, Broken, Marks, Phase, Row, Task, Truth, World};
use crate::schedule::mirror::{At, Mirror};

/// One step of any part.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Claim { feed: i64, ahead: i64 },
    Go { task: usize },
    Receive { report: usize, ahead: i64 },
    Take { job: usize, ahead: i64 },
    Work { work: usize, answer: Answer },
    Wake { feed: i64, ahead: i64 },
    Lower,
    Load,
    Open,
    Correct { feed: i64 },
    Due { feed: i64 },
    Pass,
    Fault(Fault),
}

impl Model for Fleet {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![self.beginning()]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        // There is no need to continue after a violation.
        if world.broken.is_none() {
            self.calm_steps(world, steps);
            self.fault_steps(world, steps);
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        self.step(&mut next, step)?;
        next.order();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("double", |_, world: &World| world.broken != Some(Broken::Double)),
            Property::always("parallel", |_, world: &World| world.broken != Some(Broken::Parallel)),
            Property::always("accepted2", |_, world: &World| world.broken != Some(Broken::AcceptedTwice)),
            Property::always("held", |_, world: &World| world.broken != Some(Broken::HeldAsked)),
            Property::always("refetch", |_, world: &World| world.broken != Some(Broken::Refetched)),
            Property::always("gap", |_, world: &World| world.broken != Some(Broken::Gap)),
            Property::always("deadly", |_, world: &World| world.broken != Some(Broken::Deadly)),
            Property::always("idle", |fleet: &Fleet, world| fleet.nobody_idles(world)),
            Property::always("lost", |fleet: &Fleet, world| fleet.nothing_is_lost(world)),
            Property::always("stranded", |fleet: &Fleet, world| fleet.nothing_is_stranded(world)),
            Property::always("swallowed", |fleet: &Fleet, world| fleet.no_wake_is_swallowed(world)),
            Property::always("wake-late", |fleet: &Fleet, world| fleet.no_wake_is_late(world)),
        ];
        properties.extend(self.sights.iter().map(|sight| sight.property()));
        properties
    }
}

impl Fleet {
    fn beginning(&self) -> World {
        let feeds = usize::try_from(self.feeds).unwrap();
        let mut schedule = Mirror::default();
        (0..self.feeds).for_each(|feed| schedule.put(feed, START, world::band(false), START));
        let mut gate = GateState::new(Timestamp::EPOCH);
        gate.open = true;
        World {
            now: START,
            rows: vec![Row { version: 0, next_due: Some(START), wake: None, live: true }; feeds],
            stored_hold: 0,
            schedule,
            gate,
            marks: Marks { open: Some(0), loading: None },
            last_mark: 0,
            jobs: Vec::new(),
            reports: Vec::new(),
            tasks: Vec::new(),
            works: Vec::new(),
            waking: None,
            loader: None,
            late: vec![false; feeds],
            faults: 0,
            wakes: self.wakes,
            throttles: self.throttles,
            truth: Truth {
                asked: 0,
                last_start: 0,
                owed: vec![false; feeds],
                reported: vec![(-1, 0); feeds],
                starts: vec![(0, 0); feeds],
            },
            broken: None,
        }
    }

    /// Adds the steps that are possible without a fault.
    fn calm_steps(&self, world: &World, steps: &mut Vec<Step>) {
        let clocks = if self.skew > 0 { vec![0, self.skew] } else { vec![0] };
        for ahead in clocks {
            steps.extend(world.feeds().map(|feed| Step::Claim { feed, ahead }));
            steps.extend((0..world.reports.len()).map(|report| Step::Receive { report, ahead }));
            steps.extend((0..world.jobs.len()).map(|job| Step::Take { job, ahead }));
            steps.extend(world.feeds().map(|feed| Step::Wake { feed, ahead }));
        }
        steps.extend((0..world.tasks.len()).map(|task| Step::Go { task }));
        for (work, doing) in world.works.iter().enumerate() {
            steps.push(Step::Work { work, answer: Answer::Good });
            if doing.phase == Phase::Fetching && self.gone && doing.job.feed.0 == 0 {
                steps.push(Step::Work { work, answer: Answer::Gone });
            }
            if doing.phase == Phase::Fetching && world.throttles > 0 {
                steps.push(Step::Work { work, answer: Answer::Throttled { until: 0 } });
            }
        }
        steps.extend(world.feeds().map(|feed| Step::Correct { feed }));
        steps.extend(world.feeds().map(|feed| Step::Due { feed }));
        steps.extend([Step::Lower, Step::Load, Step::Open, Step::Pass]);
    }

    fn step(&self, world: &mut World, step: Step) -> Option<()> {
        match step {
            Step::Claim { feed, ahead } => self.claim(world, feed, ahead),
            Step::Go { task } => self.go(world, task).map(|()| self.hurry_task(world)),
            Step::Receive { report, ahead } => self.receive(world, report, ahead),
            Step::Take { job, ahead } => self.take(world, job, ahead),
            Step::Work { work, answer } => self.work(world, work, answer).map(|()| self.hurry_work(world)),
            Step::Wake { feed, ahead } => self.wake(world, feed, ahead),
            Step::Lower => self.lower(world),
            Step::Load => self.load(world),
            Step::Open => self.open(world),
            Step::Correct { feed } => self.correct(world, feed),
            Step::Due { feed } => self.due(world, feed),
            Step::Pass => self.pass(world),
            Step::Fault(fault) => self.fail(world, fault),
        }
    }

    /// Executes at once what is indistinguishable from being executed at once: a job is published and its lease
    /// extended as soon as it has its slot, unless the scheduler may die in between.
    fn hurry_task(&self, world: &mut World) {
        let last = world.tasks.len().saturating_sub(1);
        let reserved = matches!(world.tasks.last(), Some(Task::Reserved { .. }));
        if reserved && !self.kinds.contains(&Kind::Scheduler) && world.jobs.len() < self.queue {
            self.go(world, last);
            self.go(world, last);
        }
    }

    /// Does the same for the acknowledgement after the release.
    fn hurry_work(&self, world: &mut World) {
        let last = world.works.len().saturating_sub(1);
        let released = world.works.last().is_some_and(|work| work.phase == Phase::Released);
        let dangers = [Kind::Worker, Kind::Redeliver, Kind::Late];
        if released && self.has(Protection::HoldFirst) && !dangers.iter().any(|kind| self.kinds.contains(kind)) {
            self.work(world, last, Answer::Good);
        }
    }

    /// Checks that without a fault a lease hides a feed only while something of it is in flight.
    fn nobody_idles(&self, world: &World) -> bool {
        let hidden =
            |feed| matches!(world.schedule.feeds.get(&feed), Some(At::Leased { until, .. }) if *until > world.now);
        world.faults > 0 || !world.gate.open || world.feeds().all(|feed| !hidden(feed) || world.busy(feed))
    }
}

impl World {
    /// Sorts interchangeable schedulers, workers and messages, which reduces the number of states.
    fn order(&mut self) {
        self.jobs.sort_by_key(|queued| (queued.job.feed, queued.job.version, queued.job.expires, queued.job.ticket.0));
        self.reports.sort_by_key(|report| (report.feed, report.version, report.started, report.answer, report.taken));
        self.works.sort_by_key(|work| (work.job.feed, work.job.version, work.phase, work.started, work.job.ticket.0));
        self.tasks.sort_by_cached_key(|task| (task.feed(), task.rank()));
    }
}

/// A situation that an exploration must reach; otherwise it proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    TwoSchedulersAtOnce,
    TwoWorkersAtOnce,
    Deferred,
    RedeliveredAfterReport,
    ReportTwice,
    StaleReport,
    WakeInMidFetch,
    WakeUnderLease,
    LeaseEndedUnderWork,
    ParkedFeed,
    ScheduleEmpty,
    GateLostInMidFetch,
    HoldKnownOnlyToReport,
    Crashed,
}

impl Sight {
    /// Returns its name, and whether a world shows it.
    fn property(self) -> Property<Fleet> {
        macro_rules! seen {
            ($name:literal, $world:ident, $shows:expr) => {
                Property::sometimes($name, |_, $world: &World| $shows)
            };
        }
        match self {
            Sight::TwoSchedulersAtOnce => seen!("two schedulers at one feed", w, {
                w.feeds().any(|feed| w.tasks.iter().filter(|task| task.feed() == feed).count() > 1)
            }),
            Sight::TwoWorkersAtOnce => seen!("two workers at one feed", w, {
                w.feeds().any(|feed| w.works.iter().filter(|work| work.job.feed.0 == feed).count() > 1)
            }),
            Sight::Deferred => seen!("a deferred job", w, {
                w.reports.iter().any(|report| matches!(report.answer, Answer::Deferred { .. }))
            }),
            Sight::RedeliveredAfterReport => seen!("a job redelivered after its report", w, {
                w.jobs.iter().any(|queued| {
                    let reported = w.gate.feeds.get(&queued.job.feed).and_then(|guard| guard.reported);
                    !queued.taken
                        && reported.is_some_and(|(version, until)| version >= queued.job.version && until > at(w.now))
                })
            }),
            Sight::ReportTwice => seen!("two reports of one version", w, {
                let mut all = w.reports.iter().map(|report| (report.feed, report.version)).collect::<Vec<_>>();
                all.dedup();
                all.len() < w.reports.len()
            }),
            Sight::StaleReport => seen!("a stale report", w, {
                w.reports.iter().any(|report| !report.taken && report.version < w.row(report.feed).version)
            }),
            Sight::WakeInMidFetch => seen!("a wake in mid-fetch", w, {
                w.works.iter().any(|work| work.phase == Phase::Fetching && !work.fresh)
            }),
            Sight::WakeUnderLease => seen!("a wake under a lease", w, {
                w.schedule.feeds.values().any(|at| matches!(at, At::Leased { woken: true, .. }))
            }),
            Sight::LeaseEndedUnderWork => seen!("a lease that ended under live work", w, {
                let ended =
                    |feed| matches!(w.schedule.feeds.get(&feed), Some(At::Leased { until, .. }) if *until <= w.now);
                w.works.iter().any(|work| ended(work.job.feed.0))
            }),
            Sight::ParkedFeed => {
                seen!("a parked feed", w, { w.schedule.feeds.values().any(|at| matches!(at, At::Parked { .. })) })
            }
            Sight::ScheduleEmpty => seen!("an empty schedule", w, w.schedule.feeds.is_empty()),
            Sight::GateLostInMidFetch => {
                seen!("a gate lost in mid-fetch", w, { !w.gate.open && w.works.iter().any(|work| work.flies(w.now)) })
            }
            Sight::HoldKnownOnlyToReport => seen!("a hold that only a report knows of", w, {
                let on_gate = w.gate.hosts.values().any(|host| host.held_until > at(w.now));
                w.truth.asked > w.now && !on_gate && w.stored_hold <= w.now && w.works.is_empty()
            }),
            Sight::Crashed => seen!("a feed found to kill its workers", w, {
                w.reports.iter().any(|report| report.answer == Answer::Crashed)
            }),
        }
    }
}
