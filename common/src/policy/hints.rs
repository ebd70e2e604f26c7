//! What the publisher requests (rule 2): `ttl`, `sy:updatePeriod`, `max-age` and `Expires`, `skipHours` and `skipDays`.
//!
//! Hints are floors: they make polls rarer, never more frequent. The worker parses them from headers and documents.

use std::time::Duration;

use super::Rule;
use super::plan::Plan;
use super::skip::Skip;
use crate::config::PolicyConfig;
use crate::document::FeedHints;

/// Raises the plan to what the publisher requests, up to the ceiling, and moves it out of skipped time. `fresh_for`
/// counts from the plan's base.
pub(super) fn apply(plan: &mut Plan, hints: &FeedHints, fresh_for: Option<Duration>, config: &PolicyConfig) {
    let own_interval = plan.interval;
    for (rule, asked) in
        [(Rule::Ttl, hints.ttl), (Rule::UpdatePeriod, hints.update_period), (Rule::Freshness, fresh_for)]
    {
        let Some(asked) = asked else { continue };
        if asked > plan.interval {
            plan.set(rule, asked);
        }
        let floor = asked.min(config.hint_ceiling);
        plan.floor = plan.floor.max(floor);
        let retry_floor = if rule == Rule::Freshness { floor } else { floor.min(config.penalty.ceiling) };
        plan.retry_floor = plan.retry_floor.max(retry_floor);
        if retry_floor < floor {
            plan.longest_retry = own_interval;
        }
    }
    plan.longest_retry = plan.longest_retry.max(plan.retry_floor);
    plan.at_most(config.hint_ceiling.max(own_interval));
    plan.skip(Skip::new(hints));
}
