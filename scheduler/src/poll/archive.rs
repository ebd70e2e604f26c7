//! Reads the older entries that a feed links to, after an overflow or because a person asked for it.
//!
//! Each page is a job like a poll: the feed becomes due for it, waits for its host, and is fetched once. Nothing of the feed changes
//! but its entries, and how far its archive was read ([`ArchiveRead`]). The feed itself is polled when it would be otherwise.

use std::collections::HashMap;
use std::time::Duration;

use common::archive::{ArchiveLimits, ArchiveRead, Onwards};
use common::config::PolicyConfig;
use common::document::Validators;
use common::feed::Feed;
use common::host::HostKey;
use common::policy::{Decision, Notices, Rule, Status, Terms, category, first_hold};
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;
use common::url::FeedId;

use crate::error::BackendError;
use crate::poll::results::Results;
use crate::poll::subject::subject;
use crate::schedule::{Band, Slot};
use store::{Applied, JobRow, Verdict};

/// Entries that are dated this long before the last good poll are not missing: some are published with an earlier date.
const BACKDATED: Duration = Duration::from_secs(24 * 60 * 60);

/// Whether a report tells of a page that was requested.
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
    let poll_due = decision.next_due.filter(|_| decision.status == Status::Active)?;
    let begun = match &report.outcome {
        Outcome::Modified(document) if document.none_known && config.archive_pages > 0 => {
            let gap = decision.state.gap_since.unwrap_or(report.started).before(BACKDATED);
            // A gap that is being read goes on to where it began.
            let since = feed.archive.as_ref().map_or(gap, |archive| archive.since.min(gap));
            let known = |archive: &ArchiveRead| (!archive.before.is_empty()).then(|| archive.before.clone());
            let before = feed.archive.as_ref().and_then(known).unwrap_or_else(|| ArchiveRead::known_before(document));
            ArchiveRead::begin(&document.onward, since, before, poll_due)
        }
        _ => None,
    };
    let archive = ArchiveRead { poll_due, ..begun.or_else(|| feed.archive.clone())? };
    let is_good = matches!(report.outcome, Outcome::Modified(_) | Outcome::NotModified { .. });
    if is_good && config.archive_pages > 0 {
        let next = page_due(feed_hold(decision), poll_due, config, now);
        if next < poll_due {
            decision.next_due = Some(next);
            decision.terms.push(Rule::Archive, next);
        }
    }
    Some(archive)
}

fn feed_hold(decision: &Decision) -> Option<Timestamp> {
    decision.state.hold_until
}

fn page_due(hold: Option<Timestamp>, poll_due: Timestamp, config: &PolicyConfig, now: Timestamp) -> Timestamp {
    now.after(config.archive_gap).max(hold.unwrap_or(now)).min(poll_due)
}

