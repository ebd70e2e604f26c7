//! Feeds whose entries a hub pushes: with a hub that others wrote (Flask-WebSub, from PyPI), with the hub of another feedfleet, with short
//! leases, and under a flood of forgeries.

mod flood;
mod leases;

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use common::testing::Port;
use common::time::Timestamp;
use load_tests::{Feed, Origin, Script, loopback};
use serde_json::json;

use crate::harness::{Fleet, Home};

/// The size: a short form among all tests, the long one in `dev/soak`.
struct Size {
    feeds: usize,
    updates: usize,
}

impl Size {
    fn pick() -> Self {
        match std::env::var_os("SOAK") {
            None => Size { feeds: 10, updates: 6 },
            Some(_) => Size { feeds: 200, updates: 10 },
        }
    }
}

/// The interval of every feed without pushes, and how often it fits into the one with them.
const INTERVAL: Duration = Duration::from_secs(2);
const FACTOR: u32 = 12;

/// Returns a configuration for hubs on loopback that reach the fleet at this address.
fn config(address: &str) -> String {
    let key = base64::prelude::BASE64_STANDARD.encode([7; 32]);
    let interval = INTERVAL.as_secs();
    format!(
        r#"
[api]
public_url = "http://{address}"
max_connections = 2000
max_connections_per_address = 2000
[secrets]
key = "{key}"
[push]
secret_over_http = true
[policy]
mode = "classes"
min_interval = "1s"
salt = 0.0
hot_minutes = false
no_validator_factor = 1.0
push_factor = {FACTOR}.0
import_spread = "0s"
ping_spread = "1s"
[policy.category.d]
interval = "{interval}s"
interval_max = "{interval}s"
[host]
gap = "0s"
parallel = 64
"#
    )
}

/// The hub of Flask-WebSub. Killed when dropped.
struct Flask {
    child: Child,
    url: String,
}

impl Drop for Flask {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A hub that feeds announce.
enum Hub {
    /// Flask-WebSub.
    OfOthers(Flask),
    /// Another feedfleet, which polls the feeds often.
    Own(Box<Fleet>, Home),
}

impl Hub {
    fn flask(home: &Home, port: &Port) -> Self {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR"));
        let python = Command::new(tree.join("../dev/receivers")).arg(REQUIREMENTS).output().unwrap();
        assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
        let mut command = Command::new(String::from_utf8(python.stdout).unwrap().trim());
        command.arg(tree.join("tests/whole/push/flask_hub.py")).arg(port.number().to_string()).arg(home.path("hub.db"));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "listening\n", "the hub did not start");
        Hub::OfOthers(Flask { child, url: format!("http://{}/hub", port.address()) })
    }

    async fn own(port: &Port, origin: &Origin, paths: &[String]) -> Self {
        let config = config(&port.address()).replace(&format!("\"{}s\"", INTERVAL.as_secs()), "\"500ms\"");
        let config = config.replace("min_interval = \"1s\"", "min_interval = \"500ms\"");
        let config = config.replace("secret_over_http = true", "websub = false");
        // All feeds change at the same moment, and their pushes go to one host. With the default gap of 20 ms, 200 of them take 4 s.
        let config = format!("{config}[delivery]\nhub = \"known\"\nhub_lease_min = \"1s\"\ntarget_gap = \"2ms\"\n");
        let home = Home::with_fetch(&config, &format!("user_agent_url = \"{HUBS_AGENT}\"\n"));
        let hub = home.start_at(&port.address(), &[]);
        add(&hub, origin, paths).await;
        Hub::Own(Box::new(hub), home)
    }

    /// Notifies a foreign hub that a topic changed, as a publisher does. feedfleet's own hub polls its topics.
    async fn publish(&self, client: &reqwest::Client, topic: &str) {
        let Hub::OfOthers(Flask { url, .. }) = self else { return };
        let form = format!("hub.mode=publish&hub.topic={}", topic.replace(':', "%3A").replace('/', "%2F"));
        let request = client.post(url).header("content-type", "application/x-www-form-urlencoded").body(form);
        assert_eq!(request.send().await.unwrap().status(), 202);
    }
}

/// Names the own hub in its requests to the feeds.
const HUBS_AGENT: &str = "https://hub.example/";

/// Adds feeds to a fleet.
async fn add(fleet: &Fleet, origin: &Origin, paths: &[String]) {
    let lines: Vec<String> = paths.iter().map(|path| json!({ "url": origin.url(path) }).to_string()).collect();
    let request = fleet.client.post(format!("{}/api/v1/feeds/bulk", fleet.api)).body(lines.join("\n"));
    assert!(request.header("content-type", "application/x-ndjson").send().await.unwrap().status().is_success());
}

