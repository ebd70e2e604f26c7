//! Reads the older entries that a feed links to, after an overflow or because a person requested it.
//!
//! Each page is a job like a poll: the feed becomes due for it, waits for its host, and is fetched once. Nothing of the feed changes
//! but its entries, and how far its archive was read ([`ArchiveRead`]). The feed itself is polled when it would be otherwise.

use std::time::Duration;

use common::archive::{ArchiveRead, time};
use common::config::PolicyConfig;
use common::document::{Document, Validators};
use common::entry::Entry;
use common::feed::Feed;
use common::policy::{Decision, Rule, Status};
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;

use store::JobRow;

/// Entries that are dated this long before the last good poll are not missing: some are published with an earlier date.
pub(crate) const BACKDATED: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns whether a report is about a page that was requested.
pub(crate) fn is_page_that_ended(report: &FetchReport) -> bool {
    report.page && !matches!(report.outcome, Outcome::Deferred { .. })
}

/// Turns a row into the next page of the feed's archive, if that is why it is due. A wake is for the feed itself, and a
/// fetch that a busy host interrupted continues as what it was.
pub(crate) fn page_or_feed(row: JobRow, now: Timestamp) -> JobRow {
    let is_woken = row.wake_at.is_some_and(|wake| wake <= now);
    let is_page = |archive: &ArchiveRead| {
        let is_feeds_turn = is_woken || now >= archive.poll_due;
        match &row.detour {
            Some(detour) => detour.page && !(is_feeds_turn && detour.not_before.is_some_and(|wait| wait > now)),
            None => !is_feeds_turn,
        }
    };
    match row.archive.as_ref().filter(|archive| is_page(archive)).cloned() {
        Some(archive) => JobRow {
            // They are for one origin.
            credentials: row.credentials.filter(|_| archive.next.has_origin_of(&row.url)),
            url: archive.next,
            validators: Validators::default(),
            content_hash: None,
            known: archive.before,
            head_first: Some(false),
            no_delta_until: Some(Timestamp::MAX),
            by_hand: false,
            wake_at: None,
            page: true,
            ..row
        },
        None => JobRow { detour: row.detour.filter(|detour| !detour.page), ..row },
    }
}

/// Plans the next page after a poll of the feed itself, and begins with the first one after an overflow. Returns how far the archive
/// was read. After a failure the feed is polled again before its archive is read on.
pub(crate) fn after_poll(
    feed: &Feed,
    report: &FetchReport,
    decision: &mut Decision,
    config: &PolicyConfig,
    now: Timestamp,
) -> Option<ArchiveRead> {
    let poll_due = decision.next_due.filter(|_| decision.status == Status::Active && config.archive_pages > 0)?;
    let begun = match &report.outcome {
        Outcome::Modified(document) if document.none_known && may_recover(feed, document, report.started) => {
            let since = decision.state.gap_since.unwrap_or(report.started).before(BACKDATED);
            let gap = feed.state.last_success.unwrap_or(report.started);
            ArchiveRead::recovery(feed.archive.as_ref(), &feed.url, document, (since, gap), poll_due)
        }
        _ => None,
    };
    let archive = ArchiveRead { poll_due, ..begun.or_else(|| feed.archive.clone())? };
    let is_good = matches!(report.outcome, Outcome::Modified(_) | Outcome::NotModified { .. });
    if is_good {
        let next = page_due(decision.state.hold_until, poll_due, config, now);
        if next < poll_due {
            decision.next_due = Some(next);
            decision.terms.push(Rule::Archive, next);
        }
    }
    Some(archive)
}

/// Returns whether the archive may have what a document that overflowed does not. A feed that renames all of its
/// entries overflows at each poll: after the first time its archive is read only if entries are dated between the last
/// poll and this one, or, where dates are missing, if the last overflow was recovered.
fn may_recover(feed: &Feed, document: &Document, polled: Timestamp) -> bool {
    if !feed.state.overflowing {
        return true;
    }
    let past = |entry: &Entry| time(entry).filter(|date| *date <= polled);
    match document.entries.iter().filter_map(past).max() {
        Some(newest) => feed.state.last_success.is_none_or(|last| newest > last),
        None => feed.state.gap_since.is_none(),
    }
}

/// Returns when the next page is read: not during a hold, and not after the feed's own poll.
pub(crate) fn page_due(
    hold: Option<Timestamp>,
    poll_due: Timestamp,
    config: &PolicyConfig,
    now: Timestamp,
) -> Timestamp {
    now.after(config.archive_gap).max(hold.unwrap_or(now)).min(poll_due)
}
