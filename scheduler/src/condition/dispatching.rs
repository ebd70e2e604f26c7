//! Whether due feeds can be dispatched. A server may answer every check and still refuse what dispatch does, for want of a right.

use std::sync::Mutex;

use common::causes::causes;

/// What the last round of dispatch failed with. Shared by the loop that dispatches and the API, which reports it.
#[derive(Debug, Default)]
pub struct Dispatching(Mutex<Option<String>>);

impl Dispatching {
    /// Takes note of a round.
    pub fn note<T, E: std::error::Error>(&self, round: &Result<T, E>) {
        *common::lock(&self.0) = round.as_ref().err().map(|error| causes(error));
    }

    /// Returns why due feeds cannot be dispatched; `None` while they can.
    pub fn trouble(&self) -> Option<String> {
        common::lock(&self.0).clone()
    }
}
