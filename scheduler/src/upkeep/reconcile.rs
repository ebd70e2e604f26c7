//! Synchronises the schedule and the gate with the store: at start, after either lost its memory, and at intervals.
//!
//! The store is the truth; this module only reads it, but for feeds that a wrong clock planned, which it wakes. Every step may
//! run at any time, in several processes at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::config::Config;
use common::host_gate::{HostGate, LoadMark};
use common::metrics::Metrics;
use common::policy::{OPEN_REACH, usual_reach};
use common::queue::Queue;
use common::report::FetchReport;
use common::time::{Clock, SteadyClock, Timestamp, compared};
use common::url::FeedId;
use tokio_util::sync::CancellationToken;

use crate::condition::Condition;
use crate::condition::failure_log::FailureLog;
use crate::condition::gate::Closed;
use crate::error::BackendError;
use crate::poll::subject::placement_slot;
use crate::schedule::{Schedule, ScheduleError, Slot};
use crate::upkeep::orders::Orders;
use store::{Placement, Store};

/// Compares the schedule and the gate with the store.
pub struct Reconciler {
    /// The truth.
    pub store: Arc<dyn Store>,
    /// Synchronised with the store.
    pub schedule: Arc<dyn Schedule>,
    /// Synchronised with the store.
    pub gate: Arc<dyn HostGate>,
    /// Reports that may still carry holds that the store does not know.
    pub reports: Arc<dyn Queue<FetchReport>>,
    /// What operators say about hosts.
    pub orders: Arc<Orders>,
    /// Learns whether the gate is open.
    pub condition: Arc<Condition>,
    /// Shows the same.
    pub metrics: Arc<Metrics>,
    /// The numbers.
    pub config: Arc<Config>,
}

/// Feeds read from the store at once.
const PAGE: u32 = if cfg!(test) { 100 } else { 10_000 };
/// Of these, the states read at once of those that are due far ahead.
const STATES: usize = 1_000;
/// In milliseconds.
const MINUTE: i64 = 60_000;
/// How often the stored holds are put on the gate, whatever it may have forgotten.
const REFRESH_HOLDS: Duration = Duration::from_secs(60);
/// How often a loss of memory is looked for.
const LOSS_CHECK: Duration = Duration::from_secs(1);

impl Reconciler {
    /// Reconciles until stopped: at once what lost its memory, and the schedule every `reconcile_interval`. The caller has made
    /// a first [`Self::rebuild`] and [`Self::open_gate`] if it wants to wait for them.
    pub async fn run(&self, clock: &dyn Clock, stop: &CancellationToken) {
        // A gate may be opened long before a large schedule is filled.
        tokio::join!(self.keep_gate_open(clock, stop), self.keep_schedule_whole(clock, stop));
    }

    async fn keep_gate_open(&self, clock: &dyn Clock, stop: &CancellationToken) {
        let mut opening = FailureLog::new("asking whether the host gate is open");
        let mut refreshing = FailureLog::new("loading the stored holds into the host gate");
        let mut refreshed = clock.now();
        while common::sleep_or_stop(LOSS_CHECK, stop).await {
            let open = opening.note(self.open_gate(clock).await);
            self.metrics.gate_open.set(i64::from(self.condition.gate.closed().is_none()));
            if open != Some(true) {
                continue;
            }
            let now = clock.now();
            let waited = self.condition.gate.take_waiting_holds();
            if waited || now.is_time_again(refreshed, REFRESH_HOLDS) {
                match refreshing.note(self.load_holds(clock).await) {
                    Some(()) => refreshed = now,
                    None if waited => self.condition.gate.holds_still_wait(),
                    None => {}
                }
            }
        }
    }

    /// Puts the stored holds on the gate. What the gate forgot without our noticing is known there again.
    async fn load_holds(&self, clock: &dyn Clock) -> Result<(), BackendError> {
        let clock = SteadyClock::starting_at(self.time(clock).await?);
        let holds = self.store.holds(clock.now()).await?;
        Ok(self.gate.hold(&holds, clock.now()).await?)
    }

