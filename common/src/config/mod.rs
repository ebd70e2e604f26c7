//! The configuration: every key, typed. `config.default.toml` holds every default with its unit and reason, and is
//! compiled in; [`load()`] lays file, environment and flags over it.

mod check;
mod error;
mod load;

use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize, Serializer};

pub use check::Refusal;
pub use error::{ConfigError, Problem, Source};
pub use load::{Loaded, Setting, load, without_password};

use crate::duration::{optional_text, text};
use crate::host::HostKey;

/// The defaults, and the manual of every key.
pub const DEFAULT_TOML: &str = include_str!("../config.default.toml");

/// Everything that can be configured. There is no `Default`: the defaults are `config.default.toml`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
pub struct Config {
    pub namespace: String,
    pub store: StoreConfig,
    pub schedule: ScheduleConfig,
    pub gate: GateConfig,
    pub queue: QueueConfig,
    pub policy: PolicyConfig,
    pub fetch: FetchConfig,
    pub host: HostConfig,
    pub host_rule: Vec<HostRule>,
    pub scheduler: SchedulerConfig,
    pub worker: WorkerConfig,
    pub api: ApiConfig,
    pub retention: RetentionConfig,
    pub secrets: SecretsConfig,
    pub log: LogConfig,
}

/// The defaults alone, without file, environment and flags.
///
/// # Panics
/// Never: a test reads the compiled-in text.
pub fn defaults() -> Config {
    toml::from_str(DEFAULT_TOML).expect("the compiled-in defaults are tested")
}

/// `[store]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
pub struct StoreConfig {
    pub url: String,
}

/// `[schedule]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
pub struct ScheduleConfig {
    pub url: String,
    pub shards: u16,
}

/// `[gate]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
pub struct GateConfig {
    pub url: String,
}

/// `[queue]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
pub struct QueueConfig {
    pub url: String,
}

/// How base intervals are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyMode {
    /// By the posting rate, clamped to the category's `min` and `max`.
    Adaptive,
    /// NewsGator's: by the category alone.
    Classes,
}

/// `[policy]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
pub struct PolicyConfig {
    pub mode: PolicyMode,
    #[serde(with = "text")]
    pub min_interval: Duration,
    #[serde(with = "text")]
    pub default_interval: Duration,
    pub salt: f64,
    pub hot_minutes: bool,
    pub polls_per_second: f64,
    pub price: f64,
    #[serde(with = "text")]
    pub hint_ceiling: Duration,
    #[serde(with = "text")]
    pub retry_after_ceiling: Duration,
    #[serde(with = "text")]
    pub blacklist_after: Duration,
    pub move_sightings: u32,
    #[serde(with = "text")]
    pub move_after: Duration,
    #[serde(with = "text")]
    pub import_spread: Duration,
    #[serde(with = "text")]
    pub ping_spread: Duration,
    #[serde(with = "text")]
    pub ping_quiet: Duration,
    pub no_validator_factor: f64,
    #[serde(with = "text")]
    pub stretch_ceiling: Duration,
    pub category: CategoriesConfig,
    pub penalty: PenaltyConfig,
}

/// `[policy.category]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
pub struct CategoriesConfig {
    pub a: CategoryA,
    pub b: CategoryB,
    pub c: CategoryC,
    pub d: CategoryD,
}

/// `[policy.category.a]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
pub struct CategoryA {
    #[serde(with = "text")]
    pub interval: Duration,
    #[serde(with = "text")]
    pub promise: Duration,
    #[serde(with = "text")]
    pub fetch_allowance: Duration,
}

/// `[policy.category.b]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
pub struct CategoryB {
    #[serde(with = "text")]
    pub interval: Duration,
    #[serde(with = "text")]
    pub min: Duration,
    #[serde(with = "text")]
    pub max: Duration,
}

/// `[policy.category.c]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
pub struct CategoryC {
    #[serde(with = "text")]
    pub interval: Duration,
    #[serde(with = "text")]
    pub interval_max: Duration,
    #[serde(with = "text")]
    pub min: Duration,
    #[serde(with = "text")]
    pub max: Duration,
}

/// `[policy.category.d]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
pub struct CategoryD {
    #[serde(with = "text")]
    pub interval: Duration,
    #[serde(with = "text")]
    pub interval_max: Duration,
    #[serde(with = "text")]
    pub idle_interval: Duration,
    #[serde(with = "text")]
    pub idle_interval_max: Duration,
    #[serde(with = "text")]
    pub min: Duration,
    #[serde(with = "text")]
    pub max: Duration,
}

