//! The queue inside one process: bytes in a list behind a mutex.
//!
//! Bounded by bytes: a publisher waits for room. Nothing survives the process; the lease of each job and the store's
//! versions repair that, as they repair a lost message anywhere.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use tokio::sync::Notify;

use super::{Delivery, Message, Queue, QueueDepth, QueueError, Receipt, decode, encode};

/// Dead letters that are kept for a look; older ones go.
const DEAD_LETTERS_KEPT: usize = 100;

/// A queue of `T` inside this process.
pub struct MemoryQueue<T> {
    shared: Arc<Shared>,
    items: PhantomData<fn() -> T>,
}

struct Shared {
    state: Mutex<State>,
    capacity: usize,
    arrived: Notify,
    left: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Stored>,
    unacked: usize,
    bytes: usize,
    dead: VecDeque<Vec<u8>>,
    dead_total: u64,
}

struct Stored {
    bytes: Vec<u8>,
    items: usize,
    deliveries: u32,
}

impl<T: Message> MemoryQueue<T> {
    /// An empty queue that holds up to `capacity` bytes of messages; a larger message passes when it is alone.
    pub fn new(capacity: usize) -> Self {
        let shared = Shared { state: Mutex::default(), capacity, arrived: Notify::new(), left: Notify::new() };
        MemoryQueue { shared: Arc::new(shared), items: PhantomData }
    }

    /// Messages that went to the dead letters since the start.
    pub fn dead_letters(&self) -> u64 {
        self.shared.lock().dead_total
    }

    /// Puts raw bytes into the queue, as another program would.
    #[cfg(test)]
    fn publish_bytes(&self, bytes: Vec<u8>, items: usize) {
        self.shared.lock().waiting.push_back(Stored { bytes, items, deliveries: 0 });
        self.shared.arrived.notify_one();
    }

    fn take(&self) -> Option<Delivery<T>> {
        loop {
            let mut state = self.shared.lock();
            let mut stored = state.waiting.pop_front()?;
            stored.deliveries += 1;
            let worn_out = T::DELIVERY_LIMIT.is_some_and(|limit| stored.deliveries > limit);
            match decode::<T>(&stored.bytes) {
                Ok(items) if !worn_out => {
                    state.unacked += stored.items;
                    if !state.waiting.is_empty() {
                        self.shared.arrived.notify_one();
                    }
                    drop(state);
                    let redelivered = stored.deliveries > 1;
                    let receipt = MemoryReceipt { shared: Arc::clone(&self.shared), stored: Some(stored) };
                    return Some(Delivery::new(items, redelivered, Box::new(receipt)));
                }
                outcome => {
                    let reason = outcome.err().map_or("delivered too often".to_owned(), |error| error.to_string());
                    tracing::error!(queue = T::QUEUE, reason, "message moved to the dead letters");
                    state.bury(stored.bytes);
                    drop(state);
                    self.shared.left.notify_waiters();
                }
            }
        }
    }
}

#[async_trait]
impl<T: Message> Queue<T> for MemoryQueue<T> {
    async fn publish(&self, items: &[T]) -> Result<(), QueueError> {
        let bytes = encode(items)?;
        loop {
            let left = self.shared.left.notified();
            tokio::pin!(left);
            left.as_mut().enable();
            {
                let mut state = self.shared.lock();
                if state.bytes == 0 || state.bytes + bytes.len() <= self.shared.capacity {
                    state.bytes += bytes.len();
                    state.waiting.push_back(Stored { bytes, items: items.len(), deliveries: 0 });
                    break;
                }
            }
            left.await;
        }
        self.shared.arrived.notify_one();
        Ok(())
    }

    async fn receive(&self) -> Result<Delivery<T>, QueueError> {
        loop {
            let arrived = self.shared.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            if let Some(delivery) = self.take() {
                return Ok(delivery);
            }
            arrived.await;
        }
    }

    async fn pause(&self) {
        // Nothing is sent ahead: what nobody took lies in the queue.
    }

    async fn depth(&self) -> Result<QueueDepth, QueueError> {
        let state = self.shared.lock();
        let waiting: usize = state.waiting.iter().map(|stored| stored.items).sum();
        Ok(QueueDepth { items: waiting + state.unacked, consumers: None })
    }

    async fn check(&self) -> Result<(), QueueError> {
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        crate::lock(&self.state)
    }
}

impl State {
    fn bury(&mut self, bytes: Vec<u8>) {
        self.bytes -= bytes.len().min(self.bytes);
        self.dead_total += 1;
        self.dead.push_back(bytes);
        if self.dead.len() > DEAD_LETTERS_KEPT {
            self.dead.pop_front();
        }
    }
}

struct MemoryReceipt {
    shared: Arc<Shared>,
    /// `None` once acked.
    stored: Option<Stored>,
}

#[async_trait]
impl Receipt for MemoryReceipt {
    async fn ack(mut self: Box<Self>) -> Result<(), QueueError> {
        if let Some(stored) = self.stored.take() {
            let mut state = self.shared.lock();
            state.unacked -= stored.items;
            state.bytes -= stored.bytes.len().min(state.bytes);
            drop(state);
            self.shared.left.notify_waiters();
        }
        Ok(())
    }
}

impl Drop for MemoryReceipt {
    fn drop(&mut self) {
        if let Some(stored) = self.stored.take() {
            let mut state = self.shared.lock();
            state.unacked -= stored.items;
            state.waiting.push_front(stored);
            drop(state);
            self.shared.arrived.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::conformance;
    use crate::report::FetchReport;

    crate::queue_conformance!(async || Box::new(MemoryQueue::new(1 << 20)), async |_| {});

    #[tokio::test]
    async fn an_undecodable_or_newer_message_is_buried_and_blocks_nothing() {
        let queue = MemoryQueue::<FetchReport>::new(1 << 20);
        queue.publish_bytes(b"not json".to_vec(), 1);
        queue.publish_bytes(br#"{"v":2,"items":[]}"#.to_vec(), 1);
        queue.publish(&[conformance::report(1)]).await.unwrap();
        let delivery = queue.receive().await.unwrap();
        assert_eq!(delivery.items, [conformance::report(1)]);
        assert_eq!(queue.dead_letters(), 2);
    }

    #[tokio::test]
    async fn a_publisher_waits_for_room_and_a_large_message_passes_alone() {
        let queue = Arc::new(MemoryQueue::<FetchReport>::new(10));
        queue.publish(&[conformance::report(1)]).await.unwrap();
        let publisher = Arc::clone(&queue);
        let second = tokio::spawn(async move { publisher.publish(&[conformance::report(2)]).await });
        tokio::task::yield_now().await;
        assert_eq!(queue.depth().await.unwrap().items, 1);
        queue.receive().await.unwrap().ack().await.unwrap();
        second.await.unwrap().unwrap();
        assert_eq!(queue.receive().await.unwrap().items, [conformance::report(2)]);
    }
}
