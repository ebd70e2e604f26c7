//! From due to job: steps 1 to 3 of a feed's life.
//!
//! A round claims what is due, corrects what the schedule had wrong, reserves a slot at each feed's host, parks the
//! feeds of busy hosts, and publishes jobs for the rest. It fetches nothing and decides nothing about due times. Any
//! number of dispatchers may run at once; a round that dies half way is repaired by the leases of what it claimed: a
//! short one until a job is in the queue, and only then one for the job and its fetch.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use common::config::Config;
use common::host::{HostKey, HostLimits};
use common::host_gate::{HostGate, Reservation, ReserveRequest, Ticket};
use common::job::FetchJob;
use common::live_rules::LiveRules;
use common::metrics::Metrics;
use common::policy::{Category, Policy};
use common::queue::{Queue, QueueDepth, QueueError};
use common::report::FetchReport;
use common::time::{Clock, ClockWatch, Timestamp};
use common::url::FeedId;
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::condition::Condition;
use crate::condition::failure_log::FailureLog;
use crate::condition::pace::Pace;
use crate::error::BackendError;
use crate::poll::retire::retire;
use crate::poll::subject::{band, standing};
use crate::poll::{archive, new_rules, open_minutes};
use crate::schedule::{Band, Claim, Parking, Schedule, ScheduleError, Slot};
use store::{JobRow, Store};

/// Turns due feeds into jobs.
pub struct Dispatcher {
    /// The truth about feeds.
    pub store: Arc<dyn Store>,
    /// When they are due.
    pub schedule: Arc<dyn Schedule>,
    /// Whether their hosts may be polled.
    pub gate: Arc<dyn HostGate>,
    /// Where jobs go.
    pub jobs: Arc<dyn Queue<FetchJob>>,
    /// Where other schedulers are seen.
    pub reports: Arc<dyn Queue<FetchReport>>,
    /// Which host a URL belongs to.
    pub rules: Arc<LiveRules>,
    /// The numbers.
    pub config: Arc<Config>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Whether more may be claimed, and how much.
    pub condition: Arc<Condition>,
    /// Nothing is claimed while our clock is off: feeds would be polled too early, or not at all.
    pub watch: ClockWatch,
    /// Overdue feeds are polled in hot minutes too: the process runs once, and would end before the next other minute.
    pub any_minute: bool,
}

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Feeds claimed; without those that were put back for want of room for logins, if nothing else that was claimed is to be polled.
    pub claimed: usize,
    /// Of these, the ones that became jobs; the others wait for their hosts, or were not due after all.
    pub published: usize,
    /// The queue took no more: other feeds may be due.
    pub queue_full: bool,
}

/// How often to read from the store whether a person paused the fleet, and how many schedulers share its pace.
const PAUSE_CHECK: Duration = Duration::from_secs(1);
/// How long to wait after a round that failed.
const RETRY: Duration = Duration::from_secs(1);

/// How long to wait before a feed of category A is looked at again that is due while all polling is paused.
const PAUSED_RETRY: Duration = Duration::from_secs(10);
/// How long to wait before a feed with a login is looked at again for whose job the queue had no room.
const LOGINS_RETRY: Duration = Duration::from_secs(10);
/// How long to wait before a feed is looked at again whose row cannot be read.
const UNREADABLE_RETRY: Duration = Duration::from_secs(600);

/// How many jobs more the queue takes.
#[derive(Clone, Copy, Debug)]
struct Room {
    jobs: usize,
    /// Of these, jobs with logins; `None`: as many as of others.
    logins: Option<usize>,
}

/// What is to be done with the feeds of a round.
#[derive(Default)]
pub(crate) struct Sorted {
    /// Not live any more.
    pub(crate) dead: Vec<FeedId>,
    /// The schedule had them too early.
    pub(crate) early: Vec<Slot>,
    /// Due.
    pub(crate) due: Vec<(JobRow, Claim)>,
    /// Hosts whose parked feed was claimed unnecessarily: the next one may be claimed now.
    pub(crate) idle: Vec<(HostKey, Timestamp)>,
}

