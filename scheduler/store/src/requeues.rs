//! Requeues: wishes that many feeds be polled now, handed out at a rate.
//!
//! A requeue is a row. It goes over the feeds by number, and each step wakes some of them and moves the row's cursor in one
//! transaction: whichever process takes the next step, and however the last one ended, no feed is woken twice by it and none is left
//! out. Steps of several processes exclude each other; none of them owns the requeue.

use common::host::HostKey;
use common::named;
use common::outcome::FailureKind;
use common::policy::{Category, Status};
use common::time::Timestamp;
use common::url::FeedId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlx_macros::FromRow;

use super::columns::{read_category, read_status};
use super::{Placement, StoreError};

/// Which feeds are meant: those that all parts fit; an empty filter fits all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct RequeueFilter {
    /// This one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed: Option<FeedId>,
    /// One of these; none: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub feeds: Vec<FeedId>,
    /// On one of these hosts; none: on any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub hosts: Vec<HostKey>,
    /// In this category.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    /// With this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Failing in this way at the last poll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureKind>,
    /// Their servers sent one of these HTTP statuses at the last poll; none: any, or none at all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub http_statuses: Vec<u16>,
    /// Live, and due before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_before: Option<Timestamp>,
}

impl RequeueFilter {
    /// The maximum length of [`RequeueFilter::feeds`].
    pub const MOST_FEEDS: usize = 1_000;
    /// The number of no feed.
    const NOBODY: FeedId = FeedId(-1);

    /// Returns its JSON. A program that does not know lists of feeds takes one as matching no feed, not as matching
    /// all.
    pub(super) fn packed(&self) -> String {
        let feed = if self.feeds.is_empty() { self.feed } else { Some(Self::NOBODY) };
        serde_json::to_string(&RequeueFilter { feed, ..self.clone() }).unwrap_or_default()
    }

    fn read(text: &str) -> Self {
        let read = serde_json::from_str(text).unwrap_or_else(|_| RequeueFilter {
            // Of a newer version: nothing is woken that was not meant.
            feed: Some(Self::NOBODY),
            ..RequeueFilter::default()
        });
        let feed = read.feed.filter(|_| read.feeds.is_empty());
        RequeueFilter { feed, ..read }
    }
}

/// A requeue that is to begin.
#[derive(Clone, Debug)]
pub struct NewRequeue {
    /// Which feeds.
    pub filter: RequeueFilter,
    /// Feeds a second, more than zero.
    pub rate: f64,
    /// Feeds in the penalty box too, and those that are blacklisted or quarantined.
    pub lift_penalties: bool,
    /// The caller.
    pub by: String,
    /// Feeds that fitted the filter when the requeue was requested.
    pub matched: u64,
    /// Of these, the ones that can be polled.
    pub queued: u64,
}

named! {
    /// The state of a requeue.
    RequeueState {
        /// Feeds are being woken.
        Running = "running",
        /// All of them were.
        Done = "done",
        /// It was cancelled; the feeds that it woke are polled.
        Cancelled = "cancelled",
    }
}

impl RequeueState {
    fn read(text: &str) -> Self {
        RequeueState::from_name(text).unwrap_or(RequeueState::Cancelled)
    }
}

/// A requeue and how far it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Requeue {
    /// Its number.
    pub id: i64,
    /// Its state.
    pub state: RequeueState,
    /// Which feeds.
    pub filter: RequeueFilter,
    /// Feeds per second.
    pub rate: f64,
    /// Feeds in the penalty box too, and those that are blacklisted or quarantined.
    pub lift_penalties: bool,
    /// The name of the token that started it, or loopback.
    pub by: String,
    /// When.
    pub created: Timestamp,
    /// When it was done or cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// Feeds that matched the filter at its start.
    pub matched: u64,
    /// The matching feeds that could be polled at its start.
    pub queued: u64,
    /// Feeds woken so far; more than queued if more match meanwhile.
    pub woken: u64,
}

/// What a requeue would do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequeuePlan {
    /// Feeds that fit the filter, by category, status, and whether they are in the penalty box.
    pub classes: Vec<(Category, Status, bool, u64)>,
    /// Hosts of those that would be polled.
    pub hosts: u64,
    /// The hosts with most of them, and how many.
    pub largest: Vec<(HostKey, u64)>,
}

/// What a step did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequeueStep {
    /// Feeds that were woken, with their places.
    pub woken: Vec<Placement>,
    /// Another step may be taken at once.
    pub again: bool,
    /// That was the last one.
    pub done: bool,
}

