//! What is going on, as a page for people: rendered here, readable on a phone, without a script. It shows; changing is the
//! API's business.

use std::time::Duration;

use askama::Template;
use common::feed::{Feed, Status};
use common::report::{FailureKind, OutcomeKind};
use common::time::Timestamp;

use crate::ops::{Ops, OpsError};
use crate::store::{FeedQuery, FeedSort, StoreStats, StoredEntry};

/// Rows of each list.
const ROWS: u32 = 12;

/// `/`
#[derive(Template)]
#[template(path = "pages/fleet.html")]
struct FleetPage {
    feeds: u64,
    trouble: Option<String>,
    paused: bool,
    numbers: Vec<Count>,
    polls: Vec<Count>,
    penalised: Vec<Count>,
    failing: Vec<FeedLine>,
    next: Vec<FeedLine>,
    news: Vec<EntryLine>,
    version: &'static str,
    at: String,
}

struct Count {
    name: String,
    value: String,
}

struct FeedLine {
    id: i64,
    name: String,
    note: String,
}

struct EntryLine {
    title: String,
    /// Only http and https: a feed may announce `javascript:`.
    link: Option<String>,
    seen: String,
    feed: i64,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PageError {
    /// The store or the schedule.
    #[error(transparent)]
    Ops(#[from] OpsError),
    /// The template.
    #[error("the page could not be rendered")]
    Render(#[from] askama::Error),
}

/// The fleet's page as HTML.
pub(crate) async fn fleet(ops: &Ops) -> Result<String, PageError> {
    let now = ops.clock.now();
    let stats = ops.store.stats(now).await.map_err(OpsError::from)?;
    let depth = ops.schedule.depth(now).await.map_err(OpsError::from)?;
    let feeds = stats.feeds.iter().map(|(.., count)| count).sum();
    let numbers = [
        ("feeds", feeds),
        ("due now", depth.due as u64),
        ("waiting for a host", depth.parked as u64),
        ("hosts held", stats.hosts_held),
        ("entries", stats.entries),
    ];
    let mut numbers: Vec<Count> = numbers.into_iter().map(|(name, value)| count(name, value)).collect();
    if let Some(oldest) = depth.oldest.iter().flatten().min() {
        numbers.push(Count { name: "longest wait".to_owned(), value: span(now.since(*oldest)) });
    }
    let page = FleetPage {
        feeds,
        trouble: ops.storing.trouble(),
        paused: ops.store.paused().await.map_err(OpsError::from)?,
        numbers,
        polls: polls(ops),
        penalised: stats.penalised.iter().map(|(kind, number)| count(kind.as_str(), *number)).collect(),
        failing: failing(ops, &stats, now).await?,
        next: if feeds <= u64::from(FeedQuery::MOST_SORTED) { next(ops, now).await? } else { Vec::new() },
        news: news(ops, now).await?,
        version: env!("CARGO_PKG_VERSION"),
        at: now.to_chrono().format("%Y-%m-%d %H:%M:%S UTC").to_string(),
    };
    Ok(page.render()?)
}

fn count(name: &str, value: u64) -> Count {
    Count { name: name.to_owned(), value: value.to_string() }
}

fn polls(ops: &Ops) -> Vec<Count> {
    let asked = OutcomeKind::ALL.iter().filter(|kind| **kind != OutcomeKind::Deferred);
    asked.map(|kind| count(kind.as_str(), ops.metrics.polls.with_label_values(&[kind.as_str()]).get())).collect()
}

/// Some feeds of each kind of trouble.
async fn failing(ops: &Ops, stats: &StoreStats, now: Timestamp) -> Result<Vec<FeedLine>, OpsError> {
    let mut lines = Vec::new();
    for (kind, _) in &stats.penalised {
        let query =
            FeedQuery { failure: Some(*kind), status: Some(Status::Active), limit: ROWS / 3, ..FeedQuery::default() };
        lines.extend(ops.store.feeds(&query).await?.items.iter().map(|feed| trouble(feed, *kind, now)));
    }
    Ok(lines)
}

fn trouble(feed: &Feed, kind: FailureKind, now: Timestamp) -> FeedLine {
    let next = feed.next_due.map_or_else(|| "never".to_owned(), |due| moment(due, now));
    line(feed, format!("{kind}, failure {} in a row, next {next}", feed.state.consecutive_failures))
}

async fn next(ops: &Ops, now: Timestamp) -> Result<Vec<FeedLine>, OpsError> {
    let active = Some(Status::Active);
    let query = FeedQuery { status: active, sort: FeedSort::NextDue, limit: ROWS, ..FeedQuery::default() };
    let due = |feed: &Feed| feed.due().map_or_else(String::new, |due| moment(due, now));
    Ok(ops.store.feeds(&query).await?.items.iter().map(|feed| line(feed, due(feed))).collect())
}

fn line(feed: &Feed, note: String) -> FeedLine {
    FeedLine { id: feed.id.0, name: feed.title.clone().unwrap_or_else(|| feed.url.to_string()), note }
}

async fn news(ops: &Ops, now: Timestamp) -> Result<Vec<EntryLine>, OpsError> {
    // Some of the last events are no entries, or entries in a form that is older than their newest.
    const LOOKED_AT: u32 = 10 * ROWS;
    let after = ops.store.latest_seq().await?.saturating_sub(i64::from(LOOKED_AT)).max(0);
    let entries = ops.store.entries(None, after, LOOKED_AT).await?.items;
    Ok(entries.into_iter().rev().take(ROWS as usize).map(|entry| entry_line(entry, now)).collect())
}

fn entry_line(stored: StoredEntry, now: Timestamp) -> EntryLine {
    let entry = stored.entry;
    let is_web = |link: &String| link.starts_with("http://") || link.starts_with("https://");
    EntryLine {
        title: entry.display_title().to_owned(),
        link: entry.url.filter(is_web),
        seen: moment(stored.seen, now),
        feed: stored.feed_id.0,
    }
}

/// A time as seen from `now`.
fn moment(at: Timestamp, now: Timestamp) -> String {
    match (at.since(now), now.since(at)) {
        (ahead, _) if ahead >= Duration::from_secs(1) => format!("in {}", span(ahead)),
        (_, past) if past >= Duration::from_secs(1) => format!("{} ago", span(past)),
        _ => "now".to_owned(),
    }
}

/// A duration in its largest unit, rounded down.
fn span(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} m", seconds / 60),
        seconds @ 3600..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}
