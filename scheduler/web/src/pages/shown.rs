//! What the fleet's page shows: texts by name, which `/live` renews, and charts.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use common::time::Timestamp;

use super::charts::{self, Chart, OUTCOMES, Ring, Sample};
use super::words;
use crate::readiness::schedule_depth;
use scheduler::error::BackendError;
use scheduler::ops::Ops;
use scheduler::wire::StatsView;

const MINUTE: Duration = Duration::from_secs(60);
/// The median lag from which on its tile warns.
const LATE: Duration = MINUTE;
/// The share of complete feeds below which its tile warns.
const COMPLETE: f64 = 0.99;

/// What the page shows: texts by name, which `/live` renews, and charts.
pub(super) struct Shown {
    pub(super) texts: BTreeMap<String, String>,
    pub(super) charts: Vec<Chart>,
    pub(super) stats: StatsView,
    pub(super) now: Timestamp,
}

impl Shown {
    /// As it is now.
    pub(super) async fn now(ops: &Ops, ring: &Mutex<Ring>) -> Result<Self, BackendError> {
        let now = ops.clock.now();
        let store = ops.store.stats(now).await?;
        let (depth, schedule_unavailable) = schedule_depth(ops, now).await;
        let our_fault_since = ops.condition.our_fault.since();
        let stats = StatsView::of(&store, &depth, &ops.condition.price, ops.store.paused().await?, now);
        let stats = StatsView { our_fault_since, schedule_unavailable, ..stats };
        let sample = Sample::of(&ops.metrics, now);
        let mut texts = numbers(ops, &stats);
        counts(&mut texts, &sample);
        let ring = common::lock(ring);
        let (median, most) = ring.lag(now).map_or(("–".to_owned(), "–".to_owned()), |(median, most)| {
            (words::seconds(median), words::seconds(most))
        });
        let is_late = ring.lag(now).is_some_and(|(median, _)| median >= LATE.as_secs_f64());
        texts.extend([
            ("warns-lag".to_owned(), flag(is_late)),
            ("lag".to_owned(), median),
            ("lag-most".to_owned(), most),
            ("pace".to_owned(), words::rate(ring.pace(now))),
            ("span".to_owned(), words::duration(whole_minutes(ring.span(now)))),
            ("span-ago".to_owned(), format!("{} ago", words::duration(whole_minutes(ring.span(now))))),
        ]);
        let charts = charts::draw(&ring, now);
        drop(ring);
        texts.extend(charts.iter().map(|chart| (format!("{}-top", chart.id), chart.top.clone())));
        Ok(Shown { texts, charts, stats, now })
    }

    /// The charts' values by name.
    pub(super) fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.charts.iter().flat_map(|chart| &chart.series).map(|series| (series.id.as_str(), series.values.as_str()))
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
        numbers.into_iter().map(|(name, value)| (name.to_owned(), words::count(value))).collect();
    texts.insert("complete".to_owned(), format!("{:.1} %", (stats.complete_ratio * 1000.0).floor() / 10.0));
    texts.insert("oldest".to_owned(), words::seconds(stats.oldest_due));
    texts.insert("warns-complete".to_owned(), flag(stats.feeds > 0 && stats.complete_ratio < COMPLETE));
    // The demand of a fleet with feeds is known after the first count.
    let is_known = stats.demand_per_second > 0.0 || stats.feeds == 0;
    let wanted = if is_known { words::rate(stats.demand_per_second) } else { "–".to_owned() };
    texts.insert("wanted".to_owned(), wanted);
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

/// A condition as a text: tiles warn as long as theirs is not zero.
fn flag(condition: bool) -> String {
    u8::from(condition).to_string()
}

/// Rounds down to minutes what is longer than one.
fn whole_minutes(time: Duration) -> Duration {
    if time < MINUTE { time } else { Duration::from_secs(time.as_secs() / 60 * 60) }
}
