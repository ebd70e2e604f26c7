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
use rand::seq::SliceRandom;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use crate::address::{AddressGuard, Refused};
use crate::budget::{Budgets, Busy};
use crate::connection::{Connection, OpenConnections, Peer};
use crate::resolve::{Resolver, Unresolved};
use crate::shortage::is_our_shortage;
use crate::tls::{self, TlsFailure};

/// Opens connections for the HTTP client.
#[derive(Clone)]
pub(crate) struct Dialer(pub(crate) Arc<DialSetup>);

/// What every dialling needs.
pub(crate) struct DialSetup {
    pub(crate) resolver: Resolver,
    pub(crate) guard: AddressGuard,
    pub(crate) tls: TlsConnector,
    /// Until the connection is established, TLS included.
    pub(crate) connect_timeout: Duration,
    /// Longest silence of a connection that is being read.
    pub(crate) idle_timeout: Duration,
    /// [`common::config::FetchConfig::max_informational`], for connections that speak HTTP/2.
    pub(crate) max_informational: u32,
    /// How many of them there are.
    pub(crate) open: OpenConnections,
    /// Attempts that may be open beside the first one of each fetch, over all fetches: each needs a file descriptor.
    pub(crate) spare: Semaphore,
    /// The requests to each address.
    pub(crate) budgets: Arc<Budgets>,
}

/// Why no connection could be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("the name {name} was not resolved: {reason}")]
    Dns { name: String, reason: String },
    #[error("{0}")]
    Refused(Refused),
    #[error("no connection: {0}")]
    Connect(std::io::Error),
    /// All its addresses that could be tried have used up their budgets.
    #[error("{0}")]
    Busy(Busy),
    /// This machine has run out of something that a connection needs.
    #[error("{0}")]
    Shortage(std::io::Error),
    #[error("{0}")]
    Tls(TlsFailure),
    #[error("no connection within {}", humantime::format_duration(*.0))]
    Timeout(Duration),
}

/// A second address is tried beside the first one after this time (RFC 8305, section 5).
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// A name with more addresses than this is not dialled. Content delivery networks answer with about a dozen.
const MAX_ANSWERS: usize = 64;
/// Addresses of one name that are tried.
const MAX_ADDRESSES: usize = 6;
/// Attempts of one fetch that are open at the same time.
const MAX_ATTEMPTS: usize = 4;

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
        let connect = |address| {
            let admitted = self.admit(address);
            async move {
                admitted.map_err(std::io::Error::other)?;
                TcpStream::connect(SocketAddr::new(address, port)).await
            }
        };
        let limit = (deadline, self.connect_timeout);
        let stream = race(drawn(addresses), &self.spare, limit, connect).await?;
        let dialled = stream.peer_addr().map_err(DialError::Connect)?;
        self.guard.check(dialled.ip()).map_err(DialError::Refused)?;
        let unit = self.budgets.address(dialled.ip());
        stream.set_nodelay(true).map_err(DialError::Connect)?;
        if !secure {
            return Ok(Connection::plain(stream, self.idle_timeout, &self.open, Peer::new(unit)));
        }
        let name = ServerName::try_from(host.trim_end_matches('.').to_owned());
        let name = name.map_err(|_| DialError::Tls(TlsFailure::name(host)))?;
        let handshake = timeout_at(deadline, self.tls.connect(name, stream)).await.map_err(late)?;
        let stream = handshake.map_err(|error| DialError::Tls(tls::classify(&error)))?;
        Ok(Connection::secure(stream, self.idle_timeout, &self.open, Peer::new(unit), self.max_informational))
    }

    /// Counts an attempt at an address within its budget.
    fn admit(&self, address: IpAddr) -> Result<(), Busy> {
        match self.budgets.address(address) {
            Some(unit) => self.budgets.start(&unit, Instant::now()),
            None => Ok(()),
        }
    }

    /// Checks whether a name with these addresses may be dialled; `Ok` when it has none.
    pub(crate) async fn judge(&self, name: &str) -> Result<(), Refused> {
        match self.addresses(name, Instant::now() + self.connect_timeout).await {
            Ok(addresses) => self.guard.check_all(&addresses),
            Err(_) => Ok(()),
        }
    }

    async fn addresses(&self, host: &str, deadline: Instant) -> Result<Vec<IpAddr>, DialError> {
        if let Ok(literal) = host.parse::<IpAddr>() {
            return Ok(vec![literal]);
        }
        let failed = |reason: String| DialError::Dns { name: host.to_owned(), reason };
        let no_answer = || failed(format!("no answer within {}", humantime::format_duration(self.connect_timeout)));
        let answer = timeout_at(deadline, self.resolver.lookup(host)).await.map_err(|_| no_answer())?;
        let mut addresses = answer.map_err(|unresolved| match unresolved {
            Unresolved::Shortage(error) => DialError::Shortage(error),
            Unresolved::Failed(reason) => failed(reason),
        })?;
        addresses.sort_unstable();
        addresses.dedup();
        match addresses.len() {
            0..=MAX_ANSWERS => Ok(addresses),
            count => {
                Err(failed(format!("it has {count} addresses; names with more than {MAX_ANSWERS} are not dialled")))
            }
        }
    }
}

