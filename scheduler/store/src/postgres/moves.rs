//! Feeds that turn out to be somewhere else.

use common::time::Timestamp;
use common::url::{FeedId, Version};
use sqlx::PgConnection;

use super::news;
use super::urls::lock_urls;
use crate::columns::{added_terms, calm_without, pack_state, read_marks};
use crate::moves::{MOST_MERGES, UNCOUNTED, carry_out};
use crate::news::News;
use crate::{Move, Moved, Unmove, Unmoved};

carry_out!(PgConnection);

pub(super) async fn move_on(
    on: &mut PgConnection,
    id: FeedId,
    version: Version,
    to: &Move,
    now: Timestamp,
) -> Result<Moved, sqlx::Error> {
    lock_urls(&mut *on).await?;
    type Row = (i64, bool, bool, bool, String, Vec<u8>);
    let look = sqlx::query_as(include_str!("move_before.sql")).bind(id.0).bind(version.0).bind(to.url.as_str());
    let rows: Vec<Row> = look.bind(MOST_MERGES).fetch_all(&mut *on).await?;
    let may_move = rows.iter().any(|(_, fresh, there, _, from, login)| *fresh && !there && to.is_allowed(from, login));
    // After too many merges, or where the next one has another login.
    let leads_nowhere = rows.iter().any(|(_, _, there, is_merged, ..)| *there && *is_merged);
    if !may_move || leads_nowhere {
        return Ok(Moved::Stale);
    }
    let known = rows.iter().find(|(_, _, there, ..)| *there).map(|(id, ..)| *id);
    carry_out(on, id, to, (known, include_str!("move_merged.sql")), now).await
}

/// Takes the readers of a feed that is to be erased out of the one that it was merged into.
pub(super) async fn leave_survivor(on: &mut PgConnection, id: FeedId) -> Result<(), sqlx::Error> {
    type Row = (i64, String, Option<i64>, i64, Option<String>);
    let look = sqlx::query_as(
        "SELECT id, status, merged_into, audience_at, calm FROM feeds \
         WHERE id = $1 OR id = (SELECT merged_into FROM feeds WHERE id = $1) ORDER BY id FOR NO KEY UPDATE",
    );
    let rows: Vec<Row> = look.bind(id.0).fetch_all(&mut *on).await?;
    let row = |id: i64| rows.iter().find(|(other, ..)| *other == id);
    let Some((_, status, Some(survivor), _, calm)) = row(id.0) else { return Ok(()) };
    let Some((.., audience_at, all)) = row(*survivor).filter(|_| status == "merged") else { return Ok(()) };
    // A decision that was made for the readers before is to be made again.
    let out = sqlx::query(include_str!("unmove_out.sql")).bind(id.0).bind(*survivor).bind(audience_at + 1);
    out.bind(calm_without(FeedId(*survivor), all.clone(), calm.clone())).execute(on).await?;
    Ok(())
}

pub(super) async fn move_back(
    on: &mut PgConnection,
    id: FeedId,
    version: Version,
    back: &Unmove,
    now: Timestamp,
) -> Result<Unmoved, sqlx::Error> {
    lock_urls(&mut *on).await?;
    type Row = (i64, bool, Option<i64>, bool, Option<String>);
    let look = sqlx::query_as(include_str!("unmove_before.sql")).bind(id.0).bind(version.0);
    let rows: Vec<Row> = look.fetch_all(&mut *on).await?;
    let Some((_, true, survivor, moved, calm)) = rows.iter().find(|(row, ..)| *row == id.0) else {
        return Ok(Unmoved::Stale);
    };
    let state = pack_state(&back.state);
    if let Some(survivor) = *survivor {
        let before = news::known(on, &[survivor]).await?;
        let all = rows.iter().find(|(row, ..)| *row == survivor).and_then(|(.., calm)| calm.clone());
        let out = sqlx::query(include_str!("unmove_out.sql")).bind(id.0).bind(survivor).bind(now.millis());
        out.bind(calm_without(FeedId(survivor), all, calm.clone())).execute(&mut *on).await?;
        let apart = sqlx::query(include_str!("unmove_apart.sql")).bind(id.0).bind(now.millis()).bind(added_terms(now));
        apart.bind(state).execute(&mut *on).await?;
        // The operator wants it from now on, whether its subscribers at the hub come back to it or not.
        sqlx::query("DELETE FROM hub_feeds WHERE feed_id = $1").bind(id.0).execute(&mut *on).await?;
        news::tell_changes(on, vec![has_moved(id)], &before, now).await?;
        return Ok(Unmoved::Apart(FeedId(survivor)));
    }
    if !moved {
        return Ok(Unmoved::Stale);
    }
    if let Some((other, ..)) = rows.iter().find(|(row, ..)| *row != id.0) {
        return Ok(Unmoved::Taken(FeedId(*other)));
    }
    let here = sqlx::query(include_str!("unmove_here.sql")).bind(id.0).bind(back.host.as_str());
    here.bind(back.category.as_str()).bind(state).execute(&mut *on).await?;
    news::tell(on, &[has_moved(id)], now).await?;
    Ok(Unmoved::Back)
}
