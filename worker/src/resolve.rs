//! Host names to addresses, by the machine's name servers or configured ones, with a cache that keeps each answer's
//! lifetime. Judges nothing: that is [`crate::address`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::{Hosts, TokioResolver};

use crate::shortage::is_socket_shortage;

/// Answers kept.
const CACHED_ANSWERS: u64 = 16_384;
/// Questions at once to a name server over one connection: more than any worker has fetches in progress.
const QUESTIONS_AT_ONCE: usize = 4096;
/// However long its lifetime: a host that moved is found again after this time.
const LONGEST_LIFE: Duration = Duration::from_secs(3600);
/// A name that does not exist may soon.
const LONGEST_NEGATIVE_LIFE: Duration = Duration::from_secs(60);

/// Why a name has no addresses.
pub(crate) enum Unresolved {
    /// This machine has no socket left for a query.
    Shortage(io::Error),
    /// Anything else, for people.
    Failed(String),
}

/// A resolver with its cache.
#[derive(Clone)]
pub(crate) struct Resolver(TokioResolver);

impl Resolver {
    /// Queries `name_servers`, or the machine's own when there are none. `hosts` (in the format of `/etc/hosts`) answer
    /// without a query.
    pub(crate) fn new(name_servers: &[SocketAddr], timeout: Duration, hosts: &str) -> Result<Self, NetError> {
        let (config, mut options) = match name_servers {
            [] => hickory_resolver::system_conf::read_system_conf().unwrap_or_else(|error| {
                tracing::warn!(%error, "no name servers are configured on this machine: only addresses can be polled");
                (ResolverConfig::default(), ResolverOpts::default())
            }),
            listed => (
                ResolverConfig::from_name_servers(listed.iter().map(by_udp_and_tcp).collect()),
                ResolverOpts::default(),
            ),
        };
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.cache_size = CACHED_ANSWERS;
        options.max_active_requests = QUESTIONS_AT_ONCE;
        options.positive_max_ttl = Some(LONGEST_LIFE);
        options.negative_max_ttl = Some(LONGEST_NEGATIVE_LIFE);
        // an address family whose query is never answered must leave time for the other one
        options.timeout = timeout / 6;
        options.attempts = 2;
        // one name server after the other: a name costs two descriptors, one for each family, whatever is configured
        options.num_concurrent_reqs = 1;
        let mut resolver = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            .with_options(options)
            .build()?;
        if !hosts.is_empty() {
            let mut known = Hosts::from_system().unwrap_or_default();
            known.read_hosts_conf(hosts.as_bytes()).map_err(|error| NetError::Msg(error.to_string()))?;
            resolver.set_hosts(Arc::new(known));
        }
        Ok(Resolver(resolver))
    }

    /// Returns all addresses of a name, at least one.
    pub(crate) async fn lookup(&self, host: &str) -> Result<Vec<IpAddr>, Unresolved> {
        let name = absolute(host).ok_or_else(|| Unresolved::Failed("it is not a valid name".to_owned()))?;
        let answer = self.0.lookup_ip(name).await.map_err(|error| unresolved(&error))?;
        let addresses: Vec<IpAddr> = answer.iter().collect();
        match addresses.is_empty() {
            true => Err(Unresolved::Failed("it has no address".to_owned())),
            false => Ok(addresses),
        }
    }
}

/// Returns the name as it is queried: with its final dot, or else it would be tried below each of the machine's search
/// domains first. The host of a URL is ASCII already. Its labels are taken as they are, because names with underscores
/// and leading hyphens exist although no standard allows them for hosts.
fn absolute(host: &str) -> Option<Name> {
    let mut name = Name::from_labels(host.strip_suffix('.').unwrap_or(host).split('.').map(str::as_bytes)).ok()?;
    name.set_fqdn(true);
    Some(name)
}

fn by_udp_and_tcp(server: &SocketAddr) -> NameServerConfig {
    let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = server.port();
    }
    NameServerConfig::new(server.ip(), true, connections)
}

fn unresolved(error: &NetError) -> Unresolved {
    if error.is_nx_domain() {
        return Unresolved::Failed("there is no such name".to_owned());
    }
    if error.is_no_records_found() {
        return Unresolved::Failed("it has no address".to_owned());
    }
    // The library does not say why it could not send a query.
    match UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)) {
        Err(shortage) if is_socket_shortage(&shortage) => Unresolved::Shortage(shortage),
        _ => Unresolved::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_standard_allows_for_hosts_can_be_asked_for() {
        // As it is sent: the text form writes a leading hyphen with a backslash.
        let asked = |host: &str| {
            let name = absolute(host)?;
            Some(name.iter().map(|label| format!("{}.", String::from_utf8_lossy(label))).collect::<String>())
        };
        for host in ["example.com", "a_b.test", "_real.host_name.test", "-lead.test", "trail-.test", "xn--bcher-kva.de"]
        {
            assert_eq!(asked(host), Some(format!("{host}.")));
            assert_eq!(asked(&format!("{host}.")), Some(format!("{host}.")));
        }
        for broken in ["", ".", "a..b", "a.test..", &"a".repeat(64), &"abcdefg.".repeat(40)] {
            assert_eq!(asked(broken), None, "{broken}");
        }
    }
}