/// Returns the first connection that is established. Tries the addresses in order, the next one when one fails or has not
/// answered after a while. Ends at a time, which is that long after the beginning of the dial.
async fn race<T, F>(
    addresses: Vec<IpAddr>,
    spare: &Semaphore,
    (deadline, timeout): (Instant, Duration),
    connect: impl Fn(IpAddr) -> F,
) -> Result<T, DialError>
where
    F: Future<Output = std::io::Result<T>>,
{
    let mut waiting = addresses.into_iter();
    let mut attempts = FuturesUnordered::new();
    let mut failure = DialError::Connect(std::io::ErrorKind::AddrNotAvailable.into());
    loop {
        // An attempt beside others needs a descriptor beyond the one that each fetch has.
        let room = match attempts.len() {
            0 => Some(None),
            1..MAX_ATTEMPTS => spare.try_acquire().ok().map(Some),
            _ => None,
        };
        if let Some(place) = room {
            match waiting.next() {
                Some(address) => {
                    let attempt = connect(address);
                    attempts.push(async move {
                        let _place = place;
                        (address, attempt.await)
                    });
                }
                None if attempts.is_empty() => return Err(failure),
                None => {}
            }
        }
        tokio::select! {
            Some((address, result)) = attempts.next() => match result {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = worse(failure, error, address),
            },
            () = tokio::time::sleep(NEXT_ADDRESS_AFTER), if waiting.len() > 0 => {}
            () = tokio::time::sleep_until(deadline) => return Err(match failure {
                // The silence of another address does not make it the server's.
                DialError::Shortage(_) | DialError::Busy(_) => failure,
                _ => DialError::Timeout(timeout),
            }),
        }
    }
}

/// Returns which failure to report: the last one, but our own shortage above all, and a budget above what addresses
/// answered, because not all of them were then tried.
fn worse(before: DialError, error: std::io::Error, address: IpAddr) -> DialError {
    match before {
        DialError::Shortage(_) => before,
        _ if is_our_shortage(&error, address) => DialError::Shortage(error),
        DialError::Busy(_) => before,
        _ => match error.get_ref().and_then(|error| error.downcast_ref::<Busy>()) {
            Some(busy) => DialError::Busy(*busy),
            None => DialError::Connect(error),
        },
    }
}

