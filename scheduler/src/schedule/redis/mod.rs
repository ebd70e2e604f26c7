//! A cluster's schedule in Redis: each operation on a shard is one Lua script, and therefore atomic.
//!
//! A feed is one member of one sorted set, and its score encodes its state (see `schedule.lua`), so a feed that is not
//! parked needs no other key. Feeds are distributed over `shards` by their ids; a shard's keys share a hash tag, so
//! that the nodes of a Redis cluster can divide the shards among them. With several shards, a host has a head and a set
//! of parked feeds in each.
//!
//! The number of shards is part of every key. A fleet that is started with another number finds its schedule empty,
//! deletes the old one, and fills its own from the store as after any loss. A scheduler that still runs with the old
//! number then has nothing to claim, and reports why.

mod member;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use common::host::HostKey;
use common::redis::{RedisServer, ServerError};
use common::time::{Clock, Timestamp};
use common::url::FeedId;
use futures_util::future::try_join_all;
use rand::RngExt;
use redis::{FromRedisValue, Script, ScriptInvocation};

use self::member::Member;
use super::{Claim, Depth, Parking, RebuildMark, Schedule, ScheduleError, Slot};

/// The due times of all processes that use the same server and namespace.
pub struct RedisSchedule {
    server: RedisServer,
    shards: Vec<Shard>,
    /// The key that stores the number of shards.
    layout: String,
    /// The time in scripts is the caller's, for tests, and not the server's.
    callers_time: bool,
    /// That number was ours: if it is another one later, somebody else changed it.
    noted: AtomicBool,
    scripts: Scripts,
}

/// Two schedulers have different settings.
#[derive(Debug, thiserror::Error)]
#[error("another scheduler was started with schedule.shards = {theirs}; this one has {ours} and must be restarted")]
struct OtherShards {
    ours: usize,
    theirs: usize,
}

/// The keys of a shard.
struct Shard {
    /// Bands, heads and the host of each parked feed, in the order that the scripts expect.
    keys: [String; 9],
    /// The mark of a shard that lost nothing, and the mark of a rebuild in progress.
    marks: [String; 2],
    /// The prefix of the names of calls that are remembered for a short time.
    calls: String,
}

/// The result of a claim on a shard: feeds that were waiting, feeds whose lease had expired, feeds that were parked at
/// a host.
type Claimed = (Vec<Vec<Member>>, Vec<Vec<Member>>, Vec<(Member, String)>);

struct Scripts {
    put: Script,
    lower: Script,
    correct: Script,
    remove: Script,
    claim: Script,
    extend: Script,
    park: Script,
    unpark: Script,
    depth: Script,
    waiting: Script,
    taken: Script,
    begin_rebuild: Script,
    finish_rebuild: Script,
    layout: Script,
    drop: Script,
}

/// The maximum number of feeds or hosts per call, so that no script blocks the server for long.
const AT_ONCE: usize = 500;
/// The maximum absolute rank. The scripts reserve lower ones for woken feeds, and use the fraction for the band.
const RANK_LIMIT: i64 = (1 << 49) - 1;

/// Creates a script, preceded by the functions that it uses.
macro_rules! script {
    ($($file:literal),+) => {
        Script::new(concat!($(include_str!($file)),+))
    };
}

impl Shard {
    /// Returns all shards of a schedule.
    fn all(namespace: &str, count: usize) -> Vec<Self> {
        (0..count).map(|number| Shard::new(namespace, number, count)).collect()
    }

    fn new(namespace: &str, number: usize, shards: usize) -> Self {
        let key = |name: &str| format!("{{{namespace}:{number}/{shards}}}:schedule:{name}");
        Shard {
            keys: [
                "urgent",
                "prompt",
                "steady",
                "patient",
                "heads:urgent",
                "heads:prompt",
                "heads:steady",
                "heads:patient",
                "parked",
            ]
            .map(key),
            marks: ["whole", "filling"].map(key),
            calls: key("call:"),
        }
    }

    /// Returns a unique name for a call that may be sent twice but must be executed once.
    fn call(&self) -> String {
        format!("{}{:016x}", self.calls, rand::rng().random::<u64>())
    }
}

