//! A scheduler as a whole: its loops over one set of backends, started and stopped together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use common::bot_auth::BotKey;
use common::config::{Config, shared_hash};
use common::host_gate::HostGate;
use common::host_gate::memory::MemoryGate;
use common::job::FetchJob;
use common::live_rules::LiveRules;
use common::metrics::Metrics;
use common::queue::Queue;
use common::queue::memory::MemoryQueue;
use common::report::FetchReport;
use common::secrets::Keyring;
use common::time::{Clock, ClockWatch, Timestamp};
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::condition::Condition;
use crate::delivery;
use crate::error::BackendError;
use crate::ops::Ops;
use crate::poll::dispatch::Dispatcher;
use crate::poll::intake::{Intake, linger};
use crate::poll::moves::Moves;
use crate::poll::results::Results;
use crate::poll::subject::draw;
use crate::push;
use crate::push::wish::Wishes;
use crate::schedule::Schedule;
use crate::schedule::memory::MemorySchedule;
use crate::upkeep::maintain::Maintainer;
use crate::upkeep::orders::Orders;
use crate::upkeep::reconcile::Reconciler;
use crate::upkeep::requeue::RequeueRunner;
use crate::upkeep::watch::Watch;
use store::Store;

/// What a fleet runs on: one implementation of each seam.
#[derive(Clone)]
pub struct Backends {
    /// Feeds, entries, events.
    pub store: Arc<dyn Store>,
    /// Due times.
    pub schedule: Arc<dyn Schedule>,
    /// Hosts' gaps and holds.
    pub gate: Arc<dyn HostGate>,
    /// To the workers.
    pub jobs: Arc<dyn Queue<FetchJob>>,
    /// From the workers.
    pub reports: Arc<dyn Queue<FetchReport>>,
}

impl Backends {
    /// Returns a fleet in one process over this store, with the rest in memory: what tests begin with, and change where they need
    /// to.
    pub fn in_memory(store: Arc<dyn Store>) -> Self {
        const QUEUE: usize = 1 << 20;
        Backends {
            store,
            schedule: Arc::new(MemorySchedule::default()),
            gate: Arc::new(MemoryGate::new(Timestamp::EPOCH)),
            jobs: Arc::new(MemoryQueue::new(QUEUE)),
            reports: Arc::new(MemoryQueue::new(QUEUE)),
        }
    }
}

/// The loops of a scheduler.
pub struct Scheduler {
    /// The operations of people and programs.
    pub ops: Arc<Ops>,
    /// From due to job.
    pub dispatcher: Dispatcher,
    /// Receives reports.
    pub intake: Intake,
    /// From report to stored state.
    pub results: Arc<Results>,
    /// Schedule and gate in line with the store.
    pub reconciler: Reconciler,
    maintainer: Maintainer,
    requeue_runner: RequeueRunner,
    pub(crate) watch: Watch,
    clock: Arc<dyn Clock>,
}

/// A loop ended without being stopped. The process must end too: without that loop nothing is polled, and another
/// process can take over.
#[derive(Debug, thiserror::Error)]
#[error("the scheduler's {name} loop ended before shutdown")]
pub struct LoopEnded {
    /// Which loop.
    name: &'static str,
    /// How, if it panicked.
    #[source]
    panic: Option<JoinError>,
}

impl Scheduler {
    /// Returns a scheduler over these backends; nothing runs yet.
    pub fn new(backends: &Backends, config: &Arc<Config>, metrics: &Arc<Metrics>, clock: &Arc<dyn Clock>) -> Self {
        let Backends { store, schedule, gate, jobs, reports } = backends.clone();
        let rules = Arc::new(LiveRules::new(config));
        let (config, metrics, clock) = (Arc::clone(config), Arc::clone(metrics), Arc::clone(clock));
        let condition = Arc::new(Condition::new(&config));
        let orders = Orders::new(
            store.clone(),
            gate.clone(),
            schedule.clone(),
            rules.clone(),
            condition.clone(),
            metrics.clone(),
        );
        let orders = Arc::new(orders);
        metrics.config_hash.with_label_values(&[&shared_hash(&config)]).set(1);
        metrics.config_reload_successful.set(1);
        let secrets = Arc::new(Keyring::new(&config.secrets));
        let wishes = Arc::new(Wishes::new(config.clone(), secrets.clone()));
        let results = Arc::new(Results {
            wishes: wishes.clone(),
            store: store.clone(),
            schedule: schedule.clone(),
            gate: gate.clone(),
            reports: reports.clone(),
            rules: rules.clone(),
            config: config.clone(),
            metrics: metrics.clone(),
            condition: condition.clone(),
            moves: Moves { store: store.clone(), schedule: schedule.clone(), rules: rules.clone() },
            draw: Box::new(draw),
            minutes: Mutex::default(),
        });
        Scheduler {
            ops: Arc::new(Ops {
                store: store.clone(),
                schedule: schedule.clone(),
                gate: gate.clone(),
                jobs: jobs.clone(),
                reports: reports.clone(),
                clock: clock.clone(),
                config: config.clone(),
                config_source: OnceLock::new(),
                reloading: tokio::sync::Mutex::default(),
                rules: rules.clone(),
                orders: orders.clone(),
                metrics: metrics.clone(),
                condition: condition.clone(),
                quiet: CancellationToken::new(),
                secrets: secrets.clone(),
                wishes,
                sender: OnceLock::new(),
                // The key was checked before the fleet started.
                bot_key: BotKey::of(&config).ok().flatten(),
            }),
            dispatcher: Dispatcher {
                store: store.clone(),
                schedule: schedule.clone(),
                gate: gate.clone(),
                jobs: jobs.clone(),
                reports: reports.clone(),
                rules,
                config: config.clone(),
                metrics: metrics.clone(),
                condition: condition.clone(),
                watch: ClockWatch::default(),
                any_minute: false,
            },
            intake: Intake { results: results.clone(), watch: ClockWatch::default(), linger: linger(&config) },
            results,
            reconciler: Reconciler {
                store: store.clone(),
                schedule: schedule.clone(),
                gate: gate.clone(),
                reports: reports.clone(),
                orders,
                condition: condition.clone(),
                metrics: metrics.clone(),
                config: config.clone(),
            },
            requeue_runner: RequeueRunner {
                store: store.clone(),
                schedule: schedule.clone(),
                condition: condition.clone(),
            },
            watch: Watch {
                store: store.clone(),
                schedule: schedule.clone(),
                jobs: jobs.clone(),
                condition: condition.clone(),
                config: config.clone(),
                metrics: metrics.clone(),
            },
            maintainer: Maintainer { store, schedule, gate, jobs, reports, config, metrics, condition, secrets },
            clock,
        }
    }

