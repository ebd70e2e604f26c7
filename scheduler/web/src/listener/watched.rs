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

/// Bytes that a caller must take of a response that waits for it, in the time after which it counts as stalled: 2 KB a second, which
/// the slowest mobile networks have. A caller that took a byte now and then would hold a page in memory for days. A response that does not
/// wait, such as a stream without news, is not measured.
const LEAST: usize = 64 << 10;

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
    /// Part of a response waits for the caller to take what was sent.
    stalled: Option<Stall>,
}

#[derive(Clone, Copy, Debug)]
struct Stall {
    since: Instant,
    /// Bytes that were taken since then, fewer than [`LEAST`].
    taken: usize,
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
            (_, _, Some(stall)) => stall.since + limits.stalled,
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

    /// The caller has room for this many bytes more.
    fn written(&self, bytes: usize) {
        let mut state = self.state();
        let further = |stall: Stall| Stall { taken: stall.taken.saturating_add(bytes), ..stall };
        state.stalled = state.stalled.map(further).filter(|stall| stall.taken < LEAST);
    }

    /// The caller has no room.
    fn waits_for_room(&self) {
        let mut state = self.state();
        state.stalled = state.stalled.or_else(|| Some(Stall { since: Instant::now(), taken: 0 }));
    }

    /// Nothing waits any more.
    fn all_written(&self) {
        self.state().stalled = None;
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

    fn noted(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Pending => self.activity.waits_for_room(),
            Poll::Ready(Ok(bytes)) => self.activity.written(*bytes),
            Poll::Ready(Err(_)) => {}
        }
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

    /// Called when all that there is was written.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.activity.all_written();
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
        activity.waits_for_room();
        drop(answered);
        assert_eq!(activity.waiting_since(), None);
        activity.written(1);
        assert_eq!(activity.waiting_since(), None);
        activity.all_written();
        assert!(activity.waiting_since().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_a_little_now_and_then_is_as_late_as_who_takes_nothing() {
        let limits = Limits::new(1, 1);
        let activity = Arc::new(Activity::opened());
        let _answered = activity.answering();
        activity.waits_for_room();
        let deadline = Instant::now() + limits.stalled;
        for _ in 0..4 {
            tokio::time::advance(limits.stalled / 5).await;
            activity.written(LEAST / 5);
            activity.waits_for_room();
            assert_eq!(activity.deadline(&limits), deadline);
        }
        activity.written(LEAST / 2);
        activity.waits_for_room();
        assert_eq!(
            activity.deadline(&limits),
            Instant::now() + limits.stalled,
            "it took enough, and has as long again"
        );
    }

    /// A stream sends little, and its reader has taken all of it.
    #[tokio::test(start_paused = true)]
    async fn who_has_taken_all_that_there_is_is_not_late() {
        let limits = Limits::new(1, 1);
        let activity = Arc::new(Activity::opened());
        let _answered = activity.answering();
        activity.waits_for_room();
        activity.written(10);
        activity.all_written();
        tokio::time::advance(10 * limits.stalled).await;
        assert!(activity.deadline(&limits) > Instant::now());
        activity.written(10);
        assert!(activity.deadline(&limits) > Instant::now());
    }
}
