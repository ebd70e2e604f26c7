//! A schedule that counts, and of which a part can be away.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use common::host::HostKey;
use common::time::{Clock, Timestamp};
use common::url::FeedId;

use crate::schedule::memory::MemorySchedule;
use crate::schedule::{
    Claim, Depth, Parking, RebuildMark, Schedule, ScheduleError, ScheduleUpkeep, ScheduleView, Slot,
};

/// The schedule in memory.
#[derive(Default)]
pub(super) struct Watched {
    schedule: MemorySchedule,
    /// How many feeds were parked.
    pub(super) parked: AtomicUsize,
    /// How many hosts were freed.
    pub(super) unparked: AtomicUsize,
    /// The part with the feeds that are brought forward, freed or taken out does not answer.
    pub(super) is_away: AtomicBool,
}

impl Watched {
    fn answer(&self) -> Result<(), ScheduleError> {
        match self.is_away.load(Ordering::Relaxed) {
            true => {
                Err(ScheduleError::PartAway { action: "be used by this test", source: "its server is away".into() })
            }
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Schedule for Watched {
    async fn put(&self, slots: &[Slot], now: Timestamp) -> Result<(), ScheduleError> {
        self.schedule.put(slots, now).await
    }

    async fn put_off(&self, slots: &[Slot], now: Timestamp) -> Result<(), ScheduleError> {
        self.schedule.put_off(slots, now).await
    }

    async fn lower(&self, slots: &[Slot], now: Timestamp) -> Result<(), ScheduleError> {
        self.answer()?;
        self.schedule.lower(slots, now).await
    }

    async fn correct(&self, slots: &[Slot], slack: Duration, now: Timestamp) -> Result<usize, ScheduleError> {
        // The other parts are corrected.
        let corrected = self.schedule.correct(slots, slack, now).await?;
        self.answer().map(|()| corrected)
    }

    async fn remove(&self, feeds: &[FeedId]) -> Result<(), ScheduleError> {
        self.answer()?;
        self.schedule.remove(feeds).await
    }

    async fn claim_due(&self, now: Timestamp, limit: usize, lease: Duration) -> Result<Vec<Claim>, ScheduleError> {
        self.schedule.claim_due(now, limit, lease).await
    }

    async fn claim_urgent(&self, now: Timestamp, limit: usize, lease: Duration) -> Result<Vec<Claim>, ScheduleError> {
        self.schedule.claim_urgent(now, limit, lease).await
    }

    async fn extend(&self, feeds: &[FeedId], until: Timestamp) -> Result<(), ScheduleError> {
        self.schedule.extend(feeds, until).await
    }

    async fn park(&self, parkings: &[Parking]) -> Result<(), ScheduleError> {
        self.parked.fetch_add(parkings.len(), Ordering::Relaxed);
        self.schedule.park(parkings).await
    }

    async fn unpark(&self, hosts: &[(HostKey, Timestamp)]) -> Result<(), ScheduleError> {
        self.unparked.fetch_add(hosts.len(), Ordering::Relaxed);
        // An optimisation: a part that is away is left out.
        if self.answer().is_err() { Ok(()) } else { self.schedule.unpark(hosts).await }
    }
}

#[async_trait]
impl ScheduleUpkeep for Watched {
    async fn check(&self, clock: &dyn Clock) -> Result<(), ScheduleError> {
        self.schedule.check(clock).await
    }

    async fn begin_rebuild(&self) -> Result<Option<RebuildMark>, ScheduleError> {
        self.schedule.begin_rebuild().await
    }

    async fn finish_rebuild(&self, mark: &RebuildMark) -> Result<bool, ScheduleError> {
        self.schedule.finish_rebuild(mark).await
    }
}

#[async_trait]
impl ScheduleView for Watched {
    async fn waiting(
        &self,
        after: Option<(Timestamp, FeedId)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, FeedId)>, ScheduleError> {
        self.schedule.waiting(after, limit).await
    }

    async fn waiting_before(
        &self,
        before: Option<(Timestamp, FeedId)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, FeedId)>, ScheduleError> {
        self.schedule.waiting_before(before, limit).await
    }

    async fn taken(&self, limit: usize) -> Result<Vec<FeedId>, ScheduleError> {
        self.schedule.taken(limit).await
    }

    async fn depth(&self, now: Timestamp) -> Result<Depth, ScheduleError> {
        self.answer()?;
        self.schedule.depth(now).await
    }
}
