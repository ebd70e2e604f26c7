//! From report to stored state: steps 6 to 8 of a feed's life.
//!
//! Reports come in batches from the [intake](crate::poll::intake), are decided and stored in one transaction, and only then is
//! the schedule changed and the report acknowledged. Every step is idempotent: a report that comes twice is stale the second
//! time. This module decides nothing itself; [`common::policy::decide()`] does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use common::config::Config;
use common::feed::Feed;
use common::host::HostKey;
use common::host_gate::HostGate;
use common::job::Detour;
use common::live_rules::LiveRules;
use common::metrics::Metrics;
use common::outcome::FailureKind;
use common::policy::{
    Decision, Draw, Minutes, Notice, Policy, Status, category, first_hold, held_by_limit, host_refused, is_refusal,
    may_be_ours, may_have_arrived, rank, spare, spare_arrived,
};
use common::push::FeedPush;
use common::queue::Queue;
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;
use common::url::FeedId;

use crate::condition::Condition;
use crate::error::BackendError;
use crate::poll::archive::{self, is_page_that_ended};
use crate::poll::batch::{hosts_asked, is_document, tell_of_a_new_feed_that_fails, waiting_until};
use crate::poll::moves::{Moves, announced_instead, may_move};
use crate::poll::retire::{lower_to_wanted, retire};
use crate::poll::settling::Settling;
use crate::poll::subject::{planned_subject, ranked, subject};
use crate::poll::{archive_pages, late, log, pushed, refusals};
use crate::push::claim::claim_of_poll;
use crate::push::pace::OwnPace;
use crate::push::wish::Wishes;
use crate::schedule::{Band, Parking, Schedule, ScheduleError, Slot};
use store::{Applied, Interruption, Seen, Store, StoreError, Verdict};

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
    /// What the fleet's condition is: measured by reports, and decided by.
    pub condition: Arc<Condition>,
    /// Which push subscriptions follow from what feeds announce.
    pub wishes: Arc<Wishes>,
    /// Follows feeds that moved.
    pub moves: Moves,
    /// Random numbers for decisions; a simulation has seeded ones.
    pub draw: Box<dyn Fn() -> Draw + Send + Sync>,
    /// How full the coming minutes are.
    pub minutes: Mutex<Minutes>,
}

/// How often a verdict is decided again because a person changed its feed in the meantime.
const TRIES: u32 = 5;

impl Results {
    /// Puts the holds that servers requested on the gate, which may have lost them since the worker put them there.
    pub(crate) async fn hold_hosts(
        &self,
        reports: impl Iterator<Item = &FetchReport>,
        now: Timestamp,
    ) -> Result<(), BackendError> {
        let throttled = reports.filter_map(|report| {
            let hold = self.hold_of(report)?;
            // That a redirect led there is the worker's word: a job vouches for its own host only.
            self.metrics.redirected_holds.inc_by(u64::from(report.answered_by.is_some()));
            Some(hold)
        });
        Ok(self.gate.hold(&throttled.collect::<Vec<_>>(), now).await?)
    }

    fn hold_of(&self, report: &FetchReport) -> Option<(HostKey, Timestamp)> {
        let finished = report.started.after(report.duration);
        let throttled = self.condition.config.get().policy.penalty.throttled;
        Some((report.answering_host().clone(), first_hold(report.host_rest()?, finished, throttled)))
    }

    /// Returns the hold that a report requests, with its feed: kept in the store where nothing else of the report may be stored. The
    /// gate has it already, and may lose its memory.
    fn kept_hold_of(&self, report: &FetchReport) -> Option<(HostKey, Timestamp, FeedId)> {
        self.hold_of(report).map(|(host, until)| (host, until, report.feed))
    }

    async fn keep_holds(&self, holds: &[(HostKey, Timestamp, FeedId)]) -> Result<(), StoreError> {
        if holds.is_empty() { Ok(()) } else { self.store.keep_holds(holds).await }
    }

