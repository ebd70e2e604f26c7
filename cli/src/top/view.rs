//! The screen of `top` as lines for a terminal. Pure; does no terminal I/O.

use std::collections::VecDeque;
use std::time::Duration;

use common::outcome::{FailureKind, OutcomeKind};
use common::policy::Status;
use common::time::Timestamp;
use common::words;
use scheduler::wire::{FeedView, StatsView};

use super::counted::Counted;
use crate::output::plain;
use crate::terminal::{Canvas, Ink, Line, columns, sparkline, width_of};
use crate::when;

/// Everything that is shown.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) stats: StatsView,
    pub(super) next: Vec<FeedView>,
    pub(super) failing: Vec<FeedView>,
    pub(super) now: Timestamp,
    /// Why the last update failed; the numbers are those of the one before.
    pub(super) trouble: Option<String>,
    pub(super) counted: Counted,
    /// Polls per second between updates, in tenths.
    pub(super) pace: VecDeque<u32>,
    pub(super) lag: Option<f64>,
    counted_at: Option<Timestamp>,
}

impl Look {
    /// Adds the current counters.
    pub(super) fn count(&mut self, counted: Counted, now: Timestamp, remembered: usize) {
        if let Some(before) = self.counted_at {
            let millis = u64::try_from(now.since(before).as_millis()).unwrap_or(u64::MAX).max(1);
            let polls = counted.all().saturating_sub(self.counted.all());
            let tenths = polls.saturating_mul(10_000).saturating_add(millis / 2) / millis;
            self.pace.push_back(u32::try_from(tenths).unwrap_or(u32::MAX));
            self.pace.drain(..self.pace.len().saturating_sub(remembered));
            self.lag = counted.lag_since(&self.counted).or(self.lag);
        }
        (self.counted, self.counted_at) = (counted, Some(now));
    }
}

/// Renders the frame: exactly `height` lines, none wider than `width`.
pub(super) fn frame(look: &Look, canvas: Canvas) -> Vec<String> {
    let mut lines = vec![title(look, canvas), polls(look, canvas), outcomes(look, canvas), due(look, canvas)];
    lines.push(categories(look, canvas));
    lines.push(penalised(look, canvas));
    lines.push(canvas.line());
    let free = canvas.height.saturating_sub(lines.len() + 2);
    let lists = (next(look, canvas.half()), failing(look, canvas.half()));
    let in_box = words::count(look.stats.penalised.values().sum());
    lines.extend(columns(("Next", ""), ("Penalty box", &in_box), lists, free, canvas));
    lines.push(last(look, canvas));
    lines.truncate(canvas.height);
    lines.into_iter().map(Line::into_text).collect()
}

fn title(look: &Look, canvas: Canvas) -> Line {
    let stats = &look.stats;
    let (ink, state) = match (&stats.our_fault_since, stats.paused) {
        (Some(_), _) => (Ink::Bad, "our own network fails: polls are probes"),
        (None, true) => (Ink::Warn, "all polling is paused"),
        (None, false) => (Ink::Good, "polling"),
    };
    let line = canvas.line().put(Ink::Bold, "feedfleet").put(Ink::Plain, "  ").put(ink, state);
    let counts = format!(
        "  {}  {}",
        words::counted(stats.feeds, "feed", "feeds"),
        words::counted(stats.entries, "entry", "entries")
    );
    line.right(Ink::Bold, &counts)
}

fn polls(look: &Look, canvas: Canvas) -> Line {
    let pace: Vec<u32> = look.pace.iter().copied().collect();
    let now = pace.last().map_or_else(|| "-".to_owned(), |tenths| format!("{:.1}", f64::from(*tenths) / 10.0));
    let line = canvas
        .line()
        .cell(Ink::Dim, "polls", 9)
        .put(Ink::Bold, &now)
        .put(Ink::Plain, &format!(" a second, {:.1} wanted  ", look.stats.demand_per_second));
    let lag = look.lag.map_or_else(String::new, |lag| match lag {
        lag if lag.is_finite() => {
            format!("  lag at most {}", words::duration(Duration::try_from_secs_f64(lag).unwrap_or_default()))
        }
        _ => "  lag more than an hour".to_owned(),
    });
    let bars = line.room().saturating_sub(width_of(&lag)).min(pace.len());
    line.put(Ink::Good, &sparkline(&pace, bars)).right(Ink::Plain, &lag)
}

