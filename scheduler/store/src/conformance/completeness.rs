//! Which feeds may miss entries, and which are silent.

use common::policy::{Notice, Notices};

use super::{Backend, add, apply, at, feed, modified, poll, unchanged, verdict};
use crate::Store;

/// Incomplete and silent feeds, and the share of complete ones in percent.
async fn counted(store: &dyn Store) -> (u64, u64, u64) {
    let stats = store.stats(at(0)).await.unwrap();
    let share = format!("{:.0}", 100.0 * stats.complete_ratio());
    (stats.incomplete, stats.silent, share.parse().unwrap())
}

pub(crate) async fn feeds_that_may_miss_entries_and_silent_ones_are_counted(backend: &dyn Backend) {
    let store = backend.open().await;
    assert_eq!(counted(&*store).await, (0, 0, 100));
    let ids = [add(&*store, "https://a.org/1").await, add(&*store, "https://a.org/2").await];
    assert_eq!(counted(&*store).await, (2, 0, 0), "neither was read");
    for id in ids {
        let mut read = verdict(&*store, id, 10, unchanged()).await;
        read.decision.state.last_success = Some(at(10));
        apply(&*store, &[read], 10).await;
    }
    assert_eq!(counted(&*store).await, (0, 0, 100));
    let mut overflowed = verdict(&*store, ids[0], 20, modified(vec![])).await;
    overflowed.decision.state.gap_since = Some(at(10));
    overflowed.decision.state.silent_since = Some(at(9));
    apply(&*store, &[overflowed], 20).await;
    assert_eq!(counted(&*store).await, (1, 1, 50));
    poll(&*store, ids[0], 30, unchanged()).await;
    let state = feed(&*store, ids[0]).await.state;
    assert_eq!((state.gap_since, state.silent_since), (Some(at(10)), Some(at(9))), "they stay");
    store.erase_feed(ids[0], at(40)).await.unwrap();
    assert_eq!(counted(&*store).await, (0, 0, 100));
}

pub(crate) async fn an_overflow_and_a_silence_are_published_with_their_time(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/1").await;
    let mut verdict = verdict(&*store, id, 20, unchanged()).await;
    (verdict.decision.state.gap_since, verdict.decision.state.silent_since) = (Some(at(10)), Some(at(9)));
    verdict.decision.notices = Notices::of(Some(Notice::Overflowed), Some(Notice::Silent));
    apply(&*store, &[verdict], 20).await;
    let events = store.events(0, 10).await.unwrap().items;
    let seen: Vec<_> = events.iter().map(|event| (event.kind.as_str(), event.since)).collect();
    assert_eq!(seen, [("feed.added", None), ("feed.overflowed", Some(at(10))), ("feed.silent", Some(at(9)))]);
}
