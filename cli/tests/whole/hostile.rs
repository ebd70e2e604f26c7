//! Hostile servers among many good ones: nothing aborts, memory stays bounded, the good ones hardly notice.

use std::time::Duration;

use common::config::defaults;
use common::feed::{Audience, FeedUrl};
use common::host::HostRules;
use common::time::{Clock, SystemClock};
use load_tests::{Coding, Delivery, Feed, Origin, Script, bodies, loopback};
use scheduler::store::{NewFeed, Store};

use crate::harness::{Fleet, Home};

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
interval = "2s"
interval_max = "2s"
[policy.category.d]
interval = "1s"
interval_max = "1s"
[policy.penalty]
transient_first = "1s"
box_after = 1000
bad_feed = "1s"
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
max_body_bytes = 20_000_000
"#;

/// What the configuration above allows bodies to take, and what a process takes beside them: the good feeds' states,
/// buffers, the parser's copies of large bodies, SQLite's cache, code.
const BODIES_BOUND: u64 = 64 * 1_000_000 + 2 * 20_000_000;
const PROCESS_ALLOWANCE: u64 = 160_000_000;

async fn seed(home: &Home, good: &[String], hostile: &[String]) {
    std::fs::create_dir_all(home.path("data")).unwrap();
    let rules = HostRules::new(defaults().host, Vec::new());
    let now = SystemClock.now();
    let feed = |url: &String, subscribers| {
        let url: FeedUrl = url.parse().unwrap();
        let audience = Audience { subscribers, active_subscribers: subscribers, ..Audience::default() };
        NewFeed {
            host: rules.for_url(url.as_url()).key,
            category: if subscribers > 1 { common::feed::Category::C } else { common::feed::Category::D },
            url,
            audience,
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

/// The bucket bound of the lag histogram below which 99 % of the good feeds' claims since the last look lie, and their
/// share at most 100 ms late.
async fn lag(fleet: &Fleet) -> (f64, f64) {
    let buckets = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0];
    let total = fleet.metric("feedfleet_lag_seconds_count{category=\"C\"}").await;
    let mut p99 = f64::INFINITY;
    let mut prompt = 0.0;
    for bound in buckets.into_iter().rev() {
        let below = fleet.metric(&format!("feedfleet_lag_seconds_bucket{{category=\"C\",le=\"{bound}\"}}")).await;
        if below >= total * 0.99 {
            p99 = bound;
        }
        prompt = below / total;
    }
    (p99, prompt)
}

/// Runs good feeds, perhaps with hostile ones among them, until enough good polls were made.
async fn measure(with_hostile: bool) -> (f64, f64, u64) {
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
    let (p99, prompt) = lag(&fleet).await;
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
    (p99, prompt, memory)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_servers_among_a_thousand_good_feeds_abort_nothing_and_delay_hardly_anyone() {
    let (calm_p99, calm_prompt, calm_memory) = measure(false).await;
    let (p99, prompt, memory) = measure(true).await;
    println!(
        "good feeds' lag p99 {calm_p99} s alone ({:.2} % within 0.1 s, {} MB), {p99} s among hostile ones ({:.2} % within \
         0.1 s, {} MB; bound {} MB)",
        calm_prompt * 100.0,
        calm_memory / 1_000_000,
        prompt * 100.0,
        memory / 1_000_000,
        (BODIES_BOUND + PROCESS_ALLOWANCE) / 1_000_000,
    );
    assert!(memory < BODIES_BOUND + PROCESS_ALLOWANCE, "{memory} bytes");
    // Buckets grow by about two: at most the next one.
    assert!(p99 <= calm_p99 * 2.5, "p99 {p99} s, {calm_p99} s without hostile servers");
}
