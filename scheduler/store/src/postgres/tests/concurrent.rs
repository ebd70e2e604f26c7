//! Several processes on one schema, played by stores with separate pools.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use common::report::Outcome;
use common::time::Timestamp;
use common::url::FeedId;
use futures_util::future::join_all;
use sqlx::{Acquire, Executor};

use super::Schema;
use crate::conformance::{
    SKEW, add, apply, at, entry, feed, modified, new_entries, new_feed, published, verdict, verdict_on,
};
use crate::postgres::PostgresStore;
use crate::{Applied, Move, Moved, NewFeed, Verdict};
use crate::{Events, Feeds, Polls, Upkeep, VersionedChanges, Wakes};

fn stored(applied: &[Applied]) -> usize {
    applied.iter().filter(|applied| **applied != Applied::Stale).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_apply_reports_of_one_version_at_once_exactly_one_stores_each() {
    let schema = Schema::default();
    let stores = join_all((0..3).map(|_| schema.store())).await;
    let new: Vec<_> = (0..40).map(|number| new_feed(&format!("https://a.org/{number}"))).collect();
    let ids: Vec<FeedId> = stores[0].add_feeds(&new, at(0)).await.unwrap().iter().map(|added| added.id).collect();
    for round in 1..=10 {
        let feeds = stores[0].states_for(&ids).await.unwrap();
        // Each batch in another order, so that a store that locked as it came would wait in a circle.
        let batches = (0..3_usize).map(|turn| {
            let mut batch: Vec<Verdict> = feeds
                .iter()
                .map(|feed| verdict_on(feed, round * 10, modified(vec![entry(&round.to_string(), &turn.to_string())])))
                .collect();
            batch.rotate_left(turn * 13);
            if turn == 1 {
                batch.reverse();
            }
            batch
        });
        let batches: Vec<Vec<Verdict>> = batches.collect();
        let applied =
            join_all(stores.iter().zip(&batches).map(|(store, batch)| store.apply(batch, SKEW, at(round * 10))));
        let applied: Vec<_> = applied.await.into_iter().map(Result::unwrap).collect();
        let total: usize = applied.iter().map(|applied| stored(applied)).sum();
        assert_eq!(total, ids.len(), "round {round}");
        for feed in stores[0].states_for(&ids).await.unwrap() {
            assert_eq!((feed.version.0, feed.entries), (1 + round as i64, round), "feed {}", feed.id);
        }
    }
    assert_eq!(published(&stores[1]).await.len(), 400);
}

/// Rows of documents are locked before the others, so two such batches may wait for each other: the server ends one of them, and it is
/// tried again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_whose_documents_are_of_feeds_that_the_other_polled_without_one_exactly_one_stores_each() {
    let schema = Schema::default();
    let stores = join_all((0..2).map(|_| schema.store())).await;
    let new: Vec<_> = (0..40).map(|number| new_feed(&format!("https://a.org/{number}"))).collect();
    let ids: Vec<FeedId> = stores[0].add_feeds(&new, at(0)).await.unwrap().iter().map(|added| added.id).collect();
    for round in 1..=5 {
        let feeds = stores[0].states_for(&ids).await.unwrap();
        let batches = [0, 1].map(|turn| {
            let outcome = |number: usize| match number % 2 == turn {
                true => modified(vec![entry(&round.to_string(), &turn.to_string())]),
                false => Outcome::NotModified { validators: Default::default() },
            };
            let verdicts = feeds.iter().enumerate();
            verdicts.map(|(number, feed)| verdict_on(feed, round * 10, outcome(number))).collect::<Vec<_>>()
        });
        let applied = stores.iter().zip(&batches).map(|(store, batch)| apply(store, batch, round * 10));
        let applied = join_all(applied).await;
        assert_eq!(applied.iter().map(|applied| stored(applied)).sum::<usize>(), ids.len(), "round {round}");
    }
}

/// A row is large: of two updates within a transaction the second one finds no room in its page.
#[tokio::test]
async fn each_poll_updates_its_feed_s_row_once() {
    const COUNT: &str = "
        CREATE TABLE updates (feed bigint);
        CREATE FUNCTION count_update() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN INSERT INTO updates VALUES (NEW.id); RETURN NEW; END $$;
        CREATE TRIGGER counted AFTER UPDATE ON feeds FOR EACH ROW EXECUTE FUNCTION count_update()";
    let schema = Schema::default();
    let store = schema.store().await;
    let mut on = schema.connection().await;
    on.execute(COUNT).await.unwrap();
    let ids = [add(&store, "https://a.org/1").await, add(&store, "https://a.org/2").await];
    let outcomes = [modified(vec![entry("1", "one")]), Outcome::NotModified { validators: Default::default() }];
    let mut verdicts = Vec::new();
    for (id, outcome) in ids.into_iter().zip(outcomes) {
        verdicts.push(verdict(&store, id, 10, outcome).await);
    }
    apply(&store, &verdicts, 10).await;
    let updates: Vec<i64> = sqlx::query_scalar("SELECT feed FROM updates ORDER BY 1").fetch_all(&mut on).await.unwrap();
    assert_eq!(updates, ids.map(|id| id.0));
}

