//! The judge of politeness: pure functions from an origin's log to a score card.
//!
//! It specifies what a polite client may do, independently of feedfleet's implementation. It judges what was on the
//! wire: conditions echoed byte for byte, freshness and holds respected, rate and parallelism per host, the shape of
//! requests. If the log cannot show how a client had to interpret a response (a 200 that is not a scripted feed), both
//! interpretations are allowed.
//!
//! A kill -9 may cost one repetition for each fetch that was in flight, or answered but not yet committed:
//! [`Rules::kills`].
//!
//! It does not judge whether every item arrived: compare a store with [`Origin::truth`](crate::Origin::truth) for that.
//! It does not know about pings and manual refreshes: exclude those from a run that is judged for early polls.

mod card;
mod conditions;
mod manners;
mod pace;
mod stalls;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use common::time::Timestamp;

pub use card::{Fault, ScoreCard, Violation};
pub use stalls::{StallWatch, Stalls};

use crate::origin::log::Record;

/// The politeness rules of a run.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Minimum time between two polls of a path after a good response, whatever its server said.
    pub floor: Duration,
    /// The same for single paths; overrides [`Rules::floor`].
    pub floors: HashMap<String, Duration>,
    /// Paths that may be polled with HEAD before GET.
    pub heads: HashSet<String>,
    /// Minimum time between the starts of two requests to a host.
    pub gap: Duration,
    /// Requests that may start at once after an idle time; 1 = strictly spaced.
    pub burst: u32,
    /// Maximum number of requests in flight at a host.
    pub parallel: usize,
    /// Tolerance for scheduling, connecting and two clocks.
    pub slack: Duration,
    /// When the origin or the client got no processor time: a difference near a stall only counts beyond its length.
    pub stalls: Stalls,
    /// Maximum freshness (`max-age`, `Expires`) that has to be respected.
    pub freshness_ceiling: Duration,
    /// Maximum `Retry-After` that has to be respected.
    pub retry_after_ceiling: Duration,
    /// How long one throttled path holds its whole host, until a second one of that host is also throttled.
    pub single_hold_ceiling: Duration,
    /// When the client was killed.
    pub kills: Vec<Timestamp>,
    /// How long after a response's end a client may still be committing it when it is killed.
    pub commit_window: Duration,
}

impl Default for Rules {
    /// Returns feedfleet's promises: no floor, a gap of a second, one request at a time, a day of freshness, 30 days of
    /// `Retry-After`, an hour for one throttled path; 50 ms of slack, a second to commit.
    fn default() -> Self {
        Rules {
            floor: Duration::ZERO,
            floors: HashMap::new(),
            heads: HashSet::new(),
            gap: Duration::from_secs(1),
            burst: 1,
            parallel: 1,
            slack: Duration::from_millis(50),
            stalls: Stalls::default(),
            freshness_ceiling: Duration::from_secs(24 * 3600),
            retry_after_ceiling: Duration::from_secs(30 * 24 * 3600),
            single_hold_ceiling: Duration::from_secs(3600),
            kills: Vec::new(),
            commit_window: Duration::from_secs(1),
        }
    }
}

impl Rules {
    fn floor_of(&self, path: &str) -> Duration {
        self.floors.get(path).copied().unwrap_or(self.floor)
    }

    /// Returns whether a request that seems early by this much really is early.
    fn is_early(&self, record: &Record, early: Duration) -> bool {
        early > self.slack && early > self.slack + self.stalls.before(record.start)
    }

    /// Returns whether a kill may have undone this fetch: it was in flight, or just answered.
    fn may_be_undone(&self, record: &Record) -> bool {
        let from = record.wall.before(self.slack + self.stalls.before(record.start));
        let until = record.end.map(|end| record.wall.after(end.saturating_sub(record.start) + self.commit_window));
        self.kills.iter().any(|kill| *kill >= from && until.is_none_or(|until| *kill <= until))
    }
}

/// Judges a log, or any part of it.
pub fn judge(log: &[Record], rules: &Rules) -> ScoreCard {
    let mut sorted: Vec<&Record> = log.iter().collect();
    sorted.sort_by_key(|record| (record.start, record.number));
    let (mut paths, mut hosts) = (BTreeMap::<&str, Vec<&Record>>::new(), BTreeMap::<_, Vec<&Record>>::new());
    for record in &sorted {
        paths.entry(&record.path).or_default().push(record);
        hosts.entry(record.local).or_default().push(record);
    }
    let mut card = ScoreCard::of(log, hosts.len(), paths.len());
    sorted.iter().for_each(|record| manners::judge_request(record, rules, &mut card.violations));
    for requests in paths.values() {
        conditions::judge_path(requests, rules, &mut card.violations);
        pace::judge_overlap(requests, 1, Fault::PathOverlap, &mut card.violations);
    }
    for requests in hosts.values() {
        pace::judge_overlap(requests, rules.parallel, Fault::HostOverlap, &mut card.violations);
        pace::judge_gap(requests, rules, &mut card.violations);
        pace::judge_holds(requests, rules, &mut card.violations);
    }
    card
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_counts_every_fault_and_gives_reasons() {
        let name = "User-Agent: x";
        let log = [
            Record::made(0, "/f", 0, &[name], 200, &["ETag: \"a\"", "Cache-Control: max-age=60"]),
            Record::made(1, "/f", 5, &[name], 200, &[]),
        ];
        let card = judge(&log, &Rules::default());
        for fault in [Fault::UnconditionalRepeat, Fault::EarlyPoll, Fault::Gap, Fault::HostOverlap, Fault::PathOverlap]
        {
            assert_eq!(card.count(fault), 1, "{fault:?}");
        }
        assert_eq!(card.violations.len(), 5);
        let table = card.to_string();
        assert!(table.starts_with("2 requests to 1 hosts and 1 paths: 2 feeds, 0 not modified, 0 other;"), "{table}");
        assert!(
            table.contains("request 1 (+0.005 s, /f): 59.995 s early: answer 0 has a freshness of 60.000 s"),
            "{table}"
        );
        assert!(judge(&log[..1], &Rules::default()).is_clean());
    }
}
