//! The checker of histories: proves from grants, releases and the origin's requests that a fleet kept its promises while it was
//! killed, or its servers were away.
//!
//! A gate's call takes effect at one moment between its begin and its answer. The checker looks for moments of all calls at a host
//! that keep the gap and never have two permits at once; if there are none, a promise was broken. Only the clock's resolution is
//! allowed for, no noise. It is for hosts with one request at a time and without bursts. Their grants take effect in the order of
//! their answers: a permit cannot end before its holder knows of it.
//!
//! A poll may be repeated early only if its result was not stored, for one of the reasons in [`Cause`]. Each [`Excuse`] names the one
//! request and what cut it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use common::time::Timestamp;

use super::conditions::retry_after;
use super::history::{Grant, History, Release};
use crate::origin::log::Record;

/// Times are whole milliseconds, and the origin's are read in two steps.
const RESOLUTION: Duration = Duration::from_millis(2);

/// Who keeps what the gate knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The process: it dies with it, as do its requests.
    OfProcess,
    /// A server that outlives workers.
    OfServer,
}

/// What a history is checked against.
pub struct Promises<'a> {
    /// The path of each feed.
    pub paths: &'a HashMap<i64, String>,
    /// The gap of a host.
    pub gap: &'a dyn Fn(SocketAddr) -> Duration,
    /// The minimum time between two polls of a feed after a good response.
    pub floor: Duration,
    /// How long one throttled path holds its whole host at most.
    pub hold_ceiling: Duration,
    /// Who keeps what the gate knows.
    pub memory: Memory,
    /// When the result of a poll was stored: of a feed, and when that poll began. With a gate of the process only what was stored when
    /// it was killed.
    pub stored: &'a HashMap<(i64, Timestamp), Timestamp>,
    /// When the gate lost its memory, or a part of it.
    pub losses: &'a [Timestamp],
    /// When the store lost what it had stored last.
    pub rollbacks: &'a [Timestamp],
}

/// A promise that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Broken {
    /// A request without a grant, or a second one under the same grant.
    Ungranted,
    /// Two starts at a host within its gap.
    Gap,
    /// Two permits at one host at once.
    HostOverlap,
    /// Two permits for one feed at once.
    FeedOverlap,
    /// A start while a `Retry-After` held the host.
    Hold,
    /// A feed was polled again within its floor.
    Early,
    /// A version was granted again while the gate remembered that it was reported.
    Regrant,
    /// A poll whose result was not stored, and for which there is no [`Cause`].
    Unstored,
}

/// Why the result of a poll was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The worker was killed before the gate confirmed that it released the permit.
    Killed,
    /// The gate took no release although it was tried.
    GateAway,
    /// The report was not stored for so long that the gate no longer remembered it.
    StoreAway,
    /// The gate lost its memory in the meantime.
    GateLost,
    /// The store lost the result.
    StoreLost,
}

/// A request that may be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excuse {
    /// [`Record::number`] of the request.
    pub request: usize,
    /// Why.
    pub cause: Cause,
}

/// What the checker found.
#[derive(Clone, Debug, Default)]
pub struct Proof {
    /// The number of grants.
    pub grants: usize,
    /// Broken promises, each with its times.
    pub broken: Vec<(Broken, String)>,
    /// Requests whose results were not stored before their feed was polled again, by number.
    pub excuses: BTreeMap<usize, Excuse>,
}

impl Proof {
    /// Returns the numbers of the requests that may be repeated, for [`Rules::undone`](super::Rules::undone).
    pub fn undone(&self) -> BTreeSet<usize> {
        self.excuses.keys().copied().collect()
    }

    /// Panics if a promise was broken.
    pub fn assert_holds(&self) {
        let first: Vec<_> = self.broken.iter().take(5).collect();
        assert!(self.broken.is_empty(), "{} promises were broken: {first:#?}", self.broken.len());
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut causes: BTreeMap<Cause, usize> = BTreeMap::new();
        for excuse in self.excuses.values() {
            *causes.entry(excuse.cause).or_default() += 1;
        }
        let broken = self.broken.len();
        write!(
            f,
            "{} grants, {broken} promises broken, {} requests excused {causes:?}",
            self.grants,
            self.excuses.len()
        )
    }
}

/// Checks a history and the requests that the origin got. Later grants are ignored if the log ends before them.
pub fn prove(history: &History, log: &[Record], promises: &Promises<'_>) -> Proof {
    let mut checker = Checker { history, promises, proof: Proof::default() };
    checker.proof.grants = history.grants.len();
    let polls = checker.match_requests(log);
    checker.check_hosts();
    checker.check_holds(&polls);
    checker.check_feeds(&polls);
    checker.proof
}

/// A grant, and the request that was sent under it.
struct Poll<'a> {
    grant: &'a Grant,
    request: Option<&'a Record>,
}

/// Grants by feed, in their order.
type Polls<'a> = BTreeMap<i64, Vec<Poll<'a>>>;

struct Checker<'a> {
    history: &'a History,
    promises: &'a Promises<'a>,
    proof: Proof,
}

