//! The interface through which a scheduler sends requests to the targets of subscriptions, because it has no HTTP client
//! (`docs/decisions/0026-deliveries.md`).

use std::pin::Pin;

use common::delivery::{DeliveryAnswer, DeliveryRequest};
use url::Url;

/// A request in flight.
pub type Answering = Pin<Box<dyn Future<Output = DeliveryAnswer> + Send>>;

/// Says why a target is refused, if it is.
pub type Judge = dyn Fn(&Url) -> Result<(), String> + Send + Sync;

/// Sends requests, and knows which targets may have some.
pub struct Sender {
    /// Sends a request once.
    pub send: Box<dyn Fn(DeliveryRequest) -> Answering + Send + Sync>,
    /// Says why a target is refused before anything is sent to it, if it is.
    pub judge: Box<Judge>,
}
