//! What is printed: JSON for programs, aligned text for people. Text of strangers is shown without its control
//! characters, so that no feed's title can drive the reader's terminal.

use std::io::{self, Write};

use common::report::Outcome;
use common::words;
pub(crate) use common::words::plain;
use serde::Serialize;

use crate::terminal::{Ink, cut, padded, paint, width_of};
use crate::when;

/// Writes one line to standard output, in colours if it is a terminal and `NO_COLOR` is not set.
pub(crate) fn line(text: &str) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Writes one line to standard error, if that is still open.
pub(crate) fn note(text: std::fmt::Arguments<'_>) {
    // Locked, so that a line of the log cannot come between this one and its end.
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Writes an error with its causes to standard error.
pub(crate) fn error(error: &anyhow::Error) {
    for line in format!("{error:#}").lines() {
        note(format_args!("{} {line}", paint(Ink::Bad, "error:")));
    }
}

/// Writes one JSON document on one line.
pub(crate) fn json(value: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(value)?)?;
    out.flush()
}

/// Writes an answer: the value for programs, or the text for people.
pub(crate) fn answer(as_json: bool, value: &impl Serialize, text: impl FnOnce() -> String) -> io::Result<()> {
    if as_json { json(value) } else { line(&text()) }
}

/// Columns as wide as their widest cell, two spaces apart; the last one is left as it is.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<Cell>> =
        rows.iter().map(|row| row.iter().map(|text| Cell::from(text.as_str())).collect()).collect();
    coloured_table((Ink::Plain, head), &rows, None)
}

/// A cell of a table.
pub(crate) struct Cell {
    ink: Ink,
    text: String,
}

impl Cell {
    /// Text in a colour.
    pub(crate) fn new(ink: Ink, text: impl Into<String>) -> Self {
        Cell { ink, text: text.into() }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell::new(Ink::Plain, text)
    }
}

/// Formats a table whose cells have colours, in at most that many columns of a terminal: the widest cells are cut.
pub(crate) fn coloured_table((head_ink, head): (Ink, &[&str]), rows: &[Vec<Cell>], width: Option<usize>) -> String {
    let head: Vec<Cell> = head.iter().map(|name| Cell::new(head_ink, *name)).collect();
    let all = || std::iter::once(&head).chain(rows);
    let widths = widths(all(), head.len());
    let widths = width.map_or(widths.clone(), |width| fitted(widths, width));
    let lines = all().map(|row| {
        let last = row.len().saturating_sub(1);
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            let text = cut(&cell.text, *width);
            let spaces = if column == last { String::new() } else { " ".repeat(width.saturating_sub(width_of(&text))) };
            paint(cell.ink, &text) + &spaces
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the columns that a table takes when nothing is cut.
pub(crate) fn natural_width(head: &[&str], rows: &[Vec<Cell>]) -> usize {
    let head: Vec<Cell> = head.iter().map(|name| Cell::from(*name)).collect();
    let widths = widths(std::iter::once(&head).chain(rows), head.len());
    widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)
}

fn widths<'a>(rows: impl Iterator<Item = &'a Vec<Cell>>, columns: usize) -> Vec<usize> {
    let mut widths = vec![0; columns];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(width_of(&cell.text));
        }
    }
    widths
}

/// Narrows the widest columns until all fit, but keeps them readable.
fn fitted(mut widths: Vec<usize>, most: usize) -> Vec<usize> {
    const NARROWEST: usize = 8;
    let between = 2 * widths.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + between > most {
        match widths.iter_mut().max() {
            Some(widest) if *widest > NARROWEST => *widest -= 1,
            _ => break,
        }
    }
    widths
}

/// Names and values, a line each, the values aligned; those without a value are left out.
pub(crate) fn fields(pairs: &[(&str, Option<String>)]) -> String {
    let present = pairs.iter().filter_map(|(name, value)| value.as_ref().map(|value| (name, value)));
    let width = present.clone().map(|(name, _)| name.len()).max().unwrap_or(0);
    present
        .map(|(name, value)| format!("{}  {value}", paint(Ink::Dim, &padded(name, width))))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns how a fetch ended, on one line.
pub(crate) fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Modified(_) => "modified: a feed with new content".to_owned(),
        Outcome::NotModified { .. } => "not modified: nothing new since".to_owned(),
        Outcome::Throttled { retry_after: Some(at) } => format!("throttled: no requests before {}", when::full(*at)),
        Outcome::Throttled { retry_after: None } => "throttled, without saying for how long".to_owned(),
        Outcome::Failed { failure, detail } => match (words::failure(*failure), plain(detail, 500)) {
            (name, detail) if detail.starts_with(name) => format!("failed: {detail}"),
            (name, detail) => format!("failed ({name}): {detail}"),
        },
        Outcome::Gone => "gone: the server says for ever (410)".to_owned(),
        Outcome::Deferred { until } => {
            format!("deferred: the next request must wait until {}", when::full(*until))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table_within<const N: usize>(head: &[&str; N], row: [&str; N], width: usize) -> String {
        coloured_table((Ink::Plain, head), &[row.map(Cell::from).into()], Some(width))
    }

    #[test]
    fn a_strangers_text_cannot_drive_the_terminal() {
        assert_eq!(plain("a\u{1b}[31m\n\tb\u{202e}c", 80), "a [31m b c");
        assert_eq!(plain("größer", 4), "größ…");
        assert_eq!(plain("same", 4), "same");
    }

    #[test]
    fn columns_are_aligned_as_the_terminal_shows_them() {
        let rows = [vec!["é".to_owned(), "1".to_owned()], vec!["longer".to_owned(), String::new()]];
        assert_eq!(table(&["NAME", "N"], &rows), "NAME    N\né       1\nlonger");
        let rows = [vec!["東京".to_owned(), "1".to_owned()], vec!["Oslo".to_owned(), "2".to_owned()]];
        assert_eq!(table(&["NAME", "N"], &rows), "NAME  N\n東京  1\nOslo  2");
        assert_eq!(
            table_within(&["TITLE", "N"], ["朝日新聞デジタルの記事", "1"], 15),
            "TITLE         N\n朝日新聞デ…   1"
        );
    }

    #[test]
    fn a_table_is_cut_to_the_terminal_where_it_is_widest() {
        let within = |width| {
            table_within(
                &["ID", "URL", "TITLE"],
                ["1", "https://example.com/a/long/one", "A title of some length"],
                width,
            )
        };
        assert_eq!(within(40), "ID  URL                TITLE\n1   https://example.…  A title of some …");
        assert_eq!(within(1000).lines().last(), Some("1   https://example.com/a/long/one  A title of some length"));
        assert!(within(5).contains("https:/…"), "something is always said");
    }
}
