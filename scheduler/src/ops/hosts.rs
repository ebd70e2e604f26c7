//! Operations on hosts: their state, rules and blocks.
//!
//! Each change is written to the store first. [`crate::upkeep::orders`] then applies it, at once in this scheduler and within
//! about a second in the others.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use common::host::{HostKey, HostLimits, HostRule};
use common::host_name::HostName;
use common::time::Timestamp;

use crate::error::BackendError;
use crate::ops::Ops;
use store::{HostOrders, HostQuery, HostRefusal, HostRow, Page};

/// What is known of a host.
#[derive(Clone, Debug)]
pub struct HostState {
    /// Its name, feeds, hold and block; of a name with several ports together.
    pub row: HostRow,
    /// The pace at which it is polled.
    pub limits: HostLimits,
    /// The rule that covers it.
    pub rule: Option<HostRule>,
    /// An operator set that rule.
    pub by_operator: bool,
    /// It refuses us.
    pub refusal: Option<HostRefusal>,
}

/// The outcome of a change of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleChange {
    /// It is in force.
    Done,
    /// No operator set a rule for this domain.
    NoRule,
    /// There are too many already; nothing changed.
    TooMany,
    /// It would make this host, which allows no requests before this time, another one; nothing changed.
    Held(HostKey, Timestamp),
}

/// Ports that a name is blocked at even if no feed was seen there.
const USUAL_PORTS: [u16; 1] = [443];

/// A page of hosts: those with feeds, holds, blocks or operators' rules.
pub async fn page(ops: &Ops, query: &HostQuery) -> Result<Page<HostState>, BackendError> {
    let page = ops.store.hosts(query, ops.clock.now()).await?;
    Ok(Page { items: page.items.into_iter().map(|row| host_state(ops, row)).collect(), next: page.next })
}

/// What is known of these hosts, in their order.
pub async fn among(ops: &Ops, hosts: &[HostKey]) -> Result<Vec<HostState>, BackendError> {
    let rows = ops.store.hosts_among(hosts, ops.clock.now()).await?;
    let mut rows: HashMap<HostKey, HostRow> = rows.into_iter().map(|row| (row.host.clone(), row)).collect();
    Ok(hosts.iter().filter_map(|host| rows.remove(host)).map(|row| host_state(ops, row)).collect())
}

/// What is known of one host, also when that is only its pace.
pub async fn state_of(ops: &Ops, name: &HostName) -> Result<HostState, BackendError> {
    let keys = keys(ops, name).await?;
    let mut whole = HostRow { host: HostKey::new(name.name()), feeds: 0, hold_until: None, blocked_until: None };
    if let ([key], _) | ([key, ..], HostName::Key(_)) = (&keys[..], name) {
        whole.host = key.clone();
    }
    for key in &keys {
        for row in ops.store.hosts(&HostQuery::of_key(key), ops.clock.now()).await?.items {
            whole.feeds += row.feeds;
            whole.hold_until = whole.hold_until.max(row.hold_until);
            whole.blocked_until = whole.blocked_until.max(row.blocked_until);
        }
    }
    Ok(host_state(ops, whole))
}

/// Sets the rule of its domain, in place of whatever rule that had.
pub async fn set_rule(ops: &Ops, rule: &HostRule) -> Result<RuleChange, BackendError> {
    let now = ops.clock.now();
    let orders = ops.store.host_orders(None).await?.unwrap_or_default();
    let mut after: Vec<HostRule> = orders.rules.clone();
    after.retain(|other| other.domain() != rule.domain());
    after.push(rule.clone());
    if let Some((host, until)) = held_otherwise(ops, &orders, &after, now).await? {
        return Ok(RuleChange::Held(host, until));
    }
    if !ops.store.set_host_rule(rule, now).await? {
        return Ok(RuleChange::TooMany);
    }
    rules_changed(ops, &rule.domain(), now).await?;
    tracing::info!(domain = rule.domain(), reason = rule.reason, "an operator set a host rule");
    Ok(RuleChange::Done)
}

