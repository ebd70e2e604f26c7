//! Feeds that are neither XML nor JSON Feed: pages with microformats, and what social networks answer.
//!
//! Each reader finds its own kind in a document that was decoded already, and returns [`Posts`]; what is common to all
//! kinds of feed (ids, limits, absolute links) is done where the other readers' drafts go. Nothing is fetched here:
//! where a document only says where its posts are, [`Lead`] says so.

pub(super) mod activity;
mod atproto;
mod hfeed;
mod mf2;
mod posts;
pub(super) mod rss_json;

use url::Url;

use super::ParseLimits;
use crate::discover;
pub(crate) use activity::Lead;
use posts::Posts;

/// Returns the feed that a document is, of whichever of these kinds. A page is one only if it announces no better feed.
pub(super) fn read(text: &str, content_type: Option<&str>, url: Option<&Url>, limits: &ParseLimits) -> Option<Posts> {
    let max = limits.max_entries;
    if text.trim_start().starts_with('{') {
        let in_time = || (!limits.is_late()).then_some(text);
        return in_time().and_then(|text| atproto::read(text, url, max)).or_else(|| activity::read(in_time()?, max));
    }
    let announced = |url| discover::announced_in(text, url, limits.deadline);
    let announces = || url.is_some_and(|url| announced(url).iter().any(|feed| !feed.is_actor()));
    page(text, content_type, url, limits).filter(|_| !announces())
}

/// Returns the feed that a page is.
pub(super) fn page(text: &str, content_type: Option<&str>, url: Option<&Url>, limits: &ParseLimits) -> Option<Posts> {
    let is_page = discover::is_page(text.as_bytes(), content_type) && !limits.is_late();
    // A page whose tree ended at the deadline is not whole.
    is_page.then(|| hfeed::read(text, url, limits)).flatten().filter(|_| !limits.is_late())
}
