//! Deliveries to a scripted target, from a SQLite file into which faults are put.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::config::Config;
use common::delivery::{DeliveryAnswer, DeliveryRequest};
use common::metrics::Metrics;
use common::outcome::DeliveryOutcome;
use common::time::{Clock, SystemClock, Timestamp};
use common::webhook::SignatureKind;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::attempt::{Attempts, Ended, Task};
use super::lanes::{Lanes, Way};
use super::recent::Recent;
use super::saver::Saver;
use super::sender::{Answering, Sender};
use super::share::Share;
use super::targets::{Refusals, Targets};
use crate::ops::subscriptions::{EditSubscription, From, SubscriptionError, WantedSecret};
use crate::ops::{self, Ops};
use crate::run::{Backends, Scheduler};
use store::sqlite::SqliteStore;
use store::{DeliveryFormat, DeliveryTurn, EventFilter, Subscription, SubscriptionKind, Wish};

/// A request that the target got: its id and its events.
pub(super) type Sent = (String, Vec<i64>);

/// A scheduler's half of deliveries.
pub(super) struct World {
    pub(super) ops: Arc<Ops>,
    sent: Arc<Mutex<Vec<Sent>>>,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

fn config() -> Config {
    let mut config = common::config::defaults();
    config.secrets.key = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=".into();
    config
}

pub(super) fn wish() -> Wish {
    Wish {
        kind: SubscriptionKind::Webhook,
        target: "https://a.example/hook".into(),
        filter: EventFilter::default(),
        format: DeliveryFormat::Feedfleet,
        batch: 500,
        delay: Duration::ZERO,
    }
}

/// Runs statements on the file, beside the store.
fn run_sql(path: &Path, sql: &str) {
    let on = rusqlite::Connection::open(path).unwrap();
    on.busy_timeout(Duration::from_secs(5)).unwrap();
    on.execute_batch(sql).unwrap();
}

/// Statements that add events of a kind.
fn events(count: usize, kind: &str) -> String {
    format!(
        "INSERT INTO events (at, kind, feed_id) WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {count}) \
         SELECT {}, '{kind}', 0 FROM n;",
        SystemClock.now().millis()
    )
}

impl World {
    /// Returns a target that answers as `answer` says to the number of a request, from 1.
    pub(super) async fn new(answer: impl Fn(usize, &Path) -> DeliveryOutcome + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("feedfleet.db");
        let store = SqliteStore::open(&format!("sqlite://{}", path.display())).await.unwrap();
        let backends = Backends::in_memory(Arc::new(store));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let ops = Scheduler::new(&backends, &Arc::new(config()), &Arc::new(Metrics::new()), &clock).ops;
        let sent: Arc<Mutex<Vec<Sent>>> = Arc::default();
        let (log, place) = (Arc::clone(&sent), path.clone());
        let send = move |request: DeliveryRequest| {
            let number = {
                let mut log = log.lock().unwrap();
                log.push(read(&request));
                log.len()
            };
            let answer = DeliveryAnswer::unanswered(answer(number, &place), "");
            let answering: Answering = Box::pin(std::future::ready(answer));
            answering
        };
        let sender = Sender { send: Box::new(send), judge: Box::new(|_| Ok(())) };
        assert!(ops.sender.set(sender).is_ok());
        World { ops, sent, path, _folder: folder }
    }

    pub(super) async fn add(&self, wish: Wish, from: From) -> Subscription {
        let secret = WantedSecret::Generated(SignatureKind::Hmac);
        ops::subscriptions::add(&self.ops, wish, secret, from, "ann").await.unwrap().0
    }

    /// Elsewhere: the store must be able to end a transaction meanwhile.
    pub(super) async fn sql(&self, sql: &str) {
        let (path, sql) = (self.path.clone(), sql.to_owned());
        tokio::task::spawn_blocking(move || run_sql(&path, &sql)).await.unwrap();
    }

    fn deliver(&self) -> Delivering {
        let (ops, stop) = (Arc::clone(&self.ops), CancellationToken::new());
        let stopped = stop.clone();
        Delivering(tokio::spawn(async move { super::run(&ops, &stopped).await }), stop)
    }

    pub(super) fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }

    fn sent_events(&self) -> Vec<i64> {
        self.sent().into_iter().flat_map(|(_, events)| events).collect()
    }

    /// Waits until the target has this number of requests.
    async fn requests(&self, count: usize) -> Vec<Sent> {
        self.until(|world| world.sent().len() >= count).await;
        self.sent()
    }

