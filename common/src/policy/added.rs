//! Computes due times that do not follow from a report: the first one of a feed (rule 8), and the one after a change of its audience.
//! Also computes how far in the future due times usually are.

use std::time::Duration;

use super::category::category;
use super::decide::{finish, normal_plan};
use super::hot_minute::{self, OPEN_REACH};
use super::plan::{Plan, scaled};
use super::{Draw, Policy, Rule, Subject, Terms};
use crate::calm::Window;
use crate::config::{CategoriesConfig, PolicyConfig};
use crate::policy::Status;
use crate::time::Timestamp;

/// Returns when an added feed is first polled: immediately if it was added by hand (`spread` is `None`) or imports are not
/// spread, otherwise at its position in the spread, out of hot minutes. `spread` is a random number in [0, 1), drawn by the
/// caller for each feed of an import.
pub fn first_due(now: Timestamp, spread: Option<f64>, config: &PolicyConfig) -> Timestamp {
    let Some(place) = spread.filter(|_| !config.import_spread.is_zero()) else { return now };
    let due = now.after(scaled(config.import_spread, place.min(1.0)));
    match config.hot_minutes {
        true => hot_minute::first_due(due, config.import_spread, config.salt, place),
        false => due,
    }
}

/// Returns the later due time, with its terms, of a feed whose host has been given an interval (category F) since the
/// feed was planned; `None` when it may be polled now. `subject` follows today's rules. A feed that was never polled
/// keeps its due time.
pub fn postponed(subject: &Subject<'_>, now: Timestamp, draw: Draw, policy: &Policy<'_>) -> Option<(Timestamp, Terms)> {
    let interval = subject.host_interval?;
    let polled = subject.state.last_polled.filter(|polled| polled.after(interval) > now)?;
    let category = category(subject);
    let mut plan = normal_plan(subject, category, polled, None, policy);
    narrow_window(&mut plan);
    finish(&mut plan, &subject.state, category, now, draw, policy.config);
    Some((plan.due, plan.terms))
}

/// Returns the earlier due time, with its terms, that results from a change of audience, credentials or host rule;
/// `None` when the planned one still applies. `subject` is the feed after the change, `next_due` the due time planned
/// before it.
///
/// The result is never later than planned, and never before now, a hold, or any floor. A feed that fails, was never
/// polled or is not polled at present keeps its due time. So does one that would gain no more than a new salt could.
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
    let mut normal = normal_plan(subject, category, polled, fresh_for, policy);
    narrow_window(&mut normal);
    let finished = |salt: f64| {
        let mut plan = normal;
        finish(&mut plan, state, category, now, Draw { salt, ..draw }, policy.config);
        plan
    };
    let plan = finished(draw.salt);
    (plan.due < next_due && finished(1.0).due < next_due).then_some((plan.due, plan.terms))
}

/// Plans for the narrowest window before a midnight, unless skipped hours cover it. A window is stored with a report only, and a poll
/// within the narrowest one serves its midnight whatever the load is by then.
fn narrow_window(plan: &mut Plan) {
    let narrowest = plan.window.map(Window::narrowest);
    if let Some(window) = narrowest.filter(|window| plan.unskipped(window.start) < window.end()) {
        plan.window = Some(window);
        plan.not_before(Rule::Calm, window.start);
    }
}

/// Returns how far ahead nearly all feeds are due at most. Further ahead are only those whose interval a person or a host rule set, or
/// whose server asked for more, and what was planned by a clock that was ahead.
pub fn usual_reach(config: &PolicyConfig) -> Duration {
    let CategoriesConfig { a, b, c, d } = &config.category;
    let planned = [config.min_interval, config.default_interval, config.interval, config.hint_ceiling];
    let failed = [config.stretch_ceiling, config.penalty.ceiling, config.import_spread];
    let categories = [a.interval, b.interval, b.max, c.interval_max, c.max];
    let single = [d.interval_max, d.idle_interval_max, d.max];
    let all = planned.into_iter().chain(failed).chain(categories).chain(single);
    scaled(all.max().unwrap_or_default(), 1.0 + config.salt).saturating_add(OPEN_REACH)
}
