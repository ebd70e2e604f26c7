//! One job's life in a worker: steps 3 (its last part), 4 and 5.
//!
//! Every received job ends in exactly one [`Polled`]: a report to be published, or nothing because it expired or was
//! reported before. What the server did is [`crate::fetch`]'s business.

use std::sync::Arc;
use std::time::Duration;

use common::config::Config;
use common::host::HostRules;
use common::host_gate::{AcquireRequest, Acquired, GateError, HostGate, Permit};
use common::job::FetchJob;
use common::metrics::Metrics;
use common::policy::SINGLE_FEED_HOLD;
use common::report::{FailureKind, FetchReport, Outcome};
use common::time::{Clock, Timestamp};

use crate::fetch::{Fetched, Fetcher, Hops};

/// Works jobs.
pub struct Poller {
    /// Makes requests.
    pub fetcher: Fetcher,
    /// Says when they may be made.
    pub gate: Arc<dyn HostGate>,
    /// Which host a URL belongs to.
    pub rules: Arc<HostRules>,
    /// The numbers.
    pub config: Arc<Config>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

/// What a job came to.
#[derive(Debug)]
pub enum Polled {
    /// To be published; the permit, if the gate gave one, is released after that.
    Report(Box<FetchReport>, Option<Permit>),
    /// Expired, or reported by an earlier delivery: ack and forget.
    Nothing,
}

/// Time for reading the body that was fetched, on top of the fetch's own deadline: part of a permit's life.
const PARSE_ALLOWANCE: Duration = Duration::from_secs(5);

impl Poller {
    /// Works one job.
    pub async fn poll(&self, job: &FetchJob) -> Result<Polled, GateError> {
        let started = self.clock.now();
        if started > job.expires {
            self.gate.cancel(&job.host, job.ticket, started).await?;
            return Ok(Polled::Nothing);
        }
        let deadline = started.after(self.config.fetch.timeout + PARSE_ALLOWANCE);
        let request = AcquireRequest {
            host: job.host.clone(),
            limits: self.rules.limits_of(&job.host),
            ticket: job.ticket,
            feed: job.feed,
            version: job.version,
            deadline,
        };
        let report = |outcome, permit| {
            let report = report(job, started, Fetched::unasked(outcome));
            Ok(Polled::Report(Box::new(report), permit))
        };
        match self.gate.acquire(&request, started).await? {
            Acquired::Granted(permit) => self.fetch(job, permit, started, deadline).await,
            Acquired::Reported => Ok(Polled::Nothing),
            Acquired::NotNow { until } => report(Outcome::Deferred { until }, None),
            Acquired::Crashed(permit) => {
                let detail = "workers died while they read this feed".to_owned();
                report(Outcome::Failed { failure: FailureKind::Crashed, detail }, Some(permit))
            }
        }
    }

    async fn fetch(
        &self,
        job: &FetchJob,
        permit: Permit,
        started: Timestamp,
        deadline: Timestamp,
    ) -> Result<Polled, GateError> {
        let hops = Hops { gate: &*self.gate, rules: &self.rules, clock: &*self.clock, permit: &permit, deadline };
        self.metrics.in_flight.inc();
        let fetched = self.fetcher.fetch(job, &hops).await;
        self.metrics.in_flight.dec();
        // Before the place at the host is given back: the next request must find the hold.
        if let Outcome::Throttled { retry_after } = &fetched.outcome {
            let now = self.clock.now();
            let latest = now.after(SINGLE_FEED_HOLD);
            let host = fetched.last_host.as_ref().unwrap_or(&job.host);
            self.gate.hold(host, retry_after.unwrap_or(latest).min(latest), now).await?;
        }
        Ok(Polled::Report(Box::new(report(job, started, fetched)), Some(permit)))
    }

    /// Gives a permit back after its report is safe; the version is remembered for one lease, unless it was deferred.
    pub async fn release(&self, permit: &Permit, deferred: bool) -> Result<(), GateError> {
        let now = self.clock.now();
        let scheduler = &self.config.scheduler;
        let remember_until = now.after(scheduler.queue_lease + scheduler.fetch_lease);
        self.gate.release(permit, (!deferred).then_some(remember_until), now).await
    }
}

/// What is said about a job that was fetched like this.
pub fn report(job: &FetchJob, started: Timestamp, fetched: Fetched) -> FetchReport {
    FetchReport {
        feed: job.feed,
        version: job.version,
        host: job.host.clone(),
        started,
        duration: fetched.duration,
        outcome: fetched.outcome,
        http_status: fetched.http_status,
        conditional: fetched.conditional,
        wire_bytes: fetched.wire_bytes,
        body_bytes: fetched.body_bytes,
        fresh_for: fetched.fresh_for,
        answers_wake: job.wake_at,
        answered_by: fetched.last_host.filter(|host| *host != job.host),
        moved_to: fetched.moved_to,
    }
}
