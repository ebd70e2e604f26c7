//! Many pings of a few feeds: each feed is polled once for all of them, after the last one, and a held host is not
//! polled.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use load_tests::judge::Rules;
use load_tests::{Feed, Origin, Record, Script, StallWatch, judge, loopback};
use serde_json::json;

use crate::harness::{Fleet, Home, watch_stalls};

/// The size: a short form among all tests, the long one in `dev/soak`.
struct Size {
    feeds: usize,
    hosts: u16,
    pings: usize,
    /// The time over which they are sent.
    over: Duration,
    gap: Duration,
    /// Feeds that are first pinged once, to measure how long that takes.
    lone: usize,
    /// `ping_quiet`; longer than the default where the machine may stall a client for that long.
    quiet: Duration,
    /// `ping_spread` of the second part; the first has none.
    spread: Duration,
    /// Whether times are checked too, which needs an otherwise idle machine.
    is_long: bool,
}

const SHORT: Size = Size {
    feeds: 10,
    hosts: 5,
    pings: 360,
    over: Duration::from_secs(3),
    gap: Duration::from_millis(500),
    lone: 3,
    quiet: Duration::from_secs(3),
    spread: Duration::from_secs(6),
    is_long: false,
};
const LONG: Size = Size {
    feeds: 100,
    hosts: 50,
    pings: 10_000,
    over: Duration::from_secs(10),
    gap: Duration::from_secs(1),
    lone: 100,
    quiet: Duration::from_secs(1),
    spread: Duration::from_secs(60),
    is_long: true,
};

/// Clients that ping at the same time.
const CLIENTS: usize = 8;
/// Gaps are kept between starts, but the origin sees arrivals, late by this much besides stalls.
const NOISE: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(300);

/// A ping: its feed, and when it was sent and answered, since the origin's start.
struct Ping {
    feed: usize,
    sent: Duration,
    answered: Duration,
}

/// A fleet in which every feed was read once. The last two feeds are on a separate host.
struct Stage {
    _home: Home,
    fleet: Fleet,
    origin: Origin,
    stalls: StallWatch,
    urls: Vec<String>,
    /// Each feed's index in `urls` by its id.
    places: HashMap<i64, usize>,
    /// The last entry that was seen.
    seq: i64,
}

fn path(feed: usize) -> String {
    format!("/feed{feed}")
}

impl Stage {
    async fn set(size: &Size, spread: Duration) -> Self {
        let origin = Origin::listen(&loopback(size.hosts + 1, 0)).await.unwrap();
        let stalls = watch_stalls(&origin);
        let urls: Vec<String> = (0..size.feeds + 2)
            .map(|feed| {
                origin.set(&path(feed), Script::feed(Feed::rss().initial(1)));
                let host = if feed < size.feeds { feed % usize::from(size.hosts) } else { size.hosts.into() };
                origin.url_on(host, &path(feed))
            })
            .collect();
        let home = Home::new(&format!(
            "[policy]\nimport_spread = \"0s\"\nping_spread = \"{}\"\nping_quiet = \"{}\"\n[host]\ngap = \"{}\"\n\
             [api]\npings_per_minute = 1000000\n",
            humantime::format_duration(spread),
            humantime::format_duration(size.quiet),
            humantime::format_duration(size.gap),
        ));
        let opml = home.opml(urls.iter().cloned());
        let fleet = home.start(&[&opml]);
        fleet.watch(&stalls);
        let mut stage = Stage { _home: home, fleet, origin, stalls, urls, places: HashMap::new(), seq: 0 };
        stage.entries_of(size.feeds + 2).await;
        let feeds = stage.fleet.get("/api/v1/feeds?limit=1000").await;
        for feed in feeds["items"].as_array().unwrap() {
            let place = stage.urls.iter().position(|url| feed["url"] == url.as_str()).unwrap();
            stage.places.insert(feed["id"].as_i64().unwrap(), place);
        }
        stage
    }

    /// Waits for `entries` further entries; returns the id of each one's feed and when it appeared in the store.
    async fn entries_of(&mut self, entries: usize) -> Vec<(i64, Duration)> {
        let (mut seen, mut seq, origin) = (Vec::new(), self.seq, &self.origin);
        self.fleet
            .wait_within(LONGEST, "entries in the store", async |fleet| {
                let page = fleet.get(&format!("/api/v1/entries?after={seq}&limit=1000")).await;
                for entry in page["items"].as_array().unwrap() {
                    seq = entry["seq"].as_i64().unwrap();
                    seen.push((entry["feed_id"].as_i64().unwrap(), origin.elapsed()));
                }
                (seen.len() >= entries).then_some(())
            })
            .await;
        self.seq = seq;
        seen
    }

    async fn ping(&self, feed: usize) -> Ping {
        loop {
            let sent = self.origin.elapsed();
            let request = self.fleet.client.post(format!("{}/ping", self.fleet.api));
            let request = request.header("content-type", "application/json");
            let answer = request.body(json!({ "url": self.urls[feed] }).to_string()).send().await.unwrap();
            match answer.status().as_u16() {
                200 => return Ping { feed, sent, answered: self.origin.elapsed() },
                // An overloaded store answers 503, and the client retries.
                status => assert_eq!(status, 503),
            }
        }
    }

    /// Publishes entries and pings their feeds, together or one after the other; returns how long each entry took to
    /// the store.
    async fn announced(&mut self, size: &Size, together: bool) -> Vec<Duration> {
        let (mut sent, mut times) = (HashMap::new(), Vec::new());
        for feed in 0..size.lone {
            self.origin.publish(&path(feed), 1);
            sent.insert(feed, self.ping(feed).await.sent);
            if !together || feed + 1 == size.lone {
                for (id, at) in self.entries_of(sent.len()).await {
                    times.push(at.saturating_sub(sent.remove(&self.places[&id]).unwrap()));
                }
            }
        }
        times.sort();
        times
    }

