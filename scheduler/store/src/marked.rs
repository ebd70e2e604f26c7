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

/// Adds the condition that a label is one of these.
pub(super) fn one_of<'a>(sql: &'a mut Statement, labels: &[String]) -> &'a mut Statement {
    sql.push("label IN (");
    for (place, label) in labels.iter().enumerate() {
        sql.push(if place == 0 { "" } else { ", " }).text(label);
    }
    sql.push(")")
}

/// Looks for the feeds that a query's label or id names.
pub(super) async fn marked(
    source: &mut impl Source,
    query: &FeedQuery,
    after: Option<Position>,
) -> Result<Marked, StoreError> {
    let (from, values, id) = match (&query.external_id, &query.label, &query.visible[..]) {
        (Some(id), ..) => ("id FROM feeds WHERE ", std::slice::from_ref(id), "id"),
        (None, Some(label), _) => ("feed_id FROM feed_labels WHERE ", std::slice::from_ref(label), "feed_id"),
        (None, None, []) => return Ok(Marked::Many),
        // A feed with several of them is one.
        (None, None, [_]) => ("feed_id FROM feed_labels WHERE ", &query.visible[..], "feed_id"),
        (None, None, several) => ("DISTINCT feed_id FROM feed_labels WHERE ", several, "feed_id"),
    };
    // As in other lists, only the index of feeds is in the order of -id in PostgreSQL.
    let plain = source.dialect().names_indexes || id != "id";
    let statement = |after: Option<i64>, limit: i64| {
        let mut sql = Statement::default();
        sql.push("SELECT ").push(from);
        match id {
            "id" => sql.push("external_id = ").text(&values[0]),
            _ => one_of(&mut sql, values),
        };
        let (column, sign) = if plain { (id, 1) } else { ("-id", -1) };
        let rises = plain != query.reversed;
        if let Some(after) = after {
            sql.push(&format!(" AND {column} {} ", if rises { ">" } else { "<" })).int(sign * after);
        }
        sql.push(&format!(" ORDER BY {column}{} LIMIT ", if rises { "" } else { " DESC" })).int(limit);
        sql
    };
    let ids = source.numbers(statement(None, i64::from(MOST) + 1)).await?;
    Ok(match query.sort {
        _ if ids.len() <= MOST as usize => Marked::All(ids),
        FeedSort::Id => {
            Marked::Some(source.numbers(statement(after.map(|position| position.id), i64::from(MOST))).await?)
        }
        FeedSort::Subscribers | FeedSort::NextDue | FeedSort::Category | FeedSort::LastPolled => Marked::Many,
    })
}
