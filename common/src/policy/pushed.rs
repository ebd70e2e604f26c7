//! Feeds whose new entries are pushed reliably: NewsGator dropped the SLA's interval for those, and took it back when a push
//! was missing. Whether pushes are reliable is learned outside of this module, from entries that a poll found first.

use super::category::{base, category, is_a_persons};
use super::plan::{Plan, scaled};
use super::{Policy, Rule, Subject};
use crate::policy::{Audience, Category};
use crate::time::Timestamp;

/// Stretches the interval, up to the ceiling or what it was already. A feed under an SLA has the interval that it would have
/// without one. An interval that a person set for the feed or for all feeds, and a delivery before midnight, stay as they are.
pub(super) fn apply(
    plan: &mut Plan,
    subject: &Subject<'_>,
    of_category: Category,
    polled: Timestamp,
    policy: &Policy<'_>,
) {
    if !subject.pushed || plan.window.is_some() || is_a_persons(plan) {
        return;
    }
    let config = policy.config;
    let interval = if of_category == Category::A {
        let audience = Audience { sla: false, ..subject.audience };
        let natural = Subject { audience, ..*subject };
        base(&natural, category(&natural), polled, None, policy).interval
    } else {
        scaled(plan.interval, config.push_factor).min(config.stretch_ceiling)
    };
    if interval > plan.interval {
        plan.set(Rule::Pushed, interval);
    }
}
