//! One polite fetch outside of the fleet: through the worker's own fetcher, address guard and host gate, so that its
//! redirects keep the pace too. It does not know of a fleet's requests to the same host.

use std::sync::Arc;

use anyhow::bail;
use common::config::Config;
use common::document::Validators;
use common::host::HostRules;
use common::host_gate::memory::MemoryGate;
use common::host_gate::{ExtraRequest, GateUpkeep, HostGate, Ticket};
use common::job::FetchJob;
use common::outcome::FailureKind;
use common::report::Outcome;
use common::secrets::Login;
use common::time::{Clock, SystemClock, Timestamp};
use common::url::{FeedId, FeedUrl, Version};
use worker::fetch::{Fetched, Hops};
use worker::own_holds::OwnHolds;
use worker::trace::Exchange;

/// A finished fetch.
pub(crate) struct Single {
    /// The job that a worker would have received.
    pub(crate) job: FetchJob,
    /// When it started.
    pub(crate) started: Timestamp,
    /// What went over the wire.
    pub(crate) exchanges: Vec<Exchange>,
    /// The outcome of the fetch.
    pub(crate) fetched: Fetched,
    /// The host rules in force.
    pub(crate) rules: Arc<HostRules>,
}

impl Single {
    /// Returns the URL that sent the last answer.
    pub(crate) fn last_url(&self) -> &FeedUrl {
        self.exchanges.last().map_or(&self.job.url, |exchange| &exchange.url)
    }

    /// Returns the last answer's field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let answer = self.exchanges.last()?.answer.as_ref()?;
        answer.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}

/// A feed that was just added: for a page that announces none, the usual places are tried.
pub(crate) const NEW: Version = Version(1);
/// A feed that was polled before: one request, redirects aside.
pub(crate) const POLLED_BEFORE: Version = Version(2);

/// Returns what to add to an outcome that this command's own configuration causes.
pub(crate) fn hint(outcome: &Outcome) -> &'static str {
    match outcome.failure() {
        Some(FailureKind::RefusedAddress) => {
            "; this command uses its own configuration (--config, --set, FEEDFLEET_FETCH__ALLOW_NETWORKS), not a running \
             fleet's"
        }
        _ => "",
    }
}

/// Fetches `url` once; with `validators` conditionally.
pub(crate) async fn fetch(
    config: &Config,
    (url, login): (FeedUrl, Option<&Login>),
    validators: Validators,
    subscribers: u32,
    version: Version,
) -> anyhow::Result<Single> {
    let clock = SystemClock;
    let rules = Arc::new(HostRules::new(config.host.clone(), config.host_rule.clone()));
    let fetcher = crate::backends::fetcher(config, &rules)?;
    let gate = MemoryGate::new(Timestamp::EPOCH);
    let started = clock.now();
    if let Some(mark) = gate.begin_loading(started).await? {
        gate.open(&mark, started).await?;
    }
    let policy = rules.for_url(url.as_url());
    let deadline = started.after(config.fetch.timeout);
    let request = ExtraRequest { host: &policy.key, limits: policy.limits, during: None, deadline };
    let Ok(permit) = gate.acquire_extra(&request, started).await? else { bail!("a new gate refuses a host") };
    let job = FetchJob {
        validators,
        search: true,
        subscribers,
        ..FetchJob::of(FeedId(0), version, policy.key.clone(), url, Ticket(0), deadline)
    };
    let mut exchanges = Vec::new();
    let patience = config.fetch.timeout;
    let hops = Hops {
        gate: &gate,
        rules: &rules,
        clock: &clock,
        permit: &permit,
        own_holds: &OwnHolds::default(),
        deadline,
        login,
        patience,
    };
    let fetched = fetcher.fetch_traced(&job, &hops, &mut exchanges).await;
    Ok(Single { job, started, exchanges, fetched, rules })
}
