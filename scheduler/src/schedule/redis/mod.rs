//! A cluster's schedule in Redis: each operation on a shard is one Lua script, and therefore atomic.
//!
//! A feed is one member of one sorted set, and its score encodes its state (see `schedule.lua`), so a feed that is not
//! parked needs no other key. Feeds are distributed over `shards` by their ids; a shard's keys share a hash tag, so
//! that the masters of a Redis Cluster divide the shards among them. With several shards, a host has a head and a set
//! of parked feeds in each. While a shard's server is away, the calls to the others continue.
//!
//! The number of shards is part of every key. A fleet that is started with another number finds its schedule empty,
//! deletes the old one, and fills its own from the store as after any loss. A scheduler that still runs with the old
//! number then has nothing to claim, and reports why.

mod claims;
#[cfg(test)]
mod cluster_tests;
mod member;
mod rebuild;
mod schedulers;
mod shards;
#[cfg(test)]
mod tests;
mod waiting;

use std::time::Duration;

use async_trait::async_trait;
use common::host::HostKey;
use common::redis::{self, RedisServer};
use common::time::{Clock, Timestamp};
use common::url::FeedId;

use self::member::Member;
use self::shards::{AT_ONCE, Shard, Shards, all_of, millis, time};
use super::{Claim, Depth, Parking, Rates, RebuildMark, Schedule, ScheduleError, ScheduleUpkeep, ScheduleView, Slot};

/// The due times of all processes that use the same server and namespace.
pub struct RedisSchedule {
    shards: Shards,
}

/// The maximum absolute rank. The scripts reserve lower ones for woken feeds, and use the fraction for the band.
const RANK_LIMIT: i64 = (1 << 49) - 1;

impl RedisSchedule {
    /// Creates a schedule on this server with `shards` shards (at least one), without connecting to it.
    pub fn new(server: RedisServer, shards: u16) -> Self {
        RedisSchedule { shards: Shards::new(server, shards) }
    }

    /// Returns the slot of a cluster at whose master a feed's due time is.
    pub fn slot_of(&self, feed: FeedId) -> redis::Slot {
        self.shards.all[self.shards.shard_of(feed)].part.slot
    }

    /// The same, with the time that each call is given in place of the server's own.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn on_callers_time(mut self) -> Self {
        self.shards.callers_time = true;
        self
    }
}

#[async_trait]
impl Schedule for RedisSchedule {
    async fn put(&self, slots: &[Slot], now: Timestamp) -> Result<(), ScheduleError> {
        self.shards.eval_slots::<()>("put feeds", &self.shards.scripts.put, slots, &[self.shards.time(now), 0]).await?;
        Ok(())
    }

    async fn put_off(&self, slots: &[Slot], now: Timestamp) -> Result<(), ScheduleError> {
        self.shards
            .eval_slots::<()>("put feeds off", &self.shards.scripts.put, slots, &[self.shards.time(now), 1])
            .await?;
        Ok(())
    }

    async fn lower(&self, slots: &[Slot], now: Timestamp) -> Result<(), ScheduleError> {
        self.shards
            .eval_slots::<()>("bring feeds forward", &self.shards.scripts.lower, slots, &[self.shards.time(now)])
            .await?;
        Ok(())
    }

    async fn correct(&self, slots: &[Slot], slack: Duration, now: Timestamp) -> Result<usize, ScheduleError> {
        let leading = [self.shards.time(now), millis(slack)];
        let wrong = self
            .shards
            .eval_slots::<usize>("be compared with the store", &self.shards.scripts.correct, slots, &leading)
            .await?;
        Ok(wrong.into_iter().sum())
    }

    async fn remove(&self, feeds: &[FeedId]) -> Result<(), ScheduleError> {
        self.shards.eval_feeds("take feeds out", &self.shards.scripts.remove, feeds, &[0]).await
    }

    async fn claim_due(&self, now: Timestamp, limit: usize, lease: Duration) -> Result<Vec<Claim>, ScheduleError> {
        claims::claim(&self.shards, now, limit, lease, false).await
    }

    async fn claim_urgent(&self, now: Timestamp, limit: usize, lease: Duration) -> Result<Vec<Claim>, ScheduleError> {
        claims::claim(&self.shards, now, limit, lease, true).await
    }

