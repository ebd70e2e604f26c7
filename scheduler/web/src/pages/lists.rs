//! The fleet page's lists, rendered again while somebody looks at the page.

use std::collections::BTreeMap;

use askama::Template;
use common::feed::Feed;
use common::last_error::LastError;
use common::outcome::{FailureKind, OutcomeKind};
use common::policy::{Category, Status};
use common::time::Timestamp;

use super::frame::Frame;
use super::shown::Shown;
use super::waits::Stops;
use super::words::{self, Moment};
use crate::session::Caller;
use scheduler::error::BackendError;
use scheduler::ops::Ops;
use scheduler::wire::StatsView;
use store::{FeedQuery, FeedSort, StoredEntry};

/// Rows of each list.
const ROWS: usize = 8;
/// Feeds in the penalty box because of each kind of failure.
const FAILING: u32 = 3;

/// What is listed.
pub(super) struct Lists {
    pub(super) paused: bool,
    pub(super) trouble: Option<String>,
    pub(super) queue_blocked: Option<String>,
    pub(super) our_fault: Option<Moment>,
    /// Why due times are unknown.
    pub(super) schedule_unavailable: Option<String>,
    pub(super) categories: Vec<Share>,
    pub(super) statuses: Vec<Count>,
    pub(super) penalised: Vec<Count>,
    pub(super) failing: Vec<FeedLine>,
    pub(super) next: Vec<FeedLine>,
    pub(super) worst: Vec<HostLine>,
    pub(super) news: Vec<EntryLine>,
    pub(super) empty: bool,
}

pub(super) struct Count {
    pub(super) name: String,
    /// Its name in the API.
    pub(super) code: String,
    pub(super) query: String,
    pub(super) value: String,
}

/// A part of a bar, in thousandths.
pub(super) struct Share {
    pub(super) letter: &'static str,
    pub(super) about: &'static str,
    pub(super) value: String,
    pub(super) start: u64,
    pub(super) width: u64,
}

pub(super) struct FeedLine {
    pub(super) id: i64,
    pub(super) name: String,
    pub(super) note: String,
}

pub(super) struct HostLine {
    pub(super) host: String,
    pub(super) failed: String,
    pub(super) throttled: String,
    pub(super) last: String,
    pub(super) held: Option<Moment>,
}

pub(super) struct EntryLine {
    pub(super) title: String,
    pub(super) link: Option<String>,
    pub(super) published: Moment,
    pub(super) feed: i64,
    pub(super) feed_name: String,
}

#[derive(Template)]
#[template(path = "pages/fleet_alarms.html")]
struct AlarmsPart<'a> {
    lists: &'a Lists,
}

#[derive(Template)]
#[template(path = "pages/fleet_lists.html")]
struct ListsPart<'a> {
    frame: &'a Frame,
    lists: &'a Lists,
}

/// The parts of the page that `/live` renews as a whole, by their ids.
pub(super) async fn fragments(ops: &Ops, shown: &Shown) -> Result<BTreeMap<&'static str, String>, BackendError> {
    let (frame, lists) = (Frame::of("/", Caller::nobody(), shown.now), lists(ops, shown).await?);
    let rendered = |part: Result<String, askama::Error>| {
        // The same templates have rendered the page before.
        part.inspect_err(|error| tracing::error!(error = error as &dyn std::error::Error, "a part was not rendered"))
    };
    let alarms = rendered(AlarmsPart { lists: &lists }.render());
    let lists = rendered(ListsPart { frame: &frame, lists: &lists }.render());
    let parts = [("alarms", alarms), ("lists", lists)];
    Ok(parts.into_iter().filter_map(|(id, part)| Some((id, part.ok()?))).collect())
}

pub(super) async fn lists(ops: &Ops, shown: &Shown) -> Result<Lists, BackendError> {
    let (stats, now) = (&shown.stats, shown.now);
    let stops = Stops::now(ops, now).await?;
    let count = |(name, number): (&String, &u64), filter: &str| Count {
        name: named(name),
        code: name.clone(),
        query: format!("{filter}={name}"),
        value: words::count(*number),
    };
    let nonzero = |counts: &BTreeMap<String, u64>, filter: &str| {
        counts.iter().filter(|(_, number)| **number > 0).map(|pair| count(pair, filter)).collect::<Vec<_>>()
    };
    Ok(Lists {
        paused: stats.paused,
        trouble: ops.condition.storing.trouble(),
        queue_blocked: ops.jobs.blocked(),
        our_fault: stats.our_fault_since.map(|since| Moment::of(since, now)),
        schedule_unavailable: stats.schedule_unavailable.clone(),
        categories: categories(stats),
        statuses: nonzero(&stats.by_status, "status"),
        penalised: nonzero(&stats.penalised, "penalised=true&failure"),
        failing: failing(ops, stats, &stops, now).await?,
        // In a large fleet the schedule alone knows what is next.
        next: if stats.schedule_unavailable.is_some() { Vec::new() } else { next(ops, &stops, now).await? },
        worst: worst(ops, now).await?,
        news: news(ops, now).await?,
        empty: stats.feeds == 0,
    })
}

/// A failure or a feed's status in words.
fn named(code: &str) -> String {
    let failure = FailureKind::from_name(code).map(words::failure);
    failure.or_else(|| Some(words::feed_status(code.parse().ok()?))).map_or_else(|| words::spaced(code), str::to_owned)
}

