//! A process' own metrics, in Prometheus' text format.
//!
//! Each fleet creates one [`Metrics`] and passes it around; it has its own registry, so that two fleets can run in one
//! process. No label contains a feed or a host: the number of series is fixed when the process starts.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

use crate::feed::OverQuota;
use crate::job_keys::MacError;
use crate::outcome::{Blocker, DeliveryOutcome, FailureKind, OutcomeKind};
use crate::policy::{Category, Rule, Status};
use crate::push::{PushKind, PushState};
use crate::report::{FetchReport, Outcome};

/// Seconds; a poll takes between a few milliseconds and the fetch deadline.
const POLL_SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0];

/// Seconds; dense around category A's promise of two minutes.
const LAG_SECONDS: &[f64] =
    &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 90.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];

/// Seconds; dense around the two seconds that a delivery should take, up to the days of an outage.
const DELIVERY_SECONDS: &[f64] =
    &[0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 21_600.0, 86_400.0, 432_000.0];

/// The states by which subscriptions are counted.
pub const SUBSCRIPTION_STATES: [&str; 4] = ["active", "failing", "paused", "disabled"];

/// The ways in which pings and pushes come: pings by protocol; deliveries of hubs that are read, that only cause a
/// poll, that are not signed or not expected, and of subscriptions that were left; verifications that were not
/// requested; notifications of clouds.
pub const PUSH_KINDS: [&str; 11] = [
    "rest",
    "form",
    "weblog_updates",
    "rss_cloud",
    "hub",
    "websub",
    "websub_light",
    "websub_forged",
    "websub_gone",
    "websub_refused",
    "rsscloud",
];

