//! What a fetch is given, and what it results in.

use std::time::Duration;

use common::host::{HostKey, HostRules};
use common::host_gate::{HostGate, Permit};
use common::job::Detour;
use common::outcome::Blocker;
use common::report::{Outcome, Probe};
use common::secrets::Login;
use common::time::{Clock, Timestamp};
use common::url::FeedUrl;
use tokio::time::Instant;

use crate::discover::AnnouncedFeed;
use crate::own_holds::OwnHolds;

/// What a fetch needs from around it.
pub struct Hops<'a> {
    /// Charges hops to their hosts.
    pub gate: &'a dyn HostGate,
    /// Which host a URL belongs to.
    pub rules: &'a HostRules,
    /// The time.
    pub clock: &'a dyn Clock,
    /// The job's own permit; its first request is covered by it.
    pub permit: &'a Permit,
    /// Holds that the gate does not have yet.
    pub own_holds: &'a OwnHolds,
    /// When that permit ends: the life of further ones.
    pub deadline: Timestamp,
    /// The credentials of the job's feed, sent to its own origin alone.
    pub login: Option<&'a Login>,
    /// How long a redirect may wait within the fetch until its host is free.
    pub patience: Duration,
}

/// The outcome of a fetch: the part of a report that the fetch decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Fetched {
    /// How it ended.
    pub outcome: Outcome,
    /// The last HTTP status, if an answer came.
    pub http_status: Option<u16>,
    /// The last request carried validators.
    pub conditional: bool,
    /// Bytes of body on the wire.
    pub wire_bytes: u64,
    /// Bytes of body after decoding.
    pub body_bytes: u64,
    /// How long the answer stays fresh, from the fetch's start on.
    pub fresh_for: Option<Duration>,
    /// Where the unbroken permanent prefix of the redirects led, if a good answer was at the end of them.
    pub moved_to: Option<FeedUrl>,
    /// The host of the last request: a throttling outcome applies to it.
    pub last_host: Option<HostKey>,
    /// When the last request went out, after its host's name was resolved and the connection was established: a host's
    /// gap should be counted from here.
    pub last_sent: Option<Instant>,
    /// The same of the last request to the job's own host, whichever host the fetch ended at.
    pub own_sent: Option<Instant>,
    /// From the start until the first request went out: the time for the name, the connection, and a place.
    pub asked_after: Option<Duration>,
    /// From the start to the last byte read, or to the failure.
    pub duration: Duration,
    /// The feeds that the body announces, when it is a page instead of a feed.
    pub announced: Vec<AnnouncedFeed>,
    /// The outcome of a HEAD, sent or not.
    pub probe: Option<Probe>,
    /// When the last server accepts the next request, unless the outcome says it.
    pub retry_after: Option<Timestamp>,
    /// When the last server's hosts may be polled again, if its own limit of requests is used up.
    pub limited_until: Option<Timestamp>,
    /// The service that answered in place of the site.
    pub blocked_by: Option<Blocker>,
    /// The last answer was an unusable 226.
    pub unusable_delta: bool,
    /// The next request should be signed, and this fleet can: one without a signature was refused, or a signed one showed
    /// activities.
    pub wants_signature: bool,
    /// The permanent URL of what was read, by the document's own word.
    pub permanent_url: Option<FeedUrl>,
    /// Of a fetch that was postponed: where it continues.
    pub detour: Option<Detour>,
    /// Bodies whose parsing took longer than it should.
    pub slow_parses: u64,
}

impl Fetched {
    /// Returns whether the host of the last request is to rest after its response, and until when if the server said so. `ended`
    /// is how the fetch ended with that response, if it did.
    pub(crate) fn host_rest(&self, ended: Option<&Outcome>) -> Option<Option<Timestamp>> {
        ended.and_then(Outcome::rest).or_else(|| self.limited_until.map(Some))
    }

    /// Returns an outcome that needed no request.
    pub fn unasked(outcome: Outcome) -> Self {
        Fetched {
            outcome,
            http_status: None,
            conditional: false,
            wire_bytes: 0,
            body_bytes: 0,
            fresh_for: None,
            moved_to: None,
            last_host: None,
            last_sent: None,
            own_sent: None,
            asked_after: None,
            duration: Duration::ZERO,
            announced: Vec::new(),
            probe: None,
            retry_after: None,
            limited_until: None,
            blocked_by: None,
            unusable_delta: false,
            wants_signature: false,
            permanent_url: None,
            detour: None,
            slow_parses: 0,
        }
    }
}
