//! `feedfleet run`: scheduler and worker in one process, over the embedded backends. Nothing to install.
//!
//! Stops in three steps: no more jobs are dispatched; fetches end, or are given up after a grace, and their reports are
//! stored; everything closes. A second signal skips whatever is left of that; nothing is lost by that either.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use common::config::{Config, LogFormat, without_password};
use common::input;
use common::metrics::Metrics;
use common::queue::Queue;
use common::report::FetchReport;
use common::secrets::Login;
use common::time::{Clock, SystemClock, Timestamp};
use common::url::{FeedUrl, without_login};
use common::words::counted;
use rand::RngExt;
use rustix::io::Errno;
use scheduler::condition::live_config::ConfigSource;
use scheduler::events::relay::{self, Relay};
use scheduler::ops::{AddFeed, Ops};
use scheduler::{Backends, LoopEnded, Scheduler};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use worker::run::{Worker, WorkerDied};

use crate::backends::{self, Links};
use crate::reload::Hangups;
use crate::stop_signals::StopSignals;
use crate::usage::Usage;
use crate::{descriptors, follow, subscriptions};

/// How long fetches in progress may continue after the first signal.
const GRACE: Duration = Duration::from_secs(10);
/// How long storing the last reports may take after the grace period.
const LAST_REPORTS: Duration = Duration::from_secs(1);
/// `--once` ends when nothing more can happen within this time: only feeds of held hosts are left then.
const ONCE_HORIZON: Duration = Duration::from_secs(60);
const ONCE_CHECK: Duration = Duration::from_millis(50);

/// Runs the whole fleet until a signal, or with `once` until what is due was polled.
pub(crate) async fn run(config: Config, source: ConfigSource, sources: &[String], once: bool) -> anyhow::Result<()> {
    let hangups = Hangups::caught()?;
    let config = Arc::new(descriptors::fit(config)?);
    let log = config.log.format;
    let feeds = read_sources(sources, &config)?;
    let data = Data::before(&config)?;
    // Migrations and large imports take long. The first process of a container ends by a signal only if it is caught.
    let mut signals = StopSignals::caught()?;
    let opening = async {
        let fleet = Fleet::open(config, once).await?;
        let listener = bind(fleet.config.api.listen).await?;
        let ops = fleet.ops();
        // No other code has a reference to it yet.
        let _ = ops.config_source.set(source);
        let seen = ops.store.latest_seq().await?;
        add_sources(ops, feeds, once).await?;
        greet(ops, &fleet.config, listener.local_addr()?, &data).await?;
        anyhow::Ok((fleet, listener, seen))
    };
    let (fleet, listener, seen) = tokio::select! {
        opened = opening => opened?,
        () = signals.next() => {
            announce!(log, "stopped before everything was open; the next start continues");
            return Ok(());
        }
    };
    let ops = fleet.ops();
    if once && ops.store.paused().await? {
        bail!("polling is paused, so nothing was polled; `feedfleet fleet resume` on a running fleet starts it again");
    }
    let started = ops.clock.now();
    let mut work = fleet.start(listener);
    tokio::spawn(hangups.serve(Arc::clone(ops), work.stop.clone()));
    let printer = tokio::spawn(follow::print_new_entries(Arc::clone(&ops.store), seen, work.stop.clone()));
    tokio::select! {
        () = signals.next() => {}
        done = polled_once(&fleet.backends, started, &*ops.clock), if once => done?,
        failure = work.failure() => return Err(failure),
    }
    if !once {
        let grace = GRACE.as_secs();
        announce!(log, "shutting down: waiting up to {grace} s for running fetches; press Ctrl-C again to stop now");
    }
    let shutdown = async {
        work.end(GRACE).await?;
        printer.await.context("the printer died")?;
        if once {
            let left = fleet.backends.store.overdue(started).await?;
            if left > 0 {
                announce!(log, "{left} feeds that are due were not polled: their hosts' limits do not allow it yet");
            }
        }
        fleet.close().await;
        Ok(())
    };
    signals.end(log, shutdown).await
}

/// Scheduler, worker and backends in this process.
pub(crate) struct Fleet {
    config: Arc<Config>,
    backends: Backends,
    scheduler: Arc<Scheduler>,
    worker: Arc<Worker>,
    links: Links,
}

/// A fleet's tasks, while they run.
pub(crate) struct Work {
    quiet: CancellationToken,
    drained: CancellationToken,
    stop: CancellationToken,
    reports: Arc<dyn Queue<FetchReport>>,
    loops: JoinHandle<Result<(), LoopEnded>>,
    fetching: JoinHandle<Result<(), WorkerDied>>,
    api: JoinHandle<std::io::Result<()>>,
    log: LogFormat,
}

