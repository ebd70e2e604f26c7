//! One feed's life, and what survives a restart.

use common::job_keys::JobKey;

use super::*;
use crate::{EventFilter, EventQuery};

pub(crate) async fn a_feed_is_added_polled_and_read_back(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let before = feed(&*store, id).await;
    assert_eq!((before.version, before.next_due, before.entries), (Version(1), Some(at(0)), 0));
    assert_eq!(before.calm, midnight(2));
    let jobs = store.jobs_for(&[id]).await.unwrap();
    assert_eq!((jobs[0].version, jobs[0].subscribers, jobs[0].known.len()), (Version(1), 3, 0));

    let polled = verdict(&*store, id, 10, modified(vec![entry("1", "one"), entry("2", "two")])).await;
    let known = match &polled.report.outcome {
        Outcome::Modified(document) => document.known.clone(),
        _ => unreachable!(),
    };
    let applied = apply(&*store, std::slice::from_ref(&polled), 11).await;
    let stored = Applied::Stored {
        due: Some(at(3610)),
        wake: false,
        new_entries: 2,
        updated_entries: 0,
        host_hold: None,
        over_quota: OverQuota::default(),
    };
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
    assert_eq!(titles, [(2, Some("one")), (3, Some("two"))]);
    let until = [store.last_entry_before(at(11)).await.unwrap(), store.last_entry_before(at(12)).await.unwrap()];
    assert_eq!(until, [0, 3], "stored at 11");
    assert_eq!(store.entries(Some(id), 2, 10).await.unwrap().items.len(), 1);
    let kinds = store.events(0, 10).await.unwrap().items.into_iter().map(|event| event.kind).collect::<Vec<_>>();
    assert_eq!(kinds, ["feed.added", "entry.new", "entry.new"]);
    assert_eq!(store.history(id).await.unwrap().unwrap()[0].reasons, [Rule::Category]);
    let placed = store.placements(FeedId(0), 10).await.unwrap();
    assert_eq!(placed[0].due, at(3610));
    let woken = store.wake(&[id], at(20), at(20)).await.unwrap();
    assert_eq!((woken[0].due, woken[0].wake), (at(20), true));
    let stats = store.stats(at(4000)).await.unwrap();
    assert_eq!((stats.feeds, stats.entries, stats.events), (vec![(Category::D, Status::Active, 1)], 2, 3));
    assert_eq!(store.overdue(at(4000)).await.unwrap(), 1);
}

/// Two batches of two schedulers: the one that began first took its numbers last.
pub(crate) async fn a_time_is_found_among_batches_that_took_their_numbers_in_another_order(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    for (number, seconds) in [1_000, 1_100, 1_050, 1_300, 1_600].into_iter().enumerate() {
        let entries = vec![entry(&number.to_string(), "title")];
        let fetched = verdict(&*store, id, seconds, modified(entries)).await;
        apply(&*store, &[fetched], seconds).await;
    }
    // The feed itself has number 1.
    for (seconds, last) in [(1_000, 0), (1_001, 2), (1_050, 2), (1_051, 4), (1_101, 4), (1_301, 5), (9_000, 6)] {
        assert_eq!(store.last_entry_before(at(seconds)).await.unwrap(), last, "before {seconds}");
    }
    for (seconds, expected) in [(1_050, vec![3, 4, 5, 6]), (1_080, vec![3, 5, 6]), (1_400, vec![6]), (1_601, vec![])] {
        let filter = EventFilter { since: Some(at(seconds)), ..EventFilter::default() };
        for newest in [false, true] {
            let query = EventQuery { filter: filter.clone(), newest, ..EventQuery::after(0, 10) };
            let mut found: Vec<i64> =
                store.find_entries(&query).await.unwrap().items.iter().map(|one| one.seq).collect();
            found.sort_unstable();
            assert_eq!(found, expected, "since {seconds}, newest first: {newest}");
        }
        let first = EventQuery { filter, ..EventQuery::after(1, 1) };
        let first = store.find_events(&first).await.unwrap().items;
        let first: Vec<i64> = first.iter().map(|event| event.seq).collect();
        assert_eq!(
            first,
            expected.into_iter().take(1).collect::<Vec<_>>(),
            "a page of one has the first, since {seconds}"
        );
    }
}

