//! From the bytes of a hostile stranger to a feed in our words.
//!
//! ```text
//!  bytes ─► decode ─► text ─► xml or json ─► draft ─► normalise ─► ParsedFeed
//!                       ▲          │
//!                       └─ repair ◄┘ once, when the text is not well-formed
//! ```
//!
//! Each layer is a function of the result of the one before: `decode` knows bytes and labels, `xml` and `json` read
//! well-formed text within limits, `repair` makes well-formed text of any other, `normalise` makes identities, plain
//! titles and absolute links. A sound document never meets the repair.
//!
//! `parse` never panics, never recurses by the document's will, never fetches anything and expands of the entities that
//! the document defines only plain abbreviations, within a budget. It is synchronous: callers run it on a thread for
//! blocking work. The document's bytes decide what it is; the declared type only names an encoding.
//!
//! A further kind of feed is a module that makes a `draft::Draft`, and an arm in `read`. Documents that are neither XML nor
//! JSON Feed go to `kinds` last, so that it costs ordinary feeds nothing.
//!
//! Deliberately not here: sanitising of HTML (the code that shows content does that), feeds that pages announce, and
//! what to do about the hints.

mod codepages;
mod dates;
mod decode;
mod draft;
mod entities;
mod error;
mod feed;
mod hints;
mod identity;
mod json;
mod kept;
mod kinds;
mod limits;
mod link;
mod links;
mod normalise;
mod one_line;
mod repair;
mod text;
mod vocabulary;
mod xml;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use common::document::Onward;
use common::entry::{Entry, canonical_url};
use serde_json::json;
use url::Url;

pub use decode::text_of;
pub use error::ParseError;
pub use feed::ParsedFeed;
pub(crate) use identity::steady;
pub(crate) use kinds::Lead;
pub use limits::ParseLimits;
use repair::Mended;
use xml::Refusal;

/// Rises whenever the same bytes would be read differently. It is part of the content hash's key, so that a better parser
/// reads feeds again that have not changed.
pub const PARSER_VERSION: u64 = 11;

/// Reads a feed of any kind. `content_type` is the answer's header field, `base_url` the URL after redirects that
/// relative links are resolved against (an invalid one resolves nothing).
pub fn parse(
    bytes: &[u8],
    content_type: Option<&str>,
    base_url: &str,
    limits: &ParseLimits,
) -> Result<ParsedFeed, ParseError> {
    let whole = || {
        let text = text_of(bytes, content_type);
        let base = Url::parse(base_url).ok();
        let rss = || read(&kinds::rss_json::as_xml(&text, limits)?, base.as_ref(), limits).ok();
        let posts = || kinds::read(&text, content_type, base.as_ref(), limits);
        let posts = || normalise::finish(posts()?.into(), base.as_ref(), limits).ok();
        let whole = read(&text, base.as_ref(), limits).or_else(|error| rss().or_else(posts).ok_or(error));
        whole.map_err(|error| if limits.is_late() { ParseError::late() } else { error })
    };
    // No panic is known; one that is not known must not cost more than this document.
    catch_unwind(AssertUnwindSafe(whole)).unwrap_or_else(|_| Err(ParseError::malformed(&PANICKED)))
}

const PANICKED: &str = "the parser panicked";

/// Returns the h-feed that a page is, whatever it announces.
pub(crate) fn page(bytes: &[u8], content_type: Option<&str>, url: &str, limits: &ParseLimits) -> Option<ParsedFeed> {
    let whole = || {
        let (text, url) = (text_of(bytes, content_type), Url::parse(url).ok());
        let posts = kinds::page(&text, content_type, url.as_ref(), limits)?;
        normalise::finish(posts.into(), url.as_ref(), limits).ok()
    };
    catch_unwind(AssertUnwindSafe(whole)).unwrap_or_default()
}

/// Returns where a document that is not a feed says that its posts are.
pub(crate) fn lead(bytes: &[u8], limits: &ParseLimits) -> Option<Lead> {
    let whole = || if limits.is_late() { None } else { kinds::activity::lead(&text_of(bytes, None)) };
    catch_unwind(AssertUnwindSafe(whole)).unwrap_or_default()
}

