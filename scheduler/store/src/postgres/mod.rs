//! The store on PostgreSQL: any number of processes, one schema, which the namespace names.
//!
//! A batch costs a handful of statements whatever its size: its rows cross as arrays and stand in the order of their numbers.
//! Four rules keep transactions of several processes apart:
//! - rows are locked in one order: feeds by number, then hosts by name, then the row of `store`; whoever has to write more of
//!   a feed holds its row first;
//! - the row of `store` is the lock under which events are numbered, taken last and held until the transaction ends, so that
//!   a reader who sees a number has seen, or can never see, all smaller ones;
//! - `apply` looks at rows without locking them and writes those that are still as they were; if one is not, it begins
//!   again and locks them first. A report of another version therefore changes nothing, whoever else applies it;
//! - a call ends within half a minute (`Limits`), whatever the server does.
//!
//! No statement asks for `*`: PostgreSQL refuses to go on with a prepared one after a migration added a column.

mod apply;
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
mod search;
mod session;
#[cfg(test)]
mod tests;
mod upkeep;

use std::borrow::Cow;
use std::time::Duration;

use async_trait::async_trait;
use common::feed::Feed;
use common::host::{HostKey, HostRule};
use common::secrets::Credentials;
use common::time::Timestamp;
use common::url::{FeedId, Version};
use sqlx::PgPool;

use super::{
    Added, Applied, Event, EventPage, FeedChange, FeedQuery, FeedRef, HistoryEntry, HostOrders, HostQuery, HostRow,
    JobRow, Move, Moved, NewFeed, NewRequeue, OldSeal, Page, Placement, RelayTurn, Requeue, RequeueFilter, RequeuePlan,
    RequeueStep, Store, StoreError, StoreStats, StoredEntry, Unmove, Unmoved, Verdict,
};

/// How often a transaction is tried that the server ended in favour of another one.
const TRIES: u32 = 5;

/// A store in one schema of a PostgreSQL database. See [`PostgresStore::open`].
#[derive(Clone, Debug)]
pub struct PostgresStore {
    pool: PgPool,
    limits: Limits,
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// A call. The server's own limits are shorter.
    pub(crate) call: Duration,
    /// A statement, at the server; waiting for a lock, or for our next statement in a transaction, half of it.
    pub(crate) statement: Duration,
    /// Waiting for a free connection, or making one.
    pub(crate) acquire: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Limits { call: seconds(30), statement: seconds(20), acquire: seconds(5) }
    }
}

impl PostgresStore {
    /// A call, tried again while the server ends it in favour of another transaction: nothing of it is stored then.
    async fn call<T, Tried>(&self, action: &'static str, call: impl Fn() -> Tried) -> Result<T, StoreError>
    where
        Tried: Future<Output = Result<T, StoreError>>,
    {
        bounded(action, self.limits.call, async {
            for _ in 1..TRIES {
                match call().await {
                    Err(error) if error.lost_to_another() => {}
                    ended => return ended,
                }
            }
            call().await
        })
        .await
    }
}

/// The future's result, or [`StoreError::Late`] when it takes longer than `limit`.
async fn bounded<T>(
    action: &'static str,
    limit: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::time::timeout(limit, call).await.unwrap_or(Err(StoreError::Late { action, limit }))
}

/// A column of a batch.
fn column<'a, Row, Value>(rows: &'a [Row], value: impl Fn(&'a Row) -> Value) -> Vec<Value> {
    rows.iter().map(value).collect()
}

/// A text as PostgreSQL takes it: the one character that it does not store, and that JSON feeds can bring, becomes the one
/// that stands for unreadable ones.
fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{FFFD}")) } else { Cow::Borrowed(text) }
}

fn optional_text(of: &Option<String>) -> Option<Cow<'_, str>> {
    of.as_deref().map(text)
}

/// Feeds' numbers for `= ANY`, in order.
fn numbers(ids: impl IntoIterator<Item = FeedId>) -> Vec<i64> {
    let mut numbers: Vec<i64> = ids.into_iter().map(|id| id.0).collect();
    numbers.sort_unstable();
    numbers
}

#[async_trait]
impl Store for PostgresStore {
    async fn add_feeds(&self, feeds: &[NewFeed], now: Timestamp) -> Result<Vec<Added>, StoreError> {
        self.call("add feeds", move || self.add(feeds, now)).await
    }

