//! One job's life in a worker: steps 3 (its last part), 4 and 5.
//!
//! Every received job ends in exactly one [`Polled`]: a report to be published, nothing because it was reported before, or a
//! wish for isolation. A fetch that was made always ends in a report, whatever the gate says meanwhile. What the server did
//! is [`crate::fetch`]'s business.

use std::sync::Arc;
use std::time::Duration;

use common::config::Config;
use common::host::HostKey;
use common::host_gate::{
    AcquireRequest, Acquired, GateError, HostGate, Isolation, Nonces, Permit, Release, UNOPENED_RETRY,
};
use common::job::{Detour, FetchJob};
use common::live_rules::LiveRules;
use common::metrics::Metrics;
use common::outcome::FailureKind;
use common::policy::first_hold;
use common::push::PushedBody;
use common::report::{FetchReport, Outcome};
use common::secrets::{Keyring, Login, SecretError};
use common::time::{Clock, ClockWatch, SteadyClock, Timestamp};
use tokio::time::Instant;

use crate::fetch::{FetchFeed, Fetched, Hops};
use crate::log;
use crate::own_holds::OwnHolds;

/// Works jobs.
pub struct Poller {
    /// Makes requests.
    pub fetcher: Box<dyn FetchFeed>,
    /// Says when they may be made.
    pub gate: Arc<dyn HostGate>,
    /// Which host a URL belongs to.
    pub rules: Arc<LiveRules>,
    /// The numbers.
    pub config: Arc<Config>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Opens logins.
    pub secrets: Arc<Keyring>,
    /// No request is sent while our clock is off: gaps and holds would mean nothing.
    pub watch: ClockWatch,
    /// Names its acquires.
    pub nonces: Nonces,
    /// What hosts requested and the gate does not know yet.
    pub own_holds: OwnHolds,
}

/// When a job is tried again whose login cannot be opened here: the fault is ours, and another worker may have the key.
const KEY_RETRY: Duration = Duration::from_secs(60);

/// What a job resulted in.
#[derive(Debug)]
pub enum Polled {
    /// To be published; what the gate granted, if anything, is released after that.
    Report(Box<FetchReport>, Option<PendingRelease>),
    /// Reported by an earlier delivery, or so late that its lease has ended: acknowledge and forget.
    Nothing,
    /// An earlier start has no report: poll it again in this isolation.
    Suspect(Isolation),
}

/// What must still be released at the gate, after the report is safe.
#[derive(Clone, Debug)]
pub struct PendingRelease {
    permit: Permit,
    /// The version counts as reported.
    reported: bool,
    /// The hold that the host requested. The slot at the host is released after it.
    hold: Option<(HostKey, Timestamp)>,
    /// The gate has taken it.
    is_held: bool,
    /// When the request left, and its host's gap.
    last_start: Option<(Instant, Duration)>,
}

impl PendingRelease {
    /// Of a permit under which nothing was requested.
    fn unasked(permit: Permit, reported: bool) -> Self {
        PendingRelease { permit, reported, hold: None, is_held: false, last_start: None }
    }
}

/// The gate did not answer before the fetch; nothing was sent.
#[derive(Debug, thiserror::Error)]
#[error("nothing was fetched")]
pub struct Unasked {
    source: GateError,
    /// What the gate may have given without our knowing: to be released when it answers again.
    pub owed: Option<Box<PendingRelease>>,
}

impl From<GateError> for Unasked {
    fn from(source: GateError) -> Self {
        Unasked { source, owed: None }
    }
}

/// Counts a fetch until it ends, even by a panic.
struct InFlight<'a>(&'a Metrics);

impl<'a> InFlight<'a> {
    fn count(metrics: &'a Metrics) -> Self {
        metrics.in_flight.inc();
        InFlight(metrics)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.dec();
    }
}

