//! The bare part: a prepared UPDATE for each row, in one transaction a batch, with the columns of `apply_poll.sql` and
//! nothing around it. rusqlite links the same SQLite as the store does.

use std::path::Path;

use common::policy::Rhythm;
use common::time::Timestamp;
use rusqlite::{Connection, params};
use store::Verdict;

/// Bytes of a poll in a feed's history, and of the whole history: twenty polls.
pub(crate) const POLL: usize = 42;
pub(crate) const RING: i64 = 20 * POLL as i64;

/// A connection with the store's own settings.
pub(crate) struct Bare(Connection);

/// What a 304 changes.
pub(crate) struct Row {
    pub(crate) id: i64,
    pub(crate) version: i64,
    pub(crate) next_due: Option<i64>,
    pub(crate) state: String,
    pub(crate) rhythm: [u8; Rhythm::SIZE],
    pub(crate) terms: Vec<u8>,
    pub(crate) poll: [u8; POLL],
}

impl Bare {
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let connection = Connection::open(path)?;
        connection.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA cache_size = -65536; \
             PRAGMA wal_autocheckpoint = 8000; PRAGMA journal_size_limit = 67108864",
        )?;
        Ok(Bare(connection))
    }

    pub(crate) fn update(&mut self, rows: &[Row]) -> anyhow::Result<()> {
        let transaction = self.0.transaction()?;
        {
            let mut update = transaction.prepare_cached(
                "UPDATE feeds SET version = version + 1, next_due = ?3, state = ?4, rhythm = ?8, terms = ?5, \
                 history = CAST(?6 || substr(history, 1, ?7) AS BLOB) \
                 WHERE id = ?1 AND version = ?2",
            )?;
            let earlier = RING - POLL as i64;
            for Row { id, version, next_due, state, rhythm, terms, poll } in rows {
                let (poll, rhythm) = (poll.as_slice(), rhythm.as_slice());
                let changed = update.execute(params![id, version, next_due, state, terms, poll, earlier, rhythm])?;
                anyhow::ensure!(changed == 1, "feed {id} has another version");
            }
        }
        Ok(transaction.commit()?)
    }
}

/// Returns the bare part's row for a verdict: what it costs to make it is not measured.
pub(crate) fn row(verdict: &Verdict) -> anyhow::Result<Row> {
    let mut terms = Vec::new();
    for term in verdict.decision.terms.iter() {
        terms.push(1);
        terms.extend_from_slice(&term.due.millis().to_le_bytes());
    }
    Ok(Row {
        id: verdict.report.feed.0,
        version: verdict.report.version.0,
        next_due: verdict.decision.next_due.map(Timestamp::millis),
        state: serde_json::to_string(&verdict.decision.state)?,
        rhythm: verdict.decision.state.rhythm.to_bytes(),
        terms,
        poll: [1; POLL],
    })
}

/// Gives every feed as long a history as it has after twenty polls.
pub(crate) fn fill_histories(path: &Path) -> anyhow::Result<()> {
    let connection = Connection::open(path)?;
    connection.execute("UPDATE feeds SET history = randomblob(?1)", [RING])?;
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    Ok(())
}
