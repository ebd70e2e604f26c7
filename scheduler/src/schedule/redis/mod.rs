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
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use async_trait::async_trait;
use common::host::HostKey;
use common::redis::{Part, RedisServer, ServerError, fault};
use common::time::{Clock, Timestamp};
use common::url::FeedId;
use futures_util::future::join_all;
use rand::RngExt;
use redis::{FromRedisValue, Script, ScriptInvocation};

use self::member::Member;
use super::{Claim, Depth, Parking, RebuildMark, Schedule, ScheduleError, ScheduleUpkeep, ScheduleView, Slot};

/// The due times of all processes that use the same server and namespace.
pub struct RedisSchedule {
    server: RedisServer,
    shards: Vec<Shard>,
    /// Where the number of shards is stored, and the key.
    home: Part,
    layout: String,
    /// The time in scripts is the caller's, for tests, and not the server's.
    callers_time: bool,
    /// That number was ours: if it differs later, another process changed it.
    noted: AtomicBool,
    scripts: Scripts,
}

/// The keys of a shard.
struct Shard {
    part: Part,
    /// Bands, heads and the host of each parked feed, in the order that the scripts expect.
    keys: [String; 9],
    /// The mark of a shard that lost nothing, and the mark of a rebuild in progress.
    marks: [String; 2],
    /// The prefix of the names of calls that are remembered for a short time.
    calls: String,
}

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
    configurations: Script,
    drop: Script,
}

/// The maximum number of feeds or hosts per call, so that no script blocks the server for long.
const AT_ONCE: usize = 500;
/// How long the configuration of a scheduler is kept that notes it no more.
const CONFIGURATION_KEPT: Duration = Duration::from_secs(30);
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
    fn all(server: &RedisServer, count: usize) -> Vec<Self> {
        server.parts(count).into_iter().map(Shard::new).collect()
    }

    fn new(part: Part) -> Self {
        let key = |name: &str| format!("{}:schedule:{name}", part.tag);
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
            part,
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
        let home = server.whole();
        RedisSchedule {
            shards: Shard::all(&server, usize::from(shards.max(1))),
            layout: format!("{}:schedule:shards", home.tag),
            home,
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
                configurations: script!("configurations.lua"),
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
        let answer = self.server.eval(shard.part.slot, script, |call, _| {
            call.key(&shard.keys);
            fill(call);
        });
        answer.await.map_err(|error| self.failed(action, error))
    }

    /// The error of a call to a shard.
    fn failed(&self, action: &'static str, error: ServerError) -> ScheduleError {
        if error.is_away() && self.shards.len() > 1 {
            ScheduleError::PartAway { action, source: Box::new(error) }
        } else {
            failed(action, error)
        }
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
        all_of(calls.map(async |(shard, slots)| {
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
        all_of(calls.map(async |(shard, feeds)| {
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

    /// Checks the servers.
    async fn check_shards(&self, clock: &dyn Clock, must_answer: bool) -> Result<(), ScheduleError> {
        let home = std::iter::once(&self.home);
        let shards = self.shards.iter().map(|shard| &shard.part).filter(|_| self.server.is_cluster());
        let parts: Vec<Part> = home.chain(shards).cloned().collect();
        let checked = self.server.check(&parts, ":schedule:shards", clock).await;
        fault(&checked, must_answer).map_or(Ok(()), |error| Err(failed("be used", error)))
    }
}

fn failed(action: &'static str, error: ServerError) -> ScheduleError {
    ScheduleError::Backend { action, source: Box::new(error) }
}

/// Waits for all, also after a failure: a server that is away stops nothing at the others. An error that is not of that kind comes first.
async fn all_of<T>(
    calls: impl Iterator<Item = impl Future<Output = Result<T, ScheduleError>>>,
) -> Result<Vec<T>, ScheduleError> {
    let (mut answers, mut failure) = (Vec::new(), None);
    for answer in join_all(calls).await {
        match (answer, &failure) {
            (Ok(answer), _) => answers.push(answer),
            (Err(error), None | Some(ScheduleError::PartAway { .. })) => failure = Some(error),
            (Err(_), Some(_)) => {}
        }
    }
    failure.map_or(Ok(answers), Err)
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
        self.eval_slots::<()>("put feeds", &self.scripts.put, slots, &[self.time(now), 0]).await?;
        Ok(())
    }

    async fn put_off(&self, slots: &[Slot], now: Timestamp) -> Result<(), ScheduleError> {
        self.eval_slots::<()>("put feeds off", &self.scripts.put, slots, &[self.time(now), 1]).await?;
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
        all_of(calls.map(async |(shard, parkings)| {
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
        let calls: Vec<(&Shard, &[(HostKey, Timestamp)])> = calls.collect();
        all_of(calls.into_iter().map(async |(shard, hosts)| {
            self.eval::<()>("bring hosts forward", shard, &self.scripts.unpark, |call| {
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
        self.begin().await
    }

    fn is_lost(&self, mark: &RebuildMark, feed: FeedId) -> bool {
        mark.0.get(self.shard_of(feed)).is_some_and(|nonce| !nonce.is_empty())
    }

    async fn finish_rebuild(&self, mark: &RebuildMark) -> Result<bool, ScheduleError> {
        self.finish(mark).await
    }

    async fn check(&self, clock: &dyn Clock) -> Result<(), ScheduleError> {
        self.check_shards(clock, false).await
    }

    async fn check_whole(&self, clock: &dyn Clock) -> Result<(), ScheduleError> {
        self.check_shards(clock, true).await
    }
}

#[async_trait]
impl ScheduleView for RedisSchedule {
    async fn waiting(
        &self,
        after: Option<(Timestamp, FeedId)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, FeedId)>, ScheduleError> {
        self.first_waiting(after, limit, false).await
    }

    async fn waiting_before(
        &self,
        before: Option<(Timestamp, FeedId)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, FeedId)>, ScheduleError> {
        self.first_waiting(before, limit, true).await
    }

    async fn taken(&self, limit: usize) -> Result<Vec<FeedId>, ScheduleError> {
        self.some_taken(limit).await
    }

    async fn configurations(&self, own: &str) -> Result<Vec<String>, ScheduleError> {
        let key = format!("{}:schedule:configurations", self.home.tag);
        let noted = self.server.eval(self.home.slot, &self.scripts.configurations, |call, _| {
            call.key(&key).arg(own).arg(millis(CONFIGURATION_KEPT));
        });
        noted.await.map_err(|error| self.failed("note a configuration", error))
    }

    async fn depth(&self, now: Timestamp) -> Result<Depth, ScheduleError> {
        let shards: Vec<[i64; 9]> = all_of(self.shards.iter().map(async |shard| {
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
