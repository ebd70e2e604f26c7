//! The fleet as a whole: numbers, hosts, configuration, requeues.

use std::collections::BTreeMap;

use common::host::HostKey;
use common::host::HostRule;
use common::outcome::FailureKind;
use common::policy::Status;
use common::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use store::{HostRefusal, RequeuePlan, StoreStats, reaches};

use crate::condition::live_config::InForce;
use crate::condition::price::Price;
use crate::ops::config::Reloaded;
use crate::ops::hosts::HostState;
use crate::schedule::Depth;

/// The fleet in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Stats")]
pub struct StatsView {
    /// An operator paused all polling.
    pub paused: bool,
    /// Feeds in all.
    pub feeds: u64,
    /// Feeds by category.
    pub by_category: BTreeMap<String, u64>,
    /// Feeds by status.
    pub by_status: BTreeMap<String, u64>,
    /// Feeds in the penalty box, by kind of failure.
    pub penalised: BTreeMap<String, u64>,
    /// Entries stored.
    pub entries: u64,
    /// Events stored.
    pub events: u64,
    /// Feeds in the schedule.
    pub scheduled: u64,
    /// Feeds in the schedule that are due now.
    pub due: u64,
    /// Feeds in the schedule that wait for a busy host.
    pub parked: u64,
    /// Seconds since the oldest due time that has passed.
    pub oldest_due: f64,
    /// Hosts with a hold.
    pub hosts_held: u64,
    /// The share of the polled feeds that were read and of which no entry can have been missed, from 0 to 1; 1 without
    /// any feed.
    #[serde(default)]
    pub complete_ratio: f64,
    /// Feeds that have not posted for far longer than they usually pause.
    #[serde(default)]
    pub silent: u64,
    /// The price of a poll, in subscriber-hours of expected waiting.
    pub poll_price: f64,
    /// The demand in polls per second at that price.
    pub demand_per_second: f64,
    /// When this scheduler detected that most hosts fail because of the fleet's own network; absent otherwise.
    /// Meanwhile no feed is penalised, and only probes are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub our_fault_since: Option<Timestamp>,
    /// The version of policy and host rules in force; absent until the store has been read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_version: Option<i64>,
    /// When and why the host gate was closed, as seen by this scheduler; absent while it is open. No request starts
    /// while it is closed. In a Redis Cluster a part of it may be closed alone: then no request to that part's hosts starts. It opens automatically, usually within a minute after Redis lost its data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_closed: Option<String>,
    /// Why RabbitMQ accepts no messages, as far as this scheduler knows: a memory or disk alarm of one of its nodes;
    /// absent while it accepts them. No job is sent meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_blocked: Option<String>,
    /// Why this scheduler dispatches no feeds, such as a database that stores no reports; absent while it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch_stopped: Option<String>,
    /// Why the schedule cannot be read, such as an unreachable Redis; absent otherwise. `scheduled`, `due`, `parked`
    /// and `oldest_due` are 0 then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_unavailable: Option<String>,
    /// Why this scheduler cannot read the timeline of PostgreSQL, such as a missing right; absent otherwise. If a
    /// standby that lags is promoted meanwhile, no new epoch begins and consumers may miss events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline_unreadable: Option<String>,
}

impl StatsView {
    /// Returns the numbers of store, schedule and price, put together.
    pub fn of(store: &StoreStats, depth: &Depth, price: &Price, paused: bool, now: Timestamp) -> Self {
        let mut view = StatsView {
            paused,
            entries: store.entries,
            events: store.events,
            scheduled: depth.feeds as u64,
            due: depth.due as u64,
            parked: depth.parked as u64,
            hosts_held: store.hosts_held,
            complete_ratio: store.complete_ratio(),
            silent: store.silent,
            timeline_unreadable: store.timeline_unreadable.clone(),
            poll_price: price.get(),
            demand_per_second: price.demand(),
            ..StatsView::default()
        };
        let oldest = depth.oldest.iter().flatten().min();
        view.oldest_due = oldest.map_or(0.0, |oldest| now.since(*oldest).as_secs_f64());
        for (category, status, feeds) in &store.feeds {
            view.feeds += feeds;
            *view.by_category.entry(category.to_string()).or_default() += feeds;
            *view.by_status.entry(status.as_str().to_owned()).or_default() += feeds;
        }
        for (kind, feeds) in &store.penalised {
            *view.penalised.entry(kind.to_string()).or_default() += feeds;
        }
        view
    }
}

