//! The live view: renders a picture as lines for a terminal. Pure; does no terminal I/O.
//!
//! From top to bottom: title and time; the map, one character per feed; the numbers; recent events; and in two columns
//! the requests, the new entries, the penalty box and the held hosts. The lists are longer on a larger terminal.

use common::words;
use std::collections::BTreeMap;
use std::time::Duration;

use super::internet;
use super::pace::FASTER;
use super::picture::{Asked, Cell, Picture};
use crate::terminal::{Canvas, Ink, Line, columns, rows, sparkline, width_of};

/// Lines outside the lists: title, legend, three lines of numbers, two headings, the last line.
const FIXED: usize = 8;

/// Renders the frame: exactly `height` lines, none wider than `width`.
pub(super) fn frame(picture: &Picture, canvas: Canvas) -> Vec<String> {
    let map = map(picture, canvas);
    let free = canvas.height.saturating_sub(FIXED + map.len());
    let story_rows = (free / 5).clamp(1, 6);
    let lists = free.saturating_sub(story_rows);
    let upper_rows = lists - lists * 2 / 5;
    let mut lines = vec![title(picture, canvas)];
    lines.extend(map);
    lines.push(legend(picture, canvas));
    lines.extend([polls(picture, canvas), entries(picture, canvas), manners(picture, canvas)]);
    lines.extend(rows(story(picture, canvas), story_rows, canvas));
    let upper = (asking(picture, canvas.half(), upper_rows), came(picture, canvas.half()));
    lines.extend(columns(
        ("Polling now", &upper_note(picture, upper_rows / 2)),
        ("New entries", ""),
        upper,
        upper_rows,
        canvas,
    ));
    let lower = (penalty_box(picture, canvas.half()), held(picture, canvas.half()));
    let (left, right) = (box_heading(picture), held_heading(picture));
    let lower_rows = lists - upper_rows;
    lines.extend(columns((&left.0, &left.1), (&right.0, &right.1), lower, lower_rows, canvas));
    lines.push(last(picture, canvas));
    lines.truncate(canvas.height);
    lines.into_iter().map(Line::into_text).collect()
}

fn title(picture: &Picture, canvas: Canvas) -> Line {
    let feeds = picture.cells.len();
    let time = format!(" {} of {}", clock(picture.elapsed), clock(picture.limit));
    let line = canvas.line().put(Ink::Bold, "feedfleet demo");
    let about = format!("  {feeds} feeds on {} hosts, a day in a minute", picture.hosts);
    let room = line.room().saturating_sub(time.len());
    line.cell(Ink::Dim, &about, room).right(Ink::Bold, &time)
}

/// Renders the map, one character per feed.
fn map(picture: &Picture, canvas: Canvas) -> Vec<Line> {
    let rows = picture.cells.chunks(canvas.width.max(1));
    rows.map(|row| {
        row.iter().fold(canvas.line(), |line, cell| {
            let (ink, sign) = sign(*cell);
            line.put(ink, sign)
        })
    })
    .collect()
}

fn sign(cell: Cell) -> (Ink, &'static str) {
    match cell {
        Cell::Unasked => (Ink::Dim, "·"),
        Cell::Quiet => (Ink::Good, "·"),
        Cell::Asked => (Ink::Plain, "o"),
        Cell::News => (Ink::News, "+"),
        Cell::Waiting => (Ink::Warn, "~"),
        Cell::Boxed => (Ink::Bad, "x"),
        Cell::Gone => (Ink::Dim, "-"),
    }
}

fn legend(picture: &Picture, canvas: Canvas) -> Line {
    let kinds = [
        (Cell::Quiet, "well"),
        (Cell::Asked, "asked"),
        (Cell::News, "news"),
        (Cell::Waiting, "waiting"),
        (Cell::Boxed, "penalty box"),
        (Cell::Gone, "gone"),
    ];
    kinds.into_iter().fold(canvas.line(), |line, (cell, name)| {
        let (ink, sign) = sign(cell);
        let count = picture.cells.iter().filter(|other| **other == cell).count();
        line.put(ink, sign)
            .put(Ink::Dim, &format!(" {name} "))
            .put(Ink::Plain, &format!("{count}"))
            .put(Ink::Plain, "  ")
    })
}

fn polls(picture: &Picture, canvas: Canvas) -> Line {
    let requests = &picture.requests;
    let answered = requests.not_modified + requests.full;
    let share = (requests.not_modified * 100).checked_div(answered).unwrap_or(0);
    let line = canvas
        .line()
        .cell(Ink::Dim, "polls", 9)
        .put(Ink::Bold, &words::count(requests.count))
        .put(Ink::Plain, &format!("  {} a second  ", latest_rate(&picture.pace)));
    let tail = format!(
        "  304: {share} %, saved {} of {}",
        words::bytes(requests.saved as f64),
        words::bytes((requests.saved + requests.sent) as f64)
    );
    let bars = line.room().saturating_sub(width_of(&tail)).min(picture.pace.len());
    line.put(Ink::Good, &sparkline(&picture.pace, bars)).right(Ink::Plain, &tail)
}

fn entries(picture: &Picture, canvas: Canvas) -> Line {
    let delay = picture.delay.map_or(String::new(), |delay| {
        let real = delay * FASTER / 60;
        format!(", {} after publication ({} min real time)", words::seconds(delay.as_secs_f64()), real.as_secs())
    });
    let lag = picture.lag.map_or_else(|| "-".to_owned(), |lag| words::seconds(lag.as_secs_f64()));
    canvas
        .line()
        .cell(Ink::Dim, "entries", 9)
        .put(Ink::Bold, &words::count(picture.entries))
        .put(Ink::News, &format!("  {} new", words::count(picture.fresh)))
        .put(Ink::Plain, &delay)
        .right(Ink::Plain, &format!("  lag {lag}"))
}

