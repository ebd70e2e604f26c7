//! Lists side by side, and sparklines.

use super::{Canvas, Ink, Line, width_of};

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Renders two lists side by side under their headings.
pub(crate) fn columns(
    left: (&str, &str),
    right: (&str, &str),
    lists: (Vec<Line>, Vec<Line>),
    count: usize,
    canvas: Canvas,
) -> Vec<Line> {
    let half = canvas.half().width;
    let heading = |(name, note): (&str, &str)| {
        let rule = Line::new(half, canvas.colour).put(Ink::Bold, name).put(Ink::Plain, " ");
        let note = if note.is_empty() { String::new() } else { format!(" {note} ") };
        let dashes = rule.room().saturating_sub(width_of(&note));
        rule.put(Ink::Dim, &"─".repeat(dashes)).put(Ink::Dim, &note)
    };
    let beside = |left: Line, middle: &str, right: Line| {
        canvas.line().join(&left).pad_to(half).put(Ink::Dim, middle).join(&right)
    };
    let rows = rows(lists.0, count, canvas.half()).into_iter().zip(rows(lists.1, count, canvas.half()));
    let lines = rows.map(|(left, right)| beside(left, " │ ", right));
    std::iter::once(beside(heading(left), "─┬─", heading(right))).chain(lines).collect()
}

/// Returns exactly `count` lines.
pub(crate) fn rows(mut lines: Vec<Line>, count: usize, canvas: Canvas) -> Vec<Line> {
    lines.resize_with(count.max(lines.len()), || canvas.line());
    lines.truncate(count);
    lines
}

/// Renders the last `bars` seconds; the highest one is a full bar.
pub(crate) fn sparkline(pace: &[u32], bars: usize) -> String {
    let shown = &pace[pace.len().saturating_sub(bars)..];
    let highest = shown.iter().copied().max().unwrap_or(0).max(1);
    shown.iter().map(|count| BARS[(*count as usize * (BARS.len() - 1)).div_ceil(highest as usize)]).collect()
}
