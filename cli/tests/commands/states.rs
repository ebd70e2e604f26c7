//! Every page in every state, in a real browser: no fault that the accessibility checker finds, nothing wider than the screen.

use common::policy::Status;
use common::time::{Clock, SystemClock};
use common::url::FeedId;
use load_tests::origin::feed::Feed;
use load_tests::origin::script::Script;
use load_tests::{Origin, loopback};
use serde_json::{Value, json};
use store::sqlite::SqliteStore;
use store::{FeedChange, Feeds, Upkeep};

use crate::browser::{Browser, DESKTOP, Device, PHONE};
use crate::fleet::Fleet;

const WRITE: &str = "0123456789abcdef0123";
const READ: &str = "3210fedcba9876543210";

async fn post(fleet: &Fleet, path: &str, body: &Value) {
    let url = format!("{}/api/v1/{path}", fleet.server);
    let answer = reqwest::Client::new().post(url).header("content-type", "application/json").body(body.to_string());
    let answer = answer.send().await.unwrap();
    assert!(answer.status().is_success(), "{path}: {}", answer.text().await.unwrap());
}

/// Returns a fleet with a feed in each state, in this order: read, boxed, gone, paused, merged, blacklisted,
/// quarantined, held, new.
async fn in_all_states(data: &str) -> Fleet {
    let fleet = Fleet::start_at(data, "127.0.0.1:0", &[]).await;
    let page = "<html><link rel=alternate type=application/rss+xml href=/read><title>A page</title></html>";
    for (path, script) in [
        ("/read", Script::feed(Feed::rss().title("Harbour news").initial(3))),
        ("/boxed", Script::status(404)),
        ("/gone", Script::status(410)),
        ("/paused", Script::feed(Feed::rss())),
        ("/page", Script::body("text/html", page)),
        ("/blacklisted", Script::feed(Feed::rss())),
        ("/quarantined", Script::feed(Feed::rss())),
    ] {
        fleet.origin.set(path, script);
        post(&fleet, "feeds", &json!({ "url": fleet.origin.url(path) })).await;
    }
    let polled = |out: &str| out.lines().filter(|line| line.contains("\"last_polled\":\"")).count();
    fleet.until(&["feed", "list", "--json"], |out| polled(out) == 7);
    post(&fleet, "feeds/4/pause", &json!(null)).await;
    // Last, because its host is not polled any more then.
    fleet.origin.set("/held", Script::status(429).header("Retry-After", "7200"));
    post(&fleet, "feeds", &json!({ "url": fleet.origin.url("/held") })).await;
    fleet.until(&["feed", "list", "--json"], |out| polled(out) == 8);

    let mut fleet = fleet;
    let origin = std::mem::replace(&mut fleet.origin, Origin::start().await.unwrap());
    fleet.stop();
    // What takes months, or kills workers.
    let store = SqliteStore::open(&format!("sqlite://{data}/feedfleet.db")).await.unwrap();
    for (id, status) in [(6, Status::Blacklisted), (7, Status::Quarantined)] {
        let change = FeedChange { status: Some(status), ..FeedChange::default() };
        assert!(store.change_feed(FeedId(id), &change, SystemClock.now()).await.unwrap().is_some());
    }
    store.close().await;
    drop(store);
    let mut fleet = Fleet::start_at(data, "127.0.0.1:0", &[]).await;
    fleet.origin = origin;
    post(&fleet, "fleet/pause", &json!(null)).await;
    post(&fleet, "feeds", &json!({ "url": fleet.origin.url("/new") })).await;
    fleet
}

