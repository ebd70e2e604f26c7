//! When a feed is polled next after reports that come late, stale, or together with another one on the same version.

use std::collections::HashMap;
use std::time::Duration;

use common::config::Config;
use common::feed::Feed;
use common::host_gate::{HostGate, Permit, Release, fresh_nonce};
use common::policy::{Decision, Rule, Status, Term, Terms};
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;
use common::url::{FeedId, Version};
use futures_util::future::join_all;
use store::{FeedChange, Store, StoreError};

/// Returns when the last request of each version began. Two requests of a version come together when the first one's report waited for
/// so long that the feed was fetched again: the next poll is planned by the later one.
pub(super) fn latest_requests(reports: &[FetchReport]) -> HashMap<(FeedId, Version), Timestamp> {
    let mut latest = HashMap::with_capacity(reports.len());
    for report in reports.iter().filter(|report| !matches!(report.outcome, Outcome::Deferred { .. }) && !report.page) {
        let at = latest.entry((report.feed, report.version)).or_insert(report.started);
        *at = report.started.max(*at);
    }
    latest
}

/// Puts off the next poll after a report that comes after its permit has ended: the feed may have been fetched once more up to now, and
/// that fetch's report is on its way. Its lease need not have ended for that: the schedule may have lost it. The next poll waits for
/// the other report, and counts from now. The store has it, because the schedule may lose it.
pub(super) fn wait_for_second_fetch(config: &Config, report: &FetchReport, decision: &mut Decision, now: Timestamp) {
    let Some(due) = decision.next_due.filter(|_| is_late(config, report, now)) else { return };
    let interval = planned_due(&decision.terms).unwrap_or(due).since(report.started);
    let due_at = due.max(now.after(interval.max(config.fetch.deadline())));
    if due_at > due {
        decision.next_due = Some(due_at);
        decision.terms.push(Rule::Late, due_at);
    }
}

/// Has the gate remember once more that the versions of late reports were reported, before these are stored. It may have forgotten that,
/// or forget it soon, and other jobs for these versions may be on their way: feeds are claimed again when their leases end, or when the
/// schedule has lost them. Takes out of `reports`, and returns, those that the gate cannot remember now: once it answers again it would
/// grant another job for what is stored. Those that are not current store nothing, and stay.
pub(super) async fn remember(
    store: &dyn Store,
    gate: &dyn HostGate,
    config: &Config,
    (reports, is_current): (&mut Vec<FetchReport>, impl Fn(&FetchReport) -> bool),
    now: Timestamp,
) -> Result<Vec<FetchReport>, StoreError> {
    let is_meant = |report: &FetchReport| is_late(config, report, now) && is_current(report);
    let feeds: Vec<FeedId> = reports.iter().filter(|report| is_meant(report)).map(|report| report.feed).collect();
    if feeds.is_empty() {
        return Ok(Vec::new());
    }
    // The epoch of jobs that are built now is the same for all feeds.
    let Some(epochs) = store.jobs_for(&feeds).await?.first().map(|row| row.epochs) else { return Ok(Vec::new()) };
    let remembered = reports.iter().map(async |report| {
        if !is_meant(report) {
            return true;
        }
        // As the worker had it: a fetch that continued at another host has its permit there.
        let (host, version) = (report.host.clone(), report.version.in_epoch(epochs));
        let permit = Permit { host, feed: Some(report.feed), version, nonce: fresh_nonce() };
        let release = Release { remembered: Some(lease(config)), next_start_in: None };
        gate.release(&permit, release, now).await.is_ok()
    });
    let mut remembered = join_all(remembered).await.into_iter();
    Ok(reports.extract_if(.., |_| remembered.next() == Some(false)).collect())
}

/// Returns whether a report comes after its permit has ended.
fn is_late(config: &Config, report: &FetchReport, now: Timestamp) -> bool {
    report.started.after(config.fetch.deadline()) < now
}

/// How long a claimed feed is hidden, from its claim to the end of its fetch.
fn lease(config: &Config) -> Duration {
    config.scheduler.queue_lease + config.scheduler.fetch_lease
}

/// Stores when feeds are due after the requests that stale reports prove, and returns what is stored of them. In the schedule alone,
/// the next comparison with the store would bring the polls forward again.
pub(super) async fn store_proven(
    store: &dyn Store,
    proven: &HashMap<FeedId, (&Feed, Timestamp)>,
    now: Timestamp,
) -> Result<Vec<Feed>, StoreError> {
    let change = |(feed, due): &(&Feed, Timestamp)| {
        let mut terms = Terms::default();
        feed.terms.iter().for_each(|term| terms.push(term.rule, term.due));
        terms.push(Rule::Late, *due);
        let expects = Some((feed.version, feed.audience));
        (feed.id, FeedChange { next_due: Some((*due, terms)), expects, ..FeedChange::default() })
    };
    let changes: Vec<(FeedId, FeedChange)> = proven.values().map(change).collect();
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    match store.change_feeds(&changes, now).await {
        Err(StoreError::Outdated) => {}
        changed => return changed,
    }
    // Somebody changed or polled one of them meanwhile, and that counts.
    let mut changed = Vec::new();
    for change in changes {
        match store.change_feeds(&[change], now).await {
            Err(StoreError::Outdated) => {}
            stored => changed.extend(stored?),
        }
    }
    Ok(changed)
}

/// A stale report still proves that its server got a request. When that request came after the one that the feed was planned by (two
/// fetches of one version, of which the earlier was settled first, or a version that a failover of the store lost), the next one counts
/// from it. `None` if it is due no sooner anyway, and while pages of its archive are read: the due time is theirs.
pub(super) fn due_after_stale(feed: &Feed, report: &FetchReport) -> Option<Timestamp> {
    // A person has just wanted it polled: no request before that puts it off.
    if feed.terms.iter().any(|term| term.rule == Rule::Added) || feed.archive.is_some() {
        return None;
    }
    let (planned_by, due) = (feed.state.last_polled?, feed.next_due?);
    let is_request = !matches!(report.outcome, Outcome::Deferred { .. }) && !report.page;
    let later = is_request && report.started > planned_by && feed.status == Status::Active;
    let interval = planned_due(&feed.terms).unwrap_or(due).since(planned_by);
    Some(report.started.after(interval)).filter(|proven| later && due < *proven)
}

/// Returns when the next poll was planned, without the delay of a late report.
pub(super) fn planned_due(terms: &[Term]) -> Option<Timestamp> {
    terms.iter().take_while(|term| term.rule != Rule::Late).last().map(|term| term.due)
}