    async fn keep_schedule_whole(&self, clock: &dyn Clock, stop: &CancellationToken) {
        let mut compared = clock.now();
        let mut filling = FailureLog::new("asking whether the schedule is whole");
        let mut comparing = FailureLog::new("comparing the schedule with the store");
        let mut was_set_back = false;
        while common::sleep_or_stop(LOSS_CHECK, stop).await {
            let Some(filled) = filling.note(self.rebuild_on_time(clock, stop).await) else { continue };
            if let Some(filled) = filled {
                compared = clock.now();
                if filled > 0 {
                    tracing::warn!(filled, "the schedule had lost its memory; it was filled from the store");
                }
            }
            let now = clock.now();
            if now.is_time_again(compared, self.config.scheduler.reconcile_interval) {
                // A clock that was set back may have planned feeds when it was ahead, by whatever time.
                was_set_back |= now < compared;
                let reach = if was_set_back { Duration::ZERO } else { self.usual_reach() };
                compared = now;
                let corrected = comparing.note(self.compare(clock, stop, Some(reach), |_| true).await);
                was_set_back &= corrected.is_none();
                if let Some(corrected @ 1..) = corrected {
                    tracing::warn!(corrected, "the schedule differed from the store");
                }
            }
        }
    }

    async fn rebuild_on_time(
        &self,
        clock: &dyn Clock,
        stop: &CancellationToken,
    ) -> Result<Option<usize>, BackendError> {
        self.time(clock).await?;
        self.fill(clock, stop).await
    }

    /// Returns the time; an error while our clock is off, when leases and holds would be taken for past.
    async fn time(&self, clock: &dyn Clock) -> Result<Timestamp, BackendError> {
        Ok(compared(clock, || self.schedule.check(clock)).await?)
    }

    /// Fills a schedule that lost its memory. `None` when it had not, or when it lost it again meanwhile.
    pub async fn rebuild(&self, clock: &dyn Clock) -> Result<Option<usize>, BackendError> {
        self.fill(clock, &CancellationToken::new()).await
    }

    async fn fill(&self, clock: &dyn Clock, stop: &CancellationToken) -> Result<Option<usize>, BackendError> {
        let Some(mark) = self.schedule.begin_rebuild().await? else { return Ok(None) };
        let filled = self.compare(clock, stop, None, |slot| self.schedule.is_lost(&mark, slot.feed)).await?;
        if stop.is_cancelled() {
            return Ok(None);
        }
        Ok(self.schedule.finish_rebuild(&mark).await?.then_some(filled))
    }

    /// Walks the store and adds to the schedule what is missing, and brings forward what is later than a lease can
    /// explain. Returns how many places were wrong. What a clock that was ahead planned is brought forward in both.
    pub async fn schedule_once(&self, clock: &dyn Clock) -> Result<usize, BackendError> {
        self.compare(clock, &CancellationToken::new(), Some(self.usual_reach()), |_| true).await
    }

    fn usual_reach(&self) -> Duration {
        usual_reach(&self.condition.config.get().policy)
    }

