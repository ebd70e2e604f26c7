//! The faults.

use common::host_gate::state::GateState;
use common::time::Timestamp;

use super::Step;
use super::bounds::{FAR, Fleet, Kind, Protection};
use super::dispatching::same_message;
use super::world::{Answer, Marks, Phase, Task, World, band, index};
use crate::schedule::mirror::Mirror;

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    KillWorker { work: usize },
    Redeliver { work: usize },
    Pause { work: usize },
    Late { feed: i64 },
    KillTask { task: usize },
    KillWaking,
    KillLoader,
    Twice { report: usize },
    Refuse { report: usize },
    LoseSchedule,
    RestoreSchedule,
    LoseGate,
    LoseBoth,
}

impl Fleet {
    pub(super) fn fault_steps(&self, world: &World, steps: &mut Vec<Step>) {
        if world.faults >= self.faults {
            return;
        }
        for kind in &self.kinds {
            let works = 0..world.works.len();
            let reports = 0..world.reports.len();
            match kind {
                Kind::Worker => steps.extend(works.map(|work| Step::Fault(Fault::KillWorker { work }))),
                Kind::Redeliver => steps.extend(works.map(|work| Step::Fault(Fault::Redeliver { work }))),
                Kind::Pause => steps.extend(works.map(|work| Step::Fault(Fault::Pause { work }))),
                Kind::Late => steps.extend(world.feeds().map(|feed| Step::Fault(Fault::Late { feed }))),
                Kind::Scheduler => {
                    steps.extend((0..world.tasks.len()).map(|task| Step::Fault(Fault::KillTask { task })));
                    steps.extend([Step::Fault(Fault::KillWaking), Step::Fault(Fault::KillLoader)]);
                }
                Kind::Twice => steps.extend(reports.map(|report| Step::Fault(Fault::Twice { report }))),
                Kind::Refuse => steps.extend(reports.map(|report| Step::Fault(Fault::Refuse { report }))),
                Kind::Schedule => steps.push(Step::Fault(Fault::LoseSchedule)),
                Kind::Restore => steps.push(Step::Fault(Fault::RestoreSchedule)),
                Kind::Gate => steps.push(Step::Fault(Fault::LoseGate)),
                Kind::Redis => steps.push(Step::Fault(Fault::LoseBoth)),
            }
        }
    }

    pub(super) fn fail(&self, world: &mut World, fault: Fault) -> Option<()> {
        world.faults += 1;
        match fault {
            Fault::KillWorker { work } => self.kill_worker(world, work),
            Fault::Redeliver { work } => {
                if !std::mem::take(&mut world.works[work].mine) {
                    return None;
                }
                let ticket = world.works[work].job.ticket;
                world
                    .jobs
                    .iter_mut()
                    .filter(|queued| queued.job.ticket == ticket)
                    .for_each(|queued| queued.taken = false);
            }
            Fault::Pause { work } => {
                let work = &mut world.works[work];
                if work.stalled || !matches!(work.phase, Phase::Fetching | Phase::Holding) {
                    return None;
                }
                work.stalled = true;
            }
            Fault::Late { feed } => {
                if world.late[index(feed)] || !world.busy(feed) {
                    return None;
                }
                world.late[index(feed)] = true;
            }
            Fault::KillTask { task } => {
                let task = world.tasks.remove(task);
                if let Some(report) = task.report() {
                    let same = world.reports.iter_mut().find(|queued| queued.taken && same_message(queued, report))?;
                    same.taken = false;
                }
                // Its short lease ends while the job is still in the queue.
                if let Task::Published { feed, .. } = task {
                    world.late[index(feed)] = true;
                }
            }
            Fault::KillWaking => drop(world.waking.take()?),
            Fault::KillLoader => drop(world.loader.take()?),
            Fault::Twice { report } => {
                let again = world.reports[report].clone();
                if again.taken {
                    return None;
                }
                world.reports.push(again);
            }
            Fault::Refuse { report } => {
                let report = world.reports.remove(report);
                if report.taken || matches!(report.answer, Answer::Deferred { .. }) {
                    return None;
                }
            }
            Fault::LoseSchedule => world.schedule = Mirror::default(),
            Fault::RestoreSchedule => {
                world.schedule = Mirror::default();
                world.feeds().for_each(|feed| world.schedule.put(feed, FAR, band(false), world.now));
            }
            Fault::LoseGate => self.lose_gate(world),
            Fault::LoseBoth => {
                world.schedule = Mirror::default();
                self.lose_gate(world);
            }
        }
        Some(())
    }

    fn kill_worker(&self, world: &mut World, work: usize) {
        let work = world.works.remove(work);
        let on_gate = world.gate.hosts.values().any(|host| host.held_until.millis() > world.now);
        if !on_gate && !hold_known(world) {
            world.truth.asked = 0;
        }
        if work.mine {
            let mine = world.jobs.iter_mut().filter(|queued| queued.job.ticket == work.job.ticket);
            mine.for_each(|queued| queued.taken = false);
        }
    }

    fn lose_gate(&self, world: &mut World) {
        if !hold_known(world) {
            world.truth.asked = 0;
        }
        let last_number = world.gate.last_number;
        world.gate = GateState::new(Timestamp::EPOCH);
        world.gate.last_number = last_number;
        world.marks = Marks::default();
        world.truth.reported.fill((-1, 0));
        world.truth.starts.fill((0, 0));
        if !self.has(Protection::BirthMark) {
            world.gate.open = true;
            world.last_mark += 1;
            world.marks.open = Some(world.last_mark);
        }
    }
}

/// Returns true if something other than the gate knows the server's request to pause: the store, a report, or a worker.
fn hold_known(world: &World) -> bool {
    let throttled = |answer: &Answer| matches!(answer, Answer::Throttled { .. });
    world.stored_hold > world.now
        || world.reports.iter().any(|report| throttled(&report.answer))
        || world.tasks.iter().filter_map(Task::report).any(|report| throttled(&report.answer))
        || world.works.iter().any(|work| work.phase == Phase::Holding)
}
