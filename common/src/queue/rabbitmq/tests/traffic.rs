//! Messages that flow while brokers are disrupted, and their outcomes.

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;

use tokio::time::Instant;

use super::*;
use crate::queue::conformance::report;
use crate::report::FetchReport;

/// How long anything may take: far beyond what a loaded machine needs.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// Items that were published and received.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) confirmed: HashSet<i64>,
    pub(super) received: HashSet<i64>,
    pub(super) errors: usize,
}

pub(super) struct Traffic {
    pub(super) queue: RabbitQueue<FetchReport>,
    pub(super) seen: Mutex<Seen>,
    pub(super) over: AtomicBool,
}

impl Traffic {
    pub(super) fn over(queue: RabbitQueue<FetchReport>) -> Self {
        Traffic { queue, seen: Mutex::default(), over: AtomicBool::new(false) }
    }

    /// Runs while `meanwhile` does, over three publishers; everything that was confirmed has been received then.
    pub(super) async fn during(&self, meanwhile: impl Future<Output = ()>) {
        let all = async {
            let meanwhile = async {
                meanwhile.await;
                self.over.store(true, Ordering::Relaxed);
            };
            tokio::join!(meanwhile, self.publish(1), self.publish(2), self.publish(3), self.receive());
        };
        tokio::time::timeout(8 * PATIENCE, all).await.expect("nothing is lost, and everything ends");
        let seen = self.seen.lock().unwrap();
        println!("{} confirmed, {} received, {} uncertain", seen.confirmed.len(), seen.received.len(), seen.errors);
    }

    /// Publishes one item after the other, as some others do at the same time.
    async fn publish(&self, lane: i64) {
        let mut n = lane * 1_000_000;
        while !self.over.load(Ordering::Relaxed) {
            n += 1;
            let published = self.queue.publish(&[report(n)]).await;
            let mut seen = self.seen.lock().unwrap();
            match published {
                Ok(()) => drop(seen.confirmed.insert(n)),
                Err(_) => seen.errors += 1,
            }
        }
    }

    /// Receives until everything that was confirmed was received.
    async fn receive(&self) {
        loop {
            if self.over.load(Ordering::Relaxed) {
                let seen = self.seen.lock().unwrap();
                if seen.confirmed.is_subset(&seen.received) {
                    return;
                }
            }
            let patience = Duration::from_millis(100);
            let Ok(delivery) = tokio::time::timeout(patience, self.queue.receive()).await else { continue };
            let delivery = delivery.unwrap();
            self.seen.lock().unwrap().received.extend(delivery.items.iter().map(|report| report.feed.0));
            // It may be of a connection that is gone: then it comes again.
            let _ = delivery.ack().await;
        }
    }

    /// Waits until an item that is published from now on is received; returns how long that took.
    pub(super) async fn next_round(&self) -> Duration {
        let before = self.seen.lock().unwrap().confirmed.clone();
        let round = || {
            let seen = self.seen.lock().unwrap();
            seen.confirmed.intersection(&seen.received).any(|n| !before.contains(n))
        };
        until("an item goes round", async || round()).await
    }

    /// Returns what blocks the queue now, if anything.
    pub(super) async fn connection_error(&self) -> Option<String> {
        let error = self.queue.check().await.err()?;
        Some(std::error::Error::source(&error).unwrap().to_string())
    }
}

/// Waits until the condition holds; returns how long that took.
pub(super) async fn until(what: &str, is_so: impl AsyncFn() -> bool) -> Duration {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    begun.elapsed()
}
