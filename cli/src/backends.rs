//! Every seam by the URL that the configuration gives it: the only place that knows all implementations.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use common::bot_auth::BotKey;
use common::causes::causes;
use common::config::Config;
use common::host::HostRules;
use common::host_gate::memory::MemoryGate;
use common::host_gate::redis::RedisGate;
use common::host_gate::{HostGate, Nonces};
use common::job::FetchJob;
use common::live_rules::LiveRules;
use common::metrics::Metrics;
use common::queue::Queue;
use common::queue::logins::JobsAndLogins;
use common::queue::memory::MemoryQueue;
use common::queue::rabbitmq::{Broker, Prefetch};
use common::redis::RedisServer;
use common::report::FetchReport;
use common::secrets::Keyring;
use common::time::{Clock, ClockWatch, Timestamp};
use common::url::FeedId;
use scheduler::delivery::sender::Sender;
use scheduler::events::relay::Relay;
use scheduler::schedule::Schedule;
use scheduler::schedule::memory::MemorySchedule;
use scheduler::schedule::redis::RedisSchedule;
use store::postgres::PostgresStore;
use store::sqlite::SqliteStore;
use store::{Store, StoreError};
use worker::fetch::Fetcher;
use worker::own_holds::OwnHolds;
use worker::poll::Poller;
use worker::post::Poster;
use worker::setup::FetchSetup;

/// Messages in process are bounded by bytes; jobs are bounded by `max_queued_jobs` before that.
const JOB_BYTES: usize = 64 << 20;
/// Reports that wait or are being settled: a few transactions with the texts of new entries, tens of thousands of 304s. Workers
/// that fetch faster wait.
const REPORT_BYTES: usize = 4 << 20;
/// Messages of reports that a scheduler holds: about two transactions.
const REPORT_MESSAGES: u16 = 64;

/// Returns the store that `store.url` names, its schema up to date.
pub(crate) async fn store(config: &Config) -> Result<Arc<dyn Store>, StoreError> {
    let url = &config.store.url;
    Ok(match url.starts_with("sqlite:") {
        true => Arc::new(SqliteStore::open(url).await?.within(config.quota)),
        false => Arc::new(PostgresStore::open(&config.store, &config.namespace).await?.within(config.quota)),
    })
}

/// Returns the schedule that `schedule.url` names.
pub(crate) fn schedule(config: &Config) -> anyhow::Result<Arc<dyn Schedule>> {
    let schedule = &config.schedule;
    if schedule.url == "memory:" {
        return Ok(Arc::new(MemorySchedule::default()));
    }
    let server = RedisServer::connect(&schedule.server(), &config.namespace).context("schedule.url")?;
    if server.is_cluster() && schedule.shards == 1 {
        tracing::warn!("{}", crate::config::ONE_SHARD);
    }
    Ok(Arc::new(RedisSchedule::new(server, schedule.shards)))
}

/// What schedulers and workers share: the gate, and the queues between them.
#[derive(Clone)]
pub(crate) struct Links {
    /// Hosts' gaps and holds.
    pub(crate) gate: Arc<dyn HostGate>,
    /// From schedulers to workers.
    pub(crate) jobs: Arc<dyn Queue<FetchJob>>,
    /// Back.
    pub(crate) reports: Arc<dyn Queue<FetchReport>>,
    embedded_gate: Option<Arc<MemoryGate>>,
    broker: Option<Arc<Broker>>,
}

impl Links {
    /// Opens the backends that the configuration names; a worker has no `store`, and declares no queue. Servers that
    /// are away are connected to when they come.
    pub(crate) async fn open(
        config: &Config,
        metrics: &Metrics,
        store: Option<&dyn Store>,
        clock: &dyn Clock,
    ) -> anyhow::Result<Self> {
        let (jobs, reports, broker) = queues(config, metrics, store.is_some())?;
        let mut links =
            Links { gate: Arc::new(MemoryGate::new(clock.now())), jobs, reports, embedded_gate: None, broker };
        if config.gate.url == "memory:" {
            let gate = embedded_gate(store, config, clock).await?;
            links.embedded_gate = Some(Arc::clone(&gate));
            links.gate = gate;
        } else {
            let server = RedisServer::connect(&config.gate, &config.namespace).context("gate.url")?;
            links.gate = Arc::new(RedisGate::new(server, config.fetch.deadline()));
        }
        Ok(links)
    }

    /// Fails with the reason if these cannot be used now.
    pub(crate) async fn check(&self, clock: &dyn Clock) -> Result<(), String> {
        self.gate
            .check_whole(clock)
            .await
            .map_err(|error| format!("the host gate is not usable: {}", causes(&error)))?;
        self.jobs.check().await.map_err(|error| format!("the queue of jobs is not usable: {}", causes(&error)))?;
        self.reports.check().await.map_err(|error| format!("the queue of reports is not usable: {}", causes(&error)))
    }

