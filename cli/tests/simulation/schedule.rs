//! The schedule of a simulated fleet: the embedded one, by the server's own clock, and with the marks of one that may lose
//! its memory.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use common::host::HostKey;
use common::redis::ServerError;
use common::time::{Clock, Timestamp, clocks_agree};
use common::url::FeedId;
use futures_util::FutureExt;
use scheduler::schedule::memory::MemorySchedule;
use scheduler::schedule::{
    Band, Claim, Depth, Parking, RebuildMark, Schedule, ScheduleError, ScheduleUpkeep, ScheduleView, Slot,
};
use tokio::time::Instant;

use crate::life::Server;
use crate::line::Line;
use crate::world::Sabotage;

/// Two servers, of which one is used.
pub(crate) struct ScheduleServer(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    schedule: Arc<MemorySchedule>,
    /// What the other server has.
    other: Arc<MemorySchedule>,
    /// What waited at the last copy.
    copy: Vec<Slot>,
}

/// What is kept in memory is there at once.
fn ready<T>(call: impl Future<Output = T>) -> T {
    call.now_or_never().expect("a call in memory waits for nothing")
}

impl ScheduleServer {
    pub(crate) fn new() -> Self {
        ScheduleServer(Mutex::default())
    }

    fn schedule(&self) -> Arc<MemorySchedule> {
        Arc::clone(&common::lock(&self.0).schedule)
    }

    /// Keeps a copy of what waits.
    pub(crate) fn copy(&self) {
        let waiting = ready(self.schedule().waiting(None, 1_000_000)).expect("in memory");
        let slot = |(due_at, feed)| Slot { feed, due_at, band: Band::Steady };
        common::lock(&self.0).copy = waiting.into_iter().map(slot).collect();
    }

    /// Loses its memory: it is empty, or what the last copy has.
    pub(crate) fn lose(&self, restored: bool, now: Timestamp) {
        let mut memory = common::lock(&self.0);
        memory.schedule = Arc::default();
        if restored {
            ready(memory.schedule.put(&memory.copy, now)).expect("in memory");
        }
    }

    /// Fails over to the other server, which has what was in the last copy.
    pub(crate) fn fail_over(&self, now: Timestamp) {
        let before = self.schedule();
        self.lose(true, now);
        common::lock(&self.0).other = before;
    }

    /// Fails back to the other server, which was cut off meanwhile and has what it had.
    pub(crate) fn fail_back(&self) {
        let mut memory = common::lock(&self.0);
        let Memory { schedule, other, .. } = &mut *memory;
        std::mem::swap(schedule, other);
    }
}

/// The schedule as one process sees it.
pub(crate) struct SeenSchedule {
    pub(crate) line: Line,
    pub(crate) server: Arc<ScheduleServer>,
}

fn lost() -> ScheduleError {
    let silent = ServerError::Silent(Server::Schedule.patience());
    ScheduleError::Backend { action: "be used by this process", source: silent.into() }
}

impl SeenSchedule {
    async fn call<T: Send + 'static>(
        &self,
        name: &'static str,
        run: impl FnOnce(&MemorySchedule, Timestamp) -> Result<T, ScheduleError> + Send + 'static,
    ) -> Result<T, ScheduleError> {
        let (server, world) = (Arc::clone(&self.server), Arc::clone(&self.line.world));
        let asked = server.schedule();
        let run = move || {
            // Its connection was lost meanwhile.
            if !Arc::ptr_eq(&asked, &server.schedule()) {
                return Err(lost());
            }
            run(&asked, world.now())
        };
        self.line.call(name, lost, run).await
    }
}

#[async_trait]
impl Schedule for SeenSchedule {
    async fn put(&self, slots: &[Slot], _: Timestamp) -> Result<(), ScheduleError> {
        if slots.is_empty() {
            return Ok(());
        }
        let forgetful = self.line.world.is_sabotaged(Sabotage::Forgetful);
        let (kept, forgotten): (Vec<Slot>, Vec<Slot>) =
            slots.iter().partition(|slot| !forgetful || slot.feed.0 % 3 > 0);
        let forgotten: Vec<FeedId> = forgotten.iter().map(|slot| slot.feed).collect();
        let put = move |schedule: &MemorySchedule, now: Timestamp| {
            ready(schedule.remove(&forgotten))?;
            ready(schedule.put(&kept, now))
        };
        self.call("put", put).await
    }

    async fn put_off(&self, slots: &[Slot], _: Timestamp) -> Result<(), ScheduleError> {
        if slots.is_empty() {
            return Ok(());
        }
        let slots = slots.to_vec();
        self.call("put_off", move |schedule, now| ready(schedule.put_off(&slots, now))).await
    }

    async fn lower(&self, slots: &[Slot], _: Timestamp) -> Result<(), ScheduleError> {
        if slots.is_empty() {
            return Ok(());
        }
        let slots = slots.to_vec();
        self.call("lower", move |schedule, now| ready(schedule.lower(&slots, now))).await
    }

