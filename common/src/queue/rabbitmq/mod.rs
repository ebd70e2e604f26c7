//! The queue of a cluster: RabbitMQ quorum queues, 3.10 or newer.
//!
//! Each process has two connections, so that a broker that takes no messages still takes acks, and one more where
//! events are relayed, whose failures do not affect the queues. Each is kept up by a supervisor of ours (`link`);
//! schedulers declare the queues whenever they open a channel, workers never do (`topology`); publishers wait each for
//! its own confirmation (`publisher`); what arrived is acked in rows (`tags`).
//!
//! Beyond what the seam says: `receive` waits for a broker that is away, `publish` does so within its time limit,
//! `depth` and `check` fail at once. Messages that other processes have received are not in `depth`: a broker does not
//! report them.

mod backoff;
mod consumer;
mod control;
mod dial;
mod error;
mod exchange;
mod herald;
mod link;
mod missing_right;
mod publisher;
mod rights;
mod session;
mod tags;
#[cfg(test)]
mod tests;
mod too_new;
mod topology;

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use prometheus::{IntCounterVec, IntGauge};

pub use self::consumer::Prefetch;
use self::consumer::{AckHandle, Receiving};
use self::control::Control;
use self::dial::Addresses;
use self::error::BrokerError;
pub use self::exchange::Exchange;
use self::herald::Herald;
use self::link::Link;
use self::publisher::Publisher;
pub use self::rights::Rights;
use self::tags::Settling;
use self::too_new::TooNewPauses;
use self::topology::Topology;
use super::{Delivery, Message, Queue, QueueDepth, QueueError, Receipt, decode, encode};
use crate::config::ServerConfig;
use crate::job::FetchJob;
use crate::metrics::Metrics;

/// What a message is taken to hold until a larger one was seen.
const USUAL_BATCH: usize = 16;
/// Largest message that is sent: brokers refuse more than 16 MiB by default, and close the channel over it.
const LARGEST_MESSAGE: usize = 15 << 20;
/// How long the last acks and confirmations may take at the end.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long a broker may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// For an answer: a stopped broker is not ready.
    answer: Duration,
    /// From `publish` to a message's confirmation, a short outage included. RabbitMQ resends after 10 s what a frozen or unreachable leader
    /// of a quorum queue has not confirmed (`TIMER_TIME` in `rabbit_fifo_client.erl`). With a shorter limit the message would be
    /// published again over a new channel, and the 10 s would begin again.
    publish: Duration,
    too_new: TooNewPauses,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { answer: Duration::from_secs(3), publish: Duration::from_secs(13), too_new: TooNewPauses::default() }
    }
}

/// The way to RabbitMQ: where queues are made, and closed.
pub struct Broker {
    addresses: Arc<Addresses>,
    links: Arc<Links>,
    /// The connections of exchanges.
    events: Mutex<Vec<Arc<Link>>>,
    limits: Limits,
    namespace: String,
    declares: bool,
    dead_letters: IntCounterVec,
    too_new: IntCounterVec,
    blocked_count: IntGauge,
    queues: Mutex<Vec<Arc<Halves>>>,
}

struct Links {
    publishing: Link,
    consuming: Link,
}

impl Broker {
    /// Starts connecting and returns at once, whether the broker is there or not; then `check` of each queue fails.
    /// Has to be called inside a tokio runtime. Names of queues begin with `namespace`.
    pub fn connect(server: &ServerConfig, namespace: &str, metrics: &Metrics) -> Result<Self, QueueError> {
        let addresses = Arc::new(Addresses::of(server)?);
        let herald = Herald::of("queues");
        let blocked_count = metrics.queue_blocked.clone();
        let link =
            |what| Link::start(&addresses, format!("{namespace} {what}"), Arc::clone(&herald), blocked_count.clone());
        let links = Links { publishing: link("publishing"), consuming: link("consuming") };
        Ok(Broker {
            addresses,
            links: Arc::new(links),
            events: Mutex::default(),
            limits: Limits::default(),
            namespace: namespace.to_owned(),
            declares: true,
            dead_letters: metrics.dead_letters.clone(),
            too_new: metrics.too_new.clone(),
            blocked_count,
            queues: Mutex::default(),
        })
    }

