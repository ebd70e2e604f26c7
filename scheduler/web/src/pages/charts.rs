//! Small charts of the last half hour, drawn by hand in SVG: a bounded ring of samples of what is counted, and paths of it.
//! Pure.

use std::collections::VecDeque;
use std::time::Duration;

use common::metrics::Metrics;
use common::outcome::OutcomeKind;
use common::time::Timestamp;

use super::words;

/// How far back the charts look.
const SPAN: Duration = Duration::from_secs(30 * 60);
/// A fleet that just started has a chart of this width.
const SHORTEST: Duration = Duration::from_secs(120);
/// Samples that are kept: half an hour of one every two seconds.
const KEPT: usize = 900;
/// Columns of a chart.
const COLUMNS: usize = 60;
/// A chart's box.
pub(super) const WIDTH: usize = 600;
pub(super) const HEIGHT: usize = 120;

/// The outcomes in the order in which they are stacked.
pub(super) const OUTCOMES: [OutcomeKind; 5] =
    [OutcomeKind::NotModified, OutcomeKind::Modified, OutcomeKind::Throttled, OutcomeKind::Failed, OutcomeKind::Gone];

/// What was counted since the start, at one time.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) at: Timestamp,
    /// By [`OUTCOMES`].
    pub(super) polls: [f64; 5],
    /// Bytes on the wire.
    pub(super) wire: f64,
    /// Claims that were at most this many seconds late.
    pub(super) lag: Vec<(f64, u64)>,
}

impl Sample {
    /// What is counted now.
    pub(super) fn of(metrics: &Metrics, now: Timestamp) -> Self {
        let polls = OUTCOMES.map(|kind| metrics.polls.with_label_values(&[kind.as_str()]).get() as f64);
        let wire = metrics.bytes.with_label_values(&["wire"]).get() as f64;
        Sample { at: now, polls, wire, lag: metrics.lag_counts() }
    }

    /// Bytes that 304s saved: each would have been as large as what came whole is in the mean.
    pub(super) fn saved(&self) -> f64 {
        let [not_modified, modified, ..] = self.polls;
        if modified > 0.0 { not_modified * self.wire / modified } else { 0.0 }
    }

    /// Between this sample and a later one.
    fn until(&self, later: &Sample, at: Timestamp) -> Sample {
        let whole = later.at.since(self.at).as_secs_f64();
        let share = if whole > 0.0 { (at.since(self.at).as_secs_f64() / whole).min(1.0) } else { 1.0 };
        let between = |from: f64, to: f64| from + (to - from) * share;
        let polls = std::array::from_fn(|index| between(self.polls[index], later.polls[index]));
        let lag = if share < 0.5 { self.lag.clone() } else { later.lag.clone() };
        Sample { at, polls, wire: between(self.wire, later.wire), lag }
    }
}

/// The last samples, oldest first.
#[derive(Debug, Default)]
pub(super) struct Ring(VecDeque<Sample>);