fn manners(picture: &Picture, canvas: Canvas) -> Line {
    let line = canvas.line().cell(Ink::Dim, "manners", 9);
    let Some(verdict) = &picture.verdict else { return line.put(Ink::Dim, "the servers' log is not checked yet") };
    let judged = format!(" in {} requests", words::count(verdict.requests as u64));
    let broken: Vec<String> = verdict.broken.iter().map(|(rule, count)| format!("{count} {rule}")).collect();
    match verdict.breaches() {
        0 => line
            .put(Ink::Good, "no rule broken")
            .put(Ink::Plain, &judged)
            .put(Ink::Dim, &format!(", by {} rules, in the servers' own log", verdict.rules)),
        breaches => line
            .put(Ink::Bad, &format!("broken {breaches} times"))
            .put(Ink::Plain, &judged)
            .put(Ink::Bad, &format!(": {}", broken.join(", "))),
    }
}

fn story(picture: &Picture, canvas: Canvas) -> Vec<Line> {
    let line = |happening: &super::picture::Happening| {
        let ink = if happening.good { Ink::Good } else { Ink::Warn };
        canvas.line().cell(Ink::Dim, &clock(happening.at), 9).put(ink, &happening.text)
    };
    picture.story.iter().map(line).collect()
}

fn upper_note(picture: &Picture, shown: usize) -> String {
    match picture.asking.len() {
        all if all > shown => format!("{shown} of {all} in flight"),
        all => format!("{all} in flight"),
    }
}

/// Renders requests in flight, then finished ones.
fn asking(picture: &Picture, canvas: Canvas, rows: usize) -> Vec<Line> {
    let under_way = picture.asking.iter().take(rows / 2).map(|asking| {
        let line = canvas.line().cell(Ink::Dim, "...", 5);
        let name = line.room().saturating_sub(9);
        line.cell(Ink::Plain, &asking.feed, name).right(Ink::Dim, &words::seconds(asking.since.as_secs_f64()))
    });
    let ended = picture.asked.iter().map(|asked| {
        let (ink, status) = status(asked);
        let line = canvas.line().cell(ink, &status, 5);
        let name = line.room().saturating_sub(9);
        let size =
            if asked.bytes > 0 { words::bytes(asked.bytes as f64) } else { words::seconds(asked.took.as_secs_f64()) };
        line.cell(Ink::Plain, &asked.feed, name).right(Ink::Dim, &size)
    });
    under_way.chain(ended).collect()
}

fn status(asked: &Asked) -> (Ink, String) {
    match asked.status {
        Some(status @ 304) => (Ink::Good, status.to_string()),
        Some(status @ 200..300) => (Ink::News, status.to_string()),
        Some(status @ (300..400 | 429 | 503)) => (Ink::Warn, status.to_string()),
        Some(status) => (Ink::Bad, status.to_string()),
        None => (Ink::Bad, "cut".to_owned()),
    }
}

fn came(picture: &Picture, canvas: Canvas) -> Vec<Line> {
    let line = |came: &super::picture::Came| {
        let line = canvas.line().put(Ink::News, &came.title);
        // A name of which only the start fits is clutter.
        if line.room() > 8 { line.put(Ink::Dim, &format!("  {}", came.feed)) } else { line }
    };
    picture.came.iter().map(line).collect()
}

fn box_heading(picture: &Picture) -> (String, String) {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for boxed in &picture.boxed {
        *reasons.entry(&boxed.why).or_default() += 1;
    }
    (format!("Penalty box {}", picture.boxed.len()), format!("{} reasons", reasons.len()))
}

fn penalty_box(picture: &Picture, canvas: Canvas) -> Vec<Line> {
    let line = |boxed: &super::picture::Boxed| {
        let line = canvas.line().cell(Ink::Bad, &boxed.why, 14);
        let name = line.room().saturating_sub(8);
        let again = if boxed.again.is_zero() { "now".to_owned() } else { words::seconds(boxed.again.as_secs_f64()) };
        line.cell(Ink::Plain, &boxed.feed, name).right(Ink::Dim, &again)
    };
    picture.boxed.iter().map(line).collect()
}

fn held_heading(picture: &Picture) -> (String, String) {
    (format!("Throttled hosts {}", picture.held.len()), format!("{} feeds wait", picture.parked))
}

fn held(picture: &Picture, canvas: Canvas) -> Vec<Line> {
    let line = |held: &super::picture::HeldHost| {
        let line = canvas.line().cell(Ink::Warn, "429", 5);
        let name = line.room().saturating_sub(8);
        line.cell(Ink::Plain, &held.host, name).right(Ink::Dim, &words::seconds(held.left.as_secs_f64()))
    };
    picture.held.iter().map(line).collect()
}

fn last(picture: &Picture, canvas: Canvas) -> Line {
    let down = internet::down_at(picture.elapsed).map_or(String::new(), |host| format!("{host} is down"));
    canvas
        .line()
        .put(Ink::Dim, "page ")
        .put(Ink::Plain, &picture.address)
        .put(Ink::Dim, "  Ctrl-C stops")
        .right(Ink::Warn, &down)
}

/// Returns the mean of the last five seconds.
pub(super) fn latest_rate(pace: &[u32]) -> u32 {
    let last = &pace[pace.len().saturating_sub(5)..];
    last.iter().sum::<u32>() / u32::try_from(last.len().max(1)).unwrap_or(1)
}

/// Formats minutes and seconds.
pub(super) fn clock(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
