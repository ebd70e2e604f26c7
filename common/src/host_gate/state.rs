//! What the embedded gate remembers, and how each call changes it: no clock, no lock, no I/O.
//!
//! The model of the claim protocol explores these very transitions.

use std::collections::HashMap;
use std::time::Duration;

use super::{
    AcquireRequest, Acquired, ExtraRequest, Isolation, Permit, Release, Reservation, ReserveRequest,
    STARTS_WITHOUT_REPORT, Ticket, UNOPENED_RETRY,
};
use crate::host::{HostKey, HostLimits};
use crate::time::Timestamp;
use crate::url::{FeedId, Version};

/// A reservation at a busy host is tried again after its gap, but no sooner than this.
const SHORTEST_RETRY: Duration = Duration::from_millis(10);
/// Idle hosts and old memories are swept when their maps have grown by this factor since the last sweep.
const SWEEP_FACTOR: usize = 2;
const SWEEP_FROM: usize = 4096;

/// All that one process' gate remembers.
#[derive(Clone, Debug)]
pub struct GateState {
    /// No host is polled within its gap of this time.
    pub born: Timestamp,
    /// The holds were loaded.
    pub open: bool,
    /// The last ticket or nonce that was given out.
    pub last_number: u64,
    /// The hosts whose state differs from that of an unknown one.
    pub hosts: HashMap<HostKey, Host>,
    /// The same of feeds.
    pub feeds: HashMap<FeedId, Guard>,
    sweep_at: usize,
}

/// What is known of one host. Times of tickets and flights are ends of life.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// The generic cell rate algorithm's theoretical arrival time, for reservations.
    pub reserved: Timestamp,
    /// The same, for real starts.
    pub started: Timestamp,
    /// Nothing starts before, by the server's word.
    pub held_until: Timestamp,
    /// Nothing starts before, by an operator's word.
    pub blocked_until: Timestamp,
    /// Slots that were not redeemed yet.
    pub tickets: Vec<(Ticket, Timestamp)>,
    /// Requests in progress, by nonce.
    pub flights: Vec<(u64, Timestamp)>,
}

/// What is known of one feed.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// The live permit: its nonce and its end.
    pub token: Option<(u64, Timestamp)>,
    /// The last version that was reported, remembered until then.
    pub reported: Option<(Version, Timestamp)>,
    /// Starts of a version without a report.
    pub starts: (Version, u32),
    /// When the lease of the last started job ends. Its version is that of [`Self::starts`].
    pub leased_until: Timestamp,
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
        self.outstanding() == 0 && !self.is_held(now) && self.reserved <= now && self.started <= now
    }

    /// Returns whether it is held or blocked.
    pub fn is_held(&self, now: Timestamp) -> bool {
        self.held_until.max(self.blocked_until) > now
    }

    /// Returns until when a start must wait for hold, block and gap; `None`: it may start now.
    fn start_refused_until(&self, limits: HostLimits, born: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let held = self.held_until.max(self.blocked_until);
        let earliest = held.max(allowed_from(self.started, limits)).max(born.after(limits.gap));
        (earliest > now).then_some(earliest)
    }

    fn charge_start(&mut self, limits: HostLimits, now: Timestamp) {
        self.started = self.started.max(now).after(limits.gap);
        // A job may wait in the queue between its reservation and its start: the next reservation counts from the start.
        self.reserved = self.reserved.max(self.started);
    }
}

impl GateState {
    /// Returns a closed gate that knows nothing; `born` as in [`super::memory::MemoryGate::new`].
    pub fn new(born: Timestamp) -> Self {
        GateState {
            born,
            open: false,
            // Tickets of an earlier process must not be taken for ours.
            last_number: u64::try_from(born.millis()).unwrap_or(0) << 20,
            hosts: HashMap::new(),
            feeds: HashMap::new(),
            sweep_at: SWEEP_FROM,
        }
    }

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