impl Ring {
    /// Adds the newest.
    pub(super) fn push(&mut self, sample: Sample) {
        while self.0.len() >= KEPT || self.0.front().is_some_and(|first| sample.at.since(first.at) > SPAN) {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// How far back the charts look now.
    pub(super) fn span(&self, now: Timestamp) -> Duration {
        self.0.front().map_or(SHORTEST, |first| now.since(first.at)).clamp(SHORTEST, SPAN)
    }

    /// The newest at that time or before it, else the oldest, brought to that time.
    fn at(&self, at: Timestamp) -> Option<Sample> {
        let later = self.0.partition_point(|sample| sample.at <= at);
        match (later.checked_sub(1).and_then(|before| self.0.get(before)), self.0.get(later)) {
            (Some(before), Some(later)) => Some(before.until(later, at)),
            (Some(only), None) | (None, Some(only)) => Some(Sample { at, ..only.clone() }),
            (None, None) => None,
        }
    }

    /// The counters at the charts' columns, and at the end.
    fn columns(&self, now: Timestamp) -> Vec<Sample> {
        let span = self.span(now);
        let column = |index: usize| now.before(span.mul_f64((COLUMNS - index) as f64 / COLUMNS as f64));
        (0..=COLUMNS).filter_map(|index| self.at(column(index))).collect()
    }

    /// Polls a second in the last minute.
    pub(super) fn pace(&self, now: Timestamp) -> f64 {
        let (Some(last), Some(before)) = (self.at(now), self.at(now.before(Duration::from_secs(60)))) else {
            return 0.0;
        };
        let first = self.0.front().map_or(0.0, |first| now.since(first.at).as_secs_f64());
        let polls: f64 = last.polls.iter().sum::<f64>() - before.polls.iter().sum::<f64>();
        polls / first.clamp(1.0, 60.0)
    }

    /// Returns the median and p99 of how late the claims of the last minute were, in seconds.
    pub(super) fn lag(&self, now: Timestamp) -> Option<(f64, f64)> {
        let (last, before) = (self.at(now)?, self.at(now.before(Duration::from_secs(60)))?);
        Some((quantile(&before, &last, 0.5)?, quantile(&before, &last, 0.99)?))
    }
}

/// The lag that a share of the claims between two samples did not exceed, in seconds; `None` without claims.
fn quantile(before: &Sample, after: &Sample, share: f64) -> Option<f64> {
    let counts =
        before.lag.iter().zip(&after.lag).map(|((_, before), (bound, after))| (*bound, after.saturating_sub(*before)));
    let counts: Vec<(f64, u64)> = counts.collect();
    let (_, all) = *counts.last().filter(|(_, all)| *all > 0)?;
    let wanted = all as f64 * share;
    let (mut below, mut lower) = (0.0, 0.0);
    for (bound, count) in counts {
        let count = count as f64;
        if count >= wanted && count > below {
            let inside = (wanted - below) / (count - below);
            return Some(if bound.is_finite() { lower + (bound - lower) * inside } else { lower });
        }
        if bound.is_finite() {
            (below, lower) = (count, bound);
        }
    }
    Some(lower)
}

/// A chart, ready to be drawn.
pub(super) struct Chart {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) about: &'static str,
    /// What its upper edge stands for.
    pub(super) top: String,
    pub(super) series: Vec<Series>,
}

/// One path of a chart.
pub(super) struct Series {
    pub(super) id: String,
    pub(super) name: &'static str,
    /// Its colour in the style sheet.
    pub(super) class: &'static str,
    /// A line; otherwise a surface.
    pub(super) is_line: bool,
    pub(super) path: String,
    /// Its value in each column as text, separated by `|`: what is read where the pointer is.
    pub(super) values: String,
}

/// All charts.
pub(super) fn draw(ring: &Ring, now: Timestamp) -> Vec<Chart> {
    let columns = ring.columns(now);
    vec![polls(&columns), lag(&columns), saved(&columns)]
}

/// What happened a second in each column.
fn rates(columns: &[Sample], counter: impl Fn(&Sample) -> f64) -> Vec<f64> {
    let rate = |pair: &[Sample]| {
        let seconds = pair[1].at.since(pair[0].at).as_secs_f64();
        if seconds > 0.0 { ((counter(&pair[1]) - counter(&pair[0])) / seconds).max(0.0) } else { 0.0 }
    };
    columns.windows(2).map(rate).collect()
}

const OUTCOME_CLASSES: [&str; 5] = ["good", "news", "warn", "bad", "gone"];
const OUTCOME_NAMES: [&str; 5] = ["not modified", "new content (200)", "throttled", "failed", "gone"];

fn polls(columns: &[Sample]) -> Chart {
    let layers: Vec<Vec<f64>> = (0..OUTCOMES.len()).map(|index| rates(columns, |sample| sample.polls[index])).collect();
    let (paths, top) = stack(&layers);
    let series = paths.into_iter().enumerate().map(|(index, path)| Series {
        values: texts(&layers[index], |rate| format!("{} / s", words::rate(rate))),
        id: format!("polls-{}", OUTCOMES[index]),
        name: OUTCOME_NAMES[index],
        class: OUTCOME_CLASSES[index],
        is_line: false,
        path,
    });
    let series = series.collect();
    Chart {
        id: "polls",
        title: "Polls by outcome",
        about: "per second",
        top: format!("{} / s", words::rate(top)),
        series,
    }
}

fn lag(columns: &[Sample]) -> Chart {
    let of = |share| columns.windows(2).map(|pair| quantile(&pair[0], &pair[1], share)).collect::<Vec<_>>();
    let (median, most) = (of(0.5), of(0.99));
    let top = nice(median.iter().chain(&most).flatten().copied().fold(0.1, f64::max));
    let series = |id: &str, name, class, values: &[Option<f64>]| Series {
        id: id.to_owned(),
        name,
        class,
        is_line: true,
        path: line(values, top),
        values: texts(values, |lag| lag.map_or_else(|| "–".to_owned(), words::seconds)),
    };
    let series = vec![series("lag-most", "p99", "warn", &most), series("lag-median", "median", "good", &median)];
    Chart { id: "lag", title: "Lag", about: "from due to claimed", top: words::seconds(top), series }
}

fn saved(columns: &[Sample]) -> Chart {
    let mean = columns.last().map_or(0.0, |last| if last.polls[1] > 0.0 { last.wire / last.polls[1] } else { 0.0 });
    let layers = [rates(columns, |sample| sample.wire), rates(columns, |sample| sample.polls[0] * mean)];
    let (mut paths, top) = stack(&layers);
    let saved = paths.pop().unwrap_or_default();
    let came = paths.pop().unwrap_or_default();
    let series = |id: &str, name, class, path, values: &[f64]| Series {
        id: id.to_owned(),
        name,
        class,
        is_line: false,
        path,
        values: texts(values, |bytes| format!("{} / s", words::bytes(bytes))),
    };
    let series = vec![
        series("bytes-came", "received", "news", came, &layers[0]),
        series("bytes-saved", "saved by 304", "good", saved, &layers[1]),
    ];
    Chart { id: "bytes", title: "Bytes", about: "per second", top: format!("{} / s", words::bytes(top)), series }
}

fn texts<T: Copy>(values: &[T], text: impl Fn(T) -> String) -> String {
    values.iter().map(|value| text(*value)).collect::<Vec<_>>().join("|")
}

/// The layers on top of each other, as surfaces, and what the upper edge stands for.
fn stack(layers: &[Vec<f64>]) -> (Vec<String>, f64) {
    let columns = layers.first().map_or(0, Vec::len);
    let total = |column: usize| layers.iter().map(|layer| layer[column]).sum::<f64>();
    let top = nice((0..columns).map(total).fold(0.0, f64::max));
    let mut floor = vec![0.0; columns];
    let mut paths = Vec::new();
    for layer in layers {
        let ceiling: Vec<f64> = floor.iter().zip(layer).map(|(floor, height)| floor + height).collect();
        paths.push(if layer.iter().all(|height| *height <= 0.0) { String::new() } else { area(&floor, &ceiling, top) });
        floor = ceiling;
    }
    (paths, top)
}

fn area(floor: &[f64], ceiling: &[f64], top: f64) -> String {
    let above = ceiling.iter().enumerate().map(|(index, value)| point(index, ceiling.len(), *value, top));
    let below = floor.iter().enumerate().rev().map(|(index, value)| point(index, floor.len(), *value, top));
    format!("M{}Z", above.chain(below).collect::<Vec<_>>().join("L"))
}

/// A line that is broken where there is nothing.
fn line(values: &[Option<f64>], top: f64) -> String {
    let mut path = String::new();
    let mut drawn = false;
    for (index, value) in values.iter().enumerate() {
        let Some(value) = value else {
            drawn = false;
            continue;
        };
        path.push(if drawn { 'L' } else { 'M' });
        path.push_str(&point(index, values.len(), *value, top));
        if !drawn {
            // A lone point is a dot of the line's width.
            path.push_str("h1");
        }
        drawn = true;
    }
    path
}

fn point(index: usize, columns: usize, value: f64, top: f64) -> String {
    let x = index as f64 * WIDTH as f64 / columns.saturating_sub(1).max(1) as f64;
    let y = HEIGHT as f64 * (1.0 - (value / top).clamp(0.0, 1.0));
    format!("{x:.0},{y:.1}")
}

/// The next of 1, 2, 5, 10, 20, ..
fn nice(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let unit = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    steps.into_iter().map(|step| step * unit).find(|top| *top >= value * 0.999).unwrap_or(10.0 * unit)
}

#[cfg(test)]
mod tests {
    use common::policy::Category;