impl Fleet {
    /// Opens a fleet over the backends that the configuration names, its schedule filled; nothing is polled yet.
    /// With `once` it is meant to end soon, and polls what is overdue in any minute.
    pub(crate) async fn open(config: Arc<Config>, once: bool) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let metrics = Arc::new(Metrics::new());
        let store = backends::store(&config).await?;
        let links = Links::open(&config, &metrics, Some(&*store), &*clock).await?;
        let Links { gate, jobs, reports, .. } = links.clone();
        let schedule = backends::schedule(&config)?;
        let worker = Worker {
            poller: Arc::new(backends::poller(&config, &metrics, &clock, &gate)?),
            jobs: Arc::clone(&jobs),
            reports: Arc::clone(&reports),
        };
        let backends = Backends { store, schedule, gate, jobs, reports };
        let mut scheduler = Scheduler::new(&backends, &config, &metrics, &clock);
        scheduler.dispatcher.any_minute = once;
        let scheduler = Arc::new(scheduler);
        // No other code has a reference to it yet.
        let _ = scheduler.ops.sender.set(backends::sender(&config, &clock)?);
        scheduler.boot().await?;
        Ok(Fleet { config, backends, scheduler, worker: Arc::new(worker), links })
    }

    /// Returns the fleet's operations.
    pub(crate) fn ops(&self) -> &Arc<Ops> {
        &self.scheduler.ops
    }

    /// Polls, and serves the API on `listener`.
    pub(crate) fn start(&self, listener: TcpListener) -> Work {
        let quiet = self.ops().quiet.clone();
        let (drained, stop) = (CancellationToken::new(), CancellationToken::new());
        let api = tokio::spawn(web::serve(listener, Arc::clone(self.ops()), stop.clone()));
        let loops = {
            let (scheduler, drained, ops) = (Arc::clone(&self.scheduler), drained.clone(), self.ops());
            let relay = self.links.relay(&ops.store, &ops.config.delivery.exchange_texts, &ops.clock, &ops.metrics);
            tokio::spawn(async move { run_loops(scheduler, relay, &drained).await })
        };
        let fetching = {
            let (worker, quiet) = (Arc::clone(&self.worker), quiet.clone());
            tokio::spawn(async move { worker.run(&quiet).await })
        };
        let (reports, log) = (Arc::clone(&self.backends.reports), self.config.log.format);
        Work { quiet, drained, stop, reports, loops, fetching, api, log }
    }

    /// Closes what the tasks, which have ended, worked on.
    pub(crate) async fn close(self) {
        self.links.close(self.scheduler.ops.clock.now()).await;
        self.backends.store.close().await;
    }
}

impl Work {
    /// Returns why a task stopped before the shutdown. A process that can do no more work must not look healthy.
    pub(crate) async fn failure(&mut self) -> anyhow::Error {
        let (part, died) = tokio::select! {
            ended = &mut self.loops => ("scheduler", match ended {
                Ok(ended) => ended.err().map(anyhow::Error::from),
                Err(died) => Some(died.into()),
            }),
            ended = &mut self.fetching => ("worker", match ended {
                Ok(ended) => ended.err().map(anyhow::Error::from),
                Err(died) => Some(died.into()),
            }),
            ended = &mut self.api => ("API", match ended {
                Ok(ended) => ended.err().map(anyhow::Error::from),
                Err(died) => Some(died.into()),
            }),
        };
        let ended = format!("the {part} stopped unexpectedly");
        died.map_or_else(|| anyhow::anyhow!(ended.clone()), |died| died.context(ended.clone()))
    }

    /// Ends the tasks: nothing more is dispatched, running fetches may end within `grace`, their reports are stored.
    pub(crate) async fn end(self, grace: Duration) -> anyhow::Result<()> {
        self.quiet.cancel();
        let given_up = drain(self.fetching, &*self.reports, grace).await;
        if given_up > 0 {
            announce!(self.log, "{given_up} reports could not be stored; their feeds are polled again, conditionally");
        }
        self.drained.cancel();
        self.stop.cancel();
        self.loops.await.context("the scheduler died")??;
        Ok(self.api.await.context("the API died")??)
    }
}

/// Runs a scheduler's loops and its relay until stopped, or until one of them ends before that.
pub(crate) async fn run_loops(
    scheduler: Arc<Scheduler>,
    relay: Option<Relay>,
    stop: &CancellationToken,
) -> Result<(), LoopEnded> {
    // In one task: a relay that panics ends the task as well.
    tokio::try_join!(scheduler.run(stop), async {
        relay::run(relay, stop).await;
        Ok(())
    })?;
    Ok(())
}

