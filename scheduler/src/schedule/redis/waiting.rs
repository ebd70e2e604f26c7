//! Lists waiting feeds in order: each band of each shard returns its first ones, and they are merged.

use common::time::Timestamp;
use common::url::FeedId;
use futures_util::future::try_join_all;

use super::member::Member;
use super::{RedisSchedule, ScheduleError};

/// A band's feeds, and when each is due.
type Band = (Vec<Member>, Vec<i64>);

impl RedisSchedule {
    /// Returns the first `limit` feeds that wait after a position.
    pub(super) async fn first_waiting(
        &self,
        after: Option<(Timestamp, FeedId)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, FeedId)>, ScheduleError> {
        let mut from = after.map_or(0, |(at, _)| at.millis().max(0));
        let mut found: Vec<(Timestamp, FeedId)> = Vec::new();
        while found.len() < limit {
            let (some, complete_to) = self.waiting_from(from, limit).await?;
            let is_known = |(at, _): &(Timestamp, FeedId)| complete_to.is_none_or(|last| at.millis() <= last);
            found.extend(some.into_iter().filter(|place| is_known(place) && after.is_none_or(|after| *place > after)));
            match complete_to {
                // All of them were before the position, with the same due time.
                Some(last) => from = last.saturating_add(1),
                None => break,
            }
        }
        found.sort_unstable();
        found.truncate(limit);
        Ok(found)
    }

    /// Returns the first feeds of each band from a time on, and the time up to which the result is complete; `None` if
    /// it is complete.
    async fn waiting_from(
        &self,
        from: i64,
        limit: usize,
    ) -> Result<(Vec<(Timestamp, FeedId)>, Option<i64>), ScheduleError> {
        let shards: Vec<Vec<Band>> = try_join_all(self.shards.iter().map(async |shard| {
            self.eval("say what waits", shard, &self.scripts.waiting, |call| {
                call.arg(0).arg(from).arg(limit);
            })
            .await
        }))
        .await?;
        let (mut found, mut complete_to) = (Vec::new(), None::<i64>);
        for (feeds, times) in shards.into_iter().flatten() {
            if let Some(last) = times.last().filter(|_| times.len() >= limit) {
                complete_to = Some(complete_to.map_or(*last, |other| other.min(*last)));
            }
            let places = feeds.into_iter().zip(times);
            found.extend(places.map(|(Member(feed), at)| (Timestamp::from_millis(at), feed)));
        }
        Ok((found, complete_to))
    }

    /// Returns some of the feeds that are claimed or parked.
    pub(super) async fn some_taken(&self, limit: usize) -> Result<Vec<FeedId>, ScheduleError> {
        let shards: Vec<Vec<Member>> = try_join_all(self.shards.iter().map(async |shard| {
            self.eval("say what is taken", shard, &self.scripts.taken, |call| {
                call.arg(0).arg(limit);
            })
            .await
        }))
        .await?;
        let mut feeds: Vec<FeedId> = shards.into_iter().flatten().map(|Member(feed)| feed).collect();
        feeds.sort_unstable();
        feeds.dedup();
        feeds.truncate(limit);
        Ok(feeds)
    }
}
