//! B1 to B8: promises that were broken. Those about clocks are in `clocks`.

use std::time::{Duration, Instant};

use common::policy::Category;
use common::redis::testing::{CuttingProxy, PrivateServer};
use load_tests::proxy::{FaultProxy, Faults};
use load_tests::{Record, Script};

use super::super::harness::{Kind, Servers, Urls, address, through, until};
use super::super::relay::{WORKS, at_exchange};
use super::{Replay, assert_rested, config, feed, path, with_own_redis};
use crate::harness::{PATIENCE, client};

/// B1: Redis is killed while a host throttles, and comes back empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_429_is_heeded_although_redis_was_killed_meanwhile_and_is_empty() {
    const REST: Duration = Duration::from_secs(40);
    let (shared, own, urls) = with_own_redis();
    let interval = Duration::from_secs(2);
    let throttling = |n: u16| match n {
        0 => {
            let throttled = Script::status(429).header("Retry-After", REST.as_secs().to_string());
            feed(n).then(throttled.delay(Duration::from_secs(4))).then(feed(n))
        }
        _ => feed(n),
    };
    let replay = Replay::new(4, interval, &shared, urls, throttling).await;
    let roles = replay.begin().await;
    replay.origin.wait_for_start(&path(0), 2, PATIENCE).await;
    own.signal("redis", "KILL");
    let throttled = replay.origin.wait_for(&path(0), 2, PATIENCE).await[1].clone();
    assert_eq!(throttled.status, Some(429));
    own.up("redis");
    replay.two_rounds(&roles).await;
    let requests = replay.origin.wait_for(&path(0), 3, REST + PATIENCE).await;
    assert_rested(&throttled, &requests[2], REST);
}

/// B4: reports that are far larger as JSON than as text, beside ordinary feeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_full_of_quotes_do_not_keep_other_feeds_waiting() {
    let servers = Servers::shared();
    let quotes = "\"".repeat(975_000);
    let entry = |n| format!("<entry><id>quoted{n}</id><title>{n}</title><content>{quotes}</content></entry>");
    let entries: String = (0..4).map(entry).collect();
    let document = format!("<feed xmlns=\"http://www.w3.org/2005/Atom\"><title>q</title>{entries}</feed>");
    let script = |n: u16| match n {
        0..12 => Script::body("application/atom+xml", document.clone()),
        _ => feed(n),
    };
    let replay = Replay::new(32, Duration::from_secs(5), &servers, Urls::of(&servers), script).await;
    let roles = replay.begin().await;
    let begun = Instant::now();
    for n in 12..32 {
        let requests = replay.origin.wait_for(&path(n), 4, PATIENCE).await;
        assert!(requests.len() >= 4, "{}", roles[1].stderr());
    }
    println!("20 ordinary feeds were polled four times within {:.1?}", begun.elapsed());
    until("the others are stored too", async || {
        let entries = replay.cluster.entries().await;
        entries.iter().filter(|stored| stored.entry.id.starts_with("quoted")).count() == 12 * 4
    })
    .await;
    let log = roles[1].stderr();
    assert!(!log.contains("PRECONDITION"), "{log}");
}

/// Two requests for the same feed are an interval apart.
fn shortest_gap(log: &[Record], feeds: usize) -> Duration {
    let gaps = (0..feeds).filter_map(|n| {
        let path = path(u16::try_from(n).unwrap());
        let starts: Vec<Duration> =
            log.iter().filter(|record| *record.path == *path).map(|record| record.start).collect();
        starts.windows(2).map(|pair| pair[1] - pair[0]).min()
    });
    gaps.min().unwrap()
}

/// B8: a memory alarm blocks all publishers for longer than a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_alarm_no_feed_is_fetched_twice_in_a_row() {
    let (shared, own) = (Servers::shared(), Servers::own_with(&["rabbitmq"], false));
    let urls = Urls { queue: own.rabbitmq.clone(), ..Urls::of(&shared) };
    let interval = Duration::from_secs(2);
    let replay = Replay::new(40, interval, &shared, urls, feed).await;
    let roles = replay.begin().await;
    own.control("rabbitmq", &["set_vm_memory_high_watermark", "absolute", "1000000"]);
    // What was in flight ends, and what was claimed before.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let before = replay.origin.request_count();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(replay.origin.request_count(), before, "the alarm blocks publishers");
    own.control("rabbitmq", &["set_vm_memory_high_watermark", "0.6"]);
    replay.two_rounds(&roles).await;
    replay.two_rounds(&roles).await;
    let gap = shortest_gap(&replay.origin.log(), replay.feeds);
    println!("shortest time between two requests for a feed: {gap:.2?}, of {interval:?}");
    // The origin sees arrivals, which are late on a busy machine. It was 0.75 s before.
    assert!(gap > interval / 2, "{gap:?}");
}

