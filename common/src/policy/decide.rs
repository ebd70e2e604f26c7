//! The decision: what one report means for a feed's state, and when the feed is polled next.

use std::time::Duration;

use super::category::{base, before_midnight, category};
use super::penalty::FailureContext;
use super::plan::Plan;
use super::{Decision, Draw, Notice, Notices, Policy, Rule, Subject, Terms};
use super::{
    cost, failing, hints, hot_minute, midnight, moves, near, overflow, penalty, pushed, remember, salt, silence,
    throttle,
};
use crate::config::PolicyConfig;
use crate::outcome::FailureKind;
use crate::policy::{Category, PollState, Status};
use crate::report::{FetchReport, Outcome};
use crate::time::Timestamp;

/// Decides what follows from a report. Rules apply in the order of `docs/policy.md`; each rule that moves the due time
/// adds a term.
///
/// Intervals count from the start of the fetch. `draw` is used for salt and hot minutes only: the same arguments
/// produce the same decision. A deferred report requires no decision and changes nothing.
///
/// Salt and moves out of hot minutes are wide here, so that minutes are even in every fleet. [`super::Minutes`], which
/// measures how even they are, decides nearer.
pub fn decide(
    subject: &Subject<'_>,
    report: &FetchReport,
    now: Timestamp,
    draw: Draw,
    policy: &Policy<'_>,
) -> Decision {
    match prepare(subject, report, now, policy) {
        Prepared::Settled(decision) => decision,
        Prepared::Open(open) => open.decided(open.wide(draw)),
    }
}

/// What follows from a report, before it is placed in a minute.
pub(super) enum Prepared<'a> {
    /// The feed is not placed.
    Settled(Decision),
    /// The feed is polled again.
    Open(Open<'a>),
}

/// A decision without its salt (rule 6) and its move out of hot minutes (rule 7).
pub(super) struct Open<'a> {
    plan: Plan,
    state: PollState,
    status: Status,
    category: Category,
    now: Timestamp,
    config: &'a PolicyConfig,
    /// The response was good, and requested no wait.
    undisturbed: bool,
    throttled_until: Option<Timestamp>,
    rests: bool,
    /// Until when the host is held in any case: its limit of requests is used up.
    limited_until: Option<Timestamp>,
    notices: Notices,
}

