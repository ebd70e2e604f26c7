//! Which requests may be in flight: half of them are for targets that answered their last request quickly, an eighth
//! for the hub's questions, the rest for the other targets.
//!
//! Each lane has its own slots, its own reads of the store, and its own memory for bodies. A quick target's request
//! that takes long moves over to the slow lane while that has room, and else to the overflow, which has only such
//! requests: many targets that fall silent at the same time leave the quick lane to the others. A stranger can name a
//! callback that does not answer: questions delay no deliveries.

use std::sync::Arc;
use std::time::Duration;

use common::config::DeliveryConfig;
use common::delivery::{DeliveryAnswer, DeliveryRequest};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::sender::{Answering, Sender};

/// A target that needs longer than this is slow.
pub(super) const QUICK: Duration = Duration::from_secs(1);
/// Kilobytes of bodies that are in flight in a lane.
const BODIES: usize = 64 << 10;
/// Subscriptions of a lane that read their events at once.
const READS: usize = 4;

/// The lanes.
pub(super) struct Lanes {
    quick: Lane,
    slow: Lane,
    /// For requests that began in the quick lane. No request starts here.
    overflow: Lane,
    questions: Lane,
}

/// The lane of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Quick,
    Slow,
    /// The hub's verification requests and its notifications of subscribers.
    Question,
}

/// One part of what may be in flight.
pub(super) struct Lane {
    slots: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    reads: Semaphore,
}

/// The right to a request in flight.
pub(super) struct LaneSlot {
    _slot: OwnedSemaphorePermit,
    body: Option<OwnedSemaphorePermit>,
    way: Way,
}

impl Lanes {
    /// Lanes for this number of requests in flight.
    pub(super) fn new(concurrency: usize) -> Self {
        let lane = |slots: usize| Lane {
            slots: Arc::new(Semaphore::new(slots.max(1))),
            bodies: Arc::new(Semaphore::new(BODIES)),
            reads: Semaphore::new(READS),
        };
        let questions = concurrency / 8;
        Lanes {
            quick: lane(concurrency.div_ceil(2)),
            slow: lane(concurrency / 2 - questions),
            overflow: lane(concurrency * DeliveryConfig::OVERFLOW),
            questions: lane(questions),
        }
    }

    pub(super) fn lane(&self, way: Way) -> &Lane {
        match way {
            Way::Quick => &self.quick,
            Way::Slow => &self.slow,
            Way::Question => &self.questions,
        }
    }

    /// Moves a request that takes long out of the quick lane, if there is room elsewhere now; returns whether it is out.
    pub(super) fn slow_down(&self, slot: &mut LaneSlot) -> bool {
        if slot.way == Way::Quick
            && let Some(moved) = self.slow.take_over(slot).or_else(|| self.overflow.take_over(slot))
        {
            *slot = moved;
        }
        slot.way != Way::Quick
    }

    /// Waits for the response. A request that takes long leaves the slots of quick ones as soon as the others have room.
    pub(super) async fn answered(
        &self,
        sender: &Sender,
        request: DeliveryRequest,
        slot: &mut LaneSlot,
    ) -> DeliveryAnswer {
        let mut answering: Answering = (sender.send)(request);
        loop {
            if let Ok(answer) = tokio::time::timeout(QUICK, &mut answering).await {
                return answer;
            }
            if self.slow_down(slot) {
                return answering.await;
            }
        }
    }
}

impl Lane {
    /// Waits for a slot.
    pub(super) async fn enter(&self, way: Way) -> Option<LaneSlot> {
        let slot = Arc::clone(&self.slots).acquire_owned().await.ok()?;
        Some(LaneSlot { _slot: slot, body: None, way })
    }

    /// Takes room for a request that is in flight, if there is some.
    fn take_over(&self, slot: &LaneSlot) -> Option<LaneSlot> {
        let kilobytes = slot.body.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let room = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        let body = Arc::clone(&self.bodies).try_acquire_many_owned(u32::try_from(kilobytes).ok()?).ok()?;
        Some(LaneSlot { _slot: room, body: Some(body), way: Way::Slow })
    }

    /// Waits for the turn to read, which lasts until the body has its room.
    pub(super) async fn reading(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        self.reads.acquire().await.ok()
    }

    /// Waits for room for a body of this size; one that is larger than all of it has all.
    pub(super) async fn hold(&self, slot: &mut LaneSlot, bytes: usize) {
        let kilobytes = u32::try_from((bytes >> 10).clamp(1, BODIES)).unwrap_or(1);
        slot.body = Arc::clone(&self.bodies).acquire_many_owned(kilobytes).await.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn slow_requests_leave_the_slots_of_quick_ones() {
        let lanes = Lanes::new(4);
        let quick = lanes.lane(Way::Quick);
        let mut slots = vec![quick.enter(Way::Quick).await.unwrap(), quick.enter(Way::Quick).await.unwrap()];
        assert_eq!(quick.slots.available_permits(), 0);
        for slot in &mut slots {
            quick.hold(slot, 10 << 10).await;
            assert!(lanes.slow_down(slot));
        }
        assert_eq!((quick.slots.available_permits(), quick.bodies.available_permits()), (2, BODIES));
        assert_eq!((lanes.slow.slots.available_permits(), lanes.slow.bodies.available_permits()), (0, BODIES - 20));
        // What was quick has further room, and what was slow before has none.
        let mut further = Vec::new();
        for _ in 0..4 * DeliveryConfig::OVERFLOW {
            let mut slot = quick.enter(Way::Quick).await.unwrap();
            quick.hold(&mut slot, 1 << 10).await;
            assert!(lanes.slow_down(&mut slot));
            further.push(slot);
        }
        assert_eq!(lanes.slow.slots.available_permits(), 0);
        let mut last = quick.enter(Way::Quick).await.unwrap();
        quick.hold(&mut last, BODIES << 10).await;
        assert!(!lanes.slow_down(&mut last));
        assert_eq!(quick.slots.available_permits(), 1, "all is full");
        further.pop();
        assert!(!lanes.slow_down(&mut last), "there is a slot, and no memory for its body");
        drop(slots);
        assert!(lanes.slow_down(&mut last));
        assert_eq!((quick.slots.available_permits(), lanes.slow.bodies.available_permits()), (2, 0));
    }
}
