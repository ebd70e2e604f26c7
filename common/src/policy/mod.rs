//! When to poll. [`decide()`] is the entry point; everything in this module is pure: no clock, no randomness, no I/O,
//! and no allocation during a decision.
//!
//! `docs/policy.md` lists the numbers and their reasons. The files, in the order in which a due time is computed:
//! [`category()`], `adaptive` and `rhythm` (the base interval), `hints` (what the publisher requests), `cost` (feeds
//! that are expensive to poll), `penalty` and `throttle` (failures), `salt` and `hot_minute` or `near` (even load).
//! `moves` decides when a permanent redirect is followed for good, `head_first` when a poll starts with HEAD. `plan`
//! holds the due time in progress.
//!
//! Deliberately not here: limits on concurrent polls (the scheduler's bands and the host gate), wakes (the store keeps
//! them next to the due time), and detection of failures of our own network (the scheduler calls [`spare`] for those, and
//! [`host_refused()`] for hosts that refuse us).
//! The price of a poll is an argument; [`price`] computes the next one. `pushed` polls less where pushes are reliable;
//! whether they are is an argument, too.

mod adaptive;
mod added;
mod category;
mod consent;
mod cost;
mod decide;
mod explain;
mod failing;
mod head_first;
mod hints;
mod host_refused;
mod hot_minute;
mod midnight;
mod minutes;
mod moves;
mod near;
mod notices;
mod our_fault;
mod overflow;
mod pauses;
mod penalty;
mod pings;
mod plan;
pub mod price;
mod pushed;
mod remember;
mod rhythm;
mod salt;
mod signing;
mod silence;
mod skip;
mod state;
mod terms;
mod throttle;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use added::{first_due, postponed, replan, usual_reach};
pub use category::{category, rank, sla_unmet, weight};
pub use decide::decide;
pub use explain::{ExplainedTerm, explain, named};
pub use head_first::HeadFirst;
pub use host_refused::{REFUSALS, host_refused, is_refusal};
pub use hot_minute::{OPEN_REACH, next_open};
pub use minutes::Minutes;
pub use moves::{move_is_settled, move_target};
pub use notices::{Notice, Notices};
pub use our_fault::{may_be_ours, may_have_arrived, spare, spare_arrived};
pub use pauses::Pauses;
pub use pings::{PingWindow, rest_after_poll};
pub use rhythm::Rhythm;
pub use signing::Signing;
pub use state::{Audience, Category, Penalty, PollState, Sighting, Status};
pub use terms::{Rule, Term, Terms};
pub use throttle::{HostHold, first_hold, held_by_limit, host_hold, limit_hold};

use crate::calm::CalmGroup;
use crate::config::PolicyConfig;
use crate::host::HostRule;
use crate::time::Timestamp;

/// What the policy needs to know about a feed.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Whether it is polled.
    pub status: Status,
    /// Its audience.
    pub audience: Audience,
    /// Calm subscribers, who want it once a day, in addition to the audience.
    pub calm: &'a [CalmGroup],
    /// Whether it is fetched with credentials.
    pub credentials: bool,
    /// The interval set for its host (category F).
    pub host_interval: Option<Duration>,
    /// The host's `floor_by_consent`.
    pub floor_by_consent: Option<bool>,
    /// HTTP statuses that count as transient on its host, such as 404.
    pub soft_statuses: &'a [u16],
    /// Other feeds of its host are answered by such a status at present.
    pub soft_alike: bool,
    /// How long a run of failures by such a status may last without the penalty box while they are.
    pub soft_for: Duration,
    /// A hub or a cloud announces its new entries, and proved reliable.
    pub pushed: bool,
    /// What is remembered from earlier polls.
    pub state: PollState,
}

impl<'a> Subject<'a> {
    /// Creates a feed without credentials that was never polled, on a host with this rule.
    pub fn new(audience: Audience, rule: Option<&'a HostRule>) -> Self {
        Subject {
            status: Status::Active,
            audience,
            calm: &[],
            credentials: false,
            host_interval: rule.and_then(|rule| rule.interval),
            floor_by_consent: rule.and_then(|rule| rule.floor_by_consent),
            soft_statuses: rule.map_or(&[], |rule| &rule.soft_statuses),
            soft_alike: false,
            soft_for: rule.map_or(Duration::ZERO, HostRule::soft_for),
            pushed: false,
            state: PollState::default(),
        }
    }
}

/// The policy in force: configuration and the fleet's current condition.
#[derive(Clone, Copy, Debug)]
pub struct Policy<'a> {
    /// The numbers.
    pub config: &'a PolicyConfig,
    /// How loaded the fleet is, 0 to 1: moves the classes' intervals within their ranges.
    pub load: f64,
    /// The price of a poll, in subscriber-hours: determines the adaptive intervals.
    pub price: f64,
}

/// Random numbers in [0, 1), drawn by the caller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// For the salt.
    pub salt: f64,
    /// For the move out of a hot minute.
    pub minute: f64,
}

/// What [`decide()`] concludes from one report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// The state to store in place of the old one.
    pub state: PollState,
    /// The feed's status from now on.
    pub status: Status,
    /// When to poll next; `None` when the feed is no longer polled.
    pub next_due: Option<Timestamp>,
    /// The terms that led to `next_due`, in the order in which they were applied, starting with an interval from
    /// [`PollState::last_polled`].
    pub terms: Terms,
    /// Until when the whole host is held; the store shortens it while only one feed of the host was throttled, or if its limit of
    /// requests is used up and none was.
    pub host_hold: Option<Timestamp>,
    /// The events to publish to consumers.
    pub notices: Notices,
}