async fn look_at_states(device: Device) {
    let folder = tempfile::tempdir().unwrap();
    let fleet = in_all_states(folder.path().to_str().unwrap()).await;
    let browser = Browser::open(device).await;
    for (id, state, said) in [
        (1, "read", "Yes, it is read."),
        (2, "boxed", "Yes, but it fails."),
        (3, "gone", "Not any more: its server said that it is gone."),
        (4, "paused", "Not at present: it is paused."),
        // The publisher's page of a merged feed is that of the feed it leads to.
        (5, "page", "Yes, it is read."),
        (6, "blacklisted", "Not any more: it failed for too long."),
        (7, "quarantined", "Not at present: it is quarantined."),
        (8, "held", "Yes, but its server asked us to wait."),
        (9, "new", "Yes, its first poll is still to come."),
    ] {
        browser.go(&format!("{}/feeds/{id}", fleet.server)).await;
        browser.check(&format!("feed-{state}")).await;
        browser.go(&format!("{}/status?url={}", fleet.server, fleet.origin.url(&format!("/{state}")))).await;
        assert_eq!(browser.text(".verdict").await, said, "{state}");
        browser.check(&format!("status-{state}")).await;
    }
    for (path, name) in [
        ("", "fleet-in-trouble"),
        ("feeds?failing=true", "feeds-failing"),
        ("feeds?category=Z", "feeds-wrong"),
        ("feeds?q=nothing+like+that", "feeds-none"),
        ("status?url=https%3A%2F%2Funknown.example%2F", "status-unknown"),
        ("entries?q=nothing+like+that", "entries-none"),
    ] {
        browser.go(&format!("{}/{path}", fleet.server)).await;
        browser.check(name).await;
    }
    browser.go(&format!("{}/feeds/add", fleet.server)).await;
    browser.fill("textarea[name=url]", &format!("ftp://a.example/\n{}", fleet.origin.url("/more"))).await;
    browser.click("#main form button").await;
    browser.until("document.body.textContent.includes('1 refused')").await;
    browser.check("add-refused").await;
}

