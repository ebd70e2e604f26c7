//! Calm runs: the behaviour of a fleet in which no more faults occur and every part does its work.
//!
//! From every explored world such a run is followed, in one fixed order, until the feed in question is polled or its
//! wake is answered. A run that joins an earlier one ends there, so the cost is about one step per world.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::bounds::{Fleet, LEASE};
use super::world::{Answer, Phase, World, index};
use super::{Model, Step};
use crate::schedule::mirror::At;

/// What a calm run is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    /// The feed is polled, or turns out to be gone.
    Polled,
    /// The same, or a report in flight makes it due later.
    Served,
    /// Its wake is answered.
    Answered,
}

/// What a calm run may rely on besides the processing of jobs and reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Help {
    None,
    Reconcile,
    /// Also due times of feeds.
    All,
}

/// Longer than any successful calm run takes.
const NEVER: i64 = 30 * LEASE;

impl Fleet {
    /// Checks that every live feed is eventually polled again.
    pub(super) fn nothing_is_lost(&self, world: &World) -> bool {
        world.feeds().all(|feed| self.time_to(world, feed, Goal::Polled, Help::All) < NEVER)
    }

    /// Checks that a parked, due feed is polled soon, without help from another feed's due time or the reconciler.
    pub(super) fn nothing_is_stranded(&self, world: &World) -> bool {
        let parked = |feed| matches!(world.schedule.feeds.get(&feed), Some(At::Parked { .. }));
        let mut in_question = world.feeds().filter(|feed| parked(*feed) && due(world, *feed));
        self.feeds == 1 || in_question.all(|feed| self.time_to(world, feed, Goal::Served, Help::None) < NEVER)
    }

    /// Checks that a wake is answered before the feed's ordinary due time.
    pub(super) fn no_wake_is_swallowed(&self, world: &World) -> bool {
        self.wakes_are_answered(world, Help::Reconcile)
    }

    /// Checks the same without the reconciler, if no fault occurred.
    pub(super) fn no_wake_is_late(&self, world: &World) -> bool {
        world.faults > 0 || self.wakes_are_answered(world, Help::None)
    }

    fn wakes_are_answered(&self, world: &World, help: Help) -> bool {
        let waking = world.waking.map(|(feed, _)| feed);
        let mut owed = world.feeds().filter(|feed| world.truth.owed[index(*feed)] && waking != Some(*feed));
        owed.all(|feed| self.time_to(world, feed, Goal::Answered, help) < NEVER)
    }

    /// Returns how long a calm run takes to the goal.
    fn time_to(&self, world: &World, feed: i64, goal: Goal, help: Help) -> i64 {
        let asked = feed * 16 + goal as i64 * 4 + help as i64;
        let mut way: Vec<(u64, i64)> = Vec::new();
        let mut world = world.clone();
        let began = world.now;
        let rest = loop {
            if reached(&world, feed, goal) {
                break 0;
            }
            let print = fingerprint(&world);
            if let Some(known) = self.known.lock().unwrap().get(&(asked, print)) {
                break *known;
            }
            way.push((print, world.now));
            let next = if world.now - began > NEVER { None } else { self.calm(&world, feed, help) };
            let Some(next) = next else { break NEVER };
            if next.broken.is_some() || goal != Goal::Answered && polled(&world, &next, feed) {
                break next.now - world.now;
            }
            world = next;
        };
        let end = world.now;
        let mut known = self.known.lock().unwrap();
        known.extend(way.iter().map(|(print, at)| ((asked, *print), (end - at + rest).min(NEVER))));
        (end - began + rest).min(NEVER)
    }

    /// Returns the next step of a calm run: work first, then waiting.
    fn calm(&self, world: &World, asked: i64, help: Help) -> Option<World> {
        let good = |work| Step::Work { work, answer: Answer::Good };
        let steps = [Step::Lower, Step::Open, Step::Load].into_iter();
        let steps = steps.chain((0..world.works.len()).map(good));
        let steps = steps.chain((0..world.tasks.len()).map(|task| Step::Go { task }));
        let steps = steps.chain((0..world.reports.len()).map(|report| Step::Receive { report, ahead: 0 }));
        let steps = steps.chain((0..world.jobs.len()).map(|job| Step::Take { job, ahead: 0 }));
        let steps = steps.chain(world.feeds().map(|feed| Step::Claim { feed, ahead: 0 }));
        let steps = steps.chain(world.feeds().filter(|_| help != Help::None).map(|feed| Step::Correct { feed }));
        let steps = steps.chain([Step::Pass]);
        let due = std::iter::once(asked).chain(world.feeds()).filter(|_| help == Help::All);
        let mut steps = steps.chain(due.map(|feed| Step::Due { feed }));
        steps.find_map(|step| self.next_state(world, step))
    }
}

fn due(world: &World, feed: i64) -> bool {
    world.row(feed).next_due.is_some_and(|due| due <= world.now)
}

fn reached(world: &World, feed: i64, goal: Goal) -> bool {
    match goal {
        Goal::Polled => !world.row(feed).live,
        Goal::Served => !world.row(feed).live || !due(world, feed),
        Goal::Answered => !world.truth.owed[index(feed)] || !world.row(feed).live,
    }
}

fn polled(before: &World, after: &World, feed: i64) -> bool {
    let asking = |world: &World| {
        world.works.iter().filter(|work| work.job.feed.0 == feed && work.phase == Phase::Fetching).count()
    };
    asking(after) > asking(before)
}

fn fingerprint(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}
