//! One debug event per fetch, inside a span that names the job, as the scheduler names it: both halves of a poll are joined by
//! `feed.id` and `version`. `docs/logs.md` lists the fields. No URL is logged: it may hold a secret in its path or query.

use common::job::FetchJob;
use common::outcome::FailureKind;
use common::report::{FetchReport, Outcome};
use tracing::Span;

/// Returns the span in which a job is worked.
pub(crate) fn job(job: &FetchJob) -> Span {
    tracing::debug_span!("job", feed.id = job.feed.0, version = job.version.0, host = %job.host)
}

/// Logs what a job resulted in.
pub(crate) fn report(report: &FetchReport) {
    let outcome = report.outcome.kind().as_str();
    match report.outcome {
        Outcome::Deferred { until } => tracing::debug!(outcome, %until, "deferred"),
        _ => tracing::debug!(
            outcome,
            failure = report.outcome.failure().map(FailureKind::as_str),
            status = report.http_status,
            duration_ms = u64::try_from(report.duration.as_millis()).ok(),
            wire_bytes = report.wire_bytes,
            body_bytes = report.body_bytes,
            "fetched"
        ),
    }
}