/// Declares the metrics, each with its kind, its name without prefix, and its help, which is its documentation, too.
macro_rules! metrics {
    ($($(#[$more:meta])* $field:ident: $type:ty = $kind:ident($name:literal, $help:literal $(, $of:expr)*),)+) => {
        /// All metrics. The fields are named like `feedfleet_*`, without prefix and unit.
        #[derive(Clone, Debug)]
        pub struct Metrics {
            registry: Registry,
            $(#[doc = $help] $(#[$more])* pub $field: $type,)+
        }

        impl Metrics {
            fn register(factory: &MetricFactory) -> Self {
                Metrics { $($field: factory.$kind($name, $help $(, $of)*),)+ registry: factory.0.clone() }
            }
        }
    };
}

metrics! {
    build_info: IntGaugeVec = gauges("build_info", "Always 1; the label is the program's version.", &["version"]),
    /// `deferred` is counted in [`Self::deferred`] instead.
    polls: IntCounterVec = counters("polls_total", "Finished polls by outcome.", &["outcome"]),
    failures: IntCounterVec = counters("failures_total", "Failed polls by kind of failure.", &["kind"]),
    blocked: IntCounterVec = counters("blocked_total",
        "Polls answered by a check for people or a refusal of robots.", &["by"]),
    poll_duration: Histogram = histogram("poll_duration_seconds",
        "From a request's start to its last byte or its failure.", POLL_SECONDS),
    /// See [`PUSH_KINDS`].
    pushes: IntCounterVec = counters("pushes_total", "Pings and pushes received by the way they came.", &["kind"]),
    unconditional: IntCounter = counter("unconditional_total", "Polls without validators that a server answered."),
    repaired: IntCounter = counter("parse_repaired_total", "Feeds that were broken and read after a repair."),
    slow_parses: IntCounter = counter("slow_parses_total", "Bodies whose parsing took longer than 2 s."),
    bytes: IntCounterVec = counters("bytes_total", "Body bytes, as received (wire) and decoded (body).", &["kind"]),
    deferred: IntCounter = counter("deferred_total",
        "Jobs postponed for any reason, such as the host's limits, a closed gate or a missing key."),
    unreadable_credentials: IntCounter = counter("unreadable_credentials_total",
        "Jobs returned without a request because this worker lacks the key to the feed's login."),
    in_flight: IntGauge = gauge("in_flight", "Requests in flight in this process."),
    lag: HistogramVec = histograms("lag_seconds",
        "From a feed's stored due time to its claim, by category.", &["category"], LAG_SECONDS),
    feeds: IntGaugeVec = gauges("feeds", "Feeds in the store by category and status.", &["category", "status"]),
    penalised_feeds: IntGaugeVec = gauges("penalised_feeds", "Feeds in the penalty box by kind of failure.", &["kind"]),
    due_feeds: IntGauge = gauge("due_feeds", "Feeds whose scheduled time has passed, including those that wait for a busy host."),
    parked_feeds: IntGauge = gauge("parked_feeds", "Feeds that wait for a busy host."),
    parks: IntCounterVec = counters("parks_total",
        "Feeds that had to wait for a busy host: when due (first), when their turn had come (again), or after a redirect to it (redirect).", &["kind"]),
    unparks: IntCounter = counter("unparks_total", "Feeds that waited for a busy host and whose turn came."),
    oldest_due: GaugeVec = levels("oldest_due_seconds",
        "Seconds since the oldest passed due time of a band; 0 when none has passed.", &["band"]),
    queue_depth: IntGaugeVec = gauges("queue_depth",
        "Items waiting in or unacknowledged by a queue; messages in its dead letters (QUEUE.dead).", &["queue"]),
    dead_letters: IntCounterVec = counters("dead_letters_total", "Messages put aside for good.", &["queue"]),
    too_new: IntCounterVec = counters("too_new_messages_total",
        "Messages of a newer version that were returned to the queue.", &["queue"]),
    decisions: IntCounterVec = counters("decisions_total",
        "Decisions by the rules that moved the due time; one counts under each of its rules.", &["reason"]),
    stale_reports: IntCounter = counter("stale_reports_total",
        "Reports of an outdated version, which changed nothing."),
    refused_reports: IntCounterVec = counters("refused_reports_total",
        "Reports dropped because they answer no job of this fleet: forged ones, or those of an earlier version's workers.", &["reason"]),
    unsigned_reports: IntCounter = counter("unsigned_reports_total",
        "Reports without a signature that were accepted because the fleet was upgraded a short time ago."),
    redirected_holds: IntCounter = counter("redirected_holds_total",
        "Holds that workers reported for a host after another host's feed redirected there."),
    unreadable_feeds: IntCounter = counter("unreadable_feeds_total",
        "Claims of feeds whose rows in the store this program cannot read; they are not polled."),
    rejected_tokens: IntCounter = counter("rejected_tokens_total",
        "Requests to API and pages with a missing or wrong token."),
    leases_expired: IntCounter = counter("leases_expired_total", "Feeds claimed again after a lease without a report."),
    entries: IntCounter = counter("entries_total", "Entries stored that were not stored before."),
    over_quota: IntCounterVec = counters("over_quota_total",
        "Entries left out by quotas of their number (entries) and size (bytes), and old rows that made room (rows).", &["kind"]),
    hosts_held: IntGauge = gauge("hosts_held", "Hosts on hold because their servers asked for it."),
    relay_lag: Gauge = level("relay_lag_seconds",
        "Age of the oldest event that is not yet published to the exchange, in seconds. 0 in schedulers that do not publish."),
    deliveries: IntCounterVec = counters("deliveries_total",
        "Requests to the targets of subscriptions by outcome.", &["outcome"]),
    delivery_lag: Histogram = histogram("delivery_lag_seconds",
        "From the commit of the oldest event of a request to a subscriber to the response that accepted it.", DELIVERY_SECONDS),
    subscriptions: IntGaugeVec = gauges("subscriptions",
        "Subscriptions by kind and state; failing: active, but the last request failed.", &["kind", "state"]),
    push_subscriptions: IntGaugeVec = gauges("push_subscriptions",
        "Subscriptions with hubs and clouds by kind and state.", &["kind", "state"]),
    /// A publisher's floor, a hold or a failure overrides it.
    sla_unmet: IntGauge = gauge("sla_unmet", "Feeds under an SLA that cannot be kept."),
    overflowed: IntCounter = counter("overflowed_total",
        "Documents without any known entry: the feed may have posted more than a document holds."),
    archive_pages: IntCounterVec = counters("archive_pages_total",
        "Pages of older entries that were requested, read or failed.", &["outcome"]),
    silent_feeds: IntGauge = gauge("silent_feeds",
        "Feeds that have not posted for far longer than they usually pause."),
    complete_ratio: Gauge = level("complete_ratio",
        "Share of the polled feeds that were read and of which no entry can have been missed."),
    poll_price: Gauge = level("poll_price",
        "What a poll has to be worth in adaptive mode, in subscriber-hours of expected waiting."),
    demand: Gauge = level("demand_per_second", "Polls a second that the feeds want at the present price."),
    our_fault: IntGauge = gauge("our_fault",
        "1 while most hosts fail because of our own network: nobody is penalised."),
    hosts_refusing: IntGauge = gauge("hosts_refusing",
        "Hosts that answer most of their feeds with 403, 451 or a page against robots."),
    paused: IntGauge = gauge("paused", "1 while all polling is paused by a person."),
    config_hash: IntGaugeVec = gauges("config_hash",
        "Always 1; the label is a hash of the keys by which a scheduler decides: the same in all of a fleet.", &["hash"]),
    policy_version: IntGauge = gauge("policy_version",
        "Version of the policy and host rules in force: the same in all of a fleet."),
    config_reload_successful: IntGauge = gauge("config_last_reload_successful",
        "0 if the configuration was refused when it was last read again: the one before is in force."),
    config_reloaded_at: Gauge = level("config_last_reload_success_timestamp_seconds",
        "When the configuration was last read again and accepted; 0 if not since the start."),
    queue_blocked: IntGauge = gauge("queue_blocked",
        "Connections on which RabbitMQ accepts no messages: a memory or disk alarm of any of its nodes."),
    gate_open: IntGauge = gauge("gate_open", "1 while the host gate lets requests start, as a scheduler sees it."),
    watchdog: IntGauge = gauge("watchdog",
        "1 while feeds have been due for several leases and no poll has ended, for no known reason; /healthz fails."),
    /// Only the process's own role is exported.
    ready: IntGaugeVec = gauges("ready",
        "1 while the process can do its work (/readyz): its servers answer, and its clock agrees with theirs.", &["role"]),
    relay_turn: IntGauge = gauge("relay_turn",
        "1 in the scheduler that publishes events to the exchange, and in a fleet without an exchange."),
    timeline_unreadable: IntGauge = gauge("timeline_unreadable",
        "1 while a scheduler may not read PostgreSQL's timeline: a promotion would not be noticed and would begin no epoch."),
    pruned_at: Gauge = level("last_prune_timestamp_seconds",
        "When a scheduler last deleted what is older than its retention, or when it started."),
    polls_limit: Gauge = level("polls_limit_per_second",
        "policy.polls_per_second, the limit of the whole fleet; 0 for no limit."),
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Creates all metrics at zero, with every possible label value, so that the rate of a rare event is 0 and not
    /// absent.
    pub fn new() -> Self {
        let metrics = Self::register(&MetricFactory(Registry::new()));
        metrics.touch_labels();
        metrics
    }

    /// Makes series exist from the start, at zero. Not those of subscriptions: zero before the first count would be taken for a change.
    fn touch_labels(&self) {
        self.build_info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let counters: [(&IntCounterVec, &[&str]); 12] = [
            (&self.failures, &FailureKind::ALL.map(FailureKind::as_str)),
            (&self.blocked, &Blocker::ALL.map(Blocker::as_str)),
            (&self.refused_reports, &MacError::ALL.map(MacError::as_str)),
            (&self.decisions, &Rule::ALL.map(Rule::as_str)),
            (&self.deliveries, &DeliveryOutcome::ALL.map(DeliveryOutcome::as_str)),
            (&self.pushes, &PUSH_KINDS),
            (&self.archive_pages, &["read", "failed"]),
            (&self.parks, &["first", "again", "redirect"]),
            (&self.bytes, &["wire", "body"]),
            (&self.over_quota, &["entries", "bytes", "rows"]),
            (&self.dead_letters, &["jobs", "reports"]),
            (&self.too_new, &["jobs", "reports"]),
        ];
        for (counter, labels) in counters {
            for label in labels {
                counter.with_label_values(&[label]);
            }
        }
        for outcome in OutcomeKind::ALL.iter().filter(|outcome| **outcome != OutcomeKind::Deferred) {
            self.polls.with_label_values(&[outcome.as_str()]);
        }
        for kind in FailureKind::ALL {
            self.penalised_feeds.with_label_values(&[kind.as_str()]);
        }
        for category in Category::ALL {
            self.lag.with_label_values(&[category.as_str()]);
            for status in Status::ALL {
                self.feeds.with_label_values(&[category.as_str(), status.as_str()]);
            }
        }
        for band in ["urgent", "prompt", "steady", "patient"] {
            self.oldest_due.with_label_values(&[band]);
        }
        for kind in PushKind::ALL {
            for state in PushState::ALL {
                self.push_subscriptions.with_label_values(&[kind.as_str(), state.as_str()]);
            }
        }
        for queue in ["jobs", "reports", "jobs.dead", "reports.dead"] {
            self.queue_depth.with_label_values(&[queue]);
        }
    }

    /// Counts what exceeded a feed's quotas.
    pub fn record_over_quota(&self, over: &OverQuota) {
        for (kind, count) in [("entries", over.entries), ("bytes", over.bytes), ("rows", over.rows)] {
            if count > 0 {
                self.over_quota.with_label_values(&[kind]).inc_by(count);
            }
        }
    }

    /// Counts a worker's report: outcome, failure, duration, bytes, and whether validators were sent.
    pub fn record_report(&self, report: &FetchReport) {
        let kind = report.outcome.kind();
        if kind == OutcomeKind::Deferred {
            self.deferred.inc();
            return;
        }
        self.polls.with_label_values(&[kind.as_str()]).inc();
        if let Outcome::Failed { failure, .. } = &report.outcome {
            self.failures.with_label_values(&[failure.as_str()]).inc();
        }
        if let Some(blocker) = report.blocked_by {
            self.blocked.with_label_values(&[blocker.as_str()]).inc();
        }
        if let Outcome::Modified(document) = &report.outcome {
            self.repaired.inc_by(u64::from(document.repaired));
        }
        self.poll_duration.observe(report.duration.as_secs_f64());
        self.unconditional.inc_by(u64::from(!report.conditional && report.http_status.is_some()));
        self.bytes.with_label_values(&["wire"]).inc_by(report.wire_bytes);
        self.bytes.with_label_values(&["body"]).inc_by(report.body_bytes);
    }

    /// Counts a decision once for each rule that moved its due time.
    pub fn record_decision(&self, rules: impl IntoIterator<Item = Rule>) {
        for rule in rules {
            self.decisions.with_label_values(&[rule.as_str()]).inc();
        }
    }

    /// Records how late a feed of this category was claimed.
    pub fn record_lag(&self, category: Category, lag: Duration) {
        self.lag.with_label_values(&[category.as_str()]).observe(lag.as_secs_f64());
    }

    /// Returns the lag of all claims since the start, over all categories: bucket bounds in seconds, each with the
    /// number of claims up to it. The last bound is infinity.
    pub fn lag_counts(&self) -> Vec<(f64, u64)> {
        let mut counts: Vec<(f64, u64)> = LAG_SECONDS.iter().map(|bound| (*bound, 0)).collect();
        let mut all = 0;
        for family in self.lag.collect() {
            for metric in family.get_metric() {
                let histogram = metric.get_histogram();
                all += histogram.get_sample_count();
                for (count, bucket) in counts.iter_mut().zip(histogram.get_bucket()) {
                    count.1 += bucket.cumulative_count();
                }
            }
        }
        counts.push((f64::INFINITY, all));
        counts
    }

    /// Renders all metrics in Prometheus' text format, including the process' own (memory, CPU, file descriptors).
    pub fn render(&self) -> String {
        let mut families = self.registry.gather();
        families.extend(prometheus::process_collector::ProcessCollector::for_self().collect());
        // The encoder only fails for a family without a name or without samples, which the registry never returns.
        TextEncoder::new().encode_to_string(&families).unwrap_or_default()
    }
}

/// Creates metrics with our prefix and registers them.
struct MetricFactory(Registry);

impl MetricFactory {
    fn options(name: &str, help: &str) -> Opts {
        Opts::new(format!("feedfleet_{name}"), help)
    }

    /// Registers a metric. Both steps can only fail if a name is taken or malformed, and names and labels are literals
    /// in this file.
    fn add<C: Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let metric = made.expect("names and labels are literals that Prometheus accepts");
        self.0.register(Box::new(metric.clone())).expect("each literal name is used once");
        metric
    }

    fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.add(IntCounter::with_opts(Self::options(name, help)))
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.add(IntCounterVec::new(Self::options(name, help), labels))
    }

    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.add(IntGauge::with_opts(Self::options(name, help)))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.add(IntGaugeVec::new(Self::options(name, help), labels))
    }

    fn level(&self, name: &str, help: &str) -> Gauge {
        self.add(Gauge::with_opts(Self::options(name, help)))
    }

    fn levels(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        self.add(GaugeVec::new(Self::options(name, help), labels))
    }

    fn histogram(&self, name: &str, help: &str, bounds: &[f64]) -> Histogram {
        self.add(Histogram::with_opts(HistogramOpts::from(Self::options(name, help)).buckets(bounds.to_vec())))
    }

    fn histograms(&self, name: &str, help: &str, labels: &[&str], bounds: &[f64]) -> HistogramVec {
        let options = HistogramOpts::from(Self::options(name, help)).buckets(bounds.to_vec());
        self.add(HistogramVec::new(options, labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;
    use crate::host::HostKey;
    use crate::time::Timestamp;
    use crate::url::{FeedId, Version};

    fn report(outcome: Outcome) -> FetchReport {
        FetchReport {
            duration: Duration::from_millis(30),
            wire_bytes: 10,
            body_bytes: 40,
            ..FetchReport::of(FeedId(1), Version(1), HostKey::new("a:80"), Timestamp::EPOCH, outcome)
        }
    }

    fn value(text: &str, series: &str) -> f64 {
        let line = text.lines().find(|line| line.split(' ').next() == Some(series));
        line.unwrap_or_else(|| panic!("{series} is missing")).rsplit(' ').next().unwrap().parse().unwrap()
    }

    #[test]
    fn lag_is_counted_over_all_categories() {
        let metrics = Metrics::new();
        for (category, seconds) in [(Category::A, 0.2), (Category::D, 70.0), (Category::D, 7000.0)] {
            metrics.record_lag(category, Duration::from_secs_f64(seconds));
        }
        let counts = metrics.lag_counts();
        let up_to = |bound: f64| counts.iter().find(|(other, _)| *other == bound).unwrap().1;
        assert_eq!([0.1, 0.25, 60.0, 90.0, 3600.0, f64::INFINITY].map(up_to), [0, 1, 1, 2, 2, 3]);
    }

    #[test]
    fn a_report_is_counted_under_its_outcome_and_a_deferred_is_no_poll() {
        let metrics = Metrics::new();
        metrics.record_report(&report(Outcome::Failed { failure: FailureKind::Dns, detail: String::new() }));
        metrics.record_report(&report(Outcome::Deferred { until: Timestamp::EPOCH }));
        for repaired in [true, false] {
            let document = Document { repaired, ..Document::default() };
            let modified = report(Outcome::Modified(Box::new(document)));
            metrics.record_report(&FetchReport { http_status: Some(200), ..modified });
        }
        let text = metrics.render();
        assert_eq!(value(&text, "feedfleet_polls_total{outcome=\"failed\"}"), 1.0);
        assert_eq!(value(&text, "feedfleet_parse_repaired_total"), 1.0);
        assert_eq!(value(&text, "feedfleet_failures_total{kind=\"dns\"}"), 1.0);
        assert_eq!(value(&text, "feedfleet_deferred_total"), 1.0);
        assert_eq!(value(&text, "feedfleet_unconditional_total"), 2.0);
        assert_eq!(value(&text, "feedfleet_bytes_total{kind=\"body\"}"), 120.0);
        assert_eq!(value(&text, "feedfleet_poll_duration_seconds_count"), 3.0);
        assert!(!text.contains("outcome=\"deferred\""));
    }

    #[test]
    fn series_exist_before_anything_happens_and_each_has_a_help() {
        let text = Metrics::new().render();
        assert_eq!(value(&text, "feedfleet_decisions_total{reason=\"hot_minute\"}"), 0.0);
        assert_eq!(value(&text, "feedfleet_feeds{category=\"F\",status=\"gone\"}"), 0.0);
        assert_eq!(value(&text, "feedfleet_lag_seconds_count{category=\"A\"}"), 0.0);
        assert!(value(&text, "process_resident_memory_bytes") > 0.0);
        let types = text.lines().filter(|line| line.starts_with("# TYPE")).count();
        assert_eq!(text.lines().filter(|line| line.starts_with("# HELP")).count(), types);
    }

    #[test]
    fn two_fleets_in_one_process_count_apart() {
        let (one, other) = (Metrics::new(), Metrics::new());
        one.entries.inc_by(3);
        assert_eq!(value(&one.render(), "feedfleet_entries_total"), 3.0);
        assert_eq!(value(&other.render(), "feedfleet_entries_total"), 0.0);
    }
}