    async fn until(&self, is_so: impl Fn(&World) -> bool) {
        let wait = async {
            while !is_so(self) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(20), wait).await;
        assert!(waited.is_ok(), "the target has {:?}", self.sent());
    }

    /// Returns all attempts of a process, which holds the lease.
    pub(super) async fn attempts(&self) -> Attempts {
        let ops = Arc::clone(&self.ops);
        let turn = DeliveryTurn { holder: "x", lasts: Duration::from_secs(60), idle: &[] };
        ops.store.lease_subscriptions(&turn).await.unwrap();
        let saver = Saver::new(Arc::clone(&ops.store), Arc::clone(&ops.clock), "x".into());
        Attempts { lanes: Lanes::new(4), saver, recent: Recent::default(), refusals: Refusals::default(), ops }
    }

    pub(super) async fn task(&self, id: i64) -> Task {
        let of = ops::subscriptions::find(&self.ops, id).await.unwrap().unwrap();
        let url = of.wish.target.parse().unwrap();
        let target = Targets::default().of(&url, 8, Duration::ZERO);
        let stored = of.progress.place();
        let epoch = self.ops.store.events(0, 1).await.unwrap().epoch.into();
        Task { of, url, target, is_slow: false, asks: false, epoch, stored, newest: 0, gone: CancellationToken::new() }
    }
}

/// A loop of deliveries.
struct Delivering(JoinHandle<()>, CancellationToken);

impl Delivering {
    async fn end(self) {
        self.1.cancel();
        self.0.await.unwrap();
    }
}

fn read(request: &DeliveryRequest) -> Sent {
    let id = request.fields.iter().find(|(name, _)| *name == "webhook-id").unwrap().1.clone();
    let body: Value = serde_json::from_slice(request.body.as_ref().unwrap()).unwrap();
    let events = body["data"]["events"].as_array().unwrap().iter().map(|event| event["seq"].as_i64().unwrap());
    (id, events.collect())
}

fn ok(_: usize, _: &Path) -> DeliveryOutcome {
    DeliveryOutcome::Delivered
}

#[tokio::test]
async fn a_request_whose_success_could_not_be_stored_is_repeated_under_its_id_without_newer_events() {
    let world = World::new(|number, path| {
        if number == 1 {
            let fault = "CREATE TRIGGER fault BEFORE UPDATE OF progress ON subscriptions BEGIN SELECT raise(ABORT, 'full'); END;";
            run_sql(path, &format!("{fault} {}", events(1, "host.refusing")));
        }
        DeliveryOutcome::Delivered
    })
    .await;
    world.add(wish(), From::Now).await;
    let delivering = world.deliver();
    world.sql(&events(2, "host.refusing")).await;
    world.requests(1).await;
    // Its success is not stored by then.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    world.sql("DROP TRIGGER fault").await;
    let sent = world.requests(3).await;
    assert_eq!((&sent[1], &sent[2].1[..]), (&sent[0], &[3][..]));
    delivering.end().await;
}

#[tokio::test]
async fn a_range_that_one_page_does_not_hold_is_sent_whole() {
    let world = World::new(ok).await;
    world.sql(&events(1_300, "host.refusing")).await;
    world.add(wish(), From::After(0)).await;
    world.sql("UPDATE subscriptions SET progress = '{\"cursor\": 0, \"pending\": 1200}'").await;
    let delivering = world.deliver();
    world.until(|world| world.sent_events().last() == Some(&1_300)).await;
    assert_eq!(world.sent_events(), Vec::from_iter(1..=1_300));
    delivering.end().await;
}

#[tokio::test]
async fn events_of_a_range_that_begin_behind_a_page_are_not_skipped() {
    let world = World::new(ok).await;
    world.sql(&(events(2_100, "host.refusing") + &events(1, "feed.gone"))).await;
    let filter = EventFilter { kinds: vec!["feed.*".into()], ..EventFilter::default() };
    world.add(Wish { filter, ..wish() }, From::After(0)).await;
    world.sql("UPDATE subscriptions SET progress = '{\"cursor\": 0, \"pending\": 2101}'").await;
    let delivering = world.deliver();
    assert_eq!(world.requests(1).await[0].1, [2_101]);
    delivering.end().await;
}

