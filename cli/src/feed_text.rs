//! Feeds, their due times and their polls as text for people.

use std::time::Duration;

use common::calm::CalmGroup;
use common::document::{FeedAbout, FeedHints, Onward};
use common::feed::OverQuota;
use common::last_error::ExplainedError;
use common::outcome::{FailureKind, OutcomeKind};
use common::policy::{Rule, Status, named};
use common::time::Timestamp;
use common::words;
use scheduler::wire::about;
use scheduler::wire::{ArchiveView, ExplainView, FeedView, PushView};
use store::HistoryEntry;

use crate::output::{Cell, coloured_table, fields, natural_width, plain};
use crate::terminal::{Ink, cut, paint};
use crate::when;

/// The columns that names keep in narrow lists.
const NARROWEST_NAME: usize = 20;

/// Formats one line per feed. Where the columns do not fit, the less important ones are left out.
pub(crate) fn feed_table(feeds: &[FeedView], now: Timestamp, width: Option<usize>) -> String {
    const ALL: [&str; 8] = ["ID", "CAT", "STATUS", "NEXT POLL", "LAST POLL", "ENTRIES", "URL", "TITLE"];
    const FEW: [&str; 5] = ["ID", "STATUS", "NEXT POLL", "LAST POLL", "FEED"];
    let title = |feed: &FeedView| plain(feed.title.as_deref().unwrap_or_default(), 50);
    let row = |feed: &FeedView| -> Vec<Cell> {
        vec![
            feed.id.to_string().into(),
            feed.category.to_string().into(),
            status_cell(feed),
            next_cell(feed, now),
            last_cell(feed, now),
            feed.entries.to_string().into(),
            feed.url.as_str().into(),
            title(feed).into(),
        ]
    };
    let rows: Vec<_> = feeds.iter().map(row).collect();
    if width.is_none_or(|width| natural_width(&ALL, &rows) <= width) {
        return coloured_table((Ink::Dim, &ALL), &rows, width);
    }
    let row = |feed: &FeedView, longest: usize| -> Vec<Cell> {
        let name = Some(title(feed)).filter(|title| !title.is_empty()).unwrap_or_else(|| without_scheme(&feed.url));
        let name = cut(&name, longest);
        vec![feed.id.to_string().into(), status_cell(feed), next_cell(feed, now), last_cell(feed, now), name.into()]
    };
    let rows = |longest: usize| feeds.iter().map(|feed| row(feed, longest)).collect::<Vec<_>>();
    // Names are cut before anything else, as long as they say something.
    let others = natural_width(&FEW, &rows(0)) - FEW[4].len();
    let longest = width.unwrap_or(usize::MAX).saturating_sub(others).max(NARROWEST_NAME);
    coloured_table((Ink::Dim, &FEW), &rows(longest), width)
}

/// Returns what identifies a URL in a narrow column.
fn without_scheme(url: &str) -> String {
    url.split_once("://").map_or(url, |(_, rest)| rest).to_owned()
}

fn status_cell(feed: &FeedView) -> Cell {
    let ink = match feed.status {
        Status::Active => Ink::Plain,
        Status::Gone | Status::Blacklisted | Status::Quarantined => Ink::Bad,
        Status::Paused | Status::Removed | Status::Merged => Ink::Dim,
    };
    Cell::new(ink, feed.status.as_str())
}

fn next_cell(feed: &FeedView, now: Timestamp) -> Cell {
    feed.next_due.map_or_else(|| "-".to_owned(), |due| words::about(due, now)).into()
}

fn last_cell(feed: &FeedView, now: Timestamp) -> Cell {
    let (Some(outcome), Some(at)) = (feed.last_outcome, feed.last_polled) else { return Cell::new(Ink::Dim, "never") };
    let what = match &feed.last_error {
        Some(error) => error.error.short(),
        None => words::outcome(outcome).to_owned(),
    };
    Cell::new(outcome_ink(outcome), format!("{what} {}", words::about(at, now)))
}

