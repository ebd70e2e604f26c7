//! The politeness rules of a run.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use common::time::Timestamp;

use super::stalls::Stalls;
use crate::origin::log::Record;

/// The politeness rules of a run.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Minimum time between two polls of a path after a good response, whatever its server said.
    pub floor: Duration,
    /// The same for single paths; overrides [`Rules::floor`].
    pub floors: HashMap<String, Duration>,
    /// Paths that may be polled with HEAD before GET.
    pub heads: HashSet<String>,
    /// Minimum time between the starts of two requests to a host.
    pub gap: Duration,
    /// Requests that may start at once after an idle time; 1 = strictly spaced.
    pub burst: u32,
    /// Maximum number of requests in flight at a host.
    pub parallel: usize,
    /// Tolerance for scheduling, connecting and two clocks.
    pub slack: Duration,
    /// When the origin or the client got no processor time: a difference near a stall only counts beyond its length.
    pub stalls: Stalls,
    /// Maximum freshness (`max-age`, `Expires`) that has to be respected.
    pub freshness_ceiling: Duration,
    /// Maximum `Retry-After` that has to be respected.
    pub retry_after_ceiling: Duration,
    /// How long one throttled path holds its whole host, until a second one of that host is also throttled.
    pub single_hold_ceiling: Duration,
    /// Numbers of the requests whose results the client may not know, as a [`Proof`](super::Proof) names them.
    pub undone: BTreeSet<usize>,
    /// When a client without a history was killed: any fetch in flight then, or just answered, may be undone.
    pub kills: Vec<Timestamp>,
    /// How long after a response's end a client may still be committing it when it is killed.
    pub commit_window: Duration,
}

impl Default for Rules {
    /// Returns feedfleet's promises: no floor, a gap of a second, one request at a time, a day of freshness, 30 days of
    /// `Retry-After`, an hour for one throttled path; 50 ms of slack, a second to commit.
    fn default() -> Self {
        Rules {
            floor: Duration::ZERO,
            floors: HashMap::new(),
            heads: HashSet::new(),
            gap: Duration::from_secs(1),
            burst: 1,
            parallel: 1,
            slack: Duration::from_millis(50),
            stalls: Stalls::default(),
            freshness_ceiling: Duration::from_secs(24 * 3600),
            retry_after_ceiling: Duration::from_secs(30 * 24 * 3600),
            single_hold_ceiling: Duration::from_secs(3600),
            undone: BTreeSet::new(),
            kills: Vec::new(),
            commit_window: Duration::from_secs(1),
        }
    }
}

impl Rules {
    pub(super) fn floor_of(&self, path: &str) -> Duration {
        self.floors.get(path).copied().unwrap_or(self.floor)
    }

    /// Returns whether a request that seems early by this much really is early.
    pub(super) fn is_early(&self, record: &Record, early: Duration) -> bool {
        early > self.slack && early > self.slack + self.stalls.before(record.start)
    }

    /// Returns whether the client may not know the result of this fetch: the history says so, or a kill may have undone it.
    pub(super) fn may_be_undone(&self, record: &Record) -> bool {
        if self.undone.contains(&record.number) {
            return true;
        }
        let from = record.wall.before(self.slack + self.stalls.before(record.start));
        let until = record.end.map(|end| record.wall.after(end.saturating_sub(record.start) + self.commit_window));
        self.kills.iter().any(|kill| *kill >= from && until.is_none_or(|until| *kill <= until))
    }
}
