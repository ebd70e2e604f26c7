//! Sends events to the targets of subscriptions: in order, one request at a time per subscription, at least once.
//!
//! Every scheduler runs this. The store gives each its share of the subscriptions, under a lease (`share`). One reader follows the
//! events for all of them and wakes those that an event matches; a subscription that has something to send reads its own events,
//! stores the range that the request covers, sends it, and moves its cursor on once the target accepted it (`attempt`). A process
//! that is killed in between leaves the range in the store: the next one sends the same range under the same id.
//!
//! Subscribers of the WebSub hub are subscriptions too: their verifications and notifications go the same way (`hub`),
//! and their leases end here (`tending`).
//!
//! Targets that are slow or fail, and verifications of callbacks, use separate parts of the requests that may be in
//! flight (`lanes`), so that they delay no others.

mod attempt;
mod backoff;
mod body;
pub mod documents;
mod held;
mod hub;
#[cfg(test)]
mod hub_faults_tests;
#[cfg(test)]
mod hub_limits_tests;
#[cfg(test)]
mod hub_tests;
mod lanes;
mod range;
#[cfg(test)]
mod range_tests;
mod reader;
mod recent;
mod saver;
pub mod sender;
mod settle;
mod share;
mod targets;
mod tending;
#[cfg(test)]
mod tests;
pub mod view;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::ops::Ops;

/// Delivers until stopped; without a [`Sender`](sender::Sender) nothing is delivered.
pub(crate) async fn run(ops: &Arc<Ops>, stop: &CancellationToken) {
    if ops.sender.get().is_none() {
        return stop.cancelled().await;
    }
    tokio::join!(share::Share::new(Arc::clone(ops)).run(stop), tending::tend(ops, stop));
}
