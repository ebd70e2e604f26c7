//! Entries as feeds: the documents of the river and of the WebSub hub.

pub mod atom;
mod xml;

use common::entry::Entry;
use common::feed::Feed;
use common::outcome::OutcomeKind;
use common::time::Timestamp;
use common::url::FeedId;
use serde::Serialize;
use url::Url;
use xxhash_rust::xxh3::xxh3_128;

use crate::wire::EntryView;
use store::StoredEntry;

/// Entries as a feed has them. Their texts are HTML, in [`EntryView::summary_html`] and [`EntryView::content_html`].
pub struct Channel {
    /// What it is called.
    pub title: String,
    /// Identifies the feed: a URN or a URL.
    pub id: String,
    /// Where the page for people is.
    pub home: Option<String>,
    /// Where this feed is.
    pub own: String,
    /// Where the feed with older entries is.
    pub next: Option<String>,
    /// Where subscribers subscribe.
    pub hub: Option<String>,
    /// When it changed last.
    pub updated: Timestamp,
    /// The feed of these entries: they keep its ids, and its health is included. `None`: entries of many feeds.
    pub of: Option<Health>,
    /// The entries.
    pub entries: Vec<EntryView>,
}

/// How polls of a feed go.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Health {
    /// The status code of the last response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_status: Option<u16>,
    /// What the last poll resulted in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_outcome: Option<OutcomeKind>,
    /// When that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_polled: Option<Timestamp>,
    /// When it is polled next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_due: Option<Timestamp>,
    /// Since when polls fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Timestamp>,
}

impl Health {
    /// Returns the health of a feed.
    pub fn of(feed: &Feed) -> Self {
        let state = &feed.state;
        Health {
            last_status: state.last_status,
            last_outcome: state.last_outcome,
            last_polled: state.last_polled,
            next_due: feed.next_due,
            failing_since: state.failing_since,
        }
    }
}

/// Identifies an entry in all feeds: ids are unique inside of their feed only, and many are not URIs.
pub fn entry_urn(feed: FeedId, id: &str) -> String {
    format!("urn:feedfleet:entry:{feed}:{:032x}", xxh3_128(id.as_bytes()))
}

/// Identifies an entry in its own feed: by the id that it has there if that is a URI.
fn own_id(feed: FeedId, id: &str) -> String {
    if Url::parse(id).is_ok() { id.to_owned() } else { entry_urn(feed, id) }
}

/// Returns what relative links of an entry's texts are resolved against: the base that the publisher states, else the
/// entry's URL. Sanitised texts use the same one.
pub(crate) fn base_url(entry: &Entry) -> Option<&str> {
    let stated = entry.details.as_ref().and_then(|details| details.base_url.as_ref());
    web_link(stated.or(entry.url.as_ref()))
}

/// Returns when an entry was changed last. If the publisher does not say: when it was published or its last edit was stored, whichever
/// is later. `None`: nothing says that it was changed.
pub fn modified(stored: &StoredEntry) -> Option<Timestamp> {
    let edited = (stored.stored != stored.seen).then_some(stored.stored);
    stored.entry.updated.or_else(|| edited.map(|edited| stored.entry.published.map_or(edited, |at| at.max(edited))))
}

/// Returns a link if it leads to a web page.
pub fn web_link(link: Option<&String>) -> Option<&str> {
    let link = link.map(String::as_str)?;
    (link.starts_with("https://") || link.starts_with("http://")).then_some(link)
}
