//! The queues of a simulated fleet: the embedded ones behind connections that may break. An unacknowledged message of a
//! process whose connection broke, or that died, goes to others.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use common::queue::memory::MemoryQueue;
use common::queue::{Delivery, Message, Queue, QueueDepth, QueueError, Receipt};
use futures_util::FutureExt;
use tokio::time::sleep;

use crate::life::{Held, Server};
use crate::line::{Call, Fate, Line};
use crate::world::World;

/// How long a publisher waits for a confirmation.
const PUBLISH: Duration = Duration::from_secs(10);

/// A queue as one process sees it.
pub(crate) struct SeenQueue<T> {
    pub(crate) line: Line,
    pub(crate) queue: Arc<MemoryQueue<T>>,
    /// What its calls are called.
    pub(crate) names: [&'static str; 4],
    /// The outcome of a publication.
    pub(crate) published: fn(&World, &[T]) -> Vec<T>,
    /// Called with what was confirmed, or with an error.
    pub(crate) confirmed: fn(&World, Result<&[T], ()>),
}

fn lost() -> QueueError {
    QueueError::backend("be used by this process", "no answer")
}

fn ready<T>(call: impl Future<Output = T>) -> T {
    call.now_or_never().expect("a call in memory waits for nothing")
}

#[async_trait]
impl<T: Message> Queue<T> for SeenQueue<T> {
    async fn publish(&self, items: &[T]) -> Result<(), QueueError> {
        let (queue, items, noted) = (Arc::clone(&self.queue), items.to_vec(), self.published);
        let world = Arc::clone(&self.line.world);
        let sent = items.clone();
        let publish = move || {
            let items = noted(&world, &items);
            if items.is_empty() { Ok(()) } else { ready(queue.publish(&items)) }
        };
        let published = self.line.call_within(PUBLISH, self.names[0], lost, publish).await;
        (self.confirmed)(&self.line.world, published.as_ref().map(|()| &sent[..]).map_err(|_| ()));
        published
    }

    async fn receive(&self) -> Result<Delivery<T>, QueueError> {
        let Line { world, life, .. } = &self.line;
        loop {
            life.running().await;
            life.way_is(Server::Queue, true).await;
            let delivery = tokio::select! {
                biased;
                () = life.way_is(Server::Queue, false) => continue,
                delivery = self.queue.receive() => delivery?,
            };
            let arrived = delivery.arrived;
            let redelivered = delivery.redelivered;
            let (items, receipt) = delivery.into_parts();
            let held = life.hold(receipt);
            let receipt = SeenReceipt { held, line: self.line.clone(), name: self.names[2] };
            let call = Call { kind: life.kind, server: Server::Queue, name: self.names[1] };
            match world.fate(life, call) {
                Fate::Good => {}
                Fate::Late(by) | Fate::LateAnswer(by) => sleep(by).await,
                // It goes back.
                Fate::Before | Fate::After | Fate::Silent => return Err(lost()),
            }
            life.running().await;
            return Ok(Delivery::new(items, redelivered, Box::new(receipt)).arrived_at(arrived));
        }
    }

    async fn pause(&self) {
        // Nothing is prefetched: messages that were not taken are in the queue.
    }

    async fn depth(&self) -> Result<QueueDepth, QueueError> {
        let queue = Arc::clone(&self.queue);
        self.line.call(self.names[3], lost, move || ready(queue.depth())).await
    }

    async fn check(&self) -> Result<(), QueueError> {
        self.line.call("queue check", lost, || Ok(())).await
    }
}

struct SeenReceipt {
    held: Held,
    line: Line,
    name: &'static str,
}

#[async_trait]
impl Receipt for SeenReceipt {
    async fn ack(self: Box<Self>) -> Result<(), QueueError> {
        let held = Arc::clone(&self.held);
        let ack = move || match common::lock(&held).take() {
            Some(receipt) => ready(receipt.ack()),
            // The connection broke meanwhile, and another consumer has the message.
            None => Err(lost()),
        };
        let acked = self.line.call(self.name, lost, ack).await;
        // Without an ack that arrived the message goes back when the connection ends.
        drop(common::lock(&self.held).take());
        acked
    }
}

impl Drop for SeenReceipt {
    fn drop(&mut self) {
        drop(common::lock(&self.held).take());
    }
}
