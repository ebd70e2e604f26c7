//! Feeds by what callers note on them: labels and ids of their own have indexes by number.

use super::cursor::Position;
use super::source::{MOST, Source};
use super::statement::Statement;
use super::{FeedQuery, FeedSort, StoreError};

/// The feeds with a label, or with an id of the caller's own.
pub(super) enum Marked {
    /// No such filter, or more feeds than are put in order: they are looked for as if there were no index of them.
    Many,
    /// All of them, by number.
    All(Vec<i64>),
    /// The next by number, of many.
    Some(Vec<i64>),
}

/// Looks for the feeds that a query's label or id names.
pub(super) async fn marked(
    source: &mut impl Source,
    query: &FeedQuery,
    after: Option<Position>,
) -> Result<Marked, StoreError> {
    let (from, value, id) = match (&query.external_id, &query.label) {
        (Some(id), _) => ("id FROM feeds WHERE external_id = ", id, "id"),
        (None, Some(label)) => ("feed_id FROM feed_labels WHERE label = ", label, "feed_id"),
        (None, None) => return Ok(Marked::Many),
    };
    // As in other lists, only the index of feeds is in the order of -id in PostgreSQL.
    let plain = source.dialect().names_indexes || id != "id";
    let statement = |after: i64, limit: i64| {
        let mut sql = Statement::default();
        sql.push("SELECT ").push(from).text(value);
        match plain {
            true => sql.push(&format!(" AND {id} > ")).int(after).push(&format!(" ORDER BY {id} LIMIT ")).int(limit),
            false => sql.push(" AND -id < ").int(-after).push(" ORDER BY -id DESC LIMIT ").int(limit),
        };
        sql
    };
    let ids = source.numbers(statement(0, i64::from(MOST) + 1)).await?;
    Ok(match query.sort {
        _ if ids.len() <= MOST as usize => Marked::All(ids),
        FeedSort::Id => {
            let after = after.map_or(0, |position| position.id);
            Marked::Some(source.numbers(statement(after, i64::from(MOST))).await?)
        }
        FeedSort::Subscribers | FeedSort::NextDue => Marked::Many,
    })
}
