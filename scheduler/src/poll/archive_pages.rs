//! Settles the pages of archives that workers read: stores their entries, and plans the next page or the end.

use std::collections::HashMap;

use common::archive::ArchiveLimits;
use common::config::PolicyConfig;
use common::feed::Feed;
use common::host::HostKey;
use common::policy::{Decision, Notices, Rule, Terms, category, first_hold};
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;
use common::url::FeedId;

use crate::error::BackendError;
use crate::poll::archive::{BACKDATED, page_due};
use crate::poll::log;
use crate::poll::settling::Settling;
use crate::poll::subject::subject;
use crate::schedule::{Band, ScheduleError, Slot};
use store::{Applied, Verdict};

/// Stores the content of pages, and plans the next ones. Safe to repeat.
pub(super) async fn settle(
    settling: &Settling<'_>,
    reports: Vec<FetchReport>,
    feeds: &HashMap<FeedId, Feed>,
    now: Timestamp,
) -> Result<(), BackendError> {
    let gaps = settling.rules.get();
    let free: Vec<(HostKey, Timestamp)> = reports
        .iter()
        .map(|report| (report.host.clone(), report.started.after(gaps.limits_of(&report.host).gap)))
        .collect();
    let proofs = &settling.condition.proofs;
    let current = reports.into_iter().filter_map(|report| {
        let feed = feeds.get(&report.feed).filter(|feed| feed.version == report.version);
        let feed = feed.filter(|feed| !proofs.is_of_lost_history(feed, &report, now));
        settling.metrics.stale_reports.inc_by(u64::from(feed.is_none()));
        Some(judge_page(settling, feed?, report, now))
    });
    let mut pending = vec![current.collect::<Vec<_>>()];
    while let Some(mut batch) = pending.pop() {
        if batch.is_empty() {
            continue;
        }
        match settling.store.apply(&batch, settling.config.scheduler.clock_skew, now).await {
            Ok(applied) => pages_applied(settling, &batch, &applied, now).await?,
            Err(error) if error.refuses_data() && batch.len() > 1 => {
                let rest = batch.split_off(batch.len() / 2);
                pending.extend([rest, batch]);
            }
            Err(error) if error.refuses_data() => {
                tracing::error!(error = &error as &dyn std::error::Error, "the store refused a page of older entries");
                let refused = batch.into_iter().filter_map(|verdict| {
                    let feed = feeds.get(&verdict.report.feed)?;
                    without_content(verdict.report).map(|report| judge_page(settling, feed, report, now))
                });
                pending.push(refused.collect());
            }
            Err(error) => return Err(error.into()),
        }
    }
    settling.schedule.unpark(&free).await?;
    Ok(())
}

async fn pages_applied(
    settling: &Settling<'_>,
    batch: &[Verdict],
    applied: &[Applied],
    now: Timestamp,
) -> Result<(), BackendError> {
    log::pages(batch, applied);
    let mut slots = Vec::new();
    for (verdict, applied) in batch.iter().zip(applied) {
        // Of those that a person changed meanwhile the page is read again when its lease has ended.
        let Applied::Stored { due, wake, new_entries, over_quota, .. } = applied else { continue };
        settling.condition.watchdog.progressed();
        let is_read = matches!(verdict.report.outcome, Outcome::Modified(_));
        settling.metrics.archive_pages.with_label_values(&[if is_read { "read" } else { "failed" }]).inc();
        settling.metrics.entries.inc_by(u64::from(*new_entries));
        settling.metrics.record_over_quota(over_quota);
        let band = Band::of(verdict.category, *wake);
        slots.extend(due.map(|due_at| Slot { feed: verdict.report.feed, due_at, band }));
    }
    Ok(settling.schedule.put(&slots, now).await.or_else(ScheduleError::unless_part_away)?)
}