/// Requeues that run at once, at most.
pub const MOST_REQUEUES: i64 = 20;
/// Ended ones that are kept.
pub(super) const KEPT: i64 = 100;
/// Hosts that a plan names.
pub(super) const LARGEST: i64 = 100;
/// The maximum number of feeds that one step wakes: other writers must not wait long.
const MOST_WOKEN: i64 = 500;
/// Numbers of feeds that one step looks at, at most.
const WINDOW: i64 = 20_000;
/// What was not used is made up for within this time, in milliseconds, and is lost after it: no burst after a standstill.
const CATCH_UP: f64 = 1000.0;
/// The clocks of two processes that take steps differ by less than this, in milliseconds.
const CLOCKS_DIFFER: f64 = 5000.0;

/// A requeue as both databases hold it.
#[derive(Debug, FromRow)]
pub(super) struct RequeueRow {
    id: i64,
    state: String,
    filter: String,
    rate: f64,
    pub(super) lift_penalties: bool,
    by_whom: String,
    created: i64,
    ended: Option<i64>,
    matched: i64,
    queued: i64,
    woken: i64,
    last_feed: i64,
    next_after: i64,
    spent_until: f64,
}

/// The columns of a [`RequeueRow`].
macro_rules! requeue_columns {
    () => {
        "id, state, filter, rate, lift_penalties, by_whom, created, ended, matched, queued, woken, last_feed, next_after, spent_until"
    };
}
pub(super) use requeue_columns;

/// What a step may do: wake at most `most` feeds with numbers above `after`, up to `until`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StepLimits {
    pub(super) most: i64,
    pub(super) after: i64,
    pub(super) until: i64,
    /// The rate allows more than one step may wake.
    is_full: bool,
    /// The rate is used up until then, in milliseconds.
    spent_until: f64,
}

/// The state of a requeue after a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StepResult {
    pub(super) next_after: i64,
    pub(super) spent_until: f64,
    pub(super) done: bool,
    pub(super) again: bool,
}

impl RequeueRow {
    /// Returns the filter of its feeds.
    pub(super) fn filter(&self) -> RequeueFilter {
        RequeueFilter::read(&self.filter)
    }

    /// Returns what may be done at `now`; `None`: nothing yet.
    #[expect(clippy::cast_possible_truncation, reason = "whole feeds, of which a few thousand are allowed at most")]
    pub(super) fn limits(&self, now: Timestamp) -> Option<StepLimits> {
        let (now, between) = (now.millis() as f64, 1000.0 / self.rate);
        // A clock that was ahead when it took a step, and was corrected, stops nothing.
        let spent_until = if self.spent_until > now + CLOCKS_DIFFER { now - between } else { self.spent_until };
        let spent_until = spent_until.max(now - between - CATCH_UP);
        let allowed = ((now - spent_until) / between) as i64;
        let until = self.next_after.saturating_add(WINDOW).min(self.last_feed);
        let most = allowed.min(MOST_WOKEN);
        (most > 0).then_some(StepLimits { most, after: self.next_after, until, is_full: allowed > most, spent_until })
    }

    /// Returns its state after a step within these limits that woke these feeds, in order.
    pub(super) fn after_step(&self, limits: StepLimits, woken: &[i64]) -> StepResult {
        let count = woken.len() as f64;
        let is_full = woken.len() as i64 >= limits.most;
        let next_after = woken.last().copied().filter(|_| is_full).unwrap_or(limits.until);
        let done = next_after >= self.last_feed;
        StepResult {
            next_after,
            spent_until: limits.spent_until + count * 1000.0 / self.rate,
            done,
            again: !done && (!is_full || limits.is_full),
        }
    }
}

impl From<RequeueRow> for Requeue {
    fn from(row: RequeueRow) -> Self {
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        Requeue {
            id: row.id,
            state: RequeueState::read(&row.state),
            filter: row.filter(),
            rate: row.rate,
            lift_penalties: row.lift_penalties,
            by: row.by_whom,
            created: Timestamp::from_millis(row.created),
            ended: row.ended.map(Timestamp::from_millis),
            matched: count(row.matched),
            queued: count(row.queued),
            woken: count(row.woken),
        }
    }
}

