//! A fetcher, a gate and an origin, and a feed that remembers between two polls what the store would remember.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use common::config::{Config, FetchConfig};
use common::document::Document;
use common::host::{HostConfig, HostRule, HostRules};
use common::host_gate::memory::MemoryGate;
use common::host_gate::{
    AcquireRequest, Acquired, GateUpkeep, HostGate, Isolation, LoadMark, Permit, Release, Reservation, ReserveRequest,
    fresh_nonce,
};
use common::job::{Detour, FetchJob};
use common::outcome::FailureKind;
use common::report::Outcome;
use common::secrets::Login;
use common::time::{Clock, SystemClock, Timestamp};
use common::url::{FeedId, Version};
use load_tests::{Origin, Record, Script};
use worker::fetch::{Fetched, Fetcher, Hops};
use worker::own_holds::OwnHolds;
use worker::setup::FetchSetup;
use worker::trace::Exchange;

pub(crate) struct Bench {
    pub(crate) origin: Origin,
    pub(crate) fetcher: Fetcher,
    pub(crate) gate: MemoryGate,
    pub(crate) rules: HostRules,
    pub(crate) config: FetchConfig,
    /// The credentials of every feed.
    pub(crate) login: Option<Login>,
    feeds: AtomicI64,
}

/// How long anything may take that is not to be cut short: far beyond what a loaded machine needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the defaults, with loopback and all ports opened, and with patience.
pub(crate) fn config() -> FetchConfig {
    let loaded = common::config::load(None, std::iter::empty(), &[]).unwrap();
    let Config { mut fetch, .. } = loaded.config;
    fetch.allow_networks = vec!["127.0.0.0/8".parse().unwrap()];
    fetch.allow_ports = vec!["1-65535".to_owned()];
    fetch.user_agent_url = "https://example.com/bot".to_owned();
    (fetch.timeout, fetch.connect_timeout, fetch.idle_timeout) = (PATIENCE, PATIENCE, PATIENCE);
    fetch
}

