//! Webhooks: signed, in order, retried, replayed, and delivered at least once whatever is killed.

mod crowd;
pub(crate) mod examples;
mod guard;
mod hub;
mod hub_cases;
mod kills;
pub(crate) mod receiver;

use std::collections::BTreeSet;
use std::time::Duration;

use common::webhook::WebhookSecret;
use load_tests::{Feed, Origin, Pace, Script, loopback};
use serde_json::{Value, json};

use crate::harness::{Fleet, Home};
use receiver::{Received, Receiver, Reply};

const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

/// Feeds are polled every second, and a target is given up after some seconds.
const CONFIG: &str = r#"
[policy]
mode = "classes"
min_interval = "1s"
hot_minutes = false
no_validator_factor = 1.0
import_spread = "0s"
[policy.category.c]
interval = "1s"
interval_max = "1s"
[policy.category.d]
interval = "1s"
interval_max = "1s"
[host]
gap = "10ms"
parallel = 8
[secrets]
key = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
"#;

fn home(delivery: &str) -> Home {
    Home::new(&format!("{CONFIG}\n[delivery]\n{delivery}"))
}

/// Returns feeds that have a new entry every second.
async fn busy(feeds: usize) -> (Origin, Vec<String>) {
    let origin = Origin::listen(&loopback(1, 0)).await.unwrap();
    let urls = (0..feeds).map(|number| {
        let path = format!("/feed{number}");
        let feed = Feed::rss().initial(3).shown(1000).pace(Pace::Every(Duration::from_millis(900)));
        origin.set(&path, Script::feed(feed));
        origin.url(&path)
    });
    let urls = urls.collect();
    (origin, urls)
}

