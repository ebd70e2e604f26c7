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
    const OF_ID: (&str, &str) = ("id", "id FROM feeds WHERE external_id = ");
    const OF_LABEL: (&str, &str) = ("feed_id", "feed_id FROM feed_labels WHERE label = ");
    let ((id, from), values) = match (&query.external_id, &query.label, &query.visible[..]) {
        (Some(id), ..) => (OF_ID, std::slice::from_ref(id)),
        (None, Some(label), _) => (OF_LABEL, std::slice::from_ref(label)),
        (None, None, []) => return Ok(Marked::Many),
        (None, None, labels) => (OF_LABEL, labels),
    };
    // As in other lists, only the index of feeds is in the order of -id in PostgreSQL.
    let plain = source.dialect().names_indexes || id != "id";
    let statement = |after: Option<i64>, limit: i64| {
        let (column, sign) = if plain { (id, 1) } else { ("-id", -1) };
        let rises = plain != query.reversed;
        let order = format!(" ORDER BY {column}{} LIMIT ", if rises { "" } else { " DESC" });
        let is_one = values.len() == 1;
        let mut sql = Statement::default();
        // Of each label no more feeds are read than there are in the list. A feed with several of them is one.
        for (place, value) in values.iter().enumerate() {
            sql.push(if place == 0 { "" } else { " UNION " }).push(if is_one { "" } else { "SELECT * FROM (" });
            sql.push("SELECT ").push(from).text(value);
            if let Some(after) = after {
                sql.push(&format!(" AND {column} {} ", if rises { ">" } else { "<" })).int(sign * after);
            }
            sql.push(&order).int(limit).push(if is_one { "" } else { ") AS of_label" });
        }
        if !is_one {
            sql.push(&order).int(limit);
        }
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