impl Bench {
    /// Two hosts without a gap.
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut FetchConfig)) -> Self {
        let host = HostConfig { gap: Duration::ZERO, ..HostConfig::default() };
        Self::with_hosts(host, Vec::new(), change).await
    }

    pub(crate) async fn with_hosts(
        host: HostConfig,
        rules: Vec<HostRule>,
        change: impl FnOnce(&mut FetchConfig),
    ) -> Self {
        let origin = Origin::listen(&load_tests::loopback(2, 0)).await.unwrap();
        let mut config = config();
        change(&mut config);
        let rules = HostRules::new(host, rules);
        let setup =
            FetchSetup { hosts: "127.0.0.1 one.test\n127.0.0.2 two.test\n".to_owned(), ..FetchSetup::default() };
        let fetcher = Fetcher::with_setup(&config, &rules, &setup).unwrap();
        let gate = open_gate().await;
        Bench { origin, fetcher, gate, rules, config, login: None, feeds: AtomicI64::new(1) }
    }

    /// Forgets all earlier requests, as if the gap of every host had ended.
    pub(crate) async fn end_gaps(&mut self) {
        self.gate = open_gate().await;
    }

    /// Returns a path of the first host with this script, and the feed there.
    pub(crate) fn feed(&self, path: &str, script: Script) -> FetchJob {
        self.origin.set(path, script);
        self.job(&self.origin.url(path))
    }

    pub(crate) fn job(&self, url: &str) -> FetchJob {
        let url: common::url::FeedUrl = url.parse().unwrap();
        FetchJob {
            search: true,
            subscribers: 3,
            ..FetchJob::of(
                FeedId(self.feeds.fetch_add(1, Ordering::Relaxed)),
                Version(1),
                self.rules.for_url(url.as_url()).key,
                url,
                common::host_gate::Ticket(0),
                Timestamp::MAX,
            )
        }
    }

    /// One fetch under a permit, as the worker does it, without remembering anything.
    pub(crate) async fn fetch(&self, job: &FetchJob) -> Fetched {
        self.fetch_traced(job).await.0
    }

    /// The same, begun at this time after its permit.
    pub(crate) async fn fetch_after(&self, wait: Duration, job: &FetchJob) -> Fetched {
        let permit = self.permit(job).await;
        tokio::time::sleep(wait).await;
        self.fetch_under(&permit, job).await.0
    }

    /// The same, with what was sent and received.
    pub(crate) async fn fetch_traced(&self, job: &FetchJob) -> (Fetched, Vec<Exchange>) {
        let permit = self.permit(job).await;
        self.fetch_under(&permit, job).await
    }

    async fn fetch_under(&self, permit: &Permit, job: &FetchJob) -> (Fetched, Vec<Exchange>) {
        let deadline = SystemClock.now().after(self.config.timeout);
        let (gate, rules, login) = (&self.gate, &self.rules, self.login.as_ref());
        let patience = self.config.timeout;
        let hops = Hops {
            gate,
            rules,
            clock: &SystemClock,
            permit,
            own_holds: &OwnHolds::default(),
            deadline,
            login,
            patience,
        };
        let mut trace = Vec::new();
        let fetched = self.fetcher.fetch_traced(job, &hops, &mut trace).await;
        self.gate.release(permit, Release::default(), SystemClock.now()).await.unwrap();
        (fetched, trace)
    }

    async fn permit(&self, job: &FetchJob) -> Permit {
        let limits = self.rules.limits_of(&job.host);
        loop {
            let now = SystemClock.now();
            let deadline = now.after(self.config.timeout);
            let request = ReserveRequest { host: job.host.clone(), limits, expires: deadline };
            let ticket = match self.gate.reserve(&[request], now).await.unwrap()[0] {
                Reservation::Ticket(ticket) => ticket,
                Reservation::Refused { until } => {
                    tokio::time::sleep(until.since(now)).await;
                    continue;
                }
            };
            let host = job.host.clone();
            let (feed, version, nonce, isolation) = (job.feed, job.version, fresh_nonce(), Isolation::Alone);
            let request = AcquireRequest {
                host,
                limits,
                ticket,
                feed,
                version,
                deadline,
                leased_until: Timestamp::EPOCH,
                nonce,
                isolation,
            };
            match self.gate.acquire(&request, SystemClock.now()).await.unwrap() {
                Acquired::Granted(permit) => return permit,
                Acquired::NotNow { until } => tokio::time::sleep(until.since(now)).await,
                other => panic!("the gate says {other:?}"),
            }
        }
    }

    /// One fetch; the job remembers what the store would, and comes again when its server allows it.
    pub(crate) async fn poll(&self, job: &mut FetchJob) -> Fetched {
        let fetched = self.fetch(job).await;
        match &fetched.outcome {
            Outcome::Modified(document) => {
                job.validators = document.validators.clone();
                job.content_hash = document.content_hash;
                job.known = document.known.clone();
            }
            Outcome::NotModified { validators } => job.validators = validators.clone(),
            _ => {}
        }
        job.detour = fetched.detour.clone().map(|detour| Detour { not_before: None, ..detour });
        fetched
    }

    /// Returns the path's requests, all of which must have ended.
    pub(crate) async fn requests(&self, path: &str, count: usize) -> Vec<Record> {
        let requests = self.origin.wait_for(path, count, PATIENCE).await;
        assert_eq!(requests.len(), count, "requests for {path}");
        requests
    }
}

async fn open_gate() -> MemoryGate {
    let gate = MemoryGate::new(Timestamp::EPOCH);
    assert!(gate.open(&LoadMark(String::new()), SystemClock.now()).await.unwrap());
    gate
}

pub(crate) fn document(fetched: &Fetched) -> &Document {
    match &fetched.outcome {
        Outcome::Modified(document) => document,
        other => panic!("expected a document, got {other:?}"),
    }
}

pub(crate) fn failure(fetched: &Fetched) -> (FailureKind, &str) {
    match &fetched.outcome {
        Outcome::Failed { failure, detail } => (*failure, detail),
        other => panic!("expected a failure, got {other:?}"),
    }
}

pub(crate) fn not_modified(fetched: &Fetched) -> bool {
    matches!(fetched.outcome, Outcome::NotModified { .. })
}
