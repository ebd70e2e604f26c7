//! One feed's whole life against a real nginx with static files.

use std::path::Path;
use std::time::Duration;

use crate::harness::{Fleet, Home};
use crate::web_servers::WebServer;
use store::Events;

fn rss(items: &[(&str, &str)]) -> String {
    let items: String = items
        .iter()
        .map(|(id, title)| {
            format!("<item><guid isPermaLink=\"false\">{id}</guid><title>{title}</title><link>/{id}</link></item>")
        })
        .collect();
    format!("<rss version=\"2.0\"><channel><title>R</title><link>http://r.example/</link>{items}</channel></rss>")
}

const ATOM: &str = r#"<feed xmlns="http://www.w3.org/2005/Atom"><title>A</title><id>urn:a</id>
    <updated>2026-01-01T00:00:00Z</updated><entry><id>urn:a:1</id><title>Atom one</title>
    <link href="http://a.example/1"/><updated>2026-01-01T00:00:00Z</updated></entry></feed>"#;
const JSON: &str = r#"{"version":"https://jsonfeed.org/version/1.1","title":"J","items":[
    {"id":"j1","title":"Json one","url":"http://j.example/1","content_text":"x"}]}"#;

/// A day in seconds: polls every 300 ms.
const CONFIG: &str = r#"
[policy]
mode = "classes"
min_interval = "300ms"
salt = 0.0
hot_minutes = false
no_validator_factor = 1.0
[policy.category.d]
interval = "300ms"
interval_max = "300ms"
[host]
gap = "10ms"
"#;

async fn titles_and_links(fleet: &Fleet) -> Vec<(String, String)> {
    let page = fleet.get("/api/v1/entries?after=0&limit=100").await;
    let text = |entry: &serde_json::Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let mut found: Vec<(String, String)> =
        page["items"].as_array().unwrap().iter().map(|entry| (text(entry, "title"), text(entry, "url"))).collect();
    found.sort();
    found
}

async fn wait_for_polls(fleet: &mut Fleet, nginx: &WebServer, name: &str, more: usize) {
    let wanted = nginx.answers(name).len() + more;
    fleet.wait_for("more polls", async |_| (nginx.answers(name).len() >= wanted).then_some(())).await;
}

/// Replaces a file atomically, as a publisher's tool does, with its own modification time.
fn publish(path: &Path, text: &str) {
    let next = path.with_extension("next");
    std::fs::write(&next, text).unwrap();
    std::fs::rename(next, path).unwrap();
}

#[tokio::test]
async fn three_static_feeds_are_read_once_and_then_only_asked_whether_they_changed() {
    let nginx = WebServer::nginx("");
    publish(&nginx.file("r.rss"), &rss(&[("1", "Rss one"), ("2", "Rss two")]));
    publish(&nginx.file("a.atom"), ATOM);
    publish(&nginx.file("j.json"), JSON);
    let home = Home::new(CONFIG);
    let mut fleet = home.start(&[&nginx.url("r.rss"), &nginx.url("a.atom"), &nginx.url("j.json")]);

    fleet.wait_for("all entries", async |fleet| (titles_and_links(fleet).await.len() == 4).then_some(())).await;
    let link = |path: &str| nginx.url(path);
    let mut expected = vec![
        ("Atom one".to_owned(), "http://a.example/1".to_owned()),
        ("Json one".to_owned(), "http://j.example/1".to_owned()),
        ("Rss one".to_owned(), link("1")),
        ("Rss two".to_owned(), link("2")),
    ];
    assert_eq!(titles_and_links(&fleet).await, expected);

    wait_for_polls(&mut fleet, &nginx, "r.rss", 3).await;
    for name in ["r.rss", "a.atom", "j.json"] {
        let answers = nginx.answers(name);
        assert_eq!(answers[0].0, 200);
        assert!(answers[1..].iter().all(|(status, _)| *status == 304), "{name}: {answers:?}");
    }

    // A changed file: its new entry appears once.
    publish(&nginx.file("r.rss"), &rss(&[("3", "Rss three"), ("1", "Rss one"), ("2", "Rss two")]));
    expected.push(("Rss three".to_owned(), link("3")));
    expected.sort();
    fleet.wait_for("the new entry", async |fleet| (titles_and_links(fleet).await.len() == 5).then_some(())).await;
    assert_eq!(titles_and_links(&fleet).await, expected);

    // A touched file with the same bytes: read, recognised by its hash, not parsed.
    let read_before = fleet.metric("feedfleet_polls_total{outcome=\"modified\"}").await;
    let touched = std::fs::File::options().append(true).open(nginx.file("j.json")).unwrap();
    touched.set_modified(std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)).unwrap();
    let full = |nginx: &WebServer| nginx.answers("j.json").iter().filter(|(status, _)| *status == 200).count();
    fleet.wait_for("the touched file", async |_| (full(&nginx) == 2).then_some(())).await;
    wait_for_polls(&mut fleet, &nginx, "j.json", 2).await;
    assert_eq!(full(&nginx), 2, "asked again without the new validators");
    assert_eq!(fleet.metric("feedfleet_polls_total{outcome=\"modified\"}").await, read_before);
    assert_eq!(titles_and_links(&fleet).await, expected);

    // A restart keeps the validators.
    fleet.stop();
    let before = nginx.answers("r.rss").len();
    let mut fleet = home.start(&[]);
    wait_for_polls(&mut fleet, &nginx, "r.rss", 2).await;
    let answers = nginx.answers("r.rss");
    assert!(answers[before..].iter().all(|(status, _)| *status == 304), "{answers:?}");
    assert_eq!(titles_and_links(&fleet).await, expected);
    fleet.stop();
}

