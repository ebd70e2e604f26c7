//! Many feeds whose redirects lead to one busy host, next to feeds that do not use it: no other feed waits.

use std::time::Duration;

use load_tests::{Feed, Origin, Record, Rules, Script, judge, loopback};
use serde_json::json;

use crate::harness::{Home, PATIENCE, watch_stalls};

/// The size: a short form among all tests, the long one in `dev/soak`.
struct Size {
    redirecting: usize,
    control: usize,
    concurrency: usize,
    watched: Duration,
}

impl Size {
    fn pick() -> Self {
        match std::env::var_os("SOAK") {
            None => Size { redirecting: 150, control: 20, concurrency: 48, watched: Duration::from_secs(25) },
            Some(_) => Size { redirecting: 600, control: 40, concurrency: 256, watched: Duration::from_secs(120) },
        }
    }
}

const INTERVAL: Duration = Duration::from_secs(3);
const SLA_INTERVAL: Duration = Duration::from_secs(5);
/// The longest silence beyond a feed's interval, besides stalls. An unoptimised build on a loaded machine needs more. Without parking it is the
/// fetch timeout, 20 s and more.
const NOISE: Duration = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 });

fn config(size: &Size, gap: Duration) -> String {
    format!(
        r#"
[policy]
mode = "classes"
min_interval = "1s"
salt = 0.0
hot_minutes = false
no_validator_factor = 1.0
import_spread = "0s"
[policy.category.a]
interval = "{sla}s"
[policy.category.d]
interval = "{interval}s"
interval_max = "{interval}s"
[host]
gap = "{gap}s"
[worker]
concurrency = {concurrency}
"#,
        sla = SLA_INTERVAL.as_secs(),
        interval = INTERVAL.as_secs(),
        gap = gap.as_secs(),
        concurrency = size.concurrency,
    )
}

/// Returns the longest time without a request to a path, from its first request up to `end`.
fn longest_silence(requests: &[Record], end: Duration) -> Duration {
    let mut starts: Vec<Duration> = requests.iter().map(|request| request.start).collect();
    starts.sort();
    starts.push(end);
    starts.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn p29_feeds_that_redirect_to_a_busy_host_keep_nobody_else_waiting() {
    beside_a_busy_host(Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p29_feeds_that_redirect_to_a_busy_host_with_a_wider_gap_keep_nobody_else_waiting() {
    beside_a_busy_host(Duration::from_secs(2)).await;
}

async fn beside_a_busy_host(gap: Duration) {
    let size = Size::pick();
    let hosts = size.redirecting + size.control + 2;
    let origin = Origin::listen(&loopback(u16::try_from(hosts).unwrap(), 0)).await.unwrap();
    let feed = || Script::feed(Feed::rss().initial(1));
    let (hub, sla) = (hosts - 1, hosts - 2);
    origin.set("/sla", feed());
    let control: Vec<String> = (0..size.control).map(|number| format!("/control{number}")).collect();
    control.iter().for_each(|path| origin.set(path, feed()));
    let redirecting: Vec<String> = (0..size.redirecting).map(|number| format!("/away{number}")).collect();
    for (number, path) in redirecting.iter().enumerate() {
        let there = format!("/hub{number}");
        origin.set(&there, feed());
        origin.set(path, Script::redirect(302, origin.url_on(hub, &there)));
    }

    let home = Home::new(&config(&size, gap));
    let stalls = watch_stalls(&origin);
    let mut fleet = home.start(&[]);
    fleet.watch(&stalls);
    let add = async |url: String, sla: bool| {
        let body = json!({ "url": url, "sla": sla }).to_string();
        let request = fleet.client.post(format!("{}/api/v1/feeds", fleet.api)).body(body);
        let answer = request.header("content-type", "application/json").send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
    };
    for (number, path) in control.iter().enumerate() {
        add(origin.url_on(size.redirecting + number, path), false).await;
    }
    add(origin.url_on(sla, "/sla"), true).await;
    for path in control.iter().chain([&"/sla".to_owned()]) {
        assert!(!origin.wait_for(path, 2, PATIENCE).await.is_empty(), "{path} is not polled");
    }
    let lines =
        redirecting.iter().enumerate().map(|(host, path)| json!({ "url": origin.url_on(host, path) }).to_string());
    let bulk = lines.collect::<Vec<_>>().join("\n");
    let request = fleet.client.post(format!("{}/api/v1/feeds/bulk", fleet.api)).body(bulk);
    let answer = request.header("content-type", "application/x-ndjson").send().await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.status());

    tokio::time::sleep(size.watched).await;
    let end = origin.log().iter().map(|record| record.start).max().unwrap();
    let silences = |paths: &[String]| {
        let silence = |path: &String| longest_silence(&origin.requests(path), end);
        paths.iter().map(silence).max().unwrap()
    };
    let (others, promised) = (silences(&control), silences(&["/sla".to_owned()]));
    let asked = redirecting.iter().filter(|path| !origin.requests(path).is_empty()).count();
    let at_hub = origin.log().iter().filter(|record| record.path.starts_with("/hub")).count();
    let parked = fleet.metric("feedfleet_parks_total{kind=\"redirect\"}").await;
    println!(
        "gap {gap:?}: {} feeds redirect to one host, {asked} were asked and {parked} parked there; longest silence of {} others {others:?}, \
         of the feed under an SLA {promised:?}; {} requests at the host",
        size.redirecting, size.control, at_hub,
    );
    assert!(fleet.is_alive());
    let stalls = stalls.seen();
    let noise = NOISE + stalls.longest();
    assert!(others <= INTERVAL + noise, "{others:?}");
    assert!(promised <= SLA_INTERVAL + noise, "{promised:?}");
    assert_eq!(asked, size.redirecting, "their own hosts are free");
    assert!(parked >= asked as f64 - 1.0);
    let possible = usize::try_from(size.watched.as_secs() / gap.as_secs()).unwrap();
    assert!(at_hub * 2 >= possible, "{at_hub} at the hub, {possible} are possible");
    let card = judge(&origin.log(), &Rules { gap, slack: gap.mul_f64(0.8), stalls, ..Rules::default() });
    assert!(card.violations.is_empty(), "{card}");
    fleet.stop();
}
