//! What the reports of a batch say together, and what each of them says.

use std::collections::HashMap;

use common::feed::Feed;
use common::host::HostKey;
use common::last_error::LastError;
use common::policy::{Rule, Term};
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;
use common::url::{FeedId, Version};

/// Returns when the last request of each version began. Two requests of a version come together when the first one's report waited for
/// so long that the feed was fetched again: the next poll is planned by the later one.
pub(super) fn latest_requests(reports: &[FetchReport]) -> HashMap<(FeedId, Version), Timestamp> {
    let mut latest = HashMap::with_capacity(reports.len());
    for report in reports.iter().filter(|report| !matches!(report.outcome, Outcome::Deferred { .. })) {
        let at = latest.entry((report.feed, report.version)).or_insert(report.started);
        *at = report.started.max(*at);
    }
    latest
}

/// Returns the hosts that a report is about, each with the time of its request.
pub(super) fn hosts_asked(report: &FetchReport) -> impl Iterator<Item = (HostKey, Timestamp)> {
    [Some(&report.host), report.answered_by.as_ref()].into_iter().flatten().map(|host| (host.clone(), report.started))
}

/// Returns when the next poll was planned, without the delay of a late report.
pub(super) fn planned_due(terms: &[Term]) -> Option<Timestamp> {
    terms.iter().take_while(|term| term.rule != Rule::Late).last().map(|term| term.due)
}

pub(super) fn is_document(report: &FetchReport) -> bool {
    matches!(report.outcome, Outcome::Modified(_))
}

/// Logs why a feed that was just added cannot be read.
pub(super) fn tell_of_a_new_feed_that_fails(feed: &Feed, report: &FetchReport) {
    let new = feed.state.last_success.is_none() && feed.state.consecutive_failures == 0;
    if let (true, Outcome::Failed { failure, .. }, Some(error)) = (new, &report.outcome, LastError::of(report)) {
        // Its address may hold a secret: the number and the host find it.
        let detail = error.detail;
        tracing::warn!(feed = %feed.id, host = %feed.host, %failure, %detail, "a new feed cannot be read");
    }
}
