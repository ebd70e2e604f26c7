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

/// All metrics. The fields are named like `feedfleet_*`, without prefix and unit.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    /// Finished polls, by [`OutcomeKind`]; `deferred` is counted in [`Self::deferred`] instead.
    pub polls: IntCounterVec,
    /// Failed polls, by [`FailureKind`].
    pub failures: IntCounterVec,
    /// Polls that a site blocked, by blocker.
    pub blocked: IntCounterVec,
    /// Seconds from a request's start to its last byte, or to its failure.
    pub poll_duration: Histogram,
    /// Pings and pushes received, see [`PUSH_KINDS`].
    pub pushes: IntCounterVec,
    /// Requests sent without validators.
    pub unconditional: IntCounter,
    /// Feeds that were malformed and could be read after a repair.
    pub repaired: IntCounter,
    /// Bodies whose parsing took longer than 2 s.
    pub slow_parses: IntCounter,
    /// Body bytes: `wire` as received, `body` after decoding.
    pub bytes: IntCounterVec,
    /// Jobs returned without a request because the host could not be polled at that time.
    pub deferred: IntCounter,
    /// Jobs returned without a request because this worker does not have the key of the feed's credentials.
    pub unreadable_credentials: IntCounter,
    /// Requests in flight in this process.
    pub in_flight: IntGauge,
    /// Seconds from a feed's stored due time to its claim, by [`Category`].
    pub lag: HistogramVec,
    /// Feeds in the store, by [`Category`] and [`Status`].
    pub feeds: IntGaugeVec,
    /// Feeds in the penalty box, by [`FailureKind`].
    pub penalised_feeds: IntGaugeVec,
    /// Feeds whose scheduled time has passed.
    pub due_feeds: IntGauge,
    /// Feeds that wait for a busy host.
    pub parked_feeds: IntGauge,
    /// Due feeds that had to wait for a busy host: `first` when they became due, `again` when the host was still busy
    /// when they were unparked.
    pub parks: IntCounterVec,
    /// Waiting feeds whose turn came.
    pub unparks: IntCounter,
    /// Seconds since the oldest due time that has passed, by band of the schedule; 0 when none has passed.
    pub oldest_due: GaugeVec,
    /// Messages waiting in a queue or unacknowledged, by queue: `jobs`, `reports`.
    pub queue_depth: IntGaugeVec,
    /// Dead-lettered messages, by queue.
    pub dead_letters: IntCounterVec,
    /// Messages of a newer program that went back to the queue, by queue.
    pub too_new: IntCounterVec,
    /// Decisions, by the [`Rule`]s that moved the due time; one decision counts under each of its rules.
    pub decisions: IntCounterVec,
    /// Reports for another version of their feed, which changed nothing.
    pub stale_reports: IntCounter,
    /// Reports that answer no job of this fleet and were dropped, by reason.
    pub refused_reports: IntCounterVec,
    /// Reports without an authentication code that were accepted during an upgrade.
    pub unsigned_reports: IntCounter,
    /// Holds of hosts that reports named beside their jobs' own.
    pub redirected_holds: IntCounter,
    /// Claims of feeds whose rows this program cannot read.
    pub unreadable_feeds: IntCounter,
    /// Requests to the API without a valid token.
    pub rejected_tokens: IntCounter,
    /// Feeds claimed again because an earlier lease ended without a report.
    pub leases_expired: IntCounter,
    /// Entries stored for the first time.
    pub entries: IntCounter,
    /// What exceeded the feeds' quotas, by kind: `entries` and `bytes` left out, `rows` that made room.
    pub over_quota: IntCounterVec,
    /// Hosts that requested a pause and are on hold.
    pub hosts_held: IntGauge,
    /// Seconds since the oldest event was stored that is not yet published to the exchange; 0 in a process that does
    /// not publish events.
    pub relay_lag: Gauge,
    /// Requests to targets of subscriptions, by [`DeliveryOutcome`].
    pub deliveries: IntCounterVec,
    /// Seconds from the commit of the oldest event of a request to the response that accepted it.
    pub delivery_lag: Histogram,
    /// Subscriptions in the store, by kind (`webhook`) and state.
    pub subscriptions: IntGaugeVec,
    /// Push subscriptions by kind and state.
    pub push_subscriptions: IntGaugeVec,
    /// Feeds whose SLA cannot be kept: a publisher's floor, a hold or a failure overrides it.
    pub sla_unmet: IntGauge,
    /// Documents without any known entry, although some were known: entries may have been missed.
    pub overflowed: IntCounter,
    /// Pages of older entries, by how they ended: `read`, `failed`.
    pub archive_pages: IntCounterVec,
    /// Feeds that have not posted for far longer than they ever pause.
    pub silent_feeds: IntGauge,
    /// The share of the polled feeds that were read, and from which nothing can be missing.
    pub complete_ratio: Gauge,
    /// The price of a poll in adaptive mode, in subscriber-hours of expected waiting.
    pub poll_price: Gauge,
    /// Polls per second that the feeds need at that price.
    pub demand: Gauge,
    /// 1 while most hosts fail because of our own network.
    pub our_fault: IntGauge,
    /// Hosts that refuse us on most of their feeds.
    pub hosts_refusing: IntGauge,
    /// 1 while all polling is paused by an operator.
    pub paused: IntGauge,
    /// Always 1; the label is a hash of the keys by which this scheduler decides.
    pub config_hash: IntGaugeVec,
    /// The version of policy and host rules in force.
    pub policy_version: IntGauge,
    /// 1 unless the configuration was read again and refused.
    pub config_reload_successful: IntGauge,
    /// When it was last read again and accepted.
    pub config_reloaded_at: Gauge,
    /// Connections on which the broker accepts no messages.
    pub queue_blocked: IntGauge,
    /// 1 while the host gate lets requests start.
    pub gate_open: IntGauge,
    /// 1 while feeds are due and nothing is polled, for no reason that is known.
    pub watchdog: IntGauge,
    /// 1 while a process can do its work, by role: `scheduler`, `worker`. Only the process's own role is exported.
    pub ready: IntGaugeVec,
    /// 1 while this process passes events on to the exchange, or has no exchange to pass them on to.
    pub relay_turn: IntGauge,
    /// 1 while this process cannot read PostgreSQL's timeline, so that it would not notice a promotion.
    pub timeline_unreadable: IntGauge,
    /// When what is older than its retention was last deleted, or when the deleting process started.
    pub pruned_at: Gauge,
    /// The maximum of polls per second, by [`policy.polls_per_second`](crate::config::PolicyConfig); 0 when there is none.
    pub polls_limit: Gauge,
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

    fn register(factory: &MetricFactory) -> Self {
        factory.build_info();
        Metrics {
            polls: factory.counters("polls_total", "Finished polls by outcome.", &["outcome"]),
            failures: factory.counters("failures_total", "Failed polls by kind of failure.", &["kind"]),
            blocked: factory.counters(
                "blocked_total",
                "Polls answered by a check for people or a refusal of robots.",
                &["by"],
            ),
            poll_duration: factory.poll_duration(),
            pushes: factory.counters("pushes_total", "Pings and pushes received by the way they came.", &["kind"]),
            unconditional: factory.counter("unconditional_total", "Requests sent without validators."),
            repaired: factory.counter("parse_repaired_total", "Feeds that were broken and read after a repair."),
            slow_parses: factory.counter("slow_parses_total", "Bodies whose parsing took longer than 2 s."),
            bytes: factory.counters("bytes_total", "Body bytes, as received (wire) and decoded (body).", &["kind"]),
            deferred: factory.counter(
                "deferred_total",
                "Jobs postponed for any reason, such as the host's limits, a closed gate or a missing key.",
            ),
            unreadable_credentials: factory.counter(
                "unreadable_credentials_total",
                "Jobs returned without a request because this worker lacks the key to the feed's login.",
            ),
            in_flight: factory.gauge("in_flight", "Requests in flight in this process."),
            lag: factory.lag(),
            feeds: factory.gauges("feeds", "Feeds in the store by category and status.", &["category", "status"]),
            penalised_feeds: factory.gauges("penalised_feeds", "Feeds in the penalty box by kind of failure.", &["kind"]),
            due_feeds: factory.gauge("due_feeds", "Feeds whose scheduled time has passed."),
            parked_feeds: factory.gauge("parked_feeds", "Feeds that wait for a busy host."),
            parks: factory.counters(
                "parks_total",
                "Feeds that had to wait for a busy host: when due (first), when their turn had come (again), or after a redirect to it (redirect).",
                &["kind"],
            ),
            unparks: factory.counter("unparks_total", "Feeds that waited for a busy host and whose turn came."),
            oldest_due: factory.oldest_due(),
            queue_depth: factory.gauges("queue_depth", "Items waiting in or unacknowledged by a queue; messages in its dead letters (QUEUE.dead).", &["queue"]),
            dead_letters: factory.counters("dead_letters_total", "Messages put aside for good.", &["queue"]),
            too_new: factory.counters(
                "too_new_messages_total",
                "Messages of a newer version that were returned to the queue.",
                &["queue"],
            ),
            decisions: factory.counters(
                "decisions_total",
                "Decisions by the rules that moved the due time; one counts under each of its rules.",
                &["reason"],
            ),
            stale_reports: factory
                .counter("stale_reports_total", "Reports of an outdated version, which changed nothing."),
            refused_reports: factory.counters(
                "refused_reports_total",
                "Reports dropped because they answer no job of this fleet: forged ones, or those of an earlier version's workers.",
                &["reason"],
            ),
            unsigned_reports: factory.counter(
                "unsigned_reports_total",
                "Reports without a signature that were accepted because the fleet was upgraded a short time ago.",
            ),
            redirected_holds: factory.counter(
                "redirected_holds_total",
                "Holds that workers reported for a host after another host's feed redirected there.",
            ),
            unreadable_feeds: factory.counter(
                "unreadable_feeds_total",
                "Claims of feeds whose rows in the store this program cannot read; they are not polled.",
            ),
            rejected_tokens: factory
                .counter("rejected_tokens_total", "Requests to API and pages with a missing or wrong token."),
            leases_expired: factory
                .counter("leases_expired_total", "Feeds claimed again after a lease without a report."),
            over_quota: factory.counters(
                "over_quota_total",
                "Entries left out by quotas of their number (entries) and size (bytes), and old rows that made room (rows).",
                &["kind"],
            ),
            entries: factory.counter("entries_total", "Entries stored that were not stored before."),
            hosts_held: factory.gauge("hosts_held", "Hosts on hold because their servers asked for it."),
            relay_lag: factory.level(
                "relay_lag_seconds",
                "Age of the oldest event that is not yet published to the exchange, in seconds. 0 in schedulers that do not publish.",
            ),
            deliveries: factory.counters(
                "deliveries_total",
                "Requests to the targets of subscriptions by outcome.",
                &["outcome"],
            ),
            delivery_lag: factory.delivery_lag(),
            subscriptions: factory.gauges(
                "subscriptions",
                "Subscriptions by kind and state; failing: active, but the last request failed.",
                &["kind", "state"],
            ),
            push_subscriptions: factory.gauges(
                "push_subscriptions",
                "Subscriptions with hubs and clouds by kind and state.",
                &["kind", "state"],
            ),
            sla_unmet: factory.gauge("sla_unmet", "Feeds under an SLA that cannot be kept."),
            overflowed: factory.counter(
                "overflowed_total",
                "Documents without any known entry: the feed may have posted more than a document holds.",
            ),
            archive_pages: factory.counters(
                "archive_pages_total",
                "Pages of older entries that were requested, read or failed.",
                &["outcome"],
            ),
            silent_feeds: factory
                .gauge("silent_feeds", "Feeds that have not posted for far longer than they usually pause."),
            complete_ratio: factory.level(
                "complete_ratio",
                "Share of the polled feeds that were read and of which no entry can have been missed.",
            ),
            poll_price: factory.level(
                "poll_price",
                "What a poll has to be worth in adaptive mode, in subscriber-hours of expected waiting.",
            ),
            demand: factory.level("demand_per_second", "Polls a second that the feeds want at the present price."),
            our_fault: factory
                .gauge("our_fault", "1 while most hosts fail because of our own network: nobody is penalised."),
            hosts_refusing: factory
                .gauge("hosts_refusing", "Hosts that answer most of their feeds with 403, 451 or a page against robots."),
            paused: factory.gauge("paused", "1 while all polling is paused by a person."),
            config_hash: factory.gauges(
                "config_hash",
                "Always 1; the label is a hash of the keys by which a scheduler decides: the same in all of a fleet.",
                &["hash"],
            ),
            policy_version: factory
                .gauge("policy_version", "Version of the policy and host rules in force: the same in all of a fleet."),
            config_reload_successful: factory.gauge(
                "config_last_reload_successful",
                "0 if the configuration was refused when it was last read again: the one before is in force.",
            ),
            config_reloaded_at: factory.level(
                "config_last_reload_success_timestamp_seconds",
                "When the configuration was last read again and accepted; 0 if not since the start.",
            ),
            queue_blocked: factory.gauge(
                "queue_blocked",
                "Connections on which RabbitMQ accepts no messages: a memory or disk alarm of any of its nodes.",
            ),
            gate_open: factory.gauge("gate_open", "1 while the host gate lets requests start, as a scheduler sees it."),
            watchdog: factory.gauge(
                "watchdog",
                "1 while feeds have been due for several leases and no poll has ended, for no known reason; /healthz fails.",
            ),
            ready: factory.gauges(
                "ready",
                "1 while the process can do its work (/readyz): its servers answer, and its clock agrees with theirs.",
                &["role"],
            ),
            relay_turn: factory.gauge(
                "relay_turn",
                "1 in the scheduler that publishes events to the exchange, and in a fleet without an exchange.",
            ),
            timeline_unreadable: factory.gauge(
                "timeline_unreadable",
                "1 while a scheduler may not read PostgreSQL's timeline: a promotion would not be noticed and would begin no epoch.",
            ),
            pruned_at: factory.level(
                "last_prune_timestamp_seconds",
                "When a scheduler last deleted what is older than its retention, or when it started.",
            ),
            polls_limit: factory
                .level("polls_limit_per_second", "policy.polls_per_second, the limit of the whole fleet; 0 for no limit."),
            registry: factory.0.clone(),
        }
    }

    /// Makes series exist from the start, at zero. Not those of subscriptions: zero before the first count would be taken for a change.
    fn touch_labels(&self) {
        for outcome in OutcomeKind::ALL.iter().filter(|outcome| **outcome != OutcomeKind::Deferred) {
            self.polls.with_label_values(&[outcome.as_str()]);
        }
        for kind in FailureKind::ALL {
            self.failures.with_label_values(&[kind.as_str()]);
            self.penalised_feeds.with_label_values(&[kind.as_str()]);
        }
        for blocker in Blocker::ALL {
            self.blocked.with_label_values(&[blocker.as_str()]);
        }
        for reason in MacError::ALL {
            self.refused_reports.with_label_values(&[reason.as_str()]);
        }
        for category in Category::ALL {
            self.lag.with_label_values(&[category.as_str()]);
            for status in Status::ALL {
                self.feeds.with_label_values(&[category.as_str(), status.as_str()]);
            }
        }
        for rule in Rule::ALL {
            self.decisions.with_label_values(&[rule.as_str()]);
        }
        for outcome in ["read", "failed"] {
            self.archive_pages.with_label_values(&[outcome]);
        }
        for kind in PUSH_KINDS {
            self.pushes.with_label_values(&[kind]);
        }
        for kind in ["first", "again", "redirect"] {
            self.parks.with_label_values(&[kind]);
        }
        for kind in ["wire", "body"] {
            self.bytes.with_label_values(&[kind]);
        }
        for kind in ["entries", "bytes", "rows"] {
            self.over_quota.with_label_values(&[kind]);
        }
        for band in ["urgent", "prompt", "steady", "patient"] {
            self.oldest_due.with_label_values(&[band]);
        }
        for outcome in DeliveryOutcome::ALL {
            self.deliveries.with_label_values(&[outcome.as_str()]);
        }
        for kind in PushKind::ALL {
            for state in PushState::ALL {
                self.push_subscriptions.with_label_values(&[kind.as_str(), state.as_str()]);
            }
        }
        for queue in ["jobs", "reports", "jobs.dead", "reports.dead"] {
            self.queue_depth.with_label_values(&[queue]);
        }
        for queue in ["jobs", "reports"] {
            self.dead_letters.with_label_values(&[queue]);
            self.too_new.with_label_values(&[queue]);
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
        self.unconditional.inc_by(u64::from(!report.conditional));
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

    fn oldest_due(&self) -> GaugeVec {
        let help = "Seconds since the oldest passed due time of a band; 0 when none has passed.";
        self.add(GaugeVec::new(Self::options("oldest_due_seconds", help), &["band"]))
    }

    fn level(&self, name: &str, help: &str) -> Gauge {
        self.add(Gauge::with_opts(Self::options(name, help)))
    }

    fn poll_duration(&self) -> Histogram {
        let help = "From a request's start to its last byte or its failure.";
        let options = HistogramOpts::new("feedfleet_poll_duration_seconds", help).buckets(POLL_SECONDS.to_vec());
        self.add(Histogram::with_opts(options))
    }

    fn lag(&self) -> HistogramVec {
        let help = "From a feed's stored due time to its claim, by category.";
        let options = HistogramOpts::new("feedfleet_lag_seconds", help).buckets(LAG_SECONDS.to_vec());
        self.add(HistogramVec::new(options, &["category"]))
    }

    fn delivery_lag(&self) -> Histogram {
        let help = "From the commit of the oldest event of a request to a subscriber to the response that accepted it.";
        let options = HistogramOpts::new("feedfleet_delivery_lag_seconds", help).buckets(DELIVERY_SECONDS.to_vec());
        self.add(Histogram::with_opts(options))
    }

    fn build_info(&self) {
        let labels = Self::options("build_info", "Always 1; the label is the program's version.")
            .const_label("version", env!("CARGO_PKG_VERSION"));
        self.add(Gauge::with_opts(labels)).set(1.0);
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
            metrics.record_report(&report(Outcome::Modified(Box::new(document))));
        }
        let text = metrics.render();
        assert_eq!(value(&text, "feedfleet_polls_total{outcome=\"failed\"}"), 1.0);
        assert_eq!(value(&text, "feedfleet_parse_repaired_total"), 1.0);
        assert_eq!(value(&text, "feedfleet_failures_total{kind=\"dns\"}"), 1.0);
        assert_eq!(value(&text, "feedfleet_deferred_total"), 1.0);
        assert_eq!(value(&text, "feedfleet_unconditional_total"), 3.0);
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
