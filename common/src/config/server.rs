//! One server of a cluster as the configuration names it: its URL, perhaps with several hosts, and the files for TLS.

use serde::{Deserialize, Serialize};

/// `[store]`, `[gate]`, `[queue]`; the files are used with TLS only, and empty where there are none.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    pub url: String,
    pub ca_file: String,
    pub client_cert: String,
    pub client_key: String,
}

impl ServerConfig {
    /// Returns the server at `url`, its certificate checked with the system's authorities.
    pub fn at(url: &str) -> Self {
        ServerConfig {
            url: url.to_owned(),
            ca_file: String::new(),
            client_cert: String::new(),
            client_key: String::new(),
        }
    }

    /// Returns the URL once for each of its hosts, in their order: all drivers read URLs of one host.
    pub fn urls(&self) -> Vec<String> {
        match hosts_of(&self.url) {
            Some((before, hosts, after)) => hosts.iter().map(|host| format!("{before}{host}{after}")).collect(),
            None => vec![self.url.clone()],
        }
    }
}

/// `[schedule]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleConfig {
    pub url: String,
    pub shards: u16,
    pub ca_file: String,
    pub client_cert: String,
    pub client_key: String,
}

impl ScheduleConfig {
    /// Returns the server that keeps the schedule.
    pub fn server(&self) -> ServerConfig {
        ServerConfig {
            url: self.url.clone(),
            ca_file: self.ca_file.clone(),
            client_cert: self.client_cert.clone(),
            client_key: self.client_key.clone(),
        }
    }
}

/// Returns the URL's text before its hosts, the hosts that commas separate, each perhaps with a port, and the text
/// after them; `None` for a URL without hosts.
pub fn hosts_of(url: &str) -> Option<(&str, Vec<&str>, &str)> {
    let start = url.find("://")? + 3;
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |length| start + length);
    let start = url[start..end].rfind('@').map_or(start, |at| start + at + 1);
    Some((&url[..start], url[start..end].split(',').collect(), &url[end..]))
}

/// Returns what is wrong with a URL that cannot be parsed, and the most probable remedy.
pub(super) fn invalid(text: &str, reason: url::ParseError) -> String {
    let remedy =
        if text.contains('@') { "; in a password write %2F for /, %23 for #, %3F for ? and %40 for @" } else { "" };
    format!("is not a valid URL: {reason}{remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_several_hosts_is_one_url_for_each() {
        let urls = |url: &str| ServerConfig::at(url).urls();
        assert_eq!(
            urls("amqp://u:p,@a:5672,b:5673,[::1]:5674/%2f?heartbeat=9"),
            ["a:5672", "b:5673", "[::1]:5674"].map(|host| format!("amqp://u:p,@{host}/%2f?heartbeat=9"))
        );
        assert_eq!(urls("postgres://a,b"), ["postgres://a", "postgres://b"]);
        assert_eq!(urls("postgres:///db?host=/run"), ["postgres:///db?host=/run"]);
        assert_eq!(urls("memory:"), ["memory:"]);
    }
}
