//! Stalls: times in which a process got no processor time on a busy machine. A request that was sent in time is then
//! recorded late, and the request after it seems early.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How far from a stall a request may be recorded late because of it.
const NEAR: Duration = Duration::from_secs(1);
/// How long before a request the late one may have been recorded.
const BEFORE: Duration = Duration::from_secs(6);
/// Shorter stalls are within [`super::Rules::slack`].
const SHORTEST: Duration = Duration::from_millis(20);
/// How long to wait between two health checks of a watched process.
const BETWEEN_CHECKS: Duration = Duration::from_millis(100);

/// A stall, as time since the origin's start.
#[derive(Clone, Copy, Debug)]
struct Stall {
    begun: Duration,
    length: Duration,
}

/// The stalls of a run, in the order in which they ended.
#[derive(Clone, Debug, Default)]
pub struct Stalls(Vec<Stall>);

impl Stalls {
    /// Returns the longest stall of the run.
    pub fn longest(&self) -> Duration {
        self.longest_between(Duration::ZERO, Duration::MAX)
    }

    /// Returns by how much a request recorded at this time since the origin's start may be late.
    pub fn near(&self, recorded: Duration) -> Duration {
        self.longest_between(recorded.saturating_sub(NEAR), recorded + NEAR)
    }

    /// Returns by how much a request recorded at this time may seem too early.
    pub(super) fn before(&self, recorded: Duration) -> Duration {
        self.longest_between(recorded.saturating_sub(BEFORE), recorded + NEAR)
    }

    fn longest_between(&self, from: Duration, until: Duration) -> Duration {
        let near = self.0.iter().filter(|stall| stall.begun <= until && stall.begun + stall.length >= from);
        near.map(|stall| stall.length).max().unwrap_or_default()
    }
}

/// Watches processes for stalls while an origin records requests.
#[derive(Clone, Debug)]
pub struct StallWatch {
    /// The origin's start.
    started: Instant,
    seen: Arc<Mutex<Stalls>>,
}

impl StallWatch {
    /// Creates a watch over the requests of an origin that started at this time.
    pub fn since(started: Instant) -> Self {
        StallWatch { started, seen: Arc::default() }
    }

    /// Records that something that normally takes no time took `length`.
    pub fn note(&self, begun: Instant, length: Duration) {
        if length >= SHORTEST {
            let begun = begun.duration_since(self.started);
            common::lock(&self.seen).0.push(Stall { begun, length });
        }
    }

    /// Watches the runtime that this future runs on; never ends.
    pub async fn watch_runtime(self) {
        loop {
            let begun = Instant::now();
            tokio::time::sleep(SHORTEST).await;
            self.note(begun, begun.elapsed().saturating_sub(SHORTEST));
        }
    }

    /// Watches the process at this address by the response time of its health check, until it is gone.
    pub async fn watch_process(self, client: reqwest::Client, address: String) {
        let alive = format!("{address}/healthz");
        loop {
            let begun = Instant::now();
            if client.get(&alive).send().await.is_err() {
                return;
            }
            self.note(begun, begun.elapsed());
            tokio::time::sleep(BETWEEN_CHECKS).await;
        }
    }

    /// Returns the stalls so far.
    pub fn seen(&self) -> Stalls {
        common::lock(&self.seen).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Fault, Rules, judge};
    use super::*;
    use crate::origin::log::Record;

    fn starts(times: &[u64]) -> Vec<Record> {
        times.iter().enumerate().map(|(number, at)| Record::made(number, "/f", *at, &[], 404, &[])).collect()
    }

    fn stalled(begun: u64, length: u64) -> Stalls {
        Stalls(vec![Stall { begun: Duration::from_millis(begun), length: Duration::from_millis(length) }])
    }

    #[test]
    fn a_stall_excuses_requests_near_it_by_its_length_and_no_others() {
        let log = starts(&[0, 1_400, 2_000, 20_000, 20_600]);
        let broken = |stalls: Stalls| {
            let card = judge(&log, &Rules { stalls, ..Rules::default() });
            card.violations
                .iter()
                .filter(|found| found.fault == Fault::Gap)
                .map(|found| found.request)
                .collect::<Vec<_>>()
        };
        assert_eq!(broken(Stalls::default()), [2, 4]);
        assert_eq!(broken(stalled(1_000, 400)), [4], "the first of the pair was recorded late");
        assert_eq!(broken(stalled(1_000, 300)), [2, 4], "not by so much");
        assert_eq!(broken(stalled(10_000, 400)), [2, 4], "at another time");
    }

    #[tokio::test]
    async fn a_blocked_runtime_is_noticed() {
        let watch = StallWatch::since(Instant::now());
        let watching = tokio::spawn(watch.clone().watch_runtime());
        tokio::task::yield_now().await;
        std::thread::sleep(Duration::from_millis(150));
        while watch.seen().longest() < Duration::from_millis(120) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        watching.abort();
    }
}
