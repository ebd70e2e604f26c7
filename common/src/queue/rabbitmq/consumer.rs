//! The receiving half of a queue: a consumer at the broker while a caller receives, and the messages that were
//! prefetched.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::types::AMQPValue;
use lapin::{BasicProperties, Consumer};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::backoff::Backoff;
use super::error::BrokerError;
use super::link::View;
use super::missing_right::MissingRight;
use super::session::Session;
use super::tags::Settling;
use super::topology::Topology;

/// A channel that lived this long starts a new row of attempts.
const SETTLED: Duration = Duration::from_secs(5);
/// How long the broker may take to send no more.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the broker may send ahead.
#[derive(Clone, Copy, Debug)]
pub enum Prefetch {
    /// The maximum number of unacknowledged messages.
    Unacked(u16),
    /// The maximum number of messages that were not taken yet: for a receiver that itself takes no more than it can
    /// work on. A message of several jobs is acked after the slowest, and must not stop others from coming meanwhile.
    Untaken(u16),
}

impl Prefetch {
    /// Returns what one consumer may have unacked.
    fn window(self) -> u16 {
        let (Prefetch::Unacked(messages) | Prefetch::Untaken(messages)) = self;
        messages.max(1)
    }
}

/// Receives from one queue. Nothing is consumed before the first [`next`](Self::next), nor between a
/// [`pause`](Self::pause) and the next one.
pub(super) struct Receiving {
    inbox: Arc<Inbox>,
    view: View,
    topology: Topology,
    prefetch: Prefetch,
    pump: tokio::sync::Mutex<Option<Pumping>>,
    closed: AtomicBool,
}

/// A pump that runs, or is about to end.
struct Pumping {
    quiet: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// A message that arrived.
pub(super) struct Arrived {
    pub(super) bytes: Vec<u8>,
    pub(super) redelivered: bool,
    /// How often the message came back to its queue, as far as the broker counts that.
    pub(super) returns: u64,
    pub(super) at: Instant,
    pub(super) ack_handle: AckHandle,
}

/// What settles a message. Dropped unsettled, the message is returned.
pub(super) struct AckHandle {
    session: Arc<Session>,
    tag: u64,
    settled: bool,
    _place: InWindow,
}

/// One of a consumer's unacked messages; no longer when dropped.
struct InWindow(Arc<AtomicUsize>);

#[derive(Default)]
struct Inbox {
    waiting: Mutex<VecDeque<Arrived>>,
    arrived: Notify,
    /// A caller waits for a message, and there is none.
    wanted: Notify,
    /// The channel in use, or the last one.
    session: Mutex<Option<Arc<Session>>>,
    count: AtomicUsize,
    missing_right: MissingRight,
}

impl Receiving {
    pub(super) fn new(view: View, topology: Topology, prefetch: Prefetch) -> Self {
        let (pump, closed) = (tokio::sync::Mutex::default(), AtomicBool::new(false));
        Receiving { inbox: Arc::default(), view, topology, prefetch, pump, closed }
    }

    /// Returns the next message; waits for one, and for the broker.
    pub(super) async fn next(&self) -> Result<Arrived, BrokerError> {
        loop {
            let arrived = self.inbox.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            if self.closed.load(Ordering::Acquire) {
                return Err(BrokerError::Closed);
            }
            if let Some(message) = self.inbox.take() {
                return Ok(message);
            }
            self.start().await?;
            self.inbox.wanted.notify_one();
            arrived.await;
        }
    }

    /// Returns the number of messages that arrived and were not taken yet.
    pub(super) fn waiting(&self) -> usize {
        self.inbox.count.load(Ordering::Relaxed)
    }

    /// Returns an error if this process's user may not receive.
    pub(super) fn check(&self) -> Result<(), BrokerError> {
        self.inbox.missing_right.check()
    }

    /// Receives no more, and returns messages that were not taken. Those that were taken can still be acked.
    pub(super) async fn quiet(&self) {
        self.closed.store(true, Ordering::Release);
        self.inbox.arrived.notify_waiters();
        self.pause().await;
    }

    /// Cancels the consumer and returns the messages that were not taken. Those that were taken can still be acked. A
    /// caller that is waiting for a message, or comes later, starts a new consumer.
    pub(super) async fn pause(&self) {
        let mut pump = self.pump.lock().await;
        end(&mut pump).await;
        let session = self.inbox.session().clone();
        if let Some(session) = session {
            session.flush().await;
        }
        drop(pump);
        self.inbox.arrived.notify_waiters();
    }

