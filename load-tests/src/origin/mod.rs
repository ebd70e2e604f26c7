//! The scripted origin: an HTTP/1.1 server that responds by script and records every request.
//!
//! It parses requests (httparse) and writes every byte of its responses itself. One origin can serve thousands of
//! hosts: each listener, on a separate address and port, is one. Scripts belong to paths, and apply to all hosts.
//!
//! The caller can add TLS to its connections ([`Origin::listen_behind`]). HTTP/2 and chunked requests are not
//! supported: clients of feeds need neither.

pub mod bodies;
pub mod feed;
mod items;
pub mod log;
pub(crate) mod mix;
mod plan;
mod render;
pub mod script;
mod server;
mod shared;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use common::time::{Clock, Timestamp};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use feed::Item;
use items::FeedState;
use log::{Log, Record, Time};
use script::Script;
use shared::{Route, Shared};

pub use shared::{Fallback, Wire, Wrap};

/// How often binding a taken port is retried, and the pause in between.
const REBINDS: u32 = 600;
const REBIND_PAUSE: Duration = Duration::from_millis(100);

/// A running origin; see the [crate's example](crate). Stops when dropped: open connections are closed, the log is
/// lost.
pub struct Origin {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    /// One per host; empty for plain HTTP.
    wraps: Vec<Wrap>,
    hosts: Mutex<Vec<Option<Host>>>,
    stop: CancellationToken,
}

/// A host that is up.
struct Host {
    stop: CancellationToken,
    accepting: JoinHandle<Option<()>>,
}