/// Runs an operator's command, and returns what it prints as JSON.
fn operator(home: &Home, fleet: &Fleet, arguments: &[&str]) -> Value {
    let mut arguments = arguments.to_vec();
    arguments.push("--json");
    let output = home.command(&arguments).env("FEEDFLEET_SERVER", &fleet.api).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs an operator's command that is refused, and returns its error.
fn refusal(home: &Home, fleet: &Fleet, arguments: &[&str]) -> String {
    let output = home.command(arguments).env("FEEDFLEET_SERVER", &fleet.api).output().unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the numbers of the events of accepted requests, in the order in which they arrived.
fn accepted(log: &[Received]) -> Vec<i64> {
    let events = log.iter().filter(|received| received.is_accepted()).flat_map(Received::events);
    events.map(|event| event["seq"].as_i64().unwrap()).collect()
}

/// Returns all events of a kind that the fleet has, by number.
async fn stored(fleet: &Fleet, query: &str) -> Vec<i64> {
    let (mut after, mut all) = (0, Vec::new());
    loop {
        let request = fleet.client.get(format!("{}/api/v1/events?after={after}&{query}", fleet.api));
        let answer = request.header("accept", "application/json").send().await.unwrap().text().await.unwrap();
        let page: Value = serde_json::from_str(&answer).unwrap();
        all.extend(page["items"].as_array().unwrap().iter().map(|event| event["seq"].as_i64().unwrap()));
        after = page["next"].as_i64().unwrap();
        if page["more"] == false {
            return all;
        }
    }
}

async fn received(fleet: &mut Fleet, receiver: &Receiver, path: &str, requests: usize) -> Vec<Received> {
    fleet
        .wait_for("webhooks", async |_| {
            let log = receiver.log(path);
            (log.len() >= requests).then_some(log)
        })
        .await
}

fn assert_signed(received: &Received, secret: &WebhookSecret) {
    let (id, timestamp) = (received.header("webhook-id"), received.header("webhook-timestamp"));
    let expected = secret.sign(id, timestamp.parse().unwrap(), &received.body);
    let signatures = received.header("webhook-signature");
    assert!(signatures.split(' ').any(|signature| signature == expected), "{signatures}");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_arrive_signed_and_in_order_and_a_failed_request_is_retried_under_its_id() {
    let (home, receiver) = (home(""), Receiver::listen().await);
    receiver.set("/hook", &[Reply::Status(500), Reply::RetryAfter(429, 3), Reply::Status(200)]);
    let (_origin, urls) = busy(4).await;
    let mut fleet = home.start(&[]);
    let target = receiver.url("/hook");
    let added = operator(&home, &fleet, &["subscription", "add", &target, "--kind", "entry.*", "--batch", "5"]);
    let secret: WebhookSecret = added["secret"].as_str().unwrap().parse().unwrap();
    for url in &urls {
        operator(&home, &fleet, &["feed", "add", url]);
    }
    // Now, because only the last twenty deliveries are shown.
    let shown = fleet
        .wait_for("the first delivery to be shown", async |fleet| {
            let shown = operator(&home, fleet, &["subscription", "show", "1"]);
            shown["deliveries"].as_array().is_some_and(|all| !all.is_empty()).then_some(shown)
        })
        .await;
    assert_eq!(shown["secret"], Value::Null, "shown once");
    let first = shown["deliveries"].as_array().unwrap().last().unwrap();
    let expected = (&json!("server_error"), &json!(500), &json!("answered 500 [31m"));
    assert_eq!((&first["outcome"], &first["status"], &first["detail"]), expected);

    let log = received(&mut fleet, &receiver, "/hook", 8).await;
    let [failed, throttled, repeated] = &log[..3] else { unreachable!() };
    let id = failed.header("webhook-id");
    assert_eq!([throttled.header("webhook-id"), repeated.header("webhook-id")], [id; 2]);
    assert_eq!([&throttled.body, &repeated.body].map(|body| body == &failed.body), [true; 2]);
    assert!(repeated.at.since(throttled.at) >= Duration::from_secs(3), "Retry-After is kept to");
    let ids: BTreeSet<&str> = log[2..].iter().map(|it| it.header("webhook-id")).collect();
    assert_eq!(ids.len(), log.len() - 2, "each request has its own id");
    for request in &log {
        assert_signed(request, &secret);
        assert_eq!(request.header("content-type"), "application/json");
        let envelope = request.json();
        assert_eq!((&envelope["type"], &envelope["data"]["subscription"]), (&json!("events"), &added["id"]));
        assert!((1..=5).contains(&request.events().len()));
    }
    let seqs = accepted(&log);
    assert!(seqs.is_sorted_by(|one, next| one < next), "{seqs:?}");
    assert_eq!(seqs, stored(&fleet, "kind=entry.*").await[..seqs.len()]);

    for outcome in ["delivered", "throttled", "server_error"] {
        assert!(fleet.metric(&format!("feedfleet_deliveries_total{{outcome=\"{outcome}\"}}")).await >= 1.0);
    }
    assert!(fleet.metric("feedfleet_delivery_lag_seconds_count").await >= 1.0);
    fleet.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_is_filtered_paused_replayed_rotated_and_removed() {
    let (home, receiver) = (home(""), Receiver::listen().await);
    let (_origin, urls) = busy(2).await;
    let mut fleet = home.start(&[]);
    operator(&home, &fleet, &["feed", "add", &urls[0]]);
    operator(&home, &fleet, &["feed", "add", &urls[1]]);
    let (all, one) = (receiver.url("/all"), receiver.url("/one"));
    let feed = ["subscription", "add", &one, "--feed", &urls[1], "--format", "jsonfeed", "--signature", "ed25519"];
    let added = operator(&home, &fleet, &feed);
    let key: WebhookSecret = added["secret"].as_str().unwrap().parse().unwrap();
    assert_eq!(added["public_key"], key.public_key().unwrap());
    let added = operator(&home, &fleet, &["subscription", "add", &all, "--after", "0"]);
    let secret: WebhookSecret = added["secret"].as_str().unwrap().parse().unwrap();

    let log = received(&mut fleet, &receiver, "/one", 2).await;
    for request in &log {
        assert_signed(request, &key);
        assert_eq!(request.header("content-type"), "application/feed+json");
        let feed = request.json();
        assert_eq!(feed["version"], "https://jsonfeed.org/version/1.1");
        for item in feed["items"].as_array().unwrap() {
            assert_eq!(item["_feedfleet"]["feed_url"], urls[1]);
            assert!(item["id"].as_str().unwrap().starts_with("urn:feedfleet:entry:"), "{item}");
            assert!(item["_feedfleet"]["id"].is_string() && item["content_html"].is_string());
        }
    }
    // Whatever arrived until then is older than the answer to the pause.
    let paused = operator(&home, &fleet, &["subscription", "pause", "2"]);
    assert_eq!(paused["state"], "paused");
    let before = received(&mut fleet, &receiver, "/all", 1).await;
    assert_eq!(accepted(&before)[0], 1, "from the beginning");
    assert!(
        refusal(&home, &fleet, &["subscription", "replay", "2", "--after", "1000000"]).contains("newer than anything")
    );
    operator(&home, &fleet, &["subscription", "replay", "2", "--after", "0"]);
    let rotated = operator(&home, &fleet, &["subscription", "set", "2", "--rotate-secret"]);
    let new: WebhookSecret = rotated["secret"].as_str().unwrap().parse().unwrap();
    assert!(rotated["old_secret_until"].is_string());
    operator(&home, &fleet, &["subscription", "resume", "2"]);
    let log = fleet
        .wait_for("the replay", async |_| {
            let log: Vec<Received> = receiver.log("/all").into_iter().skip(before.len()).collect();
            let from = log.iter().position(|it| it.header("webhook-signature").contains(' '))?;
            Some(log[from..].to_vec())
        })
        .await;
    assert_eq!(log[0].events()[0]["seq"], 1, "all once more");
    assert!(before.iter().all(|it| it.header("webhook-id") != log[0].header("webhook-id")), "under another id");
    assert_signed(&log[0], &secret);
    assert_signed(&log[0], &new);
    operator(&home, &fleet, &["subscription", "remove", "2"]);
    assert!(refusal(&home, &fleet, &["subscription", "show", "2"]).contains("there is no subscription 2"));
    fleet.stop();
    let store = std::fs::read(home.path("data/feedfleet.db")).unwrap();
    let text = key.reveal();
    let found = store.windows(24).any(|window| window == &text.as_bytes()[5..29]);
    assert!(!found, "secrets are sealed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_wants_no_more_or_fails_for_too_long_is_disabled_with_an_event() {
    let (home, receiver) = (home("give_up_after = \"3s\""), Receiver::listen().await);
    receiver.set("/gone", &[Reply::Status(410)]);
    receiver.set("/down", &[Reply::Status(503)]);
    receiver.set("/moved", &[Reply::Status(302)]);
    let (_origin, urls) = busy(1).await;
    let mut fleet = home.start(&[&urls[0]]);
    for path in ["/gone", "/down", "/moved"] {
        operator(&home, &fleet, &["subscription", "add", &receiver.url(path), "--after", "0", "--kind", "entry.*"]);
    }
    let watcher = receiver.url("/watch");
    operator(&home, &fleet, &["subscription", "add", &watcher, "--after", "0", "--kind", "subscription.*"]);
    let disabled = fleet
        .wait_for("three subscriptions to be disabled", async |_| {
            let events: Vec<Value> = receiver.log("/watch").iter().flat_map(Received::events).collect();
            (events.len() >= 3).then_some(events)
        })
        .await;
    let seen: BTreeSet<(String, i64)> = disabled
        .iter()
        .map(|event| (event["kind"].as_str().unwrap().to_owned(), event["subscription"].as_i64().unwrap()))
        .collect();
    assert_eq!(seen, (1..=3).map(|id| ("subscription.disabled".to_owned(), id)).collect());
    assert_eq!(receiver.log("/gone").len(), 1);
    let [one, two, three] = ["1", "2", "3"].map(|id| operator(&home, &fleet, &["subscription", "show", id]));
    for (it, why) in [(&one, "410"), (&two, "status 503"), (&three, "status 302")] {
        assert_eq!(it["state"], "disabled");
        assert!(it["reason"].as_str().unwrap().contains(why), "{it}");
    }
    assert!(receiver.log("/elsewhere").is_empty(), "redirects are not followed");
    let cursor = two["cursor"].clone();
    receiver.set("/down", &[Reply::Status(200)]);
    let tried = receiver.log("/down").len();
    operator(&home, &fleet, &["subscription", "resume", "2"]);
    let log = received(&mut fleet, &receiver, "/down", tried + 1).await;
    assert_eq!(log[tried].events()[0]["seq"], log[0].events()[0]["seq"], "nothing is skipped after {cursor}");
    fleet.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn events_wait_for_others_as_long_as_they_may() {
    let (home, receiver) = (home(""), Receiver::listen().await);
    let (_origin, urls) = busy(1).await;
    let mut fleet = home.start(&[&urls[0]]);
    let [slow, full] = ["/slow", "/full"].map(|path| receiver.url(path));
    operator(&home, &fleet, &["subscription", "add", &slow, "--kind", "entry.*", "--delay", "4s"]);
    operator(&home, &fleet, &["subscription", "add", &full, "--kind", "entry.*", "--delay", "1h", "--batch", "2"]);
    let log = received(&mut fleet, &receiver, "/slow", 2).await;
    assert!(log.iter().any(|request| request.events().len() > 1), "one a second came");
    let log = received(&mut fleet, &receiver, "/full", 2).await;
    assert!(log.iter().all(|request| request.events().len() == 2), "as soon as there are two");
    fleet.stop();
}

#[test]
fn without_a_key_for_secrets_no_subscription_is_added() {
    let home = Home::new("");
    let fleet = home.start(&[]);
    let error = refusal(&home, &fleet, &["subscription", "add", "http://127.0.0.1:8000/hook"]);
    assert!(error.contains("secrets.key"), "{error}");
    assert!(!error.contains(KEY));
    fleet.stop();
}
