//! The simulated world: the servers, the origins, the weather between them, one clock, and the judge.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use common::config::Config;
use common::host::HostKey;
use common::job::FetchJob;
use common::policy::Draw;
use common::queue::memory::MemoryQueue;
use common::report::FetchReport;
use common::time::{Clock, Timestamp};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::gate::GateServer;
use crate::judge::Judge;
use crate::life::{EPOCH, Life, SimulatedClock};
use crate::line::{Call, Fate, Weather};
use crate::origin::Origin;
use crate::rules::Tolerance;
use crate::schedule::ScheduleServer;
use crate::store::StoreServer;

/// Everything that processes share.
pub(crate) struct World {
    pub(crate) config: Arc<Config>,
    pub(crate) store: Arc<StoreServer>,
    pub(crate) schedule: Arc<ScheduleServer>,
    pub(crate) gate: Arc<GateServer>,
    pub(crate) jobs: Arc<MemoryQueue<FetchJob>>,
    pub(crate) reports: Arc<MemoryQueue<FetchReport>>,
    clock: SimulatedClock,
    skew: i64,
    judge: Mutex<Judge>,
    origin: Mutex<Origin>,
    weather: Mutex<Box<dyn Weather>>,
    draws: Mutex<StdRng>,
    /// The processes that a fetched document killed.
    deaths: mpsc::UnboundedSender<u32>,
    sabotage: Option<Sabotage>,
    undone: Mutex<Undone>,
}

/// A server that breaks its promises, to see whether the judge sees that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// The gate takes no holds.
    NoHolds,
    /// The gate knows no gap between two requests.
    NoGap,
    /// The gate lets two requests of a host be in flight.
    NoLimit,
    /// The schedule says that feeds are due which are not, and the store agrees.
    Early,
    /// The schedule forgets a feed that it must keep, and never compares itself with the store.
    Forgetful,
    /// The store takes a report of a version that it has.
    Twice,
    /// The exchange confirms an event that it loses.
    Deaf,
    /// No server at all: a process keeps connections that were silent once, and they stay so.
    KeptLinks,
    /// No server either, but the program as it was before a fault was fixed (A2): a scheduler that claims nothing,
    /// because it could not store reports, does not check whether it can again.
    NeverProbes,
    /// (A4) A worker whose acquire got no answer does not release what it may have been granted.
    KeepsStarts,
    /// (B1) A worker that cannot put a hold on the gate drops its report.
    DropsThrottled,
    /// (C3) When one message of a round is not confirmed, the jobs of the others stay hidden for the claim's lease only.
    HidesBriefly,
    /// (C4) The holds in the store are never loaded into the gate.
    LoadsNoHolds,
    /// (B3) Nobody remembers the gate's generation.
    NoGenerations,
    /// A process that saw a newer generation leaves the mark of the older one, also when it writes: only others that saw it load the gate.
    KeepsOldMark,
    /// Only those that load a gate learn its generation before it is open.
    HidesLoadings,
    /// A process that loads a gate does not remember its generation before the gate is open, nor does one that writes to it.
    ForgetsLoadings,
    /// A process that writes to a gate that is not open does not remember its generation.
    ForgetsWrites,
    /// (B6) The store keeps its epoch when it fails over to a copy that lags.
    KeepsEpoch,
    /// Comparing a clock with a server finds that they agree, whatever they show.
    AnyClock,
    /// A fetch reads the clock of its machine, which may be set meanwhile.
    SetInFetch,
    /// A fetch that ends at another host does not say when its job's own host was requested.
    ForgetsStart,
}

/// What a sabotaged process remembers.
#[derive(Default)]
pub(crate) struct Undone {
    /// The acquires without an answer.
    pub(crate) starts: BTreeSet<u64>,
    /// The holds that the gate did not take.
    pub(crate) holds: BTreeSet<(HostKey, Timestamp)>,
    /// A message with jobs was not confirmed.
    pub(crate) unconfirmed: bool,
}

/// Leases as short as they can be, so that a life is short.
pub(crate) fn config() -> Config {
    let seconds = Duration::from_secs;
    let mut config = common::config::defaults();
    config.host_rule.clear();
    let policy = &mut config.policy;
    (policy.hot_minutes, policy.min_interval, policy.interval) = (false, seconds(10), seconds(20));
    (policy.penalty.transient_first, policy.penalty.box_after) = (seconds(10), 1_000_000);
    config.fetch.timeout = seconds(3);
    let scheduler = &mut config.scheduler;
    (scheduler.tick, scheduler.claim_lease) = (Duration::from_millis(500), seconds(4));
    (scheduler.queue_lease, scheduler.fetch_lease) = (seconds(8), seconds(12));
    scheduler.reconcile_interval = seconds(30);
    (config.worker.concurrency, config.worker.job_batch) = (8, 4);
    config
}