impl Dispatcher {
    /// Dispatches until stopped. A failing round is logged when it starts to fail, not each time.
    pub async fn run(&self, clock: &dyn Clock, stop: &CancellationToken) {
        let mut config = self.condition.config.get();
        let mut pace = Pace::new(&config, clock.now());
        let mut schedulers = 1;
        let mut paused_checked = Timestamp::EPOCH;
        let mut dispatching = FailureLog::new("dispatch");
        while !stop.is_cancelled() {
            let now = clock.now();
            let current = self.condition.config.get();
            if !Arc::ptr_eq(&config, &current) {
                (pace, config) = (Pace::new(&current, now), current);
            }
            if now.is_time_again(paused_checked, PAUSE_CHECK) {
                let (pause, changes) = (&self.condition.pause, self.condition.pause.changes());
                if let Ok(paused) = self.store.paused().await {
                    pause.read(paused, changes);
                }
                schedulers = self.schedulers().await.unwrap_or(schedulers);
                paused_checked = now;
            }
            let room = self.condition.our_fault.room(pace.room(now, schedulers), now);
            let round = self.round_on_time(clock, room).await;
            self.condition.dispatching.note(&round);
            let wait = match dispatching.note(round) {
                Some(round) => {
                    pace.spend(round.published);
                    self.condition.our_fault.spend(round.published);
                    self.wait_after(round)
                }
                None => RETRY,
            };
            common::sleep_or_stop(wait, stop).await;
        }
    }

    pub(super) fn wait_after(&self, round: Round) -> Duration {
        let scheduler = &self.config.scheduler;
        match round {
            // More is due: continue at once.
            Round { claimed, .. } if claimed >= scheduler.claim_batch => Duration::ZERO,
            // A queue this short is empty before the tick ends.
            Round { queue_full: true, .. } => scheduler.tick / 10,
            Round { .. } => scheduler.tick,
        }
    }

    /// Returns how many schedulers there are: the consumers of reports.
    async fn schedulers(&self) -> Result<usize, QueueError> {
        Ok(self.reports.depth().await?.consumers.unwrap_or(1))
    }

    pub(super) async fn round_on_time(&self, clock: &dyn Clock, room: usize) -> Result<Round, BackendError> {
        let now = || self.watch.agree(clock, || self.schedule.check(clock));
        let places = match self.prepared(now().await?, room).await? {
            ControlFlow::Continue(places) => places,
            ControlFlow::Break(round) => return Ok(round),
        };
        // Again: that may have taken seconds, and a claim that arrives late is not made.
        let now = now().await?;
        self.claimed_round(now, places).await
    }

    /// Claims feeds. While all polling is paused those that were woken, if the operator wants them served, or none. The pause
    /// is looked at last: what is added after it is not claimed.
    async fn claim(&self, now: Timestamp, limit: usize) -> Result<Vec<Claim>, BackendError> {
        let scheduler = &self.config.scheduler;
        let lease = scheduler.claim_lease.min(self.lease());
        Ok(match (self.condition.pause.is_set(), scheduler.refresh_while_paused) {
            (false, _) => self.schedule.claim_due(now, limit, lease).await?,
            (true, true) => self.schedule.claim_urgent(now, limit, lease).await?,
            (true, false) => Vec::new(),
        })
    }

    /// Puts back what was claimed and is not to be polled while all polling is paused.
    async fn woken(&self, due: Vec<(JobRow, Claim)>, now: Timestamp) -> Result<Vec<(JobRow, Claim)>, BackendError> {
        if !self.condition.pause.is_set() {
            return Ok(due);
        }
        let is_woken = |row: &JobRow| row.wake_at.is_some_and(|wake| wake <= now);
        let (woken, others): (Vec<_>, Vec<_>) = due.into_iter().partition(|(row, _)| is_woken(row));
        self.put_back(others, PAUSED_RETRY, now).await?;
        Ok(woken)
    }

    /// Puts back the feeds with logins that exceed the room for their jobs, those first in line excepted.
    async fn fitting(
        &self,
        due: Vec<(JobRow, Claim)>,
        room: Room,
        now: Timestamp,
    ) -> Result<Vec<(JobRow, Claim)>, BackendError> {
        let wanted = due.iter().filter(|due| has_login(due)).count();
        let Some(room) = room.logins.filter(|room| *room < wanted) else { return Ok(due) };
        let (mut logins, mut fitting): (Vec<_>, Vec<_>) = due.into_iter().partition(has_login);
        logins.sort_by_cached_key(|(row, _)| standing(row, now).1);
        self.put_back(logins.split_off(room), LOGINS_RETRY, now).await?;
        fitting.extend(logins);
        Ok(fitting)
    }

    /// Puts feeds back that were claimed, for a while. The next ones at their hosts need not wait for them.
    async fn put_back(&self, due: Vec<(JobRow, Claim)>, wait: Duration, now: Timestamp) -> Result<(), BackendError> {
        let due_at = now.after(wait);
        let slots: Vec<_> =
            due.iter().map(|(row, _)| Slot { feed: row.id, due_at, band: standing(row, now).0 }).collect();
        self.schedule.put(&slots, now).await.or_else(ScheduleError::unless_part_away)?;
        let idle: Vec<_> = due.into_iter().filter_map(|(_, claim)| Some((claim.parked_at?, now))).collect();
        self.schedule.unpark(&idle).await.or_else(ScheduleError::unless_part_away)?;
        Ok(())
    }

