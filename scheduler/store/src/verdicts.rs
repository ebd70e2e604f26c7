//! What verdicts do to the store, as far as it follows from the rows that were there before: both databases read,
//! decide by this code, and write.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use common::archive::ArchiveRead;
use common::document::{Document, Validators};
use common::host::HostKey;
use common::outcome::{FailureKind, OutcomeKind};
use common::policy::{HostHold, PollState, Rule, Status, Terms, host_hold, limit_hold};
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;
use serde::Deserialize;
use sqlx_macros::FromRow;

use super::columns::{day_of, pack_error};
use super::quota::Spent;
use super::{Applied, Seen, Verdict, history};

/// A verdict on the version that the store has, with what the feed's row said before.
pub(super) struct Fresh<'a> {
    /// Its place in the batch.
    at: usize,
    pub(super) verdict: &'a Verdict,
    pub(super) row: Before,
    /// The quotas of the feed left entries of its document out: see [`note_cuts`].
    is_cut: bool,
}

/// The columns of a feed that decide how a verdict is stored. The order is SQLite's `apply_before.sql`'s.
#[derive(Clone, Debug, Deserialize, FromRow)]
pub(super) struct Before {
    pub(super) id: i64,
    pub(super) version: i64,
    category: String,
    status: String,
    host: String,
    pub(super) audience_at: i64,
    pub(super) wake_at: Option<i64>,
    etag: Option<String>,
    last_modified: Option<String>,
    validators_url: Option<String>,
    pub(super) quota: Option<String>,
    gap_since: Option<i64>,
    /// `None` where it was not read: every poll writes the column anyway.
    #[sqlx(default)]
    pub(super) polled_day: Option<i64>,
    /// 1 if it has something that most feeds do not have: a wake, a hold, a failure, an archive and the like. 0 where it was not read:
    /// every poll writes these columns anyway.
    #[sqlx(default)]
    pub(super) rare: i64,
}

impl Before {
    /// Returns what was seen of the row when this was decided, if storing it needs nothing more: what a document or a
    /// push costs depends on what was stored since. The writer must find out whether the row has changed.
    pub(super) fn seen(verdict: &Verdict) -> Option<Self> {
        let Verdict { report, audience_at, seen, .. } = verdict;
        let Seen { category, status, host, wake_at, validators, polled_day, has_rare } = &**seen.as_ref()?;
        let needs_more = report.pushed || report.page || matches!(report.outcome, Outcome::Modified(_));
        (!needs_more).then(|| Before {
            id: report.feed.0,
            version: report.version.0,
            category: category.as_str().to_owned(),
            status: status.as_str().to_owned(),
            host: host.to_string(),
            audience_at: audience_at.millis(),
            wake_at: wake_at.map(Timestamp::millis),
            etag: validators.etag.clone(),
            last_modified: validators.last_modified.clone(),
            validators_url: validators.for_url.clone(),
            quota: None,
            gap_since: None,
            polled_day: Some(*polled_day),
            rare: i64::from(*has_rare),
        })
    }
}

/// The verdicts whose version and audience are the store's, and the answers so far: to the others. Of two for one feed the
/// second is stale: the first raises the version.
pub(super) fn fresh(verdicts: &[Verdict], rows: Vec<Before>) -> (Vec<Fresh<'_>>, Vec<Applied>) {
    let mut rows: HashMap<i64, Before> = rows.into_iter().map(|row| (row.id, row)).collect();
    let mut fresh = Vec::with_capacity(verdicts.len());
    let mut answers = vec![Applied::Stale; verdicts.len()];
    for (at, verdict) in verdicts.iter().enumerate() {
        let FetchReport { feed, version, outcome, .. } = &verdict.report;
        debug_assert_ne!(outcome.kind(), OutcomeKind::Deferred, "a Deferred only re-scores: it is never applied");
        // A push belongs to no version: it only adds entries.
        let pushed = verdict.report.pushed;
        let Some(row) = rows.get(&feed.0).filter(|row| row.version == version.0 || pushed) else { continue };
        if row.audience_at != verdict.audience_at.millis() && !pushed {
            answers[at] = Applied::Outdated;
        } else if outcome.kind() != OutcomeKind::Deferred {
            fresh.extend(rows.remove(&feed.0).map(|row| Fresh { at, verdict, row, is_cut: false }));
        }
    }
    (fresh, answers)
}

