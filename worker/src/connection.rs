//! A connection under the HTTP client: TCP, or TLS over it, that does not wait for silent servers for ever.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection as Connect};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::client::TlsStream;

/// An open connection.
pub(crate) struct Connection {
    stream: Stream,
    idle_timeout: Duration,
    timer: Pin<Box<Sleep>>,
    /// The timer runs: a read found nothing, and nothing was read or written since.
    waiting: bool,
    _open: OpenConnection,
}

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

/// Nothing came for so long. Inside of an [`io::Error`].
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("silence for {}", humantime::format_duration(*.0))]
pub(crate) struct Silence(pub(crate) Duration);

impl Connection {
    pub(crate) fn plain(stream: TcpStream, idle_timeout: Duration, open: &OpenConnections) -> Self {
        Self::new(Stream::Plain(TokioIo::new(stream)), idle_timeout, open)
    }

    pub(crate) fn secure(stream: TlsStream<TcpStream>, idle_timeout: Duration, open: &OpenConnections) -> Self {
        Self::new(Stream::Secure(Box::new(TokioIo::new(stream))), idle_timeout, open)
    }

    fn new(stream: Stream, idle_timeout: Duration, open: &OpenConnections) -> Self {
        let timer = Box::pin(sleep(idle_timeout));
        Connection { stream, idle_timeout, timer, waiting: false, _open: OpenConnection::of(open) }
    }

    fn wait_on(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.waiting {
            self.waiting = true;
            self.timer.as_mut().reset(Instant::now() + self.idle_timeout);
        }
        ready!(self.timer.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, Silence(self.idle_timeout))))
    }
}

impl Connect for Connection {
    fn connected(&self) -> Connected {
        let negotiated = match &self.stream {
            Stream::Plain(_) => None,
            Stream::Secure(stream) => stream.inner().get_ref().1.alpn_protocol(),
        };
        if negotiated == Some(b"h2") { Connected::new().negotiated_h2() } else { Connected::new() }
    }
}

impl Read for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let connection = self.get_mut();
        let read = match &mut connection.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Secure(stream) => Pin::new(stream.as_mut()).poll_read(cx, buffer),
        };
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
        connection.waiting = false;
        match &mut connection.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buffer),
            Stream::Secure(stream) => Pin::new(stream.as_mut()).poll_write(cx, buffer),
        }
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