    async fn feed(&self, which: &FeedRef) -> Result<Option<Feed>, StoreError> {
        self.call("read a feed", move || self.one_feed(which)).await
    }

    async fn feeds(&self, query: &FeedQuery) -> Result<Page<Feed>, StoreError> {
        self.call("list feeds", move || self.list(query)).await
    }

    async fn feeds_among(&self, query: &FeedQuery, ids: &[FeedId]) -> Result<Vec<Feed>, StoreError> {
        self.call("list feeds", move || self.among(query, ids)).await
    }

    async fn change_feed(&self, id: FeedId, change: &FeedChange, now: Timestamp) -> Result<Option<Feed>, StoreError> {
        self.call("change a feed", move || self.change(id, change, now)).await
    }

    async fn change_feeds(&self, changes: &[(FeedId, FeedChange)], now: Timestamp) -> Result<Vec<Feed>, StoreError> {
        self.change_many(changes, now).await
    }

    async fn erase_feed(&self, id: FeedId) -> Result<bool, StoreError> {
        self.call("erase a feed", move || self.erase(id)).await
    }

    async fn forget_validators(&self, id: FeedId) -> Result<bool, StoreError> {
        self.call("forget a feed's validators", move || self.forget(id)).await
    }

    async fn move_feed(&self, id: FeedId, version: Version, to: &Move, now: Timestamp) -> Result<Moved, StoreError> {
        self.call("move a feed", move || self.move_to(id, version, to, now)).await
    }

    async fn unmove_feed(
        &self,
        id: FeedId,
        version: Version,
        back: &Unmove,
        now: Timestamp,
    ) -> Result<Unmoved, StoreError> {
        self.call("take back a feed's move", move || self.unmove(id, version, back, now)).await
    }

    async fn jobs_for(&self, ids: &[FeedId]) -> Result<Vec<JobRow>, StoreError> {
        self.call("read what jobs need", move || self.job_rows(ids)).await
    }

    async fn states_for(&self, ids: &[FeedId]) -> Result<Vec<Feed>, StoreError> {
        self.call("read feeds", move || self.feed_rows(ids)).await
    }

    async fn apply(
        &self,
        verdicts: &[Verdict],
        clock_skew: Duration,
        now: Timestamp,
    ) -> Result<Vec<Applied>, StoreError> {
        self.call("apply reports", move || self.apply_verdicts(verdicts, clock_skew, now)).await
    }

    async fn wake(&self, ids: &[FeedId], at: Timestamp, now: Timestamp) -> Result<Vec<Placement>, StoreError> {
        self.call("wake feeds", move || self.wake_feeds(ids, at, now)).await
    }

    async fn plan_requeue(&self, filter: &RequeueFilter, lift_penalties: bool) -> Result<RequeuePlan, StoreError> {
        self.call("find the feeds of a requeue", move || self.plan(filter, lift_penalties)).await
    }

    async fn begin_requeue(&self, new: &NewRequeue, now: Timestamp) -> Result<Option<Requeue>, StoreError> {
        self.call("begin a requeue", move || self.begin_one(new, now)).await
    }

    async fn requeues(&self, running: bool) -> Result<Vec<Requeue>, StoreError> {
        self.call("list requeues", move || self.list_requeues(running)).await
    }

    async fn cancel_requeue(&self, id: i64, now: Timestamp) -> Result<bool, StoreError> {
        self.call("cancel a requeue", move || self.cancel(id, now)).await
    }

    async fn step_requeue(&self, id: i64, now: Timestamp) -> Result<RequeueStep, StoreError> {
        self.call("go on with a requeue", move || self.step(id, now)).await
    }

    async fn placements(&self, after: FeedId, limit: u32) -> Result<Vec<Placement>, StoreError> {
        self.call("read when feeds are due", move || self.places(after, limit)).await
    }

    async fn holds(&self, now: Timestamp) -> Result<Vec<(HostKey, Timestamp)>, StoreError> {
        self.call("read the hosts' holds", move || self.host_holds(now)).await
    }

    async fn host_orders(&self, known: Option<i64>) -> Result<Option<HostOrders>, StoreError> {
        self.call("read what operators say about hosts", move || self.orders(known)).await
    }

    async fn set_host_rule(&self, rule: &HostRule, now: Timestamp) -> Result<bool, StoreError> {
        self.call("set a host rule", move || self.set_rule(rule, now)).await
    }