    /// The same for the slots that count, until stopped: a large store takes minutes. With `reach`, feeds that are due further ahead
    /// are looked at as well.
    async fn compare(
        &self,
        clock: &dyn Clock,
        stop: &CancellationToken,
        reach: Option<Duration>,
        counts: impl Fn(&Slot) -> bool,
    ) -> Result<usize, BackendError> {
        let scheduler = &self.config.scheduler;
        // A claim may be made while its page is compared, by a machine whose clock is ahead of ours.
        let mut slack = scheduler.queue_lease + scheduler.fetch_lease + scheduler.clock_skew;
        // Dispatch puts overdue feeds off to the next open minutes.
        if self.condition.config.get().policy.hot_minutes {
            slack += OPEN_REACH;
        }
        let (mut after, mut corrected, mut away) = (FeedId(0), 0, None);
        while !stop.is_cancelled() {
            let page = self.store.placements(after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.id;
            let slots: Vec<Slot> = page.iter().map(placement_slot).filter(&counts).collect();
            match self.schedule.correct(&slots, slack, clock.now()).await {
                Ok(count) => corrected += count,
                // The other parts are compared all the same.
                Err(error @ ScheduleError::PartAway { .. }) => away = Some(error),
                Err(error) => return Err(error.into()),
            }
            if let Some(reach) = reach {
                self.bring_forward(&page, reach, clock).await?;
            }
        }
        away.map_or(Ok(corrected), |error| Err(error.into()))
    }

    /// Wakes feeds of a page that a clock planned which was ahead: they are due further ahead than `reach`, and their last poll lies
    /// ahead too. Each is polled after the interval that it was given, or after the hold of its server.
    async fn bring_forward(&self, page: &[Placement], reach: Duration, clock: &dyn Clock) -> Result<(), BackendError> {
        let far = clock.now().after(reach);
        let ids: Vec<FeedId> = page.iter().filter(|place| place.due > far).map(|place| place.id).collect();
        for ids in ids.chunks(STATES) {
            let feeds = self.store.states_for(ids).await?;
            let now = self.time(clock).await?;
            let mut wakes: BTreeMap<Timestamp, Vec<FeedId>> = BTreeMap::new();
            for feed in feeds {
                let planned = feed.state.last_polled.unwrap_or(feed.added);
                let interval = feed.next_due.map_or(Duration::ZERO, |due| due.since(planned));
                let at = now.after(interval).max(feed.state.hold_until.unwrap_or(now));
                let is_ahead = planned > now.after(self.config.scheduler.clock_skew);
                // Few times, so that few statements wake all feeds. A wake after the planned poll would be a second one.
                let at = Timestamp::from_millis((at.millis() / MINUTE + 1) * MINUTE);
                if is_ahead && feed.due().is_some_and(|due| due > at) {
                    wakes.entry(at).or_default().push(feed.id);
                }
            }
            let mut woken = 0;
            for (at, ids) in wakes {
                let places = self.store.wake(&ids, at, now).await?;
                let slots: Vec<Slot> = places.iter().map(placement_slot).collect();
                self.schedule.lower(&slots, now).await.or_else(ScheduleError::unless_part_away)?;
                woken += slots.len();
            }
            if woken > 0 {
                tracing::warn!(woken, "feeds that were planned by a clock that was ahead are polled sooner");
            }
        }
        Ok(())
    }

    /// Opens a gate that lost its memory: only once no report is in flight that may carry a hold, and with all stored
    /// holds and operators' blocks loaded. True when the gate is open afterwards.
    pub async fn open_gate(&self, clock: &dyn Clock) -> Result<bool, BackendError> {
        // Whatever our clock says: the gate uses its server's time alone, and notes a step of that clock here. Only
        // what is loaded into it is judged by our clock.
        let mark = self.gate.begin_loading(clock.now()).await?;
        let now = self.time(clock).await?;
        let closed = match mark {
            Some(mark) => {
                let until = self.gate.opens_at(&mark).filter(|until| *until > now);
                let parts = self.gate.parts_lost(&mark);
                self.load_gate(&mark, now).await?.map(|why| Closed { since: now, why, until, parts })
            }
            None => None,
        };
        Ok(self.condition.gate.note(closed, now))
    }

    /// Loads and opens a gate that lost its memory. Returns what it waits for, if it stays closed.
    async fn load_gate(&self, mark: &LoadMark, now: Timestamp) -> Result<Option<&'static str>, BackendError> {
        // What is left of a hold counts from the moment at which it is put on the gate, however slow the store is.
        let clock = SteadyClock::starting_at(now);
        self.orders.load(mark, now).await?;
        if self.never_asked_anybody().await? {
            self.gate.open_new(clock.now()).await?;
            return Ok(None);
        }
        // While a part of the gate is lost, the others keep the queue busy.
        let skew = self.config.scheduler.clock_skew;
        let is_passed = |opens_at: Timestamp| self.condition.gate.took_all_reports_before(opens_at.after(skew));
        if !self.gate.opens_at(mark).is_some_and(is_passed) && self.reports.depth().await?.items > 0 {
            return Ok(Some("the gate lost its memory, and reports that may carry holds are still to be stored"));
        }
        let mut holds = self.store.holds(clock.now()).await?;
        holds.retain(|(host, _)| self.gate.is_lost(mark, host));
        self.gate.hold(&holds, clock.now()).await?;
        let open = self.gate.open(mark, clock.now()).await?;
        Ok((!open).then_some("the gate lost its memory, and requests from before the loss may still be in flight"))
    }

    /// Nothing has ever happened in this fleet, and it has no feeds.
    async fn never_asked_anybody(&self) -> Result<bool, BackendError> {
        Ok(self.store.latest_seq().await? == 0 && self.store.placements(FeedId(0), 1).await?.is_empty())
    }
}
