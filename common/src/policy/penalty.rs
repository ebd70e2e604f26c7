//! What a failure costs (rule 4): a transient one an early second try, any other the penalty box.
//!
//! The delays of one run of failures never shrink, whatever the kinds: trouble of any sort must not make us ask faster.
//! One good answer ends the run.
//! Failures that are our own network's never come here (`our_fault`).

use std::time::Duration;

use super::Rule;
use super::plan::Plan;
use crate::config::PenaltyConfig;
use crate::outcome::FailureKind;
use crate::policy::{Penalty, PollState};

/// How a failure is treated.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Treatment {
    /// Probably over soon: a second try before the normal interval, the box only when it lasts.
    Transient,
    /// The box at once, for so long at first.
    Boxed(Duration),
    /// The box at once, for the normal interval or this, whichever is longer.
    BadFeed(Duration),
}

/// A failure as the table needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trouble<'a> {
    /// The failure.
    pub(super) kind: FailureKind,
    /// The answer's status, if one came.
    pub(super) status: Option<u16>,
    /// Statuses that are passing trouble on this host.
    pub(super) soft_statuses: &'a [u16],
}

impl Trouble<'_> {
    fn treatment(self, config: &PenaltyConfig) -> Treatment {
        use FailureKind as Kind;
        match self.kind {
            Kind::Dns | Kind::Connect | Kind::Tls | Kind::Timeout | Kind::Truncated => Treatment::Transient,
            Kind::Status => self.status_treatment(config),
            Kind::TooLarge | Kind::NotAFeed | Kind::Malformed | Kind::Redirects | Kind::RefusedAddress => {
                Treatment::BadFeed(config.bad_feed)
            }
            // Quarantined before this is asked.
            Kind::Crashed => Treatment::Boxed(config.ceiling),
        }
    }

    fn status_treatment(self, config: &PenaltyConfig) -> Treatment {
        match self.status {
            Some(status) if self.soft_statuses.contains(&status) => Treatment::Transient,
            Some(502..=504) => Treatment::Transient,
            Some(500..) => Treatment::Boxed(config.server_error),
            Some(404) => Treatment::Boxed(config.not_found),
            Some(400..) => Treatment::Boxed(config.client_error),
            // A 304 that nobody asked for, a 204, a 206: an answer that makes no sense.
            Some(..400) | None => Treatment::BadFeed(config.bad_feed),
        }
    }
}

/// Applies a failure to the plan and to the state, in which it is counted already. `state.penalty.until` is set by the
/// caller, when the due time is complete.
pub(super) fn apply(plan: &mut Plan, state: &mut PollState, trouble: Trouble<'_>, config: &PenaltyConfig) {
    let normal = plan.interval;
    let was_boxed = state.penalty.is_some();
    let doubled = |first: Duration| if was_boxed { first.max(state.failure_delay.saturating_mul(2)) } else { first };
    let ceiling = config.ceiling.max(normal);
    let (delay, boxed) = match trouble.treatment(config) {
        Treatment::Transient if state.consecutive_failures < config.box_after => {
            (transient_delay(state.consecutive_failures, config).min(normal), was_boxed)
        }
        Treatment::Transient => (doubled(config.first_box).min(ceiling).max(normal), true),
        Treatment::Boxed(first) => (doubled(first).min(ceiling).max(normal), true),
        Treatment::BadFeed(first) => (doubled(first.max(normal)).min(ceiling), true),
    };
    if boxed {
        state.penalty = Some(Penalty { kind: trouble.kind, until: plan.due });
    }
    wait(plan, state, delay);
}

/// The failures of a run that a throttling interrupts still hold the feed back.
pub(super) fn keep(plan: &mut Plan, state: &mut PollState) {
    if state.consecutive_failures > 0 {
        wait(plan, state, plan.interval);
    }
}

/// Waits so long, and at least as long as after the last failure of this run.
fn wait(plan: &mut Plan, state: &mut PollState, delay: Duration) {
    let rule = if state.penalty.is_some() { Rule::PenaltyBox } else { Rule::Backoff };
    plan.set(rule, delay.max(plan.floor).max(state.failure_delay));
    // To the millisecond, as it is stored: a restart must not change a decision.
    state.failure_delay = plan.base.after(plan.interval).since(plan.base);
}

/// The first delay, doubled with each failure of the run.
fn transient_delay(failures: u32, config: &PenaltyConfig) -> Duration {
    let doublings = failures.saturating_sub(1).min(31);
    config.transient_first.saturating_mul(1 << doublings)
}
