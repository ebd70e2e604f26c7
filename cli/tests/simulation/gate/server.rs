//! Two servers, of which one is the gate: the state of each, and the marks that show whether it lost its memory, as the scripts of
//! the gate in Redis have them.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use common::host_gate::LoadMark;
use common::host_gate::state::GateState;
use common::time::Timestamp;

/// The servers.
pub(crate) struct GateServer(Mutex<Servers>);

struct Servers {
    both: [Memory; 2],
    /// The one in use.
    used: usize,
    /// The other one was in use before.
    failed_over: bool,
    /// The last process of a server.
    runs: u64,
    /// How often connections to them were lost.
    term: u64,
}

/// What one server has.
#[derive(Clone)]
pub(crate) struct Memory {
    pub(super) state: GateState,
    pub(super) rules: Option<String>,
    /// Its process.
    run: u64,
    open: Option<Mark>,
    loading: Option<Mark>,
    copy: Option<Copy>,
}

#[derive(Clone)]
struct Copy {
    state: GateState,
    open: Option<Mark>,
}

/// The run of a mark that is not valid any more.
const NO_RUN: u64 = 0;

/// The mark of an open gate, or of one that is being loaded.
#[derive(Clone)]
struct Mark {
    run: u64,
    /// Names a loading.
    nonce: u64,
    lost: Timestamp,
    generation: i64,
    /// A loading that begins before opens nothing.
    opens: Timestamp,
}

impl GateServer {
    /// Returns them. The gate is open: it has not lost anything.
    pub(crate) fn new() -> Self {
        let mut first = Memory::new(1);
        first.open_new(0, Timestamp::EPOCH);
        GateServer(Mutex::new(Servers { both: [first, Memory::new(2)], used: 0, failed_over: false, runs: 2, term: 0 }))
    }

    /// Runs a call that was made in this term; `None` when its connection was lost meanwhile.
    pub(super) fn call<T>(&self, term: u64, call: impl FnOnce(&mut Memory) -> T) -> Option<T> {
        let mut servers = self.lock();
        let used = servers.used;
        (servers.term == term).then(|| call(&mut servers.both[used]))
    }

    pub(super) fn term(&self) -> u64 {
        self.lock().term
    }

    fn lock(&self) -> MutexGuard<'_, Servers> {
        common::lock(&self.0)
    }

    /// Keeps a copy of what it knows.
    pub(crate) fn copy(&self) {
        let mut servers = self.lock();
        let used = servers.used;
        let memory = &mut servers.both[used];
        memory.copy = Some(Copy { state: memory.state.clone(), open: memory.open.clone() });
    }

    /// Loses its memory: another process begins with nothing, or with what the last copy has.
    pub(crate) fn lose(&self, restored: bool) {
        let mut servers = self.lock();
        servers.runs += 1;
        let (run, used) = (servers.runs, servers.used);
        let copy = servers.both[used].copy.clone();
        let memory = Memory::restored(run, copy.clone().filter(|_| restored), servers.last_number());
        servers.both[used] = Memory { copy, ..memory };
        servers.term += 1;
    }

    /// Fails over to the other server, which has what was in the last copy, or all of it.
    pub(crate) fn fail_over(&self, lags: bool) {
        let mut servers = self.lock();
        let (used, runs) = (servers.used, servers.runs);
        let from = &servers.both[used];
        let all = Copy { state: from.state.clone(), open: from.open.clone() };
        let copy = from.copy.clone().filter(|_| lags).unwrap_or(all);
        servers.both[1 - used] = Memory::restored(runs + 1, Some(copy), servers.last_number());
        (servers.used, servers.runs, servers.term) = (1 - used, runs + 1, servers.term + 1);
        servers.failed_over = true;
    }

    pub(crate) fn has_failed_over(&self) -> bool {
        self.lock().failed_over
    }

    /// Fails back to the other server, which was cut off meanwhile and has what it had.
    pub(crate) fn fail_back(&self) {
        let mut servers = self.lock();
        let (used, last_number) = (1 - servers.used, servers.last_number());
        (servers.used, servers.term) = (used, servers.term + 1);
        // Tickets and nonces are random numbers: none is issued twice.
        servers.both[used].state.last_number = last_number;
    }
}

impl Servers {
    fn last_number(&self) -> u64 {
        self.both.iter().map(|memory| memory.state.last_number).max().expect("two")
    }
}

impl Memory {
    fn new(run: u64) -> Self {
        let state = GateState::new(Timestamp::EPOCH);
        Memory { state, rules: None, run, open: None, loading: None, copy: None }
    }

