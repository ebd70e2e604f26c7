//! What a report leaves in a feed's state before anything is planned: counts, freshness, hints, the posting rate.

use std::time::Duration;

use super::throttle;
use crate::document::{Document, Validators};
use crate::policy::PollState;
use crate::report::{FetchReport, Outcome, Probe};
use crate::time::Timestamp;

/// What every answer leaves. A hold that still stands is kept, whatever the answer.
pub(super) fn answer(before: &PollState, report: &FetchReport, polled: Timestamp, now: Timestamp) -> PollState {
    PollState {
        last_polled: Some(polled),
        last_status: report.http_status,
        last_outcome: Some(report.outcome.kind()),
        hold_until: before.hold_until.filter(|until| *until > now),
        head_first: before.head_first.after(report),
        ..*before
    }
}

/// How long the answer is fresh: what this report says, or what is left of an earlier answer when this one failed.
pub(super) fn freshness(state: &PollState, report: &FetchReport, polled: Timestamp) -> Option<Duration> {
    match report.outcome {
        Outcome::Failed { .. } => state.fresh_until.map(|until| until.since(polled)),
        _ => report.fresh_for,
    }
}

/// A good answer with new bytes.
pub(super) fn modified(state: &mut PollState, conditional: bool, document: &Document, polled: Timestamp) {
    state.rhythm = state.rhythm.observed(document, polled);
    state.last_changed = Some(polled);
    state.hints = document.hints;
    // A full answer with something new is right whatever was asked. Other bytes without anything new (a clock in the feed)
    // cost as much as a server that ignores conditions.
    let in_vain = conditional && document.entries.is_empty() && document.new_entries == 0;
    state.ignored_conditions = state.ignored_conditions.saturating_add(u32::from(in_vain));
    state.equal_downloads = 0;
    good(state, &document.validators, polled);
}

/// 304, a HEAD that told as much, or the same bytes in full. The hints of the last document stand.
pub(super) fn not_modified(state: &mut PollState, report: &FetchReport, validators: &Validators, polled: Timestamp) {
    state.rhythm = state.rhythm.watched(polled);
    let was_cheap = report.http_status == Some(304) || matches!(report.probe, Some(Probe::Enough { .. }));
    if was_cheap {
        (state.ignored_conditions, state.equal_downloads) = (0, 0);
    } else {
        state.ignored_conditions = state.ignored_conditions.saturating_add(u32::from(report.conditional));
        state.equal_downloads = state.equal_downloads.saturating_add(1);
    }
    good(state, validators, polled);
}

fn good(state: &mut PollState, validators: &Validators, polled: Timestamp) {
    state.last_success = Some(polled);
    state.consecutive_failures = 0;
    state.failing_since = None;
    state.failure_delay = Duration::ZERO;
    state.penalty = None;
    state.no_validators = validators.is_empty();
    throttle::forgive(state);
}

/// A failure. Time in which we did not ask at all (a paused fleet, a laptop in a drawer) is nobody's failure: the start of
/// the run moves later by it, or else the first failure after a long pause would blacklist a feed.
pub(super) fn failed(state: &mut PollState, before: &PollState, polled: Timestamp) {
    let expected = before.failure_delay.saturating_mul(2);
    let unasked = before.last_polled.map_or(Duration::ZERO, |last| polled.since(last).saturating_sub(expected));
    state.failing_since = Some(before.failing_since.map_or(polled, |since| since.after(unasked).min(polled)));
    state.consecutive_failures = before.consecutive_failures.saturating_add(1);
}
