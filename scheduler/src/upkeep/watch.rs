//! Asks, every few seconds, what the [watchdog](crate::condition::watchdog) judges by: are feeds due, and is there a reason
//! why none is polled?

use std::sync::Arc;
use std::time::Duration;

use common::config::Config;
use common::job::FetchJob;
use common::metrics::Metrics;
use common::queue::Queue;
use common::time::Clock;
use tokio_util::sync::CancellationToken;

use crate::condition::Condition;
use crate::condition::watchdog::LEASES;
use crate::error::BackendError;
use crate::schedule::Schedule;
use store::Store;

/// How often it asks.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long all the answers may take. A server that does not answer is a reason of its own.
const PATIENCE: Duration = Duration::from_secs(20);

/// Watches over the other loops.
pub(crate) struct Watch {
    /// Knows whether polling is paused.
    pub(crate) store: Arc<dyn Store>,
    /// Knows what is due.
    pub(crate) schedule: Arc<dyn Schedule>,
    /// Knows whether there are workers.
    pub(crate) jobs: Arc<dyn Queue<FetchJob>>,
    /// Holds the alarm.
    pub(crate) condition: Arc<Condition>,
    /// The numbers.
    pub(crate) config: Arc<Config>,
    /// Shows the alarm.
    pub(crate) metrics: Arc<Metrics>,
}

impl Watch {
    /// Watches until stopped.
    pub(crate) async fn run(&self, clock: &dyn Clock, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            if !common::sleep_or_stop(LOOK_EVERY, stop).await {
                return;
            }
            self.look(clock).await;
        }
    }

    /// Judges once.
    pub(crate) async fn look(&self, clock: &dyn Clock) {
        let scheduler = &self.config.scheduler;
        let lease = scheduler.queue_lease + scheduler.fetch_lease;
        let alarm = match tokio::time::timeout(PATIENCE, self.due_without_reason(clock, lease)).await {
            Ok(Ok(Some(due))) => self.condition.watchdog.judge(due, lease),
            Ok(Ok(None)) => {
                self.condition.watchdog.progressed();
                false
            }
            // Nobody knows whether anything is due.
            Ok(Err(_)) | Err(_) => self.condition.watchdog.alarm().is_some(),
        };
        self.metrics.watchdog.set(i64::from(alarm));
    }

    /// For how long the oldest feed has been due that waits neither for its host nor for a known reason; `None`: there is a
    /// reason, or no such feed.
    async fn due_without_reason(&self, clock: &dyn Clock, lease: Duration) -> Result<Option<Duration>, BackendError> {
        let storing_fails = self.condition.storing.quiet_for().is_some_and(|quiet| quiet < lease * LEASES);
        let excused = storing_fails
            || self.condition.our_fault.since().is_some()
            || self.condition.gate.closed().is_some()
            || self.jobs.blocked().is_some()
            || self.store.paused().await?
            || self.jobs.depth().await?.consumers == Some(0);
        if excused {
            return Ok(None);
        }
        self.schedule.check(clock).await?;
        let now = clock.now();
        let oldest = self.schedule.depth(now).await?.oldest.into_iter().flatten().min();
        Ok(oldest.map(|oldest| now.since(oldest)))
    }
}