fn categories(stats: &StatsView) -> Vec<Share> {
    let mut start = 0;
    let share = |category: Category| {
        let number = stats.by_category.get(category.as_str()).copied().unwrap_or(0);
        let width = (number * 1000).checked_div(stats.feeds).unwrap_or(0);
        let share = Share {
            letter: category.as_str(),
            about: words::category(category),
            value: words::count(number),
            start,
            width,
        };
        start += width;
        share
    };
    Category::ALL.into_iter().map(share).collect()
}

/// Returns some feeds of each kind of failure in the penalty box; feeds that are no longer polled are left out.
async fn failing(ops: &Ops, stats: &StatsView, stops: &Stops, now: Timestamp) -> Result<Vec<FeedLine>, BackendError> {
    let mut lines = Vec::new();
    for kind in FailureKind::ALL.iter().filter(|kind| stats.penalised.get(kind.as_str()).is_some_and(|n| *n > 0)) {
        let query = FeedQuery {
            penalised: true,
            failure: Some(*kind),
            status: Some(Status::Active),
            limit: FAILING,
            ..FeedQuery::default()
        };
        lines.extend(ops.store.feeds(&query).await?.items.iter().map(|feed| trouble(stops, feed, *kind, now)));
    }
    lines.truncate(ROWS);
    Ok(lines)
}

fn trouble(stops: &Stops, feed: &Feed, kind: FailureKind, now: Timestamp) -> FeedLine {
    let next = next_poll(stops, feed, now);
    let failures = feed.state.consecutive_failures;
    let why = feed.last_error.as_ref().map_or_else(|| words::failure(kind).to_owned(), LastError::short);
    let times = if failures > 1 { format!(", {failures} times in a row") } else { String::new() };
    line(feed, format!("{why}{times}, next {next}"))
}

async fn next(ops: &Ops, stops: &Stops, now: Timestamp) -> Result<Vec<FeedLine>, BackendError> {
    let limit = u32::try_from(ROWS).unwrap_or(u32::MAX);
    let query = FeedQuery { status: Some(Status::Active), sort: FeedSort::NextDue, limit, ..FeedQuery::default() };
    Ok(ops.feeds(&query).await?.items.iter().map(|feed| line(feed, next_poll(stops, feed, now))).collect())
}

/// When a feed is polled next, in words.
fn next_poll(stops: &Stops, feed: &Feed, now: Timestamp) -> String {
    match stops.of(feed).next(feed, now) {
        None => "not planned".to_owned(),
        Some(next) if next.when_resumed => "when polling is resumed".to_owned(),
        Some(next) => next.at.relative,
    }
}

fn line(feed: &Feed, note: String) -> FeedLine {
    FeedLine { id: feed.id.0, name: feed.title.clone().unwrap_or_else(|| feed.url.to_string()), note }
}

/// Returns hosts in trouble, then others that are on hold.
async fn worst(ops: &Ops, now: Timestamp) -> Result<Vec<HostLine>, BackendError> {
    let holds = ops.store.holds(now).await?;
    let mut lines: Vec<HostLine> = Vec::new();
    for refusal in ops.condition.refusals.list().into_iter().take(ROWS) {
        let status = refusal.status.map_or_else(String::new, |status| format!(" (HTTP {status})"));
        let last = format!("refuses us{status} since {}", words::relative(refusal.since, now));
        let held = Some(refusal.until).filter(|until| *until > now).map(|until| Moment::of(until, now));
        lines.push(HostLine { host: refusal.host.to_string(), failed: "-".into(), throttled: "-".into(), last, held });
    }
    for (host, tally) in ops.condition.worst.list(ROWS, now) {
        if lines.len() >= ROWS || lines.iter().any(|line| line.host == host.as_str()) {
            continue;
        }
        let held = holds.iter().find(|(other, _)| *other == host).map(|(_, until)| Moment::of(*until, now));
        let last = match tally.last {
            Some(kind) => words::failure(kind).to_owned(),
            None => words::outcome(OutcomeKind::Throttled).to_lowercase(),
        };
        let (failed, throttled) = (words::count(tally.failed.into()), words::count(tally.throttled.into()));
        lines.push(HostLine { host: host.to_string(), failed, throttled, last, held });
    }
    for (host, until) in holds.into_iter().take(ROWS) {
        if lines.len() < ROWS && !lines.iter().any(|line| line.host == host.as_str()) {
            let (host, held) = (host.to_string(), Some(Moment::of(until, now)));
            lines.push(HostLine { host, failed: "0".into(), throttled: "0".into(), last: "held".into(), held });
        }
    }
    Ok(lines)
}

async fn news(ops: &Ops, now: Timestamp) -> Result<Vec<EntryLine>, BackendError> {
    let entries = ops.store.newest_entries(None, u32::try_from(ROWS).unwrap_or(u32::MAX)).await?;
    Ok(entries.into_iter().map(|entry| entry_line(entry, now)).collect())
}

/// An entry in a list.
pub(super) fn entry_line(stored: StoredEntry, now: Timestamp) -> EntryLine {
    let feed_name = words::feed_name(&stored);
    let entry = stored.entry;
    EntryLine {
        title: entry.display_title().to_owned(),
        link: entry.url.as_deref().and_then(words::web_link),
        // Stored while the page was being made, or dated by a wrong clock: no entry is of the future.
        published: Moment::of(entry.published.unwrap_or(stored.seen).min(now), now),
        feed: stored.feed_id.0,
        feed_name,
    }
}
