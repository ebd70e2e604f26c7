//! The steps of schedulers: claim, reserve, park, publish; receive, store, reschedule; wake, reconcile, open the gate.

use std::time::Duration;

use common::document::Validators;
use common::host_gate::{Reservation, ReserveRequest, UNOPENED_RETRY};
use common::known::KnownEntries;
use common::outcome::FailureKind;
use common::policy::{Category, Decision, Status, Terms};
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;
use common::url::{FeedId, Version};

use super::bounds::{AHEAD, CLAIM_LEASE, DEADLINE, FAR, Fleet, LEASE, Protection, SKEW};
use super::world::{Answer, Broken, Loader, QueuedJob, Report, Row, Task, World, band, index};
use crate::poll::dispatch::{job, sort};
use crate::schedule::mirror::{At, name};
use crate::schedule::{Claim, Slot};
use store::{JobRow, Verdict};
use store::{row_after, wake_after};

/// The only host, as the schedule's mirror has it.
const HOST: u8 = 0;

pub(super) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

impl Fleet {
    /// Lets a scheduler whose clock is `ahead` claim a feed that is due, or parked at a host whose head is due, and
    /// read its row.
    pub(super) fn claim(&self, world: &mut World, feed: i64, ahead: i64) -> Option<()> {
        let now = world.now + ahead;
        let (parked, expired, earliest, band) = match world.schedule.feeds.get(&feed)? {
            At::Waiting { due, band } => (false, false, *due, *band),
            At::Leased { until, band, .. } => (false, true, *until, *band),
            At::Parked { rank, band, .. } => {
                let (head, head_band) = *world.schedule.heads.get(&HOST)?;
                // The order of the feeds that wait for a host is not modelled, except that a woken one comes first.
                if *rank != i64::MIN && world.schedule.top(HOST)?.0 == i64::MIN {
                    return None;
                }
                let rank = (*rank).min(-1);
                world.schedule.feeds.insert(feed, At::Parked { host: HOST, rank, band: *band });
                (true, false, head, head_band)
            }
        };
        if earliest > world.now || world.tasks.len() >= self.tasks {
            return None;
        }
        let claim = Claim { feed: FeedId(feed), parked_at: parked.then(|| name(HOST)), lease_expired: expired };
        world.schedule.claim(&claim, band, earliest, CLAIM_LEASE, world.now);
        if !self.has(Protection::ParkedHead) {
            self.never_head(world);
        }
        if !self.has(Protection::Lease) {
            world.schedule.remove(feed);
        }
        world.late[index(feed)] = false;
        let row = *world.row(feed);
        world.tasks.push(Task::Claimed { feed, row, now, parked });
        Some(())
    }

    /// Moves the host's head to a time that never comes.
    fn never_head(&self, world: &mut World) {
        if let Some(head) = world.schedule.heads.get_mut(&HOST) {
            head.0 = FAR;
        }
    }

    /// Executes the next step of a scheduler's task.
    pub(super) fn go(&self, world: &mut World, task: usize) -> Option<()> {
        match world.tasks.remove(task) {
            Task::Claimed { feed, row, now, parked } => self.correct_or_reserve(world, feed, row, now, parked),
            Task::Reserved { job } => {
                if world.jobs.len() >= self.queue {
                    return None;
                }
                let (feed, until) = (job.feed.0, job.expires.millis() - self.queue_lease + LEASE);
                world.jobs.push(QueuedJob { job: *job, taken: false });
                world.tasks.push(Task::Published { feed, until });
            }
            Task::Published { feed, until } => world.schedule.extend(feed, until),
            Task::Refused { feed, until, woken } => {
                let unreachable = world.schedule.heads.get(&HOST).is_none_or(|head| head.0 >= FAR);
                world.schedule.park(feed, HOST, band(woken), until, 0);
                if !self.has(Protection::ParkedHead) && unreachable {
                    self.never_head(world);
                }
            }
            Task::Received { report, give_up, .. } => {
                if let Answer::Throttled { until } = report.answer {
                    world.gate.hold(&self.host, at(until), at(world.now));
                }
                world.tasks.push(Task::Held { report, give_up });
            }
            Task::Held { report, give_up } => self.store(world, report, give_up),
            Task::Stored { report, due, woken, .. } => {
                match due {
                    Some(due) => world.schedule.put(
                        report.feed,
                        self.still_ahead(world, report.feed, due),
                        band(woken),
                        world.now,
                    ),
                    None => world.schedule.remove(report.feed),
                }
                if let (Answer::Throttled { .. }, true) = (report.answer, world.stored_hold > world.now) {
                    world.gate.hold(&self.host, at(world.stored_hold), at(world.now));
                }
                self.acked(world, &report);
            }
        }
        Some(())
    }