impl RequeuePlan {
    /// Returns what the rows of the two counts say.
    pub(super) fn read(
        classes: Vec<(String, String, bool, i64)>,
        hosts: Vec<(String, i64, i64)>,
    ) -> Result<Self, StoreError> {
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        // No feed in particular: a name that cannot be read would be in every row of the group.
        let class = |(category, status, penalised, number): (String, String, bool, i64)| {
            Ok((read_category(FeedId(0), &category)?, read_status(FeedId(0), &status)?, penalised, count(number)))
        };
        Ok(RequeuePlan {
            classes: classes.into_iter().map(class).collect::<Result<_, StoreError>>()?,
            hosts: hosts.first().map_or(0, |(_, _, all)| count(*all)),
            largest: hosts.into_iter().map(|(host, number, _)| (HostKey::new(&host), count(number))).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(rate: f64, next_after: i64, last_feed: i64, spent_until: f64) -> RequeueRow {
        RequeueRow {
            id: 1,
            state: "running".into(),
            filter: "{}".into(),
            rate,
            lift_penalties: false,
            by_whom: "somebody".into(),
            created: 0,
            ended: None,
            matched: 0,
            queued: 0,
            woken: 0,
            last_feed,
            next_after,
            spent_until,
        }
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn the_rate_is_kept_to_the_feed_however_unevenly_steps_come() {
        for rate in [0.3, 7.0, 50.0, 333.0, 5000.0] {
            let mut row = row(rate, 0, i64::MAX / 2, 0.0);
            let (mut woken, mut now) = (0, 0);
            while now < 600_000 {
                now += 1 + (now * 7919) % 400;
                while let Some(limits) = row.limits(at(now)) {
                    let ids: Vec<i64> = (limits.after + 1..=limits.after + limits.most).collect();
                    let after_step = row.after_step(limits, &ids);
                    woken += limits.most;
                    (row.next_after, row.spent_until) = (after_step.next_after, after_step.spent_until);
                    assert!(!after_step.done);
                    if !after_step.again {
                        break;
                    }
                }
                let fair = rate * now as f64 / 1000.0;
                assert!(
                    (woken as f64) <= fair + 1e-6 && (woken as f64) > fair - 1.0 - 1e-6,
                    "{woken} of {fair} at {now}"
                );
            }
        }
    }

    #[test]
    fn a_list_of_feeds_is_kept_and_means_nobody_to_a_program_that_knows_none() {
        let filter = RequeueFilter { feeds: vec![FeedId(3), FeedId(7)], ..RequeueFilter::default() };
        let packed = filter.packed();
        assert_eq!(RequeueFilter::read(&packed), filter);
        let stored: serde_json::Value = serde_json::from_str(&packed).unwrap();
        assert_eq!(stored["feed"], -1);
        let one = RequeueFilter { feed: Some(FeedId(3)), ..RequeueFilter::default() };
        assert_eq!(RequeueFilter::read(&one.packed()), one);
        assert_eq!(RequeueFilter::read("{").feed, Some(FeedId(-1)));
    }

    #[test]
    fn a_standstill_is_not_made_up_for_by_a_burst() {
        let row = row(50.0, 0, 1_000_000, 0.0);
        assert_eq!(row.limits(at(3_600_000)).unwrap().most, 51);
        assert_eq!(row.limits(at(19)), None);
        assert_eq!(row.limits(at(20)).unwrap().most, 1);
    }

    #[test]
    fn a_clock_that_was_ahead_does_not_stop_it_once_it_is_right() {
        let row = row(50.0, 0, 1_000_000, 86_400_000.0);
        let limits = row.limits(at(3_600_000)).unwrap();
        assert_eq!(limits.most, 1);
        assert_eq!(row.after_step(limits, &[1]).spent_until, 3_600_000.0);
        let other = self::row(50.0, 0, 1_000_000, 3_601_000.0);
        assert_eq!(other.limits(at(3_600_000)), None, "of another process whose clock is a little ahead");
    }

    #[test]
    fn it_is_done_when_the_last_number_was_looked_at_and_not_before() {
        let row = row(50.0, 100, 30_000, 0.0);
        let limits = row.limits(at(1000)).unwrap();
        assert_eq!((limits.most, limits.after, limits.until), (50, 100, 20_100));
        let none = row.after_step(limits, &[]);
        assert_eq!((none.next_after, none.done, none.again), (20_100, false, true), "on to the next window at once");
        let some = row.after_step(limits, &[5000]);
        assert_eq!((some.next_after, some.spent_until, some.again), (20_100, 20.0, true));
        let full = row.after_step(limits, &(101..=150).collect::<Vec<_>>());
        assert_eq!((full.next_after, full.spent_until, full.again), (150, 1000.0, false));
        let row = self::row(50.0, 20_100, 30_000, 0.0);
        let limits = row.limits(at(1000)).unwrap();
        assert!(row.after_step(limits, &[30_000]).done);
        assert!(row.after_step(limits, &[]).done);
    }
}
