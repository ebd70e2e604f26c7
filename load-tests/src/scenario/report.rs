//! The report of a run: figures, checks, the judge's card, as text and JSON, with a chart.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::figures::{Figures, Run, quantile};
use super::file::Scenario;
use super::picture;
use super::samples::Sample;

/// A run's report.
#[derive(Debug)]
pub struct Report {
    /// The file's name.
    pub name: String,
    /// The scenario's question.
    pub question: String,
    /// Every figure by its name.
    pub figures: BTreeMap<String, f64>,
    /// The result of each expectation.
    pub checks: Vec<Check>,
    card: String,
    samples: Vec<Sample>,
    lags: Vec<[f64; 3]>,
    gaps: Vec<f64>,
    gap: f64,
    events: Vec<(String, f64, f64)>,
}

/// A figure compared with its bound.
#[derive(Clone, Debug)]
pub struct Check {
    /// The name of the figure.
    pub figure: String,
    /// The bound as written in the file.
    pub bound: String,
    /// The figure; `None` if the run does not have it.
    pub value: Option<f64>,
    /// Whether it meets the bound.
    pub good: bool,
}

/// The minimum number of seconds per point of a curve.
const POINT: f64 = 1.0;
/// The approximate number of points of a curve.
const POINTS: f64 = 150.0;

impl Report {
    pub(super) fn new(name: &str, scenario: &Scenario, run: Run, found: Figures, compared: Option<&Figures>) -> Self {
        let mut figures = found.values;
        for (name, before) in compared.iter().flat_map(|compared| &compared.values) {
            let ratio = figures.get(name).filter(|_| *before > 0.0).map(|figure| figure / before);
            figures.insert(format!("{name} without"), *before);
            if let Some(ratio) = ratio {
                figures.insert(format!("{name} over without"), ratio);
            }
        }
        let check = |(figure, bound): (&String, &super::file::Bound)| {
            let value = figures.get(figure).copied();
            let good = value.is_some_and(|value| bound.holds(value));
            Check { figure: figure.clone(), bound: bound.text.clone(), value, good }
        };
        let checks = scenario.expect.iter().map(check).collect();
        let end = scenario.duration.as_secs_f64();
        let events = scenario.event.iter().map(|(name, event)| {
            (name.clone(), event.at.as_secs_f64(), event.until.map_or(end, |until| until.as_secs_f64()))
        });
        Report {
            name: name.to_owned(),
            question: scenario.question.clone(),
            checks,
            card: found.card.to_string(),
            lags: curve(&found.lags.iter().map(|lag| (lag.at, lag.seconds)).collect::<Vec<_>>(), end),
            samples: run.samples,
            gaps: found.gaps,
            gap: scenario.gap.as_secs_f64(),
            events: events.collect(),
            figures,
        }
    }

    /// Returns whether every check passes.
    pub fn is_good(&self) -> bool {
        self.checks.iter().all(|check| check.good)
    }

    /// Returns the report for programs.
    pub fn json(&self) -> Value {
        let checks = self.checks.iter().map(
            |check| json!({ "figure": check.figure, "bound": check.bound, "value": check.value, "good": check.good }),
        );
        let share = |share| quantile(&self.gaps, share);
        json!({
            "scenario": self.name,
            "question": self.question,
            "good": self.is_good(),
            "checks": checks.collect::<Vec<_>>(),
            "figures": self.figures,
            "lag": self.lags.iter().map(|[at, p50, p99]| json!({ "at": at, "p50": p50, "p99": p99 })).collect::<Vec<_>>(),
            "starts_at_a_host": { "gap": self.gap, "least": share(0.0), "p1": share(0.01), "p50": share(0.5) },
            "samples": self.samples,
        })
    }

    /// Writes `NAME.txt`, `NAME.json` and `NAME.svg` to a folder; returns the path of the first.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, folder: &Path) -> io::Result<PathBuf> {
        std::fs::create_dir_all(folder)?;
        let path = |ending: &str| folder.join(format!("{}.{ending}", self.name));
        std::fs::write(path("txt"), self.to_string())?;
        std::fs::write(path("json"), format!("{:#}\n", self.json()))?;
        std::fs::write(path("svg"), self.svg())?;
        Ok(path("txt"))
    }

    fn svg(&self) -> String {
        let line = |at: usize| self.lags.iter().map(|point| (point[0], point[at])).collect::<Vec<_>>();
        let mut rates = Vec::new();
        for pair in self.samples.windows(2) {
            let seconds = pair[1].at - pair[0].at;
            rates.push((pair[1].at, (pair[1].requests - pair[0].requests) as f64 / seconds.max(0.001)));
        }
        let mut memory: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for sample in &self.samples {
            for (name, used) in &sample.processes {
                memory.entry(name.clone()).or_default().push((sample.at, used.memory));
            }
        }
        let shares: Vec<(f64, f64)> = (0..=100)
            .filter_map(|percent| Some((quantile(&self.gaps, f64::from(percent) / 100.0)?, f64::from(percent))))
            .take_while(|(seconds, _)| *seconds <= self.gap * 5.0)
            .collect();
        let title = format!("{}: {}", self.name, self.question);
        picture::svg(
            &title,
            &self.events,
            &[
                picture::Panel::over_time("lag, seconds", [("p50", line(1)), ("p99", line(2))]),
                picture::Panel::over_time("polls a second", [("polls/s", rates)]),
                picture::Panel::over_time("memory, MB", memory),
                picture::Panel {
                    title: format!("starts at a host: share, %, that came within so many seconds (gap {} s)", self.gap),
                    over_time: false,
                    mark: Some(self.gap),
                    lines: vec![("starts".to_owned(), shares)],
                },
            ],
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}\n", self.name, self.question)?;
        for Check { figure, bound, value, good } in &self.checks {
            let value = value.map_or_else(|| "no such figure".to_owned(), number);
            writeln!(f, "  {}  {figure:<40} {value:>14}  {bound}", if *good { "ok    " } else { "MISSED" })?;
        }
        writeln!(f, "\nall figures")?;
        for (name, value) in &self.figures {
            writeln!(f, "  {name:<48} {:>14}", number(*value))?;
        }
        write!(f, "\nthe judge: {}", self.card)
    }
}

fn number(value: f64) -> String {
    let digits = if value.abs() >= 1000.0 { 0 } else { 3 };
    format!("{value:.digits$}")
}

/// Returns the median and the 99th percentile over time.
fn curve(points: &[(f64, f64)], end: f64) -> Vec<[f64; 3]> {
    let width = (end / POINTS).max(POINT);
    let mut parts: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (at, value) in points {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a point's place")]
        parts.entry((at / width) as u64).or_default().push(*value);
    }
    let point = |(place, mut values): (u64, Vec<f64>)| {
        values.sort_by(f64::total_cmp);
        let share = |share| quantile(&values, share).unwrap_or_default();
        [(place as f64 + 0.5) * width, share(0.5), share(0.99)]
    };
    parts.into_iter().map(point).collect()
}
