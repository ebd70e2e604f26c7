//! Redirects and other leads: where a chain of them ends, and what of it may be remembered.
//!
//! Pure. Requests, addresses and the pace at hosts are the fetch's affair.

use std::borrow::Cow;
use std::time::Duration;

use common::job::Detour;
use common::report::Probe;
use common::time::Timestamp;
use common::url::FeedUrl;
use http::StatusCode;
use http::header::{self, HeaderMap};
use percent_encoding::{AsciiSet, percent_encode};
use serde::{Deserialize, Serialize};
use url::Url;

/// The hops of one fetch so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    /// Every URL of it; the last one is to be requested next. Never empty.
    visited: Vec<FeedUrl>,
    /// Where the unbroken permanent prefix leads, once there was a permanent redirect.
    moved_to: Option<FeedUrl>,
    /// All redirects so far were permanent ones that may be remembered.
    unbroken: bool,
    /// All redirects so far were permanent ones.
    permanent: bool,
    /// How many of the URLs were found by reading an answer: an actor, its outbox, that one's first page.
    leads: usize,
    /// What the redirects' responses contained.
    about: About,
    /// What a HEAD of the last URL showed, if a GET must follow it.
    #[serde(default)]
    probe: Option<Probe>,
    /// It starts again at the feed's own URL, because the posts are not where an earlier poll found them. Once is enough: the way
    /// may lead to the same place.
    #[serde(default)]
    restarted: bool,
    /// A body at the last URL was large, and found no place: it has its place before it is requested again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_large: bool,
}

/// What an actor's document says about the posts behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) name: Option<String>,
    pub(crate) page: Option<String>,
    /// The actor's own URL, as its document says.
    #[serde(default)]
    pub(crate) actor: Option<FeedUrl>,
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
    /// The hops have to wait, and are too long to be kept meanwhile.
    #[error("the redirects' URLs are too long to continue later")]
    TooLong,
}

/// Returns whether this is a redirect that readers follow.
pub fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

impl Chain {
    /// Returns a chain that starts at a feed's own URL.
    pub fn new(start: FeedUrl) -> Self {
        Chain {
            visited: vec![start],
            moved_to: None,
            unbroken: true,
            permanent: true,
            leads: 0,
            about: About::default(),
            probe: None,
            restarted: false,
            is_large: false,
        }
    }

    /// Returns a chain that searches for the posts again, from the feed's own URL.
    pub(crate) fn restarted_at(start: FeedUrl) -> Self {
        Chain { restarted: true, ..Chain::new(start) }
    }

    /// Returns whether the chain began at this URL, where an earlier poll found the posts; redirects may have followed.
    pub(crate) fn is_from(&self, found_at: &str) -> bool {
        !self.restarted && self.visited.get(1).is_some_and(|first| first.as_str() == found_at)
    }

    /// Returns the URL to request next.
    pub fn current(&self) -> &FeedUrl {
        // `visited` starts with one URL and only grows
        &self.visited[self.visited.len() - 1]
    }

    /// Redirects so far.
    pub fn hops(&self) -> usize {
        self.visited.len() - 1 - self.leads
    }

    /// Returns what a HEAD showed that a GET must follow.
    pub(crate) fn probe(&self) -> Option<Probe> {
        self.probe
    }

    /// Remembers such a HEAD, also for a worker that sends the GET later.
    pub(crate) fn probed(&mut self, probe: Probe) {
        self.probe = Some(probe);
    }

    /// Returns whether the body is requested with a place for it.
    pub(crate) fn is_large(&self) -> bool {
        self.is_large
    }

    /// Remembers that a body needs a place, also for the worker that requests it again.
    pub(crate) fn needs_place(&mut self) {
        self.is_large = true;
    }

    /// Returns whether only the feed's own URL was requested so far.
    pub fn is_at_start(&self) -> bool {
        self.visited.len() == 1
    }

    /// Returns whether an answer that speaks of ActivityStreams led here: then the request accepts these.
    pub fn asks_for_activities(&self) -> bool {
        self.leads > 0
    }

    /// Returns what the redirects' responses contained.
    pub(crate) fn about(&self) -> &About {
        &self.about
    }

    /// Returns where the unbroken permanent prefix (301, 308; never from https to http) leads.
    pub fn moved_to(&self) -> Option<&FeedUrl> {
        self.moved_to.as_ref()
    }

    /// Returns the URL to remember for the last answer: the last one, if it speaks for the first.
    pub(crate) fn settled(&self) -> &FeedUrl {
        if self.permanent { self.current() } else { self.moved_to.as_ref().unwrap_or(&self.visited[0]) }
    }

