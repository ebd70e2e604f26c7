//! What verdicts do to the store, as far as it follows from the rows that were there before: both databases read,
//! decide by this code, and write.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use common::config::QuotaConfig;
use common::document::{Document, Validators};
use common::entry::{Entry, Fingerprint};
use common::host::HostKey;
use common::known::KnownEntries;
use common::outcome::{FailureKind, OutcomeKind};
use common::policy::{HostHold, Notice, Status, host_hold};
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;
use common::url::FeedId;
use serde::Deserialize;
use sqlx_macros::FromRow;

use super::news::About;
use super::quota::Spent;
use super::row::{entry_identity, pack_error};
use super::stretch::Column;
use super::{Applied, Seen, Verdict, history};

/// A verdict on the version that the store has, with what the feed's row said before.
pub(super) struct Fresh<'a> {
    /// Its place in the batch.
    at: usize,
    pub(super) verdict: &'a Verdict,
    pub(super) row: Before,
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
    /// `None` where every poll writes the column anyway.
    #[sqlx(default)]
    pub(super) polled_day: Option<i64>,
}

impl Before {
    /// Returns what was seen of the row when this was decided, if storing it needs nothing more: what a document or a
    /// push costs depends on what was stored since. The writer must find out whether the row has changed.
    pub(super) fn seen(verdict: &Verdict) -> Option<Self> {
        let Verdict { report, audience_at, seen, .. } = verdict;
        let Seen { category, status, host, wake_at, validators } = &**seen.as_ref()?;
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
            polled_day: None,
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
            fresh.extend(rows.remove(&feed.0).map(|row| Fresh { at, verdict, row }));
        }
    }
    (fresh, answers)
}

impl<'a> Fresh<'a> {
    /// A wake that the fetch did not answer: the job did not know of it, and it came after the fetch's start, as far as
    /// two clocks can show. One that lies ahead of the fetch is still owed, even if the job knew of it: further wishes
    /// may have been folded into it meanwhile. Never before the end of the feed's own hold.
    pub(super) fn unanswered_wake(&self, clock_skew: Duration) -> Option<Timestamp> {
        let Verdict { report, decision, .. } = self.verdict;
        let wake = Timestamp::from_millis(self.row.wake_at?);
        let known = report.answers_wake.filter(|known| *known <= report.started.after(clock_skew));
        let answered = known.is_some_and(|known| wake <= known) || wake.after(clock_skew) < report.started;
        let kept = decision.status == Status::Active && !answered;
        kept.then(|| decision.state.hold_until.map_or(wake, |hold| hold.max(wake)))
    }

    fn due(&self, wake: Option<Timestamp>) -> Option<Timestamp> {
        let next_due = self.verdict.decision.next_due.filter(|_| self.verdict.decision.status == Status::Active)?;
        Some(wake.map_or(next_due, |wake| wake.min(next_due)))
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

/// An entry that is new, or has other content than the store.
pub(super) struct Change<'a> {
    /// The fresh verdict that it comes from. Changes are in the order of verdicts and documents.
    fresh: usize,
    pub(super) feed: FeedId,
    pub(super) identity: [u8; 16],
    /// The number of its event; given by [`number`].
    pub(super) seq: i64,
    pub(super) entry: &'a Entry,
    pub(super) fingerprint: i64,
    pub(super) stored: Option<Form>,
    /// It comes from a push, which may be an old one that is repeated: what the store has stays as it is.
    only_adds: bool,
}

/// What the store has of an entry.
#[derive(Clone, Copy)]
pub(super) struct Form {
    pub(super) seq: i64,
    pub(super) fingerprint: i64,
    /// When it was first seen; `None`: retention took the entry and left the identity.
    pub(super) seen: Option<i64>,
}

/// The entries of the verdicts' documents: changes as far as the documents say. The store's forms are still to be filled in.
pub(super) fn reported<'a>(fresh: &[Fresh<'a>]) -> Vec<Change<'a>> {
    let mut changes = Vec::new();
    for (number, fresh) in fresh.iter().enumerate() {
        let mut seen = HashSet::new();
        for entry in fresh.document().map_or(&[][..], |document| &document.entries) {
            let identity = entry_identity(entry);
            // A document that has an identity twice would otherwise update its own entry with every poll.
            if seen.insert(identity) {
                let feed = fresh.verdict.report.feed;
                let fingerprint = entry.fingerprint().0.cast_signed();
                let only_adds = fresh.is_pushed() || fresh.is_page();
                changes.push(Change {
                    fresh: number,
                    feed,
                    identity,
                    seq: 0,
                    entry,
                    fingerprint,
                    stored: None,
                    only_adds,
                });
            }
        }
    }
    changes
}