    /// Runs one round over at most `room` feeds; returns what was done: nothing while reports cannot be stored.
    pub async fn round(&self, now: Timestamp, room: usize) -> Result<Round, BackendError> {
        match self.prepared(now, room).await? {
            ControlFlow::Continue(places) => self.claimed_round(now, places).await,
            ControlFlow::Break(round) => Ok(round),
        }
    }

    /// Returns how many feeds a round may claim, and the room in the queue for their jobs; or what the round did, if there is none.
    async fn prepared(&self, now: Timestamp, room: usize) -> Result<ControlFlow<Round, (usize, Room)>, BackendError> {
        if room == 0 || !self.condition.storing.works() {
            return Ok(ControlFlow::Break(Round::default()));
        }
        let scheduler = &self.config.scheduler;
        let room_in_queue = self.room_in_queue(self.jobs.depth().await?);
        if room_in_queue.jobs == 0 {
            return Ok(ControlFlow::Break(Round { queue_full: true, ..Round::default() }));
        }
        let limit = room.min(scheduler.claim_batch).min(room_in_queue.jobs);
        // Before anything is claimed: a job without a signature is work whose report is not accepted.
        self.condition.proofs.ready(&*self.store, now).await?;
        Ok(ControlFlow::Continue((limit, room_in_queue)))
    }

    async fn claimed_round(
        &self,
        now: Timestamp,
        (limit, room_in_queue): (usize, Room),
    ) -> Result<Round, BackendError> {
        let claims = self.claim(now, limit).await?;
        if claims.is_empty() {
            return Ok(Round::default());
        }
        let claimed = claims.len();
        let expired = claims.iter().filter(|claim| claim.lease_expired).count();
        self.metrics.leases_expired.inc_by(expired as u64);
        let waited = claims.iter().filter(|claim| claim.parked_at.is_some()).count();
        self.metrics.unparks.inc_by(waited as u64);

        let ids: Vec<FeedId> = claims.iter().map(|claim| claim.feed).collect();
        let rows = self.store.jobs_for(&ids).await?;
        let Sorted { mut dead, mut early, due, idle } = sort(claims, rows, now);
        self.keep_unreadable(&mut dead, &mut early, now).await?;
        retire(&*self.store, &*self.schedule, &self.rules.get(), &dead, now).await?;
        self.schedule.put(&early, now).await.or_else(ScheduleError::unless_part_away)?;
        self.schedule.unpark(&idle).await.or_else(ScheduleError::unless_part_away)?;
        let due = self.woken(due, now).await?;
        let (rules, price) = (self.rules.get(), self.condition.price.get());
        let config = self.condition.config.get();
        let policy = Policy { config: &config.policy, load: 0.0, price };
        let due = new_rules::replanned(&*self.store, &*self.schedule, &rules, &policy, due, now).await?;
        let due = match self.any_minute {
            true => due,
            false => open_minutes::waiting(&*self.schedule, &config.policy, due, now).await?,
        };
        let wanted = due.len();
        let due = self.fitting(due, room_in_queue, now).await?;
        let (put_back, fits) = (wanted - due.len(), !due.is_empty());
        let first_claims = due.iter().filter(|(_, claim)| claim.parked_at.is_none() && !claim.lease_expired).count();
        let published = self.dispatch(due, now).await?;
        self.condition.price.dispatched(first_claims, published);
        // After a round that only put feeds back the next one has time: it may do the same with others.
        let taken = if fits { claimed } else { claimed - put_back };
        Ok(Round { claimed: taken, published, queue_full: claimed == room_in_queue.jobs })
    }

    /// Takes the feeds out of `dead` that are live all the same, and so have rows that this program cannot read: they
    /// stay in the schedule, are looked at again later, and are counted until a person repairs them.
    async fn keep_unreadable(
        &self,
        dead: &mut Vec<FeedId>,
        early: &mut Vec<Slot>,
        now: Timestamp,
    ) -> Result<(), BackendError> {
        if dead.is_empty() {
            return Ok(());
        }
        let unreadable = self.store.live_among(dead).await?;
        dead.retain(|feed| !unreadable.contains(feed));
        self.metrics.unreadable_feeds.inc_by(unreadable.len() as u64);
        let due_at = now.after(UNREADABLE_RETRY);
        early.extend(unreadable.into_iter().map(|feed| Slot { feed, due_at, band: Band::Patient }));
        Ok(())
    }

