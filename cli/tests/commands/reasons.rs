//! Why feeds fail, wherever a person looks.

use load_tests::origin::feed::Feed;
use load_tests::origin::script::Script;
use serde_json::Value;

use crate::fleet::Fleet;

async fn page(fleet: &Fleet, path: &str) -> String {
    reqwest::get(format!("{}{path}", fleet.server)).await.unwrap().text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reason_is_shown_everywhere_until_the_feed_is_read_again() {
    let fleet = Fleet::start(&[]).await;
    fleet.origin.set("/typo", Script::status(404));
    let url = fleet.origin.url("/typo");
    let failed = fleet.run(&["feed", "add", &url]);
    assert_eq!((failed.code, failed.out), (Some(1), format!("added 1 {url}\n")));
    let lines: Vec<&str> = failed.err.lines().collect();
    assert_eq!(lines[0], format!("error: {url}: the server answered 404 Not Found"));
    assert!(lines[1].starts_with("  what helps: check the address"), "{lines:?}");
    assert!(lines[2].contains("`feedfleet feed refresh 1` polls it now"), "{lines:?}");

    const SENTENCE: &str = "the server answered 404 Not Found";
    for command in [vec!["show", "1"], vec!["history", "1"], vec!["show", "1", "--json"]] {
        let shown = fleet.done(&[&["feed"], &command[..]].concat());
        assert!(shown.contains(SENTENCE) && shown.contains("check the address"), "{command:?}: {shown}");
    }
    let view: Value = serde_json::from_str(&fleet.done(&["feed", "show", "1", "--json"])).unwrap();
    assert_eq!((&view["last_error"]["kind"], &view["last_error"]["status"]), (&"status".into(), &404.into()));
    for command in [&["feed", "list"][..], &["feed", "list", "--failing"], &["top"]] {
        let shown = fleet.done(command);
        assert!(shown.contains("404 Not Found"), "{command:?}: {shown}");
    }
    let events = fleet.done(&["events", "--kind", "feed.*"]);
    assert!(events.contains("feed.penalised") && events.contains(SENTENCE), "{events}");
    for path in ["/feeds/1", "/feeds", "/feeds?failing=true", "/api/v1/feeds/1", "/"] {
        let shown = page(&fleet, path).await;
        assert!(shown.contains("404 Not Found"), "{path}: {shown}");
    }

    fleet.origin.set("/typo", Script::feed(Feed::rss().initial(1)));
    fleet.done(&["feed", "refresh", "1", "--wait=2m"]);
    assert_eq!(fleet.done(&["feed", "list", "--failing"]), "no feeds\n");
    let shown = fleet.done(&["feed", "show", "1"]);
    assert!(!shown.contains("last error") && !shown.contains(SENTENCE), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_penalty_box_has_the_feeds_in_it_and_not_those_that_are_retried_soon() {
    let fleet = Fleet::start(&[]).await;
    fleet.origin.set("/typo", Script::status(404));
    fleet.origin.set("/flaky", Script::status(502));
    for path in ["/typo", "/flaky"] {
        fleet.run(&["feed", "add", &fleet.origin.url(path)]);
    }
    let failing = fleet.done(&["feed", "list", "--failing"]);
    assert!(failing.contains("/typo") && failing.contains("/flaky"), "{failing}");
    for filters in [&["--penalised"][..], &["--penalised", "--failure", "status"]] {
        let boxed = fleet.done(&[&["feed", "list"], filters].concat());
        assert!(boxed.contains("/typo") && !boxed.contains("/flaky"), "{filters:?}: {boxed}");
    }
    assert_eq!(fleet.done(&["feed", "list", "--penalised", "--failure", "dns"]), "no feeds\n");
    // Of the two lists on the screen, only that of the penalty box shows reasons.
    let top = fleet.done(&["top"]);
    assert!(top.contains("404 Not Found") && !top.contains("502 Bad Gateway"), "{top}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_may_not_be_dialled_names_the_setting_and_not_its_publisher() {
    let fleet = Fleet::start(&[]).await;
    let failed = fleet.run(&["feed", "add", "http://10.1.2.3/feed"]);
    assert_eq!(failed.code, Some(1));
    assert!(
        failed.err.contains("10.1.2.3 is not a public address") && failed.err.contains("restart"),
        "{}",
        failed.err
    );
    let shown = page(&fleet, "/feeds/1").await;
    assert!(shown.contains("fetch.allow_networks") && !shown.contains("What its publisher could fix"), "{shown}");
    let public = page(&fleet, "/status?url=http://10.1.2.3/feed").await;
    assert!(!public.contains("not a public address") && !public.contains("allow_networks"), "{public}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_who_sends_retry_after_is_not_advised_to_send_it() {
    let fleet = Fleet::start(&[]).await;
    fleet.origin.set("/a", Script::status(429).header("Retry-After", "3600"));
    let throttled = fleet.run(&["feed", "add", &fleet.origin.url("/a")]);
    assert_eq!(throttled.code, Some(0));
    assert!(throttled.err.contains("429 Too Many Requests: no requests before "), "{}", throttled.err);
    let shown = page(&fleet, "/feeds/1").await;
    assert!(shown.contains("429 Too Many Requests") && !shown.contains("a Retry-After header says"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_without_a_scheme_is_tried_over_https() {
    let fleet = Fleet::start(&[]).await;
    let address = fleet.origin.address(0);
    // The origin speaks HTTP: over TLS it cannot be read.
    let failed = fleet.run(&["feed", "add", &format!("{address}/feed")]);
    assert_eq!((failed.code, failed.out), (Some(1), format!("added 1 https://{address}/feed\n")), "{}", failed.err);
    let typed = format!("{address}/feed");
    assert!(fleet.done(&["feed", "show", &typed]).contains(&format!("https://{typed}")));
    assert!(fleet.done(&["feed", "set", &typed, "--important"]).starts_with("set 1 "));
    assert_eq!(fleet.done(&["entries", "--feed", &typed]), "");
    assert_eq!(fleet.done(&["ping", &typed]), format!("heard https://{typed}\n"));
    let wrong = fleet.run(&["feed", "add", "two words.example"]);
    assert!(wrong.code == Some(2) && wrong.err.contains("'two words.example' is not a URL"), "{}", wrong.err);
}
