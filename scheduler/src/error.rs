//! What can go wrong in a scheduler's loops and operations: its own backends. What a remote server does is never an error.

use common::host_gate::GateError;
use common::queue::QueueError;
use common::secrets::SecretError;

use crate::schedule::ScheduleError;
use store::StoreError;

/// A backend failed. A loop retries; an operation returns it.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The schedule.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The host gate.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// A login that cannot be sealed; nothing was stored.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// It took longer than any caller may wait.
    #[error("nothing was stored within {}", humantime::format_duration(*.0))]
    TooSlow(std::time::Duration),
    /// A queue.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

impl BackendError {
    /// Returns whether only a part of the gate or the schedule is away, so that what concerns the others continues.
    pub(crate) fn is_part_away(&self) -> bool {
        matches!(
            self,
            BackendError::Gate(GateError::PartAway { .. }) | BackendError::Schedule(ScheduleError::PartAway { .. })
        )
    }
}
