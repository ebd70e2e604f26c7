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

mod bases;
mod dates;
mod decode;
mod draft;
mod engine;
mod entities;
mod guard;
mod hints;
mod json;
mod namespaces;
mod normalise;
mod repair;
mod text;

use std::borrow::Cow;
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
    /// Nesting of elements; a deeper document is refused. The engine recurses, so this bounds its stack.
    pub max_depth: usize,
    /// Elements in all, but for those of entries that are left out; a document with more is refused.
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
        let reading = if text.trim_start().starts_with('{') {
            json::read(&text, limits)?
        } else {
            read_xml(&text, base.as_ref(), limits)?
        };
        let feed = normalise::finish(reading.draft, base.as_ref(), limits);
        Ok(ParsedFeed { repaired: reading.repaired, truncated: reading.truncated, ..feed })
    };
    unpanicked(whole).unwrap_or_else(|| Err(ParseError::malformed(&PANICKED)))
}

/// A document's text, whatever it says about its encoding.
pub(crate) fn text_of<'a>(bytes: &'a [u8], content_type: Option<&str>) -> Cow<'a, str> {
    decode::decode(bytes, content_type)
}

/// The shape in which `feedfleet parse --json` prints a feed: `{"title","link","id","entries":[{"id","title","link",
/// "published","updated"}]}`, absent texts and times as null.
pub fn to_json(feed: &ParsedFeed) -> serde_json::Value {
    let entries: Vec<serde_json::Value> = feed.entries.iter().map(entry_json).collect();
    json!({ "title": feed.title, "link": feed.link, "id": feed.id, "entries": entries })
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

/// A draft, and what had to be done to the document for it.
struct Reading {
    draft: Draft,
    repaired: bool,
    truncated: bool,
}

impl Reading {
    /// Of a document that needed nothing.
    fn sound(draft: Draft) -> Self {
        Reading { draft, repaired: false, truncated: false }
    }
}

/// The first try, and the second on the mended document where the first failed or found nothing.
fn read_xml(text: &str, base: Option<&Url>, limits: &ParseLimits) -> Result<Reading, ParseError> {
    let failure = match try_xml(text, base, limits) {
        Ok(draft) => return Ok(Reading::sound(draft)),
        Err(Failure::Final(error)) => return Err(error),
        Err(failure) => failure,
    };
    let mut panicked = matches!(failure, Failure::Panicked);
    for _ in 0..2 {
        let Some(mended) = repair::mended(text, panicked) else { break };
        let reading = |draft| Ok(Reading { draft, repaired: true, truncated: mended.truncated });
        match try_xml(&mended.text, base, limits) {
            Ok(draft) => return reading(draft),
            Err(Failure::Panicked) if !panicked => panicked = true,
            // A sound document that has nothing in it is an empty feed; the ruins of a broken one are none.
            Err(Failure::Hollow(draft)) if !matches!(failure, Failure::IllFormed(_)) => return reading(*draft),
            Err(_) => break,
        }
    }
    // The first try's error speaks of what the publisher wrote.
    match failure {
        Failure::Hollow(draft) => Ok(Reading::sound(*draft)),
        Failure::IllFormed(error) | Failure::Unread(error) | Failure::Final(error) => Err(error),
        Failure::Panicked => Err(ParseError::malformed(&PANICKED)),
    }
}

/// Why one try did not succeed.
enum Failure {
    /// No repair helps.
    Final(ParseError),
    /// Not XML.
    IllFormed(ParseError),
    /// XML that the engine does not take for a feed.
    Unread(ParseError),
    /// The engine panicked.
    Panicked,
    /// A feed without anything in it: probably read by the wrong rules.
    Hollow(Box<Draft>),
}

fn try_xml(text: &str, base: Option<&Url>, limits: &ParseLimits) -> Result<Draft, Failure> {
    let surveyed = match guard::survey(text, base.map_or(0, |base| base.as_str().len()), limits) {
        Ok(surveyed) => surveyed,
        Err(Refusal::TooLarge(why)) => return Err(Failure::Final(ParseError::TooLarge(why))),
        Err(Refusal::Malformed(why)) if repair::feed_position(text).is_some() => {
            return Err(Failure::IllFormed(ParseError::malformed(&why)));
        }
        Err(Refusal::Malformed(why) | Refusal::NotAFeed(why)) => {
            return Err(Failure::IllFormed(ParseError::not_a_feed(&why)));
        }
    };
    if surveyed.old_namespaces {
        return Err(Failure::Unread(ParseError::malformed(&"an old dialect that could not be translated")));
    }
    match unpanicked(|| engine::read(&surveyed, base)) {
        None => Err(Failure::Panicked),
        Some(Err(error)) => Err(Failure::Unread(ParseError::malformed(&error))),
        Some(Ok(draft)) if draft.is_hollow() || (draft.entries.is_empty() && surveyed.entries > 0) => {
            Err(Failure::Hollow(Box::new(draft)))
        }
        Some(Ok(draft)) => Ok(draft),
    }
}

const PANICKED: &str = "the parser panicked";

/// Runs something that may panic over a document; `None` when it did. The panic's own text is left to the process' hook.
fn unpanicked<T>(read: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(read)).ok()
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