/// Returns the shape in which `feedfleet parse --json` prints a feed:
/// `{"title","link","id","entries":[{"id","title","link", "published","updated"}]}` and what the feed announces; absent
/// texts and times as null.
pub fn to_json(feed: &ParsedFeed) -> serde_json::Value {
    let entries: Vec<serde_json::Value> = feed.entries.iter().map(entry_json).collect();
    let (onward, about) = apart(&feed.onward);
    let mut shown = json!({
        "title": feed.title,
        "link": feed.link,
        "id": feed.id,
        "language": feed.language,
        "hints": feed.hints,
        "hub": feed.hub,
        "self_link": feed.self_link,
        "cloud": feed.cloud,
        "onward": onward,
        "repaired": feed.repaired,
        "truncated": feed.truncated,
        "entries": entries,
    });
    if let (Some(shown), serde_json::Value::Object(about)) = (shown.as_object_mut(), about) {
        shown.extend(about);
    }
    shown
}

/// Returns what a feed says about its further documents, and what it says about itself, whose fields are shown beside
/// its title.
pub fn apart(onward: &Onward) -> (Onward, serde_json::Value) {
    let mut onward = onward.clone();
    let about = onward.about.take().map(|about| json!(about));
    (onward, about.unwrap_or_default())
}

/// One entry in that shape. `title`, `published` and `updated` are always there, and `link` is its `url`.
pub fn entry_json(entry: &Entry) -> serde_json::Value {
    let mut named = entry.clone();
    named.name_authors();
    named.name_types();
    let mut shown = serde_json::to_value(named).unwrap_or_default();
    if let Some(fields) = shown.as_object_mut() {
        fields.insert("link".to_owned(), json!(entry.url));
        fields.insert("display_title".to_owned(), json!(entry.display_title()));
        let canonical = entry.url.as_deref().and_then(canonical_url);
        fields.extend(canonical.map(|canonical| ("canonical_url".to_owned(), json!(canonical))));
        for name in ["title", "published", "updated"] {
            fields.entry(name).or_insert(serde_json::Value::Null);
        }
    }
    shown
}

/// Reads a text of whatever kind it is; one that is broken, a second time after a repair.
fn read(text: &str, base: Option<&Url>, limits: &ParseLimits) -> Result<ParsedFeed, ParseError> {
    let is_json = text.trim_start().starts_with('{');
    let is_too_deep = Cell::new(false);
    let once = |text: &str| {
        let draft = if is_json {
            json::read(text, limits)
        } else {
            let draft = xml::read(text, base, limits);
            is_too_deep.set(matches!(draft, Err(Refusal::TooDeep(_))));
            draft.map_err(|refusal| parse_error(refusal, text))
        };
        draft.and_then(|draft| normalise::finish(draft, base, limits))
    };
    let error = match once(text) {
        Err(error @ ParseError::TooLarge(_)) if !is_too_deep.get() => return Err(error),
        Err(error) => error,
        sound => return sound,
    };
    // The error is about what the publisher wrote.
    let mended = if is_json { repair::json::mended(text, limits) } else { repair::mended(text, limits) };
    let Some(Mended { text, truncated }) = mended else { return Err(error) };
    match once(&text) {
        // Repair may leave nothing of a broken document: that is not a feed without entries.
        Ok(feed) if feed.title.is_some() || feed.link.is_some() || !feed.entries.is_empty() => {
            Ok(ParsedFeed { repaired: true, truncated, ..feed })
        }
        Err(refused @ ParseError::TooLarge(_)) => Err(refused),
        _ => Err(error),
    }
}

fn parse_error(refusal: Refusal, text: &str) -> ParseError {
    match refusal {
        Refusal::TooLarge(why) | Refusal::TooDeep(why) => ParseError::TooLarge(why),
        Refusal::Late => ParseError::late(),
        Refusal::Malformed(why) if repair::feed_position(text).is_some() => ParseError::malformed(&why),
        Refusal::Malformed(why) | Refusal::NotAFeed(why) => ParseError::not_a_feed(&why),
    }
}
