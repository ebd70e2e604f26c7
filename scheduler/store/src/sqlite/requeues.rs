//! Requeues: what they would do, their beginning, steps and end.

use async_trait::async_trait;
use common::time::Timestamp;
use common::url::FeedId;
use sqlx::{Sqlite, Transaction};

use super::SqliteStore;
use super::batch::id_list;
use super::list::bound;
use crate::columns::added_terms;
use crate::requeues::{KEPT, MOST_REQUEUES, RequeueRow, StepLimits};
use crate::row::{PlaceColumns, readable};
use crate::statement::Statement;
use crate::wanted::Wanted;
use crate::{NewRequeue, Requeue, RequeueFilter, RequeuePlan, RequeueStep, Requeues, StoreError};

#[async_trait]
impl Requeues for SqliteStore {
    async fn plan_requeue(&self, filter: &RequeueFilter, lift_penalties: bool) -> Result<RequeuePlan, StoreError> {
        const ACTION: &str = "find the feeds of a requeue";
        let failed = StoreError::on;
        let wanted = Wanted { filter: filter.clone(), lift_penalties };
        let mut tx = self.readers.begin().await.map_err(failed(ACTION))?;
        let (mut classes, mut hosts) = (Statement::default(), Statement::default());
        wanted.count_classes(&mut classes);
        wanted.count_hosts(&mut hosts);
        let classes = bound(classes).fetch_all(&mut *tx).await.map_err(failed(ACTION))?;
        let hosts = bound(hosts).fetch_all(&mut *tx).await.map_err(failed(ACTION))?;
        RequeuePlan::read(classes, hosts)
    }

    async fn begin_requeue(&self, new: &NewRequeue, now: Timestamp) -> Result<Option<Requeue>, StoreError> {
        const ACTION: &str = "begin a requeue";
        let failed = StoreError::on;
        let mut tx = self.write(ACTION).await?;
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
        let begun = begin.fetch_optional(&mut *tx).await.map_err(failed(ACTION))?;
        let forget = "DELETE FROM requeues WHERE ended IS NOT NULL AND id NOT IN \
                      (SELECT id FROM requeues WHERE ended IS NOT NULL ORDER BY id DESC LIMIT ?1)";
        sqlx::query(forget).bind(KEPT).execute(&mut *tx).await.map_err(failed(ACTION))?;
        tx.commit().await.map_err(failed(ACTION))?;
        Ok(begun.map(Requeue::from))
    }

    async fn requeues(&self, running: bool) -> Result<Vec<Requeue>, StoreError> {
        let sql = "SELECT * FROM requeues WHERE ended IS NULL OR NOT ?1 ORDER BY id DESC";
        let rows: Vec<RequeueRow> = sqlx::query_as(sql)
            .bind(running)
            .fetch_all(&self.readers)
            .await
            .map_err(StoreError::on("list requeues"))?;
        Ok(rows.into_iter().map(Requeue::from).collect())
    }

    async fn cancel_requeue(&self, id: i64, now: Timestamp) -> Result<bool, StoreError> {
        let sql = "UPDATE requeues SET state = 'cancelled', ended = ?2 WHERE id = ?1 AND ended IS NULL";
        let done = sqlx::query(sql)
            .bind(id)
            .bind(now.millis())
            .execute(&self.writer)
            .await
            .map_err(StoreError::on("cancel a requeue"))?;
        Ok(done.rows_affected() > 0)
    }

    async fn step_requeue(&self, id: i64, now: Timestamp) -> Result<RequeueStep, StoreError> {
        const ACTION: &str = "continue a requeue";
        let failed = StoreError::on;
        let mut tx = self.write(ACTION).await?;
        let row = sqlx::query_as::<_, RequeueRow>("SELECT * FROM requeues WHERE id = ?1 AND ended IS NULL").bind(id);
        let row = row.fetch_optional(&mut *tx).await.map_err(failed(ACTION))?;
        let Some((row, limits)) = row.and_then(|row| row.limits(now).map(|limits| (row, limits))) else {
            return Ok(RequeueStep::default());
        };
        let (ids, woken) = wake(&mut tx, &Wanted::of(&row), limits, now).await.map_err(failed(ACTION))?;
        let result = row.after_step(limits, &ids);
        let moved = "UPDATE requeues SET next_after = ?2, spent_until = ?3, woken = woken + ?4, \
                     state = iif(?5, 'done', state), ended = iif(?5, ?6, ended) WHERE id = ?1";
        sqlx::query(moved)
            .bind(id)
            .bind(result.next_after)
            .bind(result.spent_until)
            .bind(i64::try_from(ids.len()).unwrap_or(i64::MAX))
            .bind(result.done)
            .bind(now.millis())
            .execute(&mut *tx)
            .await
            .map_err(failed(ACTION))?;
        tx.commit().await.map_err(failed(ACTION))?;
        Ok(RequeueStep { woken: readable(woken), again: result.again, done: result.done })
    }
}

/// Wakes the feeds of a step; returns their numbers, in order, and their due times.
async fn wake(
    tx: &mut Transaction<'_, Sqlite>,
    wanted: &Wanted,
    limits: StepLimits,
    now: Timestamp,
) -> Result<(Vec<i64>, Vec<PlaceColumns>), sqlx::Error> {
    let mut find = Statement::default();
    wanted.find(limits, &mut find);
    let ids: Vec<(i64,)> = bound(find).fetch_all(&mut **tx).await?;
    let ids: Vec<i64> = ids.into_iter().map(|(id,)| id).collect();
    if ids.is_empty() {
        return Ok((ids, Vec::new()));
    }
    let list = id_list(ids.iter().copied().map(FeedId));
    if wanted.lift_penalties {
        let revive = sqlx::query(include_str!("requeue_revive.sql")).bind(&list).bind(now.millis());
        revive.bind(added_terms(now)).execute(&mut **tx).await?;
    }
    let wake = sqlx::query_as(include_str!("wake.sql")).bind(&list).bind(now.millis()).bind(now.millis());
    let wake = wake.bind(false);
    let woken = wake.fetch_all(&mut **tx).await?;
    Ok((ids, woken))
}