    fn restored(run: u64, copy: Option<Copy>, last_number: u64) -> Self {
        let mut memory = Memory::new(run);
        if let Some(Copy { state, open }) = copy {
            (memory.state, memory.open) = (state, open);
        }
        memory.state.last_number = last_number;
        memory
    }

    /// Returns a mark of this process.
    fn own(&self, mark: Option<&Mark>) -> Option<Mark> {
        mark.filter(|mark| mark.run == self.run).cloned()
    }

    /// Returns the newest generation that its memory has, of whichever process.
    pub(super) fn last_generation(&self) -> i64 {
        self.open.as_ref().map_or(0, |mark| mark.generation)
    }

    fn next_generation(&self, seen: i64, now: Timestamp) -> i64 {
        now.millis().max(seen.max(self.last_generation()) + 1)
    }

    /// As `opened` in host.lua: to a caller that saw a newer generation it is closed, and then to all.
    pub(super) fn look(&mut self, seen: i64, keeps_old_mark: bool) {
        let open = self.own(self.open.as_ref());
        let is_old = open.as_ref().is_some_and(|mark| mark.generation < seen);
        if let Some(mark) = self.open.as_mut().filter(|_| is_old && !keeps_old_mark) {
            (mark.run, mark.generation) = (NO_RUN, seen);
        }
        let open = open.filter(|_| !is_old);
        (self.state.open, self.state.born) = (open.is_some(), open.map_or(Timestamp::EPOCH, |mark| mark.lost));
    }

    /// As begin_loading.lua. Returns the mark unless the gate is open, and the generation that it has or will have.
    pub(super) fn begin_loading(
        &mut self,
        seen: i64,
        deadline: Duration,
        hides: bool,
        now: Timestamp,
    ) -> (Option<LoadMark>, i64) {
        let open = self.own(self.open.as_ref());
        if let Some(open) = open.as_ref().filter(|mark| mark.generation >= seen) {
            return (None, open.generation);
        }
        let seen = seen.max(self.last_generation());
        let joined = self.own(self.loading.as_ref()).filter(|loading| loading.generation >= seen);
        let loading = joined.unwrap_or_else(|| {
            self.state.last_number += 1;
            Mark {
                run: self.run,
                nonce: self.state.last_number,
                lost: now,
                generation: self.next_generation(seen, now),
                opens: now.after(deadline),
            }
        });
        let mark = LoadMark(format!("{} {} {}", loading.nonce, now.millis(), loading.generation));
        let generation = loading.generation;
        self.open = Some(Mark { run: NO_RUN, ..loading.clone() }).filter(|_| !hides);
        self.loading = Some(loading);
        (Some(mark), generation)
    }

    /// As `written_generation` in host.lua: what was written here is in this generation.
    pub(super) fn written(&mut self, seen: i64, now: Timestamp) -> i64 {
        if self.state.open {
            return self.last_generation();
        }
        let seen = seen.max(self.last_generation());
        if let Some(loading) = self.own(self.loading.as_ref()).filter(|loading| loading.generation >= seen) {
            return loading.generation;
        }
        let generation = self.next_generation(seen, now);
        let closed = Mark { run: NO_RUN, nonce: 0, lost: now, generation, opens: now };
        self.open = Some(closed);
        generation
    }

    /// As open.lua. Returns the generation that it opened.
    pub(super) fn open(&mut self, mark: &LoadMark, seen: i64) -> Option<i64> {
        let mut words = mark.0.split(' ').map(|word| word.parse::<i64>().expect("a mark of begin_loading"));
        let [nonce, begun, generation] = std::array::from_fn(|_| words.next().expect("three words"));
        let is_it = |mark: &Mark| i64::try_from(mark.nonce) == Ok(nonce);
        if let Some(open) = self.own(self.open.as_ref()) {
            return is_it(&open).then_some(generation);
        }
        let loading =
            self.own(self.loading.as_ref()).filter(|loading| is_it(loading) && begun >= loading.opens.millis())?;
        if loading.generation < seen.max(self.last_generation()) {
            return None;
        }
        (self.open, self.loading) = (Some(loading), None);
        Some(generation)
    }

    /// As open_new.lua. Returns the generation.
    pub(super) fn open_new(&mut self, seen: i64, now: Timestamp) -> i64 {
        if let Some(open) = self.own(self.open.as_ref()).filter(|mark| mark.generation >= seen) {
            return open.generation;
        }
        let generation = self.next_generation(seen, now);
        let lost = Timestamp::EPOCH;
        self.open = Some(Mark { run: self.run, nonce: 0, lost, generation, opens: lost });
        generation
    }
}
