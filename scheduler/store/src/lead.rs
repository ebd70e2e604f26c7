//! The filters of lists of feeds for which there are indexes.

use common::host::HostKey;
use common::outcome::FailureKind;
use common::policy::{Category, Status};

use super::source::Dialect;
use super::statement::Statement;
use super::{FeedQuery, FeedSort};

/// A filter that an index has the feeds of.
#[derive(Clone, Copy)]
pub(super) enum Lead {
    All,
    Host,
    Category,
    /// Any status but active.
    Status,
    Failure,
    /// Any failure; no index has these in an order of lists.
    Failing,
    /// In the penalty box because of one kind of failure.
    Penalty,
    /// In the penalty box for any; no index has these in an order of lists.
    Penalised,
}

impl Lead {
    /// Returns the index that has its feeds, in any order.
    pub(super) fn any_index(self) -> &'static str {
        match self {
            Lead::Failing => "feeds_by_failure",
            Lead::Penalised => "feeds_by_penalty",
            lead => lead.index(FeedSort::Id).unwrap_or_default(),
        }
    }

    /// Returns the index that has its feeds in this order.
    pub(super) fn index(self, sort: FeedSort) -> Option<&'static str> {
        match (self, sort) {
            // The table itself.
            (Lead::All, FeedSort::Id) => Some(""),
            (Lead::All, FeedSort::Subscribers) => Some("feeds_by_readers"),
            (Lead::Host, FeedSort::Id) => Some("feeds_by_host"),
            (Lead::Category, FeedSort::Id) => Some("feeds_by_category"),
            (Lead::Category, FeedSort::Subscribers) => Some("feeds_by_category_readers"),
            (Lead::Status, FeedSort::Id) => Some("feeds_by_status"),
            (Lead::Status, FeedSort::Subscribers) => Some("feeds_by_status_readers"),
            (Lead::Failure, FeedSort::Id) => Some("feeds_by_failure"),
            (Lead::Failure, FeedSort::Subscribers) => Some("feeds_by_failure_readers"),
            (Lead::Penalty, FeedSort::Id) => Some("feeds_by_penalty"),
            (Lead::All, FeedSort::LastPolled) => Some("feeds_by_last_poll"),
            (Lead::Host | Lead::Penalty, FeedSort::Subscribers)
            | (Lead::Failing | Lead::Penalised, _)
            | (_, FeedSort::NextDue | FeedSort::Category | FeedSort::LastPolled) => None,
        }
    }

    /// Adds the condition that its feeds meet, after `WHERE`.
    pub(super) fn condition(self, query: &FeedQuery, sql: &mut Statement) {
        match self {
            Lead::All => sql.push("true"),
            Lead::Host => sql.push("host = ").text(query.host.as_ref().map_or("", HostKey::as_str)),
            Lead::Category => sql.push("category = ").text(query.category.map_or("", Category::as_str)),
            Lead::Status => sql.push("status <> 'active' AND status = ").text(query.status.map_or("", Status::as_str)),
            Lead::Failing => sql.push("failure IS NOT NULL"),
            Lead::Failure => sql.push("failure = ").text(query.failure.map_or("", FailureKind::as_str)),
            Lead::Penalised => sql.push("penalty IS NOT NULL"),
            Lead::Penalty => sql.push("penalty = ").text(query.failure.map_or("", FailureKind::as_str)),
        };
    }
}

/// Adds the name of the index to follow, where the database takes one.
pub(super) fn name_index(sql: &mut Statement, dialect: Dialect, index: &str) {
    match index {
        _ if !dialect.names_indexes => {}
        "" => {
            sql.push(" NOT INDEXED");
        }
        index => {
            sql.push(" INDEXED BY ").push(index);
        }
    }
}
