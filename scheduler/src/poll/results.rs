//! From report to stored state: steps 6 to 8 of a feed's life.
//!
//! Reports are taken in batches, decided, stored in one transaction, and only then is the schedule changed and the report
//! acked. Everything is safe to repeat: a report that comes twice is stale the second time. This module decides nothing
//! itself; [`common::policy::decide()`] does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::config::Config;
use common::feed::Feed;
use common::host::HostKey;
use common::host_gate::HostGate;
use common::job::Detour;
use common::live_rules::LiveRules;
use common::metrics::Metrics;
use common::outcome::FailureKind;
use common::policy::{Draw, Minutes, Policy, category, first_hold, may_be_ours, rank, spare};
use common::queue::{Delivery, Queue};
use common::report::{FetchReport, Outcome};
use common::time::{Clock, ClockWatch, Timestamp};
use common::url::FeedId;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio_util::sync::CancellationToken;

use crate::condition::load::Load;
use crate::condition::our_fault::OurFault;
use crate::condition::price::Price;
use crate::condition::storing::Storing;
use crate::condition::trouble::Trouble;
use crate::condition::worst::WorstHosts;
use crate::error::BackendError;
use crate::poll::moves::may_move;
use crate::poll::subject::subject;
use crate::schedule::{Band, Parking, Schedule, ScheduleError, Slot};
use store::{Applied, Store, StoreError, Verdict};

/// Turns reports into stored states.
pub struct Results {
    /// Where states are stored.
    pub store: Arc<dyn Store>,
    /// Where due times are kept.
    pub schedule: Arc<dyn Schedule>,
    /// Where holds are kept.
    pub gate: Arc<dyn HostGate>,
    /// Where reports come from.
    pub reports: Arc<dyn Queue<FetchReport>>,
    /// Which rules a host has.
    pub rules: Arc<LiveRules>,
    /// The numbers.
    pub config: Arc<Config>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Told when reports cannot be stored.
    pub storing: Arc<Storing>,
    /// How loaded the fleet is.
    pub load: Arc<Load>,
    /// What a poll costs.
    pub price: Arc<Price>,
    /// Told of every answer; asked whether failures are the feeds'.
    pub our_fault: Arc<OurFault>,
    /// Where what hosts in trouble do is noted.
    pub worst: Arc<WorstHosts>,
    /// Random numbers for decisions; a simulation has seeded ones.
    pub draw: Box<dyn Fn() -> Draw + Send + Sync>,
    /// How full the coming minutes are.
    pub minutes: Mutex<Minutes>,
    /// Nothing is settled while our clock is off: due times would be wrong in the store.
    pub watch: ClockWatch,
}

/// Reports settled in one transaction, at most.
const BATCH: usize = 500;
/// Failures in a row that are no accident any more.
const LASTING: u32 = 2;
/// Transactions at once.
const AT_ONCE: usize = 4;
/// How long to wait before reports that could not be settled are tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Deliveries that will be settled together.
#[derive(Default)]
struct Gathered {
    deliveries: Vec<Delivery<FetchReport>>,
    reports: usize,
}

impl Gathered {
    fn take(&mut self, delivery: Delivery<FetchReport>) {
        self.reports += delivery.items.len();
        self.deliveries.push(delivery);
    }

    fn is_full(&self) -> bool {
        self.reports >= BATCH
    }
}

