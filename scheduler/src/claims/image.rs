//! A world as a row of numbers, by which the model distinguishes worlds.

use std::hash::{Hash, Hasher};

use common::job::FetchJob;
use common::time::Timestamp;

use super::bounds::{AHEAD, DEADLINE, FAR, GAP, LEASE, SKEW};
use super::world::{Answer, QueuedJob, Report, Task, Work, World, index};
use crate::schedule::mirror::At;

impl World {
    /// Everything that decides what can happen from here on, with times relative to now and names in order of
    /// appearance: worlds with the same image have the same future.
    pub(super) fn image(&self) -> Vec<i64> {
        let mut image = Image { now: self.now, floor: self.floor(), ids: Vec::new(), seen: Vec::with_capacity(96) };
        image.flag(self.faults.into());
        image.flag(i64::from(self.wakes) << 8 | i64::from(self.throttles));
        image.flag(self.broken.map_or(0, |broken| 1 + broken as i64));
        self.jobs.iter().for_each(|queued| image.queued(queued, self));
        image.flag(-101);
        self.reports.iter().for_each(|report| image.report(report, self));
        image.flag(-102);
        self.tasks.iter().for_each(|task| image.task(task, self));
        image.flag(-103);
        self.works.iter().for_each(|work| image.work(work, self));
        image.flag(-104);
        for feed in self.feeds() {
            image.feed(feed, self);
        }
        for (band, at) in self.schedule.heads.values().map(|(at, band)| (*band, *at)) {
            image.flag(band as i64);
            image.time(at);
        }
        image.gate(self);
        image.time(self.stored_hold);
        image.time(self.truth.asked);
        image.time(self.truth.last_start + GAP);
        image.seen
    }

    /// Returns the earliest time that a part of the fleet still takes for now.
    fn floor(&self) -> i64 {
        let claimed = self.tasks.iter().filter_map(|task| match task {
            Task::Claimed { now, .. } => Some(*now),
            _ => None,
        });
        claimed.min().unwrap_or(self.now).min(self.now) - 1
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.image().hash(state);
    }
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        self.image() == other.image()
    }
}

struct Image {
    now: i64,
    floor: i64,
    ids: Vec<u64>,
    seen: Vec<i64>,
}

impl Image {
    fn flag(&mut self, value: i64) {
        self.seen.push(value);
    }

    /// Adds a time; all times that have passed look the same.
    fn time(&mut self, at: i64) {
        self.seen.push(if at >= AHEAD { at.min(FAR) } else { at.max(self.floor) - self.now });
    }

    fn maybe(&mut self, at: Option<i64>) {
        match at {
            Some(at) => self.time(at),
            None => self.flag(i64::MIN),
        }
    }

    fn id(&mut self, id: u64) {
        let place = self.ids.iter().position(|known| *known == id).unwrap_or_else(|| {
            self.ids.push(id);
            self.ids.len() - 1
        });
        self.seen.push(place as i64);
    }

    /// A fetch's start, as far as it can matter: to the host, to the wake that waits, and to those that may come.
    fn started(&mut self, at: i64, known: Option<i64>, wake: Option<i64>) {
        self.seen.push((at - self.now).max(-GAP));
        let mut signs = i64::from(known.zip(wake).is_some_and(|(known, wake)| wake <= known));
        for skew in [0, SKEW] {
            signs = signs * 4 + i64::from(known.is_some_and(|known| known <= at + skew)) * 2;
            signs += i64::from(wake.is_some_and(|wake| wake + skew < at));
        }
        self.seen.push(signs);
    }

    fn job(&mut self, job: &FetchJob, world: &World) {
        let row = world.row(job.feed.0);
        self.flag(job.feed.0);
        self.flag(row.version - job.version.0);
        self.id(job.ticket.0);
        self.time(job.expires.millis());
        let known = job.wake_at.map(Timestamp::millis);
        self.seen.push(known.map_or(i64::MIN, |known| (known - world.now).max(-1)));
        self.seen.push(known.zip(row.wake).map_or(i64::MIN, |(known, wake)| (known - wake).clamp(-1, 1)));
    }

    fn queued(&mut self, queued: &QueuedJob, world: &World) {
        self.flag(-201 - i64::from(queued.taken));
        self.job(&queued.job, world);
    }

    fn answer(&mut self, answer: Answer) {
        match answer {
            Answer::Good => self.flag(0),
            Answer::Gone => self.flag(1),
            Answer::Crashed => self.flag(2),
            Answer::Throttled { until } => {
                self.flag(3);
                self.time(until);
            }
            Answer::Deferred { until } => {
                self.flag(4);
                self.time(until);
            }
        }
    }

    fn report(&mut self, report: &Report, world: &World) {
        let row = world.row(report.feed);
        self.flag(-211 - i64::from(report.taken) - 2 * i64::from(report.fresh));
        self.flag(report.feed);
        self.flag(row.version - report.version);
        self.answer(report.answer);
        self.started(report.started, report.answers_wake, row.wake);
    }

