//! Hosts, the unit of politeness: which hosts are polled, at which pace, and which rules apply to which host.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::duration::{optional_text, text};

/// The unit of politeness: `name:port` in lower case, or `*.suffix` where a rule makes a whole domain one unit.
/// Gap, parallelism and holds are kept per key over the whole fleet. Ports 80 and 443 of a name are one server, and written
/// as 443.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostKey(Arc<str>);

impl HostKey {
    /// Returns a key as it was stored or typed; lower-cased.
    pub fn new(key: &str) -> Self {
        let key = lower(key);
        match key.strip_suffix(":80") {
            Some(name) if !name.ends_with(':') => HostKey(format!("{name}:443").into()),
            _ => HostKey((&*key).into()),
        }
    }

    /// Returns the key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name in it, without port; of a shared domain the domain.
    pub fn name(&self) -> &str {
        let name = self.0.trim_start_matches("*.");
        let port = name.rsplit_once(':').filter(|_| !name.ends_with(']'));
        port.map_or(name, |(name, _)| name)
    }
}

impl fmt::Display for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How fast a host may be polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostLimits {
    /// Shortest time between the starts of two requests, once the burst is used up.
    pub gap: Duration,
    /// Requests that may start at once after a rest; 1 = strictly spaced.
    pub burst: u32,
    /// Requests in flight at once.
    pub parallel: u32,
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
    pub floor_by_consent: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
    pub soft_statuses: Vec<u16>,
    #[serde(with = "optional_text", skip_serializing_if = "Option::is_none")]
    pub soft_for: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta_encoding: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_first: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push: Option<bool>,
    pub reason: String,
}

/// How long a soft status may last where the rule does not say.
const SOFT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

impl HostRule {
    /// Returns how long a soft status may keep a feed failing without the penalty box, while others of the host are answered alike.
    pub fn soft_for(&self) -> Duration {
        self.soft_for.unwrap_or(SOFT_FOR)
    }

    /// Returns the domain that the rule covers, in lower case and without `*.`.
    pub fn domain(&self) -> String {
        self.r#match.trim_start_matches("*.").to_ascii_lowercase()
    }

    /// Returns what requests to all names of the domain are charged to, if the rule makes them one host.
    pub fn shared_key(&self) -> HostKey {
        HostKey::new(&format!("*.{}", self.domain()))
    }

    /// Returns whether the rule covers this host name: its `match` or a name below it.
    pub fn matches(&self, name: &str) -> bool {
        let suffix = self.r#match.trim_start_matches("*.");
        let Some(start) = name.len().checked_sub(suffix.len()) else { return false };
        let same = name.get(start..).is_some_and(|end| end.eq_ignore_ascii_case(suffix));
        same && (start == 0 || name.as_bytes().get(start - 1) == Some(&b'.'))
    }
}

/// The host rules in force: which key and limits a URL's host has.
#[derive(Clone, Debug, Default)]
pub struct HostRules {
    default: HostConfig,
    /// By their domains, in lower case. Looked up several times for each poll and each part of its host's name; only configured names
    /// are put in, so a hash that withstands chosen keys is not needed.
    rules: HashMap<String, HostRule, foldhash::fast::RandomState>,
}

/// What the rules say about one URL's host.
#[derive(Clone, Debug)]
pub struct HostPolicy<'a> {
    /// The unit that the request is charged to.
    pub key: HostKey,
    /// Its pace.
    pub limits: HostLimits,
    /// The rule that matched, if any: interval (category F), user agent, soft statuses and so on.
    pub rule: Option<&'a HostRule>,
}

impl HostRules {
    /// These rules; among several that match a host the longest `match` wins, of two with the same the later one.
    pub fn new(default: HostConfig, rules: impl IntoIterator<Item = HostRule>) -> Self {
        HostRules { default, rules: rules.into_iter().map(|rule| (rule.domain(), rule)).collect() }
    }

    /// Returns every rule, in no order.
    pub fn all(&self) -> impl Iterator<Item = &HostRule> {
        self.rules.values()
    }

