//! Releases and holds that the gate did not take when it was unreachable: sent again when it answers.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use common::host_gate::GateError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::isolation::Room;
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
pub(crate) struct Owed(Mutex<VecDeque<Debt>>);

/// What is owed.
#[derive(Debug)]
struct Debt {
    since: Instant,
    held: PendingRelease,
    /// The gate may count a fetch that is alone here. If another one began meanwhile and killed the process, that feed would be blamed.
    room: Option<Room>,
}

impl Owed {
    pub(crate) fn add(&self, held: PendingRelease, room: Option<Room>) {
        let mut owed = self.lock();
        if owed.len() >= MOST {
            owed.pop_front();
        }
        owed.push_back(Debt { since: Instant::now(), held, room });
    }

    /// Settles what is owed until stopped, and tries once more then.
    pub(crate) async fn run(&self, poller: &Poller, stop: &CancellationToken) {
        while common::sleep_or_stop(RETRY, stop).await {
            self.settle(poller, REST).await;
        }
        self.settle(poller, Duration::ZERO).await;
    }

    /// Sends the gate, in order, what has been owed for this time, until it does not answer.
    async fn settle(&self, poller: &Poller, rest: Duration) {
        let mut kept = Vec::new();
        while let Some(mut debt) = self.next(rest) {
            let Err(error) = poller.release(&debt.held).await else { continue };
            tracing::debug!(error = &error as &dyn std::error::Error, "a release waits for the host gate");
            // What is owed to the other parts of the gate does not wait for one that is away. Other fetches wait as long as they would for a
            // fetch alone.
            let part_away = matches!(error, GateError::PartAway { .. });
            if part_away && debt.since.elapsed() > poller.config.fetch.deadline() {
                debt.room = None;
            }
            kept.push(debt);
            if !part_away {
                break;
            }
        }
        let mut owed = self.lock();
        kept.into_iter().rev().for_each(|debt| owed.push_front(debt));
    }

    fn next(&self, rest: Duration) -> Option<Debt> {
        let mut owed = self.lock();
        if owed.front().is_some_and(|debt| debt.since.elapsed() >= rest) { owed.pop_front() } else { None }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Debt>> {
        common::lock(&self.0)
    }
}