/// Returns the API's listener.
pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let bound = match TcpListener::bind(address).await {
        Err(error) if lacks_ipv6(address, &error) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await,
        bound => bound,
    };
    bound.map_err(|error| {
        let advice = "name another address with --listen, such as 127.0.0.1:0";
        anyhow::anyhow!("cannot listen on {address} ({error}); {advice}")
    })
}

/// Returns whether all addresses were requested as `[::]`, and the kernel has those of IPv4 only.
fn lacks_ipv6(address: SocketAddr, error: &std::io::Error) -> bool {
    address.ip() == Ipv6Addr::UNSPECIFIED && Errno::from_io_error(error) == Some(Errno::AFNOSUPPORT)
}

/// A feed given on the command line, directly or in a file of subscriptions.
enum Source {
    ByHand((FeedUrl, Option<Login>)),
    Imported((FeedUrl, Option<Login>)),
}

/// Reads all sources before anything is changed, so that a bad one changes nothing.
fn read_sources(sources: &[String], config: &Config) -> anyhow::Result<Vec<Source>> {
    let (at_service, log) = (config.fetch.at_service.as_str(), config.log.format);
    let mut feeds = Vec::new();
    for source in sources {
        if Path::new(source).is_file() {
            for found in subscriptions::read_file(source)? {
                match input::feed(&found.url, at_service) {
                    Ok(url) => feeds.push(Source::Imported(url)),
                    Err(error) => {
                        let reason = without_query(&error.to_string());
                        announce!(log, "left out from {source}, line {}: {reason}", found.line);
                    }
                }
            }
        } else {
            match crate::typed::feed_or_file(source, at_service) {
                Ok(url) => feeds.push(Source::ByHand(url)),
                Err(error) if source.contains("://") => bail!(Usage(error.to_string())),
                Err(_) => bail!(Usage(format!(
                    "'{}' is neither a URL such as https://example.com/feed.xml nor an OPML file",
                    without_login(source)
                ))),
            }
        }
    }
    Ok(feeds)
}

/// Returns a message about a quoted URL without the URL's query, which may hold a secret: no log line has one.
fn without_query(message: &str) -> String {
    match (message.find('?'), message.rfind('\'')) {
        (Some(query), Some(end)) if query < end => format!("{}?..{}", &message[..query], &message[end..]),
        _ => message.to_owned(),
    }
}

/// Adds feeds; those of a file are spread over a while, unless they are to be polled `once` and now.
async fn add_sources(ops: &Ops, sources: Vec<Source>, once: bool) -> anyhow::Result<()> {
    let log = ops.config.log.format;
    let (mut by_hand, mut imported) = (Vec::new(), Vec::new());
    for source in sources {
        let (list, (url, login)) = match source {
            Source::ByHand(url) => (&mut by_hand, url),
            Source::Imported(url) => (&mut imported, url),
        };
        list.push(AddFeed { login, ..AddFeed::of(url) });
    }
    let mut added = ops.add(&by_hand, None).await?;
    // With --once all are due now, whatever minute it is.
    let imported = if once {
        ops.add_list_at_once(&imported).await?
    } else {
        let places: Vec<f64> = imported.iter().map(|_| rand::rng().random()).collect();
        ops.add(&imported, Some(&places)).await?
    };
    let spread = ops.condition.config.get().policy.import_spread;
    if !once && !spread.is_zero() && imported.iter().any(|feed| feed.new) {
        let spread = common::duration::as_text(spread);
        announce!(
            log,
            "feeds of files are first polled spread over {spread} (policy.import_spread); `feedfleet top` shows them"
        );
    }
    added.extend(imported);
    if !added.is_empty() {
        let new = added.iter().filter(|feed| feed.new).count();
        announce!(log, "{} added, {} known already", counted(new as u64, "feed", "feeds"), added.len() - new);
    }
    Ok(())
}

/// Says what runs, where its data is and where it can be looked at.
async fn greet(ops: &Ops, config: &Config, address: SocketAddr, data: &Data) -> anyhow::Result<()> {
    let log = config.log.format;
    let feeds: u64 = ops.store.stats(ops.clock.now()).await?.feeds.iter().map(|(.., count)| count).sum();
    announce!(
        log,
        "feedfleet {} polls {}, {}",
        env!("CARGO_PKG_VERSION"),
        counted(feeds, "feed", "feeds"),
        data.described(config)
    );
    announce!(log, "page, API and metrics at http://{address}; new entries follow; Ctrl-C stops");
    if config.fetch.user_agent_url.is_empty() {
        announce!(
            log,
            "please name a page that says who polls, for the publishers' logs: FEEDFLEET_FETCH__USER_AGENT_URL=https://.., or \
             user_agent_url below [fetch] in a file that --config names"
        );
    }
    if ops.store.paused().await? {
        announce!(log, "polling is paused; `feedfleet fleet resume` starts it again");
    }
    if feeds == 0 {
        announce!(log, "no feeds yet; add one with: feedfleet feed add https://example.com/feed.xml");
    }
    Ok(())
}

