//! Regular work: updates gauges, deletes old events and entries.

use std::sync::Arc;
use std::time::Duration;

use common::config::{Config, RetentionConfig};
use common::host_gate::HostGate;
use common::job::FetchJob;
use common::metrics::Metrics;
use common::outcome::FailureKind;
use common::policy::{Category, Status};
use common::queue::Queue;
use common::report::FetchReport;
use common::secrets::Keyring;
use common::time::{Clock, Timestamp, compared};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::condition::Condition;
use crate::condition::failure_log::FailureLog;
use crate::error::BackendError;
use crate::schedule::{Band, Schedule};
use crate::upkeep::reseal::Resealing;
use store::{Store, StoreStats};

/// Keeps gauges and retention.
pub(crate) struct Maintainer {
    /// Counted and pruned.
    pub(crate) store: Arc<dyn Store>,
    /// Measured.
    pub(crate) schedule: Arc<dyn Schedule>,
    /// Measured.
    pub(crate) gate: Arc<dyn HostGate>,
    /// Measured.
    pub(crate) jobs: Arc<dyn Queue<FetchJob>>,
    /// Measured.
    pub(crate) reports: Arc<dyn Queue<FetchReport>>,
    /// The numbers.
    pub(crate) config: Arc<Config>,
    /// What is set.
    pub(crate) metrics: Arc<Metrics>,
    /// Measured and corrected.
    pub(crate) condition: Arc<Condition>,
    /// Logins are sealed again under its key in force.
    pub(crate) secrets: Arc<Keyring>,
}

/// Between two looks at depths: cheap.
const DEPTHS_EVERY: Duration = Duration::from_secs(5);
/// Between two looks at the store's counters.
const COUNTS_EVERY: Duration = Duration::from_secs(60);
/// Between two corrections of the price.
const PRICE_EVERY: Duration = Duration::from_secs(60);
/// Between two searches for logins of an old key.
const RESEAL_EVERY: Duration = Duration::from_secs(60);
/// Between two prunings, at most.
const PRUNE_EVERY: Duration = Duration::from_secs(600);
/// The share of a retention that may pass between two: something may be kept longer than configured by this share.
const PRUNE_SHARE: u32 = 10;
/// How long a page stays whose feed was known before it was added: until then its number shows the caller that added it
/// what became of it, and its move can be taken back.
const PAGES_KEPT: Duration = Duration::from_secs(3_600);
/// Between two prunings, at least.
const PRUNE_PAUSE: Duration = Duration::from_millis(100);

impl Maintainer {
    /// Runs until stopped. What fails is tried again at its next turn.
    pub(crate) async fn run(&self, clock: &dyn Clock, stop: &CancellationToken) {
        let [mut counted, mut priced, mut pruned, mut resealed] = [Timestamp::EPOCH; 4];
        let prune_every = prune_every(&self.config.retention);
        let mut measuring = FailureLog::new("measuring queue, schedule and gate");
        let mut folding = FailureLog::new("adding up the store's counters");
        let mut counting = FailureLog::new("counting the store");
        let mut pricing = FailureLog::new("correcting the price of a poll");
        let mut sealing = FailureLog::new("sealing credentials with the new key");
        let mut resealing = Resealing::default();
        let mut pruning = FailureLog::new("deleting what is older than its retention");
        self.metrics.pruned_at.set(clock.now().millis() as f64 / 1000.0);
        while !stop.is_cancelled() {
            let now = clock.now();
            measuring.note(self.depths(clock).await);
            folding.note(self.store.fold_counts().await.map_err(BackendError::from));
            if now.is_time_again(counted, COUNTS_EVERY) {
                counted = now;
                counting.note(self.counts(now).await);
            }
            if now.is_time_again(priced, PRICE_EVERY) {
                priced = now;
                pricing.note(self.correct_price(clock).await);
            }
            if now.is_time_again(resealed, RESEAL_EVERY) {
                resealed = now;
                sealing.note(resealing.round(&*self.store, &self.secrets).await.map_err(BackendError::from));
            }
            if now.is_time_again(pruned, prune_every) {
                let outcome = self.prune(clock, stop).await;
                // What takes longer continues after the others had their turn.
                if !matches!(outcome, Ok(Pruned::Partly)) {
                    pruned = now;
                }
                pruning.note(outcome.map(drop));
            }
            stop.run_until_cancelled(tokio::time::sleep(DEPTHS_EVERY.min(prune_every))).await;
        }
    }