/// The default configuration, but for floors that the judge does not know (others than `min_interval`), and with a slower tick, because
/// what an idle fleet does takes most of the time of a long life.
pub(crate) fn usual() -> Config {
    let mut config = common::config::defaults();
    config.host_rule.clear();
    config.policy.penalty.transient_first = config.policy.min_interval;
    config.policy.penalty.box_after = 1_000_000;
    config.scheduler.tick = Duration::from_secs(1);
    config
}

/// Returns the two leases of a fleet together.
pub(crate) fn lease(config: &Config) -> Duration {
    config.scheduler.queue_lease + config.scheduler.fetch_lease
}

impl World {
    pub(crate) fn new(
        config: Config,
        has_standby: bool,
        skew: Duration,
        seed: u64,
        weather: Box<dyn Weather>,
        deaths: mpsc::UnboundedSender<u32>,
        sabotage: Option<Sabotage>,
    ) -> Arc<Self> {
        let store = StoreServer::new(has_standby);
        let interval = config.policy.min_interval;
        let tolerance = Tolerance { skew: skew * 2, gap: config.host.gap, interval, permit: config.fetch.deadline() };
        Arc::new(World {
            config: Arc::new(config),
            store: Arc::new(store),
            schedule: Arc::new(ScheduleServer::new()),
            gate: Arc::new(GateServer::new()),
            jobs: Arc::new(MemoryQueue::new(1 << 24)),
            reports: Arc::new(MemoryQueue::new(1 << 24)),
            clock: SimulatedClock::new(Instant::now(), 0),
            skew: i64::try_from(skew.as_millis()).expect("below a second"),
            judge: Mutex::new(Judge::new(tolerance)),
            origin: Mutex::default(),
            weather: Mutex::new(weather),
            draws: Mutex::new(StdRng::seed_from_u64(seed)),
            deaths,
            sabotage,
            undone: Mutex::default(),
        })
    }

    /// Returns the true time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn begun(&self) -> Timestamp {
        Timestamp::from_millis(EPOCH)
    }

    /// Returns the largest error of a clock that this fleet has, in milliseconds.
    pub(crate) fn skew(&self) -> i64 {
        self.skew
    }

    /// Returns the clock of a process, with this error in milliseconds.
    pub(crate) fn clock(&self, ahead: i64) -> SimulatedClock {
        self.clock.other(ahead)
    }

    pub(crate) fn judge(&self) -> MutexGuard<'_, Judge> {
        common::lock(&self.judge)
    }

    pub(crate) fn origin(&self) -> MutexGuard<'_, Origin> {
        common::lock(&self.origin)
    }

    pub(crate) fn set_weather(&self, weather: Box<dyn Weather>) {
        *common::lock(&self.weather) = weather;
    }

    pub(crate) fn is_sabotaged(&self, by: Sabotage) -> bool {
        self.sabotage == Some(by)
    }

    pub(crate) fn undone(&self) -> MutexGuard<'_, Undone> {
        common::lock(&self.undone)
    }

    /// Returns the outcome of a call.
    pub(crate) fn fate(&self, life: &Life, call: Call) -> Fate {
        let fate = common::lock(&self.weather).fate(&call, Instant::now());
        let mut judge = self.judge();
        judge.counts.calls += 1;
        if fate != Fate::Good {
            judge.fault(life, call, fate, self.now());
        }
        fate
    }

    pub(crate) fn transit(&self) -> Duration {
        common::lock(&self.weather).transit()
    }

    /// Returns how long connecting and answering take.
    pub(crate) fn fetch_times(&self) -> [Duration; 2] {
        common::lock(&self.weather).fetch_times()
    }

    /// Random numbers for a decision.
    pub(crate) fn draw(&self) -> Draw {
        let mut draws = common::lock(&self.draws);
        Draw { salt: draws.random(), minute: draws.random() }
    }

    /// A worker dies of what it fetches.
    pub(crate) fn dies_of(&self, life: &Life) {
        life.kill();
        self.judge().died(life, self.now());
        let _ = self.deaths.send(life.number);
    }
}
