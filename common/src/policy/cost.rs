//! Feeds that are expensive to poll (rule 3), and servers that throttled us before (section "throttled" of
//! `docs/policy.md`).
//!
//! A server that answers 304 costs both sides a few hundred bytes a poll; one that does not sends the whole document
//! each time. Such feeds are polled less often. Category A is exempt: its promise is worth the bytes.

use super::Rule;
use super::plan::{Plan, scaled};
use crate::config::PolicyConfig;
use crate::policy::{Category, PollState};

/// Conditional requests in a row that returned the same bytes in full before a server counts as one that never answers
/// 304. One can be a restart, two can be two servers behind one name.
const IGNORED_CONDITIONS: u32 = 3;
/// Each further download of the same bytes adds a tenth. The interval then stays near a tenth of the time since the
/// last change, the fraction that RFC 9111 (section 4.2.2) suggests for heuristic freshness.
const EQUAL_DOWNLOAD_GROWTH: f64 = 1.1;
/// The maximum number of downloads that growth is calculated for; the ceiling is reached long before.
const EQUAL_DOWNLOADS_COUNTED: u32 = 100;

/// Stretches the interval, up to the ceiling or what it was already.
pub(super) fn apply(plan: &mut Plan, state: &PollState, category: Category, config: &PolicyConfig) {
    // Once a day is rare enough, and a calm delivery must not miss midnight.
    if plan.window.is_some() {
        return;
    }
    let ceiling = config.stretch_ceiling.max(plan.interval);
    let mut stretch = |rule, factor| {
        if factor > 1.0 {
            plan.set(rule, scaled(plan.interval, factor).min(ceiling));
        }
    };
    if category != Category::A {
        if state.no_validators || state.ignored_conditions >= IGNORED_CONDITIONS {
            stretch(Rule::NoValidators, config.no_validator_factor);
        }
        let again = state.equal_downloads.saturating_sub(1).min(EQUAL_DOWNLOADS_COUNTED);
        stretch(Rule::EqualDownloads, EQUAL_DOWNLOAD_GROWTH.powf(f64::from(again)));
    }
    stretch(Rule::Stretch, f64::from(state.stretch));
}
