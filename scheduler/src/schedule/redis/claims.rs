//! Claims over several shards: each returns its part, and while one is away the others continue.

use std::time::Duration;

use common::host::HostKey;
use common::time::Timestamp;
use futures_util::future::join_all;
use rand::RngExt;

use super::member::Member;
use super::shards::{Shard, Shards, millis};
use crate::schedule::{Claim, ScheduleError};

/// The result of a claim on a shard: feeds that were waiting, feeds whose lease had expired, feeds that were parked at
/// a host.
type Claimed = (Vec<Vec<Member>>, Vec<Vec<Member>>, Vec<(Member, String)>);

/// Claims up to `limit` due feeds.
pub(super) async fn claim(
    shards: &Shards,
    now: Timestamp,
    limit: usize,
    lease: Duration,
    urgent: bool,
) -> Result<Vec<Claim>, ScheduleError> {
    // Each shard claims its part; what some leave goes to the others, starting at a random shard.
    let (count, start) = (shards.all.len(), rand::rng().random_range(0..shards.all.len()));
    let mut turn: Vec<&Shard> = shards.all.iter().cycle().skip(start).take(count).collect();
    let part = limit.div_ceil(count);
    let parts = (0..count).map(|at| part.min(limit.saturating_sub(at * part)));
    let asked = turn.iter().zip(parts).filter(|(_, part)| *part > 0);
    let asked: Vec<(&Shard, usize)> = asked.map(|(shard, part)| (*shard, part)).collect();
    let answers =
        join_all(asked.iter().map(|(shard, part)| claim_shard(shards, shard, now, *part, lease, urgent))).await;
    let (mut claims, mut failure, mut answered) = (Vec::new(), None, false);
    let mut unasked = turn.split_off(asked.len());
    for ((shard, part), answer) in asked.into_iter().zip(answers) {
        match answer {
            Ok(claimed) => {
                answered = true;
                // A shard that did not fill its part has nothing else.
                unasked.extend((claimed.len() >= part).then_some(shard));
                claims.extend(claimed);
            }
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    for shard in unasked {
        let left = limit.saturating_sub(claims.len());
        if left > 0 && count > 1 {
            match claim_shard(shards, shard, now, left, lease, urgent).await {
                Ok(claimed) => {
                    answered = true;
                    claims.extend(claimed);
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
    }
    // What some shards claimed is claimed, whatever the outcome of the others.
    match failure {
        Some(error) if !answered => return Err(error),
        Some(error) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "a part of the schedule claimed nothing");
        }
        None => {}
    }
    Ok(claims)
}

async fn claim_shard(
    shards: &Shards,
    shard: &Shard,
    now: Timestamp,
    limit: usize,
    lease: Duration,
    urgent: bool,
) -> Result<Vec<Claim>, ScheduleError> {
    let name = shard.call();
    let (waited, expired, parked): Claimed = shards
        .eval("claim feeds", shard, &shards.scripts.claim, |call| {
            call.key(&name).arg(shards.time(now)).arg(millis(lease)).arg(limit).arg(u8::from(urgent));
            call.arg(now.after(shards.server.patience()).millis());
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
