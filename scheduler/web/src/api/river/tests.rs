//! The river as feeds, as they are sent.

use axum::http::header;
use common::entry::{Author, Enclosure, Entry, EntryDetails};
use common::time::{Clock, Timestamp};
use serde_json::json;
use std::time::Duration;

use crate::testing::Fleet;

fn entry(id: &str, title: &str, published: Option<Timestamp>) -> Entry {
    Entry {
        id: id.to_owned(),
        title: Some(title.to_owned()),
        url: Some(format!("https://blog.example/{id}")),
        published,
        ..Entry::default()
    }
}

/// Returns a fleet with entries of two feeds, one of which has everything.
async fn fleet() -> Fleet {
    let fleet = Fleet::new().await;
    let [one, two] = [fleet.feed("https://a.example/feed").await, fleet.feed("https://b.example/feed").await];
    let now = fleet.clock.now();
    let details = EntryDetails {
        image: Some("https://blog.example/fog.png".into()),
        authors: vec![Author { name: "Ann".into(), url: Some("javascript:x".into()), ..Author::default() }],
        ..EntryDetails::default()
    };
    let whole = Entry {
        content: Some("<p onclick=x>Fog\u{1}<script>alert(1)</script></p>".into()),
        summary: Some("short & <b>bold</b>".into()),
        categories: vec!["tides".into()],
        language: Some("en".into()),
        enclosures: vec![Enclosure {
            url: "https://blog.example/fog.mp3".into(),
            media_type: Some("audio/mpeg".into()),
            length: Some(7),
            ..Enclosure::default()
        }],
        details: Some(Box::new(details)),
        ..entry("1", "Fog \u{8}& <rain>", Some(now.before(Duration::from_secs(3600))))
    };
    fleet.polled_with(one, vec![whole]).await;
    fleet.clock.advance(Duration::from_secs(10));
    fleet.polled_with(two, vec![entry("1", "Snow", None)]).await;
    fleet.clock.advance(Duration::from_secs(10));
    fleet
}

async fn text(fleet: &Fleet, path: &str) -> String {
    let answer = fleet.get(path).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_river_is_an_atom_feed_with_everything_that_entries_say() {
    let fleet = fleet().await;
    let feed = text(&fleet, "/entries.atom").await;
    let mut reader = quick_xml::Reader::from_str(&feed);
    while !matches!(reader.read_event().unwrap(), quick_xml::events::Event::Eof) {}
    let all = [
        "<feed xmlns=\"http://www.w3.org/2005/Atom\"><id>urn:feedfleet:",
        "<link rel=\"self\" href=\"http://127.0.0.1:7878/entries.atom\"",
        "<title>Fog &amp; &lt;rain&gt;</title>",
        "<updated>2026-09-21T13:13:20.000Z</updated>",
        "<author><name>Ann</name></author>",
        "<category term=\"tides\"/>",
        "<link rel=\"enclosure\" href=\"https://blog.example/fog.mp3\" type=\"audio/mpeg\" length=\"7\"/>",
        "<content type=\"html\">&lt;p&gt;Fog&lt;/p&gt;</content>",
        "<source><id>https://a.example/feed</id>",
    ];
    for part in all {
        assert!(feed.contains(part), "{part} is missing:\n{feed}");
    }
    assert!(feed.find("Snow").unwrap() < feed.find("Fog").unwrap(), "the newest first");
    assert!(!feed.contains("xml:base"), "sanitised texts have no relative links:\n{feed}");
    for hostile in ["script", "onclick", "javascript:", "\u{1}", "\u{8}"] {
        assert!(!feed.contains(hostile), "{hostile:?}:\n{feed}");
    }
    let ids: Vec<&str> = feed.split("<id>urn:feedfleet:entry:").skip(1).map(|id| &id[..3]).collect();
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1], "entries of two feeds with the same id are two entries");
}

#[tokio::test]
async fn an_edited_entry_without_times_of_its_own_has_a_later_update_in_the_feeds() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://a.example/feed").await;
    let seen = fleet.clock.now();
    fleet.polled_with(id, vec![entry("1", "Fog", None)]).await;
    fleet.clock.advance(Duration::from_secs(10));
    let before = text(&fleet, "/entries.atom").await;
    let edited = fleet.clock.now();
    fleet.polled_with(id, vec![entry("1", "Rain", None)]).await;
    fleet.clock.advance(Duration::from_secs(10));
    let after = text(&fleet, "/entries.atom").await;
    for (feed, title, updated) in [(before, "Fog", seen), (after, "Rain", edited)] {
        let part = format!("<title>{title}</title><updated>{updated}</updated><published>{seen}</published>");
        assert!(feed.contains(&part), "{part} is missing:\n{feed}");
    }
    let feed = fleet.get("/entries.json").await.body;
    assert_eq!(feed["items"][0]["date_modified"], json!(edited));
}

