//! The upkeep of push subscriptions: returns feeds to their own pace, and finds what no other step leads to. Each look
//! reads a bounded number of rows; nothing here delays a renewal.

use std::sync::Arc;
use std::time::Duration;

use common::push::{PushKind, PushState};
use common::url::FeedId;
use tokio::time::Instant;

use super::pace::OwnPace;
use crate::error::BackendError;
use crate::ops::Ops;

/// Subscriptions, and feeds that announce a hub, that one look reads.
const AT_ONCE: u32 = 200;
/// Between two walks over all subscriptions, from the end of one to the beginning of the next.
const WALK_EVERY: Duration = Duration::from_secs(15);
/// Between two sweeps over the feeds that announce a hub and have no subscription.
const SWEEP_EVERY: Duration = Duration::from_secs(60 * 60);
/// Between two looks for lost deliveries and for subscriptions that were left long ago.
const CLEAN_EVERY: Duration = Duration::from_secs(15);
/// A hub has this long to confirm that a subscription ends. Afterwards its deliveries are those of an unknown one: 410.
const LEFT_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// The time that a delivery may take beyond what the queue and a worker have for it.
const GRACE: Duration = Duration::from_secs(60);

/// The upkeep of one scheduler.
pub(super) struct Upkeep {
    ops: Arc<Ops>,
    walk: Round,
    sweep: Round,
    clean_at: Instant,
}

/// A walk over feeds by their number, again and again.
struct Round {
    /// The last feed that was looked at; `None` between two rounds.
    after: Option<FeedId>,
    next: Instant,
    every: Duration,
}

impl Round {
    fn new(every: Duration) -> Self {
        Round { after: Some(FeedId(0)), next: Instant::now(), every }
    }

    /// Returns the feed after which to continue; `None`: not yet.
    fn place(&mut self) -> Option<FeedId> {
        if self.after.is_none() && Instant::now() >= self.next {
            self.after = Some(FeedId(0));
        }
        self.after
    }

    fn seen(&mut self, last: Option<i64>) {
        self.after = last.map(FeedId);
        if self.after.is_none() {
            self.next = Instant::now() + self.every;
        }
    }
}

impl Upkeep {
    pub(super) fn new(ops: Arc<Ops>) -> Self {
        let (walk, sweep) = (Round::new(WALK_EVERY), Round::new(SWEEP_EVERY));
        Upkeep { ops, walk, sweep, clean_at: Instant::now() }
    }

    pub(super) async fn look(&mut self) -> Result<(), BackendError> {
        OwnPace::of(&self.ops).restore_owed(self.ops.clock.now()).await?;
        self.walk().await?;
        self.sweep().await?;
        if Instant::now() >= self.clean_at {
            self.clean_at = Instant::now() + CLEAN_EVERY;
            self.clean().await?;
        }
        Ok(())
    }

    /// Looks at some feeds with a subscription: it is left if the feed ended, became private or announces something else by now.
    pub(super) async fn walk(&mut self) -> Result<(), BackendError> {
        let Some(after) = self.walk.place() else { return Ok(()) };
        let rows = self.ops.store.subscribed(after, AT_ONCE).await?;
        let rules = self.ops.rules.get();
        let wishes: Vec<_> = rows.iter().filter_map(|row| self.ops.wishes.of_subscribed(row, &rules)).collect();
        if !wishes.is_empty() {
            self.ops.store.want_pushes(&wishes, self.ops.clock.now()).await?;
        }
        self.walk.seen(rows.last().map(|row| row.feed_id));
        Ok(())
    }

    /// Looks at some feeds that announce a hub and have no subscription: their documents came before pushes were on, or a process died
    /// between a poll and its wish.
    pub(super) async fn sweep(&mut self) -> Result<(), BackendError> {
        if !self.ops.wishes.are_on() {
            return Ok(());
        }
        let Some(after) = self.sweep.place() else { return Ok(()) };
        let feeds = self.ops.store.unpushed(after, AT_ONCE).await?;
        let rules = self.ops.rules.get();
        let wishes: Vec<_> = feeds.iter().filter_map(|feed| self.ops.wishes.of_stored(feed, &rules)).collect();
        if !wishes.is_empty() {
            self.ops.store.want_pushes(&wishes, self.ops.clock.now()).await?;
        }
        self.sweep.seen(feeds.last().map(|feed| feed.id));
        Ok(())
    }

    /// Has feeds polled whose deliveries were accepted and not stored, and removes subscriptions that were left long
    /// ago.
    pub(super) async fn clean(&self) -> Result<(), BackendError> {
        let (now, scheduler) = (self.ops.clock.now(), &self.ops.config.scheduler);
        let before = now.before(scheduler.queue_lease + scheduler.fetch_lease + GRACE);
        let lost = self.ops.store.lost_pushes(before, AT_ONCE).await?;
        for feed in &lost {
            self.ops.wake_pinged(*feed, now).await?;
        }
        if !lost.is_empty() {
            tracing::warn!(feeds = lost.len(), "deliveries of hubs were accepted and lost; their feeds are polled");
            self.ops.store.forget_lost_pushes(&lost, before).await?;
        }
        self.ops.store.forget_left_pushes(now.before(LEFT_FOR), AT_ONCE).await?;
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn is_swept(&self) -> bool {
        self.sweep.after.is_none()
    }
}

/// Counts subscriptions by kind and state; returns how many there are.
pub(super) async fn count(ops: &Ops) -> Result<u64, BackendError> {
    let counts = ops.store.count_pushes().await?;
    let gauge = &ops.metrics.push_subscriptions;
    for kind in PushKind::ALL {
        for state in PushState::ALL {
            let count = counts.iter().find(|count| (count.0, count.1) == (kind, state)).map_or(0, |count| count.2);
            gauge.with_label_values(&[kind.as_str(), state.as_str()]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
    Ok(counts.iter().map(|count| count.2).sum())
}
