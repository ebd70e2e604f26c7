//! Lists waiting feeds in order: each band of each shard returns its first ones, and they are merged.

use common::time::Timestamp;
use common::url::FeedId;
use futures_util::future::try_join_all;

use super::member::Member;
use super::shards::Shards;
use crate::schedule::ScheduleError;

/// A band's feeds, and when each is due.
type Band = (Vec<Member>, Vec<i64>);

/// Returns the first `limit` feeds that wait after a position; or in reverse the last ones before it, the last one first.
pub(super) async fn first_waiting(
    shards: &Shards,
    position: Option<(Timestamp, FeedId)>,
    limit: usize,
    reversed: bool,
) -> Result<Vec<(Timestamp, FeedId)>, ScheduleError> {
    let first = if reversed { i64::MAX } else { 0 };
    let mut from = position.map_or(first, |(at, _)| at.millis().max(0));
    let is_behind = |place: &(Timestamp, FeedId)| match position {
        Some(position) if reversed => *place < position,
        Some(position) => *place > position,
        None => true,
    };
    let mut found: Vec<(Timestamp, FeedId)> = Vec::new();
    while found.len() < limit {
        let (some, complete_to) = waiting_from(shards, from, limit, reversed).await?;
        let is_known = |(at, _): &(Timestamp, FeedId)| match complete_to {
            Some(last) if reversed => at.millis() >= last,
            Some(last) => at.millis() <= last,
            None => true,
        };
        found.extend(some.into_iter().filter(|place| is_known(place) && is_behind(place)));
        match complete_to {
            // All of them were before the position, with the same due time.
            Some(last) => from = last.saturating_add(if reversed { -1 } else { 1 }),
            None => break,
        }
    }
    found.sort_unstable();
    if reversed {
        found.reverse();
    }
    found.truncate(limit);
    Ok(found)
}

/// Returns the first feeds of each band from a time on (in reverse, back from it), and the time up to which the result is complete; `None` if
/// it is complete.
async fn waiting_from(
    shards: &Shards,
    from: i64,
    limit: usize,
    reversed: bool,
) -> Result<(Vec<(Timestamp, FeedId)>, Option<i64>), ScheduleError> {
    let answers: Vec<Vec<Band>> = try_join_all(shards.all.iter().map(async |shard| {
        shards
            .eval("say what waits", shard, &shards.scripts.waiting, |call| {
                call.arg(0).arg(from).arg(limit).arg(i64::from(reversed));
            })
            .await
    }))
    .await?;
    let (mut found, mut complete_to) = (Vec::new(), None::<i64>);
    for (feeds, times) in answers.into_iter().flatten() {
        if let Some(last) = times.last().filter(|_| times.len() >= limit) {
            let nearer = |other: i64| if reversed { other.max(*last) } else { other.min(*last) };
            complete_to = Some(complete_to.map_or(*last, nearer));
        }
        let places = feeds.into_iter().zip(times);
        found.extend(places.map(|(Member(feed), at)| (Timestamp::from_millis(at), feed)));
    }
    Ok((found, complete_to))
}

/// Returns some of the feeds that are claimed or parked.
pub(super) async fn some_taken(shards: &Shards, limit: usize) -> Result<Vec<FeedId>, ScheduleError> {
    let answers: Vec<Vec<Member>> = try_join_all(shards.all.iter().map(async |shard| {
        shards
            .eval("say what is taken", shard, &shards.scripts.taken, |call| {
                call.arg(0).arg(limit);
            })
            .await
    }))
    .await?;
    let mut feeds: Vec<FeedId> = answers.into_iter().flatten().map(|Member(feed)| feed).collect();
    feeds.sort_unstable();
    feeds.dedup();
    feeds.truncate(limit);
    Ok(feeds)
}
