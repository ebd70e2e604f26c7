//! The hub's periodic work: it ends expired leases, releases feeds without subscribers, and notifies subscribers when their
//! feed is gone or the hub has been closed. Every scheduler does this; repeating a step that another scheduler has already done
//! changes nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use common::config::HubAccess;
use common::policy::Audience;
use common::url::FeedId;
use tokio_util::sync::CancellationToken;

use super::attempt::filter;
use crate::condition::failure_log::FailureLog;
use crate::error::BackendError;
use crate::ops::hub::YOUNG;
use crate::ops::{self, AudienceEdit, EditFeed, Ops};
use store::{
    ANONYMOUS, EventFilter, EventQuery, FeedRef, Hub, Intent, StoreError, Stray, StrayQuery, Subscription,
    SubscriptionChange, SubscriptionState,
};

/// Between two rounds.
const EVERY: Duration = Duration::from_secs(5);
/// Pages of events in which one round looks for merges.
const PAGES: usize = 100;
const GONE: &str = "the feed is no longer polled here";
const CLOSED: &str = "this hub is closed";

/// Tends the hub until stopped.
pub(super) async fn tend(ops: &Arc<Ops>, stop: &CancellationToken) {
    let (mut tending, mut log) = (Tending::new(PAGES), FailureLog::new("tending the hub's subscriptions"));
    while !stop.is_cancelled() {
        log.note(tending.round(ops).await);
        stop.run_until_cancelled(tokio::time::sleep(EVERY)).await;
    }
}

/// Does what is to be done now.
#[cfg(test)]
pub(super) async fn round(ops: &Ops) -> Result<(), BackendError> {
    Tending::new(PAGES).round(ops).await
}

/// What the rounds know: how far they looked for the merges of feeds, which may have been long ago.
pub(super) struct Tending {
    /// Pages of events in which one round looks for merges.
    pages: usize,
    /// Those that this round has left.
    left: usize,
    /// Up to these numbers, from the newest on, the rounds before looked for the merge of a feed.
    looked: HashMap<FeedId, i64>,
    /// The same after this round.
    looks: HashMap<FeedId, i64>,
}

impl Tending {
    pub(super) fn new(pages: usize) -> Self {
        Tending { pages, left: 0, looked: HashMap::new(), looks: HashMap::new() }
    }

    /// Does what is to be done now.
    pub(super) async fn round(&mut self, ops: &Ops) -> Result<(), BackendError> {
        (self.left, self.looked) = (self.pages, std::mem::take(&mut self.looks));
        let now = ops.clock.now();
        ops.store.expire_subscriptions(now).await?;
        let mut query = StrayQuery { after: 0, access: ops.config.delivery.hub };
        loop {
            let strays = ops.store.stray_subscriptions(query).await?;
            let Some(last) = strays.last() else { break };
            query.after = last.id;
            for stray in strays {
                match self.follow(ops, &stray).await {
                    Err(StoreError::Outdated) => {}
                    followed => followed?,
                }
            }
        }
        for found in ops.store.hub_feeds(now.before(YOUNG)).await? {
            match found.subscriptions {
                0 => release(ops, found.feed).await?,
                subscribers => count(ops, found.feed, subscribers).await?,
            }
        }
        Ok(())
    }