impl Change<'_> {
    /// Returns the fresh verdict that it comes from.
    pub(super) fn verdict(&self) -> usize {
        self.fresh
    }

    /// The feed never had it. Otherwise it is an update.
    pub(super) fn is_new(&self) -> bool {
        self.stored.is_none()
    }

    /// There is one more row afterwards: it is new, or comes back with other content after retention took it.
    fn is_stored_anew(&self) -> bool {
        self.stored.is_none_or(|form| form.seen.is_none())
    }

    /// The store has it with other content, which may be replaced, or not at all.
    pub(super) fn is_change(&self) -> bool {
        self.stored.is_none_or(|form| form.fingerprint != self.fingerprint && !self.only_adds)
    }

    /// When it was first seen: now, unless the store has it.
    pub(super) fn seen(&self, now: Timestamp) -> i64 {
        self.stored.and_then(|form| form.seen).unwrap_or(now.millis())
    }
}

/// Leaves the changes that their feeds may store, the newest of each document first; returns what each of the fresh verdicts
/// spent, `None` where it changes nothing.
pub(super) fn keep_within(
    fresh: &[Fresh<'_>],
    changes: &mut Vec<Change<'_>>,
    quota: &QuotaConfig,
    now: Timestamp,
) -> Vec<Option<Spent>> {
    let mut spent: Vec<Option<Spent>> = vec![None; fresh.len()];
    // Documents begin with their newest entry; here they are reversed.
    let mut order: Vec<usize> = (0..changes.len()).rev().collect();
    order.sort_by_key(|place| {
        let entry = changes[*place].entry;
        Reverse(entry.published.or(entry.updated))
    });
    let mut left_out = HashSet::new();
    for place in order {
        let change = &changes[place];
        let number = change.verdict();
        let spent = spent[number].get_or_insert_with(|| Spent::none(fresh[number].row.quota.as_deref(), quota, now));
        if !spent.takes(change.entry.text_bytes(), change.is_new(), quota) {
            left_out.insert(place);
        }
    }
    let mut places = 0..;
    changes.retain(|_| places.next().is_none_or(|place| !left_out.contains(&place)));
    spent
}

/// The numbers that changed entries of this verdict have in the store.
pub(super) fn stored_forms(changes: &[Change<'_>], verdict: usize) -> Vec<i64> {
    let own = changes.iter().filter(|change| change.fresh == verdict);
    own.filter_map(|change| change.stored.map(|form| form.seq)).collect()
}

/// Returns the fingerprints of the entries that are in a verdict's document now, also of those that its job knew: a
/// document's known entries begin with its own, and those that do not fit in there are reported each time. A delivery
/// is a part of a document: all that its job knew may be in the rest.
pub(super) fn still_there(fresh: &Fresh<'_>) -> Vec<i64> {
    let Some(document) = fresh.document() else { return Vec::new() };
    let own = usize::try_from(document.all_entries).unwrap_or(usize::MAX);
    let known = document.known.iter().take(if fresh.is_pushed() || fresh.is_page() { usize::MAX } else { own });
    let all = known.chain(document.entries.iter().map(Entry::fingerprint));
    all.map(|fingerprint| fingerprint.0.cast_signed()).collect()
}

/// What a feed's known entries are after a delivery of which these changes are stored: a poll then knows what was pushed by the same
/// ids. `None`: as before.
pub(super) fn known_after_push(before: &[u8], changes: &[Change<'_>], verdict: usize) -> Option<KnownEntries> {
    let pushed = changes.iter().filter(|change| change.fresh == verdict);
    let pushed: Vec<Fingerprint> = pushed.map(|change| Fingerprint(change.fingerprint.cast_unsigned())).collect();
    (!pushed.is_empty()).then(|| KnownEntries::from_bytes(before).after_push(pushed.into_iter().rev()))
}

/// Feeds with a push subscription that have new entries, in order; with whether all of these were announced.
pub(super) fn learned(fresh: &[Fresh<'_>], changes: &[Change<'_>]) -> Vec<(FeedId, bool)> {
    let mut learned = BTreeMap::new();
    for change in changes.iter().filter(|change| change.is_new()) {
        let Some(claim) = fresh[change.fresh].verdict.push else { continue };
        let at = change.entry.published.or(change.entry.updated);
        let is_announced = claim.since.is_some_and(|since| at.is_none_or(|at| at >= since));
        *learned.entry(change.feed).or_insert(true) &= is_announced;
    }
    learned.into_iter().collect()
}

/// What a verdict does to the entries.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    new: u32,
    updated: u32,
    /// Rows that there are more afterwards.
    pub(super) more: i64,
}

/// What each of the fresh verdicts does to the entries.
pub(super) fn tallies(fresh: &[Fresh<'_>], changes: &[Change<'_>]) -> Vec<Tally> {
    let mut tallies = vec![Tally::default(); fresh.len()];
    for change in changes {
        let tally = &mut tallies[change.fresh];
        tally.new += u32::from(change.is_new());
        tally.updated += u32::from(!change.is_new());
        tally.more += i64::from(change.is_stored_anew());
    }
    tallies
}

/// An event to be new_events.
pub(super) struct NewEvent {
    pub(super) seq: i64,
    pub(super) kind: &'static str,
    pub(super) feed: FeedId,
    pub(super) identity: Option<[u8; 16]>,
    /// Why the feed fails, if that is what happened.
    pub(super) error: Option<String>,
    /// See [`About`].
    pub(super) about: Option<String>,
}

/// Returns the number of events.
pub(super) fn events(fresh: &[Fresh<'_>], changes: &[Change<'_>]) -> usize {
    changes.len() + fresh.iter().map(|fresh| fresh.verdict.decision.notices.iter().count()).sum::<usize>()
}

/// Gives every change its `seq` after `last`, feed by feed, entries before the feed's own notice.
pub(super) fn number(fresh: &[Fresh<'_>], changes: &mut [Change<'_>], last: i64) -> Vec<NewEvent> {
    let mut new_events = Vec::with_capacity(events(fresh, changes));
    let mut seqs = last + 1..;
    let mut next = || seqs.next().unwrap_or(i64::MAX);
    for of_document in changes.chunk_by_mut(|one, other| one.fresh == other.fresh) {
        in_order_of_time(of_document);
    }
    let mut changes = changes.iter_mut().peekable();
    for (number, fresh) in fresh.iter().enumerate() {
        let feed = fresh.verdict.report.feed;
        while let Some(change) = changes.next_if(|change| change.fresh == number) {
            change.seq = next();
            let kind = if change.is_new() { "entry.new" } else { "entry.updated" };
            let identity = Some(change.identity);
            new_events.push(NewEvent { seq: change.seq, kind, feed, identity, error: None, about: None });
        }
        for notice in fresh.verdict.decision.notices.iter() {
            let error = pack_error(&fresh.verdict.report);
            let about = since(notice, fresh.verdict).and_then(|since| About::since(since).packed());
            new_events.push(NewEvent { seq: next(), kind: event_kind(notice), feed, identity: None, error, about });
        }
    }
    new_events
}

/// Puts a document's entries in the order in which they were published, so that lists by number show the newest first. Documents
/// list them in either order; those that do not date every entry are left as they are.
fn in_order_of_time(changes: &mut [Change<'_>]) {
    let time = |change: &Change<'_>| change.entry.published.or(change.entry.updated);
    if changes.iter().all(|change| time(change).is_some()) {
        changes.sort_by_key(time);
    }
}

/// When the condition that a notice reports began, if that was before this poll.
fn since(notice: Notice, verdict: &Verdict) -> Option<Timestamp> {
    match notice {
        Notice::Overflowed => verdict.decision.state.gap_since,
        Notice::Silent => verdict.decision.state.silent_since,
        _ => None,
    }
}

/// The value of the column `gap_since`: 0 before a feed was read, null while nothing is missing.
pub(super) fn gap_column(fresh: &Fresh<'_>) -> Option<i64> {
    let state = &fresh.verdict.decision.state;
    state.last_success.map_or(Some(0), |_| state.gap_since.map(Timestamp::millis))
}

/// The value of the column `polled_day`: days since 1970 until the last poll, 0 before the first one.
pub(super) fn polled_day(fresh: &Fresh<'_>) -> i64 {
    fresh.verdict.decision.state.last_polled.map_or(0, |at| at.millis() / Column::DAY)
}

fn event_kind(notice: Notice) -> &'static str {
    match notice {
        Notice::Gone => "feed.gone",
        Notice::Penalised => "feed.penalised",
        Notice::Failing => "feed.failing",
        Notice::Recovered => "feed.recovered",
        Notice::Blacklisted => "feed.blacklisted",
        Notice::Quarantined => "feed.quarantined",
        Notice::Overflowed => "feed.overflowed",
        Notice::Silent => "feed.silent",
    }
}

/// Hosts' holds, each with the feed that was throttled last.
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
        let cause = fresh.verdict.report.feed;
        let until = host_hold(before.get(host), cause, asked, now);
        let hold = HostHold { until, asked, cause };
        before.insert(host.clone(), hold);
        after.insert(host.clone(), hold);
        holds.insert(number, until);
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
        polled_day: None,
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