    /// Returns how many jobs more may wait: no more than are soon fetched, because they can be put in order only until
    /// they are published. Where other processes consume, that is as many as these hold besides.
    fn room_in_queue(&self, queued: QueueDepth) -> Room {
        let limit = self.config.scheduler.max_queued_jobs;
        let consumable = queued.consumers.map_or(limit, |consumers| consumers * self.config.worker.held_jobs());
        let limit = limit.min(consumable);
        let apart = (queued.apart.consumers > 0).then_some(queued.apart.items);
        Room {
            jobs: self.places(limit, queued.taken(limit)),
            // While nobody consumes their queue, they go with the others.
            logins: apart.map(|items| self.places(queued.share_apart(limit), items)),
        }
    }

    /// Returns how many of the places are free. Whole messages: while the queue is full, each place that becomes free would
    /// otherwise get a separate message.
    fn places(&self, limit: usize, taken: usize) -> usize {
        let (room, job_batch) = (limit.saturating_sub(taken), self.config.worker.job_batch);
        if taken == 0 { room } else { room / job_batch * job_batch }
    }

    /// Reserves, parks and publishes; returns how many jobs were published.
    async fn dispatch(&self, due: Vec<(JobRow, Claim)>, now: Timestamp) -> Result<usize, BackendError> {
        let rules = self.rules.get();
        let due: Vec<_> = due.into_iter().map(|(row, claim)| (archive::page_or_feed(row, now), claim)).collect();
        let mut requests = Vec::with_capacity(due.len());
        for (row, _) in &due {
            // A fetch that a busy host interrupted continues there.
            let next = row.detour.as_ref().map_or(&row.url, |detour| &detour.next);
            let host = rules.for_url(next.as_url());
            requests.push(ReserveRequest { host: host.key, limits: host.limits, expires: self.expires(row, now) });
        }
        let reservations = self.reserve(&due, &requests, now).await?;

        let (mut jobs, mut parkings, mut wide) = (Vec::new(), Vec::new(), Vec::new());
        for (((row, claim), request), reservation) in due.into_iter().zip(requests).zip(reservations) {
            match reservation {
                Reservation::Refused { until } => {
                    let (band, rank) = standing(&row, now);
                    let kind = if claim.parked_at.is_some() { "again" } else { "first" };
                    self.metrics.parks.with_label_values(&[kind]).inc();
                    parkings.push(Parking { feed: row.id, host: request.host, until, band, rank });
                }
                Reservation::Ticket(ticket) => {
                    if let Some(at) = next_place(&claim, request.limits, now) {
                        wide.push((request.host.clone(), at));
                    }
                    // It waited for another host than the one that it needs now: the next feed there need not wait for it.
                    wide.extend(claim.parked_at.filter(|host| *host != request.host).map(|host| (host, now)));
                    self.observe_lag(&row, now);
                    jobs.push(job(row, request, ticket, now));
                }
            }
        }
        self.schedule.park(&parkings).await.or_else(ScheduleError::unless_part_away)?;
        self.schedule.unpark(&wide).await.or_else(ScheduleError::unless_part_away)?;
        self.condition.proofs.sign(&mut jobs, &*self.store, now).await?;
        let (published, failure) = self.publish(&jobs, now).await;
        // Those that are in the queue are hidden for as long as they need, whatever the outcome of the others: until a
        // fetch that begins when the job expires would end. After that a worker drops the job and reports nothing.
        let mut hidden: BTreeMap<Timestamp, Vec<FeedId>> = BTreeMap::new();
        for job in &published {
            hidden.entry(job.expires.after(self.config.scheduler.fetch_lease)).or_default().push(job.feed);
        }
        for (until, feeds) in hidden {
            self.schedule.extend(&feeds, until).await.or_else(ScheduleError::unless_part_away)?;
        }
        failure.map_or(Ok(published.len()), Err)
    }

    /// Reserves in the order in which feeds wait for a host, so that a feed that became due just now is not served before one
    /// that was parked. Returns the answers in the order of the requests.
    async fn reserve(
        &self,
        due: &[(JobRow, Claim)],
        requests: &[ReserveRequest],
        now: Timestamp,
    ) -> Result<Vec<Reservation>, BackendError> {
        let mut order: Vec<usize> = (0..due.len()).collect();
        order.sort_by_cached_key(|&at| standing(&due[at].0, now).1);
        let ordered: Vec<ReserveRequest> = order.iter().map(|&at| requests[at].clone()).collect();
        let mut answers: Vec<_> = order.into_iter().zip(self.gate.reserve(&ordered, now).await?).collect();
        answers.sort_unstable_by_key(|(at, _)| *at);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }

