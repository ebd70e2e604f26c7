//! Attributes of elements.

use quick_xml::events::BytesStart;

use crate::parse::text;

/// An attribute's value with its references resolved. Names count in either case.
pub(super) fn attribute(tag: &BytesStart<'_>, name: &str) -> Option<String> {
    if tag.attributes_raw().is_empty() {
        return None;
    }
    let mut attributes = tag.attributes();
    let found = attributes.with_checks(false).flatten().find(|one| one.key.as_ref().eq_ignore_ascii_case(name))?;
    Some(text::resolved(&found.value).into_owned())
}
