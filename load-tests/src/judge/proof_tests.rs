//! The checker finds each kind of breach, and excuses single requests only.

use super::*;
use crate::origin::log::Record;
use common::time::Timestamp;
use std::collections::HashMap;
use std::time::Duration;

/// Wall time of a second of [`Record::made`].
fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_790_000_000_000).after(Duration::from_millis(millis))
}

/// Grants of feed 1 at one host, with a life of 7 s. The reports name them by a time that is 1 ms later.
fn grant(asked: u64, known: u64, version: i64) -> Grant {
    Grant {
        process: 0,
        host: "127.0.0.1:80".to_owned(),
        feed: 1,
        version,
        asked: at(asked),
        at: at(known),
        begun: at(known + 1),
        deadline: at(known + 7000),
        releases: Vec::new(),
        unreleased: Vec::new(),
    }
}

impl Grant {
    fn of(self, feed: i64) -> Self {
        Grant { feed, ..self }
    }

    fn to(self, process: usize) -> Self {
        Grant { process, ..self }
    }

    /// Released, confirmed 1 ms later, and remembered for 10 s.
    fn released(mut self, began: u64) -> Self {
        self.releases.push(Release {
            began: at(began),
            confirmed: Some(at(began + 1)),
            remember_until: Some(at(began + 10_000)),
            next_start_in: Duration::ZERO,
        });
        self
    }
}

/// Promises of a server's gate: a gap of half a second and a floor of 5.
struct Case {
    killed: Vec<Option<Timestamp>>,
    memory: Memory,
    stored: Vec<(i64, u64, u64)>,
    losses: Vec<Timestamp>,
    rollbacks: Vec<Timestamp>,
}

impl Default for Case {
    fn default() -> Self {
        let memory = Memory::OfServer;
        Case { killed: vec![None; 3], memory, stored: Vec::new(), losses: Vec::new(), rollbacks: Vec::new() }
    }
}

impl Case {
    fn killed(process: usize, millis: u64) -> Self {
        let mut case = Case::default();
        case.killed[process] = Some(at(millis));
        case
    }

    fn prove(&self, mut grants: Vec<Grant>, log: &[Record]) -> Proof {
        grants.sort_by_key(|grant| grant.at);
        let paths: HashMap<i64, String> = (1..=3).map(|feed| (feed, format!("/f{feed}"))).collect();
        let stored = self.stored.iter().map(|(feed, poll, when)| ((*feed, at(*poll + 1)), at(*when))).collect();
        let promises = Promises {
            paths: &paths,
            gap: &|_| Duration::from_millis(500),
            floor: Duration::from_secs(5),
            hold_ceiling: Duration::from_secs(3600),
            memory: self.memory,
            stored: &stored,
            losses: &self.losses,
            rollbacks: &self.rollbacks,
        };
        prove(&History { grants, killed: self.killed.clone() }, log, &promises)
    }

    fn broken(&self, grants: Vec<Grant>, log: &[Record]) -> Vec<Broken> {
        self.prove(grants, log).broken.into_iter().map(|(broken, _)| broken).collect()
    }

    fn causes(&self, grants: Vec<Grant>, log: &[Record]) -> Vec<Cause> {
        let proof = self.prove(grants, log);
        proof.assert_holds();
        proof.excuses.into_values().map(|excuse| excuse.cause).collect()
    }
}

fn request(number: usize, feed: i64, millis: u64) -> Record {
    Record::made(number, &format!("/f{feed}"), millis, &[], 200, &[])
}

/// Two polls of feed 1 after each other.
fn polled_twice(first: u64, second: u64) -> [Record; 2] {
    [request(0, 1, first + 1), request(1, 1, second + 1)]
}

#[test]
fn polls_that_keep_every_promise_need_no_excuse() {
    let case = Case { stored: vec![(1, 10, 60)], ..Case::default() };
    let grants =
        vec![grant(9, 10, 1).released(30), grant(510, 511, 1).of(2).released(600), grant(5010, 5011, 2).released(5030)];
    let log = [request(0, 1, 11), request(1, 2, 512), request(2, 1, 5012)];
    let proof = case.prove(grants, &log);
    assert!(proof.broken.is_empty() && proof.undone().is_empty(), "{proof:?}");
    assert_eq!(proof.to_string(), "3 grants, 0 promises broken, 0 requests excused {}");
}