/// Returns a malformed feed (a bare &) with these items that says where it continues.
fn broken_rss(items: &[&str]) -> String {
    format!(
        "<rss version=\"2.0\" xmlns:itunes=\"http://www.itunes.com/dtds/podcast-1.0.dtd\" \
         xmlns:atom=\"http://www.w3.org/2005/Atom\"><channel><title>Tide & Tackle</title><language>en</language>\
         <itunes:new-feed-url>https://new.example/rss</itunes:new-feed-url><atom:link rel=\"next\" href=\"?page=2\"/>{}\
         </channel></rss>",
        items.concat()
    )
}

/// Items identified by guid, by link alone, by title and date alone, by text alone.
const ITEMS: [&str; 4] = [
    "<item><guid isPermaLink=\"false\">g</guid><link>/g</link><category>Fog</category>\
       <description>Fog &lt;a href=\"https://far.example/\"&gt;again&lt;/a&gt;</description></item>",
    "<item><link>/l</link><title>By its link</title></item>",
    "<item><title>By its title</title><pubDate>Mon, 02 Nov 2026 08:30:00 GMT</pubDate></item>",
    "<item><description>By its text</description></item>",
];

#[tokio::test]
async fn items_that_move_or_are_edited_are_no_new_entries_and_an_update_where_text_changed() {
    let nginx = WebServer::nginx("");
    let home = Home::new(CONFIG);
    publish(&nginx.file("t.rss"), &broken_rss(&ITEMS));
    let mut fleet = home.start(&[&nginx.url("t.rss")]);
    fleet.wait_for("all entries", async |fleet| (titles_and_links(fleet).await.len() == 4).then_some(())).await;

    let list = fleet.get("/api/v1/entries").await;
    let whole = list["items"].as_array().unwrap().iter().find(|entry| entry["id"] == "g").unwrap();
    assert_eq!(whole["categories"], serde_json::json!(["Fog"]));
    assert_eq!(whole["links"], serde_json::json!(["https://far.example/"]));
    assert_eq!((&whole["language"], &whole["display_title"]), (&"en".into(), &"Fog again".into()));
    let feed = fleet.get("/api/v1/feeds/1").await;
    assert_eq!(feed["onward"]["new_feed_url"], "https://new.example/rss");
    assert_eq!(feed["onward"]["next"], nginx.url("t.rss?page=2"));
    assert_eq!(fleet.metric("feedfleet_parse_repaired_total").await, 1.0);

    // In another order, one with another category, one edited; then two of them removed, and one at another URL.
    let moved = ITEMS[0].replace("<category>Fog</category>", "<category>Weather</category>");
    let edited = ITEMS[1].replace("</item>", "<description>Now with words</description></item>");
    publish(&nginx.file("t.rss"), &broken_rss(&[ITEMS[3], ITEMS[2], &edited, &moved]));
    let read =
        async |fleet: &Fleet, times: f64| (fleet.metric("feedfleet_parse_repaired_total").await == times).then_some(());
    fleet.wait_for("the edited feed", async |fleet| read(fleet, 2.0).await).await;
    publish(&nginx.file("t.rss"), &broken_rss(&[&edited, &moved.replace("/g<", "/elsewhere<")]));
    fleet.wait_for("the shorter feed", async |fleet| read(fleet, 3.0).await).await;
    fleet.stop();

    let events = home.store().await.events(0, 100).await.unwrap().items;
    let of_kind = |kind: &str| events.iter().filter(|event| event.kind == kind).collect::<Vec<_>>();
    assert_eq!((of_kind("entry.new").len(), events.len()), (4, 7), "{events:?}");
    let updated: Vec<_> =
        of_kind("entry.updated").iter().map(|event| event.entry.as_ref().unwrap().entry.clone()).collect();
    assert_eq!(updated[0].summary.as_deref(), Some("Now with words"));
    assert_eq!((updated[1].id.as_str(), &updated[1].url), ("g", &Some(nginx.url("elsewhere"))));
    assert_eq!(home.entries(None).await.len(), 4);
}

#[tokio::test]
async fn run_once_polls_what_is_due_prints_the_entries_and_ends() {
    let nginx = WebServer::nginx("");
    publish(&nginx.file("r.rss"), &rss(&[("1", "Rss one")]));
    let home = Home::new("");
    let url = nginx.url("r.rss");
    let arguments = ["run", "--once", "--data", "data", "--config", "config.toml", "--listen", "127.0.0.1:0", &url];
    let output = home.command(&arguments).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{err}");
    assert!(out.contains("Rss one") && out.contains(&nginx.url("1")), "{out}\n{err}");
    assert_eq!(nginx.answers("r.rss").len(), 1);
    // A moment later nothing is due.
    let again = home.command(&arguments).output().unwrap();
    assert!(again.status.success() && again.stdout.is_empty());
    assert_eq!(nginx.answers("r.rss").len(), 1);
}
