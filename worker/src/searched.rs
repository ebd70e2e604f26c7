//! Sites that were looked through for a feed that they do not announce: once a day is enough, however many of their pages
//! are added. A saving for the sites only, kept in memory: what is forgotten may be looked through again.

use std::collections::HashMap;
use std::time::Duration;

use common::time::Timestamp;
use common::url::FeedUrl;

/// The sites, each with the time of the last search.
#[derive(Debug, Default)]
pub(crate) struct Searched(HashMap<String, Timestamp>);

impl Searched {
    /// How many sites are kept; the oldest go first.
    const LIMIT: usize = 1024;
    /// For how long a site is not searched again.
    const LIFE: Duration = Duration::from_secs(24 * 60 * 60);

    /// Returns whether the site of this page may be searched now. Remembers that it is.
    pub(crate) fn begin(&mut self, page: &FeedUrl, now: Timestamp) -> bool {
        let site = page.as_url().origin().ascii_serialization();
        if self.0.get(&site).is_some_and(|at| now.since(*at) < Self::LIFE) {
            return false;
        }
        if self.0.len() >= Self::LIMIT {
            let oldest = self.0.iter().min_by_key(|(_, at)| **at).map(|(site, _)| site.clone());
            oldest.map(|site| self.0.remove(&site));
        }
        self.0.insert(site, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_searched_once_a_day_and_sites_are_bounded() {
        let url = |text: &str| text.parse::<FeedUrl>().unwrap();
        let (mut searched, now) = (Searched::default(), Timestamp::from_millis(1_790_000_000_000));
        assert!(searched.begin(&url("http://a.example/1"), now));
        assert!(!searched.begin(&url("http://a.example/2"), now));
        assert!(searched.begin(&url("https://a.example/2"), now), "another site by the rules of the web");
        assert!(searched.begin(&url("http://a.example/1"), now.after(Searched::LIFE)));
        for n in 0..2 * Searched::LIMIT {
            assert!(searched.begin(&url(&format!("http://{n}.example/")), now.after(Searched::LIFE * 2)));
        }
        assert_eq!(searched.0.len(), Searched::LIMIT);
    }
}