/// Returns the addresses of a name that are tried, in order: a few drawn at random, IPv6 and IPv4 in turns, so that a
/// family that does not work here costs one head start only.
fn drawn(mut addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    addresses.shuffle(&mut rand::rng());
    let (v6, v4): (Vec<_>, Vec<_>) = addresses.into_iter().partition(IpAddr::is_ipv6);
    let (mut v6, mut v4) = (v6.into_iter(), v4.into_iter());
    let mut turns = Vec::new();
    while v6.len() + v4.len() > 0 {
        turns.extend(v6.next());
        turns.extend(v4.next());
    }
    turns.truncate(MAX_ADDRESSES);
    turns
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::Mutex;

    use super::*;

    fn addresses(count: u8) -> Vec<IpAddr> {
        (1..=count).map(|last| IpAddr::from([192, 0, 2, last])).collect()
    }

    #[test]
    fn a_few_addresses_of_both_families_are_tried_in_turns() {
        let v6 = (1..=20u16).map(|last| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]));
        let tried = drawn(addresses(30).into_iter().chain(v6).collect());
        let families: Vec<bool> = tried.iter().map(IpAddr::is_ipv6).collect();
        assert_eq!(families, [true, false, true, false, true, false]);
        let few = drawn(vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()]);
        assert_eq!(few.len(), 2);
        assert_eq!(drawn(addresses(9)).len(), MAX_ADDRESSES, "one family may take all places");
        let first: std::collections::HashSet<IpAddr> = (0..200).map(|_| drawn(addresses(20))[0]).collect();
        assert!(first.len() > 5, "drawn at random");
    }

    const PATIENCE: Duration = Duration::from_secs(10);

    fn within(timeout: Duration) -> (Instant, Duration) {
        (Instant::now() + timeout, timeout)
    }

    /// Addresses that never answer; returns how many were tried and how many of them at the same time.
    async fn never_answered(count: u8, spare: usize) -> (usize, usize) {
        let open = Mutex::new((0, 0, 0));
        let connect = |_| {
            let mut counts = open.lock().unwrap();
            (counts.0, counts.1) = (counts.0 + 1, counts.1 + 1);
            counts.2 = counts.2.max(counts.1);
            std::future::pending::<std::io::Result<()>>()
        };
        let spare = Semaphore::new(spare);
        let all = race(addresses(count), &spare, within(Duration::from_secs(2)), connect).await;
        assert!(matches!(all, Err(DialError::Timeout(_))), "{all:?}");
        let counts = open.lock().unwrap();
        (counts.0, counts.2)
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_that_never_answer_cost_a_few_descriptors_and_no_more_than_are_spare() {
        assert_eq!(never_answered(6, 100).await, (4, 4));
        assert_eq!(never_answered(6, 1).await, (2, 2));
        assert_eq!(never_answered(6, 0).await, (1, 1));
    }

    #[tokio::test]
    async fn an_address_that_refuses_does_not_hide_the_next_one() {
        // Nothing else listens on this port, at the first address either.
        let reserved = common::testing::Port::reserved();
        let port = reserved.number();
        let _listener = tokio::net::TcpListener::bind(("127.0.0.2", port)).await.unwrap();
        let addresses = vec!["127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap()];
        let connect = |address| TcpStream::connect(SocketAddr::new(address, port));
        let stream = race(addresses, &Semaphore::new(0), within(PATIENCE), connect).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap().ip(), "127.0.0.2".parse::<IpAddr>().unwrap());
    }

    #[tokio::test]
    async fn no_address_at_all_is_an_error() {
        let connect = |_| std::future::ready(Ok(()));
        assert!(race(Vec::new(), &Semaphore::new(0), within(PATIENCE), connect).await.is_err());
    }

    #[tokio::test]
    async fn a_shortage_of_ours_outweighs_what_other_addresses_answered() {
        let connect = |address: IpAddr| {
            let last = address == IpAddr::from([192, 0, 2, 2]);
            let refused = std::io::Error::from(ErrorKind::ConnectionRefused);
            let full = std::io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error());
            std::future::ready(Err::<(), _>(if last { refused } else { full }))
        };
        let failed = race(addresses(2), &Semaphore::new(0), within(PATIENCE), connect).await;
        assert!(matches!(failed, Err(DialError::Shortage(_))), "{failed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_budget_of_ours_is_not_the_timeout_of_a_server_whose_other_address_is_silent() {
        let connect = |address: IpAddr| {
            let is_silent = address == IpAddr::from([192, 0, 2, 1]);
            async move {
                if is_silent {
                    std::future::pending::<()>().await;
                }
                Err::<(), _>(std::io::Error::other(Busy(Duration::from_secs(1))))
            }
        };
        let failed = race(addresses(2), &Semaphore::new(9), within(PATIENCE), connect).await;
        assert!(matches!(failed, Err(DialError::Busy(_))), "{failed:?}");
    }
}
