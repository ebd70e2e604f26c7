//! What workers read of deliveries: their entries are stored and published like those of polls. Nothing else of the feed changes: not
//! its due time, not its validators, not what is known of its document.

use std::collections::{HashMap, HashSet};

use common::document::Document;
use common::feed::Feed;
use common::policy::{Decision, Notices, Status, Terms, category};
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;
use common::url::FeedId;

use crate::error::BackendError;
use crate::poll::results::Results;
use crate::poll::subject::{placement_slot, subject};
use store::{Applied, PushHeard, Verdict};

impl Results {
    /// Stores what deliveries brought. Those that could not be read have their feeds polled. Safe to repeat.
    pub(crate) async fn settle_pushes(
        &self,
        reports: Vec<FetchReport>,
        feeds: &HashMap<FeedId, Feed>,
        now: Timestamp,
    ) -> Result<(), BackendError> {
        settle(self, reports, feeds, now).await
    }
}

async fn settle(
    results: &Results,
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
    let (mut announced, mut unchanged) = (Vec::new(), Vec::new());
    while let Some(mut batch) = pending.pop() {
        if batch.is_empty() {
            continue;
        }
        match results.store.apply(&batch, results.config.scheduler.clock_skew, now).await {
            Ok(applied) => {
                for (verdict, applied) in batch.iter().zip(applied) {
                    let Applied::Stored { new_entries, over_quota, .. } = applied else { continue };
                    results.condition.watchdog.progressed();
                    results.metrics.entries.inc_by(u64::from(new_entries));
                    results.metrics.record_over_quota(&over_quota);
                    let brought = if new_entries > 0 { &mut announced } else { &mut unchanged };
                    brought.push(verdict.report.feed);
                }
            }
            Err(error) if error.refuses_data() && batch.len() > 1 => {
                let rest = batch.split_off(batch.len() / 2);
                pending.extend([rest, batch]);
            }
            Err(error) if error.refuses_data() => {
                let ids = batch.iter().map(|verdict| verdict.report.feed);
                tracing::error!(feeds = ?ids.collect::<Vec<_>>(), error = &error as &dyn std::error::Error, "the store refused a delivery");
            }
            Err(error) => return Err(error.into()),
        }
    }
    count(results, heard, &announced, &unread).await?;
    // A delivery without a new entry may tell of changed ones. Which form is the newer one, only a poll knows.
    unchanged.extend(unread);
    poll(results, &unchanged, now).await
}

/// Counts deliveries: one that brought something new counts for its feed's pushes.
async fn count(
    results: &Results,
    heard: HashMap<FeedId, Vec<Timestamp>>,
    announced: &[FeedId],
    unread: &[FeedId],
) -> Result<(), BackendError> {
    let mut pushes = Vec::new();
    for (feed, times) in heard {
        let (last, light) = (times.len() - 1, unread.contains(&feed));
        pushes.extend(times.into_iter().enumerate().map(|(number, at)| {
            let announced = number == last && announced.contains(&feed);
            PushHeard { feed, at, light, counts: true, announced }
        }));
    }
    Ok(results.store.heard_pushes(&pushes).await?)
}

/// Has feeds polled whose deliveries could not be read, or brought nothing new, at the pace of pings.
async fn poll(results: &Results, feeds: &[FeedId], now: Timestamp) -> Result<(), BackendError> {
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

fn verdict(results: &Results, feed: &Feed, report: FetchReport) -> Verdict {
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
    Verdict { report, decision, category: category(&subject(&rules, feed)), audience_at: feed.audience_at }
}
