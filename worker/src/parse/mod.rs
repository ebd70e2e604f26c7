//! From the bytes of a hostile stranger to a feed in our words.
//!
//! ```text
//!  bytes ─► decode ─► text ─► xml or json ─► draft ─► normalise ─► ParsedFeed
//!                       ▲          │
//!                       └─ repair ◄┘ once, when the text is not well-formed
//! ```
//!
//! Each layer is a function of what the one before gave: `decode` knows bytes and labels, `xml` and `json` read
//! well-formed text within limits, `repair` makes well-formed text of any other, `normalise` makes identities, plain
//! titles and absolute links. A sound document never meets the repair.
//!
//! `parse` never panics, never recurses by the document's will, never fetches anything and expands of the entities that
//! the document defines only plain abbreviations, within a budget. It is synchronous: callers run it on a thread for
//! blocking work. The document's bytes decide what it is; the declared type only names an encoding.
//!
//! A further kind of feed is a module that makes a `draft::Draft`, and an arm in `read`. What is neither XML nor JSON
//! Feed is looked at by `kinds` last, so that it costs ordinary feeds nothing.
//!
//! Deliberately not here: sanitising of HTML (whoever shows content does that), feeds that pages announce, and what to do
//! about the hints.

mod codepages;
mod dates;
mod decode;
mod draft;
mod entities;
mod hints;
mod json;
mod kinds;
mod link;
mod links;
mod normalise;
mod repair;
mod text;
mod vocabulary;
mod xml;

use std::borrow::Cow;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use common::document::{FeedHints, Onward};
use common::entry::Entry;
use serde_json::json;
use url::Url;

pub(crate) use kinds::Lead;
use repair::Mended;
use xml::Refusal;

/// Rises whenever the same bytes would be read differently. It is part of the content hash's key, so that a better parser
/// reads feeds again that have not changed.
pub const PARSER_VERSION: u64 = 3;

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
    /// Nesting of elements; a deeper document is refused.
    pub max_depth: usize,
    /// Elements in all, but for those of entries that are left out; a document with more is refused.
    pub max_elements: usize,
    /// Attributes of one element; a document with more is refused.
    pub max_attributes: usize,
    /// When building a page's tree ends, whatever has come of it by then.
    pub deadline: Option<Instant>,
}

impl Default for ParseLimits {
    fn default() -> Self {
        ParseLimits {
            max_entries: 2_000,
            max_text_bytes: 1024 * 1024,
            max_depth: 128,
            max_elements: 1_000_000,
            max_attributes: 256,
            deadline: None,
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
        let posts = || kinds::read(&text, content_type, base.as_ref(), limits);
        read(&text, base.as_ref(), limits)
            .or_else(|error| Ok(normalise::finish(posts().ok_or(error)?.into(), base.as_ref(), limits)))
    };
    // No panic is known; one that is not known must not cost more than this document.
    catch_unwind(AssertUnwindSafe(whole)).unwrap_or_else(|_| Err(ParseError::malformed(&PANICKED)))
}

const PANICKED: &str = "the parser panicked";

/// The h-feed that a page is, whatever it announces.
pub(crate) fn page(bytes: &[u8], content_type: Option<&str>, url: &str, limits: &ParseLimits) -> Option<ParsedFeed> {
    let whole = || {
        let (text, url) = (decode::decode(bytes, content_type), Url::parse(url).ok());
        let posts = kinds::page(&text, content_type, url.as_ref(), limits)?;
        Some(normalise::finish(posts.into(), url.as_ref(), limits))
    };
    catch_unwind(AssertUnwindSafe(whole)).unwrap_or_default()
}

/// Where a document that is no feed says that its posts are.
pub(crate) fn lead(bytes: &[u8]) -> Option<Lead> {
    let whole = || kinds::activity::lead(&decode::decode(bytes, None));
    catch_unwind(AssertUnwindSafe(whole)).unwrap_or_default()
}

/// A document's text, whatever it says about its encoding.
pub fn text_of<'a>(bytes: &'a [u8], content_type: Option<&str>) -> Cow<'a, str> {
    decode::decode(bytes, content_type)
}

/// The shape in which `feedfleet parse --json` prints a feed: `{"title","link","id","entries":[{"id","title","link",
/// "published","updated"}]}` and what the feed announces; absent texts and times as null.
pub fn to_json(feed: &ParsedFeed) -> serde_json::Value {
    let entries: Vec<serde_json::Value> = feed.entries.iter().map(entry_json).collect();
    json!({
        "title": feed.title,
        "link": feed.link,
        "id": feed.id,
        "hints": feed.hints,
        "hub": feed.hub,
        "self_link": feed.self_link,
        "cloud": feed.cloud,
        "onward": feed.onward,
        "repaired": feed.repaired,
        "truncated": feed.truncated,
        "entries": entries,
    })
}

/// One entry in that shape.
pub fn entry_json(entry: &Entry) -> serde_json::Value {
    json!({
        "id": entry.id,
        "title": entry.title,
        "link": entry.url,
        "published": entry.published,
        "updated": entry.updated,
    })
}

/// Reads a text of whatever kind it is; one that is broken, a second time after a repair.
fn read(text: &str, base: Option<&Url>, limits: &ParseLimits) -> Result<ParsedFeed, ParseError> {
    let is_json = text.trim_start().starts_with('{');
    let once = |text: &str| {
        let draft = if is_json {
            json::read(text, limits)
        } else {
            xml::read(text, base, limits).map_err(|refusal| told(refusal, text))
        };
        draft.map(|draft| normalise::finish(draft, base, limits))
    };
    let error = match once(text) {
        Err(error @ ParseError::TooLarge(_)) => return Err(error),
        Err(error) => error,
        sound => return sound,
    };
    // The error speaks of what the publisher wrote.
    let mended = if is_json { repair::json::mended(text) } else { repair::mended(text) };
    let Some(Mended { text, truncated }) = mended else { return Err(error) };
    match once(&text) {
        // What is left of a broken document may be nothing, which is no feed without entries.
        Ok(feed) if feed.title.is_some() || feed.link.is_some() || !feed.entries.is_empty() => {
            Ok(ParsedFeed { repaired: true, truncated, ..feed })
        }
        Err(refused @ ParseError::TooLarge(_)) => Err(refused),
        _ => Err(error),
    }
}

fn told(refusal: Refusal, text: &str) -> ParseError {
    match refusal {
        Refusal::TooLarge(why) => ParseError::TooLarge(why),
        Refusal::Malformed(why) if repair::feed_position(text).is_some() => ParseError::malformed(&why),
        Refusal::Malformed(why) | Refusal::NotAFeed(why) => ParseError::not_a_feed(&why),
    }
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

fn one_line(why: &dyn Display) -> String {
    let whole = why.to_string();
    whole.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_ERROR_CHARS).collect()
}