/// A host as callers see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Host")]
pub struct HostView {
    /// As in feeds, or a name without a port for all its ports.
    pub host: String,
    /// Feeds there, polled or not.
    pub feeds: u64,
    /// The end of the hold set by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_until: Option<Timestamp>,
    /// The end of an operator's block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_until: Option<Timestamp>,
    /// The limit in force: the minimum time between two starts, in seconds.
    pub gap: f64,
    /// The number of simultaneous starts after an idle period.
    pub burst: u32,
    /// The maximum number of concurrent requests.
    pub parallel: u32,
    /// The host answers most of its feeds with 403, 451 or a page against robots, and rests as a whole; absent while it
    /// does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusing: Option<RefusingView>,
    /// The rule that covers it, with `match`, and `source`: "operator" or "configuration".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Value", extend("$ref" = "#/components/schemas/HostRule"))]
    pub rule: Option<Map<String, Value>>,
}

impl HostView {
    /// Returns the host as it is known.
    pub fn of(state: HostState) -> Self {
        let HostState { row, limits, rule, by_operator, refusal } = state;
        HostView {
            host: row.host.to_string(),
            feeds: row.feeds,
            hold_until: row.hold_until,
            blocked_until: row.blocked_until,
            gap: limits.gap.as_secs_f64(),
            burst: limits.burst,
            parallel: limits.parallel,
            refusing: refusal.as_ref().map(RefusingView::of),
            rule: rule.map(|rule| rule_fields(&rule, if by_operator { "operator" } else { "configuration" })),
        }
    }
}

/// A host that refuses us.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct RefusingView {
    /// Since when.
    pub since: Timestamp,
    /// The end of its rest: one feed is tried then.
    pub until: Timestamp,
    /// Rests so far.
    pub tries: u32,
    /// How it refused us last.
    pub failure: FailureKind,
    /// The HTTP status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What an operator can do.
    pub advice: String,
}

/// What helps with a host that refuses us.
const REFUSING_ADVICE: &str = "look at a feed of the host with `feedfleet fetch URL`; set fetch.user_agent_url to a page that says \
    who polls, sign the requests (docs/identity.md), and ask the webmaster to let them through; slow down (`feedfleet host set`) if \
    they say that it was too much";

impl RefusingView {
    /// Returns what is known of the refusal.
    pub fn of(refusal: &HostRefusal) -> Self {
        let HostRefusal { since, until, tries, failure, status, .. } = *refusal;
        RefusingView { since, until, tries, failure, status, advice: REFUSING_ADVICE.to_owned() }
    }
}

/// The fields of a rule that are durations: text in configuration, seconds in JSON.
pub const RULE_DURATIONS: [&str; 3] = ["gap", "interval", "soft_for"];

/// Returns a rule as JSON, with durations in seconds.
fn rule_fields(rule: &HostRule, source: &str) -> Map<String, Value> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(rule) else { return Map::new() };
    for (field, value) in RULE_DURATIONS.into_iter().zip([rule.gap, rule.interval, rule.soft_for]) {
        if let Some(value) = value {
            fields.insert(field.to_owned(), json!(value.as_secs_f64()));
        }
    }
    fields.insert("source".to_owned(), source.into());
    fields
}

/// Policy and host rules in force, as one scheduler has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Config")]
pub struct ConfigView {
    /// Counts the changes that the fleet accepted; null until the store has been read.
    pub version: Option<i64>,
    /// The hash of the accepted sections; the same in every scheduler of a fleet.
    pub hash: Option<String>,
    /// When the sections were accepted.
    pub accepted: Option<Timestamp>,
    /// The origin: a token's name, signal (SIGHUP), or start.
    pub accepted_by: Option<String>,
    /// The hash of these sections in this scheduler's own file, environment and flags, as last read.
    pub own_hash: String,
    /// Why this scheduler does not use the accepted sections; absent if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// When this scheduler last reloaded its configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reload: Option<LastReload>,
    /// `[policy]`
    #[schemars(extend("$ref" = "#/components/schemas/Section"))]
    pub policy: Value,
    /// `[host]`
    #[schemars(extend("$ref" = "#/components/schemas/Section"))]
    pub host: Value,
    /// `[[host_rule]]`, without the rules that operators set.
    #[schemars(with = "Vec<Value>", extend("items" = {"$ref": "#/components/schemas/Section"}))]
    pub host_rule: Value,
}

