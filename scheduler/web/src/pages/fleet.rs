//! `/`: the fleet in numbers, charts and short lists, as it is now.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use common::feed::Feed;
use common::outcome::{FailureKind, OutcomeKind};
use common::policy::{Category, Status};
use common::time::Timestamp;

use super::charts::{self, Chart, OUTCOMES, Sample};
use super::live::Live;
use super::words::{self, Moment};
use super::{Frame, Refusal, answer};
use crate::state::Api;
use scheduler::error::BackendError;
use scheduler::ops::Ops;
use scheduler::wire::StatsView;
use store::{FeedQuery, FeedSort, StoredEntry};

/// Rows of each list.
const ROWS: usize = 8;
/// Feeds of each kind of trouble.
const FAILING: u32 = 3;

/// What the page shows: texts by name, which `/live` renews, and charts.
pub(super) struct Shown {
    pub(super) texts: BTreeMap<String, String>,
    charts: Vec<Chart>,
    stats: StatsView,
    now: Timestamp,
}

impl Shown {
    /// As it is now.
    pub(super) async fn now(ops: &Ops, live: &Live) -> Result<Self, BackendError> {
        let now = ops.clock.now();
        let (store, depth) = (ops.store.stats(now).await?, ops.schedule.depth(now).await?);
        let our_fault_since = ops.condition.our_fault.since();
        let stats = StatsView::of(&store, &depth, &ops.condition.price, ops.store.paused().await?, now);
        let stats = StatsView { our_fault_since, ..stats };
        let sample = Sample::of(&ops.metrics, now);
        let mut texts = numbers(ops, &stats);
        counts(&mut texts, &sample);
        let ring = live.ring();
        let (median, most) = ring.lag(now).map_or(("–".to_owned(), "–".to_owned()), |(median, most)| {
            (words::seconds(median), words::seconds(most))
        });
        texts.extend([
            ("lag".to_owned(), median),
            ("lag-most".to_owned(), most),
            ("pace".to_owned(), words::rate(ring.pace(now))),
            ("span".to_owned(), words::span(ring.span(now))),
        ]);
        let charts = charts::draw(&ring, now);
        drop(ring);
        texts.extend(charts.iter().map(|chart| (format!("{}-top", chart.id), chart.top.clone())));
        Ok(Shown { texts, charts, stats, now })
    }

    /// The charts' paths by name.
    pub(super) fn paths(&self) -> impl Iterator<Item = (&str, &str)> {
        self.charts.iter().flat_map(|chart| &chart.series).map(|series| (series.id.as_str(), series.path.as_str()))
    }
}

fn numbers(ops: &Ops, stats: &StatsView) -> BTreeMap<String, String> {
    let queued =
        |queue: &str| u64::try_from(ops.metrics.queue_depth.with_label_values(&[queue]).get()).unwrap_or_default();
    let numbers = [
        ("feeds", stats.feeds),
        ("due", stats.due.saturating_sub(stats.parked)),
        ("parked", stats.parked),
        ("held", stats.hosts_held),
        ("entries", stats.entries),
        ("jobs", queued("jobs")),
        ("reports", queued("reports")),
        ("boxed", stats.penalised.values().sum()),
    ];
    let mut texts: BTreeMap<String, String> =
        numbers.into_iter().map(|(name, value)| (name.to_owned(), words::number(value))).collect();
    texts.insert("oldest".to_owned(), words::seconds(stats.oldest_due));
    texts.insert("wanted".to_owned(), words::rate(stats.demand_per_second));
    texts
}

