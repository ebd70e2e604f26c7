//! Hosts that refuse us on most of their feeds: the host backs off as a whole, and its feeds are not to blame.
//!
//! One report cannot show it. The scheduler sees those of all feeds of a host and can; it then calls [`host_refused`] instead
//! of [`super::decide()`].

use super::category::category;
use super::decide::{finish, normal_plan};
use super::{Decision, Draw, Notices, Policy, Rule, Signing, Status, Subject, Terms, remember, throttle};
use crate::outcome::FailureKind;
use crate::policy::PollState;
use crate::report::{FetchReport, Outcome};
use crate::time::Timestamp;

/// The HTTP statuses with which a server refuses us.
pub const REFUSALS: [u16; 2] = [403, 451];

/// Returns true if the server refuses us the feed: 403, 451, or a page against robots. A refusal after which the feed
/// is requested with a signature does not count yet.
pub fn is_refusal(report: &FetchReport, signing: Signing) -> bool {
    match report.outcome {
        Outcome::Failed { failure: FailureKind::Blocked, .. } => true,
        Outcome::Failed { failure: FailureKind::Status, .. } => {
            report.http_status.is_some_and(|status| REFUSALS.contains(&status)) && !signing.is_tried_after(report)
        }
        _ => false,
    }
}

/// Decides what follows from a refusal that is the host's: the feed keeps its interval, but is not polled before the host's
/// rest ends. Nothing is counted against it; an earlier run of failures stays as it was.
pub fn host_refused(
    subject: &Subject<'_>,
    report: &FetchReport,
    until: Timestamp,
    now: Timestamp,
    draw: Draw,
    policy: &Policy<'_>,
) -> Decision {
    let before = &subject.state;
    let polled = report.started.min(now);
    let mut state = remember::answer(before, report, polled, now);
    let host_hold = throttle::held_by_limit(report, now);
    if !matches!(subject.status, Status::Active | Status::Paused) {
        return Decision { host_hold, ..rested(state, subject.status, None, Terms::default()) };
    }
    let category = category(subject);
    let mut plan = normal_plan(&Subject { state, ..*subject }, category, polled, None, policy);
    if before.failure_delay > plan.interval {
        plan.set(Rule::PenaltyBox, before.failure_delay);
    }
    plan.not_before(Rule::HostRefuses, until);
    finish(&mut plan, &state, category, now, draw, policy.config);
    state.window = plan.window;
    if let Some(penalty) = &mut state.penalty {
        penalty.until = plan.due;
    }
    Decision { host_hold, ..rested(state, subject.status, Some(plan.due), plan.terms) }
}

fn rested(state: PollState, status: Status, next_due: Option<Timestamp>, terms: Terms) -> Decision {
    Decision { state, status, next_due, terms, host_hold: None, notices: Notices::default() }
}
