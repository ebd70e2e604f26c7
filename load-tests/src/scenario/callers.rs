//! Callers that hold on to the API: half-open requests, readers that hardly take anything, large pages; and a probe of its health.
//!
//! Connections come from many addresses of loopback, and are opened again some time after the API has closed them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// How many of each there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Numbers {
    /// Connections with half a request's head.
    pub half_open: u32,
    /// Readers of the stream of events that take a byte a second.
    pub slow_readers: u32,
    /// Requests for the largest page of entries, in progress all the time; every second one has the page sanitised.
    pub pages: u32,
}

/// How long a caller waits before it opens its connection again.
const AGAIN: Duration = Duration::from_secs(10);
/// The time over which the first connections are opened.
const RAMP: Duration = Duration::from_secs(5);
/// The interval between two probes.
const PROBE: Duration = Duration::from_millis(250);
/// A probe without a response after this time has failed.
const PROBED: Duration = Duration::from_secs(10);

/// Callers of one API; they hang up when dropped.
pub(super) struct Callers {
    seen: Arc<Seen>,
    _tasks: JoinSet<()>,
}

/// What callers saw.
#[derive(Debug, Default)]
struct Seen {
    opened: AtomicU64,
    now: AtomicU64,
    most: AtomicU64,
    pages: AtomicU64,
    largest_page: AtomicU64,
    probes: AtomicU64,
    failed_probes: AtomicU64,
    slowest_probe_micros: AtomicU64,
}

impl Callers {
    /// Has callers call the API at `http://ADDRESS`.
    pub(super) fn start(api: &str, numbers: Numbers) -> Self {
        let (seen, mut tasks) = (Arc::new(Seen::default()), JoinSet::new());
        let Ok(api) = api.trim_start_matches("http://").parse::<SocketAddr>() else {
            return Callers { seen, _tasks: tasks };
        };
        let holders = numbers.half_open + numbers.slow_readers;
        for number in 0..holders {
            let (seen, is_slow) = (Arc::clone(&seen), number >= numbers.half_open);
            tasks.spawn(async move {
                tokio::time::sleep(RAMP * number / holders).await;
                loop {
                    // The API closes it sooner or later; until then it is open.
                    let _ = hold(api, number, is_slow, &seen).await;
                    tokio::time::sleep(AGAIN).await;
                }
            });
        }
        for number in 0..numbers.pages {
            let seen = Arc::clone(&seen);
            tasks.spawn(async move {
                let sanitised = if number % 2 == 0 { "" } else { "&html=sanitised" };
                let path = format!("/api/v1/entries?limit=1000{sanitised}");
                loop {
                    if let Ok(bytes) = whole(api, holders + number, &path).await {
                        seen.pages.fetch_add(1, Ordering::Relaxed);
                        seen.largest_page.fetch_max(bytes, Ordering::Relaxed);
                    } else {
                        tokio::time::sleep(PROBE).await;
                    }
                }
            });
        }
        let watched = Arc::clone(&seen);
        tasks.spawn(async move {
            loop {
                probe(api, &watched).await;
                tokio::time::sleep(PROBE).await;
            }
        });
        Callers { seen, _tasks: tasks }
    }

    /// Returns what they saw so far, by the figures' names.
    pub(super) fn figures(&self) -> BTreeMap<String, f64> {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        let seen = &self.seen;
        let figures = [
            ("callers.opened", value(&seen.opened)),
            ("callers.most_at_once", value(&seen.most)),
            ("callers.pages", value(&seen.pages)),
            ("callers.largest_page_mb", value(&seen.largest_page) / 1e6),
            ("health.probes", value(&seen.probes)),
            ("health.failed", value(&seen.failed_probes)),
            ("health.slowest", value(&seen.slowest_probe_micros) / 1e6),
        ];
        figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// Counts a connection while it exists.
struct Open<'a>(&'a Seen);

impl<'a> Open<'a> {
    fn counted(seen: &'a Seen) -> Self {
        seen.opened.fetch_add(1, Ordering::Relaxed);
        let now = seen.now.fetch_add(1, Ordering::Relaxed) + 1;
        seen.most.fetch_max(now, Ordering::Relaxed);
        Open(seen)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Connects from a separate address, with a receive buffer as small as the system allows.
async fn connect(api: SocketAddr, number: u32) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(1)?;
    let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 200, 0, 1)) + number);
    socket.bind(SocketAddrV4::new(address, 0).into())?;
    socket.connect(api).await
}

/// Holds one connection until the API closes it.
async fn hold(api: SocketAddr, number: u32, is_slow: bool, seen: &Seen) -> std::io::Result<()> {
    let mut stream = connect(api, number).await?;
    let _open = Open::counted(seen);
    if !is_slow {
        stream.write_all(b"GET /api/v1/stats HTTP/1.1\r\nHost: loc").await?;
    } else {
        let request = "GET /api/v1/events?after=0 HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
        stream.write_all(request.as_bytes()).await?;
    }
    let mut byte = [0; 1];
    while stream.read(&mut byte).await? > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// Returns the size of a whole response; an error unless it is 200.
async fn whole(api: SocketAddr, number: u32, path: &str) -> std::io::Result<u64> {
    let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 200, 0, 1)) + number);
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddrV4::new(address, 0).into())?;
    let mut stream = socket.connect(api).await?;
    stream.write_all(request(path).as_bytes()).await?;
    taken(stream).await
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

/// Returns the size of the response that a connection sends; an error unless it is 200.
async fn taken(mut stream: TcpStream) -> std::io::Result<u64> {
    let (mut buffer, mut bytes) = (vec![0; 1 << 16], 0);
    loop {
        let read = stream.read(&mut buffer).await?;
        if bytes == 0 && !buffer[..read].starts_with(b"HTTP/1.1 200") {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        bytes += read as u64;
        if read == 0 {
            return Ok(bytes);
        }
    }
}

/// Requests `/healthz` on a separate connection. The request is sent by the call after the one that connects: in the
/// runtime of hundreds of other callers, both of them on a busy machine, it would come so late that the API took it for
/// one of theirs.
async fn asked_at_once(api: SocketAddr) -> std::io::Result<u64> {
    let connected = tokio::task::spawn_blocking(move || {
        let mut stream = std::net::TcpStream::connect_timeout(&api, PROBED)?;
        std::io::Write::write_all(&mut stream, request("/healthz").as_bytes())?;
        stream.set_nonblocking(true)?;
        std::io::Result::Ok(stream)
    });
    taken(TcpStream::from_std(connected.await??)?).await
}

/// Probes the API's health.
async fn probe(api: SocketAddr, seen: &Seen) {
    let begun = Instant::now();
    let answered = tokio::time::timeout(PROBED, asked_at_once(api)).await;
    seen.probes.fetch_add(1, Ordering::Relaxed);
    if !answered.is_ok_and(|answered| answered.is_ok()) {
        seen.failed_probes.fetch_add(1, Ordering::Relaxed);
    }
    let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    seen.slowest_probe_micros.fetch_max(micros, Ordering::Relaxed);
}