/// B3: the gate moves to another Redis, a host is held there, and the first one is the gate again without having been restarted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_heeded_although_the_gate_moved_there_and_back() {
    const REST: Duration = Duration::from_secs(40);
    let (servers, first) = (Servers::shared(), PrivateServer::started(&[]));
    let second = PrivateServer::started(&["--replicaof", "127.0.0.1", &first.port.to_string()]);
    let proxy = CuttingProxy::before(first.port).await;
    let urls = Urls { redis: proxy.url(), ..Urls::of(&servers) };
    let replay = Replay::new(4, Duration::from_secs(2), &servers, urls, feed).await;
    let roles = replay.begin().await;
    second.cli(&["REPLICAOF", "NO", "ONE"]);
    proxy.lead_to(second.port);
    replay.two_rounds(&roles).await;
    let throttled = Script::status(429).header("Retry-After", REST.as_secs().to_string());
    let before = replay.origin.requests(&path(0)).len();
    replay.origin.set(&path(0), throttled.then(feed(0)));
    // One may have begun before the script changed.
    let throttled = loop {
        let requests = replay.origin.wait_for(&path(0), before + 1, PATIENCE).await;
        if let Some(throttled) = requests.into_iter().find(|request| request.status == Some(429)) {
            break throttled;
        }
    };
    // Its hold is in the store, and at the second Redis alone.
    tokio::time::sleep(Duration::from_secs(4)).await;
    proxy.lead_to(first.port);
    replay.two_rounds(&roles).await;
    let requests = replay.origin.requests(&path(0));
    let next = requests.iter().find(|request| request.number > throttled.number).unwrap();
    assert_rested(&throttled, next, REST);
}

/// Declares the exchange of events otherwise than the fleet does, or removes it.
const OTHERWISE: &str = r#"
import pika, sys
do, url, exchange = sys.argv[1:]
channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
if do == "declare":
    channel.exchange_declare(exchange, "fanout", durable=True)
else:
    channel.exchange_delete(exchange)
"#;

/// B5: somebody declared the exchange of events otherwise before the fleet did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_of_another_kind_slows_no_poll_down() {
    let servers = Servers::shared();
    let replay = Replay::new(20, Duration::from_secs(2), &servers, Urls::of(&servers), feed).await;
    at_exchange(OTHERWISE, "declare", &servers, &replay.cluster);
    let roles = replay.begin().await;
    let why = "inequivalent arg";
    until("events cannot be passed on", async || roles[0].stderr().contains(why)).await;
    let (begun, before) = (Instant::now(), replay.origin.request_count());
    for _ in 0..3 {
        replay.two_rounds(&roles).await;
    }
    let polls = replay.origin.request_count() - before;
    println!("{polls} polls in {:.1?} while events could not be passed on", begun.elapsed());
    for role in &roles {
        assert!(!role.stderr().contains("cannot be reached"), "{}", role.stderr());
    }
    at_exchange(OTHERWISE, "delete", &servers, &replay.cluster);
    until("events are passed on", async || roles[0].stderr().contains(WORKS)).await;
}

/// B7: a feed becomes important between the moments when its report is looked at and when it is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_that_becomes_important_while_its_report_is_stored_is_polled_as_such() {
    const FEEDS: u16 = 10;
    let servers = Servers::shared();
    let plain = Urls::of(&servers);
    let proxy = FaultProxy::before(address(&plain.store)).await.unwrap();
    let late = Urls { store: through(&plain.store, &proxy), ..plain.clone() };
    let rare = "category.d = { interval = \"1h\", interval_max = \"1h\" }\ncategory.a = { interval = \"2s\" }";
    let (short, interval) = (Duration::from_secs(2), Duration::from_secs(1));
    let frequent = "category.d = { interval = \"2000ms\", interval_max = \"2000ms\" }";
    let config = config(short).replace(frequent, rare);
    assert!(config.contains(rare));
    let slow = |n| feed(n).delay(Duration::from_secs(4));
    let replay = Replay::with(&config, FEEDS, interval, &servers, plain.clone(), slow).await;
    let scheduler = replay.cluster.start_with(Kind::Scheduler, &late, &[]);
    // It answers calls, and gets no reports.
    let away = Urls { queue: "amqp://127.0.0.1:1".to_owned(), ..plain };
    let mut api = replay.cluster.start_with(Kind::Scheduler, &away, &[]);
    let api_url = api.address();
    let roles = [scheduler, replay.cluster.start(Kind::Worker)];
    proxy.set(Faults { delay: Duration::from_millis(150), ..Faults::default() });
    let client = client();
    for n in 0..FEEDS {
        let requests = replay.origin.wait_for(&path(n), 1, PATIENCE).await;
        assert_eq!(requests.len(), 1, "{}", roles[0].stderr());
        // The moments differ: some reports were stored, and some were not looked at.
        tokio::time::sleep(Duration::from_millis(60)).await;
        let feed = format!("{api_url}/api/v1/feeds/{}", n + 1);
        let changed = client.patch(feed).header("content-type", "application/json").body(r#"{"sla": true}"#);
        assert_eq!(changed.send().await.unwrap().status(), 200, "{}", api.stderr());
    }
    let all = replay.two_rounds(&roles).await;
    println!("each was polled twice within {all:.1?} after it became important");
    assert!(replay.cluster.feeds().await.iter().all(|feed| feed.category == Category::A));
}
