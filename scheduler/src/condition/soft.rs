//! Hosts whose rule names soft statuses: which of their feeds currently receive such a status. While several do, the cause is the
//! host and not the feed, so none of these feeds enters the penalty box because of it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use common::host::HostKey;
use common::time::Timestamp;
use common::url::FeedId;

/// Feeds that were answered so within this time are answered alike: no failing feed is polled less often than its interval,
/// which is half a day for most.
const WINDOW: Duration = Duration::from_secs(12 * 60 * 60);
/// Feeds of a host that are remembered: one other is enough, and the oldest makes room.
const MOST_FEEDS: usize = 4;
/// Hosts that are remembered.
const MOST_HOSTS: usize = 2_000;

/// What this scheduler saw of soft statuses.
#[derive(Debug, Default)]
pub struct SoftAnswers(Mutex<HashMap<HostKey, Vec<(FeedId, Timestamp)>>>);

impl SoftAnswers {
    /// Remembers that a feed was answered by a soft status.
    pub(crate) fn note(&self, host: &HostKey, feed: FeedId, now: Timestamp) {
        let mut hosts = common::lock(&self.0);
        if hosts.len() >= MOST_HOSTS && !hosts.contains_key(host) {
            hosts.retain(|_, feeds| feeds.iter().any(|(_, at)| now.since(*at) < WINDOW));
            if hosts.len() >= MOST_HOSTS {
                return;
            }
        }
        let feeds = hosts.entry(host.clone()).or_default();
        feeds.retain(|(other, _)| *other != feed);
        if feeds.len() >= MOST_FEEDS {
            feeds.remove(0);
        }
        feeds.push((feed, now));
    }

    /// Forgets a feed that was answered well.
    pub(crate) fn forget(&self, host: &HostKey, feed: FeedId) {
        let mut hosts = common::lock(&self.0);
        let Some(feeds) = hosts.get_mut(host) else { return };
        feeds.retain(|(other, _)| *other != feed);
        if feeds.is_empty() {
            hosts.remove(host);
        }
    }

    /// Returns true if another feed of the host was answered so lately.
    pub(crate) fn alike(&self, host: &HostKey, feed: FeedId, now: Timestamp) -> bool {
        let hosts = common::lock(&self.0);
        let mut feeds = hosts.get(host).into_iter().flatten();
        feeds.any(|(other, at)| *other != feed && now.since(*at) < WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_feed_of_the_host_within_half_a_day_is_alike() {
        let at = |hours: u64| Timestamp::from_millis(1_790_000_000_000).after(Duration::from_secs(3600 * hours));
        let (host, soft) = (HostKey::new("a.org:443"), SoftAnswers::default());
        soft.note(&host, FeedId(1), at(0));
        assert!(!soft.alike(&host, FeedId(1), at(1)), "itself says nothing");
        assert!(soft.alike(&host, FeedId(2), at(1)) && !soft.alike(&HostKey::new("b.org:443"), FeedId(2), at(1)));
        assert!(!soft.alike(&host, FeedId(2), at(12)));
        soft.note(&host, FeedId(1), at(12));
        soft.forget(&host, FeedId(1));
        assert!(!soft.alike(&host, FeedId(2), at(13)));
        for host in 0..3 * MOST_HOSTS {
            soft.note(&HostKey::new(&format!("h{host}:443")), FeedId(1), at(14));
        }
        for feed in 0..100 {
            soft.note(&HostKey::new("h1:443"), FeedId(feed), at(14));
        }
        let hosts = soft.0.lock().unwrap();
        assert!(hosts.len() <= MOST_HOSTS && hosts.values().all(|feeds| feeds.len() <= MOST_FEEDS));
    }
}