#[test]
fn a_request_needs_a_separate_grant_that_was_given_before() {
    let broken = |log: &[Record]| Case::default().broken(vec![grant(9, 10, 1).released(30)], log);
    assert_eq!(broken(&[request(0, 1, 8)]), [] as [Broken; 0], "clocks are read in milliseconds");
    assert_eq!(broken(&[request(0, 1, 7)]), [Broken::Ungranted]);
    assert_eq!(broken(&[request(0, 1, 12), request(1, 1, 15)]), [Broken::Ungranted]);
    assert_eq!(broken(&[request(0, 2, 12)]), [Broken::Ungranted]);
    assert_eq!(broken(&[request(0, 9, 12)]), [Broken::Ungranted], "no feed of the fleet");
}

#[test]
fn starts_within_the_gap_are_found_to_the_millisecond_whatever_the_calls_took() {
    let broken = |second: Grant| Case::default().broken(vec![grant(10, 10, 1).released(20), second.of(2)], &[]);
    assert_eq!(broken(grant(510, 510, 1)), []);
    assert_eq!(broken(grant(509, 509, 1)), [Broken::Gap]);
    assert_eq!(broken(grant(300, 510, 1)), [], "the gate may have waited within the call");
    let mut late = grant(10, 10, 1).released(210);
    late.releases[0].next_start_in = Duration::from_millis(400);
    let after = |known| Case::default().broken(vec![late.clone(), grant(known, known, 1).of(2)], &[]);
    assert_eq!((after(609), after(610)), (vec![Broken::Gap], vec![]), "the request left 100 ms after its grant");
}

#[test]
fn moments_are_looked_for_in_all_calls_of_a_host_together() {
    let calls = |last| {
        let (first, second) = (grant(0, 400, 1).released(401), grant(402, 800, 1).of(2).released(801));
        vec![first, second, grant(802, last, 1).of(3)]
    };
    assert_eq!(Case::default().broken(calls(1000), &[]), [], "at 0, 500 and 1000");
    assert_eq!(Case::default().broken(calls(999), &[]), [Broken::Gap]);
}

#[test]
fn two_permits_at_one_host_or_for_one_feed_are_found() {
    let broken = |first: Grant, second: Grant| Case::default().broken(vec![first, second], &[]);
    let elsewhere = |grant: Grant| Grant { host: "127.0.0.2:80".to_owned(), ..grant };
    assert_eq!(broken(grant(10, 10, 1).released(900), grant(899, 899, 1).of(2)), [Broken::HostOverlap]);
    assert_eq!(broken(grant(10, 10, 1).released(900), grant(899, 900, 1).of(2)), []);
    assert_eq!(broken(grant(10, 10, 1), grant(7009, 7009, 1).of(2)), [Broken::HostOverlap], "a permit of 7 s");
    assert_eq!(broken(grant(10, 10, 1), elsewhere(grant(7009, 7009, 2))), [Broken::FeedOverlap]);
    assert_eq!(broken(grant(10, 10, 1), elsewhere(grant(7010, 7010, 2))), []);
}

#[test]
fn the_requests_of_a_killed_process_end_with_it_but_a_servers_permits_do_not() {
    let mut case = Case::killed(0, 100);
    let grants = || vec![grant(10, 10, 1), grant(800, 800, 1).of(2).to(1)];
    assert_eq!(case.broken(grants(), &[]), [Broken::HostOverlap]);
    case.memory = Memory::OfProcess;
    assert_eq!(case.broken(grants(), &[]), []);
}

#[test]
fn a_start_during_a_hold_is_found_unless_its_worker_died_with_the_response() {
    let log = [Record::made(0, "/f1", 11, &[], 429, &["Retry-After: 3"]), request(1, 2, 3500)];
    let grants = |known| vec![grant(10, 10, 1).released(40), grant(known, known, 1).of(2).to(1)];
    let case = Case { stored: vec![(1, 10, 60)], ..Case::default() };
    assert_eq!((case.broken(grants(2990), &log), case.broken(grants(3011), &log)), (vec![Broken::Hold], vec![]));
    let unreleased = || vec![Grant { deadline: at(900), ..grant(10, 10, 1) }, grant(2990, 2990, 1).of(2).to(1)];
    assert_eq!(Case::default().broken(unreleased(), &log), [Broken::Hold]);
    assert_eq!(Case::killed(0, 30).broken(unreleased(), &log), []);
}

