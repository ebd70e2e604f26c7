//! How long a feed pauses, and whether it has fallen silent.
//!
//! The longest pause between two posts is remembered, and fades with a time constant of a year. A feed is silent once it has not
//! posted for `policy.silent_factor` times as long. Nothing that follows from the mean works: posts come in groups, so that some
//! feeds pause for thirty times their mean gap each month.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Notice;
use super::plan::scaled;
use crate::config::PolicyConfig;
use crate::document::Document;
use crate::entry::Entry;
use crate::policy::PollState;
use crate::time::Timestamp;

/// Posts less than an hour apart are one post.
const TOGETHER: u32 = 60;
/// The number of pauses without which nothing is known.
const ENOUGH: u8 = 10;
/// The time constant with which the longest pause fades, in minutes: vacations come once a year.
const FADES: f64 = 365.0 * 24.0 * 60.0;
const MILLIS_PER_MINUTE: i64 = 60_000;

/// The pauses between a feed's posts, in constant space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, u32, u8)", into = "(u32, u32, u8)")]
pub struct Pauses {
    /// The longest pause, faded, in minutes.
    longest: u32,
    /// When the newest post appeared, in minutes since 1970; 0: unknown.
    newest: u32,
    /// Pauses seen, at most 255.
    seen: u8,
}

impl From<(u32, u32, u8)> for Pauses {
    fn from((longest, newest, seen): (u32, u32, u8)) -> Self {
        Pauses { longest, newest, seen }
    }
}

impl From<Pauses> for (u32, u32, u8) {
    fn from(pauses: Pauses) -> Self {
        (pauses.longest, pauses.newest, pauses.seen)
    }
}

impl Pauses {
    /// Returns true if no post was seen.
    pub fn is_unknown(&self) -> bool {
        *self == Pauses::default()
    }

    /// Returns when the newest post appeared, to the minute.
    pub fn newest(&self) -> Option<Timestamp> {
        (self.newest > 0).then(|| Timestamp::from_millis(i64::from(self.newest) * MILLIS_PER_MINUTE))
    }

    /// Returns the longest pause, as far as it is remembered; `None` before there were enough.
    pub fn longest(&self) -> Option<Duration> {
        (self.seen >= ENOUGH).then(|| Duration::from_secs(u64::from(self.longest) * 60))
    }

    /// Returns the pauses after a post at `at`. Posts are expected in the order of time.
    #[must_use]
    pub fn posted(self, at: Timestamp) -> Self {
        let minute = u32::try_from(at.millis() / MILLIS_PER_MINUTE).unwrap_or(0);
        let pause = minute.saturating_sub(self.newest);
        let newest = self.newest.max(minute);
        if self.newest == 0 || pause < TOGETHER {
            return Pauses { newest, ..self };
        }
        let faded = f64::from(self.longest) * (-f64::from(pause) / FADES).exp();
        Pauses { longest: pause.max(whole(faded)), newest, seen: self.seen.saturating_add(1) }
    }

    /// Returns after what time without a post the feed counts as silent; `None`: never.
    pub fn silent_after(&self, config: &PolicyConfig) -> Option<Duration> {
        let longest = self.longest().filter(|_| config.silent_factor > 0.0)?;
        Some(scaled(longest, config.silent_factor))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "less than the number that it faded from")]
fn whole(minutes: f64) -> u32 {
    minutes as u32
}

/// Records what a document says about posts: the dates of its new entries between the last good poll and this one, or the time
/// of this poll if they have no such date. The first document's dates are the history before.
pub(super) fn observed(state: &mut PollState, before: &PollState, document: &Document, polled: Timestamp) {
    let date = |entry: &Entry| entry.published.or(entry.updated);
    let Some(last) = before.last_success else {
        // Most documents begin with the newest entry, some with the oldest. What is out of order counts as no pause.
        let dates = || document.entries.iter().filter_map(date).filter(|at| *at <= polled);
        let newest_last = dates().next() <= dates().next_back();
        state.pauses = match newest_last {
            true => dates().fold(Pauses::default(), Pauses::posted),
            false => dates().rev().fold(Pauses::default(), Pauses::posted),
        };
        return;
    };
    if document.new_entries == 0 {
        return;
    }
    let dates = || document.entries.iter().filter_map(date).filter(|at| last < *at && *at <= polled);
    let (first, newest) = (dates().min().unwrap_or(polled), dates().max().unwrap_or(polled));
    state.pauses = state.pauses.posted(first).posted(newest);
    state.silent_since = None;
}

/// Returns the notice that a feed fell silent, after a good poll.
pub(super) fn silence(state: &mut PollState, polled: Timestamp, config: &PolicyConfig) -> Option<Notice> {
    let newest = state.pauses.newest().filter(|_| state.silent_since.is_none())?;
    let is_silent = polled.since(newest) > state.pauses.silent_after(config)?;
    state.silent_since = is_silent.then_some(newest);
    is_silent.then_some(Notice::Silent)
}
