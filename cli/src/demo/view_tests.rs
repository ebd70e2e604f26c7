//! Renders the view from fixed data.

use super::*;
use crate::demo::picture::{Asking, Boxed, Came, Happening, HeldHost, Requests, Verdict};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns a picture of a busy moment.
fn picture() -> Picture {
    let cells = (0..312).map(|number| match number % 26 {
        3 => Cell::Asked,
        7 if number > 80 => Cell::News,
        11 => Cell::Waiting,
        19 if number < 200 => Cell::Boxed,
        23 if number > 280 => Cell::Gone,
        25 if number > 300 => Cell::Unasked,
        _ => Cell::Quiet,
    });
    let asked = |feed: &str, status: Option<u16>, took: u64, bytes: u64| Asked {
        feed: feed.into(),
        status,
        took: millis(took),
        bytes,
    };
    let came = |at: u64, feed: &str, title: &str| Came { at: millis(at), feed: feed.into(), title: title.into() };
    let boxed = |feed: &str, why: &str, again: u64| Boxed { feed: feed.into(), why: why.into(), again: millis(again) };
    let happened = |at: u64, good: bool, text: &str| Happening { at: millis(at), good, text: text.into() };
    Picture {
        elapsed: millis(36_700),
        limit: millis(60_000),
        address: "http://127.0.0.1:7878".into(),
        hosts: 66,
        cells: cells.collect(),
        requests: Requests { count: 2871, not_modified: 2300, full: 390, sent: 2_345_678, saved: 9_876_543 },
        pace: (0..36).map(|second| 60 + second * 7 % 40).collect(),
        lag: Some(millis(87)),
        parked: 14,
        entries: 2_467,
        fresh: 181,
        delay: Some(millis(2340)),
        verdict: Some(Verdict { requests: 2790, rules: 15, broken: Vec::new() }),
        asking: vec![
            Asking { feed: "Never answers".into(), since: millis(1530) },
            Asking { feed: "Copper Radio".into(), since: millis(34) },
        ],
        asked: vec![
            asked("Walrus Weekly", Some(304), 45, 0),
            asked("Tin Post", Some(200), 81, 14_250),
            asked("Moth Log", Some(429), 12, 0),
            asked("A bomb of 100 MB (gzip)", None, 9, 99_000),
            asked("A feed with a name that is far too long for half a terminal", Some(404), 3, 0),
            asked("Otter Diary", Some(304), 60, 0),
            asked("Heron Almanac", Some(301), 60, 0),
        ],
        came: vec![
            came(36_500, "Tin Post", "A lighthouse learns to wait at last"),
            came(36_100, "Control characters", "[2J[31mwipes \u{1b}[2Jyour screen"),
            came(35_000, "Moth Gazette", "The moon keeps a secret"),
        ],
        boxed: vec![boxed("Ferry Review", "404 not found", 900), boxed("Pepper Notes", "not a feed", 12_400)],
        held: vec![HeldHost { host: "podhaus.example".into(), left: millis(3_200) }],
        story: vec![
            happened(35_200, false, "Moth Dispatch is gone (410): it is never asked again"),
            happened(21_000, true, "bigblogs.example is up again"),
        ],
    }
}

fn drawn(picture: &Picture, width: usize, height: usize) -> String {
    let lines = frame(picture, Canvas { width, height, colour: false });
    assert_eq!(lines.len(), height);
    for line in &lines {
        assert!(width_of(line) <= width, "{line}");
        assert!(!line.contains(char::is_control), "{line:?}");
    }
    lines.join("\n")
}

#[test]
fn a_usual_terminal_is_filled() {
    insta::assert_snapshot!(drawn(&picture(), 80, 24));
}

#[test]
fn a_larger_terminal_shows_more_of_the_lists() {
    insta::assert_snapshot!(drawn(&picture(), 120, 40));
}

#[test]
fn breaches_are_named() {
    let broken = vec![("early polls", 2), ("starts within the gap", 1)];
    let verdict = Some(Verdict { requests: 90, rules: 15, broken });
    let text = drawn(&Picture { verdict, ..picture() }, 80, 24);
    assert!(text.contains("broken 3 times in 90 requests: 2 early polls, 1 starts within the gap"), "{text}");
}

#[test]
fn a_moment_without_anything_and_a_tiny_terminal_do_no_harm() {
    for (width, height) in [(80, 24), (20, 5), (1, 1), (3, 60)] {
        drawn(&Picture::default(), width, height);
        drawn(&picture(), width, height);
    }
}

#[test]
fn colours_change_no_text() {
    let plain = frame(&picture(), Canvas { width: 100, height: 30, colour: false });
    let coloured = frame(&picture(), Canvas { width: 100, height: 30, colour: true });
    for (plain, coloured) in plain.iter().zip(coloured) {
        let mut parts = coloured.split("\u{1b}[");
        let first = parts.next().unwrap_or_default().to_owned();
        let stripped = parts.fold(first, |text, part| text + part.split_once('m').unwrap().1);
        assert_eq!(&stripped, plain);
    }
}

#[test]
fn numbers_have_commas() {
    assert_eq!([0, 999, 1000, 12_345, 1_234_567].map(words::count), ["0", "999", "1,000", "12,345", "1,234,567"]);
}

#[test]
fn the_pace_is_drawn_against_its_highest_second() {
    assert_eq!(sparkline(&[9, 0, 35, 70], 3), "▁▅█");
    assert_eq!(sparkline(&[], 10), "");
}
