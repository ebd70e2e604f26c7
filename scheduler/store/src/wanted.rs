//! Which feeds a requeue is about, in SQL and in words.

use common::outcome::FailureKind;
use common::policy::{Category, Status};

use super::requeues::{LARGEST, RequeueFilter, RequeueRow, StepLimits};
use super::statement::Statement;

/// Which feeds a requeue is about.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) filter: RequeueFilter,
    pub(super) lift_penalties: bool,
}

impl Wanted {
    /// Returns what a stored requeue is about.
    pub(super) fn of(row: &RequeueRow) -> Self {
        Wanted { filter: row.filter(), lift_penalties: row.lift_penalties }
    }

    /// Counts what fits by class: the first half of a [`crate::RequeuePlan`].
    pub(super) fn count_classes(&self, sql: &mut Statement) {
        sql.push("SELECT category, status, penalty IS NOT NULL, count(*) FROM feeds WHERE ");
        self.fitting(sql);
        sql.push(" GROUP BY 1, 2, 3 ORDER BY 1, 2, 3");
    }

    /// Counts what would be polled by host, with the number of hosts: the other half.
    pub(super) fn count_hosts(&self, sql: &mut Statement) {
        sql.push("SELECT host, count(*), count(*) OVER () FROM feeds WHERE ");
        self.reached(sql);
        sql.push(" GROUP BY host ORDER BY 2 DESC, 1 LIMIT ").int(LARGEST);
    }

    /// Finds the feeds of a step, by number.
    pub(super) fn find(&self, limits: StepLimits, sql: &mut Statement) {
        sql.push("SELECT id FROM feeds WHERE ");
        self.reached(sql);
        sql.push(" AND id > ").int(limits.after);
        sql.push(" AND id <= ").int(limits.until);
        sql.push(" ORDER BY id LIMIT ").int(limits.most);
    }

    /// Feeds that fit the filter.
    fn fitting(&self, sql: &mut Statement) {
        let RequeueFilter { feed, feeds, hosts, category, status, failure, http_statuses, due_before } = &self.filter;
        sql.push("true");
        if let Some(feed) = feed {
            sql.push(" AND id = ").int(feed.0);
        }
        for (place, feed) in feeds.iter().enumerate() {
            sql.push(if place == 0 { " AND id IN (" } else { ", " }).int(feed.0);
        }
        if !feeds.is_empty() {
            sql.push(")");
        }
        for (place, host) in hosts.iter().enumerate() {
            sql.push(if place == 0 { " AND host IN (" } else { ", " }).text(host.as_str());
        }
        if !hosts.is_empty() {
            sql.push(")");
        }
        let texts = [
            (" AND category = ", category.map(Category::as_str)),
            (" AND status = ", status.map(Status::as_str)),
            (" AND failure = ", failure.map(FailureKind::as_str)),
        ];
        for (column, text) in texts {
            if let Some(text) = text {
                sql.push(column).text(text);
            }
        }
        for (place, status) in http_statuses.iter().enumerate() {
            // As `LastError` is written. In its texts quotation marks are escaped.
            let status = format!("%\"status\":{status},\"detail\":%");
            sql.push(if place == 0 { " AND (last_error LIKE " } else { " OR last_error LIKE " }).text(&status);
        }
        if !http_statuses.is_empty() {
            sql.push(")");
        }
        if let Some(due_before) = due_before {
            sql.push(" AND status = 'active' AND next_due < ").int(due_before.millis());
        }
    }

    /// Of these the ones that can be polled: live ones outside of the penalty box, or, if penalties are lifted, inside of it
    /// and blacklisted and quarantined ones too.
    fn reached(&self, sql: &mut Statement) {
        self.fitting(sql);
        sql.push(match self.lift_penalties {
            true => " AND status IN ('active', 'blacklisted', 'quarantined')",
            false => " AND status = 'active' AND penalty IS NULL",
        });
    }
}

/// Returns whether a feed of this class can be polled.
pub fn reaches(status: Status, penalised: bool, lift_penalties: bool) -> bool {
    match status {
        Status::Active => lift_penalties || !penalised,
        Status::Blacklisted | Status::Quarantined => lift_penalties,
        Status::Paused | Status::Gone | Status::Removed | Status::Merged => false,
    }
}

/// Defines a step of a requeue, over a connection of either database; the statements are those beside the caller. `$lock` ends the one
/// that finds feeds, and `$listed` makes their numbers a parameter of the others.
macro_rules! requeue_step {
    ($connection:ty, $lock:literal, $listed:expr) => {
        /// Takes a step, if its time has come.
        async fn step(
            on: &mut $connection,
            (id, row): (i64, Option<RequeueRow>),
            now: Timestamp,
        ) -> Result<RequeueStep, sqlx::Error> {
            let Some((row, limits)) = row.and_then(|row| row.limits(now).map(|limits| (row, limits))) else {
                return Ok(RequeueStep::default());
            };
            let (ids, woken) = wake(on, &Wanted::of(&row), limits, now).await?;
            let result = row.after_step(limits, &ids);
            let moved = "UPDATE requeues SET next_after = $2, spent_until = $3, woken = woken + $4, \
                         state = CASE WHEN $5 THEN 'done' ELSE state END, ended = CASE WHEN $5 THEN $6 ELSE ended END \
                         WHERE id = $1";
            let moved = sqlx::query(moved).bind(id).bind(result.next_after).bind(result.spent_until);
            let moved = moved.bind(i64::try_from(ids.len()).unwrap_or(i64::MAX)).bind(result.done).bind(now.millis());
            moved.execute(on).await?;
            Ok(RequeueStep { woken: readable(woken), again: result.again, done: result.done })
        }

        /// Wakes the feeds of a step; returns their numbers, in order, and their due times.
        async fn wake(
            on: &mut $connection,
            wanted: &Wanted,
            limits: StepLimits,
            now: Timestamp,
        ) -> Result<(Vec<i64>, Vec<PlaceColumns>), sqlx::Error> {
            let mut find = Statement::default();
            wanted.find(limits, &mut find);
            find.push($lock);
            let ids: Vec<(i64,)> = bound(find).fetch_all(&mut *on).await?;
            let ids: Vec<i64> = ids.into_iter().map(|(id,)| id).collect();
            if ids.is_empty() {
                return Ok((ids, Vec::new()));
            }
            let list = $listed(&ids);
            if wanted.lift_penalties {
                let revive = sqlx::query(include_str!("requeue_revive.sql")).bind(&list).bind(now.millis());
                revive.bind(added_terms(now)).execute(&mut *on).await?;
            }
            let wake = sqlx::query_as(include_str!("wake.sql")).bind(&list).bind(now.millis()).bind(now.millis());
            let woken = wake.bind(false).fetch_all(on).await?;
            Ok((ids, woken))
        }
    };
}
pub(super) use requeue_step;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_polled_says_the_same_in_sql_and_in_words() {
        for lift_penalties in [false, true] {
            let mut statement = Statement::default();
            Wanted { filter: RequeueFilter::default(), lift_penalties }.reached(&mut statement);
            let sql = statement.sql;
            for status in Status::ALL {
                let named = sql.contains(&format!("'{}'", status.as_str()));
                assert_eq!(reaches(status, false, lift_penalties), named, "{status:?} {sql}");
            }
            assert_eq!(reaches(Status::Active, true, lift_penalties), !sql.contains("penalty IS NULL"));
        }
    }
}
