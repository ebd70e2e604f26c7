//! A simulated fleet: its processes, started, killed, stopped and restarted.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use common::host_gate::{HostGate, Nonces};
use common::job::FetchJob;
use common::live_rules::LiveRules;
use common::metrics::Metrics;
use common::policy::{Audience, Category};
use common::queue::{Announce, Announcement, Published, Queue, QueueError};
use common::report::FetchReport;
use common::time::{Clock, ClockWatch};
use common::url::{FeedId, FeedUrl};
use scheduler::events::relay::{self, Relay};
use scheduler::poll::moves::Moves;
use scheduler::poll::results::Results;
use scheduler::{Backends, Scheduler};
use store::{Feeds, NewFeed, Store};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use worker::own_holds::OwnHolds;
use worker::poll::Poller;
use worker::run::Worker;

use crate::blocking;
use crate::events::Announced;
use crate::gate::Gate;
use crate::history::Happened;
use crate::life::{Kind, Life, Server, SimulatedClock};
use crate::line::Line;
use crate::origin::{FeedScript, Fetching, HostScript};
use crate::queue::SeenQueue;
use crate::rules::Rule;
use crate::schedule::SeenSchedule;
use crate::store::SeenStore;
use crate::world::{Sabotage, World};

/// How long after its death a process is started again.
const RESTART: Duration = Duration::from_secs(2);
/// How often to check whether a process is alive (`/healthz`).
const ASK_EVERY: Duration = Duration::from_secs(5);

/// A process that runs.
pub(crate) struct Process {
    pub(crate) life: Arc<Life>,
    pub(crate) scheduler: Option<Arc<Scheduler>>,
    task: AbortHandle,
    /// No more is begun.
    quiet: CancellationToken,
}

/// The processes of a fleet.
pub(crate) struct Fleet {
    pub(crate) world: Arc<World>,
    pub(crate) processes: Vec<Process>,
    seed: u64,
    /// Whether schedulers pass events on to an exchange.
    pub(crate) relays: bool,
    lives: u32,
    deaths: mpsc::UnboundedReceiver<u32>,
    /// Processes that are to be started again, and when.
    awaited: Vec<(Instant, Kind, usize, i64)>,
}

/// What the exchange of events is to a process.
struct SeenExchange(Line);

#[async_trait]
impl Announce for SeenExchange {
    async fn publish(&mut self, messages: &[Announcement]) -> Published {
        let world = Arc::clone(&self.0.world);
        let events: Vec<Announced> = messages.iter().map(Announced::of).collect();
        let publish = move || {
            let lost = world.is_sabotaged(Sabotage::Deaf);
            world.judge().announced.extend(events.into_iter().skip(usize::from(lost)));
            Ok(())
        };
        let lost = || QueueError::backend("be used by this process", "no answer");
        let trouble = self.0.call("announce", lost, publish).await.err();
        Published { confirmed: if trouble.is_some() { 0 } else { messages.len() }, trouble }
    }
}

impl Fleet {
    pub(crate) fn new(world: Arc<World>, deaths: mpsc::UnboundedReceiver<u32>, seed: u64, relays: bool) -> Self {
        Fleet { world, processes: Vec::new(), seed, relays, lives: 0, deaths, awaited: Vec::new() }
    }