/// Does all that needs no draw.
pub(super) fn prepare<'a>(
    subject: &Subject<'_>,
    report: &FetchReport,
    now: Timestamp,
    policy: &Policy<'a>,
) -> Prepared<'a> {
    let before = &subject.state;
    let polled = report.started.min(now);
    let mut state = remember::answer(before, report, polled, now);
    let fresh_for = remember::freshness(before, report, polled);
    let limited_until = throttle::held_by_limit(report, now);
    let retired = |state, status, notices| Decision { host_hold: limited_until, ..retired(state, status, notices) };
    let mut trouble = None;
    let (mut hold, mut noticed) = (None, None);
    match &report.outcome {
        Outcome::Deferred { until } => return Prepared::Settled(deferred(subject, *until)),
        Outcome::Gone => {
            let notices = if subject.status == Status::Gone { Notices::default() } else { Notice::Gone.into() };
            return Prepared::Settled(retired(state, Status::Gone, notices));
        }
        Outcome::Modified(document) => {
            remember::modified(&mut state, report.conditional, document, polled);
            noticed = overflow::observed(&mut state, before, document, polled).then_some(Notice::Overflowed);
            silence::observed(&mut state, before, document, polled);
            // Of a feed that also fell silent the next poll publishes that.
            noticed = noticed.or_else(|| silence::fell_silent(&mut state, polled, policy.config));
            moves::sighted(&mut state, report, polled);
        }
        Outcome::NotModified { validators } => {
            remember::not_modified(&mut state, report, validators, polled);
            overflow::relax(&mut state);
            noticed = silence::fell_silent(&mut state, polled, policy.config);
            moves::sighted(&mut state, report, polled);
        }
        Outcome::Throttled { retry_after } => {
            hold = Some(throttle::remember(&mut state, *retry_after, report.started, now, policy.config));
        }
        Outcome::Failed { failure, .. } => {
            remember::failed(&mut state, before, polled);
            if is_polled(subject.status) && is_given_up(&state, polled, policy.config) {
                return Prepared::Settled(retired(state, Status::Blacklisted, Notice::Blacklisted.into()));
            }
            noticed = failing::began(&mut state, polled, &policy.config.failing).then_some(Notice::Failing);
            let failing_for = state.failing_since.map_or(Duration::ZERO, |since| polled.since(since));
            trouble = Some(FailureContext {
                kind: *failure,
                status: report.http_status,
                soft_statuses: subject.soft_statuses,
                is_signed_next: report.wants_signature && state.signing != before.signing,
                is_the_hosts: subject.soft_alike && failing_for < subject.soft_for,
            });
        }
    }
    let good = trouble.is_none() && hold.is_none();
    let throttled_until = hold.map(|hold| hold.until);
    let Some(status) = standing(subject.status, good) else {
        let retired = retired(state, subject.status, Notices::default());
        return Prepared::Settled(Decision { host_hold: throttled_until.or(limited_until), ..retired });
    };

    let category = category(subject);
    let mut plan = normal_plan(&Subject { state, ..*subject }, category, polled, fresh_for, policy); // rules 1 to 3
    state.fresh_until = fresh_for.map(|fresh_for| polled.after(fresh_for.min(policy.config.hint_ceiling)));
    match (trouble, hold) {
        (Some(trouble), _) => penalty::apply(&mut plan, &mut state, trouble, &policy.config.penalty), // rule 4
        (None, Some(hold)) => {
            penalty::keep(&mut plan, &mut state);
            hold.apply(&mut plan);
        }
        (None, None) => {}
    }
    let asked_to_wait = report.retry_after.filter(|asked| *asked > report.started);
    if let (None, Some(asked)) = (hold, asked_to_wait) {
        throttle::asked_to_wait(&mut state, asked, now, policy.config).apply(&mut plan);
    }
    Prepared::Open(Open {
        plan,
        state,
        status,
        category,
        now,
        config: policy.config,
        undisturbed: good && asked_to_wait.is_none(),
        throttled_until,
        rests: report.outcome.rest().is_some(),
        limited_until,
        notices: Notices::of(standing_changed(before, &state, subject.status != status), noticed),
    })
}

impl Open<'_> {
    /// Returns the plan with the wide salt and moves (rules 6 and 7; rule 5 is in each rule that has a ceiling).
    pub(super) fn wide(&self, draw: Draw) -> Plan {
        let mut plan = self.plan;
        finish(&mut plan, &self.state, self.category, self.now, draw, self.config);
        plan
    }

    /// Returns the plan at a moment of the open minutes near its interval's end; `None` if the adaptive rule did not choose
    /// that interval, the poll is meant for a midnight, or the response was not good.
    pub(super) fn near(&self, draw: Draw) -> Option<Plan> {
        if !self.undisturbed || !self.plan.is_adaptive() || self.plan.window.is_some() {
            return None;
        }
        let mut plan = self.plan;
        not_too_soon(&mut plan, &self.state, self.now);
        // A hold that ends before the interval does.
        let earliest = self.state.hold_until.max(Some(self.now)).unwrap_or(self.now);
        near::apply(&mut plan, earliest, draw, self.config);
        Some(plan)
    }

    /// Returns the decision for a plan.
    pub(super) fn decided(&self, plan: Plan) -> Decision {
        let mut state = self.state;
        state.window = plan.window;
        if let Some(penalty) = &mut state.penalty {
            penalty.until = plan.due;
        }
        Decision {
            state,
            status: self.status,
            next_due: Some(plan.due),
            terms: plan.terms,
            host_hold: self.throttled_until.or(self.rests.then_some(plan.due)).or(self.limited_until),
            notices: self.notices,
        }
    }
}

