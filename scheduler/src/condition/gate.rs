//! Whether the host gate lets requests start, as this scheduler saw it last.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use common::host::HostKey;
use common::host_gate::{GateError, HostGate};
use common::time::Timestamp;
use tokio::time::Instant;

/// Shared by the loop that opens the gate, those that hold hosts, and the code that reports it.
#[derive(Debug, Default)]
pub struct GateState {
    closed: Mutex<Option<Closed>>,
    /// A part of it was away when holds were put on it.
    holds_wait: AtomicBool,
    taken: Mutex<Taken>,
}

/// Which reports this scheduler has taken from their queue.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    /// The newest start of a request whose report was taken, and put on the gate with its hold.
    newest: Option<Timestamp>,
    /// When reports went back to the queue whose holds are on no gate.
    returned: Option<Instant>,
}

/// Within this time a report that went back to the queue has come again.
const COMES_AGAIN: Duration = Duration::from_secs(60);

/// Why no request starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// When it was first seen closed.
    pub since: Timestamp,
    /// What it waits for.
    pub why: &'static str,
    /// It does not open before, whatever it waits for.
    pub until: Option<Timestamp>,
    /// How many of its parts are closed, and how many it has.
    pub parts: (usize, usize),
}

impl Closed {
    /// Returns whether no part of it is open.
    pub fn is_whole(&self) -> bool {
        self.parts.0 >= self.parts.1
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Closed { since, why, parts: (closed, all), .. } = self;
        match self.is_whole() {
            true => write!(f, "closed since {since}, so no request starts: {why}")?,
            false => {
                write!(
                    f,
                    "closed since {since} in {closed} of {all} parts, so no request to their hosts starts: {why}"
                )?;
            }
        }
        match self.until {
            Some(until) => write!(f, "; it opens at {until} at the earliest"),
            None => Ok(()),
        }
    }
}

impl GateState {
    /// Returns since when and why the gate is closed; `None` while it is open.
    pub fn closed(&self) -> Option<Closed> {
        self.lock().clone()
    }

    /// Notes why it is closed, if it is, and until when at least, and logs a change. Returns whether the gate is open.
    pub fn note(&self, seen: Option<Closed>, now: Timestamp) -> bool {
        let mut closed = self.lock();
        match (seen, closed.take()) {
            (None, None) => {}
            (None, Some(was)) => {
                tracing::info!(closed_for = ?now.since(was.since), "the host gate is open again: requests start");
            }
            (Some(seen), Some(was)) => *closed = Some(Closed { since: was.since, ..seen }),
            (Some(seen), None) => {
                let Closed { why, until, parts: (closed_parts, parts), .. } = seen;
                let until = until.map(|until| until.to_string());
                if seen.is_whole() {
                    tracing::warn!(
                        why,
                        until,
                        "the host gate is closed: no request starts until it has been loaded from the store"
                    );
                } else {
                    tracing::warn!(
                        why,
                        until,
                        closed_parts,
                        parts,
                        "a part of the host gate is closed: no request to its hosts starts until it has been loaded from \
                         the store"
                    );
                }
                *closed = Some(seen);
            }
        }
        closed.is_none()
    }

    /// Puts holds on the gate that are stored already. Those of a part that is away are loaded from the store as soon as it is back.
    pub(crate) async fn hold_stored(
        &self,
        gate: &dyn HostGate,
        holds: &[(HostKey, Timestamp)],
        now: Timestamp,
    ) -> Result<(), GateError> {
        match gate.hold(holds, now).await {
            Err(GateError::PartAway { .. }) => {
                self.holds_wait.store(true, Ordering::Relaxed);
                Ok(())
            }
            held => held,
        }
    }

    /// Reports were taken from their queue, and what they hold is on the gate. The newest of their requests started then.
    pub(crate) fn took_reports(&self, newest: Timestamp) {
        let mut taken = common::lock(&self.taken);
        taken.newest = taken.newest.max(Some(newest));
    }

    /// Reports were taken, and go back to their queue.
    pub(crate) fn returned_reports(&self) {
        common::lock(&self.taken).returned = Some(Instant::now());
    }

    /// Returns whether the reports of all requests from before then have been taken, also if the queue is never empty: it keeps their
    /// order, and one of a later request was taken.
    pub(crate) fn took_all_reports_before(&self, then: Timestamp) -> bool {
        let taken = *common::lock(&self.taken);
        let come_again = taken.returned.is_none_or(|returned| returned.elapsed() > COMES_AGAIN);
        come_again && taken.newest.is_some_and(|newest| newest > then)
    }

    /// Returns whether stored holds wait for a part that was away; from now on none do. Called before they are loaded: one that is
    /// stored meanwhile waits for the next loading.
    pub(crate) fn take_waiting_holds(&self) -> bool {
        self.holds_wait.swap(false, Ordering::Relaxed)
    }

    /// They could not be loaded.
    pub(crate) fn holds_still_wait(&self) {
        self.holds_wait.store(true, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Closed>> {
        common::lock(&self.closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_gate_says_since_when_why_and_until_when() {
        let (state, at) =
            (GateState::default(), |seconds: i64| Timestamp::from_millis(1_790_000_000_000 + 1000 * seconds));
        let seen = |since, why, until, parts| Some(Closed { since, why, until, parts });
        assert!(!state.note(seen(at(0), "it lost its memory", Some(at(35)), (1, 1)), at(0)));
        assert!(!state.note(seen(at(1), "reports wait", None, (1, 1)), at(1)));
        let closed = |why: &str| format!("closed since {}, so no request starts: {why}", at(0));
        assert_eq!(state.closed().unwrap().to_string(), closed("reports wait"));
        state.note(seen(at(2), "reports wait", Some(at(35)), (1, 1)), at(2));
        let until = format!("reports wait; it opens at {} at the earliest", at(35));
        assert_eq!(state.closed().unwrap().to_string(), closed(&until));
        state.note(seen(at(3), "reports wait", None, (5, 16)), at(3));
        let part =
            format!("closed since {} in 5 of 16 parts, so no request to their hosts starts: reports wait", at(0));
        assert_eq!(state.closed().unwrap().to_string(), part);
        assert!(state.note(None, at(36)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_of_a_later_request_shows_that_all_before_it_were_taken_unless_some_went_back() {
        let (state, at) = (GateState::default(), |seconds: i64| Timestamp::from_millis(1000 * seconds));
        assert!(!state.took_all_reports_before(at(10)), "none was taken");
        state.took_reports(at(10));
        assert!(!state.took_all_reports_before(at(10)));
        state.took_reports(at(11));
        state.took_reports(at(9));
        assert!(state.took_all_reports_before(at(10)));
        state.returned_reports();
        assert!(!state.took_all_reports_before(at(10)), "those may be from before");
        tokio::time::advance(COMES_AGAIN * 2).await;
        assert!(state.took_all_reports_before(at(10)));
    }
}
