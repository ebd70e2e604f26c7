//! Where a server is, and how to connect to it: directly, or as the master that sentinels name; with or without TLS.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use ::redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use ::redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use ::redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, TlsCertificates, TlsMode,
};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::timeout;

use crate::config::{ServerConfig, Service};

/// The kernel ends a connection on which the server acknowledged nothing for this long, sent data and probes alike.
const TCP_SILENCE: Duration = Duration::from_secs(5);
/// How long an idle connection stays unprobed, and the pause between two probes.
const TCP_PROBE: Duration = Duration::from_secs(2);

/// A server that can be connected to.
pub(super) struct Address {
    lookup: Lookup,
    files: TlsPaths,
}

/// How the server is found.
enum Lookup {
    Server(ConnectionInfo),
    Sentinels { nodes: Vec<ConnectionInfo>, service: Service },
}

/// Where the files for TLS are; empty where there are none.
#[derive(Clone, Debug)]
pub(super) struct TlsPaths {
    ca: String,
    certificate: String,
    key: String,
}

impl Address {
    /// Returns a server's own address.
    pub(super) fn server(info: ConnectionInfo, files: TlsPaths) -> Self {
        Address { lookup: Lookup::Server(info.set_tcp_settings(tcp_settings())), files }
    }

    /// Returns the address of the master that sentinels name.
    pub(super) fn of_sentinels(nodes: Vec<ConnectionInfo>, service: Service, files: TlsPaths) -> Self {
        Address { lookup: Lookup::Sentinels { nodes, service }, files }
    }

    /// Returns a client of the server; for sentinels of the one that they name now. A sentinel has `patience` to name it.
    pub(super) async fn client(&self, patience: Duration) -> Result<Client, RedisError> {
        // Read each time: certificates are renewed while the program runs.
        let certificates = self.files.read()?;
        match &self.lookup {
            Lookup::Server(info) => match (info.addr(), certificates) {
                (ConnectionAddr::TcpTls { .. }, Some(certificates)) => {
                    Client::build_with_tls(info.clone(), certificates)
                }
                _ => Client::open(info.clone()),
            },
            Lookup::Sentinels { nodes, service } => master(nodes, service, certificates.as_ref(), patience).await,
        }
    }
}

impl TlsPaths {
    /// Returns the files that the configuration names.
    pub(super) fn of(config: &ServerConfig) -> Self {
        TlsPaths { ca: config.ca_file.clone(), certificate: config.client_cert.clone(), key: config.client_key.clone() }
    }

    /// Reads the files; `None` if there are none.
    pub(super) fn read(&self) -> io::Result<Option<TlsCertificates>> {
        if self.ca.is_empty() && self.certificate.is_empty() {
            return Ok(None);
        }
        let root_cert = if self.ca.is_empty() { None } else { Some(read(&self.ca)?) };
        let client_tls = if self.certificate.is_empty() {
            None
        } else {
            Some(ClientTlsConfig { client_cert: read(&self.certificate)?, client_key: read(&self.key)? })
        };
        Ok(Some(TlsCertificates { client_tls, root_cert }))
    }
}

fn read(path: &str) -> io::Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
}

fn tcp_settings() -> TcpSettings {
    let probes = TcpKeepalive::new().with_time(TCP_PROBE).with_interval(TCP_PROBE);
    TcpSettings::default().set_nodelay(true).set_keepalive(probes).set_user_timeout(TCP_SILENCE)
}

/// Returns a client of the master that most of the sentinels name and that itself claims to be one. Each sentinel is
/// queried alone, so that one that is silent does not delay the others' answer, and one that was cut off from them is
/// outvoted.
async fn master(
    nodes: &[ConnectionInfo],
    service: &Service,
    certificates: Option<&TlsCertificates>,
    patience: Duration,
) -> Result<Client, RedisError> {
    let asked = nodes.iter().map(async |node| {
        let mut sentinel = builder(node, service, certificates)?.build()?;
        match timeout(patience, sentinel.async_get_client()).await {
            Ok(answer) => answer,
            Err(_) => Err((ErrorKind::Io, "a sentinel did not answer in time", node.addr().to_string()).into()),
        }
    });
    let mut answers: FuturesUnordered<_> = asked.collect();
    let mut votes: HashMap<String, (usize, Client)> = HashMap::new();
    let mut failure = None;
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(client) => {
                let address = client.get_connection_info().addr().to_string();
                let (count, client) = votes.entry(address).or_insert((0, client));
                *count += 1;
                if *count * 2 > nodes.len() {
                    return Ok(client.clone());
                }
            }
            Err(error) => failure = Some(error),
        }
    }
    // Fewer than half of them answered, or agree.
    match votes.into_values().max_by_key(|(count, _)| *count) {
        Some((_, client)) => Ok(client),
        None => Err(failure.unwrap_or_else(|| (ErrorKind::EmptySentinelList, "no sentinel is named").into())),
    }
}

fn builder(
    sentinel: &ConnectionInfo,
    service: &Service,
    certificates: Option<&TlsCertificates>,
) -> Result<SentinelClientBuilder, RedisError> {
    // The URL's credentials are those of the server.
    let server = sentinel.redis_settings();
    let mut builder = SentinelClientBuilder::new([sentinel.addr().clone()], &service.name, SentinelServerType::Master)?
        .set_client_to_redis_db(server.db())
        .set_client_to_redis_protocol(server.protocol())
        .set_client_to_redis_tcp_settings(tcp_settings())
        .set_client_to_sentinel_tcp_settings(tcp_settings());
    if let Some(username) = server.username() {
        builder = builder.set_client_to_redis_username(username);
    }
    if let Some(password) = server.password() {
        builder = builder.set_client_to_redis_password(password);
    }
    if let Some(username) = &service.username {
        builder = builder.set_client_to_sentinel_username(username);
    }
    if let Some(password) = &service.password {
        builder = builder.set_client_to_sentinel_password(password);
    }
    if matches!(sentinel.addr(), ConnectionAddr::TcpTls { .. }) {
        builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
        if let Some(certificates) = certificates {
            builder = builder
                .set_client_to_sentinel_certificates(certificates.clone())
                .set_client_to_redis_certificates(certificates.clone());
        }
    }
    Ok(builder)
}
