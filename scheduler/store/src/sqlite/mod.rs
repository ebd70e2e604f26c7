//! The store on SQLite: one machine, one process, one file.
//!
//! One connection writes, a few read. The single writer is what makes commit order and `seq` order the same, and lets
//! `apply` look at rows and then write them without their changing in between. A batch costs a handful of statements
//! whatever its size: it crosses as two parameters (`batch`). The namespace is the file.

mod apply;
mod backup;
mod batch;
mod entries;
mod events;
mod feeds;
mod hosts;
mod list;
mod moves;
mod open;
mod people;
mod requeues;
mod seals;
#[cfg(test)]
mod tests;
mod upkeep;

use std::time::Duration;

use async_trait::async_trait;
use common::feed::Feed;
use common::host::{HostKey, HostRule};
use common::secrets::Credentials;
use common::time::Timestamp;
use common::url::{FeedId, Version};
use sqlx::{Sqlite, SqlitePool, Transaction};

use super::{
    Added, Applied, Event, EventPage, FeedChange, FeedQuery, FeedRef, HistoryEntry, HostOrders, HostQuery, HostRow,
    JobRow, Move, Moved, NewFeed, NewRequeue, OldSeal, Page, Placement, RelayTurn, Requeue, RequeueFilter, RequeuePlan,
    RequeueStep, Store, StoreError, StoreStats, StoredEntry, Unmove, Unmoved, Verdict,
};

pub use backup::{Backup, BackupError};

/// A store in one SQLite database. See [`SqliteStore::open`].
#[derive(Debug)]
pub struct SqliteStore {
    /// One connection.
    writer: SqlitePool,
    /// A few; in memory the writer's own, because nobody else sees its database.
    readers: SqlitePool,
    /// Held as long as the database is open. Last, so that it is let go last.
    _lock: Option<open::Lock>,
}

