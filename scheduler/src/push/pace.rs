//! The pace of feeds with pushes. Reliable pushes stretch the interval (`common::policy`). One entry that was not announced ends that,
//! and so does a lease that expired or a dead hub. The store then notes that the feed is owed its own pace, and it is planned again, as
//! if it had never been pushed.

use std::collections::HashSet;

use common::live_rules::LiveRules;
use common::policy::{Policy, replan};
use common::time::Timestamp;
use common::url::FeedId;

use crate::condition::Condition;
use crate::error::BackendError;
use crate::ops::Ops;
use crate::poll::subject::{draw, planned_subject, slot};
use crate::schedule::Schedule;
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
        if !self.restore(&ids, now).await? {
            // One feed that a person is changing does not keep the others from it.
            for id in ids {
                let mut tries = 0;
                while tries < TRIES && !self.restore(&[id], now).await? {
                    tries += 1;
                }
                kept.extend((tries == TRIES).then_some(id.0));
            }
        }
        let restored: Vec<_> = owed.iter().filter(|of| !kept.contains(&of.feed_id)).cloned().collect();
        self.store.paces_restored(&restored).await?;
        Ok(owed.len())
    }

    /// Plans these feeds again, by what the store says of their pushes now: the next poll comes one unpushed interval after the last,
    /// or at once if that has passed. False if one of them was changed meanwhile.
    async fn restore(&self, ids: &[FeedId], now: Timestamp) -> Result<bool, BackendError> {
        let rules = self.rules.get();
        let config = self.condition.config.get();
        let policy =
            Policy { config: &config.policy, load: self.condition.load.get(), price: self.condition.price.get() };
        let (mut changes, mut slots) = (Vec::new(), Vec::new());
        for feed in self.store.states_for(ids).await? {
            let Some(due) = feed.poll_due() else { continue };
            match replan(&planned_subject(&rules, &feed, now), due, now, draw(), &policy) {
                Some(plan) => {
                    let (next_due, archive) = feed.replanned(plan);
                    let change = FeedChange {
                        next_due,
                        archive,
                        expects: Some((feed.version, feed.audience)),
                        ..FeedChange::default()
                    };
                    changes.push((feed.id, change));
                }
                // A process may have died after it planned the feed again.
                None => slots.extend(feed.due().map(|due| slot(&rules, &feed, due))),
            }
        }
        match self.store.change_feeds(&changes, now).await {
            Err(StoreError::Outdated) => Ok(false),
            changed => {
                slots.extend(changed?.iter().filter_map(|feed| Some(slot(&rules, feed, feed.due()?))));
                self.schedule.lower(&slots, now).await?;
                Ok(true)
            }
        }
    }
}