#[tokio::test]
async fn another_filter_gives_the_request_that_is_retried_another_id() {
    let world = World::new(|number, _| match number {
        1 => DeliveryOutcome::ServerError,
        _ => DeliveryOutcome::Delivered,
    })
    .await;
    world.sql(&(events(1, "feed.gone") + &events(2, "host.refusing") + &events(1, "feed.gone"))).await;
    let filter = EventFilter { kinds: vec!["feed.*".into()], ..EventFilter::default() };
    let id = world.add(Wish { filter, ..wish() }, From::After(0)).await.id;
    let attempts = world.attempts().await;
    let stale = world.task(id).await;
    assert!(matches!(attempts.attempt(&stale).await, Ended::Answered { .. }));
    let edit = EditSubscription {
        wish: Some(Box::new(|wish: &mut Wish| wish.filter = EventFilter::default())),
        ..EditSubscription::default()
    };
    ops::subscriptions::edit(&world.ops, id, &edit).await.unwrap();
    assert!(matches!(attempts.attempt(&world.task(id).await).await, Ended::Answered { .. }));
    let sent = world.sent();
    assert_eq!((&sent[0].1[..], &sent[1].1[..]), (&[1, 4][..], &[1, 2, 3, 4][..]));
    assert_ne!(sent[0].0, sent[1].0);
}

#[tokio::test]
async fn what_waits_to_be_sent_again_is_not_sent_after_the_subscription_was_removed_or_another_process_sent_it() {
    let world = World::new(|_, _| DeliveryOutcome::ServerError).await;
    world.sql(&events(2, "host.refusing")).await;
    let id = world.add(wish(), From::After(0)).await.id;
    let attempts = world.attempts().await;
    assert!(matches!(attempts.attempt(&world.task(id).await).await, Ended::Answered { .. }));
    let [mut cancelled, moved, removed] = [world.task(id).await, world.task(id).await, world.task(id).await];
    cancelled.gone.cancel();
    assert!(matches!(attempts.attempt(&cancelled).await, Ended::Lost));
    cancelled.gone = CancellationToken::new();
    // The lease was lost, the other process delivered, and the lease was regained.
    world.sql("UPDATE subscriptions SET progress = '{\"cursor\": 2}'").await;
    assert!(matches!(attempts.attempt(&moved).await, Ended::Lost));
    assert_eq!(ops::subscriptions::find(&world.ops, id).await.unwrap().unwrap().progress.cursor, 2);
    world.sql("UPDATE subscriptions SET progress = '{\"cursor\": 0, \"pending\": 2}'").await;
    assert!(matches!(attempts.attempt(&cancelled).await, Ended::Answered { .. }), "the same progress");
    assert!(world.ops.store.remove_subscription(id).await.unwrap());
    assert!(matches!(attempts.attempt(&removed).await, Ended::Lost));
    assert_eq!(world.sent().len(), 2);
}

#[tokio::test]
async fn subscriptions_that_wait_go_on_in_another_epoch() {
    let world = World::new(ok).await;
    world.sql(&events(5, "host.refusing")).await;
    world.add(wish(), From::After(0)).await;
    let delivering = world.deliver();
    assert_eq!(world.requests(1).await[0].1, [1, 2, 3, 4, 5]);
    // A server takes over that has the first two events only.
    world.sql(
        "BEGIN; UPDATE store SET epoch = 'other'; DELETE FROM events WHERE seq > 2; UPDATE sqlite_sequence SET seq = 2 \
         WHERE name = 'events'; UPDATE subscriptions SET progress = '{\"cursor\": 2}'; COMMIT;",
    ).await;
    world.sql(&events(1, "host.refusing")).await;
    let (id, events) = world.requests(2).await.swap_remove(1);
    assert!(id.starts_with("msg_other_") && events == [3], "{id} {events:?}");
    delivering.end().await;
}

#[tokio::test]
async fn a_cursor_that_moved_over_events_of_an_epoch_that_ended_is_not_stored() {
    let world = World::new(ok).await;
    let filter = EventFilter { kinds: vec!["feed.*".into()], ..EventFilter::default() };
    let id = world.add(Wish { filter, ..wish() }, From::Now).await.id;
    // Is sent all events: when it has them, the other one has looked at them too, and stores that at its end.
    world.add(wish(), From::Now).await;
    let delivering = world.deliver();
    world.sql(&events(1, "host.refusing")).await;
    world.requests(1).await;
    world.sql(&events(4, "host.refusing")).await;
    world.requests(2).await;
    // The server that takes over has the same row, and none of the events.
    world
        .sql(
            "BEGIN; UPDATE store SET epoch = 'other'; DELETE FROM events; UPDATE sqlite_sequence SET seq = 0 \
         WHERE name = 'events'; COMMIT;",
        )
        .await;
    delivering.end().await;
    assert_eq!(world.ops.store.subscriptions_among(&[id]).await.unwrap()[0].progress.cursor, 0);
    world.sql(&events(1, "feed.gone")).await;
    let delivering = world.deliver();
    assert_eq!(world.requests(3).await[2].1, [1]);
    delivering.end().await;
}