fn outcomes(look: &Look, canvas: Canvas) -> Line {
    let counted = &look.counted;
    let answered = counted.ended("modified") + counted.ended("not_modified");
    let share = (counted.ended("not_modified") * 100).checked_div(answered).unwrap_or(0);
    let kinds = [
        (Ink::Good, OutcomeKind::NotModified),
        (Ink::News, OutcomeKind::Modified),
        (Ink::Warn, OutcomeKind::Throttled),
        (Ink::Bad, OutcomeKind::Failed),
        (Ink::Dim, OutcomeKind::Gone),
    ];
    let line = canvas.line().cell(Ink::Dim, "answers", 9);
    let line = kinds.into_iter().fold(line, |line, (ink, kind)| {
        let name = words::outcome(kind);
        line.put(ink, &words::count(counted.ended(kind.as_str()))).put(Ink::Dim, &format!(" {name}  "))
    });
    line.right(Ink::Plain, &format!("  304: {share} %, {} received", words::bytes(counted.wire as f64)))
}

fn due(look: &Look, canvas: Canvas) -> Line {
    let stats = &look.stats;
    let due = stats.due.saturating_sub(stats.parked);
    let ink = if due == 0 { Ink::Plain } else { Ink::Bold };
    let mut line = canvas.line().cell(Ink::Dim, "due", 9).put(ink, &words::count(due));
    if due > 0 {
        let oldest = Duration::try_from_secs_f64(stats.oldest_due).unwrap_or_default();
        line = line.put(Ink::Plain, &format!(", for {} at most", words::duration(oldest)));
    }
    line.put(Ink::Plain, &format!("  {} wait for a busy host", words::count(stats.parked)))
        .put(Ink::Plain, &format!("  {} held", words::counted(stats.hosts_held, "host", "hosts")))
}

fn categories(look: &Look, canvas: Canvas) -> Line {
    let line = canvas.line().cell(Ink::Dim, "feeds", 9);
    let line = look.stats.by_category.iter().fold(line, |line, (name, count)| {
        line.put(Ink::Bold, name).put(Ink::Plain, &format!(" {}  ", words::count(*count)))
    });
    let others = look.stats.by_status.iter().filter(|(name, count)| *name != Status::Active.as_str() && **count > 0);
    others.fold(line, |line, (name, count)| line.put(Ink::Dim, &format!("{name} {}  ", words::count(*count))))
}

fn penalised(look: &Look, canvas: Canvas) -> Line {
    let line = canvas.line().cell(Ink::Dim, "failing", 9);
    let mut kinds: Vec<_> = look.stats.penalised.iter().filter(|(_, count)| **count > 0).collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    if kinds.is_empty() {
        return line.put(Ink::Good, "none");
    }
    kinds.into_iter().fold(line, |line, (name, count)| {
        let name =
            FailureKind::from_name(name).map_or_else(|| name.replace('_', " "), |kind| words::failure(kind).to_owned());
        line.put(Ink::Bad, &words::count(*count)).put(Ink::Dim, &format!(" {name}  "))
    })
}

fn name(feed: &FeedView) -> String {
    plain(feed.title.as_deref().unwrap_or(&feed.url), 200)
}

fn next(look: &Look, canvas: Canvas) -> Vec<Line> {
    let line = |feed: &FeedView| {
        let due = feed.wake_at.into_iter().chain(feed.next_due).min();
        let when = due.map_or_else(String::new, |due| words::relative(due, look.now));
        let line = canvas.line().put(Ink::Bold, feed.category.as_str()).put(Ink::Plain, " ");
        let room = line.room().saturating_sub(width_of(&when) + 1);
        line.cell(Ink::Plain, &name(feed), room).right(Ink::Dim, &when)
    };
    look.next.iter().map(line).collect()
}