    /// Throttles a feed of the last host, so that its host is held for longer than the test.
    async fn throttle(&mut self, size: &Size) {
        self.origin.set(&path(size.feeds), Script::status(429).header("Retry-After", "3600"));
        self.ping(size.feeds).await;
        self.fleet
            .wait_within(LONGEST, "a hold", async |fleet| {
                (fleet.metric("feedfleet_polls_total{outcome=\"throttled\"}").await >= 1.0).then_some(())
            })
            .await;
    }

    /// Pings all feeds in turn, including those on the held host.
    async fn burst(&self, size: &Size) -> Vec<Ping> {
        let began = tokio::time::Instant::now();
        let clients = (0..CLIENTS).map(async |first| {
            let mut pings = Vec::new();
            for number in (first..size.pings).step_by(CLIENTS) {
                tokio::time::sleep_until(began + size.over.mul_f64(number as f64 / size.pings as f64)).await;
                pings.push(self.ping(number % self.urls.len()).await);
            }
            pings
        });
        join_all(clients).await.into_iter().flatten().collect()
    }

    /// Waits until every feed was polled after its last ping and no wake is pending.
    async fn answered(&mut self, size: &Size, pings: &[Ping]) {
        let last = last_pings(pings);
        let origin = &self.origin;
        self.fleet
            .wait_within(LONGEST, "every ping to be answered", async |fleet| {
                let asked = |feed: usize| origin.requests(&path(feed)).last().is_some_and(|r| r.start > last[&feed]);
                if !(0..size.feeds).all(asked) {
                    return None;
                }
                let feeds = fleet.get("/api/v1/feeds?limit=1000").await;
                let wakes = feeds["items"].as_array().unwrap().iter().filter(|feed| feed["wake_at"].is_string());
                // Those of the held host are still pending.
                (wakes.count() == 2).then_some(())
            })
            .await;
    }
}

fn last_pings(pings: &[Ping]) -> HashMap<usize, Duration> {
    let mut last = HashMap::new();
    for ping in pings {
        let sent: &mut Duration = last.entry(ping.feed).or_default();
        *sent = ping.sent.max(*sent);
    }
    last
}

/// Returns how many pauses there may have been in the pings of a feed, from the fleet's point of view, between sending
/// and response.
fn pauses(size: &Size, pings: &[Ping], feed: usize) -> usize {
    let mut times: Vec<_> =
        pings.iter().filter(|ping| ping.feed == feed).map(|ping| (ping.sent, ping.answered)).collect();
    times.sort();
    times.windows(2).filter(|pair| pair[1].1.saturating_sub(pair[0].0) >= size.quiet).count()
}

async fn many_pings(size: &Size, spread: Duration) {
    let mut stage = Stage::set(size, spread).await;
    let times = stage.announced(size, !spread.is_zero()).await;
    stage.throttle(size).await;
    // Otherwise every feed would rest for the remainder of the spread, which is longer than the pings last.
    tokio::time::sleep(spread).await;
    let before = stage.origin.request_count();
    let pings = stage.burst(size).await;
    let took = pings.iter().map(|ping| ping.answered).max().unwrap() - pings[0].sent;
    let during = stage.origin.request_count() - before;
    stage.answered(size, &pings).await;
    tokio::time::sleep(if size.is_long { Duration::from_secs(75) } else { 2 * size.quiet }).await;

    let burst = stage.origin.log_from(before);
    let fetches = |feed: usize| burst.iter().filter(|record| record.path.as_ref() == path(feed)).count();
    println!(
        "spread {spread:?}: from ping to stored entry p50 {:.2} s, most {:.2} s; {} pings on {} feeds within {took:.1?}: \
         {during} fetches meanwhile, {} in all, {} pauses",
        times[times.len() / 2].as_secs_f64(),
        times.last().unwrap().as_secs_f64(),
        pings.len(),
        stage.urls.len(),
        burst.len(),
        (0..size.feeds).map(|feed| pauses(size, &pings, feed)).sum::<usize>(),
    );
    // A ping that nothing ends for thirty quiet times, or for the spread, is answered nevertheless.
    let longest = spread.max(30 * size.quiet);
    let windows = usize::try_from(took.as_millis() / longest.as_millis()).unwrap();
    for feed in 0..size.feeds {
        let most = 1 + pauses(size, &pings, feed) + windows;
        assert!((1..=most).contains(&fetches(feed)), "feed {feed} was asked {} times", fetches(feed));
    }
    assert_eq!(fetches(size.feeds) + fetches(size.feeds + 1), 0, "the held host was asked");
    let log: Vec<Record> = stage.origin.log();
    let card = judge(&log, &Rules { gap: size.gap, slack: NOISE, stalls: stage.stalls.seen(), ..Rules::default() });
    assert!(card.is_clean(), "{card}");
    if size.is_long {
        assert!(burst.len() <= size.feeds, "{} fetches", burst.len());
        let (p50, most) = (times[times.len() / 2], *times.last().unwrap());
        let in_time = if spread.is_zero() { p50 < Duration::from_secs(2) } else { most < Duration::from_secs(60) };
        assert!(in_time, "from ping to stored entry {times:?}");
    }
    stage.fleet.stop();
}

fn size() -> Size {
    if std::env::var_os("SOAK").is_some() { LONG } else { SHORT }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pings_of_a_feed_are_one_poll_after_the_last_of_them() {
    many_pings(&size(), Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pings_of_a_feed_are_one_poll_within_the_spread() {
    let size = size();
    many_pings(&size, size.spread).await;
}
