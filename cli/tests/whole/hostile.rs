//! Hostile servers among many good ones: nothing aborts, memory stays bounded, the good ones hardly notice.

use std::time::Duration;

use common::config::defaults;
use common::feed::{Audience, FeedUrl};
use common::host::HostRules;
use common::time::{Clock, SystemClock};
use load_tests::{Coding, Delivery, Feed, Origin, Script, bodies, loopback};
use scheduler::store::{NewFeed, Store};

use crate::harness::Home;

const GOOD: usize = 1000;
const HOSTS: u16 = 250;
/// A host that misbehaves delays its own feeds alone: the hostile ones have hosts of their own.
const HOSTILE_HOSTS: u16 = 16;
/// Polls of good feeds that a measurement covers.
const POLLS: f64 = 5000.0;

/// Good feeds are in category C, hostile ones in D, so that the lag of each is counted apart.
const CONFIG: &str = r#"
[policy]
mode = "classes"
min_interval = "1s"
hot_minutes = false
no_validator_factor = 1.0
[policy.category.c]
interval = "4s"
interval_max = "4s"
[policy.category.d]
interval = "1s"
interval_max = "1s"
[policy.penalty]
transient_first = "1s"
box_after = 1000
box = "1s"
server_error = "1s"
not_found = "1s"
client_error = "1s"
bad_feed = "1s"
throttled = "1s"
ceiling = "1s"
[host]
gap = "10ms"
[worker]
concurrency = 64
"#;

const FETCH: &str = r#"
timeout = "5s"
idle_timeout = "5s"
large_body_bytes = 1_000_000
large_bodies = 2
max_wire_bytes = 10_000_000
parsers = 2
max_body_bytes = 20_000_000
"#;

/// What the configuration above allows bodies to take (`config.default.toml` has the sum): what is collected off the
/// wire, and for each parser a decoded body, a decoder's window, and about three times the body as a parsed feed.
const BODIES_BOUND: u64 = 64 * 1_000_000 + 2 * 10_000_000 + 2 * (20_000_000 + 16_000_000 + 60_000_000);
/// What the process takes beside bodies: states, connections, SQLite's cache, code, and the allocator's slack.
const PROCESS_ALLOWANCE: u64 = 100_000_000;

/// Two runs of the same differ by as much: of an unoptimised build beside other tests by more than of the optimised one in
/// `dev/soak`, whose figures `docs/measurements.md` has.
const NOISE: Duration = Duration::from_millis(if cfg!(debug_assertions) { 1500 } else { 400 });

async fn seed(home: &Home, good: &[String], hostile: &[String]) {
    std::fs::create_dir_all(home.path("data")).unwrap();
    let rules = HostRules::new(defaults().host, Vec::new());
    let now = SystemClock.now();
    let feed = |url: &String, subscribers| {
        let url: FeedUrl = url.parse().unwrap();
        let audience = Audience { subscribers, active_subscribers: subscribers, ..Audience::default() };
        NewFeed {
            credentials: None,
            host: rules.for_url(url.as_url()).key,
            category: if subscribers > 1 { common::feed::Category::C } else { common::feed::Category::D },
            url,
            audience,
            calm: Vec::new(),
            private: false,
            first_due: now,
        }
    };
    let feeds: Vec<NewFeed> =
        good.iter().map(|url| feed(url, 5)).chain(hostile.iter().map(|url| feed(url, 1))).collect();
    home.store().await.add_feeds(&feeds, now).await.unwrap();
}

fn hostile_scripts() -> Vec<(&'static str, Script)> {
    let rss = "application/rss+xml";
    vec![
        ("/nested", Script::body(rss, bodies::nested(890))),
        ("/nested-deep", Script::body(rss, bodies::nested(40_000))),
        ("/bomb-gzip", Script::bomb(Coding::Gzip, 1000).unwrap()),
        ("/bomb-br", Script::bomb(Coding::Br, 1000).unwrap()),
        ("/bomb-zstd", Script::bomb(Coding::Zstd, 1000).unwrap()),
        ("/endless", Script::body(rss, vec![b'x'; 65_536]).deliver(Delivery::Endless)),
        ("/silent", Script::silent()),
        ("/drip", Script::body(rss, vec![b'x'; 65_536]).deliver(Delivery::Drip(Duration::from_millis(500)))),
        ("/headers", Script::body(rss, "x").deliver(Delivery::HeaderFlood(10_000))),
        ("/interim", Script::body(rss, "x").deliver(Delivery::InterimFlood(100_000))),
    ]
}

