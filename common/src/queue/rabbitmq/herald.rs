//! Says in the log, once a change, whether the broker is there.

use std::sync::{Arc, Mutex};

/// Logs once that the broker is lost and once that it is back, however many links there are and attempts they make.
pub(super) struct Herald {
    /// What the links are for.
    purpose: &'static str,
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    up: Vec<bool>,
    /// `None`: nothing yet.
    said_up: Option<bool>,
}

impl Herald {
    pub(super) fn of(purpose: &'static str) -> Arc<Self> {
        Arc::new(Herald { purpose, heard: Mutex::default() })
    }

    /// One more link; returns its number.
    pub(super) fn enter(&self) -> usize {
        let mut heard = crate::lock(&self.heard);
        heard.up.push(false);
        heard.up.len() - 1
    }

    pub(super) fn up(&self, member: usize) {
        let mut heard = crate::lock(&self.heard);
        heard.up[member] = true;
        if heard.up.iter().all(|up| *up) && heard.said_up != Some(true) {
            heard.said_up = Some(true);
            tracing::info!(purpose = self.purpose, "connected to RabbitMQ");
        }
    }

    pub(super) fn down(&self, member: usize, reason: &str) {
        let mut heard = crate::lock(&self.heard);
        heard.up[member] = false;
        if heard.said_up != Some(false) {
            heard.said_up = Some(false);
            tracing::warn!(purpose = self.purpose, reason, "cannot reach RabbitMQ; retrying until it answers");
        }
    }
}
