//! Decides when a feed has failed for long enough that its readers should know.
//!
//! Readers miss an hourly feed within hours, but do not miss a monthly one for a week. The time is therefore the time in
//! which a few posts are expected at the feed's posting rate, within limits.

use std::time::Duration;

use super::PollState;
use super::plan::scaled;
use crate::config::FailingConfig;
use crate::time::Timestamp;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Marks the feed as failing, and returns true, if this failed poll is the first of its run that is late enough.
pub(super) fn began(state: &mut PollState, polled: Timestamp, config: &FailingConfig) -> bool {
    let lasted = state.failing_since.map_or(Duration::ZERO, |since| polled.since(since));
    // A second failure confirms the first one.
    let began = !state.failing && state.consecutive_failures > 1 && lasted >= noticeable_after(state, config);
    state.failing |= began;
    began
}

/// Returns how long a run of failures lasts before readers miss something.
fn noticeable_after(state: &PollState, config: &FailingConfig) -> Duration {
    // A subscriber of a feed that was never read is waiting for its first posts.
    if state.last_success.is_none() {
        return config.min;
    }
    scaled(DAY, config.posts / state.rhythm.per_day()).clamp(config.min, config.max)
}