impl Origin {
    /// Starts one host on 127.0.0.1 and a free port.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn start() -> io::Result<Self> {
        Self::listen(&loopback(1, 0)).await
    }

    /// Starts one host on each of these addresses; port 0 is a free port. Runs on the current tokio runtime.
    ///
    /// # Errors
    /// When one of the addresses cannot be bound.
    pub async fn listen(addresses: &[SocketAddr]) -> io::Result<Self> {
        Self::listen_in(addresses, Vec::new(), Time::Real(Instant::now())).await
    }

    /// Starts one https host on each of these addresses, with the given wrapper.
    ///
    /// # Errors
    /// When one of the addresses cannot be bound.
    pub async fn listen_behind(hosts: impl IntoIterator<Item = (SocketAddr, Wrap)>) -> io::Result<Self> {
        let (addresses, wraps): (Vec<SocketAddr>, Vec<Wrap>) = hosts.into_iter().unzip();
        Self::listen_in(&addresses, wraps, Time::Real(Instant::now())).await
    }

    /// Does the same with another clock, which scripts, dates and records follow; only pauses within a response take
    /// real time.
    ///
    /// # Errors
    /// When one of the addresses cannot be bound.
    pub async fn listen_by(addresses: &[SocketAddr], clock: Arc<dyn Clock>) -> io::Result<Self> {
        Self::listen_in(addresses, Vec::new(), Time::Given(clock)).await
    }

    async fn listen_in(addresses: &[SocketAddr], wraps: Vec<Wrap>, time: Time) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            connections: AtomicU64::new(0),
            log: Log::new(time),
            routes: Mutex::default(),
            fallback: OnceLock::new(),
        });
        let (mut bound, mut hosts) = (Vec::new(), Vec::new());
        let stop = CancellationToken::new();
        for (host, address) in addresses.iter().enumerate() {
            let listener = TcpListener::bind(address).await?;
            bound.push(listener.local_addr()?);
            hosts.push(Some(Host::up(Arc::clone(&shared), listener, wraps.get(host).cloned(), stop.child_token())));
        }
        Ok(Origin { shared, addresses: bound, wraps, hosts: Mutex::new(hosts), stop })
    }

    /// Takes a host down: closes its connections and refuses new ones.
    pub async fn take_down(&self, host: usize) {
        let down = self.hosts().get_mut(host).and_then(Option::take);
        if let Some(down) = down {
            down.stop.cancel();
            // Awaited so that the listener is closed on return; the task cannot fail.
            let _ = down.accepting.await;
        }
    }

    /// Restarts a host at its old address.
    ///
    /// # Errors
    /// When another program has taken the address in the meantime.
    pub async fn bring_up(&self, host: usize) -> io::Result<()> {
        let listener = self.rebind(self.addresses[host]).await?;
        let wrap = self.wraps.get(host).cloned();
        self.hosts()[host] = Some(Host::up(Arc::clone(&self.shared), listener, wrap, self.stop.child_token()));
        Ok(())
    }

    /// Retries while the system has given the port to a client in the meantime.
    async fn rebind(&self, address: SocketAddr) -> io::Result<TcpListener> {
        for _ in 0..REBINDS {
            match TcpListener::bind(address).await {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => tokio::time::sleep(REBIND_PAUSE).await,
                bound => return bound,
            }
        }
        TcpListener::bind(address).await
    }

    /// Returns the absolute URL of a path on the first host.
    pub fn url(&self, path: &str) -> String {
        self.url_on(0, path)
    }

    /// Returns the absolute URL of a path on one of the hosts, counted from 0 modulo their number.
    pub fn url_on(&self, host: usize, path: &str) -> String {
        let scheme = if self.wraps.is_empty() { "http" } else { "https" };
        format!("{scheme}://{}{path}", self.address(host))
    }

    /// Returns the address of one of the hosts, counted from 0 modulo their number.
    pub fn address(&self, host: usize) -> SocketAddr {
        self.addresses[host % self.addresses.len()]
    }

    /// Returns the addresses of all hosts.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the wall time from which [`Record::start`] and the scripts' times count.
    pub fn started(&self) -> Timestamp {
        self.shared.log.started_wall()
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.shared.log.now()
    }

    /// Sets the script of a path. If the path has a query, the script applies to exactly that query; requests with
    /// another one use the path without it. Items that the path has already published stay.
    ///
    /// Paths without a script respond with 404.
    pub fn set(&self, path: &str, script: Script) {
        let path: Arc<str> = path.into();
        let mut routes = self.routes();
        let kept = routes.remove(&path).and_then(|route| route.feed);
        let route = Route::new(&path, script, kept, self.started());
        routes.insert(path, route);
    }

    /// Sets the function that creates the scripts of paths without one, each at its first request: for populations too
    /// large to be set one by one. Only the first call has an effect.
    pub fn set_fallback(&self, fallback: Fallback) {
        // A second one is ignored, as documented.
        let _ = self.shared.fallback.set(fallback);
    }

    /// Publishes `items` new items at a path now, and returns them; none if the path has no feed.
    pub fn publish(&self, path: &str, items: usize) -> Vec<Item> {
        self.with_feed(path, |feed, now| {
            let before = feed.items().len();
            (0..items).for_each(|_| feed.add(now));
            feed.items()[before..].to_vec()
        })
        .unwrap_or_default()
    }

    /// Gives a path new validators for the same bytes, as `touch` does to a file.
    pub fn touch(&self, path: &str) {
        self.with_feed(path, FeedState::touch);
    }

    /// Returns all items that a path has published until now, oldest first.
    pub fn truth(&self, path: &str) -> Vec<Item> {
        self.with_feed(path, |feed, _| feed.items().to_vec()).unwrap_or_default()
    }

    /// Returns all requests so far, in order.
    pub fn log(&self) -> Vec<Record> {
        self.log_from(0)
    }

    /// Returns the requests from this [`Record::number`] on, for reading the log incrementally.
    pub fn log_from(&self, number: usize) -> Vec<Record> {
        self.shared.log.since(number)
    }

    /// Returns the requests so far that a path's script answered.
    pub fn requests(&self, path: &str) -> Vec<Record> {
        self.shared.log.of_path(path)
    }

    /// Returns the number of requests so far, including those in flight.
    pub fn request_count(&self) -> usize {
        self.shared.log.counts(None).started
    }

    /// Waits until a path has that many requests that have ended, and returns its requests; after `limit` it returns
    /// what there is.
    pub async fn wait_for(&self, path: &str, count: usize, limit: Duration) -> Vec<Record> {
        self.wait(limit, || self.shared.log.counts(Some(path)).ended >= count).await;
        self.requests(path)
    }

    /// Waits until a path has that many requests, in flight or ended; otherwise like [`Origin::wait_for`].
    pub async fn wait_for_start(&self, path: &str, count: usize, limit: Duration) -> Vec<Record> {
        self.wait(limit, || self.shared.log.counts(Some(path)).started >= count).await;
        self.requests(path)
    }

    /// Waits until that many requests to any path have ended, or `limit` has passed; returns whether there were enough.
    pub async fn wait_for_total(&self, count: usize, limit: Duration) -> bool {
        self.wait(limit, || self.shared.log.counts(None).ended >= count).await
    }

    async fn wait(&self, limit: Duration, enough: impl Fn() -> bool) -> bool {
        let mut changes = self.shared.log.changes();
        let waiting = async { while !enough() && changes.changed().await.is_ok() {} };
        tokio::time::timeout(limit, waiting).await.is_ok()
    }

    fn routes(&self) -> MutexGuard<'_, HashMap<Arc<str>, Route>> {
        common::lock(&self.shared.routes)
    }

    fn hosts(&self) -> MutexGuard<'_, Vec<Option<Host>>> {
        common::lock(&self.hosts)
    }

    fn with_feed<T>(&self, path: &str, act: impl FnOnce(&mut FeedState, Timestamp) -> T) -> Option<T> {
        let elapsed = self.elapsed();
        let mut routes = self.routes();
        let feed = routes.get_mut(path)?.feed.as_mut()?;
        feed.advance(elapsed, self.started());
        Some(act(feed, self.started().after(elapsed)))
    }
}

impl Host {
    fn up(shared: Arc<Shared>, listener: TcpListener, wrap: Option<Wrap>, stop: CancellationToken) -> Self {
        let accepting = server::accept(shared, listener, wrap, stop.clone());
        Host { accepting: tokio::spawn(stop.clone().run_until_cancelled_owned(accepting)), stop }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Returns `hosts` loopback addresses, starting at 127.0.0.1, each with this port (0: a free one), one per host.
pub fn loopback(hosts: u16, port: u16) -> Vec<SocketAddr> {
    (0..u32::from(hosts)).map(|host| (Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) + host), port).into()).collect()
}