    /// Follows a feed to its survivor, or notifies the subscriber that its subscription ends.
    async fn follow(&mut self, ops: &Ops, stray: &Stray) -> Result<(), StoreError> {
        let Some(found) = ops::subscriptions::find(ops, stray.id).await? else { return Ok(()) };
        let Some(hub) = &found.hub else { return Ok(()) };
        let survivor = match stray.merged_into {
            Some(feed) => ops.store.feed(&FeedRef::Id(feed)).await?,
            None => None,
        };
        let change = match survivor.filter(|feed| !feed.is_private() || found.by != ANONYMOUS) {
            Some(survivor) => match self.following(ops, &found, survivor.id).await? {
                Some(change) => change,
                None => return Ok(()),
            },
            None => {
                let access = ops.config.delivery.hub;
                let is_closed = access == HubAccess::Off || access == HubAccess::Token && found.by == ANONYMOUS;
                let reason = if is_closed { CLOSED } else { GONE };
                let hub = Hub { intent: Some(Intent::denied(reason)), ..hub.clone() };
                // One that is paused ends, too: nothing is sent for it while it is.
                let state = (found.state == SubscriptionState::Paused).then_some(SubscriptionState::Disabled);
                SubscriptionChange { hub: Some(hub), state, ..SubscriptionChange::default() }
            }
        };
        let change = SubscriptionChange { revision: found.revision, ..change };
        ops.store.change_subscription(found.id, &change).await.map(drop)
    }

    /// Returns the change that follows a feed to its survivor. `None`: events from before the merge are not delivered yet, or the merge
    /// is not found yet.
    async fn following(
        &mut self,
        ops: &Ops,
        of: &Subscription,
        to: FeedId,
    ) -> Result<Option<SubscriptionChange>, StoreError> {
        let (progress, Some(from)) = (&of.progress, of.wish.filter.feed) else { return Ok(None) };
        // Entries and not events: those of one feed are read by an index, and an event whose entry is gone notifies of nothing.
        let query = EventQuery { filter: filter(of), ..EventQuery::after(progress.cursor, 1) };
        let rest = ops.store.find_entries(&query).await?;
        if progress.pending > 0 || !rest.items.is_empty() || rest.more {
            return Ok(None);
        }
        let Some(merge) = self.merge_of(ops, from).await? else { return Ok(None) };
        // Events of the survivor since the merge are for this subscriber too.
        let replay_after = Some(merge).filter(|merge| *merge < progress.cursor);
        let mut wish = of.wish.clone();
        wish.filter.feed = Some(to);
        Ok(Some(SubscriptionChange { wish: Some(wish), replay_after, ..SubscriptionChange::default() }))
    }

    /// Returns the number of the event of a feed's merge. If retention took it: the last number that it took, because all events that are
    /// left came after the merge. `None`: the next round looks further.
    async fn merge_of(&mut self, ops: &Ops, feed: FeedId) -> Result<Option<i64>, StoreError> {
        let filter = EventFilter { kinds: vec!["feed.moved".to_owned()], feed: Some(feed), ..EventFilter::default() };
        let looked = self.looks.get(&feed).or_else(|| self.looked.get(&feed));
        let mut query =
            EventQuery { filter, newest: true, after: looked.copied().unwrap_or(0), limit: 1, ..EventQuery::default() };
        while self.left > 0 {
            self.left -= 1;
            let page = ops.store.find_events(&query).await?;
            let found = match page.items.first() {
                Some(event) => Some(event.seq),
                None => (!page.more).then_some(page.oldest - 1),
            };
            if found.is_some() {
                // The feed's other subscribers look only here.
                self.looks.insert(feed, query.after);
                return Ok(found);
            }
            query.after = page.next;
        }
        self.looks.insert(feed, query.after);
        Ok(None)
    }
}

/// Erases a feed that only the hub wanted.
async fn release(ops: &Ops, feed: FeedId) -> Result<(), BackendError> {
    if ops.store.release_hub_feed(feed, ops.clock.now()).await? {
        tracing::info!(%feed, "erased a feed that the hub had added: its last subscriber left");
        ops.schedule.remove(&[feed]).await?;
    }
    Ok(())
}

/// Has a feed polled as that number of subscribers requires.
async fn count(ops: &Ops, id: FeedId, subscribers: u32) -> Result<(), BackendError> {
    let Some(feed) = ops.feed(&FeedRef::Id(id)).await? else { return Ok(()) };
    let audience = Audience { subscribers, active_subscribers: subscribers, ..feed.audience };
    let audience = AudienceEdit::between(feed.audience, audience);
    ops.edit(id, &EditFeed { audience, ..EditFeed::default() }).await?;
    Ok(())
}
