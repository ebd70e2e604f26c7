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
use crate::poll::settling::Settling;
use crate::poll::subject::{placement_slot, subject};
use crate::push::claim::claim_of_delivery;
use crate::schedule::ScheduleError;
use store::{Applied, PushHeard, Verdict};

/// Stores the content of deliveries. Those that could not be read have their feeds polled. Safe to repeat.
pub(super) async fn settle(
    settling: &Settling<'_>,
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
        if is_of_lost_feed(settling, feed, &report) {
            settling.metrics.stale_reports.inc();
            continue;
        }
        heard.entry(feed.id).or_default().push(report.started);
        // Its entries did not all fit into the report.
        let is_cut = matches!(&report.outcome, Outcome::Modified(document) if document.content_hash.is_some());
        unread.extend(is_cut.then_some(feed.id));
        match (report.outcome, of_feed.get(&feed.id)) {
            (Outcome::Modified(document), Some(place)) => add(&mut verdicts[*place], *document),
            (Outcome::Modified(document), None) => {
                of_feed.insert(feed.id, verdicts.len());
                let report = FetchReport { outcome: Outcome::Modified(document), ..report };
                verdicts.push(verdict(settling, feed, report));
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
        match settling.store.apply(&batch, settling.config.scheduler.clock_skew, now).await {
            Ok(applied) => {
                for (verdict, applied) in batch.iter().zip(applied) {
                    let Applied::Stored { new_entries, over_quota, .. } = applied else { continue };
                    let is_whole = new_entries > 0 && over_quota.is_empty();
                    settling.condition.watchdog.progressed();
                    settling.metrics.entries.inc_by(u64::from(new_entries));
                    settling.metrics.record_over_quota(&over_quota);
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
    count(settling, heard, &unread).await?;
    polled.extend(unread);
    poll(settling, &polled, now).await
}

/// Returns whether a delivery was taken before its feed was added: the store has failed over to a copy that lagged since then, and the
/// feed's number was given to another one. A delivery belongs to no version, so that a poll after it does not matter.
fn is_of_lost_feed(settling: &Settling<'_>, feed: &Feed, report: &FetchReport) -> bool {
    // Two schedulers' clocks may differ by that much.
    let skew = 2 * settling.config.scheduler.clock_skew;
    report.mac.as_ref().is_some_and(|mac| mac.issued.after(skew) < feed.added)
}

/// Counts deliveries. Nothing is awaited of them any more.
async fn count(
    settling: &Settling<'_>,
    heard: HashMap<FeedId, Vec<Timestamp>>,
    unread: &[FeedId],
) -> Result<(), BackendError> {
    let heard = heard.into_iter().flat_map(|(feed, times)| times.into_iter().map(move |at| (feed, at)));
    let push = |(feed, at)| PushHeard { feed, at, light: unread.contains(&feed), settled: true };
    Ok(settling.store.heard_pushes(&heard.map(push).collect::<Vec<_>>()).await?)
}

/// Has feeds polled whose deliveries could not be read, or held nothing new, at the pace of pings.
async fn poll(settling: &Settling<'_>, feeds: &[FeedId], now: Timestamp) -> Result<(), BackendError> {
    if feeds.is_empty() {
        return Ok(());
    }
    let config = settling.condition.config.get();
    let woken = settling.store.wake_pinged(feeds, now.after(config.policy.ping_quiet), now).await?;
    let slots: Vec<_> = woken.iter().map(placement_slot).collect();
    // A part that is away is filled from the store.
    Ok(settling.schedule.lower(&slots, now).await.or_else(ScheduleError::unless_part_away)?)
}

/// Adds what a later delivery of the same feed contains. The last form of an entry counts, and documents end with their newest.
fn add(to: &mut Verdict, later: Document) {
    let Outcome::Modified(document) = &mut to.report.outcome else { return };
    let newer: HashSet<&str> = later.entries.iter().map(|entry| entry.id.as_str()).collect();
    document.entries.retain(|entry| !newer.contains(entry.id.as_str()));
    drop(newer);
    document.entries.extend(later.entries);
}

fn verdict(settling: &Settling<'_>, feed: &Feed, report: FetchReport) -> Verdict {
    let rules = settling.rules.get();
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
