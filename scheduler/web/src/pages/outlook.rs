//! What happens next to a feed, in sentences for its publisher: what it is, when it is polled, and what a ping does.
//!
//! `docs/pages.md` has the table of states and sentences; `cli/tests/whole/rescue.rs` tests each against what happens.

use std::time::Duration;

use common::config::PolicyConfig;
use common::feed::Feed;
use common::outcome::{FailureKind, OutcomeKind};
use common::policy::{Status, rest_after_poll};
use common::time::Timestamp;

use super::waits::{Next, Waits};
use super::words::{self, Moment};

/// A feed's state in a sentence, and what follows from it.
pub(super) struct Outlook {
    /// The colour of the verdict in the style sheet.
    pub(super) class: &'static str,
    pub(super) verdict: &'static str,
    pub(super) lines: Vec<Line>,
}

/// A sentence around a time.
pub(super) struct Line {
    /// The colour of the box around it; none: plain text.
    pub(super) class: &'static str,
    pub(super) before: String,
    pub(super) at: Option<Moment>,
    pub(super) after: String,
}

/// Of a feed in quarantine.
const QUARANTINED: &str = "Our own program crashed on it, which is ours to fix. A ping does not change that.";

/// Returns what happens to the feed next.
pub(super) fn of(feed: &Feed, waits: Waits, policy: &PolicyConfig, now: Timestamp) -> Outlook {
    let (class, verdict) = verdict(feed);
    let mut lines = Vec::new();
    match feed.status {
        Status::Active => active(feed, waits, policy, now, &mut lines),
        Status::Blacklisted | Status::Gone => retired(feed, waits, policy, now, &mut lines),
        Status::Paused => lines.push(text("warn", "An operator of this fleet paused it. A ping does not change that.")),
        Status::Quarantined => lines.push(text("warn", QUARANTINED)),
        Status::Removed => {
            lines.push(text("warn", "Nobody subscribes to it here any more. A ping does not change that."));
        }
        Status::Merged => {}
    }
    let is_retired = matches!(feed.status, Status::Blacklisted | Status::Gone);
    let may_be_pinged = is_retired && feed.hears_pings() && !feed.is_private();
    if feed.due().is_some() || may_be_pinged {
        stops(waits, now, &mut lines);
    }
    Outlook { class, verdict, lines }
}

/// Says what keeps any feed of its host waiting.
fn stops(waits: Waits, now: Timestamp, lines: &mut Vec<Line>) {
    if let Some(until) = waits.host {
        let before = "Nothing is polled on its host at present. Its hold or block ends ";
        lines.push(timed("warn", before, Moment::of(until, now), "."));
    }
    if waits.paused {
        lines.push(text(
            "warn",
            match waits.refreshes {
                true => "All polling is paused at present: a feed is polled for a ping or a refresh only.",
                false => "All polling is paused at present: no feed is polled before it is resumed.",
            },
        ));
    }
}

fn verdict(feed: &Feed) -> (&'static str, &'static str) {
    let state = &feed.state;
    match feed.status {
        Status::Active if state.penalty.is_some() => ("bad", "Yes, but it fails."),
        Status::Active if state.last_outcome == Some(OutcomeKind::Throttled) => {
            ("warn", "Yes, but its server asked us to wait.")
        }
        Status::Active if state.consecutive_failures > 0 => ("warn", "Yes, but its last poll failed."),
        Status::Active if state.last_polled.is_none() => ("good", "Yes, its first poll is still to come."),
        Status::Active if state.last_success.is_none() => ("warn", "Yes, but no poll was answered with a feed yet."),
        Status::Active => ("good", "Yes, it is read."),
        Status::Paused => ("warn", "Not at present: it is paused."),
        Status::Gone => ("warn", "Not any more: its server said that it is gone."),
        Status::Blacklisted => ("warn", "Not any more: it failed for too long."),
        Status::Quarantined => ("warn", "Not at present: it is quarantined."),
        Status::Removed => ("warn", "Not any more: it was removed."),
        Status::Merged => ("warn", "It is read as another feed."),
    }
}

