//! What a worker says about one fetch.
//!
//! A server that misbehaves is a value in here, never an `Err`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::document::{Document, Validators};
use crate::host::HostKey;
use crate::job::Detour;
use crate::job_mac::JobMac;
use crate::outcome::{Blocker, FailureKind, OutcomeKind};
use crate::time::Timestamp;
use crate::url::{FeedId, FeedUrl, Version};

/// The report on one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FetchReport {
    /// Which feed.
    pub feed: FeedId,
    /// The job's version, echoed.
    pub version: Version,
    /// The unit of politeness that the job was charged to.
    pub host: HostKey,
    /// When the request started (for a Deferred: when the job was looked at).
    pub started: Timestamp,
    /// From start to the last byte read, or to the failure. JSON: milliseconds.
    #[serde(with = "crate::duration::millis")]
    pub duration: Duration,
    /// How it ended.
    pub outcome: Outcome,
    /// The last HTTP status, if an answer came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
    /// The request carried validators.
    #[serde(default)]
    pub conditional: bool,
    /// Bytes of body on the wire.
    #[serde(default)]
    pub wire_bytes: u64,
    /// Bytes of body after decoding.
    #[serde(default)]
    pub body_bytes: u64,
    /// How long the answer stays fresh by its `Cache-Control` or `Expires`, from [`Self::started`] on. JSON: milliseconds.
    #[serde(default, with = "crate::duration::optional_millis", skip_serializing_if = "Option::is_none")]
    pub fresh_for: Option<Duration>,
    /// The wake that the job answers, echoed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers_wake: Option<Timestamp>,
    /// The host that sent the last answer, if redirects led to another host than [`Self::host`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<HostKey>,
    /// Where the unbroken permanent prefix of the redirects led.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<FeedUrl>,
    /// The feeds that the body announces, when it is a page instead of a feed; a few at most, the likeliest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub announced: Vec<FeedUrl>,
    /// The outcome of a HEAD, sent or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// When the server accepts the next request, with any status but those of [`Outcome::Throttled`], which carries it
    /// itself. Of an [`Outcome::Deferred`]: wait until then even if the host is free earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Timestamp>,
    /// When the last host may be polled again whose own limit of requests is used up, with any outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_until: Option<Timestamp>,
    /// Of [`FailureKind::Blocked`]: the blocker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<Blocker>,
    /// Of an [`Outcome::Deferred`]: where the fetch continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detour: Option<Detour>,
    /// The server answered with an unusable 226 (a delta).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unusable_delta: bool,
    /// The next request should be signed, and this fleet can: the server refused one without a signature, perhaps because it
    /// shows an actor to known readers only, or answered a signed one with activities.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wants_signature: bool,
    /// The permanent URL of what was read, as the document itself says: an actor's own one of its page, an account's by
    /// its identifier in place of its handle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permanent_url: Option<FeedUrl>,
    /// The report is about a hub's delivery ([`crate::job::FetchJob::pushed`]), not about a poll: the feed's state and
    /// due time stay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pushed: bool,
    /// It is the report on a page of older entries ([`crate::job::FetchJob::page`]), not on a poll.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub page: bool,
    /// The job's authentication code, echoed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<JobMac>,
}

/// Whether a HEAD before the GET showed, or would have shown, that nothing is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probe {
    /// It did: by 304, or by the validators that are known.
    Enough {
        /// Bytes of both heads, its own and its answer's.
        spent: u32,
        /// How long the body would have been, by the answer's word.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        length: Option<u64>,
    },
    /// It did not: a GET followed.
    NotEnough {
        /// Bytes of both heads.
        spent: u32,
    },
    /// The server answers no HEAD, or not as it answers a GET.
    Refused,
    /// None was sent. The full response carried the same validators as the request: a HEAD would have been enough.
    Known,
}

impl FetchReport {
    /// Returns a report that says how it ended and nothing more: no answer, no bytes, no time taken.
    pub fn of(feed: FeedId, version: Version, host: HostKey, started: Timestamp, outcome: Outcome) -> Self {
        FetchReport {
            feed,
            version,
            host,
            started,
            duration: Duration::ZERO,
            outcome,
            http_status: None,
            conditional: false,
            wire_bytes: 0,
            body_bytes: 0,
            fresh_for: None,
            answers_wake: None,
            answered_by: None,
            moved_to: None,
            announced: Vec::new(),
            probe: None,
            retry_after: None,
            limited_until: None,
            blocked_by: None,
            detour: None,
            unusable_delta: false,
            wants_signature: false,
            permanent_url: None,
            pushed: false,
            page: false,
            mac: None,
        }
    }

    /// Returns the host that sent the last answer: a throttling outcome and a used-up limit apply to it.
    pub fn answering_host(&self) -> &HostKey {
        self.answered_by.as_ref().unwrap_or(&self.host)
    }

    /// Returns whether the whole host that sent the last answer is to rest after it, and until when if the server said so.
    pub fn host_rest(&self) -> Option<Option<Timestamp>> {
        self.outcome.rest().or_else(|| self.limited_until.map(Some))
    }
}

/// How a fetch ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// A good answer with other bytes than last time.
    Modified(Box<Document>),
    /// 304, or 200 with the same content hash.
    NotModified {
        /// What to store in place of the old validators: a 304's fields replace one by one, a 200's as a whole.
        validators: Validators,
    },
    /// 429, or 503 with Retry-After.
    Throttled {
        /// The server's own time, if it sent a usable one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<Timestamp>,
    },
    /// Any other failure of the server.
    Failed {
        /// Which thing.
        failure: FailureKind,
        /// One line for people; holds no secrets.
        detail: String,
    },
    /// 410.
    Gone,
    /// Not requested: no version, penalty or history entry follows.
    Deferred {
        /// When to request it again.
        until: Timestamp,
    },
}

impl Outcome {
    /// Returns the kind.
    pub fn kind(&self) -> OutcomeKind {
        match self {
            Outcome::Modified(_) => OutcomeKind::Modified,
            Outcome::NotModified { .. } => OutcomeKind::NotModified,
            Outcome::Throttled { .. } => OutcomeKind::Throttled,
            Outcome::Failed { .. } => OutcomeKind::Failed,
            Outcome::Gone => OutcomeKind::Gone,
            Outcome::Deferred { .. } => OutcomeKind::Deferred,
        }
    }

    /// Returns whether its whole host is to rest after it, and until when if the server said so.
    pub fn rest(&self) -> Option<Option<Timestamp>> {
        match self {
            Outcome::Throttled { retry_after } => Some(*retry_after),
            Outcome::Failed { failure: FailureKind::Blocked, .. } => Some(None),
            _ => None,
        }
    }

    /// Returns the kind of failure, if it is one.
    pub fn failure(&self) -> Option<FailureKind> {
        match self {
            Outcome::Failed { failure, .. } => Some(*failure),
            _ => None,
        }
    }
}
