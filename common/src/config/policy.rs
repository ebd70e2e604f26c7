//! The section `[policy]`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::duration::text;

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
pub struct PolicyConfig {
    pub mode: PolicyMode,
    #[serde(with = "text")]
    pub min_interval: Duration,
    pub floor_by_consent: bool,
    #[serde(with = "text")]
    pub default_interval: Duration,
    #[serde(with = "text")]
    pub interval: Duration,
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
    pub push_factor: f64,
    #[serde(with = "text")]
    pub stretch_ceiling: Duration,
    pub silent_factor: f64,
    pub archive_pages: u32,
    pub archive_bytes: u64,
    pub archive_entries: u64,
    #[serde(with = "text")]
    pub archive_gap: Duration,
    pub category: CategoriesConfig,
    pub penalty: PenaltyConfig,
    pub failing: FailingConfig,
}

/// `[policy.category]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CategoriesConfig {
    pub a: CategoryA,
    pub b: CategoryB,
    pub c: CategoryC,
    pub d: CategoryD,
}

/// `[policy.category.a]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
    pub crashed: Duration,
    #[serde(with = "text")]
    pub host_refuses: Duration,
    #[serde(with = "text")]
    pub throttled: Duration,
    #[serde(with = "text")]
    pub ceiling: Duration,
}

/// `[policy.failing]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailingConfig {
    pub posts: f64,
    #[serde(with = "text")]
    pub min: Duration,
    #[serde(with = "text")]
    pub max: Duration,
}
