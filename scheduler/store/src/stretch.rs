//! Parts of the indexes that lists of feeds follow, and their order as both databases want it written.

use super::columns::DAY;
use super::cursor::Position;
use super::lead::{Lead, name_index};
use super::source::Dialect;
use super::statement::Statement;
use super::{FeedQuery, FeedSort};

/// A column by whose values a list is sorted, before the number.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub(super) name: &'static str,
    /// What one of its values counts in a [`Position`].
    pub(super) unit: i64,
    /// The highest come first.
    falls: bool,
}

impl Column {
    pub(super) fn of(sort: FeedSort) -> Option<Column> {
        match sort {
            FeedSort::Subscribers => Some(Column { name: "subscribers", unit: 1, falls: true }),
            FeedSort::LastPolled => Some(Column { name: "polled_day", unit: DAY, falls: false }),
            FeedSort::Id | FeedSort::NextDue | FeedSort::Category => None,
        }
    }
}

/// How feeds are walked.
pub(super) struct Order {
    pub(super) column: Option<Column>,
    pub(super) reversed: bool,
    pub(super) lead: Lead,
    pub(super) index: &'static str,
}

/// A part of an index.
#[derive(Clone, Copy)]
pub(super) enum Stretch {
    Whole,
    /// By number.
    Behind(Position),
    /// With this position's value.
    Same(Position),
    /// With values behind this position's.
    Further(Position),
}

impl Stretch {
    /// Adds what follows `FROM feeds`, up to `LIMIT`.
    pub(super) fn rows(self, sql: &mut Statement, query: &FeedQuery, dialect: Dialect, order: &Order) {
        name_index(sql, dialect, order.index);
        order.lead.condition(query, sql.push(" WHERE "));
        let all = matches!(order.lead, Lead::All);
        let id = match dialect.names_indexes || (all && order.column.is_none()) {
            true => Term { sign: "", name: "id", unit: 1, rises: !order.reversed },
            false => Term { sign: "-", name: "id", unit: -1, rises: order.reversed },
        };
        let value = order.column.map(|Column { name, unit, falls }| match !falls || dialect.names_indexes || all {
            true => Term { sign: "", name, unit, rises: falls == order.reversed },
            false => Term { sign: "-", name, unit: -unit, rises: !order.reversed },
        });
        match (self, &value) {
            (Stretch::Behind(position), _) => id.behind(sql, position.id),
            (Stretch::Same(position), Some(value)) => {
                sql.push(&format!(" AND {}{} = ", value.sign, value.name)).int(position.value / value.unit);
                id.behind(sql, position.id);
            }
            (Stretch::Further(position), Some(value)) => value.behind(sql, position.value),
            (Stretch::Whole | Stretch::Same(_) | Stretch::Further(_), _) => {}
        }
        sql.push(" ORDER BY ");
        if let Some(value) = value.filter(|_| !matches!(self, Stretch::Same(_))) {
            value.order(sql);
            sql.push(", ");
        }
        id.order(sql);
        sql.push(" LIMIT ");
    }
}

/// A column or its negative, as an index has it.
struct Term {
    sign: &'static str,
    name: &'static str,
    /// What a position's value is divided by.
    unit: i64,
    rises: bool,
}

impl Term {
    /// Adds the condition that a feed comes after this value.
    fn behind(&self, sql: &mut Statement, value: i64) {
        let comes = if self.rises { ">" } else { "<" };
        sql.push(&format!(" AND {}{} {comes} ", self.sign, self.name)).int(value / self.unit);
    }

    fn order(&self, sql: &mut Statement) {
        let direction = if self.rises { "" } else { " DESC" };
        sql.push(&format!("{}{}{direction}", self.sign, self.name));
    }
}
