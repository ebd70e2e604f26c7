//! Which host rules are refused.

use std::time::Duration;

use super::refusal::{Refusal, Refusals};
use crate::host::HostRule;

/// Returns the name of a rule among the settings.
pub(super) fn host_rule_key(domain: &str) -> String {
    format!("host_rule.\"{domain}\"")
}

/// Characters of a rule's texts, at most.
const LONGEST_TEXT: usize = 1_000;

/// Returns what is wrong with a rule, by field; nothing when all is well.
pub fn check_host_rule(rule: &HostRule) -> Vec<Refusal> {
    let mut refusals = Refusals::default();
    let domain = rule.domain();
    let is_domain = !domain.is_empty() && domain.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]".contains(c));
    refusals.require(is_domain && domain.len() <= 253, "match", || "must be a domain, such as example.com".into());
    refusals.require(rule.burst != Some(0), "burst", || "must be at least 1".into());
    refusals.require(rule.parallel != Some(0), "parallel", || "must be at least 1".into());
    refusals.parallel("parallel", rule.parallel.unwrap_or(1));
    refusals.require(rule.interval != Some(Duration::ZERO), "interval", || "must be longer than nothing".into());
    for (field, value) in [("gap", rule.gap), ("interval", rule.interval), ("soft_for", rule.soft_for)] {
        refusals.within_a_year(field, value.unwrap_or_default());
    }
    let soft = rule.soft_statuses.iter().all(|status| (400..=599).contains(status));
    refusals.require(soft, "soft_statuses", || "must be statuses from 400 to 599".into());
    let agent = rule.user_agent.as_deref().unwrap_or("-");
    let sendable = !agent.is_empty() && agent.chars().all(|c| c == ' ' || c.is_ascii_graphic());
    let sendable = sendable && agent.len() <= LONGEST_TEXT;
    refusals.require(sendable, "user_agent", || "must be printable ASCII".into());
    refusals.require(rule.reason.len() <= LONGEST_TEXT, "reason", || {
        format!("must have at most {LONGEST_TEXT} characters")
    });
    refusals.0
}
