//! The columns that text takes on a terminal: two for a Chinese, Japanese or Korean character, none for a combining one.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Returns the number of columns that a text takes.
pub(crate) fn width_of(text: &str) -> usize {
    text.width()
}

/// Returns the text in at most that many columns, with an ellipsis if it is cut.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if width_of(text) <= columns {
        return text.to_owned();
    }
    let Some(room) = columns.checked_sub(1) else { return String::new() };
    let mut used = 0;
    let fits = |character: &char| {
        used += character.width().unwrap_or(0);
        used <= room
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

/// Returns the text with spaces up to that many columns.
pub(crate) fn padded(text: &str, columns: usize) -> String {
    let spaces = columns.saturating_sub(width_of(text));
    format!("{text}{}", " ".repeat(spaces))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_take_two_columns_and_combining_ones_none() {
        assert_eq!(["feed", "日本語", "e\u{301}", "…"].map(width_of), [4, 6, 1, 1]);
        assert_eq!([5, 4, 1, 0].map(|columns| cut("日本語", columns)), ["日本…", "日…", "…", ""]);
        assert_eq!((padded("日本", 6), padded("日本語", 4)), ("日本  ".to_owned(), "日本語".to_owned()));
    }
}