    async fn extend(&self, feeds: &[FeedId], until: Timestamp) -> Result<(), ScheduleError> {
        self.shards.eval_feeds("extend leases", &self.shards.scripts.extend, feeds, &[0, until.millis()]).await
    }

    async fn park(&self, parkings: &[Parking]) -> Result<(), ScheduleError> {
        let calls = self.shards.calls(parkings.iter().map(|parking| (parking.feed, parking))).into_iter();
        all_of(calls.map(async |(shard, parkings)| {
            self.shards
                .eval::<()>("park feeds", shard, &self.shards.scripts.park, |call| {
                    call.arg(0);
                    for parking in &parkings {
                        let rank = parking.rank.clamp(-RANK_LIMIT, RANK_LIMIT);
                        call.arg(Member(parking.feed)).arg(parking.host.as_str()).arg(parking.until.millis());
                        call.arg(parking.band as usize + 1).arg(rank);
                    }
                })
                .await
        }))
        .await?;
        Ok(())
    }

    async fn unpark(&self, hosts: &[(HostKey, Timestamp)]) -> Result<(), ScheduleError> {
        let calls = self.shards.all.iter().flat_map(|shard| hosts.chunks(AT_ONCE).map(move |hosts| (shard, hosts)));
        let calls: Vec<(&Shard, &[(HostKey, Timestamp)])> = calls.collect();
        all_of(calls.into_iter().map(async |(shard, hosts)| {
            self.shards
                .eval::<()>("bring hosts forward", shard, &self.shards.scripts.unpark, |call| {
                    call.arg(0);
                    for (host, at) in hosts {
                        call.arg(host.as_str()).arg(at.millis());
                    }
                })
                .await
        }))
        .await
        .map(drop)
        .or_else(ScheduleError::unless_part_away)
    }
}

#[async_trait]
impl ScheduleUpkeep for RedisSchedule {
    async fn begin_rebuild(&self) -> Result<Option<RebuildMark>, ScheduleError> {
        rebuild::begin(&self.shards).await
    }

    fn is_lost(&self, mark: &RebuildMark, feed: FeedId) -> bool {
        mark.0.get(self.shards.shard_of(feed)).is_some_and(|nonce| !nonce.is_empty())
    }

    async fn finish_rebuild(&self, mark: &RebuildMark) -> Result<bool, ScheduleError> {
        rebuild::finish(&self.shards, mark).await
    }

    async fn check(&self, clock: &dyn Clock) -> Result<(), ScheduleError> {
        self.shards.check(clock, false).await
    }

    async fn check_whole(&self, clock: &dyn Clock) -> Result<(), ScheduleError> {
        self.shards.check(clock, true).await
    }
}

#[async_trait]
impl ScheduleView for RedisSchedule {
    async fn waiting(
        &self,
        after: Option<(Timestamp, FeedId)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, FeedId)>, ScheduleError> {
        waiting::first_waiting(&self.shards, after, limit, false).await
    }

    async fn waiting_before(
        &self,
        before: Option<(Timestamp, FeedId)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, FeedId)>, ScheduleError> {
        waiting::first_waiting(&self.shards, before, limit, true).await
    }

    async fn taken(&self, limit: usize) -> Result<Vec<FeedId>, ScheduleError> {
        waiting::some_taken(&self.shards, limit).await
    }

    async fn configurations(&self, own: &str) -> Result<Vec<String>, ScheduleError> {
        schedulers::configurations(&self.shards, own).await
    }

    async fn rates(&self, own: &str, rates: Rates) -> Result<Vec<Rates>, ScheduleError> {
        schedulers::rates(&self.shards, own, rates).await
    }

    async fn depth(&self, now: Timestamp) -> Result<Depth, ScheduleError> {
        let shards: Vec<[i64; 9]> = all_of(self.shards.all.iter().map(async |shard| {
            self.shards
                .eval("be counted", shard, &self.shards.scripts.depth, |call| {
                    call.arg(self.shards.time(now));
                })
                .await
        }))
        .await?;
        let sum = |at: usize| shards.iter().map(|shard| usize::try_from(shard[at]).unwrap_or_default()).sum();
        let first = |at: usize| shards.iter().filter_map(|shard| time(shard[at])).min();
        Ok(Depth {
            feeds: sum(0),
            due: sum(1),
            parked: sum(2),
            leased: sum(3),
            next: first(4),
            oldest: [first(5), first(6), first(7), first(8)],
        })
    }
}
