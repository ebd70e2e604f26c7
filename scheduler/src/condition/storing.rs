//! Whether reports can be stored. While they cannot (the disk is full, the database is away), nothing more is claimed:
//! fetched answers would pile up, and feeds whose reports wait would be asked again when their leases end.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Shared by those who store, those who claim, and those who say whether the fleet can do its work.
#[derive(Debug, Default)]
pub struct Storing(Mutex<Option<String>>);

impl Storing {
    /// Why reports cannot be stored; `None` while they can.
    pub fn trouble(&self) -> Option<String> {
        self.lock().clone()
    }

    /// May more be claimed?
    pub fn works(&self) -> bool {
        self.lock().is_none()
    }

    /// Reports could not be stored.
    pub fn failed(&self, why: String) {
        *self.lock() = Some(why);
    }

    /// All reports that waited are stored.
    pub fn recovered(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