impl SqliteStore {
    /// Begins the one transaction that may write.
    async fn write(&self, action: &'static str) -> Result<Transaction<'static, Sqlite>, StoreError> {
        const BEGIN: &str = "BEGIN IMMEDIATE";
        let begun = match self.writer.begin_with(BEGIN).await {
            // A commit that the disk refuses ends the transaction for SQLite, but not for the connection, which would
            // refuse every further one.
            Err(sqlx::Error::InvalidSavePointStatement) if self._lock.is_some() => {
                let stuck = self.writer.acquire().await.map_err(StoreError::on(action))?;
                stuck.close().await.map_err(StoreError::on(action))?;
                self.writer.begin_with(BEGIN).await
            }
            begun => begun,
        };
        begun.map_err(StoreError::on(action))
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn add_feeds(&self, feeds: &[NewFeed], now: Timestamp) -> Result<Vec<Added>, StoreError> {
        self.add(feeds, now).await
    }

    async fn feed(&self, which: &FeedRef) -> Result<Option<Feed>, StoreError> {
        self.one_feed(which).await
    }

    async fn feeds(&self, query: &FeedQuery) -> Result<Page<Feed>, StoreError> {
        self.list(query).await
    }

    async fn feeds_among(&self, query: &FeedQuery, ids: &[FeedId]) -> Result<Vec<Feed>, StoreError> {
        self.among(query, ids).await
    }

    async fn change_feed(&self, id: FeedId, change: &FeedChange, now: Timestamp) -> Result<Option<Feed>, StoreError> {
        self.change(id, change, now).await
    }

    async fn change_feeds(&self, changes: &[(FeedId, FeedChange)], now: Timestamp) -> Result<Vec<Feed>, StoreError> {
        self.change_many(changes, now).await
    }

    async fn erase_feed(&self, id: FeedId) -> Result<bool, StoreError> {
        self.erase(id).await
    }

    async fn forget_validators(&self, id: FeedId) -> Result<bool, StoreError> {
        self.forget(id).await
    }

    async fn move_feed(&self, id: FeedId, version: Version, to: &Move, now: Timestamp) -> Result<Moved, StoreError> {
        self.move_to(id, version, to, now).await
    }

    async fn unmove_feed(
        &self,
        id: FeedId,
        version: Version,
        back: &Unmove,
        now: Timestamp,
    ) -> Result<Unmoved, StoreError> {
        self.unmove(id, version, back, now).await
    }

    async fn jobs_for(&self, ids: &[FeedId]) -> Result<Vec<JobRow>, StoreError> {
        self.job_rows(ids).await
    }

    async fn states_for(&self, ids: &[FeedId]) -> Result<Vec<Feed>, StoreError> {
        self.feed_rows(ids).await
    }

    async fn apply(
        &self,
        verdicts: &[Verdict],
        clock_skew: Duration,
        now: Timestamp,
    ) -> Result<Vec<Applied>, StoreError> {
        self.apply_verdicts(verdicts, clock_skew, now).await
    }

    async fn wake(&self, ids: &[FeedId], at: Timestamp, now: Timestamp) -> Result<Vec<Placement>, StoreError> {
        self.wake_feeds(ids, at, now).await
    }

    async fn plan_requeue(&self, filter: &RequeueFilter, lift_penalties: bool) -> Result<RequeuePlan, StoreError> {
        self.plan(filter, lift_penalties).await
    }

    async fn begin_requeue(&self, new: &NewRequeue, now: Timestamp) -> Result<Option<Requeue>, StoreError> {
        self.begin_one(new, now).await
    }

    async fn requeues(&self, running: bool) -> Result<Vec<Requeue>, StoreError> {
        self.list_requeues(running).await
    }

    async fn cancel_requeue(&self, id: i64, now: Timestamp) -> Result<bool, StoreError> {
        self.cancel(id, now).await
    }

    async fn step_requeue(&self, id: i64, now: Timestamp) -> Result<RequeueStep, StoreError> {
        self.step(id, now).await
    }

    async fn placements(&self, after: FeedId, limit: u32) -> Result<Vec<Placement>, StoreError> {
        self.places(after, limit).await
    }

    async fn holds(&self, now: Timestamp) -> Result<Vec<(HostKey, Timestamp)>, StoreError> {
        self.host_holds(now).await
    }

    async fn host_orders(&self, known: Option<i64>) -> Result<Option<HostOrders>, StoreError> {
        self.orders(known).await
    }

    async fn set_host_rule(&self, rule: &HostRule, now: Timestamp) -> Result<bool, StoreError> {
        self.set_rule(rule, now).await
    }

    async fn remove_host_rule(&self, domain: &str) -> Result<bool, StoreError> {
        self.remove_rule(domain).await
    }

    async fn block_hosts(&self, hosts: &[HostKey], until: Option<Timestamp>) -> Result<(), StoreError> {
        self.block(hosts, until).await
    }

    async fn hosts(&self, query: &HostQuery, now: Timestamp) -> Result<Page<HostRow>, StoreError> {
        self.list_hosts(query, now).await
    }

    async fn entries(
        &self,
        feed: Option<FeedId>,
        after: i64,
        limit: u32,
    ) -> Result<EventPage<StoredEntry>, StoreError> {
        self.stored_entries(feed, after, limit).await
    }

    async fn newest_entries(&self, feed: Option<FeedId>, limit: u32) -> Result<Vec<StoredEntry>, StoreError> {
        self.last_entries(feed, limit).await
    }

    async fn last_entry_before(&self, at: Timestamp) -> Result<i64, StoreError> {
        self.seq_before(at).await
    }

    async fn events(&self, after: i64, limit: u32) -> Result<EventPage<Event>, StoreError> {
        self.stored_events(after, limit).await
    }

    async fn latest_seq(&self) -> Result<i64, StoreError> {
        self.last_seq().await
    }

    async fn relay_turn(&self, turn: &RelayTurn<'_>, now: Timestamp) -> Result<Option<i64>, StoreError> {
        self.take_relay_turn(turn, now).await
    }

    async fn history(&self, id: FeedId) -> Result<Option<Vec<HistoryEntry>>, StoreError> {
        self.polls(id).await
    }

    async fn stats(&self, now: Timestamp) -> Result<StoreStats, StoreError> {
        self.numbers(now).await
    }

    async fn overdue(&self, at: Timestamp) -> Result<u64, StoreError> {
        self.count_overdue(at).await
    }

    /// Nothing: they are added up as they come.
    async fn fold_counts(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn sla_unmet(&self, longest: Duration) -> Result<u64, StoreError> {
        self.count_sla_unmet(longest).await
    }

    async fn check(&self, _: Timestamp) -> Result<(), StoreError> {
        self.is_paused().await.map(drop)
    }

    /// Closes all connections, which folds the write-ahead log into the database.
    async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    async fn paused(&self) -> Result<bool, StoreError> {
        self.is_paused().await
    }

    async fn set_paused(&self, paused: bool) -> Result<(), StoreError> {
        self.pause(paused).await
    }

    async fn begin_epoch(&self) -> Result<String, StoreError> {
        self.renew_epoch().await
    }

    async fn price(&self) -> Result<Option<f64>, StoreError> {
        self.agreed_price().await
    }

    async fn adjust_price(&self, before: Option<f64>, price: f64) -> Result<bool, StoreError> {
        self.change_price(before, price).await
    }

    async fn old_seals(&self, current: &[u8], after: FeedId, limit: u32) -> Result<Vec<OldSeal>, StoreError> {
        self.seals_but(current, after, limit).await
    }

    async fn reseal(&self, old: &OldSeal, credentials: &Credentials) -> Result<bool, StoreError> {
        self.seal_anew(old, credentials).await
    }

    async fn prune(&self, events: Timestamp, entries: Option<Timestamp>) -> Result<u64, StoreError> {
        self.prune_some(events, entries).await
    }
}
