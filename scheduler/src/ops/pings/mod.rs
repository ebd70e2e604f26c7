//! Pings: a publisher, or a service for it, says that a feed has something new.
//!
//! A known feed is polled soon (`policy.ping_spread`), once for all pings that come together, and never during a hold.
//! Whoever pings is a stranger: nothing is ever asked at an address that only a ping named, and private feeds are as unknown
//! as those that are not there.

mod gathered;

use std::sync::Arc;

use common::feed::Feed;
use common::policy::{PingWindow, Status};
use common::url::FeedUrl;

use self::gathered::Gathered;
use crate::error::BackendError;
use crate::ops::Ops;
use crate::poll::subject::draw;
use store::FeedRef;

/// Feeds into which one after the other was merged.
const LONGEST_CHAIN: usize = 4;

/// Takes pings.
#[derive(Clone)]
pub struct Pings {
    ops: Arc<Ops>,
    gathered: Arc<Gathered>,
}

impl Pings {
    /// For the feeds of this fleet.
    pub fn new(ops: Arc<Ops>) -> Self {
        Pings { gathered: Arc::new(Gathered::new(ops.clone())), ops }
    }

    /// Has the first known feed among `urls` polled soon; false when none of them is known.
    pub async fn ping(&self, urls: &[FeedUrl]) -> Result<bool, BackendError> {
        for url in urls {
            if let Some(feed) = self.public_feed(url).await? {
                self.announced(&feed).await?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The feed that a stranger may know of; of one that is merged the one that it became.
    async fn public_feed(&self, url: &FeedUrl) -> Result<Option<Feed>, BackendError> {
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

    async fn announced(&self, feed: &Feed) -> Result<(), BackendError> {
        let now = self.ops.clock.now();
        let config = self.ops.condition.config.get();
        let policy = &config.policy;
        let window = PingWindow::open(now, &feed.state, draw().salt, policy);
        match feed.status {
            Status::Active => self.gathered.add(feed, window).await?,
            Status::Blacklisted => {
                let last_try = feed.state.last_polled.map(|polled| polled.after(policy.penalty.ceiling));
                if last_try.is_none_or(|earliest| earliest <= now) {
                    self.ops.try_once(feed, now.after(window.place)).await?;
                }
            }
            // A person's pause and a quarantine are not ended by strangers.
            _ => {}
        }
        Ok(())
    }
}
