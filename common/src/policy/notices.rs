//! The events that a decision publishes to consumers.

use serde::{Deserialize, Serialize};

/// A change of a feed's condition that is published to consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    /// 410: consumers should unsubscribe.
    Gone,
    /// Entered the penalty box.
    Penalised,
    /// Failing for so long that its readers miss something.
    Failing,
    /// A good answer after any of the others.
    Recovered,
    /// Failed for too long: no longer polled.
    Blacklisted,
    /// Crashed its workers: polled rarely.
    Quarantined,
    /// None of its entries was known: some may have been missed.
    Overflowed,
    /// Has not posted for far longer than it ever pauses.
    Silent,
}

/// The notices of one decision, in the order in which they are published. At most two: a change of the feed's standing, and
/// that it is failing, overflowed or silent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notices([Option<Notice>; 2]);

impl Notices {
    /// Creates a list of these, of which either may be absent.
    pub fn of(first: Option<Notice>, second: Option<Notice>) -> Self {
        Notices([first, second])
    }

    /// Returns the notices in order.
    pub fn iter(&self) -> impl Iterator<Item = Notice> + '_ {
        self.0.iter().flatten().copied()
    }

    /// Returns the list without this one.
    #[must_use]
    pub fn without(self, notice: Notice) -> Self {
        Notices(self.0.map(|of| of.filter(|of| *of != notice)))
    }

    /// Returns the first one, if there is any.
    pub fn first(&self) -> Option<Notice> {
        self.iter().next()
    }
}

impl From<Notice> for Notices {
    fn from(notice: Notice) -> Self {
        Notices([Some(notice), None])
    }
}
