//! The audit: which changes were requested, by which caller, and with which outcome.
//!
//! A line is stored before its change is made, and gets its outcome afterwards: a change that a crash interrupted is there, as
//! `in progress`. Lines are numbered; the newest [`MOST_AUDITED`] are kept.

use common::named;
use common::time::Timestamp;
use sqlx_macros::FromRow;

use super::statement::Statement;

/// The columns of an [`AuditRow`].
macro_rules! audit_columns {
    () => {
        "id, at, who, source, action, subject, outcome, status, millis"
    };
}

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

named! {
    /// A column that lines are sorted by; within one value, the newest come first.
    AuditSort {
        /// The newest first.
        At = "at",
        /// By who requested the change.
        Who = "who",
        /// By request.
        Action = "request",
        /// By what it is about.
        On = "on",
        /// By what became of it.
        Outcome = "outcome",
    }
}

/// Which lines to read, in the order of a column.
#[derive(Clone, Debug)]
pub struct AuditQuery {
    /// The column.
    pub sort: AuditSort,
    /// In the opposite order.
    pub reversed: bool,
    /// Behind this line of an earlier page: its value in the column, and its number.
    pub after: Option<(String, i64)>,
    /// The maximum number of lines to return.
    pub limit: u32,
}

impl AuditQuery {
    /// Lines are counted up to this number.
    pub const MOST_COUNTED: u64 = 10_000;
    /// The number of lines, in both databases.
    pub(super) const COUNT: &str = "SELECT count(*) FROM (SELECT 1 FROM audit LIMIT 10001) AS counted";

    /// The newest lines, the newest first.
    pub fn newest(limit: u32) -> Self {
        AuditQuery { sort: AuditSort::At, reversed: false, after: None, limit }
    }

    /// The statement, the same in both databases: an index has the lines of each part in order.
    pub(super) fn statement(&self) -> Statement {
        let column = self.sort.column();
        let (comes, rises) = if self.reversed { ("<", " DESC") } else { (">", "") };
        let (older, falls) = if self.reversed { (">", "") } else { ("<", " DESC") };
        let order = match column {
            None => format!(" ORDER BY id{falls} LIMIT "),
            Some(column) => format!(" ORDER BY {column}{rises}, id{falls} LIMIT "),
        };
        let limit = i64::from(self.limit);
        let mut sql = Statement::default();
        sql.push(concat!("SELECT ", audit_columns!(), " FROM "));
        match (&self.after, column) {
            (None, _) => {
                sql.push("audit");
            }
            (Some((_, id)), None) => {
                sql.push(&format!("audit WHERE id {older} ")).int(*id);
            }
            (Some((value, id)), Some(column)) => {
                let select = concat!("SELECT * FROM (SELECT ", audit_columns!(), " FROM audit WHERE ");
                sql.push("(").push(select).push(column).push(" = ").text(value);
                sql.push(&format!(" AND id {older} ")).int(*id).push(&format!(" ORDER BY id{falls} LIMIT ")).int(limit);
                sql.push(") AS same UNION ALL ").push(select).push(&format!("{column} {comes} ")).text(value);
                sql.push(&order).int(limit).push(") AS further) AS lines");
            }
        }
        sql.push(&order).int(limit);
        sql
    }
}

impl AuditSort {
    fn column(self) -> Option<&'static str> {
        match self {
            AuditSort::At => None,
            AuditSort::Who => Some("who"),
            AuditSort::Action => Some("action"),
            AuditSort::On => Some("subject"),
            AuditSort::Outcome => Some("outcome"),
        }
    }

    /// Returns what a line has in the column.
    pub fn value(self, line: &AuditLine) -> &str {
        match self {
            AuditSort::At => "",
            AuditSort::Who => &line.change.who,
            AuditSort::Action => &line.change.action,
            AuditSort::On => &line.change.on,
            AuditSort::Outcome => line.change.outcome.as_str(),
        }
    }
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
