//! What the reports of a batch say together, and what each of them says.

use common::feed::Feed;
use common::host::HostKey;
use common::job::Detour;
use common::last_error::LastError;
use common::policy::{Rule, Terms};
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;

use crate::poll::moves::announced_instead;
use store::Interruption;

/// Returns the hosts that a report is about, each with the time of its request.
pub(super) fn hosts_asked(report: &FetchReport) -> impl Iterator<Item = (HostKey, Timestamp)> {
    [Some(&report.host), report.answered_by.as_ref()].into_iter().flatten().map(|host| (host.clone(), report.started))
}

pub(super) fn is_document(report: &FetchReport) -> bool {
    matches!(report.outcome, Outcome::Modified(_))
}

/// Logs why a feed that was just added cannot be read, unless it is a page whose feed takes its place.
pub(super) fn tell_of_a_new_feed_that_fails(feed: &Feed, report: &FetchReport) {
    let new = feed.state.last_success.is_none() && feed.state.consecutive_failures == 0;
    let stays = new && announced_instead(feed, report).is_empty();
    if let (true, Outcome::Failed { failure, .. }, Some(error)) = (stays, &report.outcome, LastError::of(report)) {
        // Its address may hold a secret: the number and the host find it.
        let detail = error.detail;
        tracing::warn!(feed = %feed.id, host = %feed.host, %failure, %detail, "a new feed cannot be read");
    }
}

/// Returns what to store of a fetch that continues when its server allows that, or a bound of ours: in the schedule alone, the next
/// comparison with the store would bring the feed forward.
pub(super) fn waiting_until(feed: &Feed, detour: Option<Detour>, until: Timestamp) -> Interruption {
    let mut terms = Terms::default();
    feed.terms.iter().filter(|term| term.due < until).for_each(|term| terms.push(term.rule, term.due));
    terms.push(Rule::RetryAfter, until);
    Interruption { feed: feed.id, version: feed.version, detour, wait: Some((until, terms)) }
}
