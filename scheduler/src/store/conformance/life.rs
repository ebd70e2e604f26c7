//! One feed's life, and what survives the end of a process.

use super::*;

pub(crate) async fn a_feed_is_added_polled_and_read_back(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let before = feed(&*store, id).await;
    assert_eq!((before.version, before.next_due, before.entries), (Version(1), Some(at(0)), 0));
    let jobs = store.jobs_for(&[id]).await.unwrap();
    assert_eq!((jobs[0].version, jobs[0].subscribers, jobs[0].known.len()), (Version(1), 1, 0));

    let polled = verdict(&*store, id, 10, modified(vec![entry("1", "one"), entry("2", "two")])).await;
    let known = match &polled.report.outcome {
        Outcome::Modified(document) => document.known.clone(),
        _ => unreachable!(),
    };
    let applied = apply(&*store, std::slice::from_ref(&polled), 11).await;
    let stored =
        Applied::Stored { due: Some(at(3610)), wake: false, new_entries: 2, updated_entries: 0, host_hold: None };
    assert_eq!(applied, [stored]);

    let after = feed(&*store, id).await;
    assert_eq!((after.version, after.next_due, after.entries), (Version(2), Some(at(3610)), 2));
    assert_eq!(after.title.as_deref(), Some("a title"));
    assert_eq!(after.validators, document(vec![]).validators);
    assert_eq!(after.content_hash, document(vec![]).content_hash);
    assert_eq!(after.state, polled.decision.state);
    assert_eq!(after.terms, polled.decision.terms.to_vec());
    assert_eq!(store.states_for(&[id]).await.unwrap(), [after]);
    assert_eq!(store.jobs_for(&[id]).await.unwrap()[0].known, known);

    let entries = store.entries(None, 0, 10).await.unwrap();
    let titles: Vec<_> = entries.items.iter().map(|item| (item.seq, item.entry.title.as_deref())).collect();
    assert_eq!(titles, [(1, Some("one")), (2, Some("two"))]);
    assert_eq!(store.entries(Some(id), 1, 10).await.unwrap().items.len(), 1);
    let kinds = store.events(0, 10).await.unwrap().items.into_iter().map(|event| event.kind).collect::<Vec<_>>();
    assert_eq!(kinds, ["entry.new", "entry.new"]);
    assert_eq!(store.history(id).await.unwrap().unwrap()[0].reasons, [Rule::Category]);
    let placed = store.placements(FeedId(0), 10).await.unwrap();
    assert_eq!(placed[0].due, at(3610));
    let woken = store.wake(&[id], at(20), at(20)).await.unwrap();
    assert_eq!((woken[0].due, woken[0].wake), (at(20), true));
    let stats = store.stats(at(4000)).await.unwrap();
    assert_eq!(
        (stats.feeds, stats.entries, stats.events, stats.overdue),
        (vec![(Category::D, Status::Active, 1)], 2, 2, 1)
    );
}