    /// Returns whether the last URL speaks for the feed's own: there were only permanent redirects, never from https to http, or none.
    pub fn is_permanent(&self) -> bool {
        self.unbroken
    }

    /// Continues where a redirect points.
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

    /// Continues where an answer says that the posts are. False: too far, or back to where it came from.
    pub(crate) fn lead_to(&mut self, link: &str, about: About) -> bool {
        let Some(target) = self.current().as_url().join(link).ok().and_then(|url| fetchable(url).ok()) else {
            return false;
        };
        // the first one may be the same URL, requested with another media type
        let known = self.leads > 0 && self.visited.contains(&target);
        if known || self.leads >= MAX_LEADS {
            return false;
        }
        // The same URL, requested in another way, still speaks for the feed.
        let stays = target == *self.current();
        (self.permanent, self.unbroken) = (self.permanent && stays, self.unbroken && stays);
        self.leads += 1;
        self.about = About {
            name: about.name.or(self.about.name.take()),
            page: about.page.or(self.about.page.take()),
            actor: about.actor.or(self.about.actor.take()),
        };
        self.visited.push(target);
        true
    }
}

/// From a page to its author's actor, from there to the outbox, from there to its first page.
const MAX_LEADS: usize = 3;

/// Resolves a `Location`. It should be ASCII; bytes that are not are taken as UTF-8, or else encoded as they are, as browsers do.
fn join(base: &Url, location: &[u8]) -> Option<Url> {
    let location = match std::str::from_utf8(location) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(percent_encode(location, &NON_ASCII).to_string()),
    };
    let location = location.trim();
    if location.is_empty() {
        return None;
    }
    base.join(location).ok()
}

/// Leaves every ASCII character alone, which is none of this set.
const NON_ASCII: AsciiSet = AsciiSet::EMPTY;

fn fetchable(url: Url) -> Result<FeedUrl, RedirectError> {
    if !url.username().is_empty() || url.password().is_some() {
        return Err(RedirectError::NotFetched("a URL with a user name or password"));
    }
    if !matches!(url.scheme(), "http" | "https") {
        return Err(RedirectError::NotFetched("neither http nor https"));
    }
    FeedUrl::try_from(String::from(url)).map_err(|_| RedirectError::NotFetched("an over-long URL"))
}

/// A chain to be continued by the next worker.
#[derive(Serialize, Deserialize)]
struct Way {
    /// When it was interrupted first.
    at: Timestamp,
    chain: Chain,
}

