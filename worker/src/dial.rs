//! From a host name to a connection: names resolved, every address judged, TLS spoken, all within one deadline.
//!
//! The one place at which sockets are opened, so that nothing is dialled that [`AddressGuard`] refuses, whatever it was
//! called. Proxies are not known here: the environment's variables are ignored.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::Uri;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use crate::address::{AddressGuard, Refused};
use crate::connection::{Connection, OpenConnections};
use crate::resolve::Resolver;
use crate::tls::{self, TlsFailure};

/// Opens connections for the HTTP client.
#[derive(Clone)]
pub(crate) struct Dialer(pub(crate) Arc<DialSetup>);

/// What every dialling needs.
pub(crate) struct DialSetup {
    pub(crate) resolver: Resolver,
    pub(crate) guard: AddressGuard,
    pub(crate) tls: TlsConnector,
    /// Until the connection stands, TLS included.
    pub(crate) connect_timeout: Duration,
    /// Longest silence of a connection that is being read.
    pub(crate) idle_timeout: Duration,
    /// How many of them there are.
    pub(crate) open: OpenConnections,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("the name {name} was not resolved: {reason}")]
    Dns { name: String, reason: String },
    #[error("{0}")]
    Refused(Refused),
    #[error("no connection: {0}")]
    Connect(std::io::Error),
    #[error("{0}")]
    Tls(TlsFailure),
    #[error("no connection within {}", humantime::format_duration(*.0))]
    Timeout(Duration),
}

/// A second address is tried beside the first one after this time (RFC 8305, section 5).
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);

impl tower_service::Service<Uri> for Dialer {
    type Response = Connection;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Connection, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let setup = self.0.clone();
        Box::pin(async move { setup.dial(&uri).await })
    }
}

impl DialSetup {
    async fn dial(&self, uri: &Uri) -> Result<Connection, DialError> {
        let deadline = Instant::now() + self.connect_timeout;
        let secure = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });

        let addresses = self.addresses(host, deadline).await?;
        self.guard.check_all(&addresses).map_err(DialError::Refused)?;

        let late = |_| DialError::Timeout(self.connect_timeout);
        let stream = timeout_at(deadline, connect_any(addresses, port)).await.map_err(late)?;
        let stream = stream.map_err(DialError::Connect)?;
        let dialled = stream.peer_addr().map_err(DialError::Connect)?;
        self.guard.check(dialled.ip()).map_err(DialError::Refused)?;
        stream.set_nodelay(true).map_err(DialError::Connect)?;
        if !secure {
            return Ok(Connection::plain(stream, self.idle_timeout, &self.open));
        }
        let name = ServerName::try_from(host.trim_end_matches('.').to_owned());
        let name = name.map_err(|_| DialError::Tls(TlsFailure::name(host)))?;
        let handshake = timeout_at(deadline, self.tls.connect(name, stream)).await.map_err(late)?;
        let stream = handshake.map_err(|error| DialError::Tls(tls::classify(&error)))?;
        Ok(Connection::secure(stream, self.idle_timeout, &self.open))
    }

    async fn addresses(&self, host: &str, deadline: Instant) -> Result<Vec<IpAddr>, DialError> {
        if let Ok(literal) = host.parse::<IpAddr>() {
            return Ok(vec![literal]);
        }
        let failed = |reason: String| DialError::Dns { name: host.to_owned(), reason };
        let no_answer = || failed(format!("no answer within {}", humantime::format_duration(self.connect_timeout)));
        let answer = timeout_at(deadline, self.resolver.lookup(host)).await.map_err(|_| no_answer())?;
        answer.map_err(failed)
    }
}

/// The first connection that stands, tried in order with a head start for the earlier addresses.
async fn connect_any(addresses: Vec<IpAddr>, port: u16) -> std::io::Result<TcpStream> {
    let mut waiting = alternating(addresses).into_iter();
    let mut attempts = FuturesUnordered::new();
    let mut last_error = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    loop {
        match waiting.next() {
            Some(address) => attempts.push(TcpStream::connect(SocketAddr::new(address, port))),
            None if attempts.is_empty() => return Err(last_error),
            None => {}
        }
        let head_start = async {
            if waiting.len() == 0 {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(NEXT_ADDRESS_AFTER).await;
        };
        tokio::select! {
            Some(result) = attempts.next() => match result {
                Ok(stream) => return Ok(stream),
                Err(error) => last_error = error,
            },
            () = head_start => {}
        }
    }
}

/// IPv6 and IPv4 in turns, so that a family that does not work here costs one head start only.
fn alternating(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let (v6, v4): (Vec<_>, Vec<_>) = addresses.into_iter().partition(IpAddr::is_ipv6);
    let (mut v6, mut v4) = (v6.into_iter(), v4.into_iter());
    let mut turns = Vec::new();
    while v6.len() + v4.len() > 0 {
        turns.extend(v6.next());
        turns.extend(v4.next());
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_families_take_turns() {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        let turns = alternating(parse(&["192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1"]));
        assert_eq!(turns, parse(&["2001:db8::1", "192.0.2.1", "192.0.2.2", "192.0.2.3"]));
    }

    #[tokio::test]
    async fn an_address_that_refuses_does_not_hide_the_next_one() {
        let listener = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let addresses = vec!["127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap()];
        let stream = connect_any(addresses, port).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap().ip(), "127.0.0.2".parse::<IpAddr>().unwrap());
    }

    #[tokio::test]
    async fn no_address_at_all_is_an_error() {
        assert!(connect_any(Vec::new(), 80).await.is_err());
    }
}
