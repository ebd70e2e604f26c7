//! The history of a life: for people when a rule is broken, and as a number that is the same for the same history.

use std::collections::VecDeque;
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};

use common::host::HostKey;
use common::time::Timestamp;

use crate::line::{Call, Fate};

/// Lines that are kept.
const KEPT: usize = 20_000;

/// Something that happened.
#[derive(Clone, Debug, Hash)]
pub(crate) enum Happened {
    Fault(Call, Fate),
    Granted { feed: i64 },
    Asked { flight: u64, feed: i64, version: i64, host: HostKey },
    Answered { flight: u64, hold: Option<Timestamp> },
    Cut { flight: u64 },
    Stored { feed: i64, version: i64, due: Option<Timestamp> },
    Woken { feed: i64, due: Timestamp },
    Driver(String),
}

/// What happened, with its time and the process to which it happened.
#[derive(Default)]
pub(crate) struct History {
    lines: VecDeque<(Timestamp, String, Happened)>,
    hash: DefaultHasher,
}

impl History {
    pub(crate) fn note(&mut self, who: &(impl Display + ?Sized), what: Happened, now: Timestamp) {
        let who = who.to_string();
        (now, &who, &what).hash(&mut self.hash);
        if self.lines.len() == KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back((now, who, what));
    }

    /// The same for the same history.
    pub(crate) fn hash(&self) -> u64 {
        self.hash.finish()
    }

    /// Returns it for people.
    pub(crate) fn story(&self) -> String {
        let line = |(at, who, what): &(Timestamp, String, Happened)| format!("{at} {who}: {what:?}\n");
        self.lines.iter().map(line).collect()
    }
}
