//! Lists waiting feeds in order. No such order is maintained: each call scans everything, a few milliseconds for a
//! million feeds.

use std::collections::BinaryHeap;

use common::time::Timestamp;
use common::url::FeedId;

use super::heap::Heap;
use super::places::Standing;
use super::{HEAD, State};

impl State {
    /// Returns the first feeds that wait after a position, in order.
    pub(super) fn waiting(&self, after: Option<(Timestamp, FeedId)>, limit: usize) -> Vec<(Timestamp, FeedId)> {
        // Clamped to the window, like the times that it is compared with.
        let after = after.map(|(at, feed)| (self.window.key(at), feed));
        let mut first: BinaryHeap<(u32, FeedId)> = BinaryHeap::with_capacity(limit + 1);
        for entry in self.bands.iter().flat_map(Heap::iter) {
            let too_late = || first.len() >= limit && first.peek().is_some_and(|(key, _)| entry.key > *key);
            if entry.item & HEAD != 0 || after.is_some_and(|(key, _)| entry.key < key) || too_late() {
                continue;
            }
            let waits = self.places.get(entry.item).is_some_and(|place| place.standing == Standing::Waiting);
            let place = (entry.key, self.places.feed(entry.item));
            if waits && after.is_none_or(|after| place > after) {
                first.push(place);
                if first.len() > limit {
                    first.pop();
                }
            }
        }
        first.into_sorted_vec().into_iter().map(|(key, feed)| (self.window.time(key), feed)).collect()
    }

    /// Returns some of the feeds that are claimed or parked.
    pub(super) fn taken(&self, limit: usize) -> Vec<FeedId> {
        let all = (self.leased + self.hosts.parked()).min(limit);
        let taken = self.places.iter().filter(|(_, place)| place.standing != Standing::Waiting);
        // There are no more than `all`, so the rest of the table need not be scanned.
        taken.take(all).map(|(feed, _)| feed).collect()
    }
}