    /// Returns the key, pace and rule for a URL. A URL without a host (never a [`crate::url::FeedUrl`]) has the key
    /// `:0`.
    pub fn for_url(&self, url: &url::Url) -> HostPolicy<'_> {
        let name = &*name_of(url);
        let rule = self.rule_named(name);
        let key = match rule {
            Some(rule) if rule.shared => rule.shared_key(),
            _ => HostKey::new(&format!("{name}:{}", url.port_or_known_default().unwrap_or(0))),
        };
        HostPolicy { key, limits: self.limits(rule), rule }
    }

    /// Returns the rule alone, for callers that do not need the key.
    pub fn rule_for(&self, url: &url::Url) -> Option<&HostRule> {
        self.rule_named(&name_of(url))
    }

    /// Returns the pace of a host by its key.
    pub fn limits_of(&self, key: &HostKey) -> HostLimits {
        self.limits(self.rule_named(key.name()))
    }

    /// Returns whether requests are charged to this host at all. They are not for a name of a domain that a rule makes
    /// one host, nor for a domain that no rule makes one.
    pub fn has_host(&self, key: &HostKey) -> bool {
        let shared = self.rule_named(key.name()).filter(|rule| rule.shared).map(HostRule::shared_key);
        shared.map_or(!key.as_str().starts_with("*."), |shared| shared == *key)
    }

    /// Returns the rule that covers this name: its own, or that of the nearest domain above it.
    pub fn rule_named(&self, name: &str) -> Option<&HostRule> {
        if self.rules.is_empty() {
            return None;
        }
        let name = lower(name);
        let mut domain = &*name;
        loop {
            match self.rules.get(domain) {
                Some(rule) => return Some(rule),
                // Names are short: a search that is made for long texts costs more than it saves.
                None => domain = &domain[domain.bytes().position(|byte| byte == b'.')? + 1..],
            }
        }
    }

    /// Returns the pace of a host that this rule covers.
    pub fn limits(&self, rule: Option<&HostRule>) -> HostLimits {
        HostLimits {
            gap: rule.and_then(|rule| rule.gap).unwrap_or(self.default.gap),
            burst: rule.and_then(|rule| rule.burst).unwrap_or(self.default.burst),
            parallel: rule.and_then(|rule| rule.parallel).unwrap_or(self.default.parallel),
        }
    }
}

/// Returns a text in lower case.
fn lower(text: &str) -> Cow<'_, str> {
    let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    if is_lower { text.into() } else { text.to_ascii_lowercase().into() }
}

/// Returns the name or address of a URL's host, without a final dot; an IPv4 address inside of an IPv6 one as itself.
fn name_of(url: &url::Url) -> Cow<'_, str> {
    let inner = match url.host() {
        Some(url::Host::Ipv6(address)) => address.to_ipv4_mapped(),
        _ => None,
    };
    match inner {
        Some(inner) => inner.to_string().into(),
        None => url.host_str().unwrap_or_default().trim_end_matches('.').into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(rules: &HostRules, url: &str) -> String {
        rules.for_url(&url.parse().unwrap()).key.to_string()
    }

    #[test]
    fn a_key_is_name_and_port_unless_a_rule_shares_the_domain() {
        let shared = HostRule { r#match: "reddit.com".into(), shared: true, ..HostRule::default() };
        let rules = HostRules::new(HostConfig::default(), vec![shared]);
        assert_eq!(key(&rules, "https://Example.com/a"), "example.com:443");
        assert_eq!(key(&rules, "http://example.com./a"), "example.com:443", "http and https are one server");
        assert_eq!(key(&rules, "http://example.com:8080/a"), "example.com:8080");
        assert_eq!(key(&rules, "http://[::ffff:192.0.2.1]/a"), key(&rules, "https://192.0.2.1/a"));
        assert_eq!(
            (HostKey::new("A.org:80"), HostKey::new("[::1]:80")),
            (HostKey::new("a.org:443"), HostKey::new("[::1]:443"))
        );
        assert_eq!(key(&rules, "http://[::1]:8080/"), "[::1]:8080");
        assert_eq!(key(&rules, "https://old.reddit.com/r/rust.rss"), "*.reddit.com");
        assert_eq!(key(&rules, "https://reddit.com/r/rust.rss"), "*.reddit.com");
        assert_eq!(key(&rules, "https://notreddit.com/"), "notreddit.com:443");
        let charged = ["*.reddit.com", "notreddit.com:443", "[::1]:8080"];
        assert!(charged.iter().all(|key| rules.has_host(&HostKey::new(key))));
        let never = ["reddit.com:443", "old.reddit.com:443", "*.old.reddit.com", "*.example.com"];
        assert!(!never.iter().any(|key| rules.has_host(&HostKey::new(key))));
    }

    #[test]
    fn the_longest_match_wins_and_leaves_the_rest_to_the_default() {
        let wide = HostRule { r#match: "a.org".into(), gap: Some(Duration::from_secs(5)), ..HostRule::default() };
        let narrow = HostRule { r#match: "b.a.org".into(), parallel: Some(3), ..HostRule::default() };
        let rules = HostRules::new(HostConfig::default(), vec![wide, narrow]);
        let host = rules.for_url(&"http://x.b.a.org/".parse().unwrap());
        assert_eq!((host.limits.gap, host.limits.parallel), (HostConfig::default().gap, 3));
        assert_eq!(rules.limits_of(&host.key), host.limits);
        assert_eq!(rules.limits_of(&HostKey::new("a.org:80")).gap, Duration::from_secs(5));
        assert!(rules.rule_named("nota.org").is_none() && rules.rule_named("org").is_none());
    }
}
