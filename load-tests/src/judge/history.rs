//! What workers did at the host gate: their grants and releases, as their logs tell with `gate=trace`.
//!
//! A line is written before its call or request is sent, and directly to a pipe, so that a kill -9 loses nothing that had an effect.
//! All processes of a test share the machine and so its clock, which the origin uses too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::time::{Clock, SystemClock, Timestamp};

/// How long the last lines of a process that has ended may take to be read.
const PATIENCE: Duration = Duration::from_secs(30);

/// The right to one request, as a worker got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The worker's process: an index of [`History::killed`].
    pub process: usize,
    /// Which host.
    pub host: String,
    /// Which feed.
    pub feed: i64,
    /// The feed's version: it rises with every stored poll.
    pub version: i64,
    /// Just before the request to the gate.
    pub asked: Timestamp,
    /// When the worker knew its answer, just before the request was sent.
    pub at: Timestamp,
    /// By what time the report names the poll: that of `at`, by a clock that runs steadily during the poll.
    pub begun: Timestamp,
    /// When the permit expires.
    pub deadline: Timestamp,
    /// How often, and with what, it was released.
    pub releases: Vec<Release>,
    /// When a release failed, or none could be sent to the gate.
    pub unreleased: Vec<Timestamp>,
}

/// One release of a [`Grant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Just before it was sent to the gate.
    pub began: Timestamp,
    /// When the gate had confirmed it.
    pub confirmed: Option<Timestamp>,
    /// The version counts as reported until then; `None`: it may be fetched again.
    pub remember_until: Option<Timestamp>,
    /// What was left of the host's gap after the request had left.
    pub next_start_in: Duration,
}

/// What the workers of a run did.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In the order in which they were known.
    pub grants: Vec<Grant>,
    /// When each process was killed; `None` for one that was not.
    pub killed: Vec<Option<Timestamp>>,
}

/// A line of a worker's log about the gate.
enum Line {
    Granted(u64, Grant),
    Releasing(u64, Release),
    Released(u64, Timestamp),
    Unreleased(u64, Timestamp),
}

impl Line {
    fn parse(line: &str) -> Option<Self> {
        let (before, event) = line.split_once(" gate: ")?;
        if !before.ends_with("TRACE") {
            return None;
        }
        let mut words = event.split(' ');
        let name = words.next()?;
        let fields: HashMap<&str, &str> = words.filter_map(|word| word.split_once('=')).collect();
        let number = |field: &str| fields.get(field)?.parse::<i64>().ok();
        let time = |field: &str| Some(Timestamp::from_millis(number(field)?));
        let nonce = fields.get("nonce")?.parse().ok()?;
        let at = time("at")?;
        Some(match name {
            "granted" => {
                let grant = Grant {
                    process: 0,
                    host: (*fields.get("host")?).to_owned(),
                    feed: number("feed")?,
                    version: number("version")?,
                    asked: time("asked")?,
                    at,
                    begun: time("begun")?,
                    deadline: time("deadline")?,
                    releases: Vec::new(),
                    unreleased: Vec::new(),
                };
                Line::Granted(nonce, grant)
            }
            "releasing" => {
                let next_start_in = Duration::from_millis(fields.get("next_start_in")?.parse().ok()?);
                let remember_until = time("remember_until").filter(|until| *until > Timestamp::EPOCH);
                Line::Releasing(nonce, Release { began: at, confirmed: None, remember_until, next_start_in })
            }
            "released" => Line::Released(nonce, at),
            "unreleased" => Line::Unreleased(nonce, at),
            _ => return None,
        })
    }
}

/// What is known of one process.
#[derive(Debug, Default)]
struct Life {
    grants: Vec<Grant>,
    by_nonce: HashMap<u64, usize>,
    killed: Option<Timestamp>,
    has_ended: bool,
    is_read: bool,
}

impl Life {
    fn add(&mut self, line: Line) {
        match line {
            Line::Granted(nonce, grant) => {
                self.by_nonce.insert(nonce, self.grants.len());
                self.grants.push(grant);
            }
            Line::Releasing(nonce, release) => self.with(nonce, |grant| grant.releases.push(release)),
            Line::Released(nonce, at) => self.with(nonce, |grant| {
                if let Some(last) = grant.releases.last_mut() {
                    last.confirmed = Some(at);
                }
            }),
            Line::Unreleased(nonce, at) => self.with(nonce, |grant| grant.unreleased.push(at)),
        }
    }

