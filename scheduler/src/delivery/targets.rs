//! The limits at each target host: concurrent requests, the gap between their starts, and how often a host that refuses receives a request.
//!
//! The store gives all subscriptions to one target host to one scheduler, so these are the fleet's limits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use common::time::Timestamp;
use rand::RngExt;
use tokio::sync::{MutexGuard, Semaphore, SemaphorePermit};
use tokio::time::Instant;
use url::Url;

use super::backoff::next_try;
use super::lanes::Way;
use crate::ops::hub::CONFIRMED_WITHIN;

/// First requests that a host may refuse in a row before further ones wait.
pub(super) const REFUSALS: u32 = 20;
/// How long they wait at most. Others with callbacks on the host wait too: of the 50 that may wait, each has its turn before it is
/// forgotten.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// How long a refusal counts.
const REMEMBERED: Duration = Duration::from_secs(600);

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

/// Hosts whose callbacks refused first requests to the hub. Anybody can make such requests in their name, again and again.
#[derive(Default)]
pub(super) struct Refusals(Mutex<HashMap<String, Refusal>>);

struct Refusal {
    in_a_row: u32,
    last: Timestamp,
    /// Until then no other first request is sent to the host.
    until: Timestamp,
}

impl Refusals {
    /// Notes whether a callback confirmed a subscription.
    pub(super) fn note(&self, callback: &Url, has_confirmed: bool, now: Timestamp) {
        let host = callback.host_str().unwrap_or_default();
        let mut hosts = common::lock(&self.0);
        if has_confirmed {
            hosts.remove(host);
            return;
        }
        hosts.retain(|_, refusal| refusal.last.after(REMEMBERED) > now);
        let refusal = hosts.entry(host.to_owned()).or_insert(Refusal { in_a_row: 0, last: now, until: now });
        (refusal.in_a_row, refusal.last) = (refusal.in_a_row.saturating_add(1), now);
        if let failures @ 1.. = refusal.in_a_row.saturating_sub(REFUSALS) {
            let next = next_try(failures, None, rand::rng().random(), now);
            refusal.until = next.min(now.after(LONGEST_WAIT));
        }
    }

    /// Returns until when a first request to this callback waits that is forgotten at `ends`. Of those that wait the oldest is the next:
    /// each waits up to a second longer, the longer the more time it has left.
    pub(super) fn wait(&self, callback: &Url, ends: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let until = common::lock(&self.0).get(callback.host_str().unwrap_or_default())?.until;
        let share = ends.since(now).as_secs_f64() / CONFIRMED_WITHIN.as_secs_f64();
        (until > now).then(|| until.after(Duration::from_secs(1).mul_f64(share.min(1.0))))
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

    #[test]
    fn a_host_that_keeps_refusing_is_asked_ever_more_rarely_until_it_confirms() {
        let (refusals, now) = (Refusals::default(), Timestamp::from_millis(1_790_000_000_000));
        let of = |number: u32| format!("https://s.example/{number}").parse::<Url>().unwrap();
        let wait = |url: &Url, now: Timestamp| refusals.wait(url, now.after(CONFIRMED_WITHIN), now);
        for number in 0..REFUSALS {
            refusals.note(&of(number), false, now);
        }
        assert_eq!(wait(&of(99), now), None, "somebody may try some times");
        let mut waits = Vec::new();
        for number in 0..10 {
            refusals.note(&of(number), false, now);
            waits.push(wait(&of(99), now).unwrap().since(now));
        }
        let seconds = |number: u64| Duration::from_secs(number);
        assert!(waits[0] < seconds(3) && waits[3] > seconds(5), "{waits:?}");
        assert!(waits[9] >= LONGEST_WAIT && waits[9] <= LONGEST_WAIT + seconds(1), "{waits:?}");
        let seconds_left = |left: u64| refusals.wait(&of(99), now.after(seconds(left)), now).unwrap();
        assert!(seconds_left(60) < seconds_left(70), "the oldest is the next");
        let other: Url = "https://t.example/".parse().unwrap();
        assert_eq!(wait(&other, now), None);
        let later = now.after(LONGEST_WAIT);
        assert_eq!(wait(&of(99), later), None);
        refusals.note(&of(98), false, later);
        assert!(wait(&of(99), later).is_some());
        refusals.note(&of(98), true, later);
        assert_eq!(wait(&of(99), later), None);
        refusals.note(&of(98), false, later);
        refusals.note(&other, false, later.after(REMEMBERED));
        assert_eq!(common::lock(&refusals.0).len(), 1, "it is forgotten");
    }

    #[tokio::test(start_paused = true)]
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
