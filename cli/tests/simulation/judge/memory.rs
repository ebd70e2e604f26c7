//! What workers and servers know of holds, and what they forget when they fail over.

use std::time::Duration;

use common::host::HostKey;
use common::time::Timestamp;

use super::Judge;
use crate::holds::Hold;
use crate::life::{Life, Server};

/// How often a worker tries to put a hold on the gate.
const HOLD_RETRY: Duration = Duration::from_secs(2);

impl Judge {
    /// A worker reads that its host must be put on hold. While the worker is stopped it reads nothing: its permit
    /// protects the host for as long as a fetch may take.
    pub(crate) fn held(&mut self, flight: u64, until: Timestamp) {
        let Some(flown) = self.flights.get(&flight).filter(|flown| !flown.cut) else { return };
        let mut hold = Hold::new(flight, until, flown.life);
        if flown.overslept || self.cut_off.get(&flown.life).is_some_and(|learns| flown.ends < *learns) {
            hold.stays_private();
        }
        self.hosts.entry(flown.host.clone()).or_default().holds.push(hold);
    }

    /// A process cannot reach the gate until then. It tries again every two seconds, and waits as long for an answer.
    pub(crate) fn cut_from_gate(&mut self, life: &Life, until: Timestamp) {
        let learns = until.after(HOLD_RETRY + Server::Gate.patience());
        self.cut_off.insert(life.number, learns);
        let flights = &self.flights;
        let is_late = |hold: &&mut Hold| {
            flights.get(&hold.flight).is_some_and(|flown| flown.life == life.number && flown.ends < learns)
        };
        self.hosts.values_mut().flat_map(|at| &mut at.holds).filter(is_late).for_each(Hold::stays_private);
    }

    /// The gate takes a hold.
    pub(crate) fn hold_is_known(&mut self, host: &HostKey, now: Timestamp) {
        self.holds_of(host).for_each(|hold| hold.reaches_gate(now));
    }

    /// A report that carries a hold is in the queue.
    pub(crate) fn hold_is_reported(&mut self, host: &HostKey) {
        self.holds_of(host).for_each(Hold::is_reported);
    }

    /// The store has a hold whose report changed nothing else.
    pub(crate) fn hold_is_stored(&mut self, host: &HostKey, now: Timestamp) {
        self.holds_of(host).for_each(|hold| hold.is_settled(Some(now)));
    }

    pub(super) fn holds_of(&mut self, host: &HostKey) -> impl Iterator<Item = &mut Hold> {
        self.hosts.get_mut(host).into_iter().flat_map(|at| &mut at.holds)
    }

    /// The gate has nothing of what it had, or less.
    pub(crate) fn gate_lost(&mut self) {
        self.hosts.values_mut().for_each(|at| at.holds.retain_mut(Hold::outlives_gate));
        self.forget_what_nobody_knows();
    }

    /// Drops the holds that nobody has but a process that is dead, or stopped until after its permit's end: a gate without memory opens
    /// then.
    pub(super) fn forget_what_nobody_knows(&mut self) {
        let flights = &self.flights;
        let is_gone = |hold: &Hold| flights.get(&hold.flight).is_some_and(|flown| flown.overslept || flown.cut);
        self.hosts.values_mut().for_each(|at| at.holds.retain(|hold| hold.is_elsewhere() || !is_gone(hold)));
    }

    /// Another server is the gate from now on.
    pub(crate) fn gate_failed_over(&mut self) {
        self.left_behind.extend(self.granted.keys().map(|(_, feed)| *feed));
        self.gate_lost();
    }

    /// The gate is the server before the last failover again. It counts permits whose release reached the other server alone: their
    /// feeds look like ones that kill.
    pub(crate) fn gate_failed_back(&mut self) {
        for feed in std::mem::take(&mut self.left_behind) {
            self.feeds.get_mut(&feed).expect("only known feeds are polled").died_alone = true;
        }
        self.gate_lost();
    }

    /// The gate is open again: what the store has was loaded into it.
    pub(crate) fn gate_opened(&mut self, now: Timestamp) {
        self.hosts.values_mut().flat_map(|at| &mut at.holds).for_each(|hold| hold.is_loaded(now));
    }

    /// The standby of the store receives nothing more.
    pub(crate) fn standby_lags(&mut self, now: Timestamp) {
        self.standby = Some((now, self.feeds.clone()));
    }

    /// The standby is promoted. If it lagged, polls are lost, which are repeated, and so are holds that the gate does not have.
    pub(crate) fn store_fell_back(&mut self) {
        let Some((since, feeds)) = self.standby.take() else { return };
        for (feed, before) in feeds {
            let known = self.feeds.get_mut(&feed).expect("no feed is added meanwhile");
            known.lost |= known.version > before.version || known.woken && !before.woken;
            known.woken |= before.woken;
            (known.version, known.due, known.stored, known.newest) =
                (before.version, before.due, before.stored, before.newest);
        }
        self.hosts.values_mut().for_each(|at| at.holds.retain_mut(|hold| hold.outlives_store(since)));
    }
}
