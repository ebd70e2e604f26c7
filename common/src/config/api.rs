//! The section `[api]`, and its tokens.

use std::net::SocketAddr;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::networks;
use crate::duration::text;
use crate::suggest::field_names;
use crate::time::Timestamp;

/// `[api]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiConfig {
    pub listen: SocketAddr,
    pub public_url: String,
    pub tokens: Vec<ApiToken>,
    pub pings_per_minute: u32,
    pub max_connections: usize,
    pub max_connections_per_address: usize,
    #[serde(deserialize_with = "networks::deserialize")]
    pub trusted_proxies: Vec<IpNet>,
    pub status_per_minute: u32,
    pub allow_origins: Vec<String>,
    #[serde(with = "text")]
    pub session: Duration,
    #[serde(with = "text")]
    pub drain: Duration,
}

/// `[[api.tokens]]`
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiToken {
    pub name: String,
    #[serde(default, skip_serializing)]
    pub token: String,
    #[serde(default, skip_serializing)]
    pub token_hash: String,
    pub role: ApiRole,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
}

/// Returns the first of these tokens that cannot be read, with its position.
fn wrong_token(tokens: &toml::Value) -> Option<(usize, &toml::Value)> {
    let is_wrong = |(_, token): &(usize, &toml::Value)| (*token).clone().try_into::<ApiToken>().is_err();
    tokens.as_array().into_iter().flatten().enumerate().find(is_wrong)
}

/// Returns the place of that token among the lines of a file.
pub(super) fn wrong_token_place(tokens: &toml::Value) -> String {
    wrong_token(tokens).map_or_else(String::new, |(position, _)| format!("api.tokens[{position}]"))
}

/// Says what is wrong with that token; its values are secrets.
pub(super) fn token_mistake(tokens: &toml::Value) -> String {
    let Some((position, token)) = wrong_token(tokens) else { return String::new() };
    let what = match token.as_table() {
        None => "is not a table".to_owned(),
        Some(token) => match token.keys().find(|name| !field_names::<ApiToken>().contains(&name.as_str())) {
            Some(name) => format!("has the unknown field {name}"),
            None => match ["name", "role"].into_iter().find(|name| !token.contains_key(*name)) {
                Some(name) => format!("has no {name}"),
                None => "has a field of the wrong kind".to_owned(),
            },
        },
    };
    format!("; number {} {what}", position + 1)
}

impl ApiToken {
    /// A token that is stored as it is, does not expire, and is for all feeds.
    pub fn new(name: &str, token: &str, role: ApiRole) -> Self {
        let (name, token) = (name.to_owned(), token.to_owned());
        ApiToken { name, token, token_hash: String::new(), role, expires: None, labels: None }
    }

    /// Returns the SHA-256 hash of the token, in lower-case hexadecimal digits.
    pub fn hash(&self) -> String {
        if self.token_hash.is_empty() { hash_of_token(&self.token) } else { self.token_hash.to_ascii_lowercase() }
    }
}

/// Returns the SHA-256 hash of a token, in lower-case hexadecimal digits.
pub fn hash_of_token(token: &str) -> String {
    let hash = digest(&SHA256, token.as_bytes());
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
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