    async fn depths(&self, clock: &dyn Clock) -> Result<(), BackendError> {
        let gauge = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        let now = compared(clock, || self.schedule.check(clock)).await?;
        let depth = self.schedule.depth(now).await?;
        self.metrics.due_feeds.set(gauge(depth.due));
        self.metrics.parked_feeds.set(gauge(depth.parked));
        for (band, oldest) in Band::ALL.into_iter().zip(depth.oldest) {
            let age = oldest.map_or(0.0, |oldest| now.since(oldest).as_secs_f64());
            self.metrics.oldest_due.with_label_values(&[band.as_str()]).set(age);
        }
        let lag = depth.oldest.into_iter().flatten().min().map_or(Duration::ZERO, |oldest| now.since(oldest));
        let (jobs, reports) = (self.jobs.depth().await?, self.reports.depth().await?);
        let most = self.config.scheduler.max_queued_jobs;
        self.condition.load.observe(lag, jobs.taken(most) as f64 / most as f64);
        self.metrics.hosts_held.set(gauge(self.gate.held(now).await?));
        let depths = [
            ("jobs", jobs.items),
            ("reports", reports.items),
            ("jobs.dead", jobs.dead),
            ("reports.dead", reports.dead),
        ];
        for (queue, items) in depths {
            self.metrics.queue_depth.with_label_values(&[queue]).set(gauge(items));
        }
        Ok(())
    }

    async fn counts(&self, now: Timestamp) -> Result<(), BackendError> {
        show(&self.metrics, &self.store.stats(now).await?);
        let config = self.condition.config.get();
        let a = &config.policy.category.a;
        let longest = a.promise.saturating_sub(a.fetch_allowance);
        self.metrics.sla_unmet.set(gauge(self.store.sla_unmet(longest).await?));
        self.metrics.paused.set(i64::from(self.store.paused().await?));
        Ok(())
    }

    async fn correct_price(&self, clock: &dyn Clock) -> Result<(), BackendError> {
        let (config, price) = (self.condition.config.get(), &self.condition.price);
        // Probes of our own network, and refreshes during a pause, are not all that the fleet can do.
        if self.condition.our_fault.since().is_some() || self.store.paused().await? {
            price.rest(&*self.store, &config).await?;
        } else {
            let now = compared(clock, || self.schedule.check(clock)).await?;
            let depth = self.schedule.depth(now).await?;
            let backlog = depth.due.saturating_sub(depth.parked);
            price.correct(&*self.store, &*self.schedule, backlog, now, &config).await?;
        }
        self.metrics.poll_price.set(price.get());
        self.metrics.demand.set(price.demand());
        self.metrics.polls_limit.set(config.policy.polls_per_second);
        Ok(())
    }

    async fn prune(&self, clock: &dyn Clock, stop: &CancellationToken) -> Result<Pruned, BackendError> {
        // What is old by a clock that is off may be of today.
        let now = compared(clock, || self.schedule.check(clock)).await?;
        let retention = &self.config.retention;
        let entries = (!retention.entries.is_zero()).then(|| now.before(retention.entries));
        let mut gone = 0;
        let turn_ends = Instant::now() + PRUNE_TURN;
        let goes_on = || !stop.is_cancelled() && Instant::now() < turn_ends;
        // A call deletes a bounded number, so that others can write in between.
        while goes_on() {
            match self.store.prune(now.before(retention.events), entries).await? {
                0 => break,
                some => gone += some,
            }
        }
        // Audit lines are deleted too: an audit that is kept for ever is not read.
        while goes_on() {
            match self.store.prune_audit(now.before(retention.audit)).await? {
                0 => break,
                some => gone += some,
            }
        }
        while goes_on() {
            match self.store.erase_pages(now.before(PAGES_KEPT), now).await? {
                0 => break,
                some => gone += some,
            }
        }
        tracing::debug!(gone, "old rows deleted");
        if !goes_on() {
            return Ok(Pruned::Partly);
        }
        self.metrics.pruned_at.set(now.millis() as f64 / 1000.0);
        Ok(Pruned::Wholly)
    }
}

/// How long pruning may take before the other work has its turn.
const PRUNE_TURN: Duration = Duration::from_secs(20);

/// Whether everything was deleted that is older than its retention.
enum Pruned {
    Wholly,
    Partly,
}

