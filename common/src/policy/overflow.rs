//! Feeds that post more between two polls than their document holds.
//!
//! If no entry of a document was known, although some were, entries between them may have been missed. The feed is then polled
//! twice as often as before, and more often still while that does not help, down to its floors. Later each poll that finds known
//! entries, or nothing new, takes back a part of it.
//!
//! A feed that renames all of its entries looks the same the first time. One that renames them at each poll is recognised by their dates ([`super::Rhythm`]), and polled as usual.

use std::time::Duration;

use super::Rule;
use super::plan::{Plan, scaled};
use super::remember::MANY;
use crate::document::Document;
use crate::entry::Entry;
use crate::policy::PollState;
use crate::time::Timestamp;

/// How much longer the interval may be after each poll without an overflow: from 15 minutes to a day in 21 polls.
const RELAXED: f64 = 1.25;
/// No limit is shorter: one of zero would stay for ever.
const SHORTEST: Duration = Duration::from_secs(60);
/// Longer intervals are not limited.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Records whether a document overflowed. Returns true if that is news: the document before it did not.
pub(super) fn observed(state: &mut PollState, before: &PollState, document: &Document, polled: Timestamp) -> bool {
    state.overflowing = document.none_known;
    let Some(last) = before.last_success.filter(|_| document.none_known) else {
        relax(state);
        return false;
    };
    state.gap_since = state.gap_since.or(Some(last));
    // Dates in the future say nothing about what is new.
    let is_dated_later =
        |entry: &Entry| entry.published.or(entry.updated).is_some_and(|date| last < date && date <= polled);
    let renames = before.overflowing && !document.entries.iter().any(is_dated_later);
    let shorter = (polled.since(last) / 2).max(SHORTEST);
    // A document with few entries, such as the picture of the day, may be all new each time.
    state.overflow_cap = (document.all_entries >= MANY && !renames).then_some(shorter);
    !before.overflowing
}

/// Records a poll that did not overflow. Earlier programs stored limits of zero.
pub(super) fn relax(state: &mut PollState) {
    let relaxed = state.overflow_cap.map(|cap| scaled(cap.max(SHORTEST), RELAXED));
    state.overflow_cap = relaxed.filter(|cap| *cap < LONGEST);
}

/// Shortens an interval that the policy chose, down to our own floors. Intervals that a person set, and polls before a midnight,
/// stay as they are.
pub(super) fn apply(plan: &mut Plan, state: &PollState) {
    let is_ours = plan.terms.first().is_some_and(|term| matches!(term.rule, Rule::Adaptive | Rule::Category));
    let Some(cap) = state.overflow_cap.filter(|_| is_ours) else { return };
    let interval = cap.max(plan.floor).max(plan.least);
    if interval < plan.interval {
        plan.set(Rule::Overflow, interval);
    }
}
