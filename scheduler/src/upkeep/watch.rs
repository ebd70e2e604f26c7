//! Checks, every few seconds, what the [watchdog](crate::condition::watchdog) judges by: whether feeds are due, and
//! whether there is a reason why none is polled.

use std::sync::Arc;
use std::time::Duration;

use common::causes::causes;
use common::config::{Config, shared_hash};
use common::job::FetchJob;
use common::metrics::Metrics;
use common::queue::Queue;
use common::time::{Clock, compared};
use tokio_util::sync::CancellationToken;

use crate::condition::Condition;
use crate::condition::failure_log::FailureLog;
use crate::condition::watchdog::LEASES;
use crate::error::BackendError;
use crate::schedule::Schedule;
use crate::upkeep::configurations::Configurations;
use store::Store;

/// How often it checks.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long all the answers may take: longer than the limits of all these calls together. What takes longer is stuck here.
const PATIENCE: Duration = Duration::from_secs(90);

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
        let mut configurations = Configurations::default();
        let mut comparing = FailureLog::new("comparing the configurations of schedulers");
        while !stop.is_cancelled() {
            if !common::sleep_or_stop(LOOK_EVERY, stop).await {
                return;
            }
            self.look(clock).await;
            let own = shared_hash(&self.condition.config.get());
            comparing.note(configurations.compare(&own, &*self.schedule).await);
        }
    }

    /// Judges once.
    pub(crate) async fn look(&self, clock: &dyn Clock) {
        let scheduler = &self.config.scheduler;
        let lease = scheduler.queue_lease + scheduler.fetch_lease;
        let watchdog = &self.condition.watchdog;
        let alarm = match tokio::time::timeout(PATIENCE, self.due_without_reason(clock, lease)).await {
            Ok(Ok(Some(due))) => watchdog.judge(due, lease),
            Ok(Ok(None)) => watchdog.excuse(),
            Ok(Err(error)) if self.restart_is_useless(&error).await => watchdog.excuse(),
            Ok(Err(error)) => watchdog.judge_failure(&causes(&error), lease),
            Err(_) => watchdog.judge_failure("a call does not return", lease),
        };
        self.metrics.watchdog.set(i64::from(alarm));
    }

    /// Returns whether a server is the reason for the error, which a new process would meet as well, and which
    /// readiness shows.
    async fn restart_is_useless(&self, error: &BackendError) -> bool {
        match error {
            BackendError::Store(error) => error.is_servers(),
            BackendError::Schedule(error) => error.is_servers(),
            BackendError::Queue(_) => self.jobs.check().await.is_err(),
            _ => false,
        }
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
        let now = compared(clock, || self.schedule.check(clock)).await?;
        let oldest = self.schedule.depth(now).await?.oldest.into_iter().flatten().min();
        Ok(oldest.map(|oldest| now.since(oldest)))
    }
}

#[cfg(test)]
mod tests {
    use common::faults::{Fault, Faults, Faulty};
    use common::queue::QueueError;
    use common::time::{ManualClock, Timestamp};
    use store::StoreError;
    use store::sqlite::SqliteStore;

    use super::*;
    use crate::run::{Backends, Scheduler};

    #[tokio::test]
    async fn a_restart_is_of_no_use_while_a_server_is_away_and_only_then() {
        let backends = Backends::in_memory(Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap()));
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Timestamp::EPOCH));
        let config = Arc::new(common::config::defaults());
        let Scheduler { mut watch, .. } = Scheduler::new(&backends, &config, &Arc::new(Metrics::new()), &clock);
        let away = BackendError::Store(StoreError::Late { action: "answer", limit: Duration::ZERO });
        assert!(watch.restart_is_useless(&away).await);
        assert!(!watch.restart_is_useless(&BackendError::Store(StoreError::Outdated)).await);
        watch.jobs = Arc::new(Faulty::new(backends.jobs.clone(), &Faults::at([(0, Fault::Before)])));
        let queue = BackendError::Queue(QueueError::Closed);
        assert!(watch.restart_is_useless(&queue).await, "its check fails too");
        assert!(!watch.restart_is_useless(&queue).await, "it answers");
    }
}
