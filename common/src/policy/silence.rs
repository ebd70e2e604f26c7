//! Whether a feed has fallen silent: it has not posted for much longer than it ever paused ([`Pauses`]).

use super::Notice;
use super::pauses::Pauses;
use crate::config::PolicyConfig;
use crate::document::Document;
use crate::entry::Entry;
use crate::policy::PollState;
use crate::time::Timestamp;

/// Records what a document says about posts: the dates of its new entries between the last good poll and this one, or the time
/// of this poll if they have no such date. The first document's dates are the history before.
pub(super) fn observed(state: &mut PollState, before: &PollState, document: &Document, polled: Timestamp) {
    let Some(last) = before.last_success else {
        state.pauses = posted(Pauses::default(), document, |at| at <= polled).unwrap_or_default();
        return;
    };
    if document.new_entries == 0 {
        return;
    }
    let dated = posted(state.pauses, document, |at| last < at && at <= polled);
    state.pauses = dated.unwrap_or_else(|| state.pauses.posted(polled));
    state.silent_since = None;
}

/// Adds the posts of a document to `pauses`, as far as `counts` accepts their dates; `None` if it accepts none. Most documents begin
/// with the newest entry, some with the oldest. Dates out of order add no pause.
fn posted(pauses: Pauses, document: &Document, counts: impl Fn(Timestamp) -> bool) -> Option<Pauses> {
    let date = |entry: &Entry| entry.published.or(entry.updated);
    let dates = || document.entries.iter().filter_map(date).filter(|at| counts(*at));
    Some(match dates().next()? <= dates().next_back()? {
        true => dates().fold(pauses, Pauses::posted),
        false => dates().rev().fold(pauses, Pauses::posted),
    })
}

/// Returns the notice that a feed fell silent, after a good poll.
pub(super) fn fell_silent(state: &mut PollState, polled: Timestamp, config: &PolicyConfig) -> Option<Notice> {
    let newest = state.pauses.newest().filter(|_| state.silent_since.is_none())?;
    let is_silent = polled.since(newest) > state.pauses.silent_after(config)?;
    state.silent_since = is_silent.then_some(newest);
    is_silent.then_some(Notice::Silent)
}
