//! One debug event per fetch, inside a span that names the job, as the scheduler names it: both halves of a poll are joined by
//! `feed.id` and `version`. `docs/logs.md` lists the fields. No URL is logged: it may hold a secret in its path or query.

use common::host_gate::{AcquireRequest, Permit, Release};
use common::job::FetchJob;
use common::outcome::FailureKind;
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;
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

/// The target of the lines below. With `gate=trace` in `log.level` they are the history of what a worker did at the host gate, from
/// which `load-tests` proves gaps, holds and single flight. Times are milliseconds since 1970 by the worker's clock.
const GATE: &str = "gate";

/// Logs a grant, before its request is sent: asked for at `asked`, known at `at`. The report names `begun` as the fetch's start.
pub(crate) fn granted(request: &AcquireRequest, asked: Timestamp, at: Timestamp, begun: Timestamp) {
    tracing::trace!(
        target: GATE,
        host = %request.host,
        feed = request.feed.0,
        version = request.version.0,
        nonce = request.nonce,
        asked = asked.millis(),
        at = at.millis(),
        begun = begun.millis(),
        deadline = request.deadline.millis(),
        "granted"
    );
}

/// Logs a release, before it is sent.
pub(crate) fn releasing(permit: &Permit, release: &Release, at: Timestamp) {
    tracing::trace!(
        target: GATE,
        nonce = permit.nonce,
        at = at.millis(),
        remember_until = release.remembered.map_or(Timestamp::EPOCH, |time| at.after(time)).millis(),
        next_start_in = u64::try_from(release.next_start_in.unwrap_or_default().as_millis()).unwrap_or(u64::MAX),
        "releasing"
    );
}

/// Logs that the gate confirmed a release.
pub(crate) fn released(permit: &Permit, at: Timestamp) {
    tracing::trace!(target: GATE, nonce = permit.nonce, at = at.millis(), "released");
}

/// Logs that the gate did not confirm a release: it may have taken effect.
pub(crate) fn unreleased(permit: &Permit, at: Timestamp) {
    tracing::trace!(target: GATE, nonce = permit.nonce, at = at.millis(), "unreleased");
}
