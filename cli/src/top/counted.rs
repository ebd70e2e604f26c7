//! A fleet's counters, read from its metrics in Prometheus' text format.

/// Counters since the scheduler's start.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counted {
    /// Finished polls by outcome.
    pub(super) polls: Vec<(String, u64)>,
    /// Bytes on the wire.
    pub(super) wire: u64,
    /// Claims by lag: the number that were at most this many seconds late, over all categories; infinity counts all.
    pub(super) lag: Vec<(f64, u64)>,
}

impl Counted {
    /// Parses the metrics; missing ones are zero.
    pub(super) fn read(text: &str) -> Self {
        let mut counted = Counted::default();
        for (name, labels, value) in text.lines().filter_map(series) {
            let label = |name: &str| {
                let mut pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
                pairs.find(|(key, _)| *key == name).map(|(_, value)| value.trim_matches('"'))
            };
            match name {
                "feedfleet_polls_total" => {
                    counted.polls.extend(label("outcome").map(|outcome| (outcome.to_owned(), value)));
                }
                "feedfleet_bytes_total" if label("kind") == Some("wire") => counted.wire = value,
                "feedfleet_lag_seconds_bucket" => {
                    let Some(bound) = label("le").and_then(|bound| bound.parse::<f64>().ok()) else { continue };
                    match counted.lag.iter_mut().find(|(other, _)| *other == bound) {
                        Some((_, count)) => *count += value,
                        None => counted.lag.push((bound, value)),
                    }
                }
                _ => {}
            }
        }
        counted
    }

    /// Returns the number of all polls.
    pub(super) fn all(&self) -> u64 {
        self.polls.iter().map(|(_, count)| count).sum()
    }

    /// Returns the number of polls with this outcome.
    pub(super) fn ended(&self, outcome: &str) -> u64 {
        self.polls.iter().find(|(name, _)| name == outcome).map_or(0, |(_, count)| *count)
    }

    /// Returns the p99 of the lag since `before`, as a bucket bound in seconds; `None` when nothing was claimed.
    pub(super) fn lag_since(&self, before: &Counted) -> Option<f64> {
        let earlier = |bound: f64| before.lag.iter().find(|(other, _)| *other == bound).map_or(0, |(_, count)| *count);
        let since = |(bound, count): &(f64, u64)| (*bound, count.saturating_sub(earlier(*bound)));
        let all = self.lag.iter().map(since).find(|(bound, _)| bound.is_infinite()).map_or(0, |(_, count)| count);
        let reached = |(_, count): &(f64, u64)| all > 0 && count * 100 >= all * 99;
        self.lag.iter().map(since).find(reached).map(|(bound, _)| bound)
    }
}

/// Splits a line into name, labels and value.
fn series(line: &str) -> Option<(&str, &str, u64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    // Counters are integers, but may be written as floats.
    let digits = value.split('.').next().unwrap_or_default();
    Some((name, labels.trim_end_matches('}'), digits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use common::metrics::Metrics;
    use common::policy::Category;

    use super::*;

    #[test]
    fn a_fleets_own_metrics_are_read() {
        let metrics = Metrics::new();
        let before = Counted::read(&metrics.render());
        metrics.polls.with_label_values(&["not_modified"]).inc_by(3);
        metrics.polls.with_label_values(&["failed"]).inc();
        metrics.bytes.with_label_values(&["wire"]).inc_by(1234);
        metrics.bytes.with_label_values(&["body"]).inc_by(9999);
        metrics.record_lag(Category::A, Duration::from_millis(200));
        metrics.record_lag(Category::D, Duration::from_secs(70));
        let counted = Counted::read(&metrics.render());
        assert_eq!((counted.all(), counted.ended("not_modified"), counted.wire), (4, 3, 1234));
        assert_eq!((before.all(), before.lag_since(&before)), (0, None));
        assert_eq!(counted.lag_since(&before), Some(90.0));
        assert_eq!(counted.lag_since(&counted), None);
        assert_eq!(Counted::read("no metrics\nat all{ 1"), Counted::default());
    }
}