impl Poller {
    /// Works one job, beside what `isolation` allows.
    pub async fn poll(&self, job: &FetchJob, isolation: Isolation) -> Result<Polled, Unasked> {
        if let Some(pushed) = &job.pushed {
            return Ok(self.read_pushed(job, pushed).await);
        }
        let started = self.time().await?;
        // A clock that is set during the fetch would shorten a hold, or let the fetch outlive its permit.
        let clock = SteadyClock::starting_at(started);
        if started > job.expires {
            return Ok(self.expired(job, started).await);
        }
        let login = match job.credentials.as_ref().map(|sealed| self.secrets.open(sealed, &job.url)).transpose() {
            Ok(login) => login,
            Err(error) => return Ok(self.defer_without_key(job, &error, started).await),
        };
        let deadline = started.after(self.config.fetch.deadline());
        let request = AcquireRequest {
            host: job.host.clone(),
            limits: self.rules.get().limits_of(&job.host),
            ticket: job.ticket,
            feed: job.feed,
            version: job.gate_version(),
            deadline,
            leased_until: self.leased_until(job),
            nonce: self.nonces.fresh(),
            isolation,
        };
        let acquired = match self.gate.acquire(&request, started).await {
            Ok(acquired) => acquired,
            Err(source) => {
                // It may have been granted: a start that never was must not count against the feed.
                let owed = PendingRelease::unasked(request.permit(), false);
                if matches!(source, GateError::PartAway { .. }) {
                    // The feed waits. The jobs beside it are for hosts of other parts.
                    let deferred = Fetched::unasked(Outcome::Deferred { until: started.after(UNOPENED_RETRY) });
                    return Ok(Polled::Report(Box::new(report(job, started, deferred)), Some(owed)));
                }
                return Err(Unasked { source, owed: Some(Box::new(owed)) });
            }
        };
        let unasked = |outcome, permit: Option<Permit>| {
            let held = permit.map(|permit| PendingRelease::unasked(permit, true));
            Ok(Polled::Report(Box::new(report(job, started, Fetched::unasked(outcome))), held))
        };
        match acquired {
            Acquired::Granted(permit) => {
                // Only now does the fetch begin: the way to the gate may have been long.
                let at = self.clock.now();
                let begun = clock.now();
                log::granted(&request, started, at, begun);
                // This process was stopped meanwhile: the permit would expire before the fetch ends, or has expired.
                let longest = self.config.fetch.timeout + self.config.fetch.max_place_wait();
                let is_late = begun.after(longest) > deadline;
                // The gate granted it before it learned of a hold from us.
                let hold = self.own_holds.of(&job.host, begun);
                if let Some(until) = hold.or(is_late.then_some(begun)) {
                    let deferred = Fetched::unasked(Outcome::Deferred { until });
                    let unasked = PendingRelease::unasked(permit, false);
                    return Ok(Polled::Report(Box::new(report(job, begun, deferred)), Some(unasked)));
                }
                Ok(self.fetch(job, login.as_ref(), permit, &clock, deadline).await)
            }
            Acquired::Reported => Ok(Polled::Nothing),
            Acquired::Suspect(needed) => Ok(Polled::Suspect(needed)),
            Acquired::NotNow { until } => unasked(Outcome::Deferred { until }, None),
            Acquired::Crashed(permit) => {
                let detail = "workers died while they read this feed, and nothing else".to_owned();
                unasked(Outcome::Failed { failure: FailureKind::Crashed, detail }, Some(permit))
            }
        }
    }

    /// Returns the time, once the gate answers and its clock agrees with ours.
    pub(crate) async fn time(&self) -> Result<Timestamp, GateError> {
        self.watch.agree(&*self.clock, || self.gate.check(&*self.clock)).await
    }

    /// Reads what a hub delivered. No request is sent, and the gate is not needed. A delivery that kills its worker is
    /// redelivered to others only until the job expires: then the scheduler has the feed polled instead, which the gate
    /// guards.
    async fn read_pushed(&self, job: &FetchJob, pushed: &PushedBody) -> Polled {
        let started = self.clock.now();
        let fetched = match started > job.expires {
            true => Fetched::unasked(Outcome::Deferred { until: started }),
            false => self.fetcher.read_pushed(job, pushed).await,
        };
        self.metrics.slow_parses.inc_by(fetched.slow_parses);
        Polled::Report(Box::new(report(job, started, fetched)), None)
    }

    /// A job that waited too long. Its feed is due now; only once its lease has ended as well may another job be in
    /// flight.
    async fn expired(&self, job: &FetchJob, now: Timestamp) -> Polled {
        self.give_up_ticket(job, now).await;
        if now >= self.leased_until(job) {
            return Polled::Nothing;
        }
        let deferred = Fetched::unasked(Outcome::Deferred { until: now });
        Polled::Report(Box::new(report(job, now, deferred)), None)
    }

