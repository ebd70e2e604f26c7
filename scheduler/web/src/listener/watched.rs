//! What a connection is doing, as its deadline depends on it: seen from the bytes that pass and the responses that end.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::limits::Limits;

/// How often a busy connection is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What a connection is doing.
#[derive(Debug)]
pub(super) struct Activity(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Requests whose response has not ended; HTTP/1.1 has one at a time.
    busy: bool,
    /// Part of the next request's head has arrived. True at first: a client connects to send a request.
    heard: bool,
    /// Since when it waits: for a head, or for its end.
    since: Instant,
    /// Since when the caller takes nothing.
    stalled: Option<Instant>,
}

impl Activity {
    /// Returns a connection that was opened now.
    pub(super) fn opened() -> Self {
        Activity(Mutex::new(State { busy: false, heard: true, since: Instant::now(), stalled: None }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        common::lock(&self.0)
    }

    /// Returns since when the connection waits for a request; `None` while it answers one, or its caller has yet to take
    /// the end of a response.
    pub(super) fn waiting_since(&self) -> Option<Instant> {
        let state = self.state();
        (!state.busy && state.stalled.is_none()).then_some(state.since)
    }

    /// Returns whether it was opened for a request, or has begun one, whose head is not complete.
    pub(super) fn awaits_request(&self) -> bool {
        let state = self.state();
        !state.busy && state.heard
    }

    /// Returns when to close the connection, as far as is known now.
    pub(super) fn deadline(&self, limits: &Limits) -> Instant {
        let state = self.state();
        match (state.busy, state.heard, state.stalled) {
            (_, _, Some(since)) => since + limits.stalled,
            (true, _, None) => Instant::now() + LOOK_EVERY.min(limits.stalled),
            (false, true, None) => state.since + limits.head,
            // It may begin a request meanwhile, and has less time then.
            (false, false, None) => (state.since + limits.idle).min(Instant::now() + LOOK_EVERY.min(limits.head)),
        }
    }

    /// A head has arrived; the connection is busy until what is returned is dropped.
    pub(super) fn answering(self: &Arc<Self>) -> Answered {
        self.state().busy = true;
        Answered(Arc::clone(self))
    }

    fn read(&self) {
        let mut state = self.state();
        if !state.busy && !state.heard {
            (state.heard, state.since) = (true, Instant::now());
        }
    }

    fn written(&self, pending: bool) {
        let mut state = self.state();
        state.stalled = pending.then(|| state.stalled.unwrap_or_else(Instant::now));
    }
}

/// Ends a response when dropped.
pub(super) struct Answered(Arc<Activity>);

impl Drop for Answered {
    fn drop(&mut self) {
        let mut state = self.0.state();
        (state.busy, state.heard, state.since) = (false, false, Instant::now());
    }
}

/// A connection whose bytes are noticed.
pub(super) struct Watched {
    stream: TcpStream,
    activity: Arc<Activity>,
}

impl Watched {
    pub(super) fn new(stream: TcpStream, activity: Arc<Activity>) -> Self {
        Watched { stream, activity }
    }

    fn noted<T>(&self, written: Poll<T>) -> Poll<T> {
        self.activity.written(written.is_pending());
        written
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.activity.read();
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.noted(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_has_bytes_to_send_does_not_wait() {
        let activity = Arc::new(Activity::opened());
        assert!(activity.waiting_since().is_some());
        let answered = activity.answering();
        activity.written(true);
        drop(answered);
        assert_eq!(activity.waiting_since(), None);
        activity.written(false);
        assert!(activity.waiting_since().is_some());
    }
}
