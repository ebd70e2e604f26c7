//! Feeds whose host got its own interval (category F) since they were planned: each is planned again when it is
//! claimed, instead of being polled once more at the old pace. The store's category shows which they are, so a feed
//! comes here once.

use common::host::HostRules;
use common::policy::{Category, Policy, category, postponed};
use common::time::Timestamp;
use common::url::FeedId;

use crate::error::BackendError;
use crate::poll::subject::{draw, planned_subject, slot};
use crate::schedule::{Claim, Schedule, ScheduleError, Slot};
use store::{FeedChange, JobRow, Store, StoreError};

/// What a dispatcher claimed and may poll.
type Due = Vec<(JobRow, Claim)>;

/// Takes the feeds out of `due` that the current rules postpone, and plans them again. A feed that a person woke is
/// polled nevertheless.
pub(crate) async fn replanned(
    store: &dyn Store,
    schedule: &dyn Schedule,
    rules: &HostRules,
    policy: &Policy<'_>,
    due: Due,
    now: Timestamp,
) -> Result<Due, BackendError> {
    let outdated = |row: &JobRow| {
        let woken = row.wake_at.is_some_and(|wake| wake <= now);
        let planned = matches!(row.category, Category::A | Category::F) || woken;
        !planned && rules.rule_for(row.url.as_url()).is_some_and(|rule| rule.interval.is_some())
    };
    let ids: Vec<FeedId> = due.iter().filter(|(row, _)| outdated(row)).map(|(row, _)| row.id).collect();
    if ids.is_empty() {
        return Ok(due);
    }
    let mut changes = Vec::new();
    for feed in store.states_for(&ids).await? {
        let subject = planned_subject(rules, &feed, now);
        let Some((due_at, terms)) = postponed(&subject, now, draw(), policy) else { continue };
        let category = category(&subject);
        let change = FeedChange {
            audience: Some((feed.audience, category)),
            next_due: Some((due_at, terms)),
            expects: Some((feed.version, feed.audience)),
            ..FeedChange::default()
        };
        changes.push((feed.id, change));
    }
    let changed = match store.change_feeds(&changes, now).await {
        // A person changed one of them just now. They are polled once more at the old pace.
        Err(StoreError::Outdated) => return Ok(due),
        changed => changed?,
    };
    // A wake that lies ahead comes before the new due time.
    let put_off: Vec<Slot> = changed.iter().filter_map(|feed| Some(slot(rules, feed, feed.due()?))).collect();
    schedule.put(&put_off, now).await.or_else(ScheduleError::unless_part_away)?;
    let (gone, due): (Due, Due) = due.into_iter().partition(|(row, _)| changes.iter().any(|(id, _)| *id == row.id));
    let idle: Vec<_> = gone.into_iter().filter_map(|(_, claim)| Some((claim.parked_at?, now))).collect();
    schedule.unpark(&idle).await.or_else(ScheduleError::unless_part_away)?;
    Ok(due)
}
