//! One debug event per poll, inside a span that names the job: why did feed 7 fail at 12:03?
//!
//! The worker writes its half, one event per fetch, in a span of the same name and fields (`worker::log`). `docs/logs.md` lists the
//! fields. No URL is logged: it may hold a secret in its path or query.

use std::collections::HashMap;

use common::feed::Feed;
use common::report::FetchReport;
use common::time::Timestamp;
use common::url::FeedId;
use store::{Applied, Verdict};
use tracing::Span;

/// Logs each poll that was stored.
pub(super) fn polls(verdicts: &[Verdict], applied: &[Applied], feeds: &HashMap<FeedId, Feed>) {
    for (verdict, applied) in verdicts.iter().zip(applied) {
        let report = &verdict.report;
        let (Applied::Stored { due, .. }, Some(feed)) = (applied, feeds.get(&report.feed)) else { continue };
        let _job = job(report).entered();
        tracing::debug!(
            outcome = report.outcome.kind().as_str(),
            failure = report.outcome.failure().map(common::outcome::FailureKind::as_str),
            status = report.http_status,
            lag_ms = lag_millis(feed, report),
            next_due = due.map(tracing::field::display),
            "polled"
        );
    }
}

/// Logs each page of older entries that was stored.
pub(super) fn pages(verdicts: &[Verdict], applied: &[Applied]) {
    for (verdict, applied) in verdicts.iter().zip(applied) {
        let report = &verdict.report;
        let Applied::Stored { due, new_entries, .. } = applied else { continue };
        let _job = job(report).entered();
        tracing::debug!(
            outcome = report.outcome.kind().as_str(),
            failure = report.outcome.failure().map(common::outcome::FailureKind::as_str),
            status = report.http_status,
            new_entries,
            next_due = due.map(tracing::field::display),
            "polled a page of older entries"
        );
    }
}

/// Logs a feed that a worker could not poll yet.
pub(super) fn deferred(report: &FetchReport, until: Timestamp) {
    let _job = job(report).entered();
    tracing::debug!(outcome = report.outcome.kind().as_str(), next_due = %until, "deferred");
}

fn job(report: &FetchReport) -> Span {
    tracing::debug_span!("job", feed.id = report.feed.0, version = report.version.0, host = %report.host)
}

/// Returns how late the fetch began after the feed was due.
fn lag_millis(feed: &Feed, report: &FetchReport) -> Option<u64> {
    let due = feed.due()?;
    u64::try_from(report.started.since(due).as_millis()).ok()
}