    fn task(&mut self, task: &Task, world: &World) {
        match task {
            Task::Claimed { feed, row, now, parked } => {
                self.flag(-230 - i64::from(*parked));
                self.flag(*feed);
                self.flag(world.row(*feed).version - row.version);
                self.flag(i64::from(row.live));
                self.maybe(row.next_due);
                self.maybe(row.wake);
                self.flag(now - self.now);
            }
            Task::Reserved { job } => {
                self.flag(-222);
                self.job(job, world);
            }
            Task::Refused { feed, until, woken } => {
                self.flag(-223 - i64::from(*woken));
                self.flag(*feed);
                self.time(*until);
            }
            Task::Published { feed, until } => {
                self.flag(-232);
                self.flag(*feed);
                self.time(*until);
            }
            Task::Received { report, give_up, ahead } => {
                self.flag(-225);
                self.report(report, world);
                self.time(*give_up);
                self.flag(*ahead);
            }
            Task::Held { report, give_up } => {
                self.flag(-226);
                self.report(report, world);
                self.time(*give_up);
            }
            Task::Stored { report, due, woken, give_up } => {
                self.flag(-227 - i64::from(*woken));
                self.report(report, world);
                self.maybe(*due);
                self.time(*give_up);
            }
        }
    }

    fn work(&mut self, work: &Work, world: &World) {
        self.flag(
            work.phase as i64 * 8 + i64::from(work.fresh) * 4 + i64::from(work.stalled) * 2 + i64::from(work.mine),
        );
        self.job(&work.job, world);
        self.answer(work.answer);
        self.time(work.deadline);
        self.id(work.permit.as_ref().map_or(0, |permit| permit.nonce));
        self.started(work.started, work.job.wake_at.map(Timestamp::millis), world.row(work.job.feed.0).wake);
    }

    fn feed(&mut self, feed: i64, world: &World) {
        let row = world.row(feed);
        self.flag(i64::from(row.live) * 2 + i64::from(world.late[index(feed)]));
        self.maybe(row.next_due);
        self.maybe(row.wake);
        match world.schedule.feeds.get(&feed) {
            None => self.flag(0),
            Some(At::Waiting { due, band }) => {
                self.flag(1 + *band as i64);
                self.time(*due);
            }
            Some(At::Leased { until, band, woken }) => {
                self.flag(10 + *band as i64 + 10 * i64::from(*woken));
                self.time(*until);
            }
            Some(At::Parked { rank, band, .. }) => {
                self.flag(30 + *band as i64);
                self.flag(*rank);
            }
        }
        self.flag(match world.waking {
            Some((woken, at)) if woken == feed => (at - world.now).max(-1),
            _ => i64::MIN,
        });
        self.flag(i64::from(world.truth.owed[index(feed)]));
        let (version, until) = world.truth.reported[index(feed)];
        let remembered = until > self.floor;
        self.flag(if remembered { row.version - version } else { i64::MIN });
        self.time(if remembered { until } else { 0 });
        let (version, starts) = world.truth.starts[index(feed)];
        self.flag(if version >= row.version { i64::from(starts) } else { 0 });
        self.guard(feed, world);
    }

    fn guard(&mut self, feed: i64, world: &World) {
        let version = world.row(feed).version;
        let Some(guard) = world.gate.feeds.get(&common::url::FeedId(feed)) else {
            [i64::MIN; 5].into_iter().for_each(|value| self.flag(value));
            return;
        };
        match guard.token.filter(|(_, end)| end.millis() > self.floor) {
            Some((nonce, end)) => {
                self.id(nonce);
                self.time(end.millis());
            }
            None => [i64::MIN; 2].into_iter().for_each(|value| self.flag(value)),
        }
        match guard.reported.filter(|(_, until)| until.millis() > self.floor) {
            Some((reported, until)) => {
                self.flag(version - reported.0);
                self.time(until.millis());
            }
            None => [i64::MIN; 2].into_iter().for_each(|value| self.flag(value)),
        }
        self.flag(if guard.starts.0.0 >= version { guard.starts.1.into() } else { 0 });
    }

    fn gate(&mut self, world: &World) {
        let (gate, floor) = (&world.gate, self.floor);
        self.flag(i64::from(gate.open));
        self.time(gate.born.millis() + GAP);
        self.flag(world.marks.open.map_or(-1, |nonce| (world.last_mark - nonce) as i64));
        if let Some((nonce, lost, opens)) = world.marks.loading {
            self.flag((world.last_mark - nonce) as i64);
            self.time(lost + GAP);
            self.time(opens);
        }
        if let Some(loader) = world.loader {
            self.flag((world.last_mark - loader.nonce) as i64);
            self.flag((loader.begun - world.now).max(-LEASE - DEADLINE));
        }
        for host in gate.hosts.values() {
            self.time(host.reserved.millis());
            self.time(host.started.millis());
            self.time(host.held_until.millis());
            for (ticket, end) in host.tickets.iter().filter(|(_, end)| end.millis() > floor) {
                self.id(ticket.0);
                self.time(end.millis());
            }
            self.flag(-105);
            for (nonce, end) in host.flights.iter().filter(|(_, end)| end.millis() > floor) {
                self.id(*nonce);
                self.time(end.millis());
            }
        }
    }
}
