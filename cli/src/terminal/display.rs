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

/// Returns the text with its lines broken between words, so that none is wider; continued lines are indented a little more.
pub(crate) fn wrapped(text: &str, columns: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let mut current = " ".repeat(indent);
        let mut is_empty = true;
        // Columns of a table keep their spaces.
        let words = line.trim_start().split_inclusive(' ');
        for word in words {
            if !is_empty && width_of(&current) + width_of(word.trim_end()) > columns {
                lines.push(current.trim_end().to_owned());
                current = " ".repeat(indent + 2);
            }
            current.push_str(word);
            is_empty = false;
        }
        lines.push(current.trim_end().to_owned());
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_between_words_and_what_fits_stays_as_it_is() {
        assert_eq!(wrapped("one two three\n  a    b\n", 8), "one two\n  three\n  a    b");
        assert_eq!(wrapped("  a rule that was broken", 12), "  a rule\n    that was\n    broken");
        assert_eq!(wrapped("unbreakable", 4), "unbreakable");
    }

    #[test]
    fn wide_characters_take_two_columns_and_combining_ones_none() {
        assert_eq!(["feed", "日本語", "e\u{301}", "…"].map(width_of), [4, 6, 1, 1]);
        assert_eq!([5, 4, 1, 0].map(|columns| cut("日本語", columns)), ["日本…", "日…", "…", ""]);
        assert_eq!((padded("日本", 6), padded("日本語", 4)), ("日本  ".to_owned(), "日本語".to_owned()));
    }
}
