//! Requeues: what they would do, their beginning, steps and end.

use async_trait::async_trait;
use common::time::Timestamp;
use common::url::FeedId;
use sqlx::SqliteConnection;

use super::batch::id_list;
use super::list::bound;
use super::{SqliteStore, in_snapshot, in_transaction};
use crate::columns::added_terms;
use crate::requeues::{KEPT, MOST_REQUEUES, RequeueRow, StepLimits};
use crate::row::{PlaceColumns, readable};
use crate::statement::Statement;
use crate::wanted::{Wanted, requeue_step};
use crate::{NewRequeue, Requeue, RequeueFilter, RequeuePlan, RequeueStep, Requeues, StoreError};

requeue_step!(SqliteConnection, "", listed);

#[async_trait]
impl Requeues for SqliteStore {
    async fn plan_requeue(&self, filter: &RequeueFilter, lift_penalties: bool) -> Result<RequeuePlan, StoreError> {
        let wanted = Wanted { filter: filter.clone(), lift_penalties };
        let (mut classes, mut hosts) = (Statement::default(), Statement::default());
        wanted.count_classes(&mut classes);
        wanted.count_hosts(&mut hosts);
        let (classes, hosts) = in_snapshot!(self, "find the feeds of a requeue", |tx| {
            let classes = bound(classes).fetch_all(&mut *tx).await?;
            Ok((classes, bound(hosts).fetch_all(tx).await?))
        })?;
        RequeuePlan::read(classes, hosts)
    }

    async fn begin_requeue(&self, new: &NewRequeue, now: Timestamp) -> Result<Option<Requeue>, StoreError> {
        let begun = in_transaction!(self, "begin a requeue", |tx| {
            let begin = sqlx::query_as::<_, RequeueRow>(include_str!("requeue_begin.sql"))
                .bind(new.filter.packed())
                .bind(new.rate)
                .bind(new.lift_penalties)
                .bind(now.millis() as f64)
                .bind(&new.by)
                .bind(now.millis())
                .bind(i64::try_from(new.matched).unwrap_or(i64::MAX))
                .bind(i64::try_from(new.queued).unwrap_or(i64::MAX))
                .bind(MOST_REQUEUES);
            let begun = begin.fetch_optional(&mut *tx).await?;
            let forget = "DELETE FROM requeues WHERE ended IS NOT NULL AND id NOT IN \
                          (SELECT id FROM requeues WHERE ended IS NOT NULL ORDER BY id DESC LIMIT ?1)";
            sqlx::query(forget).bind(KEPT).execute(tx).await?;
            Ok(begun)
        })?;
        Ok(begun.map(Requeue::from))
    }

    async fn requeues(&self, running: bool) -> Result<Vec<Requeue>, StoreError> {
        let sql = "SELECT * FROM requeues WHERE ended IS NULL OR NOT ?1 ORDER BY id DESC";
        let rows = sqlx::query_as::<_, RequeueRow>(sql).bind(running).fetch_all(&self.readers).await;
        Ok(rows.map_err(StoreError::on("list requeues"))?.into_iter().map(Requeue::from).collect())
    }

    async fn cancel_requeue(&self, id: i64, now: Timestamp) -> Result<bool, StoreError> {
        let sql = "UPDATE requeues SET state = 'cancelled', ended = ?2 WHERE id = ?1 AND ended IS NULL";
        let done = sqlx::query(sql).bind(id).bind(now.millis()).execute(&self.writer).await;
        Ok(done.map_err(StoreError::on("cancel a requeue"))?.rows_affected() > 0)
    }

    async fn step_requeue(&self, id: i64, now: Timestamp) -> Result<RequeueStep, StoreError> {
        in_transaction!(self, "continue a requeue", |tx| {
            let row = sqlx::query_as("SELECT * FROM requeues WHERE id = ?1 AND ended IS NULL").bind(id);
            let row = row.fetch_optional(&mut *tx).await?;
            step(tx, (id, row), now).await
        })
    }
}

fn listed(ids: &[i64]) -> String {
    id_list(ids.iter().copied().map(FeedId))
}
