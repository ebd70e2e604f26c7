//! User names and passwords of feeds: sent to their server, stored encrypted, and found nowhere else.

use std::process::Output;
use std::time::Duration;

use load_tests::{Feed, Origin, Script};

use crate::harness::{Home, PATIENCE};

const USER: &str = "ann-the-reader";
const PASSWORD: &str = "Tr0ub4dor-and-3";
/// `ann-the-reader:Tr0ub4dor-and-3`
const BASIC: &str = "YW5uLXRoZS1yZWFkZXI6VHIwdWI0ZG9yLWFuZC0z";

const KEY_1: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const KEY_2: &str = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";
const KEY_3: &str = "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=";

fn home(key: &str, old_keys: &str) -> Home {
    let home = Home::new("");
    rekey(&home, key, old_keys);
    home
}

fn rekey(home: &Home, key: &str, old_keys: &str) {
    let config = format!(
        "[log]\nlevel = \"trace\"\n[host]\ngap = \"1ms\"\n[secrets]\nkey = \"{key}\"\nold_keys = [{old_keys}]\n\
         [fetch]\nallow_networks = [\"127.0.0.0/8\"]\nallow_ports = [\"1-65535\"]\n"
    );
    std::fs::write(home.path("config.toml"), config).unwrap();
}

fn with_login(url: &str) -> String {
    url.replacen("http://", &format!("http://{USER}:{PASSWORD}@"), 1)
}

