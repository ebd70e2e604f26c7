//! `apply`: verdicts become rows, in one transaction for the batch.
//!
//! The order is fixed: versions are looked at, then entries, feed rows, host holds and at last events are written. A
//! reader sees all of it or nothing. A report that finds another version than its own touches nothing.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use common::feed::{FeedId, Status, Validators};
use common::host::HostKey;
use common::policy::{Notice, host_hold};
use common::report::{Document, FailureKind, FetchReport, Outcome, OutcomeKind};
use common::time::Timestamp;
use serde::Deserialize;
use sqlx::{FromRow, Sqlite, SqliteConnection, Transaction};

use super::SqliteStore;
use super::batch::{Batch, id_list};
use super::entries::{self, Change};
use crate::store::row::{pack_state, pack_terms};
use crate::store::{Applied, StoreError, Verdict, history};

const ACTION: &str = "apply reports";

/// A verdict on the version that the store has, with what the feed's row said before.
pub(super) struct Fresh<'a> {
    /// Its place in the batch.
    at: usize,
    pub(super) verdict: &'a Verdict,
    row: Before,
}

/// The columns of a feed that decide how a verdict is stored, in the order of `apply_before.sql`.
#[derive(Debug, Deserialize)]
struct Before {
    id: i64,
    version: i64,
    category: String,
    status: String,
    host: String,
    audience_at: i64,
    wake_at: Option<i64>,
    etag: Option<String>,
    last_modified: Option<String>,
    validators_url: Option<String>,
}

/// What a verdict does to the entries.
#[derive(Clone, Copy, Default)]
struct Tally {
    new: u32,
    updated: u32,
    /// Rows that there are more afterwards.
    more: i64,
}

impl SqliteStore {
    pub(super) async fn apply_verdicts(
        &self,
        verdicts: &[Verdict],
        clock_skew: Duration,
        now: Timestamp,
    ) -> Result<Vec<Applied>, StoreError> {
        let mut answers = vec![Applied::Stale; verdicts.len()];
        let mut tx = self.write(ACTION).await?;
        let fresh = fresh(&mut tx, verdicts).await?;
        if fresh.is_empty() {
            return Ok(answers);
        }
        let mut changes = entries::changes(&mut tx, &fresh).await?;
        let events = number(&mut tx, &fresh, &mut changes, now).await?;
        let tallies = tally(&changes, fresh.len());
        entries::write(&mut tx, &changes, now).await?;
        write_feeds(&mut tx, &fresh, &tallies, clock_skew).await?;
        let holds = write_holds(&mut tx, &fresh, now).await?;
        write_events(&mut tx, events, &tallies).await?;
        tx.commit().await.map_err(StoreError::on(ACTION))?;
        for (number, fresh) in fresh.iter().enumerate() {
            let wake = fresh.unanswered_wake(clock_skew);
            answers[fresh.at] = Applied::Stored {
                due: fresh.due(wake),
                wake: wake.is_some(),
                new_entries: tallies[number].new,
                updated_entries: tallies[number].updated,
                host_hold: holds.get(&number).copied(),
            };
        }
        Ok(answers)
    }
}

impl<'a> Fresh<'a> {
    /// A wake that the fetch did not answer: the job did not know of it, and it came after the fetch's start, as far as two
    /// clocks can tell. One that lies ahead of the fetch is still owed, even if the job knew of it: further wishes may have
    /// been folded into it meanwhile. Never before the end of the feed's own hold.
    fn unanswered_wake(&self, clock_skew: Duration) -> Option<Timestamp> {
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

    /// The category to store: the verdict's, unless people set the audience after the fetch began, which the verdict may not
    /// have known.
    fn category(&self, clock_skew: Duration) -> &str {
        let set = Timestamp::from_millis(self.row.audience_at);
        match set.after(clock_skew) < self.verdict.report.started {
            true => self.verdict.category.as_str(),
            false => &self.row.category,
        }
    }

    /// What it brought, if it is a good answer with other bytes.
    pub(super) fn document(&self) -> Option<&'a Document> {
        match &self.verdict.report.outcome {
            Outcome::Modified(document) => Some(document),
            _ => None,
        }
    }
}

