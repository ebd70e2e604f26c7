//! What operators say while a fleet runs, carried to where it counts: the accepted configuration to this scheduler's own
//! snapshot, host rules there and to the gate, where workers read them, blocks to the gate.
//!
//! The store is the truth. Every scheduler looks about once a second whether something changed there, and the scheduler
//! that changes something looks at once; there is no leader. Every step of a look may be done by several schedulers and
//! repeated: if one of them applies an older value late, the next look of any of them corrects it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use common::accepted;
use common::config::shared_hash;
use common::host::HostKey;
use common::host_gate::{GateError, HostGate, LoadMark};
use common::live_rules::LiveRules;
use common::metrics::Metrics;
use common::time::{Clock, Timestamp};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::condition::Condition;
use crate::condition::failure_log::FailureLog;
use crate::error::BackendError;
use crate::schedule::Schedule;
use store::{AcceptedPolicy, NewPolicy, Store};

/// How often a change is looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Carries orders.
pub struct Orders {
    /// Where they are kept.
    pub store: Arc<dyn Store>,
    /// Where workers see them.
    pub gate: Arc<dyn HostGate>,
    /// Where feeds of blocked hosts wait.
    pub schedule: Arc<dyn Schedule>,
    /// This scheduler's own.
    pub rules: Arc<LiveRules>,
    /// Whose configuration it is.
    pub condition: Arc<Condition>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    carried: Mutex<Carried>,
}

/// What was carried last.
#[derive(Debug, Default)]
struct Carried {
    change: Option<i64>,
    /// This scheduler's own configuration was offered to the fleet.
    offered: bool,
    /// The version of the accepted configuration.
    policy: Option<i64>,
    rules: String,
    blocks: HashMap<HostKey, Timestamp>,
    /// When they were read.
    read: Timestamp,
    /// Those that are on the gate.
    at_gate: HashMap<HostKey, Timestamp>,
    /// Hosts whose blocks ended or end earlier than before, and the time to which their feeds are still to be brought forward.
    lifted: HashMap<HostKey, Timestamp>,
}

impl Orders {
    /// Nothing is known yet.
    pub fn new(
        store: Arc<dyn Store>,
        gate: Arc<dyn HostGate>,
        schedule: Arc<dyn Schedule>,
        rules: Arc<LiveRules>,
        condition: Arc<Condition>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Orders { store, gate, schedule, rules, condition, metrics, carried: Mutex::default() }
    }

    /// Looks until stopped.
    pub async fn run(&self, clock: &dyn Clock, stop: &CancellationToken) {
        let mut looking = FailureLog::new("carrying what operators say about hosts");
        while !stop.is_cancelled() {
            looking.note(self.look(clock.now()).await);
            common::sleep_or_stop(LOOK_EVERY, stop).await;
        }
    }

    /// Waits until the rules are known: no host may be polled by other rules.
    pub async fn known(&self, clock: &dyn Clock, stop: &CancellationToken) {
        let mut reading = FailureLog::new("reading what operators say about hosts");
        while !stop.is_cancelled() && self.carried.lock().await.change.is_none() {
            reading.note(self.look(clock.now()).await);
            if self.carried.lock().await.change.is_none() {
                common::sleep_or_stop(LOOK_EVERY, stop).await;
            }
        }
    }

    /// Reads what changed, and carries it.
    pub async fn look(&self, now: Timestamp) -> Result<(), BackendError> {
        let mut carried = self.carried.lock().await;
        if !carried.offered {
            self.offer(now).await?;
            carried.offered = true;
        }
        if let Some(orders) = self.store.host_orders(carried.change).await? {
            let accepted = orders.policy.filter(|policy| Some(policy.version) != carried.policy);
            if let Some(policy) = accepted {
                carried.policy = Some(policy.version);
                self.adopt(&policy);
            }
            self.rules.set(&orders.rules);
            self.metrics.hosts_refusing.set(i64::try_from(orders.refusals.len()).unwrap_or(i64::MAX));
            self.condition.refusals.set(orders.refusals);
            let blocks: HashMap<HostKey, Timestamp> = orders.blocks.into_iter().collect();
            let ends = |host: &HostKey| blocks.get(host).copied().unwrap_or(now).max(now);
            let ran = carried.blocks.iter().filter(|(_, until)| **until > carried.read);
            let lifted = ran.filter(|(host, until)| ends(host) < **until || ends(host) == now);
            let before = carried.lifted.iter().filter(|(host, until)| ends(host) <= (**until).max(now));
            let lifted = before.chain(lifted).map(|(host, _)| (host.clone(), ends(host))).collect();
            *carried = Carried {
                change: Some(orders.change),
                rules: self.rules.to_text(),
                blocks,
                read: now,
                lifted,
                ..std::mem::take(&mut *carried)
            };
        }
        let shown = self.gate.show_rules(&carried.rules).await;
        let is_new = |(host, until): &(&HostKey, &Timestamp)| carried.at_gate.get(*host) != Some(*until);
        let new: HashMap<_, _> =
            carried.blocks.iter().filter(is_new).map(|(host, until)| (host.clone(), *until)).collect();
        if !new.is_empty() {
            self.carry_blocks(&new, now).await?;
            carried.at_gate = carried.blocks.clone();
        }
        self.bring_forward(&mut carried.lifted, now).await?;
        Ok(shown?)
    }