fn active(feed: &Feed, waits: Waits, policy: &PolicyConfig, now: Timestamp, lines: &mut Vec<Line>) {
    let state = &feed.state;
    let held = state.hold_until.filter(|until| *until > now);
    if let Some(penalty) = state.penalty {
        let failures = state.consecutive_failures;
        let counted =
            if failures == 1 { "The last poll failed".to_owned() } else { format!("{failures} polls in a row failed") };
        let first = if failures == 1 { "" } else { ", the first" };
        let since = state.failing_since.map(|since| format!("{first} {}", words::relative(since, now)));
        let kind = match (penalty.kind, state.last_status) {
            (FailureKind::Status, Some(status)) => words::status(status),
            (kind, _) => words::failure(kind).to_owned(),
        };
        let before =
            format!("It is in the penalty box: {kind}. {counted}{}. It is polled again ", since.unwrap_or_default());
        let after = ", and leaves the box with the first good answer.";
        lines.push(polled("bad", &before, waits.next(feed, now), after));
        // A stored wake is the answer to a ping already.
        if !feed.hears_pings() {
            lines.push(text("", QUARANTINED));
        } else if held.is_none() && feed.wake_at.is_none() && !feed.is_private() {
            let when = within(feed, waits, policy, now);
            lines.push(text("", &format!("When it is fixed, send a ping with its address: it is polled {when}.")));
        }
    }
    if let Some(until) = held {
        let before = "Its server asked us to wait. We do, and nothing polls it, not even a ping. The wait ends ";
        lines.push(timed("warn", before, Moment::of(until, now), "."));
    }
}

/// A feed that is polled for a ping alone, once.
fn retired(feed: &Feed, waits: Waits, policy: &PolicyConfig, now: Timestamp, lines: &mut Vec<Line>) {
    match (feed.status, feed.state.failing_since) {
        (Status::Gone, _) => {
            lines.push(text("warn", "Its server answered 410, which says that the feed is gone for good."));
        }
        (_, Some(since)) => {
            let before = "Every poll failed, the first ";
            lines.push(timed("warn", before, Moment::of(since, now), ", so it is not polled any more."));
        }
        (_, None) => lines.push(text("warn", "Every poll failed, so it is not polled any more.")),
    }
    const OUTCOME: &str = "A good response reactivates it; anything else leaves it as it is.";
    if feed.wake_at.is_some() {
        let after = format!(". {OUTCOME}");
        lines.push(polled("", "A ping came: it is polled once, ", waits.next(feed, now), &after));
    } else if !feed.hears_pings() {
        lines.push(text("", QUARANTINED));
    } else if !feed.is_private() {
        let when = within(feed, waits, policy, now);
        let what = if feed.status == Status::Gone { "If that was a mistake" } else { "When it is fixed" };
        lines.push(text("", &format!("{what}, send a ping with its address: it is polled once, {when}. {OUTCOME}")));
    }
}

/// Returns when a ping that comes now is answered.
fn within(feed: &Feed, waits: Waits, policy: &PolicyConfig, now: Timestamp) -> String {
    if waits.is_all() {
        return "after polling is resumed".to_owned();
    }
    let rest = rest_after_poll(now, feed.status, &feed.state, policy);
    let held = feed.state.hold_until.map_or(Duration::ZERO, |until| until.since(now));
    let host = waits.host.map_or(Duration::ZERO, |until| until.since(now));
    let soon = policy.ping_spread.max(policy.ping_quiet);
    match rest.max(held).max(host) {
        wait if wait <= soon => format!("within {}", words::duration(soon)),
        wait if held >= wait => format!("in {}, because its server asked us to wait", words::duration(wait)),
        wait if host >= wait => {
            format!("in {}, because nothing is polled on its host before that", words::duration(wait))
        }
        wait => format!("in {}, because polls after earlier pings found nothing new", words::duration(wait)),
    }
}

/// A sentence around the next poll.
fn polled(class: &'static str, before: &str, next: Option<Next>, after: &str) -> Line {
    match next {
        Some(Next { at, when_resumed: false }) => timed(class, before, at, after),
        Some(_) => text(class, &format!("{before}after polling is resumed{after}")),
        None => text(class, &format!("{}{after}", before.trim_end())),
    }
}

fn text(class: &'static str, text: &str) -> Line {
    Line { class, before: text.to_owned(), at: None, after: String::new() }
}

fn timed(class: &'static str, before: &str, at: Moment, after: &str) -> Line {
    Line { class, before: before.to_owned(), at: Some(at), after: after.to_owned() }
}
