//! A stored feed as the policy sees it, and the numbers that are drawn for its decisions: the edge of the pure policy.

use common::calm::CalmGroup;
use common::feed::Feed;
use common::host::HostRules;
use common::policy::{Audience, Draw, Subject, category};
use common::time::Timestamp;
use common::url::FeedUrl;
use rand::RngExt;

use crate::schedule::{Band, Slot};
use store::{JobRow, Placement};

/// Among feeds that wait for the same host, being urgent is worth this much waiting, in milliseconds: a day.
const URGENT_BONUS: i64 = 24 * 60 * 60 * 1000;

/// Returns the policy's view of a feed, its host's rules included, but for its pushes: enough for its category.
pub fn subject<'a>(rules: &'a HostRules, feed: &'a Feed) -> Subject<'a> {
    let new = new_subject(rules, &feed.url, feed.audience, &feed.calm, feed.credentials.is_some());
    Subject { status: feed.status, state: feed.state, ..new }
}

/// Returns the policy's view of a feed whose next poll is to be planned.
pub(crate) fn planned_subject<'a>(rules: &'a HostRules, feed: &'a Feed, now: Timestamp) -> Subject<'a> {
    let pushed = feed.push.as_ref().is_some_and(|push| push.spares_polls(now));
    Subject { pushed, ..subject(rules, feed) }
}

/// The same for a feed that was never polled.
pub(crate) fn new_subject<'a>(
    rules: &'a HostRules,
    url: &FeedUrl,
    audience: Audience,
    calm: &'a [CalmGroup],
    credentials: bool,
) -> Subject<'a> {
    Subject { calm, credentials, ..Subject::new(audience, rules.rule_for(url.as_url())) }
}

/// Fresh random numbers.
pub(crate) fn draw() -> Draw {
    let mut random = rand::rng();
    Draw { salt: random.random(), minute: random.random() }
}

/// Returns a feed's place in the schedule at `due_at`.
pub(crate) fn slot(rules: &HostRules, feed: &Feed, due_at: Timestamp) -> Slot {
    let woken = feed.wake_at.is_some_and(|wake| wake <= due_at);
    Slot { feed: feed.id, due_at, band: Band::of(category(&subject(rules, feed)), woken) }
}

/// Returns a feed's place in the schedule as the store has it.
pub(crate) fn placement_slot(place: &Placement) -> Slot {
    Slot { feed: place.id, due_at: place.due, band: Band::of(place.category, place.wake) }
}

/// Returns the band that a feed waits in until it is due.
pub(crate) fn band(row: &JobRow) -> Band {
    Band::of(row.category, row.wake_at.is_some_and(|wake| wake <= row.next_due))
}

/// Returns a due feed's place among others that wait for the same host, but for what it has as an urgent one.
pub(crate) fn rank(row: &JobRow) -> i64 {
    common::policy::rank(row.due(), f64::from(row.subscribers))
}

/// Returns a due feed's band, also if it was woken after its due time, and its place among others that wait for the same host.
pub(crate) fn standing(row: &JobRow, now: Timestamp) -> (Band, i64) {
    let band = Band::of(row.category, row.wake_at.is_some_and(|wake| wake <= now));
    (band, ranked(rank(row), band))
}

/// Returns the place of a feed with this rank: an urgent one goes first, except before those that have waited for a day longer. So
/// it is the first at its host again each time the host is busy, and the host's other feeds are not starved.
pub(crate) fn ranked(rank: i64, band: Band) -> i64 {
    if band == Band::Urgent { rank.saturating_sub(URGENT_BONUS) } else { rank }
}
