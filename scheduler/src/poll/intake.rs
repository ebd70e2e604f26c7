//! Receives reports and has them settled, in batches, each in a separate task.
//!
//! A report in hand is hidden from other schedulers, and the hold that it carries may be known nowhere else. So it puts its
//! hold on the gate as soon as it is received, and is settled or returned within a fetch's time of its arrival: a gate that
//! lost its memory opens after that time, and by then the hold is stored, or the report is back in the queue.

use std::sync::Arc;
use std::time::Duration;

use common::causes::causes;
use common::config::Config;
use common::queue::Delivery;
use common::report::FetchReport;
use common::time::{Clock, ClockWatch, SteadyClock, Timestamp};
use futures_util::FutureExt;
use futures_util::future::try_join_all;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::condition::failure_log::FailureLog;
use crate::error::BackendError;
use crate::poll::gathered::Gathered;
use crate::poll::results::Results;
use crate::schedule::ScheduleError;

/// Turns deliveries of reports into settled batches.
pub struct Intake {
    /// Settles them.
    pub results: Arc<Results>,
    /// Nothing is settled while our clock is off: due times would be wrong in the store.
    pub watch: ClockWatch,
    /// How long a batch that is not full waits for further reports: see [`linger`].
    pub linger: Duration,
}

/// How long reports wait for others here, in a cluster. The fixed cost of a batch, which is a transaction, three round trips to the
/// schedule and the acknowledgements, is divided among them; the feeds that wait for their hosts wait that much longer, which is
/// little beside a gap.
const LINGER: Duration = Duration::from_millis(50);

/// Returns how long a batch waits for further reports: not at all within one process, where a batch costs little and its reports
/// are all there is to do.
pub fn linger(config: &Config) -> Duration {
    if config.queue.url == "memory:" { Duration::ZERO } else { LINGER }
}

/// The number of failures in a row that count as persistent.
const LASTING: u32 = 2;
/// Transactions at once.
const AT_ONCE: usize = 4;
/// How long to wait before reports that could not be settled are tried again.
const RETRY: Duration = Duration::from_secs(1);
/// The same for reports that wait for a part of the gate that is away.
const PART_AWAY_REST: Duration = Duration::from_millis(100);
/// How often a scheduler that could not store reports checks whether it can again, without waiting for one to come.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// How long the queue may take to say how many reports wait. The store has its own limit.
const DEPTH_PATIENCE: Duration = Duration::from_secs(5);

/// A batch that a task has dealt with.
struct Settled {
    reports: usize,
    /// How many of them are in the queue again.
    outcome: Result<usize, BackendError>,
}

/// The answer to the question whether reports can be stored again.
pub(crate) struct Probed {
    /// When the question was sent: the answer says nothing about what failed since.
    asked: Instant,
    /// Reports had just been stored: what is in hand will be too.
    stored: bool,
    /// How many reports wait for a scheduler, if the store works and the queue said so.
    waiting: Option<usize>,
}

/// What the loop remembers.
struct State {
    settling: JoinSet<Settled>,
    /// At most one question at a time, each a separate task: a slow server must not keep reports from being settled.
    probing: JoinSet<Option<Probed>>,
    /// That question is for the store too.
    probes_store: bool,
    /// Reports that tasks are settling.
    settled_soon: usize,
    gathered: Gathered,
    failures: u32,
    /// Nothing is received or begun before.
    rest_until: Instant,
}

impl State {
    fn new() -> Self {
        State {
            settling: JoinSet::new(),
            probing: JoinSet::new(),
            probes_store: false,
            settled_soon: 0,
            gathered: Gathered::default(),
            failures: 0,
            rest_until: Instant::now(),
        }
    }

    /// Reports that were received and are not settled.
    fn in_hand(&self) -> usize {
        self.settled_soon + self.gathered.reports()
    }

    fn is_resting(&self) -> bool {
        Instant::now() < self.rest_until
    }

    /// Returns whether a batch may begin: when it is full, in which case several are settled at once, or when none is
    /// being settled and it has waited for `linger`.
    fn may_begin(&self, linger: Duration) -> bool {
        let Some(arrived) = self.gathered.arrived() else { return false };
        let free = match self.gathered.is_full() {
            true => self.settling.len() < AT_ONCE,
            false => self.settling.is_empty() && Instant::now() >= arrived + linger,
        };
        free && !self.is_resting()
    }
}