fn failing(look: &Look, canvas: Canvas) -> Vec<Line> {
    let line = |feed: &FeedView| {
        let until = feed.penalty.map_or_else(String::new, |penalty| words::relative(penalty.until, look.now));
        let why = match (&feed.last_error, feed.penalty) {
            (Some(error), _) => error.error.short(),
            (None, penalty) => penalty.map_or_else(String::new, |penalty| words::failure(penalty.kind).to_owned()),
        };
        let line = canvas.line().cell(Ink::Bad, &why, 17).put(Ink::Plain, " ");
        let room = line.room().saturating_sub(width_of(&until) + 1);
        line.cell(Ink::Plain, &name(feed), room).right(Ink::Dim, &until)
    };
    look.failing.iter().map(line).collect()
}

fn last(look: &Look, canvas: Canvas) -> Line {
    match &look.trouble {
        Some(trouble) => canvas.line().put(Ink::Bad, &plain(trouble, 300)),
        None => canvas.line().put(Ink::Dim, "q quits").right(Ink::Dim, &when::time_of_day(look.now)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn look() -> Look {
        let polls = [("not_modified", 1200), ("modified", 400), ("failed", 12)];
        let counts = |counts: &[(&str, u64)]| counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let stats = StatsView {
            feeds: 1612,
            by_category: counts(&[("A", 12), ("D", 1600)]),
            by_status: counts(&[("active", 1600), ("gone", 12)]),
            penalised: counts(&[("dns", 3), ("not_a_feed", 9)]),
            entries: 123_456,
            due: 7,
            parked: 4,
            oldest_due: 75.0,
            hosts_held: 2,
            demand_per_second: 4.2,
            ..StatsView::default()
        };
        let mut look = Look { stats, now: Timestamp::from_millis(1_790_000_000_000), ..Look::default() };
        let polls = polls.map(|(name, count)| (name.to_owned(), count)).to_vec();
        look.count(Counted::default(), look.now, 3);
        for second in 1..6 {
            let polls = polls.iter().map(|(name, count)| (name.clone(), count * second)).collect();
            let lag = vec![(0.5, 99 * second), (f64::INFINITY, 99 * second)];
            let counted = Counted { polls, wire: 1_500_000 * second, lag };
            look.count(counted, look.now.after(Duration::from_secs(2 * second)), 3);
        }
        look
    }

    #[test]
    fn a_screen_is_filled_and_nothing_spills_over_its_edges() {
        let look = look();
        assert_eq!(look.pace, [8060, 8060, 8060]);
        for (width, height) in [(100, 30), (80, 24), (40, 10), (20, 3), (1, 1)] {
            let lines = frame(&look, Canvas { width, height, colour: false });
            assert_eq!(lines.len(), height, "{width} x {height}");
            assert!(lines.iter().all(|line| width_of(line) <= width), "{width} x {height}:\n{}", lines.join("\n"));
        }
        let text = frame(&look, Canvas { width: 100, height: 30, colour: false }).join("\n");
        for expected in [
            "1,612 feeds",
            "806.0 a second, 4.2 wanted",
            "lag at most 500 ms",
            "6,000 not modified",
            "304: 75 %",
            "9 not a feed",
            "3, for 1 min 15 s at most",
            "gone 12",
        ] {
            assert!(text.contains(expected), "{expected} is missing in\n{text}");
        }
    }

    #[test]
    fn colours_are_all_that_differs_and_control_characters_do_not_pass() {
        let mut look = look();
        look.trouble = Some("the fleet said \u{1b}[2J".to_owned());
        let plain = frame(&look, Canvas { width: 90, height: 20, colour: false });
        assert!(!plain.join("").contains('\u{1b}'));
        let coloured = frame(&look, Canvas { width: 90, height: 20, colour: true }).join("\n");
        let mut bare = String::new();
        for (index, part) in coloured.split("\u{1b}[").enumerate() {
            bare.push_str(if index == 0 { part } else { part.split_once('m').unwrap().1 });
        }
        assert_eq!(bare, plain.join("\n"));
    }

    #[test]
    fn an_empty_fleet_has_a_screen_too() {
        let look =
            Look { stats: StatsView { by_category: BTreeMap::new(), ..StatsView::default() }, ..Look::default() };
        assert_eq!(frame(&look, Canvas { width: 80, height: 24, colour: false }).len(), 24);
    }
}