    /// Returns the channel over which messages came last.
    #[cfg(test)]
    pub(super) fn channel(&self) -> Arc<Session> {
        self.inbox.session().clone().expect("something was received")
    }

    /// Makes sure that a pump runs.
    async fn start(&self) -> Result<(), BrokerError> {
        let mut pump = self.pump.lock().await;
        if self.closed.load(Ordering::Acquire) {
            return Err(BrokerError::Closed);
        }
        // A pause that was given up half-way.
        if pump.as_ref().is_some_and(|pumping| *pumping.quiet.borrow()) {
            end(&mut pump).await;
        }
        if pump.is_none() {
            let (quiet, quieted) = watch::channel(false);
            let runs = Pump {
                inbox: Arc::clone(&self.inbox),
                view: self.view.clone(),
                topology: self.topology.clone(),
                prefetch: self.prefetch,
                quiet: quieted,
            };
            *pump = Some(Pumping { quiet, task: tokio::spawn(runs.run()) });
        }
        Ok(())
    }
}

/// Ends the pump, if one runs, and returns when it has ended.
async fn end(pump: &mut Option<Pumping>) {
    if let Some(Pumping { quiet, task }) = pump {
        quiet.send_replace(true);
        // It never panics; and if it did, it would be over.
        let _ = task.await;
        *pump = None;
    }
}

impl AckHandle {
    /// Reports the outcome of the message to the broker.
    pub(super) fn settle(mut self, settling: Settling) -> Result<(), BrokerError> {
        self.settled = true;
        self.session.settle(self.tag, settling)
    }
}

impl Drop for AckHandle {
    fn drop(&mut self) {
        if !self.settled {
            // If the channel is gone, the broker redelivers the message.
            let _ = self.session.settle(self.tag, Settling::Returned);
        }
    }
}

impl InWindow {
    fn one_more(window: &Arc<AtomicUsize>) -> Self {
        window.fetch_add(1, Ordering::Relaxed);
        InWindow(Arc::clone(window))
    }
}

impl Drop for InWindow {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Inbox {
    fn put(&self, message: Arrived) {
        let mut waiting = self.lock();
        waiting.push_back(message);
        self.count.store(waiting.len(), Ordering::Relaxed);
        drop(waiting);
        self.arrived.notify_one();
    }

