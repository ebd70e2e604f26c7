//! How long a feed pauses.
//!
//! The longest pause between two posts is remembered, and fades with a time constant of a year. A feed is silent once it has not
//! posted for `policy.silent_factor` times as long. Nothing that follows from the mean works: posts come in groups, so that some
//! feeds pause for thirty times their mean gap each month.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::plan::scaled;
use crate::config::PolicyConfig;
use crate::time::Timestamp;

/// Posts less than an hour apart are one post.
const TOGETHER: u32 = 60;
/// The number of pauses without which nothing is known.
const ENOUGH: u8 = 10;
/// The time constant with which the longest pause fades, in minutes: vacations come once a year.
const FADES: f64 = 365.0 * 24.0 * 60.0;
const MILLIS_PER_MINUTE: i64 = 60_000;
/// Multiples of it are spread evenly between whole numbers.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

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
        // Rounded up as often as its fraction says: a feed that posts each hour would otherwise lose a minute each time.
        let faded = f64::from(self.longest) * (-f64::from(pause) / FADES).exp() + (f64::from(minute) * GOLDEN).fract();
        Pauses { longest: pause.max(whole(faded)), newest, seen: self.seen.saturating_add(1) }
    }

    /// Returns after what time without a post the feed counts as silent; `None`: never.
    pub fn silent_after(&self, config: &PolicyConfig) -> Option<Duration> {
        let longest = self.longest().filter(|_| config.silent_factor > 0.0)?;
        Some(scaled(longest, config.silent_factor))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not more than the number that it faded from"
)]
fn whole(minutes: f64) -> u32 {
    minutes as u32
}
