//! The host gate of a simulated fleet: the transitions of the embedded one behind the marks of the one in Redis, by the
//! server's own clock.

mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use common::host::{HostKey, HostLimits};
use common::host_gate::{
    AcquireRequest, Acquired, ExtraRequest, GateError, GateUpkeep, HostGate, Isolation, LoadMark, Permit, Release,
    Reservation, ReserveRequest, Ticket,
};
use common::time::{Clock, Timestamp, clocks_agree};
use tokio::time::Instant;

use crate::life::{Kind, Server};
use crate::line::Line;
use crate::world::Sabotage;

use server::Memory;

pub(crate) use server::GateServer;

/// The gate as one process sees it.
pub(crate) struct Gate {
    pub(crate) line: Line,
    pub(crate) server: Arc<GateServer>,
    /// The newest generation of the gate that this process has seen.
    seen: Arc<AtomicI64>,
}

fn lost() -> GateError {
    GateError::Backend { action: "be used by this process", source: "no answer".into() }
}

impl Gate {
    pub(crate) fn new(line: Line, server: Arc<GateServer>) -> Self {
        Gate { line, server, seen: Arc::default() }
    }

    /// Makes a call of a process that knows what it has seen.
    async fn call<T: Send + 'static>(
        &self,
        name: &'static str,
        run: impl FnOnce(&mut Memory, Timestamp) -> T + Send + 'static,
    ) -> Result<T, GateError> {
        self.call_seeing(name, |memory, _, now| run(memory, now)).await
    }

    /// The same, of a call that uses the newest generation that the process has seen.
    async fn call_seeing<T: Send + 'static>(
        &self,
        name: &'static str,
        run: impl FnOnce(&mut Memory, i64, Timestamp) -> T + Send + 'static,
    ) -> Result<T, GateError> {
        let (server, world, seen) = (Arc::clone(&self.server), Arc::clone(&self.line.world), self.seen());
        let term = server.term();
        let keeps_old_mark = world.is_sabotaged(Sabotage::KeepsOldMark);
        let call = move |memory: &mut Memory| {
            memory.look(seen, keeps_old_mark);
            run(memory, seen, world.now())
        };
        self.line.call(name, lost, move || server.call(term, call).ok_or_else(lost)).await
    }

    /// Makes a call that writes something that a server that was the gate before would lack.
    async fn write(
        &self,
        name: &'static str,
        run: impl FnOnce(&mut Memory, Timestamp) + Send + 'static,
    ) -> Result<(), GateError> {
        let without = [Sabotage::ForgetsWrites, Sabotage::ForgetsLoadings, Sabotage::KeepsOldMark];
        if without.iter().any(|by| self.line.world.is_sabotaged(*by)) {
            return self.call(name, run).await;
        }
        let write = |memory: &mut Memory, seen, now| {
            run(memory, now);
            memory.written(seen, now)
        };
        let generation = self.call_seeing(name, write).await?;
        self.note_generation(generation);
        Ok(())
    }

    fn seen(&self) -> i64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Remembers a generation: an older one counts as lost from here on.
    fn note_generation(&self, generation: i64) {
        if !self.line.world.is_sabotaged(Sabotage::NoGenerations) {
            self.seen.fetch_max(generation, Ordering::Relaxed);
        }
    }

    /// Returns a host's limits as this gate has them.
    fn limits(&self, mut limits: HostLimits) -> HostLimits {
        let world = &self.line.world;
        if world.is_sabotaged(Sabotage::NoGap) {
            limits.gap = Duration::ZERO;
        }
        if world.is_sabotaged(Sabotage::NoLimit) {
            (limits.parallel, limits.burst) = (9, 9);
        }
        limits
    }
}

#[async_trait]
impl HostGate for Gate {
    async fn reserve(&self, requests: &[ReserveRequest], _: Timestamp) -> Result<Vec<Reservation>, GateError> {
        let requests = requests.to_vec();
        let requests: Vec<_> = requests
            .into_iter()
            .map(|request| ReserveRequest { limits: self.limits(request.limits), ..request })
            .collect();
        let reserve = move |memory: &mut Memory, now: Timestamp| {
            memory.state.sweep(now);
            requests.iter().map(|request| memory.state.reserve(request, now)).collect()
        };
        self.call("reserve", reserve).await
    }

    async fn acquire(&self, request: &AcquireRequest, _: Timestamp) -> Result<Acquired, GateError> {
        // As in acquire.lua: a caller that gave up waiting is granted nothing.
        let gives_up = self.line.world.now().after(Server::Gate.patience());
        let (mut request, nonce) = (request.clone(), request.nonce);
        request.limits = self.limits(request.limits);
        let (world, life) = (Arc::clone(&self.line.world), Arc::clone(&self.line.life));
        let acquire = move |memory: &mut Memory, now: Timestamp| {
            if now > gives_up {
                return Acquired::NotNow { until: now };
            }
            let acquired = memory.state.acquire(&request, now);
            if matches!(acquired, Acquired::Granted(_)) {
                world.judge().granted(&life, request.feed, request.isolation == Isolation::Alone, now);
            }
            acquired
        };
        let acquired = self.call("acquire", acquire).await;
        if acquired.is_err() && self.line.world.is_sabotaged(Sabotage::KeepsStarts) {
            self.line.world.undone().starts.insert(nonce);
        }
        acquired
    }

