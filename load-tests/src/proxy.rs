//! A fault-injecting TCP proxy between a role and its server.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rand::RngExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The injected faults. The default forwards everything unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Delays every byte, in both directions.
    pub delay: Duration,
    /// The share of connections cut in any five seconds, each at a random moment.
    pub cut: f64,
    /// Blocks this direction: bytes wait.
    pub stall: Option<Direction>,
    /// Connections that were made before this swallow everything; newer ones work.
    pub silent_before: Option<Instant>,
}

/// A direction through the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// A running proxy. Dropping it cuts all connections.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    faults: watch::Sender<Faults>,
    cuts: Arc<AtomicUsize>,
    heard: Arc<Heard>,
    _running: DropGuard,
}

/// All traffic, one stream per direction of each connection; `None`: not recorded.
#[derive(Debug, Default)]
struct Heard(Option<Mutex<Vec<Vec<u8>>>>);

impl Heard {
    fn streams(&self) -> Option<MutexGuard<'_, Vec<Vec<u8>>>> {
        self.0.as_ref().map(|streams| common::lock(streams))
    }

    /// Returns the index of a new stream.
    fn begin(&self) -> usize {
        self.streams().map_or(0, |mut streams| {
            streams.push(Vec::new());
            streams.len() - 1
        })
    }

    fn add(&self, stream: usize, chunk: &[u8]) {
        if let Some(stream) = self.streams().as_mut().and_then(|streams| streams.get_mut(stream)) {
            stream.extend_from_slice(chunk);
        }
    }
}

/// Returns how often a word occurs in these bytes.
pub fn occurrences(bytes: &[u8], word: &[u8]) -> usize {
    let Some(first) = word.first() else { return 0 };
    bytes.iter().enumerate().filter(|(at, byte)| *byte == first && bytes[*at..].starts_with(word)).count()
}

/// How often the connections to cut are chosen.
const CUT_WITHIN: Duration = Duration::from_secs(5);
/// Maximum number of chunks in flight in one direction of a connection; beyond it the sender waits.
const CHUNKS: usize = 1024;
const CHUNK_BYTES: usize = 64 << 10;

impl FaultProxy {
    /// Starts a transparent proxy for `server` on a free loopback port.
    pub async fn before(server: SocketAddr) -> io::Result<Self> {
        Self::start(server, Heard::default()).await
    }

    /// Starts one that also records all traffic: see [`FaultProxy::heard`].
    pub async fn listening(server: SocketAddr) -> io::Result<Self> {
        Self::start(server, Heard(Some(Mutex::default()))).await
    }

    async fn start(server: SocketAddr, heard: Heard) -> io::Result<Self> {
        let heard = Arc::new(heard);
        let listening = Arc::clone(&heard);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (faults, watched) = watch::channel(Faults::default());
        let stop = CancellationToken::new();
        let cuts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&cuts);
        let stopped = stop.clone();
        tokio::spawn(async move {
            while let Some(Ok((client, _))) = stopped.run_until_cancelled(listener.accept()).await {
                let (watched, counted) = (watched.clone(), Arc::clone(&counted));
                let heard = Arc::clone(&listening);
                let carried = async move {
                    if carry(client, server, watched, &heard).await == Some(Cut) {
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                };
                let stopped = stopped.clone();
                tokio::spawn(async move { stopped.run_until_cancelled(carried).await });
            }
        });
        Ok(FaultProxy { address, faults, cuts, heard, _running: stop.drop_guard() })
    }

    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the faults from now on.
    pub fn set(&self, faults: Faults) {
        self.faults.send_replace(faults);
    }

    /// Returns how often a word has passed so far, in either direction. Scans all recorded bytes.
    pub fn heard(&self, word: &str) -> usize {
        let streams = self.heard.streams();
        streams.map_or(0, |streams| streams.iter().map(|stream| occurrences(stream, word.as_bytes())).sum())
    }

    /// Returns the number of connections cut so far.
    pub fn cuts(&self) -> usize {
        self.cuts.load(Ordering::Relaxed)
    }
}

/// The connection was cut by a fault.
#[derive(PartialEq, Eq)]
struct Cut;

/// Forwards a connection until either side closes it or it is cut.
async fn carry(client: TcpStream, server: SocketAddr, faults: watch::Receiver<Faults>, heard: &Heard) -> Option<Cut> {
    let server = TcpStream::connect(server).await.ok()?;
    client.set_nodelay(true).ok()?;
    server.set_nodelay(true).ok()?;
    let doom = doom(faults.clone());
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let there = pump(from_client, to_server, Direction::ToServer, faults.clone(), heard);
    let back = pump(from_server, to_client, Direction::ToClient, faults, heard);
    tokio::select! {
        () = async { tokio::join!(there, back); } => None,
        () = doom => Some(Cut),
    }
}

