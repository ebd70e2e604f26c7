//! Why a configuration is refused.

use std::time::Duration;

use crate::duration::as_text;

/// Neither a gap nor an interval is longer: to stop polling for ever, pause or block what is polled, or remove it.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);
/// Most requests in flight at one host: the gate reads all of a host's slots for each request.
const MOST_PARALLEL: u32 = 1_000;

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The key to change.
    pub key: String,
    /// What is wrong and what would be accepted.
    pub reason: String,
}

/// Collects refusals: each method adds one unless its condition holds.
#[derive(Default)]
pub(super) struct Refusals(pub(super) Vec<Refusal>);

impl Refusals {
    pub(super) fn require(&mut self, holds: bool, key: &str, reason: impl FnOnce() -> String) {
        if !holds {
            self.0.push(Refusal { key: key.to_owned(), reason: reason() });
        }
    }

    /// Adds one if there is a fault.
    pub(super) fn unless(&mut self, key: &str, fault: Option<String>) {
        self.0.extend(fault.map(|reason| Refusal { key: key.to_owned(), reason }));
    }

    pub(super) fn positive(&mut self, key: &str, value: Duration) {
        self.require(!value.is_zero(), key, || "must be longer than nothing".to_owned());
    }

    pub(super) fn within_a_year(&mut self, key: &str, value: Duration) {
        self.require(value <= LONGEST, key, || "must not be longer than 365 days".to_owned());
    }

    pub(super) fn parallel(&mut self, key: &str, value: u32) {
        self.require(value <= MOST_PARALLEL, key, || format!("must be at most {MOST_PARALLEL}"));
    }

    pub(super) fn at_least(&mut self, key: &str, value: usize, least: usize) {
        self.require(value >= least, key, || format!("must be at least {least}"));
    }

    pub(super) fn ordered(&mut self, low: (&str, Duration), high: (&str, Duration)) {
        self.require(low.1 <= high.1, low.0, || format!("must not be longer than {} ({})", high.0, as_text(high.1)));
    }
}