impl Intake {
    /// Settles reports until stopped.
    pub async fn run(&self, clock: &dyn Clock, stop: &CancellationToken) {
        let mut state = State::new();
        let mut probes = tokio::time::interval(PROBE_EVERY);
        probes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !stop.is_cancelled() {
            let resting = state.is_resting();
            let oldest = state.gathered.arrived();
            let ripe = oldest.unwrap_or_else(Instant::now) + self.linger;
            let waits_for_others = oldest.is_some() && !resting && state.settling.is_empty();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(ended) = state.settling.join_next() => self.note_settled(&mut state, ended, clock),
                Some(ended) = state.probing.join_next() => {
                    if let Some(probed) = finished(ended).flatten() {
                        self.judge(&probed, state.in_hand());
                    }
                }
                () = tokio::time::sleep_until(state.rest_until), if resting => {}
                () = tokio::time::sleep_until(self.expires(oldest)), if oldest.is_some() => {
                    tracing::debug!(reports = state.gathered.reports(), "reports waited too long here; they are returned");
                    state.gathered = Gathered::default();
                }
                // Wakes the loop, which begins the batch.
                () = tokio::time::sleep_until(ripe), if waits_for_others => {}
                // Ticks while reports can be stored too, so that the loop notices when something else has stopped claims.
                _ = probes.tick() => self.begin_probe(&mut state, false, clock),
                received = self.results.reports.receive(), if !resting && !state.gathered.is_full() => match received {
                    Ok(first) => self.take(&mut state, first, clock, stop).await,
                    Err(error) => self.note(&mut state, Err(error.into())),
                },
            }
            if state.may_begin(self.linger) {
                self.begin(&mut state, clock, stop).await;
            }
        }
        while let Some(ended) = state.settling.join_next().await {
            self.note_settled(&mut state, ended, clock);
        }
    }

    /// Returns when reports must be settled or returned, of which the oldest arrived then.
    fn expires(&self, arrived: Option<Instant>) -> Instant {
        arrived.unwrap_or_else(Instant::now) + self.results.config.fetch.deadline()
    }

    /// Returns the time, once the schedule answers and its clock agrees with ours.
    async fn time(&self, clock: &dyn Clock) -> Result<Timestamp, ScheduleError> {
        self.watch.agree(clock, || self.results.schedule.check(clock)).await
    }

    /// Takes a delivery and what else has arrived already, and puts their holds on the gate. What arrived too long ago is
    /// returned.
    async fn take(&self, state: &mut State, first: Delivery<FetchReport>, clock: &dyn Clock, stop: &CancellationToken) {
        let mut size = state.gathered.size();
        size.add(&first);
        let mut taken = vec![first];
        while !size.is_full()
            && let Some(Ok(next)) = self.results.reports.receive().now_or_never()
        {
            size.add(&next);
            taken.push(next);
        }
        let (gate, arrived) = (&self.results.condition.gate, taken.len());
        taken.retain(|delivery| self.expires(Some(delivery.arrived)) > Instant::now());
        if taken.len() < arrived {
            gate.returned_reports();
        }
        let Ok(now) = self.time(clock).await else {
            gate.returned_reports();
            drop(taken);
            return self.pause_until_schedule_answers(state, clock, stop).await;
        };
        // The store may take a while for the proofs, and no hold is longer because of that.
        let steady = SteadyClock::starting_at(now);
        // What answers no job of ours is dropped first, and acknowledged with what came beside it.
        for delivery in &mut taken {
            let Results { store, metrics, condition, .. } = &*self.results;
            if let Err(error) = condition.proofs.keep(&mut delivery.items, &**store, metrics, now).await {
                gate.returned_reports();
                drop(taken);
                return self.note(state, Err(error.into()));
            }
        }
        let reports = taken.iter().flat_map(|delivery| &delivery.items);
        let newest = reports.clone().map(|report| report.started).max();
        let part_away = match self.results.hold_hosts(reports, steady.now()).await {
            Err(error) if !error.is_part_away() => {
                gate.returned_reports();
                return self.note(state, Err(error));
            }
            held => held.is_err(),
        };
        match newest {
            _ if part_away => gate.returned_reports(),
            // A worker's clock may be ahead.
            Some(newest) => gate.took_reports(newest.min(now)),
            None => {}
        }
        for mut delivery in taken {
            let unheld = match part_away {
                true => self.take_out_unheld(&mut delivery.items, &steady).await,
                false => Vec::new(),
            };
            state.gathered.take(delivery);
            state.gathered.waiting.extend(unheld);
        }
    }

    /// Takes out the reports whose holds the gate does not take while a part of it is away; the others do not wait for them.
    async fn take_out_unheld(&self, items: &mut Vec<FetchReport>, steady: &SteadyClock) -> Vec<FetchReport> {
        let mut held = Vec::with_capacity(items.len());
        for report in &*items {
            held.push(self.results.hold_hosts(std::iter::once(report), steady.now()).await.is_ok());
        }
        let mut held = held.into_iter();
        items.extract_if(.., |_| held.next() == Some(false)).collect()
    }

    /// Begins to settle what was gathered.
    async fn begin(&self, state: &mut State, clock: &dyn Clock, stop: &CancellationToken) {
        let Ok(now) = self.time(clock).await else {
            return self.pause_until_schedule_answers(state, clock, stop).await;
        };
        let gathered = std::mem::take(&mut state.gathered);
        let (reports, expires) = (gathered.reports(), self.expires(gathered.arrived()));
        let results = Arc::clone(&self.results);
        state.settled_soon += reports;
        state.settling.spawn(async move {
            Settled { reports, outcome: settle_gathered(&results, gathered, expires, now).await }
        });
    }

    /// Waits until the schedule answers and its clock agrees with ours. Meanwhile other schedulers get the reports.
    async fn pause_until_schedule_answers(&self, state: &mut State, clock: &dyn Clock, stop: &CancellationToken) {
        state.gathered = Gathered::default();
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = self.results.reports.pause() => {}
        }
        let mut keeping_time = FailureLog::new("settling reports");
        loop {
            if !common::sleep_or_stop(RETRY, stop).await {
                return;
            }
            if keeping_time.note(self.time(clock).await).is_some() {
                return;
            }
        }
    }

    fn note_settled(&self, state: &mut State, ended: Result<Settled, JoinError>, clock: &dyn Clock) {
        let Some(settled) = finished(ended) else { return };
        state.settled_soon -= settled.reports;
        let worked = settled.outcome.is_ok();
        if settled.outcome.as_ref().is_ok_and(|waiting| *waiting > 0) {
            // They come again soon.
            state.rest_until = Instant::now() + PART_AWAY_REST;
        }
        self.note(state, settled.outcome.map(|_| ()));
        if worked {
            self.begin_probe(state, true, clock);
        }
    }

    /// Remembers whether reports can be stored. After lasting failures the loop rests a little, and nothing is claimed. While only a
    /// part of the gate or the schedule is away, claims continue: the feeds of that part cannot be fetched, and their reports wait.
    fn note(&self, state: &mut State, settled: Result<(), BackendError>) {
        let storing = &self.results.condition.storing;
        let Err(error) = settled else {
            state.failures = 0;
            return;
        };
        if error.is_part_away() {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "reports for a part that is away are tried again"
            );
            state.rest_until = Instant::now() + PART_AWAY_REST;
            return;
        }
        state.failures += 1;
        // A connection that broke is one failure; its reports are in the queue again.
        if state.failures < LASTING {
            tracing::debug!(error = &error as &dyn std::error::Error, "reports are tried again");
            return;
        }
        if storing.works() {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "reports cannot be stored; they wait in the queue and nothing more is claimed");
        }
        storing.failed(causes(&error));
        state.rest_until = Instant::now() + RETRY;
    }

    /// Checks, while nothing is claimed, whether the store works and how many reports wait. A store that has just
    /// `stored` reports is not checked; that replaces a check that it has not answered yet.
    fn begin_probe(&self, state: &mut State, stored: bool, clock: &dyn Clock) {
        let answers_sooner = stored && state.probes_store;
        if self.results.condition.storing.works() || !state.probing.is_empty() && !answers_sooner {
            return;
        }
        (state.probing, state.probes_store) = (JoinSet::new(), !stored);
        state.probing.spawn(probe(Arc::clone(&self.results), stored, clock.now()));
    }

    /// Has more claimed once the store works and every report that waited is stored: until then leases may have ended of
    /// feeds that were fetched long ago. What this scheduler itself has in hand does not count as waiting, and where others
    /// keep the queue from ever being empty, a lease without a failure is enough.
    pub(crate) fn judge(&self, probed: &Probed, in_hand: usize) {
        let (storing, scheduler) = (&self.results.condition.storing, &self.results.config.scheduler);
        let Some(quiet_for) = storing.quiet_for().filter(|quiet| *quiet >= probed.asked.elapsed()) else { return };
        // A store that answers need not take anything: its disk may be full.
        let in_hand = if probed.stored { in_hand } else { 0 };
        if probed.waiting.is_some_and(|waiting| waiting <= in_hand)
            || quiet_for > scheduler.queue_lease + scheduler.fetch_lease
        {
            storing.recovered();
            tracing::info!("reports are stored again");
        }
    }
}

