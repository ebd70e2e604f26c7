//! What must hold at every moment of a simulated life: the judge sees every request at the origins and every report
//! that the store accepts, all by one clock.

mod memory;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::time::Duration;

use common::host::HostKey;
use common::job::FetchJob;
use common::outcome::FailureKind;
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;
use common::url::FeedId;
use scheduler::schedule::Claim;
use store::{Applied, Placement, Verdict};

use crate::events::Announced;
use crate::history::{Happened, History};
use crate::life::Life;
use crate::line::{Call, Fate};
use crate::origin::unchanged_since;
use crate::rules::{Counts, Rule, Tolerance};
use crate::seen::{Feed, Flight, Host};

/// How long after its clock went wrong a worker may request feeds: it compares it with a server's once a second, and then makes one
/// call and connects.
const REQUESTS_END: Duration = Duration::from_secs(7);
/// The same of a scheduler that settles reports, with several calls.
const SETTLING_ENDS: Duration = Duration::from_secs(20);

/// Sees everything.
pub(crate) struct Judge {
    tolerance: Tolerance,
    hosts: BTreeMap<HostKey, Host>,
    feeds: BTreeMap<FeedId, Feed>,
    flights: BTreeMap<u64, Flight>,
    last_flight: u64,
    /// The lives that the gate permitted to fetch feeds, and that have not requested them, with the times of the permits.
    granted: BTreeMap<(u32, FeedId), Timestamp>,
    /// The feeds of such permits that the gate before the last failover gave: it does not learn that they were released.
    left_behind: BTreeSet<FeedId>,
    history: History,
    broken: Vec<String>,
    /// Until when the gate does not learn of a life's holds, because its process is cut off from it.
    cut_off: BTreeMap<u32, Timestamp>,
    /// What the standby of the store has, since when.
    standby: Option<(Timestamp, BTreeMap<FeedId, Feed>)>,
    /// What the relay published.
    pub(crate) announced: Vec<Announced>,
    pub(crate) counts: Counts,
}

