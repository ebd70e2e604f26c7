//! `fetch` and `discover`: one polite fetch outside of a fleet.

use load_tests::origin::Origin;
use load_tests::origin::feed::Feed;
use load_tests::origin::script::Script;
use serde_json::{Value, json};

use crate::program::{Ran, run, run_with_input};

const OPEN: [&str; 4] = ["--set", "fetch.allow_networks=127.0.0.0/8", "--set", "fetch.allow_ports=1-65535"];

fn open(arguments: &[&str]) -> Ran {
    run(&[arguments, &OPEN].concat())
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {} {}", ran.out, ran.err))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_is_explained_from_request_to_decision() {
    let origin = Origin::start().await.unwrap();
    origin.set("/feed", Script::feed(Feed::rss().title("Harbour").initial(3)).header("Cache-Control", "max-age=80000"));
    let url = origin.url("/feed");
    let ran = open(&["fetch", &url]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{}", ran.out);
    let expected = ["> GET /feed", "> user-agent: feedfleet/", "< HTTP/1.1 200", "< cache-control: max-age=80000"];
    let expected = expected.into_iter().chain(["Harbour", "no: no --etag or --last-modified given", "entries      3"]);
    let expected = expected.chain(["fresh for    22 h 13 min", "category D", "max-age"]);
    for part in expected {
        assert!(ran.out.contains(part), "{part} is missing in\n{}", ran.out);
    }
    let fetched = json(&open(&["fetch", &url, "--json"]));
    assert_eq!((&fetched["outcome"], &fetched["status"]), (&json!("modified"), &json!(200)));
    assert_eq!(fetched["document"]["entries"].as_array().unwrap().len(), 3);
    assert_eq!(fetched["decision"]["terms"][0]["rule"], "adaptive");
    assert_eq!(origin.requests("/feed").len(), 2, "one request each");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conditional_fetch_gets_its_304() {
    let origin = Origin::start().await.unwrap();
    origin.set("/feed", Script::feed(Feed::rss()));
    let url = origin.url("/feed");
    let first = json(&open(&["fetch", &url, "--json"]));
    let answer = first["exchanges"][0]["answer"].as_array().unwrap();
    let etag = answer.iter().find(|field| field[0] == "etag").unwrap()[1].as_str().unwrap();
    let second = json(&open(&["fetch", &url, "--json", "--etag", etag]));
    assert_eq!((&second["outcome"], &second["status"]), (&json!("not_modified"), &json!(304)));
}

#[tokio::test(flavor = "multi_thread")]
async fn hops_are_shown_and_keep_the_hosts_gap() {
    let origin = Origin::start().await.unwrap();
    origin.set("/old", Script::redirect(301, "/feed"));
    origin.set("/feed", Script::feed(Feed::atom()));
    let fetched = json(&open(&["fetch", &origin.url("/old"), "--json", "--set", "host.gap=1s"]));
    let hops = fetched["exchanges"].as_array().unwrap();
    assert_eq!(hops.iter().map(|hop| hop["status"].as_u64().unwrap()).collect::<Vec<_>>(), [301, 200]);
    // The gap is kept from permit to permit. On a busy machine a request starts later than its permit.
    let starts: Vec<f64> = hops.iter().map(|hop| hop["after"].as_f64().unwrap()).collect();
    assert!(starts[1] - starts[0] >= 0.5, "{fetched}");
    assert_eq!(fetched["moved_to"], json!(origin.url("/feed")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_feed_is_a_failure_that_says_why() {
    let origin = Origin::start().await.unwrap();
    let page = "<!doctype html><link rel=alternate type=application/rss+xml title=Posts href=/feed.xml>";
    origin.set("/page", Script::body("text/html", page));
    origin.set("/gone", Script::status(410));
    let ran = open(&["fetch", &origin.url("/page")]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("failed: not a feed"), "{}", ran.err);
    assert!(ran.out.contains(&format!("announces    {}", origin.url("/feed.xml"))), "{}", ran.out);
    assert!(ran.out.contains("a fleet would poll it"), "{}", ran.out);
    let gone = open(&["fetch", &origin.url("/gone")]);
    assert!(gone.code == Some(1) && gone.err.contains("410"), "{}", gone.err);
    let refused = run(&["fetch", &origin.url("/page")]);
    assert!(
        refused.code == Some(1)
            && refused.err.contains("(address refused)")
            && refused.err.contains("its own configuration"),
        "{}",
        refused.err
    );
    assert_eq!(run(&["fetch", "nonsense"]).code, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_feeds_of_a_page_are_discovered_with_one_request() {
    let origin = Origin::start().await.unwrap();
    let page = "<!doctype html><html><head><link rel=alternate type=application/rss+xml title='The\u{1b} posts' href=/harbour.xml>\
        <link rel=alternate type=application/feed+json href=/feed.json></head></html>";
    origin.set("/", Script::body("text/html; charset=utf-8", page));
    origin.set("/plain", Script::body("text/html", "<!doctype html><p>nothing here"));
    origin.set("/harbour.xml", Script::feed(Feed::rss().title("Harbour")));
    let ran = open(&["discover", &origin.url("/")]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert!(ran.out.contains(&origin.url("/feed.json")) && !ran.out.contains('\u{1b}'), "{}", ran.out);
    let lines = open(&["discover", &origin.url("/"), "--json"]).out;
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((&first["url"], &first["type"]), (&json!(origin.url("/harbour.xml")), &json!("application/rss+xml")));
    assert_eq!((lines.lines().count(), origin.requests("/").len()), (2, 2));

    let itself = json(&open(&["discover", &origin.url("/harbour.xml"), "--json"]));
    assert_eq!((&itself["url"], &itself["title"]), (&json!(origin.url("/harbour.xml")), &json!("Harbour")));
    let none = open(&["discover", &origin.url("/plain")]);
    assert_eq!((none.code, none.out.as_str()), (Some(1), ""));
    assert!(none.err.ends_with("/plain announces no feed\n"), "{}", none.err);
    origin.set("/rss.xml", Script::feed(Feed::rss().title("Unannounced")));
    let found = json(&open(&["discover", &origin.url("/plain"), "--json"]));
    assert_eq!((&found["url"], &found["title"]), (&json!(origin.url("/rss.xml")), &json!("Unannounced")));
}

#[test]
fn a_file_is_searched_without_a_network() {
    let page = b"<link rel=alternate type=application/atom+xml href=/atom>";
    let ran = run_with_input(&["discover", "-", "--base", "https://blog.example/x", "--json"], page);
    assert_eq!((ran.code, json(&ran)["url"].as_str()), (Some(0), Some("https://blog.example/atom")));
    let neither = run(&["discover", "no-such-file.html"]);
    assert_eq!(neither.code, Some(2));
    assert!(neither.err.contains("neither a URL such as"), "{}", neither.err);
    let without_scheme = run(&["discover", "127.0.0.1:9/"]);
    assert_eq!(without_scheme.code, Some(1));
    assert!(without_scheme.err.contains("https://127.0.0.1:9/ could not be read"), "{}", without_scheme.err);
}

#[test]
fn completions_are_made_for_each_shell() {
    for (shell, mark) in [("bash", "_feedfleet()"), ("zsh", "#compdef feedfleet"), ("fish", "complete -c feedfleet")] {
        let ran = run(&["completions", shell]);
        assert!(ran.code == Some(0) && ran.out.contains(mark), "{shell}");
    }
    assert_eq!(run(&["completions", "cmd"]).code, Some(2));
}
