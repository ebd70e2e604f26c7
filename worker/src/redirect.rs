//! Redirects and other leads: where a chain of them ends, and what of it may be remembered.
//!
//! Pure, apart from [`Interrupted`], which keeps chains in memory. Requests, addresses and the pace at hosts are the
//! fetch's affair.

use std::collections::HashMap;
use std::time::Duration;

use common::time::Timestamp;
use common::url::{FeedId, FeedUrl};
use http::StatusCode;
use http::header::{self, HeaderMap};
use url::Url;

/// The hops of one fetch so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Every URL of it; the last one is to be asked next. Never empty.
    visited: Vec<FeedUrl>,
    /// Where the unbroken permanent prefix leads, once there was a permanent redirect.
    moved_to: Option<FeedUrl>,
    /// All redirects so far were permanent ones that may be remembered.
    unbroken: bool,
    /// All redirects so far were permanent ones.
    permanent: bool,
    /// How many of the URLs were found by reading an answer: an actor, its outbox, that one's first page.
    leads: usize,
    /// What the answers on the way told.
    about: About,
    /// The last URL was asked with HEAD, and is to be asked with GET.
    probed: bool,
}

/// What an actor's document tells of the posts that are found behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) name: Option<String>,
    pub(crate) page: Option<String>,
}

/// Why a redirect is not followed. The text is for people; it shows no path or query, which may hold secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedirectError {
    /// Longer than `fetch.max_redirects`.
    #[error("more than {0} redirects")]
    TooMany(usize),
    /// Back to a URL of the chain.
    #[error("the redirects run in a circle at {0}")]
    Circle(String),
    /// No `Location`, or one that cannot be read.
    #[error("a redirect ({0}) without a readable Location")]
    Nowhere(StatusCode),
    /// To something that feeds are not read from.
    #[error("a redirect to something that is not fetched: {0}")]
    NotFetched(&'static str),
}

/// Is this a redirect that readers follow?
pub fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

impl Chain {
    /// A chain that starts at a feed's own URL.
    pub fn new(start: FeedUrl) -> Self {
        Chain {
            visited: vec![start],
            moved_to: None,
            unbroken: true,
            permanent: true,
            leads: 0,
            about: About::default(),
            probed: false,
        }
    }

    /// The URL to be asked next.
    pub fn current(&self) -> &FeedUrl {
        // `visited` starts with one URL and only grows
        &self.visited[self.visited.len() - 1]
    }

    /// Redirects so far.
    pub fn hops(&self) -> usize {
        self.visited.len() - 1 - self.leads
    }

    /// Was a HEAD sent that was not enough?
    pub(crate) fn was_probed(&self) -> bool {
        self.probed
    }

    /// Notes that.
    pub(crate) fn probed(&mut self) {
        self.probed = true;
    }

    /// Was only the feed's own URL asked so far?
    pub fn is_at_start(&self) -> bool {
        self.visited.len() == 1
    }

    /// Did an answer lead here that speaks of ActivityStreams? Then these are asked for.
    pub fn asks_for_activities(&self) -> bool {
        self.leads > 0
    }

    /// What was told on the way.
    pub(crate) fn about(&self) -> &About {
        &self.about
    }

    /// Where the unbroken permanent prefix (301, 308; never from https to http) leads.
    pub fn moved_to(&self) -> Option<&FeedUrl> {
        self.moved_to.as_ref()
    }

    /// The URL to remember for what the last answer gave: the last one, if it speaks for the first.
    pub(crate) fn settled(&self) -> &FeedUrl {
        if self.permanent { self.current() } else { self.moved_to.as_ref().unwrap_or(&self.visited[0]) }
    }

    /// Does the last URL speak for the feed's own: were there only permanent redirects, or none?
    pub fn is_permanent(&self) -> bool {
        self.permanent
    }

    /// Goes on to where a redirect points.
    pub fn follow(&mut self, status: StatusCode, headers: &HeaderMap, max: usize) -> Result<(), RedirectError> {
        let location = headers.get(header::LOCATION).ok_or(RedirectError::Nowhere(status))?;
        let current = self.current().as_url();
        let joined = join(current, location.as_bytes()).ok_or(RedirectError::Nowhere(status))?;
        let target = fetchable(joined)?;
        if self.visited.contains(&target) {
            return Err(RedirectError::Circle(target.as_url().host_str().unwrap_or_default().to_owned()));
        }
        if self.hops() >= max {
            return Err(RedirectError::TooMany(max));
        }
        let permanent = matches!(status, StatusCode::MOVED_PERMANENTLY | StatusCode::PERMANENT_REDIRECT);
        let downgrade = current.scheme() == "https" && target.as_url().scheme() == "http";
        self.permanent &= permanent;
        self.unbroken &= permanent && !downgrade;
        if self.unbroken {
            self.moved_to = Some(target.clone());
        }
        self.visited.push(target);
        Ok(())
    }

