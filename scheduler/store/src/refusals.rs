//! Hosts that refuse us, as the store keeps them: which, since when, and how they rest.

use std::time::Duration;

use common::host::HostKey;
use common::outcome::FailureKind;
use common::time::Timestamp;
use common::url::FeedId;

/// A refusal that is a host's.
#[derive(Clone, Copy, Debug)]
pub struct RefusedHost<'a> {
    /// Which host.
    pub host: &'a HostKey,
    /// The feed that was refused.
    pub feed: FeedId,
    /// How: by a status, or by a page against robots.
    pub failure: FailureKind,
    /// The HTTP status.
    pub status: Option<u16>,
    /// The first rest; each further one is twice as long ...
    pub first: Duration,
    /// ... up to this.
    pub ceiling: Duration,
    /// It refused us before, as far as this scheduler knows. If another one has heard an answer meanwhile, nothing is stored:
    /// one report is not enough to begin with.
    pub is_known: bool,
}

/// A host that refuses us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRefusal {
    /// Which host.
    pub host: HostKey,
    /// Since when.
    pub since: Timestamp,
    /// The end of its rest.
    pub until: Timestamp,
    /// Rests so far.
    pub tries: u32,
    /// How it refused us last.
    pub failure: FailureKind,
    /// The HTTP status.
    pub status: Option<u16>,
}

/// Columns of `host_refusals`: host, since, until, tries, failure, status.
pub(super) type RefusalColumns = (String, i64, i64, i64, String, Option<i64>);

impl HostRefusal {
    /// Hosts that are known at most: each scheduler has all of them in memory.
    pub(super) const MOST: i64 = 10_000;

    /// Reads a row.
    pub(super) fn read((host, since, until, tries, failure, status): RefusalColumns) -> Self {
        let failure = FailureKind::ALL.iter().find(|kind| kind.as_str() == failure).copied();
        HostRefusal {
            host: HostKey::new(&host),
            since: Timestamp::from_millis(since),
            until: Timestamp::from_millis(until),
            tries: u32::try_from(tries).unwrap_or(0),
            failure: failure.unwrap_or(FailureKind::Status),
            status: status.and_then(|status| u16::try_from(status).ok()),
        }
    }
}

impl RefusedHost<'_> {
    /// Returns the two durations in milliseconds.
    pub(super) fn rests(&self) -> (i64, i64) {
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        // Shifted twenty times at most.
        (millis(self.first).min(i64::MAX >> 21), millis(self.ceiling).min(i64::MAX >> 21))
    }
}
