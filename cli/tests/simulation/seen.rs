//! What the judge has seen of hosts, feeds and requests.

use std::collections::BTreeSet;

use common::host::HostKey;
use common::time::Timestamp;
use common::url::FeedId;

use crate::holds::Hold;

/// A host as its requests show it.
#[derive(Debug, Default)]
pub(crate) struct Host {
    pub(crate) started: Option<Timestamp>,
    pub(crate) holds: Vec<Hold>,
    /// The flights at it.
    pub(crate) flights: BTreeSet<u64>,
    /// When processes died with a request to it in flight. Its place is taken until the permit ends.
    pub(crate) cuts: Vec<Timestamp>,
}

/// A feed as the store and its requests show it.
#[derive(Clone, Debug)]
pub(crate) struct Feed {
    pub(crate) version: i64,
    pub(crate) due: Option<Timestamp>,
    pub(crate) deadly: bool,
    pub(crate) host: HostKey,
    /// When the fetch of its last request began, that request, and whether a poll was requested since.
    pub(crate) asked: Option<(Timestamp, u64)>,
    pub(crate) woken: bool,
    /// When its last report was stored.
    pub(crate) stored: Option<Timestamp>,
    /// The number of its newest stored entry.
    pub(crate) newest: u64,
    /// A job of it is in the queue, and may start until then.
    pub(crate) job: Option<Timestamp>,
    /// The store lost a poll of it, which is repeated, or a wake, whose job may be on its way.
    pub(crate) lost: bool,
    /// The process of its last stored report was killed, perhaps before it released its permit: a job of that version may start once more.
    pub(crate) unreleased: bool,
    /// Since its last report a process was killed that fetched this feed and no other: it looks like a feed that kills.
    pub(crate) died_alone: bool,
}

/// A request, until a report of its feed is stored.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) feed: FeedId,
    pub(crate) host: HostKey,
    pub(crate) life: u32,
    /// When its permit ends.
    pub(crate) ends: Timestamp,
    pub(crate) cut: bool,
    /// A report of it is in the queue.
    pub(crate) reported: bool,
    /// Its process was stopped until after its permit had ended, and had not reported: nobody can tell it from a dead one.
    pub(crate) overslept: bool,
}
