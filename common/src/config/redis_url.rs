//! The forms of a Redis URL: one server, servers that Redis Sentinel watches, or the nodes of a Redis Cluster.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use url::Url;

use super::server::hosts_of;
use super::servers::parse;

/// The scheme of each form, without and with TLS.
const SCHEMES: [&str; 6] =
    ["redis-cluster://", "rediss-cluster://", "redis-sentinel://", "rediss-sentinel://", "redis://", "rediss://"];
const PARAMETERS: [&str; 1] = ["protocol"];
const OF_SENTINELS: [&str; 4] = ["protocol", "sentinelServiceName", "sentinelUsername", "sentinelPassword"];
/// The port of a sentinel, and of a server.
const PORTS: [u16; 2] = [26379, 6379];

/// A URL of Redis, parsed. User, password and database are in each node; a sentinel's are those of the server that it names.
#[derive(Clone, Debug)]
pub enum RedisUrl {
    /// One server.
    Server(ConnectionInfo),
    /// Sentinels that name the master of a service.
    Sentinel { nodes: Vec<ConnectionInfo>, service: Service },
    /// Some nodes of a Redis Cluster, which name the others.
    Cluster { nodes: Vec<ConnectionInfo> },
}

/// What sentinels watch, and the credentials that they require of a client; none without.
#[derive(Clone, PartialEq, Eq)]
pub struct Service {
    pub name: String,
    pub username: Option<String>,
    pub password: Option<String>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Service").field("name", &self.name).finish_non_exhaustive()
    }
}

impl RedisUrl {
    /// Parses a URL. The reason of a refusal contains no password, and fits after the name of the key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let scheme = SCHEMES.into_iter().find(|scheme| text.starts_with(scheme));
        let scheme = scheme.ok_or_else(|| format!("must begin with one of {}", SCHEMES.join(", ")))?;
        let form = scheme.trim_end_matches("://").split('-').nth(1);
        let known = if form == Some("sentinel") { &OF_SENTINELS[..] } else { &PARAMETERS[..] };
        // The driver reads one host, and knows no other schemes than these.
        let plain = if scheme.starts_with("rediss") { "rediss://" } else { "redis://" };
        let (before, hosts, after) = hosts_of(text).ok_or("has no host")?;
        let mut urls = Vec::new();
        for host in &hosts {
            urls.push(parse(&format!("{plain}{}{host}{after}", &before[scheme.len()..]), known)?);
        }
        let default_port = if form == Some("sentinel") { PORTS[0] } else { PORTS[1] };
        let nodes: Vec<ConnectionInfo> =
            urls.iter().map(|url| node(url, default_port)).collect::<Result<_, String>>()?;
        match (form, &nodes[..]) {
            (None, [server]) => Ok(RedisUrl::Server(server.clone())),
            (None, _) => {
                Err("names several servers: write redis-cluster:// and the nodes of a Redis Cluster, or redis-sentinel:// and \
                     the hosts of the sentinels that watch the servers"
                    .to_owned())
            }
            (Some("cluster"), nodes) if nodes.iter().any(|node| node.redis_settings().db() != 0) => {
                Err("names a database: a Redis Cluster has number 0 only".to_owned())
            }
            (Some("cluster"), _) => Ok(RedisUrl::Cluster { nodes }),
            (Some(_), _) => Ok(RedisUrl::Sentinel { service: service(&urls[0])?, nodes }),
        }
    }
}

fn node(url: &Url, default_port: u16) -> Result<ConnectionInfo, String> {
    let info = url.clone().into_connection_info().map_err(|reason| format!("cannot be read: {reason}"))?;
    let mut addr = info.addr().clone();
    if let (None, ConnectionAddr::Tcp(_, port) | ConnectionAddr::TcpTls { port, .. }) = (url.port(), &mut addr) {
        *port = default_port;
    }
    Ok(info.set_addr(addr))
}

fn service(url: &Url) -> Result<Service, String> {
    let value = |name: &str| {
        url.query_pairs().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.into_owned())
    };
    Ok(Service {
        name: value("sentinelServiceName")
            .ok_or("has no sentinelServiceName: the name that `sentinel monitor` gives to the master")?,
        username: value("sentinelUsername"),
        password: value("sentinelPassword"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(nodes: &[ConnectionInfo]) -> Vec<String> {
        nodes.iter().map(|node| node.addr().to_string()).collect()
    }

    #[test]
    fn each_form_is_read() {
        for url in ["redis://h:6379/1", "rediss://user:pass@h/", "redis://h/?protocol=resp3"] {
            assert!(matches!(RedisUrl::parse(url), Ok(RedisUrl::Server(_))), "{url}");
        }
        let url = "rediss-sentinel://u:p%40@a,b:7,[::1]:8/3?sentinelServiceName=main&sentinelPassword=s%26t";
        let Ok(RedisUrl::Sentinel { nodes, service }) = RedisUrl::parse(url) else { panic!("{url}") };
        assert_eq!(addresses(&nodes), ["a:26379", "b:7", "::1:8"]);
        assert!(nodes.iter().all(|node| matches!(node.addr(), ConnectionAddr::TcpTls { .. })));
        let server = nodes[2].redis_settings();
        assert_eq!((server.username(), server.password(), server.db()), (Some("u"), Some("p@"), 3));
        let wanted = Service { name: "main".into(), username: None, password: Some("s&t".into()) };
        assert_eq!(service, wanted);
        let url = "rediss-cluster://u:p@a,b:7,[::1]:8/";
        let Ok(RedisUrl::Cluster { nodes }) = RedisUrl::parse(url) else { panic!("{url}") };
        assert_eq!(addresses(&nodes), ["a:6379", "b:7", "::1:8"]);
        assert!(nodes.iter().all(|node| node.redis_settings().username() == Some("u")));
        assert!(nodes.iter().all(|node| matches!(node.addr(), ConnectionAddr::TcpTls { .. })));
    }

    #[test]
    fn what_cannot_work_or_would_be_ignored_is_named_and_passwords_are_not() {
        for (url, says) in [
            ("redis://:secret@h/abc", "database number"),
            ("redis://:secret@h/?timeout=3", "unknown parameter timeout"),
            ("redis://:secret@h/?protocol=9", "protocol"),
            ("redis://:secret@a,b/", "write redis-cluster:// and the nodes"),
            ("redis://:secret@a,b/", "or redis-sentinel:// and the hosts of the sentinels"),
            ("redis://:secret@a/?sentinelServiceName=main", "unknown parameter sentinelServiceName"),
            ("redis-sentinel://:secret@a,b/", "has no sentinelServiceName"),
            ("redis-sentinel://:secret@a,b/?sentinelservicename=m", "did you mean sentinelServiceName?"),
            ("redis-sentinel://:secret@a,b:x/?sentinelServiceName=m", "invalid port"),
            ("redis-sentinel://:secret@a,,b/?sentinelServiceName=m", "host"),
            ("redis-cluster://:secret@a,b/3", "number 0 only"),
            ("redis-cluster://:secret@a,b/?sentinelServiceName=m", "unknown parameter sentinelServiceName"),
            ("redis-sentinal://:secret@a,b/", "must begin with one of redis-cluster://"),
        ] {
            let reason = RedisUrl::parse(url).unwrap_err();
            assert!(reason.contains(says) && !reason.contains("secret"), "{url}: {reason:?} should say {says:?}");
        }
    }
}