    /// Publishes jobs in messages, all at once: awaiting each confirm before the next would cost a round trip each. Returns
    /// the jobs that were confirmed, and why others were not.
    async fn publish<'a>(&self, jobs: &'a [FetchJob], now: Timestamp) -> (Vec<&'a FetchJob>, Option<BackendError>) {
        let messages: Vec<&'a [FetchJob]> = jobs.chunks(self.config.worker.job_batch).collect();
        let confirms = join_all(messages.iter().map(|batch| self.jobs.publish(batch))).await;
        let (mut published, mut failure) = (Vec::with_capacity(jobs.len()), None);
        for (batch, confirmed) in messages.into_iter().zip(confirms) {
            let Err(error) = confirmed else {
                published.extend(batch);
                continue;
            };
            failure = Some(BackendError::from(error));
            // Perhaps lost, perhaps not. The leases make the feeds due again. Their slots at the hosts are released
            // now, and the gate refuses a worker that gets such a job after all. A ticket that cannot be returned
            // expires.
            for job in batch {
                if let Err(error) = self.gate.cancel(&job.host, job.ticket, now).await {
                    failure = Some(error.into());
                    break;
                }
            }
        }
        (published, failure)
    }

    /// Returns how long a feed is hidden for its job and its fetch.
    fn lease(&self) -> Duration {
        self.config.scheduler.queue_lease + self.config.scheduler.fetch_lease
    }

    /// Returns when a job may no longer start: the queue's part of the lease, for category A at most half its interval.
    fn expires(&self, row: &JobRow, now: Timestamp) -> Timestamp {
        let queue_lease = self.config.scheduler.queue_lease;
        match row.category {
            Category::A => now.after(queue_lease.min(self.condition.config.get().policy.category.a.interval / 2)),
            _ => now.after(queue_lease),
        }
    }

    fn observe_lag(&self, row: &JobRow, now: Timestamp) {
        self.metrics.record_lag(row.category, now.since(row.due()));
    }
}

/// Sorts what the schedule claimed by what the store says about it: the store is the truth. A feed that was claimed twice, because its
/// lease ended before the round's last claim, counts once.
pub(crate) fn sort(claims: Vec<Claim>, rows: Vec<JobRow>, now: Timestamp) -> Sorted {
    let mut rows: HashMap<FeedId, JobRow> = rows.into_iter().map(|row| (row.id, row)).collect();
    let mut seen = HashSet::with_capacity(claims.len());
    let mut sorted = Sorted::default();
    for claim in claims {
        if !seen.insert(claim.feed) {
            sorted.idle.extend(claim.parked_at.map(|host| (host, now)));
            continue;
        }
        let Some(row) = rows.remove(&claim.feed) else {
            sorted.dead.push(claim.feed);
            sorted.idle.extend(claim.parked_at.map(|host| (host, now)));
            continue;
        };
        let due_at = row.due();
        if due_at > now {
            sorted.early.push(Slot { feed: row.id, due_at, band: band(&row) });
            sorted.idle.extend(claim.parked_at.map(|host| (host, now)));
        } else {
            sorted.due.push((row, claim));
        }
    }
    sorted
}

fn has_login((row, _): &(JobRow, Claim)) -> bool {
    row.credentials.is_some()
}

/// Returns when the host whose head was claimed can take another feed without waiting for this one, if its pace allows
/// that.
fn next_place(claim: &Claim, limits: HostLimits, now: Timestamp) -> Option<Timestamp> {
    claim.parked_at.as_ref()?;
    match (limits.parallel > 1, limits.burst > 1) {
        (false, _) => None,
        (true, true) => Some(now),
        (true, false) => Some(now.after(limits.gap)),
    }
}

/// Returns the job for a feed that has its slot at the host.
pub(crate) fn job(row: JobRow, request: ReserveRequest, ticket: Ticket, now: Timestamp) -> FetchJob {
    FetchJob {
        feed: row.id,
        version: row.version,
        url: row.url,
        credentials: row.credentials,
        host: request.host,
        ticket,
        expires: request.expires,
        validators: row.validators,
        content_hash: row.content_hash,
        known: row.known,
        // This fetch does not answer a wake that lies ahead.
        wake_at: row.wake_at.filter(|wake| *wake <= now),
        head_first: row.head_first,
        signed: row.signed,
        without_delta: row.no_delta_until.is_some_and(|until| until > now),
        epochs: row.epochs,
        detour: row.detour,
        search: row.by_hand,
        subscribers: row.subscribers,
        pushed: None,
        page: row.page,
        mac: None,
    }
}
