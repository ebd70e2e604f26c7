//! The judge of politeness: pure functions from an origin's log to a score card.
//!
//! It knows what a polite client may do, not how feedfleet does it. It judges what was on the wire: conditions echoed
//! byte for byte, freshness and holds kept, pace and parallelism per host, the shape of requests. Where the log cannot
//! tell what a client had to make of an answer (a 200 that is no scripted feed), both readings are allowed.
//!
//! A kill -9 may cost one repeat for each fetch that was in flight, or answered but not yet committed: [`Rules::kills`].
//!
//! It does not judge whether every item arrived: compare a store with [`Origin::truth`](crate::Origin::truth) for that.
//! It does not know of pings and of people who press "refresh": leave those out of a run that is judged for early polls.

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

/// What counts as polite in a run.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Shortest time between two polls of a path after a good answer, whatever its server said.
    pub floor: Duration,
    /// The same for single paths; wins over [`Rules::floor`].
    pub floors: HashMap<String, Duration>,
    /// Paths that may be asked with HEAD before GET.
    pub heads: HashSet<String>,
    /// Shortest time between the starts of two requests to a host.
    pub gap: Duration,
    /// Requests that may start at once after a rest; 1 = strictly spaced.
    pub burst: u32,
    /// Requests in flight at once at a host.
    pub parallel: usize,
    /// What scheduling, connecting and two clocks may take before a difference counts.
    pub slack: Duration,
    /// When the origin or the client got no processor time: a difference near a stall counts only beyond its length.
    pub stalls: Stalls,
    /// Longest freshness (`max-age`, `Expires`) that has to be kept.
    pub freshness_ceiling: Duration,
    /// Longest `Retry-After` that has to be kept.
    pub retry_after_ceiling: Duration,
    /// How long one throttled path holds its whole host, until a second one of that host is throttled as well.
    pub single_hold_ceiling: Duration,
    /// When the client was killed.
    pub kills: Vec<Timestamp>,
    /// How long after an answer's end a client may still be busy committing it, should it be killed then.
    pub commit_window: Duration,
}

impl Default for Rules {
    /// feedfleet's promises: no floor, a gap of a second, one at a time, a day of freshness, 30 days of `Retry-After`, an
    /// hour for one path's throttling; 50 ms of slack, a second to commit.
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

    /// Whether a request that seems early by this much is early.
    fn is_early(&self, record: &Record, early: Duration) -> bool {
        early > self.slack && early > self.slack + self.stalls.before(record.start)
    }

    /// Whether a kill may have undone this fetch: it was in flight, or just answered.
    fn may_be_undone(&self, record: &Record) -> bool {
        let from = record.wall.before(self.slack + self.stalls.before(record.start));
        let until = record.end.map(|end| record.wall.after(end.saturating_sub(record.start) + self.commit_window));
        self.kills.iter().any(|kill| *kill >= from && until.is_none_or(|until| *kill <= until))
    }
}

/// Judges a log: all of it, or the part of it that a test cares for.
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
