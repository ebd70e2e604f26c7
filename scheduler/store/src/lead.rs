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
    /// On one of several; an index has those of each host by number, but not of all of them together.
    Hosts,
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
            Lead::Hosts => "feeds_by_host",
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
            | (Lead::Hosts | Lead::Failing | Lead::Penalised, _)
            | (_, FeedSort::NextDue | FeedSort::Category | FeedSort::LastPolled) => None,
        }
    }

    /// Adds the condition that its feeds meet, after `WHERE`.
    pub(super) fn condition(self, query: &FeedQuery, sql: &mut Statement) {
        match self {
            Lead::All => sql.push("true"),
            Lead::Host | Lead::Hosts => on_hosts(sql, &query.hosts),
            Lead::Category => sql.push("category = ").text(query.category.map_or("", Category::as_str)),
            Lead::Status => sql.push("status <> 'active' AND status = ").text(query.status.map_or("", Status::as_str)),
            Lead::Failing => sql.push("failure IS NOT NULL"),
            Lead::Failure => sql.push("failure = ").text(query.failure.map_or("", FailureKind::as_str)),
            Lead::Penalised => sql.push("penalty IS NOT NULL"),
            Lead::Penalty => sql.push("penalty = ").text(query.failure.map_or("", FailureKind::as_str)),
        };
    }
}

/// Adds the condition that a feed is on one of these hosts, at least one.
pub(super) fn on_hosts<'a>(sql: &'a mut Statement, hosts: &[HostKey]) -> &'a mut Statement {
    if let [host] = hosts {
        return sql.push("host = ").text(host.as_str());
    }
    for (place, host) in hosts.iter().enumerate() {
        sql.push(if place == 0 { "host IN (" } else { ", " }).text(host.as_str());
    }
    sql.push(")")
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
