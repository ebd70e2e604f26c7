//! Opens one connection, to whichever of the broker's addresses answers.
//!
//! Each attempt looks the hosts up again and tries all their addresses in a new random order, so that processes spread over the
//! nodes of a cluster, and those that lost a node spread over the others.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use lapin::tcp::{RustlsConnector, RustlsConnectorConfig};
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{AsyncTcpStream, Connection, ConnectionProperties};
use rand::seq::SliceRandom;
use tokio::time::timeout;

use super::super::QueueError;
use crate::config::{ServerConfig, TlsFiles};

/// Silence of twice this time ends a connection, on both sides: a stopped broker or a half-open connection is noticed
/// within 8 s, and polling continues within 10.
const HEARTBEAT_SECONDS: u16 = 3;
/// How long the only address may take to accept a connection, handshakes included.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one of several addresses may take at first. Doubles up to [`PATIENCE`] with each attempt in which all fail, so that
/// addresses that are all slow are reached too.
const FIRST_PATIENCE: Duration = Duration::from_secs(3);

/// The hosts of a broker, and how to speak with them.
pub(super) struct Addresses {
    uris: Vec<AMQPUri>,
    server: ServerConfig,
}

impl Addresses {
    /// Returns the hosts of the server's URL. Its files are read now, so that a mistake shows at the start, and again
    /// for each connection, so that a renewed certificate is used without a restart.
    pub(super) fn of(server: &ServerConfig) -> Result<Self, QueueError> {
        let mut uris = Vec::new();
        for url in server.urls() {
            let uri = url.parse::<AMQPUri>();
            let mut uri = uri.map_err(|reason| QueueError::backend("understand the URL of RabbitMQ", reason))?;
            uri.query.heartbeat.get_or_insert(HEARTBEAT_SECONDS);
            uris.push(uri);
        }
        if !(server.ca_file.is_empty() && server.client_cert.is_empty()) {
            connector(server).map_err(|source| QueueError::backend("use its files for TLS", source))?;
        }
        Ok(Addresses { uris, server: server.clone() })
    }

    /// Returns every address of every host, and why hosts have none.
    async fn look_up(&self) -> (Vec<Address>, Vec<String>) {
        let looked_up = self.uris.iter().map(async |uri| {
            let (host, port) = (uri.authority.host.as_str(), uri.authority.port);
            match timeout(FIRST_PATIENCE, tokio::net::lookup_host((host, port))).await {
                Ok(Ok(found)) => Ok(found.map(|at| Address { uri: uri.clone(), at }).collect::<Vec<_>>()),
                Ok(Err(error)) => Err(format!("{host}: {error}")),
                Err(_) => Err(format!("{host}: no answer of the name server")),
            }
        });
        let (mut addresses, mut reasons) = (Vec::new(), Vec::new());
        for found in join_all(looked_up).await {
            match found {
                Ok(found) => addresses.extend(found),
                Err(reason) => reasons.push(reason),
            }
        }
        (addresses, reasons)
    }
}

/// One address of a host.
#[derive(Clone, Debug)]
struct Address {
    uri: AMQPUri,
    at: SocketAddr,
}

/// Opens the connections of one link.
pub(super) struct Dialer {
    addresses: Arc<Addresses>,
    /// Shown by the broker's tools.
    name: String,
    /// The address that was last tried or connected to: if it failed, another one is more likely to answer.
    last: Option<SocketAddr>,
    /// Attempts in a row in which no address answered.
    failures: u32,
}

impl Dialer {
    pub(super) fn new(addresses: Arc<Addresses>, name: String) -> Self {
        Dialer { addresses, name, last: None, failures: 0 }
    }

    #[cfg(test)]
    pub(super) fn last(&self) -> Option<SocketAddr> {
        self.last
    }

    /// Connects to the first address that answers; fails with the reasons of all.
    pub(super) async fn connect(&mut self) -> Result<Connection, String> {
        let (mut addresses, mut reasons) = self.addresses.look_up().await;
        self.order(&mut addresses);
        let patience = self.patience(addresses.len());
        for address in &addresses {
            self.last = Some(address.at);
            match connect_to(address, &self.addresses.server, &self.name, patience).await {
                Ok(connection) => {
                    self.failures = 0;
                    return Ok(connection);
                }
                Err(reason) if addresses.len() == 1 => reasons.push(reason),
                Err(reason) => reasons.push(format!("{}: {reason}", address.at)),
            }
        }
        self.failures += 1;
        Err(reasons.join("; "))
    }

    /// A new random order, with the last one at its end.
    fn order(&self, addresses: &mut [Address]) {
        addresses.shuffle(&mut rand::rng());
        addresses.sort_by_key(|address| Some(address.at) == self.last);
    }

    fn patience(&self, addresses: usize) -> Duration {
        match addresses {
            0 | 1 => PATIENCE,
            _ => FIRST_PATIENCE.saturating_mul(2_u32.saturating_pow(self.failures)).min(PATIENCE),
        }
    }
}