#[tokio::test]
async fn a_wake_between_looking_and_writing_is_kept() {
    let schema = Schema::default();
    let store = schema.store().await;
    let id = add(&store, "https://a.org/feed").await;
    let fetched = verdict(&store, id, 10, modified(vec![entry("1", "one")])).await;

    let mut other = schema.connection().await;
    let mut waking = other.begin().await.unwrap();
    let wake = sqlx::query("UPDATE feeds SET wake_at = $1").bind(at(12).millis());
    wake.execute(&mut *waking).await.unwrap();
    let (applied, ()) = tokio::join!(apply(&store, std::slice::from_ref(&fetched), 14), async {
        schema.waiting().await;
        waking.commit().await.unwrap();
    });
    assert_eq!(new_entries(&applied[0]), (1, 0));
    assert_eq!(feed(&store, id).await.wake_at, Some(at(12)), "it came after the fetch began");
}

#[tokio::test]
async fn an_audience_set_between_looking_and_writing_keeps_its_category() {
    let schema = Schema::default();
    let store = schema.store().await;
    let id = add(&store, "https://a.org/feed").await;
    let fetched = verdict(&store, id, 10, modified(vec![])).await;
    let mut other = schema.connection().await;
    let mut setting = other.begin().await.unwrap();
    let set = sqlx::query("UPDATE feeds SET category = 'A', audience_at = $1").bind(at(12).millis());
    set.execute(&mut *setting).await.unwrap();
    let (answers, ()) = tokio::join!(apply(&store, std::slice::from_ref(&fetched), 14), async {
        schema.waiting().await;
        setting.commit().await.unwrap();
    });
    assert_eq!(answers, [crate::Applied::Outdated]);
    assert_eq!(store.placements(FeedId(0), 1).await.unwrap()[0].category, common::policy::Category::A);
}

/// Adds a page that nobody gave anything, and merges it into this feed.
async fn add_known_page(store: &PostgresStore, url: &str, known: &NewFeed, seconds: u64) -> FeedId {
    let page = NewFeed { calm: Vec::new(), ..new_feed(url) };
    let id = store.add_feeds(&[page], at(0)).await.unwrap()[0].id;
    let category = common::policy::Category::D;
    let into = Move { url: known.url.clone(), host: known.host.clone(), category, others: Vec::new(), same: false };
    let version = feed(store, id).await.version;
    assert!(matches!(store.move_feed(id, version, &into, at(seconds)).await.unwrap(), Moved::Into(_)));
    id
}

/// A transaction that holds a feed's row takes the row of `store` last: a transaction that has that one must not wait for a feed.
#[tokio::test]
async fn pages_that_are_erased_together_take_the_row_of_the_store_last() {
    let schema = Schema::default();
    let store = schema.store().await;
    let known = new_feed("https://a.org/feed");
    store.add_feeds(std::slice::from_ref(&known), at(0)).await.unwrap();
    let pages = [
        add_known_page(&store, "https://a.org/1", &known, 20).await,
        add_known_page(&store, "https://a.org/2", &known, 21).await,
    ];
    let mut other = schema.connection().await;
    let mut holding = other.begin().await.unwrap();
    let hold = sqlx::query("SELECT id FROM feeds WHERE id = $1 FOR NO KEY UPDATE").bind(pages[1].0);
    hold.execute(&mut *holding).await.unwrap();
    let (erased, ()) = tokio::join!(store.erase_pages(at(21), at(30)), async {
        schema.waiting().await;
        let take = sqlx::query("SELECT seq FROM store FOR UPDATE NOWAIT").execute(&mut *holding).await;
        assert!(take.is_ok(), "{take:?}");
        holding.commit().await.unwrap();
    });
    assert_eq!(erased.unwrap(), 2);
    assert!(store.states_for(&pages).await.unwrap().is_empty());
}

/// Commits are made slow, and some of them to fail, from inside the database; a reader that follows with a cursor must see
/// every event that is there in the end, in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_with_a_cursor_misses_no_event_of_concurrent_slow_and_failing_transactions() {
    const SPOIL: &str = "
        CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_sleep(random() * 0.005);
            IF random() < 0.05 THEN RAISE EXCEPTION 'the commit fails'; END IF;
            RETURN NULL;
        END $$;
        CREATE CONSTRAINT TRIGGER spoil AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION spoil()";
    let schema = Schema::default();
    let stores = join_all((0..4).map(|_| schema.store())).await;
    schema.connection().await.execute(SPOIL).await.unwrap();
    let done = AtomicBool::new(false);
    let writers = async {
        let written = join_all(stores.iter().enumerate().map(|(number, store)| write(store, number))).await;
        done.store(true, Ordering::SeqCst);
        written
    };
    let (written, followed) = tokio::join!(writers, follow(&stores[0], &done));
    let there = seqs(&stores[1], 0).await;
    assert_eq!(followed, there);
    let (stored, failed) = written.iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
    assert_eq!(there.len(), stored);
    assert!(failed > 0 && stored > 100, "{stored} stored, {failed} failed");
}

