//! Whether a feed's pushes are reliable, learned from its new entries: one that is older than the push that came with it was not
//! announced, and neither is one that came without a push. The store counts both in the transaction that stores the entries.
//!
//! Reliable pushes stretch the interval (`common::policy`). One entry that was not announced ends that, and so does a lease that expired
//! or a dead hub. The store then notes that the feed is owed its own pace, and it is planned again, as if it had never been pushed.

use std::collections::HashSet;
use std::time::Duration;

use common::feed::Feed;
use common::live_rules::LiveRules;
use common::policy::{Policy, Rule, replan};
use common::push::FeedPush;
use common::time::Timestamp;
use common::url::FeedId;

use crate::condition::Condition;
use crate::error::BackendError;
use crate::ops::Ops;
use crate::poll::results::Results;
use crate::poll::subject::{draw, planned_subject, slot};
use crate::schedule::Schedule;
use store::{FeedChange, PushClaim, Store, StoreError};

/// A push so shortly before a poll, or while it ran, announced what the poll found.
const SHORTLY: Duration = Duration::from_secs(30);
/// An entry may be dated so long before its push, or one interval of its feed if that is longer.
const DATED_WITHIN: Duration = Duration::from_secs(15 * 60);
/// How often a feed is planned again that a person changed meanwhile.
const TRIES: usize = 3;
/// Feeds that are planned again at once.
const OWED_AT_ONCE: u32 = 200;

/// Returns what makes new entries of a poll announced; `None`: they say nothing, because the feed is not subscribed, or was never read
/// before.
pub(crate) fn claim_of_poll(feed: &Feed, started: Timestamp) -> Option<PushClaim> {
    let push = feed.push.as_ref().filter(|_| feed.state.last_success.is_some())?;
    let at = announced_at(push, feed.state.last_polled, started);
    Some(PushClaim { since: at.map(|at| at.before(dated_within(feed))) })
}

/// Returns what makes new entries of a delivery announced: one that is much older was in an earlier delivery that did not arrive.
pub(crate) fn claim_of_delivery(feed: &Feed, came: Timestamp) -> Option<PushClaim> {
    feed.push.as_ref()?;
    Some(PushClaim { since: Some(came.before(dated_within(feed))) })
}

/// The time of the push that announced what a poll found: one that caused a poll since the last one, or any that came just now.
fn announced_at(push: &FeedPush, last_polled: Option<Timestamp>, started: Timestamp) -> Option<Timestamp> {
    let caused = push.light_at.filter(|light| last_polled.is_none_or(|last| *light >= last));
    caused.or_else(|| push.heard_at.filter(|heard| *heard >= started.before(SHORTLY)))
}

/// The feed's interval without pushes: what is found later than that would have been found by a poll.
fn dated_within(feed: &Feed) -> Duration {
    let unpushed = feed.terms.iter().take_while(|term| term.rule != Rule::Pushed).last();
    let interval = unpushed.zip(feed.state.last_polled).map(|(term, polled)| term.due.since(polled));
    interval.unwrap_or_default().max(DATED_WITHIN)
}

impl Results {
    /// Brings feeds back to their own pace that are owed it.
    pub(crate) async fn restore_paces(&self, now: Timestamp) -> Result<(), BackendError> {
        let pace =
            Pace { store: &*self.store, schedule: &*self.schedule, rules: &self.rules, condition: &self.condition };
        pace.restore_owed(now).await.map(drop)
    }
}

/// Brings feeds back to the pace that they have without pushes.
pub(crate) struct Pace<'a> {
    store: &'a dyn Store,
    schedule: &'a dyn Schedule,
    rules: &'a LiveRules,
    condition: &'a Condition,
}

impl<'a> Pace<'a> {
    pub(crate) fn of(ops: &'a Ops) -> Self {
        Pace { store: &*ops.store, schedule: &*ops.schedule, rules: &ops.rules, condition: &ops.condition }
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
            let Some(due) = feed.next_due else { continue };
            match replan(&planned_subject(&rules, &feed, now), due, now, draw(), &policy) {
                Some(next_due) => {
                    let expects = Some((feed.version, feed.audience));
                    changes.push((feed.id, FeedChange { next_due: Some(next_due), expects, ..FeedChange::default() }));
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

#[cfg(test)]
mod tests {
    use common::push::{PushKind, PushState};

    use super::*;

    #[test]
    fn what_came_since_the_last_poll_or_just_now_is_announced() {
        let at = |seconds| Timestamp::from_millis(1_790_000_000_000).after(Duration::from_secs(seconds));
        let push = |heard: Option<u64>, light: Option<u64>| FeedPush {
            kind: PushKind::WebSub,
            hub: "https://hub.example/".into(),
            topic: "https://a.example/".into(),
            state: PushState::Verified,
            lease_until: None,
            announced: 0,
            missed: 0,
            deliveries: 0,
            heard_at: heard.map(at),
            light_at: light.map(at),
        };
        let judged = |heard, light| announced_at(&push(heard, light), Some(at(1000)), at(2000));
        assert_eq!(judged(Some(1500), Some(1400)), Some(at(1400)), "a ping since the last poll");
        assert_eq!(judged(Some(1500), None), None, "a delivery of something else");
        assert_eq!(judged(Some(1980), None), Some(at(1980)), "a delivery that crosses the poll");
        assert_eq!((judged(Some(900), Some(900)), judged(None, None)), (None, None));
    }
}
