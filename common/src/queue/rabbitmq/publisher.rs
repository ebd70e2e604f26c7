//! The publishing half of a queue: many messages in flight at once, each publisher waiting for its own confirmation.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Confirmation};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::backoff::Backoff;
use super::error::BrokerError;
use super::link::{Live, View};
use super::missing_right::MissingRight;
use super::topology::Topology;

/// The limit of unconfirmed messages in flight: memory is bounded whatever the broker does.
const WINDOW_KB: u32 = 32 << 10;
/// A small message counts as this much, so that at most 512 are in flight: lapin looks at each of them for each
/// confirmation.
const LEAST_KB: u32 = 64;
/// How long a queue that is gone stays so: one that is declared again at once deafens the consumers of the old one,
/// because the broker does not get round to cancelling them.
const REDECLARE_DELAY: Duration = Duration::from_secs(1);
pub(super) const PERSISTENT: u8 = 2;

/// A channel, and the exchange that leads to the queue.
struct Open {
    channel: Channel,
    exchange: ShortString,
}

/// Publishes to one queue.
pub(super) struct Publisher {
    view: View,
    topology: Topology,
    /// How long a message may take from `publish` to its confirmation.
    limit: Duration,
    window: Arc<Semaphore>,
    open: Mutex<Option<Arc<Open>>>,
    /// Why the last attempt to open a channel failed.
    failure: Mutex<Option<BrokerError>>,
    /// One at a time opens a channel.
    opening: tokio::sync::Mutex<()>,
    pub(super) missing_right: MissingRight,
}

impl Publisher {
    pub(super) fn new(view: View, topology: Topology, limit: Duration) -> Self {
        let window = Arc::new(Semaphore::new(WINDOW_KB as usize));
        let (open, failure, opening, missing_right) = Default::default();
        Publisher { view, topology, limit, window, open, failure, opening, missing_right }
    }

    /// Publishes a message and waits until the broker has it safe.
    pub(super) async fn publish(&self, bytes: Vec<u8>) -> Result<(), BrokerError> {
        let deadline = Instant::now() + self.limit;
        let bytes = Arc::new(bytes);
        let mut backoff = Backoff::new();
        loop {
            match self.publish_once(&bytes, deadline).await {
                // Certainly not taken, so it cannot come twice. A quorum queue that is busy with itself refuses.
                Err(BrokerError::Refused) if Instant::now() < deadline => tokio::time::sleep(backoff.delay()).await,
                published => {
                    self.missing_right.note(&published);
                    return published;
                }
            }
        }
    }

    async fn publish_once(&self, bytes: &Arc<Vec<u8>>, deadline: Instant) -> Result<(), BrokerError> {
        let Ok(ready) = tokio::time::timeout_at(deadline, self.ready(bytes.len())).await else {
            return Err(self.timeout_cause());
        };
        let (open, room) = ready?;
        let mut sending = Box::pin(send(Arc::clone(&open), self.topology.clone(), Arc::clone(bytes), room));
        if let Ok(sent) = tokio::time::timeout_at(deadline, &mut sending).await {
            return sent;
        }
        // It may still be accepted. Until that is known it fills its place in the window.
        let abandoned = self.abandon(open);
        tokio::spawn(async move {
            tokio::select! {
                _ = sending => {}
                () = abandoned => {}
            }
        });
        Err(BrokerError::Unconfirmed)
    }

