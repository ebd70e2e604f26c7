//! What keeps one hub from taking the room of the others: turns at the callbacks, a budget of bytes, and room in the queue.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::url::FeedId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Deliveries in progress at once, in all and of one hub's host: each holds its body in memory.
const TURNS: usize = 64;
const TURNS_OF_HUB: usize = 16;
/// How long a delivery waits for its slot.
const TURN_WAIT: Duration = Duration::from_secs(5);
/// The maximum number of hubs whose turns are kept (idle ones are dropped first), and of budgets (beyond it all start again).
const MOST_HUBS: usize = 1_000;
const MOST_BUDGETS: usize = 100_000;
/// Bytes of deliveries of one feed, and of all feeds of one hub's host, at once and for each second. A large hub announces hundreds of
/// feeds a minute.
const OF_FEED: Budget = Budget { burst: 8.0 * MIB, per_second: MIB / 32.0 };
const OF_HUB: Budget = Budget { burst: 64.0 * MIB, per_second: 2.0 * MIB };
/// What each delivery costs beside its bytes.
const PER_DELIVERY: f64 = 256.0;
const MIB: f64 = 1024.0 * 1024.0;
/// Bytes of deliveries in the queue: a queue of `n` jobs takes only deliveries of up to this divided by `n`.
const QUEUED_BYTES: usize = 64 * 1024 * 1024;
/// What a small delivery counts for there.
const LEAST_BYTES: usize = 8 * 1024;
/// How often the queue's depth is read.
const DEPTH_EVERY: Duration = Duration::from_millis(100);

/// Turns at the callbacks.
pub(super) struct Turns {
    all: Arc<Semaphore>,
    hubs: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A turn; ends when dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _of_hub: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Turns {
    pub(super) fn new() -> Self {
        Turns { all: Arc::new(Semaphore::new(TURNS)), hubs: Mutex::default() }
    }

    /// Waits for a turn of this hub's host; `None`: it takes too long.
    pub(super) async fn take(&self, hub: String) -> Option<Turn> {
        let of_hub = {
            let mut hubs = common::lock(&self.hubs);
            if hubs.len() >= MOST_HUBS {
                hubs.retain(|_, turns| Arc::strong_count(turns) > 1);
            }
            Arc::clone(hubs.entry(hub).or_insert_with(|| Arc::new(Semaphore::new(TURNS_OF_HUB))))
        };
        let taking = async {
            let of_hub = of_hub.acquire_owned().await.ok()?;
            Some(Turn { _of_hub: of_hub, _of_all: Arc::clone(&self.all).acquire_owned().await.ok()? })
        };
        tokio::time::timeout(TURN_WAIT, taking).await.ok()?
    }
}

/// A token bucket's size and pace, in bytes.
#[derive(Clone, Copy)]
struct Budget {
    burst: f64,
    per_second: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Spender {
    Feed(FeedId),
    Hub(String),
}

/// What feeds and hubs have left, and when that was.
pub(super) struct Budgets(Mutex<HashMap<Spender, (f64, Instant)>>);

impl Budgets {
    pub(super) fn new() -> Self {
        Budgets(Mutex::default())
    }

    /// Returns whether a delivery of this size is within the budgets of its feed and its hub; if so, it is spent.
    pub(super) fn take(&self, feed: FeedId, hub: String, bytes: usize, now: Instant) -> bool {
        let mut left = common::lock(&self.0);
        if left.len() >= MOST_BUDGETS {
            left.clear();
        }
        let cost = bytes as f64 + PER_DELIVERY;
        let spenders = [(Spender::Feed(feed), OF_FEED), (Spender::Hub(hub), OF_HUB)];
        let after = spenders.map(|(spender, budget)| {
            let (tokens, at) = left.get(&spender).copied().unwrap_or((budget.burst, now));
            let earned = now.saturating_duration_since(at).as_secs_f64() * budget.per_second;
            (spender, (tokens + earned).min(budget.burst) - cost)
        });
        let is_within = after.iter().all(|(_, tokens)| *tokens >= 0.0);
        if is_within {
            left.extend(after.map(|(spender, tokens)| (spender, (tokens, now))));
        }
        is_within
    }
}

/// Whether the queue of jobs takes a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// It does.
    Free,
    /// It takes smaller ones.
    TooLarge,
    /// It is full.
    Full,
}

/// The queue's depth as it was read last.
#[derive(Clone, Copy)]
pub(super) struct QueueDepth {
    read: Instant,
    items: usize,
}

impl QueueDepth {
    pub(super) fn read(items: usize) -> Self {
        QueueDepth { read: Instant::now(), items }
    }

    pub(super) fn is_old(&self) -> bool {
        self.read.elapsed() >= DEPTH_EVERY
    }

    /// Returns whether a delivery of this size has room in a queue that takes at most `most` jobs; if so, it is
    /// counted.
    pub(super) fn room(&mut self, bytes: usize, most: usize) -> Room {
        if self.items >= most {
            return Room::Full;
        }
        if self.items.saturating_mul(bytes.max(LEAST_BYTES)) > QUEUED_BYTES {
            return Room::TooLarge;
        }
        self.items += 1;
        Room::Free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: usize = 1024 * 1024;

    #[test]
    fn a_feed_and_a_hub_spend_their_budgets_and_earn_them_again() {
        let (budgets, start) = (Budgets::new(), Instant::now());
        let take = |feed, hub: &str, at| budgets.take(FeedId(feed), hub.to_owned(), BODY, at);
        assert_eq!((0..20).filter(|_| take(1, "a", start)).count(), 7, "8 MiB with what each costs beside its bytes");
        assert!(take(2, "a", start), "another feed of the same hub");
        assert_eq!((3..100).filter(|feed| take(*feed, "a", start)).count(), 55, "64 MiB of one hub");
        assert!(take(200, "b", start), "another hub");
        assert!(take(1, "a", start + Duration::from_secs(60)));
    }

    #[test]
    fn a_long_queue_takes_only_small_deliveries_and_a_full_one_none() {
        let mut depth = QueueDepth::read(0);
        let large = (0..200).filter(|_| depth.room(BODY, 5_000) == Room::Free).count();
        assert_eq!((large, depth.room(BODY, 5_000)), (65, Room::TooLarge));
        let small = (0..10_000).filter(|_| depth.room(300, 5_000) == Room::Free).count();
        assert_eq!((small, depth.room(300, 5_000)), (5_000 - 65, Room::Full));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hub_that_keeps_its_turns_leaves_those_of_others() {
        let turns = Turns::new();
        let mut kept = Vec::new();
        while let Some(turn) = turns.take("slow.example".into()).await {
            kept.push(turn);
        }
        assert_eq!(kept.len(), TURNS_OF_HUB);
        assert!(turns.take("other.example".into()).await.is_some());
        drop(kept);
        assert!(turns.take("slow.example".into()).await.is_some());
    }
}