    /// Adds feeds to the store, on hosts in turn, each due a moment after the one before.
    pub(crate) fn subscribe(&self, feeds: usize, hosts: usize, script: impl Fn(usize) -> FeedScript) {
        let (world, begun) = (&self.world, self.world.begun());
        let rules = LiveRules::new(&world.config).get();
        for number in 0..feeds {
            let url: FeedUrl = format!("https://h{}.example/{number}", number % hosts).parse().expect("a URL");
            let host = rules.for_url(url.as_url()).key;
            let first_due = begun.after(Duration::from_millis(300 * number as u64));
            let new = NewFeed {
                url,
                credentials: None,
                host: host.clone(),
                audience: Audience { subscribers: 3, active_subscribers: 3, ..Audience::default() },
                calm: Vec::new(),
                category: Category::C,
                private: false,
                marks: Default::default(),
                title: None,
                first_due,
                by_hand: false,
                hub: false,
            };
            let store = world.store.current();
            let id = blocking::run(store.add_feeds(&[new], begun)).expect("added")[0].id;
            let added = blocking::run(store.feed(&store::FeedRef::Id(id))).expect("read").expect("it is there");
            let script = script(number);
            world.judge().added((id, host.clone()), added.version.0, first_due, script.deadly);
            let mut origin = world.origin();
            origin.feeds.insert(id, script);
            origin.hosts.entry(host).or_insert_with(HostScript::default);
        }
    }

    fn note(&self, what: String) {
        self.world.judge().note("driver", Happened::Driver(what), self.world.now());
    }

    /// Starts a process, with this error of its clock in milliseconds.
    pub(crate) fn start(&mut self, kind: Kind, place: usize, ahead: i64) {
        self.lives += 1;
        let life = Life::new(kind, place, self.lives, self.world.clock(ahead));
        self.note(format!("{life} starts, its clock {ahead} ms off"));
        let clock: Arc<dyn Clock> = Arc::new(life.clock.clone());
        let process = match kind {
            Kind::Scheduler => self.scheduler(life, &clock),
            Kind::Worker => self.worker(life, &clock),
        };
        self.processes.push(process);
    }

    fn line(&self, life: &Arc<Life>, server: Server) -> Line {
        Line { world: Arc::clone(&self.world), life: Arc::clone(life), server }
    }

    fn gate(&self, life: &Arc<Life>) -> Arc<dyn HostGate> {
        Arc::new(Gate::new(self.line(life, Server::Gate), Arc::clone(&self.world.gate)))
    }

    fn jobs(&self, life: &Arc<Life>) -> Arc<dyn Queue<FetchJob>> {
        let names = ["publish jobs", "receive jobs", "ack jobs", "depth of jobs"];
        Arc::new(SeenQueue {
            line: self.line(life, Server::Queue),
            queue: Arc::clone(&self.world.jobs),
            names,
            published: |_, jobs| jobs.to_vec(),
            confirmed: |world, jobs| match jobs {
                Ok(jobs) => world.judge().hidden(jobs),
                Err(()) => world.undone().unconfirmed = true,
            },
        })
    }

    fn reports(&self, life: &Arc<Life>) -> Arc<dyn Queue<FetchReport>> {
        let names = ["publish reports", "receive reports", "ack reports", "depth of reports"];
        let published = |world: &World, reports: &[FetchReport]| {
            let throttled = reports.iter().filter(|report| report.outcome.rest().is_some());
            throttled.for_each(|report| world.judge().hold_is_reported(report.answering_host()));
            reports.iter().for_each(|report| world.judge().shown(report));
            let undone = world.undone();
            let is_dropped = |report: &&FetchReport| {
                let held = undone.holds.iter().any(|(host, _)| host == report.answering_host());
                held && report.outcome.rest().is_some()
            };
            reports.iter().filter(|report| !is_dropped(report)).cloned().collect::<Vec<FetchReport>>()
        };
        let (line, queue) = (self.line(life, Server::Queue), Arc::clone(&self.world.reports));
        Arc::new(SeenQueue { line, queue, names, published, confirmed: |_, _| {} })
    }

