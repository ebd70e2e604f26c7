//! What a report changes in a feed's state before the next poll is planned: counts, freshness, hints, the posting rate.

use std::time::Duration;

use super::throttle;
use crate::document::{Document, Validators};
use crate::policy::PollState;
use crate::report::{FetchReport, Outcome, Probe};
use crate::time::Timestamp;

/// How long no delta is requested from a server whose deltas are unusable. It may have been repaired by then, and one failed
/// poll a month is cheap.
const WITHOUT_DELTA: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// A document with fewer entries may well be all new every time, such as a picture of the day.
pub(super) const MANY: u32 = 5;

/// Returns the state after any response. A hold that has not expired is kept, whatever the response.
pub(super) fn answer(before: &PollState, report: &FetchReport, polled: Timestamp, now: Timestamp) -> PollState {
    PollState {
        last_polled: Some(polled),
        last_status: report.http_status,
        last_outcome: Some(report.outcome.kind()),
        hold_until: before.hold_until.filter(|until| *until > now),
        head_first: before.head_first.after(report),
        signing: before.signing.after(report, polled),
        no_delta_until: match report.unusable_delta {
            true => Some(polled.after(WITHOUT_DELTA)),
            false => before.no_delta_until.filter(|until| *until > polled),
        },
        fruitless_wakes: before.fruitless_wakes.saturating_add(u8::from(report.answers_wake.is_some())),
        ..*before
    }
}

/// Returns how long the response is fresh: as this report says, or what is left of an earlier response when this poll
/// failed. A throttled poll has no document either; the longer of both times counts then. A 304 that says nothing leaves what the
/// earlier response said (RFC 9111, section 4.3.4).
pub(super) fn freshness(state: &PollState, report: &FetchReport, polled: Timestamp) -> Option<Duration> {
    // A clock that was ahead at the last poll said more than its response did.
    let is_trusted = state.last_polled.is_none_or(|last| last <= polled);
    let left = state.fresh_until.filter(|_| is_trusted).map(|until| until.since(polled));
    match report.outcome {
        Outcome::Failed { .. } => left,
        Outcome::Throttled { .. } => report.fresh_for.max(left),
        Outcome::NotModified { .. } if report.http_status == Some(304) => report.fresh_for.or(left),
        _ => report.fresh_for,
    }
}

/// Records a good response with new bytes.
pub(super) fn modified(state: &mut PollState, conditional: bool, document: &Document, polled: Timestamp) {
    let is_all_new = document.all_entries >= MANY && document.new_entries >= document.all_entries;
    state.rhythm = match is_all_new && state.all_new {
        true => state.rhythm.doubted(document, polled),
        false => state.rhythm.observed(document, polled),
    };
    // Nothing is known before the first document.
    state.all_new = is_all_new && state.last_success.is_some();
    // A changed entry does not count: a publisher with a clock in an entry could otherwise ping without end.
    if document.new_entries > 0 {
        state.fruitless_wakes = 0;
    }
    state.last_changed = Some(polled);
    state.hints = document.hints;
    state.repaired = document.repaired;
    // A full response with new content is right in any case. Other bytes without new content (a clock in the feed) cost
    // as much as a server that ignores conditional requests.
    let in_vain = conditional && document.entries.is_empty() && document.new_entries == 0;
    state.ignored_conditions = state.ignored_conditions.saturating_add(u32::from(in_vain));
    state.equal_downloads = 0;
    good(state, &document.validators, polled);
}

/// Records a 304, a HEAD that showed as much, or the same bytes in full. The hints of the last document still apply.
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
    state.failing = false;
    state.failure_delay = Duration::ZERO;
    state.penalty = None;
    state.no_validators = validators.is_empty();
    throttle::forgive(state);
}

/// Records a failure. Time in which we did not poll at all (a paused fleet, a sleeping laptop) does not count: the
/// start of the run moves later by it, so that the first failure after a long pause does not blacklist a feed.
pub(super) fn failed(state: &mut PollState, before: &PollState, polled: Timestamp) {
    let expected = before.failure_delay.saturating_mul(2);
    let unasked = before.last_polled.map_or(Duration::ZERO, |last| polled.since(last).saturating_sub(expected));
    state.failing_since = Some(before.failing_since.map_or(polled, |since| since.after(unasked).min(polled)));
    state.consecutive_failures = before.consecutive_failures.saturating_add(1);
}