    /// Fills the schedule from the store and tries to open the gate; the loops continue with both.
    pub async fn boot(&self) -> Result<(), BackendError> {
        self.ops.orders.look(self.clock.now()).await?;
        let condition = &self.maintainer.condition;
        condition.price.load(&*self.maintainer.store, &condition.config.get()).await?;
        self.reconciler.rebuild(&*self.clock).await?;
        self.reconciler.open_gate(&*self.clock).await?;
        Ok(())
    }

    /// Runs the loops, each as a task. After [`Ops::quiet`] no more jobs are dispatched; after `stop` reports are no longer
    /// taken either.
    ///
    /// # Errors
    ///
    /// A loop ended before that, or panicked at any time; the others are aborted then.
    pub async fn run(self: Arc<Self>, stop: &CancellationToken) -> Result<(), LoopEnded> {
        let quiet = &self.ops.quiet.clone();
        self.ops.orders.known(&*self.clock, quiet).await;
        let mut loops = Loops::default();
        loops.spawn("orders", quiet, &self, |it, stop| async move { it.ops.orders.run(&*it.clock, &stop).await });
        loops.spawn("dispatch", quiet, &self, |it, stop| async move { it.dispatcher.run(&*it.clock, &stop).await });
        loops.spawn("reconcile", quiet, &self, |it, stop| async move { it.reconciler.run(&*it.clock, &stop).await });
        loops.spawn("maintenance", quiet, &self, |it, stop| async move { it.maintainer.run(&*it.clock, &stop).await });
        loops.spawn("requeue", quiet, &self, |it, stop| async move { it.requeue_runner.run(&*it.clock, &stop).await });
        loops.spawn("watchdog", quiet, &self, |it, stop| async move { it.watch.run(&*it.clock, &stop).await });
        loops.spawn("delivery", quiet, &self, |it, stop| async move { delivery::run(&it.ops, &stop).await });
        loops.spawn("push", quiet, &self, |it, stop| async move { push::run(&it.ops, &stop).await });
        loops.spawn("results", stop, &self, |it, stop| async move { it.intake.run(&*it.clock, &stop).await });
        loops.ended().await
    }
}

/// Tasks that run until each is stopped.
#[derive(Default)]
struct Loops {
    tasks: JoinSet<()>,
    names: HashMap<Id, (&'static str, CancellationToken)>,
}

impl Loops {
    fn spawn<T: Send + Sync + 'static, F: Future<Output = ()> + Send + 'static>(
        &mut self,
        name: &'static str,
        stop: &CancellationToken,
        of: &Arc<T>,
        run: impl FnOnce(Arc<T>, CancellationToken) -> F,
    ) {
        let task = self.tasks.spawn(run(Arc::clone(of), stop.clone()));
        self.names.insert(task.id(), (name, stop.clone()));
    }

    /// Waits until all were stopped, or one ended without.
    async fn ended(mut self) -> Result<(), LoopEnded> {
        while let Some(ended) = self.tasks.join_next_with_id().await {
            let (id, panic) = match ended {
                Ok((id, ())) => (id, None),
                Err(error) => (error.id(), Some(error)),
            };
            let Some((name, stop)) = self.names.remove(&id) else { continue };
            if panic.is_some() || !stop.is_cancelled() {
                return Err(LoopEnded { name, panic });
            }
        }
        Ok(())
    }
}
