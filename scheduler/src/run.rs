//! A scheduler as a whole: its loops over one set of backends, started and stopped together.

use std::sync::{Arc, Mutex};

use common::bot_auth::BotKey;
use common::config::Config;
use common::host_gate::HostGate;
use common::job::FetchJob;
use common::live_rules::LiveRules;
use common::metrics::Metrics;
use common::queue::Queue;
use common::report::FetchReport;
use common::secrets::Keyring;
use common::time::{Clock, ClockWatch};
use tokio_util::sync::CancellationToken;

use crate::condition::load::Load;
use crate::condition::our_fault::OurFault;
use crate::condition::price::Price;
use crate::condition::storing::Storing;
use crate::condition::worst::WorstHosts;
use crate::error::BackendError;
use crate::ops::Ops;
use crate::poll::dispatch::Dispatcher;
use crate::poll::results::Results;
use crate::poll::subject::draw;
use crate::schedule::Schedule;
use crate::upkeep::maintain::Maintainer;
use crate::upkeep::orders::Orders;
use crate::upkeep::reconcile::Reconciler;
use crate::upkeep::requeue::Dripper;
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

/// The loops of a scheduler.
pub struct Scheduler {
    /// What people and programs may ask of it.
    pub ops: Arc<Ops>,
    /// From due to job.
    pub dispatcher: Dispatcher,
    /// From report to stored state.
    pub results: Results,
    /// Schedule and gate in line with the store.
    pub reconciler: Reconciler,
    maintainer: Maintainer,
    dripper: Dripper,
    clock: Arc<dyn Clock>,
}

impl Scheduler {
    /// A scheduler over these backends; nothing runs yet.
    pub fn new(backends: &Backends, config: &Arc<Config>, metrics: &Arc<Metrics>, clock: &Arc<dyn Clock>) -> Self {
        let Backends { store, schedule, gate, jobs, reports } = backends.clone();
        let rules = Arc::new(LiveRules::new(config));
        let orders = Orders::new(store.clone(), gate.clone(), schedule.clone(), rules.clone());
        let orders = Arc::new(orders);
        let (config, metrics, clock) = (Arc::clone(config), Arc::clone(metrics), Arc::clone(clock));
        let load = Arc::new(Load::default());
        let price = Arc::new(Price::new(&config));
        let storing = Arc::new(Storing::default());
        let dripped = storing.clone();
        let secrets = Arc::new(Keyring::new(&config.secrets));
        let our_fault = Arc::new(OurFault::default());
        let worst = Arc::new(WorstHosts::default());
        Scheduler {
            ops: Arc::new(Ops {
                store: store.clone(),
                schedule: schedule.clone(),
                gate: gate.clone(),
                jobs: jobs.clone(),
                clock: clock.clone(),
                config: config.clone(),
                rules: rules.clone(),
                orders: orders.clone(),
                metrics: metrics.clone(),
                load: load.clone(),
                price: price.clone(),
                storing: storing.clone(),
                quiet: CancellationToken::new(),
                secrets: secrets.clone(),
                our_fault: our_fault.clone(),
                worst: worst.clone(),
                // whoever starts a fleet looks at the key first, and refuses one that cannot be used
                bot_key: BotKey::of(&config).ok().flatten(),
            }),
            dispatcher: Dispatcher {
                store: store.clone(),
                schedule: schedule.clone(),
                gate: gate.clone(),
                jobs: jobs.clone(),
                reports: reports.clone(),
                rules: rules.clone(),
                config: config.clone(),
                metrics: metrics.clone(),
                storing: storing.clone(),
                price: price.clone(),
                our_fault: our_fault.clone(),
                watch: ClockWatch::default(),
            },
            results: Results {
                store: store.clone(),
                schedule: schedule.clone(),
                gate: gate.clone(),
                reports: reports.clone(),
                rules,
                config: config.clone(),
                metrics: metrics.clone(),
                load: load.clone(),
                draw: Box::new(draw),
                minutes: Mutex::default(),
                price: price.clone(),
                our_fault,
                worst,
                storing,
                watch: ClockWatch::default(),
            },
            reconciler: Reconciler {
                store: store.clone(),
                schedule: schedule.clone(),
                gate: gate.clone(),
                reports: reports.clone(),
                orders,
                config: config.clone(),
            },
            dripper: Dripper { store: store.clone(), schedule: schedule.clone(), storing: dripped },
            maintainer: Maintainer { store, schedule, gate, jobs, reports, config, metrics, load, price, secrets },
            clock,
        }
    }

    /// Fills the schedule from the store and tries to open the gate; the loops go on with both.
    pub async fn boot(&self) -> Result<(), BackendError> {
        self.maintainer.price.load(&*self.maintainer.store, &self.maintainer.config).await?;
        self.ops.orders.look(self.clock.now()).await?;
        self.reconciler.rebuild(&*self.clock).await?;
        self.reconciler.open_gate(self.clock.now()).await?;
        Ok(())
    }

    /// Runs the loops. After [`Ops::quiet`] no more jobs are dispatched; after `stop` reports are no longer taken either.
    pub async fn run(&self, stop: &CancellationToken) {
        let quiet = &self.ops.quiet;
        self.ops.orders.known(&*self.clock, quiet).await;
        tokio::join!(
            self.ops.orders.run(&*self.clock, quiet),
            self.dispatcher.run(&*self.clock, quiet),
            self.reconciler.run(&*self.clock, quiet),
            self.maintainer.run(&*self.clock, quiet),
            self.dripper.run(&*self.clock, quiet),
            self.results.run(&*self.clock, stop),
        );
    }
}
