//! What reading a feed results in.

use common::document::{FeedHints, Onward};
use common::entry::Entry;

/// A feed, read and normalised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedFeed {
    /// Its title as plain text.
    pub title: Option<String>,
    /// The site that it belongs to.
    pub link: Option<String>,
    /// Its own id: Atom's `id`, JSON Feed's `feed_url`.
    pub id: Option<String>,
    /// Its language as declared.
    pub language: Option<String>,
    /// What it says about when to poll.
    pub hints: FeedHints,
    /// Its WebSub hub.
    pub hub: Option<String>,
    /// Its own idea of its URL (`rel=self`).
    pub self_link: Option<String>,
    /// What it says about its further documents and its end.
    pub onward: Onward,
    /// Its rssCloud, as `domain:port/path protocol`.
    pub cloud: Option<String>,
    /// Its entries in the document's order, each id once.
    pub entries: Vec<Entry>,
    /// The document was broken, or of an old dialect, and had to be rewritten before it could be read.
    pub repaired: bool,
    /// The document ends too early: these are the entries before its end, and the answer should not be taken as whole.
    pub truncated: bool,
}