/// Checks whether the store works, unless it has just `stored` something, and reads from the queue how many reports
/// wait. `None`: the store does not work.
pub(crate) async fn probe(results: Arc<Results>, stored: bool, now: Timestamp) -> Option<Probed> {
    let asked = Instant::now();
    if !stored {
        results.store.check(now).await.ok()?;
    }
    let depth = tokio::time::timeout(DEPTH_PATIENCE, results.reports.depth()).await;
    Some(Probed { asked, stored, waiting: depth.ok().and_then(Result::ok).map(|depth| depth.items) })
}

/// Returns the result of a task that is never aborted. One that panicked ends the loop, and with it the process.
fn finished<T>(ended: Result<T, JoinError>) -> Option<T> {
    match ended {
        Ok(result) => Some(result),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => None,
        },
    }
}

/// Settles deliveries together and acks them. Reports that wait for a part of the gate are first put back into the queue, behind all
/// others: they hold up nothing, and what came beside them does not come again. Returns how many there are. A batch that is not settled
/// in time returns to the queue as a whole.
async fn settle_gathered(
    results: &Results,
    gathered: Gathered,
    expires: Instant,
    now: Timestamp,
) -> Result<usize, BackendError> {
    let Gathered { deliveries, mut waiting, .. } = gathered;
    let (mut reports, mut receipts) = (Vec::new(), Vec::with_capacity(deliveries.len()));
    for delivery in deliveries {
        let (items, receipt) = delivery.into_parts();
        reports.extend(items);
        receipts.push(receipt);
    }
    let settled = tokio::time::timeout_at(expires, async {
        waiting.extend(results.settle(reports, now).await?);
        // A message each, which no queue refuses as too large.
        let publish = |report| results.reports.publish(std::slice::from_ref(report));
        try_join_all(waiting.iter().map(publish)).await?;
        Ok::<_, BackendError>(waiting.len())
    });
    let waiting = settled.await.map_err(|_| BackendError::TooSlow(results.config.fetch.deadline()))??;
    for receipt in receipts {
        receipt.ack().await?;
    }
    Ok(waiting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::gathered::BATCH;
    use crate::poll::gathered::tests::gathered;

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_is_not_full_waits_for_others_as_long_as_it_may() {
        let mut state = State { gathered: gathered(1, 10).await, ..State::new() };
        assert!(state.may_begin(Duration::ZERO));
        assert!(!state.may_begin(LINGER));
        tokio::time::advance(LINGER).await;
        assert!(state.may_begin(LINGER));
        state.settling.spawn(std::future::pending());
        assert!(!state.may_begin(LINGER), "while others are settled it goes on filling up");
        state.gathered = gathered(BATCH, 10).await;
        assert!(state.may_begin(LINGER), "a full one waits for nothing");
        state.gathered = Gathered::default();
        assert!(!state.may_begin(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_begins_while_the_loop_rests_and_what_is_in_hand_is_counted() {
        let mut state = State { gathered: gathered(BATCH, 10).await, settled_soon: 3, ..State::new() };
        assert_eq!(state.in_hand(), 3 + BATCH);
        assert!(state.may_begin(LINGER));
        state.rest_until = Instant::now() + Duration::from_secs(1);
        assert!(!state.may_begin(LINGER));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(state.may_begin(LINGER));
        for _ in 0..AT_ONCE {
            assert!(state.may_begin(LINGER));
            state.settling.spawn(std::future::pending());
        }
        assert!(!state.may_begin(LINGER), "as many are settled as may be at once");
    }

    #[test]
    fn batches_wait_for_others_in_a_cluster_alone() {
        let mut config = common::config::defaults();
        assert_eq!(linger(&config), Duration::ZERO);
        config.queue.url = "amqp://127.0.0.1/".to_owned();
        assert_eq!(linger(&config), LINGER);
    }
}
