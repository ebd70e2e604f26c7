//! Lists waiting feeds in order. No such order is maintained: each call scans everything, a few milliseconds for a
//! million feeds.

use std::collections::BinaryHeap;

use common::time::Timestamp;
use common::url::FeedId;

use super::heap::Heap;
use super::places::{HEAD, Places, Standing};
use super::window::Window;

/// When a feed is due, and which one.
type Due = (Timestamp, FeedId);

/// Returns the first feeds that wait after a position, in order; or in reverse the last ones before it, the last one first.
pub(super) fn waiting(
    (bands, window, places): (&[Heap<u32>], Window, &Places),
    from: Option<Due>,
    limit: usize,
    reversed: bool,
) -> Vec<Due> {
    // The complement of a place turns the order around, and back.
    let ranked = |(key, FeedId(feed)): (u32, FeedId)| match reversed {
        true => (!key, FeedId(!feed)),
        false => (key, FeedId(feed)),
    };
    // Clamped to the window, like the times that it is compared with.
    let from = from.map(|(at, feed)| ranked((window.key(at), feed)));
    let mut first: BinaryHeap<(u32, FeedId)> = BinaryHeap::with_capacity(limit + 1);
    for entry in bands.iter().flat_map(Heap::iter) {
        let key = if reversed { !entry.key } else { entry.key };
        let too_late = || first.len() >= limit && first.peek().is_some_and(|(last, _)| key > *last);
        if entry.item & HEAD != 0 || from.is_some_and(|(first, _)| key < first) || too_late() {
            continue;
        }
        let waits = places.get(entry.item).is_some_and(|place| place.standing == Standing::Waiting);
        let place = ranked((entry.key, places.feed(entry.item)));
        if waits && from.is_none_or(|from| place > from) {
            first.push(place);
            if first.len() > limit {
                first.pop();
            }
        }
    }
    let first = first.into_sorted_vec().into_iter().map(ranked);
    first.map(|(key, feed)| (window.time(key), feed)).collect()
}

/// Returns up to `limit` of the feeds that are claimed or parked; in all there are `count` of them.
pub(super) fn taken(places: &Places, count: usize, limit: usize) -> Vec<FeedId> {
    let taken = places.iter().filter(|(_, place)| place.standing != Standing::Waiting);
    // The rest of the table need not be scanned after the last of them.
    taken.take(count.min(limit)).map(|(feed, _)| feed).collect()
}
