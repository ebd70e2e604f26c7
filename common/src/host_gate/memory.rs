//! The gate inside one process.
//!
//! Its memory ends with the process, and so do all requests it let through. What must outlive a restart comes from
//! elsewhere: holds are loaded from the store before [`HostGate::open`], no host is asked within its gap of the gate's
//! birth, because the process before may have asked it a moment ago, and starts without a report are kept in a file, so
//! that a feed which kills the process is found out.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::journal::Journal;
use super::{
    AcquireRequest, Acquired, ExtraRequest, GateError, HostGate, LoadMark, Permit, Release, Reservation,
    ReserveRequest, STARTS_WITHOUT_REPORT, Ticket, UNOPENED_RETRY,
};
use crate::feed::{FeedId, Version};
use crate::host::{HostKey, HostLimits};
use crate::time::Timestamp;

/// A busy host is asked about again after its gap, but no sooner than this.
const SHORTEST_RETRY: Duration = Duration::from_millis(10);
/// Idle hosts and old memories are swept when their maps have grown by this factor since the last sweep.
const SWEEP_FACTOR: usize = 2;
const SWEEP_FROM: usize = 4096;

/// A gate for the hosts that this process alone asks.
pub struct MemoryGate {
    state: Mutex<State>,
}

struct State {
    born: Timestamp,
    open: bool,
    last_number: u64,
    hosts: HashMap<HostKey, Host>,
    feeds: HashMap<FeedId, Guard>,
    sweep_at: usize,
    journal: Option<Journal>,
}

/// What is known of one host. Times of tickets and flights are ends of life.
#[derive(Default)]
struct Host {
    /// The generic cell rate algorithm's theoretical arrival time, for reservations and for real starts.
    reserved: Timestamp,
    started: Timestamp,
    held_until: Timestamp,
    tickets: Vec<(Ticket, Timestamp)>,
    flights: Vec<(u64, Timestamp)>,
}

/// What is known of one feed.
#[derive(Default)]
struct Guard {
    /// The live permit: its nonce and its end.
    token: Option<(u64, Timestamp)>,
    /// The last version that was reported, remembered until then.
    reported: Option<(Version, Timestamp)>,
    /// Starts of a version that brought no report.
    starts: (Version, u32),
}

impl MemoryGate {
    /// A closed gate. `born` is when the process before may last have asked somebody: now, or
    /// [`Timestamp::EPOCH`] in an installation that never asked anybody.
    pub fn new(born: Timestamp) -> Self {
        MemoryGate {
            state: Mutex::new(State {
                born,
                open: false,
                // Tickets of an earlier process must not be taken for ours.
                last_number: u64::try_from(born.millis()).unwrap_or(0) << 20,
                hosts: HashMap::new(),
                feeds: HashMap::new(),
                sweep_at: SWEEP_FROM,
                journal: None,
            }),
        }
    }

    /// The same, with starts that brought no report remembered in this file over the process' death.
    pub fn with_journal(born: Timestamp, path: &Path) -> io::Result<Self> {
        let gate = Self::new(born);
        let (journal, left) = Journal::open(path)?;
        let mut state = gate.lock();
        state.journal = Some(journal);
        for (feed, version, starts) in left {
            state.feeds.entry(feed).or_default().starts = (version, starts);
        }
        drop(state);
        Ok(gate)
    }