/// Sets the metrics that show the store's numbers.
fn show(metrics: &Metrics, stats: &StoreStats) {
    for category in Category::ALL {
        for status in Status::ALL {
            let of_both = |found: &&(Category, Status, u64)| (found.0, found.1) == (category, status);
            let count = stats.feeds.iter().find(of_both).map_or(0, |found| found.2);
            metrics.feeds.with_label_values(&[category.as_str(), status.as_str()]).set(gauge(count));
        }
    }
    for kind in FailureKind::ALL {
        let count = stats.penalised.iter().find(|found| found.0 == kind).map_or(0, |found| found.1);
        metrics.penalised_feeds.with_label_values(&[kind.as_str()]).set(gauge(count));
    }
    metrics.complete_ratio.set(stats.complete_ratio());
    metrics.silent_feeds.set(gauge(stats.silent));
    metrics.timeline_unreadable.set(i64::from(stats.timeline_unreadable.is_some()));
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn prune_every(retention: &RetentionConfig) -> Duration {
    let kept = [retention.events, retention.entries, retention.audit].into_iter().filter(|kept| !kept.is_zero()).min();
    kept.map_or(PRUNE_EVERY, |kept| (kept / PRUNE_SHARE).clamp(PRUNE_PAUSE, PRUNE_EVERY))
}

#[cfg(test)]
mod tests {
    use common::host::HostKey;

    use common::report::Outcome;
    use common::time::ManualClock;
    use common::url::{FeedId, Version};
    use store::FeedRef;
    use store::sqlite::SqliteStore;

    use super::*;
    use crate::ops::{AddFeed, Ops};
    use crate::run::{Backends, Scheduler};
    use crate::schedule::Slot;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Returns the maintainer of a scheduler without loops, and its operations.
    async fn maintainer(clock: &Arc<ManualClock>) -> (Maintainer, Arc<Ops>) {
        let backends = Backends::in_memory(Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap()));
        let config = Arc::new(common::config::defaults());
        let clock: Arc<dyn Clock> = clock.clone();
        let Scheduler { ops, .. } = Scheduler::new(&backends, &config, &Arc::new(Metrics::new()), &clock);
        let Backends { store, schedule, gate, jobs, reports } = backends;
        let (metrics, condition, secrets) = (ops.metrics.clone(), ops.condition.clone(), ops.secrets.clone());
        (Maintainer { store, schedule, gate, jobs, reports, config, metrics, condition, secrets }, ops)
    }

    /// Has three hosts fail that were well.
    async fn fail_three_hosts(ops: &Ops, now: Timestamp) {
        let added = AddFeed::of("http://a.example/feed".parse().unwrap());
        let id = ops.add(&[added], None).await.unwrap()[0].id;
        let mut feed = ops.feed(&FeedRef::Id(id)).await.unwrap().unwrap();
        feed.state.last_success = Some(now);
        let reports = ["a", "b", "c"].map(|name| {
            let outcome = Outcome::Failed { failure: FailureKind::Connect, detail: String::new() };
            FetchReport::of(id, Version(1), HostKey::new(&format!("{name}.example:80")), now, outcome)
        });
        ops.condition.our_fault.observe(reports.iter().map(|report| (&feed, report)), now);
        assert!(ops.condition.our_fault.since().is_some());
    }

    /// Has feeds become due, 3,000 a minute, while one is polled each second; returns the price after each minute.
    async fn prices_of_half_an_hour(maintainer: &Maintainer, clock: &ManualClock) -> Vec<f64> {
        let mut prices = Vec::new();
        for minute in 0..30 {
            let now = clock.advance(MINUTE);
            let due = (0..3000).map(|number| FeedId(1_000 + minute * 3000 + number));
            let slots: Vec<Slot> = due.map(|feed| Slot { feed, due_at: now, band: Band::Steady }).collect();
            maintainer.schedule.put(&slots, now).await.unwrap();
            maintainer.condition.price.dispatched(60, 60);
            maintainer.correct_price(clock).await.unwrap();
            prices.push(maintainer.condition.price.get());
        }
        prices
    }

    #[tokio::test]
    async fn neither_a_fault_of_our_own_network_nor_a_pause_makes_polls_dear() {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
        let (failing, ops) = maintainer(&clock).await;
        fail_three_hosts(&ops, clock.now()).await;
        let (paused, ops) = maintainer(&clock).await;
        ops.set_paused(true).await.unwrap();
        let (working, _) = maintainer(&clock).await;
        let configured = working.config.policy.price;
        assert_eq!(prices_of_half_an_hour(&failing, &clock).await, [configured; 30]);
        assert_eq!(prices_of_half_an_hour(&paused, &clock).await, [configured; 30]);
        let dear = prices_of_half_an_hour(&working, &clock).await;
        assert!(dear[29] > 10.0 * configured, "the same of a fleet that can do no more is overload: {dear:?}");
    }

    #[test]
    fn a_timeline_that_cannot_be_read_is_shown_until_it_can() {
        let metrics = Metrics::new();
        let unreadable =
            StoreStats { timeline_unreadable: Some("permission denied".to_owned()), ..StoreStats::default() };
        for (stats, shown) in [(StoreStats::default(), 0), (unreadable, 1), (StoreStats::default(), 0)] {
            show(&metrics, &stats);
            assert_eq!(metrics.timeline_unreadable.get(), shown);
        }
    }

    #[test]
    fn nothing_is_kept_much_longer_than_configured() {
        let every = |events: u64, entries: u64| {
            let [events, entries] = [events, entries].map(Duration::from_secs);
            prune_every(&RetentionConfig { events, entries, audit: Duration::from_secs(365 * 86_400) })
        };
        assert_eq!(every(30 * 86_400, 0), PRUNE_EVERY);
        assert_eq!(every(30 * 86_400, 600), Duration::from_secs(60));
        assert_eq!(every(10, 0), Duration::from_secs(1));
        assert_eq!(every(0, 0), PRUNE_EVERY);
    }

    #[tokio::test]
    async fn a_few_jobs_in_the_queue_are_hardly_a_load() {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
        let (maintainer, _) = maintainer(&clock).await;
        assert_eq!(maintainer.config.scheduler.max_queued_jobs, 10_000);
        let jobs: Vec<FetchJob> = (0..100).map(common::queue::conformance::job).collect();
        maintainer.jobs.publish(&jobs).await.unwrap();
        maintainer.depths(&*clock).await.unwrap();
        let load = maintainer.condition.load.get();
        assert!((load - 0.002).abs() < 1e-9, "a fifth of a hundredth: {load}");
    }
}
