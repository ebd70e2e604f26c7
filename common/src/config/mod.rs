//! The configuration: every key, typed. `config.default.toml` holds every default with its unit and reason, and is
//! compiled in; [`load()`] lays file, environment and flags over it.

#![expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]

mod api;
mod check;
mod error;
mod host_rules;
mod load;
mod masked;
mod networks;
mod policy;
mod postgres;
mod redis_url;
mod refusal;
mod server;
mod servers;
mod shared;
mod tls_files;

use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

pub use api::{ApiConfig, ApiRole, ApiToken, hash_of_token};
pub use error::{ConfigError, Problem, Source};
pub use host_rules::check_host_rule;
pub use load::{Loaded, Setting, load};
pub use masked::without_password;
pub use policy::{
    CategoriesConfig, CategoryA, CategoryB, CategoryC, CategoryD, FailingConfig, PenaltyConfig, PolicyConfig,
    PolicyMode,
};
pub use postgres::{PostgresServer, SessionTarget};
pub use redis_url::{RedisUrl, Service};
pub use refusal::Refusal;
pub use server::{ScheduleConfig, ServerConfig, hosts_of};
pub use shared::shared_hash;
pub use tls_files::{TlsFileError, TlsFiles};

use crate::duration::text;
use crate::host::{HostConfig, HostRule};
use crate::secrets::SecretsConfig;

/// The defaults, and the manual of every key.
pub const DEFAULT_TOML: &str = include_str!("../config.default.toml");

/// The host rules that are shipped.
const SHIPPED_RULES: &str = include_str!("../host_rules.toml");

/// The defaults and the shipped host rules. A shipped rule's reason also shows its source, if it has one, and its date.
fn default_table() -> Result<Table, toml::de::Error> {
    #[derive(Deserialize)]
    struct Shipped {
        host_rule: Vec<Table>,
    }
    let Shipped { mut host_rule } = toml::from_str(SHIPPED_RULES)?;
    for rule in &mut host_rule {
        let text = |value: Option<Value>| value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default();
        let (date, source) = (text(rule.remove("date")), text(rule.remove("source")));
        let reason = text(rule.remove("reason"));
        let proof = if source.is_empty() { date } else { format!("{source}, {date}") };
        rule.insert("reason".to_owned(), Value::String(format!("{reason} ({proof})")));
    }
    let mut table: Table = toml::from_str(DEFAULT_TOML)?;
    table.insert("host_rule".to_owned(), Value::Array(host_rule.into_iter().map(Value::Table).collect()));
    Ok(table)
}

/// Everything that can be configured. There is no `Default`: the defaults are `config.default.toml`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub namespace: String,
    pub store: ServerConfig,
    pub schedule: ScheduleConfig,
    pub gate: ServerConfig,
    pub queue: ServerConfig,
    pub policy: PolicyConfig,
    pub fetch: FetchConfig,
    pub host: HostConfig,
    pub host_rule: Vec<HostRule>,
    pub scheduler: SchedulerConfig,
    pub worker: WorkerConfig,
    pub api: ApiConfig,
    pub retention: RetentionConfig,
    pub quota: QuotaConfig,
    pub delivery: DeliveryConfig,
    pub push: PushConfig,
    pub secrets: SecretsConfig,
    pub log: LogConfig,
}

/// The defaults alone, without file, environment and flags.
///
/// # Panics
/// Never: a test reads the compiled-in texts.
pub fn defaults() -> Config {
    let read = default_table().and_then(Table::try_into);
    read.expect("the compiled-in defaults are tested")
}

/// `[fetch]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FetchConfig {
    pub user_agent_url: String,
    #[serde(with = "text")]
    pub connect_timeout: Duration,
    #[serde(with = "text")]
    pub idle_timeout: Duration,
    #[serde(with = "text")]
    pub timeout: Duration,
    pub idle_connections: usize,
    pub max_wire_bytes: usize,
    pub max_body_bytes: usize,
    pub max_header_bytes: usize,
    pub max_headers: usize,
    pub max_informational: u32,
    pub max_ratio: u32,
    pub tls_sessions: usize,
    pub max_redirects: usize,
    pub max_entries: usize,
    pub max_report_bytes: usize,
    pub large_body_bytes: usize,
    pub large_bodies: usize,
    pub parsers: usize,
    pub name_servers: Vec<SocketAddr>,
    #[serde(deserialize_with = "networks::deserialize")]
    pub allow_networks: Vec<IpNet>,
    pub allow_ports: Vec<String>,
    pub address_rate: f64,
    pub address_parallel: u32,
    #[serde(deserialize_with = "networks::deserialize")]
    pub address_exempt: Vec<IpNet>,
    pub delta_encoding: bool,
    pub signature_key: String,
    pub activitypub_key: String,
    pub at_service: String,
}

