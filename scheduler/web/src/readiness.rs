//! Whether this scheduler can do its work. Polling needs every server; the API and the pages need the store alone: an operator must be
//! able to pause the fleet, and consumers to read entries, while Redis or RabbitMQ is away.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::causes::causes;
use common::time::Timestamp;
use scheduler::condition::gate::Closed;
use scheduler::ops::Ops;
use scheduler::schedule::Depth;
use tokio_util::sync::CancellationToken;

use crate::recent::Recent;

/// How often the metric is set without requests.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What is known about the servers behind a scheduler.
#[derive(Default)]
pub(crate) struct Readiness {
    /// Whether all servers answer.
    servers: Recent<Result<(), String>>,
    /// Whether the store answers.
    store: Recent<Result<(), String>>,
    /// It could poll at some time since its start.
    has_been: AtomicBool,
}

/// Returns why this scheduler dispatches no feeds although its servers answer.
pub(crate) fn dispatch_stopped(ops: &Ops) -> Option<String> {
    let storing = ops.condition.storing.trouble();
    let storing = storing.map(|why| format!("reports cannot be stored, and nothing more is fetched meanwhile: {why}"));
    storing.or_else(|| ops.condition.dispatching.trouble().map(|why| format!("due feeds cannot be dispatched: {why}")))
}

impl Readiness {
    /// Returns why the scheduler cannot poll now, if it cannot. While some parts of the host gate are closed, the others work.
    pub(crate) async fn to_poll(&self, ops: &Ops) -> Result<(), String> {
        self.to_work(ops).await?;
        match ops.condition.gate.closed().filter(Closed::is_whole) {
            Some(closed) => Err(format!("the host gate is {closed}")),
            None => Ok(()),
        }
    }

    /// The same, whether the host gate is open or not yet: it opens without a change to this scheduler.
    async fn to_work(&self, ops: &Ops) -> Result<(), String> {
        stays(ops)?;
        self.servers.get(|| servers(ops)).await?;
        if let Some(why) = dispatch_stopped(ops) {
            return Err(why);
        }
        self.has_been.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns why the scheduler cannot answer for the API now, if it cannot. A scheduler that has never been able to poll since its
    /// start is not ready for the API either: otherwise a rolling restart with a wrong address of a server would replace every
    /// scheduler that works.
    pub(crate) async fn to_answer(&self, ops: &Ops) -> Result<(), String> {
        stays(ops)?;
        if self.has_been.load(Ordering::Relaxed) {
            self.store.get(|| store(ops)).await
        } else {
            self.to_work(ops).await
        }
    }

    /// Sets the metric until `stop`.
    pub(crate) async fn show(self: Arc<Self>, ops: Arc<Ops>, stop: CancellationToken) {
        let shown = ops.metrics.ready.with_label_values(&["scheduler"]);
        loop {
            shown.set(i64::from(self.to_poll(&ops).await.is_ok()));
            if !common::sleep_or_stop(LOOK_EVERY, &stop).await {
                return;
            }
        }
    }
}

/// Returns what is in the schedule, or nothing and why it cannot be read: numbers of the store are shown without it.
pub(crate) async fn schedule_depth(ops: &Ops, now: Timestamp) -> (Depth, Option<String>) {
    match ops.schedule.depth(now).await {
        Ok(depth) => (depth, None),
        Err(error) => (Depth::default(), Some(unusable("the schedule", &error))),
    }
}

fn stays(ops: &Ops) -> Result<(), String> {
    if ops.quiet.is_cancelled() { Err("this scheduler is shutting down".to_owned()) } else { Ok(()) }
}

/// Checks every server that a scheduler needs.
async fn servers(ops: &Ops) -> Result<(), String> {
    // Each server's clock is compared with the time at which the server is checked.
    store(ops).await?;
    ops.schedule.check_whole(&*ops.clock).await.map_err(|error| unusable("the schedule", &error))?;
    ops.gate.check_whole(&*ops.clock).await.map_err(|error| unusable("the host gate", &error))?;
    for checked in [ops.jobs.check().await, ops.reports.check().await] {
        checked.map_err(|error| unusable("the queue", &error))?;
    }
    Ok(())
}

async fn store(ops: &Ops) -> Result<(), String> {
    ops.store.check(ops.clock.now()).await.map_err(|error| unusable("the store", &error))
}

fn unusable(what: &str, error: &dyn Error) -> String {
    format!("{what} is not usable: {}", causes(error))
}
