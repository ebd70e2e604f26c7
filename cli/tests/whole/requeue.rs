//! A requeue that is killed half way: each feed is polled once for it, at the rate, conditionally, and gaps are kept.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use common::time::{Clock, SystemClock, Timestamp};
use load_tests::{Feed, Origin, Record, Script, loopback};
use serde_json::{Value, json};

use crate::harness::{Fleet, Home, Stored, watch_stalls};
use store::Feeds;

/// The size: a short form among all tests, the long one in `dev/soak`.
struct Size {
    feeds: usize,
    hosts: u16,
    rate: f64,
    gap: Duration,
    /// Whether the rate is checked too, which needs an otherwise idle machine.
    is_long: bool,
}

const SHORT: Size = Size { feeds: 240, hosts: 20, rate: 30.0, gap: Duration::from_millis(300), is_long: false };
const LONG: Size = Size { feeds: 10_000, hosts: 100, rate: 50.0, gap: Duration::from_secs(1), is_long: true };

/// Gaps are kept between starts, but the origin sees arrivals, late by this much besides stalls. Requests without any spacing would
/// arrive together.
const GAP_NOISE: Duration = Duration::from_millis(220);
const LONGEST: Duration = Duration::from_secs(1200);

fn now() -> Timestamp {
    SystemClock.now()
}

/// Returns the share of `rate` at which requests came between two times.
fn share(log: &[Record], from: Timestamp, until: Timestamp, rate: f64) -> f64 {
    let count = log.iter().filter(|record| record.wall >= from && record.wall < until).count();
    count as f64 / until.since(from).as_secs_f64() / rate
}

async fn read_once(size: &Size, home: &Home, origin: &Origin) -> Fleet {
    let urls = (0..size.feeds).map(|number| {
        let path = format!("/feed{number}");
        origin.set(&path, Script::feed(Feed::rss().initial(1)));
        origin.url_on(number % usize::from(size.hosts), &path)
    });
    let opml = home.opml(urls);
    let mut fleet = home.start(&[&opml]);
    let all = size.feeds as f64;
    fleet
        .wait_within(LONGEST, "the first polls to be stored", async |fleet| {
            let polls = fleet.metric("feedfleet_polls_total{outcome=\"modified\"}").await;
            (polls >= all).then_some(())
        })
        .await;
    fleet
}

async fn begin(fleet: &Fleet, rate: f64) -> Value {
    let body = json!({ "filter": { "all": true }, "rate": rate }).to_string();
    let request = fleet.client.post(format!("{}/api/v1/requeue", fleet.api)).header("content-type", "application/json");
    let answer = request.body(body).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 202);
    serde_json::from_str(&answer.text().await.unwrap()).unwrap()
}