    async fn remove_host_rule(&self, domain: &str) -> Result<bool, StoreError> {
        self.call("take back a host rule", move || self.remove_rule(domain)).await
    }

    async fn block_hosts(&self, hosts: &[HostKey], until: Option<Timestamp>) -> Result<(), StoreError> {
        self.call("block hosts", move || self.block(hosts, until)).await
    }

    async fn hosts(&self, query: &HostQuery, now: Timestamp) -> Result<Page<HostRow>, StoreError> {
        self.call("list hosts", move || self.list_hosts(query, now)).await
    }

    async fn entries(
        &self,
        feed: Option<FeedId>,
        after: i64,
        limit: u32,
    ) -> Result<EventPage<StoredEntry>, StoreError> {
        self.call("read entries", move || self.stored_entries(feed, after, limit)).await
    }

    async fn newest_entries(&self, feed: Option<FeedId>, limit: u32) -> Result<Vec<StoredEntry>, StoreError> {
        self.call("read entries", move || self.last_entries(feed, limit)).await
    }

    async fn last_entry_before(&self, at: Timestamp) -> Result<i64, StoreError> {
        self.call("read entries", move || self.seq_before(at)).await
    }

    async fn events(&self, after: i64, limit: u32) -> Result<EventPage<Event>, StoreError> {
        self.call("read events", move || self.stored_events(after, limit)).await
    }

    async fn latest_seq(&self) -> Result<i64, StoreError> {
        self.call("read events", move || self.last_seq()).await
    }

    async fn relay_turn(&self, turn: &RelayTurn<'_>, now: Timestamp) -> Result<Option<i64>, StoreError> {
        self.call("take the turn to pass events on", move || self.take_relay_turn(turn, now)).await
    }

    async fn history(&self, id: FeedId) -> Result<Option<Vec<HistoryEntry>>, StoreError> {
        self.call("read a feed's history", move || self.polls(id)).await
    }

    async fn stats(&self, now: Timestamp) -> Result<StoreStats, StoreError> {
        self.call("count what it holds", move || self.numbers(now)).await
    }

    async fn overdue(&self, at: Timestamp) -> Result<u64, StoreError> {
        self.call("count what is due", move || self.count_overdue(at)).await
    }

    async fn fold_counts(&self) -> Result<(), StoreError> {
        self.call("add up its counters", move || self.fold()).await
    }

    async fn sla_unmet(&self, longest: Duration) -> Result<u64, StoreError> {
        self.call("count the SLAs that cannot be kept", move || self.count_sla_unmet(longest)).await
    }

    async fn check(&self, now: Timestamp) -> Result<(), StoreError> {
        self.call("be reached", move || self.compare_clocks(now)).await
    }

    /// Closes all connections once they are free, for at most as long as a call may take.
    async fn close(&self) {
        // Then they end with the process.
        let _ = tokio::time::timeout(self.limits.call, self.pool.close()).await;
    }

    async fn paused(&self) -> Result<bool, StoreError> {
        self.call("tell whether polling is paused", move || self.is_paused()).await
    }

    async fn set_paused(&self, paused: bool) -> Result<(), StoreError> {
        self.call("pause or resume polling", move || self.pause(paused)).await
    }

    async fn begin_epoch(&self) -> Result<String, StoreError> {
        self.call("begin an epoch", move || self.renew_epoch()).await
    }

    async fn price(&self) -> Result<Option<f64>, StoreError> {
        self.call("read the price of a poll", move || self.agreed_price()).await
    }

    async fn adjust_price(&self, before: Option<f64>, price: f64) -> Result<bool, StoreError> {
        self.call("change the price of a poll", move || self.change_price(before, price)).await
    }

    async fn old_seals(&self, current: &[u8], after: FeedId, limit: u32) -> Result<Vec<OldSeal>, StoreError> {
        self.call("look for credentials of an old key", move || self.seals_but(current, after, limit)).await
    }

    async fn reseal(&self, old: &OldSeal, credentials: &Credentials) -> Result<bool, StoreError> {
        self.call("store credentials under the new key", move || self.seal_anew(old, credentials)).await
    }

    async fn prune(&self, events: Timestamp, entries: Option<Timestamp>) -> Result<u64, StoreError> {
        self.call("delete old events and entries", move || self.prune_some(events, entries)).await
    }
}
