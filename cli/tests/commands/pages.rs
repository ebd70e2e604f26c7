//! The pages in a real browser, used like people do, on a phone and on a desktop.

use std::time::{Duration, Instant};

use load_tests::origin::feed::Feed;
use load_tests::origin::script::Script;
use serde_json::json;

use crate::browser::{Browser, DESKTOP, Device, PHONE};
use crate::fleet::{Fleet, PATIENCE};

const TITLE: &str = "Harbour <script>alert(1)</script> & news";
const TOKEN: &str = "0123456789abcdef0123";

/// Returns a fleet, and the URL of a feed with a hostile title.
async fn fleet(arguments: &[&str]) -> (Fleet, String) {
    let fleet = Fleet::start(arguments).await;
    fleet.origin.set("/harbour", Script::feed(Feed::rss().title(TITLE).initial(3)));
    let url = fleet.origin.url("/harbour");
    (fleet, url)
}

/// Waits until a path has more than `more_than` requests.
async fn asked(fleet: &Fleet, path: &str, more_than: usize) {
    let deadline = Instant::now() + PATIENCE;
    while fleet.origin.requests(path).len() <= more_than {
        assert!(Instant::now() < deadline, "{path} is not asked for");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn click_through(device: Device) {
    let (fleet, url) = fleet(&[]).await;
    fleet.done(&["feed", "add", &url]);
    fleet.run(&["feed", "add", &fleet.origin.url("/nowhere")]);
    let browser = Browser::open(device).await;

    browser.go(&fleet.server).await;
    browser.until("document.querySelector('#pulse').textContent.trim() == 'live'").await;
    assert_eq!(browser.text("[data-text=feeds]").await, "2");
    fleet.run(&["feed", "add", &fleet.origin.url("/another")]);
    browser.until("document.querySelector('[data-text=feeds]').textContent == '3'").await;
    browser.until("document.querySelector('#lists').textContent.includes('Harbour <script>')").await;
    browser.look("fleet").await;

    browser.click("nav a[href$=entries]").await;
    browser.until("document.querySelectorAll('.river article').length > 1").await;
    assert!(browser.text(".river article p a").await.starts_with("Harbour <script>"), "the feed's title");
    browser.look("entries").await;
    browser.fill("input[name=q]", "no such words").await;
    browser.click("form.search button").await;
    browser.until("document.body.textContent.includes('No entries match')").await;

    browser.click("nav a[href$=feeds]").await;
    browser.fill("input[name=q]", "harb").await;
    browser.click("form.search button").await;
    browser.until("location.search.includes('q=harb')").await;
    assert_eq!(browser.eval("return document.querySelectorAll('tbody tr').length").await, 1);
    browser.look("feeds").await;
    browser.click("tbody a").await;
    browser.until("location.pathname == '/feeds/1'").await;
    assert_eq!(browser.text("h1").await, TITLE);
    let before = fleet.origin.requests("/harbour").len();
    browser.click("button[value=refresh]").await;
    asked(&fleet, "/harbour", before).await;
    browser.until("document.querySelectorAll('.timeline li').length > 1").await;
    browser.look("feed").await;
    browser.click("button[value=pause]").await;
    browser.click("button[value=resume]").await;
    browser.until("document.querySelector('button[value=pause]')").await;
    assert_eq!(browser.text("#done").await, "It is polled again.");

    browser.go(&format!("{}/feeds/99", fleet.server)).await;
    browser.look("refusal").await;
    // The browser logs the 404, as it should.
    assert!(browser.complaints().await.iter().all(|line| line.contains("404")));
    browser.click("main a").await;
    browser.until("location.pathname == '/feeds'").await;

    browser.go(&format!("{}/feeds/2", fleet.server)).await;
    let before = fleet.origin.requests("/nowhere").len();
    browser.click("button[value=requeue]").await;
    asked(&fleet, "/nowhere", before).await;
    browser.until("document.querySelector('#done').textContent.startsWith('Its penalty is lifted')").await;

    browser.click("nav a[href$=status]").await;
    browser.fill("input[name=url]", &url).await;
    browser.click("form.search button").await;
    browser.until("document.body.textContent.includes('Yes, it is read.')").await;
    browser.look("status").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_are_clicked_through_on_a_phone() {
    click_through(PHONE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_are_clicked_through_on_a_desktop() {
    click_through(DESKTOP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn buttons_ask_for_a_token_and_keep_it_for_the_tab() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fleet.toml");
    let token = format!("[[api.tokens]]\nname = \"do\"\ntoken = \"{TOKEN}\"\nrole = \"write\"\n");
    std::fs::write(&file, token).unwrap();
    let (fleet, url) = fleet(&["--config", file.to_str().unwrap()]).await;
    let added = reqwest::Client::new().post(format!("{}/api/v1/feeds", fleet.server)).bearer_auth(TOKEN);
    let added = added.header("content-type", "application/json").body(json!({ "url": url }).to_string());
    assert_eq!(added.send().await.unwrap().status(), 201);
    asked(&fleet, "/harbour", 0).await;

    let browser = Browser::open(PHONE).await;
    // Without a token only the publisher's page is visible, without links to the others.
    browser.go(&format!("{}/status?url={url}", fleet.server)).await;
    assert!(browser.text("h2").await.starts_with("Yes"));
    assert_eq!(browser.eval("return document.querySelector('nav')").await, json!(null));
    let page = fleet.server.replace("http://", &format!("http://anybody:{TOKEN}@"));
    browser.go(&format!("{page}/")).await;
    browser.until("document.querySelector('#pulse').textContent.trim() == 'live'").await;
    browser.go(&format!("{page}/feeds/1")).await;
    browser.fill("input[name=token]", "not the token").await;
    browser.click("button[value=refresh]").await;
    browser.until("document.querySelector('#done.bad')").await;
    assert!(browser.text("#done").await.contains("none of the tokens"));
    assert_eq!(fleet.origin.requests("/harbour").len(), 1);
    browser.look("token").await;
    // The browser logs the 401, as it should.
    assert!(browser.complaints().await.iter().all(|line| line.contains("401")));

    browser.fill("input[name=token]", TOKEN).await;
    browser.click("button[value=refresh]").await;
    asked(&fleet, "/harbour", 1).await;
    browser.go(&format!("{page}/feeds/1")).await;
    browser.click("button[value=pause]").await;
    browser.until("document.querySelector('button[value=resume]')").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feeds_buttons_are_reached_with_the_keyboard_alone() {
    let (fleet, url) = fleet(&[]).await;
    fleet.done(&["feed", "add", &url]);
    let browser = Browser::open(DESKTOP).await;
    browser.go(&format!("{}/feeds/1", fleet.server)).await;
    browser.until("!document.querySelector('#do').hidden").await;
    let mut way = Vec::new();
    while way.last().is_none_or(|at| at != "Forget its ETag") {
        let (at, framed) = browser.tab().await;
        assert!(framed && way.len() < 20, "{at} after {way:?} has no frame, or it does not end");
        way.push(at);
    }
    let begin = ["Skip to the content", "feedfleet", "Fleet", "Entries", "Feeds", "Publishers", "Feeds"];
    assert_eq!(way[..begin.len()], begin, "in the order in which they are read");
    assert_eq!(way[way.len() - 3..], ["Refresh now", "Pause", "Forget its ETag"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_can_be_read_without_a_script() {
    let (fleet, url) = fleet(&[]).await;
    fleet.done(&["feed", "add", &url]);
    let browser = Browser::open(PHONE).await;
    browser.devtools("Emulation.setScriptExecutionDisabled", json!({ "value": true })).await;
    browser.go(&fleet.server).await;
    assert!(browser.text("#lists").await.contains(TITLE));
    browser.click("nav a[href$=feeds]").await;
    browser.fill("input[name=q]", "harb").await;
    browser.click("form.search button").await;
    browser.click("tbody a").await;
    assert_eq!(browser.text("h1").await, TITLE);
    assert!(browser.text(".timeline").await.contains("New content"));
    let told = browser.text("noscript").await;
    let command = told.split("feedfleet ").nth(1).unwrap_or_else(|| panic!("no command: {told}"));
    fleet.done(&command.split_whitespace().collect::<Vec<_>>());
    asked(&fleet, "/harbour", 1).await;
    assert_eq!(browser.text("#do").await, "", "buttons that do nothing are not shown");
    browser.click("nav a[href$=status]").await;
    browser.fill("input[name=url]", &url).await;
    browser.click("form.search button").await;
    assert!(browser.text("main").await.contains("Yes, it is read."));
}