/// The verdicts whose version is the store's. Of two for one feed the second is stale: the first raises the version.
async fn fresh<'a>(tx: &mut Transaction<'_, Sqlite>, verdicts: &'a [Verdict]) -> Result<Vec<Fresh<'a>>, StoreError> {
    let rows: String = sqlx::query_scalar(include_str!("apply_before.sql"))
        .bind(id_list(verdicts.iter().map(|verdict| verdict.report.feed)))
        .fetch_one(&mut **tx)
        .await
        .map_err(StoreError::on(ACTION))?;
    let rows: Vec<Before> =
        serde_json::from_str(&rows).map_err(|error| StoreError::on(ACTION)(sqlx::Error::Decode(error.into())))?;
    let mut rows: HashMap<i64, Before> = rows.into_iter().map(|row| (row.id, row)).collect();
    let mut fresh = Vec::with_capacity(verdicts.len());
    for (at, verdict) in verdicts.iter().enumerate() {
        let FetchReport { feed, version, outcome, .. } = &verdict.report;
        debug_assert_ne!(outcome.kind(), OutcomeKind::Deferred, "a Deferred only re-scores: it is never applied");
        let current = rows.get(&feed.0).is_some_and(|row| row.version == version.0);
        if current && outcome.kind() != OutcomeKind::Deferred {
            fresh.extend(rows.remove(&feed.0).map(|row| Fresh { at, verdict, row }));
        }
    }
    Ok(fresh)
}