    use super::*;

    const START: Timestamp = Timestamp::EPOCH;

    fn after(seconds: u64) -> Timestamp {
        START.after(Duration::from_secs(seconds))
    }

    fn sample(seconds: u64, polls: f64) -> Sample {
        Sample { at: after(seconds), polls: [polls, 0.0, 0.0, 0.0, 0.0], wire: 0.0, lag: Vec::new() }
    }

    #[test]
    fn a_ring_keeps_half_an_hour_and_no_more_than_its_samples() {
        let mut ring = Ring::default();
        (0..5000).for_each(|second| ring.push(sample(second, second as f64)));
        assert_eq!(ring.0.len(), KEPT);
        ring.push(sample(5000 + 1700, 0.0));
        assert!(after(6700).since(ring.0.front().unwrap().at) <= SPAN);
        assert_eq!(ring.span(after(5000)), SHORTEST);
    }

    #[test]
    fn a_steady_pace_is_a_level_chart_whatever_the_samples_distance() {
        let mut ring = Ring::default();
        (0..100).filter(|second| second % 7 < 3).for_each(|second| ring.push(sample(second * 3, second as f64 * 6.0)));
        let now = ring.0.back().unwrap().at;
        let rates = rates(&ring.columns(now), |sample| sample.polls[0]);
        assert_eq!(rates.len(), COLUMNS);
        assert!(rates.iter().all(|rate| (rate - 2.0).abs() < 1e-6), "{rates:?}");
        assert!((ring.pace(now) - 2.0).abs() < 1e-6);
        let chart = &draw(&ring, now)[0];
        assert_eq!((chart.top.as_str(), chart.series[1].path.as_str()), ("2.0 / s", ""));
        assert_eq!(chart.series[0].values, vec!["2.0 / s"; COLUMNS].join("|"));
        assert!(chart.series[0].path.starts_with("M0,0.0L10,0.0"), "{}", chart.series[0].path);
    }