/// Polls two feeds that no other writer uses; returns the events that were stored, and the transactions that failed.
async fn write(store: &PostgresStore, number: usize) -> (usize, usize) {
    let new = [new_feed(&format!("https://a.org/{number}")), new_feed(&format!("https://b.org/{number}"))];
    let (mut stored, mut failed) = (2, 0);
    let ids = loop {
        match store.add_feeds(&new, at(0)).await {
            Ok(added) => break [added[0].id, added[1].id],
            Err(_) => failed += 1,
        }
    };
    for round in 1..=40 {
        let mut batch = Vec::new();
        for id in ids {
            batch.push(verdict(store, id, round * 10, modified(vec![entry(&round.to_string(), "title")])).await);
        }
        match store.apply(&batch, SKEW, at(round * 10)).await {
            Ok(applied) => stored += applied.iter().map(|applied| new_entries(applied).0 as usize).sum::<usize>(),
            Err(_) => failed += 1,
        }
    }
    (stored, failed)
}

async fn follow(store: &PostgresStore, done: &AtomicBool) -> Vec<i64> {
    let mut followed = Vec::new();
    loop {
        let last_look = done.load(Ordering::SeqCst);
        followed.extend(seqs(store, followed.last().copied().unwrap_or(0)).await);
        if last_look {
            return followed;
        }
    }
}

async fn seqs(store: &PostgresStore, after: i64) -> Vec<i64> {
    store.events(after, 10_000).await.unwrap().items.iter().map(|event| event.seq).collect()
}

/// Everything at once: there is no deadlock, and the counts are right in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applying_waking_adding_erasing_and_pruning_at_once_leave_a_sound_store() {
    let schema = Schema::default();
    let stores = join_all((0..3).map(|_| schema.store())).await;
    let new: Vec<_> = (0..60).map(|number| new_feed(&format!("https://a.org/{number}"))).collect();
    let ids: Vec<FeedId> = stores[0].add_feeds(&new, at(0)).await.unwrap().iter().map(|added| added.id).collect();
    let applying = async |store: &PostgresStore| {
        for round in 1..=15 {
            let feeds = store.states_for(&ids).await.unwrap();
            let throttled = |feed: &common::feed::Feed| {
                let mut verdict =
                    verdict_on(feed, round * 10, Outcome::Throttled { retry_after: Some(at(round * 20)) });
                verdict.decision.host_hold = Some(at(round * 20));
                verdict
            };
            let brought = |feed: &common::feed::Feed| {
                verdict_on(feed, round * 10, modified(vec![entry(&round.to_string(), "title")]))
            };
            let judge = |feed: &common::feed::Feed| if feed.id.0 % 3 == 0 { throttled(feed) } else { brought(feed) };
            apply(store, &feeds.iter().rev().map(judge).collect::<Vec<_>>(), round * 10).await;
        }
    };
    let meddling = async {
        let store = &stores[2];
        let mut erased = 0;
        for round in 1..=30 {
            add_known_page(store, &format!("https://a.org/page/{round}"), &new[0], round).await;
            if round % 3 == 0 {
                erased += store.erase_pages(at(round), at(9_000)).await.unwrap();
            }
            store.wake(&ids, at(round), at(round)).await.unwrap();
            store.prune(at(round * 5), Some(at(round * 5))).await.unwrap();
            store.add_feeds(&new, at(round)).await.unwrap();
            store.erase_feed(ids[usize::try_from(round).unwrap()], at(9_000)).await.unwrap();
        }
        erased
    };
    let ((), (), erased) = tokio::join!(applying(&stores[0]), applying(&stores[1]), meddling);
    assert_eq!(erased, 30);

    let mut on = schema.connection().await;
    let mut counts = async |sql: &'static str| -> BTreeMap<i64, i64> {
        sqlx::query_as(sql).fetch_all(&mut on).await.unwrap().into_iter().collect()
    };
    let kept = counts("SELECT id, entries FROM feeds WHERE entries > 0").await;
    let there = counts("SELECT feed_id, count(*) FROM entries GROUP BY feed_id").await;
    assert_eq!(kept, there, "each feed's count is that of its entries, and no entry is without its feed");
    assert_eq!(stores[0].stats(Timestamp::EPOCH).await.unwrap().entries, there.values().sum::<i64>() as u64);
    let lost = "SELECT feed_id, count(*) FROM entry_identities WHERE feed_id NOT IN (SELECT id FROM feeds) GROUP BY 1";
    assert_eq!(counts(lost).await, BTreeMap::new());
}
