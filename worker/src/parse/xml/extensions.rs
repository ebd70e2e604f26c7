//! Elements and attributes without a separate field: kept as they are, up to a few KB an entry.

use std::collections::BTreeMap;
use std::ops::Range;

use common::entry::Extension;
use quick_xml::events::BytesStart;

use super::attribute::attributes;
use super::pass::{Pass, Scope};
use crate::parse::draft::DraftDetails;
use crate::parse::vocabulary::{Detail, Element, Word};

/// What is kept of one entry's extensions: bytes in all, and of one text.
const MAX_EXTENSION_BYTES: usize = 4 * 1024;
const MAX_EXTENSION_TEXT: usize = 1024;
/// What an element of an extension counts beside its texts, in bytes: in memory it takes several times as much.
const EXTENSION_OVERHEAD: usize = 64;

impl<'a> Pass<'a, '_> {
    /// Handles an element that has no meaning here: its attributes and its text are kept as they are.
    pub(super) fn extension(&mut self, word: Word, tag: &BytesStart<'_>, span: &Range<usize>) -> Scope {
        let full = |details: &DraftDetails<'_>| details.extension_bytes >= MAX_EXTENSION_BYTES;
        if self.details().is_none_or(|details| full(details)) {
            return Scope::Ignored;
        }
        self.attributes = attributes(tag);
        self.attributes.insert(0, (String::new(), tag.name().as_ref().to_owned()));
        self.hold(Word { element: Element::Detail(Detail::Extension), ..word }, tag, span)
    }

    /// Keeps the attributes of an element of Podcasting 2.0 as an extension if there is one without a separate field.
    pub(super) fn keep_further(&mut self, detail: Detail, tag: &BytesStart<'_>) {
        let fields: &[&str] = match detail {
            Detail::Season | Detail::Episode => &[],
            Detail::Transcript => &["url", "type", "language", "rel"],
            Detail::AlternateEnclosure => &["type", "length", "bitrate", "height", "lang", "title"],
            Detail::Value => &["type", "method", "suggested"],
            Detail::Recipient => &["name", "type", "address", "split", "fee"],
            Detail::Location => &["geo", "osm"],
            _ => return,
        };
        let mut written = tag.attributes();
        let mut written = written.with_checks(false).flatten();
        if !written.any(|one| !fields.contains(&one.key.as_ref()) && !one.key.as_ref().starts_with("xml")) {
            return;
        }
        let mut all = attributes(tag);
        all.insert(0, (String::new(), tag.name().as_ref().to_owned()));
        if let Some(details) = self.details() {
            add_extension(details, all, "");
        }
    }
}

pub(super) fn add_extension(details: &mut DraftDetails<'_>, mut written: Vec<(String, String)>, text: &str) {
    if written.is_empty() {
        return;
    }
    let (_, name) = written.remove(0);
    let text = text[..text.floor_char_boundary(MAX_EXTENSION_TEXT)].to_owned();
    let bytes: usize = written.iter().map(|(name, value)| name.len() + value.len()).sum();
    let bytes = EXTENSION_OVERHEAD + name.len() + text.len() + bytes;
    if details.extension_bytes + bytes > MAX_EXTENSION_BYTES || (text.is_empty() && written.is_empty()) {
        return;
    }
    details.extension_bytes += bytes;
    let value = if written.is_empty() {
        Extension::Text(text)
    } else {
        let text = (!text.is_empty()).then_some(("#text".to_owned(), text));
        Extension::Element(written.into_iter().chain(text).collect::<BTreeMap<_, _>>())
    };
    details.fields.extensions.entry(name).or_default().push(value);
}
