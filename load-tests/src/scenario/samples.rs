//! Samples, one per second of a run: polls, memory and CPU by process, the fleet's own metrics of its backlog.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::exposition::series;
use super::fleet::FleetProcesses;
use crate::{Origin, usage};

/// One sample.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Sample {
    /// Seconds since polling started.
    pub(super) at: f64,
    /// Requests so far.
    pub(super) requests: usize,
    /// By process: `scheduler 0`, `worker 1`, `run`, and the servers.
    pub(super) processes: BTreeMap<String, Usage>,
    /// Whether the first process is ready.
    pub(super) ready: bool,
    /// The delay of the most overdue feed in seconds, according to the scheduler.
    pub(super) oldest_due: f64,
    /// Due feeds, according to the scheduler.
    pub(super) due: f64,
    /// Feeds that wait for their hosts.
    pub(super) parked: f64,
}

/// The resource usage of a process.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Usage {
    /// Memory in megabytes.
    pub(super) memory: f64,
    /// CPU seconds so far.
    pub(super) cpu: f64,
}

/// The processes of a cluster's servers, by name.
pub(super) struct Servers(Vec<(&'static str, Vec<u32>)>);

impl Servers {
    /// Finds the servers that the environment names; they must listen on this machine.
    pub(super) fn find() -> Self {
        let all = [
            ("PostgreSQL", "FEEDFLEET_TEST_POSTGRES", 5432),
            ("Redis", "FEEDFLEET_TEST_REDIS", 6379),
            ("RabbitMQ", "FEEDFLEET_TEST_RABBITMQ", 5672),
        ];
        let found = all.into_iter().filter_map(|(name, variable, port)| {
            let url = reqwest::Url::parse(&std::env::var(variable).ok()?).ok()?;
            Some((name, usage::listening_on(url.port().unwrap_or(port))))
        });
        Servers(found.collect())
    }
}

/// Takes a sample.
pub(super) async fn look(fleet: &FleetProcesses, servers: &Servers, origin: &Origin, go: Duration) -> Sample {
    let mut sample = Sample::default();
    if let Some(first) = fleet.processes.first() {
        sample.ready = fleet.is_ready(&first.address).await;
        if let Some(text) = fleet.metrics(&first.address).await {
            let value = |name: &str| series(&text, name).fold(0.0, f64::max);
            sample.oldest_due = value("feedfleet_oldest_due_seconds");
            sample.due = value("feedfleet_due_feeds");
            sample.parked = value("feedfleet_parked_feeds");
        }
    }
    for process in &fleet.processes {
        sample.processes.insert(process.name.clone(), used(&[process.id()]));
    }
    for (name, pids) in &servers.0 {
        // PostgreSQL uses short-lived child processes.
        sample.processes.insert((*name).to_owned(), used(&usage::family(pids)));
    }
    sample.processes.insert("origin".to_owned(), used(&[std::process::id()]));
    sample.at = origin.elapsed().saturating_sub(go).as_secs_f64();
    sample.requests = origin.request_count();
    sample
}

fn used(pids: &[u32]) -> Usage {
    // A process that has just ended uses nothing.
    let memory: u64 = pids.iter().map(|pid| usage::memory(*pid).unwrap_or(0)).sum();
    let cpu: Duration = pids.iter().map(|pid| usage::cpu(*pid).unwrap_or_default()).sum();
    Usage { memory: memory as f64 / 1e6, cpu: cpu.as_secs_f64() }
}
