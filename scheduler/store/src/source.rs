//! What lists of feeds are read from, the same for both databases.

use std::future::Future;

use super::counts::Counts;
use super::row::FeedRow;
use super::statement::Statement;
use super::texts::Trigrams;
use super::{FeedQuery, StoreError};

/// The maximum number of feeds that one call looks at and sorts: each may be on a separate page of the database.
pub(super) const MOST: u32 = FeedQuery::MOST_SORTED;

/// What differs between the databases' statements.
#[derive(Clone, Copy)]
pub(super) struct Dialect {
    /// The columns of a [`FeedRow`].
    pub(super) columns: &'static str,
    /// What stands before and after a pattern that texts of any case may match.
    pub(super) like: [&'static str; 2],
    /// The pattern of what contains a text.
    pub(super) containing: fn(&str) -> String,
    /// The numbers in a list that is parameter `$`, as `id IN`, `id = ANY` requires them.
    pub(super) among: [&'static str; 2],
    /// Statements name their index (SQLite). Otherwise (PostgreSQL) indexes are in the order of -id and -subscribers, so that no
    /// other one will do.
    pub(super) names_indexes: bool,
    /// The time of a feed's last poll in milliseconds; zero before the first one.
    pub(super) last_polled: &'static str,
    /// Places that a search may look at in the index of texts: some milliseconds.
    pub(super) most_places: u64,
}

/// A database that lists are read from, in one view of it.
pub(super) trait Source: Send {
    /// Returns its SQL dialect.
    fn dialect(&self) -> Dialect;

    /// Feeds.
    fn rows(&mut self, statement: Statement) -> impl Future<Output = Result<Vec<FeedRow>, StoreError>> + Send;

    /// One position: value and number.
    fn position(&mut self, statement: Statement)
    -> impl Future<Output = Result<Option<(i64, i64)>, StoreError>> + Send;

    /// The counters but for those of hosts.
    fn counts(&mut self) -> impl Future<Output = Result<Counts, StoreError>> + Send;

    /// Feeds of one host.
    fn of_host(&mut self, host: &str) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Returns what to search the index of texts for; `None` when it has nothing of the text.
    fn trigrams(&self, text: &str) -> Option<Trigrams>;

    /// URLs and titles of feeds from a number on.
    fn texts(&mut self, from: u64, feeds: u32) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// Numbers of feeds.
    fn numbers(&mut self, statement: Statement) -> impl Future<Output = Result<Vec<i64>, StoreError>> + Send;

    /// Numbers of feeds by the index of texts, at most [`MOST`] and one: all whose URL or title has this text, and perhaps
    /// some others.
    fn with_text(
        &mut self,
        text: &str,
        trigrams: &Trigrams,
    ) -> impl Future<Output = Result<Vec<i64>, StoreError>> + Send;
}