/// `[policy.penalty]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
pub struct PenaltyConfig {
    #[serde(with = "text")]
    pub transient_first: Duration,
    pub box_after: u32,
    #[serde(with = "text", rename = "box")]
    pub first_box: Duration,
    #[serde(with = "text")]
    pub server_error: Duration,
    #[serde(with = "text")]
    pub not_found: Duration,
    #[serde(with = "text")]
    pub client_error: Duration,
    #[serde(with = "text")]
    pub bad_feed: Duration,
    #[serde(with = "text")]
    pub throttled: Duration,
    #[serde(with = "text")]
    pub ceiling: Duration,
}

/// `[fetch]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
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
    pub allow_networks: Vec<IpNet>,
    pub allow_ports: Vec<String>,
    pub delta_encoding: bool,
    pub signature_key: String,
    pub activitypub_key: String,
    pub at_service: String,
}

/// `[host]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
pub struct HostConfig {
    #[serde(with = "text")]
    pub gap: Duration,
    pub burst: u32,
    pub parallel: u32,
}

impl Default for HostConfig {
    /// One request at a time, a second apart: what `config.default.toml` says.
    fn default() -> Self {
        HostConfig { gap: Duration::from_secs(1), burst: 1, parallel: 1 }
    }
}

/// `[[host_rule]]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
pub struct HostRule {
    pub r#match: String,
    pub shared: bool,
    #[serde(with = "optional_text", skip_serializing_if = "Option::is_none")]
    pub gap: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel: Option<u32>,
    #[serde(with = "optional_text", skip_serializing_if = "Option::is_none")]
    pub interval: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
    pub soft_statuses: Vec<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta_encoding: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_first: Option<bool>,
    pub reason: String,
}

impl HostRule {
    /// The domain that the rule speaks of, in lower case and without `*.`.
    pub fn domain(&self) -> String {
        self.r#match.trim_start_matches("*.").to_ascii_lowercase()
    }

    /// What requests to all names of the domain are charged to, if the rule makes them one host.
    pub fn shared_key(&self) -> HostKey {
        HostKey::new(&format!("*.{}", self.domain()))
    }

    /// Does the rule speak of this host name? It speaks of its `match` and of every name below it.
    pub fn matches(&self, name: &str) -> bool {
        let suffix = self.r#match.trim_start_matches("*.");
        let Some(start) = name.len().checked_sub(suffix.len()) else { return false };
        let same = name.get(start..).is_some_and(|end| end.eq_ignore_ascii_case(suffix));
        same && (start == 0 || name.as_bytes().get(start - 1) == Some(&b'.'))
    }
}

/// `[scheduler]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
pub struct SchedulerConfig {
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
}

/// `[worker]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
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
    /// The longest life of a permit: a fetch, and the reading of what it brought.
    pub fn deadline(&self) -> Duration {
        self.timeout + READING
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

/// `[api]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
pub struct ApiConfig {
    pub listen: SocketAddr,
    pub public_url: String,
    pub tokens: Vec<ApiToken>,
    pub pings_per_minute: u32,
    pub status_per_minute: u32,
}

/// `[[api.tokens]]`
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
pub struct ApiToken {
    pub name: String,
    #[serde(skip_serializing)]
    pub token: String,
    pub role: ApiRole,
}

impl std::fmt::Debug for ApiToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiToken").field("name", &self.name).field("role", &self.role).finish_non_exhaustive()
    }
}

/// What a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApiRole {
    /// Look.
    Read,
    /// Look and change.
    Write,
}

/// `[retention]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
pub struct RetentionConfig {
    #[serde(with = "text")]
    pub entries: Duration,
    #[serde(with = "text")]
    pub events: Duration,
}

/// `[secrets]`
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
pub struct SecretsConfig {
    #[serde(serialize_with = "masked")]
    pub key: String,
    #[serde(serialize_with = "all_masked")]
    pub old_keys: Vec<String>,
}

#[expect(clippy::ptr_arg, reason = "serde passes the field")]
fn masked<S: Serializer>(key: &String, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if key.is_empty() { "" } else { "***" })
}

#[expect(clippy::ptr_arg, reason = "serde passes the field")]
fn all_masked<S: Serializer>(keys: &Vec<String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(keys.iter().map(|_| "***"))
}

impl std::fmt::Debug for SecretsConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretsConfig").finish_non_exhaustive()
    }
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
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
pub struct LogConfig {
    pub format: LogFormat,
    pub level: String,
}