    /// See [`super::HostGate::reserve`].
    pub fn reserve(&mut self, request: &ReserveRequest, now: Timestamp) -> Reservation {
        if !self.open {
            return Reservation::Refused { until: now.after(UNOPENED_RETRY) };
        }
        let (born, limits) = (self.born, request.limits);
        let ticket = Ticket(self.next_number());
        let host = self.host(&request.host, now);
        let held = host.held_until.max(host.blocked_until);
        let earliest = held.max(allowed_from(host.reserved, limits)).max(born.after(limits.gap));
        if earliest > now {
            return Reservation::Refused { until: earliest };
        }
        if host.outstanding() >= limits.parallel as usize {
            // Deadlines are the worst case: most requests end long before, and a waiting caller tries again after a
            // gap.
            let until = host.first_end().unwrap_or(now).min(now.after(limits.gap.max(SHORTEST_RETRY)));
            return Reservation::Refused { until };
        }
        host.reserved = host.reserved.max(now).after(limits.gap);
        host.tickets.push((ticket, request.expires));
        Reservation::Ticket(ticket)
    }

    /// See [`super::HostGate::acquire`].
    pub fn acquire(&mut self, request: &AcquireRequest, now: Timestamp) -> Acquired {
        let (born, open, limits) = (self.born, self.open, request.limits);
        let host = self.host(&request.host, now);
        let known_ticket = host.tickets.iter().any(|(ticket, _)| *ticket == request.ticket);
        let refused_until = host.start_refused_until(limits, born, now);

        let guard = self.feeds.entry(request.feed).or_default();
        let reported = guard.reported.is_some_and(|(version, until)| version >= request.version && until > now);
        // Of another epoch, or it would count as reported.
        let is_repeated = request.version.number() <= guard.starts.0.number();
        let fetched_until = match guard.token {
            Some((_, end)) => Some(end),
            None => is_repeated.then_some(guard.leased_until),
        };
        let fetched_until = fetched_until.filter(|end| *end > now);
        let retry = now.after(limits.gap.max(Duration::from_millis(1)));
        let refusal = match (open, fetched_until, refused_until) {
            _ if reported => Some(Acquired::Reported),
            (false, ..) => Some(Acquired::NotNow { until: now.after(UNOPENED_RETRY) }),
            (_, Some(until), _) | (_, _, Some(until)) => Some(Acquired::NotNow { until }),
            _ if !known_ticket => Some(Acquired::NotNow { until: retry }),
            _ => None,
        };
        if guard.starts.0 != request.version && refusal.is_none() {
            guard.starts = (request.version, 0);
        }
        let starts = guard.starts.1;
        let needed = Isolation::needed_after(starts);
        if refusal.is_none() && starts < STARTS_WITHOUT_REPORT && request.isolation < needed {
            return Acquired::Suspect(needed);
        }
        self.cancel(&request.host, request.ticket);
        if let Some(refusal) = refusal {
            return refusal;
        }

        let guard = self.feeds.entry(request.feed).or_default();
        guard.token = Some((request.nonce, request.deadline));
        if starts >= STARTS_WITHOUT_REPORT {
            return Acquired::Crashed(request.permit());
        }
        guard.starts.1 += 1;
        guard.leased_until = request.leased_until;
        let host = self.host(&request.host, now);
        host.charge_start(limits, now);
        host.flights.push((request.nonce, request.deadline));
        Acquired::Granted(request.permit())
    }

