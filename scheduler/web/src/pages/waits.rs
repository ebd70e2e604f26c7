//! What keeps feeds waiting besides their own due times, and when they are polled in spite of it.

use std::collections::HashMap;

use common::feed::Feed;
use common::host::HostKey;
use common::time::Timestamp;

use super::words::Moment;
use scheduler::error::BackendError;
use scheduler::ops::Ops;

/// What stops polls, of the whole fleet and of its hosts.
pub(super) struct Stops {
    /// All polling is paused.
    pub(super) paused: bool,
    /// Feeds that a refresh, a ping or a requeue woke are polled all the same.
    refreshes: bool,
    /// Until when nothing polls a host: its server asked for that, it refuses us, or an operator blocked it.
    hosts: HashMap<HostKey, Timestamp>,
}

/// What keeps one feed waiting besides its own due time.
#[derive(Clone, Copy, Default)]
pub(super) struct Waits {
    /// All polling is paused.
    pub(super) paused: bool,
    /// Feeds that a refresh, a ping or a requeue woke are polled all the same.
    pub(super) refreshes: bool,
    /// Until when nothing polls its host.
    pub(super) host: Option<Timestamp>,
}

/// When a feed is polled next.
pub(super) struct Next {
    /// When it is due and its host may be polled.
    pub(super) at: Moment,
    /// All polling is paused: it is not polled before that ends.
    pub(super) when_resumed: bool,
}

impl Stops {
    /// Returns what stops polls now.
    pub(super) async fn now(ops: &Ops, now: Timestamp) -> Result<Self, BackendError> {
        let blocks = ops.store.host_orders(None).await?.unwrap_or_default().blocks;
        let held = ops.store.holds(now).await?;
        let mut hosts = HashMap::new();
        for (host, until) in held.into_iter().chain(blocks).filter(|(_, until)| *until > now) {
            let latest = hosts.entry(host).or_insert(until);
            *latest = until.max(*latest);
        }
        let refreshes = ops.config.scheduler.refresh_while_paused;
        Ok(Stops { paused: ops.store.paused().await?, refreshes, hosts })
    }

    /// Returns what stops the polls of one host now.
    pub(super) async fn of_host(ops: &Ops, host: &HostKey, now: Timestamp) -> Result<Self, BackendError> {
        let rows = ops.store.hosts_among(std::slice::from_ref(host), now).await?;
        let until =
            rows.iter().filter_map(|row| row.hold_until.max(row.blocked_until)).filter(|until| *until > now).max();
        let hosts = until.map(|until| (host.clone(), until)).into_iter().collect();
        let refreshes = ops.config.scheduler.refresh_while_paused;
        Ok(Stops { paused: ops.store.paused().await?, refreshes, hosts })
    }

    /// Returns what keeps this feed waiting.
    pub(super) fn of(&self, feed: &Feed) -> Waits {
        Waits { paused: self.paused, refreshes: self.refreshes, host: self.hosts.get(&feed.host).copied() }
    }

    /// Returns whether no feed is polled at all, not even one that somebody asks for.
    pub(super) fn is_all(&self) -> bool {
        self.paused && !self.refreshes
    }
}

impl Waits {
    /// Returns whether no feed is polled at all, not even one that somebody asks for.
    pub(super) fn is_all(self) -> bool {
        self.paused && !self.refreshes
    }

    /// Returns when the feed is polled next, if it is.
    pub(super) fn next(self, feed: &Feed, now: Timestamp) -> Option<Next> {
        let woken = feed.wake_at.filter(|_| self.refreshes);
        let when_resumed = self.paused && woken.is_none();
        // While all polling is paused, only requested polls count.
        let due = woken.filter(|_| self.paused).or(feed.due())?;
        let at = due.max(self.host.unwrap_or(due)).max(feed.state.hold_until.unwrap_or(due));
        Some(Next { at: Moment::due(at, now), when_resumed })
    }
}