impl<'a> Fresh<'a> {
    /// A wake that the fetch did not answer: the job did not know of it, and it came after the fetch's start, as far as
    /// two clocks can show. One that lies ahead of the fetch is still owed, even if the job knew of it: further wishes
    /// may have been folded into it meanwhile. A page of older entries answers none: the feed itself was not read. Never
    /// before the end of the feed's own hold.
    pub(super) fn unanswered_wake(&self, clock_skew: Duration) -> Option<Timestamp> {
        let Verdict { report, decision, .. } = self.verdict;
        let wake = Timestamp::from_millis(self.row.wake_at?);
        let known = report.answers_wake.filter(|known| *known <= report.started.after(clock_skew));
        let is_older = known.is_some_and(|known| wake <= known) || wake.after(clock_skew) < report.started;
        let answered = is_older && !self.is_page();
        let kept = decision.status == Status::Active && !answered;
        kept.then(|| decision.state.hold_until.map_or(wake, |hold| hold.max(wake)))
    }

    fn due(&self, wake: Option<Timestamp>) -> Option<Timestamp> {
        let next_due = self.next_due().filter(|_| self.verdict.decision.status == Status::Active)?;
        Some(wake.map_or(next_due, |wake| wake.min(next_due)))
    }

    /// When the feed is due without a wake: for its poll if its archive is read no further.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let planned = self.verdict.decision.next_due?;
        Some(self.verdict.archive.as_ref().filter(|_| self.is_cut).map_or(planned, |archive| archive.poll_due))
    }

    /// Why it is due then.
    pub(super) fn terms(&self) -> Terms {
        let planned = self.verdict.decision.terms;
        if !self.is_cut {
            return planned;
        }
        let mut terms = Terms::default();
        planned.iter().filter(|term| term.rule != Rule::Archive).for_each(|term| terms.push(term.rule, term.due));
        terms
    }

    /// How far its archive was read, if it is read any further.
    pub(super) fn archive(&self) -> Option<&'a ArchiveRead> {
        self.verdict.archive.as_ref().filter(|_| !self.is_cut)
    }

    /// The memory of the policy. A page of which entries were left out closes no gap.
    pub(super) fn state(&self) -> Cow<'a, PollState> {
        let state = &self.verdict.decision.state;
        let before = self.row.gap_since.filter(|gap| self.is_cut && self.is_page() && *gap > 0);
        match before.filter(|_| state.gap_since.is_none()) {
            Some(gap) => Cow::Owned(PollState { gap_since: Some(Timestamp::from_millis(gap)), ..*state }),
            None => Cow::Borrowed(state),
        }
    }

    /// The report is about a push: of the feed's row only the number of entries and the quota change.
    pub(super) fn is_pushed(&self) -> bool {
        self.verdict.report.pushed
    }

    /// It is the report on a page of older entries: only the entries of its document count.
    pub(super) fn is_page(&self) -> bool {
        self.verdict.report.page
    }

    /// How the poll failed. A page that cannot be read does not make its feed fail.
    pub(super) fn failure(&self) -> Option<FailureKind> {
        self.verdict.report.outcome.failure().filter(|_| !self.is_page())
    }

    /// Why the poll failed, as it is stored.
    pub(super) fn error(&self) -> Option<String> {
        pack_error(&self.verdict.report).filter(|_| !self.is_page())
    }

    /// The poll for the feed's history; nothing for a page.
    pub(super) fn history(&self) -> Vec<u8> {
        match self.is_page() {
            true => Vec::new(),
            false => history::pack(&self.verdict.report, &self.verdict.decision).to_vec(),
        }
    }

    /// Category, status and host as they are to be, if one of them changes: they are indexed.
    pub(super) fn new_standing(&self) -> Option<(&str, Status, &str)> {
        let Verdict { report, decision, category, .. } = self.verdict;
        let after = (category.as_str(), decision.status, report.host.as_str());
        let same = (after.0, after.1.as_str(), after.2) == (&self.row.category, &self.row.status, &self.row.host);
        (!same).then_some(after)
    }

    /// Returns its document, if it is a good answer with other bytes.
    pub(super) fn document(&self) -> Option<&'a Document> {
        match &self.verdict.report.outcome {
            Outcome::Modified(document) => Some(document),
            _ => None,
        }
    }

    /// The validators of an answer that confirms the document, if they are others than before.
    pub(super) fn new_validators(&self) -> Option<&'a Validators> {
        let Before { etag, last_modified, validators_url, .. } = &self.row;
        match &self.verdict.report.outcome {
            Outcome::NotModified { validators: new } if !self.is_page() => {
                let same = (etag, last_modified, validators_url) == (&new.etag, &new.last_modified, &new.for_url);
                (!same).then_some(new)
            }
            _ => None,
        }
    }
}