    /// The same for a process that may not declare queues: it waits until another one has declared them.
    #[must_use]
    pub fn declaring_nothing(self) -> Self {
        Broker { declares: false, ..self }
    }

    /// Returns a queue of this broker. It is consumed only after the first `receive`; then the broker sends ahead what
    /// `prefetch` allows.
    pub fn queue<T: Message>(&self, prefetch: Prefetch) -> RabbitQueue<T> {
        self.queue_named(T::QUEUE, prefetch)
    }

    /// Returns a further queue of jobs, for those that need a login.
    pub fn queue_of_logins(&self, prefetch: Prefetch) -> RabbitQueue<FetchJob> {
        self.queue_named("jobs.logins", prefetch)
    }

    fn queue_named<T: Message>(&self, name: &str, prefetch: Prefetch) -> RabbitQueue<T> {
        let topology = Topology::of::<T>(&self.namespace, name, self.declares);
        let (publishing, consuming) = (self.links.publishing.view(), self.links.consuming.view());
        let halves = Arc::new(Halves {
            publisher: Publisher::new(publishing.clone(), topology.clone(), self.limits.publish),
            receiving: Receiving::new(consuming.clone(), topology.clone(), prefetch),
            control: Control::new(publishing, consuming, topology, self.limits.answer),
            unacked: AtomicUsize::new(0),
            largest: AtomicUsize::new(USUAL_BATCH),
            _links: Arc::clone(&self.links),
        });
        crate::lock(&self.queues).push(Arc::clone(&halves));
        let (dead_letters, too_new) = (self.dead_letters.clone(), self.too_new.clone());
        let (too_new_pauses, too_new_logged) = (self.limits.too_new, AtomicBool::new(false));
        RabbitQueue { halves, dead_letters, too_new, too_new_pauses, too_new_logged, items: PhantomData }
    }

    /// Returns the exchange for listeners, `NAMESPACE.events`, on a separate connection.
    pub fn events(&self) -> Exchange {
        let name = format!("{} events", self.namespace);
        let link = Arc::new(Link::start(&self.addresses, name, Herald::of("events"), self.blocked_count.clone()));
        crate::lock(&self.events).push(Arc::clone(&link));
        Exchange::new(link, &format!("{}.events", self.namespace))
    }

    /// Ends in order: no queue receives any more, messages that were not taken are returned, acks are sent,
    /// confirmations are waited for, and the connections are closed. Messages that are still unacknowledged are
    /// redelivered.
    pub async fn close(&self) {
        let queues = std::mem::take(&mut *crate::lock(&self.queues));
        let quiet = async {
            for halves in &queues {
                halves.receiving.quiet().await;
                halves.publisher.close().await;
            }
        };
        // A broker that does not answer delivers everything to another consumer later.
        let _ = tokio::time::timeout(FAREWELL, quiet).await;
        let events = std::mem::take(&mut *crate::lock(&self.events));
        let events = join_all(events.iter().map(|link| link.close()));
        tokio::join!(self.links.publishing.close(), self.links.consuming.close(), events);
    }
}

/// A queue of `T` at RabbitMQ.
pub struct RabbitQueue<T> {
    halves: Arc<Halves>,
    dead_letters: IntCounterVec,
    too_new: IntCounterVec,
    too_new_pauses: TooNewPauses,
    too_new_logged: AtomicBool,
    items: PhantomData<fn() -> T>,
}

/// Everything about a queue but what its messages mean.
struct Halves {
    publisher: Publisher,
    receiving: Receiving,
    control: Control,
    /// Items that were received and not acked.
    unacked: AtomicUsize,
    /// The most items seen in a message.
    largest: AtomicUsize,
    /// Lets the connections live as long as a queue does.
    _links: Arc<Links>,
}

impl<T: Message> RabbitQueue<T> {
    /// Receives no more: the consumer is cancelled, messages that were not taken are returned at once, and `receive`
    /// says that the queue is closed. What was received before can still be acked, and publishing continues.
    pub async fn quiet(&self) {
        self.halves.receiving.quiet().await;
    }

