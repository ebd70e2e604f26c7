//! Texts of strangers that contain scripts, on every page in a real browser.

use std::time::{Duration, Instant};

use load_tests::origin::script::Script;
use serde_json::{Value, json};

use crate::browser::{Browser, DESKTOP};
use crate::fleet::{Fleet, PATIENCE};

/// Each marks the page when it runs.
const HOSTILE: [&str; 3] = [
    "</title></script><script>window.ran=1</script><img src=x onerror=window.ran=1>",
    "'\"><svg onload=window.ran=1><a href=\"javascript:window.ran=1\">x</a>{{7*7}}${window.ran=1}",
    "<iframe srcdoc='<script>parent.ran=1</script>'></iframe><style>body{display:none}</style>",
];

/// As long as a label may be.
const LABEL: &str = "<img src=x onerror=window.ran=1><script>window.ran=1</script>";

/// Returns the text escaped for XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns a feed that says these words wherever a feed can say something.
fn feed() -> String {
    let item = |(number, words): (usize, &&str)| {
        let text = escaped(words);
        format!(
            "<item><guid>{number}{text}</guid><title>{text}</title><link>javascript:window.ran=1</link><author>{text}</author>\
             <category>{text}</category><description>{text}</description><content:encoded>{text}&lt;p&gt;x&lt;/p&gt;</content:encoded>\
             <enclosure url=\"javascript:window.ran=1\" type=\"image/png\" length=\"1\"/><comments>javascript:window.ran=1</comments></item>"
        )
    };
    let items: String = HOSTILE.iter().enumerate().map(item).collect();
    let text = escaped(&HOSTILE.concat());
    format!(
        "<rss version=\"2.0\" xmlns:content=\"http://purl.org/rss/1.0/modules/content/\"><channel><title>{text}</title>\
         <link>javascript:window.ran=1</link><description>{text}</description><generator>{text}</generator><copyright>{text}</copyright>\
         <image><url>javascript:window.ran=1</url><title>{text}</title></image>{items}</channel></rss>"
    )
}

/// Returns a fleet in which everything that has a name is called so, and the paths of its pages.
async fn fleet() -> (Fleet, tempfile::TempDir, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fleet.toml");
    std::fs::write(&file, "[secrets]\nkey = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"\n").unwrap();
    let fleet = Fleet::start(&["--config", file.to_str().unwrap()]).await;
    fleet.origin.set("/feed", Script::body("application/rss+xml", feed()).header("etag", escaped(HOSTILE[1])));
    let client = reqwest::Client::new();
    let send = async |method: reqwest::Method, path: &str, body: Value| {
        let request = client.request(method, format!("{}/api/v1/{path}", fleet.server));
        let answer = request.header("content-type", "application/json").body(body.to_string()).send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.text().await.unwrap());
    };
    let url = fleet.origin.url("/feed");
    send(reqwest::Method::POST, "feeds", json!({ "url": url, "labels": [LABEL], "external_id": HOSTILE[1] })).await;
    send(reqwest::Method::PUT, "hosts/127.0.0.1", json!({ "gap": 0, "reason": HOSTILE.concat() })).await;
    let target = format!("https://hooks.example/{}", HOSTILE[0]);
    let wish = json!({ "kind": "webhook", "target": target, "filter": { "q": HOSTILE[1], "label": LABEL } });
    send(reqwest::Method::POST, "subscriptions", wish).await;
    let deadline = Instant::now() + PATIENCE;
    while !fleet.done(&["entries", "--json"]).contains("window.ran") {
        assert!(Instant::now() < deadline, "no entries come");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let query = |name: &str| HOSTILE.map(|text| format!("{name}={}", encoded(text)));
    let mut paths: Vec<String> =
        ["", "feeds", "feeds/1", "feeds/add", "entries", "entries?feed=1", "hosts", "hosts/127.0.0.1", "requeues"]
            .map(str::to_owned)
            .into();
    paths.extend(
        ["subscriptions", "subscriptions/1", "audit", "config", "docs/api", "entries.atom", "entries.json"]
            .map(str::to_owned),
    );
    paths.push(format!("status?url={}", encoded(&url)));
    for (page, name) in [
        ("feeds", "q"),
        ("feeds", "label"),
        ("feeds", "done"),
        ("feeds", "earlier"),
        ("entries", "q"),
        ("entries", "label"),
        ("entries", "feed"),
        ("hosts", "after"),
        ("requeues", "done"),
        ("subscriptions", "after"),
        ("audit", "after"),
        ("config", "restart"),
        ("status", "url"),
        ("login", "next"),
    ] {
        paths.extend(query(name).map(|query| format!("{page}?{query}")));
    }
    paths.extend(HOSTILE.map(|text| format!("hosts/{}", encoded(text))));
    paths.extend(HOSTILE.map(|text| format!("nowhere/{}", encoded(text))));
    (fleet, folder, paths)
}

fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_page_runs_what_feeds_and_callers_say() {
    let (fleet, _folder, paths) = fleet().await;
    let browser = Browser::open(DESKTOP).await;
    // A page of the browser's own marks nothing: the check notices what runs.
    browser.go("data:text/html,<script>window.ran=1</script>").await;
    assert_eq!(browser.eval("return window.ran").await, 1);
    for path in paths {
        browser.go(&format!("{}/{path}", fleet.server)).await;
        let state = "return [window.ran ?? 0, document.querySelectorAll('a[href^=\"javascript:\" i], iframe, main style, main img').length, \
                     document.contentType]";
        let state = browser.eval(state).await;
        assert_eq!((&state[0], &state[1]), (&json!(0), &json!(0)), "{path}");
        if state[2] == "text/html" && !path.starts_with("entries.") {
            // Somebody will click everything that has an address.
            let click = "document.querySelectorAll('summary').forEach((one) => one.click()); return window.ran ?? 0";
            assert_eq!(browser.eval(click).await, 0, "{path}");
        }
        // The browser reports here what the page's policy stopped: nothing is left to it.
        let complaints = browser.complaints().await;
        // A page that is refused is reported with its address, which has the word too.
        let is_refusal = |line: &str| line.contains("Failed to load resource");
        let is_script =
            |line: &&String| line.contains("Content Security Policy") || (line.contains("script") && !is_refusal(line));
        assert_eq!(complaints.iter().find(is_script), None, "{path}");
    }
}