    fn scheduler(&self, life: Arc<Life>, clock: &Arc<dyn Clock>) -> Process {
        let line = self.line(&life, Server::Store);
        let store: Arc<dyn Store> = Arc::new(SeenStore { line, server: Arc::clone(&self.world.store) });
        let line = self.line(&life, Server::Schedule);
        let backends = Backends {
            store: Arc::clone(&store),
            schedule: Arc::new(SeenSchedule { line, server: Arc::clone(&self.world.schedule) }),
            gate: self.gate(&life),
            jobs: self.jobs(&life),
            reports: self.reports(&life),
        };
        let metrics = Arc::new(Metrics::new());
        let mut scheduler = Scheduler::new(&backends, &self.world.config, &metrics, clock);
        let results = self.seeded(&scheduler.results);
        scheduler.intake.results = Arc::clone(&results);
        scheduler.results = results;
        let scheduler = Arc::new(scheduler);
        let quiet = scheduler.ops.quiet.clone();
        let exchange = SeenExchange(self.line(&life, Server::Queue));
        let relay = self.relays.then(|| Relay::new(store, Box::new(exchange), &[], Arc::clone(clock), metrics));
        let (world, running, stopping) = (Arc::clone(&self.world), Arc::clone(&scheduler), quiet.clone());
        let (living, now) = (Arc::clone(&life), Arc::clone(clock));
        let task = tokio::spawn(async move {
            // As the role does: before any feed can be added.
            let _ = tokio::time::timeout(Duration::from_secs(2), running.reconciler.open_gate(&*now)).await;
            let stop = CancellationToken::new();
            let loops = async {
                let ended = running.run(&stop).await;
                stop.cancel();
                ended
            };
            let relay = relay::run(relay, &stopping);
            let stopped = async {
                stopping.cancelled().await;
                stop.cancel();
            };
            let (ended, (), ()) = tokio::join!(loops, relay, stopped);
            if let Err(error) = ended {
                world.judge().accuse(Rule::Ended, world.now(), &format!("{living} ended: {error}"));
            }
        });
        Process { life, scheduler: Some(scheduler), task: task.abort_handle(), quiet }
    }

    /// The same with random numbers that follow from the seed.
    fn seeded(&self, results: &Results) -> Arc<Results> {
        let Results { store, schedule, gate, reports, rules, config, metrics, condition, wishes, .. } = results;
        let world = Arc::clone(&self.world);
        Arc::new(Results {
            store: Arc::clone(store),
            schedule: Arc::clone(schedule),
            gate: Arc::clone(gate),
            reports: Arc::clone(reports),
            rules: Arc::clone(rules),
            config: Arc::clone(config),
            metrics: Arc::clone(metrics),
            condition: Arc::clone(condition),
            wishes: Arc::clone(wishes),
            moves: Moves { store: Arc::clone(store), schedule: Arc::clone(schedule), rules: Arc::clone(rules) },
            draw: Box::new(move || world.draw()),
            minutes: Mutex::default(),
        })
    }

    fn worker(&self, life: Arc<Life>, clock: &Arc<dyn Clock>) -> Process {
        let poller = Poller {
            fetcher: Box::new(Fetching { world: Arc::clone(&self.world), life: Arc::clone(&life) }),
            gate: self.gate(&life),
            rules: Arc::new(LiveRules::new(&self.world.config)),
            config: Arc::clone(&self.world.config),
            clock: Arc::clone(clock),
            metrics: Arc::new(Metrics::new()),
            secrets: Arc::default(),
            watch: ClockWatch::default(),
            nonces: Nonces::seeded(self.seed ^ (u64::from(life.number) << 32)),
            own_holds: OwnHolds::default(),
        };
        let worker = Worker { poller: Arc::new(poller), jobs: self.jobs(&life), reports: self.reports(&life) };
        let (world, living, quiet) = (Arc::clone(&self.world), Arc::clone(&life), CancellationToken::new());
        let stopping = quiet.clone();
        let task = tokio::spawn(async move {
            if let Err(error) = worker.run(&stopping).await {
                world.judge().accuse(Rule::Ended, world.now(), &format!("{living} ended: {error}"));
            }
        });
        Process { life, scheduler: None, task: task.abort_handle(), quiet }
    }

    /// Kills a process; it is started again a little later.
    pub(crate) fn kill(&mut self, index: usize) {
        let process = self.processes.remove(index);
        self.note(format!("{} is killed", process.life));
        if !process.life.is_dead() {
            process.life.kill();
            self.world.judge().died(&process.life, self.world.now());
        }
        self.bury(&process);
    }

