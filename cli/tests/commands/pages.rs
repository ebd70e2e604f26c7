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
    browser.click("#buttons button").await;
    asked(&fleet, "/harbour", before).await;
    browser.until("document.querySelectorAll('.timeline li').length > 1").await;
    browser.look("feed").await;
    browser.click("#buttons button[formaction$=pause]").await;
    browser.click("#buttons button[formaction$=resume]").await;
    browser.until("document.querySelector('#buttons button[formaction$=pause]')").await;
    assert_eq!(browser.text("#done").await, "It is polled again.");

    browser.go(&format!("{}/feeds/99", fleet.server)).await;
    browser.look("refusal").await;
    // The browser logs the 404, as it should.
    assert!(browser.complaints().await.iter().all(|line| line.contains("404")));
    browser.click("main a").await;
    browser.until("location.pathname == '/feeds'").await;

    browser.go(&format!("{}/feeds/2", fleet.server)).await;
    let before = fleet.origin.requests("/nowhere").len();
    browser.click("#buttons button[formaction$=requeue]").await;
    asked(&fleet, "/nowhere", before).await;
    browser.until("document.querySelector('#done').textContent.startsWith('Its penalty is lifted')").await;

    browser.click("nav a[href$=status]").await;
    browser.fill("input[name=url]", &url).await;
    browser.click("form.search button").await;
    browser.until("document.body.textContent.includes('Yes, it is read.')").await;
    browser.look("status").await;
    for (path, name) in [
        ("feeds/add", "add"),
        ("hosts", "hosts"),
        ("hosts/127.0.0.1", "host"),
        ("requeues", "requeues"),
        ("audit", "audit"),
        ("config", "config"),
    ] {
        browser.go(&format!("{}/{path}", fleet.server)).await;
        browser.look(name).await;
    }
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
async fn the_apis_reference_is_rendered_in_the_browser_from_this_server_alone() {
    let (fleet, _) = fleet(&[]).await;
    let browser = Browser::open(DESKTOP).await;
    browser.go(&format!("{}/docs/api", fleet.server)).await;
    browser.until("document.querySelector('rapi-doc').shadowRoot?.textContent.includes('Lists feeds')").await;
    let loaded = "return performance.getEntriesByType('resource').map((one) => new URL(one.name).origin).filter((origin) => origin != location.origin)";
    assert_eq!(browser.eval(loaded).await, json!([]));
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charts_values_are_read_with_the_keyboard_and_with_the_mouse() {
    let (fleet, url) = fleet(&[]).await;
    fleet.done(&["feed", "add", &url]);
    let browser = Browser::open(DESKTOP).await;
    browser.go(&fleet.server).await;
    browser.until("document.querySelector('#pulse').textContent.trim() == 'live'").await;
    // A chart of three points has one between its ends.
    browser.until("document.querySelector('[data-values]').dataset.values.split('|').length > 3").await;
    let shown = |words: &str| format!("document.querySelector('.readout').textContent{words}");
    let (now, past) = (shown(".startsWith('now: not modified')"), shown(".includes(' ago: not modified')"));
    browser.reach("[data-chart=polls]").await;
    browser.until(&now).await;
    browser.press("ArrowLeft", 37, "").await;
    browser.until(&past).await;
    browser.press("ArrowRight", 39, "").await;
    browser.until(&now).await;
    browser.press("Home", 36, "").await;
    browser.until(&past).await;
    browser.press("End", 35, "").await;
    browser.until(&now).await;
    browser.tab().await;
    browser.until(&shown(" == ''")).await;

    browser.hover(Some("[data-chart=polls]")).await;
    browser.until(&past).await;
    browser.hover(None).await;
    browser.until(&shown(" == ''")).await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

/// An operator's work, on the pages alone.
async fn operate(device: Device) {
    let (fleet, url) = fleet(&[]).await;
    let browser = Browser::open(device).await;
    browser.go(&format!("{}/feeds", fleet.server)).await;
    browser.click("a.button").await;
    browser.fill("textarea[name=url]", &url).await;
    browser.fill("#main form[action$='feeds/add'] input[name=labels]", "harbour").await;
    browser.click("form[action$='feeds/add'] button").await;
    browser.until("location.pathname == '/feeds/1' && document.body.textContent.includes('The feed is added.')").await;
    asked(&fleet, "/harbour", 0).await;

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("feeds.opml");
    let outline = |path: &str| format!("<outline type='rss' xmlUrl='{}'/>", fleet.origin.url(path));
    let outlines: String = ["/one", "/two", "/three"].map(outline).concat();
    std::fs::write(&file, format!("<opml><body><outline text='Imported'>{outlines}</outline></body></opml>")).unwrap();
    browser.go(&format!("{}/feeds/add", fleet.server)).await;
    browser.choose("input[type=file]", &file).await;
    browser.click("form[action$='feeds/import'] button").await;
    browser.until("document.body.textContent.includes('3 added, 0 known already, 0 refused.')").await;
    browser.look("imported").await;

    browser.go(&format!("{}/feeds?label=Imported", fleet.server)).await;
    browser.click("input[name=id][value='2']").await;
    browser.click("input[name=id][value='3']").await;
    browser.click("button[formaction$=pause]").await;
    browser.until("document.body.textContent.includes('Paused: 2 feeds.')").await;
    browser.look("several").await;
    browser.click("input[name=id][value='4']").await;
    browser.click("input[name=sure]").await;
    browser.click("button[formaction$=remove]").await;
    browser.until("document.body.textContent.includes('Removed: 1 feed.')").await;
    browser.click("input[name=id][value='2']").await;
    browser.click("input[name=id][value='3']").await;
    browser.click("button[formaction$=resume]").await;
    browser.until("document.body.textContent.includes('Resumed: 2 feeds.')").await;

    browser.go(&format!("{}/feeds/1", fleet.server)).await;
    browser.click("#main details summary").await;
    browser.fill("input[name=subscribers]", "30").await;
    browser.fill("input[name=interval]", "20m").await;
    browser.click("form[action$=change] button").await;
    browser.until("document.body.textContent.includes('The settings are saved.')").await;
    browser.until("document.querySelector('.numbers').textContent.includes('30 subscribers')").await;

    let host = fleet.origin.url("/").trim_start_matches("http://").trim_end_matches('/').to_owned();
    browser.go(&format!("{}/hosts", fleet.server)).await;
    browser.fill("input[name=host]", &host).await;
    browser.click("form.search button").await;
    browser.until("location.pathname.startsWith('/hosts/127.0.0.1')").await;
    browser.fill("input[name=for]", "2h").await;
    browser.click("form[action$='/block'] button").await;
    browser.until("document.body.textContent.includes('It is blocked')").await;
    browser.look("blocked").await;
    browser.click("form[action$='/unblock'] button").await;
    browser.until("document.body.textContent.includes('It is not blocked any more.')").await;

    browser.go(&format!("{}/requeues", fleet.server)).await;
    browser.click("input[name=all]").await;
    browser.click("input[name=lift_penalties]").await;
    browser.fill("input[name=rate]", "0.05").await;
    browser.click("form[action$=plan] button").await;
    browser.until("document.querySelector('#plan')").await;
    browser.look("plan").await;
    browser.click("#start").await;
    browser.until("document.querySelector('.running')").await;
    browser.click(".running button").await;
    browser.until("document.body.textContent.includes('The requeue is cancelled.')").await;

    browser.go(&fleet.server).await;
    browser.click("form[action$='fleet/pause'] button").await;
    browser.until("document.body.textContent.includes('All polling is paused.')").await;
    browser.look("paused").await;
    browser.click("form[action$='fleet/resume'] button").await;
    browser.until("document.body.textContent.includes('Polling is resumed.')").await;
    browser.go(&format!("{}/audit", fleet.server)).await;
    assert!(browser.text("table").await.contains("POST /fleet/resume"));
    browser.look("audited").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_works_on_the_pages_on_a_phone() {
    operate(PHONE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_works_on_the_pages_on_a_desktop() {
    operate(DESKTOP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_login_opens_all_pages_and_forged_forms_are_refused() {
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
    // Without a login only the publisher's page is visible, without links to the others.
    browser.go(&format!("{}/status?url={url}", fleet.server)).await;
    assert!(browser.text("h2").await.starts_with("Yes"));
    assert_eq!(browser.eval("return document.querySelector('nav')").await, json!(null));
    browser.go(&format!("{}/feeds/1", fleet.server)).await;
    browser.until("location.pathname == '/login'").await;
    browser.look("login").await;
    browser.fill("input[name=token]", "not the token at all").await;
    browser.click("#main button").await;
    browser.until("document.body.textContent.includes('not one of the tokens')").await;
    assert!(browser.complaints().await.iter().all(|line| line.contains("403")));
    browser.fill("input[name=token]", TOKEN).await;
    browser.click("#main button").await;
    browser.until("location.pathname == '/feeds/1'").await;
    browser.look("session").await;
    let before = fleet.origin.requests("/harbour").len();
    browser.click("#buttons button").await;
    asked(&fleet, "/harbour", before).await;
    assert_eq!(browser.eval("return document.cookie").await, json!(""), "no script reads the login");

    // A page of another origin on this machine: the browser sends the cookie along with its form.
    let forged =
        format!("<form id=f method=post action='{}/feeds/1/pause'></form><button form=f>Win</button>", fleet.server);
    fleet.origin.set("/evil", Script::body("text/html", forged));
    browser.go(&fleet.origin.url("/evil")).await;
    browser.click("button").await;
    browser.until("document.body.textContent.includes('403')").await;
    browser.go(&format!("{}/feeds/1", fleet.server)).await;
    browser.until("document.querySelector('#buttons button[formaction$=pause]')").await;
    // The other page has no icon.
    let complaints = browser.complaints().await;
    assert!(complaints.iter().all(|line| line.contains("403") || line.contains("favicon.ico")), "{complaints:?}");

    browser.click(".out button").await;
    browser.until("location.pathname == '/login'").await;
    browser.go(&format!("{}/feeds/1", fleet.server)).await;
    browser.until("location.pathname == '/login'").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

/// Starts a requeue of four feeds from the page, after its dry run.
async fn start_requeue(fleet: &Fleet, browser: &Browser, url: &str) {
    for path in ["", "?two", "?three", "?four"] {
        fleet.done(&["feed", "add", &format!("{url}{path}")]);
    }
    browser.go(&format!("{}/requeues", fleet.server)).await;
    browser.click("input[name=all]").await;
    browser.fill("input[name=rate]", "0.5").await;
    browser.click("form[action$=plan] button").await;
    assert!(browser.text("#plan").await.contains("4 feeds match; 4 feeds"));
    assert!(browser.text("#requeues").await.contains("No requeues yet"), "a dry run starts nothing");
    browser.click("#start").await;
    assert!(browser.text("#requeues .running").await.contains("running"));
}

/// Reads how many feeds were woken.
async fn woken(browser: &Browser) -> u64 {
    let value = browser.eval("return document.querySelector('#requeues progress').value").await;
    value.as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_progress_of_a_requeue_is_watched_to_its_end_without_a_reload() {
    let (fleet, url) = fleet(&[]).await;
    let browser = Browser::open(DESKTOP).await;
    start_requeue(&fleet, &browser, &url).await;
    browser.eval("window.isTheSame = true").await;
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut seen = vec![woken(&browser).await];
    while browser.has("#requeues .running").await {
        let now = woken(&browser).await;
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        assert!(Instant::now() < deadline, "the requeue does not end: {seen:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    seen.push(woken(&browser).await);
    assert!(seen[0] < 4 && seen.is_sorted() && seen.last() == Some(&4), "{seen:?}");
    assert!(seen.iter().any(|woken| (1..4).contains(woken)), "it advances step by step: {seen:?}");
    assert!(browser.text("#requeues tbody tr").await.contains("done"));
    assert_eq!(browser.eval("return window.isTheSame").await, true, "nobody reloaded the page");
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_progress_of_a_requeue_is_watched_without_a_script_by_a_link() {
    let (fleet, url) = fleet(&[]).await;
    let browser = Browser::open(PHONE).await;
    browser.devtools("Emulation.setScriptExecutionDisabled", json!({ "value": true })).await;
    start_requeue(&fleet, &browser, &url).await;
    let deadline = Instant::now() + Duration::from_secs(120);
    while browser.text("#requeues tbody tr").await.contains("running") {
        assert!(Instant::now() < deadline, "the requeue does not end");
        tokio::time::sleep(Duration::from_millis(500)).await;
        // The link is there as long as something runs.
        browser.click("#current").await;
    }
    let row = browser.text("#requeues tbody tr").await;
    assert!(row.contains("4 of 4") && row.contains("done"), "{row}");
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_that_is_no_longer_shown_because_the_login_has_ended_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fleet.toml");
    let token = format!("[[api.tokens]]\nname = \"do\"\ntoken = \"{TOKEN}\"\nrole = \"write\"\n");
    std::fs::write(&file, token).unwrap();
    let (fleet, url) = fleet(&["--config", file.to_str().unwrap()]).await;
    let post = async |path: &str, body: serde_json::Value| {
        let request = reqwest::Client::new().post(format!("{}/api/v1/{path}", fleet.server)).bearer_auth(TOKEN);
        let request = request.header("content-type", "application/json").body(body.to_string());
        assert!(request.send().await.unwrap().status().is_success(), "{path}");
    };
    for path in ["", "?two", "?three"] {
        post("feeds", json!({ "url": format!("{url}{path}") })).await;
    }
    let browser = Browser::open(DESKTOP).await;
    browser.go(&format!("{}/login?next=requeues", fleet.server)).await;
    browser.fill("input[name=token]", TOKEN).await;
    browser.click("#main button").await;
    browser.until("location.pathname == '/requeues'").await;
    post("requeue", json!({ "filter": { "all": true }, "rate": 0.01 })).await;
    browser.go(&format!("{}/requeues", fleet.server)).await;
    browser.until("document.querySelector('.running')").await;
    browser.devtools("Network.clearBrowserCookies", json!({})).await;
    browser.until("document.querySelector('#requeues [role=alert]')").await;
    browser.check("requeues-logged-out").await;
    browser.click("#requeues [role=alert] a").await;
    browser.until("location.pathname == '/login'").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feeds_buttons_are_reached_with_the_keyboard_alone() {
    let (fleet, url) = fleet(&[]).await;
    fleet.done(&["feed", "add", &url]);
    let browser = Browser::open(DESKTOP).await;
    browser.go(&format!("{}/feeds/1", fleet.server)).await;
    let mut way = Vec::new();
    while way.last().is_none_or(|at| at != "Forget its ETag") {
        let (at, framed) = browser.tab().await;
        assert!(framed && way.len() < 30, "{at} after {way:?} has no frame, or it does not end");
        way.push(at);
    }
    let begin = [
        "Skip to the content",
        "feedfleet",
        "Fleet",
        "Entries",
        "Feeds",
        "Hosts",
        "Requeues",
        "Subscriptions",
        "Audit",
        "Configuration",
        "Publishers",
        "Feeds",
    ];
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
    browser.until_text("h1", TITLE).await;
    assert!(browser.text(".timeline").await.contains("New content"));
    browser.click("#buttons button").await;
    asked(&fleet, "/harbour", 1).await;
    assert_eq!(browser.text("#done").await, "It will be polled as soon as its host allows it.");
    browser.click("nav a[href$=status]").await;
    browser.fill("input[name=url]", &url).await;
    browser.click("form.search button").await;
    browser.until_text("main", "Yes, it is read.").await;
}