    #[test]
    fn lag_is_read_from_the_buckets() {
        let metrics = Metrics::new();
        let mut ring = Ring::default();
        ring.push(Sample::of(&metrics, after(0)));
        assert_eq!(ring.lag(after(0)), None);
        (0..90).for_each(|_| metrics.record_lag(Category::A, Duration::from_millis(200)));
        (0..10).for_each(|_| metrics.record_lag(Category::D, Duration::from_secs(80)));
        ring.push(Sample::of(&metrics, after(60)));
        let (median, most) = ring.lag(after(60)).unwrap();
        assert!((0.1..0.25).contains(&median) && (60.0..90.0).contains(&most), "{median} {most}");
        assert!(draw(&ring, after(60))[1].series.iter().all(|series| series.path.starts_with('M')));
    }

    #[test]
    fn an_empty_ring_draws_empty_charts() {
        for chart in draw(&Ring::default(), after(0)) {
            assert!(chart.series.iter().all(|series| series.path.is_empty()), "{}", chart.id);
        }
    }

    #[test]
    fn an_edge_is_a_round_number() {
        assert_eq!([0.0, 0.3, 1.0, 1.1, 7.0, 21.0, 1000.0].map(nice), [1.0, 0.5, 1.0, 2.0, 10.0, 50.0, 1000.0]);
    }
}
