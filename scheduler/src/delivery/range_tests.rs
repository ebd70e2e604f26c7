//! What a retry sends: the range of the first attempt, as it is by then.

use common::outcome::DeliveryOutcome;
use common::time::{Clock, SystemClock};

use super::attempt::Ended;
use super::hub_tests::{TOPIC, feed};
use super::tests::{World, wish};
use crate::ops;
use crate::ops::subscriptions::From;
use store::{EventFilter, EventQuery, Wish};

/// Statements that add this number of entries of feed 1, each with its event. The titles of some have `feedfleet` in them.
fn entries(count: usize, matching: &str) -> String {
    let at = SystemClock.now().millis();
    format!(
        "BEGIN; INSERT INTO events (at, kind, feed_id, identity) WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n \
         WHERE n < {count}) SELECT {at}, 'entry.new', 1, CAST(printf('%016d', n) AS BLOB) FROM n; \
         INSERT INTO entry_identities (feed_id, identity, seq, fingerprint) SELECT 1, identity, seq, 0 FROM events WHERE identity \
         IS NOT NULL; \
         INSERT INTO entries (seq, feed_id, identity, seen, stored, cut, id, title) SELECT seq, 1, identity, at, at, 0, 'e' || seq, \
         CASE WHEN seq IN ({matching}) THEN 'on feedfleet' ELSE 'on others' END FROM events WHERE identity IS NOT NULL; COMMIT;"
    )
}

/// Adds feed 1, which makes event 1, and this number of entries: the second event is of the first.
async fn add_entries(world: &World, count: usize, matching: &str) {
    let added = world.ops.add(&[feed(TOPIC)], None).await.unwrap();
    assert_eq!(added[0].id.0, 1);
    world.sql(&entries(count, matching)).await;
}

#[tokio::test]
async fn a_request_with_events_from_memory_is_repeated_whole_from_the_store() {
    let world = World::new(|number, _| match number {
        1 => DeliveryOutcome::ServerError,
        _ => DeliveryOutcome::Delivered,
    })
    .await;
    // Filters of texts look at fewer entries in the store than there are between these two.
    add_entries(&world, 899, "11, 900").await;
    let filter = EventFilter { text: Some("feedfleet".into()), ..EventFilter::default() };
    let id = world.add(Wish { filter, ..wish() }, From::After(0)).await.id;
    let attempts = world.attempts().await;
    attempts.recent.keep(0, world.ops.store.find_events(&EventQuery::after(0, 2_000)).await.unwrap());
    for _ in 0..2 {
        let ended = attempts.attempt(&world.task(id).await).await;
        assert!(matches!(ended, Ended::Answered { .. }), "{ended:?}");
    }
    let sent = world.sent();
    assert_eq!(sent[0].1, [11, 900], "the first request");
    assert_eq!(sent[0], sent[1]);
    assert_eq!(ops::subscriptions::find(&world.ops, id).await.unwrap().unwrap().progress.place(), (900, 0));
}

#[tokio::test]
async fn a_retry_has_the_entries_of_its_range_that_match_by_then_and_none_behind_it() {
    let world = World::new(|_, _| DeliveryOutcome::ServerError).await;
    add_entries(&world, 8, "3, 5, 7").await;
    let filter = EventFilter { text: Some("feedfleet".into()), ..EventFilter::default() };
    let id = world.add(Wish { filter, ..wish() }, From::After(0)).await.id;
    let attempts = world.attempts().await;
    let retry = async |change: &str| {
        world.sql(change).await;
        let ended = attempts.attempt(&world.task(id).await).await;
        assert!(matches!(ended, Ended::Answered { .. }), "{ended:?}");
        world.sent().last().cloned()
    };
    let (name, events) = retry("").await.unwrap();
    assert_eq!(events, [3, 5, 7]);
    // An entry is removed, one does not match any more, one in the range and one behind it begin to match.
    let change = "DELETE FROM entries WHERE seq = 3; UPDATE entries SET title = 'on others' WHERE seq = 7; \
                  UPDATE entries SET title = 'feedfleet' WHERE seq IN (4, 9)";
    assert_eq!(retry(change).await, Some((name.clone(), vec![4, 5])));
    let tried = world.sent().len();
    retry("UPDATE entries SET title = 'on others' WHERE seq < 9").await;
    assert_eq!(world.sent().len(), tried, "without any event there is no request");
    assert_eq!(ops::subscriptions::find(&world.ops, id).await.unwrap().unwrap().progress.place(), (7, 0));
    let (next, events) = retry("").await.unwrap();
    assert_eq!((next != name, &events[..]), (true, &[9][..]));
}