    /// Decides, stores and reschedules. Safe to repeat with the same reports. Returns those that must come again, because they wait for a
    /// part of the gate that is away: nothing of them is stored or counted.
    pub async fn settle(
        &self,
        mut reports: Vec<FetchReport>,
        now: Timestamp,
    ) -> Result<Vec<FetchReport>, BackendError> {
        if reports.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<FeedId> = reports.iter().map(|report| report.feed).collect();
        let feeds: HashMap<FeedId, Feed> =
            self.store.states_for(&ids).await?.into_iter().map(|feed| (feed.id, feed)).collect();
        let pushes: Vec<_> = reports.extract_if(.., |report| report.pushed).collect();
        // First, so that a poll beside them finds nothing new.
        pushed::settle(&self.settling(), pushes, &feeds, now).await?;
        let latest = late::latest_requests(&reports);
        let is_repeated =
            |report: &FetchReport| latest.get(&(report.feed, report.version)).is_some_and(|at| report.started < *at);
        let is_lost = |feed: &Feed, report: &FetchReport| self.condition.proofs.is_of_lost_history(feed, report, now);
        let is_current = |report: &FetchReport| {
            let is_of = |feed: &Feed| feed.version == report.version && !is_lost(feed, report);
            let is_answer = !matches!(report.outcome, Outcome::Deferred { .. }) && !is_repeated(report);
            is_answer && feeds.get(&report.feed).is_some_and(is_of)
        };
        let waiting = late::remember(&*self.store, &*self.gate, &self.config, (&mut reports, is_current), now).await?;
        let pages: Vec<_> = reports.extract_if(.., |report| is_page_that_ended(report)).collect();
        if !pages.is_empty() {
            let held: Vec<_> = pages.iter().filter_map(|page| self.kept_hold_of(page)).collect();
            self.keep_holds(&held).await?;
            archive_pages::settle(&self.settling(), pages, &feeds, now).await?;
        }
        let (mut verdicts, mut slots, mut proven) = (Vec::with_capacity(reports.len()), Vec::new(), HashMap::new());
        let (mut interrupted, mut kept, mut held) = (Vec::new(), Vec::new(), Vec::new());
        let asked: HashMap<HostKey, Timestamp> = reports.iter().flat_map(hosts_asked).collect();
        let current = reports.iter().filter_map(|report| {
            let feed = feeds.get(&report.feed)?;
            (feed.version == report.version).then_some((feed, report))
        });
        self.condition.our_fault.observe(current, now);
        self.metrics.our_fault.set(i64::from(self.condition.our_fault.since().is_some()));
        refusals::soften(&self.settling(), &mut reports, &feeds);
        refusals::hear(&self.settling(), &reports, &feeds, now).await?;
        for mut report in reports {
            let Some(feed) = feeds.get(&report.feed) else {
                held.extend(self.kept_hold_of(&report));
                continue;
            };
            let is_repeated = is_repeated(&report);
            if report.version != feed.version || is_repeated || is_lost(feed, &report) {
                self.metrics.stale_reports.inc();
                let slot = |due_at| Slot { feed: feed.id, due_at, band: self.band(feed) };
                if let Some(due) = late::due_after_stale(feed, &report).filter(|_| !is_repeated) {
                    let (_, latest) = proven.entry(feed.id).or_insert((feed, due));
                    *latest = due.max(*latest);
                }
                // The answer to its storing may have been lost, for instance with the database's primary. What was stored says when its feed
                // is due; without this the schedule would hide the feed until the end of its lease.
                slots.extend(feed.due().filter(|due| *due > now).map(slot));
                held.extend(self.kept_hold_of(&report));
                continue;
            }
            match report.outcome {
                Outcome::Deferred { until } => {
                    self.metrics.record_report(&report);
                    log::deferred(&report, until);
                    // A redirect may have used up the limit of its host.
                    held.extend(self.kept_hold_of(&report));
                    // A feed that waits for a host is woken when the host is free; one with a retry time waits for that
                    // time.
                    match report.detour {
                        Some(detour) if report.retry_after.is_none() => interrupted.push((feed, detour, until)),
                        detour => {
                            // The feed itself may be due before a page of its archive.
                            let own = feed.poll_due().into_iter().chain(feed.wake_at).min().filter(|_| report.page);
                            let until = own.map_or(until, |own| until.min(own.max(now)));
                            slots.push(Slot { feed: feed.id, due_at: until, band: self.band(feed) });
                            if report.retry_after.is_some() {
                                kept.push(waiting_until(feed, detour, until));
                            }
                        }
                    }
                }
                // The one try of a feed that is polled for a ping alone is not spent on our own fault.
                _ if matches!(feed.status, Status::Blacklisted | Status::Gone) && self.is_spared(&report) => {
                    held.extend(self.kept_hold_of(&report));
                    slots.push(self.tried_later(feed, now));
                }
                _ => {
                    tell_of_a_new_feed_that_fails(feed, &report);
                    self.moves.without_entries_of_another(feed, &mut report).await?;
                    verdicts.push(self.judge(feed, report, now));
                }
            }
        }
        // First, so that the next claim knows where they continue.
        if !kept.is_empty() {
            self.store.interrupt(&kept).await?;
        }
        self.keep_holds(&held).await?;
        // Before its lease ends in the schedule: it may be due at once there.
        let proven = late::store_proven(&*self.store, &proven, now).await?;
        self.put(&slots, now).await?;
        self.put_off(&proven, now).await?;
        self.park_on_the_way(interrupted).await?;
        self.store_verdicts(verdicts, &feeds, now).await?;
        // Whatever the outcome of a report, its hosts are free again, a gap after the request's start.
        let rules = self.rules.get();
        let free = asked.into_iter().map(|(host, started)| {
            let gap = rules.limits_of(&host).gap;
            (host, started.after(gap))
        });
        self.schedule.unpark(&free.collect::<Vec<_>>()).await.or_else(ScheduleError::unless_part_away)?;
        Ok(waiting)
    }

