//! Decides whether the fault is ours. It is when hosts that answered before suddenly fail: most of all polled hosts, in
//! ways that our own network can cause. Then no feed is penalised, and polling slows to a probe until hosts answer
//! again.
//!
//! There is no leader: each scheduler judges by the reports that it settles, an even share of all.
//! [`common::policy::spare`] decides what follows for a feed.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use common::feed::Feed;
use common::host::HostKey;
use common::policy::may_be_ours;
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;

/// How long a host's answer or failure counts: "in the same minute".
const WINDOW: Duration = Duration::from_secs(60);
/// The number of hosts that must have failed although they were well before, and more than answered ...
const MANY_HOSTS: usize = 8;
/// ... or this many failed and none answered: a desktop polls few hosts.
const FEW_HOSTS: usize = 3;
/// The maximum number of hosts to remember: more would show nothing new.
const MOST_HOSTS: usize = 2_000;
/// With more than this many hosts, old ones are removed at this interval: doing so at every answer would cost more than storing it.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The number of answers in a row that end it.
const ANSWERS: usize = 4;
/// Polls a second while it lasts: to notice its end, and to bother no server whose responses do not reach us.
pub(crate) const PROBES_PER_SECOND: f64 = 1.0;

/// What this scheduler knows of our own network. Shared.
#[derive(Debug, Default)]
pub struct OurFault(Mutex<HostAnswers>);

#[derive(Debug, Default)]
struct HostAnswers {
    /// What each host did last, and when; while the fault is ours, since it began.
    hosts: HashMap<HostKey, (Timestamp, bool)>,
    /// When old ones were forgotten last.
    looked: Timestamp,
    /// Set while the fault is ours.
    since: Option<Timestamp>,
    /// Since then: did the last ones answer?
    last: VecDeque<bool>,
    /// Probes that may be made, and of when the number is.
    probes: f64,
    refilled: Timestamp,
}

/// The fault begins or ends being ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    /// The numbers of hosts that failed and that answered.
    Began { failed: usize, answered: usize },
    /// How long it lasted.
    Ended { after: Duration },
}

impl OurFault {
    /// Returns since when the fault is ours, if it is.
    pub fn since(&self) -> Option<Timestamp> {
        self.seen().since
    }

    /// Takes in the outcomes of fetches: the feed as it was before, and the report. Logs each change once.
    pub(crate) fn observe<'a>(&self, reports: impl Iterator<Item = (&'a Feed, &'a FetchReport)>, now: Timestamp) {
        let mut seen = self.seen();
        let before = seen.since.is_some();
        let began = reports.filter_map(|(feed, report)| {
            let answered = answered(feed, report)?;
            seen.note(report.answering_host(), answered, now)
        });
        // Several turns in one batch are one, or none.
        let turn = began.last();
        match turn.filter(|_| seen.since.is_some() != before) {
            Some(Transition::Began { failed, answered }) => tracing::warn!(
                failed,
                answered,
                "most hosts fail that answered before: the fault is ours; no feed is penalised, polling slows to a probe"
            ),
            Some(Transition::Ended { after }) => {
                let after = humantime::format_duration(Duration::from_secs(after.as_secs())).to_string();
                tracing::info!(after, "hosts answer again: polling continues");
            }
            None => {}
        }
    }

    /// Returns how many polls may be started of `room`.
    pub(crate) fn room(&self, room: usize, now: Timestamp) -> usize {
        let mut seen = self.seen();
        if seen.since.is_none() {
            return room;
        }
        let passed = now.since(seen.refilled).as_secs_f64();
        seen.probes = (seen.probes + passed * PROBES_PER_SECOND).min(1.0);
        seen.refilled = now;
        if seen.probes >= 1.0 { room.min(1) } else { 0 }
    }

    /// Counts polls that were started; a round that was in progress when the fault began started many, and they are not owed.
    pub(crate) fn spend(&self, polls: usize) {
        let mut seen = self.seen();
        seen.probes = (seen.probes - polls as f64).max(0.0);
    }

    fn seen(&self) -> MutexGuard<'_, HostAnswers> {
        common::lock(&self.0)
    }
}

