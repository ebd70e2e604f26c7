//! Requeues: what they would do, their beginning, steps and end.
//!
//! The row of a requeue is locked before any feed's, and never by a transaction that holds a feed's.

use async_trait::async_trait;
use common::time::Timestamp;
use sqlx::{Executor, PgConnection};

use super::PostgresStore;
use super::connection::{in_transaction, on_connection};
use super::list::bound;
use super::upkeep::WHOLE_TABLES;
use crate::columns::added_terms;
use crate::requeues::{KEPT, MOST_REQUEUES, RequeueRow, StepLimits, requeue_columns};
use crate::row::{PlaceColumns, readable};
use crate::statement::Statement;
use crate::wanted::{Wanted, requeue_step};
use crate::{NewRequeue, Requeue, RequeueFilter, RequeuePlan, RequeueStep, Requeues, StoreError};

requeue_step!(PgConnection, " FOR NO KEY UPDATE", <[i64]>::to_vec);

#[async_trait]
impl Requeues for PostgresStore {
    async fn plan_requeue(&self, filter: &RequeueFilter, lift_penalties: bool) -> Result<RequeuePlan, StoreError> {
        let wanted = Wanted { filter: filter.clone(), lift_penalties };
        let counted = in_transaction!(self, "find the feeds of a requeue", |tx| {
            tx.execute(WHOLE_TABLES).await?;
            let (mut classes, mut hosts) = (Statement::default(), Statement::default());
            wanted.count_classes(&mut classes);
            wanted.count_hosts(&mut hosts);
            let classes = bound(classes).fetch_all(&mut *tx).await?;
            Ok((classes, bound(hosts).fetch_all(tx).await?))
        });
        let (classes, hosts) = counted?;
        RequeuePlan::read(classes, hosts)
    }

    async fn begin_requeue(&self, new: &NewRequeue, now: Timestamp) -> Result<Option<Requeue>, StoreError> {
        in_transaction!(self, "begin a requeue", |tx| {
            let begin = sqlx::query_as::<_, RequeueRow>(concat!(include_str!("requeue_begin.sql"), requeue_columns!()))
                .bind(new.filter.packed())
                .bind(new.rate)
                .bind(new.lift_penalties)
                .bind(now.millis() as f64)
                .bind(super::text(&new.by))
                .bind(now.millis())
                .bind(i64::try_from(new.matched).unwrap_or(i64::MAX))
                .bind(i64::try_from(new.queued).unwrap_or(i64::MAX))
                .bind(MOST_REQUEUES);
            let begun = begin.fetch_optional(&mut *tx).await?;
            let forget = "DELETE FROM requeues WHERE ended IS NOT NULL AND id NOT IN \
                          (SELECT id FROM requeues WHERE ended IS NOT NULL ORDER BY id DESC LIMIT $1)";
            sqlx::query(forget).bind(KEPT).execute(tx).await?;
            Ok(begun.map(Requeue::from))
        })
    }

    async fn requeues(&self, running: bool) -> Result<Vec<Requeue>, StoreError> {
        const LIST: &str =
            concat!("SELECT ", requeue_columns!(), " FROM requeues WHERE ended IS NULL OR NOT $1 ORDER BY id DESC");
        on_connection!(self, "list requeues", |on| {
            let rows = sqlx::query_as::<_, RequeueRow>(LIST).bind(running).fetch_all(on).await?;
            Ok(rows.into_iter().map(Requeue::from).collect())
        })
    }

    async fn cancel_requeue(&self, id: i64, now: Timestamp) -> Result<bool, StoreError> {
        on_connection!(self, "cancel a requeue", |on| {
            let sql = "UPDATE requeues SET state = 'cancelled', ended = $2 WHERE id = $1 AND ended IS NULL";
            Ok(sqlx::query(sql).bind(id).bind(now.millis()).execute(on).await?.rows_affected() > 0)
        })
    }

    async fn step_requeue(&self, id: i64, now: Timestamp) -> Result<RequeueStep, StoreError> {
        // Nothing, if another process is taking a step.
        const LOCK: &str = concat!(
            "SELECT ",
            requeue_columns!(),
            " FROM requeues WHERE id = $1 AND ended IS NULL FOR NO KEY UPDATE SKIP LOCKED"
        );
        in_transaction!(self, "continue a requeue", |tx| {
            let row = sqlx::query_as(LOCK).bind(id).fetch_optional(&mut *tx).await?;
            step(tx, (id, row), now).await
        })
    }
}