#[test]
fn a_stored_poll_is_not_repeated_within_its_floor_whatever_happened() {
    let mut case =
        Case { stored: vec![(1, 10, 60)], losses: vec![at(100)], rollbacks: vec![at(100)], ..Case::default() };
    case.killed[0] = Some(at(100));
    let grants = |known| vec![grant(10, 10, 1).released(20), grant(known, known, 2).to(1)];
    let log = |known| polled_twice(10, known);
    assert_eq!(case.broken(grants(5009), &log(5009)), [Broken::Early]);
    assert_eq!(case.broken(grants(5010), &log(5010)), []);
}

#[test]
fn a_version_that_the_gate_knows_as_reported_is_not_granted_again() {
    let grants = |known| vec![grant(10, 10, 1).released(20), grant(known, known, 1)];
    let broken = |case: Case, known| case.broken(grants(known), &[]);
    assert_eq!((broken(Case::default(), 10_019), broken(Case::default(), 10_020)), (vec![Broken::Regrant], vec![]));
    assert_eq!(broken(Case { losses: vec![at(100)], ..Case::default() }, 10_019), []);
    assert_eq!(broken(Case { losses: vec![at(11_000)], ..Case::default() }, 10_019), [Broken::Regrant]);
}

#[test]
fn a_poll_whose_result_was_not_stored_is_repeated_only_if_something_cut_it() {
    let log = polled_twice(10, 3000);
    let cut = || vec![Grant { deadline: at(2000), ..grant(10, 10, 1) }, grant(3000, 3000, 1).to(1)];
    assert_eq!(Case::default().broken(cut(), &log), [Broken::Unstored]);
    assert_eq!(Case::killed(1, 100).broken(cut(), &log), [Broken::Unstored], "another process was killed");
    assert_eq!(Case::killed(0, 3100).broken(cut(), &log), [Broken::Unstored], "it was killed later");
    assert_eq!(Case::killed(0, 100).causes(cut(), &log), [Cause::Killed]);
    let mut released = cut();
    released[0] = released[0].clone().released(20);
    released[1].asked = at(2999);
    let killed = Case { losses: vec![at(100)], ..Case::killed(0, 100) };
    assert_eq!(killed.causes(released.clone(), &log), [Cause::GateLost], "its report was safe");
    assert_eq!(Case::killed(0, 100).broken(released, &log), [Broken::Regrant, Broken::Unstored]);
}

#[test]
fn an_excuse_is_for_one_repetition_of_one_request() {
    let case = Case::killed(0, 100);
    let cut = Grant { deadline: at(2000), ..grant(10, 10, 1) };
    let log = [request(0, 1, 11), request(1, 1, 3001), request(2, 1, 6001)];
    let grants = vec![cut, grant(3000, 3000, 1).to(1).released(3020), grant(6000, 6000, 2).to(1).released(6020)];
    let case = Case { stored: vec![(1, 3000, 3050)], ..case };
    let proof = case.prove(grants, &log);
    assert_eq!(proof.broken.iter().map(|(broken, _)| *broken).collect::<Vec<_>>(), [Broken::Early]);
    assert_eq!(proof.undone().into_iter().collect::<Vec<_>>(), [0]);
}

#[test]
fn outages_excuse_polls_that_the_gate_or_the_store_could_not_know() {
    let log = polled_twice(10, 12_000);
    let next = || grant(12_000, 12_000, 1).to(1);
    let causes = |case: Case, first: Grant| case.causes(vec![first, next()], &log);
    assert_eq!(causes(Case::default(), grant(10, 10, 1).released(20)), [Cause::StoreAway], "remembered for 10 s");
    assert_eq!(
        causes(Case { rollbacks: vec![at(50)], ..Case::default() }, grant(10, 10, 1).released(20)),
        [Cause::StoreLost]
    );
    let mut away = grant(10, 10, 1);
    away.unreleased.push(at(2020));
    assert_eq!(causes(Case::default(), away), [Cause::GateAway]);
    let silent = Case::default().broken(vec![grant(10, 10, 1), next()], &log);
    assert_eq!(silent, [Broken::Unstored], "a worker that releases nothing");
}