fn outcome_ink(outcome: OutcomeKind) -> Ink {
    match outcome {
        OutcomeKind::Modified => Ink::News,
        OutcomeKind::NotModified => Ink::Good,
        OutcomeKind::Throttled | OutcomeKind::Deferred => Ink::Warn,
        OutcomeKind::Failed | OutcomeKind::Gone => Ink::Bad,
    }
}

/// Returns why the last poll failed, and what helps.
pub(crate) fn error_lines(feed: &FeedView) -> Option<String> {
    let ExplainedError { error, remedy } = feed.last_error.as_ref()?;
    Some(fields(&[
        ("last error", Some(paint(Ink::Bad, &plain(&when::said(&error.detail), 300)))),
        ("what helps", remedy.clone()),
    ]))
}

/// Everything about a feed.
pub(crate) fn feed_fields(feed: &FeedView, now: Timestamp) -> String {
    let when = |at: Option<Timestamp>| at.map(|at| when::moment(at, now));
    let yes = |flag: bool| flag.then(|| "yes".to_owned());
    let outcome = feed.last_outcome.map(|outcome| match feed.last_status {
        Some(status) => format!("{} ({})", words::outcome(outcome), words::status(status)),
        None => words::outcome(outcome).to_owned(),
    });
    let (error, remedy) = match &feed.last_error {
        Some(ExplainedError { error, remedy }) => {
            (Some(paint(Ink::Bad, &plain(&when::said(&error.detail), 300))), remedy.clone())
        }
        None => (None, None),
    };
    let failures = (feed.consecutive_failures > 0).then(|| match feed.failing_since {
        Some(since) if feed.consecutive_failures > 1 => {
            format!("{} in a row, since {}", feed.consecutive_failures, when::moment(since, now))
        }
        _ => feed.consecutive_failures.to_string(),
    });
    let penalty = feed.penalty.map(|penalty| format!("until {}", when::moment(penalty.until, now)));
    let [next, archive, moved, ended] = onward_fields(&feed.onward);
    let mut all = vec![
        ("id", Some(feed.id.to_string())),
        ("url", Some(feed.url.clone())),
        ("host", Some(feed.host.clone())),
        ("title", feed.title.as_deref().map(|title| plain(title, 200))),
        ("status", Some(feed.status.as_str().to_owned())),
        ("category", Some(feed.category.to_string())),
        ("subscribers", Some(format!("{} ({} active)", feed.subscribers, feed.active_subscribers))),
        ("calm", calm_text(&feed.calm)),
        ("sla", yes(feed.sla)),
        ("important", yes(feed.important)),
        ("private", yes(feed.private)),
        ("labels", Some(plain(&feed.marks.labels.join(", "), 1000)).filter(|labels| !labels.is_empty())),
        ("external id", feed.marks.external_id.as_deref().map(|id| plain(id, 200))),
        ("interval", feed.interval.map(|seconds| words::duration(Duration::from_secs_f64(seconds)))),
        ("next poll", when(feed.next_due)),
        ("wanted", when(feed.wake_at)),
        ("held until", when(feed.hold_until)),
        ("last poll", when(feed.last_polled)),
        ("outcome", outcome),
        ("last error", error),
        ("what helps", remedy),
        ("last success", when(feed.last_success)),
        ("last change", when(feed.last_changed)),
        ("failures", failures),
        ("penalty box", penalty),
        ("failing", feed.failing.then(|| "for long enough that readers should know (event feed.failing)".to_owned())),
        ("complete", complete_text(feed, now)),
        ("archive", feed.archive.as_ref().map(archive_text)),
        ("silent since", when(feed.silent_since)),
        ("entries", Some(feed.entries.to_string())),
        ("over quota", over_quota_text(&feed.over_quota)),
        ("push", feed.push.as_ref().map(push_text)),
        ("etag", feed.etag.as_deref().map(|etag| plain(etag, 200))),
        ("last-modified", feed.last_modified.as_deref().map(|date| plain(date, 200))),
        ("content hash", feed.content_hash.map(|hash| hash.to_string())),
        ("hints", hints_text(&feed.hints)),
        ("repaired", repaired_text(feed.repaired)),
        next,
        archive,
        moved,
        ended,
    ];
    all.extend(about_fields(&feed.about));
    all.extend([
        ("moved from", feed.moved_from.clone()),
        ("merged into", feed.merged_into.map(|survivor| format!("feed {survivor}"))),
        ("added", when(Some(feed.added))),
        ("version", Some(feed.version.to_string())),
    ]);
    fields(&all)
}