impl Results {
    /// Stores what pages brought, and plans the next ones. Safe to repeat.
    pub(crate) async fn settle_pages(
        &self,
        reports: Vec<FetchReport>,
        feeds: &HashMap<FeedId, Feed>,
        now: Timestamp,
    ) -> Result<(), BackendError> {
        if reports.is_empty() {
            return Ok(());
        }
        self.hold_hosts(reports.iter(), now).await?;
        let gaps = self.rules.get();
        let free: Vec<(HostKey, Timestamp)> = reports
            .iter()
            .map(|report| (report.host.clone(), report.started.after(gaps.limits_of(&report.host).gap)))
            .collect();
        let current = reports.into_iter().filter_map(|report| {
            let feed = feeds.get(&report.feed).filter(|feed| feed.version == report.version);
            self.metrics.stale_reports.inc_by(u64::from(feed.is_none()));
            Some(self.judge_page(feed?, report, now))
        });
        let mut pending = vec![current.collect::<Vec<_>>()];
        while let Some(mut batch) = pending.pop() {
            if batch.is_empty() {
                continue;
            }
            match self.store.apply(&batch, self.config.scheduler.clock_skew, now).await {
                Ok(applied) => self.pages_applied(&batch, &applied, now).await?,
                Err(error) if error.refuses_data() && batch.len() > 1 => {
                    let rest = batch.split_off(batch.len() / 2);
                    pending.extend([rest, batch]);
                }
                Err(error) if error.refuses_data() => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "the store refused a page of older entries"
                    );
                    pending.push(batch.into_iter().filter_map(without_page).collect());
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.schedule.unpark(&free).await?;
        Ok(())
    }

    async fn pages_applied(&self, batch: &[Verdict], applied: &[Applied], now: Timestamp) -> Result<(), BackendError> {
        let mut slots = Vec::new();
        for (verdict, applied) in batch.iter().zip(applied) {
            // Of those that a person changed meanwhile the page is read again when its lease has ended.
            let Applied::Stored { due, wake, new_entries, over_quota, .. } = applied else { continue };
            self.condition.watchdog.progressed();
            let is_read = matches!(verdict.report.outcome, Outcome::Modified(_) | Outcome::NotModified { .. });
            self.metrics.archive_pages.with_label_values(&[if is_read { "read" } else { "failed" }]).inc();
            self.metrics.entries.inc_by(u64::from(*new_entries));
            self.metrics.record_over_quota(over_quota);
            let band = Band::of(verdict.category, *wake);
            slots.extend(due.map(|due_at| Slot { feed: verdict.report.feed, due_at, band }));
        }
        Ok(self.schedule.put(&slots, now).await?)
    }

    /// What follows from a page: its entries, and the next page or the end.
    fn judge_page(&self, feed: &Feed, mut report: FetchReport, now: Timestamp) -> Verdict {
        let (config, rules) = (self.condition.config.get(), self.rules.get());
        let config = &config.policy;
        // The feed stays with its own host.
        let charged = std::mem::replace(&mut report.host, feed.host.clone());
        report.answered_by = report.answered_by.or(Some(charged)).filter(|host| *host != report.host);
        let mut decision = Decision {
            state: feed.state,
            status: feed.status,
            next_due: feed.next_due,
            terms: Terms::default(),
            host_hold: report.outcome.rest().map(|until| first_hold(until, now, config.penalty.throttled)),
            notices: Notices::default(),
        };
        feed.terms
            .iter()
            .filter(|term| term.rule != Rule::Archive)
            .for_each(|term| decision.terms.push(term.rule, term.due));
        let archive = feed.archive.clone().and_then(|archive| {
            let (poll_due, since) = (archive.poll_due, archive.since);
            decision.next_due = Some(poll_due);
            let failed = !matches!(report.outcome, Outcome::Modified(_));
            let onwards = match &mut report.outcome {
                Outcome::Modified(document) => {
                    let limits = ArchiveLimits {
                        pages: config.archive_pages,
                        bytes: config.archive_bytes,
                        entries: config.archive_entries,
                    };
                    archive.after(document, report.wire_bytes, limits)
                }
                _ => archive.after_failure(),
            };
            match onwards {
                Onwards::More(archive) => {
                    let next = page_due(decision.state.hold_until, poll_due, config, now);
                    if next < poll_due && !failed {
                        decision.next_due = Some(next);
                        decision.terms.push(Rule::Archive, next);
                    }
                    return Some(archive);
                }
                Onwards::Done => {
                    decision.state.gap_since = decision.state.gap_since.filter(|gap| *gap < since);
                }
                Onwards::GivenUp => {}
            }
            None
        });
        let category = category(&subject(&rules, feed));
        Verdict { report, decision, category, audience_at: feed.audience_at, push: None, archive }
    }
}

/// The same verdict on a page that cannot be stored: nothing follows from it, and its archive is read no further.
fn without_page(verdict: Verdict) -> Option<Verdict> {
    let Outcome::Modified(document) = &verdict.report.outcome else { return None };
    let outcome = Outcome::NotModified { validators: document.validators.clone() };
    Some(Verdict { report: FetchReport { outcome, ..verdict.report }, archive: None, ..verdict })
}
