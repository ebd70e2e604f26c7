//! Reads the older entries that a feed links to, after an overflow or because a person asked for it.
//!
//! Each page is a job like a poll: the feed becomes due for it, waits for its host, and is fetched once. Nothing of the feed changes
//! but its entries, and how far its archive was read ([`ArchiveRead`]). The feed itself is polled when it would be otherwise.

use std::time::Duration;

use common::archive::ArchiveRead;
use common::config::PolicyConfig;
use common::document::Validators;
use common::feed::Feed;
use common::policy::{Decision, Rule, Status};
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;

use store::JobRow;

/// Entries that are dated this long before the last good poll are not missing: some are published with an earlier date.
const BACKDATED: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns whether a report is about a page that was requested.
pub(crate) fn is_page_that_ended(report: &FetchReport) -> bool {
    report.page && !matches!(report.outcome, Outcome::Deferred { .. })
}

/// Makes a row stand for the next page of the feed's archive, if that is why it is due. A wake is for the feed itself, and a
/// fetch that a busy host interrupted goes on as what it was.
pub(crate) fn page_or_feed(row: JobRow, now: Timestamp) -> JobRow {
    let is_woken = row.wake_at.is_some_and(|wake| wake <= now);
    let is_page = |archive: &ArchiveRead| match &row.detour {
        Some(detour) => detour.page,
        None => !is_woken && now < archive.poll_due,
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
        // Feeds that rename all of their entries, or have only a few, look like this at each poll.
        Outcome::Modified(document) if document.none_known && decision.state.overflow_cap.is_some() => {
            let gap = decision.state.gap_since.unwrap_or(report.started).before(BACKDATED);
            // A gap that is being read goes on to where it began.
            let since = feed.archive.as_ref().map_or(gap, |archive| archive.since.min(gap));
            let known = |archive: &ArchiveRead| (!archive.before.is_empty()).then(|| archive.before.clone());
            let before = feed.archive.as_ref().and_then(known).unwrap_or_else(|| ArchiveRead::known_before(document));
            ArchiveRead::begin(&feed.url, &document.onward, since, before, poll_due)
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

/// When the next page is read: not during a hold, and not after the feed's own poll.
pub(crate) fn page_due(
    hold: Option<Timestamp>,
    poll_due: Timestamp,
    config: &PolicyConfig,
    now: Timestamp,
) -> Timestamp {
    now.after(config.archive_gap).max(hold.unwrap_or(now)).min(poll_due)
}
