//! What a failure costs (rule 4): an early retry for a transient one, the penalty box for any other.
//!
//! The delays of one run of failures never shrink, whatever the kinds: no failure makes us poll faster. One good answer
//! ends the run. Failures of our own network never get here (`our_fault`).

use std::time::Duration;

use super::Rule;
use super::plan::Plan;
use crate::config::PenaltyConfig;
use crate::outcome::FailureKind;
use crate::policy::{Penalty, PollState};

/// The factor by which each quarantine is longer than the one before: an hour, a day.
const QUARANTINE_GROWTH: u32 = 24;

/// How a failure is treated.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Treatment {
    /// Probably short-lived: retried before the normal interval; the penalty box only if it persists.
    Transient,
    /// The host's, and known to last for hours: retried before the normal interval, and never in the penalty box.
    Soft,
    /// The penalty box at once, for this time at first.
    Boxed(Duration),
    /// The penalty box at once, for the normal interval or this time, whichever is longer.
    BadFeed(Duration),
    /// The penalty box at once, for this time at first, and far longer each time after.
    Quarantined(Duration),
}

/// A failure, with what decides its treatment.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailureContext<'a> {
    /// The failure.
    pub(super) kind: FailureKind,
    /// The response's status code, if there was a response.
    pub(super) status: Option<u16>,
    /// Statuses that count as transient on this host.
    pub(super) soft_statuses: &'a [u16],
    /// Other feeds of the host are answered by such a status too, and not for too long yet.
    pub(super) is_the_hosts: bool,
    /// The request was refused for lack of a signature, and the next one has it.
    pub(super) is_signed_next: bool,
}

impl FailureContext<'_> {
    fn treatment(self, config: &PenaltyConfig) -> Treatment {
        use FailureKind as Kind;
        match self.kind {
            Kind::Dns | Kind::Connect | Kind::Tls | Kind::Timeout | Kind::Truncated => Treatment::Transient,
            Kind::Status => self.status_treatment(config),
            Kind::TooLarge | Kind::NotAFeed | Kind::Malformed | Kind::Redirects | Kind::RefusedAddress => {
                Treatment::BadFeed(config.bad_feed)
            }
            // A person at the site has to let us in; until then each try may make it worse.
            Kind::Blocked => Treatment::Boxed(config.server_error),
            Kind::Crashed => Treatment::Quarantined(config.crashed),
        }
    }

    fn status_treatment(self, config: &PenaltyConfig) -> Treatment {
        match self.status {
            _ if self.is_signed_next => Treatment::Transient,
            Some(status) if self.soft_statuses.contains(&status) => match self.is_the_hosts {
                true => Treatment::Soft,
                false => Treatment::Transient,
            },
            // A kept connection that the server closed while our request was in transit, one that serves another name,
            // a request that came too early; gateways in front of a server that is away, Cloudflare's among them.
            Some(408 | 421 | 425 | 502..=504 | 520..=530) => Treatment::Transient,
            Some(500..) => Treatment::Boxed(config.server_error),
            Some(404) => Treatment::Boxed(config.not_found),
            Some(400..) => Treatment::Boxed(config.client_error),
            // A 304 to an unconditional request, a 204, a 206: a response that makes no sense.
            Some(..400) | None => Treatment::BadFeed(config.bad_feed),
        }
    }
}

/// Applies a failure to the plan and to the state, which has already counted it. The caller sets `state.penalty.until`
/// once the due time is final.
pub(super) fn apply(plan: &mut Plan, state: &mut PollState, trouble: FailureContext<'_>, config: &PenaltyConfig) {
    let normal = plan.interval.min(plan.longest_retry);
    let was_boxed = state.penalty.is_some();
    let doubled = |first: Duration| if was_boxed { first.max(state.failure_delay.saturating_mul(2)) } else { first };
    let ceiling = config.ceiling.max(normal);
    let (delay, boxed) = match trouble.treatment(config) {
        Treatment::Soft => (transient_delay(state.consecutive_failures, config).min(normal), was_boxed),
        Treatment::Transient if state.consecutive_failures < config.box_after => {
            (transient_delay(state.consecutive_failures, config).min(normal), was_boxed)
        }
        Treatment::Transient => (doubled(config.first_box).min(ceiling).max(normal), true),
        Treatment::Boxed(first) => (doubled(first).min(ceiling).max(normal), true),
        Treatment::BadFeed(first) => (doubled(first.max(normal)).min(ceiling), true),
        Treatment::Quarantined(first) => {
            let again = state.penalty.is_some_and(|before| before.kind == FailureKind::Crashed);
            let longer = if again { state.failure_delay.saturating_mul(QUARANTINE_GROWTH) } else { Duration::ZERO };
            (first.max(longer).min(ceiling).max(normal), true)
        }
    };
    if boxed {
        state.penalty = Some(Penalty { kind: trouble.kind, until: plan.due });
    }
    wait(plan, state, delay);
}

/// Keeps the delay of a run of failures that a throttled response interrupts.
pub(super) fn keep(plan: &mut Plan, state: &mut PollState) {
    if state.consecutive_failures > 0 {
        wait(plan, state, plan.interval);
    }
}

/// Waits for `delay`, and at least as long as after the last failure of this run.
fn wait(plan: &mut Plan, state: &mut PollState, delay: Duration) {
    let rule = if state.penalty.is_some() { Rule::PenaltyBox } else { Rule::Backoff };
    plan.set(rule, delay.max(plan.retry_floor).max(state.failure_delay));
    // Rounded to the millisecond, as it is stored: a restart must not change a decision.
    state.failure_delay = plan.base.after(plan.interval).since(plan.base);
}

/// Returns the first delay, doubled with each failure of the run.
fn transient_delay(failures: u32, config: &PenaltyConfig) -> Duration {
    let doublings = failures.saturating_sub(1).min(31);
    config.transient_first.saturating_mul(1 << doublings)
}
