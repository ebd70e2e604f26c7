//! The audit of requested changes.

use async_trait::async_trait;
use common::time::Timestamp;

use super::list::bound;
use super::{SqliteStore, in_transaction};
use crate::audit::{AuditRow, PRUNED, trimmed_before};
use crate::{AuditLine, AuditQuery, Audited, Audits, StoreError};

const ADD: &str = "INSERT INTO audit (at, who, source, action, subject, outcome, status, millis) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) RETURNING id";
const END: &str = "UPDATE audit SET who = ?2, subject = ?3, outcome = ?4, status = ?5, millis = ?6 WHERE id = ?1";
const TRIM: &str = "DELETE FROM audit WHERE id <= ?1";
const PRUNE: &str = "DELETE FROM audit WHERE at < ?1 AND id <= \
    (SELECT max(id) FROM (SELECT id FROM audit ORDER BY id LIMIT ?2) AS oldest)";

#[async_trait]
impl Audits for SqliteStore {
    async fn write_audit(&self, added: &[Audited], ended: &[(i64, Audited)]) -> Result<Vec<i64>, StoreError> {
        in_transaction!(self, "write the audit", |tx| {
            let mut ids = Vec::with_capacity(added.len());
            for change in added {
                let add = sqlx::query_scalar(ADD).bind(change.at.millis()).bind(&change.who).bind(&change.from);
                let add = add.bind(&change.action).bind(&change.on).bind(change.outcome.as_str());
                ids.push(add.bind(change.status).bind(change.millis()).fetch_one(&mut *tx).await?);
            }
            for (id, change) in ended {
                let end = sqlx::query(END).bind(id).bind(&change.who).bind(&change.on).bind(change.outcome.as_str());
                end.bind(change.status).bind(change.millis()).execute(&mut *tx).await?;
            }
            if let Some(before) = trimmed_before(&ids) {
                sqlx::query(TRIM).bind(before).execute(&mut *tx).await?;
            }
            Ok(ids)
        })
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditLine>, StoreError> {
        let rows = bound::<AuditRow>(query.statement()).fetch_all(&self.readers).await;
        Ok(rows.map_err(StoreError::on("read the audit"))?.into_iter().map(AuditLine::from).collect())
    }

    async fn count_audit(&self) -> Result<u64, StoreError> {
        let count = sqlx::query_scalar::<_, i64>(AuditQuery::COUNT).fetch_one(&self.readers).await;
        Ok(u64::try_from(count.map_err(StoreError::on("count the audit"))?).unwrap_or(0))
    }

    async fn prune_audit(&self, before: Timestamp) -> Result<u64, StoreError> {
        let prune = sqlx::query(PRUNE).bind(before.millis()).bind(PRUNED).execute(&self.writer);
        Ok(prune.await.map_err(StoreError::on("delete old lines of the audit"))?.rows_affected())
    }
}