#[tokio::test]
async fn events_that_are_gathered_are_all_sent_when_the_wait_ends() {
    let world = World::new(ok).await;
    let filter = EventFilter { kinds: vec!["feed.*".into()], ..EventFilter::default() };
    world.add(Wish { filter, delay: Duration::from_secs(2), ..wish() }, From::Now).await;
    let delivering = world.deliver();
    world.sql(&events(1, "feed.gone")).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    // There are more events between them than one page looks at.
    world.sql(&(events(2_100, "host.refusing") + &events(1, "feed.gone"))).await;
    world.until(|world| world.sent_events() == [1, 2_102]).await;
    delivering.end().await;
}

#[tokio::test]
async fn what_retention_took_is_recorded_also_when_nothing_is_sent() {
    let world = World::new(ok).await;
    let id = world.add(wish(), From::Now).await.id;
    world.sql("UPDATE store SET events_gone = 10; UPDATE sqlite_sequence SET seq = 10 WHERE name = 'events'").await;
    let attempts = world.attempts().await;
    let ended = attempts.attempt(&world.task(id).await).await;
    assert!(matches!(ended, Ended::Answered { looked: Some(10), .. }), "{ended:?}");
    let progress = ops::subscriptions::find(&world.ops, id).await.unwrap().unwrap().progress;
    assert_eq!((progress.lost_after, progress.cursor), (Some(10), 10));
    // One that a person has begin with what is kept loses nothing.
    let task = world.task(world.add(wish(), From::After(0)).await.id).await;
    assert_eq!(task.of.progress.cursor, 10);
    // What is known to be visible is not looked for again and again.
    let ended = attempts.attempt(&Task { newest: 12, ..task }).await;
    assert!(matches!(ended, Ended::Nothing(12)), "{ended:?}");
}

#[tokio::test]
async fn no_feed_is_sent_of_which_retention_took_all_entries() {
    let world = World::new(ok).await;
    world.sql(&events(3, "entry.new")).await;
    for format in [DeliveryFormat::JsonFeed, DeliveryFormat::Atom] {
        let id = world.add(Wish { format, ..wish() }, From::After(0)).await.id;
        let attempts = world.attempts().await;
        let ended = attempts.attempt(&world.task(id).await).await;
        assert!(matches!(ended, Ended::Nothing(3)), "{ended:?}");
        // A request that is to be repeated.
        let failing = r#"{"cursor": 0, "pending": 2, "failures": 3, "failing_since": "2026-09-21T14:13:20Z"}"#;
        world.sql(&format!("UPDATE subscriptions SET progress = '{failing}'")).await;
        let ended = attempts.attempt(&world.task(id).await).await;
        let Ended::Answered { progress, .. } = &ended else { panic!("{ended:?}") };
        assert_eq!((progress.place(), progress.failures, progress.failing_since), ((2, 0), 0, None));
    }
    assert!(world.sent().is_empty());
}

#[tokio::test]
async fn a_target_that_waits_for_the_slow_lane_takes_no_slot_from_the_quick_one() {
    let world = World::new(ok).await;
    world.sql(&events(1, "host.refusing")).await;
    let id = world.add(wish(), From::After(0)).await.id;
    let attempts = Arc::new(world.attempts().await);
    let slow = attempts.lanes.lane(Way::Slow);
    let full = [slow.enter(Way::Slow).await, slow.enter(Way::Slow).await];
    let (mut waiting, mut quick) = (world.task(id).await, world.task(id).await);
    let target = Targets::default().of(&waiting.url, 1, Duration::ZERO);
    (waiting.is_slow, waiting.target, quick.target) = (true, Arc::clone(&target), target);
    let waiting = tokio::spawn({
        let attempts = Arc::clone(&attempts);
        async move { attempts.attempt(&waiting).await }
    });
    tokio::task::yield_now().await;
    let ended = tokio::time::timeout(Duration::from_secs(5), attempts.attempt(&quick)).await.unwrap();
    assert!(matches!(ended, Ended::Answered { .. }), "{ended:?}");
    assert!(!waiting.is_finished());
    drop(full);
    assert!(matches!(waiting.await.unwrap(), Ended::Lost), "the other one was faster");
}