impl RedisSchedule {
    /// Creates a schedule on this server with `shards` shards (at least one), without connecting to it.
    pub fn new(server: RedisServer, shards: u16) -> Self {
        RedisSchedule {
            shards: Shard::all(server.namespace(), usize::from(shards.max(1))),
            layout: format!("{{{}}}:schedule:shards", server.namespace()),
            callers_time: false,
            noted: AtomicBool::new(false),
            server,
            scripts: Scripts {
                put: script!("schedule.lua", "put.lua"),
                lower: script!("schedule.lua", "lower.lua"),
                correct: script!("schedule.lua", "correct.lua"),
                remove: script!("schedule.lua", "remove.lua"),
                claim: script!("schedule.lua", "claim.lua"),
                extend: script!("schedule.lua", "extend.lua"),
                park: script!("schedule.lua", "park.lua"),
                unpark: script!("schedule.lua", "unpark.lua"),
                depth: script!("schedule.lua", "depth.lua"),
                waiting: script!("schedule.lua", "waiting.lua"),
                taken: script!("schedule.lua", "taken.lua"),
                begin_rebuild: script!("begin_rebuild.lua"),
                finish_rebuild: script!("finish_rebuild.lua"),
                layout: script!("layout.lua"),
                drop: script!("drop.lua"),
            },
        }
    }

