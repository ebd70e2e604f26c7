//! One life of a process: from its start to its end or its death. What it has in hand returns when it dies.

use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use common::queue::Receipt;
use common::time::{Clock, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;

/// What kind of process it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Scheduler,
    Worker,
}

/// The servers that processes use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Server {
    Store,
    Schedule,
    Gate,
    Queue,
    /// Where feeds are.
    Origin,
}

impl Server {
    /// The fleet's own.
    pub(crate) const ALL: [Server; 4] = [Server::Store, Server::Schedule, Server::Gate, Server::Queue];

    /// Returns how long its client waits for an answer before it gives up, as the real one does.
    pub(crate) fn patience(self) -> Duration {
        match self {
            Server::Store => Duration::from_secs(5),
            Server::Schedule | Server::Gate => Duration::from_secs(2),
            Server::Queue | Server::Origin => Duration::from_secs(3),
        }
    }
}

/// A message in a process's hands; empty once it was acked or has gone back.
pub(crate) type Held = Arc<Slot>;
type Slot = Mutex<Option<Box<dyn Receipt>>>;

/// One life of one process.
pub(crate) struct Life {
    pub(crate) kind: Kind,
    /// Which process of its kind.
    pub(crate) place: usize,
    /// Which life of all.
    pub(crate) number: u32,
    pub(crate) clock: SimulatedClock,
    state: Mutex<State>,
    /// Whether the way to each server is there.
    ways: [watch::Sender<bool>; 5],
    held: Mutex<Vec<Weak<Slot>>>,
    /// Connections that are of no more use and are kept.
    pub(crate) stuck: Mutex<Vec<Server>>,
}

#[derive(Default)]
struct State {
    dead: bool,
    paused_until: Option<Instant>,
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.kind == Kind::Scheduler { "scheduler" } else { "worker" };
        write!(f, "{kind} {} (life {})", self.place, self.number)
    }
}

impl Life {
    pub(crate) fn new(kind: Kind, place: usize, number: u32, clock: SimulatedClock) -> Arc<Self> {
        let ways = std::array::from_fn(|_| watch::Sender::new(true));
        Arc::new(Life {
            kind,
            place,
            number,
            clock,
            state: Mutex::default(),
            ways,
            held: Mutex::default(),
            stuck: Mutex::default(),
        })
    }

    /// Returns while the process runs: later if it is stopped, never if it is dead.
    pub(crate) async fn running(&self) {
        loop {
            let paused_until = {
                let state = common::lock(&self.state);
                if state.dead { None } else { Some(state.paused_until) }
            };
            match paused_until {
                None => std::future::pending().await,
                Some(Some(until)) if until > Instant::now() => tokio::time::sleep_until(until).await,
                Some(_) => return,
            }
        }
    }

    /// Returns what is wrong with its clock, if it has been running for longer than this since it went wrong.
    pub(crate) fn wrong_clock(&self, within: Duration) -> Option<String> {
        let resumed = common::lock(&self.state).paused_until;
        let since = self.clock.off_since()?;
        let off = resumed.map_or(since, |resumed| resumed.max(since)).elapsed();
        (off > within).then(|| format!("its clock has been {} ms off for {off:?}", self.clock.ahead()))
    }

    pub(crate) fn is_dead(&self) -> bool {
        common::lock(&self.state).dead
    }

    /// Kills it: it does nothing more, and what it has in hand goes back.
    pub(crate) fn kill(&self) {
        common::lock(&self.state).dead = true;
        self.return_held();
    }

    /// Stops it for this long, as SIGSTOP does.
    pub(crate) fn pause(&self, lasts: Duration) {
        common::lock(&self.state).paused_until = Some(Instant::now() + lasts);
    }

    /// Cuts or restores the connection to a server. A broker whose connection is cut redelivers unacknowledged messages
    /// to others.
    pub(crate) fn set_way(&self, server: Server, open: bool) {
        self.ways[server as usize].send_replace(open);
        if server == Server::Queue && !open {
            self.return_held();
        }
    }

    pub(crate) fn has_way(&self, server: Server) -> bool {
        *self.ways[server as usize].borrow()
    }

    pub(crate) async fn way_is(&self, server: Server, open: bool) {
        let mut way = self.ways[server as usize].subscribe();
        // The sender lives as long as this.
        let _ = way.wait_for(|is| *is == open).await;
    }

    /// Notes what it has in hand from now on.
    pub(crate) fn hold(&self, receipt: Box<dyn Receipt>) -> Held {
        let slot: Held = Arc::new(Mutex::new(Some(receipt)));
        let mut held = common::lock(&self.held);
        held.retain(|other| other.strong_count() > 0);
        held.push(Arc::downgrade(&slot));
        slot
    }

    fn return_held(&self) {
        for slot in std::mem::take(&mut *common::lock(&self.held)).iter().filter_map(Weak::upgrade) {
            drop(common::lock(&slot).take());
        }
    }
}

/// The time that the simulation begins with.
pub(crate) const EPOCH: i64 = 1_790_000_000_000;

/// The clock of a machine of the simulated world: its time follows tokio's, with an error in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedClock {
    begun: Instant,
    error: Arc<Mutex<ClockError>>,
}

#[derive(Debug, Default)]
struct ClockError {
    ahead: i64,
    /// Since when no process may rely on it.
    off: Option<Instant>,
}

impl SimulatedClock {
    /// Beyond this error nothing may be done by a clock, in milliseconds.
    pub(crate) const TOLERATED: i64 = 1_000;

    /// Returns one that shows the time at which a simulation begins, `ahead` milliseconds off.
    pub(crate) fn new(begun: Instant, ahead: i64) -> Self {
        let clock = SimulatedClock { begun, error: Arc::default() };
        clock.set(ahead);
        clock
    }

    /// Returns another machine's clock, with this error.
    pub(crate) fn other(&self, ahead: i64) -> Self {
        SimulatedClock::new(self.begun, ahead)
    }

    /// Sets it to this error.
    pub(crate) fn set(&self, ahead: i64) {
        let mut error = common::lock(&self.error);
        error.ahead = ahead;
        error.off = (ahead.abs() > Self::TOLERATED).then(|| error.off.unwrap_or_else(Instant::now));
    }

    /// Returns its error.
    pub(crate) fn ahead(&self) -> i64 {
        common::lock(&self.error).ahead
    }

    /// Returns since when its error is beyond what is tolerated.
    pub(crate) fn off_since(&self) -> Option<Instant> {
        common::lock(&self.error).off
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.begun.elapsed().as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(EPOCH + passed + self.ahead())
    }
}
