//! Feeds that turn out to be somewhere else.

use common::time::Timestamp;
use common::url::{FeedId, Version};
use sqlx::SqliteConnection;

use super::news;
use crate::columns::{added_terms, calm_without, pack_state, read_marks};
use crate::moves::{MOST_MERGES, UNCOUNTED, carry_out};
use crate::news::News;
use crate::{Move, Moved, Unmove, Unmoved};

/// Feed $1 became feed $2.
const MERGE: &str = "UPDATE feeds SET status = 'merged', version = version + 1, next_due = NULL, wake_at = NULL, failure = NULL, \
    penalty = NULL, last_error = NULL, terms = x'', merged_into = $2 WHERE id = $1";

carry_out!(SqliteConnection);

pub(super) async fn move_on(
    on: &mut SqliteConnection,
    id: FeedId,
    version: Version,
    to: &Move,
    now: Timestamp,
) -> Result<Moved, sqlx::Error> {
    let look = "SELECT credentials, url FROM feeds WHERE id = ?1 AND version = ?2 AND status = 'active'";
    let look = sqlx::query_as(look).bind(id.0).bind(version.0);
    let before: Option<(Vec<u8>, String)> = look.fetch_optional(&mut *on).await?;
    let Some((credentials, url)) = before else { return Ok(Moved::Stale) };
    if !to.is_allowed(&url, &credentials) {
        return Ok(Moved::Stale);
    }
    let target = sqlx::query_as(include_str!("move_target.sql")).bind(to.url.as_str()).bind(credentials);
    let known: Option<(i64, bool)> = target.bind(MOST_MERGES).fetch_optional(&mut *on).await?;
    // It is merged after too many merges, or where the next one has another login.
    if known.is_some_and(|(there, is_merged)| there == id.0 || is_merged) {
        return Ok(Moved::Stale);
    }
    let known = known.map(|(there, _)| there);
    carry_out(on, id, to, (known, MERGE), now).await
}

pub(super) async fn move_back(
    on: &mut SqliteConnection,
    id: FeedId,
    version: Version,
    back: &Unmove,
    now: Timestamp,
) -> Result<Unmoved, sqlx::Error> {
    type Row = (Option<i64>, bool, Option<String>);
    let look =
        sqlx::query_as("SELECT merged_into, moved_from IS NOT NULL, calm FROM feeds WHERE id = ?1 AND version = ?2");
    let row: Option<Row> = look.bind(id.0).bind(version.0).fetch_optional(&mut *on).await?;
    let Some((survivor, moved, calm)) = row else { return Ok(Unmoved::Stale) };
    if let Some(survivor) = survivor {
        let before = news::known(on, &[survivor]).await?;
        part(on, id, survivor, calm, &pack_state(&back.state), now).await?;
        // The operator wants it from now on, whether its subscribers at the hub come back to it or not.
        sqlx::query("DELETE FROM hub_feeds WHERE feed_id = ?1").bind(id.0).execute(&mut *on).await?;
        news::tell_changes(on, vec![has_moved(id)], &before, now).await?;
        return Ok(Unmoved::Apart(FeedId(survivor)));
    }
    if !moved {
        return Ok(Unmoved::Stale);
    }
    let look = "SELECT other.id FROM feeds AS other, feeds AS this WHERE this.id = ?1 AND other.url = this.moved_from \
                AND other.credentials = this.credentials AND other.id <> ?1";
    let other: Option<i64> = sqlx::query_scalar(look).bind(id.0).fetch_optional(&mut *on).await?;
    if let Some(other) = other {
        return Ok(Unmoved::Taken(FeedId(other)));
    }
    let here = sqlx::query(include_str!("unmove_here.sql")).bind(id.0).bind(back.host.as_str());
    here.bind(back.category.as_str()).bind(pack_state(&back.state)).execute(&mut *on).await?;
    news::tell(on, &[has_moved(id)], now).await?;
    Ok(Unmoved::Back)
}

/// Takes the readers of a feed that is to be erased out of the one that it was merged into.
pub(super) async fn leave_survivor(on: &mut SqliteConnection, id: FeedId) -> Result<(), sqlx::Error> {
    let look = sqlx::query_as(
        "SELECT survivor.id, survivor.audience_at, survivor.calm, gone.calm FROM feeds AS gone \
         JOIN feeds AS survivor ON survivor.id = gone.merged_into WHERE gone.id = ?1 AND gone.status = 'merged'",
    );
    let row: Option<(i64, i64, Option<String>, Option<String>)> = look.bind(id.0).fetch_optional(&mut *on).await?;
    let Some((survivor, audience_at, all, calm)) = row else { return Ok(()) };
    // A decision that was made for the readers before is to be made again.
    let out = sqlx::query(include_str!("unmove_out.sql")).bind(id.0).bind(survivor).bind(audience_at + 1);
    out.bind(calm_without(FeedId(survivor), all, calm)).execute(on).await?;
    Ok(())
}

/// Takes a feed out of the one that it was merged into.
async fn part(
    on: &mut SqliteConnection,
    id: FeedId,
    survivor: i64,
    calm: Option<String>,
    state: &str,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let look = sqlx::query_scalar("SELECT calm FROM feeds WHERE id = ?1").bind(survivor);
    let all: Option<String> = look.fetch_one(&mut *on).await?;
    let out = sqlx::query(include_str!("unmove_out.sql")).bind(id.0).bind(survivor).bind(now.millis());
    out.bind(calm_without(FeedId(survivor), all, calm)).execute(&mut *on).await?;
    let apart = sqlx::query(include_str!("unmove_apart.sql")).bind(id.0).bind(now.millis()).bind(added_terms(now));
    apart.bind(state).execute(on).await?;
    Ok(())
}