fn printed(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

/// Fails if the bytes contain a secret.
fn holds_no_secret(what: &str, bytes: &[u8]) {
    for secret in [USER, PASSWORD, BASIC, KEY_1] {
        let found = bytes.windows(secret.len()).position(|window| window == secret.as_bytes());
        let around = found.map(|at| String::from_utf8_lossy(&bytes[at.saturating_sub(200)..at]).into_owned());
        assert!(found.is_none(), "{what} holds {secret} after {around:?}");
    }
}

/// Returns everything that the fleet stores on disk.
fn stored(home: &Home) -> Vec<(String, Vec<u8>)> {
    let files = std::fs::read_dir(home.path("data")).unwrap().map(|file| file.unwrap().path());
    files.map(|path| (path.display().to_string(), std::fs::read(&path).unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_sent_to_its_server_and_found_nowhere_else() {
    let origin = Origin::listen(&load_tests::loopback(2, 0)).await.unwrap();
    origin.set("/feed", Script::feed(Feed::rss().title("Members' news")));
    origin.set("/moved", Script::redirect(302, origin.url_on(1, "/elsewhere")));
    origin.set("/elsewhere", Script::status(401));
    let home = home(KEY_1, "");
    let mut texts = Vec::new();
    for broken in ["http://ann-the-reader:Tr0ub4dor-and-3@no host/", "ann-the-reader:Tr0ub4dor-and-3@127.0.0.1/feed"] {
        let refused = home.command(&["run", "--data", "data", "--config", "config.toml", broken]).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{}", printed(&refused));
        texts.push(("the refusal of a broken URL", printed(&refused)));
    }
    let mut fleet = home.start(&[&with_login(&origin.url("/feed"))]);
    let server = fleet.api.clone();
    let operator = |arguments: &[&str]| {
        let output = home.command(arguments).env("FEEDFLEET_SERVER", &server).output().unwrap();
        printed(&output)
    };
    let moved = with_login(&origin.url("/moved"));
    texts.push(("feed add", operator(&["feed", "add", &moved])));
    texts.push(("feed add --json", operator(&["feed", "add", &with_login(&origin.url("/feed")), "--json"])));
    for request in [origin.wait_for("/feed", 1, PATIENCE).await, origin.wait_for("/moved", 1, PATIENCE).await] {
        assert_eq!(request[0].header("authorization").as_deref(), Some(&*format!("Basic {BASIC}")));
    }
    assert_eq!(origin.wait_for("/elsewhere", 1, PATIENCE).await[0].header("authorization"), None);
    fleet
        .wait_for("both polls to be stored", async |fleet| {
            let feeds = fleet.get("/api/v1/feeds").await;
            let polled =
                feeds["items"].as_array().unwrap().iter().filter(|feed| !feed["last_polled"].is_null()).count();
            (polled == 2).then_some(())
        })
        .await;
    let feeds = fleet.get("/api/v1/feeds").await;
    assert!(feeds["items"].as_array().unwrap().iter().all(|feed| feed["credentials"] == true), "{feeds}");
    for path in [
        "/api/v1/feeds",
        "/api/v1/feeds/1/explain",
        "/api/v1/feeds/2/explain",
        "/api/v1/feeds/1/history",
        "/api/v1/entries",
        "/api/v1/stats",
    ] {
        texts.push((path, fleet.get(path).await.to_string()));
    }
    for path in ["/", "/metrics", "/readyz"] {
        texts.push((path, reqwest::get(format!("{server}{path}")).await.unwrap().text().await.unwrap()));
    }
    for arguments in
        [&["config", "print", "--config", "config.toml"][..], &["feed", "show", "1"], &["feed", "list", "--json"]]
    {
        texts.push(("an operator's command", operator(arguments)));
    }
    let fetched = operator(&["fetch", &with_login(&origin.url("/feed")), "--json", "--config", "config.toml"]);
    assert!(fetched.contains("Members' news") && fetched.contains("\"***\""), "{fetched}");
    texts.push(("fetch", fetched));
    for (name, bytes) in stored(&home) {
        holds_no_secret(&name, &bytes);
    }
    texts.push(("the log", fleet.stderr()));
    assert!(fleet.stderr().contains("TRACE"), "everything that can be logged is");
    fleet.stop();
    for (name, bytes) in stored(&home) {
        holds_no_secret(&name, &bytes);
    }
    for (what, text) in texts {
        assert!(!text.is_empty(), "{what}");
        holds_no_secret(what, text.as_bytes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_changed_without_losing_a_login_and_a_wrong_one_costs_the_feed_nothing() {
    let origin = Origin::start().await.unwrap();
    origin.set("/feed", Script::feed(Feed::rss()));
    let home = home(KEY_1, "");
    let mut fleet = home.start(&[&with_login(&origin.url("/feed"))]);
    origin.wait_for("/feed", 1, PATIENCE).await;
    let polled = async |fleet: &crate::harness::Fleet| {
        let feed = fleet.get("/api/v1/feeds/1").await;
        (!feed["last_success"].is_null()).then_some(())
    };
    fleet.wait_for("the first poll", polled).await;
    fleet.stop();

    rekey(&home, KEY_3, "");
    let mut fleet = home.start(&[]);
    refresh(&fleet).await;
    fleet
        .wait_for("the worker to say that it has not the key", async |fleet| {
            let deferred = fleet.metric("feedfleet_unreadable_credentials_total").await;
            (deferred > 0.0).then_some(())
        })
        .await;
    fleet
        .wait_for("the scheduler to say it too", async |fleet| {
            fleet.stderr().contains("secrets.old_keys").then_some(())
        })
        .await;
    let feed = fleet.get("/api/v1/feeds/1").await;
    assert_eq!((feed["consecutive_failures"].as_u64(), &feed["status"]), (Some(0), &serde_json::json!("active")));
    assert_eq!(origin.request_count(), 1, "nothing was asked");
    fleet.stop();

    rekey(&home, KEY_2, &format!("\"{KEY_1}\""));
    let mut fleet = home.start(&[]);
    fleet
        .wait_for("the logins to be sealed anew", async |fleet| {
            fleet.stderr().contains("sealed with the new key").then_some(())
        })
        .await;
    fleet.stop();

    rekey(&home, KEY_2, "");
    let fleet = home.start(&[]);
    refresh(&fleet).await;
    let requests = origin.wait_for("/feed", 2, Duration::from_secs(90)).await;
    assert_eq!(requests[1].header("authorization").as_deref(), Some(&*format!("Basic {BASIC}")), "the same login");
    fleet.stop();
}

async fn refresh(fleet: &crate::harness::Fleet) {
    let client = reqwest::Client::new();
    let woken = client.post(format!("{}/api/v1/feeds/1/refresh", fleet.api)).send().await.unwrap();
    assert_eq!(woken.status().as_u16(), 202);
}