#[tokio::test]
async fn quick_targets_that_fall_silent_together_leave_the_quick_lane_to_the_others() {
    let world = World::new(ok).await;
    // Eight quick slots and six slow ones.
    let attempts = Arc::new(Attempts { lanes: Lanes::new(16), ..world.attempts().await });
    let send = |_: DeliveryRequest| -> Answering { Box::pin(std::future::pending()) };
    let silent = Arc::new(Sender { send: Box::new(send), judge: Box::new(|_| Ok(())) });
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..24 {
        let (attempts, silent) = (Arc::clone(&attempts), Arc::clone(&silent));
        let request = DeliveryRequest { url: "https://a.example/".parse().unwrap(), fields: Vec::new(), body: None };
        waiting.spawn(async move {
            let mut slot = attempts.lanes.lane(Way::Quick).enter(Way::Quick).await.unwrap();
            attempts.lanes.answered(&silent, request, &mut slot).await
        });
        tokio::task::yield_now().await;
    }
    let entered = attempts.lanes.lane(Way::Quick).enter(Way::Quick);
    assert!(tokio::time::timeout(Duration::from_secs(60), entered).await.is_ok(), "the silent targets have all slots");
}

#[tokio::test]
async fn without_a_lease_nothing_is_due() {
    let world = World::new(ok).await;
    let mut share = Share::new(Arc::clone(&world.ops));
    share.due.insert((Timestamp::EPOCH, 1));
    assert!(share.next_due() > Duration::from_millis(500));
}

#[tokio::test]
async fn formats_without_entries_and_a_second_rotation_within_a_day_are_refused() {
    let world = World::new(ok).await;
    let filter = EventFilter { kinds: vec!["feed.*".into()], ..EventFilter::default() };
    let json_feed = Wish { format: DeliveryFormat::JsonFeed, filter, ..wish() };
    let secret = WantedSecret::Generated(SignatureKind::Hmac);
    let refused = ops::subscriptions::add(&world.ops, json_feed.clone(), secret, From::Now, "ann").await;
    assert!(matches!(refused, Err(SubscriptionError::NoEntries)));
    let mut added = world.add(wish(), From::Now).await;
    let wanted = json_feed.clone();
    let edit = EditSubscription {
        wish: Some(Box::new(move |wish: &mut Wish| *wish = wanted.clone())),
        ..EditSubscription::default()
    };
    let refused = ops::subscriptions::edit(&world.ops, added.id, &edit).await;
    assert!(matches!(refused, Err(SubscriptionError::NoEntries)));
    // One that is stored nevertheless gets nothing instead of everything.
    added.wish = json_feed;
    assert!(!super::attempt::filter(&added).kinds.is_empty());

    let rotate = EditSubscription { rotate: true, ..EditSubscription::default() };
    assert!(ops::subscriptions::edit(&world.ops, added.id, &rotate).await.unwrap().unwrap().1.is_some());
    let refused = ops::subscriptions::edit(&world.ops, added.id, &rotate).await;
    assert!(matches!(refused, Err(SubscriptionError::Rotating { .. })));
}

#[tokio::test]
async fn a_secret_of_a_lost_key_neither_stops_its_successor_nor_keeps_another_from_it() {
    let world = World::new(|_, _| DeliveryOutcome::Delivered).await;
    let id = world.add(wish(), From::Now).await.id;
    run_sql(&world.path, "UPDATE subscriptions SET secret = x'00112233'");
    let rotate = EditSubscription { rotate: true, ..EditSubscription::default() };
    for _ in 0..2 {
        assert!(ops::subscriptions::edit(&world.ops, id, &rotate).await.unwrap().unwrap().1.is_some());
        run_sql(&world.path, "UPDATE subscriptions SET old_secret = x'00112233'");
    }
    run_sql(&world.path, &events(1, "feed.gone"));
    let ended = world.attempts().await.attempt(&world.task(id).await).await;
    assert!(matches!(ended, Ended::Answered { .. }));
    assert_eq!(world.sent().len(), 1, "signed with the new one alone");
}
