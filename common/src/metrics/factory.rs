//! Creates the metrics.

use prometheus::core::Collector;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

/// Seconds; a poll takes between a few milliseconds and the fetch deadline.
const POLL_SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0];

/// Seconds; dense around category A's promise of two minutes.
pub(super) const LAG_SECONDS: &[f64] =
    &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 90.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];

/// Seconds; dense around the two seconds that a delivery should take, up to the days of an outage.
const DELIVERY_SECONDS: &[f64] =
    &[0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 21_600.0, 86_400.0, 432_000.0];

/// Creates metrics with our prefix and registers them.
pub(super) struct MetricFactory(pub(super) Registry);

impl MetricFactory {
    fn options(name: &str, help: &str) -> Opts {
        Opts::new(format!("feedfleet_{name}"), help)
    }

    /// Registers a metric. Both steps can only fail if a name is taken or malformed, and names and labels are literals
    /// here and in [`Metrics`](super::Metrics).
    pub(super) fn add<C: Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let metric = made.expect("names and labels are literals that Prometheus accepts");
        self.0.register(Box::new(metric.clone())).expect("each literal name is used once");
        metric
    }

    pub(super) fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.add(IntCounter::with_opts(Self::options(name, help)))
    }

    pub(super) fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.add(IntCounterVec::new(Self::options(name, help), labels))
    }

    pub(super) fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.add(IntGauge::with_opts(Self::options(name, help)))
    }

    pub(super) fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.add(IntGaugeVec::new(Self::options(name, help), labels))
    }

    pub(super) fn oldest_due(&self) -> GaugeVec {
        let help = "Seconds since the oldest passed due time of a band; 0 when none has passed.";
        self.add(GaugeVec::new(Self::options("oldest_due_seconds", help), &["band"]))
    }

    pub(super) fn level(&self, name: &str, help: &str) -> Gauge {
        self.add(Gauge::with_opts(Self::options(name, help)))
    }

    pub(super) fn poll_duration(&self) -> Histogram {
        let help = "From a request's start to its last byte or its failure.";
        let options = HistogramOpts::new("feedfleet_poll_duration_seconds", help).buckets(POLL_SECONDS.to_vec());
        self.add(Histogram::with_opts(options))
    }

    pub(super) fn lag(&self) -> HistogramVec {
        let help = "From a feed's stored due time to its claim, by category.";
        let options = HistogramOpts::new("feedfleet_lag_seconds", help).buckets(LAG_SECONDS.to_vec());
        self.add(HistogramVec::new(options, &["category"]))
    }

    pub(super) fn delivery_lag(&self) -> Histogram {
        let help = "From the commit of the oldest event of a request to a subscriber to the response that accepted it.";
        let options = HistogramOpts::new("feedfleet_delivery_lag_seconds", help).buckets(DELIVERY_SECONDS.to_vec());
        self.add(Histogram::with_opts(options))
    }

    pub(super) fn build_info(&self) {
        let labels = Self::options("build_info", "Always 1; the label is the program's version.")
            .const_label("version", env!("CARGO_PKG_VERSION"));
        self.add(Gauge::with_opts(labels)).set(1.0);
    }
}