    /// Returns a report that makes the feed due again after this time, and frees its slot at the host.
    pub(crate) async fn put_off(&self, job: &FetchJob, by: Duration) -> Box<FetchReport> {
        let now = self.clock.now();
        self.give_up_ticket(job, now).await;
        Box::new(report(job, now, Fetched::unasked(Outcome::Deferred { until: now.after(by) })))
    }

    /// Frees the slot at the host now; when the gate does not answer, it is free when the job expires.
    async fn give_up_ticket(&self, job: &FetchJob, now: Timestamp) {
        if let Err(error) = self.gate.cancel(&job.host, job.ticket, now).await {
            tracing::debug!(feed = %job.feed, error = &error as &dyn std::error::Error, "a ticket could not be cancelled; it expires");
        }
    }

    /// No request is sent, and nothing counts against the feed.
    async fn defer_without_key(&self, job: &FetchJob, error: &SecretError, now: Timestamp) -> Polled {
        let unreadable = &self.metrics.unreadable_credentials;
        if unreadable.get() == 0 {
            tracing::error!(feed = %job.feed, %error, "cannot decrypt feed credentials: no matching secrets key (logged once; see feedfleet_unreadable_credentials_total)");
        }
        unreadable.inc();
        self.give_up_ticket(job, now).await;
        let deferred = Fetched::unasked(Outcome::Deferred { until: now.after(KEY_RETRY) });
        Polled::Report(Box::new(report(job, now, deferred)), None)
    }

    async fn fetch(
        &self,
        job: &FetchJob,
        login: Option<&Login>,
        permit: Permit,
        clock: &SteadyClock,
        deadline: Timestamp,
    ) -> Polled {
        // One snapshot for the whole fetch.
        let rules = self.rules.get();
        let limits = rules.limits_of(&job.host);
        let gate = &*self.gate;
        // A fetch that waited for a host here would delay other fetches, and other requests to its own host.
        let patience = Duration::ZERO;
        let hops =
            Hops { gate, rules: &rules, clock, permit: &permit, own_holds: &self.own_holds, deadline, login, patience };
        let in_flight = InFlight::count(&self.metrics);
        // What passed since the grant must not make the next interval shorter.
        let started = clock.now();
        let fetched = self.fetcher.fetch(job, &hops).await;
        drop(in_flight);
        self.metrics.slow_parses.inc_by(fetched.slow_parses);
        // Before the slot at the host is released: the next request must find the hold.
        let (mut hold, mut is_held) = (None, false);
        if let Some(until) = fetched.host_rest(Some(&fetched.outcome)) {
            // As the report says it.
            let now = started.after(fetched.duration);
            let host = fetched.last_host.as_ref().unwrap_or(&job.host);
            let asked = (host.clone(), first_hold(until, now, self.rules.throttled()));
            self.own_holds.note(&asked.0, asked.1, now);
            match gate.hold(std::slice::from_ref(&asked), now).await {
                Ok(()) => {
                    is_held = true;
                    self.own_holds.is_known(&asked);
                }
                Err(error) => {
                    tracing::warn!(feed = %job.feed, error = &error as &dyn std::error::Error, "a hold waits for the host gate");
                }
            }
            hold = Some(asked);
        }
        let deferred = matches!(fetched.outcome, Outcome::Deferred { .. });
        let last_start = fetched.own_sent.map(|sent| (sent, limits.gap));
        let held = PendingRelease { permit, reported: !deferred, hold, is_held, last_start };
        Polled::Report(Box::new(report(job, started, fetched)), Some(held))
    }

    /// Releases what the gate granted, after the report is safe, and after any hold that the gate does not know yet.
    /// A hold that the gate does not know is a time by our clock: while that is off, hold and permit wait.
    ///
    /// The version is remembered, unless it was deferred, for two leases: while reports cannot be stored, the lease of a
    /// feed that was fetched long ago ends and the feed is claimed again.
    pub async fn release(&self, held: &PendingRelease) -> Result<(), GateError> {
        self.release_for(held, self.lease() * 2).await
    }

