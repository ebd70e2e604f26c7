//! Which feeds to list, and in which order.

use common::host::HostKey;
use common::outcome::FailureKind;
use common::policy::{Category, Status};

common::named! {
    /// How a list of feeds is ordered.
    #[derive(Default)]
    FeedSort {
        /// By number.
        #[default]
        Id = "id",
        /// Most subscribers first.
        Subscribers = "subscribers",
        /// Next due first, by the earlier of due time and wake; behind them those that are never due, by status.
        NextDue = "next_due",
        /// By category, and by number within one.
        Category = "category",
        /// Those that were polled the longest time ago first. Among more than [`FeedQuery::MOST_SORTED`] feeds: by the day of the
        /// last poll, and by number within a day.
        LastPolled = "last_polled",
    }
}

/// Which feeds to list. A call looks at a bounded number of feeds: a page may have fewer than `limit`, or none, and yet a next
/// one.
#[derive(Clone, Debug, Default)]
pub struct FeedQuery {
    /// Part of the title or the URL, case-insensitive.
    pub text: Option<String>,
    /// On one of these hosts; none: on any.
    pub hosts: Vec<HostKey>,
    /// In this category.
    pub category: Option<Category>,
    /// With this status.
    pub status: Option<Status>,
    /// Failing in this way at the last poll; with `penalised`, in the penalty box because of this failure. The last poll of
    /// such a feed may have been throttled instead.
    pub failure: Option<FailureKind>,
    /// Failing in any way at the last poll.
    pub failing: bool,
    /// In the penalty box.
    pub penalised: bool,
    /// With this label.
    pub label: Option<String>,
    /// With this id of the caller's own.
    pub external_id: Option<String>,
    /// With one of these labels: all that the caller may see. Empty: all feeds.
    pub visible: Vec<String>,
    /// In this order.
    pub sort: FeedSort,
    /// In the opposite of that order.
    pub reversed: bool,
    /// After this cursor of an earlier page.
    pub after: Option<String>,
    /// The maximum number to return.
    pub limit: u32,
}

impl FeedQuery {
    /// Returns whether every feed is in the list.
    pub(crate) fn has_no_filter(&self) -> bool {
        let texts = [&self.text, &self.label, &self.external_id].into_iter().all(Option::is_none);
        let classes = self.category.is_none() && self.status.is_none() && self.failure.is_none();
        let flags = self.failing || self.penalised;
        texts && classes && !flags && self.hosts.is_empty() && self.visible.is_empty()
    }

    /// Feeds that are put in order at once, at most.
    pub const MOST_SORTED: u32 = 2_000;
}

/// A part of a list.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<String>,
}
