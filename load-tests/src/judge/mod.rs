//! The judge of politeness: pure functions from an origin's log to a score card.
//!
//! It specifies what a polite client may do, independently of feedfleet's implementation. It judges what was on the
//! wire: conditions echoed byte for byte, freshness and holds respected, rate and parallelism per host, the shape of
//! requests. If the log cannot show how a client had to interpret a response (a 200 that is not a scripted feed), both
//! interpretations are allowed.
//!
//! A kill -9 may cost one repetition for each fetch that was in flight, or answered but not yet committed. The checker of histories
//! ([`prove`]) names these requests: [`Rules::undone`].
//!
//! It does not judge whether every item arrived: compare a store with [`Origin::truth`](crate::Origin::truth) for that.
//! It does not know about pings and manual refreshes: exclude those from a run that is judged for early polls.

mod card;
mod conditions;
mod history;
mod manners;
mod pace;
mod proof;
#[cfg(test)]
mod proof_tests;
mod rules;
mod stalls;

use std::collections::BTreeMap;

pub use card::{Fault, ScoreCard, Violation};
pub use history::{GateLog, Grant, History, Release, Watched};
pub use proof::{Broken, Cause, Excuse, Memory, Promises, Proof, prove};
pub use rules::Rules;
pub use stalls::{StallWatch, Stalls};

use crate::origin::log::Record;

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
