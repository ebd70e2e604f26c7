//! The audit of requested changes.

use async_trait::async_trait;
use common::time::Timestamp;

use super::connection::{in_transaction, on_connection};
use super::list::bound;
use super::{PostgresStore, text};
use crate::audit::{AuditRow, PRUNED, trimmed_before};
use crate::{AuditLine, AuditQuery, Audited, Audits, StoreError};

const ADD: &str = "INSERT INTO audit (at, who, source, action, subject, outcome, status, millis) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id";
const END: &str = "UPDATE audit SET who = $2, subject = $3, outcome = $4, status = $5, millis = $6 WHERE id = $1";
const TRIM: &str = "DELETE FROM audit WHERE id <= $1";
pub(super) const PRUNE: &str = "DELETE FROM audit WHERE at < $1 AND id <= \
    (SELECT max(id) FROM (SELECT id FROM audit ORDER BY id LIMIT $2) AS oldest)";

#[async_trait]
impl Audits for PostgresStore {
    async fn write_audit(&self, added: &[Audited], ended: &[(i64, Audited)]) -> Result<Vec<i64>, StoreError> {
        in_transaction!(self, "write the audit", |tx| {
            let mut ids = Vec::with_capacity(added.len());
            for change in added {
                let add =
                    sqlx::query_scalar(ADD).bind(change.at.millis()).bind(text(&change.who)).bind(text(&change.from));
                let add = add.bind(text(&change.action)).bind(text(&change.on)).bind(change.outcome.as_str());
                let add = add.bind(i64::from(change.status)).bind(change.millis());
                ids.push(add.fetch_one(&mut *tx).await?);
            }
            for (id, change) in ended {
                let end = sqlx::query(END).bind(id).bind(text(&change.who)).bind(text(&change.on));
                let end = end.bind(change.outcome.as_str()).bind(i64::from(change.status)).bind(change.millis());
                end.execute(&mut *tx).await?;
            }
            if let Some(before) = trimmed_before(&ids) {
                sqlx::query(TRIM).bind(before).execute(&mut *tx).await?;
            }
            Ok(ids)
        })
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditLine>, StoreError> {
        let rows: Vec<AuditRow> =
            on_connection!(self, "read the audit", |on| bound(query.statement()).fetch_all(on).await)?;
        Ok(rows.into_iter().map(AuditLine::from).collect())
    }

    async fn count_audit(&self) -> Result<u64, StoreError> {
        let count: i64 =
            on_connection!(self, "count the audit", |on| sqlx::query_scalar(AuditQuery::COUNT).fetch_one(on).await)?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    async fn prune_audit(&self, before: Timestamp) -> Result<u64, StoreError> {
        on_connection!(self, "delete old lines of the audit", |on| {
            Ok(sqlx::query(PRUNE).bind(before.millis()).bind(PRUNED).execute(on).await?.rows_affected())
        })
    }
}
