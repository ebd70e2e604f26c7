//! Whether this scheduler can do its work. Polling needs every server; the API and the pages need the store alone: an operator must be
//! able to pause the fleet, and consumers to read entries, while Redis or RabbitMQ is away.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::causes::causes;
use common::time::Timestamp;
use scheduler::ops::Ops;
use scheduler::schedule::Depth;
use tokio_util::sync::CancellationToken;

use crate::recent::Recent;
use crate::state::Api;

/// How often the metric is set while nobody asks.
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

/// Returns why the scheduler cannot poll now, if it cannot.
pub(crate) async fn to_poll(api: &Api) -> Result<(), String> {
    stays(api)?;
    api.readiness.servers.get(|| servers(api)).await?;
    if let Some(why) = api.ops.condition.storing.trouble() {
        return Err(format!("reports cannot be stored, and nothing more is fetched meanwhile: {why}"));
    }
    api.readiness.has_been.store(true, Ordering::Relaxed);
    Ok(())
}

/// Returns why the scheduler cannot answer for the API now, if it cannot. A scheduler that has never been able to poll since its start
/// is not ready for the API either: otherwise a rolling restart with a wrong address of a server would replace every
/// scheduler that works.
pub(crate) async fn to_answer(api: &Api) -> Result<(), String> {
    stays(api)?;
    if api.readiness.has_been.load(Ordering::Relaxed) {
        api.readiness.store.get(|| store(api)).await
    } else {
        to_poll(api).await
    }
}

/// Sets the metric until `stop`.
pub(crate) async fn show(api: Api, stop: CancellationToken) {
    let shown = api.ops.metrics.ready.with_label_values(&["scheduler"]);
    loop {
        shown.set(i64::from(to_poll(&api).await.is_ok()));
        if !common::sleep_or_stop(LOOK_EVERY, &stop).await {
            return;
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

fn stays(api: &Api) -> Result<(), String> {
    if api.ops.quiet.is_cancelled() { Err("this scheduler is shutting down".to_owned()) } else { Ok(()) }
}

/// Asks every server that a scheduler needs.
async fn servers(api: &Api) -> Result<(), String> {
    let ops = &api.ops;
    // Each server's clock is compared with the time at which it is asked.
    store(api).await?;
    ops.schedule.check(&*ops.clock).await.map_err(|error| unusable("the schedule", &error))?;
    ops.gate.check(&*ops.clock).await.map_err(|error| unusable("the host gate", &error))?;
    ops.jobs.check().await.map_err(|error| unusable("the queue", &error))
}

async fn store(api: &Api) -> Result<(), String> {
    api.ops.store.check(api.ops.clock.now()).await.map_err(|error| unusable("the store", &error))
}

fn unusable(what: &str, error: &dyn Error) -> String {
    format!("{what} is not usable: {}", causes(error))
}
