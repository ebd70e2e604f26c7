//! What is printed: JSON for programs, aligned text for people. Text of strangers is shown without its control
//! characters, so that no feed's title can drive the reader's terminal.

use std::io::{self, Write};

use common::report::Outcome;
pub(crate) use common::words::plain;
use serde::Serialize;

use crate::terminal::{cut, padded, width_of};

/// Writes one line to standard output.
pub(crate) fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Writes one line to standard error, if that is still open.
pub(crate) fn note(text: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes one JSON document on one line.
pub(crate) fn json(value: &impl Serialize) -> io::Result<()> {
    line(&serde_json::to_string(value)?)
}

/// Columns as wide as their widest cell, two spaces apart; the last one is left as it is.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    table_within(head, rows, None)
}

/// Formats a table in at most that many columns of a terminal: the widest cells are cut.
pub(crate) fn table_within(head: &[&str], rows: &[Vec<String>], width: Option<usize>) -> String {
    let head = head.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
    let all = || std::iter::once(&head).chain(rows);
    let widths: Vec<usize> = (0..head.len())
        .map(|column| all().filter_map(|row| row.get(column)).map(|cell| width_of(cell)).max().unwrap_or(0))
        .collect();
    let widths = width.map_or(widths.clone(), |width| fitted(widths, width));
    let lines = all().map(|row| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| padded(&cut(cell, *width), *width));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The widest columns made narrower until all fit, but not so narrow that they say nothing.
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
    present.map(|(name, value)| format!("{name:width$}  {value}")).collect::<Vec<_>>().join("\n")
}

/// How a fetch ended, on one line.
pub(crate) fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Modified(_) => "modified: a feed with new content".to_owned(),
        Outcome::NotModified { .. } => "not_modified: nothing new since".to_owned(),
        Outcome::Throttled { retry_after: Some(at) } => format!("throttled: no requests before {at}"),
        Outcome::Throttled { retry_after: None } => "throttled, without saying for how long".to_owned(),
        Outcome::Failed { failure, detail } => format!("failed ({failure}): {}", plain(detail, 500)),
        Outcome::Gone => "gone: the server says for ever (410)".to_owned(),
        Outcome::Deferred { until } => format!("deferred: a host of the redirects allows no request before {until}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let rows = [vec!["朝日新聞デジタルの記事".to_owned(), "1".to_owned()]];
        assert_eq!(table_within(&["TITLE", "N"], &rows, Some(15)), "TITLE         N\n朝日新聞デ…   1");
    }

    #[test]
    fn a_table_is_cut_to_the_terminal_where_it_is_widest() {
        let rows =
            [vec!["1".to_owned(), "https://example.com/a/long/one".to_owned(), "A title of some length".to_owned()]];
        let narrow = table_within(&["ID", "URL", "TITLE"], &rows, Some(40));
        assert_eq!(narrow, "ID  URL                TITLE\n1   https://example.…  A title of some …");
        assert_eq!(table_within(&["ID", "URL", "TITLE"], &rows, None), table(&["ID", "URL", "TITLE"], &rows));
        assert!(table_within(&["ID", "URL", "TITLE"], &rows, Some(5)).contains("https:/…"), "something is always said");
    }
}
