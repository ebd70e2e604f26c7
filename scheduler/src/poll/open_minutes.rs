//! Keeps hot minutes empty of polls that no decision placed: after a pause, a restart or downtime feeds are overdue, and
//! behind a busy host they wait for any length of time. In a hot minute they wait for the next open ones.
//!
//! A person is not kept waiting, nor is category A: refreshes, pings and requeues (wakes), and feeds that a person added, until
//! they were read once. The store does not learn of the delay.

use common::config::PolicyConfig;
use common::policy::{Category, next_open};
use common::time::Timestamp;
use common::url::FeedId;

use crate::error::BackendError;
use crate::poll::subject::{band, rank};
use crate::schedule::{Claim, Parking, Schedule, ScheduleError, Slot};
use store::JobRow;

/// What a dispatcher claimed and may poll.
type Due = Vec<(JobRow, Claim)>;

/// Takes the feeds out of `due` that wait for an open minute, and puts them back into the schedule; those of a busy host wait
/// there, in their order.
pub(crate) async fn waiting(
    schedule: &dyn Schedule,
    policy: &PolicyConfig,
    due: Due,
    now: Timestamp,
) -> Result<Due, BackendError> {
    if !policy.hot_minutes || next_open(now, 0.0).is_none() {
        return Ok(due);
    }
    let imports_at_once = policy.import_spread.is_zero();
    let (at_once, later): (Due, Due) = due.into_iter().partition(|(row, _)| is_exempt(row, imports_at_once, now));
    let (mut slots, mut parkings) = (Vec::new(), Vec::new());
    for (row, claim) in later {
        let Some(open) = next_open(now, place(row.id)) else { continue };
        match claim.parked_at {
            // The first open moment: its host's pace spreads them.
            Some(host) => parkings.push(Parking {
                feed: row.id,
                host,
                until: next_open(now, 0.0).unwrap_or(open),
                band: band(&row),
                rank: rank(&row),
            }),
            None => slots.push(Slot { feed: row.id, due_at: open, band: band(&row) }),
        }
    }
    schedule.put(&slots, now).await.or_else(ScheduleError::unless_part_away)?;
    schedule.park(&parkings).await.or_else(ScheduleError::unless_part_away)?;
    Ok(at_once)
}

/// Returns a feed's place among those that wait, from 0 to 1: multiples of the golden ratio fill the open minutes evenly, and
/// a simulation is the same each time.
fn place(feed: FeedId) -> f64 {
    const GOLDEN_RATIO: f64 = 0.618_033_988_749_894_9;
    (feed.0 as f64 * GOLDEN_RATIO).rem_euclid(1.0)
}

fn is_exempt(row: &JobRow, imports_at_once: bool, now: Timestamp) -> bool {
    let was_read = row.content_hash.is_some() || !row.validators.is_empty();
    let is_wanted = row.wake_at.is_some_and(|wake| wake <= now) || (row.by_hand || imports_at_once) && !was_read;
    row.category == Category::A || is_wanted
}