impl Judge {
    pub(crate) fn new(tolerance: Tolerance) -> Self {
        Judge {
            tolerance,
            hosts: BTreeMap::new(),
            feeds: BTreeMap::new(),
            flights: BTreeMap::new(),
            last_flight: 0,
            granted: BTreeMap::new(),
            left_behind: BTreeSet::new(),
            history: History::default(),
            broken: Vec::new(),
            cut_off: BTreeMap::new(),
            standby: None,
            announced: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// The fleet has a feed, due then.
    pub(crate) fn added(&mut self, (feed, host): (FeedId, HostKey), version: i64, due: Timestamp, deadly: bool) {
        let new = Feed {
            version,
            due: Some(due),
            deadly,
            host,
            asked: None,
            woken: false,
            stored: None,
            newest: 0,
            job: None,
            lost: false,
            unreleased: false,
            died_alone: false,
        };
        self.feeds.insert(feed, new);
    }

    pub(crate) fn note(&mut self, who: &(impl Display + ?Sized), what: Happened, now: Timestamp) {
        self.history.note(who, what, now);
    }

    /// A rule is broken.
    pub(crate) fn accuse(&mut self, rule: Rule, now: Timestamp, what: &str) {
        self.counts.broken[rule as usize] += 1;
        self.note("judge", Happened::Driver(what.to_owned()), now);
        self.broken.push(format!("{now}: {what}"));
    }

    pub(crate) fn fault(&mut self, life: &Life, call: Call, fate: Fate, now: Timestamp) {
        self.counts.faults += 1;
        self.note(life, Happened::Fault(call, fate), now);
    }

    /// A request for a feed that was redirected reaches another host.
    pub(crate) fn redirected(&mut self, life: &Life, job: &FetchJob, host: &HostKey, now: Timestamp) -> u64 {
        let wrong = self.judge_host(life, host, now, now);
        self.enter(life, job, host, wrong, now, now)
    }

    /// A request reaches its origin. Intervals count from the time at which its fetch began.
    pub(crate) fn asked(&mut self, life: &Life, job: &FetchJob, begun: Timestamp, now: Timestamp) -> u64 {
        // An answer of the gate may be on its way for seconds.
        let permitted = self.granted.get(&(life.number, job.feed)).map_or(begun, |at| begun.min(*at));
        let mut wrong = self.judge_host(life, &job.host, permitted, now);
        wrong.extend(life.wrong_clock(REQUESTS_END).map(|what| (Rule::Clock, what)));
        wrong.extend(self.judge_feed(job, permitted, now));
        let flight = self.enter(life, job, &job.host, wrong, begun, now);
        self.released(life, job.feed);
        let known = self.feeds.get_mut(&job.feed).expect("only known feeds are polled");
        known.asked = Some((begun, flight));
        // A wake is answered by a request in the version that was woken.
        if job.version.0 >= known.version {
            (known.woken, known.lost) = (false, false);
        }
        flight
    }

    fn enter(
        &mut self,
        life: &Life,
        job: &FetchJob,
        host: &HostKey,
        wrong: Vec<(Rule, String)>,
        begun: Timestamp,
        now: Timestamp,
    ) -> u64 {
        self.last_flight += 1;
        self.counts.requests += 1;
        let flight = self.last_flight;
        let (feed, version) = (job.feed, job.version.0);
        self.note(life, Happened::Asked { flight, feed: feed.0, version, host: host.clone() }, now);
        for (rule, what) in wrong {
            self.accuse(rule, now, &format!("{life} asks for feed {feed} in version {version} at {host}: {what}"));
        }
        let at = self.hosts.entry(host.clone()).or_default();
        at.started = Some(now);
        at.flights.insert(flight);
        let ends = begun.after(self.tolerance.permit);
        let flown =
            Flight { feed, host: host.clone(), life: life.number, ends, cut: false, reported: false, overslept: false };
        self.flights.insert(flight, flown);
        flight
    }

    fn judge_host(&mut self, life: &Life, host: &HostKey, permitted: Timestamp, now: Timestamp) -> Vec<(Rule, String)> {
        let Tolerance { skew, gap, .. } = self.tolerance;
        let at = self.hosts.entry(host.clone()).or_default();
        let mut wrong = Vec::new();
        if let Some(started) = at.started.filter(|started| now < started.after(gap)) {
            wrong.push((Rule::Gap, format!("only {:?} after the last request there", now.since(started))));
        }
        at.holds.retain(|hold| now < hold.until);
        let mut holds = at.holds.iter().filter(|hold| now.after(skew) < hold.until);
        if let Some(hold) = holds.find(|hold| hold.binds(life.number, permitted)) {
            wrong.push((Rule::Hold, format!("the host is held until {} by the answer to {}", hold.until, hold.flight)));
        }
        if !at.flights.is_empty() {
            wrong.push((Rule::Parallel, format!("another request is in flight there: {:?}", at.flights)));
        }
        wrong
    }

    fn judge_feed(&mut self, job: &FetchJob, permitted: Timestamp, now: Timestamp) -> Vec<(Rule, String)> {
        let Tolerance { skew, interval, .. } = self.tolerance;
        let (feed, version) = (job.feed, job.version.0);
        let known = &self.feeds[&feed];
        let mut wrong = Vec::new();
        let last = known.asked.and_then(|(_, last)| self.flights.get(&last));
        let cut = last.is_some_and(|last| last.cut || last.overslept);
        let in_flight = |flight: &u64| self.flights.get(flight).is_some_and(|flown| flown.feed == feed);
        if self.hosts.values().any(|host| host.flights.iter().any(in_flight)) {
            wrong.push((Rule::Double, "it is being fetched".to_owned()));
        }
        // A report of an earlier fetch that was stored only when this one was permitted says nothing about it.
        let overtaken = known.stored.is_some_and(|stored| permitted <= stored);
        let is_again = (known.unreleased || overtaken) && version + 1 == known.version;
        if version < known.version && !is_again {
            wrong.push((Rule::Double, format!("version {} of it was stored", known.version - 1)));
        }
        if !known.lost && !is_again && known.due.is_none_or(|due| now.after(skew) < due) {
            wrong.push((Rule::Early, format!("it is due at {:?}", known.due.map(|due| due.to_string()))));
        }
        let excused = cut || known.woken || known.lost;
        let early = |at: &Timestamp| now.after(skew) < at.after(interval) && !excused;
        if let Some(at) = known.asked.map(|(at, _)| at).filter(early) {
            wrong.push((Rule::Early, format!("only {:?} after its last request, which was not cut", now.since(at))));
        }
        let repeats = known.asked.is_some_and(|(at, _)| known.stored.is_none_or(|stored| at > stored));
        self.counts.repeated += u64::from(repeats);
        wrong
    }

    /// Returns whether a request is in flight.
    pub(crate) fn is_anybody_asked(&self) -> bool {
        self.hosts.values().any(|host| !host.flights.is_empty())
    }

    /// A request ends at its origin.
    pub(crate) fn answered(&mut self, flight: u64, hold: Option<Timestamp>, now: Timestamp) {
        self.note("origin", Happened::Answered { flight, hold }, now);
        self.leave(flight);
    }

    /// Returns when a host received its last request, and until when it is on hold.
    pub(crate) fn last_request(&self, host: &HostKey) -> (Option<Timestamp>, Option<Timestamp>) {
        let at = self.hosts.get(host);
        (at.and_then(|at| at.started), at.and_then(|at| at.holds.iter().map(|hold| hold.until).max()))
    }

    /// Jobs are in the queue: their feeds need not be claimed again before the jobs expire.
    pub(crate) fn hidden(&mut self, jobs: &[FetchJob]) {
        for job in jobs {
            self.feeds.get_mut(&job.feed).expect("only known feeds are polled").job = Some(job.expires);
        }
    }

    /// Feeds are claimed.
    pub(crate) fn claimed(&mut self, claims: &[Claim], now: Timestamp) {
        let is_hidden = |claim: &&Claim| self.feeds[&claim.feed].job.is_some_and(|expires| now < expires);
        self.counts.doubled += claims.iter().filter(is_hidden).count() as u64;
    }

    /// A feed's job was worked: a report of it is in the queue. A worker that deferred the job without a request says nothing of
    /// another one's.
    pub(crate) fn shown(&mut self, report: &FetchReport) {
        self.feeds.get_mut(&report.feed).expect("only known feeds are polled").job = None;
        let own = self.flights.values_mut().filter(|flown| flown.feed == report.feed);
        let is_of_request = !matches!(report.outcome, Outcome::Deferred { .. }) || report.detour.is_some();
        own.for_each(|flown| flown.reported |= is_of_request);
    }

    /// The gate permits a worker to fetch a feed, whether or not the worker receives the answer.
    pub(crate) fn granted(&mut self, life: &Life, feed: FeedId, alone: bool, now: Timestamp) {
        self.note(life, Happened::Granted { feed: feed.0 }, now);
        self.granted.insert((life.number, feed), now);
        if life.is_dead() && alone {
            self.feeds.get_mut(&feed).expect("only known feeds are polled").died_alone = true;
        }
    }

    /// A worker does not begin the fetch of a feed that it was permitted, or has begun it.
    pub(crate) fn released(&mut self, life: &Life, feed: FeedId) {
        self.granted.remove(&(life.number, feed));
    }

    /// A process is stopped until then.
    pub(crate) fn stopped(&mut self, life: &Life, until: Timestamp) {
        let own = self.flights.values_mut().filter(|flown| flown.life == life.number && !flown.reported);
        own.filter(|flown| flown.ends < until).for_each(|flown| flown.overslept = true);
        self.forget_what_nobody_knows();
        // Nobody can tell it from a dead one.
        let own = self.flights.values().filter(|flown| flown.life == life.number && flown.overslept && !flown.reported);
        let granted = self.granted.keys().filter(|(number, _)| *number == life.number).map(|(_, feed)| *feed);
        let feeds: BTreeSet<FeedId> = own.map(|flown| flown.feed).chain(granted).collect();
        if let (1, Some(alone)) = (feeds.len(), feeds.first()) {
            self.feeds.get_mut(alone).expect("only known feeds are polled").died_alone = true;
        }
    }

    fn leave(&mut self, flight: u64) {
        if let Some(at) = self.flights.get(&flight).and_then(|flown| self.hosts.get_mut(&flown.host)) {
            at.flights.remove(&flight);
        }
    }

    /// A process died, and its requests with it. What it learned and did not pass on is lost.
    pub(crate) fn died(&mut self, life: &Life, now: Timestamp) {
        self.counts.deaths += 1;
        let cut: Vec<u64> = self
            .flights
            .iter()
            .filter(|(_, flown)| flown.life == life.number && !flown.cut)
            .map(|(id, _)| *id)
            .collect();
        let flies = |id: &u64| self.hosts.get(&self.flights[id].host).is_some_and(|at| at.flights.contains(id));
        let in_flight: Vec<u64> = cut.iter().copied().filter(flies).collect();
        // Until it is reported, a request that was answered looks like one that killed the worker.
        let unreported = cut.iter().map(|id| &self.flights[id]).filter(|flown| !flown.reported);
        let mut feeds: BTreeSet<FeedId> = unreported.map(|flown| flown.feed).collect();
        feeds.extend(self.granted.extract_if(.., |(number, _), _| *number == life.number).map(|((_, feed), _)| feed));
        if let (1, Some(alone)) = (feeds.len(), feeds.first()) {
            self.feeds.get_mut(alone).expect("only known feeds are polled").died_alone = true;
        }
        for flight in in_flight {
            self.note(life, Happened::Cut { flight }, now);
            self.hosts.entry(self.flights[&flight].host.clone()).or_default().cuts.push(now);
        }
        for flight in cut {
            self.leave(flight);
            if let Some(flown) = self.flights.get_mut(&flight) {
                flown.cut = true;
                let at = self.hosts.entry(flown.host.clone()).or_default();
                at.holds.retain(|hold| hold.is_known() || hold.flight != flight);
            }
        }
    }

    /// The store answered.
    pub(crate) fn applied(&mut self, life: &Life, verdicts: &[Verdict], applied: &[Applied], now: Timestamp) {
        if let Some(what) = life.wrong_clock(SETTLING_ENDS) {
            self.accuse(Rule::Clock, now, &format!("{life} settles: {what}"));
        }
        for (verdict, applied) in verdicts.iter().zip(applied) {
            let is_stored = matches!(applied, Applied::Stored { .. });
            if verdict.report.outcome.rest().is_some() {
                self.holds_of(verdict.report.answering_host())
                    .for_each(|hold| hold.is_settled(is_stored.then_some(now)));
            }
            let Applied::Stored { due, wake, .. } = applied else { continue };
            let report = &verdict.report;
            let (feed, version) = (report.feed, report.version.0);
            self.note("store", Happened::Stored { feed: feed.0, version, due: *due }, now);
            let known = self.feeds.get_mut(&feed).expect("only known feeds are stored");
            let before = known.version;
            (known.due, known.stored, known.version) = (*due, Some(now), version + 1);
            // A wake that came when the fetch had begun is answered by another one.
            known.woken |= *wake;
            known.unreleased = self.flights.values().any(|flown| flown.feed == feed && flown.cut);
            // The requests before it have ended, except for those that are still in flight.
            let hosts = &self.hosts;
            let flies = |id: &u64, host: &HostKey| hosts.get(host).is_some_and(|at| at.flights.contains(id));
            self.flights.retain(|id, flown| flown.feed != feed || flies(id, &flown.host));
            if let Outcome::Modified(document) = &report.outcome {
                let number = |id: &str| id.rsplit('-').next().and_then(|number| number.parse().ok());
                let newest = document.entries.iter().filter_map(|entry| number(&entry.id)).max();
                known.newest = known.newest.max(newest.unwrap_or(0));
            }
            let missing = unchanged_since(&report.outcome).filter(|shown| *shown > known.newest);
            if let Some(missing) = missing {
                let newest = known.newest;
                let what =
                    format!("feed {feed} is unchanged since entry {missing}, and {newest} is the last in the store");
                self.accuse(Rule::Lost, now, &what);
            }
            let crashed = matches!(report.outcome, Outcome::Failed { failure: FailureKind::Crashed, .. });
            let known = self.feeds.get_mut(&feed).expect("only known feeds are stored");
            let died_alone = std::mem::take(&mut known.died_alone);
            if crashed && !known.deadly && !died_alone {
                self.accuse(Rule::Innocent, now, &format!("feed {feed} is quarantined, and it kills nobody"));
            }
            if version < before {
                self.accuse(
                    Rule::Double,
                    now,
                    &format!("version {version} of feed {feed} is stored after {}", before - 1),
                );
            }
        }
    }

    /// A poll of these feeds was requested.
    pub(crate) fn woken(&mut self, places: &[Placement], now: Timestamp) {
        for place in places {
            self.note("store", Happened::Woken { feed: place.id.0, due: place.due }, now);
            let known = self.feeds.get_mut(&place.id).expect("only known feeds are woken");
            known.due = known.due.map(|due| due.min(place.due));
            known.woken = true;
        }
    }

    /// At the end every feed has been polled since `since`, and none has been due for longer than `patience`.
    pub(crate) fn judge_liveness(&mut self, since: Timestamp, patience: Duration, now: Timestamp) {
        let late: Vec<String> = (self.feeds.iter())
            .filter_map(|(feed, known)| {
                let stored = known.stored.filter(|stored| *stored > since);
                let due = known.due?;
                let cuts = self.hosts.get(&known.host).map_or(0, |at| at.cuts.iter().filter(|at| **at > since).count());
                // The feeds that waited meanwhile are then fetched one after the other, each within two gaps.
                let queued = self.feeds.values().filter(|other| cuts > 0 && other.host == known.host).count();
                let times = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
                let waits = self.tolerance.permit * times(cuts) + self.tolerance.gap * 2 * times(queued);
                let overdue = due.after(patience + waits) < now;
                // Deaths at its host may have kept it from being polled since, or it has only just become due.
                let may_wait = cuts > 0 || due > since;
                let unpolled = due.after(if may_wait { patience + waits } else { Duration::ZERO }) < now;
                // A feed that waits as its host or its publisher requested is not due.
                (overdue || stored.is_none() && unpolled).then(|| {
                    let stored = known.stored.map(|stored| stored.to_string());
                    format!("feed {feed} was due at {due}, and its last report was stored at {stored:?}")
                })
            })
            .collect();
        for what in late {
            self.accuse(Rule::Stranded, now, &what);
        }
    }

    /// Returns the number of each feed's newest stored entry.
    pub(crate) fn newest(&self) -> BTreeMap<FeedId, u64> {
        self.feeds.iter().map(|(feed, known)| (*feed, known.newest)).collect()
    }

    pub(crate) fn broken(&self) -> &[String] {
        &self.broken
    }

    /// The same for the same history.
    pub(crate) fn hash(&self) -> u64 {
        self.history.hash()
    }

    /// Returns the history, for people.
    pub(crate) fn story(&self) -> String {
        self.history.story()
    }
}