/// Returns what follows from a page: its entries, and the next page or the end. If the feed's quotas leave some of them out, the store
/// ends the reading there and keeps the gap. If the response asks to wait, the feed itself is not polled before that either.
fn judge_page(settling: &Settling<'_>, feed: &Feed, mut report: FetchReport, now: Timestamp) -> Verdict {
    let (config, rules) = (settling.condition.config.get(), settling.rules.get());
    let config = &config.policy;
    // The feed stays with its own host.
    let charged = std::mem::replace(&mut report.host, feed.host.clone());
    report.answered_by = report.answered_by.or(Some(charged)).filter(|host| *host != report.host);
    let mut decision = Decision {
        state: feed.state,
        status: feed.status,
        next_due: feed.poll_due(),
        terms: Terms::default(),
        host_hold: report.outcome.rest().map(|until| first_hold(until, now, config.penalty.throttled)),
        notices: Notices::default(),
    };
    feed.terms
        .iter()
        .filter(|term| term.rule != Rule::Archive)
        .for_each(|term| decision.terms.push(term.rule, term.due));
    let wait = Wait::of(&report, now, config);
    if let Some(wait) = wait {
        wait.apply(&mut decision);
    }
    let limits =
        ArchiveLimits { pages: config.archive_pages, bytes: config.archive_bytes, entries: config.archive_entries };
    let archive = feed.archive.clone().zip(decision.next_due).and_then(|(mut archive, poll_due)| {
        archive.poll_due = poll_due;
        let (since, page) = (archive.since, archive.next.clone());
        let step = match &mut report.outcome {
            // A page is requested without a hash: one without any ended too early, or did not fit into its report.
            Outcome::Modified(document) if document.content_hash.is_none() => {
                archive.after_part(document, report.wire_bytes, limits)
            }
            Outcome::Modified(document) => archive.after(document, report.wire_bytes, limits),
            // Without a time it counts as a failure: otherwise nothing would end the requests to a server that throttles them all.
            Outcome::Throttled { .. } if wait.is_some() => archive.after_throttle(now),
            _ => archive.after_failure(),
        };
        let closes = |gap: &Timestamp| {
            step.overlaps && step.gap.is_none_or(|own| own <= *gap) || step.is_past && since <= gap.before(BACKDATED)
        };
        decision.state.gap_since = decision.state.gap_since.filter(|gap| !closes(gap));
        let archive = step.next?;
        let next = page_due(decision.state.hold_until, poll_due, config, now);
        if next < poll_due && archive.next != page {
            decision.next_due = Some(next);
            decision.terms.push(Rule::Archive, next);
        }
        Some(archive)
    });
    let category = category(&subject(&rules, feed));
    Verdict { report, decision, category, audience_at: feed.audience_at, push: None, archive, seen: None }
}

/// The wait that the response to a page asks for with `Retry-After`. It holds the feed as a poll's does.
#[derive(Clone, Copy)]
struct Wait {
    /// The time that the server requested.
    asked: Timestamp,
    /// The same, limited by the ceiling.
    until: Timestamp,
}

impl Wait {
    fn of(report: &FetchReport, now: Timestamp, config: &PolicyConfig) -> Option<Self> {
        let asked = match report.outcome {
            Outcome::Throttled { retry_after } => retry_after,
            _ => report.retry_after,
        };
        let asked = asked.filter(|asked| *asked > report.started)?;
        Some(Wait { asked, until: asked.min(now.after(config.retry_after_ceiling)) })
    }

    /// Holds the feed, and moves its own poll to the end of the wait if it is planned earlier.
    fn apply(self, decision: &mut Decision) {
        let Wait { asked, until } = self;
        decision.state.hold_until = decision.state.hold_until.max(Some(until));
        if decision.next_due.is_some_and(|due| due < until) {
            decision.next_due = Some(until);
            decision.terms.push(Rule::RetryAfter, asked);
            if asked > until {
                decision.terms.push(Rule::Ceiling, until);
            }
        }
    }
}

/// Returns the report of a page that cannot be stored, as of one that could not be read. `None` if it has no content that could be refused.
fn without_content(report: FetchReport) -> Option<FetchReport> {
    let Outcome::Modified(document) = &report.outcome else { return None };
    let outcome = Outcome::NotModified { validators: document.validators.clone() };
    Some(FetchReport { outcome, ..report })
}
