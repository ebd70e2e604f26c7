//! Releases and holds that the gate did not take when it was unreachable: sent again when it answers.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use common::host_gate::GateError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::poll::{PendingRelease, Poller};

/// Beyond this the oldest is dropped: its permit has expired, and its hold is in a report.
const MOST: usize = 10_000;
/// How often the gate is tried.
const RETRY: Duration = Duration::from_secs(1);
/// The minimum time that something stays owed. An acquire that is still in transit must not arrive after its release:
/// by then the gate refuses it as too late, if the clocks agree to within this.
const REST: Duration = Duration::from_secs(2);

/// A bounded queue of what is owed to the gate.
#[derive(Debug, Default)]
pub(crate) struct Owed(Mutex<VecDeque<(Instant, PendingRelease)>>);

impl Owed {
    pub(crate) fn add(&self, held: PendingRelease) {
        let mut owed = self.lock();
        if owed.len() >= MOST {
            owed.pop_front();
        }
        owed.push_back((Instant::now(), held));
    }

    /// Settles what is owed until stopped, and tries once more then.
    pub(crate) async fn run(&self, poller: &Poller, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            common::sleep_or_stop(RETRY, stop).await;
            self.settle(poller, if stop.is_cancelled() { Duration::ZERO } else { REST }).await;
        }
    }

    /// Sends the gate, in order, what has been owed for this time, until it does not answer.
    async fn settle(&self, poller: &Poller, rest: Duration) {
        let mut kept = Vec::new();
        while let Some((since, held)) = self.next(rest) {
            let Err(error) = poller.release(&held).await else { continue };
            tracing::debug!(error = &error as &dyn std::error::Error, "a release waits for the host gate");
            kept.push((since, held));
            // What is owed to the other parts of the gate does not wait for one that is away.
            if !matches!(error, GateError::PartAway { .. }) {
                break;
            }
        }
        let mut owed = self.lock();
        kept.into_iter().rev().for_each(|held| owed.push_front(held));
    }

    fn next(&self, rest: Duration) -> Option<(Instant, PendingRelease)> {
        let mut owed = self.lock();
        if owed.front().is_some_and(|(since, _)| since.elapsed() >= rest) { owed.pop_front() } else { None }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Instant, PendingRelease)>> {
        common::lock(&self.0)
    }
}
