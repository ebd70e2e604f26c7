//! Holds that hosts requested from this worker and that the gate has not received yet. Until then, only this worker knows
//! them.

use std::collections::HashMap;
use std::sync::Mutex;

use common::host::HostKey;
use common::time::Timestamp;

/// The hosts, and when their holds end.
#[derive(Debug, Default)]
pub struct OwnHolds(Mutex<HashMap<HostKey, Timestamp>>);

impl OwnHolds {
    /// Notes a hold that was read at `now`. Those that have ended are forgotten: each is of a fetch of this worker, so that there are
    /// few.
    pub fn note(&self, host: &HostKey, until: Timestamp, now: Timestamp) {
        let mut holds = common::lock(&self.0);
        holds.retain(|_, until| *until > now);
        let known = holds.entry(host.clone()).or_insert(until);
        *known = until.max(*known);
    }

    /// Forgets a hold that the gate has, unless a later one was noted meanwhile.
    pub fn is_known(&self, (host, until): &(HostKey, Timestamp)) {
        let mut holds = common::lock(&self.0);
        if holds.get(host).is_some_and(|known| known <= until) {
            holds.remove(host);
        }
    }

    /// Returns all that have not ended.
    pub fn all(&self, now: Timestamp) -> Vec<(HostKey, Timestamp)> {
        let holds = common::lock(&self.0);
        holds.iter().filter(|(_, until)| **until > now).map(|(host, until)| (host.clone(), *until)).collect()
    }

    /// Returns until when nothing may be sent to the host, as far as this worker alone knows.
    pub fn of(&self, host: &HostKey, now: Timestamp) -> Option<Timestamp> {
        common::lock(&self.0).get(host).copied().filter(|until| *until > now)
    }
}
