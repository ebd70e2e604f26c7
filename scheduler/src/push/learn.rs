//! Whether a feed's pushes are reliable, learned from its polls: what a poll finds first was not announced.
//!
//! Reliable pushes stretch the interval (`common::policy`). One entry that was not announced ends that, and so does a lease that expired
//! or a dead hub: the feed is then planned again, as if it had never been pushed.

use std::collections::HashMap;
use std::time::Duration;

use common::feed::Feed;
use common::live_rules::LiveRules;
use common::policy::{Policy, replan};
use common::push::FeedPush;
use common::time::Timestamp;
use common::url::FeedId;

use crate::condition::Condition;
use crate::error::BackendError;
use crate::ops::Ops;
use crate::poll::results::Results;
use crate::poll::subject::{draw, slot, subject};
use crate::schedule::Schedule;
use store::{Applied, FeedChange, PushHeard, Store, StoreError, Verdict};

/// A push so shortly before a poll, or while it ran, announced what the poll found.
const SHORTLY: Duration = Duration::from_secs(30);
/// How often a feed is planned again that a person changed meanwhile.
const TRIES: usize = 3;

impl Results {
    /// Counts what polls found of feeds with a push subscription, and brings those back to their own pace whose pushes missed
    /// something.
    pub(crate) async fn learn_from_polls(
        &self,
        verdicts: &[Verdict],
        applied: &[Applied],
        feeds: &HashMap<FeedId, Feed>,
        now: Timestamp,
    ) -> Result<(), BackendError> {
        from_polls(self, verdicts, applied, feeds, now).await
    }

    /// Brings feeds back to their own pace.
    pub(crate) fn own_pace(&self) -> Pace<'_> {
        Pace { store: &*self.store, schedule: &*self.schedule, rules: &self.rules, condition: &self.condition }
    }
}

async fn from_polls(
    results: &Results,
    verdicts: &[Verdict],
    applied: &[Applied],
    feeds: &HashMap<FeedId, Feed>,
    now: Timestamp,
) -> Result<(), BackendError> {
    let (mut announced, mut missed, mut slowed) = (Vec::new(), Vec::new(), Vec::new());
    for (verdict, applied) in verdicts.iter().zip(applied) {
        let Applied::Stored { new_entries: 1.., .. } = applied else { continue };
        let Some(feed) = feeds.get(&verdict.report.feed) else { continue };
        // Nothing of the first document was announced.
        let Some(push) = feed.push.as_ref().filter(|_| feed.state.last_success.is_some()) else { continue };
        if is_announced(push, feed.state.last_polled, verdict.report.started) {
            let at = push.heard_at.unwrap_or(now);
            announced.push(PushHeard { feed: feed.id, at, light: false, counts: false, announced: true });
        } else {
            missed.push(feed.id);
            slowed.extend(push.is_reliable().then_some(feed.id));
        }
    }
    if !announced.is_empty() {
        results.store.heard_pushes(&announced).await?;
    }
    if !missed.is_empty() {
        results.store.missed_pushes(&missed).await?;
    }
    results.own_pace().restore(&slowed, now).await
}

/// Whether a push announced what a poll found: one that caused a poll since the last one, or any that came just now.
fn is_announced(push: &FeedPush, last_polled: Option<Timestamp>, started: Timestamp) -> bool {
    let caused = push.light_at.is_some_and(|light| last_polled.is_none_or(|last| light >= last));
    caused || push.heard_at.is_some_and(|heard| heard >= started.before(SHORTLY))
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

    /// Plans these feeds again, by what the store says of their pushes now: the next poll comes one unpushed interval after the last,
    /// or at once if that has passed.
    pub(crate) async fn restore(&self, ids: &[FeedId], now: Timestamp) -> Result<(), BackendError> {
        let mut tries = 0;
        while !ids.is_empty() && tries < TRIES {
            tries += 1;
            let rules = self.rules.get();
            let config = self.condition.config.get();
            let policy =
                Policy { config: &config.policy, load: self.condition.load.get(), price: self.condition.price.get() };
            let mut changes = Vec::new();
            for feed in self.store.states_for(ids).await? {
                let Some(due) = feed.next_due else { continue };
                let Some(next_due) = replan(&subject(&rules, &feed), due, now, draw(), &policy) else { continue };
                let expects = Some((feed.version, feed.audience));
                changes.push((feed.id, FeedChange { next_due: Some(next_due), expects, ..FeedChange::default() }));
            }
            match self.store.change_feeds(&changes, now).await {
                Err(StoreError::Outdated) => {}
                changed => {
                    let slots: Vec<_> =
                        changed?.iter().filter_map(|feed| Some(slot(&rules, feed, feed.due()?))).collect();
                    return Ok(self.schedule.lower(&slots, now).await?);
                }
            }
        }
        Ok(())
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
        let judged = |heard, light| is_announced(&push(heard, light), Some(at(1000)), at(2000));
        assert!(judged(Some(1500), Some(1500)), "a ping since the last poll");
        assert!(!judged(Some(1500), None), "a delivery of something else");
        assert!(judged(Some(1980), None), "a delivery that crosses the poll");
        assert!(!judged(Some(900), Some(900)) && !judged(None, None));
    }
}
