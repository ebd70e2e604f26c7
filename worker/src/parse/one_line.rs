//! Titles and names: plain text on one line, of a bounded length.

use std::borrow::Cow;

use super::draft::Text;
use super::text;

/// Longest title, in bytes: what is shown on a line.
pub(super) const MAX_LINE_BYTES: usize = 16 * 1024;
/// Longest list of authors, media type or category, in bytes: what may be repeated in every entry.
pub(super) const MAX_NAME_BYTES: usize = 1024;

/// Returns a title as plain text on one line; notes whether it was cut.
pub(super) fn title(title: Option<Text<'_>>, cut: &mut bool) -> Option<String> {
    let Text { mut raw, markup } = title?;
    *cut |= text::cut(&mut raw, MAX_LINE_BYTES);
    let plain = match markup {
        Some(markup) => text::plain(&raw, markup),
        None => Cow::Borrowed(&*raw),
    };
    text::cleaned(text::on_one_line(&plain))
}

/// Returns a short text on one line, cut at `max` bytes without a mark.
pub(super) fn name(mut name: Cow<'_, str>, max: usize) -> Option<String> {
    text::cut(&mut name, max);
    text::cleaned(text::on_one_line(&name))
}