pub(crate) async fn what_was_stored_is_there_after_a_reopening(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let mut fetched = verdict(&*store, id, 10, modified(vec![entry("1", "one")])).await;
    fetched.decision.host_hold = Some(at(500));
    apply(&*store, &[fetched], 11).await;
    store.wake(&[id], at(20), at(20)).await.unwrap();
    store.set_paused(true).await.unwrap();
    let feed_before = feed(&*store, id).await;
    let jobs = store.jobs_for(&[id]).await.unwrap();
    let (events, holds) = (store.events(0, 10).await.unwrap(), store.holds(at(20)).await.unwrap());
    let history = store.history(id).await.unwrap();
    drop(store);

    let store = backend.open().await;
    assert_eq!(feed(&*store, id).await, feed_before);
    assert_eq!(store.jobs_for(&[id]).await.unwrap(), jobs);
    assert_eq!(store.history(id).await.unwrap(), history);
    let again = store.events(0, 10).await.unwrap();
    assert_eq!((again.epoch, again.items), (events.epoch, events.items));
    assert_eq!(store.holds(at(20)).await.unwrap(), holds);
    assert!(store.paused().await.unwrap());
    assert_eq!(new_entries(&poll(&*store, id, 30, modified(vec![entry("1", "one"), entry("2", "two")])).await), (1, 0));
    assert_eq!(store.events(1, 10).await.unwrap().items[0].seq, 2);
}

pub(crate) async fn a_new_epoch_stays_and_takes_nothing_along(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    poll(&*store, id, 10, modified(vec![entry("1", "one")])).await;
    let before = store.events(0, 9).await.unwrap();
    let epochs = async || store.jobs_for(&[id]).await.unwrap()[0].epochs;
    assert_eq!(epochs().await, 0);
    let epoch = store.begin_epoch().await.unwrap();
    assert!(epoch.len() == 16 && epoch != before.epoch, "{epoch}");
    assert_eq!(epochs().await, 1, "jobs say in which epoch their versions were given out");
    drop(store);
    let after = backend.open().await.events(0, 9).await.unwrap();
    assert_eq!((after.epoch, after.items), (epoch, before.items));
}

pub(crate) async fn two_stores_do_not_interfere(backend: &dyn Backend) {
    let other = backend.another();
    let (one, two) = (backend.open().await, other.open().await);
    let id = add(&*one, "https://a.org/feed").await;
    poll(&*one, id, 10, modified(vec![entry("1", "one")])).await;
    one.set_paused(true).await.unwrap();
    assert_eq!(two.feed(&FeedRef::Id(id)).await.unwrap(), None);
    assert!(!two.paused().await.unwrap());
    let same = add(&*two, "https://a.org/feed").await;
    poll(&*two, same, 10, modified(vec![entry("1", "another's one")])).await;
    assert_eq!(published(&*one).await, [("entry.new".into(), Some("one".into()))]);
    let (one, two) = (one.events(0, 9).await.unwrap(), two.events(0, 9).await.unwrap());
    assert_ne!(one.epoch, two.epoch);
    assert_eq!((one.items[0].seq, two.items[0].seq), (1, 1));
}

pub(crate) async fn the_history_keeps_the_last_twenty_polls_newest_first(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    assert_eq!(store.history(id).await.unwrap(), Some(vec![]));
    for number in 1..=25 {
        let outcome = if number % 2 == 0 { unchanged() } else { failed(FailureKind::Timeout) };
        poll(&*store, id, number * 10, outcome).await;
    }
    let history = store.history(id).await.unwrap().unwrap();
    let starts: Vec<Timestamp> = history.iter().map(|poll| poll.at).collect();
    assert_eq!(starts, (6..=25).rev().map(|number| at(number * 10)).collect::<Vec<_>>());
    let newest = &history[0];
    assert_eq!((newest.outcome, newest.failure), (OutcomeKind::Failed, Some(FailureKind::Timeout)));
    assert_eq!((newest.status, newest.bytes, newest.duration), (Some(200), 1000, 0.25));
    assert_eq!((newest.next_due, &newest.reasons[..]), (Some(at(250 + 3600)), &[Rule::Category][..]));
    assert_eq!(store.history(FeedId(99)).await.unwrap(), None);
}

