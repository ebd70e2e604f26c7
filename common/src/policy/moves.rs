//! Permanent redirects of healthy feeds (P37): when the stored URL follows them.
//!
//! A server's "permanent" redirect is often a short-lived mistake. So a feed moves only after several good answers came
//! through the same permanent redirect, over at least a day; one good answer without it, or with another target,
//! restarts the count. Failures do not count either way. A target that an operator declined does not count at all.

use crate::config::PolicyConfig;
use crate::policy::{PollState, Sighting};
use crate::report::FetchReport;
use crate::time::Timestamp;
use crate::url::FeedUrl;

/// Returns the hash under which a target is remembered.
pub fn move_target(url: &FeedUrl) -> u64 {
    xxhash_rust::xxh3::xxh3_64(url.as_str().as_bytes())
}

/// Records whether a good answer came through a permanent redirect.
pub(super) fn sighted(state: &mut PollState, report: &FetchReport, polled: Timestamp) {
    let target = report.moved_to.as_ref().map(move_target).filter(|target| state.declined != Some(*target));
    state.sighting = target.map(|target| {
        let before = state.sighting.filter(|seen| seen.target == target);
        let Sighting { first, times, .. } = before.unwrap_or(Sighting { target, first: polled, times: 0 });
        Sighting { target, first, times: times.saturating_add(1) }
    });
}

/// Returns true if the same target was seen often and long enough, including in the last poll.
pub fn move_is_settled(state: &PollState, config: &PolicyConfig) -> bool {
    state.sighting.zip(state.last_polled).is_some_and(|(seen, polled)| {
        seen.times >= config.move_sightings && polled.since(seen.first) >= config.move_after
    })
}
