//! The queue between scheduler and workers: jobs one way, reports the other.
//!
//! A message carries a batch. Between processes it is JSON in an envelope with a version ([`encode`], [`decode`]); within a process it
//! is the items themselves.
//!
//! Each implementation guarantees:
//! - `publish` returns when the message is safe (confirmed); an error means that it may or may not have been accepted;
//! - a delivery that is dropped without [`Delivery::ack`] comes again, to anyone, marked as redelivered;
//! - a message that cannot be decoded goes to the dead letters at once, and blocks nothing;
//! - after `pause`, and until the next `receive`, this process withholds only its unacknowledged messages from others;
//! - a queue with a delivery limit sends a message there that came too often;
//! - `depth` counts items that wait and items that this process has not acked yet.

mod announce;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
#[cfg(test)]
mod golden_tests;
pub mod logins;
pub mod memory;
pub mod rabbitmq;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::job::FetchJob;
use crate::report::{FetchReport, Outcome};

pub use announce::{Announce, Announcement, Published};

/// What may travel: jobs and reports.
pub trait Message: Serialize + DeserializeOwned + Clone + Send + Sync + 'static {
    /// The queue's name inside its namespace, and the label of its metrics.
    const QUEUE: &'static str;
    /// Workers publish it, and may publish nothing else: through a separate exchange.
    const BY_WORKERS: bool;
    /// How often a message may be delivered before it goes to the dead letters; `None`: for ever, because an outage of
    /// ours must not discard it.
    const DELIVERY_LIMIT: Option<u32>;

    /// Returns about how many bytes of memory it takes.
    fn memory_bytes(&self) -> usize;
}

impl Message for FetchJob {
    const QUEUE: &'static str = "jobs";
    const BY_WORKERS: bool = false;
    const DELIVERY_LIMIT: Option<u32> = Some(20);

    fn memory_bytes(&self) -> usize {
        let pushed = self.pushed.as_ref().map_or(0, |pushed| pushed.body.len());
        size_of::<Self>() + self.url.as_str().len() + self.known.memory_bytes() + pushed
    }
}

impl Message for FetchReport {
    const QUEUE: &'static str = "reports";
    const BY_WORKERS: bool = true;
    const DELIVERY_LIMIT: Option<u32> = None;

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.outcome {
                Outcome::Modified(document) => document.memory_bytes(),
                _ => 0,
            }
    }
}

/// The version of the messages that this program writes: of the envelope and of its content. Rises when an old reader
/// could no longer understand a new message; an additional field does not raise it. A release may write only what the
/// release before it reads (`docs/decisions/0036-message-versions.md`; the tests check it).
pub const MESSAGE_VERSION: u32 = 1;
/// The newest version that this program reads. It reads all older ones too.
pub const NEWEST_READABLE: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    v: u32,
    items: Vec<T>,
}

/// Returns a batch as the bytes of one message.
pub fn encode<T: Message>(items: &[T]) -> Result<Vec<u8>, QueueError> {
    let envelope = EnvelopeRef { v: MESSAGE_VERSION, items };
    serde_json::to_vec(&envelope).map_err(|source| QueueError::backend("encode a message", source))
}

#[derive(Serialize)]
struct EnvelopeRef<'a, T> {
    v: u32,
    items: &'a [T],
}

/// Returns the batch in a message's bytes, of a version up to [`NEWEST_READABLE`].
pub fn decode<T: Message>(bytes: &[u8]) -> Result<Vec<T>, QueueError> {
    match serde_json::from_slice::<Envelope<T>>(bytes) {
        Ok(envelope) if envelope.v <= NEWEST_READABLE => Ok(envelope.items),
        Ok(Envelope { v, .. }) => Err(QueueError::TooNew { found: v }),
        // What is in a newer message may be something else than items of this version.
        Err(source) => Err(match serde_json::from_slice::<VersionOnly>(bytes) {
            Ok(VersionOnly { v }) if v > NEWEST_READABLE => QueueError::TooNew { found: v },
            _ => QueueError::backend("decode a message", source),
        }),
    }
}

/// What every version of the envelope has.
#[derive(Deserialize)]
struct VersionOnly {
    v: u32,
}

