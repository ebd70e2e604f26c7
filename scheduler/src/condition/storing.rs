//! Whether reports can be stored. While they cannot (the disk is full, the database is away), nothing more is claimed:
//! fetched answers would pile up, and feeds whose reports wait would be polled again when their leases end.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

/// Shared by the loop that stores, the loop that claims, and the API, which reports it.
#[derive(Debug, Default)]
pub struct Storing(Mutex<Option<Latched>>);

#[derive(Debug)]
struct Latched {
    why: String,
    /// When storing failed last.
    failed: Instant,
}

impl Storing {
    /// Returns why reports cannot be stored; `None` while they can.
    pub fn trouble(&self) -> Option<String> {
        self.lock().as_ref().map(|latched| latched.why.clone())
    }

    /// Returns whether more may be claimed.
    pub fn works(&self) -> bool {
        self.lock().is_none()
    }

    /// Latches: nothing more is claimed until [`Self::recovered`].
    pub fn failed(&self, why: String) {
        *self.lock() = Some(Latched { why, failed: Instant::now() });
    }

    /// Unlatches: the reports that waited are stored.
    pub fn recovered(&self) {
        *self.lock() = None;
    }

    /// Returns for how long nothing has failed since the latch fell; `None` while reports can be stored.
    pub(crate) fn quiet_for(&self) -> Option<Duration> {
        self.lock().as_ref().map(|latched| latched.failed.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Latched>> {
        common::lock(&self.0)
    }
}
