//! When to poll. [`decide`] is the one function that knows; everything in here is pure: no clock, no randomness, no I/O.
//!
//! `docs/policy.md` has the numbers and their reasons.

mod decide;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use decide::decide;

use crate::config::PolicyConfig;
use crate::feed::{Audience, Category, PollState, Status};
use crate::time::Timestamp;

/// What the policy needs to know of a feed.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// Is it polled?
    pub status: Status,
    /// Who reads it.
    pub audience: Audience,
    /// It is fetched with credentials.
    pub credentials: bool,
    /// Its host's own interval (category F).
    pub host_interval: Option<Duration>,
    /// What was remembered.
    pub state: PollState,
}

/// The policy in force: configuration and the fleet's condition.
#[derive(Clone, Copy, Debug)]
pub struct Policy<'a> {
    /// The numbers.
    pub config: &'a PolicyConfig,
    /// How loaded the fleet is, 0 to 1: moves the classes' intervals through their ranges.
    pub load: f64,
}

/// Random numbers in [0, 1), drawn at the edge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// For the salt.
    pub salt: f64,
    /// For the way out of a hot minute.
    pub minute: f64,
}

/// What [`decide`] says about one report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// What to remember in place of the old state.
    pub state: PollState,
    /// The feed's status from now on.
    pub status: Status,
    /// When to poll next; `None` when it is not polled any more.
    pub next_due: Option<Timestamp>,
    /// The terms that made `next_due`, in the order in which they were applied.
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

/// One term of a due time: the rule, and the due time after it was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    /// Which rule.
    pub rule: Rule,
    /// The due time that it left behind.
    pub due: Timestamp,
}

/// The rules that move a due time. Numbers (positions in [`Rule::ALL`]) are stored: append only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The category's interval.
    Category,
    /// The interval that the posting rate asks for, inside the category's bounds.
    Adaptive,
    /// An interval that a person asked for.
    Person,
    /// Nobody subscribes.
    NoSubscribers,
    /// The host rule's interval (category F).
    HostInterval,
    /// The floor of all scheduled polls.
    MinInterval,
    /// RSS `ttl`.
    Ttl,
    /// `sy:updatePeriod` and `sy:updateFrequency`.
    UpdatePeriod,
    /// `Cache-Control: max-age` or `Expires`.
    Freshness,
    /// `skipHours` or `skipDays`.
    Skip,
    /// No validators, or conditions that the server ignores.
    NoValidators,
    /// The same bytes downloaded again and again.
    EqualDownloads,
    /// Grown by earlier throttling.
    Stretch,
    /// A transient failure's back-off.
    Backoff,
    /// The penalty box.
    PenaltyBox,
    /// The server's Retry-After.
    RetryAfter,
    /// Our own delay after a 429 without Retry-After.
    Throttled,
    /// A ceiling was reached.
    Ceiling,
    /// A random share of the interval on top.
    Salt,
    /// Moved off a hot minute.
    HotMinute,
    /// Added: due at once, or at its place in the import's spread.
    Added,
}

impl Rule {
    /// All of them, in the order of their stored numbers: append only.
    pub const ALL: [Rule; 21] = [
        Rule::Category,
        Rule::Adaptive,
        Rule::Person,
        Rule::NoSubscribers,
        Rule::HostInterval,
        Rule::MinInterval,
        Rule::Ttl,
        Rule::UpdatePeriod,
        Rule::Freshness,
        Rule::Skip,
        Rule::NoValidators,
        Rule::EqualDownloads,
        Rule::Stretch,
        Rule::Backoff,
        Rule::PenaltyBox,
        Rule::RetryAfter,
        Rule::Throttled,
        Rule::Ceiling,
        Rule::Salt,
        Rule::HotMinute,
        Rule::Added,
    ];

    /// The position in [`Self::ALL`].
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// Up to [`Terms::CAPACITY`] terms, without allocation.
#[derive(Clone, Copy, PartialEq)]
pub struct Terms {
    list: [Term; Terms::CAPACITY],
    len: usize,
}

impl Terms {
    /// More terms than a decision can have.
    pub const CAPACITY: usize = 16;

    /// Adds a term.
    ///
    /// # Panics
    /// When there are [`Self::CAPACITY`] already.
    pub fn push(&mut self, rule: Rule, due: Timestamp) {
        self.list[self.len] = Term { rule, due };
        self.len += 1;
    }
}

impl Default for Terms {
    fn default() -> Self {
        Terms { list: [Term { rule: Rule::Category, due: Timestamp::EPOCH }; Terms::CAPACITY], len: 0 }
    }
}

impl std::ops::Deref for Terms {
    type Target = [Term];

    fn deref(&self) -> &[Term] {
        &self.list[..self.len]
    }
}

impl std::fmt::Debug for Terms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

/// The category that a feed's audience puts it in.
pub fn category(subject: &Subject) -> Category {
    let Audience { subscribers, sla, important, .. } = subject.audience;
    if sla {
        Category::A
    } else if subject.host_interval.is_some() {
        Category::F
    } else if important || subscribers > 20 {
        Category::B
    } else if subject.credentials || subscribers >= 2 {
        Category::C
    } else {
        Category::D
    }
}

/// How long a host is held after feed `feed` of it was throttled until `until`: one feed alone holds its host for at most
/// an hour, so that one blog cannot freeze a platform; a second throttled feed makes it the full time.
///
/// `previous` is the host's hold and the feed that caused it, if it still runs.
pub fn host_hold(
    previous: Option<(Timestamp, crate::feed::FeedId)>,
    feed: crate::feed::FeedId,
    until: Timestamp,
    now: Timestamp,
) -> Timestamp {
    match previous {
        Some((held_until, cause)) if held_until > now && cause != feed => until.max(held_until),
        Some((held_until, _)) if held_until > now => held_until.max(until.min(now.after(SINGLE_FEED_HOLD))),
        _ => until.min(now.after(SINGLE_FEED_HOLD)),
    }
}

/// The longest hold that one throttled feed puts on its whole host.
pub const SINGLE_FEED_HOLD: Duration = Duration::from_secs(3600);
