//! What decides about a feed's polls beside its reports: its status, its audience, and what is remembered between two polls.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::head_first::HeadFirst;
use super::rhythm::Rhythm;
use crate::document::FeedHints;
use crate::outcome::{FailureKind, OutcomeKind};
use crate::time::Timestamp;

/// NewsGator's categories, kept by name. The penalty box (E) is a state on top: see [`Penalty`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Category {
    /// Under an SLA.
    A,
    /// Over 20 subscribers, or marked important.
    B,
    /// 2 to 20 subscribers, and every feed with credentials.
    C,
    /// One subscriber, or none.
    D,
    /// On a host with an interval of its own.
    F,
}

impl Category {
    /// All of them, in order.
    pub const ALL: [Category; 5] = [Category::A, Category::B, Category::C, Category::D, Category::F];

    /// The letter.
    pub fn as_str(self) -> &'static str {
        match self {
            Category::A => "A",
            Category::B => "B",
            Category::C => "C",
            Category::D => "D",
            Category::F => "F",
        }
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Is a feed polled, and if not, why not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Polled.
    #[default]
    Active,
    /// Not polled until a person resumes it.
    Paused,
    /// The server answered 410: never polled again.
    Gone,
    /// Failed for a long time: leaves only by a ping and a good fetch, or by an operator.
    Blacklisted,
    /// Killed its workers: not polled until an operator or a new program version lets it out.
    Quarantined,
    /// Taken out by a person.
    Removed,
    /// Moved onto another feed, whose alias it is now.
    Merged,
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 7] = [
        Status::Active,
        Status::Paused,
        Status::Gone,
        Status::Blacklisted,
        Status::Quarantined,
        Status::Removed,
        Status::Merged,
    ];

    /// The name as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Active => "active",
            Status::Paused => "paused",
            Status::Gone => "gone",
            Status::Blacklisted => "blacklisted",
            Status::Quarantined => "quarantined",
            Status::Removed => "removed",
            Status::Merged => "merged",
        }
    }
}

impl FromStr for Status {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Status::ALL.into_iter().find(|status| status.as_str() == name);
        found.ok_or_else(|| format!("'{name}' is no status; one of {}", Status::ALL.map(Status::as_str).join(", ")))
    }
}

/// Who reads a feed, as the people who subscribe it say. Reports never change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Audience {
    /// Subscribers in all.
    pub subscribers: u32,
    /// Of these, the ones that read at present.
    pub active_subscribers: u32,
    /// Content must arrive within two minutes (category A).
    pub sla: bool,
    /// Polled like a feed with many subscribers (category B).
    pub important: bool,
    /// An interval that a person asked for, in place of the category's.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Penalty {
    /// The failure that put it there.
    pub kind: FailureKind,
    /// When it is tried again.
    pub until: Timestamp,
}

/// A permanent redirect that good answers came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// Where it leads: see [`super::move_target`].
    pub target: u64,
    /// The first poll in a row that saw it.
    pub first: Timestamp,
    /// How many in a row.
    pub times: u32,
}

/// What the policy remembers of a feed between two polls. Written by `apply` alone, with the report that it came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PollState {
    /// Start of the last fetch that was answered by a report (never a Deferred).
    pub last_polled: Option<Timestamp>,
    /// The last poll that ended well: Modified or NotModified.
    pub last_success: Option<Timestamp>,
    /// The last poll that brought something new.
    pub last_changed: Option<Timestamp>,
    /// The last HTTP status, if an answer came.
    pub last_status: Option<u16>,
    /// How the last poll ended.
    pub last_outcome: Option<OutcomeKind>,
    /// Failures since the last success; being throttled is none.
    pub consecutive_failures: u32,
    /// The first failure of this run; later by the time in which the feed was not asked at all.
    pub failing_since: Option<Timestamp>,
    /// The last delay of this run of failures, which the next one never undercuts. JSON: milliseconds.
    #[serde(with = "crate::duration::millis")]
    pub failure_delay: Duration,
    /// Set while in the penalty box.
    pub penalty: Option<Penalty>,
    /// Not to be asked before, not even by a person: the server throttled us.
    pub hold_until: Option<Timestamp>,
    /// Times throttled in a row.
    pub throttles: u32,
    /// Factor on the interval, grown by throttling; 1 or less is none.
    pub stretch: f32,
    /// The server's freshness (`max-age`, `Expires`) of the last answer ends here; a person's refresh may come sooner.
    pub fresh_until: Option<Timestamp>,
    /// What the feed itself says.
    pub hints: FeedHints,
    /// The last good answer brought no validators: the next request cannot be conditional.
    pub no_validators: bool,
    /// Conditional requests that were answered in full without anything new, since the last 304.
    pub ignored_conditions: u32,
    /// Full downloads in a row that brought the same bytes.
    pub equal_downloads: u32,
    /// What asking its server with HEAD first saved, or would.
    #[serde(skip_serializing_if = "HeadFirst::is_unknown")]
    pub head_first: HeadFirst,
    /// The permanent redirect that good answers come through, until it is believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sighting: Option<Sighting>,
    /// Where an operator does not want it to move: see [`super::move_target`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declined: Option<u64>,
    /// When it posts. Packed, and so not part of the JSON: a store keeps [`Rhythm::to_bytes`] in a column of its own.
    #[serde(skip)]
    pub rhythm: Rhythm,
}
