//! What both forms of the river are written from.

use common::time::Timestamp;
use common::url::FeedId;
use scheduler::wire::EntryView;
use xxhash_rust::xxh3::xxh3_128;

/// A page of the river as a feed has it. The texts of entries are HTML that is safe to show.
pub(super) struct Channel {
    pub(super) title: String,
    /// Identifies the feed in all fleets: a URN.
    pub(super) id: String,
    /// Where the page for people is, this feed, and the feed with older entries.
    pub(super) home: String,
    pub(super) own: String,
    pub(super) next: Option<String>,
    pub(super) updated: Timestamp,
    pub(super) entries: Vec<EntryView>,
}

/// Identifies an entry in all feeds: ids are unique inside of their feed only, and many are not URIs.
pub(super) fn entry_urn(feed: FeedId, id: &str) -> String {
    format!("urn:feedfleet:entry:{feed}:{:032x}", xxh3_128(id.as_bytes()))
}

/// Returns a link if it leads to a web page.
pub(super) fn web_link(link: Option<&String>) -> Option<&str> {
    let link = link.map(String::as_str)?;
    (link.starts_with("https://") || link.starts_with("http://")).then_some(link)
}
