//! Pings: a publisher, or a service for it, says that a feed has something new.
//!
//! A known feed is polled soon (`policy.ping_spread`), once in that time however many pings come, and never during a hold.
//! Whoever pings is a stranger: nothing is ever asked at an address that only a ping named, and private feeds are as unknown
//! as those that are not there.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use common::feed::{Feed, FeedId, FeedUrl, Status};
use common::policy::after_ping;
use common::time::Timestamp;

use crate::ops::{Ops, OpsError};
use crate::store::FeedRef;
use crate::subject::draw;

/// Feeds that may wait for the end of the fetch in which they were pinged; the pings of further ones go unheard.
const MOST_LATE: usize = 10_000;
/// Feeds into which one after the other was merged.
const LONGEST_CHAIN: usize = 4;

/// Takes pings.
#[derive(Clone)]
pub struct Pings {
    ops: Arc<Ops>,
    /// Feeds that were pinged while they were fetched.
    late: Arc<Mutex<HashSet<FeedId>>>,
}

impl Pings {
    /// For the feeds of this fleet.
    pub fn new(ops: Arc<Ops>) -> Self {
        Pings { ops, late: Arc::default() }
    }

    /// Has the first known feed among `urls` polled soon; false when none of them is known.
    pub async fn ping(&self, urls: &[FeedUrl]) -> Result<bool, OpsError> {
        for url in urls {
            if let Some(feed) = self.public_feed(url).await? {
                self.announced(&feed).await?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The feed that a stranger may know of; of one that is merged the one that it became.
    async fn public_feed(&self, url: &FeedUrl) -> Result<Option<Feed>, OpsError> {
        let mut which = FeedRef::Url(url.clone());
        for _ in 0..LONGEST_CHAIN {
            let Some(feed) = self.ops.feed(&which).await? else { return Ok(None) };
            match (feed.private || feed.credentials.is_some(), feed.status, feed.merged_into) {
                (true, ..) | (_, Status::Gone | Status::Removed, _) => return Ok(None),
                (_, Status::Merged, Some(survivor)) => which = FeedRef::Id(survivor),
                _ => return Ok(Some(feed)),
            }
        }
        Ok(None)
    }

    async fn announced(&self, feed: &Feed) -> Result<(), OpsError> {
        let now = self.ops.clock.now();
        let policy = &self.ops.config.policy;
        let at = after_ping(now, feed.state.last_polled, draw().salt, policy);
        match (feed.status, feed.wake_at) {
            (Status::Active, Some(wake)) if wake > now => {}
            // Its fetch may have begun: it would not see what this ping tells of, and another one at once is no window.
            (Status::Active, Some(_)) => self.later(feed.id, now),
            (Status::Active, None) => {
                self.ops.wake_at(&[feed.id], at).await?;
            }
            (Status::Blacklisted, _) => {
                let last_try = feed.state.last_polled.map(|polled| polled.after(policy.penalty.ceiling));
                if last_try.is_none_or(|earliest| earliest <= now) {
                    self.ops.try_once(feed, at).await?;
                }
            }
            // A person's pause and a quarantine are not ended by strangers.
            _ => {}
        }
        Ok(())
    }

    /// Looks after the window whether a fetch began after the ping, and has it polled if not. This is forgotten only by a
    /// process that is killed.
    fn later(&self, id: FeedId, pinged: Timestamp) {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        if late.len() >= MOST_LATE || !late.insert(id) {
            return;
        }
        drop(late);
        let Pings { ops, late } = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(ops.config.policy.ping_spread) => {}
                () = ops.quiet.cancelled() => {}
            }
            late.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            if let Err(error) = wake_unless_polled(&ops, id, pinged).await {
                tracing::warn!(error = &error as &dyn std::error::Error, feed = id.0, "a ping is lost");
            }
        });
    }
}

async fn wake_unless_polled(ops: &Ops, id: FeedId, pinged: Timestamp) -> Result<(), OpsError> {
    let Some(feed) = ops.feed(&FeedRef::Id(id)).await? else { return Ok(()) };
    if feed.state.last_polled.is_none_or(|polled| polled <= pinged) {
        ops.wake(&[id]).await?;
    }
    Ok(())
}
