//! The gate inside one process.
//!
//! Its memory ends with the process, and so do all requests it let through. What must outlive a restart comes from
//! elsewhere. Holds are loaded from the store before [`GateUpkeep::open`]. No host is polled within its gap of the
//! gate's birth, because the earlier process may have polled it a moment ago. Starts without a report are kept in a
//! file, so that a feed that kills the process is detected.

use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;

use super::journal::Journal;
use super::state::GateState;
use super::{
    AcquireRequest, Acquired, ExtraRequest, GateError, GateUpkeep, HostGate, LoadMark, Permit, Release, Reservation,
    ReserveRequest, Ticket,
};
use crate::host::HostKey;
use crate::time::{Clock, Timestamp};
use crate::url::FeedId;

/// A gate for the hosts that this process alone polls.
pub struct MemoryGate {
    memory: Mutex<Memory>,
}

struct Memory {
    state: GateState,
    journal: Option<Journal>,
    rules: Option<String>,
}

impl MemoryGate {
    /// Returns a closed gate. `born` is when the earlier process may have sent its last request: now, or
    /// [`Timestamp::EPOCH`] in an installation that never sent one.
    pub fn new(born: Timestamp) -> Self {
        MemoryGate { memory: Mutex::new(Memory { state: GateState::new(born), journal: None, rules: None }) }
    }

    /// The same, with a file that keeps starts without a report after the process dies, and the time of an orderly end,
    /// before which the earlier process sent its last request.
    pub fn with_journal(born: Timestamp, path: &Path) -> io::Result<Self> {
        let (journal, left) = Journal::open(path)?;
        let gate = Self::new(left.ended.map_or(born, |ended| ended.min(born)));
        let mut memory = gate.lock();
        memory.journal = Some(journal);
        for (feed, version, starts) in left.starts {
            memory.state.feeds.entry(feed).or_default().starts = (version, starts);
        }
        drop(memory);
        Ok(gate)
    }

    /// Forgets the starts without a report: the process ends on purpose at `now`, and was not killed. It makes no
    /// further request.
    pub fn close(&self, now: Timestamp) {
        if let Some(journal) = &mut self.lock().journal {
            journal.close(now);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        crate::lock(&self.memory)
    }
}

impl Memory {
    /// Writes down how often the feed was started without a report.
    fn note(&mut self, feed: FeedId) {
        if let (Some(journal), Some(guard)) = (&mut self.journal, self.state.feeds.get(&feed)) {
            let (version, starts) = guard.starts;
            journal.note(feed, version, starts);
        }
    }
}

#[async_trait]
impl HostGate for MemoryGate {
    async fn reserve(&self, requests: &[ReserveRequest], now: Timestamp) -> Result<Vec<Reservation>, GateError> {
        let state = &mut self.lock().state;
        state.sweep(now);
        Ok(requests.iter().map(|request| state.reserve(request, now)).collect())
    }

    async fn acquire(&self, request: &AcquireRequest, now: Timestamp) -> Result<Acquired, GateError> {
        let mut memory = self.lock();
        let acquired = memory.state.acquire(request, now);
        if matches!(acquired, Acquired::Granted(_)) {
            memory.note(request.feed);
        }
        Ok(acquired)
    }

    async fn acquire_extra(
        &self,
        request: &ExtraRequest<'_>,
        now: Timestamp,
    ) -> Result<Result<Permit, Timestamp>, GateError> {
        Ok(self.lock().state.acquire_extra(request, now))
    }

    async fn release(&self, permit: &Permit, release: Release, now: Timestamp) -> Result<(), GateError> {
        let mut memory = self.lock();
        memory.state.release(permit, release, now);
        if let Some(feed) = permit.feed {
            memory.note(feed);
        }
        Ok(())
    }

    async fn cancel(&self, host: &HostKey, ticket: Ticket, _now: Timestamp) -> Result<(), GateError> {
        self.lock().state.cancel(host, ticket);
        Ok(())
    }

