//! Chooses when a feed is polled for its calm subscribers, within the window before a midnight: at a random moment in the open
//! minutes. This replaces salt (rule 6). The moment is neither in a hot minute (rule 7) nor in skipped time, whose end may be past
//! midnight.

use std::time::Duration;

use super::Rule;
use super::hot_minute::is_hot;
use super::plan::{Plan, scaled};
use crate::calm::Window;
use crate::time::Timestamp;

const MINUTE: i64 = 60_000;

/// Moves a plan that is due within its window to a moment of what is left of it, outside of hot minutes if `avoid`. Returns
/// false if the plan is due before the window (a retry) or has missed it (a publisher's floor).
pub(super) fn apply(plan: &mut Plan, avoid: bool, draw: f64) -> bool {
    let Some(window) = plan.window.filter(|window| (window.start..window.end()).contains(&plan.due)) else {
        return false;
    };
    let open = || open_parts(plan, window, avoid);
    let length: Duration = open().map(|(start, end)| end.since(start)).sum();
    let last = length.saturating_sub(Duration::from_millis(1));
    let mut rest = scaled(length, draw.clamp(0.0, 1.0)).min(last);
    let found = open().find_map(|(start, end)| {
        let part = end.since(start);
        let here = (rest < part).then(|| start.after(rest));
        rest = rest.saturating_sub(part);
        here
    });
    // Nothing open is left: midnight counts for more.
    let at = found.unwrap_or(plan.due);
    plan.not_before(Rule::Salt, at);
    true
}

/// Returns the open minutes between the due time and the end of the window, the first one cut to what is left of it.
fn open_parts(plan: &Plan, window: Window, avoid: bool) -> impl Iterator<Item = (Timestamp, Timestamp)> {
    let from = plan.due;
    let (first, end) = (from.millis().div_euclid(MINUTE), window.end());
    let minutes = first..=end.millis().div_euclid(MINUTE);
    let parts = minutes.map(move |minute| {
        let start = Timestamp::from_millis(minute * MINUTE);
        (start.max(from), Timestamp::from_millis((minute + 1) * MINUTE).min(end))
    });
    let is_open = move |start: Timestamp| plan.unskipped(start) == start && !(avoid && is_hot(start));
    parts.filter(move |(start, end)| start < end && is_open(*start))
}
