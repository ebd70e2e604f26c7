//! The audit: which changes were requested, by which caller, and with which outcome.
//!
//! A line is stored before its change is made, and gets its outcome afterwards: a change that a crash interrupted is there, as
//! `in progress`. Lines are numbered; the newest [`MOST_AUDITED`] are kept.

use common::named;
use common::time::Timestamp;
use sqlx_macros::FromRow;

/// The maximum number of lines that are kept, but for a few hundred: at most about 100 MB.
pub const MOST_AUDITED: i64 = 200_000;
/// Lines between two looks at whether there are too many.
pub(super) const TRIMMED_EVERY: i64 = 100;
/// Lines that one call of [`Audits::prune_audit`](crate::Audits::prune_audit) deletes at most.
pub(super) const PRUNED: i64 = 2_000;

named! {
    /// The outcome of a change.
    AuditOutcome {
        /// It is being made, or the process that made it died.
        InProgress = "in progress",
        /// It was made.
        Done = "done",
        /// It was rejected; nothing changed.
        Refused = "refused",
        /// It was not made, or not known to be.
        Failed = "failed",
        /// The caller hung up before the response.
        Abandoned = "the caller did not wait",
    }
}

/// A requested change.
#[derive(Clone, Debug, PartialEq)]
pub struct Audited {
    /// When.
    pub at: Timestamp,
    /// The name of a token, or what the audit calls others.
    pub who: String,
    /// The caller's address.
    pub from: String,
    /// Method and route.
    pub action: String,
    /// What it is about.
    pub on: String,
    /// Its outcome.
    pub outcome: AuditOutcome,
    /// The status code of the response; 0: none yet.
    pub status: u16,
    /// Milliseconds until the response.
    pub millis: u64,
}

/// A line of the audit.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditLine {
    /// Its number.
    pub id: i64,
    /// The change.
    pub change: Audited,
}

/// Which lines to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditPage {
    /// The newest ones.
    Newest,
    /// Those before this number, the newest of them first.
    Older(i64),
    /// Those after this number: the nearest ones, the newest of them first.
    Newer(i64),
}

/// Returns the number up to which lines are deleted, if one of these new lines is the one that looks.
pub(super) fn trimmed_before(added: &[i64]) -> Option<i64> {
    added.iter().rfind(|id| **id % TRIMMED_EVERY == 0).map(|id| id - MOST_AUDITED)
}

/// A line as both databases hold it.
#[derive(Debug, FromRow)]
pub(super) struct AuditRow {
    id: i64,
    at: i64,
    who: String,
    source: String,
    action: String,
    subject: String,
    outcome: String,
    status: i64,
    millis: i64,
}

/// The columns of an [`AuditRow`].
macro_rules! audit_columns {
    () => {
        "id, at, who, source, action, subject, outcome, status, millis"
    };
}
pub(super) use audit_columns;

impl From<AuditRow> for AuditLine {
    fn from(row: AuditRow) -> Self {
        let change = Audited {
            at: Timestamp::from_millis(row.at),
            who: row.who,
            from: row.source,
            action: row.action,
            on: row.subject,
            outcome: AuditOutcome::from_name(&row.outcome).unwrap_or(AuditOutcome::Failed),
            status: u16::try_from(row.status).unwrap_or(0),
            millis: u64::try_from(row.millis).unwrap_or(0),
        };
        AuditLine { id: row.id, change }
    }
}

impl Audited {
    pub(super) fn millis(&self) -> i64 {
        i64::try_from(self.millis).unwrap_or(i64::MAX)
    }
}

impl AuditPage {
    /// The numbers between which lines are read, both exclusive, and whether the lowest are read first.
    pub(super) fn bounds(self) -> (i64, i64, bool) {
        match self {
            AuditPage::Newest => (0, i64::MAX, false),
            AuditPage::Older(than) => (0, than, false),
            AuditPage::Newer(than) => (than, i64::MAX, true),
        }
    }

    /// Lines as they were read, the newest first.
    pub(super) fn lines(self, rows: Vec<AuditRow>) -> Vec<AuditLine> {
        let mut lines: Vec<AuditLine> = rows.into_iter().map(AuditLine::from).collect();
        if self.bounds().2 {
            lines.reverse();
        }
        lines
    }
}
