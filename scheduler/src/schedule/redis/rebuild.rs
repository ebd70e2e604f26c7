//! Which shards have lost their memory, and how many there are.

use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use rand::RngExt;

use super::shards::{Shard, Shards, all_of, failed};
use crate::schedule::{RebuildMark, ScheduleError};

/// Two schedulers have different settings.
#[derive(Debug, thiserror::Error)]
#[error("another scheduler was started with schedule.shards = {theirs}; this one has {ours} and must be restarted")]
struct OtherShards {
    ours: usize,
    theirs: usize,
}

pub(super) async fn begin(shards: &Shards) -> Result<Option<RebuildMark>, ScheduleError> {
    let layout = match follow_layout(shards).await {
        // It was ours, and a scheduler with another number cannot change it now either.
        Err(error @ ScheduleError::PartAway { .. }) if shards.noted.load(Ordering::Relaxed) => Some(error),
        followed => followed.map(|()| None)?,
    };
    let nonce = format!("{:016x}", rand::rng().random::<u64>());
    let begun = join_all(shards.all.iter().map(async |shard| {
        let answer = shards.server.eval(shard.part.slot, &shards.scripts.begin_rebuild, |call, run| {
            call.key(&shard.marks).arg(run).arg(&nonce);
        });
        answer.await.map_err(|error| shards.failed("say whether it is whole", error))
    }))
    .await;
    let (mut mark, mut failure) = (Vec::with_capacity(begun.len()), layout);
    for begun in begun {
        let nonce: Option<String> = begun.unwrap_or_else(|error| {
            failure = Some(error);
            None
        });
        mark.push(nonce.unwrap_or_default());
    }
    match failure {
        // Shards that lost their memory do not wait for those that are away.
        Some(error) if mark.iter().all(String::is_empty) => Err(error),
        _ => Ok(mark.iter().any(|nonce| !nonce.is_empty()).then_some(RebuildMark(mark))),
    }
}

pub(super) async fn finish(shards: &Shards, mark: &RebuildMark) -> Result<bool, ScheduleError> {
    let lost = shards.all.iter().zip(&mark.0).filter(|(_, nonce)| !nonce.is_empty());
    let finished: Vec<bool> = all_of(lost.map(async |(shard, nonce)| {
        let answer = shards.server.eval(shard.part.slot, &shards.scripts.finish_rebuild, |call, run| {
            call.key(&shard.marks).arg(run).arg(nonce);
        });
        answer.await.map_err(|error| shards.failed("be marked as whole", error))
    }))
    .await?;
    Ok(finished.into_iter().all(|finished| finished))
}

/// Stores the number of shards, and deletes the shards of a different number that was stored before this process
/// started.
async fn follow_layout(shards: &Shards) -> Result<(), ScheduleError> {
    let ours = shards.all.len();
    let noted = note_layout(shards, false).await?;
    if let Some(theirs) = noted.filter(|noted| *noted != ours) {
        if shards.noted.load(Ordering::Relaxed) {
            let source = Box::new(OtherShards { ours, theirs });
            return Err(ScheduleError::Backend { action: "be shared", source });
        }
        for shard in Shard::all(&shards.server, theirs) {
            let answer = shards.server.eval(shard.part.slot, &shards.scripts.drop, |call, _| {
                call.key(&shard.keys).key(&shard.marks);
            });
            let _: i64 = answer.await.map_err(|error| failed("delete its old shards", error))?;
        }
        note_layout(shards, true).await?;
    }
    shards.noted.store(true, Ordering::Relaxed);
    Ok(())
}

async fn note_layout(shards: &Shards, anew: bool) -> Result<Option<usize>, ScheduleError> {
    let answer = shards.server.eval(shards.home.slot, &shards.scripts.layout, |call, _| {
        call.key(&shards.layout).arg(shards.all.len()).arg(anew);
    });
    answer.await.map_err(|error| shards.failed("note its number of shards", error))
}