    async fn acquire_extra(
        &self,
        request: &ExtraRequest<'_>,
        _: Timestamp,
    ) -> Result<Result<Permit, Timestamp>, GateError> {
        let (host, limits, deadline) = (request.host.clone(), request.limits, request.deadline);
        let during = request.during.cloned();
        let acquire = move |memory: &mut Memory, now: Timestamp| {
            let request = ExtraRequest { host: &host, limits, during: during.as_ref(), deadline };
            memory.state.acquire_extra(&request, now)
        };
        self.call("acquire_extra", acquire).await
    }

    async fn release(&self, permit: &Permit, release: Release, _: Timestamp) -> Result<(), GateError> {
        let permit = permit.clone();
        if release.remembered.is_none() && self.line.world.undone().starts.contains(&permit.nonce) {
            return Ok(());
        }
        let next_start_in = release.next_start_in.filter(|_| !self.line.world.is_sabotaged(Sabotage::NoGap));
        let release = Release { next_start_in, ..release };
        let (world, life) = (Arc::clone(&self.line.world), Arc::clone(&self.line.life));
        let release = move |memory: &mut Memory, now: Timestamp| {
            memory.state.release(&permit, release, now);
            permit.feed.into_iter().for_each(|feed| world.judge().released(&life, feed));
        };
        self.write("release", release).await
    }

    async fn cancel(&self, host: &HostKey, ticket: Ticket, _: Timestamp) -> Result<(), GateError> {
        let host = host.clone();
        self.call("cancel", move |memory, _| memory.state.cancel(&host, ticket)).await
    }

    async fn hold(&self, holds: &[(HostKey, Timestamp)], asked: Timestamp) -> Result<(), GateError> {
        if holds.is_empty() || self.line.world.is_sabotaged(Sabotage::NoHolds) {
            return Ok(());
        }
        let drops = self.line.life.kind == Kind::Worker && self.line.world.is_sabotaged(Sabotage::DropsThrottled);
        let mut holds = holds.to_vec();
        holds.retain(|hold| !drops || !self.line.world.undone().holds.contains(hold));
        let asked_for = holds.clone();
        let world = Arc::clone(&self.line.world);
        let hold = move |memory: &mut Memory, now: Timestamp| {
            for (host, until) in &holds {
                world.judge().hold_is_known(host, world.now());
                // As in hold.lua: for a length of time by this server's clock.
                memory.state.hold(host, now.after(until.since(asked)), now);
            }
        };
        let held = self.write("hold", hold).await;
        if drops && held.is_err() {
            self.line.world.undone().holds.extend(asked_for);
        }
        held
    }

    async fn block(&self, host: &HostKey, until: Option<Timestamp>, _: Timestamp) -> Result<(), GateError> {
        let host = host.clone();
        self.write("block", move |memory, now| memory.state.block(&host, until, now)).await
    }
}

#[async_trait]
impl GateUpkeep for Gate {
    async fn show_rules(&self, rules: &str) -> Result<(), GateError> {
        let rules = rules.to_owned();
        self.call("show_rules", move |memory, _| memory.rules = Some(rules)).await
    }

    async fn shown_rules(&self, known: Option<&str>) -> Result<Option<String>, GateError> {
        let known = known.map(str::to_owned);
        self.call("shown_rules", move |memory, _| memory.rules.clone().filter(|rules| Some(rules) != known.as_ref()))
            .await
    }

    async fn begin_loading(&self, _: Timestamp) -> Result<Option<LoadMark>, GateError> {
        let deadline = self.line.world.config.fetch.deadline();
        let hides =
            [Sabotage::HidesLoadings, Sabotage::ForgetsLoadings].iter().any(|by| self.line.world.is_sabotaged(*by));
        let begin = move |memory: &mut Memory, seen, now| memory.begin_loading(seen, deadline, hides, now);
        let (mark, generation) = self.call_seeing("begin_loading", begin).await?;
        if mark.is_none() || !self.line.world.is_sabotaged(Sabotage::ForgetsLoadings) {
            self.note_generation(generation);
        }
        Ok(mark)
    }

    async fn open(&self, mark: &LoadMark, _: Timestamp) -> Result<bool, GateError> {
        let (mark, world) = (mark.clone(), Arc::clone(&self.line.world));
        let open = move |memory: &mut Memory, seen, _: Timestamp| {
            let opened = memory.open(&mark, seen);
            if opened.is_some() {
                world.judge().gate_opened(world.now());
            }
            opened
        };
        let opened = self.call_seeing("open", open).await?;
        if let Some(generation) = opened {
            self.note_generation(generation);
        }
        Ok(opened.is_some())
    }

    async fn open_new(&self, _: Timestamp) -> Result<(), GateError> {
        let opened = self.call_seeing("open_new", server::Memory::open_new).await?;
        self.note_generation(opened);
        Ok(())
    }

    async fn check(&self, clock: &dyn Clock) -> Result<(), GateError> {
        let (before, asked) = (clock.now(), Instant::now());
        let (theirs, generation) = self.call("check", |memory, now| (now, memory.last_generation())).await?;
        self.note_generation(generation);
        if self.line.world.is_sabotaged(Sabotage::AnyClock) {
            return Ok(());
        }
        // It read its clock somewhere between the question and the answer.
        clocks_agree(theirs.clamp(before, before.after(asked.elapsed())), theirs)
            .map_err(|error| GateError::Backend { action: "be used by this clock", source: error.into() })
    }

    async fn held(&self, _: Timestamp) -> Result<usize, GateError> {
        self.call("held", |memory, now| memory.state.hosts.values().filter(|host| host.is_held(now)).count()).await
    }
}
