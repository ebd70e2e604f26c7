//! What is printed: JSON for programs, aligned text for people. Text of strangers is shown without its control
//! characters, so that no feed's title can drive the reader's terminal.

use std::io::{self, Write};
use std::time::Duration;

use common::report::Outcome;
use common::time::Timestamp;
use serde::Serialize;

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

/// The same in at most so many columns of a terminal: the widest cells are cut.
pub(crate) fn table_within(head: &[&str], rows: &[Vec<String>], width: Option<usize>) -> String {
    let head = head.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
    let all = || std::iter::once(&head).chain(rows);
    let widths: Vec<usize> = (0..head.len())
        .map(|column| all().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    let widths = width.map_or(widths.clone(), |width| fitted(widths, width));
    let lines = all().map(|row| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let cell = if width_of(cell) > *width { cut(cell, *width) } else { cell.clone() };
            format!("{cell:width$}")
        });
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

fn width_of(text: &str) -> usize {
    text.chars().count()
}

fn cut(text: &str, width: usize) -> String {
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Names and values, a line each, the values aligned; those without a value are left out.
pub(crate) fn fields(pairs: &[(&str, Option<String>)]) -> String {
    let present = pairs.iter().filter_map(|(name, value)| value.as_ref().map(|value| (name, value)));
    let width = present.clone().map(|(name, _)| name.len()).max().unwrap_or(0);
    present.map(|(name, value)| format!("{name:width$}  {value}")).collect::<Vec<_>>().join("\n")
}

/// A stranger's text on one line, without control characters and not longer than `longest` characters.
pub(crate) fn plain(text: &str, longest: usize) -> String {
    let visible: String = text.chars().map(|c| if c.is_control() || is_format(c) { ' ' } else { c }).collect();
    let words = visible.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

/// Characters that turn the direction of the text around them.
fn is_format(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A duration in its two largest units: `45 s`, `1 h 40 m`, `2 d 3 h`.
pub(crate) fn words(duration: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let seconds = duration.as_secs();
    let Some(first) = UNITS.iter().position(|(size, _)| seconds >= *size) else {
        return format!("{} ms", duration.as_millis());
    };
    let (size, unit) = UNITS[first];
    let rest = seconds % size;
    match UNITS.get(first + 1) {
        Some((next_size, next_unit)) if rest >= *next_size => {
            format!("{} {unit} {} {next_unit}", seconds / size, rest / next_size)
        }
        _ => format!("{} {unit}", seconds / size),
    }
}

/// A time as seen from `now`: `in 5 m`, `3 h ago`.
pub(crate) fn relative(at: Timestamp, now: Timestamp) -> String {
    match (at.since(now), now.since(at)) {
        (ahead, _) if ahead >= Duration::from_secs(1) => format!("in {}", words(ahead)),
        (_, past) if past >= Duration::from_secs(1) => format!("{} ago", words(past)),
        _ => "now".to_owned(),
    }
}

/// A time in full and as seen from `now`.
pub(crate) fn moment(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", at.to_chrono().format("%Y-%m-%d %H:%M:%S UTC"), relative(at, now))
}

/// How a fetch ended, on one line.
pub(crate) fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Modified(_) => "modified: a feed, read whole".to_owned(),
        Outcome::NotModified { .. } => "not_modified: nothing new since".to_owned(),
        Outcome::Throttled { retry_after: Some(at) } => format!("throttled: not to be asked before {at}"),
        Outcome::Throttled { retry_after: None } => "throttled, without saying for how long".to_owned(),
        Outcome::Failed { failure, detail } => format!("failed ({failure}): {}", plain(detail, 500)),
        Outcome::Gone => "gone: the server says for ever (410)".to_owned(),
        Outcome::Deferred { until } => format!("deferred: a host on the way may not be asked before {until}"),
    }
}

/// A number of things: `1 feed`, `2 feeds`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Bytes in the largest unit that keeps them above one.
pub(crate) fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_said_in_two_units() {
        let said = |millis| words(Duration::from_millis(millis));
        assert_eq!(said(0), "0 ms");
        assert_eq!(said(45_900), "45 s");
        assert_eq!(said(6_000_000), "1 h 40 m");
        assert_eq!(said(3_605_000), "1 h");
        assert_eq!(said(183_600_000), "2 d 3 h");
    }

    #[test]
    fn a_strangers_text_cannot_drive_the_terminal() {
        assert_eq!(plain("a\u{1b}[31m\n\tb\u{202e}c", 80), "a [31m b c");
        assert_eq!(plain("größer", 4), "größ…");
        assert_eq!(plain("same", 4), "same");
    }

    #[test]
    fn columns_are_aligned_by_characters() {
        let rows = [vec!["é".to_owned(), "1".to_owned()], vec!["longer".to_owned(), String::new()]];
        assert_eq!(table(&["NAME", "N"], &rows), "NAME    N\né       1\nlonger");
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

    #[test]
    fn times_are_seen_from_now() {
        let now = Timestamp::from_millis(10_000_000);
        assert_eq!(relative(now.after(Duration::from_secs(300)), now), "in 5 m");
        assert_eq!(relative(now.before(Duration::from_secs(7200)), now), "2 h ago");
        assert_eq!(relative(now, now), "now");
    }
}
