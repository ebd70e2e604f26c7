//! Salt: a random share of the interval, added to it (rule 6), so that feeds that were polled together drift apart.
//!
//! This salt only delays; `near` salts intervals of the adaptive rule on both sides. The caller draws a new number for each
//! decision.

use super::Rule;
use super::plan::{Plan, scaled};
use crate::config::PolicyConfig;
use crate::policy::Category;

/// Moves the plan later by `draw` (0 to 1) of the maximum salt of the interval.
pub(super) fn apply(plan: &mut Plan, category: Category, draw: f64, config: &PolicyConfig) {
    let mut span = scaled(plan.interval, config.salt);
    let a = &config.category.a;
    let room = a.promise.checked_sub(plan.interval.saturating_add(a.fetch_allowance));
    // Even if the SLA cannot be kept, the feeds must not become synchronised.
    if let (Category::A, Some(room)) = (category, room) {
        span = span.min(room);
    }
    plan.not_before(Rule::Salt, plan.due.after(scaled(span, draw.clamp(0.0, 1.0))));
}