/// What was counted since the start.
fn counts(texts: &mut BTreeMap<String, String>, sample: &Sample) {
    for (kind, count) in OUTCOMES.iter().zip(sample.polls) {
        texts.insert(format!("count-polls-{kind}"), words::whole(count));
    }
    let [not_modified, modified, ..] = sample.polls;
    let answered = not_modified + modified;
    let share = if answered > 0.0 { format!("{:.0} %", 100.0 * not_modified / answered) } else { "–".to_owned() };
    texts.insert("share".to_owned(), share);
    texts.insert("polls".to_owned(), words::whole(sample.polls.iter().sum::<f64>()));
    texts.insert("count-bytes-came".to_owned(), words::bytes(sample.wire));
    texts.insert("count-bytes-saved".to_owned(), words::bytes(sample.saved()));
}

/// What is listed: rendered anew while it is looked at.
struct Lists {
    paused: bool,
    trouble: Option<String>,
    our_fault: Option<Moment>,
    categories: Vec<Share>,
    statuses: Vec<Count>,
    penalised: Vec<Count>,
    failing: Vec<FeedLine>,
    next: Vec<FeedLine>,
    worst: Vec<HostLine>,
    news: Vec<EntryLine>,
    empty: bool,
}

struct Count {
    name: String,
    query: String,
    value: String,
}

/// A part of a bar, in thousandths.
struct Share {
    letter: &'static str,
    about: &'static str,
    value: String,
    start: u64,
    width: u64,
}

struct FeedLine {
    id: i64,
    name: String,
    note: String,
}

struct HostLine {
    host: String,
    failed: String,
    throttled: String,
    last: String,
    held: Option<Moment>,
}

pub(super) struct EntryLine {
    pub(super) title: String,
    pub(super) link: Option<String>,
    pub(super) seen: Moment,
    pub(super) feed: i64,
}

#[derive(Template)]
#[template(path = "pages/fleet.html")]
struct FleetPage {
    frame: Frame,
    shown: Shown,
    lists: Lists,
}

impl FleetPage {
    fn text(&self, name: &str) -> &str {
        self.shown.texts.get(name).map_or("", String::as_str)
    }
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

/// `GET /`
pub(super) async fn page(State(api): State<Api>, State(live): State<Arc<Live>>) -> Result<Response, Refusal> {
    let shown = Shown::now(&api.ops, &live).await?;
    let (frame, lists) = (frame(shown.now), lists(&api.ops, &shown).await?);
    answer(StatusCode::OK, &FleetPage { frame, shown, lists })
}

fn frame(now: Timestamp) -> Frame {
    Frame::new("./", "fleet", now)
}

/// The parts of the page that `/live` renews as a whole, by their ids.
pub(super) async fn fragments(ops: &Ops, shown: &Shown) -> Result<BTreeMap<&'static str, String>, BackendError> {
    let (frame, lists) = (frame(shown.now), lists(ops, shown).await?);
    let rendered = |part: Result<String, askama::Error>| {
        // The same templates have rendered the page before.
        part.inspect_err(|error| tracing::error!(error = error as &dyn std::error::Error, "a part was not rendered"))
    };
    let alarms = rendered(AlarmsPart { lists: &lists }.render());
    let lists = rendered(ListsPart { frame: &frame, lists: &lists }.render());
    let parts = [("alarms", alarms), ("lists", lists)];
    Ok(parts.into_iter().filter_map(|(id, part)| Some((id, part.ok()?))).collect())
}

async fn lists(ops: &Ops, shown: &Shown) -> Result<Lists, BackendError> {
    let (stats, now) = (&shown.stats, shown.now);
    let count = |(name, number): (&String, &u64), filter: &str| Count {
        name: words::spaced(name),
        query: format!("{filter}={name}"),
        value: words::number(*number),
    };
    let nonzero = |counts: &BTreeMap<String, u64>, filter: &str| {
        counts.iter().filter(|(_, number)| **number > 0).map(|pair| count(pair, filter)).collect::<Vec<_>>()
    };
    Ok(Lists {
        paused: stats.paused,
        trouble: ops.condition.storing.trouble(),
        our_fault: stats.our_fault_since.map(|since| Moment::of(since, now)),
        categories: categories(stats),
        statuses: nonzero(&stats.by_status, "status"),
        penalised: nonzero(&stats.penalised, "status=active&failure"),
        failing: failing(ops, stats, now).await?,
        next: next(ops, now).await?,
        worst: worst(ops, now).await?,
        news: news(ops, now).await?,
        empty: stats.feeds == 0,
    })
}