/// Takes an operator's rule back; that of the configuration, if there is one, counts again.
pub async fn remove_rule(ops: &Ops, domain: &str) -> Result<RuleChange, BackendError> {
    let now = ops.clock.now();
    let orders = ops.store.host_orders(None).await?.unwrap_or_default();
    let after: Vec<HostRule> = orders.rules.iter().filter(|rule| rule.domain() != domain).cloned().collect();
    if let Some((host, until)) = held_otherwise(ops, &orders, &after, now).await? {
        return Ok(RuleChange::Held(host, until));
    }
    if !ops.store.remove_host_rule(domain).await? {
        return Ok(RuleChange::NoRule);
    }
    rules_changed(ops, domain, now).await?;
    tracing::info!(domain, "an operator took back a host rule");
    Ok(RuleChange::Done)
}

/// Stops sending requests to the host for this time.
pub async fn block(ops: &Ops, name: &HostName, duration: Duration) -> Result<(), BackendError> {
    let now = ops.clock.now();
    let keys = keys(ops, name).await?;
    ops.store.block_hosts(&keys, Some(now.after(duration))).await?;
    ops.orders.look(now).await?;
    tracing::info!(host = name.name(), ?duration, "an operator blocked a host");
    Ok(())
}

/// Lifts a block. A hold that a server requested stays.
pub async fn unblock(ops: &Ops, name: &HostName) -> Result<(), BackendError> {
    let now = ops.clock.now();
    let keys = keys(ops, name).await?;
    ops.store.block_hosts(&keys, Some(now)).await?;
    ops.orders.look(now).await?;
    let waiting: Vec<_> = keys.into_iter().map(|key| (key, now)).collect();
    ops.schedule.unpark(&waiting).await?;
    Ok(())
}

/// A host that is held or blocked, and that requests would no longer be charged to: its hold would be forgotten.
async fn held_otherwise(
    ops: &Ops,
    orders: &HostOrders,
    after: &[HostRule],
    now: Timestamp,
) -> Result<Option<(HostKey, Timestamp)>, BackendError> {
    let (before, after) = (ops.rules.with(&orders.rules), ops.rules.with(after));
    let blocks = orders.blocks.iter().filter(|(_, until)| *until > now).cloned();
    let mut held = ops.store.holds(now).await?.into_iter().chain(blocks);
    Ok(held.find(|(host, _)| before.has_host(host) && !after.has_host(host)))
}

/// Carries a change of rules. Feeds that wait by the old pace look again at the name itself; those at names below it come
/// after at most the old gap.
async fn rules_changed(ops: &Ops, domain: &str, now: Timestamp) -> Result<(), BackendError> {
    let name = HostName::Name(domain.to_owned());
    let before = keys(ops, &name).await?;
    ops.orders.look(now).await?;
    let after = keys(ops, &name).await?;
    let waiting: Vec<_> = before.into_iter().chain(after).map(|key| (key, now)).collect();
    ops.schedule.unpark(&waiting).await?;
    Ok(())
}

/// Returns the hosts that a name covers: the shared one that it is part of, or itself at its usual ports and at
/// those where something is known.
pub async fn keys(ops: &Ops, name: &HostName) -> Result<Vec<HostKey>, BackendError> {
    let name = match name {
        HostName::Key(key) => return Ok(vec![key.clone()]),
        HostName::Name(name) => name,
    };
    if let Some(rule) = ops.rules.get().rule_named(name).filter(|rule| rule.shared) {
        return Ok(vec![rule.shared_key()]);
    }
    let usual = USUAL_PORTS.iter().map(|port| HostKey::new(&format!("{name}:{port}")));
    let known = ops.store.hosts(&HostQuery::of_name(name), ops.clock.now()).await?.items;
    let keys: BTreeSet<HostKey> = usual.chain(known.into_iter().map(|row| row.host)).collect();
    Ok(keys.into_iter().collect())
}

fn host_state(ops: &Ops, row: HostRow) -> HostState {
    let rules = ops.rules.get();
    let rule = rules.rule_named(row.host.name());
    HostState {
        limits: rules.limits_of(&row.host),
        rule: rule.cloned(),
        by_operator: rule.is_some_and(|rule| ops.rules.is_operators(rule)),
        refusal: ops.condition.refusals.of(&row.host),
        row,
    }
}