    /// Goes on to where an answer says that the posts are. False: too far, or back to where it came from.
    pub(crate) fn lead_to(&mut self, link: &str, about: About) -> bool {
        let Some(target) = self.current().as_url().join(link).ok().and_then(|url| fetchable(url).ok()) else {
            return false;
        };
        // the first one may be the same URL, asked for something else
        let known = self.leads > 0 && self.visited.contains(&target);
        if known || self.leads >= MAX_LEADS {
            return false;
        }
        (self.permanent, self.unbroken) = (false, false);
        self.leads += 1;
        self.about = About { name: about.name.or(self.about.name.take()), page: about.page.or(self.about.page.take()) };
        self.visited.push(target);
        true
    }
}

/// From a page to its author's actor, from there to the outbox, from there to its first page.
const MAX_LEADS: usize = 3;

/// Resolves a `Location`. It should be ASCII; bytes that are not are taken as UTF-8, as browsers do.
fn join(base: &Url, location: &[u8]) -> Option<Url> {
    let location = std::str::from_utf8(location).ok()?.trim();
    if location.is_empty() {
        return None;
    }
    base.join(location).ok()
}

fn fetchable(url: Url) -> Result<FeedUrl, RedirectError> {
    if !url.username().is_empty() || url.password().is_some() {
        return Err(RedirectError::NotFetched("a URL with a user name or password"));
    }
    if !matches!(url.scheme(), "http" | "https") {
        return Err(RedirectError::NotFetched("neither http nor https"));
    }
    FeedUrl::try_from(String::from(url)).map_err(|_| RedirectError::NotFetched("an over-long URL"))
}

/// Chains that stopped because the next host had no time for them. The next fetch of the feed goes on there instead of
/// asking the first hosts again; without that, a host whose gap is longer than a fetch could never redirect to itself.
/// A saving only: what is forgotten is asked again. Feeds of one URL keep theirs apart: they may have been sent different ways.
#[derive(Debug, Default)]
pub struct Interrupted(HashMap<FeedId, (Timestamp, Chain)>);

impl Interrupted {
    /// How many chains are kept; the oldest go first.
    const LIMIT: usize = 1024;
    /// A chain older than this is asked again from its start.
    const LIFE: Duration = Duration::from_secs(3600);

    /// Keeps a feed's chain.
    pub fn keep(&mut self, feed: FeedId, chain: Chain, now: Timestamp) {
        if self.0.len() >= Self::LIMIT {
            let oldest = self.0.iter().min_by_key(|(_, (at, _))| *at).map(|(feed, _)| *feed);
            oldest.map(|feed| self.0.remove(&feed));
        }
        self.0.insert(feed, (now, chain));
    }

