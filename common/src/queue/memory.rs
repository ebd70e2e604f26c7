//! The queue inside one process: items in a list behind a mutex.
//!
//! Bounded by bytes, as the items estimate their own size: a publisher waits for room. Items are copied when they are delivered, so
//! that a delivery that is dropped can come again; they are never encoded, and nothing but list operations happens under the mutex.
//! Nothing survives the process; the lease of each job and the store's versions repair that, as they repair a lost message anywhere.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use tokio::sync::Notify;

use super::{Delivery, Message, Queue, QueueDepth, QueueError, Receipt};

/// A queue of `T` inside this process.
pub struct MemoryQueue<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    capacity: usize,
    arrived: Notify,
    left: Notify,
}

struct State<T> {
    waiting: VecDeque<Stored<T>>,
    /// Items that wait or are unacknowledged.
    items: usize,
    /// The size of the messages that are not acknowledged yet.
    bytes: usize,
    dead_total: u64,
}

/// A message.
struct Stored<T> {
    items: Vec<T>,
    bytes: usize,
    deliveries: u32,
}

impl<T: Message> MemoryQueue<T> {
    /// Returns an empty queue that holds up to `capacity` bytes of messages; a larger message passes when it is alone.
    pub fn new(capacity: usize) -> Self {
        let state = State { waiting: VecDeque::new(), items: 0, bytes: 0, dead_total: 0 };
        let shared = Shared { state: Mutex::new(state), capacity, arrived: Notify::new(), left: Notify::new() };
        MemoryQueue { shared: Arc::new(shared) }
    }

    /// Returns the number of messages that were discarded since the start because they were delivered too often.
    pub fn dead_letters(&self) -> u64 {
        self.shared.lock().dead_total
    }

    fn take(&self) -> Option<Delivery<T>> {
        loop {
            let mut state = self.shared.lock();
            let mut stored = state.waiting.pop_front()?;
            if !state.waiting.is_empty() {
                self.shared.arrived.notify_one();
            }
            stored.deliveries += 1;
            if T::DELIVERY_LIMIT.is_none_or(|limit| stored.deliveries <= limit) {
                drop(state);
                let (items, redelivered) = (stored.items.clone(), stored.deliveries > 1);
                let receipt = MemoryReceipt { shared: Arc::clone(&self.shared), stored: Some(stored) };
                return Some(Delivery::new(items, redelivered, Box::new(receipt)));
            }
            state.dead_total += 1;
            state.forget(&stored);
            drop(state);
            tracing::error!(queue = T::QUEUE, reason = "delivered too often", "message moved to the dead letters");
            self.shared.left.notify_waiters();
        }
    }
}

#[async_trait]
impl<T: Message> Queue<T> for MemoryQueue<T> {
    async fn publish(&self, items: &[T]) -> Result<(), QueueError> {
        let bytes = items.iter().map(Message::memory_bytes).sum();
        loop {
            let left = self.shared.left.notified();
            tokio::pin!(left);
            left.as_mut().enable();
            if self.shared.reserve(items.len(), bytes) {
                break;
            }
            left.await;
        }
        // Copied only once there is room, so that publishers that wait for it have no second copy.
        let stored = Stored { items: items.to_vec(), bytes, deliveries: 0 };
        self.shared.lock().waiting.push_back(stored);
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
        // Nothing is prefetched: messages that were not taken are in the queue.
    }

    async fn depth(&self) -> Result<QueueDepth, QueueError> {
        Ok(QueueDepth { items: self.shared.lock().items, ..QueueDepth::default() })
    }

    async fn check(&self) -> Result<(), QueueError> {
        Ok(())
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        crate::lock(&self.state)
    }

    /// Reserves room for a message, if there is any.
    fn reserve(&self, items: usize, bytes: usize) -> bool {
        let mut state = self.lock();
        let fits = state.bytes == 0 || state.bytes + bytes <= self.capacity;
        if fits {
            state.bytes += bytes;
            state.items += items;
        }
        fits
    }
}

impl<T> State<T> {
    /// Releases the room of a message.
    fn forget(&mut self, stored: &Stored<T>) {
        self.bytes -= stored.bytes;
        self.items -= stored.items.len();
    }
}

struct MemoryReceipt<T> {
    shared: Arc<Shared<T>>,
    /// `None` once acked.
    stored: Option<Stored<T>>,
}

#[async_trait]
impl<T: Message> Receipt for MemoryReceipt<T> {
    async fn ack(mut self: Box<Self>) -> Result<(), QueueError> {
        if let Some(stored) = self.stored.take() {
            self.shared.lock().forget(&stored);
            self.shared.left.notify_waiters();
        }
        Ok(())
    }
}

impl<T> Drop for MemoryReceipt<T> {
    fn drop(&mut self) {
        if let Some(stored) = self.stored.take() {
            self.shared.lock().waiting.push_front(stored);
            self.shared.arrived.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::document::Document;
    use crate::entry::Entry;
    use crate::job::FetchJob;
    use crate::push::PushedBody;
    use crate::queue::conformance;
    use crate::report::{FetchReport, Outcome};

    crate::queue_conformance!(async || Box::new(MemoryQueue::new(1 << 20)), async |_| {});

    #[tokio::test]
    async fn a_message_delivered_too_often_is_counted_and_gives_its_room_back() {
        let limit = FetchJob::DELIVERY_LIMIT.unwrap();
        let queue = MemoryQueue::<FetchJob>::new(10);
        queue.publish(&[conformance::job(1)]).await.unwrap();
        for _ in 0..limit {
            drop(queue.receive().await.unwrap());
        }
        assert!(queue.receive().now_or_never().is_none());
        assert_eq!((queue.dead_letters(), queue.depth().await.unwrap().items), (1, 0));
        queue.publish(&[conformance::job(2)]).now_or_never().expect("there is room").unwrap();
        assert_eq!(queue.receive().await.unwrap().items, [conformance::job(2)]);
    }

    #[tokio::test]
    async fn a_delivery_that_was_changed_comes_again_as_it_was_published() {
        let queue = MemoryQueue::<FetchReport>::new(1 << 20);
        let published = [conformance::report(1), conformance::report(2)];
        queue.publish(&published).await.unwrap();
        let mut delivery = queue.receive().await.unwrap();
        delivery.items.pop();
        drop(delivery);
        assert_eq!(queue.receive().await.unwrap().items, published);
    }

    #[test]
    fn the_size_of_an_item_grows_with_what_it_holds() {
        let (mut job, mut report) = (conformance::job(1), conformance::report(1));
        let empty = (job.memory_bytes(), report.memory_bytes());
        job.pushed = Some(Box::new(PushedBody { content_type: None, body: vec![0; 5_000] }));
        let entry = Entry { content: Some("x".repeat(7_000)), ..Entry::default() };
        report.outcome = Outcome::Modified(Box::new(Document { entries: vec![entry], ..Document::default() }));
        assert!(job.memory_bytes() >= empty.0 + 5_000);
        assert!(report.memory_bytes() >= empty.1 + 7_000);
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
