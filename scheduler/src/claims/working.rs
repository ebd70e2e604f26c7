//! The steps of workers, as in `worker/src/poll.rs` and `run.rs`: take a job, acquire, fetch, hold, publish, release,
//! ack.

use common::host_gate::{AcquireRequest, Acquired, Isolation, Permit, Release};
use common::job::FetchJob;
use common::time::Timestamp;

use super::bounds::{DEADLINE, Fleet, GAP, LEASE, Protection, QUEUE_LEASE, REMEMBERED, RETRY_AFTER};
use super::dispatching::at;
use super::world::{Answer, Broken, Phase, Report, Work, World, index};

/// The number of workers, each with one job at a time.
pub(super) const WORKERS: usize = 2;

impl Fleet {
    /// Lets a worker whose clock is `ahead` take a job.
    pub(super) fn take(&self, world: &mut World, job: usize, ahead: i64) -> Option<()> {
        let queued = &mut world.jobs[job];
        if queued.taken || world.works.len() >= WORKERS {
            return None;
        }
        let taken = queued.job.clone();
        let started = world.now + ahead;
        if started > taken.expires.millis() {
            world.gate.cancel(&self.host, taken.ticket);
            if started >= taken.expires.millis() + LEASE - QUEUE_LEASE {
                world.jobs.remove(job);
            } else {
                queued.taken = true;
                self.begin(world, taken, started, Answer::Deferred { until: started }, None);
            }
            return Some(());
        }
        queued.taken = true;
        match self.acquire(world, &taken, started) {
            Acquired::Reported => {
                world.jobs.remove(job);
            }
            Acquired::NotNow { until } => {
                let until = if world.gate.open { until.millis() } else { self.closed_until(world, world.now) };
                self.begin(world, taken, started, Answer::Deferred { until }, None);
            }
            Acquired::Suspect(_) => unreachable!("a worker of the model works one job at a time"),
            Acquired::Crashed(permit) => self.begin(world, taken, started, Answer::Crashed, Some(permit)),
            Acquired::Granted(permit) => {
                self.judge(world, &taken, started);
                if !self.has(Protection::LateAck) {
                    world.jobs.remove(job);
                }
                self.begin(world, taken, started, Answer::Good, Some(permit));
            }
        }
        Some(())
    }

    /// Calls the real gate, and compensates for a removed protection.
    fn acquire(&self, world: &mut World, job: &FetchJob, started: i64) -> Acquired {
        // By the gate's clock, whatever the worker's says.
        let now = at(world.now);
        let deadline = if self.has(Protection::TicketLife) { at(started + DEADLINE) } else { Timestamp::MAX };
        let held_until = world.gate.hosts.get(&self.host).map_or(Timestamp::EPOCH, |host| host.held_until);
        if let Some(guard) = world.gate.feeds.get_mut(&job.feed) {
            if !self.has(Protection::Token) {
                guard.token = None;
            }
            if !self.has(Protection::CrashCount) {
                guard.starts.1 = 0;
            }
        }
        if let Some(host) = world.gate.hosts.get_mut(&self.host) {
            if !self.has(Protection::HoldAtAcquire) {
                host.held_until = Timestamp::EPOCH;
            }
            if !self.has(Protection::TicketCheck) {
                host.tickets.push((job.ticket, Timestamp::MAX));
            }
            if !self.has(Protection::GapCharge) {
                (host.started, host.reserved) = (Timestamp::EPOCH, Timestamp::EPOCH);
            }
        }
        world.gate.last_number += 1;
        let nonce = world.gate.last_number;
        let request = AcquireRequest {
            host: self.host.clone(),
            limits: self.limits(),
            ticket: job.ticket,
            feed: job.feed,
            version: job.version,
            deadline,
            leased_until: Timestamp::EPOCH,
            nonce,
            isolation: Isolation::Alone,
        };
        let acquired = world.gate.acquire(&request, now);
        if let Some(host) = world.gate.hosts.get_mut(&self.host) {
            host.held_until = host.held_until.max(held_until);
        }
        if matches!(acquired, Acquired::NotNow { .. }) && !self.has(Protection::DeferredIsNoReport) {
            world.gate.feeds.entry(job.feed).or_default().reported = Some((job.version, at(started + REMEMBERED)));
        }
        acquired
    }

    fn begin(&self, world: &mut World, job: FetchJob, started: i64, answer: Answer, permit: Option<Permit>) {
        let asks = answer == Answer::Good;
        let mine = !asks || self.has(Protection::LateAck);
        let phase = if asks { Phase::Fetching } else { Phase::Published };
        let deadline = world.now + DEADLINE;
        let work = Work { phase, job, started, deadline, permit, answer, fresh: asks, stalled: false, mine };
        if !asks {
            publish(world, &work);
        }
        world.works.push(work);
    }

