//! Which hosts fail and throttle most at present, by the reports that this scheduler settles. Shown to
//! operators; no decision depends on it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use common::host::HostKey;
use common::outcome::FailureKind;
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;

/// The list covers the current half hour and the one before.
const PERIOD: Duration = Duration::from_secs(30 * 60);
/// The maximum number of hosts per period; others are not recorded.
const MOST_HOSTS: usize = 2_000;

/// The failures of hosts that this scheduler saw. Shared.
#[derive(Debug, Default)]
pub struct WorstHosts(Mutex<Tallies>);

#[derive(Debug, Default)]
struct Tallies {
    began: Timestamp,
    now: HashMap<HostKey, Tally>,
    before: HashMap<HostKey, Tally>,
}

/// The trouble of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Polls that failed.
    pub failed: u32,
    /// Polls that were throttled.
    pub throttled: u32,
    /// How the last one failed; `None` when only throttling was seen.
    pub last: Option<FailureKind>,
}

impl Tally {
    /// Both together.
    pub fn total(&self) -> u32 {
        self.failed.saturating_add(self.throttled)
    }
}

impl WorstHosts {
    /// Takes in a report that was stored.
    pub(crate) fn observe(&self, report: &FetchReport, now: Timestamp) {
        let (failed, throttled) = match &report.outcome {
            Outcome::Failed { .. } => (1, 0),
            Outcome::Throttled { .. } => (0, 1),
            _ => return,
        };
        let mut seen = self.seen(now);
        let host = report.answering_host();
        if seen.now.len() >= MOST_HOSTS && !seen.now.contains_key(host) {
            return;
        }
        let tally = seen.now.entry(host.clone()).or_default();
        tally.failed = tally.failed.saturating_add(failed);
        tally.throttled = tally.throttled.saturating_add(throttled);
        tally.last = report.outcome.failure().or(tally.last);
    }

    /// Returns at most this many hosts, the worst first.
    pub fn list(&self, most: usize, now: Timestamp) -> Vec<(HostKey, Tally)> {
        let seen = self.seen(now);
        let mut hosts = seen.now.clone();
        for (host, earlier) in &seen.before {
            let tally = hosts.entry(host.clone()).or_default();
            tally.failed = tally.failed.saturating_add(earlier.failed);
            tally.throttled = tally.throttled.saturating_add(earlier.throttled);
            tally.last = tally.last.or(earlier.last);
        }
        drop(seen);
        let mut hosts: Vec<_> = hosts.into_iter().collect();
        hosts.sort_by(|(one, a), (other, b)| (b.total(), one.as_str()).cmp(&(a.total(), other.as_str())));
        hosts.truncate(most);
        hosts
    }

    fn seen(&self, now: Timestamp) -> MutexGuard<'_, Tallies> {
        let mut seen = common::lock(&self.0);
        let age = now.since(seen.began);
        if age >= PERIOD {
            let ended = std::mem::take(&mut seen.now);
            seen.before = if age < 2 * PERIOD { ended } else { HashMap::new() };
            seen.began = now;
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use common::url::{FeedId, Version};

    use super::*;

    fn report(host: &str, outcome: Outcome) -> FetchReport {
        FetchReport::of(FeedId(1), Version(1), HostKey::new(host), Timestamp::EPOCH, outcome)
    }

    fn failed(host: &str) -> FetchReport {
        report(host, Outcome::Failed { failure: FailureKind::Timeout, detail: String::new() })
    }

    fn shown(worst: &WorstHosts, now: Timestamp) -> Vec<(String, u32)> {
        worst.list(2, now).into_iter().map(|(host, tally)| (host.to_string(), tally.total())).collect()
    }

    #[test]
    fn the_worst_come_first_and_are_forgotten_after_an_hour_at_most() {
        let worst = WorstHosts::default();
        let now = Timestamp::from_millis(1_790_000_000_000);
        worst.observe(&failed("a.example:443"), now);
        worst.observe(&report("b.example:443", Outcome::Throttled { retry_after: None }), now);
        worst.observe(&failed("b.example:443"), now);
        worst.observe(&failed("c.example:443"), now);
        worst.observe(&report("d.example:443", Outcome::Gone), now);
        let both = vec![("b.example:443".to_owned(), 2), ("a.example:443".to_owned(), 1)];
        assert_eq!(shown(&worst, now), both);
        let later = now.after(PERIOD);
        worst.observe(&failed("a.example:443"), later);
        let both = vec![("a.example:443".to_owned(), 2), ("b.example:443".to_owned(), 2)];
        assert_eq!(shown(&worst, later), both);
        assert_eq!(shown(&worst, later.after(PERIOD)), [("a.example:443".to_owned(), 1)]);
        assert_eq!(shown(&worst, later.after(3 * PERIOD)), []);
    }

    #[test]
    fn more_hosts_than_are_told_apart_take_no_more_memory() {
        let worst = WorstHosts::default();
        let now = Timestamp::from_millis(1_790_000_000_000);
        for number in 0..2 * MOST_HOSTS {
            worst.observe(&failed(&format!("{number}.example:443")), now);
        }
        assert_eq!(worst.list(usize::MAX, now).len(), MOST_HOSTS);
    }
}
