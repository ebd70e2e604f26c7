//! The pace of feeds with pushes. Reliable pushes stretch the interval (`common::policy`). One entry that was not announced ends that,
//! and so does a lease that expired or a dead hub. The store then notes that the feed is owed its own pace, and it is planned again, as
//! if it had never been pushed. Feeds that others were merged into are planned again in the same way.

use std::collections::HashSet;

use common::live_rules::LiveRules;
use common::policy::{Policy, category, replan};
use common::time::Timestamp;
use common::url::FeedId;

use crate::condition::Condition;
use crate::error::BackendError;
use crate::ops::Ops;
use crate::poll::subject::{draw, planned_subject, slot};
use crate::schedule::{Schedule, ScheduleError};
use store::{FeedChange, Store, StoreError};

/// How often a feed is planned again that a person changed meanwhile.
const TRIES: usize = 3;
/// Feeds that are planned again at once.
const OWED_AT_ONCE: u32 = 200;

/// Returns feeds to the pace that they have without pushes.
pub(crate) struct OwnPace<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) schedule: &'a dyn Schedule,
    pub(crate) rules: &'a LiveRules,
    pub(crate) condition: &'a Condition,
}

impl<'a> OwnPace<'a> {
    pub(crate) fn of(ops: &'a Ops) -> Self {
        OwnPace { store: &*ops.store, schedule: &*ops.schedule, rules: &ops.rules, condition: &ops.condition }
    }

    /// Plans the feeds again that are owed their own pace; returns how many there were. Safe to repeat: until a feed is planned again,
    /// the store says that it is owed that.
    pub(crate) async fn restore_owed(&self, now: Timestamp) -> Result<usize, BackendError> {
        let owed = self.store.owed_paces(OWED_AT_ONCE).await?;
        if owed.is_empty() {
            return Ok(0);
        }
        let ids: Vec<FeedId> = owed.iter().map(|of| FeedId(of.feed_id)).collect();
        let mut kept = HashSet::new();
        if !self.replan(&ids, false, now).await? {
            // One feed that a person is changing does not keep the others from it.
            for id in ids {
                let mut tries = 0;
                while tries < TRIES && !self.replan(&[id], false, now).await? {
                    tries += 1;
                }
                kept.extend((tries == TRIES).then_some(id.0));
            }
        }
        let restored: Vec<_> = owed.iter().filter(|of| !kept.contains(&of.feed_id)).cloned().collect();
        self.store.paces_restored(&restored).await?;
        Ok(owed.len())
    }

    /// Plans feeds again that others were merged into, for the readers of all. After too many tries, and where a process dies before
    /// this, their next polls do it.
    pub(crate) async fn with_more_readers(&self, survivors: &[FeedId], now: Timestamp) -> Result<(), BackendError> {
        for id in survivors {
            let mut tries = 0;
            while tries < TRIES && !self.replan(&[*id], true, now).await? {
                tries += 1;
            }
        }
        Ok(())
    }

    /// Plans these feeds again, by what the store says of their pushes and, if they changed, of their `readers` now: the next poll comes
    /// one such interval after the last, or at once if that has passed. False if one of them was changed meanwhile.
    async fn replan(&self, ids: &[FeedId], readers: bool, now: Timestamp) -> Result<bool, BackendError> {
        let rules = self.rules.get();
        let config = self.condition.config.get();
        let policy =
            Policy { config: &config.policy, load: self.condition.load.get(), price: self.condition.price.get() };
        let (mut changes, mut slots) = (Vec::new(), Vec::new());
        for feed in self.store.states_for(ids).await? {
            let Some(due) = feed.poll_due() else { continue };
            let subject = planned_subject(&rules, &feed, now);
            let plan = replan(&subject, due, now, draw(), &policy);
            if plan.is_none() && !readers {
                // A process may have died after it planned the feed again.
                slots.extend(feed.due().map(|due| slot(&rules, &feed, due)));
                continue;
            }
            let (next_due, archive) = plan.map_or((None, None), |plan| feed.replanned(plan));
            let change = FeedChange {
                audience: readers.then(|| (feed.audience, category(&subject))),
                next_due,
                archive,
                expects: Some((feed.version, feed.audience)),
                ..FeedChange::default()
            };
            changes.push((feed.id, change));
        }
        match self.store.change_feeds(&changes, now).await {
            Err(StoreError::Outdated) => Ok(false),
            changed => {
                slots.extend(changed?.iter().filter_map(|feed| Some(slot(&rules, feed, feed.due()?))));
                // What is owed is tried again. The others come by their old times when their part of the schedule is back.
                let unless_away = |error| if readers { ScheduleError::unless_part_away(error) } else { Err(error) };
                self.schedule.lower(&slots, now).await.or_else(unless_away)?;
                Ok(true)
            }
        }
    }
}
