//! The condition of the fleet: what its loops measure and take into account, beside the feeds themselves.

pub mod dispatching;
pub mod failure_log;
pub mod gate;
pub mod job_proofs;
pub mod live_config;
pub mod load;
pub mod our_fault;
pub mod pace;
pub mod pause;
pub mod price;
pub mod refusals;
pub mod soft;
pub mod storing;
pub mod tokens;
pub mod watchdog;
pub mod worst;

use std::sync::Arc;

use common::config::Config;

use dispatching::Dispatching;
use gate::GateState;
use job_proofs::JobProofs;
use live_config::LiveConfig;
use load::Load;
use our_fault::OurFault;
use pause::Pause;
use price::Price;
use refusals::Refusals;
use soft::SoftAnswers;
use storing::Storing;
use tokens::Tokens;
use watchdog::Watchdog;
use worst::WorstHosts;

/// One scheduler's view of the fleet's condition, shared by the loops that measure it and those that decide by it.
#[derive(Debug)]
pub struct Condition {
    /// The configuration in force.
    pub config: LiveConfig,
    /// The tokens in force.
    pub tokens: Arc<Tokens>,
    /// What a poll costs.
    pub price: Price,
    /// How loaded the fleet is.
    pub load: Load,
    /// Whether due feeds can be dispatched.
    pub dispatching: Dispatching,
    /// Whether reports can be stored.
    pub storing: Storing,
    /// Whether failures are those of our own network.
    pub our_fault: OurFault,
    /// Which hosts refuse us.
    pub refusals: Refusals,
    /// Which feeds of hosts with soft statuses are answered so.
    pub soft: SoftAnswers,
    /// Which hosts fail and throttle most.
    pub worst: WorstHosts,
    /// Whether all polling is paused.
    pub pause: Pause,
    /// Whether the host gate lets requests start.
    pub gate: GateState,
    /// Which reports answer jobs of this fleet.
    pub proofs: JobProofs,
    /// Whether polling makes progress.
    pub watchdog: Watchdog,
}

impl Condition {
    /// Returns the condition of a fleet that has done nothing yet.
    pub fn new(config: &Config) -> Self {
        Condition {
            config: LiveConfig::new(config),
            tokens: Arc::new(Tokens::of(config)),
            price: Price::new(config),
            load: Load::default(),
            dispatching: Dispatching::default(),
            storing: Storing::default(),
            our_fault: OurFault::default(),
            refusals: Refusals::default(),
            soft: SoftAnswers::default(),
            worst: WorstHosts::default(),
            pause: Pause::default(),
            gate: GateState::default(),
            proofs: JobProofs::new(config),
            watchdog: Watchdog::default(),
        }
    }
}
