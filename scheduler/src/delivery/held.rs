//! A subscription in memory: whether it waits for events, and which ones wake it.

use std::sync::Arc;

use common::time::Timestamp;
use tokio_util::sync::DropGuard;
use url::Url;

use super::recent::{RecentEvent, RecentPage};
use super::targets::Target;
use store::{Advance, EventFilter, Subscription};

/// A subscription.
pub(super) struct Held {
    pub(super) subscription: Subscription,
    pub(super) filter: EventFilter,
    pub(super) url: Url,
    pub(super) target: Arc<Target>,
    /// A request is in flight, or waits for its slots. It is cancelled when this is dropped.
    pub(super) running: Option<DropGuard>,
    pub(super) is_slow: bool,
    /// When the subscriber's next question is due, at the hub.
    pub(super) question: Option<Timestamp>,
    /// When the next attempt begins; `None`: with an event.
    pub(super) due: Option<Timestamp>,
    /// The last attempt found nothing more to send, and no request is to be retried. Only then do events move the cursor: it must
    /// not pass those that are pending or were not looked at.
    pub(super) is_caught_up: bool,
    /// Nothing is to be sent up to this number, except for the events that are gathered.
    pub(super) looked: i64,
    /// The number of events that wait for others to share their request.
    pub(super) gathered: Option<u32>,
    /// The cursor in the store.
    pub(super) stored: i64,
}

impl Held {
    /// It has nothing to send until an event matches, but perhaps a question.
    pub(super) fn waits(&self) -> bool {
        self.running.is_none() && self.is_caught_up
    }

    /// Returns the earlier one of this time and that of the question.
    pub(super) fn or_question(&self, due: Option<Timestamp>) -> Option<Timestamp> {
        due.into_iter().chain(self.question).min()
    }

    /// The same, or it gathers events until it has enough of them.
    pub(super) fn waits_for_events(&self) -> bool {
        self.waits() || self.running.is_none() && self.gathered.is_some()
    }

    /// Looks at events that come after what it looked at; true if there is something to send.
    pub(super) fn is_woken(&mut self, page: &RecentPage) -> bool {
        let mut matching = page.matching(self.looked, &self.filter);
        if let Some(gathered) = &mut self.gathered {
            *gathered = gathered.saturating_add(u32::try_from(matching.count()).unwrap_or(u32::MAX));
            self.looked = self.looked.max(page.next);
            return *gathered >= self.subscription.wish.batch;
        }
        let first = matching.next().map(RecentEvent::seq);
        self.looked = self.looked.max(first.map_or(page.next, |seq| seq - 1));
        self.subscription.progress.cursor = self.looked;
        first.is_some()
    }

    /// Returns how far it looked without anything to send, in this epoch, unless that is stored.
    pub(super) fn moved(&self, epoch: &Arc<str>) -> Option<Advance> {
        let progress = &self.subscription.progress;
        let moved = self.waits() && progress.cursor != self.stored;
        moved.then(|| Advance {
            epoch: Arc::clone(epoch),
            id: self.subscription.id,
            revision: self.subscription.revision,
            from: (self.stored, progress.pending),
            progress: progress.clone(),
            disable: None,
        })
    }
}
