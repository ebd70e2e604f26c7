//! Feeds that are no longer polled leave the schedule.

use common::host::HostRules;
use common::time::Timestamp;
use common::url::FeedId;

use crate::error::BackendError;
use crate::poll::subject::slot;
use crate::schedule::{Schedule, ScheduleError, Slot};
use store::Polls;

/// Takes feeds out of the schedule that are not to be polled, except those that were pinged meanwhile: while a feed is
/// claimed, the schedule remembers a ping in the place that is removed here.
pub(crate) async fn retire<Store: Polls + ?Sized>(
    store: &Store,
    schedule: &dyn Schedule,
    rules: &HostRules,
    feeds: &[FeedId],
    now: Timestamp,
) -> Result<(), BackendError> {
    if feeds.is_empty() {
        return Ok(());
    }
    schedule.remove(feeds).await.or_else(ScheduleError::unless_part_away)?;
    lower_to_wanted(store, schedule, rules, feeds, now).await
}

/// Has the schedule show these feeds as early as the store wants them: a person may have wanted one polled between the reading of what the
/// schedule was given and its call.
pub(crate) async fn lower_to_wanted<Store: Polls + ?Sized>(
    store: &Store,
    schedule: &dyn Schedule,
    rules: &HostRules,
    feeds: &[FeedId],
    now: Timestamp,
) -> Result<(), BackendError> {
    let wanted = store.states_for(feeds).await?;
    let slots: Vec<Slot> = wanted.iter().filter_map(|feed| Some(slot(rules, feed, feed.due()?))).collect();
    Ok(schedule.lower(&slots, now).await.or_else(ScheduleError::unless_part_away)?)
}