    /// Has feeds wait longer that a late report proved to have been requested already.
    pub(super) async fn put_off(&self, proven: &[Feed], now: Timestamp) -> Result<(), BackendError> {
        if proven.is_empty() {
            return Ok(());
        }
        let slots =
            proven.iter().filter_map(|feed| Some(Slot { feed: feed.id, due_at: feed.due()?, band: self.band(feed) }));
        self.schedule.put_off(&slots.collect::<Vec<_>>(), now).await.or_else(ScheduleError::unless_part_away)?;
        let ids: Vec<FeedId> = proven.iter().map(|feed| feed.id).collect();
        lower_to_wanted(&*self.store, &*self.schedule, &self.rules.get(), &ids, now).await
    }

    /// Lets feeds whose redirects led to a busy host wait there, like that host's own feeds: in its set, by their rank,
    /// woken by its head. Feeds wait for a host nowhere else.
    async fn park_on_the_way(&self, interrupted: Vec<(&Feed, Detour, Timestamp)>) -> Result<(), BackendError> {
        if interrupted.is_empty() {
            return Ok(());
        }
        let rules = self.rules.get();
        let parking = |(feed, detour, until): &(&Feed, Detour, Timestamp)| {
            let (due, band) = (feed.due().unwrap_or(*until), self.band(feed));
            Parking {
                feed: feed.id,
                host: rules.for_url(detour.next.as_url()).key,
                until: *until,
                band,
                rank: ranked(rank(due, f64::from(feed.all_subscribers())), band),
            }
        };
        let parkings: Vec<Parking> = interrupted.iter().map(parking).collect();
        let kept = interrupted.into_iter().map(|(feed, detour, _)| {
            let Feed { id: feed, version, .. } = *feed;
            Interruption { feed, version, detour: Some(detour), wait: None }
        });
        let kept: Vec<_> = kept.collect();
        // First, so that the next claim knows where they continue.
        self.store.interrupt(&kept).await?;
        self.metrics.parks.with_label_values(&["redirect"]).inc_by(parkings.len() as u64);
        Ok(self.schedule.park(&parkings).await.or_else(ScheduleError::unless_part_away)?)
    }

