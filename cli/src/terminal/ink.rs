//! Coloured text of a fixed width: lines that never exceed the terminal's width, whatever they contain.

use super::{cut, width_of};

/// The style of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    /// The terminal's default.
    Plain,
    /// Less prominent.
    Dim,
    /// More prominent.
    Bold,
    /// Healthy.
    Good,
    /// New.
    News,
    /// Waiting.
    Warn,
    /// Failing.
    Bad,
}

impl Ink {
    /// Returns the SGR parameters (ECMA-48, section 8.3.117).
    fn code(self) -> Option<&'static str> {
        match self {
            Ink::Plain => None,
            Ink::Dim => Some("2"),
            Ink::Bold => Some("1"),
            Ink::Good => Some("32"),
            Ink::News => Some("1;36"),
            Ink::Warn => Some("33"),
            Ink::Bad => Some("1;31"),
        }
    }
}

/// Returns the text with its colour codes. `output` removes them where colours are not shown.
pub(crate) fn paint(ink: Ink, text: &str) -> String {
    match ink.code().filter(|_| !text.is_empty()) {
        Some(code) => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
        None => text.to_owned(),
    }
}

/// A line being built.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    text: String,
    used: usize,
    width: usize,
    colour: bool,
}

impl Line {
    /// Creates an empty line of at most `width` columns, coloured or not.
    pub(crate) fn new(width: usize, colour: bool) -> Self {
        Line { text: String::new(), used: 0, width, colour }
    }

    /// Returns the number of free columns.
    pub(crate) fn room(&self) -> usize {
        self.width - self.used
    }

    /// Appends text; cuts what does not fit, and drops control characters.
    pub(crate) fn put(self, ink: Ink, text: &str) -> Self {
        let room = self.room();
        self.put_within(ink, text, room)
    }

    /// Appends text in exactly `columns` columns.
    pub(crate) fn cell(self, ink: Ink, text: &str, columns: usize) -> Self {
        let end = self.used + columns.min(self.room());
        self.put_within(ink, text, columns).pad_to(end)
    }

    /// Appends text aligned to the right edge if it fits; existing text stays.
    pub(crate) fn right(self, ink: Ink, text: &str) -> Self {
        let start = self.width.saturating_sub(width_of(text)).max(self.used);
        self.pad_to(start).put(ink, text)
    }

    /// Appends spaces up to this column.
    pub(crate) fn pad_to(mut self, column: usize) -> Self {
        let spaces = column.min(self.width).saturating_sub(self.used);
        self.text.extend(std::iter::repeat_n(' ', spaces));
        self.used += spaces;
        self
    }

    /// Appends another line unchanged; it must fit.
    pub(crate) fn join(mut self, other: &Line) -> Self {
        self.used = (self.used + other.used).min(self.width);
        self.text.push_str(&other.text);
        self
    }

    fn put_within(mut self, ink: Ink, text: &str, columns: usize) -> Self {
        let columns = columns.min(self.room());
        let visible: String = text.chars().filter(|c| !c.is_control()).collect();
        let kept = cut(&visible, columns);
        self.used += width_of(&kept);
        self.text.push_str(&paint(if self.colour { ink } else { Ink::Plain }, &kept));
        self
    }

    /// Returns the text with its colour codes.
    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_spills_over_the_edge_and_no_control_character_passes() {
        let line = Line::new(10, false).put(Ink::Bold, "a\u{1b}[2Jb").cell(Ink::Plain, "long words", 4);
        assert_eq!(line.clone().into_text(), "a[2Jblon…");
        assert_eq!(line.put(Ink::Bad, "more").into_text(), "a[2Jblon……");
        assert_eq!(Line::new(6, false).put(Ink::Plain, "ab").right(Ink::Dim, "cd").into_text(), "ab  cd");
    }

    #[test]
    fn wide_characters_do_not_spill_over_the_edge() {
        let line = Line::new(9, false).cell(Ink::Plain, "日本語の題名", 6).put(Ink::Dim, "朝日");
        assert_eq!((line.room(), line.into_text().as_str()), (0, "日本… 朝…"));
    }

    #[test]
    fn colours_take_no_room() {
        let line = Line::new(4, true).put(Ink::Good, "ab").put(Ink::Plain, "cd");
        assert_eq!((line.room(), line.into_text().as_str()), (0, "\u{1b}[32mab\u{1b}[0mcd"));
    }
}
