//! Failures of our own network, which do not count against the feed.
//!
//! One report cannot show whose fault a failure is. The scheduler sees those of many hosts and can; it then calls
//! [`spare`] or [`spare_arrived`] instead of [`super::decide()`].

use std::time::Duration;

use super::category::category;
use super::decide::normal_plan;
use super::plan::scaled;
use super::{Decision, Draw, Notices, Policy, Rule, Subject, Terms};
use crate::outcome::FailureKind;
use crate::policy::{Category, PollState};
use crate::time::Timestamp;

/// Returns true if this kind of failure can be caused on our side: our resolver, our uplink, something in between, such as a
/// NAT or proxy that lost its table and resets every connection.
pub fn may_be_ours(failure: FailureKind) -> bool {
    use FailureKind as Kind;
    matches!(failure, Kind::Dns | Kind::Connect | Kind::Timeout | Kind::Tls | Kind::Truncated)
}

/// Returns true if a server may have received a request that failed in this way: the connection was cut or reset, perhaps by
/// the server itself.
pub fn may_have_arrived(failure: FailureKind) -> bool {
    failure == FailureKind::Truncated
}

/// Decides what follows from a failure that is not the feed's, and of which its server saw nothing: the feed is retried soon, but
/// no sooner than without the failure, spread by the draw over the same time again, and never in skipped time. The remembered
/// state stays, including an earlier run of failures.
pub fn spare(subject: &Subject<'_>, now: Timestamp, draw: Draw, policy: &Policy<'_>) -> Decision {
    retried(subject, Duration::ZERO, now, draw, policy)
}

/// The same of a failure after which the request may have arrived ([`may_have_arrived`]): our own floors hold for the retry, too.
pub fn spare_arrived(subject: &Subject<'_>, now: Timestamp, draw: Draw, policy: &Policy<'_>) -> Decision {
    let floor = match category(subject) {
        Category::A => Duration::ZERO,
        _ => policy.config.min_interval,
    };
    retried(subject, floor.max(subject.host_interval.unwrap_or_default()), now, draw, policy)
}

fn retried(subject: &Subject<'_>, floor: Duration, now: Timestamp, draw: Draw, policy: &Policy<'_>) -> Decision {
    let before = subject.state;
    let state = PollState { hold_until: before.hold_until.filter(|until| *until > now), ..before };
    let normal = normal_plan(subject, category(subject), now, None, policy);
    let wait = policy.config.penalty.transient_first.min(normal.interval).max(before.failure_delay).max(floor);
    let retry = now.after(wait).after(scaled(wait, draw.salt)).max(state.hold_until.unwrap_or(now));
    let due = normal.unskipped(retry);
    let mut terms = Terms::default();
    terms.push(Rule::OurFault, retry);
    if due != retry {
        terms.push(Rule::Skip, due);
    }
    Decision { state, status: subject.status, next_due: Some(due), terms, host_hold: None, notices: Notices::default() }
}
