//! Time: it jumps to the next expiry, and waits for parts that must act first.

use super::bounds::{AHEAD, Fleet};
use super::world::{Phase, Task, World, expires, index};
use crate::schedule::mirror::At;

impl Fleet {
    /// Advances to the next point in time that can make a difference; `None` if some part has to act first.
    pub(super) fn pass(&self, world: &mut World) -> Option<()> {
        let next = self.points(world).into_iter().filter(|at| *at > world.now).min()?;
        if self.somebody_must_act(world, next) {
            return None;
        }
        world.now = next;
        Some(())
    }

    /// Reaches a feed's next due time, once nothing of its last poll is left.
    pub(super) fn due(&self, world: &mut World, feed: i64) -> Option<()> {
        if world.row(feed).next_due != Some(AHEAD) || world.busy(feed) {
            return None;
        }
        let now = world.now;
        world.row_mut(feed).next_due = Some(now);
        if let Some(At::Waiting { due, .. }) = world.schedule.feeds.get_mut(&feed)
            && *due == AHEAD
        {
            *due = now;
        }
        Some(())
    }

    fn points(&self, world: &World) -> Vec<i64> {
        let mut points = Vec::with_capacity(32);
        points.extend(world.schedule.feeds.values().filter_map(|at| match at {
            At::Waiting { due: at, .. } | At::Leased { until: at, .. } => Some(*at),
            At::Parked { .. } => None,
        }));
        points.extend(world.schedule.heads.values().map(|head| head.0));
        points.extend(world.rows.iter().flat_map(|row| [row.next_due, row.wake]).flatten());
        for host in world.gate.hosts.values() {
            points.extend([host.held_until.millis()]);
            points.extend(host.tickets.iter().map(|(_, end)| end.millis()));
            points.extend(host.flights.iter().map(|(_, end)| end.millis()));
        }
        for guard in world.gate.feeds.values() {
            points.extend(guard.token.map(|(_, end)| end.millis()));
            points.extend(guard.reported.map(|(_, until)| until.millis()));
        }
        points.extend(world.marks.loading.map(|(_, _, opens)| opens));
        points.extend([world.truth.asked, world.gate.born.after(self.limits().gap).millis()]);
        points.extend(world.works.iter().map(|work| work.deadline));
        for queued in world.jobs.iter().filter(|queued| world.late[index(queued.job.feed.0)]) {
            points.push(expires(queued) + 1_000);
        }
        points.retain(|at| *at < AHEAD);
        if self.skew > 0 {
            points.extend(points.clone().into_iter().map(|at| at - self.skew));
        }
        points
    }

    /// Returns true if some part must act before `at`. Without a fault nothing misses a deadline: a request ends before
    /// its token, a job is taken before it (and its ticket) expires, and a lease outlives the work that it covers.
    fn somebody_must_act(&self, world: &World, at: i64) -> bool {
        let late = |feed: i64| world.late[index(feed)];
        let fetching = world.works.iter().any(|work| {
            let flying = matches!(work.phase, Phase::Fetching | Phase::Holding);
            flying && !work.stalled && !late(work.job.feed.0) && work.deadline <= at
        });
        let queued = world
            .jobs
            .iter()
            .any(|queued| !queued.taken && !late(queued.job.feed.0) && expires(queued) <= at + self.skew);
        let leased = world.schedule.feeds.iter().any(|(feed, place)| {
            let ends = matches!(place, At::Leased { until, .. } if *until <= at + self.skew);
            ends && !late(*feed) && world.busy(*feed)
        });
        let in_hand = world.tasks.iter().any(|task| match task {
            Task::Received { give_up, .. } | Task::Held { give_up, .. } | Task::Stored { give_up, .. } => {
                *give_up <= at
            }
            Task::Claimed { feed, .. } | Task::Published { feed, .. } => !late(*feed),
            Task::Reserved { job } => job.expires.millis() <= at + self.skew && !late(job.feed.0),
            _ => false,
        });
        fetching || queued || leased || in_hand
    }
}
