//! The host gate of a simulated fleet: the transitions of the embedded one behind the marks of the one in Redis, by the
//! server's own clock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use common::host::{HostKey, HostLimits};
use common::host_gate::state::GateState;
use common::host_gate::{
    AcquireRequest, Acquired, ExtraRequest, GateError, GateUpkeep, HostGate, LoadMark, Permit, Release, Reservation,
    ReserveRequest, Ticket,
};
use common::time::{Clock, Timestamp, clocks_agree};

use crate::life::{Kind, Server};
use crate::line::Line;
use crate::world::Sabotage;

/// The server.
pub(crate) struct GateServer(Mutex<Memory>);

struct Memory {
    state: GateState,
    rules: Option<String>,
    /// How often its memory was lost: a loading of an earlier time opens nothing.
    losses: u64,
    /// Nothing opens it before: requests from before the loss may be out.
    opens: Timestamp,
    copy: Option<GateState>,
}

impl GateServer {
    pub(crate) fn new() -> Self {
        let state = GateState::new(Timestamp::EPOCH);
        GateServer(Mutex::new(Memory { state, rules: None, losses: 0, opens: Timestamp::EPOCH, copy: None }))
    }

    /// Keeps a copy of what it knows.
    pub(crate) fn copy(&self) {
        let mut memory = common::lock(&self.0);
        memory.copy = Some(memory.state.clone());
    }

    /// Loses its memory: it is empty, or what the last copy has.
    pub(crate) fn lose(&self, restored: bool, now: Timestamp, deadline: Duration) {
        let mut memory = common::lock(&self.0);
        let last_number = memory.state.last_number;
        let mut state = memory.copy.clone().filter(|_| restored).unwrap_or_else(|| GateState::new(now));
        // Tickets issued before the loss are useless after it.
        (state.born, state.open, state.last_number) = (now, false, last_number);
        memory.state = state;
        (memory.rules, memory.losses, memory.opens) = (None, memory.losses + 1, now.after(deadline));
    }
}

/// The gate as one process sees it.
pub(crate) struct Gate {
    pub(crate) line: Line,
    pub(crate) server: Arc<GateServer>,
}

fn lost() -> GateError {
    GateError::Backend { action: "be used by this process", source: "no answer".into() }
}

impl Gate {
    async fn call<T: Send + 'static>(
        &self,
        name: &'static str,
        run: impl FnOnce(&mut Memory, Timestamp) -> T + Send + 'static,
    ) -> Result<T, GateError> {
        let (server, world) = (Arc::clone(&self.server), Arc::clone(&self.line.world));
        self.line.call(name, lost, move || Ok(run(&mut common::lock(&server.0), world.now()))).await
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
        let acquire = move |memory: &mut Memory, now: Timestamp| {
            if now > gives_up { Acquired::NotNow { until: now } } else { memory.state.acquire(&request, now) }
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
        if release.remember_until.is_none() && self.line.world.undone().starts.contains(&permit.nonce) {
            return Ok(());
        }
        let next_start_in = release.next_start_in.filter(|_| !self.line.world.is_sabotaged(Sabotage::NoGap));
        let release = Release { next_start_in, ..release };
        self.call("release", move |memory, now| memory.state.release(&permit, release, now)).await
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
                world.judge().hold_is_known(host);
                // As in hold.lua: for a length of time by this server's clock.
                memory.state.hold(host, now.after(until.since(asked)), now);
            }
        };
        let held = self.call("hold", hold).await;
        if drops && held.is_err() {
            self.line.world.undone().holds.extend(asked_for);
        }
        held
    }

    async fn block(&self, host: &HostKey, until: Option<Timestamp>, _: Timestamp) -> Result<(), GateError> {
        let host = host.clone();
        self.call("block", move |memory, now| memory.state.block(&host, until, now)).await
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
        let begin = |memory: &mut Memory, now: Timestamp| {
            (!memory.state.open).then(|| LoadMark(format!("{} {}", memory.losses, now.millis())))
        };
        self.call("begin_loading", begin).await
    }

    async fn open(&self, mark: &LoadMark, _: Timestamp) -> Result<bool, GateError> {
        let mark = mark.0.clone();
        let open = move |memory: &mut Memory, _: Timestamp| {
            let (losses, begun) = mark.split_once(' ').expect("a mark of begin_loading");
            let fits = losses.parse() == Ok(memory.losses)
                && begun.parse().is_ok_and(|begun: i64| begun >= memory.opens.millis());
            memory.state.open |= fits;
            fits
        };
        self.call("open", open).await
    }

    async fn open_new(&self, _: Timestamp) -> Result<(), GateError> {
        self.call("open_new", |memory, _| (memory.state.open, memory.state.born) = (true, Timestamp::EPOCH)).await
    }

    async fn check(&self, clock: &dyn Clock) -> Result<(), GateError> {
        let before = clock.now();
        let theirs = self.call("check", |_, now| now).await?;
        // It read its clock somewhere between the question and the answer.
        clocks_agree(theirs.clamp(before, clock.now().max(before)), theirs)
            .map_err(|error| GateError::Backend { action: "be used by this clock", source: error.into() })
    }

    async fn held(&self, _: Timestamp) -> Result<usize, GateError> {
        self.call("held", |memory, now| memory.state.hosts.values().filter(|host| host.is_held(now)).count()).await
    }
}