/// Where an embedded fleet keeps its data.
struct Data {
    /// The folder; none in memory, or in a database server.
    folder: Option<PathBuf>,
    /// There is no database in it yet.
    is_new: bool,
}

impl Data {
    /// Looks before the store is opened.
    fn before(config: &Config) -> anyhow::Result<Self> {
        let file = config.store.url.strip_prefix("sqlite://").map(Path::new);
        if let Some(file) = file {
            refuse_empty(file)?;
        }
        let folder = file.and_then(Path::parent).map(|folder| match folder.as_os_str().is_empty() {
            true => PathBuf::from("."),
            false => folder.to_owned(),
        });
        Ok(Data { folder, is_new: file.is_some_and(|file| !file.exists()) })
    }

    fn described(&self, config: &Config) -> String {
        match (&self.folder, self.is_new) {
            (Some(folder), true) => format!("data in {}, which is new and empty", folder.display()),
            (Some(folder), false) => format!("data in {}", folder.display()),
            (None, _) => format!("data in {}", without_password(&config.store.url)),
        }
    }
}

/// Refuses an empty file where the database is expected: SQLite would begin a new store in it, and what an interrupted
/// copy was to restore would be missing. A journal beside it means that this program was killed while it made the file.
fn refuse_empty(file: &Path) -> anyhow::Result<()> {
    let mut journal = file.as_os_str().to_owned();
    journal.push("-journal");
    let is_empty = std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.len() == 0);
    if is_empty && !Path::new(&journal).exists() {
        bail!(
            "{} is empty, so it is not a store; if it comes from an interrupted copy, put the backup there again, or \
             remove the file to start without feeds",
            file.display()
        );
    }
    Ok(())
}

/// Waits until every feed that was due at `started` has been polled, as far as hosts allow it soon. Feeds that became due since then
/// may be polled meanwhile, and keep it from ending no longer than those that wait for their hosts.
async fn polled_once(backends: &Backends, started: Timestamp, clock: &dyn Clock) -> anyhow::Result<()> {
    let (mut left, mut progressed) = (u64::MAX, tokio::time::Instant::now());
    loop {
        tokio::time::sleep(ONCE_CHECK).await;
        let now = clock.now();
        let depth = backends.schedule.depth(now).await?;
        if depth.leased > 0 || backends.jobs.depth().await?.items > 0 || backends.reports.depth().await?.items > 0 {
            continue;
        }
        let overdue = backends.store.overdue(started).await?;
        if overdue < left {
            (left, progressed) = (overdue, tokio::time::Instant::now());
        }
        let nothing_soon = depth.next.is_none_or(|next| next > now.after(ONCE_HORIZON));
        if overdue == 0 || nothing_soon || progressed.elapsed() > ONCE_HORIZON {
            return Ok(());
        }
    }
}

/// Waits within the grace for the worker to finish and for its reports to be stored; returns how many were not.
async fn drain(
    fetching: JoinHandle<Result<(), WorkerDied>>,
    reports: &dyn Queue<FetchReport>,
    grace: Duration,
) -> usize {
    let deadline = tokio::time::Instant::now() + grace;
    let abort = fetching.abort_handle();
    if tokio::time::timeout_at(deadline, fetching).await.is_err() {
        abort.abort();
    }
    // What the worker reported in its last moment still gets a look.
    let deadline = deadline.max(tokio::time::Instant::now() + LAST_REPORTS);
    loop {
        let waiting = reports.depth().await.map_or(0, |depth| depth.items);
        if waiting == 0 || tokio::time::Instant::now() >= deadline {
            return waiting;
        }
        tokio::time::sleep(ONCE_CHECK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_about_a_url_leaves_its_query_out() {
        let message = |url: &str| without_query(&input::feed(url, "").unwrap_err().to_string());
        let ftp = message("ftp://a.example/f?token=secret");
        assert!(ftp.starts_with("'ftp://a.example/f?..'") && ftp.contains("scheme ftp"), "{ftp}");
        assert!(!message("http://bad host/?token=secret").contains("secret"));
        assert_eq!(without_query("no URL"), "no URL");
    }

    #[test]
    fn a_kernel_without_ipv6_listens_on_all_addresses_of_ipv4() {
        let lacks = |address: &str, errno: Errno| lacks_ipv6(address.parse().unwrap(), &errno.into());
        assert!(lacks("[::]:7878", Errno::AFNOSUPPORT));
        assert!(!lacks("[::1]:7878", Errno::AFNOSUPPORT) && !lacks("[::]:7878", Errno::ADDRINUSE));
    }
}