fn categories(stats: &StatsView) -> Vec<Share> {
    let about = |category| match category {
        Category::A => "under an SLA",
        Category::B => "more than 20 subscribers, or important",
        Category::C => "2 to 20 subscribers, or a login",
        Category::D => "one subscriber, or none",
        Category::F => "the host has an interval of its own",
    };
    let mut start = 0;
    let share = |category: Category| {
        let number = stats.by_category.get(category.as_str()).copied().unwrap_or(0);
        let width = (number * 1000).checked_div(stats.feeds).unwrap_or(0);
        let share =
            Share { letter: category.as_str(), about: about(category), value: words::number(number), start, width };
        start += width;
        share
    };
    Category::ALL.into_iter().map(share).collect()
}

/// Some feeds of each kind of trouble.
async fn failing(ops: &Ops, stats: &StatsView, now: Timestamp) -> Result<Vec<FeedLine>, BackendError> {
    let mut lines = Vec::new();
    for kind in FailureKind::ALL.iter().filter(|kind| stats.penalised.get(kind.as_str()).is_some_and(|n| *n > 0)) {
        let query =
            FeedQuery { failure: Some(*kind), status: Some(Status::Active), limit: FAILING, ..FeedQuery::default() };
        lines.extend(ops.store.feeds(&query).await?.items.iter().map(|feed| trouble(feed, *kind, now)));
    }
    lines.truncate(ROWS);
    Ok(lines)
}

fn trouble(feed: &Feed, kind: FailureKind, now: Timestamp) -> FeedLine {
    let next = feed.next_due.map_or_else(|| "never".to_owned(), |due| words::due(due, now));
    let failures = feed.state.consecutive_failures;
    line(feed, format!("{}, {failures} in a row, next {next}", words::spaced(kind.as_str())))
}

async fn next(ops: &Ops, now: Timestamp) -> Result<Vec<FeedLine>, BackendError> {
    let limit = u32::try_from(ROWS).unwrap_or(u32::MAX);
    let query = FeedQuery { status: Some(Status::Active), sort: FeedSort::NextDue, limit, ..FeedQuery::default() };
    let due = |feed: &Feed| feed.due().map_or_else(String::new, |due| words::due(due, now));
    Ok(ops.feeds(&query).await?.items.iter().map(|feed| line(feed, due(feed))).collect())
}

fn line(feed: &Feed, note: String) -> FeedLine {
    FeedLine { id: feed.id.0, name: feed.title.clone().unwrap_or_else(|| feed.url.to_string()), note }
}

/// Hosts in trouble, then others that asked to be left alone.
async fn worst(ops: &Ops, now: Timestamp) -> Result<Vec<HostLine>, BackendError> {
    let holds = ops.store.holds(now).await?;
    let mut lines: Vec<HostLine> = Vec::new();
    for (host, tally) in ops.condition.worst.list(ROWS, now) {
        let held = holds.iter().find(|(other, _)| *other == host).map(|(_, until)| Moment::of(*until, now));
        let last = match tally.last {
            Some(kind) => words::spaced(kind.as_str()),
            None => words::spaced(OutcomeKind::Throttled.as_str()),
        };
        let (failed, throttled) = (words::number(tally.failed.into()), words::number(tally.throttled.into()));
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
    let entry = stored.entry;
    EntryLine {
        title: entry.display_title().to_owned(),
        link: entry.url.as_deref().and_then(words::web_link),
        // Stored while the page was being made: no entry is of the future.
        seen: Moment::of(stored.seen.min(now), now),
        feed: stored.feed_id.0,
    }
}
