//! What determines a feed's polls besides its reports: its status, its audience, and the state between two polls.

use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::head_first::HeadFirst;
use super::pauses::Pauses;
use super::rhythm::Rhythm;
use super::signing::Signing;
use crate::calm::Window;
use crate::document::FeedHints;
use crate::named;
use crate::outcome::{FailureKind, OutcomeKind};
use crate::time::Timestamp;

named! {
    /// NewsGator's categories, with their names. The penalty box (E) is a state in addition to the category: see
    /// [`Penalty`].
    Category {
        /// Under an SLA.
        A = "A",
        /// Over 20 subscribers, or marked important.
        B = "B",
        /// 2 to 20 subscribers, and every feed with credentials.
        C = "C",
        /// One subscriber, or none.
        D = "D",
        /// On a host with its own interval.
        F = "F",
    }
}

named! {
    /// Whether a feed is polled, and if not, why not.
    #[derive(Default)]
    Status {
        /// Polled.
        #[default]
        Active = "active",
        /// Not polled until a person resumes it.
        Paused = "paused",
        /// The server answered 410: not polled, except once after a ping; a good answer to that makes the feed active
        /// again.
        Gone = "gone",
        /// Failed for a long time: not polled, except once after a ping, or by an operator; a good answer makes it
        /// active again.
        Blacklisted = "blacklisted",
        /// Crashed its workers, and was quarantined by an earlier program: not polled until an operator releases it. A quarantine
        /// is a [`Penalty`] now.
        Quarantined = "quarantined",
        /// Removed by a person.
        Removed = "removed",
        /// Merged into another feed, of which it is now an alias.
        Merged = "merged",
    }
}

impl Status {
    /// Returns true if a ping causes a poll of a feed in this status, unless it is quarantined:
    /// [`Feed::hears_pings`](crate::feed::Feed::hears_pings). A person's pause is not ended by strangers.
    pub fn hears_pings(self) -> bool {
        matches!(self, Status::Active | Status::Blacklisted | Status::Gone)
    }
}

impl FromStr for Status {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Status::from_name(name)
            .ok_or_else(|| format!("'{name}' is not a status; one of {}", Status::ALL.map(Status::as_str).join(", ")))
    }
}

/// A feed's audience, as set by the people who subscribe it. Reports never change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Audience {
    /// All subscribers.
    pub subscribers: u32,
    /// The subscribers who are currently active.
    pub active_subscribers: u32,
    /// Content must arrive within two minutes (category A).
    pub sla: bool,
    /// Polled like a feed with many subscribers (category B).
    pub important: bool,
    /// An interval set by a person, which replaces the category's.
    #[serde(with = "crate::duration::optional_seconds")]
    pub interval: Option<Duration>,
}

impl Default for Audience {
    /// A feed added without a count has one active subscriber.
    fn default() -> Self {
        Audience { subscribers: 1, active_subscribers: 1, sla: false, important: false, interval: None }
    }
}

/// The penalty box: why a feed waits longer than its interval, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Penalty {
    /// The failure that put it there.
    pub kind: FailureKind,
    /// When the feed is retried.
    pub until: Timestamp,
}

/// A permanent redirect through which good answers came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// The hash of its target: see [`super::move_target`].
    pub target: u64,
    /// The first poll in a row that saw it.
    pub first: Timestamp,
    /// The number of polls in a row that saw it.
    pub times: u32,
}

/// What the policy remembers about a feed between two polls. Only `apply` writes it, together with the report that
/// caused it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PollState {
    /// Start of the last fetch that produced a report (Deferred does not count).
    pub last_polled: Option<Timestamp>,
    /// The last successful poll: Modified or NotModified.
    pub last_success: Option<Timestamp>,
    /// The last poll with new content.
    pub last_changed: Option<Timestamp>,
    /// The last HTTP status, if there was a response.
    pub last_status: Option<u16>,
    /// How the last poll ended.
    pub last_outcome: Option<OutcomeKind>,
    /// Failures since the last success; throttled polls do not count.
    pub consecutive_failures: u32,
    /// The first failure of this run; moved later by the time in which the feed was not polled at all.
    pub failing_since: Option<Timestamp>,
    /// This run of failures was published as [`super::Notice::Failing`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub failing: bool,
    /// The last delay of this run of failures, a lower bound for the next one. JSON: milliseconds.
    #[serde(with = "crate::duration::millis")]
    pub failure_delay: Duration,
    /// Set while in the penalty box.
    pub penalty: Option<Penalty>,
    /// Until when the feed is not polled, not even on a person's request: the server throttled us.
    pub hold_until: Option<Timestamp>,
    /// Times throttled in a row.
    pub throttles: u32,
    /// Factor on the interval, grown by throttling; 1 or less has no effect.
    pub stretch: f32,
    /// The end of the freshness (`max-age`, `Expires`) of the last answer; a manual refresh may come sooner.
    pub fresh_until: Option<Timestamp>,
    /// The feed's own hints.
    pub hints: FeedHints,
    /// The last good answer had no validators: the next request cannot be conditional.
    pub no_validators: bool,
    /// Conditional requests that returned a full body without anything new, since the last 304.
    pub ignored_conditions: u32,
    /// Full downloads in a row with the same bytes.
    pub equal_downloads: u32,
    /// No delta (RFC 3229) is requested before this time, because the server's last one was unusable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_delta_until: Option<Timestamp>,
    /// Whether requests for the feed are signed.
    #[serde(skip_serializing_if = "Signing::is_unknown")]
    pub signing: Signing,
    /// What polls that start with HEAD saved, or would save.
    #[serde(skip_serializing_if = "HeadFirst::is_unknown")]
    pub head_first: HeadFirst,
    /// The permanent redirect through which good answers come, until it is followed for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sighting: Option<Sighting>,
    /// The target that an operator declined: see [`super::move_target`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declined: Option<u64>,
    /// The last document had none of the identities that were known: see [`Rhythm`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub all_new: bool,
    /// The last document was broken, and read after a repair.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub repaired: bool,
    /// Polls in a row that a ping or refresh caused and that found no new entry: see [`super::PingWindow`].
    #[serde(skip_serializing_if = "is_zero")]
    pub fruitless_wakes: u8,
    /// The last document had no entry that was known.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub overflowing: bool,
    /// The last good poll before entries may have been missed that were not recovered since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap_since: Option<Timestamp>,
    /// The longest interval for now, because the feed overflowed a while ago.
    #[serde(with = "crate::duration::optional_seconds", skip_serializing_if = "Option::is_none")]
    pub overflow_cap: Option<Duration>,
    /// How long the feed pauses.
    #[serde(skip_serializing_if = "Pauses::is_unknown")]
    pub pauses: Pauses,
    /// The newest entry of a feed that is silent: published as [`super::Notice::Silent`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<Timestamp>,
    /// The window before a midnight of calm subscribers that the next poll is planned for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// When the feed posts. Packed, and so not part of the JSON: a store keeps [`Rhythm::to_bytes`] in its own column.
    #[serde(skip)]
    pub rhythm: Rhythm,
}

fn is_zero(count: &u8) -> bool {
    *count == 0
}