    /// Returns the relay of events to the exchange, with headers for these texts, where there is a broker.
    pub(crate) fn relay(
        &self,
        store: &Arc<dyn Store>,
        texts: &[String],
        clock: &Arc<dyn Clock>,
        metrics: &Arc<Metrics>,
    ) -> Option<Relay> {
        let Some(broker) = &self.broker else {
            metrics.relay_turn.set(1);
            return None;
        };
        let exchange = broker.events();
        let (clock, metrics) = (Arc::clone(clock), Arc::clone(metrics));
        Some(Relay::new(Arc::clone(store), Box::new(exchange), texts, clock, metrics))
    }

    /// Ends everything in order, at `now`: no host is polled after this.
    pub(crate) async fn close(&self, now: Timestamp) {
        if let Some(gate) = &self.embedded_gate {
            gate.close(now);
        }
        if let Some(broker) = &self.broker {
            broker.close().await;
        }
    }
}

type Queues = (Arc<dyn Queue<FetchJob>>, Arc<dyn Queue<FetchReport>>, Option<Arc<Broker>>);

fn queues(config: &Config, metrics: &Metrics, declares: bool) -> anyhow::Result<Queues> {
    if config.queue.url == "memory:" {
        return Ok((Arc::new(MemoryQueue::new(JOB_BYTES)), Arc::new(MemoryQueue::new(REPORT_BYTES)), None));
    }
    let broker = Broker::connect(&config.queue, &config.namespace, metrics).context("queue")?;
    let broker = if declares { broker } else { broker.declaring_nothing() };
    let messages = (2 * config.worker.held_jobs()).div_ceil(config.worker.job_batch).max(2);
    let prefetch = Prefetch::Untaken(u16::try_from(messages).unwrap_or(u16::MAX));
    let mut jobs: Arc<dyn Queue<FetchJob>> = Arc::new(broker.queue::<FetchJob>(prefetch));
    if declares || !config.secrets.key.is_empty() {
        jobs = Arc::new(JobsAndLogins::new(jobs, Arc::new(broker.queue_of_logins(prefetch))));
    }
    let reports = broker.queue::<FetchReport>(Prefetch::Unacked(REPORT_MESSAGES));
    Ok((jobs, Arc::new(reports), Some(Arc::new(broker))))
}

async fn embedded_gate(
    store: Option<&dyn Store>,
    config: &Config,
    clock: &dyn Clock,
) -> anyhow::Result<Arc<MemoryGate>> {
    // An earlier process that did not end in order may have polled any host a moment ago. In a new installation no host
    // was polled yet.
    let new_installation = match store {
        Some(store) => store.placements(FeedId(0), 1).await?.is_empty(),
        None => false,
    };
    let born = if new_installation { Timestamp::EPOCH } else { clock.now() };
    let gate = match config.store.url.strip_prefix("sqlite://") {
        Some(path) => MemoryGate::with_journal(born, &Path::new(path).with_extension("starts"))
            .with_context(|| format!("cannot write beside {path}"))?,
        None => MemoryGate::new(born),
    };
    Ok(Arc::new(gate))
}

/// Returns the fetcher that the configuration describes.
pub(crate) fn fetcher(config: &Config, rules: &HostRules) -> anyhow::Result<Fetcher> {
    let bot_key = BotKey::of(config)?.map(Arc::new);
    let setup = FetchSetup { bot_key, concurrency: Some(config.worker.concurrency), ..FetchSetup::default() };
    Ok(Fetcher::with_setup(&config.fetch, rules, &setup)?)
}

/// Returns the sender of requests to the targets of subscriptions, with a worker's client.
pub(crate) fn sender(config: &Config, clock: &Arc<dyn Clock>) -> anyhow::Result<Sender> {
    let poster = Poster::new(&config.fetch, &config.delivery, &FetchSetup::default(), Arc::clone(clock))?;
    let poster = Arc::new(poster);
    let judge = Arc::clone(&poster);
    Ok(Sender {
        send: Box::new(move |request| {
            let poster = Arc::clone(&poster);
            Box::pin(async move { poster.post(request).await })
        }),
        judge: Box::new(move |target| judge.judge(target)),
    })
}

/// Returns the worker's poller, over a gate.
pub(crate) fn poller(
    config: &Arc<Config>,
    metrics: &Arc<Metrics>,
    clock: &Arc<dyn Clock>,
    gate: &Arc<dyn HostGate>,
) -> anyhow::Result<Poller> {
    let rules = Arc::new(LiveRules::new(config));
    Ok(Poller {
        fetcher: Box::new(fetcher(config, &rules.get())?),
        gate: Arc::clone(gate),
        rules,
        config: Arc::clone(config),
        clock: Arc::clone(clock),
        metrics: Arc::clone(metrics),
        secrets: Arc::new(Keyring::new(&config.secrets)),
        watch: ClockWatch::default(),
        nonces: Nonces::default(),
        own_holds: OwnHolds::default(),
    })
}
