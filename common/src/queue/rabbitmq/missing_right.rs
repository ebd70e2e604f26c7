//! The right that this process's user lacks at the broker. Only the attempt shows it: no question to the broker does.

use std::sync::Mutex;

use super::error::BrokerError;

/// What the last attempt was refused for.
#[derive(Default)]
pub(super) struct MissingRight(Mutex<Option<BrokerError>>);

impl MissingRight {
    /// Takes note of an attempt. One that fails for another reason says nothing about rights.
    pub(super) fn note<T>(&self, outcome: &Result<T, BrokerError>) {
        match outcome {
            Ok(_) => *crate::lock(&self.0) = None,
            Err(error) if error.is_missing_right() => *crate::lock(&self.0) = Some(error.clone()),
            Err(_) => {}
        }
    }

    /// Returns the refusal, if the last attempt was refused.
    pub(super) fn check(&self) -> Result<(), BrokerError> {
        crate::lock(&self.0).clone().map_or(Ok(()), Err)
    }
}