#[tokio::test]
async fn the_river_is_a_json_feed_and_takes_the_lists_filters() {
    let fleet = fleet().await;
    let feed = fleet.get("/entries.json").await.body;
    assert_eq!(feed["version"], "https://jsonfeed.org/version/1.1");
    let [snow, fog] = &feed["items"].as_array().unwrap()[..] else { panic!("{feed}") };
    assert_eq!((&snow["title"], &snow["content_text"]), (&json!("Snow"), &json!("")));
    assert_eq!(fog["content_html"], "<p>Fog\u{1}</p>");
    assert_eq!(fog["attachments"][0]["mime_type"], "audio/mpeg");
    assert_eq!(fog["authors"], json!([{ "name": "Ann" }]), "a link that runs code is left out");
    assert_eq!(fog["_feedfleet"]["feed_url"], "https://a.example/feed");
    for (query, titles) in [
        ("q=SNOW", vec!["Snow"]),
        ("feed=1", vec!["Fog \u{8}& <rain>"]),
        ("language=de", vec![]),
        ("q=&feed=2", vec!["Snow"]),
    ] {
        let feed = fleet.get(&format!("/entries.json?{query}")).await.body;
        let found: Vec<&str> =
            feed["items"].as_array().unwrap().iter().map(|item| item["title"].as_str().unwrap()).collect();
        assert_eq!(found, titles, "{query}");
    }
    assert_eq!(fleet.get("/entries.json?q=snow").await.body["title"], "feedfleet: “snow”");
    for wrong in ["limit=201", "order=oldest", "after=1&before=2", "colour=red", "feed=99"] {
        let status = fleet.get(&format!("/entries.json?{wrong}")).await.status;
        assert!(status == 400 || status == 404, "{wrong}: {status}");
    }
}

#[tokio::test]
async fn the_feeds_pages_lead_through_all_entries() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://a.example/feed").await;
    fleet.polled_with(id, (0..7).map(|n| entry(&n.to_string(), &n.to_string(), None)).collect()).await;
    let (mut path, mut found) = ("/entries.json?limit=3&q=".to_owned(), Vec::new());
    loop {
        let feed = fleet.get(&path).await.body;
        found.extend(feed["items"].as_array().unwrap().iter().map(|item| item["title"].as_str().unwrap().to_owned()));
        let Some(next) = feed["next_url"].as_str() else { break };
        path = next.strip_prefix("http://127.0.0.1:7878").unwrap().to_owned();
    }
    assert_eq!(found, ["6", "5", "4", "3", "2", "1", "0"]);
}

#[tokio::test]
async fn an_unchanged_river_is_a_304_until_something_new_comes() {
    for path in ["/entries.atom", "/entries.json?label="] {
        let fleet = fleet().await;
        let first = fleet.respond(path).await;
        let headers = first.headers();
        let tag = headers[header::ETAG].clone();
        assert!(!headers.contains_key(header::LAST_MODIFIED));
        assert_eq!(headers[header::CACHE_CONTROL], "private, no-cache");
        let again = async |name: header::HeaderName, value: &header::HeaderValue| {
            fleet.send_with(path, &[(name, value.to_str().unwrap())]).await.status
        };
        assert_eq!(again(header::IF_NONE_MATCH, &tag).await, 304, "{path}");
        fleet.clock.advance(Duration::from_secs(10));
        fleet.polled_with(1, vec![entry(path, path, None)]).await;
        fleet.clock.advance(Duration::from_secs(10));
        assert_eq!(again(header::IF_NONE_MATCH, &tag).await, 200, "{path}");
    }
}

#[tokio::test]
async fn a_client_with_a_date_alone_sees_that_a_feed_was_labelled_or_removed() {
    let fleet = fleet().await;
    fleet.clock.advance(Duration::from_secs(60));
    let now = header::HeaderValue::from_static("Fri, 01 Jan 2100 00:00:00 GMT");
    let since = async || {
        let answer = fleet.send_with("/entries.json", &[(header::IF_MODIFIED_SINCE, now.to_str().unwrap())]).await;
        assert_eq!(answer.status, 200);
        answer.body["items"].as_array().unwrap().len()
    };
    assert_eq!(since().await, 2);
    fleet.ask("DELETE", "/api/v1/feeds/2", None).await;
    assert_eq!(since().await, 1, "the entries of a removed feed are gone");
}

#[tokio::test]
async fn the_river_asks_for_a_token_like_the_api() {
    let token = common::config::ApiToken::new("look", "0123456789abcdef", common::config::ApiRole::Read);
    let fleet = Fleet::with_tokens(vec![token]).await;
    for path in ["/entries.atom", "/entries.json"] {
        assert_eq!(fleet.get(path).await.status, 401, "{path}");
        let with = async |value: &str| fleet.send_with(path, &[(header::AUTHORIZATION, value)]).await.status;
        assert_eq!(with("Bearer 0123456789abcdef").await, 200);
        assert_eq!(with("Basic YW55Ym9keTowMTIzNDU2Nzg5YWJjZGVm").await, 200);
        assert_eq!(with("Basic YW55Ym9keTp3cm9uZw==").await, 401);
    }
}