    /// Returns a message of a newer program to the queue, after a while: in an upgrade it is for the processes that were
    /// upgraded, and none of them may be there yet.
    fn leave_to_newer(&self, ack_handle: AckHandle, returns: u64, error: &QueueError) {
        self.too_new.with_label_values(&[T::QUEUE]).inc();
        if !self.too_new_logged.swap(true, Ordering::Relaxed) {
            tracing::error!(queue = T::QUEUE, %error, "messages of a newer version go back to the queue; upgrade this process");
        }
        let pause = self.too_new_pauses.after(returns, T::DELIVERY_LIMIT);
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            // If the channel is gone, the broker has redelivered it.
            let _ = ack_handle.settle(Settling::Unseen);
        });
    }

    /// Returns the number of dead-lettered messages.
    pub async fn dead_letters(&self) -> Result<usize, QueueError> {
        let looked = self.halves.control.look().await;
        looked.map(|seen| seen.dead).map_err(|trouble| trouble.while_doing("count its dead letters"))
    }
}

#[async_trait]
impl<T: Message> Queue<T> for RabbitQueue<T> {
    async fn publish(&self, items: &[T]) -> Result<(), QueueError> {
        let bytes = encode(items)?;
        if bytes.len() > LARGEST_MESSAGE {
            return Err(QueueError::TooLarge { bytes: bytes.len() });
        }
        self.halves.largest.fetch_max(items.len(), Ordering::Relaxed);
        self.halves.publisher.publish(bytes).await.map_err(|trouble| trouble.while_doing("publish a message"))
    }

    async fn receive(&self) -> Result<Delivery<T>, QueueError> {
        loop {
            let arrived = self.halves.receiving.next().await.map_err(|trouble| trouble.while_doing("receive"))?;
            match decode::<T>(&arrived.bytes) {
                Ok(items) => {
                    self.halves.largest.fetch_max(items.len(), Ordering::Relaxed);
                    self.halves.unacked.fetch_add(items.len(), Ordering::Relaxed);
                    let held = UnackedItems { halves: Arc::clone(&self.halves), items: items.len() };
                    let receipt = RabbitReceipt { ack_handle: arrived.ack_handle, _unacked: held };
                    return Ok(Delivery::new(items, arrived.redelivered, Box::new(receipt)).arrived_at(arrived.at));
                }
                Err(error @ QueueError::TooNew { .. }) => {
                    self.leave_to_newer(arrived.ack_handle, arrived.returns, &error);
                }
                Err(error) => {
                    let reason = error.to_string();
                    tracing::error!(queue = T::QUEUE, reason, "message moved to the dead letters");
                    self.dead_letters.with_label_values(&[T::QUEUE]).inc();
                    // If the channel is gone it comes again, and is put aside then.
                    let _ = arrived.ack_handle.settle(Settling::Buried);
                }
            }
        }
    }

    async fn pause(&self) {
        self.halves.receiving.pause().await;
    }

    async fn depth(&self) -> Result<QueueDepth, QueueError> {
        let halves = &self.halves;
        let seen = halves.control.look().await.map_err(|trouble| trouble.while_doing("tell its depth"))?;
        let messages = seen.ready + halves.receiving.waiting();
        let items = messages * halves.largest.load(Ordering::Relaxed) + halves.unacked.load(Ordering::Relaxed);
        Ok(QueueDepth { items, consumers: Some(seen.consumers), dead: seen.dead, ..QueueDepth::default() })
    }

    fn blocked(&self) -> Option<String> {
        self.halves.control.blocked()
    }

    async fn check(&self) -> Result<(), QueueError> {
        let halves = &self.halves;
        halves.control.check().await.map_err(|trouble| trouble.while_doing("be reached"))?;
        let (published, received) = (halves.publisher.missing_right.check(), halves.receiving.check());
        published.and(received).map_err(|refusal| refusal.while_doing("be used with this user's rights"))
    }
}

/// Counts unacknowledged items until dropped.
struct UnackedItems {
    halves: Arc<Halves>,
    items: usize,
}

impl Drop for UnackedItems {
    fn drop(&mut self) {
        self.halves.unacked.fetch_sub(self.items, Ordering::Relaxed);
    }
}

struct RabbitReceipt {
    ack_handle: AckHandle,
    _unacked: UnackedItems,
}

#[async_trait]
impl Receipt for RabbitReceipt {
    async fn ack(self: Box<Self>) -> Result<(), QueueError> {
        self.ack_handle.settle(Settling::Acked).map_err(|trouble: BrokerError| trouble.while_doing("ack a message"))
    }
}
