//! Telling others, in order, what happened: what the relay of events publishes to. A broker's exchange outside of tests.

use async_trait::async_trait;

use super::QueueError;

/// A message for any process that listens.
#[derive(Clone, Debug)]
pub struct Announcement {
    /// Its routing key, at most 255 bytes.
    pub key: String,
    /// What it is, as the message's type.
    pub kind: String,
    /// The same whenever the same thing is announced again.
    pub id: String,
    /// What it is about: names of at most 255 bytes, by which a headers exchange can choose.
    pub headers: Vec<(String, String)>,
    /// JSON.
    pub body: Vec<u8>,
}

/// The outcome of publishing a row of messages.
#[derive(Debug)]
pub struct Published {
    /// The number of messages, from the first on, that are in all queues bound to them.
    pub confirmed: usize,
    /// Why not all; the others may or may not have arrived.
    pub trouble: Option<QueueError>,
}

/// Where messages are announced, by one caller at a time.
#[async_trait]
pub trait Announce: Send + Sync {
    /// Publishes in order and waits for the confirmations, and for a broker that is away. After an error, or when the
    /// future is dropped, a caller that continues from the first unconfirmed message leaves out none: no message
    /// overtakes an earlier one, and a message that was published twice arrives twice.
    async fn publish(&mut self, messages: &[Announcement]) -> Published;
}