pub(crate) async fn a_price_is_changed_only_by_who_knows_it(backend: &dyn Backend) {
    let store = backend.open().await;
    assert_eq!(store.price().await.unwrap(), None);
    assert!(store.adjust_price(None, 0.1).await.unwrap());
    assert!(!store.adjust_price(None, 0.2).await.unwrap(), "somebody was faster");
    assert!(store.adjust_price(Some(0.1), 0.1 + 0.2).await.unwrap());
    assert!(!store.adjust_price(Some(0.1), 7.0).await.unwrap());
    assert_eq!(store.price().await.unwrap(), Some(0.1 + 0.2), "to the last bit");
}

pub(crate) async fn the_pause_of_the_fleet_is_kept(backend: &dyn Backend) {
    let store = backend.open().await;
    assert!(!store.paused().await.unwrap());
    for paused in [true, true, false] {
        store.set_paused(paused).await.unwrap();
        assert_eq!(store.paused().await.unwrap(), paused);
    }
}

pub(crate) async fn numbers_tell_what_is_there(backend: &dyn Backend) {
    let store = backend.open().await;
    assert_eq!(store.stats(at(0)).await.unwrap(), crate::StoreStats::default());
    let new = ["https://a.org/1", "https://a.org/2", "https://a.org/3"].map(new_feed);
    let ids: Vec<FeedId> = store.add_feeds(&new, at(0)).await.unwrap().iter().map(|added| added.id).collect();
    poll(&*store, ids[0], 10, modified(vec![entry("1", "one"), entry("2", "two")])).await;
    let mut failing = verdict(&*store, ids[1], 10, failed(FailureKind::Dns)).await;
    failing.decision.state.penalty = Some(Penalty { kind: FailureKind::Dns, until: at(900) });
    failing.decision.host_hold = Some(at(900));
    failing.category = Category::C;
    apply(&*store, &[failing], 10).await;
    let pause = FeedChange { status: Some(Status::Paused), ..FeedChange::default() };
    store.change_feed(ids[2], &pause, at(20)).await.unwrap();
    let stats = store.stats(at(20)).await.unwrap();
    let classes =
        [(Category::C, Status::Active, 1), (Category::D, Status::Active, 1), (Category::D, Status::Paused, 1)];
    assert_eq!(stats.feeds, classes);
    assert_eq!(stats.penalised, [(FailureKind::Dns, 1)]);
    // Three feeds came and one was paused.
    assert_eq!((stats.entries, stats.events, stats.hosts_held), (2, 2 + 4, 1));
    assert_eq!(store.overdue(at(20)).await.unwrap(), 0);
    assert_eq!((store.overdue(at(5000)).await.unwrap(), store.stats(at(5000)).await.unwrap().hosts_held), (2, 0));
}

pub(crate) async fn all_schedulers_sign_with_the_same_keys_and_old_ones_are_deleted(backend: &dyn Backend) {
    const DAY: u64 = 24 * 3600;
    let store = backend.open().await;
    let key = |number: u8, day: u64| JobKey { id: number.into(), secret: vec![number; 32], made: at(day * DAY) };
    let read = async |fresh: JobKey| store.job_keys(&[], &fresh).await.unwrap().keys;
    let (one, other) = (key(1, 0), key(2, 0));
    let (first, again) = tokio::join!(store.job_keys(&[], &one), store.job_keys(&[], &other));
    let first = first.unwrap();
    assert_eq!((first.keys.len(), first.unsigned_since), (1, None));
    assert!([one, other].contains(&first.keys[0]), "{first:?}");
    assert_eq!(again.unwrap(), first, "two that begin at once agree");
    assert_eq!(read(key(3, 29)).await, first.keys);
    let renewed = read(key(4, 31)).await;
    assert_eq!(renewed, [first.keys[0].clone(), key(4, 31)]);
    assert_eq!(read(key(5, 32)).await, renewed);
    let later = read(key(6, 62)).await;
    assert_eq!(later, [key(4, 31), key(6, 62)], "the oldest is gone");
    // Another process knows one that was lost, and one that was deleted.
    let known = store.job_keys(&[key(5, 40), first.keys[0].clone()], &key(7, 63)).await.unwrap().keys;
    assert_eq!(known, [key(4, 31), key(5, 40), key(6, 62)]);
    assert_eq!(read(key(8, 400)).await, [key(8, 400)]);
}