/// States of hosts and of what an operator began, while feeds are polled.
#[tokio::test(flavor = "multi_thread")]
async fn every_state_of_a_fleet_that_polls_is_accessible() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fleet.toml");
    std::fs::write(&file, "[secrets]\nkey = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"\n").unwrap();
    let fleet = Fleet::start(&["--config", file.to_str().unwrap()]).await;
    let origin = Origin::listen(&loopback(5, 0)).await.unwrap();
    let host = |number: usize| origin.address(number).to_string();
    for (path, script) in [
        ("/read", Script::feed(Feed::rss().title("Harbour news").initial(3))),
        ("/blocked", Script::feed(Feed::rss())),
        ("/failed", Script::status(502)),
        ("/held", Script::status(429).header("Retry-After", "7200")),
        ("/wall-1", Script::status(403)),
        ("/wall-2", Script::status(403)),
        ("/wall-3", Script::status(403)),
    ] {
        origin.set(path, script);
    }
    post(&fleet, &format!("hosts/{}/block", host(1)), &json!({ "for": 7200 })).await;
    let places = ["/read", "/blocked", "/failed", "/held", "/wall-1", "/wall-2", "/wall-3"];
    for (place, path) in places.into_iter().enumerate() {
        post(&fleet, "feeds", &json!({ "url": origin.url_on(place.min(4), path) })).await;
    }
    let polled = |out: &str| out.lines().filter(|line| line.contains("\"last_polled\":\"")).count();
    fleet.until(&["feed", "list", "--json"], |out| polled(out) == places.len() - 1);
    post(&fleet, "subscriptions", &json!({ "kind": "webhook", "target": "https://hooks.example/one" })).await;
    post(&fleet, "subscriptions/1/pause", &json!(null)).await;
    post(&fleet, "requeue", &json!({ "filter": { "all": true }, "rate": 0.01 })).await;
    fleet.done(&["requeue", "cancel", "1"]);

    let browser = Browser::open(PHONE).await;
    for (id, said) in [
        (2, "Nothing is polled on its host at present."),
        (3, "The last poll failed"),
        (4, "Its server asked us to wait."),
        (5, "Nothing is polled on its host at present."),
    ] {
        browser.go(&format!("{}/feeds/{id}", fleet.server)).await;
        browser.until(&format!("document.body.textContent.includes({})", json!(said))).await;
        let path = places[id - 1];
        browser.check(&format!("polled-feed{path}")).await;
        browser.go(&format!("{}/status?url={}", fleet.server, origin.url_on((id - 1).min(4), path))).await;
        browser.check(&format!("polled-status{path}")).await;
    }
    for (path, said) in [
        (String::new(), "Worst hosts"),
        (format!("hosts/{}", host(1)), "It is blocked: no request is sent to it."),
        (format!("hosts/{}", host(3)), "It is on hold: no request is sent to it."),
        (format!("hosts/{}", host(4)), "It refuses us and rests: no request is sent to it."),
        ("hosts".to_owned(), "Not polled at present"),
        ("requeues".to_owned(), "cancelled"),
        ("subscriptions".to_owned(), "paused"),
        ("subscriptions/1".to_owned(), "paused"),
    ] {
        browser.go(&format!("{}/{path}", fleet.server)).await;
        browser.until(&format!("document.body.textContent.includes({})", json!(said))).await;
        browser.check(&format!("polled-{}", path.replace('/', "-"))).await;
    }
    fleet.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_is_accessible_on_a_phone() {
    look_at_states(PHONE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_is_accessible_on_a_desktop() {
    look_at_states(DESKTOP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_without_rows_and_those_of_a_reader_are_accessible() {
    let fleet = Fleet::start(&[]).await;
    for device in [PHONE, DESKTOP] {
        let browser = Browser::open(device).await;
        for path in ["", "entries", "feeds", "hosts", "requeues", "subscriptions", "audit", "config", "docs/api"] {
            browser.go(&format!("{}/{path}", fleet.server)).await;
            browser.check(&format!("empty-{}", path.replace('/', "-"))).await;
        }
    }
    fleet.stop();

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fleet.toml");
    let token = |name: &str, token: &str| {
        format!("[[api.tokens]]\nname = \"{name}\"\ntoken = \"{token}\"\nrole = \"{name}\"\n")
    };
    std::fs::write(&file, token("write", WRITE) + &token("read", READ)).unwrap();
    let fleet = Fleet::start(&["--config", file.to_str().unwrap()]).await;
    let added = reqwest::Client::new().post(format!("{}/api/v1/feeds", fleet.server)).bearer_auth(WRITE);
    let url = json!({ "url": fleet.origin.url("/read") }).to_string();
    let added = added.header("content-type", "application/json").body(url).send().await.unwrap();
    assert_eq!(added.status(), 201);
    let browser = Browser::open(PHONE).await;
    browser.go(&format!("{}/login", fleet.server)).await;
    browser.fill("input[name=token]", "not the token at all").await;
    browser.click("#main button").await;
    browser.until("document.body.textContent.includes('not one of the tokens')").await;
    browser.check("login-wrong").await;
    browser.fill("input[name=token]", READ).await;
    browser.click("#main button").await;
    browser.until("document.body.textContent.includes('Log out')").await;
    for path in ["", "entries", "feeds", "feeds/1", "hosts", "requeues", "subscriptions", "audit", "config", "status"] {
        browser.go(&format!("{}/{path}", fleet.server)).await;
        browser.check(&format!("reader-{}", path.replace('/', "-"))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_list_can_be_read_without_a_script() {
    let fleet = Fleet::start(&[]).await;
    fleet.origin.set("/harbour", Script::feed(Feed::rss().title("Harbour news").initial(60)));
    let url = fleet.origin.url("/harbour");
    fleet.done(&["feed", "add", &url]);
    for device in [PHONE, DESKTOP] {
        let browser = Browser::open(device).await;
        browser.devtools("Emulation.setScriptExecutionDisabled", json!({ "value": true })).await;
        for (path, said) in [
            ("", "Harbour news"),
            ("entries", "Harbour news"),
            ("entries?feed=1&limit=20", "Older entries"),
            ("feeds?q=harb", "Harbour news"),
            ("feeds/1", "New content"),
            ("feeds/add", "Import"),
            ("hosts", "127.0.0.1"),
            ("hosts/127.0.0.1", "1 request per"),
            ("requeues", "Requeue"),
            ("subscriptions", "Target"),
            ("audit", "POST /api/v1/feeds"),
            ("config", "policy"),
            ("docs/api", "openapi.json"),
        ] {
            browser.go(&format!("{}/{path}", fleet.server)).await;
            let text = browser.text("body").await;
            assert!(text.contains(said), "{path} without a script on a {device:?}: {text}");
        }
        browser.go(&format!("{}/entries?limit=20", fleet.server)).await;
        browser.click("nav.pages a[rel=next]").await;
        browser.click("nav.pages a[rel=prev]").await;
        assert!(browser.has("nav.pages a[rel=next]").await);
    }
}