    /// See [`super::HostGate::acquire_extra`].
    pub fn acquire_extra(&mut self, request: &ExtraRequest<'_>, now: Timestamp) -> Result<Permit, Timestamp> {
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

    /// See [`super::HostGate::release`].
    pub fn release(&mut self, permit: &Permit, release: Release, now: Timestamp) {
        if let Some(host) = self.hosts.get_mut(&permit.host) {
            host.flights.retain(|(nonce, _)| *nonce != permit.nonce);
            host.started = host.started.max(release.next_start_in.map_or(Timestamp::EPOCH, |wait| now.after(wait)));
            host.reserved = host.reserved.max(host.started);
            host.forget_ended(now);
        }
        let Some(feed) = permit.feed else { return };
        let guard = self.feeds.entry(feed).or_default();
        let own = guard.token.is_some_and(|(nonce, _)| nonce == permit.nonce);
        if own {
            guard.token = None;
        }
        match release.remembered {
            Some(remembered) => {
                // A late release of an earlier version says nothing about the starts of this one.
                if permit.version >= guard.starts.0 {
                    guard.starts = (permit.version, 0);
                }
                if guard.reported.is_none_or(|(version, _)| version <= permit.version) {
                    guard.reported = Some((permit.version, now.after(remembered)));
                }
            }
            // It came back alive, so it did not kill its worker. A second release finds no token and does not count
            // down again.
            None if own && guard.starts.0 == permit.version => {
                guard.starts.1 = guard.starts.1.saturating_sub(1);
                guard.leased_until = Timestamp::EPOCH;
            }
            None => {}
        }
    }

    /// See [`super::HostGate::cancel`].
    pub fn cancel(&mut self, host: &HostKey, ticket: Ticket) {
        if let Some(host) = self.hosts.get_mut(host) {
            host.tickets.retain(|(known, _)| *known != ticket);
        }
    }

    /// See [`super::HostGate::hold`].
    pub fn hold(&mut self, host: &HostKey, until: Timestamp, now: Timestamp) {
        let host = self.host(host, now);
        host.held_until = host.held_until.max(until);
    }

    /// See [`super::HostGate::block`].
    pub fn block(&mut self, host: &HostKey, until: Option<Timestamp>, now: Timestamp) {
        self.host(host, now).blocked_until = until.unwrap_or_default();
    }

    /// Keeps memory in proportion to what is live; amortised over the growth since the last sweep.
    pub fn sweep(&mut self, now: Timestamp) {
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
                || guard.leased_until > now
                || guard.starts.1 > 0
        });
        self.sweep_at = SWEEP_FROM.max((self.hosts.len() + self.feeds.len()) * SWEEP_FACTOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_much_was_added_a_sweep_forgets_what_has_ended() {
        let now = Timestamp::from_millis(1_790_000_000_000);
        let later = now.after(Duration::from_millis(1));
        let mut state = GateState::new(Timestamp::EPOCH);
        let hosts = [
            ("idle", Host { reserved: now, started: now, held_until: now, blocked_until: now, ..Host::default() }),
            ("reserved", Host { reserved: later, ..Host::default() }),
            ("started", Host { started: later, ..Host::default() }),
            ("held", Host { held_until: later, ..Host::default() }),
            ("blocked", Host { blocked_until: later, ..Host::default() }),
            ("ticket", Host { tickets: vec![(Ticket(1), later)], ..Host::default() }),
            ("flight", Host { flights: vec![(1, later)], ..Host::default() }),
            ("ended", Host { tickets: vec![(Ticket(1), now)], flights: vec![(1, now)], ..Host::default() }),
        ];
        state.hosts.extend(hosts.map(|(name, host)| (HostKey::new(name), host)));
        let version = Version(1);
        let guards = [
            Guard { token: Some((1, now)), reported: Some((version, now)), leased_until: now, ..Guard::default() },
            Guard { token: Some((1, later)), ..Guard::default() },
            Guard { reported: Some((version, later)), ..Guard::default() },
            Guard { leased_until: later, ..Guard::default() },
            Guard { starts: (version, 1), ..Guard::default() },
        ];
        state.feeds.extend((0..).map(FeedId).zip(guards));
        let known = state.hosts.len() + state.feeds.len();
        state.feeds.extend((100..).map(FeedId).zip(std::iter::repeat_n(Guard::default(), SWEEP_FROM - known - 1)));
        state.sweep(now);
        assert_eq!(state.hosts.len() + state.feeds.len(), SWEEP_FROM - 1, "too little was added");

        state.feeds.insert(FeedId(99), Guard::default());
        state.sweep(now);
        let mut kept: Vec<&str> = state.hosts.keys().map(HostKey::as_str).collect();
        kept.sort_unstable();
        assert_eq!(kept, ["blocked", "flight", "held", "reserved", "started", "ticket"]);
        let mut feeds: Vec<i64> = state.feeds.keys().map(|feed| feed.0).collect();
        feeds.sort_unstable();
        assert_eq!(feeds, [1, 2, 3, 4]);

        // The next sweep comes when twice as much is known as this one left, above the least.
        state.feeds.extend(
            (100..).map(FeedId).zip(std::iter::repeat_n(Guard { leased_until: later, ..Guard::default() }, SWEEP_FROM)),
        );
        state.sweep(now);
        let left = state.hosts.len() + state.feeds.len();
        state.feeds.extend((10_000..).map(FeedId).zip(std::iter::repeat_n(Guard::default(), left - 1)));
        state.sweep(now);
        assert_eq!(state.hosts.len() + state.feeds.len(), 2 * left - 1);
        state.feeds.insert(FeedId(99), Guard::default());
        state.sweep(now);
        assert_eq!(state.hosts.len() + state.feeds.len(), left);
    }
}