    /// Forgets the starts that brought no report: the process ends by its own will, nobody killed it.
    pub fn close(&self) {
        if let Some(journal) = &mut self.lock().journal {
            journal.clear();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pace as the generic cell rate algorithm sees it: allowed from `arrival - (burst - 1) * gap` on.
fn allowed_from(arrival: Timestamp, limits: HostLimits) -> Timestamp {
    arrival.before(limits.gap.saturating_mul(limits.burst.saturating_sub(1)))
}

impl Host {
    fn forget_ended(&mut self, now: Timestamp) {
        self.tickets.retain(|(_, end)| *end > now);
        self.flights.retain(|(_, end)| *end > now);
    }

    fn outstanding(&self) -> usize {
        self.tickets.len() + self.flights.len()
    }

    fn first_end(&self) -> Option<Timestamp> {
        self.tickets.iter().map(|(_, end)| *end).chain(self.flights.iter().map(|(_, end)| *end)).min()
    }

    fn idle(&self, now: Timestamp) -> bool {
        self.outstanding() == 0 && self.held_until <= now && self.reserved <= now && self.started <= now
    }

    /// Until when a start must wait for hold and gap; `None`: it may start now.
    fn start_refused_until(&self, limits: HostLimits, born: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let earliest = self.held_until.max(allowed_from(self.started, limits)).max(born.after(limits.gap));
        (earliest > now).then_some(earliest)
    }

    fn charge_start(&mut self, limits: HostLimits, now: Timestamp) {
        self.started = self.started.max(now).after(limits.gap);
        // A job may wait in the queue between its reservation and its start: the next reservation counts from the start.
        self.reserved = self.reserved.max(self.started);
    }
}

impl State {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn host(&mut self, key: &HostKey, now: Timestamp) -> &mut Host {
        // One lookup more for a new host, none for a known one: keys are cloned only when they are kept.
        if !self.hosts.contains_key(key) {
            self.hosts.insert(key.clone(), Host::default());
        }
        let host = self.hosts.get_mut(key).expect("inserted above");
        host.forget_ended(now);
        host
    }

    fn reserve(&mut self, request: &ReserveRequest, now: Timestamp) -> Reservation {
        if !self.open {
            return Reservation::Refused { until: now.after(UNOPENED_RETRY) };
        }
        let (born, limits) = (self.born, request.limits);
        let ticket = Ticket(self.next_number());
        let host = self.host(&request.host, now);
        let earliest = host.held_until.max(allowed_from(host.reserved, limits)).max(born.after(limits.gap));
        if earliest > now {
            return Reservation::Refused { until: earliest };
        }
        if host.outstanding() >= limits.parallel as usize {
            // Ends are the worst case: most requests are over long before, and whoever waits asks again in a gap.
            let until = host.first_end().unwrap_or(now).min(now.after(limits.gap.max(SHORTEST_RETRY)));
            return Reservation::Refused { until };
        }
        host.reserved = host.reserved.max(now).after(limits.gap);
        host.tickets.push((ticket, request.expires));
        Reservation::Ticket(ticket)
    }

    fn acquire(&mut self, request: &AcquireRequest, now: Timestamp) -> Acquired {
        let (born, open, limits) = (self.born, self.open, request.limits);
        let host = self.host(&request.host, now);
        let tickets = host.tickets.len();
        host.tickets.retain(|(ticket, _)| *ticket != request.ticket);
        let known_ticket = host.tickets.len() < tickets;
        let refused_until = host.start_refused_until(limits, born, now);

        let guard = self.feeds.entry(request.feed).or_default();
        if guard.reported.is_some_and(|(version, until)| version >= request.version && until > now) {
            return Acquired::Reported;
        }
        let fetched_until = guard.token.map(|(_, end)| end).filter(|end| *end > now);
        let retry = now.after(limits.gap.max(Duration::from_millis(1)));
        match (open, fetched_until, refused_until) {
            (false, ..) => return Acquired::NotNow { until: now.after(UNOPENED_RETRY) },
            (_, Some(until), _) | (_, _, Some(until)) => return Acquired::NotNow { until },
            _ if !known_ticket => return Acquired::NotNow { until: retry },
            _ => {}
        }

        let nonce = self.next_number();
        let guard = self.feeds.entry(request.feed).or_default();
        if guard.starts.0 != request.version {
            guard.starts = (request.version, 0);
        }
        guard.token = Some((nonce, request.deadline));
        let permit = Permit { host: request.host.clone(), feed: Some(request.feed), version: request.version, nonce };
        if guard.starts.1 >= STARTS_WITHOUT_REPORT {
            return Acquired::Crashed(permit);
        }
        guard.starts.1 += 1;
        let starts = guard.starts.1;
        self.note(request.feed, request.version, starts);
        let host = self.host(&request.host, now);
        host.charge_start(limits, now);
        host.flights.push((nonce, request.deadline));
        Acquired::Granted(permit)
    }

    fn acquire_extra(&mut self, request: &ExtraRequest<'_>, now: Timestamp) -> Result<Permit, Timestamp> {
        if !self.open {
            return Err(now.after(UNOPENED_RETRY));
        }
        let (born, limits) = (self.born, request.limits);
        let nonce = self.next_number();
        let host = self.host(request.host, now);
        if let Some(until) = host.start_refused_until(limits, born, now) {
            return Err(until);
        }
        let own_place = request.during.is_some_and(|permit| permit.host == *request.host);
        if !own_place && host.outstanding() >= limits.parallel as usize {
            return Err(host.first_end().unwrap_or(now).min(now.after(limits.gap.max(SHORTEST_RETRY))));
        }
        host.charge_start(limits, now);
        if !own_place {
            host.flights.push((nonce, request.deadline));
        }
        Ok(Permit { host: request.host.clone(), feed: None, version: Version::default(), nonce })
    }

    fn release(&mut self, permit: &Permit, release: Release, now: Timestamp) {
        if let Some(host) = self.hosts.get_mut(&permit.host) {
            host.flights.retain(|(nonce, _)| *nonce != permit.nonce);
            host.started = host.started.max(release.next_start.unwrap_or_default());
            host.reserved = host.reserved.max(host.started);
            host.forget_ended(now);
        }
        let Some(feed) = permit.feed else { return };
        let guard = self.feeds.entry(feed).or_default();
        if guard.token.is_some_and(|(nonce, _)| nonce == permit.nonce) {
            guard.token = None;
        }
        match release.remember_until {
            Some(until) => {
                guard.starts = (permit.version, 0);
                if guard.reported.is_none_or(|(version, _)| version <= permit.version) {
                    guard.reported = Some((permit.version, until));
                }
            }
            // It came back alive, so it killed nobody.
            None if guard.starts.0 == permit.version => guard.starts.1 = guard.starts.1.saturating_sub(1),
            None => {}
        }
        let (version, starts) = guard.starts;
        self.note(feed, version, starts);
    }

    fn note(&mut self, feed: FeedId, version: Version, starts: u32) {
        if let Some(journal) = &mut self.journal {
            journal.note(feed, version, starts);
        }
    }

    /// Keeps memory in proportion to what is live; amortised over the growth since the last sweep.
    fn sweep(&mut self, now: Timestamp) {
        if self.hosts.len() + self.feeds.len() < self.sweep_at {
            return;
        }
        self.hosts.retain(|_, host| {
            host.forget_ended(now);
            !host.idle(now)
        });
        self.feeds.retain(|_, guard| {
            guard.token.is_some_and(|(_, end)| end > now)
                || guard.reported.is_some_and(|(_, until)| until > now)
                || guard.starts.1 > 0
        });
        self.sweep_at = SWEEP_FROM.max((self.hosts.len() + self.feeds.len()) * SWEEP_FACTOR);
    }
}

#[async_trait]
impl HostGate for MemoryGate {
    async fn reserve(&self, requests: &[ReserveRequest], now: Timestamp) -> Result<Vec<Reservation>, GateError> {
        let mut state = self.lock();
        state.sweep(now);
        Ok(requests.iter().map(|request| state.reserve(request, now)).collect())
    }

    async fn acquire(&self, request: &AcquireRequest, now: Timestamp) -> Result<Acquired, GateError> {
        Ok(self.lock().acquire(request, now))
    }

    async fn acquire_extra(
        &self,
        request: &ExtraRequest<'_>,
        now: Timestamp,
    ) -> Result<Result<Permit, Timestamp>, GateError> {
        Ok(self.lock().acquire_extra(request, now))
    }

    async fn release(&self, permit: &Permit, release: Release, now: Timestamp) -> Result<(), GateError> {
        self.lock().release(permit, release, now);
        Ok(())
    }

    async fn cancel(&self, host: &HostKey, ticket: Ticket, _now: Timestamp) -> Result<(), GateError> {
        if let Some(host) = self.lock().hosts.get_mut(host) {
            host.tickets.retain(|(known, _)| *known != ticket);
        }
        Ok(())
    }

    async fn hold(&self, host: &HostKey, until: Timestamp, now: Timestamp) -> Result<(), GateError> {
        let mut state = self.lock();
        let host = state.host(host, now);
        host.held_until = host.held_until.max(until);
        Ok(())
    }

    async fn begin_loading(&self, _now: Timestamp) -> Result<Option<LoadMark>, GateError> {
        Ok((!self.lock().open).then(|| LoadMark(String::new())))
    }

    async fn open(&self, _mark: &LoadMark, _now: Timestamp) -> Result<bool, GateError> {
        self.lock().open = true;
        Ok(true)
    }

    async fn open_new(&self, _now: Timestamp) -> Result<(), GateError> {
        let mut state = self.lock();
        (state.open, state.born) = (true, Timestamp::EPOCH);
        Ok(())
    }

    async fn check(&self, _: Timestamp) -> Result<(), GateError> {
        Ok(())
    }

    async fn held(&self, now: Timestamp) -> Result<usize, GateError> {
        Ok(self.lock().hosts.values().filter(|host| host.held_until > now).count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::host_gate_conformance!(|| async { MemoryGate::new(Timestamp::EPOCH) });

    #[tokio::test]
    async fn a_new_gate_asks_no_host_within_its_gap_of_the_process_before() {
        let born = Timestamp::from_millis(1_000_000);
        let gate = MemoryGate::new(born);
        let mark = gate.begin_loading(born).await.unwrap().unwrap();
        assert!(gate.open(&mark, born).await.unwrap());
        let limits = HostLimits { gap: Duration::from_secs(60), burst: 1, parallel: 1 };
        let request =
            ReserveRequest { host: HostKey::new("slow:80"), limits, expires: born.after(Duration::from_secs(99)) };
        let early = gate.reserve(std::slice::from_ref(&request), born.after(Duration::from_secs(59))).await.unwrap();
        assert_eq!(early, [Reservation::Refused { until: born.after(Duration::from_secs(60)) }]);
        let later = gate.reserve(&[request], born.after(Duration::from_secs(60))).await.unwrap();
        assert!(matches!(later[0], Reservation::Ticket(_)));
    }

    /// One process' life: starts the feed once, and dies of it or ends well.
    async fn process(path: &Path, round: i64, reports: bool) -> Acquired {
        let now = Timestamp::from_millis(round * 100_000);
        let gate = MemoryGate::with_journal(Timestamp::EPOCH, path).unwrap();
        let mark = gate.begin_loading(now).await.unwrap().unwrap();
        gate.open(&mark, now).await.unwrap();
        let limits = HostLimits { gap: Duration::from_secs(1), burst: 1, parallel: 1 };
        let (host, expires) = (HostKey::new("a:80"), now.after(Duration::from_secs(60)));
        let reserved = gate.reserve(&[ReserveRequest { host: host.clone(), limits, expires }], now).await.unwrap();
        let Reservation::Ticket(ticket) = reserved[0] else { panic!("no ticket") };
        let (feed, version) = (FeedId(7), Version(3));
        let request = AcquireRequest { host, limits, ticket, feed, version, deadline: expires };
        let acquired = gate.acquire(&request, now).await.unwrap();
        if let (true, Acquired::Granted(permit)) = (reports, &acquired) {
            gate.release(permit, Release { remember_until: Some(expires), next_start: None }, now).await.unwrap();
        }
        acquired
    }

    #[tokio::test]
    async fn a_feed_that_kills_its_process_is_found_out_and_one_that_was_only_there_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("starts");
        for round in 1..=3 {
            assert!(matches!(process(&path, round, false).await, Acquired::Granted(_)), "round {round}");
        }
        assert!(matches!(process(&path, 4, false).await, Acquired::Crashed(_)));

        let path = folder.path().join("innocent");
        for round in 1..=6 {
            let reports = round % 3 == 0;
            assert!(matches!(process(&path, round, reports).await, Acquired::Granted(_)), "round {round}");
        }
        MemoryGate::with_journal(Timestamp::EPOCH, &path).unwrap().close();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    }

    #[tokio::test]
    async fn memory_follows_what_is_live_and_not_what_ever_was() {
        let gate = MemoryGate::new(Timestamp::EPOCH);
        let mark = gate.begin_loading(Timestamp::EPOCH).await.unwrap().unwrap();
        gate.open(&mark, Timestamp::EPOCH).await.unwrap();
        let limits = HostLimits { gap: Duration::from_secs(1), burst: 1, parallel: 1 };
        for n in 0..50_000_i64 {
            let now = Timestamp::from_millis(1_000_000 + n * 10);
            let host = HostKey::new(&format!("h{n}:80"));
            let expires = now.after(Duration::from_secs(1));
            gate.reserve(&[ReserveRequest { host, limits, expires }], now).await.unwrap();
        }
        assert!(gate.lock().hosts.len() < 10_000, "{}", gate.lock().hosts.len());
    }
}