    /// Releases what the gate granted while the report is not safe yet. For one lease the version counts as reported,
    /// so that the feed is not fetched again; if this process dies before the report is safe, it is after that. A hold is sent
    /// again, because the gate may lose its memory meanwhile: nobody else knows of it.
    pub(crate) async fn release_early(&self, held: &PendingRelease) -> Result<(), GateError> {
        let held = PendingRelease { is_held: false, ..held.clone() };
        if held.reported { self.release_for(&held, self.lease()).await } else { Ok(()) }
    }

    async fn release_for(&self, held: &PendingRelease, remembered: Duration) -> Result<(), GateError> {
        let released = self.try_release(held, remembered).await;
        let log = if released.is_ok() { log::released } else { log::unreleased };
        log(&held.permit, self.clock.now());
        released
    }

    async fn try_release(&self, held: &PendingRelease, remembered: Duration) -> Result<(), GateError> {
        if let Some(hold) = held.hold.as_ref().filter(|_| !held.is_held) {
            let now = self.time().await?;
            match self.gate.hold(std::slice::from_ref(hold), now).await {
                Ok(()) => self.own_holds.is_known(hold),
                // It is among our own holds, and a later release sends it. The permit's part of the gate does not wait for it.
                Err(GateError::PartAway { .. }) if hold.0 != held.permit.host => {}
                Err(error) => return Err(error),
            }
        }
        self.send_own_holds().await?;
        let remembered = held.reported.then_some(remembered);
        // What is left of the gap counts from this moment.
        let now = self.clock.now();
        let next_start_in = held.last_start.map(|(sent, gap)| gap.saturating_sub(sent.elapsed()));
        let release = Release { remembered, next_start_in };
        log::releasing(&held.permit, &release, now);
        self.gate.release(&held.permit, release, now).await
    }

    /// Sends the gate the holds of other fetches, and of hosts that redirected, that it did not take when they were read. A part of it
    /// that is away gets them with a later release.
    async fn send_own_holds(&self) -> Result<(), GateError> {
        if self.own_holds.all(self.clock.now()).is_empty() {
            return Ok(());
        }
        let now = self.time().await?;
        let holds = self.own_holds.all(now);
        match self.gate.hold(&holds, now).await {
            Ok(()) => holds.iter().for_each(|hold| self.own_holds.is_known(hold)),
            Err(GateError::PartAway { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns until when the schedule hides the job's feed.
    fn leased_until(&self, job: &FetchJob) -> Timestamp {
        job.expires.after(self.config.scheduler.fetch_lease)
    }

    fn lease(&self) -> Duration {
        self.config.scheduler.queue_lease + self.config.scheduler.fetch_lease
    }
}

/// Returns what is said about a job that was fetched like this. A poll begins with its first request: a server should not see a
/// shorter interval because the name or the connection took long this time.
pub fn report(job: &FetchJob, begun: Timestamp, fetched: Fetched) -> FetchReport {
    let unsent = fetched.asked_after.unwrap_or_default();
    FetchReport {
        feed: job.feed,
        version: job.version,
        host: job.host.clone(),
        started: begun.after(unsent),
        duration: fetched.duration.saturating_sub(unsent),
        outcome: fetched.outcome,
        http_status: fetched.http_status,
        conditional: fetched.conditional,
        wire_bytes: fetched.wire_bytes,
        body_bytes: fetched.body_bytes,
        fresh_for: fetched.fresh_for.map(|fresh_for| fresh_for.saturating_sub(unsent)),
        answers_wake: job.wake_at,
        answered_by: fetched.last_host.filter(|host| *host != job.host),
        moved_to: fetched.moved_to,
        probe: fetched.probe,
        retry_after: fetched.retry_after,
        limited_until: fetched.limited_until,
        unusable_delta: fetched.unusable_delta,
        wants_signature: fetched.wants_signature,
        permanent_url: fetched.permanent_url,
        pushed: job.pushed.is_some(),
        blocked_by: fetched.blocked_by,
        detour: fetched.detour.map(|detour| Detour { page: job.page, ..detour }),
        page: job.page,
        mac: job.mac.clone(),
        // an actor's posts are found from the page itself
        announced: fetched.announced.into_iter().filter(|feed| !feed.is_actor()).map(|feed| feed.url).collect(),
    }
}

#[cfg(test)]
mod tests;
