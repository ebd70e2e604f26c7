//! Host names to addresses, by the machine's name servers or configured ones, with a cache that keeps each answer's
//! lifetime. Judges nothing: that is [`crate::address`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

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
pub(crate) struct Resolver(Arc<Shared>);

struct Shared {
    source: Source,
    timeout: Duration,
    /// In the format of `/etc/hosts`.
    hosts: String,
    current: RwLock<Arc<Current>>,
}

/// Where name servers are listed.
enum Source {
    Listed(Vec<SocketAddr>),
    /// The machine's file, which changes with its networks.
    File(PathBuf),
}

struct Current {
    resolver: TokioResolver,
    /// When the file was changed last that it was made from, and its length: clocks of file systems are coarse.
    changed: Option<(SystemTime, u64)>,
}

impl Source {
    fn changed(&self) -> Option<(SystemTime, u64)> {
        match self {
            Source::Listed(_) => None,
            Source::File(path) => {
                let file = std::fs::metadata(path).ok()?;
                Some((file.modified().ok()?, file.len()))
            }
        }
    }

    fn read(&self) -> (ResolverConfig, ResolverOpts) {
        match self {
            Source::Listed(servers) => {
                let servers = servers.iter().map(by_udp_and_tcp).collect();
                (ResolverConfig::from_name_servers(servers), ResolverOpts::default())
            }
            Source::File(path) => {
                let read = std::fs::read(path).map_err(NetError::from);
                read.and_then(hickory_resolver::system_conf::parse_resolv_conf).unwrap_or_else(|error| {
                    tracing::warn!(%error, "no name servers are configured on this machine: only addresses can be polled");
                    (ResolverConfig::default(), ResolverOpts::default())
                })
            }
        }
    }

    fn resolver(&self, timeout: Duration, hosts: &str) -> Result<Current, NetError> {
        // Before it is read: a change in between is found later.
        let changed = self.changed();
        let (config, mut options) = self.read();
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
        Ok(Current { resolver, changed })
    }
}

impl Resolver {
    /// Queries `name_servers`, or the machine's own when there are none. `hosts` (in the format of `/etc/hosts`) answer
    /// without a query.
    pub(crate) fn new(name_servers: &[SocketAddr], timeout: Duration, hosts: &str) -> Result<Self, NetError> {
        let source = match name_servers {
            [] => Source::File("/etc/resolv.conf".into()),
            listed => Source::Listed(listed.to_vec()),
        };
        Self::of(source, timeout, hosts)
    }

    fn of(source: Source, timeout: Duration, hosts: &str) -> Result<Self, NetError> {
        let current = RwLock::new(Arc::new(source.resolver(timeout, hosts)?));
        Ok(Resolver(Arc::new(Shared { source, timeout, hosts: hosts.to_owned(), current })))
    }

    fn current(&self) -> Arc<Current> {
        Arc::clone(&self.0.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a resolver by the machine's name servers as they are now, if they changed since this one was made: after
    /// a change of networks those before do not answer.
    fn newer(&self, than: &Arc<Current>) -> Option<Arc<Current>> {
        let now = self.current();
        if !Arc::ptr_eq(&now, than) {
            return Some(now);
        }
        let changed = self.0.source.changed();
        if changed.is_none() || changed == than.changed {
            return None;
        }
        let made = Arc::new(self.0.source.resolver(self.0.timeout, &self.0.hosts).ok()?);
        tracing::info!("the machine's name servers were read again");
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&made);
        Some(made)
    }

    /// Returns all addresses of a name, at least one.
    pub(crate) async fn lookup(&self, host: &str) -> Result<Vec<IpAddr>, Unresolved> {
        let name = absolute(host).ok_or_else(|| Unresolved::Failed("it is not a valid name".to_owned()))?;
        let current = self.current();
        let mut answer = current.resolver.lookup_ip(name.clone()).await;
        let is_unanswered = |error: &NetError| !error.is_nx_domain() && !error.is_no_records_found();
        if answer.as_ref().is_err_and(is_unanswered)
            && let Some(newer) = self.newer(&current)
        {
            answer = newer.resolver.lookup_ip(name).await;
        }
        let answer = answer.map_err(|error| unresolved(&error))?;
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

    #[tokio::test]
    async fn the_machines_name_servers_are_read_again_when_their_file_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resolv.conf");
        let resolver = Resolver::of(Source::File(path.clone()), Duration::from_secs(1), "").unwrap();
        let servers = || resolver.0.source.read().0.name_servers().len();
        let first = resolver.current();
        assert_eq!((servers(), resolver.newer(&first).is_none()), (0, true), "there is no file");
        std::fs::write(&path, "nameserver 127.0.0.53\n").unwrap();
        let second = resolver.newer(&first).unwrap();
        assert_eq!(servers(), 1);
        assert!(resolver.newer(&second).is_none(), "it has not changed since");
        assert!(Arc::ptr_eq(&resolver.newer(&first).unwrap(), &second), "others find it made already");
    }
}