impl<'a> Checker<'a> {
    fn blame(&mut self, broken: Broken, why: String) {
        self.proof.broken.push((broken, why));
    }

    /// Finds the grant of each request: the latest that was known before the request arrived and that no later request needs.
    fn match_requests(&mut self, log: &'a [Record]) -> Polls<'a> {
        let mut polls = Polls::new();
        for grant in &self.history.grants {
            polls.entry(grant.feed).or_default().push(Poll { grant, request: None });
        }
        let feeds: HashMap<&str, i64> = self.promises.paths.iter().map(|(feed, path)| (path.as_str(), *feed)).collect();
        let mut free: HashMap<i64, usize> = polls.iter().map(|(feed, polls)| (*feed, polls.len())).collect();
        let mut sorted: Vec<&Record> = log.iter().collect();
        sorted.sort_by_key(|record| std::cmp::Reverse((record.start, record.number)));
        for record in sorted {
            let feed = feeds.get(record.target()).copied();
            let of_feed = feed.and_then(|feed| Some((polls.get_mut(&feed)?, free.get_mut(&feed)?)));
            let known = record.wall.after(RESOLUTION);
            let found = of_feed.and_then(|(polls, free)| {
                *free = polls[..*free].iter().rposition(|poll| poll.grant.at <= known)?;
                polls.get_mut(*free)
            });
            match found {
                Some(poll) => poll.request = Some(record),
                None => {
                    let (number, target, wall) = (record.number, record.target(), record.wall);
                    let requests = log.iter().filter(|other| other.target() == target).count();
                    let grants = feed.and_then(|feed| polls.get(&feed)).map_or(0, Vec::len);
                    let why = format!(
                        "request {number} for {target} at {wall} has no separate grant ({requests} requests, {grants} grants)"
                    );
                    self.blame(Broken::Ungranted, why);
                }
            }
        }
        polls
    }

    /// Returns the earliest time at which a permit can have ended.
    fn end_of(&self, grant: &Grant) -> Timestamp {
        let released = grant.releases.first().map_or(grant.deadline, |release| release.began.min(grant.deadline));
        match (self.promises.memory, self.history.killed[grant.process]) {
            (Memory::OfProcess, Some(killed)) => released.min(killed),
            _ => released,
        }
    }

    fn check_hosts(&mut self) {
        let mut hosts: BTreeMap<&str, Vec<&Grant>> = BTreeMap::new();
        for grant in &self.history.grants {
            hosts.entry(&grant.host).or_default().push(grant);
        }
        for (host, grants) in hosts {
            let Ok(address) = host.parse() else {
                self.blame(Broken::Ungranted, format!("a grant for the unknown host {host}"));
                continue;
            };
            let gap = (self.promises.gap)(address);
            let mut starts = Starts { gap, last: None, free: Timestamp::EPOCH };
            for grant in grants {
                starts.place(grant, self.end_of(grant), &mut self.proof.broken);
            }
        }
    }

    /// After a throttled response nothing starts at its host until the `Retry-After` has passed, unless its worker died with it.
    fn check_holds(&mut self, polls: &Polls<'_>) {
        let mut hosts: HashMap<&str, Vec<&Grant>> = HashMap::new();
        for grant in &self.history.grants {
            hosts.entry(&grant.host).or_default().push(grant);
        }
        for Poll { grant, request } in polls.values().flatten() {
            let Some(record) = request.filter(|record| record.is_complete()) else { continue };
            let Some(time) = retry_after(record) else { continue };
            let until = record.wall.after(time.min(self.promises.hold_ceiling));
            for other in &hosts[grant.host.as_str()] {
                let is_during = other.asked > grant.at && other.at.after(RESOLUTION) < until;
                if is_during && self.cause(grant, other).is_none() {
                    let why =
                        format!("{} although request {} holds the host until {until}", Named(other), record.number);
                    self.blame(Broken::Hold, why);
                }
            }
        }
    }

    fn check_feeds(&mut self, polls: &Polls<'_>) {
        for polls in polls.values() {
            for (place, first) in polls.iter().enumerate() {
                let Some(second) = polls.get(place + 1) else { continue };
                let (before, next) = (first.grant, second.grant);
                if self.end_of(before) > next.at && self.end_of(next) > before.at {
                    self.blame(Broken::FeedOverlap, format!("{} while {} has not ended", Named(next), Named(before)));
                }
                for later in &polls[place + 1..] {
                    self.check_regrant(before, later.grant);
                }
                if let Some(record) = first.request {
                    self.check_repeat(before, record, next);
                }
            }
        }
    }

    /// What the gate has confirmed as reported it remembers.
    fn check_regrant(&mut self, before: &Grant, later: &Grant) {
        if later.version > before.version || self.lost_memory(before, later) {
            return;
        }
        for release in &before.releases {
            let (Some(confirmed), Some(until)) = (release.confirmed, release.remember_until) else { continue };
            if later.asked > confirmed && later.at < until {
                let why = format!("{} although {} was reported until {until}", Named(later), Named(before));
                return self.blame(Broken::Regrant, why);
            }
        }
    }

    /// The next grant of a feed keeps its floor, and follows a stored result.
    fn check_repeat(&mut self, before: &Grant, record: &Record, next: &Grant) {
        if !record.is_complete() {
            return;
        }
        let rest = match record.status {
            Some(200 | 304) => Some(self.promises.floor),
            _ => retry_after(record),
        };
        let Some(rest) = rest else { return };
        let is_early = next.at < before.at.after(rest);
        if self.is_stored(before, next) {
            if is_early {
                let apart = next.at.since(before.at);
                let why = format!("{} is {apart:?} after {}, whose result was stored", Named(next), Named(before));
                self.blame(Broken::Early, why);
            }
            return;
        }
        match self.cause(before, next) {
            Some(cause) => {
                let request = record.number;
                self.proof.excuses.insert(request, Excuse { request, cause });
            }
            None if is_early || next.version <= before.version => {
                let why = format!("{} although nothing cut {} (request {})", Named(next), Named(before), record.number);
                self.blame(Broken::Unstored, why);
            }
            None => {}
        }
    }

    /// Returns whether the poll's result was stored before the next one was requested.
    fn is_stored(&self, poll: &Grant, next: &Grant) -> bool {
        let same_process = poll.process == next.process && self.promises.memory == Memory::OfProcess;
        let stored = self.promises.stored.get(&(poll.feed, poll.begun));
        same_process || stored.is_some_and(|stored| *stored <= next.asked)
    }

    /// Returns whether the gate forgot in between.
    fn lost_memory(&self, before: &Grant, later: &Grant) -> bool {
        let other_process = before.process != later.process && self.promises.memory == Memory::OfProcess;
        other_process || self.promises.losses.iter().any(|loss| *loss >= before.at && *loss <= later.at)
    }

    /// Returns why a poll may be without effect when another request starts.
    fn cause(&self, poll: &Grant, next: &Grant) -> Option<Cause> {
        if self.is_stored(poll, next) {
            return None;
        }
        let killed = self.history.killed[poll.process].filter(|killed| *killed <= next.at);
        let (reached, releases) = (next.asked, &poll.releases);
        let is_released = releases.iter().any(|release| release.confirmed.is_some());
        if killed.is_some() && (!is_released || self.promises.memory == Memory::OfProcess) {
            return Some(Cause::Killed);
        }
        if self.promises.rollbacks.iter().any(|lost| *lost >= poll.at && *lost <= reached) {
            return Some(Cause::StoreLost);
        }
        if self.lost_memory(poll, next) {
            return Some(Cause::GateLost);
        }
        let confirmed: Vec<_> =
            releases.iter().filter(|release| release.confirmed.is_some_and(|at| at <= reached)).collect();
        if confirmed.is_empty() {
            return poll.unreleased.iter().any(|at| *at <= reached).then_some(Cause::GateAway);
        }
        let remembered = confirmed.iter().filter_map(|release| release.remember_until).max();
        remembered.is_some_and(|until| until <= next.at).then_some(Cause::StoreAway)
    }
}

/// The starts at one host so far.
struct Starts<'a> {
    gap: Duration,
    /// The last grant, and the earliest moment at which it can have been given.
    last: Option<(&'a Grant, Timestamp)>,
    /// The earliest time at which all permits so far can have ended.
    free: Timestamp,
}

impl<'a> Starts<'a> {
    /// Finds the earliest moment for the next start.
    fn place(&mut self, grant: &'a Grant, end: Timestamp, broken: &mut Vec<(Broken, String)>) {
        let mut earliest = grant.asked.max(self.free);
        if self.free > grant.at {
            let why = format!("{} while an earlier permit of the host lasts until {}", Named(grant), self.free);
            broken.push((Broken::HostOverlap, why));
        }
        if let Some((last, at)) = self.last {
            // The first release was before this start: without it the host had no room. A later one may have been at the same time.
            let known = |(place, release): &(usize, &Release)| {
                release.confirmed.is_some_and(|known| known <= if *place == 0 { grant.at } else { grant.asked })
            };
            let releases = last.releases.iter().enumerate().filter(known);
            let after_request = releases.map(|(_, release)| release.began.after(release.next_start_in)).max();
            let allowed = at.after(self.gap).max(after_request.unwrap_or_default());
            if allowed > grant.at {
                let (gap, early) = (self.gap, allowed.since(grant.at));
                let why = format!("{} is {early:?} early for a gap of {gap:?} after {}", Named(grant), Named(last));
                broken.push((Broken::Gap, why));
            }
            earliest = earliest.max(allowed);
        }
        self.last = Some((grant, earliest.min(grant.at)));
        self.free = self.free.max(end);
    }
}

/// A grant in a text.
struct Named<'a>(&'a Grant);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Grant { process, host, feed, version, asked, at, .. } = self.0;
        write!(f, "the grant of feed {feed} version {version} on {host} to process {process} between {asked} and {at}")
    }
}
