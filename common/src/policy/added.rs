//! Due times that no report brings about: a feed's first one (rule 8), and the one after a change of who reads it.

use std::time::Duration;

use super::category::category;
use super::decide::{finish, normal_plan};
use super::plan::scaled;
use super::{Draw, Policy, Subject, Terms};
use crate::config::PolicyConfig;
use crate::policy::Status;
use crate::time::Timestamp;

/// When an added feed is polled first: at once if it was added by hand (`spread` is `None`), at its place in the spread if
/// it came with many others. `spread` is a number in [0, 1), drawn at the edge for each feed of an import.
pub fn first_due(now: Timestamp, spread: Option<f64>, config: &PolicyConfig) -> Timestamp {
    now.after(scaled(config.import_spread, spread.unwrap_or(0.0).min(1.0)))
}

/// The later due time of a feed whose host got an interval of its own (category F) since it was planned, with its terms;
/// `None` when it may be polled now. `subject` is the feed by today's rules. A feed that was never polled keeps its due time.
pub fn postponed(subject: &Subject<'_>, now: Timestamp, draw: Draw, policy: &Policy<'_>) -> Option<(Timestamp, Terms)> {
    let interval = subject.host_interval?;
    let polled = subject.state.last_polled.filter(|polled| polled.after(interval) > now)?;
    let category = category(subject);
    let mut plan = normal_plan(subject, category, polled, None, policy);
    finish(&mut plan, &subject.state, category, now, draw, policy.config);
    Some((plan.due, plan.terms))
}

/// The earlier due time that a change of audience, credentials or host rule earns a feed, with its terms; `None` when the
/// promised one stands. `subject` is the feed after the change, `next_due` what it was promised before.
///
/// Never later than promised, never before now, a hold, or any floor. A feed that fails, was never polled or is not polled
/// at present keeps its due time. So does one that would gain no more than another draw of its salt.
pub fn replan(
    subject: &Subject<'_>,
    next_due: Timestamp,
    now: Timestamp,
    draw: Draw,
    policy: &Policy<'_>,
) -> Option<(Timestamp, Terms)> {
    let state = &subject.state;
    let polled = state.last_polled?;
    if subject.status != Status::Active || state.consecutive_failures > 0 {
        return None;
    }
    let category = category(subject);
    let fresh_for = state.fresh_until.map(|until| until.since(polled)).filter(|fresh_for| *fresh_for > Duration::ZERO);
    let normal = normal_plan(subject, category, polled, fresh_for, policy);
    let finished = |salt: f64| {
        let mut plan = normal;
        finish(&mut plan, state, category, now, Draw { salt, ..draw }, policy.config);
        plan
    };
    let plan = finished(draw.salt);
    (plan.due < next_due && finished(1.0).due < next_due).then_some((plan.due, plan.terms))
}
