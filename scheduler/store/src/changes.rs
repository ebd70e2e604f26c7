//! What verdicts change among the entries, and the events about it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use common::config::QuotaConfig;
use common::entry::{Entry, Fingerprint};
use common::known::KnownEntries;
use common::policy::Notice;
use common::time::Timestamp;
use common::url::FeedId;

use super::Verdict;
use super::columns::{entry_identity, pack_error};
use super::news::About;
use super::quota::Spent;
use super::verdicts::{Fresh, Tally};

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
    /// It comes from a push, which may be an old one that is repeated, or without texts that did not fit into its report: what the
    /// store has stays as it is.
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
        let Some(document) = fresh.document() else { continue };
        let stripped = document.stripped.lookup();
        let mut seen = HashSet::new();
        for entry in &document.entries {
            let identity = entry_identity(entry);
            // A document that has an identity twice would otherwise update its own entry with every poll.
            if seen.insert(identity) {
                let feed = fresh.verdict.report.feed;
                // An entry without its texts has the fingerprint of no form: a later document updates it with all of them.
                let alone = Fingerprint::of_identity(&entry.id);
                let is_stripped = stripped.contains(alone);
                let fingerprint = if is_stripped { alone } else { entry.fingerprint() };
                let fingerprint = fingerprint.0.cast_signed();
                let only_adds = is_stripped || fresh.is_pushed() || fresh.is_page();
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

    /// When it was first seen: now, unless the store has it. At some time before now if retention took it.
    pub(super) fn seen(&self, now: Timestamp) -> i64 {
        self.stored.map_or(now.millis(), |form| form.seen.unwrap_or(now.millis() - 1))
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

/// Returns the feeds whose rows must be counted before their documents are stored.
pub(super) fn uncounted(fresh: &[Fresh<'_>], spent: &[Option<Spent>], quota: &QuotaConfig) -> Vec<FeedId> {
    let wants = |spent: &Option<Spent>| spent.is_some_and(|spent| spent.wants_count(quota));
    fresh.iter().zip(spent).filter(|(_, spent)| wants(spent)).map(|(fresh, _)| fresh.verdict.report.feed).collect()
}

/// Notes how many rows these feeds have: each with its number, those without any are absent.
pub(super) fn count(
    fresh: &[Fresh<'_>],
    spent: &mut [Option<Spent>],
    quota: &QuotaConfig,
    rows: impl IntoIterator<Item = (i64, i64)>,
) {
    let rows: HashMap<i64, i64> = rows.into_iter().collect();
    for (fresh, spent) in fresh.iter().zip(spent) {
        if let Some(spent) = spent.as_mut().filter(|spent| spent.wants_count(quota)) {
            spent.counted(rows.get(&fresh.row.id).copied().unwrap_or(0).cast_unsigned());
        }
    }
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

/// Feeds with a push subscription that have new entries: those of which all were announced, and the others.
pub(super) fn learned(fresh: &[Fresh<'_>], changes: &[Change<'_>]) -> [(bool, Vec<FeedId>); 2] {
    let mut learned = BTreeMap::new();
    for change in changes.iter().filter(|change| change.is_new()) {
        let Some(claim) = fresh[change.fresh].verdict.push else { continue };
        let at = change.entry.published.or(change.entry.updated);
        let is_announced = claim.since.is_some_and(|since| at.is_none_or(|at| at >= since));
        *learned.entry(change.feed).or_insert(true) &= is_announced;
    }
    [true, false].map(|wanted| {
        let feeds = learned.iter().filter(|(_, is_announced)| **is_announced == wanted);
        (wanted, feeds.map(|(feed, _)| *feed).collect())
    })
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
