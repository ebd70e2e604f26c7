//! When to poll. [`decide()`] is the one function that knows; everything in here is pure: no clock, no randomness, no I/O,
//! and no allocation on the way of a decision.
//!
//! `docs/policy.md` has the numbers and their reasons. Files, in the order in which a due time is made: [`category()`],
//! `adaptive` and `rhythm` (the base interval), `hints` (what the publisher asks for), `cost` (feeds that are dear to ask), `penalty`
//! and `throttle` (trouble), `salt` and `hot_minute` (even load). `moves` tells when a permanent redirect is believed,
//! `head_first` when a poll begins with HEAD. `plan` holds the due time on its way through them.
//!
//! Deliberately not in here: who may start how much (the scheduler's bands and the host gate), wakes (the store keeps
//! them beside the due time), and whose fault a whole fleet's failures are (the scheduler asks [`spare`] where it is ours). The price of a poll is
//! given: [`price`] reckons the next one. Not built yet: polling less where pushes are reliable (`decide`, after the penalty).

mod adaptive;
mod added;
mod category;
mod cost;
mod decide;
mod explain;
mod head_first;
mod hints;
mod hot_minute;
mod minutes;
mod moves;
mod our_fault;
mod penalty;
mod pings;
mod plan;
pub mod price;
mod remember;
mod rhythm;
mod salt;
mod skip;
mod state;
mod terms;
mod throttle;

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use added::{first_due, postponed, replan};
pub use category::{category, rank, sla_unmet, weight};
pub use decide::decide;
pub use explain::{ExplainedTerm, explain};
pub use head_first::HeadFirst;
pub use minutes::Minutes;
pub use moves::{move_is_settled, move_target};
pub use our_fault::{may_be_ours, spare};
pub use pings::{PingWindow, rest_after_poll};
pub use rhythm::Rhythm;
pub use state::{Audience, Category, Penalty, PollState, Sighting, Status};
pub use terms::{Rule, Term, Terms};
pub use throttle::{HostHold, first_hold, host_hold};

use crate::calm::CalmGroup;
use crate::config::PolicyConfig;
use crate::host::HostRule;
use crate::time::Timestamp;

/// What the policy needs to know of a feed.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Is it polled?
    pub status: Status,
    /// Who reads it.
    pub audience: Audience,
    /// Who wants it once a day, beside those.
    pub calm: &'a [CalmGroup],
    /// It is fetched with credentials.
    pub credentials: bool,
    /// Its host's own interval (category F).
    pub host_interval: Option<Duration>,
    /// HTTP statuses that are passing trouble on its host, such as 404.
    pub soft_statuses: &'a [u16],
    /// What was remembered.
    pub state: PollState,
}

impl<'a> Subject<'a> {
    /// A feed without credentials that was never polled, on a host with this rule.
    pub fn new(audience: Audience, rule: Option<&'a HostRule>) -> Self {
        Subject {
            status: Status::Active,
            audience,
            calm: &[],
            credentials: false,
            host_interval: rule.and_then(|rule| rule.interval),
            soft_statuses: rule.map_or(&[], |rule| &rule.soft_statuses),
            state: PollState::default(),
        }
    }
}

/// The policy in force: configuration and the fleet's condition.
#[derive(Clone, Copy, Debug)]
pub struct Policy<'a> {
    /// The numbers.
    pub config: &'a PolicyConfig,
    /// How loaded the fleet is, 0 to 1: moves the classes' intervals through their ranges.
    pub load: f64,
    /// What a poll costs now, in subscriber-hours: moves the adaptive intervals.
    pub price: f64,
}

/// Random numbers in [0, 1), drawn at the edge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// For the salt.
    pub salt: f64,
    /// For the way out of a hot minute.
    pub minute: f64,
}

/// What [`decide()`] says about one report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// What to remember in place of the old state.
    pub state: PollState,
    /// The feed's status from now on.
    pub status: Status,
    /// When to poll next; `None` when it is not polled any more.
    pub next_due: Option<Timestamp>,
    /// The terms that made `next_due`, in the order in which they were applied, beginning with an interval from
    /// [`PollState::last_polled`] on.
    pub terms: Terms,
    /// The whole host is asked to rest until then; the store shortens it while only one feed of the host was throttled.
    pub host_hold: Option<Timestamp>,
    /// What consumers of events are told, if anything.
    pub notice: Option<Notice>,
}

/// A change of a feed's standing that consumers are told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    /// 410: unsubscribe.
    Gone,
    /// Entered the penalty box.
    Penalised,
    /// A good answer after failures in the box.
    Recovered,
    /// Failed for too long: no longer polled.
    Blacklisted,
    /// Killed its workers: no longer polled.
    Quarantined,
}