    /// Returns whether this request may start, judged by an observer that sees everything. Clocks may disagree by the
    /// skew, which moves the ends of permits; gaps and holds are by the gate's clock.
    fn judge(&self, world: &mut World, job: &FetchJob, started: i64) {
        let (feed, version, skew) = (job.feed.0, job.version.0, self.skew);
        let flying: Vec<&Work> = world.works.iter().filter(|work| work.flies(world.now + skew)).collect();
        let (reported, remembered) = world.truth.reported[index(feed)];
        let starts = match world.truth.starts[index(feed)] {
            (of, starts) if of == version => starts,
            _ => 0,
        };
        let broken = if flying.iter().any(|work| work.job.feed.0 == feed) {
            Some(Broken::Double)
        } else if flying.len() >= self.parallel as usize {
            Some(Broken::Parallel)
        } else if world.truth.asked > world.now {
            Some(Broken::HeldAsked)
        } else if reported >= version && remembered > started {
            Some(Broken::Refetched)
        } else if world.now - world.truth.last_start < GAP {
            Some(Broken::Gap)
        } else if u32::from(starts) >= common::host_gate::STARTS_WITHOUT_REPORT {
            Some(Broken::Deadly)
        } else {
            None
        };
        world.broken = world.broken.or(broken);
        world.truth.last_start = world.now;
        world.truth.starts[index(feed)] = (version, starts + 1);
    }

    /// Executes the next step of a worker; while it fetches, `answer` is the server's response.
    pub(super) fn work(&self, world: &mut World, work: usize, answer: Answer) -> Option<()> {
        let mut work = world.works.remove(work);
        match work.phase {
            Phase::Fetching => self.answered(world, &mut work, answer),
            Phase::Holding => {
                publish(world, &work);
                work.phase = Phase::Published;
            }
            Phase::Published => {
                self.release(world, &work);
                work.phase = Phase::Released;
            }
            Phase::Released => {
                if let (Answer::Throttled { until }, false) = (work.answer, self.has(Protection::HoldFirst)) {
                    world.gate.hold(&self.host, at(until), at(world.now));
                }
                if work.mine {
                    world.jobs.retain(|queued| !(queued.taken && queued.job.ticket == work.job.ticket));
                }
                return Some(());
            }
        }
        world.works.push(work);
        Some(())
    }

    fn answered(&self, world: &mut World, work: &mut Work, answer: Answer) {
        work.answer = answer;
        if let Answer::Throttled { .. } = answer {
            let until = world.now + RETRY_AFTER;
            work.answer = Answer::Throttled { until };
            world.throttles -= 1;
            world.truth.asked = until;
            if self.has(Protection::HoldFirst) {
                world.gate.hold(&self.host, at(until), at(world.now));
                work.phase = Phase::Holding;
                return;
            }
        }
        publish(world, work);
        work.phase = Phase::Published;
    }

    fn release(&self, world: &mut World, work: &Work) {
        let (feed, now) = (work.job.feed, at(world.now));
        let deferred = matches!(work.answer, Answer::Deferred { .. });
        let until = world.now + REMEMBERED;
        if !deferred {
            world.truth.reported[index(feed.0)] = (work.job.version.0, until);
            world.truth.starts[index(feed.0)] = (work.job.version.0, 0);
        }
        let remembered = (!deferred && self.has(Protection::ReportedMemory)).then(|| at(until).since(now));
        if !self.has(Protection::OwnRelease) {
            // By feed and by ticket, whichever worker took them.
            world.gate.cancel(&self.host, work.job.ticket);
            if let Some((nonce, _)) = world.gate.feeds.get(&feed).and_then(|guard| guard.token) {
                let permit = Permit { host: self.host.clone(), feed: Some(feed), version: work.job.version, nonce };
                world.gate.release(&permit, Release { remembered, next_start_in: None }, now);
            }
            if remembered.is_some() {
                world.gate.feeds.entry(feed).or_default().reported = Some((work.job.version, at(until)));
            }
        } else if let Some(permit) = &work.permit {
            world.gate.release(permit, Release { remembered, next_start_in: None }, now);
        }
    }
}

fn publish(world: &mut World, work: &Work) {
    world.reports.push(Report {
        feed: work.job.feed.0,
        version: work.job.version.0,
        started: work.started,
        answer: work.answer,
        answers_wake: work.job.wake_at.map(Timestamp::millis),
        fresh: work.fresh,
        taken: false,
    });
}
