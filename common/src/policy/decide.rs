//! The decision.

use super::{Decision, Draw, Policy, Rule, Subject, Terms};
use crate::report::FetchReport;
use crate::time::Timestamp;

/// What follows from a report.
pub fn decide(subject: &Subject, report: &FetchReport, now: Timestamp, _draw: Draw, policy: &Policy<'_>) -> Decision {
    let mut state = subject.state;
    state.last_polled = Some(report.started);
    let mut terms = Terms::default();
    let next = now.after(policy.config.min_interval);
    terms.push(Rule::Category, next);
    Decision { state, status: subject.status, next_due: Some(next), terms, host_hold: None, notice: None }
}