/// Notes of which documents the quotas left entries out: what is left out of a page is never read again. The archive of such a feed is
/// read no further, and the gap that was to be closed stays known.
pub(super) fn note_cuts(fresh: &mut [Fresh<'_>], spent: &[Option<Spent>]) {
    for (fresh, spent) in fresh.iter_mut().zip(spent) {
        let over = spent.map(|spent| spent.over()).unwrap_or_default();
        fresh.is_cut = over.entries + over.bytes > 0;
    }
}

/// The value of the column `gap_since`: 0 before a feed was read, null while nothing is missing.
pub(super) fn gap_column(fresh: &Fresh<'_>) -> Option<i64> {
    let state = fresh.state();
    state.last_success.map_or(Some(0), |_| state.gap_since.map(Timestamp::millis))
}

/// The value of the column `polled_day`.
pub(super) fn polled_day(fresh: &Fresh<'_>) -> i64 {
    day_of(fresh.verdict.decision.state.last_polled)
}

/// What a verdict does to the entries.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) new: u32,
    pub(super) updated: u32,
    /// Rows that there are more afterwards.
    pub(super) more: i64,
}

/// Hosts' holds, each with the feed that was throttled last, or at which the host's limit was used up.
pub(super) type HostHolds = BTreeMap<HostKey, HostHold>;

/// Returns the hosts for which verdicts request holds, in the order in which every store locks them.
pub(super) fn throttled_hosts(fresh: &[Fresh<'_>]) -> Vec<HostKey> {
    let hosts = fresh.iter().filter_map(asked_hold).map(|(host, _)| (host.clone(), ()));
    hosts.collect::<BTreeMap<_, _>>().into_keys().collect()
}

/// Applies the verdicts to the existing holds: returns the hosts' new ones, and the hold that follows from each verdict
/// that requests one, by its number.
pub(super) fn new_holds(
    fresh: &[Fresh<'_>],
    mut before: HostHolds,
    now: Timestamp,
) -> (HostHolds, HashMap<usize, Timestamp>) {
    let mut after = HostHolds::new();
    let mut holds = HashMap::new();
    for (number, fresh) in fresh.iter().enumerate() {
        let Some((host, asked)) = asked_hold(fresh) else { continue };
        let (cause, previous) = (fresh.verdict.report.feed, before.get(host));
        let hold = match fresh.verdict.report.outcome.rest() {
            Some(_) => HostHold { until: host_hold(previous, cause, asked, now), asked, cause },
            None => limit_hold(previous, cause, asked, now),
        };
        before.insert(host.clone(), hold);
        after.insert(host.clone(), hold);
        holds.insert(number, hold.until);
    }
    (after, holds)
}

fn asked_hold<'a>(fresh: &Fresh<'a>) -> Option<(&'a HostKey, Timestamp)> {
    let Verdict { report, decision, .. } = fresh.verdict;
    Some((report.answering_host(), decision.host_hold?))
}

/// Completes the answers: one for each of the verdicts, in order.
pub(super) fn answers(
    mut answers: Vec<Applied>,
    fresh: &[Fresh<'_>],
    tallies: &[Tally],
    holds: &HashMap<usize, Timestamp>,
    spent: &[Option<Spent>],
    clock_skew: Duration,
) -> Vec<Applied> {
    for (number, (fresh, tally)) in fresh.iter().zip(tallies).enumerate() {
        let wake = fresh.unanswered_wake(clock_skew);
        answers[fresh.at] = Applied::Stored {
            due: fresh.due(wake),
            wake: wake.is_some(),
            new_entries: tally.new,
            updated_entries: tally.updated,
            host_hold: holds.get(&number).copied(),
            over_quota: spent.get(number).copied().flatten().map(|spent| spent.over()).unwrap_or_default(),
        };
    }
    answers
}

/// What a verdict makes of a feed's due time and wake, given the version and wake in the row; `None`: it is stale. For the
/// model of the claim protocol.
#[cfg(any(test, feature = "conformance"))]
pub fn row_after(
    verdict: Verdict,
    (version, wake_at): (i64, Option<i64>),
    clock_skew: Duration,
) -> Option<(Option<Timestamp>, Option<Timestamp>)> {
    let (category, status) = (verdict.category.as_str().to_owned(), Status::Active.as_str().to_owned());
    let before = Before {
        id: verdict.report.feed.0,
        version,
        category,
        status,
        host: verdict.report.host.as_str().to_owned(),
        audience_at: verdict.audience_at.millis(),
        wake_at,
        etag: None,
        last_modified: None,
        validators_url: None,
        quota: None,
        gap_since: None,
        polled_day: None,
        rare: 0,
    };
    let verdicts = [verdict];
    let (fresh, _) = fresh(&verdicts, vec![before]);
    let fresh = fresh.first()?;
    let wake = fresh.unanswered_wake(clock_skew);
    Some((fresh.due(wake), wake))
}

/// A feed's `wake_at` after a wake: what `wake.sql` does to the row. For the
/// model of the claim protocol.
#[cfg(any(test, feature = "conformance"))]
pub fn wake_after(before: Option<i64>, hold: Option<i64>, at: i64, now: i64) -> i64 {
    let wake = match before {
        None => at,
        Some(before) if before <= now => now,
        Some(before) => before.min(at),
    };
    wake.max(hold.unwrap_or(0))
}
