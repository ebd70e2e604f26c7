//! Feeds that are dear to ask (rule 3), and servers that complained before (section "throttled" of `docs/policy.md`).
//!
//! A server that can answer 304 costs both sides a few hundred bytes a poll; one that cannot sends the whole document each
//! time. Such feeds are polled more rarely. Category A is not: its promise is worth the bytes.

use super::Rule;
use super::plan::{Plan, scaled};
use crate::config::PolicyConfig;
use crate::policy::{Category, PollState};

/// Conditional requests in a row that brought the same bytes in full before a server counts as one that never answers 304.
/// Once is a restart, twice two servers behind one name.
const IGNORED_CONDITIONS: u32 = 3;
/// Each further download of the same bytes adds a tenth: the interval then stays near a tenth of the time since the last
/// change, the fraction that RFC 9111 (section 4.2.2) gives for caches that have to guess.
const EQUAL_DOWNLOAD_GROWTH: f64 = 1.1;
/// Growth is reckoned over so many downloads at most; the ceiling is reached long before.
const EQUAL_DOWNLOADS_COUNTED: u32 = 100;

/// Stretches the interval, up to the ceiling or what it was already.
pub(super) fn apply(plan: &mut Plan, state: &PollState, category: Category, config: &PolicyConfig) {
    // Once a day is little enough, and midnight does not wait.
    if plan.midnight.is_some() {
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
