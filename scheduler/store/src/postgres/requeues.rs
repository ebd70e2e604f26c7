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
use crate::wanted::Wanted;
use crate::{NewRequeue, Requeue, RequeueFilter, RequeuePlan, RequeueStep, Requeues, StoreError};

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
        in_transaction!(self, "continue a requeue", |tx| step_in(tx, id, now).await)
    }
}

/// Takes a step, unless another process is taking one.
async fn step_in(on: &mut PgConnection, id: i64, now: Timestamp) -> Result<RequeueStep, sqlx::Error> {
    const LOCK: &str = concat!(
        "SELECT ",
        requeue_columns!(),
        " FROM requeues WHERE id = $1 AND ended IS NULL FOR NO KEY UPDATE SKIP LOCKED"
    );
    let row = sqlx::query_as::<_, RequeueRow>(LOCK).bind(id).fetch_optional(&mut *on).await?;
    let Some((row, limits)) = row.and_then(|row| row.limits(now).map(|limits| (row, limits))) else {
        return Ok(RequeueStep::default());
    };
    let (ids, woken) = wake(on, &Wanted::of(&row), limits, now).await?;
    let result = row.after_step(limits, &ids);
    let moved = "UPDATE requeues SET next_after = $2, spent_until = $3, woken = woken + $4, \
                 state = CASE WHEN $5 THEN 'done' ELSE state END, ended = CASE WHEN $5 THEN $6 ELSE ended END WHERE id = $1";
    sqlx::query(moved)
        .bind(id)
        .bind(result.next_after)
        .bind(result.spent_until)
        .bind(i64::try_from(ids.len()).unwrap_or(i64::MAX))
        .bind(result.done)
        .bind(now.millis())
        .execute(on)
        .await?;
    Ok(RequeueStep { woken: readable(woken), again: result.again, done: result.done })
}

/// Wakes the feeds of a step; returns their numbers, in order, and their due times.
async fn wake(
    on: &mut PgConnection,
    wanted: &Wanted,
    limits: StepLimits,
    now: Timestamp,
) -> Result<(Vec<i64>, Vec<PlaceColumns>), sqlx::Error> {
    let mut find = Statement::default();
    wanted.find(limits, &mut find);
    find.push(" FOR NO KEY UPDATE");
    let ids: Vec<(i64,)> = bound(find).fetch_all(&mut *on).await?;
    let ids: Vec<i64> = ids.into_iter().map(|(id,)| id).collect();
    if ids.is_empty() {
        return Ok((ids, Vec::new()));
    }
    if wanted.lift_penalties {
        let revive = sqlx::query(include_str!("requeue_revive.sql")).bind(&ids).bind(now.millis());
        revive.bind(added_terms(now)).execute(&mut *on).await?;
    }
    let wake = sqlx::query_as(include_str!("wake.sql")).bind(&ids).bind(now.millis()).bind(now.millis());
    let wake = wake.bind(false);
    let woken = wake.fetch_all(on).await?;
    Ok((ids, woken))
}
