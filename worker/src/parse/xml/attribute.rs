//! Attributes of elements, and short texts.

use std::borrow::Cow;

use quick_xml::events::BytesStart;

use crate::parse::draft::MAX_MEMBERS;
use crate::parse::text;

/// Longest short text, in bytes: a name, a media type.
pub(super) const MAX_NAME: usize = 1024;

/// Returns an attribute's value with its references resolved. Names count in either case.
pub(super) fn attribute(tag: &BytesStart<'_>, name: &str) -> Option<String> {
    if tag.attributes_raw().is_empty() {
        return None;
    }
    let mut attributes = tag.attributes();
    let found = attributes.with_checks(false).flatten().find(|one| one.key.as_ref().eq_ignore_ascii_case(name))?;
    Some(text::resolved(&found.value).into_owned())
}

/// Returns a short text that says something.
pub(super) fn some(text: &str) -> Option<String> {
    text::cleaned(Cow::Borrowed(&text[..text.floor_char_boundary(MAX_NAME)]))
}

/// Returns an attribute that is a short text.
pub(super) fn short(tag: &BytesStart<'_>, name: &str) -> Option<String> {
    some(&attribute(tag, name)?)
}

/// Returns all attributes but declarations of namespaces.
pub(super) fn attributes(tag: &BytesStart<'_>) -> Vec<(String, String)> {
    let mut all = tag.attributes();
    let written = all.with_checks(false).flatten().filter(|one| !one.key.as_ref().starts_with("xmlns"));
    let written = written.map(|one| (one.key.as_ref().to_owned(), text::resolved(&one.value).into_owned()));
    written.filter(|(_, value)| value.len() <= MAX_NAME).take(MAX_MEMBERS).collect()
}

/// Of these attributes the value of the one with this name.
pub(super) fn value(written: &[(String, String)], name: &str) -> Option<String> {
    let found = written.iter().find(|(written, _)| written.eq_ignore_ascii_case(name));
    found.and_then(|(_, value)| some(value))
}

/// `itunes:image`, `media:thumbnail`, and Apple's older `itunes:link rel="image"`.
pub(super) fn address_of_image(tag: &BytesStart<'_>) -> Option<String> {
    let is_image = attribute(tag, "rel").is_none_or(|relation| relation.trim().eq_ignore_ascii_case("image"));
    let href = attribute(tag, "href").or_else(|| attribute(tag, "url"));
    href.filter(|href| is_image && !href.trim().is_empty())
}