    /// Returns a due time that was read while it was in the future, and may have come since.
    fn still_ahead(&self, world: &World, feed: i64, due: i64) -> i64 {
        if due == AHEAD { world.row(feed).next_due.unwrap_or(AHEAD) } else { due }
    }

    /// Acknowledges a report, whatever its outcome was.
    fn acked(&self, world: &mut World, report: &Report) {
        world.schedule.unpark(HOST, report.started + super::bounds::GAP);
        let mine = world.reports.iter().position(|queued| queued.taken && same_message(queued, report));
        world.reports.remove(mine.expect("a report in hand is in the queue"));
    }

    fn correct_or_reserve(&self, world: &mut World, feed: i64, row: Row, now: i64, parked: bool) {
        let claim = Claim { feed: FeedId(feed), parked_at: parked.then(|| self.host.clone()), lease_expired: false };
        let rows = row.live.then(|| self.job_row(feed, &row));
        let sorted = sort(vec![claim], rows.into_iter().collect(), at(now));
        sorted.dead.iter().for_each(|feed| world.schedule.remove(feed.0));
        for Slot { feed, due_at, band } in sorted.early {
            let due = self.still_ahead(world, feed.0, due_at.millis());
            world.schedule.put(feed.0, due, band, now);
        }
        for (_, free) in sorted.idle {
            world.schedule.unpark(HOST, free.millis());
        }
        for (row, _) in sorted.due {
            let woken = row.wake_at.is_some_and(|wake| wake <= row.next_due);
            let task = match self.reserve(world, now) {
                Ok((request, ticket)) => Task::Reserved { job: Box::new(job(row, request, ticket, at(now))) },
                Err(until) => Task::Refused { feed, until, woken },
            };
            world.tasks.push(task);
        }
    }

    fn job_row(&self, feed: i64, row: &Row) -> JobRow {
        JobRow {
            archive: None,
            page: false,
            credentials: None,
            id: FeedId(feed),
            version: Version(row.version),
            url: self.url.clone(),
            category: Category::C,
            next_due: at(row.next_due.unwrap_or(FAR)),
            wake_at: row.wake.map(at),
            validators: Validators::default(),
            content_hash: None,
            known: KnownEntries::default(),
            head_first: None,
            no_delta_until: None,
            epochs: 0,
            signed: false,
            detour: None,
            by_hand: false,
            subscribers: 0,
        }
    }

    fn reserve(&self, world: &mut World, now: i64) -> Result<(ReserveRequest, common::host_gate::Ticket), i64> {
        let expires = at(now + self.queue_lease);
        let mut request = ReserveRequest { host: self.host.clone(), limits: self.limits(), expires };
        if !self.has(Protection::TicketLife) {
            request.expires = Timestamp::MAX;
        } else if !self.has(Protection::LongTicket) {
            request.expires = at(now + 1_000);
        }
        if let (Some(host), false) = (world.gate.hosts.get_mut(&self.host), self.has(Protection::GapCharge)) {
            (host.started, host.reserved) = (Timestamp::EPOCH, Timestamp::EPOCH);
        }
        // By the gate's clock, whatever the scheduler's says.
        match world.gate.reserve(&request, at(world.now)) {
            Reservation::Ticket(ticket) => Ok((ReserveRequest { expires, ..request }, ticket)),
            Reservation::Refused { .. } if !world.gate.open => Err(self.closed_until(world, world.now)),
            Reservation::Refused { until } => Err(until.millis()),
        }
    }