/// Returns what a feed says about itself.
pub(crate) fn about_fields(about: &FeedAbout) -> Vec<(&'static str, Option<String>)> {
    about::lines(about).into_iter().map(|(name, value)| (name, Some(plain(&value, 500)))).collect()
}

/// Returns the subscribers who want entries at midnight.
fn calm_text(groups: &[CalmGroup]) -> Option<String> {
    let group = |group: &CalmGroup| format!("{} at midnight in {}", group.subscribers, group.zone);
    (!groups.is_empty()).then(|| groups.iter().map(group).collect::<Vec<_>>().join(", "))
}

/// Returns a subscription with a hub or a cloud in a line.
fn push_text(push: &PushView) -> String {
    let until = push.lease_until.map(|until| format!(" until {until}")).unwrap_or_default();
    let standing = match (push.reliable, push.silent) {
        (true, _) => ", reliable",
        (false, true) => ", silent",
        (false, false) => "",
    };
    format!("{} with {}: {}{until}{standing}", push.kind, plain(&push.hub, 200), push.state)
}

/// Returns what quotas left out; nothing when they never did.
fn over_quota_text(over: &OverQuota) -> Option<String> {
    let parts = [(over.entries + over.bytes, "left out"), (over.rows, "old ones removed")];
    let parts: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    let last = over.last.map(|last| format!(", last {last}")).unwrap_or_default();
    (!parts.is_empty()).then(|| format!("{}{last}", parts.join(", ")))
}

/// Returns what a feed says about when to poll it.
pub(crate) fn hints_text(hints: &FeedHints) -> Option<String> {
    let bits = |bits: u32| (0..32).filter(move |bit| bits & (1 << bit) != 0).map(|bit: u32| bit.to_string());
    let list = |names: Vec<String>| Some(names.join(", ")).filter(|list| !list.is_empty());
    const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    let days = DAYS.iter().enumerate().filter(|(day, _)| hints.skip_days & (1 << day) != 0);
    let hints = [
        hints.ttl.map(|ttl| format!("ttl {}", words::duration(ttl))),
        hints.update_period.map(|period| format!("updates every {}", words::duration(period))),
        list(bits(hints.skip_hours).collect()).map(|hours| format!("skips the hours {hours} (GMT)")),
        list(days.map(|(_, name)| (*name).to_owned()).collect()).map(|days| format!("skips {days}")),
    ];
    list(hints.into_iter().flatten().collect())
}

