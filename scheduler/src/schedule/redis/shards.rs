//! The keys and scripts of the shards, and the calls to them.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use common::redis::{Part, RedisServer, ServerError, fault};
use common::time::{Clock, Timestamp};
use common::url::FeedId;
use futures_util::future::join_all;
use rand::RngExt;
use redis::{FromRedisValue, Script, ScriptInvocation};

use super::member::Member;
use crate::schedule::{ScheduleError, Slot};

/// The shards of a fleet's schedule.
pub(super) struct Shards {
    pub(super) server: RedisServer,
    pub(super) all: Vec<Shard>,
    /// Where the number of shards is stored, and the key.
    pub(super) home: Part,
    pub(super) layout: String,
    /// The time in scripts is the caller's, for tests, and not the server's.
    pub(super) callers_time: bool,
    /// That number was ours: if it differs later, another process changed it.
    pub(super) noted: AtomicBool,
    pub(super) scripts: Scripts,
}

/// The keys of a shard.
pub(super) struct Shard {
    pub(super) part: Part,
    /// Bands, heads and the host of each parked feed, in the order that the scripts expect.
    pub(super) keys: [String; 9],
    /// The mark of a shard that lost nothing, and the mark of a rebuild in progress.
    pub(super) marks: [String; 2],
    /// The prefix of the names of calls that are remembered for a short time.
    calls: String,
}

pub(super) struct Scripts {
    pub(super) put: Script,
    pub(super) lower: Script,
    pub(super) correct: Script,
    pub(super) remove: Script,
    pub(super) claim: Script,
    pub(super) extend: Script,
    pub(super) park: Script,
    pub(super) unpark: Script,
    pub(super) depth: Script,
    pub(super) waiting: Script,
    pub(super) taken: Script,
    pub(super) begin_rebuild: Script,
    pub(super) finish_rebuild: Script,
    pub(super) layout: Script,
    pub(super) configurations: Script,
    pub(super) rates: Script,
    pub(super) drop: Script,
}

/// The maximum number of feeds or hosts per call, so that no script blocks the server for long.
pub(super) const AT_ONCE: usize = 500;

/// Creates a script, preceded by the functions that it uses.
macro_rules! script {
    ($($file:literal),+) => {
        Script::new(concat!($(include_str!($file)),+))
    };
}

impl Shard {
    /// Returns all shards of a schedule.
    pub(super) fn all(server: &RedisServer, count: usize) -> Vec<Self> {
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
    pub(super) fn call(&self) -> String {
        format!("{}{:016x}", self.calls, rand::rng().random::<u64>())
    }
}

impl Shards {
    /// Returns `count` shards (at least one) on this server, without connecting to it.
    pub(super) fn new(server: RedisServer, count: u16) -> Self {
        let home = server.whole();
        Shards {
            all: Shard::all(&server, usize::from(count.max(1))),
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
                rates: script!("rates.lua"),
                drop: script!("drop.lua"),
            },
        }
    }

    /// The time as scripts take it; what is below zero leaves it to the server. Callers' clocks differ, and what is due must not.
    pub(super) fn time(&self, now: Timestamp) -> i64 {
        if self.callers_time { now.millis() } else { -1 }
    }

    /// Runs a script on a shard, with its keys.
    pub(super) async fn eval<T: FromRedisValue>(
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
    pub(super) fn failed(&self, action: &'static str, error: ServerError) -> ScheduleError {
        if error.is_away() && self.all.len() > 1 {
            ScheduleError::PartAway { action, source: Box::new(error) }
        } else {
            failed(action, error)
        }
    }

    /// Groups items by the shards of their feeds, into calls; of several items of one feed the last one wins.
    pub(super) fn calls<T: Copy>(&self, items: impl Iterator<Item = (FeedId, T)>) -> Vec<(&Shard, Vec<T>)> {
        let mut shards: Vec<BTreeMap<FeedId, T>> = self.all.iter().map(|_| BTreeMap::new()).collect();
        for (feed, item) in items {
            shards[self.shard_of(feed)].insert(feed, item);
        }
        let mut calls = Vec::new();
        for (shard, items) in self.all.iter().zip(shards) {
            let items: Vec<T> = items.into_values().collect();
            calls.extend(items.chunks(AT_ONCE).map(|chunk| (shard, chunk.to_vec())));
        }
        calls
    }

    pub(super) fn shard_of(&self, feed: FeedId) -> usize {
        let shards = i64::try_from(self.all.len()).unwrap_or(1);
        usize::try_from(feed.0.rem_euclid(shards)).unwrap_or_default()
    }

    /// Runs a script on slots, after its leading arguments.
    pub(super) async fn eval_slots<T: FromRedisValue>(
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
    pub(super) async fn eval_feeds(
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
    pub(super) async fn check(&self, clock: &dyn Clock, must_answer: bool) -> Result<(), ScheduleError> {
        let home = std::iter::once(&self.home);
        let shards = self.all.iter().map(|shard| &shard.part).filter(|_| self.server.is_cluster());
        let parts: Vec<Part> = home.chain(shards).cloned().collect();
        let checked = self.server.check(&parts, ":schedule:shards", clock).await;
        fault(&checked, must_answer).map_or(Ok(()), |error| Err(failed("be used", error)))
    }
}

pub(super) fn failed(action: &'static str, error: ServerError) -> ScheduleError {
    ScheduleError::Backend { action, source: Box::new(error) }
}

/// Waits for all, also after a failure: a server that is away stops nothing at the others. An error that is not of that kind comes first.
pub(super) async fn all_of<T>(
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

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Converts a script's time; a negative one means none.
pub(super) fn time(millis: i64) -> Option<Timestamp> {
    (millis >= 0).then(|| Timestamp::from_millis(millis))
}