    /// Puts feeds whose reports are stored. Those of a part that is away stay claimed there: when their leases end, the store says
    /// that they are not due; and a part that lost them is filled from the store.
    async fn put(&self, slots: &[Slot], now: Timestamp) -> Result<(), BackendError> {
        Ok(self.schedule.put(slots, now).await.or_else(ScheduleError::unless_part_away)?)
    }

    pub(crate) fn judge(&self, feed: &Feed, mut report: FetchReport, now: Timestamp) -> Verdict {
        let rules = self.rules.get();
        // A fetch that continued where an earlier one was interrupted was charged to the host there; the feed belongs
        // to its own host.
        let own = rules.for_url(feed.url.as_url()).key;
        if own != report.host {
            let charged = std::mem::replace(&mut report.host, own);
            report.answered_by.get_or_insert(charged);
            report.answered_by = report.answered_by.filter(|host| *host != report.host);
        }
        let push = claim_of_poll(feed, report.started);
        let mut subject = planned_subject(&rules, feed, now);
        subject.soft_alike = self.condition.soft.alike(&feed.host, feed.id, now);
        report.moved_to = report.moved_to.filter(|to| may_move(&subject, feed, to));
        let config = self.condition.config.get();
        let policy =
            Policy { config: &config.policy, load: self.condition.load.get(), price: self.condition.price.get() };
        let put_off = |report, mut decision| {
            late::wait_for_second_fetch(&self.config, &report, &mut decision, now);
            Verdict {
                report,
                decision,
                category: category(&subject),
                audience_at: feed.audience_at,
                push,
                archive: feed.archive.clone(),
                seen: Some(Box::new(Seen::of(feed))),
            }
        };
        if self.is_spared(&report) {
            let arrived = report.outcome.failure().is_some_and(may_have_arrived);
            let decide = if arrived { spare_arrived } else { spare };
            let decision = decide(&subject, now, (self.draw)(), &policy);
            // The head of the response may have come.
            let decision = Decision { host_hold: held_by_limit(&report, now), ..decision };
            return put_off(report, decision);
        }
        let is_refused = is_refusal(&report, feed.state.signing) && !refusals::is_soft(subject.soft_statuses, &report);
        let refusal = self.condition.refusals.of(&report.host).filter(|_| is_refused && report.answered_by.is_none());
        if let Some(refusal) = refusal {
            let decision = host_refused(&subject, &report, refusal.until, now, (self.draw)(), &policy);
            return put_off(report, decision);
        }
        let draws = [(self.draw)(), (self.draw)()];
        let mut minutes = common::lock(&self.minutes);
        let mut decision = minutes.decide(&subject, &report, now, draws, &policy);
        drop(minutes);
        if !announced_instead(feed, &report).is_empty() {
            // The feed that the page announces takes its place at once: nothing fails for its consumers.
            decision.notices = decision.notices.without(Notice::Penalised);
        }
        let due = feed.archive.as_ref().map(|archive| archive.poll_due);
        let due = due.or_else(|| late::planned_due(&feed.terms)).or(feed.next_due);
        let planned = due.zip(feed.state.last_polled).map(|(due, last)| due.since(last));
        let plans = decision.next_due.map(|due| due.since(report.started));
        if let (Some(planned), Some(plans)) = (planned, plans) {
            self.condition.price.decided(planned, plans);
        }
        // Pages of its archive are requested before that, and say nothing of the feed's interval.
        let archive = archive::after_poll(feed, &report, &mut decision, &config.policy, now);
        late::wait_for_second_fetch(&self.config, &report, &mut decision, now);
        let seen = Some(Box::new(Seen::of(feed)));
        Verdict { report, decision, category: category(&subject), audience_at: feed.audience_at, push, archive, seen }
    }

