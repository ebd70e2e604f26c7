//! The limits at each target host: concurrent requests, and the gap between their starts.
//!
//! The store gives all subscriptions to one target host to one scheduler, so these are the fleet's limits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{MutexGuard, Semaphore, SemaphorePermit};
use tokio::time::Instant;
use url::Url;

use super::lanes::Way;

/// The hosts of all subscriptions that this process holds.
#[derive(Default)]
pub(super) struct Targets(HashMap<String, Weak<Target>>);

/// A host.
pub(super) struct Target {
    slots: Semaphore,
    gap: Duration,
    next: Mutex<Instant>,
    /// One subscription at a time waits for a slot of each lane.
    turns: [tokio::sync::Mutex<()>; 3],
}

impl Targets {
    /// Returns the host of this URL, the same one for all who have it.
    pub(super) fn of(&mut self, url: &Url, parallel: usize, gap: Duration) -> Arc<Target> {
        let port = url.port_or_known_default().unwrap_or(0);
        let name = format!("{}:{port}", url.host_str().unwrap_or_default());
        if let Some(known) = self.0.get(&name).and_then(Weak::upgrade) {
            return known;
        }
        let slots = Semaphore::new(parallel.max(1));
        // Another scheduler may have sent to this host just before.
        let next = Mutex::new(Instant::now() + gap);
        let target = Arc::new(Target { slots, gap, next, turns: Default::default() });
        self.0.insert(name, Arc::downgrade(&target));
        target
    }

    /// Forgets hosts that nobody has any more.
    pub(super) fn forget_unused(&mut self) {
        self.0.retain(|_, target| target.strong_count() > 0);
    }
}

impl Target {
    /// Waits for the turn to wait for a slot of a lane.
    pub(super) async fn turn(&self, way: Way) -> MutexGuard<'_, ()> {
        self.turns[way as usize].lock().await
    }

    /// Waits until a request may start. Another one may be faster: see [`Target::start`].
    pub(super) async fn ready(&self) {
        drop(self.slots.acquire().await);
        let next = *common::lock(&self.next);
        tokio::time::sleep_until(next).await;
    }

    /// Starts a request in one of the slots, unless all are taken or the gap after the last start has not passed.
    pub(super) fn start(&self) -> Option<SemaphorePermit<'_>> {
        let slot = self.slots.try_acquire().ok()?;
        let mut next = common::lock(&self.next);
        let now = Instant::now();
        if *next > now {
            return None;
        }
        *next = now + self.gap;
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_to_one_host_start_a_gap_apart_whatever_their_paths() {
        let gap = Duration::from_millis(100);
        let mut targets = Targets::default();
        let of = |targets: &mut Targets, url: &str| targets.of(&url.parse().unwrap(), 2, gap);
        let one = of(&mut targets, "https://a.example/one");
        assert!(Arc::ptr_eq(&one, &of(&mut targets, "https://A.example:443/two")));
        assert!(!Arc::ptr_eq(&one, &of(&mut targets, "http://a.example/one")));
        let begun = Instant::now();
        for _ in 0..3 {
            while one.start().is_none() {
                one.ready().await;
            }
        }
        assert!(begun.elapsed() >= 3 * gap, "the first waits too");
        one.ready().await;
        let slots = [one.start(), {
            tokio::time::sleep(gap).await;
            one.start()
        }];
        tokio::time::sleep(gap).await;
        assert!(slots.iter().all(Option::is_some) && one.start().is_none(), "two at a time");
        drop(slots);
        drop(one);
        targets.forget_unused();
        assert!(targets.0.is_empty());
    }
}
