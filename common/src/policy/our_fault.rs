//! Failures of our own network, which do not count against the feed.
//!
//! One report cannot show whose fault a failure is. The scheduler sees those of many hosts and can; it then calls
//! [`spare`] instead of [`super::decide()`].

use super::category::category;
use super::decide::normal_plan;
use super::plan::scaled;
use super::{Decision, Draw, Notices, Policy, Rule, Subject, Terms};
use crate::outcome::FailureKind;
use crate::policy::PollState;
use crate::time::Timestamp;

/// Returns true if this kind of failure can be caused on our side: our resolver, our uplink, something in between, such as a
/// NAT or proxy that lost its table and resets every connection.
pub fn may_be_ours(failure: FailureKind) -> bool {
    use FailureKind as Kind;
    matches!(failure, Kind::Dns | Kind::Connect | Kind::Timeout | Kind::Tls | Kind::Truncated)
}

/// Decides what follows from a failure that is not the feed's: the feed is retried soon, but no sooner than without the
/// failure, spread by the draw over the same time again. The remembered state stays, including an earlier run of
/// failures.
pub fn spare(subject: &Subject<'_>, now: Timestamp, draw: Draw, policy: &Policy<'_>) -> Decision {
    let before = subject.state;
    let state = PollState { hold_until: before.hold_until.filter(|until| *until > now), ..before };
    let normal = normal_plan(subject, category(subject), now, None, policy).interval;
    let wait = policy.config.penalty.transient_first.min(normal).max(before.failure_delay);
    let due = now.after(wait).after(scaled(wait, draw.salt)).max(state.hold_until.unwrap_or(now));
    let mut terms = Terms::default();
    terms.push(Rule::OurFault, due);
    Decision { state, status: subject.status, next_due: Some(due), terms, host_hold: None, notices: Notices::default() }
}