    /// Takes out the feed's chain, if it began with this URL.
    pub fn take(&mut self, feed: FeedId, start: &FeedUrl, now: Timestamp) -> Option<Chain> {
        let (at, chain) = self.0.remove(&feed)?;
        (now.since(at) < Self::LIFE && chain.visited[0] == *start).then_some(chain)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn url(text: &str) -> FeedUrl {
        text.parse().unwrap()
    }

    fn follow(chain: &mut Chain, status: u16, location: &str) -> Result<(), RedirectError> {
        let headers = [(header::LOCATION, location.parse().unwrap())].into_iter().collect();
        chain.follow(StatusCode::from_u16(status).unwrap(), &headers, 5)
    }

    #[test]
    fn p37_only_the_unbroken_permanent_prefix_is_remembered() {
        let mut chain = Chain::new(url("http://a.example/feed"));
        assert_eq!(chain.moved_to(), None);
        follow(&mut chain, 301, "https://a.example/feed").unwrap();
        follow(&mut chain, 308, "/new?x=1#part").unwrap();
        assert_eq!(chain.moved_to(), Some(&url("https://a.example/new?x=1")));
        assert!(chain.is_permanent());
        follow(&mut chain, 302, "//b.example/").unwrap();
        follow(&mut chain, 301, "/later").unwrap();
        assert_eq!(chain.current(), &url("https://b.example/later"));
        assert_eq!(chain.moved_to(), Some(&url("https://a.example/new?x=1")));
        assert!(!chain.is_permanent());
    }

    #[test]
    fn p37_a_downgrade_to_http_is_followed_but_not_remembered() {
        let mut chain = Chain::new(url("https://a.example/feed"));
        follow(&mut chain, 301, "http://a.example/feed").unwrap();
        assert_eq!((chain.current().as_str(), chain.moved_to()), ("http://a.example/feed", None));
        assert!(chain.is_permanent());
    }

    #[test]
    fn p36_circles_end_at_once_and_chains_at_the_limit() {
        let mut chain = Chain::new(url("http://a.example/1"));
        assert!(matches!(follow(&mut chain, 302, "/1#other"), Err(RedirectError::Circle(_))));
        follow(&mut chain, 302, "/2").unwrap();
        assert!(matches!(follow(&mut chain, 301, "http://a.example/1"), Err(RedirectError::Circle(_))));
        for hop in 3..=6 {
            follow(&mut chain, 302, &format!("/{hop}")).unwrap();
        }
        assert_eq!(follow(&mut chain, 302, "/7"), Err(RedirectError::TooMany(5)));
    }

    #[test]
    fn a_redirect_to_nowhere_or_to_another_scheme_is_not_followed() {
        let mut chain = Chain::new(url("http://a.example/1"));
        for location in ["", " ", "http://", "http://[::1", "http://a.example:99999/"] {
            assert!(matches!(follow(&mut chain, 302, location), Err(RedirectError::Nowhere(_))), "'{location}'");
        }
        let long = format!("/{}", "x".repeat(9000));
        for location in ["ftp://a.example/", "file:///etc/passwd", "javascript:1", "http://me:pw@a.example/", &long] {
            let error = follow(&mut chain, 302, location).unwrap_err();
            assert!(matches!(error, RedirectError::NotFetched(_)) && !error.to_string().contains("pw"), "'{location}'");
        }
        assert!(matches!(chain.follow(StatusCode::FOUND, &HeaderMap::new(), 5), Err(RedirectError::Nowhere(_))));
        assert_eq!(chain.hops(), 0);
    }

    proptest! {
        #[test]
        fn any_location_leads_to_a_url_that_may_be_asked_or_nowhere(location in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut chain = Chain::new(url("https://a.example/dir/feed?x=1"));
            let Ok(value) = http::HeaderValue::from_bytes(&location) else { return Ok(()) };
            let headers = [(header::LOCATION, value)].into_iter().collect();
            if chain.follow(StatusCode::FOUND, &headers, 5).is_ok() {
                let target = chain.current().as_url();
                prop_assert!(matches!(target.scheme(), "http" | "https"));
                prop_assert!(target.username().is_empty() && target.password().is_none() && target.fragment().is_none());
            } else {
                prop_assert_eq!(chain.hops(), 0);
            }
        }
    }

    #[test]
    fn an_interrupted_chain_is_taken_once_and_not_after_its_life() {
        let now = Timestamp::from_millis(1_790_000_000_000);
        let mut chain = Chain::new(url("http://a.example/1"));
        follow(&mut chain, 302, "/2").unwrap();
        let mut kept = Interrupted::default();
        let (feed, start) = (FeedId(1), url("http://a.example/1"));
        kept.keep(feed, chain.clone(), now);
        assert_eq!(kept.take(FeedId(2), &start, now), None, "another feed of that URL");
        assert_eq!(kept.take(feed, &start, now), Some(chain.clone()));
        assert_eq!(kept.take(feed, &start, now), None);
        kept.keep(feed, chain.clone(), now);
        assert_eq!(kept.take(feed, &url("http://a.example/2"), now), None, "the feed has moved");
        kept.keep(feed, chain, now);
        assert_eq!(kept.take(feed, &start, now.after(Interrupted::LIFE)), None);
    }

    #[test]
    fn interrupted_chains_are_bounded_and_the_oldest_goes() {
        let mut kept = Interrupted::default();
        let start = url("http://a.example/");
        for n in 0..=i64::try_from(Interrupted::LIMIT).unwrap() {
            kept.keep(FeedId(n), Chain::new(start.clone()), Timestamp::from_millis(1_000_000 + n));
        }
        let now = Timestamp::from_millis(1_100_000);
        assert_eq!(kept.0.len(), Interrupted::LIMIT);
        assert!(kept.take(FeedId(0), &start, now).is_none());
        assert!(kept.take(FeedId(1), &start, now).is_some());
    }
}