/// Applies rules 1 to 3: when the feed would be polled if nothing fails and the load is spread evenly.
pub(super) fn normal_plan(
    subject: &Subject<'_>,
    category: Category,
    polled: Timestamp,
    fresh_for: Option<Duration>,
    policy: &Policy<'_>,
) -> Plan {
    let mut plan = base(subject, category, polled, fresh_for, policy);
    overflow::apply(&mut plan, &subject.state);
    hints::apply(&mut plan, &subject.state.hints, fresh_for, policy.config);
    cost::apply(&mut plan, &subject.state, category, policy.config);
    pushed::apply(&mut plan, subject, category, polled, policy);
    before_midnight(&mut plan, subject, policy);
    plan
}

/// Applies holds, the lower bound `now`, and rules 6 and 7.
pub(super) fn finish(
    plan: &mut Plan,
    state: &PollState,
    category: Category,
    now: Timestamp,
    draw: Draw,
    config: &PolicyConfig,
) {
    not_too_soon(plan, state, now);
    if !midnight::apply(plan, config.hot_minutes, draw.salt) {
        salt::apply(plan, category, draw.salt, config);
    }
    hot_minute::apply(plan, config.hot_minutes && category != Category::A, config.salt, draw.minute);
}

/// Applies holds and the lower bound `now`.
fn not_too_soon(plan: &mut Plan, state: &PollState, now: Timestamp) {
    if let Some(until) = state.hold_until {
        plan.not_before(Rule::RetryAfter, until);
    }
    plan.not_before(Rule::Late, now);
}

/// Returns true if this failure ends polling.
fn is_given_up(state: &PollState, polled: Timestamp, config: &PolicyConfig) -> bool {
    state.failing_since.map_or(Duration::ZERO, |since| polled.since(since)) >= config.blacklist_after
}

fn is_polled(status: Status) -> bool {
    matches!(status, Status::Active | Status::Paused)
}

/// Returns the feed's status after an answer to a poll made in `status`; `None` when it stays unpolled. A feed that we
/// gave up on, or whose server called it gone, is polled only because of a ping: only a good answer makes it active
/// again. Nothing makes a feed active again that a person ended.
fn standing(status: Status, good: bool) -> Option<Status> {
    match status {
        Status::Active | Status::Paused => Some(status),
        Status::Blacklisted | Status::Quarantined | Status::Gone => good.then_some(Status::Active),
        Status::Removed | Status::Merged => None,
    }
}

/// Returns the change of the feed's health. A recovery is published after everything that was published as a failure.
fn standing_changed(before: &PollState, after: &PollState, came_back: bool) -> Option<Notice> {
    match (before.penalty, after.penalty) {
        (before, Some(after)) if after.kind == FailureKind::Crashed => {
            before.is_none_or(|before| before.kind != FailureKind::Crashed).then_some(Notice::Quarantined)
        }
        (None, Some(_)) => Some(Notice::Penalised),
        (Some(_), None) => Some(Notice::Recovered),
        _ => (came_back || before.failing && !after.failing).then_some(Notice::Recovered),
    }
}

/// Returns the decision to stop polling. There are notices only when this is a change.
fn retired(mut state: PollState, status: Status, notices: Notices) -> Decision {
    if notices.first().is_some() {
        // Pings while it was polled say nothing about those that follow: the first one is answered soon.
        state.fruitless_wakes = 0;
    }
    Decision { state, status, next_due: None, terms: Terms::default(), host_hold: None, notices }
}

fn deferred(subject: &Subject<'_>, until: Timestamp) -> Decision {
    debug_assert!(false, "a deferred report is re-scored, not decided");
    let Subject { state, status, .. } = *subject;
    Decision {
        state,
        status,
        next_due: Some(until),
        terms: Terms::default(),
        host_hold: None,
        notices: Notices::default(),
    }
}
