//! Which servers received requests lately: only their connections are worth keeping for the next one.
//!
//! Most hosts have one feed, whose next request comes minutes later, when any server has closed the connection. Kept, each
//! would take memory on both sides and serve no request.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;
use url::Url;

/// The servers of the last requests, as hashes of their origins, in two generations.
#[derive(Debug)]
pub(crate) struct RecentServers {
    hasher: RandomState,
    /// The age at which a generation becomes the older one. A server is forgotten after one to two of it.
    age: Duration,
    generations: Mutex<Generations>,
}

#[derive(Debug)]
struct Generations {
    since: Instant,
    newer: HashSet<u64>,
    older: HashSet<u64>,
}

/// Servers of a generation. With more, servers are forgotten sooner.
const MOST: usize = 1 << 16;

impl RecentServers {
    pub(crate) fn new(age: Duration) -> Self {
        let (newer, older) = Default::default();
        let generations = Mutex::new(Generations { since: Instant::now(), newer, older });
        RecentServers { hasher: RandomState::new(), age, generations }
    }

    /// Notes a request; returns whether its server received another one lately.
    pub(crate) fn note(&self, url: &Url, now: Instant) -> bool {
        let origin = self.hasher.hash_one((url.scheme(), url.host_str(), url.port_or_known_default()));
        let mut generations = common::lock(&self.generations);
        let Generations { since, newer, older } = &mut *generations;
        if now >= *since + self.age || newer.len() >= MOST {
            let is_recent = now < *since + 2 * self.age;
            std::mem::swap(newer, older);
            newer.clear();
            if !is_recent {
                older.clear();
            }
            *since = now;
        }
        !newer.insert(origin) || older.contains(&origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(4);

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_recent_for_one_to_two_ages_after_its_last_request() {
        let recent = RecentServers::new(AGE);
        let begun = Instant::now();
        let feed = url("https://a.example/feed");
        assert!(!recent.note(&feed, begun));
        assert!(recent.note(&url("https://a.example:443/other"), begun), "the same server");
        for other in ["http://a.example/feed", "https://a.example:8443/feed", "https://b.example/feed"] {
            assert!(!recent.note(&url(other), begun), "{other}");
        }
        assert!(recent.note(&feed, begun + AGE), "each request begins another age");
        assert!(recent.note(&feed, begun + 2 * AGE));
        assert!(!recent.note(&feed, begun + 4 * AGE), "nothing was requested for two ages");
        assert!(!recent.note(&url("https://b.example/feed"), begun + 4 * AGE));
    }

    #[tokio::test(start_paused = true)]
    async fn no_number_of_servers_takes_more_than_its_memory() {
        let recent = RecentServers::new(AGE);
        let begun = Instant::now();
        for number in 0..3 * MOST {
            recent.note(&url(&format!("http://host-{number}.example/")), begun);
        }
        let generations = common::lock(&recent.generations);
        assert!(generations.newer.len() <= MOST && generations.older.len() <= MOST);
    }
}
