//! What a worker says about one fetch.
//!
//! A server that misbehaves is a value in here, never an `Err`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::entry::{Entry, Fingerprint};
use crate::feed::{ContentHash, FeedHints, FeedId, FeedUrl, Onward, Validators, Version};
use crate::host::HostKey;
use crate::known::KnownEntries;
use crate::time::Timestamp;

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
    /// Who gave the last answer, if redirects led to another host than [`Self::host`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<HostKey>,
    /// Where the unbroken permanent prefix of the redirects led.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<FeedUrl>,
    /// The feeds that the body announces, when it is a page instead of a feed; a few at most, the likeliest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub announced: Vec<FeedUrl>,
    /// What a HEAD came to, or would have come to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
}

/// Whether a HEAD before the GET told, or would have told, that nothing is new.
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
    /// None was sent. The whole answer carried the very validators that it was asked with: a HEAD would have told.
    Known,
}

impl FetchReport {
    /// A report that says how it ended and nothing more: no answer, no bytes, no time taken.
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
        }
    }

    /// Who gave the last answer: the host that a throttling outcome speaks of.
    pub fn answering_host(&self) -> &HostKey {
        self.answered_by.as_ref().unwrap_or(&self.host)
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
        /// The server's own time, if it gave a usable one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<Timestamp>,
    },
    /// Anything else that went wrong over there.
    Failed {
        /// Which thing.
        failure: FailureKind,
        /// One line for people; holds no secrets.
        detail: String,
    },
    /// 410.
    Gone,
    /// Not asked: no version, penalty or history entry follows.
    Deferred {
        /// Ask again then.
        until: Timestamp,
    },
}

/// What a good answer brought.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Document {
    /// The feed's title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The site that the feed belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// The answer's validators.
    pub validators: Validators,
    /// The hash of its body. `None` only in messages of a broken sender.
    pub content_hash: Option<ContentHash>,
    /// What the feed says about when to poll.
    pub hints: FeedHints,
    /// Its WebSub hub, if it announces one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hub: Option<String>,
    /// Its own idea of its URL (`rel=self`), the topic of its hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_link: Option<String>,
    /// Its rssCloud, as `domain:port/path protocol`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud: Option<String>,
    /// What it says about its further documents and its end.
    #[serde(skip_serializing_if = "Onward::is_empty")]
    pub onward: Onward,
    /// It was broken, and read after a repair.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub repaired: bool,
    /// Entries that the job did not know, or knew with other content. The document's last one first: documents begin with
    /// their newest entry, and consumers, who read in the order of storing, want it last.
    pub entries: Vec<Entry>,
    /// Of these, how many had an identity that the job did not know.
    pub new_entries: u32,
    /// Entries in the whole document.
    pub all_entries: u32,
    /// The known entries after this document.
    pub known: KnownEntries,
}

impl Document {
    /// Keeps the entries that `known` does not hold in this very form, and counts the new identities.
    /// `entries` are all entries of the document, in its order.
    pub fn keep_news(&mut self, entries: Vec<Entry>, known: &KnownEntries) {
        let fingerprints: Vec<Fingerprint> = entries.iter().map(Entry::fingerprint).collect();
        self.all_entries = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        self.known = known.after_document(fingerprints.iter().copied());
        self.new_entries = 0;
        for (entry, fingerprint) in entries.into_iter().zip(fingerprints) {
            if !known.contains(fingerprint) {
                self.new_entries += u32::from(!known.knows_identity(fingerprint));
                self.entries.push(entry);
            }
        }
    }
}

macro_rules! named {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$doc])* #[serde(rename = $text)] $variant,)+ }

        impl $name {
            /// All of them, in the order of their numbers in stored histories: append only.
            pub const ALL: &[$name] = &[$($name::$variant,)+];

            /// The name in JSON, metrics and logs.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

named! {
    /// The kinds of failure, each with a row in the penalty table.
    FailureKind {
        /// The name has no address, or the name server did not answer.
        Dns = "dns",
        /// No connection.
        Connect = "connect",
        /// The TLS handshake failed: certificate, name, protocol.
        Tls = "tls",
        /// A deadline passed.
        Timeout = "timeout",
        /// A status that is neither success, redirect, throttling nor 410; the report's `http_status` says which.
        Status = "status",
        /// More header, body, or decoded bytes than allowed.
        TooLarge = "too_large",
        /// The body is something else: a page, an empty file.
        NotAFeed = "not_a_feed",
        /// The body or the answer is broken.
        Malformed = "malformed",
        /// Fewer bytes than announced.
        Truncated = "truncated",
        /// Too many redirects, a loop, or one to nowhere.
        Redirects = "redirects",
        /// The address or port may not be dialled.
        RefusedAddress = "refused_address",
        /// Workers died over it.
        Crashed = "crashed",
    }
}

named! {
    /// An outcome without what it brought; the label of `feedfleet_polls_total`.
    OutcomeKind {
        /// [`Outcome::Modified`]
        Modified = "modified",
        /// [`Outcome::NotModified`]
        NotModified = "not_modified",
        /// [`Outcome::Throttled`]
        Throttled = "throttled",
        /// [`Outcome::Failed`]
        Failed = "failed",
        /// [`Outcome::Gone`]
        Gone = "gone",
        /// [`Outcome::Deferred`]
        Deferred = "deferred",
    }
}

impl Outcome {
    /// Which kind.
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

    /// The kind of failure, if it is one.
    pub fn failure(&self) -> Option<FailureKind> {
        match self {
            Outcome::Failed { failure, .. } => Some(*failure),
            _ => None,
        }
    }
}
