//! What reports say about whole hosts: that they refuse us, or answer again, and which soft statuses their feeds get. Heard
//! before anything is decided on the reports.

use std::collections::{BTreeMap, HashMap};

use common::feed::Feed;
use common::host::HostKey;
use common::outcome::FailureKind;
use common::policy::{REFUSALS, Status};
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;
use common::url::FeedId;

use crate::condition::Condition;
use crate::condition::refusals::Word;
use crate::error::BackendError;
use crate::poll::settling::Settling;
use store::{NewRequeue, RefusedHost, RequeueFilter, Store, StoreError};

/// Feeds a second that are polled again once their host answers; the host's own pace counts as well.
const RATE: f64 = 10.0;

/// Takes in what the reports say about hosts. A host that begins or continues to refuse us is stored and held
/// before any decision. When a host answers again, the feeds that it refused are polled again soon.
pub(super) async fn hear(
    settling: &Settling<'_>,
    reports: &[FetchReport],
    feeds: &HashMap<FeedId, Feed>,
    now: Timestamp,
) -> Result<(), BackendError> {
    let mut words: BTreeMap<HostKey, (Word, &FetchReport)> = BTreeMap::new();
    for report in reports {
        let Some(feed) = feeds.get(&report.feed).filter(|feed| feed.version == report.version) else { continue };
        if hear_soft_status(settling, feed, report, now) {
            continue;
        }
        if let Some(word) = settling.condition.refusals.hear(feed, report, now) {
            words.insert(feed.host.clone(), (word, report));
        }
    }
    let mut holds = Vec::new();
    for (host, (word, report)) in words {
        match word {
            Word::Refuses => {
                holds.extend(host_refuses(settling, &host, report, now).await?.map(|until| (host.clone(), until)));
            }
            Word::Answers => host_answers(settling, &host, report, now).await?,
        }
    }
    settling.metrics.hosts_refusing.set(i64::try_from(settling.condition.refusals.list().len()).unwrap_or(i64::MAX));
    Ok(settling.condition.gate.hold_stored(settling.gate, &holds, now).await?)
}

/// Stores the refusal. Returns the end of the host's rest; `None` if another scheduler has heard it answer.
async fn host_refuses(
    settling: &Settling<'_>,
    host: &HostKey,
    report: &FetchReport,
    now: Timestamp,
) -> Result<Option<Timestamp>, BackendError> {
    let config = settling.condition.config.get();
    let (failure, status) = (report.outcome.failure().unwrap_or(FailureKind::Status), report.http_status);
    let penalty = &config.policy.penalty;
    let (first, ceiling) = (penalty.host_refuses, penalty.ceiling.max(penalty.host_refuses));
    let is_known = settling.condition.refusals.of(host).is_some();
    let refused = RefusedHost { host, feed: report.feed, failure, status, first, ceiling, is_known };
    let Some(refusal) = settling.store.refuse_host(&refused, now).await? else {
        settling.condition.refusals.forget(host);
        return Ok(None);
    };
    if !is_known {
        tracing::warn!(
            %host, %failure, status,
            "the host refuses most of our requests: it rests as a whole, and no feed of it is penalised"
        );
    }
    settling.condition.refusals.note(refusal.clone());
    Ok(Some(refusal.until))
}

async fn host_answers(
    settling: &Settling<'_>,
    host: &HostKey,
    report: &FetchReport,
    now: Timestamp,
) -> Result<(), BackendError> {
    let refusal = settling.condition.refusals.of(host);
    let ended = settling.store.host_answers(host, report.feed, now).await;
    // What fails may be stored all the same, and then the next call does not say that it ended.
    if settling.condition.refusals.has_ended(host, ended.as_ref().ok().copied()) {
        owe_requeues(settling.condition, host);
    }
    let ended = ended?;
    settling.condition.refusals.forget(host);
    if let Some(refusal) = refusal.filter(|_| ended) {
        tracing::info!(%host, since = %refusal.since, "the host answers again");
    }
    if let Err(error) = begin_owed(settling.store, settling.condition, now).await {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(%host, error, "the feeds that the host refused are polled again later");
    }
    Ok(())
}

/// Notes that the feeds that the host refused are to be polled again. Those that are missing or broken are none of its refusals.
pub(super) fn owe_requeues(condition: &Condition, host: &HostKey) {
    for (failure, http_statuses) in [(FailureKind::Status, REFUSALS.to_vec()), (FailureKind::Blocked, Vec::new())] {
        condition.refusals.owe_requeue(RequeueFilter {
            hosts: vec![host.clone()],
            status: Some(Status::Active),
            failure: Some(failure),
            http_statuses,
            ..RequeueFilter::default()
        });
    }
}

/// Begins the requeues of feeds whose hosts answer again. What the store does not take stays owed.
pub(crate) async fn begin_owed(store: &dyn Store, condition: &Condition, now: Timestamp) -> Result<(), StoreError> {
    while let Some(filter) = condition.refusals.take_owed_requeue() {
        if let Err(error) = begin(store, &filter, now).await {
            condition.refusals.owe_requeue(filter);
            return Err(error);
        }
    }
    Ok(())
}

async fn begin(store: &dyn Store, filter: &RequeueFilter, now: Timestamp) -> Result<(), StoreError> {
    let plan = store.plan_requeue(filter, true).await?;
    let queued: u64 = plan.classes.iter().map(|(.., feeds)| feeds).sum();
    if queued > 0 {
        let (filter, by) = (filter.clone(), "host.recovered".to_owned());
        let new = NewRequeue { filter, rate: RATE, lift_penalties: true, by, matched: queued, queued };
        // With too many requeues already they come when they are due.
        store.begin_requeue(&new, now).await?;
    }
    Ok(())
}

/// Remembers which feeds of a host with soft statuses are answered so. Returns true if this one is.
fn hear_soft_status(settling: &Settling<'_>, feed: &Feed, report: &FetchReport, now: Timestamp) -> bool {
    let rules = settling.rules.get();
    let Some(rule) = rules.rule_for(feed.url.as_url()).filter(|rule| !rule.soft_statuses.is_empty()) else {
        return false;
    };
    let is_soft = is_soft(&rule.soft_statuses, report);
    if is_soft {
        settling.condition.soft.note(&feed.host, feed.id, now);
    } else if matches!(report.outcome, Outcome::Modified(_) | Outcome::NotModified { .. }) {
        settling.condition.soft.forget(&feed.host, feed.id);
    }
    is_soft
}

/// Returns true if the report is about one of these statuses, which an operator knows to be passing trouble.
pub(super) fn is_soft(statuses: &[u16], report: &FetchReport) -> bool {
    report.outcome.failure() == Some(FailureKind::Status)
        && report.http_status.is_some_and(|status| statuses.contains(&status))
}

/// Turns each 410 that the host's rule calls soft into a failure by that status: such a feed is not gone.
pub(super) fn soften(settling: &Settling<'_>, reports: &mut [FetchReport], feeds: &HashMap<FeedId, Feed>) {
    let rules = settling.rules.get();
    for report in reports.iter_mut().filter(|report| matches!(report.outcome, Outcome::Gone)) {
        let rule = feeds.get(&report.feed).and_then(|feed| rules.rule_for(feed.url.as_url()));
        if rule.is_some_and(|rule| rule.soft_statuses.contains(&410)) {
            let detail = "the server answered 410 Gone".to_owned();
            report.outcome = Outcome::Failed { failure: FailureKind::Status, detail };
        }
    }
}