    /// The same, with the time that each call is given in place of the server's own.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn on_callers_time(mut self) -> Self {
        self.callers_time = true;
        self
    }

    /// The time as scripts take it; what is below zero leaves it to the server. Callers' clocks differ, and what is due must not.
    fn time(&self, now: Timestamp) -> i64 {
        if self.callers_time { now.millis() } else { -1 }
    }

    /// Runs a script on a shard, with its keys.
    async fn eval<T: FromRedisValue>(
        &self,
        action: &'static str,
        shard: &Shard,
        script: &Script,
        fill: impl Fn(&mut ScriptInvocation<'_>) + Send + Sync,
    ) -> Result<T, ScheduleError> {
        let answer = self.server.eval(script, |call, _| {
            call.key(&shard.keys);
            fill(call);
        });
        answer.await.map_err(|error| failed(action, error))
    }

    /// Groups items by the shards of their feeds, into calls; of several items of one feed the last one wins.
    fn calls<T: Copy>(&self, items: impl Iterator<Item = (FeedId, T)>) -> Vec<(&Shard, Vec<T>)> {
        let mut shards: Vec<BTreeMap<FeedId, T>> = self.shards.iter().map(|_| BTreeMap::new()).collect();
        for (feed, item) in items {
            shards[self.shard_of(feed)].insert(feed, item);
        }
        let mut calls = Vec::new();
        for (shard, items) in self.shards.iter().zip(shards) {
            let items: Vec<T> = items.into_values().collect();
            calls.extend(items.chunks(AT_ONCE).map(|chunk| (shard, chunk.to_vec())));
        }
        calls
    }

    fn shard_of(&self, feed: FeedId) -> usize {
        let shards = i64::try_from(self.shards.len()).unwrap_or(1);
        usize::try_from(feed.0.rem_euclid(shards)).unwrap_or_default()
    }

    /// Runs a script on slots, after its leading arguments.
    async fn eval_slots<T: FromRedisValue>(
        &self,
        action: &'static str,
        script: &Script,
        slots: &[Slot],
        leading: &[i64],
    ) -> Result<Vec<T>, ScheduleError> {
        let calls = self.calls(slots.iter().map(|slot| (slot.feed, *slot))).into_iter();
        try_join_all(calls.map(async |(shard, slots)| {
            let name = shard.call();
            self.eval(action, shard, script, |call| {
                call.key(&name).arg(leading);
                for slot in &slots {
                    call.arg(Member(slot.feed)).arg(slot.due_at.millis()).arg(slot.band as usize + 1);
                }
            })
            .await
        }))
        .await
    }

    /// Runs a script on feeds, after its leading arguments.
    async fn eval_feeds(
        &self,
        action: &'static str,
        script: &Script,
        feeds: &[FeedId],
        leading: &[i64],
    ) -> Result<(), ScheduleError> {
        let calls = self.calls(feeds.iter().map(|feed| (*feed, *feed))).into_iter();
        try_join_all(calls.map(async |(shard, feeds)| {
            self.eval::<()>(action, shard, script, |call| {
                call.arg(leading);
                for feed in &feeds {
                    call.arg(Member(*feed));
                }
            })
            .await
        }))
        .await?;
        Ok(())
    }

    /// Stores the number of shards, and deletes the shards of a different number that was stored before this process
    /// started.
    async fn follow_layout(&self) -> Result<(), ScheduleError> {
        let ours = self.shards.len();
        let noted = self.note_layout(false).await?;
        if let Some(theirs) = noted.filter(|noted| *noted != ours) {
            if self.noted.load(Ordering::Relaxed) {
                let source = Box::new(OtherShards { ours, theirs });
                return Err(ScheduleError::Backend { action: "be shared", source });
            }
            for shard in Shard::all(self.server.namespace(), theirs) {
                let answer = self.server.eval(&self.scripts.drop, |call, _| {
                    call.key(&shard.keys).key(&shard.marks);
                });
                let _: i64 = answer.await.map_err(|error| failed("delete its old shards", error))?;
            }
            self.note_layout(true).await?;
        }
        self.noted.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn note_layout(&self, anew: bool) -> Result<Option<usize>, ScheduleError> {
        let answer = self.server.eval(&self.scripts.layout, |call, _| {
            call.key(&self.layout).arg(self.shards.len()).arg(anew);
        });
        answer.await.map_err(|error| failed("note its number of shards", error))
    }

    async fn claim(
        &self,
        now: Timestamp,
        limit: usize,
        lease: Duration,
        urgent: bool,
    ) -> Result<Vec<Claim>, ScheduleError> {
        // Each shard claims its part; what some leave goes to the others, starting at a random shard.
        let (count, start) = (self.shards.len(), rand::rng().random_range(0..self.shards.len()));
        let turn: Vec<&Shard> = self.shards.iter().cycle().skip(start).take(count).collect();
        let part = limit.div_ceil(count);
        let parts = (0..count).map(|at| part.min(limit.saturating_sub(at * part)));
        let asked = turn.iter().zip(parts).filter(|(_, part)| *part > 0);
        let mut claims: Vec<Claim> =
            try_join_all(asked.map(|(shard, part)| self.claim_shard(shard, now, part, lease, urgent))).await?.concat();
        if count > 1 {
            for shard in turn {
                let left = limit.saturating_sub(claims.len());
                if left > 0 {
                    claims.extend(self.claim_shard(shard, now, left, lease, urgent).await?);
                }
            }
        }
        Ok(claims)
    }

    async fn claim_shard(
        &self,
        shard: &Shard,
        now: Timestamp,
        limit: usize,
        lease: Duration,
        urgent: bool,
    ) -> Result<Vec<Claim>, ScheduleError> {
        let (until, name) = (now.after(lease), shard.call());
        let (waited, expired, parked): Claimed = self
            .eval("claim feeds", shard, &self.scripts.claim, |call| {
                call.key(&name).arg(self.time(now)).arg(until.millis()).arg(limit).arg(u8::from(urgent));
            })
            .await?;
        let claim = |lease_expired| move |Member(feed)| Claim { feed, parked_at: None, lease_expired };
        let mut claims: Vec<Claim> = waited.into_iter().flatten().map(claim(false)).collect();
        claims.extend(expired.into_iter().flatten().map(claim(true)));
        claims.extend(parked.into_iter().map(|(Member(feed), host)| Claim {
            feed,
            parked_at: Some(HostKey::new(&host)),
            lease_expired: false,
        }));
        Ok(claims)
    }
}

fn failed(action: &'static str, error: ServerError) -> ScheduleError {
    ScheduleError::Backend { action, source: Box::new(error) }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Converts a script's time; a negative one means none.
fn time(millis: i64) -> Option<Timestamp> {
    (millis >= 0).then(|| Timestamp::from_millis(millis))
}

#[async_trait]
impl Schedule for RedisSchedule {
    async fn put(&self, slots: &[Slot], now: Timestamp) -> Result<(), ScheduleError> {
        self.eval_slots::<()>("put feeds", &self.scripts.put, slots, &[self.time(now)]).await?;
        Ok(())
    }

    async fn lower(&self, slots: &[Slot], now: Timestamp) -> Result<(), ScheduleError> {
        self.eval_slots::<()>("bring feeds forward", &self.scripts.lower, slots, &[self.time(now)]).await?;
        Ok(())
    }

    async fn correct(&self, slots: &[Slot], slack: Duration, now: Timestamp) -> Result<usize, ScheduleError> {
        let leading = [self.time(now), millis(slack)];
        let wrong =
            self.eval_slots::<usize>("be compared with the store", &self.scripts.correct, slots, &leading).await?;
        Ok(wrong.into_iter().sum())
    }

    async fn remove(&self, feeds: &[FeedId]) -> Result<(), ScheduleError> {
        self.eval_feeds("take feeds out", &self.scripts.remove, feeds, &[0]).await
    }

    async fn claim_due(&self, now: Timestamp, limit: usize, lease: Duration) -> Result<Vec<Claim>, ScheduleError> {
        self.claim(now, limit, lease, false).await
    }

    async fn claim_urgent(&self, now: Timestamp, limit: usize, lease: Duration) -> Result<Vec<Claim>, ScheduleError> {
        self.claim(now, limit, lease, true).await
    }

    async fn extend(&self, feeds: &[FeedId], until: Timestamp) -> Result<(), ScheduleError> {
        self.eval_feeds("extend leases", &self.scripts.extend, feeds, &[0, until.millis()]).await
    }

    async fn park(&self, parkings: &[Parking]) -> Result<(), ScheduleError> {
        let calls = self.calls(parkings.iter().map(|parking| (parking.feed, parking))).into_iter();
        try_join_all(calls.map(async |(shard, parkings)| {
            self.eval::<()>("park feeds", shard, &self.scripts.park, |call| {
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
        let calls = self.shards.iter().flat_map(|shard| hosts.chunks(AT_ONCE).map(move |hosts| (shard, hosts)));
        try_join_all(calls.map(async |(shard, hosts)| {
            self.eval::<()>("bring hosts forward", shard, &self.scripts.unpark, |call| {
                call.arg(0);
                for (host, at) in hosts {
                    call.arg(host.as_str()).arg(at.millis());
                }
            })
            .await
        }))
        .await?;
        Ok(())
    }

    async fn begin_rebuild(&self) -> Result<Option<RebuildMark>, ScheduleError> {
        self.follow_layout().await?;
        let nonce = format!("{:016x}", rand::rng().random::<u64>());
        let begun: Vec<Option<String>> = try_join_all(self.shards.iter().map(async |shard| {
            let answer = self.server.eval(&self.scripts.begin_rebuild, |call, run| {
                call.key(&shard.marks).arg(run).arg(&nonce);
            });
            answer.await.map_err(|error| failed("say whether it is whole", error))
        }))
        .await?;
        let lost = begun.iter().any(Option::is_some);
        Ok(lost.then(|| RebuildMark(begun.into_iter().map(Option::unwrap_or_default).collect())))
    }

    async fn finish_rebuild(&self, mark: &RebuildMark) -> Result<bool, ScheduleError> {
        let lost = self.shards.iter().zip(&mark.0).filter(|(_, nonce)| !nonce.is_empty());
        let finished: Vec<bool> = try_join_all(lost.map(async |(shard, nonce)| {
            let answer = self.server.eval(&self.scripts.finish_rebuild, |call, run| {
                call.key(&shard.marks).arg(run).arg(nonce);
            });
            answer.await.map_err(|error| failed("be marked as whole", error))
        }))
        .await?;
        Ok(finished.into_iter().all(|finished| finished))
    }

    async fn check(&self, clock: &dyn Clock) -> Result<(), ScheduleError> {
        let read = self.server.check_reading(&self.layout, clock).await;
        read.map(|_| ()).map_err(|error| failed("be used", error))
    }

    async fn waiting(
        &self,
        after: Option<(Timestamp, FeedId)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, FeedId)>, ScheduleError> {
        self.first_waiting(after, limit).await
    }

    async fn taken(&self, limit: usize) -> Result<Vec<FeedId>, ScheduleError> {
        self.some_taken(limit).await
    }

    async fn depth(&self, now: Timestamp) -> Result<Depth, ScheduleError> {
        let shards: Vec<[i64; 9]> = try_join_all(self.shards.iter().map(async |shard| {
            self.eval("be counted", shard, &self.scripts.depth, |call| {
                call.arg(self.time(now));
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