/// Returns whether the host answered, with any status. `None` if the report does not show it: a request that was not
/// made, one that the address guard stopped, a feed that had failed before.
fn answered(feed: &Feed, report: &FetchReport) -> Option<bool> {
    let was_well = feed.state.consecutive_failures == 0 && feed.state.last_success.is_some();
    match &report.outcome {
        Outcome::Deferred { .. } => None,
        Outcome::Failed { failure, .. } if may_be_ours(*failure) => was_well.then_some(false),
        Outcome::Failed { .. } => report.http_status.map(|_| true),
        _ => Some(true),
    }
}

impl HostAnswers {
    fn note(&mut self, host: &HostKey, answered: bool, now: Timestamp) -> Option<Transition> {
        let has_failed = self.hosts.get(host).is_some_and(|(_, answered)| !answered);
        if self.hosts.len() < MOST_HOSTS || self.hosts.contains_key(host) {
            self.hosts.insert(host.clone(), (now, answered));
        }
        if let Some(since) = self.since {
            // A host that is really away is tried again and again, and would keep the fault ours for ever.
            if !answered && has_failed {
                return None;
            }
            self.last.push_back(answered);
            self.last.drain(..self.last.len().saturating_sub(ANSWERS));
            let over = self.last.len() == ANSWERS && self.last.iter().all(|answered| *answered);
            return over.then(|| {
                *self = HostAnswers::default();
                Transition::Ended { after: now.since(since) }
            });
        }
        // Only a failure can be the one that shows it.
        let room_is_wanted = self.hosts.len() >= MOST_HOSTS && now.since(self.looked) >= LOOK_EVERY;
        if answered && !room_is_wanted {
            return None;
        }
        self.looked = now;
        self.hosts.retain(|_, (at, _)| now.since(*at) < WINDOW);
        let answered = self.hosts.values().filter(|(_, answered)| *answered).count();
        let failed = self.hosts.len() - answered;
        let ours = failed >= MANY_HOSTS && failed > answered || failed >= FEW_HOSTS && answered == 0;
        ours.then(|| {
            *self = HostAnswers { since: Some(now), refilled: now, ..HostAnswers::default() };
            Transition::Began { failed, answered }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000).after(Duration::from_millis(millis))
    }

    fn host(number: usize) -> HostKey {
        HostKey::new(&format!("host{number}.example:443"))
    }

    /// Plays answers of different hosts, a second apart; returns the transitions with the number of the answer.
    fn turns(seen: &mut HostAnswers, first: usize, answers: &[bool]) -> Vec<(usize, Transition)> {
        let play = |(number, answered): (usize, &bool)| {
            let number = first + number;
            seen.note(&host(number), *answered, at(1000 * number as u64)).map(|turn| (number, turn))
        };
        answers.iter().enumerate().filter_map(play).collect()
    }

    #[test]
    fn many_hosts_that_fail_at_once_are_our_fault_until_they_answer() {
        let mut seen = HostAnswers::default();
        assert!(turns(&mut seen, 0, &[true; 7]).is_empty());
        assert_eq!(turns(&mut seen, 7, &[false; 8]), [(14, Transition::Began { failed: 8, answered: 7 })]);
        assert!(turns(&mut seen, 15, &[false, true, true, true, false, true, true, true]).is_empty());
        assert_eq!(turns(&mut seen, 23, &[true]), [(23, Transition::Ended { after: Duration::from_secs(9) })]);
        assert!(turns(&mut seen, 24, &[true; 50]).is_empty());
    }

    #[test]
    fn a_host_that_stays_away_does_not_keep_the_fault_ours() {
        let mut seen = HostAnswers::default();
        assert_eq!(turns(&mut seen, 0, &[false; 3]), [(2, Transition::Began { failed: 3, answered: 0 })]);
        let turns: Vec<_> =
            [(2, false), (0, true), (2, false), (1, true), (2, false), (0, true), (2, false), (1, true)]
                .into_iter()
                .filter_map(|(number, answered)| seen.note(&host(number), answered, at(10_000)))
                .collect();
        assert_eq!(turns, [Transition::Ended { after: Duration::from_secs(8) }]);
        assert_eq!(seen.since, None);
    }

    #[test]
    fn a_host_that_answers_and_then_fails_again_breaks_the_row() {
        let mut seen = HostAnswers::default();
        turns(&mut seen, 0, &[false; 3]);
        let mut note = |number, answered| seen.note(&host(number), answered, at(10_000));
        let row = [(2, false), (2, true), (0, true), (1, true), (2, false), (0, true), (1, true), (3, true)];
        assert!(row.into_iter().all(|(number, answered)| note(number, answered).is_none()));
        assert_eq!(note(4, true), Some(Transition::Ended { after: Duration::from_secs(8) }));
    }

    #[test]
    fn hosts_that_fail_while_the_fault_is_ours_take_no_memory_beyond_the_most() {
        let mut seen = HostAnswers::default();
        let turns = (0..3 * MOST_HOSTS).filter_map(|number| seen.note(&host(number), false, at(0))).count();
        assert_eq!((turns, seen.hosts.len()), (1, MOST_HOSTS));
    }

    #[test]
    fn a_few_bad_hosts_among_good_ones_are_their_own_fault() {
        let mut seen = HostAnswers::default();
        let mixed: Vec<bool> = (0..300).map(|number| number % 3 != 0).collect();
        assert!(turns(&mut seen, 0, &mixed).is_empty());
        assert!(turns(&mut seen, 300, &[true, false, false, false, false, false, false, false]).is_empty(), "seven");
    }

    #[test]
    fn one_host_with_many_feeds_is_one_host() {
        let mut seen = HostAnswers::default();
        assert!((0..100).all(|number| seen.note(&host(1), false, at(number)).is_none()));
    }

    #[test]
    fn of_few_hosts_all_must_fail_and_within_a_minute() {
        assert_eq!(turns(&mut HostAnswers::default(), 0, &[false; 3]).len(), 1);
        assert!(turns(&mut HostAnswers::default(), 0, &[true, false, false, false, false]).is_empty());
        let mut seen = HostAnswers::default();
        assert!((0..20).all(|number| seen.note(&host(number), false, at(31_000 * number as u64)).is_none()));
    }

    #[test]
    fn hosts_beyond_the_most_take_no_memory() {
        let mut seen = HostAnswers::default();
        assert!((0..3 * MOST_HOSTS).all(|number| seen.note(&host(number), true, at(number as u64 / 100)).is_none()));
        assert!(seen.hosts.len() <= MOST_HOSTS);
        let later = at(0).after(2 * WINDOW);
        assert!(seen.note(&host(0), true, later).is_none() && seen.note(&host(1), true, later).is_none());
        assert_eq!(seen.hosts.len(), 2, "those of a minute ago make room");
    }

    #[test]
    fn a_round_under_way_when_it_began_costs_no_later_probes() {
        let mut seen = HostAnswers::default();
        turns(&mut seen, 0, &[false; 3]);
        let ours = OurFault(Mutex::new(seen));
        ours.spend(500);
        assert_eq!(ours.room(500, at(2500)), 0, "not within the first second");
        assert_eq!(ours.room(500, at(3100)), 1);
    }

    #[test]
    fn a_probe_a_second_is_started_while_it_lasts() {
        let ours = OurFault::default();
        assert_eq!(ours.room(500, at(0)), 500);
        let mut seen = HostAnswers::default();
        turns(&mut seen, 0, &[false; 3]);
        let ours = OurFault(Mutex::new(seen));
        let mut started = 0;
        for tick in 0..1200 {
            let room = ours.room(500, at(2000 + 50 * tick));
            assert!(room <= 1);
            ours.spend(room);
            started += room;
        }
        assert!((58..=61).contains(&started), "{started} in a minute");
    }
}
