//! `feedfleet scheduler` and `feedfleet worker`: the roles of a cluster, any number of each, over shared servers.
//!
//! Both start also while their servers are away: they are alive (`/healthz`), not ready (`/readyz`), and connect by
//! themselves. Both stop in three steps: running; quiet, when nothing new is begun and what is in flight ends, within a
//! grace; stopped. A second signal skips whatever is left of that: unfinished fetches are repeated, conditionally.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use common::bot_auth::BotKey;
use common::config::Config;
use common::metrics::Metrics;
use common::time::{Clock, SystemClock};
use scheduler::condition::live_config::ConfigSource;
use scheduler::{Backends, Scheduler};
use store::Store;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use toml::Value;
use worker::run::Worker;

use crate::all_in_one::{bind, run_loops};
use crate::backends::{self, Links};
use crate::health::{self, Role};
use crate::reload::{self, Hangups};
use crate::settings::SettingsArgs;
use crate::stop_signals::StopSignals;
use crate::usage::Usage;
use crate::{descriptors, logs, values};

/// Runs a scheduler of a cluster: sends due feeds to workers, stores their reports, serves the API
#[derive(Debug, Args)]
pub(crate) struct SchedulerArgs {
    /// Address of API, pages, health and metrics [default: 127.0.0.1:7878]
    #[arg(long, value_name = "ADDR", value_parser = values::address)]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// Runs a worker of a cluster: fetches the feeds that schedulers send, and reports the outcomes
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Address of health and metrics [default: 127.0.0.1:7878]
    #[arg(long, value_name = "ADDR", value_parser = values::address)]
    listen: Option<SocketAddr>,
    /// Maximum number of fetches at once [default: 256]
    #[arg(long, value_name = "N", value_parser = values::number::<i64>)]
    concurrency: Option<i64>,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// Between two tries to reach a store that is away: doubles up to this.
const STORE_RETRY: Duration = Duration::from_secs(5);
/// Time for servers that are there to be connected to before a scheduler begins.
const FIRST_CONNECTIONS: Duration = Duration::from_secs(2);
/// How often a worker checks its servers.
const LINKS_CHECK: Duration = Duration::from_secs(2);
/// Time for the report of the last fetch, on top of the fetch's own.
const LAST_REPORT: Duration = Duration::from_secs(10);

/// Runs a scheduler until a signal.
pub(crate) async fn scheduler(args: &SchedulerArgs) -> anyhow::Result<ExitCode> {
    let hangups = Hangups::caught()?;
    let config = configuration(&args.settings, args.listen, None)?;
    let (settings, flags) = (args.settings.clone(), flags(args.listen, None));
    let source = reload::source(&config, move || settings.load(&flags));
    require_servers(&config, "scheduler", &["store.url", "schedule.url", "gate.url", "queue.url"])?;
    BotKey::of(&config)?;
    let config = Arc::new(descriptors::fit_scheduler(Arc::unwrap_or_clone(config))?);
    let listener = bind(config.api.listen).await?;
    announce!(config.log.format, "feedfleet scheduler, API at http://{}", listener.local_addr()?);
    let metrics = Arc::new(Metrics::new());
    metrics.ready.with_label_values(&["scheduler"]).set(0);
    let listener = listener.into_std()?;
    let mut signals = StopSignals::caught()?;
    tokio::select! {
        store = wait_for_store(&config, &metrics, listener.try_clone()?) => {
            schedule(&config, &metrics, store?, TcpListener::from_std(listener)?, (source, hangups, signals)).await?;
        }
        () = signals.next() => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a scheduler over an open store.
async fn schedule(
    config: &Arc<Config>,
    metrics: &Arc<Metrics>,
    store: Arc<dyn Store>,
    listener: TcpListener,
    (source, hangups, mut signals): (ConfigSource, Hangups, StopSignals),
) -> anyhow::Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let links = Links::open(config, metrics, Some(&*store), &*clock).await?;
    let Links { gate, jobs, reports, .. } = links.clone();
    let backends = Backends { store: Arc::clone(&store), schedule: backends::schedule(config)?, gate, jobs, reports };
    let scheduler = Arc::new(Scheduler::new(&backends, config, metrics, &clock));
    // No other code has a reference to it yet.
    let _ = scheduler.ops.config_source.set(source);
    let _ = scheduler.ops.sender.set(backends::sender(config, &clock)?);
    // Does not wait for servers that are away: the loops log which ones are missing, and continue when they are back.
    if tokio::time::timeout(FIRST_CONNECTIONS, connected(&links, &*clock)).await.is_ok() {
        // Before any feed can be added: the gate of a fleet without any opens at once.
        let _ = scheduler.reconciler.open_gate(&*clock).await;
    }
    let stop = CancellationToken::new();
    let mut api = tokio::spawn(web::serve(listener, Arc::clone(&scheduler.ops), stop.clone()));
    let quiet = scheduler.ops.quiet.clone();
    tokio::spawn(hangups.serve(Arc::clone(&scheduler.ops), quiet.clone()));
    let mut loops = {
        let quiet = quiet.clone();
        let relay = links.relay(&store, &config.delivery.exchange_texts, &clock, metrics);
        tokio::spawn(async move { run_loops(scheduler, relay, &quiet).await })
    };
    tokio::select! {
        () = signals.next() => {}
        // A role that can do no more work must not look alive.
        ended = &mut loops => {
            ended.context("the scheduler died")??;
            bail!("the scheduler stopped unexpectedly");
        }
        served = &mut api => {
            served.context("the API died")??;
            bail!("the API stopped unexpectedly");
        }
    }
    let drain = config.api.drain;
    tracing::info!(
        ?drain,
        "shutting down: claimed feeds are published, received reports are stored, the API still answers"
    );
    quiet.cancel();
    signals
        .end(config.log.format, async {
            // It is not ready any more, and still answers until clients stop sending requests.
            let (ended, ()) = tokio::join!(&mut loops, tokio::time::sleep(drain));
            ended.context("the scheduler died")??;
            stop.cancel();
            api.await.context("the API died")??;
            links.close(clock.now()).await;
            store.close().await;
            tracing::info!("the scheduler has stopped");
            Ok(())
        })
        .await
}

/// Returns when all servers answer.
async fn connected(links: &Links, clock: &dyn Clock) {
    while links.check(clock).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Runs a worker until a signal.
pub(crate) async fn worker(args: &WorkerArgs) -> anyhow::Result<ExitCode> {
    let hangups = Hangups::caught()?;
    // A worker has no API, and so no token that could guard it: its health port may listen on any address.
    let config = configuration(&args.settings, None, args.concurrency)?;
    let mut config = Arc::unwrap_or_clone(config);
    config.api.max_connections = health::CONNECTIONS;
    // Schedulers deliver.
    config.delivery.concurrency = config.delivery.concurrency.min(descriptors::LEAST_DELIVERIES);
    let config = Arc::new(descriptors::fit(config)?);
    require_servers(&config, "worker", &["gate.url", "queue.url"])?;
    let listener = bind(args.listen.unwrap_or(config.api.listen)).await?;
    announce!(config.log.format, "feedfleet worker, health and metrics at http://{}", listener.local_addr()?);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let metrics = Arc::new(Metrics::new());
    let links = Links::open(&config, &metrics, None, &*clock).await?;
    let (quiet, stop) = (CancellationToken::new(), CancellationToken::new());
    tokio::spawn(hangups.ignore(stop.clone()));
    let ready = {
        let (links, quiet, clock) = (links.clone(), quiet.clone(), Arc::clone(&clock));
        move || {
            let (links, quiet, clock) = (links.clone(), quiet.clone(), Arc::clone(&clock));
            async move { if quiet.is_cancelled() { Err("it is stopping".to_owned()) } else { links.check(&*clock).await } }
        }
    };
    let mut serving = tokio::spawn(health::serve(listener, Role::Worker, Arc::clone(&metrics), ready, stop.clone()));
    let worker = Worker {
        poller: Arc::new(backends::poller(&config, &metrics, &clock, &links.gate)?),
        jobs: Arc::clone(&links.jobs),
        reports: Arc::clone(&links.reports),
    };
    tokio::spawn(watch_links(links.clone(), Arc::clone(&clock), Arc::clone(&metrics), quiet.clone()));
    let mut fetching = {
        let quiet = quiet.clone();
        tokio::spawn(async move { worker.run(&quiet).await })
    };

    let mut signals = StopSignals::caught()?;
    tokio::select! {
        () = signals.next() => {}
        // A role that can do no more work must not look alive.
        ended = &mut fetching => match ended.context("the worker died")? {
            Ok(()) => bail!("the worker stopped unexpectedly"),
            Err(died) => return Err(died.into()),
        },
        served = &mut serving => {
            served.context("the health service died")??;
            bail!("the health service stopped unexpectedly");
        }
    }
    let grace = config.fetch.timeout + LAST_REPORT;
    tracing::info!(grace = ?grace, "shutting down: running fetches end and are reported");
    quiet.cancel();
    signals
        .end(config.log.format, async {
            match tokio::time::timeout(grace, &mut fetching).await {
                Ok(ended) => ended.context("the worker died")??,
                Err(_) => tracing::warn!("shutdown grace period exceeded; unfinished fetches will be retried"),
            }
            fetching.abort();
            stop.cancel();
            serving.await.context("the health service died")??;
            links.close(clock.now()).await;
            tracing::info!("the worker has stopped");
            Ok(())
        })
        .await?;
    Ok(ExitCode::SUCCESS)
}

/// Shows in a metric whether a worker can use its servers, and logs why it cannot, once when that begins or changes, and once when it
/// ends: a worker that is not ready gets no jobs, so nothing else in it would fail and be logged.
async fn watch_links(links: Links, clock: Arc<dyn Clock>, metrics: Arc<Metrics>, stop: CancellationToken) {
    let mut known: Option<String> = None;
    while stop.run_until_cancelled(tokio::time::sleep(LINKS_CHECK)).await.is_some() {
        let now = links.check(&*clock).await.err();
        metrics.ready.with_label_values(&["worker"]).set(i64::from(now.is_none()));
        if now == known {
            continue;
        }
        match &now {
            Some(why) => tracing::error!(why, "this worker is not ready; it tries again until it is"),
            None => tracing::info!("this worker is ready again"),
        }
        known = now;
    }
}

fn configuration(
    settings: &SettingsArgs,
    listen: Option<SocketAddr>,
    concurrency: Option<i64>,
) -> anyhow::Result<Arc<Config>> {
    let loaded = settings.load(&flags(listen, concurrency))?;
    loaded.check_tls_files()?;
    logs::start(&loaded.config.log, logs::Audit::Logged)?;
    Ok(Arc::new(loaded.config))
}

/// Returns the flags that are configuration keys under another name.
fn flags(listen: Option<SocketAddr>, concurrency: Option<i64>) -> Vec<(&'static str, Value)> {
    let mut flags = Vec::new();
    flags.extend(listen.map(|listen| ("api.listen", Value::String(listen.to_string()))));
    flags.extend(concurrency.map(|concurrency| ("worker.concurrency", Value::Integer(concurrency))));
    flags
}

/// A role shares its servers with others; what is in one process's memory cannot be shared.
fn require_servers(config: &Config, role: &str, keys: &[&str]) -> anyhow::Result<()> {
    let servers = [
        ("store.url", &config.store.url, "postgres://.."),
        ("schedule.url", &config.schedule.url, "redis://.."),
        ("gate.url", &config.gate.url, "redis://.."),
        ("queue.url", &config.queue.url, "amqp://.."),
    ];
    for (key, url, wanted) in servers {
        let embedded = url.starts_with("memory:") || url.starts_with("sqlite:");
        if embedded && keys.contains(&key) {
            let variable = format!("FEEDFLEET_{}", key.to_uppercase().replace('.', "__"));
            bail!(Usage(format!(
                "a {role} works with others: set {key} (or {variable}) to {wanted}; `feedfleet run` is the fleet in one process"
            )));
        }
    }
    Ok(())
}

/// Opens the store; while it cannot be reached, answers for health, and tries again.
async fn wait_for_store(
    config: &Arc<Config>,
    metrics: &Arc<Metrics>,
    listener: std::net::TcpListener,
) -> anyhow::Result<Arc<dyn Store>> {
    let trouble = Arc::new(Mutex::new("the store is not open yet".to_owned()));
    let stop = CancellationToken::new();
    let _served = stop.clone().drop_guard();
    let reason = Arc::clone(&trouble);
    let not_ready = move || std::future::ready(Err(common::lock(&reason).clone()));
    tokio::spawn(health::serve(
        TcpListener::from_std(listener)?,
        Role::StartingScheduler,
        Arc::clone(metrics),
        not_ready,
        stop,
    ));
    let mut wait = Duration::from_millis(100);
    loop {
        match backends::store(config).await {
            Ok(store) => return Ok(store),
            Err(error) if !error.may_pass() => return Err(error.into()),
            Err(error) => {
                let why = format!("{:#}", anyhow::Error::from(error));
                let mut known = common::lock(&trouble);
                if *known != why {
                    tracing::error!(why, "the store cannot be opened; it is tried again");
                    *known = why;
                }
            }
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(STORE_RETRY);
    }
}