/// Returns what a feed says about its further documents and its end.
pub(crate) fn onward_fields(onward: &Onward) -> [(&'static str, Option<String>); 4] {
    let link = |link: &Option<String>| link.as_deref().map(|link| plain(link, 500));
    [
        ("next page", link(&onward.next)),
        ("archive before", link(&onward.prev_archive)),
        ("says it moved to", link(&onward.new_feed_url)),
        ("says it has ended", onward.expired.then(|| "yes".to_owned())),
    ]
}

/// Says whether entries may be missing; nothing before the feed was read.
fn complete_text(feed: &FeedView, now: Timestamp) -> Option<String> {
    let gap = |since| format!("no: entries after {} may be missing (event feed.overflowed)", when::moment(since, now));
    feed.last_success.map(|_| feed.gap_since.map_or_else(|| "yes".to_owned(), gap))
}

/// Returns how far older entries were read.
fn archive_text(archive: &ArchiveView) -> String {
    let pages = words::counted(archive.pages, "page", "pages");
    format!(
        "{pages} read, {} in them; next {}",
        words::counted(archive.entries, "entry", "entries"),
        plain(&archive.next, 300)
    )
}

/// Returns what to say about a document that was not well-formed.
pub(crate) fn repaired_text(repaired: bool) -> Option<String> {
    repaired.then(|| "yes: the document is broken; it was repaired before parsing".to_owned())
}

/// When, then each term with the time that it led to.
pub(crate) fn explanation(explained: &ExplainView, now: Timestamp) -> String {
    let next = explained.next_due.map_or_else(|| "never".to_owned(), |due| when::moment(due, now));
    let is_new =
        explained.last_polled.is_none() && explained.terms.first().is_some_and(|term| term.rule == Rule::Added);
    let since = if is_new { "added" } else { "last poll" };
    let head = fields(&[
        ("feed", Some(format!("{} {}", explained.id, explained.url))),
        ("next poll", Some(next)),
        (since, Some(when::moment(explained.base, now))),
    ]);
    let row = |due, text: &str| -> Vec<Cell> { vec![when::due(due, now).into(), text.into()] };
    let rows: Vec<_> = explained.terms.iter().map(|term| row(term.due, &term.text)).collect();
    let notes = explained.notes.iter().map(|note| format!("note: {}", when::said(note)));
    let terms = coloured_table((Ink::Dim, &[&when::head("DUE"), "BECAUSE"]), &rows, None);
    let terms = Some(terms).filter(|_| !rows.is_empty());
    [Some(head), terms].into_iter().flatten().chain(notes).collect::<Vec<_>>().join("\n\n")
}

/// Returns a table with one line per poll.
pub(crate) fn history_table(polls: &[HistoryEntry], width: Option<usize>) -> String {
    let row = |poll: &HistoryEntry| -> Vec<Cell> {
        let outcome = match poll.failure {
            Some(kind) if kind != FailureKind::Status => words::failure(kind),
            _ => words::outcome(poll.outcome),
        };
        let rules = poll.reasons.iter().map(|rule| named(*rule)).collect::<Vec<_>>();
        vec![
            when::cell(poll.at, "%Y-%m-%d %H:%M:%S").into(),
            Cell::new(outcome_ink(poll.outcome), outcome),
            poll.status.map_or_else(|| "-".to_owned(), words::status).into(),
            words::bytes(poll.bytes as f64).into(),
            words::duration(Duration::from_secs_f64(poll.duration.max(0.0))).into(),
            poll.next_due
                .map_or_else(|| "-".to_owned(), |due| format!("+{}", words::duration(due.since(poll.at))))
                .into(),
            rules.join(", ").into(),
        ]
    };
    let rows: Vec<_> = polls.iter().map(row).collect();
    let head = [&when::head("TIME"), "OUTCOME", "HTTP", "SIZE", "TOOK", "NEXT", "REASONS"];
    coloured_table((Ink::Dim, &head), &rows, width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn uncoloured(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    fn now() -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000)
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(now().millis() + seconds * 1000)
    }

    fn failing_feed() -> FeedView {
        serde_json::from_value(json!({
            "id": 7, "url": "https://example.com/feed.xml", "host": "example.com:443",
            "title": "An \u{1b}[1mexample\u{1b}[0m of a feed", "category": "C", "status": "active", "subscribers": 5,
            "active_subscribers": 2, "sla": false, "important": false, "credentials": false, "private": true,
            "calm": [{ "zone": "Europe/Berlin", "subscribers": 3 }],
            "etag": "\"abc\"", "last_modified": null, "content_hash": null, "next_due": at(5400),
            "last_polled": at(-9000), "last_success": at(-100_000), "last_changed": null, "last_status": 503,
            "last_outcome": "failed", "consecutive_failures": 7, "failing_since": at(-90_000),
            "penalty": { "kind": "status", "until": at(5400) },
            "last_error": { "kind": "status", "status": 503, "detail": "the server answered 503 Service Unavailable" }, "hints": { "ttl": 3600, "skip_hours": 8, "skip_days": 0 },
            "onward": { "next": "https://example.com/feed.xml?page=2", "prev_archive": "https://example.com/2025.xml",
              "new_feed_url": "https://example.net/\u{1b}feed.xml", "expired": true },
            "description": "All\u{1b} of it", "language": "en", "authors": [{ "name": "Ann", "email": "ann@example.com" }],
            "podcast": { "guid": "917393e3", "locked": true },
            "version": 12, "entries": 31, "added": at(-1_000_000)
        }))
        .unwrap()
    }

    #[test]
    fn a_feed_is_shown_with_what_it_has() {
        insta::assert_snapshot!(uncoloured(&feed_fields(&failing_feed(), now())));
    }

    #[test]
    fn a_list_has_a_line_a_feed() {
        let never = FeedView {
            last_outcome: None,
            last_polled: None,
            next_due: None,
            title: None,
            url: "http://a.example/".to_owned(),
            ..failing_feed()
        };
        insta::assert_snapshot!(uncoloured(&feed_table(&[failing_feed(), never], now(), None)));
    }

    #[test]
    fn a_list_that_does_not_fit_leaves_out_columns_before_it_cuts_names() {
        let short = FeedView { title: None, url: "http://127.0.0.1:8000/feed".to_owned(), ..failing_feed() };
        let table = uncoloured(&feed_table(&[short, failing_feed()], now(), Some(80)));
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "ID  STATUS  NEXT POLL  LAST POLL                        FEED");
        assert!(lines[1].ends_with("503 Service Unavailable 2 h ago  127.0.0.1:8000/feed"), "{table}");
        assert!(lines.iter().all(|line| crate::terminal::width_of(line) <= 80), "{table}");
    }

    #[test]
    fn a_due_time_is_explained_term_by_term() {
        let explained: ExplainView = serde_json::from_value(json!({
            "id": 7, "url": "https://example.com/feed.xml", "category": "C", "status": "active", "base": at(-600),
            "next_due": at(7200), "text": "",
            "terms": [
                { "rule": "category", "due": at(3600), "by": 4200.0, "text": "category C: 1 h 10 min" },
                { "rule": "freshness", "due": at(7200), "by": 3600.0, "text": "max-age raised it to 2 h 10 min" },
            ],
            "notes": ["all polling is paused"]
        }))
        .unwrap();
        insta::assert_snapshot!(uncoloured(&explanation(&explained, now())));
    }

    #[test]
    fn a_feed_that_was_resumed_shows_its_last_poll_and_a_new_one_when_it_was_added() {
        for (polled, label) in [(None, "added"), (Some(at(-600)), "last poll")] {
            let explained: ExplainView = serde_json::from_value(json!({
                "id": 7, "url": "https://example.com/feed.xml", "category": "C", "status": "active", "base": at(-600),
                "last_polled": polled, "next_due": at(0), "text": "", "notes": [],
                "terms": [{ "rule": "added", "due": at(0), "by": 600.0, "text": "at once" }]
            }))
            .unwrap();
            let shown = uncoloured(&explanation(&explained, now()));
            assert!(shown.contains(&format!("\n{label} ")), "{shown}");
        }
    }

    #[test]
    fn a_due_time_of_another_year_is_explained_with_the_year() {
        const DAY: i64 = 86_400;
        let explained: ExplainView = serde_json::from_value(json!({
            "id": 7, "url": "https://example.com/feed.xml", "category": "C", "status": "active", "base": at(-600),
            "next_due": at(365 * DAY), "text": "",
            "terms": [
                { "rule": "category", "due": at(3600), "by": 4200.0, "text": "category C: 1 h 10 min" },
                { "rule": "person", "due": at(365 * DAY), "by": 31_532_400.0, "text": "its own interval" },
            ],
            "notes": []
        }))
        .unwrap();
        let shown = uncoloured(&explanation(&explained, now()));
        assert!(shown.contains("\n09-21 15:13:20") && shown.contains("\n2027-09-21 14:13:20"), "{shown}");
    }

    #[test]
    fn a_history_has_a_line_a_poll() {
        let polls: Vec<HistoryEntry> = serde_json::from_value(json!([
            { "at": at(-60), "outcome": "failed", "failure": "timeout", "bytes": 0, "duration": 30.0,
              "next_due": at(240), "reasons": ["category", "backoff", "salt"] },
            { "at": at(-3600), "outcome": "modified", "status": 200, "bytes": 1_234_567, "duration": 0.251,
              "next_due": at(0), "reasons": ["category"] },
        ]))
        .unwrap();
        insta::assert_snapshot!(uncoloured(&history_table(&polls, None)));
    }
}
