//! What `apply` writes to the rows of feeds.

use std::sync::LazyLock;
use std::time::Duration;

use common::document::{Document, Validators};
use common::known::KnownEntries;
use common::outcome::FailureKind;
use common::time::Timestamp;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Sqlite, SqliteConnection};

use super::batch::Batch;
use crate::changes::{self, Change};
use crate::columns::{pack_archive, pack_onward, pack_state, pack_terms};
use crate::quota::Spent;
use crate::verdicts::{self, Fresh, Tally};
use crate::{StoreError, history};

/// What a call of this module is for, in messages.
pub(super) const ACTION: &str = "apply reports";

/// Polls that one statement writes.
const POLLS_AT_ONCE: usize = 100;
/// `apply_poll.sql` for this number of rows. Rows that are not bound are NULL, and match no feed.
pub(super) static POLLS: LazyLock<String> = LazyLock::new(|| {
    const ROW: &str = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    include_str!("apply_poll.sql").replace(ROW, &[ROW; POLLS_AT_ONCE].join(", "))
});

/// Writes the feeds' rows; returns whether all polls' rows were as they are known. Every poll writes the first part; the others are
/// rare, so that a 304 costs one statement's row.
pub(super) async fn write_feeds(
    tx: &mut SqliteConnection,
    (fresh, changes): (&[Fresh<'_>], &[Change<'_>]),
    tallies: &[Tally],
    spent: &[Option<Spent>],
    clock_skew: Duration,
) -> Result<bool, StoreError> {
    let [mut standings, mut rares, mut days, mut documents, mut validators, mut pushes] = <[Batch; 6]>::default();
    let mut polls = Vec::with_capacity(fresh.len());
    for (number, ((fresh, tally), spent)) in fresh.iter().zip(tallies).zip(spent).enumerate() {
        if fresh.is_pushed() {
            let known = sqlx::query_scalar("SELECT known FROM feeds WHERE id = ?1").bind(fresh.row.id);
            let known: Vec<u8> = known.fetch_one(&mut *tx).await.map_err(StoreError::on(ACTION))?;
            let known = changes::known_after_push(&known, changes, number);
            push(&mut pushes, fresh, tally.more, (known.as_ref(), spent.as_ref()));
            continue;
        }
        polls.push(fresh);
        rare(&mut rares, fresh, fresh.unanswered_wake(clock_skew));
        if fresh.row.polled_day != Some(verdicts::polled_day(fresh)) {
            days.row(|row| {
                row.int(fresh.verdict.report.feed.0);
                row.int(verdicts::polled_day(fresh));
            });
        }
        if fresh.is_page() {
            push(&mut pushes, fresh, tally.more, (None, spent.as_ref()));
            continue;
        }
        standing(&mut standings, fresh);
        if let Some(new) = fresh.document() {
            document(&mut documents, fresh, new, tally.more, spent.as_ref());
        }
        if let Some(new) = fresh.new_validators() {
            kept_document(&mut validators, fresh, new);
        }
    }
    // First, so that no row is live without a due time in between.
    standings.run(tx, include_str!("apply_standing.sql"), ACTION).await?;
    pushes.run(tx, include_str!("apply_push.sql"), ACTION).await?;
    // In the order of the table, which is that of the rows that SQLite keeps beside it while it joins.
    polls.sort_unstable_by_key(|fresh| fresh.row.id);
    if !write_polls(tx, &polls).await? {
        return Ok(false);
    }
    rares.run(tx, include_str!("apply_rare.sql"), ACTION).await?;
    days.run(tx, include_str!("apply_polled_day.sql"), ACTION).await?;
    documents.run(tx, include_str!("apply_document.sql"), ACTION).await?;
    validators.run(tx, include_str!("apply_validators.sql"), ACTION).await?;
    Ok(true)
}

/// Writes what every poll changes; returns whether all rows were as they are known.
async fn write_polls(on: &mut SqliteConnection, polls: &[&Fresh<'_>]) -> Result<bool, StoreError> {
    for polls in polls.chunks(POLLS_AT_ONCE) {
        let mut query: Query<'_, Sqlite, SqliteArguments> = sqlx::query(POLLS.as_str()).bind(history::EARLIER);
        for fresh in polls {
            let state = fresh.state();
            query = query
                .bind(fresh.row.id)
                .bind(fresh.row.version)
                .bind(fresh.row.audience_at)
                .bind(fresh.row.wake_at)
                .bind(fresh.row.polled_day)
                .bind(fresh.row.rare)
                .bind(fresh.next_due().map(Timestamp::millis))
                .bind(pack_state(&state))
                .bind(state.rhythm.to_bytes().to_vec())
                .bind(pack_terms(&fresh.terms()))
                .bind(fresh.history());
        }
        let written = query.execute(&mut *on).await.map_err(StoreError::on(ACTION))?.rows_affected();
        if written < polls.len() as u64 {
            return Ok(false);
        }
    }
    Ok(true)
}

fn rare(rares: &mut Batch, fresh: &Fresh<'_>, wake: Option<Timestamp>) {
    let state = &fresh.verdict.decision.state;
    let (failure, error, gap) = (fresh.failure(), fresh.error(), verdicts::gap_column(fresh));
    let archive = fresh.archive().and_then(pack_archive);
    let times = [wake, state.hold_until, state.silent_since];
    let has_any = failure.is_some() || error.is_some() || gap.is_some() || archive.is_some() || state.penalty.is_some();
    if !has_any && times.iter().all(Option::is_none) && fresh.row.rare == 0 {
        return;
    }
    rares.row(|row| {
        row.int(fresh.verdict.report.feed.0);
        row.int(wake.map(Timestamp::millis));
        row.int(state.hold_until.map(Timestamp::millis));
        row.word(failure.map(FailureKind::as_str));
        row.word(state.penalty.map(|penalty| penalty.kind.as_str()));
        row.text(error.as_deref());
        row.int(gap);
        row.int(state.silent_since.map(Timestamp::millis));
        row.text(archive.as_deref());
    });
}

fn document(documents: &mut Batch, fresh: &Fresh<'_>, document: &Document, more: i64, spent: Option<&Spent>) {
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
        row.text(pack_onward(&document.onward).as_deref());
        row.text(spent.map(|spent| spent.budget.packed()).as_deref());
    });
}

fn push(pushes: &mut Batch, fresh: &Fresh<'_>, more: i64, (known, spent): (Option<&KnownEntries>, Option<&Spent>)) {
    pushes.row(|row| {
        row.int(fresh.verdict.report.feed.0);
        row.int(more);
        row.bytes(known.map(KnownEntries::to_bytes).as_deref());
        row.text(spent.map(|spent| spent.budget.packed()).as_deref());
    });
}

fn kept_document(validators: &mut Batch, fresh: &Fresh<'_>, new: &Validators) {
    validators.row(|row| {
        row.int(fresh.verdict.report.feed.0);
        row.text(new.etag.as_deref());
        row.text(new.last_modified.as_deref());
        row.text(new.for_url.as_deref());
    });
}

fn standing(standings: &mut Batch, fresh: &Fresh<'_>) {
    let Some((category, status, host)) = fresh.new_standing() else { return };
    standings.row(|row| {
        row.int(fresh.verdict.report.feed.0);
        row.text(category);
        row.word(status.as_str());
        row.text(host);
        row.int(fresh.verdict.decision.next_due.map(Timestamp::millis));
    });
}