    /// Publishes no more over a channel that owes a confirmation for too long, and closes it: after the death of a quorum queue's
    /// leader, RabbitMQ may leave what it was sent over such a channel unconfirmed for ever, and stop confirming anything. A broker
    /// with an alarm confirms later, over the same channel.
    fn abandon(&self, late: Arc<Open>) -> impl Future<Output = ()> + Send + 'static {
        let has_alarm = self.view.live().is_ok_and(|live| live.blocked().is_err());
        if !has_alarm {
            crate::lock(&self.open).take_if(|open| Arc::ptr_eq(open, &late));
        }
        async move {
            if has_alarm {
                return std::future::pending().await;
            }
            // An error means that it is closed already.
            let _ = late.channel.close(200, "a confirmation is overdue".into()).await;
        }
    }

    /// Waits until everything in flight is confirmed or given up; no more can be published then.
    pub(super) async fn close(&self) {
        // An error means that it is closed already.
        let _ = self.window.acquire_many(WINDOW_KB).await;
        self.window.close();
    }

    /// Room in the window and a channel that the broker listens to.
    async fn ready(&self, bytes: usize) -> Result<(Arc<Open>, OwnedSemaphorePermit), BrokerError> {
        let size = u32::try_from(bytes / 1024).unwrap_or(u32::MAX).clamp(LEAST_KB, WINDOW_KB);
        let room = Arc::clone(&self.window).acquire_many_owned(size).await.map_err(|_| BrokerError::Closed)?;
        let mut backoff = Backoff::new();
        loop {
            match self.channel().await {
                Ok(open) => {
                    *crate::lock(&self.failure) = None;
                    return Ok((open, room));
                }
                Err(trouble @ (BrokerError::OtherSettings { .. } | BrokerError::Closed)) => return Err(trouble),
                Err(trouble) => {
                    *crate::lock(&self.failure) = Some(trouble);
                    tokio::time::sleep(backoff.delay()).await;
                }
            }
        }
    }

    async fn channel(&self) -> Result<Arc<Open>, BrokerError> {
        let live = self.view.up().await?;
        live.unblocked().await?;
        if let Some(open) = self.open_channel() {
            return Ok(open);
        }
        let _opening = self.opening.lock().await;
        if let Some(open) = self.open_channel() {
            return Ok(open);
        }
        let open = Arc::new(self.open(&live).await?);
        *crate::lock(&self.open) = Some(Arc::clone(&open));
        Ok(open)
    }

    fn open_channel(&self) -> Option<Arc<Open>> {
        let open = crate::lock(&self.open).clone();
        open.filter(|open| open.channel.status().connected())
    }

    async fn open(&self, live: &Live) -> Result<Open, BrokerError> {
        let channel = live.connection.create_channel().await?;
        self.topology.prepare(&channel).await?;
        let exchange = self.topology.exchange(&live.connection).await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(Open { channel, exchange })
    }

    /// Returns why a message could not even be sent in time.
    fn timeout_cause(&self) -> BrokerError {
        match self.view.live().and_then(|live| live.blocked()) {
            Err(trouble) => trouble,
            Ok(()) if self.window.available_permits() < LEAST_KB as usize => BrokerError::WindowFull,
            Ok(()) => match crate::lock(&self.failure).take() {
                Some(undeclared @ BrokerError::Undeclared(_)) => undeclared,
                _ => BrokerError::Silent,
            },
        }
    }
}

/// Sends a message and waits for its confirmation; holds its place in the window until then.
async fn send(
    open: Arc<Open>,
    topology: Topology,
    bytes: Arc<Vec<u8>>,
    _room: OwnedSemaphorePermit,
) -> Result<(), BrokerError> {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let properties =
        BasicProperties::default().with_delivery_mode(PERSISTENT).with_content_type("application/json".into());
    let refused = |error| too_large(&error, bytes.len()).unwrap_or_else(|| topology.undeclared(error));
    let (Open { channel, exchange }, queue) = (&*open, &topology.queue);
    let published = channel.basic_publish(exchange.clone(), queue.clone(), options, &bytes, properties).await;
    match published.map_err(refused)?.await.map_err(refused)? {
        Confirmation::Ack(None) => Ok(()),
        // A returned message of the window may be reported with its neighbour's confirmation. Both concern a queue that
        // was being deleted, and whose content is lost whatever we report.
        Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_)) => {
            tokio::time::sleep(REDECLARE_DELAY).await;
            // The next to publish opens a channel, and declares the queue with it.
            let _ = channel.close(200, "the queue is gone".into()).await;
            Err(BrokerError::Unroutable(queue.to_string()))
        }
        Confirmation::Nack(None) | Confirmation::NotRequested => Err(BrokerError::Refused),
    }
}

/// Returns whether the broker closed the channel because of this very message's size. Others that were in flight over
/// the channel fail with the same error and are not too large.
fn too_large(error: &lapin::Error, bytes: usize) -> Option<BrokerError> {
    let lapin::ErrorKind::ProtocolError(refusal) = error.kind() else { return None };
    let precondition = *refusal.kind() == AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED);
    let text = refusal.get_message().as_str();
    let mut words = text.split(|character: char| !character.is_ascii_digit());
    let named = text.contains("message size") && words.any(|word| word == bytes.to_string());
    (precondition && named).then_some(BrokerError::TooLarge(bytes))
}