    async fn correct(&self, slots: &[Slot], slack: Duration, _: Timestamp) -> Result<usize, ScheduleError> {
        let world = &self.line.world;
        let filled = world.now() > world.begun().after(Duration::from_secs(5));
        let slots = if world.is_sabotaged(Sabotage::Forgetful) && filled { Vec::new() } else { slots.to_vec() };
        self.call("correct", move |schedule, now| ready(schedule.correct(&slots, slack, now))).await
    }

    async fn remove(&self, feeds: &[FeedId]) -> Result<(), ScheduleError> {
        if feeds.is_empty() {
            return Ok(());
        }
        let feeds = feeds.to_vec();
        self.call("remove", move |schedule, _| ready(schedule.remove(&feeds))).await
    }

    async fn claim_due(&self, _: Timestamp, limit: usize, lease: Duration) -> Result<Vec<Claim>, ScheduleError> {
        let early = self.line.world.is_sabotaged(Sabotage::Early);
        let ahead = if early { Duration::from_secs(9) } else { Duration::ZERO };
        let world = Arc::clone(&self.line.world);
        let claim = move |schedule: &MemorySchedule, now: Timestamp| {
            let claims = ready(schedule.claim_due(now.after(ahead), limit, lease))?;
            world.judge().claimed(&claims, now);
            Ok(claims)
        };
        self.call("claim_due", claim).await
    }

    async fn claim_urgent(&self, _: Timestamp, limit: usize, lease: Duration) -> Result<Vec<Claim>, ScheduleError> {
        self.call("claim_urgent", move |schedule, now| ready(schedule.claim_urgent(now, limit, lease))).await
    }

    async fn extend(&self, feeds: &[FeedId], until: Timestamp) -> Result<(), ScheduleError> {
        if feeds.is_empty() {
            return Ok(());
        }
        let feeds = feeds.to_vec();
        let world = &self.line.world;
        if world.is_sabotaged(Sabotage::HidesBriefly) && std::mem::take(&mut world.undone().unconfirmed) {
            return Ok(());
        }
        self.call("extend", move |schedule, _| ready(schedule.extend(&feeds, until))).await
    }

    async fn park(&self, parkings: &[Parking]) -> Result<(), ScheduleError> {
        if parkings.is_empty() {
            return Ok(());
        }
        let parkings = parkings.to_vec();
        self.call("park", move |schedule, _| ready(schedule.park(&parkings))).await
    }

    async fn unpark(&self, hosts: &[(HostKey, Timestamp)]) -> Result<(), ScheduleError> {
        if hosts.is_empty() {
            return Ok(());
        }
        let hosts = hosts.to_vec();
        self.call("unpark", move |schedule, _| ready(schedule.unpark(&hosts))).await
    }
}

#[async_trait]
impl ScheduleUpkeep for SeenSchedule {
    async fn begin_rebuild(&self) -> Result<Option<RebuildMark>, ScheduleError> {
        self.call("begin_rebuild", |schedule, _| ready(schedule.begin_rebuild())).await
    }

    async fn finish_rebuild(&self, mark: &RebuildMark) -> Result<bool, ScheduleError> {
        let mark = mark.clone();
        self.call("finish_rebuild", move |schedule, _| ready(schedule.finish_rebuild(&mark))).await
    }

    async fn check(&self, clock: &dyn Clock) -> Result<(), ScheduleError> {
        let (before, asked) = (clock.now(), Instant::now());
        let theirs = self.call("check", |_, now| Ok(now)).await?;
        if self.line.world.is_sabotaged(Sabotage::AnyClock) {
            return Ok(());
        }
        // It read its clock somewhere between the question and the answer.
        clocks_agree(theirs.clamp(before, before.after(asked.elapsed())), theirs)
            .map_err(|error| ScheduleError::Backend { action: "be used by this clock", source: error.into() })
    }
}

#[async_trait]
impl ScheduleView for SeenSchedule {
    async fn waiting(
        &self,
        after: Option<(Timestamp, FeedId)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, FeedId)>, ScheduleError> {
        self.call("waiting", move |schedule, _| ready(schedule.waiting(after, limit))).await
    }

    async fn waiting_before(
        &self,
        before: Option<(Timestamp, FeedId)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, FeedId)>, ScheduleError> {
        self.call("waiting_before", move |schedule, _| ready(schedule.waiting_before(before, limit))).await
    }

    async fn taken(&self, limit: usize) -> Result<Vec<FeedId>, ScheduleError> {
        self.call("taken", move |schedule, _| ready(schedule.taken(limit))).await
    }

    async fn depth(&self, _: Timestamp) -> Result<Depth, ScheduleError> {
        self.call("depth", |schedule, now| ready(schedule.depth(now))).await
    }
}