async fn connect_to(
    address: &Address,
    server: &ServerConfig,
    name: &str,
    patience: Duration,
) -> Result<Connection, String> {
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    let runtime = lapin::runtime::default_runtime().map_err(|error| error.to_string())?;
    let tls = match address.uri.scheme {
        AMQPScheme::AMQP => None,
        AMQPScheme::AMQPS => Some(connector(server).map_err(|error| error.to_string())?),
    };
    let at = address.at;
    let attempt = Attempt::default();
    let socket = Arc::clone(&attempt.0);
    let connecting = Connection::connector(
        address.uri.clone(),
        runtime,
        async move |uri, runtime| {
            let opening = async {
                let stream = AsyncTcpStream::connect(&runtime, at).await?;
                if let AsyncTcpStream::Plain(plain) = &stream {
                    crate::lock(&socket).hold(plain.get_ref())?;
                }
                match &tls {
                    None => Ok(stream),
                    Some(tls) => stream.into_rustls(tls, &uri.authority.host).await,
                }
            };
            // The thread that runs this has no other limit.
            Ok(timeout(patience, opening).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?)
        },
        properties,
    );
    match timeout(patience, connecting).await {
        Ok(Ok(connection)) => {
            attempt.succeeded();
            Ok(connection)
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", patience.as_secs())),
    }
}

/// An attempt to connect. If it is given up, which is to drop it, its socket is shut down: lapin would keep it, and a thread
/// with it, for as long as a frozen broker does.
#[derive(Default)]
struct Attempt(Arc<Mutex<Socket>>);

#[derive(Default)]
enum Socket {
    #[default]
    Expected,
    Held(std::net::TcpStream),
    /// No caller waits for it any more.
    Unwanted,
}

impl Socket {
    fn hold(&mut self, socket: &impl AsFd) -> io::Result<()> {
        if matches!(self, Socket::Unwanted) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        *self = Socket::Held(socket.as_fd().try_clone_to_owned()?.into());
        Ok(())
    }
}

impl Attempt {
    fn succeeded(self) {
        // A second descriptor would keep the connection open.
        *crate::lock(&self.0) = Socket::Unwanted;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let socket = std::mem::replace(&mut *crate::lock(&self.0), Socket::Unwanted);
        if let Socket::Held(socket) = socket {
            // An error means that it is closed already.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Returns what TLS is spoken with: the authorities and the certificate of the files, or else the system's authorities
/// and none.
fn connector(server: &ServerConfig) -> io::Result<RustlsConnector> {
    let files = TlsFiles::of(server).map_err(io::Error::other)?;
    let config = match files.authorities {
        Some(authorities) => RustlsConnectorConfig::default().with_parsable_certificates(authorities),
        None => RustlsConnectorConfig::new_with_native_certs()?,
    };
    match files.identity {
        Some((certificates, key)) => config.connector_with_single_cert(certificates, key),
        None => config.connector_with_no_client_auth(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialer(url: &str) -> Dialer {
        Dialer::new(Arc::new(Addresses::of(&ServerConfig::at(url)).unwrap()), "test".to_owned())
    }

    #[tokio::test]
    async fn each_attempt_has_a_new_order_and_the_last_address_comes_last() {
        let mut dialer = dialer("amqp://u:p@127.0.0.1:1,127.0.0.2:2,127.0.0.3:3/%2f");
        let (addresses, reasons) = dialer.addresses.look_up().await;
        assert_eq!((addresses.len(), reasons.len()), (3, 0));
        let mut firsts = std::collections::HashSet::new();
        let order = |dialer: &Dialer| {
            let mut ordered = addresses.clone();
            dialer.order(&mut ordered);
            ordered.iter().map(|address| address.at.port()).collect::<Vec<_>>()
        };
        for _ in 0..200 {
            firsts.insert(order(&dialer)[0]);
        }
        assert_eq!(firsts.len(), 3);
        dialer.last = Some(addresses[1].at);
        for _ in 0..200 {
            assert_eq!(order(&dialer)[2], 2);
        }
    }

    #[test]
    fn a_dead_address_among_others_costs_little_time_unless_all_are_slow() {
        let mut dialer = dialer("amqp://127.0.0.1:1,127.0.0.2:2/%2f");
        assert_eq!(dialer.patience(1), PATIENCE);
        assert_eq!(dialer.patience(2), FIRST_PATIENCE);
        dialer.failures = 2;
        assert_eq!(dialer.patience(2), PATIENCE);
        dialer.failures = 100;
        assert_eq!(dialer.patience(2), PATIENCE);
    }

    #[tokio::test]
    async fn the_reasons_of_all_addresses_are_named_and_no_password() {
        let mut dialer = dialer("amqp://u:secret@127.0.0.1:1,127.0.0.2:1/%2f");
        let reason = dialer.connect().await.unwrap_err();
        assert!(reason.contains("127.0.0.1:1: ") && reason.contains("127.0.0.2:1: "), "{reason}");
        assert!(!reason.contains("secret"), "{reason}");
    }
}
