//! Faults at chosen calls of a seam, for tests: a gate or a queue that fails, is late, or loses its answer at call number k.
//!
//! Calls are counted from zero over everything that shares one [`Faults`], so that a test can run the same life once for
//! each k.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use crate::host::HostKey;
use crate::host_gate::{
    AcquireRequest, Acquired, ExtraRequest, GateError, GateUpkeep, HostGate, LoadMark, Permit, Release, Reservation,
    ReserveRequest, Ticket,
};
use crate::queue::{Delivery, Message, Queue, QueueDepth, QueueError};
use crate::time::{Clock, Timestamp};

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails and has no effect.
    Before,
    /// It takes effect, and its answer is lost.
    After,
    /// It takes effect and answers, but only after this time.
    Late(Duration),
    /// It fails after this time, as an unanswered call does.
    Silent(Duration),
}

/// Which calls fail, and how.
#[derive(Debug, Default)]
pub struct Faults {
    calls: AtomicUsize,
    planned: Mutex<BTreeMap<usize, Fault>>,
    struck: Mutex<Vec<(usize, &'static str, Fault)>>,
    away: Mutex<HashSet<HostKey>>,
}

impl Faults {
    /// These calls fail.
    pub fn at(planned: impl IntoIterator<Item = (usize, Fault)>) -> Arc<Self> {
        Arc::new(Faults { planned: Mutex::new(planned.into_iter().collect()), ..Faults::default() })
    }

    /// Returns the number of calls so far.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Returns the faults that struck so far: the call's number, its name, and what happened.
    pub fn struck(&self) -> Vec<(usize, &'static str, Fault)> {
        crate::lock(&self.struck).clone()
    }

    /// The part of a gate that keeps these hosts is away, as one master of several may be; the part of all others answers.
    pub fn part_away(&self, hosts: impl IntoIterator<Item = HostKey>) {
        *crate::lock(&self.away) = hosts.into_iter().collect();
    }

    fn is_away(&self, host: &HostKey) -> bool {
        crate::lock(&self.away).contains(host)
    }

    async fn around<T, E>(
        &self,
        name: &'static str,
        error: impl FnOnce() -> E,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        let fault = crate::lock(&self.planned).get(&number).copied();
        let Some(fault) = fault else { return call.await };
        crate::lock(&self.struck).push((number, name, fault));
        match fault {
            Fault::Before => Err(error()),
            Fault::After => {
                call.await?;
                Err(error())
            }
            Fault::Late(by) => {
                tokio::time::sleep(by).await;
                call.await
            }
            Fault::Silent(time) => {
                tokio::time::sleep(time).await;
                Err(error())
            }
        }
    }
}

/// A seam with faults in front of it.
pub struct Faulty<Seam: ?Sized> {
    seam: Arc<Seam>,
    faults: Arc<Faults>,
}

impl<Seam: ?Sized> Faulty<Seam> {
    /// Wraps the seam.
    pub fn new(seam: Arc<Seam>, faults: &Arc<Faults>) -> Self {
        Faulty { seam, faults: Arc::clone(faults) }
    }
}

fn gate_error() -> GateError {
    GateError::Backend { action: "be used by this test", source: "a planned fault".into() }
}

fn part_error() -> GateError {
    GateError::PartAway { action: "be used by this test", source: "its server is away".into() }
}

fn queue_error() -> QueueError {
    QueueError::backend("be used by this test", "a planned fault")
}

#[async_trait]
impl HostGate for Faulty<dyn HostGate> {
    async fn reserve(&self, requests: &[ReserveRequest], now: Timestamp) -> Result<Vec<Reservation>, GateError> {
        self.faults.around("reserve", gate_error, self.seam.reserve(requests, now)).await
    }

    async fn acquire(&self, request: &AcquireRequest, now: Timestamp) -> Result<Acquired, GateError> {
        self.faults.around("acquire", gate_error, self.seam.acquire(request, now)).await
    }

    async fn acquire_extra(
        &self,
        request: &ExtraRequest<'_>,
        now: Timestamp,
    ) -> Result<Result<Permit, Timestamp>, GateError> {
        self.faults.around("acquire_extra", gate_error, self.seam.acquire_extra(request, now)).await
    }

    async fn release(&self, permit: &Permit, release: Release, now: Timestamp) -> Result<(), GateError> {
        if self.faults.is_away(&permit.host) {
            return Err(part_error());
        }
        self.faults.around("release", gate_error, self.seam.release(permit, release, now)).await
    }

    async fn cancel(&self, host: &HostKey, ticket: Ticket, now: Timestamp) -> Result<(), GateError> {
        self.faults.around("cancel", gate_error, self.seam.cancel(host, ticket, now)).await
    }

    async fn hold(&self, holds: &[(HostKey, Timestamp)], now: Timestamp) -> Result<(), GateError> {
        let (away, holds): (Vec<_>, Vec<_>) = holds.iter().cloned().partition(|(host, _)| self.faults.is_away(host));
        self.faults.around("hold", gate_error, self.seam.hold(&holds, now)).await?;
        if away.is_empty() { Ok(()) } else { Err(part_error()) }
    }

    async fn block(&self, host: &HostKey, until: Option<Timestamp>, now: Timestamp) -> Result<(), GateError> {
        self.faults.around("block", gate_error, self.seam.block(host, until, now)).await
    }
}

#[async_trait]
impl GateUpkeep for Faulty<dyn HostGate> {
    async fn show_rules(&self, rules: &str) -> Result<(), GateError> {
        self.faults.around("show_rules", gate_error, self.seam.show_rules(rules)).await
    }

    async fn shown_rules(&self, known: Option<&str>) -> Result<Option<String>, GateError> {
        self.faults.around("shown_rules", gate_error, self.seam.shown_rules(known)).await
    }

    async fn begin_loading(&self, now: Timestamp) -> Result<Option<LoadMark>, GateError> {
        self.faults.around("begin_loading", gate_error, self.seam.begin_loading(now)).await
    }

    async fn open(&self, mark: &LoadMark, now: Timestamp) -> Result<bool, GateError> {
        self.faults.around("open", gate_error, self.seam.open(mark, now)).await
    }

    async fn open_new(&self, now: Timestamp) -> Result<(), GateError> {
        self.faults.around("open_new", gate_error, self.seam.open_new(now)).await
    }

    async fn check(&self, clock: &dyn Clock) -> Result<(), GateError> {
        self.faults.around("check", gate_error, self.seam.check(clock)).await
    }

    async fn held(&self, now: Timestamp) -> Result<usize, GateError> {
        self.faults.around("held", gate_error, self.seam.held(now)).await
    }
}

#[async_trait]
impl<T: Message> Queue<T> for Faulty<dyn Queue<T>> {
    async fn publish(&self, items: &[T]) -> Result<(), QueueError> {
        self.faults.around("publish", queue_error, self.seam.publish(items)).await
    }

    async fn receive(&self) -> Result<Delivery<T>, QueueError> {
        self.faults.around("receive", queue_error, self.seam.receive()).await
    }

    async fn pause(&self) {
        self.seam.pause().await;
    }

    async fn depth(&self) -> Result<QueueDepth, QueueError> {
        self.faults.around("depth", queue_error, self.seam.depth()).await
    }

    async fn check(&self) -> Result<(), QueueError> {
        self.faults.around("check", queue_error, self.seam.check()).await
    }
}