    /// What the gate may have granted without an answer is released too, and was never used.
    fn with(&mut self, nonce: u64, change: impl FnOnce(&mut Grant)) {
        if let Some(grant) = self.by_nonce.get(&nonce).and_then(|place| self.grants.get_mut(*place)) {
            change(grant);
        }
    }
}

/// Collects the history of all processes that it watches.
#[derive(Clone, Debug, Default)]
pub struct GateLog(Arc<Mutex<Vec<Life>>>);

impl GateLog {
    /// Begins with another process.
    pub fn watch(&self) -> Watched {
        let mut lives = common::lock(&self.0);
        lives.push(Life::default());
        Watched { log: self.clone(), process: lives.len() - 1 }
    }

    /// Returns the history so far, once all lines of processes that have ended are read.
    ///
    /// # Panics
    ///
    /// When they cannot be read.
    pub fn history(&self) -> History {
        let begun = Instant::now();
        while common::lock(&self.0).iter().any(|life| life.has_ended && !life.is_read) {
            assert!(begun.elapsed() < PATIENCE, "the log of a process that has ended cannot be read to its end");
            std::thread::sleep(Duration::from_millis(10));
        }
        let lives = common::lock(&self.0);
        let of_process = |(process, life): (usize, &Life)| {
            life.grants.iter().map(|grant| Grant { process, ..grant.clone() }).collect::<Vec<_>>()
        };
        let mut grants: Vec<Grant> = lives.iter().enumerate().flat_map(of_process).collect();
        grants.sort_by_key(|grant| (grant.at, grant.asked));
        History { grants, killed: lives.iter().map(|life| life.killed).collect() }
    }
}

/// One process of a [`GateLog`].
#[derive(Clone, Debug)]
pub struct Watched {
    log: GateLog,
    process: usize,
}

impl Watched {
    /// Takes a line of the process's log if it is about the gate.
    pub fn takes(&self, line: &str) -> bool {
        let Some(line) = Line::parse(line) else { return false };
        self.change(|life| life.add(line));
        true
    }

    /// It is about to be killed.
    pub fn kill(&self) {
        self.change(|life| life.killed = Some(SystemClock.now()));
    }

    /// It has ended.
    pub fn end(&self) {
        self.change(|life| life.has_ended = true);
    }

    /// Its log was read to the end.
    pub fn read(&self) {
        self.change(|life| life.is_read = true);
    }

    fn change(&self, change: impl FnOnce(&mut Life)) {
        if let Some(life) = common::lock(&self.log.0).get_mut(self.process) {
            change(life);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_and_releases_are_read_from_the_log_and_other_lines_are_left() {
        let log = GateLog::default();
        let (first, second) = (log.watch(), log.watch());
        let at = "2026-11-22T12:00:00.123456Z";
        let granted = format!(
            "{at} TRACE gate: granted host=127.0.0.1:80 feed=7 version=3 nonce=18446744073709551615 asked=1000 at=1001 begun=1002 deadline=9000"
        );
        let released = "nonce=18446744073709551615 at=1500";
        assert!(second.takes(&granted));
        assert!(second.takes(&format!("{at} TRACE gate: unreleased {released}")));
        assert!(second.takes(&format!("{at} TRACE gate: releasing {released} remember_until=0 next_start_in=20")));
        assert!(second.takes(&format!("{at} TRACE gate: released nonce=18446744073709551615 at=1502")));
        assert!(second.takes(&format!("{at} TRACE gate: released nonce=1 at=1502")), "an answer was lost");
        assert!(!first.takes(&format!("{at}  INFO gate: granted {released}")));
        assert!(!first.takes("jobs are received again"));
        second.kill();
        second.end();
        second.read();
        let history = log.history();
        let millis = Timestamp::from_millis;
        let release = Release {
            began: millis(1500),
            confirmed: Some(millis(1502)),
            remember_until: None,
            next_start_in: Duration::from_millis(20),
        };
        let grant = Grant {
            process: 1,
            host: "127.0.0.1:80".to_owned(),
            feed: 7,
            version: 3,
            asked: millis(1000),
            at: millis(1001),
            begun: millis(1002),
            deadline: millis(9000),
            releases: vec![release],
            unreleased: vec![millis(1500)],
        };
        assert_eq!(history.grants, [grant]);
        assert!(history.killed[0].is_none() && history.killed[1].is_some());
    }
}
