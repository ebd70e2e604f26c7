//! Whether polling makes progress: the alarm behind `/healthz`.
//!
//! Every other check tests whether a server answers. This one tests the result: when feeds have been due for several
//! leases and not one report has arrived in that time, although nothing is known that would explain it, the process
//! itself is stuck, and a restart is better than waiting. The same applies if, for the same time, this process
//! cannot find out whether feeds are due although the server would answer.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

/// Leases without a report after which a scheduler with due feeds counts as stuck.
pub(crate) const LEASES: u32 = 5;

/// Notes progress, and holds the alarm.
#[derive(Debug)]
pub struct Watchdog(Mutex<State>);

#[derive(Debug)]
struct State {
    /// When a report was stored last, or polling was last known to be stopped on purpose.
    progress: Instant,
    alarm: Option<String>,
}

impl Default for Watchdog {
    fn default() -> Self {
        Watchdog(Mutex::new(State { progress: Instant::now(), alarm: None }))
    }
}

impl Watchdog {
    /// Returns why this process counts as stuck; `None` while it works or has a reason not to.
    pub fn alarm(&self) -> Option<String> {
        self.lock().alarm.clone()
    }

    /// Notes that a poll has ended, or that a known reason keeps feeds waiting.
    pub(crate) fn progressed(&self) {
        let mut state = self.lock();
        state.progress = Instant::now();
        if state.alarm.take().is_some() {
            tracing::info!("polling makes progress again");
        }
    }

    /// Judges feeds that have been due for `due`, where a feed's lease lasts `lease`. Returns whether the alarm is on.
    pub(crate) fn judge(&self, due: Duration, lease: Duration) -> bool {
        self.judge_at(due, lease, Instant::now())
    }

    /// Notes that it is unknown whether feeds are due, for this reason, which lies in this process. Returns whether the
    /// alarm is on.
    pub(crate) fn judge_failure(&self, why: &str, lease: Duration) -> bool {
        self.judge_failure_at(why, lease, Instant::now())
    }

    /// Notes that a known reason keeps feeds waiting. Returns that the alarm is off.
    pub(crate) fn excuse(&self) -> bool {
        self.progressed();
        false
    }

    fn judge_at(&self, due: Duration, lease: Duration, now: Instant) -> bool {
        self.raise_after(lease, due, now, |silent| {
            format!(
                "feeds have been due for {} s and no poll has ended for {silent} s, although nothing is paused, blocked or held",
                due.as_secs(),
            )
        })
    }

    fn judge_failure_at(&self, why: &str, lease: Duration, now: Instant) -> bool {
        self.raise_after(lease, Duration::MAX, now, |silent| {
            format!("no poll has ended for {silent} s, and it is not known whether feeds are due: {why}")
        })
    }

    fn raise_after(&self, lease: Duration, due: Duration, now: Instant, why: impl FnOnce(u64) -> String) -> bool {
        let mut state = self.lock();
        let silent = now.duration_since(state.progress);
        if state.alarm.is_none() && due.min(silent) > lease * LEASES {
            let why = format!("{}; restart this process, and report this with its log", why(silent.as_secs()));
            tracing::error!(why, "the watchdog found this scheduler stuck; /healthz fails from now on");
            state.alarm = Some(why);
        }
        state.alarm.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        common::lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(120);

    #[test]
    fn due_feeds_without_a_poll_for_five_leases_raise_the_alarm_until_a_poll_ends() {
        let watchdog = Watchdog::default();
        let begun = Instant::now();
        assert!(!watchdog.judge_at(LEASE * 50, LEASE, begun + LEASE * LEASES - Duration::from_secs(1)), "not yet");
        let later = begun + LEASE * LEASES + Duration::from_secs(1);
        assert!(!watchdog.judge_at(LEASE, LEASE, later), "nothing has been due for long");
        assert!(watchdog.judge_at(LEASE * 50, LEASE, later));
        assert!(watchdog.alarm().unwrap().contains("no poll has ended for 601 s"));
        watchdog.progressed();
        assert_eq!((watchdog.alarm(), watchdog.judge(LEASE * 50, LEASE)), (None, false));
    }

    #[test]
    fn calls_that_fail_for_five_leases_raise_the_alarm_with_their_reason() {
        let watchdog = Watchdog::default();
        let begun = Instant::now();
        let at = |seconds: u64| begun + LEASE * LEASES - Duration::from_secs(1) + Duration::from_secs(seconds);
        assert!(!watchdog.judge_failure_at("redis refused", LEASE, at(0)), "not yet");
        assert!(watchdog.judge_failure_at("redis refused", LEASE, at(2)));
        assert!(
            watchdog.alarm().unwrap().contains("for 601 s, and it is not known whether feeds are due: redis refused;")
        );
        assert_eq!((watchdog.excuse(), watchdog.alarm()), (false, None));
    }
}