    fn take(&self) -> Option<Arrived> {
        let mut waiting = self.lock();
        let message = waiting.pop_front()?;
        self.count.store(waiting.len(), Ordering::Relaxed);
        if !waiting.is_empty() {
            self.arrived.notify_one();
        }
        Some(message)
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Returns the messages that were not taken.
    fn empty(&self) {
        let waiting = std::mem::take(&mut *self.lock());
        self.count.store(0, Ordering::Relaxed);
        for message in waiting {
            // If the channel is gone, the broker redelivers the message.
            let _ = message.ack_handle.settle(Settling::Unseen);
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arrived>> {
        crate::lock(&self.waiting)
    }

    /// From now on messages come over this channel; the one before lives until what came over it is settled.
    fn begin_session(&self, session: &Arc<Session>) {
        let before = self.session().replace(Arc::clone(session));
        if let Some(before) = before {
            before.retire();
        }
    }

    fn end_session(&self) {
        if let Some(session) = &*self.session() {
            session.end();
        }
    }

    fn session(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        crate::lock(&self.session)
    }
}

/// Keeps a consumer at the broker and moves its messages into the inbox.
struct Pump {
    inbox: Arc<Inbox>,
    view: View,
    topology: Topology,
    prefetch: Prefetch,
    quiet: watch::Receiver<bool>,
}

impl Pump {
    async fn run(self) {
        self.pump().await;
        self.inbox.empty();
        if self.quiet.has_changed().is_err() {
            // The queue was dropped: nothing else will close it.
            self.inbox.end_session();
        }
    }

    async fn pump(&self) {
        let mut backoff = Backoff::new();
        let mut failing = false;
        loop {
            let opened = tokio::select! {
                opened = self.open() => opened,
                () = self.quieted() => return,
            };
            self.inbox.missing_right.note(&opened);
            match opened {
                Ok((session, consumer)) => {
                    failing = false;
                    let begun = Instant::now();
                    self.inbox.begin_session(&session);
                    if self.consume(&session, consumer).await.is_break() {
                        return;
                    }
                    if begun.elapsed() > SETTLED {
                        backoff = Backoff::new();
                    }
                }
                Err(BrokerError::Closed) => return,
                // The link itself says when the broker is lost.
                Err(_) if self.view.live().is_err() => {}
                Err(trouble) => {
                    if !std::mem::replace(&mut failing, true) {
                        let error = &trouble as &dyn std::error::Error;
                        tracing::error!(queue = self.topology.queue.as_str(), error, "cannot receive; trying again");
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.delay()) => {}
                () = self.quieted() => return,
            }
        }
    }

    async fn open(&self) -> Result<(Arc<Session>, Consumer), BrokerError> {
        let live = self.view.up().await?;
        Session::open(&live, &self.view, &self.topology, self.prefetch.window()).await
    }

    /// Moves messages into the inbox until the channel ends, or breaks off when no more are wanted.
    async fn consume(&self, session: &Arc<Session>, mut consumer: Consumer) -> ControlFlow<()> {
        let mut window = Arc::<AtomicUsize>::default();
        loop {
            let next = tokio::select! {
                next = consumer.next() => next,
                () = self.quieted() => {
                    self.cancel(session, consumer, &window).await;
                    return ControlFlow::Break(());
                }
                () = self.inbox.wanted.notified() => {
                    if !self.is_narrow(&window) {
                        continue;
                    }
                    // Unacknowledged messages count for the old consumer, to the broker too.
                    if !self.cancel(session, consumer, &window).await {
                        break;
                    }
                    let Ok(anew) = session.consume(&self.topology).await else { break };
                    // What comes over a session that ended meanwhile can never be acked.
                    if session.is_over() {
                        break;
                    }
                    (consumer, window) = (anew, Arc::default());
                    continue;
                }
            };
            let Some(Ok(delivery)) = next else { break };
            self.inbox.put(arrived(session, delivery, &window));
        }
        session.end();
        self.inbox.empty();
        ControlFlow::Continue(())
    }

    /// Returns true if no message waits and those that were taken fill three quarters of the window: only messages that
    /// were taken make a receiver wait.
    fn is_narrow(&self, window: &AtomicUsize) -> bool {
        let unacked = window.load(Ordering::Relaxed);
        matches!(self.prefetch, Prefetch::Untaken(most) if self.inbox.is_empty() && 4 * unacked >= 3 * usize::from(most))
    }

    /// Makes the broker send no more, and takes what was in flight. Returns false if the broker did not answer in time: the
    /// session ends then, and its messages come again.
    async fn cancel(&self, session: &Arc<Session>, mut consumer: Consumer, window: &Arc<AtomicUsize>) -> bool {
        let cancelled = async {
            session.cancel(&consumer).await?;
            while let Some(Ok(delivery)) = consumer.next().await {
                self.inbox.put(arrived(session, delivery, window));
            }
            Ok::<(), BrokerError>(())
        };
        let answered = matches!(tokio::time::timeout(PATIENCE, cancelled).await, Ok(Ok(())));
        if !answered {
            session.end();
        }
        answered
    }

    /// Returns when no more messages are wanted; an error means that the queue was dropped.
    async fn quieted(&self) {
        let _ = self.quiet.clone().wait_for(|quiet| *quiet).await;
    }
}

fn arrived(session: &Arc<Session>, delivery: Delivery, window: &Arc<AtomicUsize>) -> Arrived {
    let tag = delivery.delivery_tag;
    session.arrived(tag);
    let ack_handle =
        AckHandle { session: Arc::clone(session), tag, settled: false, _place: InWindow::one_more(window) };
    let returns = returns(&delivery.properties);
    Arrived { bytes: delivery.data, redelivered: delivery.redelivered, returns, at: Instant::now(), ack_handle }
}

/// Reads the count that quorum queues add to a redelivered message.
fn returns(properties: &BasicProperties) -> u64 {
    let count = properties.headers().as_ref().and_then(|headers| headers.inner().get("x-delivery-count"));
    count.and_then(AMQPValue::as_long_long_int).and_then(|count| u64::try_from(count).ok()).unwrap_or(0)
}
