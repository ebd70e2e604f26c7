//! How a batch of rows crosses into SQLite: as two parameters, whatever its size.
//!
//! `?1` is a JSON array of arrays, one per row, for `jsonb_each(?1)`. Numbers and short words are in it directly; texts
//! and bytes are one after the other in `?2`, and the row holds their place: position (from 1, as `substr` counts) and
//! length. So nothing long is escaped and parsed, and bytes stay bytes. In SQL: `substr(?2, value ->> 3, value ->> 4)`,
//! for a text `CAST(.. AS TEXT)`; an absent one has the length null, which makes both NULL.

use std::fmt::Write;

use common::url::FeedId;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Executor, Sqlite, SqliteConnection};

use crate::StoreError;

/// Rows for one statement.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch {
    rows: String,
    bytes: Vec<u8>,
    len: usize,
}

impl Batch {
    /// Adds a row; `fill` writes its values in the order in which the SQL counts them, from 0.
    pub(super) fn row(&mut self, fill: impl FnOnce(&mut Row<'_>)) {
        self.rows.push(if self.len == 0 { '[' } else { ',' });
        self.rows.push('[');
        fill(&mut Row { batch: self, filled: false });
        self.rows.push(']');
        self.len += 1;
    }

    /// No rows: the statement need not run.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Rows so far.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of texts so far.
    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the statement with the rows as its parameters 1 and 2; further ones can be bound after them.
    pub(super) fn query(mut self, sql: &'static str) -> Query<'static, Sqlite, SqliteArguments> {
        self.rows.push_str(if self.len == 0 { "[]" } else { "]" });
        // `substr` of an empty blob is NULL, which would make empty texts absent ones.
        self.bytes.push(0);
        sqlx::query(sql).bind(self.rows).bind(self.bytes)
    }

    /// Runs the statement, unless there are no rows.
    pub(super) async fn run(
        self,
        on: &mut SqliteConnection,
        sql: &'static str,
        action: &'static str,
    ) -> Result<(), StoreError> {
        if !self.is_empty() {
            on.execute(self.query(sql)).await.map_err(StoreError::on(action))?;
        }
        Ok(())
    }
}

/// One row's values.
pub(super) struct Row<'a> {
    batch: &'a mut Batch,
    filled: bool,
}

impl Row<'_> {
    fn value(&mut self, value: impl std::fmt::Display) {
        if std::mem::replace(&mut self.filled, true) {
            self.batch.rows.push(',');
        }
        // Writing to a String cannot fail.
        let _ = write!(self.batch.rows, "{value}");
    }

    /// A number: one value.
    pub(super) fn int(&mut self, number: impl Into<Option<i64>>) {
        match number.into() {
            Some(number) => self.value(number),
            None => self.value("null"),
        }
    }

    /// One of our own names, which need no escaping: one value.
    pub(super) fn word(&mut self, word: impl Into<Option<&'static str>>) {
        match word.into() {
            Some(word) => self.value(format_args!("\"{word}\"")),
            None => self.value("null"),
        }
    }

    /// A text or bytes: two values.
    pub(super) fn bytes<'b>(&mut self, bytes: impl Into<Option<&'b [u8]>>) {
        self.value(self.batch.bytes.len() + 1);
        match bytes.into() {
            Some(bytes) => {
                self.batch.bytes.extend_from_slice(bytes);
                self.value(bytes.len());
            }
            None => self.value("null"),
        }
    }

    /// A text: two values.
    pub(super) fn text<'b>(&mut self, text: impl Into<Option<&'b str>>) {
        self.bytes(text.into().map(str::as_bytes));
    }
}

/// Numbers of feeds as a JSON list, for `json_each`.
pub(super) fn id_list(ids: impl IntoIterator<Item = FeedId>) -> String {
    let mut list = String::from("[");
    for id in ids {
        if list.len() > 1 {
            list.push(',');
        }
        let _ = write!(list, "{id}");
    }
    list.push(']');
    list
}
