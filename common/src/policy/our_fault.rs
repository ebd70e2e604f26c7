//! A failure that is our own network's: nothing is held against the feed.
//!
//! One report cannot show whose fault it is; the scheduler, which sees those of many hosts, can, and then asks here instead of
//! [`super::decide()`].

use super::category::category;
use super::decide::normal_plan;
use super::plan::scaled;
use super::{Decision, Draw, Policy, Rule, Subject, Terms};
use crate::outcome::FailureKind;
use crate::policy::PollState;
use crate::time::Timestamp;

/// Can this kind of failure come from our own side: our resolver, our way out, something in between?
pub fn may_be_ours(failure: FailureKind) -> bool {
    matches!(failure, FailureKind::Dns | FailureKind::Connect | FailureKind::Timeout | FailureKind::Tls)
}

/// What follows from a failure that is not the feed's: it is asked again soon, but not sooner than it would be if all were
/// well, spread by the draw over as much time again. Whatever was remembered stays, an earlier run of failures too.
pub fn spare(subject: &Subject<'_>, now: Timestamp, draw: Draw, policy: &Policy<'_>) -> Decision {
    let before = subject.state;
    let state = PollState { hold_until: before.hold_until.filter(|until| *until > now), ..before };
    let normal = normal_plan(subject, category(subject), now, None, policy).interval;
    let wait = policy.config.penalty.transient_first.min(normal).max(before.failure_delay);
    let due = now.after(wait).after(scaled(wait, draw.salt)).max(state.hold_until.unwrap_or(now));
    let mut terms = Terms::default();
    terms.push(Rule::OurFault, due);
    Decision { state, status: subject.status, next_due: Some(due), terms, host_hold: None, notice: None }
}
