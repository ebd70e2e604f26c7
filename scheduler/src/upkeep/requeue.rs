//! Runs requeues: takes the next step of each, and updates the schedule for the feeds that it woke.
//!
//! Every scheduler does it; the store lets one of them take a step. Steps are remembered in the transaction that wakes
//! their feeds, so that when a scheduler dies, another continues where it stopped. Reconcile finds a woken feed that
//! the schedule does not know of. Hosts' gaps and holds are kept by dispatch, as for every other poll.

use std::sync::Arc;
use std::time::Duration;

use common::time::{Clock, Timestamp};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::condition::Condition;
use crate::condition::failure_log::FailureLog;
use crate::error::BackendError;
use crate::poll::refusals::begin_owed;
use crate::poll::subject::placement_slot;
use crate::schedule::{Schedule, ScheduleError, Slot};
use store::Store;

/// Between two looks for requeues while none runs.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two steps of one that runs: short enough that a host sees no bursts, long enough to cost nothing.
const STEP_EVERY: Duration = Duration::from_millis(200);
/// How long steps may follow each other before the loop looks for a stop, a pause and other requeues.
const LONGEST_ROUND: Duration = Duration::from_secs(1);

/// Takes the steps.
pub struct RequeueRunner {
    /// Remembers how far each is.
    pub store: Arc<dyn Store>,
    /// Learns which feeds a step woke.
    pub schedule: Arc<dyn Schedule>,
    /// Whether what is fetched can be stored.
    pub condition: Arc<Condition>,
}

impl RequeueRunner {
    /// Steps until stopped.
    pub async fn run(&self, clock: &dyn Clock, stop: &CancellationToken) {
        let mut stepping = FailureLog::new("going on with requeues");
        let mut beginning = FailureLog::new("beginning the requeues of hosts that answer again");
        while !stop.is_cancelled() {
            let begun = Instant::now();
            beginning.note(begin_owed(&*self.store, &self.condition, clock.now()).await);
            let runs = stepping.note(self.round(clock).await).unwrap_or(false);
            // A rate that the store can just about keep up with leaves no time for a rest.
            let rest = if runs { STEP_EVERY.saturating_sub(begun.elapsed()) } else { LOOK_EVERY };
            common::sleep_or_stop(rest, stop).await;
        }
    }

    /// Takes the steps that the rates of the running requeues allow, in turn; returns whether there is one. While
    /// nothing is polled no feed is woken: otherwise all would become due at the same moment.
    pub async fn round(&self, clock: &dyn Clock) -> Result<bool, BackendError> {
        let running = self.store.requeues(true).await?;
        if running.is_empty() {
            return Ok(false);
        }
        self.schedule.check(clock).await?;
        if self.condition.storing.works() && !self.store.paused().await? {
            let ends = clock.now().after(LONGEST_ROUND);
            let mut going_on: Vec<i64> = running.iter().map(|requeue| requeue.id).collect();
            while !going_on.is_empty() && clock.now() < ends {
                for id in std::mem::take(&mut going_on) {
                    // By the time that it is now: what a rate allows while slow steps are taken is not lost.
                    going_on.extend(self.step(id, clock.now()).await?.then_some(id));
                }
            }
        }
        Ok(true)
    }

    /// Takes one step; returns whether another one may be taken at once.
    async fn step(&self, id: i64, now: Timestamp) -> Result<bool, BackendError> {
        let step = self.store.step_requeue(id, now).await?;
        let slots: Vec<Slot> = step.woken.iter().map(placement_slot).collect();
        // A part that is away is filled from the store, which has the step.
        self.schedule.lower(&slots, now).await.or_else(ScheduleError::unless_part_away)?;
        if step.done {
            tracing::info!(requeue = id, "a requeue is done");
        }
        Ok(step.again)
    }
}
