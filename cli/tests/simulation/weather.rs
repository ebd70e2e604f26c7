//! The outcomes of calls: success, one planned fault, or faults at random.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

use crate::life::Server;
use crate::line::{Call, Fate, Weather};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Every call is answered at once.
pub(crate) struct Calm;

impl Weather for Calm {
    fn fate(&mut self, _: &Call, _: Instant) -> Fate {
        Fate::Good
    }

    fn transit(&mut self) -> Duration {
        millis(1)
    }

    fn fetch_times(&mut self) -> [Duration; 2] {
        [millis(10), millis(200)]
    }
}

/// Half of the answers to the calls of a name are lost.
pub(crate) struct LostAnswers {
    name: &'static str,
    random: StdRng,
}

impl LostAnswers {
    pub(crate) fn to(name: &'static str) -> Self {
        LostAnswers { name, random: StdRng::seed_from_u64(1) }
    }
}

impl Weather for LostAnswers {
    fn fate(&mut self, call: &Call, _: Instant) -> Fate {
        if call.name == self.name && self.random.random_bool(0.5) { Fate::After } else { Fate::Good }
    }

    fn transit(&mut self) -> Duration {
        millis(1)
    }

    fn fetch_times(&mut self) -> [Duration; 2] {
        [millis(10), millis(200)]
    }
}

/// A store that answers no call for a while, and is slow after that.
pub(crate) struct SlowStore {
    /// When it stops answering, and when it begins again.
    pub(crate) away: [Instant; 2],
    /// How late its answers are from then on.
    pub(crate) late: Duration,
}

impl Weather for SlowStore {
    fn fate(&mut self, call: &Call, now: Instant) -> Fate {
        let [from, until] = self.away;
        match call.server {
            Server::Store if now >= until => Fate::LateAnswer(self.late),
            Server::Store if now >= from => Fate::Silent,
            _ => Fate::Good,
        }
    }

    fn transit(&mut self) -> Duration {
        millis(1)
    }

    fn fetch_times(&mut self) -> [Duration; 2] {
        [millis(10), millis(200)]
    }
}

/// A fault of a chosen call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// The fate of this one call.
    Once(Fate),
    /// From this call on, its server is silent for this long.
    Outage(Duration),
    /// From this call on, every call of its name meets this fate, for this long.
    Spell(Fate, Duration),
}

/// One planned fault at the call with this number.
pub(crate) struct Planned {
    /// Counts the calls of this name alone.
    name: Option<&'static str>,
    pub(crate) at: usize,
    pub(crate) plan: Plan,
    pub(crate) calls: usize,
    outage: Option<(Server, Instant)>,
    spell: Option<(&'static str, Fate, Instant)>,
}

impl Planned {
    pub(crate) fn new(at: usize, plan: Plan) -> Self {
        Planned { name: None, at, plan, calls: 0, outage: None, spell: None }
    }

    /// The same at the first call of this name.
    pub(crate) fn first(name: &'static str, plan: Plan) -> Self {
        Planned::nth(name, 0, plan)
    }

    /// The same at a later one.
    pub(crate) fn nth(name: &'static str, at: usize, plan: Plan) -> Self {
        Planned { name: Some(name), ..Planned::new(at, plan) }
    }
}

impl Weather for Planned {
    fn fate(&mut self, call: &Call, now: Instant) -> Fate {
        let number = self.calls;
        let counts = self.name.is_none_or(|name| name == call.name);
        self.calls += usize::from(counts);
        if let Some((server, until)) = self.outage {
            return if server == call.server && now < until { Fate::Silent } else { Fate::Good };
        }
        if let Some((name, fate, until)) = self.spell {
            return if name == call.name && now < until { fate } else { Fate::Good };
        }
        match self.plan {
            _ if number != self.at || !counts => Fate::Good,
            Plan::Once(fate) => fate,
            Plan::Spell(fate, lasts) => {
                self.spell = Some((call.name, fate, now + lasts));
                fate
            }
            Plan::Outage(lasts) => {
                self.outage = Some((call.server, now + lasts));
                Fate::Silent
            }
        }
    }

    fn transit(&mut self) -> Duration {
        millis(1)
    }

    fn fetch_times(&mut self) -> [Duration; 2] {
        [millis(10), millis(200)]
    }
}

/// Faults at random, and messages that overtake each other.
pub(crate) struct Storm {
    random: StdRng,
    /// The share of calls that fail.
    share: f64,
    /// The longest time that messages are in transit.
    slow: u64,
}

impl Storm {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let share = [0.0, 0.002, 0.01, 0.04][random.random_range(0..4)];
        let slow = [2, 30, 300][random.random_range(0..3)];
        Storm { random, share, slow }
    }

    /// One for a life of days, in which hardly a call fails.
    pub(crate) fn seldom(seed: u64) -> Self {
        let mut storm = Storm::new(seed);
        storm.share /= 20.0;
        storm
    }
}

impl Weather for Storm {
    fn fate(&mut self, _: &Call, _: Instant) -> Fate {
        let random = &mut self.random;
        if !random.random_bool(self.share) {
            return Fate::Good;
        }
        let by = millis(random.random_range(0..8_000));
        [Fate::Before, Fate::After, Fate::Late(by), Fate::LateAnswer(by), Fate::Silent][random.random_range(0..5)]
    }

    fn transit(&mut self) -> Duration {
        millis(self.random.random_range(0..=self.slow))
    }

    fn fetch_times(&mut self) -> [Duration; 2] {
        let random = &mut self.random;
        let connecting = if random.random_bool(0.1) { 900 } else { 60 };
        let answering = if random.random_bool(0.05) { 4_000 } else { 500 };
        [millis(random.random_range(1..connecting)), millis(random.random_range(5..answering))]
    }
}