/// Waits until no feed has an unanswered wake.
async fn answered(fleet: &mut Fleet) {
    fleet
        .wait_within(LONGEST, "all wishes to be answered", async |fleet| {
            let requeue = fleet.get("/api/v1/requeue/1").await;
            if requeue["state"] != "done" {
                return None;
            }
            let mut path = "/api/v1/feeds?limit=1000".to_owned();
            loop {
                let page = fleet.get(&path).await;
                if page["items"].as_array().unwrap().iter().any(|feed| feed["wake_at"].is_string()) {
                    return None;
                }
                let Some(next) = page["next"].as_str() else { return Some(()) };
                path = format!("/api/v1/feeds?limit=1000&after={next}");
            }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requeue_that_is_killed_half_way_polls_each_feed_once_at_its_rate() {
    let size = if std::env::var_os("SOAK").is_some() { LONG } else { SHORT };
    let origin = Origin::listen(&loopback(size.hosts, 0)).await.unwrap();
    let gap = humantime::format_duration(size.gap);
    let log = "[log]\nlevel = \"info,gate=trace\"\n";
    let home = Home::new(&format!("[policy]\nimport_spread = \"0s\"\n[host]\ngap = \"{gap}\"\n{log}"));
    let stalls = watch_stalls(&origin);
    let mut fleet = read_once(&size, &home, &origin).await;
    fleet.watch(&stalls);
    let (before, began) = (origin.request_count(), now());
    let begun = begin(&fleet, size.rate).await;
    assert_eq!((&begun["queued"], &begun["hosts"]), (&json!(size.feeds), &json!(size.hosts)), "{begun}");
    fleet
        .wait_within(LONGEST, "half of the requeue", async |_| {
            (origin.request_count() >= before + size.feeds / 2).then_some(())
        })
        .await;
    fleet.kill();
    let (killed, mut stored) = (now(), Stored::default());
    home.feeds().await.iter().for_each(|feed| stored.add(feed));
    let mut fleet = home.start(&[]);
    fleet.watch(&stalls);
    let restarted = now();
    answered(&mut fleet).await;
    let requeue = fleet.get("/api/v1/requeue/1").await;
    assert_eq!(requeue["woken"], json!(size.feeds), "{requeue}");
    fleet.stop();

    let log = origin.log_from(before);
    let mut by_feed: HashMap<&str, Vec<&Record>> = HashMap::new();
    let mut by_host: BTreeMap<_, Vec<&Record>> = BTreeMap::new();
    for record in &log {
        by_feed.entry(record.target()).or_default().push(record);
        by_host.entry(record.local).or_default().push(record);
    }
    assert_eq!(by_feed.len(), size.feeds, "some feed was forgotten");
    // A requeue polls feeds before they are due.
    let proof = stored.prove(&home, &log, &|_| size.gap, Duration::ZERO);
    proof.assert_holds();
    let undone = proof.undone();
    let mut repeated = 0;
    for (feed, records) in &by_feed {
        assert!(records.iter().all(|record| record.is_conditional()), "{feed} was asked for as if it were new");
        repeated += records.len() - 1;
        let was_cut = undone.contains(&records[0].number);
        assert!(records.len() == 1 || (records.len() == 2 && was_cut), "{feed}: {records:?}, killed at {killed}");
    }
    let stalls = stalls.seen();
    let pairs = by_host.values().flat_map(|records| records.windows(2));
    let gaps = pairs.map(|pair| pair[1].wall.since(pair[0].wall) + stalls.near(pair[0].start));
    let shortest = gaps.min().unwrap();
    assert!(shortest + GAP_NOISE >= size.gap, "two requests at one host {shortest:?} apart");

    let store = home.store().await;
    for feed in home.feeds_of(&store).await {
        let polls = store.history(feed.id).await.unwrap().unwrap();
        let counted = polls.iter().filter(|poll| poll.at >= began).count();
        assert_eq!(counted, 1, "polls of feed {} that counted: {polls:?}", feed.id);
    }

    // Feeds are polled after they are woken, so that at no time more were polled than the rate allows; one second of it
    // may be caught up after the downtime.
    for (number, record) in log.iter().enumerate() {
        let allowed = size.rate * (record.wall.since(began).as_secs_f64() + 1.1) + 1.0 + repeated as f64;
        assert!(number as f64 <= allowed, "request {number} after {:?}", record.wall.since(began));
    }
    let last = log.last().unwrap().wall;
    let settled = |from: Timestamp| from.after(size.gap * 2 + Duration::from_secs(1));
    let (first, second) =
        (share(&log, settled(began), killed, size.rate), share(&log, settled(restarted), last, size.rate));
    println!(
        "{} feeds of {} hosts at {}/s: {:.1} % of the rate until it was killed after {:?}, {:.1} % after its restart, which \
         took {:?}; {repeated} fetches under way repeated; shortest gap {shortest:?}",
        size.feeds,
        size.hosts,
        size.rate,
        100.0 * first,
        killed.since(began),
        100.0 * second,
        restarted.since(killed),
    );
    if size.is_long {
        assert!((0.9..=1.1).contains(&first) && (0.9..=1.1).contains(&second), "{first} {second}");
    }
}
