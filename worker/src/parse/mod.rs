//! From the bytes of a hostile stranger to a feed in our words.
//!
//! ```text
//!  bytes ─► decode ─► text ─► guard ─► engine ─► draft ─► normalise ─► ParsedFeed
//!                       ▲       │ hints    │
//!                       └─ repair ◄────────┘ once, when the first try fails or finds nothing
//! ```
//!
//! [`parse`] never panics, never recurses by the document's will, never fetches anything and never expands an entity that
//! the document defines. It is synchronous and may take seconds of processor time for the largest bodies: callers run it
//! on a thread for blocking work. The document's bytes decide what it is; the declared type only names an encoding.
//!
//! Deliberately not here: sanitising of HTML (whoever shows content does that), feeds that pages announce, and what to do
//! about the hints.

mod dates;
mod decode;
mod draft;
mod engine;
mod guard;
mod hints;
mod json;
mod namespaces;
mod normalise;
mod text;

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use common::entry::Entry;
use common::feed::FeedHints;
use serde_json::json;
use url::Url;

use draft::Draft;
use guard::Refusal;

/// Rises whenever the same bytes would be read differently. It is part of the content hash's key, so that a better parser
/// reads feeds again that have not changed.
pub const PARSER_VERSION: u64 = 1;

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
    /// Its rssCloud, as `domain:port/path protocol`.
    pub cloud: Option<String>,
    /// Its entries in the document's order, each id once.
    pub entries: Vec<Entry>,
    /// The document was broken and had to be repaired first.
    pub repaired: bool,
}

/// Why bytes are no feed. The texts are single lines for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Something else: a page, an empty file.
    #[error("not a feed: {0}")]
    NotAFeed(String),
    /// A feed, but broken beyond repair.
    #[error("broken feed: {0}")]
    Malformed(String),
    /// Beyond a limit that is not one of bytes: nesting, elements, attributes.
    #[error("feed beyond the limits: {0}")]
    TooLarge(String),
}

/// What one document may cost. The number of its bytes is limited by whoever reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseLimits {
    /// Entries that are read; further ones are left out.
    pub max_entries: usize,
    /// Bytes of one summary or content; longer ones are cut and marked.
    pub max_text_bytes: usize,
    /// Nesting of elements; a deeper document is refused. The engine recurses, so this bounds its stack.
    pub max_depth: usize,
    /// Elements in all; a document with more is refused.
    pub max_elements: usize,
    /// Attributes of one element; a document with more is refused. The engine compares each with each.
    pub max_attributes: usize,
}

impl Default for ParseLimits {
    fn default() -> Self {
        ParseLimits {
            max_entries: 2_000,
            max_text_bytes: 1024 * 1024,
            max_depth: 128,
            max_elements: 1_000_000,
            max_attributes: 256,
        }
    }
}

/// Reads a feed of any kind. `content_type` is the answer's header field, `base_url` the URL after redirects that
/// relative links are resolved against (one that is no URL resolves nothing).
pub fn parse(
    bytes: &[u8],
    content_type: Option<&str>,
    base_url: &str,
    limits: &ParseLimits,
) -> Result<ParsedFeed, ParseError> {
    let whole = || {
        let text = decode::decode(bytes, content_type);
        let base = Url::parse(base_url).ok();
        let draft = if text.trim_start().starts_with('{') {
            json::read(&text, limits)?
        } else {
            read_xml(&text, base.as_ref(), limits)?
        };
        Ok(normalise::finish(draft, base.as_ref(), limits))
    };
    unpanicked(whole).unwrap_or_else(|panicked| Err(ParseError::malformed(&panicked)))
}

/// The shape in which `feedfleet parse --json` prints a feed: `{"title","link","id","entries":[{"id","title","link",
/// "published","updated"}]}`, absent texts and times as null.
pub fn to_json(feed: &ParsedFeed) -> serde_json::Value {
    let entries: Vec<serde_json::Value> = feed
        .entries
        .iter()
        .map(|entry| {
            json!({
                "id": entry.id,
                "title": entry.title,
                "link": entry.url,
                "published": entry.published,
                "updated": entry.updated,
            })
        })
        .collect();
    json!({ "title": feed.title, "link": feed.link, "id": feed.id, "entries": entries })
}

fn read_xml(text: &str, base: Option<&Url>, limits: &ParseLimits) -> Result<Draft, ParseError> {
    let surveyed = guard::survey(text, limits)?;
    let read = unpanicked(|| engine::read(&surveyed, base));
    let draft = read.unwrap_or_else(Err).map_err(|error| ParseError::malformed(&error))?;
    if surveyed.old_namespaces && draft.is_hollow() {
        return Err(ParseError::malformed(&"written in an old dialect"));
    }
    Ok(draft)
}

/// Runs something that may panic over a document. The panic's own text is left to the process' panic hook.
fn unpanicked<T>(read: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(read)).map_err(|_| "the parser panicked".to_owned())
}

/// Longest text of an error, in characters: it may quote the document.
const MAX_ERROR_CHARS: usize = 200;

impl ParseError {
    fn malformed(why: &dyn Display) -> Self {
        ParseError::Malformed(one_line(why))
    }

    fn not_a_feed(why: &dyn Display) -> Self {
        ParseError::NotAFeed(one_line(why))
    }
}

impl From<Refusal> for ParseError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::TooLarge(why) => ParseError::TooLarge(why),
            Refusal::Malformed(why) => ParseError::malformed(&why),
            Refusal::NotAFeed(why) => ParseError::not_a_feed(&why),
        }
    }
}

fn one_line(why: &dyn Display) -> String {
    let whole = why.to_string();
    whole.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_ERROR_CHARS).collect()
}