impl Results {
    /// Settles reports until stopped. A batch is begun when none is under way, or when it is full: then several are settled
    /// at once, each a row of round trips to the database.
    pub async fn run(&self, clock: &dyn Clock, stop: &CancellationToken) {
        let mut settling = FuturesUnordered::new();
        let mut gathered = Gathered::default();
        let mut failures = 0;
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => {}
                Some(settled) = settling.next() => self.note(settled, &mut failures, stop).await,
                received = self.reports.receive(), if !gathered.is_full() => match received {
                    Ok(first) => self.gather(first, &mut gathered),
                    Err(error) => self.note(Err(error.into()), &mut failures, stop).await,
                },
            }
            let begin = settling.is_empty() || gathered.is_full() && settling.len() < AT_ONCE;
            if !begin || gathered.deliveries.is_empty() {
                continue;
            }
            let deliveries = std::mem::take(&mut gathered).deliveries;
            match self.time(clock).await {
                Ok(now) => settling.push(self.settle_deliveries(deliveries, now)),
                Err(_) => {
                    drop(deliveries);
                    while let Some(settled) = settling.next().await {
                        self.note(settled, &mut failures, stop).await;
                    }
                    self.stand_aside(clock, stop).await;
                }
            }
        }
        while let Some(settled) = settling.next().await {
            self.note(settled, &mut failures, stop).await;
        }
    }

    /// The time, once the schedule answers and its clock agrees with ours.
    async fn time(&self, clock: &dyn Clock) -> Result<Timestamp, ScheduleError> {
        let now = clock.now();
        self.watch.agree(now, self.schedule.check(now)).await.map(|()| now)
    }

    /// Waits until the schedule answers and its clock agrees with ours. Meanwhile other schedulers get the reports.
    async fn stand_aside(&self, clock: &dyn Clock, stop: &CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => return,
            () = self.reports.pause() => {}
        }
        let mut keeping_time = Trouble::with("settling reports");
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(RETRY) => {}
            }
            if keeping_time.note(self.time(clock).await).is_some() {
                return;
            }
        }
    }

    /// Remembers whether reports can be stored; waits a little when they cannot.
    async fn note(&self, settled: Result<(), BackendError>, failures: &mut u32, stop: &CancellationToken) {
        let Err(error) = settled else {
            *failures = 0;
            return self.recover().await;
        };
        *failures += 1;
        // A connection that broke is one failure; its reports are in the queue again.
        if *failures < LASTING {
            tracing::debug!(error = &error as &dyn std::error::Error, "reports are tried again");
            return;
        }
        if self.storing.works() {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "reports cannot be stored; they wait in the queue");
        }
        self.storing.failed(error.to_string());
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(RETRY) => {}
        }
    }

    /// More may be claimed once every report that waited is stored: until then leases may have ended of feeds that were
    /// fetched long ago.
    async fn recover(&self) {
        if !self.storing.works() && self.reports.depth().await.is_ok_and(|depth| depth.items == 0) {
            self.storing.recovered();
            tracing::info!("reports are stored again");
        }
    }

    /// Takes a delivery, and what else has arrived already.
    fn gather(&self, first: Delivery<FetchReport>, gathered: &mut Gathered) {
        gathered.take(first);
        while !gathered.is_full()
            && let Some(Ok(next)) = self.reports.receive().now_or_never()
        {
            gathered.take(next);
        }
    }

    /// Settles deliveries together and acks them.
    async fn settle_deliveries(
        &self,
        deliveries: Vec<Delivery<FetchReport>>,
        now: Timestamp,
    ) -> Result<(), BackendError> {
        let (mut reports, mut receipts) = (Vec::new(), Vec::new());
        for delivery in deliveries {
            let (items, receipt) = delivery.into_parts();
            reports.extend(items);
            receipts.push(receipt);
        }
        self.hold_hosts(&reports, now).await?;
        // A gate that lost its memory opens after a fetch's time: what was received before the loss is stored, and loaded
        // from there, or is back in the queue by then.
        let in_hand = self.config.fetch.deadline();
        let settled = tokio::time::timeout(in_hand, self.settle(reports, now)).await;
        settled.map_err(|_| BackendError::TooSlow(in_hand))??;
        for receipt in receipts {
            receipt.ack().await?;
        }
        Ok(())
    }

    /// What servers asked for holds from here on, also when the gate lost it since the worker put it there.
    async fn hold_hosts(&self, reports: &[FetchReport], now: Timestamp) -> Result<(), BackendError> {
        for report in reports {
            if let Some(retry_after) = report.outcome.rest() {
                let until = first_hold(retry_after, report.started.after(report.duration), &self.config.policy);
                self.gate.hold(report.answering_host(), until, now).await?;
            }
        }
        Ok(())
    }

    /// Decides, stores and reschedules. Safe to repeat with the same reports.
    pub async fn settle(&self, reports: Vec<FetchReport>, now: Timestamp) -> Result<(), BackendError> {
        let ids: Vec<FeedId> = reports.iter().map(|report| report.feed).collect();
        let feeds: HashMap<FeedId, Feed> =
            self.store.states_for(&ids).await?.into_iter().map(|feed| (feed.id, feed)).collect();
        let (mut verdicts, mut slots, mut interrupted) = (Vec::new(), Vec::new(), Vec::new());
        let asked: HashMap<HostKey, Timestamp> = reports.iter().flat_map(hosts_asked).collect();
        let told = reports.iter().filter_map(|report| {
            let feed = feeds.get(&report.feed)?;
            (feed.version == report.version).then_some((feed, report))
        });
        self.our_fault.observe(told, now);
        self.metrics.our_fault.set(i64::from(self.our_fault.since().is_some()));
        for report in reports {
            let Some(feed) = feeds.get(&report.feed) else { continue };
            if report.version != feed.version {
                self.metrics.stale_reports.inc();
                continue;
            }
            match report.outcome {
                Outcome::Deferred { until } => {
                    self.metrics.record_report(&report);
                    match report.detour {
                        Some(detour) => interrupted.push((feed, detour, until)),
                        None => slots.push(Slot { feed: feed.id, due_at: until, band: self.band(feed) }),
                    }
                }
                _ => {
                    tell_of_a_new_feed_that_fails(feed, &report);
                    verdicts.push(self.judge(feed, report, now));
                }
            }
        }
        self.schedule.put(&slots, now).await?;
        self.park_on_the_way(interrupted).await?;
        self.store_verdicts(verdicts, &feeds, now).await?;
        // Whatever became of a report, its hosts are free again, a gap after the request's start.
        let rules = self.rules.get();
        let free = asked.into_iter().map(|(host, started)| {
            let gap = rules.limits_of(&host).gap;
            (host, started.after(gap))
        });
        self.schedule.unpark(&free.collect::<Vec<_>>()).await?;
        Ok(())
    }

    /// Lets feeds whose redirects led to a busy host wait there, like that host's own feeds: in its set, by their rank, woken
    /// by its head. Nobody waits for a host anywhere else.
    async fn park_on_the_way(&self, interrupted: Vec<(&Feed, Detour, Timestamp)>) -> Result<(), BackendError> {
        if interrupted.is_empty() {
            return Ok(());
        }
        let rules = self.rules.get();
        let parking = |(feed, detour, until): &(&Feed, Detour, Timestamp)| {
            let due = feed.due().unwrap_or(*until);
            Parking {
                feed: feed.id,
                host: rules.for_url(detour.next.as_url()).key,
                until: *until,
                band: self.band(feed),
                rank: rank(due, f64::from(feed.audience.subscribers)),
            }
        };
        let parkings: Vec<Parking> = interrupted.iter().map(parking).collect();
        let kept: Vec<_> = interrupted.into_iter().map(|(feed, detour, _)| (feed.id, feed.version, detour)).collect();
        // First, so that whoever claims them next knows where they go on.
        self.store.keep_detours(&kept).await?;
        self.metrics.parks.with_label_values(&["redirect"]).inc_by(parkings.len() as u64);
        Ok(self.schedule.park(&parkings).await?)
    }

    fn judge(&self, feed: &Feed, mut report: FetchReport, now: Timestamp) -> Verdict {
        let rules = self.rules.get();
        // A fetch that went on where an earlier one was interrupted was charged to the host there; the feed is its own host's.
        let own = rules.for_url(feed.url.as_url()).key;
        if own != report.host {
            let charged = std::mem::replace(&mut report.host, own);
            report.answered_by.get_or_insert(charged);
            report.answered_by = report.answered_by.filter(|host| *host != report.host);
        }
        let subject = subject(&rules, feed);
        report.moved_to = report.moved_to.filter(|to| may_move(&subject, feed, to));
        let policy = Policy { config: &self.config.policy, load: self.load.get(), price: self.price.get() };
        if self.our_fault.since().is_some() && report.outcome.failure().is_some_and(may_be_ours) {
            let decision = spare(&subject, now, (self.draw)(), &policy);
            return Verdict { report, decision, category: category(&subject) };
        }
        let draws = [(self.draw)(), (self.draw)()];
        let mut minutes = self.minutes.lock().unwrap_or_else(PoisonError::into_inner);
        let decision = minutes.decide(&subject, &report, now, draws, &policy);
        drop(minutes);
        let planned = feed.next_due.zip(feed.state.last_polled).map(|(due, last)| due.since(last));
        let plans = decision.next_due.map(|due| due.since(report.started));
        if let (Some(planned), Some(plans)) = (planned, plans) {
            self.price.decided(planned, plans);
        }
        Verdict { report, decision, category: category(&subject) }
    }

    fn band(&self, feed: &Feed) -> Band {
        Band::of(category(&subject(&self.rules.get(), feed)), feed.wake_at.is_some())
    }

    /// Stores verdicts; a batch that the database refuses is halved until the row that it refuses stands alone.
    async fn store_verdicts(
        &self,
        verdicts: Vec<Verdict>,
        feeds: &HashMap<FeedId, Feed>,
        now: Timestamp,
    ) -> Result<(), BackendError> {
        let mut pending = vec![verdicts];
        while let Some(mut batch) = pending.pop() {
            if batch.is_empty() {
                continue;
            }
            match self.store.apply(&batch, self.config.scheduler.clock_skew, now).await {
                Ok(applied) => {
                    self.reschedule(&batch, &applied, now).await?;
                    self.follow_moves(&batch, &applied, feeds, now).await?;
                }
                Err(error) if error.refuses_data() && batch.len() > 1 => {
                    let rest = batch.split_off(batch.len() / 2);
                    pending.extend([rest, batch]);
                }
                Err(error) if error.refuses_data() => {
                    pending.extend(batch.pop().and_then(|verdict| self.refused(verdict, &error, feeds, now)));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// A report that the database will not take counts as a malformed feed. If that is refused as well, the feed's lease
    /// brings it back.
    fn refused(
        &self,
        verdict: Verdict,
        error: &StoreError,
        feeds: &HashMap<FeedId, Feed>,
        now: Timestamp,
    ) -> Option<Vec<Verdict>> {
        let report = verdict.report;
        tracing::error!(feed = %report.feed, error = error as &dyn std::error::Error, "the store refused a report");
        if report.outcome.failure().is_some() {
            return None;
        }
        let detail = "the store refused what this feed brought".to_owned();
        let outcome = Outcome::Failed { failure: FailureKind::Malformed, detail };
        let feed = feeds.get(&report.feed)?;
        Some(vec![self.judge(feed, FetchReport { outcome, ..report }, now)])
    }

    /// Moves the feeds in the schedule, holds and frees the hosts.
    async fn reschedule(&self, verdicts: &[Verdict], applied: &[Applied], now: Timestamp) -> Result<(), BackendError> {
        let (mut slots, mut dead) = (Vec::new(), Vec::new());
        for (verdict, applied) in verdicts.iter().zip(applied) {
            let report = &verdict.report;
            match applied {
                Applied::Stale => self.metrics.stale_reports.inc(),
                Applied::Stored { due, wake, new_entries, host_hold, .. } => {
                    self.metrics.record_report(report);
                    self.worst.observe(report, now);
                    self.metrics.record_decision(verdict.decision.terms.iter().map(|term| term.rule));
                    self.metrics.entries.inc_by(u64::from(*new_entries));
                    match due {
                        Some(due_at) => slots.push(Slot {
                            feed: report.feed,
                            due_at: *due_at,
                            band: Band::of(verdict.category, *wake),
                        }),
                        None => dead.push(report.feed),
                    }
                    if let Some(until) = host_hold {
                        self.gate.hold(report.answering_host(), *until, now).await?;
                    }
                }
            }
        }
        self.schedule.put(&slots, now).await?;
        self.schedule.remove(&dead).await?;
        Ok(())
    }
}

/// The hosts that a report speaks of, each with the time of its request.
fn hosts_asked(report: &FetchReport) -> impl Iterator<Item = (HostKey, Timestamp)> {
    [Some(&report.host), report.answered_by.as_ref()].into_iter().flatten().map(|host| (host.clone(), report.started))
}

/// Whoever just added a feed should not have to look for the reason why nothing comes.
fn tell_of_a_new_feed_that_fails(feed: &Feed, report: &FetchReport) {
    let new = feed.state.last_success.is_none() && feed.state.consecutive_failures == 0;
    if let (true, Outcome::Failed { failure, detail }) = (new, &report.outcome) {
        tracing::warn!(feed = %feed.id, url = %feed.url, %failure, detail, "a new feed cannot be read");
    }
}
