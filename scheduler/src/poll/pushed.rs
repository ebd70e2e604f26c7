//! What workers read of deliveries: their entries are stored and published like those of polls. Nothing else of the feed changes: not
//! its due time, not its validators, not what is known of its document.

use std::collections::{HashMap, HashSet};

use common::config::Config;
use common::document::Document;
use common::feed::Feed;
use common::live_rules::LiveRules;
use common::metrics::Metrics;
use common::policy::{Decision, Notices, Status, Terms, category};
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;
use common::url::FeedId;

use crate::condition::Condition;
use crate::error::BackendError;
use crate::poll::subject::{placement_slot, subject};
use crate::push::claim::claim_of_delivery;
use crate::schedule::Schedule;
use store::{Applied, PushHeard, Store, Verdict};

/// Settles what workers read of deliveries.
pub(super) struct PushedReports<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) schedule: &'a dyn Schedule,
    pub(super) rules: &'a LiveRules,
    pub(super) config: &'a Config,
    pub(super) metrics: &'a Metrics,
    pub(super) condition: &'a Condition,
}

impl PushedReports<'_> {
    /// Stores the content of deliveries. Those that could not be read have their feeds polled. Safe to repeat.
    pub(super) async fn settle(
        &self,
        reports: Vec<FetchReport>,
        feeds: &HashMap<FeedId, Feed>,
        now: Timestamp,
    ) -> Result<(), BackendError> {
        settle(self, reports, feeds, now).await
    }
}

async fn settle(
    results: &PushedReports<'_>,
    reports: Vec<FetchReport>,
    feeds: &HashMap<FeedId, Feed>,
    now: Timestamp,
) -> Result<(), BackendError> {
    if reports.is_empty() {
        return Ok(());
    }
    let (mut verdicts, mut unread) = (Vec::<Verdict>::new(), Vec::new());
    let mut of_feed = HashMap::<FeedId, usize>::new();
    let mut heard = HashMap::<FeedId, Vec<Timestamp>>::new();
    for report in reports {
        let Some(feed) = feeds.get(&report.feed).filter(|feed| feed.status == Status::Active) else { continue };
        heard.entry(feed.id).or_default().push(report.started);
        // Its entries did not all fit into the report.
        let is_cut = matches!(&report.outcome, Outcome::Modified(document) if document.content_hash.is_some());
        unread.extend(is_cut.then_some(feed.id));
        match (report.outcome, of_feed.get(&feed.id)) {
            (Outcome::Modified(document), Some(place)) => add(&mut verdicts[*place], *document),
            (Outcome::Modified(document), None) => {
                of_feed.insert(feed.id, verdicts.len());
                let report = FetchReport { outcome: Outcome::Modified(document), ..report };
                verdicts.push(verdict(results, feed, report));
            }
            _ => unread.push(feed.id),
        }
    }
    let mut pending = vec![verdicts];
    // A delivery without a new entry may report changed ones, and only a poll knows which form is the newer one. What
    // the quotas or the database refused of a delivery, a poll reads again.
    let mut polled = Vec::new();
    while let Some(mut batch) = pending.pop() {
        if batch.is_empty() {
            continue;
        }
        match results.store.apply(&batch, results.config.scheduler.clock_skew, now).await {
            Ok(applied) => {
                for (verdict, applied) in batch.iter().zip(applied) {
                    let Applied::Stored { new_entries, over_quota, .. } = applied else { continue };
                    let is_whole = new_entries > 0 && over_quota.is_empty();
                    results.condition.watchdog.progressed();
                    results.metrics.entries.inc_by(u64::from(new_entries));
                    results.metrics.record_over_quota(&over_quota);
                    polled.extend((!is_whole).then_some(verdict.report.feed));
                }
            }
            Err(error) if error.refuses_data() && batch.len() > 1 => {
                let rest = batch.split_off(batch.len() / 2);
                pending.extend([rest, batch]);
            }
            Err(error) if error.refuses_data() => {
                let ids: Vec<FeedId> = batch.iter().map(|verdict| verdict.report.feed).collect();
                polled.extend(&ids);
                tracing::error!(feeds = ?ids, error = &error as &dyn std::error::Error, "the store refused a delivery");
            }
            Err(error) => return Err(error.into()),
        }
    }
    count(results, heard, &unread).await?;
    polled.extend(unread);
    poll(results, &polled, now).await
}

/// Counts deliveries. Nothing is awaited of them any more.
async fn count(
    results: &PushedReports<'_>,
    heard: HashMap<FeedId, Vec<Timestamp>>,
    unread: &[FeedId],
) -> Result<(), BackendError> {
    let heard = heard.into_iter().flat_map(|(feed, times)| times.into_iter().map(move |at| (feed, at)));
    let push = |(feed, at)| PushHeard { feed, at, light: unread.contains(&feed), settled: true };
    Ok(results.store.heard_pushes(&heard.map(push).collect::<Vec<_>>()).await?)
}

/// Has feeds polled whose deliveries could not be read, or held nothing new, at the pace of pings.
async fn poll(results: &PushedReports<'_>, feeds: &[FeedId], now: Timestamp) -> Result<(), BackendError> {
    if feeds.is_empty() {
        return Ok(());
    }
    let config = results.condition.config.get();
    let woken = results.store.wake_pinged(feeds, now.after(config.policy.ping_quiet), now).await?;
    let slots: Vec<_> = woken.iter().map(placement_slot).collect();
    Ok(results.schedule.lower(&slots, now).await?)
}

/// Adds what a later delivery of the same feed contains. The last form of an entry counts, and documents end with their newest.
fn add(to: &mut Verdict, later: Document) {
    let Outcome::Modified(document) = &mut to.report.outcome else { return };
    let newer: HashSet<&str> = later.entries.iter().map(|entry| entry.id.as_str()).collect();
    document.entries.retain(|entry| !newer.contains(entry.id.as_str()));
    drop(newer);
    document.entries.extend(later.entries);
}

fn verdict(results: &PushedReports<'_>, feed: &Feed, report: FetchReport) -> Verdict {
    let rules = results.rules.get();
    // Nothing of it is stored: a delivery is not a poll.
    let decision = Decision {
        state: feed.state,
        status: feed.status,
        next_due: feed.next_due,
        terms: Terms::default(),
        host_hold: None,
        notices: Notices::default(),
    };
    let push = claim_of_delivery(feed, report.started);
    Verdict {
        report,
        decision,
        category: category(&subject(&rules, feed)),
        audience_at: feed.audience_at,
        push,
        archive: feed.archive.clone(),
        seen: None,
    }
}