    /// Brings feeds of hosts forward whose blocks ended or end earlier; forgets the hosts when the whole schedule knows.
    async fn bring_forward(
        &self,
        lifted: &mut HashMap<HostKey, Timestamp>,
        now: Timestamp,
    ) -> Result<(), BackendError> {
        if lifted.is_empty() {
            return Ok(());
        }
        let hosts: Vec<_> = lifted.iter().map(|(host, until)| (host.clone(), *until)).collect();
        self.schedule.unpark(&hosts).await?;
        // A part that is away was left out, and cannot be counted either: it learns of them at a later look.
        if self.schedule.depth(now).await.is_ok() {
            lifted.clear();
        }
        Ok(())
    }

    /// Offers the configuration that this scheduler was started with. One that the fleet never saw is a person's
    /// decision, and applies from now on; one that it has replaced does not return by a restart
    /// (`docs/decisions/0024-config-reload.md`).
    async fn offer(&self, now: Timestamp) -> Result<(), BackendError> {
        let own = self.condition.config.own();
        let text = accepted::text(own);
        let hash = accepted::hash(&text);
        // An SQLite file has one process.
        let decided = own.store.url.starts_with("sqlite");
        let policy =
            self.store.accept_policy(&NewPolicy { text: &text, hash: &hash, by: "start", decided }, now).await?;
        if policy.hash != hash {
            tracing::warn!(
                version = policy.version,
                by = policy.by,
                "the fleet has replaced the policy and host rules of this scheduler's configuration, and follows newer ones; \
                 `feedfleet config reload` makes those of this scheduler count"
            );
        }
        Ok(())
    }

    /// Takes over the configuration that the fleet accepted.
    fn adopt(&self, policy: &AcceptedPolicy) {
        let before = self.condition.config.in_force();
        if let Some(config) = self.condition.config.adopt(policy) {
            self.rules.configure(&config);
            self.metrics.config_hash.reset();
            self.metrics.config_hash.with_label_values(&[&shared_hash(&config)]).set(1);
            self.metrics.policy_version.set(policy.version);
            let AcceptedPolicy { version, hash, by, .. } = policy;
            // A scheduler that starts with what the fleet has is not news.
            if before.accepted.is_some() || before.own_hash != *hash {
                tracing::info!(version, hash, by, "new policy and host rules are in force");
            } else {
                tracing::debug!(version, hash, by, "policy and host rules are in force");
            }
        }
    }

    /// Puts everything onto a gate that lost its memory, before it opens.
    pub async fn load(&self, mark: &LoadMark, now: Timestamp) -> Result<(), BackendError> {
        self.carried.lock().await.at_gate.clear();
        match self.look(now).await {
            // The blocks of the part that lost its memory are what it needs, whatever part is away.
            Err(BackendError::Gate(GateError::PartAway { .. })) => {}
            looked => return looked,
        }
        let blocks = self.carried.lock().await.blocks.clone();
        let lost = blocks.into_iter().filter(|(host, _)| self.gate.is_lost(mark, host));
        self.carry_blocks(&lost.collect(), now).await
    }

    async fn carry_blocks(&self, blocks: &HashMap<HostKey, Timestamp>, now: Timestamp) -> Result<(), BackendError> {
        let mut carried = Ok(());
        for (host, until) in blocks {
            let block = self.gate.block(host, Some(*until).filter(|until| *until > now), now).await;
            // A part of the gate that is away keeps no block from the others.
            carried = carried.and(block);
            if matches!(carried, Err(GateError::Backend { .. })) {
                break;
            }
        }
        Ok(carried?)
    }
}