/// `[scheduler]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerConfig {
    pub refresh_while_paused: bool,
    #[serde(with = "text")]
    pub tick: Duration,
    pub claim_batch: usize,
    #[serde(with = "text")]
    pub claim_lease: Duration,
    #[serde(with = "text")]
    pub queue_lease: Duration,
    #[serde(with = "text")]
    pub fetch_lease: Duration,
    pub max_queued_jobs: usize,
    #[serde(with = "text")]
    pub reconcile_interval: Duration,
    #[serde(with = "text")]
    pub clock_skew: Duration,
    #[serde(with = "text")]
    pub unsigned_reports: Duration,
}

/// `[worker]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerConfig {
    pub concurrency: usize,
    pub prefetch: usize,
    pub job_batch: usize,
    pub report_batch: usize,
    #[serde(with = "text")]
    pub report_delay: Duration,
    pub gentle: bool,
}

impl FetchConfig {
    /// Returns the longest life of a permit: a fetch, its wait for one of `large_bodies` places, and the reading of the
    /// response.
    pub fn deadline(&self) -> Duration {
        self.timeout + self.max_place_wait() + READING
    }

    /// How long a large body waits for its place, on top of the fetch's own time. Meanwhile nothing is read of it, and a connection from
    /// which nothing comes for `idle_timeout` ends.
    pub fn max_place_wait(&self) -> Duration {
        (self.timeout / 3).min(self.idle_timeout * 2 / 3)
    }
}

/// Time for reading the body that was fetched, on top of the fetch's own.
const READING: Duration = Duration::from_secs(5);

impl WorkerConfig {
    /// Jobs that may wait for each worker.
    pub fn held_jobs(&self) -> usize {
        if self.prefetch == 0 { self.concurrency } else { self.prefetch }
    }
}

/// `[retention]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionConfig {
    #[serde(with = "text")]
    pub entries: Duration,
    #[serde(with = "text")]
    pub events: Duration,
    #[serde(with = "text")]
    pub audit: Duration,
}

/// `[quota]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaConfig {
    pub entries_per_day: u64,
    pub bytes_per_day: u64,
    pub rows_per_feed: u64,
}

impl QuotaConfig {
    /// No limit at all.
    pub const NONE: QuotaConfig = QuotaConfig { entries_per_day: 0, bytes_per_day: 0, rows_per_feed: 0 };
}

/// `[delivery]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliveryConfig {
    pub concurrency: usize,
    pub target_parallel: usize,
    #[serde(with = "text")]
    pub target_gap: Duration,
    #[serde(with = "text")]
    pub timeout: Duration,
    #[serde(with = "text")]
    pub give_up_after: Duration,
    pub hub: HubAccess,
    #[serde(with = "text")]
    pub hub_lease: Duration,
    #[serde(with = "text")]
    pub hub_lease_min: Duration,
    #[serde(with = "text")]
    pub hub_lease_max: Duration,
    pub exchange_texts: Vec<String>,
}

impl DeliveryConfig {
    /// The maximum number of [`exchange_texts`](DeliveryConfig::exchange_texts), and the maximum size of each in bytes.
    pub const MOST_TEXTS: (usize, usize) = (32, 200);

    /// Times [`concurrency`](DeliveryConfig::concurrency): requests to targets that were quick and take long now.
    pub const OVERFLOW: usize = 4;

    /// Returns the largest number of requests in flight, each with a file descriptor.
    pub fn most_requests(&self) -> usize {
        self.concurrency.saturating_mul(1 + Self::OVERFLOW)
    }
}

crate::named! {
    /// The subscribers that the WebSub hub accepts.
    HubAccess {
        /// None: there is no hub.
        Off = "off",
        /// Callers with a token that may write, to any feed.
        Token = "token",
        /// All, to public feeds that are polled already.
        Known = "known",
        /// All, to any feed.
        Open = "open",
    }
}

/// `[push]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PushConfig {
    pub websub: bool,
    pub rsscloud: bool,
    #[serde(with = "text")]
    pub lease: Duration,
    pub secret_over_http: bool,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// `[log]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    pub format: LogFormat,
    pub level: String,
}
