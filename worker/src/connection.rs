//! A connection under the HTTP client: TCP, or TLS over it, that does not wait for silent servers for ever.

use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection as Connect};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::client::TlsStream;

use crate::budget::Unit;
use crate::go_away::{Calm, Exchange};

/// An open connection.
pub(crate) struct Connection {
    stream: Stream,
    idle_timeout: Duration,
    timer: Pin<Box<Sleep>>,
    /// The timer runs: a read found nothing, and nothing was read since. What is written starts it again.
    waiting: bool,
    peer: Peer,
    /// Of a connection that speaks HTTP/2.
    watch: Option<Exchange>,
    _open: OpenConnection,
}

/// The server at the other end, for the code that sends over the connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// The unit that counts its requests, if any.
    pub(crate) unit: Option<Unit>,
    /// The server requested fewer requests.
    pub(crate) calm: Calm,
    /// When the connection could take its first request.
    pub(crate) opened: Instant,
    was_used: Arc<AtomicBool>,
}

impl Peer {
    pub(crate) fn new(unit: Option<Unit>) -> Self {
        Peer { unit, calm: Calm::default(), opened: Instant::now(), was_used: Arc::default() }
    }

    /// Whether the connection was used before; it counts as used from now on.
    pub(crate) fn is_kept(&self) -> bool {
        self.was_used.swap(true, Ordering::Relaxed)
    }
}

/// Bytes that are received at once: fewer than hyper's first read buffer (8 KiB) holds. hyper doubles it whenever a read fills it, and an
/// idle connection keeps the last one.
const RECEIVED: usize = 8 * 1024 - 1;

/// How many connections are open.
#[derive(Clone, Default)]
pub(crate) struct OpenConnections(Arc<AtomicUsize>);

/// Counts itself while it exists.
struct OpenConnection(OpenConnections);

impl OpenConnections {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl OpenConnection {
    fn of(all: &OpenConnections) -> Self {
        all.0.fetch_add(1, Ordering::Relaxed);
        OpenConnection(all.clone())
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

enum Stream {
    Plain(TokioIo<TcpStream>),
    Secure(Box<TokioIo<TlsStream<TcpStream>>>),
}

impl Stream {
    fn speaks_http2(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            Stream::Secure(stream) => stream.inner().get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }
}

/// Nothing arrived for this time. Inside of an [`io::Error`].
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("silence for {}", humantime::format_duration(*.0))]
pub(crate) struct Silence(pub(crate) Duration);

impl Connection {
    pub(crate) fn plain(stream: TcpStream, idle_timeout: Duration, open: &OpenConnections, peer: Peer) -> Self {
        Self::new(Stream::Plain(TokioIo::new(stream)), idle_timeout, open, peer)
    }

    pub(crate) fn secure(
        stream: TlsStream<TcpStream>,
        idle_timeout: Duration,
        open: &OpenConnections,
        mut peer: Peer,
        max_informational: u32,
    ) -> Self {
        let stream = Stream::Secure(Box::new(TokioIo::new(stream)));
        let most_interim = usize::try_from(max_informational).unwrap_or(usize::MAX);
        let watch = stream.speaks_http2().then(|| Exchange::new(most_interim));
        peer.calm = watch.as_ref().map_or_else(Calm::default, Exchange::calm);
        Connection { watch, ..Self::new(stream, idle_timeout, open, peer) }
    }

    fn new(stream: Stream, idle_timeout: Duration, open: &OpenConnections, peer: Peer) -> Self {
        let timer = Box::pin(sleep(idle_timeout));
        Connection { stream, idle_timeout, timer, waiting: false, peer, watch: None, _open: OpenConnection::of(open) }
    }

    fn start_timer(&mut self) {
        self.timer.as_mut().reset(Instant::now() + self.idle_timeout);
    }

    fn wait_on(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.waiting {
            self.waiting = true;
            self.start_timer();
        }
        ready!(self.timer.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, Silence(self.idle_timeout))))
    }
}

impl Connect for Connection {
    fn connected(&self) -> Connected {
        let connected = Connected::new().extra(self.peer.clone());
        if self.stream.speaks_http2() { connected.negotiated_h2() } else { connected }
    }
}

impl Read for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let connection = self.get_mut();
        let mut received = [const { MaybeUninit::uninit() }; RECEIVED];
        let room = buffer.remaining().min(RECEIVED);
        let mut ours = ReadBuf::uninit(&mut received[..room]);
        let read = match &mut connection.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, ours.unfilled()),
            Stream::Secure(stream) => Pin::new(stream.as_mut()).poll_read(cx, ours.unfilled()),
        };
        if let Some(watch) = &mut connection.watch
            && let Err(flood) = watch.received(ours.filled())
        {
            return Poll::Ready(Err(flood));
        }
        buffer.put_slice(ours.filled());
        if read.is_pending() {
            return connection.wait_on(cx);
        }
        connection.waiting = false;
        read
    }
}

impl Write for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let connection = self.get_mut();
        // A client that waits for the response has begun to read before it sends its request.
        if connection.waiting {
            connection.start_timer();
        }
        let written = match &mut connection.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buffer),
            Stream::Secure(stream) => Pin::new(stream.as_mut()).poll_write(cx, buffer),
        };
        if let (Some(watch), Poll::Ready(Ok(written))) = (&mut connection.watch, &written) {
            watch.sent(&buffer[..*written]);
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Secure(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Secure(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }
}