/// The queue's own trouble.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The backend did not do it.
    #[error("the queue could not {action}")]
    Backend {
        /// What was being attempted.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A message of a newer program.
    #[error("a message has version {found}, this program reads up to {max}", max = NEWEST_READABLE)]
    TooNew {
        /// Its version.
        found: u32,
    },
    /// The message is larger than the queue takes; nothing was taken. Fewer items may fit.
    #[error("a message of {bytes} bytes is too large for the queue")]
    TooLarge {
        /// Its encoded size.
        bytes: usize,
    },
    /// There is no room; nothing was taken.
    #[error("the queue is full")]
    Full,
    /// The queue was closed; nothing more will come.
    #[error("the queue is closed")]
    Closed,
}

impl QueueError {
    /// Returns a backend's error with what was being attempted.
    pub fn backend(action: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        QueueError::Backend { action, source: source.into() }
    }
}

/// What waits in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueDepth {
    /// Items that wait, and items that this process received and has not acked. A broker counts messages: then it is
    /// at most what they can hold.
    pub items: usize,
    /// How many processes receive from it; `None`: it is this process's own.
    pub consumers: Option<usize>,
    /// Messages in the dead letters, where they are kept.
    pub dead: usize,
    /// The part of the items that only some of these processes receive.
    pub apart: Apart,
}

/// What waits in a separate queue, which not every process receives from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Apart {
    /// Items, as in [`QueueDepth::items`].
    pub items: usize,
    /// How many processes receive them.
    pub consumers: usize,
}

impl QueueDepth {
    /// Returns how many of `limit` places are taken. Items apart take no more than their share, and none while nobody receives
    /// them: their backlog keeps no others away.
    pub fn taken(&self, limit: usize) -> usize {
        let others = self.items.saturating_sub(self.apart.items);
        others + self.apart.items.min(self.share_apart(limit))
    }

    /// Returns how many of `limit` places are for items apart: as large a part as that of the processes that receive them.
    pub fn share_apart(&self, limit: usize) -> usize {
        match self.consumers {
            Some(all) if all > 0 => limit.saturating_mul(self.apart.consumers.min(all)).div_ceil(all),
            _ => 0,
        }
    }
}

/// See the module's page for what an implementation guarantees.
#[async_trait]
pub trait Queue<T: Message>: Send + Sync {
    /// Publishes one message with these items and waits until it is safe.
    async fn publish(&self, items: &[T]) -> Result<(), QueueError>;

    /// Returns the next message; waits for one.
    async fn receive(&self) -> Result<Delivery<T>, QueueError>;

    /// For a consumer that cannot work on what arrives: returns the messages that were prefetched but not taken, and
    /// takes nothing more until the next `receive`. Messages already received can still be acked. Has no lasting effect
    /// while another task receives.
    async fn pause(&self);

    /// Returns what waits.
    async fn depth(&self) -> Result<QueueDepth, QueueError>;

    /// Returns why its server accepts no messages at present, if it said so; sends no request.
    fn blocked(&self) -> Option<String> {
        None
    }

    /// Checks that the queue can be reached: readiness depends on it.
    async fn check(&self) -> Result<(), QueueError>;
}

/// A message that was received. Dropped without `ack` it is delivered again.
pub struct Delivery<T> {
    /// The batch.
    pub items: Vec<T>,
    /// It was delivered before, perhaps to a process that died over it.
    pub redelivered: bool,
    /// When it came to this process. Since then it is hidden from others.
    pub arrived: Instant,
    receipt: Box<dyn Receipt>,
}

impl<T> Delivery<T> {
    /// Returns a delivery whose receipt does the acking.
    pub fn new(items: Vec<T>, redelivered: bool, receipt: Box<dyn Receipt>) -> Self {
        Delivery { items, redelivered, arrived: Instant::now(), receipt }
    }

    /// The same, when it came to this process earlier and waited for a receiver.
    #[must_use]
    pub fn arrived_at(self, arrived: Instant) -> Self {
        Delivery { arrived, ..self }
    }

    /// Acknowledges the message: it is not delivered again.
    pub async fn ack(self) -> Result<(), QueueError> {
        self.receipt.ack().await
    }

    /// Splits the delivery into its items and what acks it.
    pub fn into_parts(self) -> (Vec<T>, Box<dyn Receipt>) {
        (self.items, self.receipt)
    }
}

/// The backend's half of a [`Delivery`]. Dropping it returns the message.
#[async_trait]
pub trait Receipt: Send + Sync {
    /// Removes the message.
    async fn ack(self: Box<Self>) -> Result<(), QueueError>;
}