    async fn hold(&self, holds: &[(HostKey, Timestamp)], now: Timestamp) -> Result<(), GateError> {
        let state = &mut self.lock().state;
        holds.iter().for_each(|(host, until)| state.hold(host, *until, now));
        Ok(())
    }

    async fn block(&self, host: &HostKey, until: Option<Timestamp>, now: Timestamp) -> Result<(), GateError> {
        self.lock().state.block(host, until, now);
        Ok(())
    }
}

#[async_trait]
impl GateUpkeep for MemoryGate {
    async fn show_rules(&self, rules: &str) -> Result<(), GateError> {
        let shown = &mut self.lock().rules;
        if shown.as_deref() != Some(rules) {
            *shown = Some(rules.to_owned());
        }
        Ok(())
    }

    async fn shown_rules(&self, known: Option<&str>) -> Result<Option<String>, GateError> {
        Ok(self.lock().rules.as_ref().filter(|shown| known != Some(shown.as_str())).cloned())
    }

    async fn begin_loading(&self, _now: Timestamp) -> Result<Option<LoadMark>, GateError> {
        Ok((!self.lock().state.open).then(|| LoadMark(String::new())))
    }

    async fn open(&self, _mark: &LoadMark, _now: Timestamp) -> Result<bool, GateError> {
        self.lock().state.open = true;
        Ok(true)
    }

    async fn open_new(&self, _now: Timestamp) -> Result<(), GateError> {
        let state = &mut self.lock().state;
        (state.open, state.born) = (true, Timestamp::EPOCH);
        Ok(())
    }

    async fn check(&self, _: &dyn Clock) -> Result<(), GateError> {
        Ok(())
    }

    async fn held(&self, now: Timestamp) -> Result<usize, GateError> {
        Ok(self.lock().state.hosts.values().filter(|host| host.is_held(now)).count())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::host::HostLimits;
    use crate::host_gate::{Isolation, fresh_nonce};
    use crate::url::Version;

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
        let (nonce, isolation) = (fresh_nonce(), Isolation::Alone);
        let request = AcquireRequest {
            host,
            limits,
            ticket,
            feed,
            version,
            deadline: expires,
            leased_until: Timestamp::EPOCH,
            nonce,
            isolation,
        };
        let acquired = gate.acquire(&request, now).await.unwrap();
        if let (true, Acquired::Granted(permit)) = (reports, &acquired) {
            gate.release(permit, Release { remembered: Some(expires.since(now)), next_start_in: None }, now)
                .await
                .unwrap();
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
    }

    #[tokio::test]
    async fn a_process_that_ended_in_order_holds_its_hosts_for_their_gap_from_its_end_on_and_one_that_was_killed_from_now_on()
     {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("starts");
        let at = |seconds: i64| Timestamp::from_millis(1_000_000_000 + 1000 * seconds);
        let limits = HostLimits { gap: Duration::from_secs(60), burst: 1, parallel: 1 };
        let free_at = async |started: Timestamp, closed: Option<Timestamp>| {
            let gate = MemoryGate::with_journal(started, &path).unwrap();
            let mark = gate.begin_loading(started).await.unwrap().unwrap();
            gate.open(&mark, started).await.unwrap();
            let request = ReserveRequest { host: HostKey::new("a:80"), limits, expires: started.after(limits.gap) };
            let reserved = gate.reserve(&[request], started).await.unwrap();
            closed.into_iter().for_each(|now| gate.close(now));
            match reserved[0] {
                Reservation::Refused { until } => until,
                Reservation::Ticket(_) => started,
            }
        };
        assert_eq!(free_at(at(0), Some(at(10))).await, at(60), "nothing is known of the process before");
        assert_eq!(free_at(at(30), Some(at(40))).await, at(70), "the one before ended at 10 s");
        assert_eq!(free_at(at(200), None).await, at(200), "at 40 s; and this one is killed");
        assert_eq!(free_at(at(300), Some(at(300))).await, at(360));
        assert_eq!(free_at(at(290), None).await, at(350), "the clock was set back");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 24, "one record");
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
        assert!(gate.lock().state.hosts.len() < 10_000, "{}", gate.lock().state.hosts.len());
    }
}
