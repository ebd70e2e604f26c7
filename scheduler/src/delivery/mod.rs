//! Sends events to the targets of subscriptions: in order, one request at a time per subscription, at least once.
//!
//! Every scheduler runs this. The store gives each its share of the subscriptions, under a lease ([`share`]). One reader follows the
//! events for all of them and wakes those that an event matches; a subscription that has something to send reads its own events,
//! stores the range that the request covers, sends it, and moves its cursor on once the target accepted it ([`attempt`]). A process
//! that is killed in between leaves the range in the store: the next one sends the same range under the same id.
//!
//! A target that is slow or fails uses only half of the requests that may be in flight ([`lanes`]), so that it delays no others.

mod attempt;
mod backoff;
mod body;
mod lanes;
mod saver;
mod share;
mod targets;
pub mod view;

use std::pin::Pin;
use std::sync::Arc;

use common::delivery::{DeliveryAnswer, DeliveryRequest};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::ops::Ops;

/// A request in flight.
pub type Answering = Pin<Box<dyn Future<Output = DeliveryAnswer> + Send>>;

/// What sends requests: a scheduler has no HTTP client (`docs/decisions/0026-deliveries.md`).
pub struct Sender {
    /// Sends a request once.
    pub send: Box<dyn Fn(DeliveryRequest) -> Answering + Send + Sync>,
    /// Says why a target is refused before anything is sent to it, if it is.
    pub judge: Box<dyn Fn(&Url) -> Result<(), String> + Send + Sync>,
}

/// Delivers until stopped; without a [`Sender`] nothing is delivered.
pub(crate) async fn run(ops: &Arc<Ops>, stop: &CancellationToken) {
    if ops.sender.get().is_none() {
        return stop.cancelled().await;
    }
    share::Share::new(Arc::clone(ops)).run(stop).await;
}
