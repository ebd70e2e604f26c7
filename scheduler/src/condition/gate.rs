//! Whether the host gate lets requests start, as this scheduler saw it last.

use std::fmt;
use std::sync::{Mutex, MutexGuard};

use common::time::Timestamp;

/// Shared by the loop that opens the gate and those who report it.
#[derive(Debug, Default)]
pub struct GateState(Mutex<Option<Closed>>);

/// Why no request starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// When it was first seen closed.
    pub since: Timestamp,
    /// What it waits for.
    pub why: &'static str,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "closed since {}, so no request starts: {}", self.since, self.why)
    }
}

impl GateState {
    /// Returns since when and why the gate is closed; `None` while it is open.
    pub fn closed(&self) -> Option<Closed> {
        self.lock().clone()
    }

    /// Notes what was seen, and logs a change. Returns whether the gate is open.
    pub(crate) fn note(&self, why: Option<&'static str>, now: Timestamp) -> bool {
        let mut closed = self.lock();
        match (why, closed.take()) {
            (None, None) => {}
            (None, Some(was)) => {
                tracing::info!(closed_for = ?now.since(was.since), "the host gate is open again: requests start");
            }
            (Some(why), Some(was)) => *closed = Some(Closed { why, ..was }),
            (Some(why), None) => {
                tracing::warn!(
                    why,
                    "the host gate is closed: no request starts until it has been loaded from the store"
                );
                *closed = Some(Closed { since: now, why });
            }
        }
        closed.is_none()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Closed>> {
        common::lock(&self.0)
    }
}
