//! The audit of requested changes.

use async_trait::async_trait;
use common::time::Timestamp;

use super::SqliteStore;
use crate::audit::{AuditRow, PRUNED, audit_columns, trimmed_before};
use crate::{AuditLine, AuditPage, Audited, Audits, StoreError};

const ADD: &str = "INSERT INTO audit (at, who, source, action, subject, outcome, status, millis) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) RETURNING id";
const END: &str = "UPDATE audit SET who = ?2, subject = ?3, outcome = ?4, status = ?5, millis = ?6 WHERE id = ?1";
const TRIM: &str = "DELETE FROM audit WHERE id <= ?1";
const PRUNE: &str = "DELETE FROM audit WHERE at < ?1 AND id <= \
    (SELECT max(id) FROM (SELECT id FROM audit ORDER BY id LIMIT ?2) AS oldest)";
/// Lines between two numbers: the highest first, and the lowest first.
pub(super) const LINES: [&str; 2] = [
    concat!("SELECT ", audit_columns!(), " FROM audit WHERE id > ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3"),
    concat!("SELECT ", audit_columns!(), " FROM audit WHERE id > ?1 AND id < ?2 ORDER BY id LIMIT ?3"),
];

#[async_trait]
impl Audits for SqliteStore {
    async fn write_audit(&self, added: &[Audited], ended: &[(i64, Audited)]) -> Result<Vec<i64>, StoreError> {
        const ACTION: &str = "write the audit";
        let mut tx = self.write(ACTION).await?;
        let mut ids = Vec::with_capacity(added.len());
        for change in added {
            let add = sqlx::query_scalar(ADD).bind(change.at.millis()).bind(&change.who).bind(&change.from);
            let add = add.bind(&change.action).bind(&change.on).bind(change.outcome.as_str());
            let add = add.bind(change.status).bind(change.millis());
            ids.push(add.fetch_one(&mut *tx).await.map_err(StoreError::on(ACTION))?);
        }
        for (id, change) in ended {
            let end = sqlx::query(END).bind(id).bind(&change.who).bind(&change.on).bind(change.outcome.as_str());
            let end = end.bind(change.status).bind(change.millis());
            end.execute(&mut *tx).await.map_err(StoreError::on(ACTION))?;
        }
        if let Some(before) = trimmed_before(&ids) {
            sqlx::query(TRIM).bind(before).execute(&mut *tx).await.map_err(StoreError::on(ACTION))?;
        }
        tx.commit().await.map_err(StoreError::on(ACTION))?;
        Ok(ids)
    }

    async fn audit(&self, page: AuditPage, limit: u32) -> Result<Vec<AuditLine>, StoreError> {
        let (after, before, ascending) = page.bounds();
        let lines = sqlx::query_as::<_, AuditRow>(LINES[usize::from(ascending)]).bind(after).bind(before);
        let rows = lines.bind(limit).fetch_all(&self.readers).await.map_err(StoreError::on("read the audit"))?;
        Ok(page.lines(rows))
    }

    async fn prune_audit(&self, before: Timestamp) -> Result<u64, StoreError> {
        let prune = sqlx::query(PRUNE).bind(before.millis()).bind(PRUNED).execute(&self.writer);
        Ok(prune.await.map_err(StoreError::on("delete old lines of the audit"))?.rows_affected())
    }
}
