//! Servers that throttle us: 429, and 503 with Retry-After.
//!
//! Being throttled does not count as a failure. The feed and its host wait, and the interval grows when the server did
//! not say how long to wait.

use std::time::Duration;

use super::Rule;
use super::plan::Plan;
use crate::config::PolicyConfig;
use crate::policy::PollState;
use crate::report::FetchReport;
use crate::time::Timestamp;
use crate::url::FeedId;

/// The longest hold that one throttled feed puts on its whole host.
pub(super) const SINGLE_FEED_HOLD: Duration = Duration::from_secs(3600);

/// Returns until when a host is held as soon as a response at `now` requests it, before the scheduler has decided: what
/// the response says, or `throttled` (the configured first delay) if it says nothing; at most what a single feed can
/// cause.
pub fn first_hold(retry_after: Option<Timestamp>, now: Timestamp, throttled: Duration) -> Timestamp {
    let latest = now.after(SINGLE_FEED_HOLD);
    retry_after.unwrap_or_else(|| now.after(throttled)).min(latest)
}

/// Returns until when the host that answered is held because its own limit of requests is used up: what the response
/// says, at most what a single feed can cause. `None` if that has ended. Does not count as throttling of the feed.
pub fn held_by_limit(report: &FetchReport, now: Timestamp) -> Option<Timestamp> {
    let latest = report.started.after(report.duration).after(SINGLE_FEED_HOLD);
    report.limited_until.map(|until| until.min(latest)).filter(|until| *until > now)
}

/// The factor on the feed's interval for each throttled response without Retry-After.
const STRETCH_GROWTH: f32 = 1.5;
/// The factor after each good answer: eight good answers undo one throttled response.
const STRETCH_RECOVERY: f32 = 0.95;
/// The maximum stretch; the interval has its own ceiling.
const STRETCH_MAX: f32 = 16.0;

/// Records a throttled response: counts it, stretches the interval if the server gave no time, and returns until when
/// to wait.
pub(super) fn remember(
    state: &mut PollState,
    retry_after: Option<Timestamp>,
    started: Timestamp,
    now: Timestamp,
    config: &PolicyConfig,
) -> Hold {
    state.throttles = state.throttles.saturating_add(1);
    let hold = match retry_after.filter(|until| *until > started) {
        Some(asked) => Hold { rule: Rule::RetryAfter, asked, until: asked.min(now.after(config.retry_after_ceiling)) },
        None => {
            state.stretch = (state.stretch.max(1.0) * STRETCH_GROWTH).min(STRETCH_MAX);
            let doublings = (state.throttles - 1).min(31);
            let delay = config.penalty.throttled.saturating_mul(1 << doublings).min(config.penalty.ceiling);
            let until = now.after(delay);
            Hold { rule: Rule::Throttled, asked: until, until }
        }
    };
    state.hold_until = Some(state.hold_until.map_or(hold.until, |before| before.max(hold.until)));
    hold
}

/// Records a `Retry-After` of a response that does not throttle: a floor for this feed only.
pub(super) fn asked_to_wait(state: &mut PollState, asked: Timestamp, now: Timestamp, config: &PolicyConfig) -> Hold {
    let until = asked.min(now.after(config.retry_after_ceiling));
    state.hold_until = Some(state.hold_until.map_or(until, |before| before.max(until)));
    Hold { rule: Rule::RetryAfter, asked, until }
}

/// Records a good answer.
pub(super) fn forgive(state: &mut PollState) {
    state.throttles = 0;
    state.stretch = (state.stretch * STRETCH_RECOVERY).max(1.0);
}

/// Until when a throttled feed waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    rule: Rule,
    /// The time that the server requested.
    asked: Timestamp,
    /// The same, limited by the ceiling.
    pub(super) until: Timestamp,
}

impl Hold {
    /// Moves the plan past the hold, and records the ceiling if it applied.
    pub(super) fn apply(self, plan: &mut Plan) {
        let before = plan.due;
        plan.not_before(self.rule, self.asked);
        if self.asked > self.until {
            plan.move_to(Rule::Ceiling, self.until.max(before));
            plan.leave_skipped();
        }
    }
}

/// A hold of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostHold {
    /// Until when the host is not polled.
    pub until: Timestamp,
    /// Until when the feed that caused it must wait: later than `until` if this feed alone was throttled.
    pub asked: Timestamp,
    /// That feed.
    pub cause: FeedId,
}

/// Returns the end of a host's hold after the server requested that its feed `feed` wait until `asked`. One feed alone
/// holds its host for at most an hour, so that one blog cannot freeze a platform. If a second feed is throttled before
/// the first one's full time ends, the host is held for the full time of both. As a held host is not polled, this
/// mostly happens after the first one's hour.
///
/// `previous` is the host's last hold.
pub fn host_hold(previous: Option<&HostHold>, feed: FeedId, asked: Timestamp, now: Timestamp) -> Timestamp {
    let alone = asked.min(now.after(SINGLE_FEED_HOLD));
    match previous {
        Some(hold) if hold.cause != feed && hold.until.max(hold.asked) > now => asked.max(hold.until).max(hold.asked),
        Some(hold) if hold.until > now => hold.until.max(alone),
        _ => alone,
    }
}

/// Returns a host's hold after a response of its feed `feed` that does not throttle says that the host's own limit of
/// requests is used up until `asked`. That holds the host for at most an hour at a time, however many feeds' responses
/// say it.
///
/// It does not end `previous`, the host's last hold, earlier. The feed that caused that one stays its cause until its
/// full time ends: [`host_hold`] needs to know it.
pub fn limit_hold(previous: Option<&HostHold>, feed: FeedId, asked: Timestamp, now: Timestamp) -> HostHold {
    let until = asked.min(now.after(SINGLE_FEED_HOLD));
    match previous {
        Some(hold) if hold.until.max(hold.asked) > now => HostHold { until: hold.until.max(until), ..*hold },
        _ => HostHold { until, asked, cause: feed },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_did_not_say_is_held_for_the_configured_time_and_an_hour_at_most() {
        let now = Timestamp::from_millis(1_790_000_000_000);
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        assert_eq!(first_hold(None, now, minutes(240)), now.after(minutes(60)));
        assert_eq!(first_hold(None, now, minutes(10)), now.after(minutes(10)));
        assert_eq!(first_hold(Some(now.after(minutes(20))), now, minutes(10)), now.after(minutes(20)));
        assert_eq!(first_hold(Some(now.after(minutes(90))), now, minutes(10)), now.after(minutes(60)));
    }
}