    /// Returns when to try a closed gate again.
    pub(super) fn closed_until(&self, world: &World, now: i64) -> i64 {
        let opens = world.marks.loading.map_or(0, |(_, _, opens)| opens);
        at(now).after(UNOPENED_RETRY).millis().max(opens)
    }

    /// Lets a scheduler receive a report.
    pub(super) fn receive(&self, world: &mut World, report: usize, ahead: i64) -> Option<()> {
        let queued = &mut world.reports[report];
        if queued.taken || world.tasks.len() >= self.tasks {
            return None;
        }
        queued.taken = true;
        let report = queued.clone();
        let give_up = world.now + DEADLINE;
        world.tasks.push(match report.answer {
            Answer::Throttled { .. } => Task::Received { report, give_up, ahead },
            _ => Task::Held { report, give_up },
        });
        Some(())
    }

    /// Decides and stores.
    fn store(&self, world: &mut World, report: Report, give_up: i64) {
        let row = *world.row(report.feed);
        let version = if self.has(Protection::VersionCheck) { report.version } else { row.version };
        if let Answer::Deferred { until } = report.answer {
            if report.version == row.version {
                let woken = row.wake.is_some();
                world.tasks.push(Task::Stored { report, due: Some(until), woken, give_up });
            } else {
                self.acked(world, &report);
            }
            return;
        }
        let verdict = self.verdict(&report, version);
        let next_due = verdict.decision.next_due.map(Timestamp::millis);
        let status = verdict.decision.status;
        let after = row_after(verdict, (row.version, row.wake), Duration::from_millis(SKEW.unsigned_abs()));
        let Some((mut due, mut wake)) = after.filter(|_| row.live) else { return self.acked(world, &report) };
        if !self.has(Protection::YoungerWakes) {
            (due, wake) = (next_due.map(at), None);
        }
        if report.version < row.version {
            world.broken = Some(Broken::AcceptedTwice);
        }
        if let Answer::Throttled { until } = report.answer {
            world.stored_hold = world.stored_hold.max(until);
        }
        let live = status == Status::Active;
        let wake_at = wake.map(Timestamp::millis);
        *world.row_mut(report.feed) = Row { version: row.version + 1, next_due, wake: wake_at, live };
        if report.fresh || !live {
            world.truth.owed[index(report.feed)] = false;
        }
        world.truth.starts[index(report.feed)] = (row.version + 1, 0);
        let due = due.map(Timestamp::millis);
        world.tasks.push(Task::Stored { report, due, woken: wake.is_some(), give_up });
    }

    fn verdict(&self, report: &Report, version: i64) -> Verdict {
        let (outcome, status, next) = match report.answer {
            Answer::Gone => (Outcome::Gone, Status::Gone, None),
            Answer::Crashed => {
                let outcome = Outcome::Failed { failure: FailureKind::Crashed, detail: String::new() };
                (outcome, Status::Active, Some(AHEAD))
            }
            Answer::Throttled { until } => {
                (Outcome::Throttled { retry_after: Some(at(until)) }, Status::Active, Some(AHEAD))
            }
            _ => (Outcome::NotModified { validators: Validators::default() }, Status::Active, Some(AHEAD)),
        };
        let (feed, version) = (FeedId(report.feed), Version(version));
        let mut fetched = FetchReport::of(feed, version, self.host.clone(), at(report.started), outcome);
        fetched.answers_wake = report.answers_wake.map(at);
        let decision = Decision {
            state: common::policy::PollState::default(),
            status,
            next_due: next.map(at),
            terms: Terms::default(),
            host_hold: None,
            notices: common::policy::Notices::default(),
        };
        Verdict {
            report: fetched,
            decision,
            category: Category::C,
            audience_at: Timestamp::EPOCH,
            push: None,
            archive: None,
            seen: None,
        }
    }