    /// Ends a process for good.
    pub(crate) fn retire(&mut self, index: usize) {
        let process = self.processes.remove(index);
        self.note(format!("{} is stopped for good", process.life));
        process.life.kill();
        process.task.abort();
    }

    fn bury(&mut self, process: &Process) {
        process.task.abort();
        let again = (Instant::now() + RESTART, process.life.kind, process.life.place, process.life.clock.ahead());
        self.awaited.push(again);
    }

    /// Stops a process in order, and starts it again when it has ended.
    pub(crate) fn stop(&mut self, index: usize) {
        let process = self.processes.remove(index);
        self.note(format!("{} is stopped in order", process.life));
        process.quiet.cancel();
        let grace = self.world.config.fetch.timeout * 5;
        let again = (Instant::now() + grace, process.life.kind, process.life.place, process.life.clock.ahead());
        self.awaited.push(again);
        let (world, life, task) = (Arc::clone(&self.world), process.life, process.task);
        // As `terminationGracePeriodSeconds` does.
        tokio::spawn(async move {
            sleep(grace).await;
            if !task.is_finished() {
                life.kill();
                world.judge().died(&life, world.now());
                task.abort();
            }
        });
    }

    /// Lets the fleet run for this long: restarts every process that died or that reports it is stuck.
    pub(crate) async fn live(&mut self, lasts: Duration) {
        let end = Instant::now() + lasts;
        let mut asks = Instant::now() + ASK_EVERY;
        loop {
            let restart = self.awaited.iter().map(|(at, ..)| *at).min().unwrap_or(end);
            tokio::select! {
                biased;
                Some(number) = self.deaths.recv() => {
                    if let Some(index) = self.processes.iter().position(|process| process.life.number == number) {
                        self.kill(index);
                    }
                }
                () = sleep_until(restart.min(end).min(asks)) => {}
            }
            let now = Instant::now();
            let due = self.awaited.extract_if(.., |(at, ..)| *at <= now).collect::<Vec<_>>();
            for (_, kind, place, ahead) in due {
                self.start(kind, place, ahead);
            }
            if now >= asks {
                asks = now + ASK_EVERY;
                self.ask_health();
            }
            if now >= end {
                return;
            }
        }
    }

    /// What an orchestrator does with a process whose `/healthz` fails.
    fn ask_health(&mut self) {
        let stuck = |process: &Process| {
            process.scheduler.as_ref().and_then(|scheduler| scheduler.ops.condition.watchdog.alarm()).is_some()
        };
        while let Some(index) = self.processes.iter().position(stuck) {
            self.note(format!("{} says that it is stuck", self.processes[index].life));
            self.kill(index);
        }
    }

    /// Sets the clock of a process.
    pub(crate) fn set_clock(&self, index: usize, ahead: i64) {
        let life = &self.processes[index].life;
        self.note(format!("the clock of {life} is set: {ahead} ms off, {} ms before", life.clock.ahead()));
        life.clock.set(ahead);
    }

    /// Sets the clocks right that are off beyond what is tolerated.
    pub(crate) fn synchronise(&mut self) {
        let is_off = |ahead: i64| ahead.abs() > SimulatedClock::TOLERATED;
        (0..self.processes.len())
            .filter(|index| is_off(self.processes[*index].life.clock.ahead()))
            .for_each(|index| self.set_clock(index, 0));
        self.awaited.iter_mut().filter(|(.., ahead)| is_off(*ahead)).for_each(|(.., ahead)| *ahead = 0);
    }

    /// A person requests a poll of a feed.
    pub(crate) fn wake(&self, feed: FeedId) {
        let ops = self.processes.iter().find_map(|process| process.scheduler.as_ref()).map(|found| found.ops.clone());
        if let Some(ops) = ops {
            tokio::spawn(async move { ops.wake(&[feed]).await.map(|_| ()) });
        }
    }
}
