//! A scheduler's order to a worker: one conditional fetch.

use serde::{Deserialize, Serialize};

use crate::document::{ContentHash, Validators};
use crate::host::HostKey;
use crate::host_gate::Ticket;
use crate::job_mac::JobMac;
use crate::known::KnownEntries;
use crate::push::PushedBody;
use crate::secrets::Sealed;
use crate::time::Timestamp;
use crate::url::{FeedId, FeedUrl, Version};

/// One fetch to be made. Carries everything a stateless worker needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FetchJob {
    /// Which feed.
    pub feed: FeedId,
    /// The feed row's version when the job was built; the report echoes it.
    pub version: Version,
    /// Where to fetch.
    pub url: FeedUrl,
    /// The user name and password to be sent there, which only workers can open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Sealed>,
    /// The unit of politeness that the ticket is for.
    pub host: HostKey,
    /// The slot reserved at the host.
    pub ticket: Ticket,
    /// Nothing starts after this time: the feed becomes due again when its lease expires.
    pub expires: Timestamp,
    /// For the conditional request.
    #[serde(default)]
    pub validators: Validators,
    /// The last accepted body's hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_hash: Option<ContentHash>,
    /// Entries that need not be reported again.
    #[serde(default)]
    pub known: KnownEntries,
    /// The wake that waited when the job was built: its fetch, which can only start later, answers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
    /// Whether HEAD before the GET saves bytes at this feed; `None`: unknown, its host's rule says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_first: Option<bool>,
    /// The server's deltas (RFC 3229) were unusable recently: the request does not accept any.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_delta: bool,
    /// How many epochs the store had begun when the job was built. A store that was restored, or failed over to a standby that lagged, gives
    /// versions out again.
    #[serde(default, skip_serializing_if = "is_first_epoch")]
    pub epochs: u32,
    /// The feed's URL refused an unsigned request: the request is for an actor, and signed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub signed: bool,
    /// Where to continue a fetch that a busy host interrupted: [`Self::host`] is then that host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detour: Option<Detour>,
    /// A person has just added the feed: when it is a page that announces none, the common feed paths of its host are tried.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub search: bool,
    /// For the `User-Agent`.
    #[serde(default)]
    pub subscribers: u32,
    /// The body that a hub delivered: it is read in place of a fetch, without any request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushed: Option<Box<PushedBody>>,
    /// [`Self::url`] is a page of the feed's older entries ([`crate::archive`]), not the feed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub page: bool,
    /// The scheduler's authentication code, which the report echoes; `None`: of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<JobMac>,
}

fn is_first_epoch(epochs: &u32) -> bool {
    *epochs == 0
}

impl FetchJob {
    /// Returns a job for a feed of which nothing else is known.
    pub fn of(feed: FeedId, version: Version, host: HostKey, url: FeedUrl, ticket: Ticket, expires: Timestamp) -> Self {
        FetchJob {
            feed,
            version,
            url,
            credentials: None,
            host,
            ticket,
            expires,
            validators: Validators::default(),
            content_hash: None,
            known: KnownEntries::default(),
            wake_at: None,
            head_first: None,
            without_delta: false,
            epochs: 0,
            signed: false,
            detour: None,
            search: false,
            subscribers: 0,
            pushed: None,
            page: false,
            mac: None,
        }
    }

    /// Returns the version by which the host gate remembers what was started and reported.
    pub fn gate_version(&self) -> Version {
        self.version.in_epoch(self.epochs)
    }
}

/// How far redirects led a fetch before the next host was busy: the next job of the feed continues there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detour {
    /// The URL to request next.
    pub next: FeedUrl,
    /// The way there, as workers write it; opaque to all other code.
    pub way: String,
    /// The fetch is of a page of older entries: see [`FetchJob::page`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub page: bool,
    /// No request before this: the last answer asked for that, or a bound of ours does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
}