impl Chain {
    /// How long a response may delay the next request of its chain.
    pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);
    /// A way older than this starts from the beginning. With the default `fetch.max_redirects` a chain takes less, even if every
    /// response delays the next request for the longest time; otherwise such a feed would never be read. Waiting for a host with many
    /// other feeds takes hours.
    const LIFE: Duration = Duration::from_secs(14 * 24 * 3600);
    /// Bytes of a way that are kept. A longer one would be gone again from its start, and interrupted at the same place.
    const MAX_WAY: usize = 32 * 1024;

    /// Returns what the next fetch of the feed needs to continue from here instead of requesting the first hosts again.
    /// `None` when there is nothing to spare; `Err` when it is too much. `at` is when the chain was interrupted first.
    pub fn detour(&self, at: Timestamp) -> Result<Option<Detour>, RedirectError> {
        if self.is_at_start() && self.probe.is_none() && !self.restarted && !self.is_large {
            return Ok(None);
        }
        let way = Way { at, chain: self.clone() };
        let way = serde_json::to_string(&way).ok().filter(|way| way.len() <= Self::MAX_WAY);
        match way {
            Some(way) => Ok(Some(Detour { next: self.current().clone(), way, page: false, not_before: None })),
            None if self.is_at_start() => Ok(None),
            None => Err(RedirectError::TooLong),
        }
    }

    /// Returns the chain of a detour and when it was interrupted first, if it is one of this feed's URL, and not too
    /// old. Its hops are judged like all others.
    pub fn resumed(detour: &Detour, start: &FeedUrl, now: Timestamp) -> Option<(Self, Timestamp)> {
        let Way { at, chain } = serde_json::from_str(&detour.way).ok()?;
        let is_whole = chain.visited.first() == Some(start) && chain.visited.last() == Some(&detour.next);
        (is_whole && now.since(at) < Self::LIFE).then_some((chain, at))
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
        assert!(!chain.is_permanent(), "anyone on the way could say that the feed is gone");
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

    #[test]
    fn a_location_in_another_charset_is_encoded_byte_by_byte() {
        let mut chain = Chain::new(url("http://a.example/1"));
        let value = http::HeaderValue::from_bytes(b"/t\xe9/x y?q=\xff").unwrap();
        chain.follow(StatusCode::FOUND, &[(header::LOCATION, value)].into_iter().collect(), 5).unwrap();
        assert_eq!(chain.current().as_str(), "http://a.example/t%E9/x%20y?q=%FF");
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
    fn a_detour_leads_on_from_where_it_stopped_for_its_own_feed_and_not_for_ever() {
        let now = Timestamp::from_millis(1_790_000_000_000);
        let start = url("http://a.example/1");
        let mut chain = Chain::new(start.clone());
        assert_eq!(chain.detour(now), Ok(None), "nothing is spared");
        follow(&mut chain, 301, "/2").unwrap();
        follow(&mut chain, 302, "http://b.example/").unwrap();
        let detour = chain.detour(now).unwrap().unwrap();
        assert_eq!(detour.next, url("http://b.example/"));
        assert_eq!(Chain::resumed(&detour, &start, now), Some((chain.clone(), now)));
        assert_eq!(Chain::resumed(&detour, &url("http://a.example/2"), now), None, "the feed has moved");
        assert_eq!(Chain::resumed(&detour, &start, now.after(Chain::LIFE)), None);
        let forged = Detour { next: url("http://c.example/"), ..detour.clone() };
        assert_eq!(Chain::resumed(&forged, &start, now), None);
        let earlier = Detour { way: detour.way.replace(",\"restarted\":false", ""), ..detour.clone() };
        assert_ne!(earlier, detour);
        assert_eq!(Chain::resumed(&earlier, &start, now), Some((chain.clone(), now)), "an earlier version's");
        for way in ["", "{}", "{\"at\":0,\"chain\":{\"visited\":[]}}"] {
            let broken = Detour { way: way.to_owned(), ..detour.clone() };
            assert_eq!(Chain::resumed(&broken, &start, now), None, "{way}");
        }
        for hop in 0..3 {
            follow(&mut chain, 302, &format!("/{hop}?{}", "x".repeat(8000))).unwrap();
        }
        assert!(matches!(chain.detour(now), Ok(Some(_))));
        follow(&mut chain, 302, &format!("/{}", "y".repeat(8000))).unwrap_err();
        for hop in ["y", "z"] {
            let headers = [(header::LOCATION, format!("/{}", hop.repeat(8000)).parse().unwrap())].into_iter().collect();
            chain.follow(StatusCode::FOUND, &headers, 10).unwrap();
        }
        let refused = matches!(chain.detour(now), Err(RedirectError::TooLong));
        assert!(refused, "it would begin anew and come here again, for ever");
    }

    #[test]
    fn a_chain_that_starts_again_is_kept_from_its_start_and_does_so_once() {
        let now = Timestamp::from_millis(1_790_000_000_000);
        let (start, posts) = (url("http://a.example/ada"), "http://b.example/posts");
        let mut first = Chain::new(start.clone());
        assert!(first.lead_to(posts, About::default()) && first.is_from(posts));
        follow(&mut first, 302, "/elsewhere").unwrap();
        assert!(first.is_from(posts) && !first.is_from("http://b.example/elsewhere"));
        let again = Chain::restarted_at(start.clone());
        let detour = again.detour(now).unwrap().unwrap();
        assert_eq!(detour.next, start);
        let (mut resumed, _) = Chain::resumed(&detour, &start, now).unwrap();
        assert_eq!(resumed, again);
        assert!(resumed.lead_to(posts, About::default()) && !resumed.is_from(posts));
    }

    #[test]
    fn a_chain_whose_body_needs_a_place_is_kept_from_its_start() {
        let (now, start) = (Timestamp::from_millis(1_790_000_000_000), url("http://a.example/1"));
        let mut chain = Chain::new(start.clone());
        chain.needs_place();
        let detour = chain.detour(now).unwrap().unwrap();
        assert_eq!(detour.next, start);
        assert!(Chain::resumed(&detour, &start, now).unwrap().0.is_large());
    }

    #[test]
    fn p17_a_chain_lives_longer_than_its_longest_waits_together() {
        let redirects = common::config::defaults().fetch.max_redirects;
        // One more after a HEAD, or before a search for lost posts.
        let waits = u32::try_from(redirects + MAX_LEADS + 1).unwrap();
        assert!(Chain::LIFE > Chain::LONGEST_WAIT * waits);
    }
}