/// What the hub needs from PyPI, pinned.
const REQUIREMENTS: &str = "cli/tests/whole/webhooks/flask-websub.txt";

/// Waits until the hub has verified the subscriptions of all feeds.
async fn subscribed(fleet: &mut Fleet, feeds: usize) {
    // A hub may let unconfirmed requests wait for some minutes.
    fleet
        .wait_within(Duration::from_secs(600), "verified subscriptions", async |fleet| {
            let mut verified = 0;
            for id in 1..=feeds {
                let feed = fleet.get(&format!("/api/v1/feeds/{id}")).await;
                verified += usize::from(feed["push"]["state"] == "verified");
            }
            (verified == feeds).then_some(())
        })
        .await;
}

/// Entries as far as their events were read. Each event is read once, so that a test that waits takes no time from what it measures.
#[derive(Default)]
struct Stored {
    /// By id, with each time at which they were announced as new: events do not move when an entry is updated.
    entries: HashMap<String, Vec<Timestamp>>,
    after: i64,
}

impl Stored {
    /// Reads on to the end; returns the number of entries.
    async fn read(&mut self, fleet: &Fleet) -> usize {
        loop {
            let url = format!("{}/api/v1/events?kind=entry.new&after={}&limit=1000", fleet.api, self.after);
            // By default they are a stream.
            let answer = fleet.client.get(url).header("accept", "application/json").send().await.unwrap();
            let page: serde_json::Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
            for event in page["items"].as_array().unwrap() {
                let at = serde_json::from_value(event["at"].clone()).unwrap();
                self.entries.entry(event["entry"]["id"].as_str().unwrap().to_owned()).or_default().push(at);
            }
            self.after = page["next"].as_i64().unwrap();
            if page["items"].as_array().unwrap().is_empty() {
                return self.entries.len();
            }
        }
    }
}

/// Reads all entries from the first one on.
async fn stored(fleet: &Fleet) -> HashMap<String, Vec<Timestamp>> {
    let mut stored = Stored::default();
    stored.read(fleet).await;
    stored.entries
}

/// Returns whether the fleet made a request, and not its hub.
fn is_poll(record: &load_tests::Record) -> bool {
    let agent = record.header("user-agent");
    agent.is_some_and(|agent| agent.starts_with("feedfleet") && !agent.contains(HUBS_AGENT))
}

/// A hub written by others: everything that it sends is stored once, quickly, and most polls are saved. When it dies, entries are found
/// by polls, and the old pace comes back.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_hub_of_others_sends_is_stored_once_and_saves_polls_until_it_dies() {
    let hub_port = Port::reserved();
    let files = Home::new("");
    let hub = Hub::flask(&files, &hub_port);
    stores_and_saves(hub_port, async |_, _, _| hub).await;
}

/// The same with the hub of another feedfleet.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_hub_of_feedfleet_sends_is_stored_once_and_saves_polls_until_it_dies() {
    stores_and_saves(Port::reserved(), async |port, origin, paths| Hub::own(port, origin, paths).await).await;
}

