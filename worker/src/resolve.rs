//! Host names to addresses, by the machine's name servers or configured ones, with a cache that keeps each answer's
//! lifetime. Judges nothing: that is [`crate::address`].

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::{Hosts, TokioResolver};

/// Answers kept.
const CACHED_ANSWERS: u64 = 16_384;
/// Questions at once to a name server over one connection: more than any worker has fetches under way.
const QUESTIONS_AT_ONCE: usize = 4096;
/// However long its lifetime: a host that moved is found again after this time.
const LONGEST_LIFE: Duration = Duration::from_secs(3600);
/// A name that does not exist may soon.
const LONGEST_NEGATIVE_LIFE: Duration = Duration::from_secs(60);

/// A resolver with its cache.
#[derive(Clone)]
pub(crate) struct Resolver(TokioResolver);

impl Resolver {
    /// Asks `name_servers`, or the machine's own when there are none. `hosts` (in the format of `/etc/hosts`) answer
    /// without being asked for.
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
        // an address family whose question is never answered must leave time for the other one
        options.timeout = timeout / 6;
        options.attempts = 2;
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

    /// All addresses of a name, never none; the error is for people.
    pub(crate) async fn lookup(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        // a name without its final dot would be tried below each of the machine's search domains first
        let absolute = format!("{}.", host.trim_end_matches('.'));
        let answer = self.0.lookup_ip(absolute).await.map_err(|error| reason(&error))?;
        let addresses: Vec<IpAddr> = answer.iter().collect();
        if addresses.is_empty() { Err("it has no address".to_owned()) } else { Ok(addresses) }
    }
}

fn by_udp_and_tcp(server: &SocketAddr) -> NameServerConfig {
    let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = server.port();
    }
    NameServerConfig::new(server.ip(), true, connections)
}

fn reason(error: &NetError) -> String {
    if error.is_nx_domain() {
        return "there is no such name".to_owned();
    }
    if error.is_no_records_found() {
        return "it has no address".to_owned();
    }
    error.to_string()
}