/// Ends when the connection is to be cut.
async fn doom(faults: watch::Receiver<Faults>) {
    loop {
        let chosen = rand::rng().random_bool(faults.borrow().cut.clamp(0.0, 1.0));
        let moment = CUT_WITHIN.mul_f64(rand::rng().random());
        if chosen {
            return tokio::time::sleep(moment).await;
        }
        tokio::time::sleep(CUT_WITHIN).await;
    }
}

/// Forwards bytes in one direction in order, each chunk with the configured delay.
async fn pump(
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    direction: Direction,
    faults: watch::Receiver<Faults>,
    heard: &Heard,
) {
    let (sender, receiver) = mpsc::channel(CHUNKS);
    tokio::join!(read_chunks(from, sender, heard), write_chunks(to, receiver, direction, faults));
}

async fn read_chunks(mut from: OwnedReadHalf, chunks: mpsc::Sender<(Instant, Vec<u8>)>, heard: &Heard) {
    let stream = heard.begin();
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        heard.add(stream, &buffer[..read]);
        if chunks.send((Instant::now(), buffer[..read].to_vec())).await.is_err() {
            return;
        }
    }
}

async fn write_chunks(
    mut to: OwnedWriteHalf,
    mut chunks: mpsc::Receiver<(Instant, Vec<u8>)>,
    direction: Direction,
    mut faults: watch::Receiver<Faults>,
) {
    let begun = Instant::now();
    while let Some((read, chunk)) = chunks.recv().await {
        if faults.wait_for(|faults| faults.stall != Some(direction)).await.is_err() {
            return;
        }
        let Faults { delay, silent_before, .. } = *faults.borrow();
        if silent_before.is_some_and(|before| begun < before) {
            continue;
        }
        tokio::time::sleep_until(read + delay).await;
        if to.write_all(&chunk).await.is_err() {
            return;
        }
    }
    // Half-closed, like the other side.
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts an echo server.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        address
    }

    async fn said_back(stream: &mut TcpStream) -> Option<Duration> {
        let asked = Instant::now();
        stream.write_all(b"hello").await.ok()?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).await.ok()?;
        (answer == *b"hello").then(|| asked.elapsed())
    }

    #[tokio::test]
    async fn bytes_pass_late_or_not_at_all_as_told() {
        let proxy = FaultProxy::before(echo().await).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        said_back(&mut stream).await.unwrap();

        let delay = Duration::from_millis(100);
        proxy.set(Faults { delay, ..Faults::default() });
        assert!(said_back(&mut stream).await.unwrap() >= 2 * delay);

        proxy.set(Faults { stall: Some(Direction::ToClient), ..Faults::default() });
        let stalled = tokio::time::timeout(Duration::from_millis(200), said_back(&mut stream)).await;
        assert!(stalled.is_err());
        proxy.set(Faults::default());
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).await.unwrap();

        proxy.set(Faults { silent_before: Some(Instant::now()), ..Faults::default() });
        let silent = tokio::time::timeout(Duration::from_millis(200), said_back(&mut stream)).await;
        assert!(silent.is_err());
        let mut newer = TcpStream::connect(proxy.address()).await.unwrap();
        assert!(said_back(&mut newer).await.is_some());
    }

    #[tokio::test]
    async fn what_passes_is_heard_both_ways_by_those_who_listen() {
        for (proxy, heard) in [
            (FaultProxy::listening(echo().await).await.unwrap(), 4),
            (FaultProxy::before(echo().await).await.unwrap(), 0),
        ] {
            let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
            said_back(&mut stream).await.unwrap();
            said_back(&mut stream).await.unwrap();
            assert_eq!((proxy.heard("hello"), proxy.heard("hellohello"), proxy.heard("jello")), (heard, heard / 2, 0));
        }
        assert_eq!((occurrences(b"aaa", b"aa"), occurrences(b"a", b"aa"), occurrences(b"a", b"")), (2, 0, 0));
    }

    #[tokio::test]
    async fn doomed_connections_are_cut_soon() {
        let proxy = FaultProxy::before(echo().await).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        said_back(&mut stream).await.unwrap();
        proxy.set(Faults { cut: 1.0, ..Faults::default() });
        let cut = async { while said_back(&mut stream).await.is_some() {} };
        tokio::time::timeout(CUT_WITHIN * 5, cut).await.unwrap();
        assert_eq!(proxy.cuts(), 1);
    }
}
