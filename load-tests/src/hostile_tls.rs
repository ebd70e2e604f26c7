//! Servers that attack their clients below HTTP: in the TLS handshake, with certificates, and in HTTP/2's frames.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::tls::{Authority, TlsError};

/// What a server does to each client.
#[derive(Clone)]
pub enum Attack {
    /// Sends a handshake record of 16 KB one byte at a time, with this pause.
    SlowHandshake(Duration),
    /// Performs the handshake and then says nothing: for certificates.
    Handshake(Arc<ServerConfig>),
    /// Speaks HTTP/2 and answers the first request with these frames.
    Frames(Arc<ServerConfig>, Frames),
}

impl Attack {
    /// Answers over HTTP/2 with these frames, with the certificate of `config`.
    pub fn frames(mut config: ServerConfig, frames: Frames) -> Self {
        config.alpn_protocols = vec![b"h2".to_vec()];
        Attack::Frames(Arc::new(config), frames)
    }
}

/// Frames in answer to a request.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    /// Sent once.
    pub once: Vec<u8>,
    /// Sent after that without end; nothing if it is empty.
    pub again: Vec<u8>,
}

/// A server that attacks every client. Stops when dropped.
pub struct Attacker {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Attacker {
    /// Starts it on this address; port 0 is a free port.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn start(address: SocketAddr, attack: Attack) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                // The client ends the connection; how is its decision.
                tokio::spawn(attack.clone().play(stream));
            }
        });
        Ok(Attacker { address, connections, accepting })
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Attack {
    async fn play(self, stream: TcpStream) -> io::Result<()> {
        match self {
            Attack::SlowHandshake(pause) => drip_handshake(stream, pause).await,
            Attack::Handshake(config) => {
                let stream = TlsAcceptor::from(config).accept(stream).await?;
                drain(tokio::io::split(stream).0).await
            }
            Attack::Frames(config, frames) => answer(TlsAcceptor::from(config).accept(stream).await?, frames).await,
        }
    }
}

/// Sends the beginning of a handshake record until the client disconnects.
async fn drip_handshake(mut stream: TcpStream, pause: Duration) -> io::Result<()> {
    for byte in [0x16, 3, 3, 0x40, 0].into_iter().chain(std::iter::repeat(2)) {
        stream.write_all(&[byte]).await?;
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

/// Waits for the request, and then sends the frames until the client disconnects.
async fn answer(stream: TlsStream<TcpStream>, frames: Frames) -> io::Result<()> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    writer.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    writer.flush().await?;
    read_request(&mut reader).await?;
    tokio::select! {
        read = drain(reader) => read,
        sent = send(&mut writer, &frames) => sent,
    }
}

/// Reads the client's preface and all frames up to the first request.
async fn read_request(reader: &mut ReadHalf<TlsStream<TcpStream>>) -> io::Result<()> {
    reader.read_exact(&mut [0; 24]).await?;
    loop {
        let mut head = [0; 9];
        reader.read_exact(&mut head).await?;
        let [high, middle, low, kind, ..] = head;
        let length = u32::from_be_bytes([0, high, middle, low]);
        tokio::io::copy(&mut reader.take(u64::from(length)), &mut tokio::io::sink()).await?;
        if kind == HEADERS {
            return Ok(());
        }
    }
}

async fn send(writer: &mut (impl AsyncWrite + Unpin), frames: &Frames) -> io::Result<()> {
    writer.write_all(&frames.once).await?;
    writer.flush().await?;
    if frames.again.is_empty() {
        return std::future::pending().await;
    }
    let burst = frames.again.repeat(4096 / frames.again.len() + 1);
    loop {
        writer.write_all(&burst).await?;
    }
}

/// Reads until the client disconnects.
async fn drain(mut reader: impl AsyncRead + Unpin) -> io::Result<()> {
    tokio::io::copy(&mut reader, &mut tokio::io::sink()).await.map(drop)
}

/// Creates an authority below `root` whose chain of certificates has more than 100 KB.
///
/// # Errors
/// Only if the library itself fails.
pub fn long_chain(root: &Authority) -> Result<Authority, TlsError> {
    let mut last = root.intermediate("one of far too many")?;
    for _ in 1..300 {
        last = last.intermediate("one of far too many")?;
    }
    Ok(last)
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
/// `:status: 200` and `:status: 103`, as HPACK writes them.
const OK: &[u8] = &[0x88];
const EARLY_HINTS: &[u8] = &[0x08, 3, b'1', b'0', b'3'];
/// Error codes: `CANCEL` and `ENHANCE_YOUR_CALM` (RFC 9113, section 7).
const CANCEL: [u8; 4] = [0, 0, 0, 8];
const CALM: [u8; 4] = [0, 0, 0, 11];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    // Attackers' frames are short.
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns answers that no client can read, by name.
pub fn floods() -> Vec<(&'static str, Frames)> {
    let ok = frame(HEADERS, END_HEADERS, 1, OK);
    let open = frame(HEADERS, 0, 1, OK);
    let field = [&[0x00, 1, b'x', 100][..], &[b'y'; 100]].concat();
    let floods = [
        ("h2-resets", Vec::new(), frame(RST_STREAM, 0, 1, &CANCEL)),
        ("h2-resets-of-nothing", Vec::new(), frame(RST_STREAM, 0, 9, &CANCEL)),
        ("h2-continuations", open.clone(), frame(CONTINUATION, 0, 1, &[0x00])),
        ("h2-large-continuations", open, frame(CONTINUATION, 0, 1, &field.repeat(100))),
        ("h2-empty-data", ok.clone(), frame(DATA, 0, 1, &[])),
        ("h2-single-bytes", ok.clone(), frame(DATA, 0, 1, b"x")),
        ("h2-padding", ok, frame(DATA, PADDED, 1, &[200; 201])),
        ("h2-settings", Vec::new(), frame(SETTINGS, 0, 0, &[])),
        ("h2-zero-windows", Vec::new(), frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])),
        ("h2-tiny-windows", Vec::new(), frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1])),
        ("h2-window-updates", Vec::new(), frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])),
        ("h2-pings", Vec::new(), frame(PING, 0, 0, &[7; 8])),
        ("h2-interim", Vec::new(), frame(HEADERS, END_HEADERS, 1, EARLY_HINTS)),
        ("h2-silence", Vec::new(), Vec::new()),
        ("h2-large-frames", Vec::new(), frame(DATA, 0, 1, &[0; 20_000])),
        ("h2-not-frames", b"HTTP/1.1 200 OK\r\n\r\n".repeat(10), Vec::new()),
    ];
    floods.into_iter().map(|(name, once, again)| (name, Frames { once, again })).collect()
}

/// Returns answers with `ENHANCE_YOUR_CALM`, for the stream and for the connection, by name.
pub fn calming() -> Vec<(&'static str, Frames)> {
    let go_away = frame(GOAWAY, 0, 0, &[[0, 0, 0, 1], CALM].concat());
    [("h2-calm-reset", frame(RST_STREAM, 0, 1, &CALM)), ("h2-calm-goaway", go_away)]
        .map(|(name, once)| (name, Frames { once, again: Vec::new() }))
        .into()
}