    /// Returns whether a report is about a failure that does not count against its feed.
    fn is_spared(&self, report: &FetchReport) -> bool {
        self.condition.our_fault.since().is_some() && report.outcome.failure().is_some_and(may_be_ours)
    }

    /// Returns the place of a feed whose wake stays: once the gate has forgotten that its version was reported.
    fn tried_later(&self, feed: &Feed, now: Timestamp) -> Slot {
        let scheduler = &self.config.scheduler;
        let remembered = (scheduler.queue_lease + scheduler.fetch_lease) * 2;
        let wait = self.condition.config.get().policy.penalty.transient_first.max(remembered);
        Slot { feed: feed.id, due_at: now.after(wait), band: self.band(feed) }
    }

    fn band(&self, feed: &Feed) -> Band {
        Band::of(category(&subject(&self.rules.get(), feed)), feed.wake_at.is_some())
    }

    /// Stores verdicts; a batch that the database refuses is halved until the refused row is alone.
    pub(crate) async fn store_verdicts(
        &self,
        verdicts: Vec<Verdict>,
        feeds: &HashMap<FeedId, Feed>,
        now: Timestamp,
    ) -> Result<(), BackendError> {
        // Each with how often its feeds were decided again.
        let mut pending = vec![(verdicts, 0)];
        while let Some((mut batch, tries)) = pending.pop() {
            if batch.is_empty() {
                continue;
            }
            match self.store.apply(&batch, self.config.scheduler.clock_skew, now).await {
                Ok(applied) => {
                    log::polls(&batch, &applied, feeds);
                    self.reschedule(&batch, &applied, now).await?;
                    let again = match tries < TRIES {
                        true => self.decided_again(&batch, &applied, now).await?,
                        false => Vec::new(),
                    };
                    self.keep_holds(&self.holds_of_dropped(&batch, &applied, &again)).await?;
                    pending.push((again, tries + 1));
                    let config = self.condition.config.get();
                    let survivors = self.moves.follow(&batch, &applied, feeds, &config.policy, now).await?;
                    self.wish(&batch, &applied, feeds, now).await?;
                    self.pace().with_more_readers(&survivors, now).await?;
                }
                Err(error) if error.refuses_data() && batch.len() > 1 => {
                    let rest = batch.split_off(batch.len() / 2);
                    pending.extend([(rest, tries), (batch, tries)]);
                }
                Err(error) if error.refuses_data() => {
                    let again = batch.pop().and_then(|verdict| self.refused(verdict, &error, feeds, now));
                    pending.extend(again.map(|again| (again, tries)));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Has push subscriptions follow what documents announce.
    async fn wish(
        &self,
        verdicts: &[Verdict],
        applied: &[Applied],
        feeds: &HashMap<FeedId, Feed>,
        now: Timestamp,
    ) -> Result<(), BackendError> {
        let rules = self.rules.get();
        let stored = verdicts.iter().zip(applied).filter(|(_, applied)| matches!(applied, Applied::Stored { .. }));
        let wish =
            |(verdict, _): (&Verdict, _)| self.wishes.after(feeds.get(&verdict.report.feed)?, &verdict.report, &rules);
        let wishes: Vec<_> = stored.filter_map(wish).collect();
        if !wishes.is_empty() {
            self.store.want_pushes(&wishes, now).await?;
        }
        // Pushes that missed something, or a subscription that is left, return a feed to its old pace.
        let is_reliable = |feed: &Feed| feed.push.as_ref().is_some_and(FeedPush::is_reliable);
        if verdicts.iter().any(|verdict| feeds.get(&verdict.report.feed).is_some_and(is_reliable)) {
            self.pace().restore_owed(now).await?;
        }
        Ok(())
    }

    /// Decides again on the feeds whose audience a person changed since they were read. After too many tries they
    /// become due when their leases expire.
    async fn decided_again(
        &self,
        verdicts: &[Verdict],
        applied: &[Applied],
        now: Timestamp,
    ) -> Result<Vec<Verdict>, BackendError> {
        let outdated = verdicts.iter().zip(applied).filter(|(_, applied)| **applied == Applied::Outdated);
        let reports: Vec<FetchReport> = outdated.map(|(verdict, _)| verdict.report.clone()).collect();
        if reports.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<FeedId> = reports.iter().map(|report| report.feed).collect();
        let feeds: HashMap<FeedId, Feed> =
            self.store.states_for(&ids).await?.into_iter().map(|feed| (feed.id, feed)).collect();
        let again = reports.into_iter().filter_map(|report| {
            let feed = feeds.get(&report.feed).filter(|feed| feed.version == report.version)?;
            Some(self.judge(feed, report, now))
        });
        Ok(again.collect())
    }

    /// Returns the holds of reports that became stale after they were decided on, and of those that are not decided on again.
    fn holds_of_dropped(
        &self,
        verdicts: &[Verdict],
        applied: &[Applied],
        again: &[Verdict],
    ) -> Vec<(HostKey, Timestamp, FeedId)> {
        let is_dropped = |verdict: &Verdict, applied: &Applied| match applied {
            Applied::Stored { .. } => false,
            Applied::Stale => true,
            Applied::Outdated => again.iter().all(|again| again.report.feed != verdict.report.feed),
        };
        let dropped = verdicts.iter().zip(applied).filter(|(verdict, applied)| is_dropped(verdict, applied));
        dropped.filter_map(|(verdict, _)| self.kept_hold_of(&verdict.report)).collect()
    }

    /// A report that the database will not take counts as a malformed feed. If that is refused as well, the feed
    /// becomes due when its lease expires.
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
        let detail = "the store refused this feed's content".to_owned();
        let outcome = Outcome::Failed { failure: FailureKind::Malformed, detail };
        let feed = feeds.get(&report.feed)?;
        Some(vec![self.judge(feed, FetchReport { outcome, ..report }, now)])
    }

    /// Moves the feeds in the schedule, holds and frees the hosts.
    async fn reschedule(&self, verdicts: &[Verdict], applied: &[Applied], now: Timestamp) -> Result<(), BackendError> {
        let (mut slots, mut dead, mut holds) = (Vec::new(), Vec::new(), Vec::new());
        for (verdict, applied) in verdicts.iter().zip(applied) {
            let report = &verdict.report;
            match applied {
                Applied::Stale => self.metrics.stale_reports.inc(),
                Applied::Outdated => {}
                Applied::Stored { due, wake, new_entries, host_hold, over_quota, .. } => {
                    self.condition.watchdog.progressed();
                    self.metrics.record_report(report);
                    self.condition.worst.observe(report, now);
                    self.metrics.record_decision(verdict.decision.terms.iter().map(|term| term.rule));
                    self.metrics.entries.inc_by(u64::from(*new_entries));
                    self.metrics.record_over_quota(over_quota);
                    self.metrics
                        .overflowed
                        .inc_by(u64::from(verdict.decision.state.overflowing && is_document(report)));
                    match due {
                        Some(due_at) => slots.push(Slot {
                            feed: report.feed,
                            due_at: *due_at,
                            band: Band::of(verdict.category, *wake),
                        }),
                        None => dead.push(report.feed),
                    }
                    holds.extend(host_hold.map(|until| (report.answering_host().clone(), until)));
                }
            }
        }
        self.condition.gate.hold_stored(&*self.gate, &holds, now).await?;
        self.put(&slots, now).await?;
        retire(&*self.store, &*self.schedule, &self.rules.get(), &dead, now).await
    }

    fn settling(&self) -> Settling<'_> {
        Settling {
            store: &*self.store,
            schedule: &*self.schedule,
            gate: &*self.gate,
            rules: &self.rules,
            config: &self.config,
            metrics: &self.metrics,
            condition: &self.condition,
        }
    }

    fn pace(&self) -> OwnPace<'_> {
        OwnPace { store: &*self.store, schedule: &*self.schedule, rules: &self.rules, condition: &self.condition }
    }
}