/// How late each good feed was asked, after the first round in which all are due at once: the start of each poll less the
/// due time that the poll before had decided. Ascending.
async fn lags(home: &Home) -> Vec<Duration> {
    let store = home.store().await;
    let mut lags = Vec::new();
    for feed in home.feeds_of(&store).await.iter().filter(|feed| feed.audience.subscribers > 1) {
        let polls = store.history(feed.id).await.unwrap().unwrap();
        for pair in polls.windows(2).rev().skip(1) {
            lags.push(pair[0].at.since(pair[1].next_due.unwrap()));
        }
    }
    lags.sort();
    lags
}

fn percentile(ascending: &[Duration], share: f64) -> Duration {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index into a list")]
    let index = (ascending.len() as f64 * share) as usize;
    ascending[index.min(ascending.len() - 1)]
}

/// Runs good feeds, perhaps with hostile ones among them, until enough good polls were made.
async fn measure(with_hostile: bool) -> Measured {
    let origin = Origin::listen(&loopback(HOSTS + HOSTILE_HOSTS, 0)).await.unwrap();
    let mut good = Vec::new();
    for n in 0..GOOD {
        let path = format!("/good{n}");
        origin.set(&path, Script::feed(Feed::rss()));
        good.push(origin.url_on(n % usize::from(HOSTS), &path));
    }
    let mut hostile = Vec::new();
    if with_hostile {
        for (n, (path, script)) in hostile_scripts().into_iter().enumerate() {
            origin.set(path, script);
            hostile.push(origin.url_on(usize::from(HOSTS) + n, path));
        }
    }
    let home = Home::new("");
    let config = std::fs::read_to_string(home.path("config.toml")).unwrap();
    std::fs::write(home.path("config.toml"), format!("{CONFIG}\n{config}\n{FETCH}")).unwrap();
    seed(&home, &good, &hostile).await;

    let mut fleet = home.start(&[]);
    let claims = "feedfleet_lag_seconds_count{category=\"C\"}";
    fleet.wait_for("enough polls", async |fleet| (fleet.metric(claims).await >= POLLS).then_some(())).await;
    let memory = fleet.peak_memory();
    for path in hostile_scripts().into_iter().map(|(path, _)| path).filter(|_| with_hostile) {
        assert!(!origin.requests(path).is_empty(), "{path} was never asked");
    }
    assert!(fleet.is_alive());
    fleet.stop();
    for feed in home.feeds().await {
        let good = feed.audience.subscribers > 1;
        assert_eq!(feed.state.consecutive_failures == 0, good, "{}: {:?}", feed.url, feed.state);
    }
    let lags = lags(&home).await;
    Measured { polls: lags.len(), p50: percentile(&lags, 0.5), p99: percentile(&lags, 0.99), memory }
}

#[derive(Debug)]
struct Measured {
    polls: usize,
    p50: Duration,
    p99: Duration,
    memory: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_servers_among_a_thousand_good_feeds_abort_nothing_and_delay_hardly_anyone() {
    let calm = measure(false).await;
    let among = measure(true).await;
    for (name, measured) in [("alone", &calm), ("among hostile ones", &among)] {
        println!(
            "good feeds {name}: lag p50 {:?}, p99 {:?} over {} polls, peak memory {} MB",
            measured.p50,
            measured.p99,
            measured.polls,
            measured.memory / 1_000_000,
        );
    }
    println!("memory bound {} MB", (BODIES_BOUND + PROCESS_ALLOWANCE) / 1_000_000);
    assert!(among.memory < BODIES_BOUND + PROCESS_ALLOWANCE, "{among:?}");
    assert!(among.p99 <= (calm.p99 * 2).max(NOISE), "{among:?}, alone {calm:?}");
}
