//! What the parts of settling reports work with.

use common::config::Config;
use common::host_gate::HostGate;
use common::live_rules::LiveRules;
use common::metrics::Metrics;

use crate::condition::Condition;
use crate::schedule::Schedule;
use store::Store;

/// Where the results of reports go, and what they depend on.
#[derive(Clone, Copy)]
pub(super) struct Settling<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) schedule: &'a dyn Schedule,
    pub(super) gate: &'a dyn HostGate,
    pub(super) rules: &'a LiveRules,
    pub(super) config: &'a Config,
    pub(super) metrics: &'a Metrics,
    pub(super) condition: &'a Condition,
}
