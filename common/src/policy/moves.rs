//! Permanent redirects of a feed that is well (P37): when the stored URL follows them.
//!
//! A server's "for ever" is often an accident of an afternoon. So a feed moves only after good answers came through the same
//! permanent redirect several times, over at least a day; one good answer without it, or with another target, begins
//! the count anew. A failure says nothing either way. A target that an operator declined does not count at all.

use crate::config::PolicyConfig;
use crate::policy::{PollState, Sighting};
use crate::report::FetchReport;
use crate::time::Timestamp;
use crate::url::FeedUrl;

/// The name under which a target is remembered.
pub fn move_target(url: &FeedUrl) -> u64 {
    xxhash_rust::xxh3::xxh3_64(url.as_str().as_bytes())
}

/// What a good answer leaves: it came through a permanent redirect, or it did not.
pub(super) fn sighted(state: &mut PollState, report: &FetchReport, polled: Timestamp) {
    let target = report.moved_to.as_ref().map(move_target).filter(|target| state.declined != Some(*target));
    state.sighting = target.map(|target| {
        let before = state.sighting.filter(|seen| seen.target == target);
        let Sighting { first, times, .. } = before.unwrap_or(Sighting { target, first: polled, times: 0 });
        Sighting { target, first, times: times.saturating_add(1) }
    });
}

/// Was the same target seen often and long enough, the last time by the poll that left this state?
pub fn move_is_settled(state: &PollState, config: &PolicyConfig) -> bool {
    state.sighting.zip(state.last_polled).is_some_and(|(seen, polled)| {
        seen.times >= config.move_sightings && polled.since(seen.first) >= config.move_after
    })
}