/// An attempt to read the configuration again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct LastReload {
    /// When.
    pub at: Timestamp,
    /// Why it was rejected; absent if it was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl ConfigView {
    /// Returns what is in force.
    pub fn of(in_force: &InForce) -> Self {
        let InForce { config, accepted, own_hash, refused, last_reload } = in_force.clone();
        // They consist of texts, numbers and lists.
        let value = |value: serde_json::Result<Value>| value.unwrap_or_default();
        let (version, hash, at, by) = match accepted {
            Some(accepted) => (Some(accepted.version), Some(accepted.hash), Some(accepted.at), Some(accepted.by)),
            None => (None, None, None, None),
        };
        ConfigView {
            version,
            hash,
            accepted: at,
            accepted_by: by,
            own_hash,
            refused,
            last_reload: last_reload.map(|reload| LastReload { at: reload.at, error: reload.error }),
            policy: value(serde_json::to_value(&config.policy)),
            host: value(serde_json::to_value(&config.host)),
            host_rule: value(serde_json::to_value(&config.host_rule)),
        }
    }
}

/// The outcome of reading the configuration again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Reloaded")]
pub struct ReloadView {
    /// The version in force.
    pub version: i64,
    /// The hash of the sections in force.
    pub hash: String,
    /// Whether anything changed.
    pub changed: bool,
    /// Whether this process has other tokens (`api.tokens`) than before.
    #[serde(default)]
    pub tokens: bool,
    /// Changed keys that need a restart.
    pub needs_restart: Vec<String>,
}

impl ReloadView {
    /// Returns the answer to a reload.
    pub fn of(reloaded: Reloaded) -> Self {
        let Reloaded { version, hash, changed, tokens, needs_restart } = reloaded;
        ReloadView { version, hash, changed, tokens, needs_restart }
    }
}

/// What a requeue would do, or does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Requeued")]
pub struct RequeuedView {
    /// Its id, if it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    /// Feeds that match the filter.
    pub matched: u64,
    /// Feeds that will be polled: none in a dry run.
    pub queued: u64,
    /// Nothing was done.
    pub dry_run: bool,
    /// The matching feeds that can be polled.
    pub pollable: u64,
    /// The matching feeds that cannot be polled, by reason: penalised, or a status.
    pub left_out: BTreeMap<String, u64>,
    /// The feeds that can be polled, by category.
    pub by_category: BTreeMap<String, u64>,
    /// The number of hosts of the feeds that can be polled.
    pub hosts: u64,
    /// The hundred hosts with the most of these feeds.
    pub by_host: Vec<HostShare>,
    /// Feeds per second.
    pub rate: f64,
    /// The minimum duration at that rate.
    pub seconds: f64,
}

/// A host's share of a requeue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct HostShare {
    /// Which host.
    pub host: String,
    /// Pollable feeds there.
    pub feeds: u64,
    /// The host is held or blocked until then; its feeds are polled afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
}

impl RequeuedView {
    /// Returns the plan of a requeue in numbers; `waits` are the holds and blocks of its hosts.
    pub fn of(
        plan: &RequeuePlan,
        waits: &BTreeMap<HostKey, Timestamp>,
        lift_penalties: bool,
        rate: f64,
        dry_run: bool,
    ) -> Self {
        let (mut matched, mut pollable) = (0, 0);
        let (mut left_out, mut by_category) = (BTreeMap::new(), BTreeMap::new());
        for &(category, status, penalised, feeds) in &plan.classes {
            matched += feeds;
            if reaches(status, penalised, lift_penalties) {
                pollable += feeds;
                *by_category.entry(category.as_str().to_owned()).or_insert(0) += feeds;
            } else {
                let reason = if status == Status::Active { "penalised" } else { status.as_str() };
                *left_out.entry(reason.to_owned()).or_insert(0) += feeds;
            }
        }
        let share = |(host, feeds): &(HostKey, u64)| HostShare {
            host: host.to_string(),
            feeds: *feeds,
            not_before: waits.get(host).copied(),
        };
        RequeuedView {
            id: None,
            matched,
            queued: if dry_run { 0 } else { pollable },
            dry_run,
            pollable,
            left_out,
            by_category,
            hosts: plan.hosts,
            by_host: plan.largest.iter().map(share).collect(),
            rate,
            seconds: pollable as f64 / rate,
        }
    }
}