    /// Stores a wake.
    pub(super) fn wake(&self, world: &mut World, feed: i64, ahead: i64) -> Option<()> {
        if world.wakes == 0 || world.waking.is_some() || !world.row(feed).live {
            return None;
        }
        let now = world.now + ahead;
        let row = world.row_mut(feed);
        row.wake = match row.wake {
            Some(before) if !self.has(Protection::WakeMovesUp) => Some(before),
            before => Some(wake_after(before, None, now, now)),
        };
        world.waking = row.wake.map(|wake| (feed, wake.min(row.next_due.unwrap_or(FAR))));
        world.wakes -= 1;
        world.truth.owed[index(feed)] = true;
        let works = world.works.iter_mut().filter(|work| work.job.feed.0 == feed).map(|work| &mut work.fresh);
        let reports = world.reports.iter_mut().filter(|report| report.feed == feed).map(|report| &mut report.fresh);
        works.chain(reports).for_each(|fresh| *fresh = false);
        let in_hand = world.tasks.iter_mut().filter_map(Task::report_mut);
        in_hand.filter(|report| report.feed == feed).for_each(|report| report.fresh = false);
        Some(())
    }

    /// Forwards the stored wake to the schedule.
    pub(super) fn lower(&self, world: &mut World) -> Option<()> {
        let (feed, due) = world.waking.take()?;
        let leased = matches!(world.schedule.feeds.get(&feed), Some(At::Leased { until, .. }) if *until > world.now);
        if self.has(Protection::RememberedWake) || !leased {
            world.schedule.lower(feed, due, band(true), world.now);
        }
        Some(())
    }

    /// Reconciles a feed; `None`: it is correct.
    pub(super) fn correct(&self, world: &mut World, feed: i64) -> Option<()> {
        let row = *world.row(feed);
        if !row.live || !self.has(Protection::Reconcile) {
            return None;
        }
        let wake = row.wake.filter(|_| self.has(Protection::ReconciledWake));
        let due = wake.unwrap_or(FAR).min(row.next_due.unwrap_or(FAR));
        let wrong = world.schedule.correct(feed, due, band(wake.is_some()), LEASE + SKEW, world.now);
        (wrong > 0).then_some(())
    }

    /// Lets a scheduler find the gate closed. It records the loss; once the requests from before the loss have ended it
    /// loads the holds, if no report is queued.
    pub(super) fn load(&self, world: &mut World) -> Option<()> {
        if world.marks.open.is_some() || world.loader.is_some() {
            return None;
        }
        let closed = if self.has(Protection::FetchDeadline) { DEADLINE } else { 0 };
        let known = world.marks.loading;
        let (nonce, _, opens) = known.unwrap_or_else(|| {
            world.last_mark += 1;
            (world.last_mark, world.now, world.now + closed)
        });
        if known.is_none() {
            let lost = if self.has(Protection::GapAfterLoss) { world.now } else { 0 };
            world.marks.loading = Some((nonce, lost, opens));
        }
        let drained = world.reports.iter().all(|report| report.taken) || !self.has(Protection::DrainedReports);
        if world.now < opens || !drained {
            return known.is_none().then_some(());
        }
        world.gate.hold(&self.host, at(world.stored_hold), at(world.now));
        world.loader = Some(Loader { nonce, begun: world.now });
        Some(())
    }

    /// Lets the scheduler that loaded the holds open the gate, if it was not lost again.
    pub(super) fn open(&self, world: &mut World) -> Option<()> {
        let loader = world.loader.take()?;
        let loading = world.marks.loading.filter(|(nonce, _, opens)| *nonce == loader.nonce && loader.begun >= *opens);
        if loading.is_none() && self.has(Protection::LoadFence) {
            return Some(());
        }
        world.gate.open = true;
        world.gate.born = at(loading.map_or(0, |(_, lost, _)| lost));
        world.marks.open = Some(loader.nonce);
        world.marks.loading = None;
        Some(())
    }
}

/// Returns true if both are the same message, whatever was learned about it since.
pub(super) fn same_message(one: &Report, other: &Report) -> bool {
    (one.feed, one.version, one.started, one.answer) == (other.feed, other.version, other.started, other.answer)
}