/// Gives every change its `seq`, feed by feed, entries before the feed's own notice. Nobody else can take numbers meanwhile.
async fn number(
    tx: &mut SqliteConnection,
    fresh: &[Fresh<'_>],
    changes: &mut [Change<'_>],
    now: Timestamp,
) -> Result<Batch, StoreError> {
    let mut events = Batch::default();
    if changes.is_empty() && fresh.iter().all(|fresh| fresh.verdict.decision.notice.is_none()) {
        return Ok(events);
    }
    let sql = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events'";
    let mut seq: i64 = sqlx::query_scalar(sql).fetch_one(tx).await.map_err(StoreError::on(ACTION))?;
    let mut changes = changes.iter_mut().peekable();
    for (number, fresh) in fresh.iter().enumerate() {
        let feed = fresh.verdict.report.feed;
        while let Some(change) = changes.next_if(|change| change.fresh == number) {
            seq += 1;
            change.seq = seq;
            let kind = if change.is_new() { "entry.new" } else { "entry.updated" };
            event(&mut events, seq, now, kind, feed, Some(&change.identity));
        }
        if let Some(notice) = fresh.verdict.decision.notice {
            seq += 1;
            event(&mut events, seq, now, event_kind(notice), feed, None);
        }
    }
    Ok(events)
}

fn event(events: &mut Batch, seq: i64, at: Timestamp, kind: &'static str, feed: FeedId, identity: Option<&[u8; 16]>) {
    events.row(|row| {
        row.int(seq);
        row.int(at.millis());
        row.word(kind);
        row.int(feed.0);
        row.bytes(identity.map(<[u8; 16]>::as_slice));
    });
}

fn event_kind(notice: Notice) -> &'static str {
    match notice {
        Notice::Gone => "feed.gone",
        Notice::Penalised => "feed.penalised",
        Notice::Recovered => "feed.recovered",
        Notice::Blacklisted => "feed.blacklisted",
        Notice::Quarantined => "feed.quarantined",
    }
}

/// Writes the feeds' rows. Every poll writes the first part; the others are rare, so that a 304 costs one statement's row.
async fn write_feeds(
    tx: &mut SqliteConnection,
    fresh: &[Fresh<'_>],
    tallies: &[Tally],
    clock_skew: Duration,
) -> Result<(), StoreError> {
    let [mut standings, mut polls, mut documents, mut validators] = <[Batch; 4]>::default();
    for (fresh, tally) in fresh.iter().zip(tallies) {
        poll(&mut polls, fresh, fresh.unanswered_wake(clock_skew));
        standing(&mut standings, fresh, clock_skew);
        match &fresh.verdict.report.outcome {
            Outcome::Modified(it) => document(&mut documents, fresh, it, tally.more),
            Outcome::NotModified { validators: new } => kept_document(&mut validators, fresh, new),
            Outcome::Throttled { .. } | Outcome::Failed { .. } | Outcome::Gone | Outcome::Deferred { .. } => {}
        }
    }
    // First, so that no row is live without a due time in between.
    standings.run(tx, include_str!("apply_standing.sql"), ACTION).await?;
    let polls = polls.query(include_str!("apply_poll.sql")).bind(history::EARLIER);
    polls.execute(&mut *tx).await.map_err(StoreError::on(ACTION))?;
    documents.run(tx, include_str!("apply_document.sql"), ACTION).await?;
    validators.run(tx, include_str!("apply_validators.sql"), ACTION).await
}

fn poll(polls: &mut Batch, fresh: &Fresh<'_>, wake: Option<Timestamp>) {
    let Verdict { report, decision, .. } = fresh.verdict;
    polls.row(|row| {
        row.int(report.feed.0);
        row.int(decision.next_due.map(Timestamp::millis));
        row.int(wake.map(Timestamp::millis));
        row.int(decision.state.hold_until.map(Timestamp::millis));
        row.word(report.outcome.failure().map(FailureKind::as_str));
        row.word(decision.state.penalty.map(|penalty| penalty.kind.as_str()));
        row.text(pack_state(&decision.state).as_str());
        row.bytes(decision.state.rhythm.to_bytes().as_slice());
        row.bytes(pack_terms(&decision.terms).as_slice());
        row.bytes(history::pack(report, decision).as_slice());
    });
}

fn document(documents: &mut Batch, fresh: &Fresh<'_>, document: &Document, more: i64) {
    documents.row(|row| {
        row.int(fresh.verdict.report.feed.0);
        row.int(more);
        row.text(document.validators.etag.as_deref());
        row.text(document.validators.last_modified.as_deref());
        row.text(document.validators.for_url.as_deref());
        row.bytes(document.content_hash.map(|hash| hash.0.to_be_bytes()).as_ref().map(<[u8; 16]>::as_slice));
        row.text(document.title.as_deref());
        row.text(document.link.as_deref());
        row.text(document.hub.as_deref());
        row.text(document.self_link.as_deref());
        row.text(document.cloud.as_deref());
        row.bytes(document.known.to_bytes().as_slice());
    });
}

fn kept_document(validators: &mut Batch, fresh: &Fresh<'_>, new: &Validators) {
    let Before { etag, last_modified, validators_url, .. } = &fresh.row;
    if (etag, last_modified, validators_url) != (&new.etag, &new.last_modified, &new.for_url) {
        validators.row(|row| {
            row.int(fresh.verdict.report.feed.0);
            row.text(new.etag.as_deref());
            row.text(new.last_modified.as_deref());
            row.text(new.for_url.as_deref());
        });
    }
}

fn standing(standings: &mut Batch, fresh: &Fresh<'_>, clock_skew: Duration) {
    let Verdict { report, decision, .. } = fresh.verdict;
    let before = (fresh.row.category.as_str(), fresh.row.status.as_str(), fresh.row.host.as_str());
    let after = (fresh.category(clock_skew), decision.status.as_str(), report.host.as_str());
    if before != after {
        standings.row(|row| {
            row.int(report.feed.0);
            row.text(after.0);
            row.word(decision.status.as_str());
            row.text(after.2);
            row.int(decision.next_due.map(Timestamp::millis));
        });
    }
}

/// Stores what hosts asked for; gives the hold that follows from each verdict that asked for one, by its number.
async fn write_holds(
    tx: &mut SqliteConnection,
    fresh: &[Fresh<'_>],
    now: Timestamp,
) -> Result<HashMap<usize, Timestamp>, StoreError> {
    let asked =
        |fresh: &Fresh<'_>| Some((fresh.verdict.report.answering_host().clone(), fresh.verdict.decision.host_hold?));
    let mut hosts = Batch::default();
    for (host, _) in fresh.iter().filter_map(asked) {
        hosts.row(|row| row.text(host.as_str()));
    }
    if hosts.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = hosts.query(include_str!("apply_holds_before.sql")).fetch_all(&mut *tx);
    let rows = rows.await.map_err(StoreError::on(ACTION))?;
    let mut held: HashMap<HostKey, (Timestamp, FeedId)> = HashMap::new();
    for row in &rows {
        let (host, until, feed) = <(String, i64, i64)>::from_row(row).map_err(StoreError::on(ACTION))?;
        held.insert(HostKey::new(&host), (Timestamp::from_millis(until), FeedId(feed)));
    }
    let mut holds = HashMap::new();
    let mut touched = HashSet::new();
    for (number, fresh) in fresh.iter().enumerate() {
        let Some((host, until)) = asked(fresh) else { continue };
        let feed = fresh.verdict.report.feed;
        let until = host_hold(held.get(&host).copied(), feed, until, now);
        held.insert(host.clone(), (until, feed));
        touched.insert(host);
        holds.insert(number, until);
    }
    let mut rows = Batch::default();
    for host in &touched {
        let Some((until, feed)) = held.get(host) else { continue };
        rows.row(|row| {
            row.text(host.as_str());
            row.int(until.millis());
            row.int(feed.0);
        });
    }
    rows.run(tx, include_str!("apply_holds.sql"), ACTION).await?;
    Ok(holds)
}

async fn write_events(tx: &mut SqliteConnection, events: Batch, tallies: &[Tally]) -> Result<(), StoreError> {
    events.run(&mut *tx, include_str!("apply_events.sql"), ACTION).await?;
    let more: i64 = tallies.iter().map(|tally| tally.more).sum();
    if more > 0 {
        let add = sqlx::query("UPDATE store SET entries = entries + ?1").bind(more);
        add.execute(tx).await.map_err(StoreError::on(ACTION))?;
    }
    Ok(())
}

/// What each of the fresh verdicts does to the entries.
fn tally(changes: &[Change<'_>], fresh: usize) -> Vec<Tally> {
    let mut tallies = vec![Tally::default(); fresh];
    for change in changes {
        let tally = &mut tallies[change.fresh];
        tally.new += u32::from(change.is_new());
        tally.updated += u32::from(!change.is_new());
        tally.more += i64::from(change.is_stored_anew());
    }
    tallies
}