async fn stores_and_saves(hub_port: Port, start: impl AsyncFnOnce(&Port, &Origin, &[String]) -> Hub) {
    let size = Size::pick();
    let port = Port::reserved();
    let home = Home::new(&config(&port.address()));
    let origin = Origin::listen(&loopback(1, 0)).await.unwrap();
    let paths: Vec<String> = (0..size.feeds).map(|number| format!("/feed{number}")).collect();
    let hub_url = format!("http://{}/hub", hub_port.address());
    for path in &paths {
        let links = format!("<{hub_url}>; rel=\"hub\", <{}>; rel=\"self\"", origin.url(path));
        origin.set(path, Script::feed(Feed::atom().initial(2)).header("Link", links));
    }
    let hub = start(&hub_port, &origin, &paths).await;
    let mut fleet = home.start_at(&port.address(), &[]);
    add(&fleet, &origin, &paths).await;
    subscribed(&mut fleet, size.feeds).await;

    let (mut published, mut found) = (HashMap::<String, Timestamp>::new(), Stored::default());
    for update in 1..=size.updates {
        for path in &paths {
            let items = origin.publish(path, 1);
            published.extend(items.into_iter().map(|item| (item.id, origin.started().after(origin.elapsed()))));
            hub.publish(&fleet.client, &origin.url(path)).await;
        }
        let expected = size.feeds * (2 + update);
        fleet.wait_for("the update", async |fleet| (found.read(fleet).await >= expected).then_some(())).await;
    }
    let entries = stored(&fleet).await;
    assert_eq!(entries.len(), size.feeds * (2 + size.updates), "stored = sent");
    assert!(entries.values().all(|seen| seen.len() == 1), "none doubled");
    let mut delays: Vec<Duration> = published.iter().map(|(id, at)| entries[id][0].since(*at)).collect();
    delays.sort();
    let (p50, p99) = (delays[delays.len() / 2], delays[delays.len() * 99 / 100]);
    println!("{} updates: p50 {p50:?}, p99 {p99:?}", delays.len());
    // The short form runs beside other tests.
    let (median, longest) = if std::env::var_os("SOAK").is_some() { (1, 5) } else { (5, 20) };
    let in_time = p50 < Duration::from_secs(median) && p99 < Duration::from_secs(longest);
    assert!(in_time, "p50 {p50:?}, p99 {p99:?}");

    saves_polls(&mut fleet, &origin, &paths).await;
    match hub {
        Hub::Own(hub, _home) => hub.kill(),
        Hub::OfOthers(hub) => drop(hub),
    }
    comes_back_without_a_hub(&mut fleet, &origin, &paths).await;
    let entries = stored(&fleet).await;
    assert!(entries.values().all(|seen| seen.len() == 1), "none doubled");
    fleet.stop();
}

/// Over one stretched interval each feed is polled about once, instead of as often as that has unpushed ones.
async fn saves_polls(fleet: &mut Fleet, origin: &Origin, paths: &[String]) {
    fleet
        .wait_for("reliable pushes", async |fleet| {
            let mut slow = 0;
            for id in 1..=paths.len() {
                let explained = fleet.get(&format!("/api/v1/feeds/{id}/explain")).await;
                slow += usize::from(explained["text"].as_str().unwrap().contains("pushed reliably"));
            }
            (slow == paths.len()).then_some(())
        })
        .await;
    let (from, begun) = (origin.request_count(), origin.elapsed());
    tokio::time::sleep(INTERVAL * FACTOR).await;
    // A little less than a stretched interval: two polls of one feed are further apart, however late this test wakes up.
    let until = begun + INTERVAL * FACTOR - INTERVAL / 2;
    let made = origin.log_from(from).iter().filter(|record| is_poll(record) && record.start < until).count();
    let unpushed = paths.len() * FACTOR as usize;
    println!("{made} polls instead of {unpushed}");
    assert!(made * 10 <= unpushed, "{made} polls instead of {unpushed}");
}

/// What the hub does not send is found by the next poll, and from then on each feed has its own pace.
async fn comes_back_without_a_hub(fleet: &mut Fleet, origin: &Origin, paths: &[String]) {
    // Within half a minute a push answers for what a poll finds, because the two may cross.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = stored(fleet).await.len();
    let lost = Instant::now();
    for path in paths {
        origin.publish(path, 1);
    }
    let expected = before + paths.len();
    fleet.wait_for("lost entries", async |fleet| (stored(fleet).await.len() >= expected).then_some(())).await;
    let took = lost.elapsed();
    println!("lost deliveries were found within {took:?}");
    assert!(took < INTERVAL * FACTOR + Duration::from_secs(10), "{took:?}");
    let from = origin.request_count();
    let again = Instant::now();
    let late = |log: &[load_tests::Record]| -> Vec<usize> {
        let polled = |path: &String| log.iter().filter(|record| *record.path == **path && is_poll(record)).count();
        (1..=paths.len()).filter(|id| polled(&paths[id - 1]) < 2).collect()
    };
    let mut explained_late = false;
    let twice = async |fleet: &Fleet| {
        let late = late(&origin.log_from(from));
        if again.elapsed() > INTERVAL * FACTOR / 2 && !explained_late {
            explained_late = true;
            for id in late.iter().take(3) {
                let explained = fleet.get(&format!("/api/v1/feeds/{id}/explain")).await;
                println!("{} feeds late, such as {id}: {}", late.len(), explained["text"].as_str().unwrap_or_default());
            }
        }
        late.is_empty().then_some(())
    };
    fleet.wait_for("two polls of each feed", twice).await;
    let took = again.elapsed();
    println!("two polls of each feed took {took:?}");
    assert!(took < INTERVAL * FACTOR, "{took:?}: a stretched interval has one poll of each feed");
}
