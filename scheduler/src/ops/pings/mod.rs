//! Pings: a publisher, or a service for it, says that a feed has something new.
//!
//! A known feed is polled soon (`policy.ping_spread`), once for all pings that come together, and never during a hold.
//! A blacklisted feed, and one whose server called it gone, is polled once too; only a good answer makes it active
//! again. The caller of a ping is a stranger: an address that only a ping named never receives a request, and private
//! feeds look like feeds that do not exist.

mod gathered;

use std::sync::Arc;

use common::feed::Feed;
use common::policy::{PingWindow, Status};
use common::url::FeedUrl;

use self::gathered::GatheredPings;
use crate::error::BackendError;
use crate::ops::Ops;
use crate::poll::subject::draw;
use store::FeedRef;

/// Feeds into which one after the other was merged.
const LONGEST_CHAIN: usize = 4;

/// Feeds of a site that a ping with the site's address has polled. Platforms whose feeds all name the platform have more.
const MOST_OF_A_SITE: u32 = 10;

/// Takes pings.
#[derive(Clone)]
pub struct Pings {
    ops: Arc<Ops>,
    gathered: Arc<GatheredPings>,
}

impl Pings {
    /// For the feeds of this fleet.
    pub fn new(ops: Arc<Ops>) -> Self {
        Pings { gathered: Arc::new(GatheredPings::new(ops.clone())), ops }
    }

    /// Has the first known feed among `urls` polled soon, or, where none of them is a feed, the feeds of the first site among
    /// them; false when nothing is known.
    pub async fn ping(&self, urls: &[FeedUrl]) -> Result<bool, BackendError> {
        for url in urls {
            if let Some(feed) = self.public_feed(url).await? {
                self.announced(&feed).await?;
                return Ok(true);
            }
        }
        for url in urls {
            let feeds = self.ops.store.feeds_of_site(&ways_to_write(url), MOST_OF_A_SITE).await?;
            for feed in &feeds {
                self.announced(feed).await?;
            }
            if !feeds.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the feed that a stranger may know of; of one that is merged the one that it became.
    async fn public_feed(&self, url: &FeedUrl) -> Result<Option<Feed>, BackendError> {
        let mut which = FeedRef::Url(url.clone());
        for _ in 0..LONGEST_CHAIN {
            let Some(feed) = self.ops.feed(&which).await? else { return Ok(None) };
            match (feed.is_private(), feed.status, feed.merged_into) {
                (true, ..) | (_, Status::Removed, _) => return Ok(None),
                (_, Status::Merged, Some(survivor)) => which = FeedRef::Id(survivor),
                _ => return Ok(Some(feed)),
            }
        }
        Ok(None)
    }

    /// Has a feed polled soon that was announced.
    pub(crate) async fn announced(&self, feed: &Feed) -> Result<(), BackendError> {
        // A person's pause and a quarantine are not ended by strangers.
        if !feed.hears_pings() {
            return Ok(());
        }
        let (now, config) = (self.ops.clock.now(), self.ops.condition.config.get());
        let window = PingWindow::open(now, feed.status, &feed.state, draw().salt, &config.policy);
        self.gathered.add(feed, window).await
    }
}

/// Returns the ways in which feeds write the address of their site: with and without the last slash, over http and
/// https.
fn ways_to_write(site: &FeedUrl) -> Vec<String> {
    let (_, rest) = site.as_str().split_once("://").unwrap_or_default();
    let bare = rest.strip_suffix('/').unwrap_or(rest);
    ["https", "http"].into_iter().flat_map(|scheme| ["/", ""].map(|end| format!("{scheme}://{bare}{end}"))).collect()
}
