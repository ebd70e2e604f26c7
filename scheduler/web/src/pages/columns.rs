//! Heads of a list's columns: links that sort the list by the column, and turn the order around when it is sorted by it already.

use crate::error::ApiError;

/// The head of a column.
#[derive(Debug, PartialEq)]
pub(super) struct Column {
    pub(super) text: &'static str,
    pub(super) class: &'static str,
    /// What the column or its order means, where that is not obvious.
    pub(super) about: &'static str,
    pub(super) href: String,
    /// The value of `aria-sort` if the list is sorted by this column.
    pub(super) sorted: Option<&'static str>,
}

/// A column as a list declares it.
#[derive(Clone, Copy)]
pub(super) struct Sortable {
    /// Its name in `sort`.
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    pub(super) class: &'static str,
    pub(super) about: &'static str,
    /// Its usual order has the highest first.
    pub(super) falls: bool,
}

impl Sortable {
    /// A column whose usual order has the lowest first.
    pub(super) const fn rising(name: &'static str, text: &'static str, class: &'static str) -> Self {
        Sortable { name, text, class, about: "", falls: false }
    }

    /// A column whose usual order has the highest first.
    pub(super) const fn falling(name: &'static str, text: &'static str, class: &'static str) -> Self {
        Sortable { falls: true, ..Sortable::rising(name, text, class) }
    }

    pub(super) const fn about(self, about: &'static str) -> Self {
        Sortable { about, ..self }
    }
}

/// Returns the heads of a list at `path`, whose query string without `sort` and `order` is `conditions`. It is sorted by the column
/// with this name, in its usual order or the opposite one.
pub(super) fn heads(columns: &[Sortable], path: &str, conditions: &str, (by, reversed): (&str, bool)) -> Vec<Column> {
    let head = |column: &Sortable| {
        let is_by = by.eq_ignore_ascii_case(column.name);
        let turn = if is_by && !reversed { if column.falls { "&order=asc" } else { "&order=desc" } } else { "" };
        let separator = if conditions.is_empty() { "" } else { "&" };
        let direction = if column.falls == reversed { "ascending" } else { "descending" };
        Column {
            text: column.text,
            class: column.class,
            about: column.about,
            href: format!("{path}?{conditions}{separator}sort={}{turn}", column.name),
            sorted: is_by.then_some(direction),
        }
    };
    columns.iter().map(head).collect()
}

/// Returns whether `order`, `asc` or `desc`, is the opposite of the usual order of what is sorted.
pub(crate) fn is_reversed(order: Option<&str>, falls: bool) -> Result<bool, ApiError> {
    match order.map(str::to_ascii_lowercase).as_deref() {
        None | Some("") => Ok(false),
        Some("asc") => Ok(falls),
        Some("desc") => Ok(!falls),
        Some(_) => Err(ApiError::bad("order must be asc or desc")),
    }
}

/// Returns the part of a query string that keeps this order, for links to other pages of the list.
pub(super) fn conditions(columns: &[Sortable], by: &str, reversed: bool) -> String {
    let falls = columns.iter().any(|column| column.name == by && column.falls);
    let order = if falls { "asc" } else { "desc" };
    if reversed { format!("sort={by}&order={order}") } else { format!("sort={by}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Sortable; 2] = [Sortable::rising("name", "Name", ""), Sortable::falling("size", "Size", "n")];

    #[test]
    fn a_head_sorts_by_its_column_and_then_turns_the_order_around() {
        let shown = |by, reversed| {
            heads(&COLUMNS, "list", "q=a", (by, reversed))
                .into_iter()
                .map(|column| (column.href, column.sorted))
                .collect::<Vec<_>>()
        };
        let name = |order: &str| format!("list?q=a&sort=name{order}");
        let size = |order: &str| format!("list?q=a&sort=size{order}");
        assert_eq!(shown("name", false), [(name("&order=desc"), Some("ascending")), (size(""), None)]);
        assert_eq!(shown("name", true), [(name(""), Some("descending")), (size(""), None)]);
        assert_eq!(shown("size", false), [(name(""), None), (size("&order=asc"), Some("descending"))]);
        assert_eq!(shown("size", true), [(name(""), None), (size(""), Some("ascending"))]);
        assert_eq!(heads(&COLUMNS, "list", "", ("", false))[0].href, "list?sort=name");
    }

    #[test]
    fn an_order_is_the_usual_one_or_its_opposite() {
        for (order, falls, reversed) in
            [(None, true, false), (Some("asc"), true, true), (Some("DESC"), true, false), (Some("desc"), false, true)]
        {
            assert_eq!(is_reversed(order, falls).unwrap(), reversed);
        }
        assert!(is_reversed(Some("up"), false).is_err());
        assert_eq!(conditions(&COLUMNS, "size", true), "sort=size&order=asc");
        assert_eq!(conditions(&COLUMNS, "name", false), "sort=name");
    }
}
