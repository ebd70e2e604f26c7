//! The worker's loop for `dev/bench worker`: `polls URLS CONCURRENCY` polls each URL of a file over and over until killed.
//!
//! It includes the slot at the host, the guard, the whole fetch, the report, and the release. It leaves out the store,
//! the schedule and the queues; a job is built in memory from the last report, which is then dropped.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use common::config::Config;
use common::host::HostRules;
use common::host_gate::memory::MemoryGate;
use common::host_gate::{GateUpkeep, Isolation, LoadMark, Nonces, Reservation, ReserveRequest, Ticket};
use common::job::FetchJob;
use common::live_rules::LiveRules;
use common::metrics::Metrics;
use common::report::Outcome;
use common::time::{Clock, ClockWatch, SystemClock, Timestamp};
use common::url::{FeedId, FeedUrl, Version};
use worker::fetch::Fetcher;
use worker::own_holds::OwnHolds;
use worker::poll::{Polled, Poller};

/// As the program has it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Every job is fetched at once or never.
const LIFE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let urls = arguments.next().context("usage: polls URLS CONCURRENCY")?;
    let concurrency: usize = arguments.next().context("usage: polls URLS CONCURRENCY")?.parse()?;
    let urls = std::fs::read_to_string(urls)?;

    let poller = Arc::new(poller().await?);
    let mut shares: Vec<Vec<FetchJob>> = (0..concurrency).map(|_| Vec::new()).collect();
    for (number, url) in urls.lines().enumerate() {
        shares[number % concurrency].push(job(&poller, i64::try_from(number)?, url.parse()?));
    }
    let mut loops = tokio::task::JoinSet::new();
    for mut jobs in shares.into_iter().filter(|jobs| !jobs.is_empty()) {
        let poller = Arc::clone(&poller);
        loops.spawn(async move {
            loop {
                for job in &mut jobs {
                    poll(&poller, job).await?;
                }
            }
        });
    }
    while let Some(ended) = loops.join_next().await {
        let ended: anyhow::Result<()> = ended?;
        ended?;
    }
    Ok(())
}

async fn poller() -> anyhow::Result<Poller> {
    let mut config: Config = common::config::load(None, std::iter::empty(), &[])?.config;
    config.fetch.allow_networks = vec!["127.0.0.0/8".parse()?];
    config.fetch.allow_ports = vec!["1-65535".to_owned()];
    config.host.gap = Duration::ZERO;
    config.host_rule.clear();
    let rules = HostRules::new(config.host.clone(), Vec::new());
    let gate = MemoryGate::new(Timestamp::EPOCH);
    gate.open(&LoadMark(String::new()), SystemClock.now()).await?;
    Ok(Poller {
        fetcher: Box::new(Fetcher::new(&config.fetch, &rules)?),
        gate: Arc::new(gate),
        rules: Arc::new(LiveRules::new(&config)),
        config: Arc::new(config),
        clock: Arc::new(SystemClock),
        metrics: Arc::new(Metrics::new()),
        secrets: Arc::default(),
        watch: ClockWatch::default(),
        nonces: Nonces::default(),
        own_holds: OwnHolds::default(),
    })
}

fn job(poller: &Poller, number: i64, url: FeedUrl) -> FetchJob {
    FetchJob {
        subscribers: 3,
        ..FetchJob::of(
            FeedId(number),
            Version(1),
            poller.rules.get().for_url(url.as_url()).key,
            url,
            Ticket(0),
            Timestamp::EPOCH,
        )
    }
}

/// One poll; the job remembers what the store would.
async fn poll(poller: &Poller, job: &mut FetchJob) -> anyhow::Result<()> {
    let now = poller.clock.now();
    job.expires = now.after(LIFE);
    let limits = poller.rules.get().limits_of(&job.host);
    let request = ReserveRequest { host: job.host.clone(), limits, expires: job.expires };
    let answers = poller.gate.reserve(&[request], now).await?;
    let Some(Reservation::Ticket(ticket)) = answers.first() else { anyhow::bail!("a host is busy that nobody asks") };
    job.ticket = *ticket;
    let Polled::Report(report, held) = poller.poll(job, Isolation::None).await? else {
        anyhow::bail!("a job came to nothing")
    };
    job.version = Version(job.version.0 + 1);
    match report.outcome {
        Outcome::Modified(document) => {
            job.validators = document.validators;
            job.content_hash = document.content_hash;
            job.known = document.known;
        }
        Outcome::NotModified { validators } => job.validators = validators,
        other => anyhow::bail!("the origin answers every request, but: {other:?}"),
    }
    if let Some(held) = held {
        poller.release(&held).await?;
    }
    Ok(())
}
