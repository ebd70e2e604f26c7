//! What consumers get, as a list and as a stream.

use axum::body::BodyDataStream;
use axum::http::StatusCode;
use futures_util::StreamExt;

use super::*;

/// How long something may take that is to come.
const PATIENCE: Duration = Duration::from_secs(120);

/// A client of the stream.
struct Reader {
    body: BodyDataStream,
    text: String,
}

/// One event of the stream: its fields by name, a comment under the empty one.
type Fields = std::collections::BTreeMap<String, String>;

impl Fleet {
    async fn stream(&self, path: &str, headers: &[(&str, &str)]) -> Result<Reader, Answer> {
        let mut request = Request::builder().uri(path).header(header::HOST, "127.0.0.1:7878");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let response = self.router.clone().call(request).await.unwrap();
        if response.status() == StatusCode::OK {
            assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
            return Ok(Reader { body: response.into_body().into_data_stream(), text: String::new() });
        }
        let status = response.status().as_u16();
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        Err(Answer { status, body: serde_json::from_slice(&bytes).unwrap() })
    }

    async fn follow(&self, path: &str) -> Reader {
        self.stream(path, &[]).await.unwrap()
    }

    async fn refusal(&self, path: &str) -> Answer {
        self.stream(path, &[]).await.err().expect("a refusal")
    }

    async fn epoch(&self) -> String {
        self.ops.store.events(0, 1).await.unwrap().epoch
    }
}

impl Reader {
    /// Returns the next event that is more than a comment or a time to wait; `None` at the end.
    async fn next(&mut self) -> Option<Fields> {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let fields = block.lines().filter_map(|line| line.split_once(':'));
                let fields: Fields =
                    fields.map(|(name, value)| (name.to_owned(), value.trim_start().to_owned())).collect();
                self.text = rest.to_owned();
                if fields.contains_key("data") {
                    return Some(fields);
                }
            }
            let bytes = tokio::time::timeout(PATIENCE, self.body.next()).await.expect("the next event")?;
            self.text.push_str(std::str::from_utf8(&bytes.unwrap()).unwrap());
        }
    }

    async fn event(&mut self) -> (String, Value) {
        let mut fields = self.next().await.expect("another event");
        (fields.remove("event").unwrap(), serde_json::from_str(&fields["data"]).unwrap())
    }
}

#[tokio::test]
async fn events_are_listed_with_their_feeds_and_entries() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://example.com/feed.xml").await;
    fleet.polled(id, &["1", "2"]).await;
    fleet.moved(id, "https://example.org/feed.xml").await;
    let list = fleet.get("/api/v1/events?limit=2").await;
    let added = &list.body["items"][0];
    assert_eq!((&added["kind"], &added["feed_url"]), (&json!("feed.added"), &json!("https://example.org/feed.xml")));
    assert_eq!((list.status, &list.body["oldest"], &list.body["next"]), (200, &json!(1), &json!(2)));
    let list = fleet.get("/api/v1/events?after=2").await.body;
    assert_eq!((&list["epoch"], &list["next"]), (&json!(fleet.epoch().await), &json!(4)));
    let [entry, moved] = list["items"].as_array().unwrap().as_slice() else { panic!("{list}") };
    assert_eq!((&entry["seq"], &entry["kind"], &entry["feed_id"]), (&json!(3), &json!("entry.new"), &json!(id)));
    assert_eq!((&entry["entry"]["id"], &entry["entry"]["seq"]), (&json!("2"), &json!(3)));
    assert_eq!((&moved["kind"], &moved["feed_url"]), (&json!("feed.moved"), &json!("https://example.org/feed.xml")));
    assert_eq!(fleet.get("/api/v1/events?after=x").await.status, 400);
}

#[tokio::test]
async fn a_stream_tells_what_is_there_and_goes_on_with_what_comes() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://example.com/feed.xml").await;
    fleet.polled(id, &["1", "2"]).await;
    let epoch = fleet.epoch().await;
    let mut reader = fleet.follow("/api/v1/events").await;
    let (kind, data) = reader.event().await;
    assert_eq!((kind.as_str(), data), ("epoch", json!({ "epoch": epoch, "oldest": 1, "after": 0 })));
    for (id, kind) in [("1", "feed.added"), ("2", "entry.new")] {
        let next = reader.next().await.unwrap();
        assert_eq!((next["id"].as_str(), next["event"].as_str()), (id, kind));
    }
    assert_eq!(reader.event().await.1["entry"]["id"], "2");
    fleet.polled(id, &["3"]).await;
    let (kind, data) = reader.event().await;
    assert_eq!((kind.as_str(), &data["seq"], &data["epoch"]), ("entry.new", &json!(4), &json!(epoch)));

    let mut again = fleet.stream("/api/v1/events?after=0", &[("last-event-id", "3")]).await.unwrap();
    assert_eq!(again.event().await.1["after"], 3);
    assert_eq!(again.event().await.1["seq"], 4);
    let mut latest = fleet.follow("/api/v1/events?after=latest").await;
    assert_eq!(latest.event().await.1["after"], 4);
}

#[tokio::test]
async fn events_of_an_erased_feed_are_told_without_what_is_gone() {
    let fleet = Fleet::new().await;
    let erased = fleet.feed("https://example.com/erased.xml").await;
    fleet.polled(erased, &["1"]).await;
    fleet.ask("DELETE", &format!("/api/v1/feeds/{erased}"), None).await;
    let list = fleet.get("/api/v1/events").await.body;
    let event = &list["items"][0];
    assert_eq!((&event["feed_id"], event.get("feed_url"), event.get("entry")), (&json!(erased), None, None), "{list}");
}

#[tokio::test]
async fn a_cursor_that_means_nothing_here_is_refused_with_the_oldest_number() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://example.com/feed.xml").await;
    for round in 1..=3 {
        fleet.polled(id, &[&round.to_string()]).await;
    }
    let epoch = fleet.epoch().await;
    for path in ["/api/v1/events?after=5", "/api/v1/events?epoch=another", "/api/v1/events?after=2&epoch=another"] {
        let refusal = fleet.refusal(path).await;
        assert_eq!((refusal.status, &refusal.body["epoch"]), (410, &json!(epoch)), "{path}: {}", refusal.body);
        assert_eq!(fleet.get(path).await.status, 410, "{path} as a list");
    }
    assert!(fleet.stream(&format!("/api/v1/events?after=4&epoch={epoch}"), &[]).await.is_ok());

    fleet.ops.store.prune(fleet.clock.now().after(Duration::from_secs(1)), None).await.unwrap();
    fleet.polled(id, &["4"]).await;
    let refusal = fleet.refusal("/api/v1/events?after=1").await;
    assert_eq!((refusal.status, &refusal.body["oldest"]), (410, &json!(5)), "{}", refusal.body);
    assert!(fleet.stream("/api/v1/events?after=4", &[]).await.is_ok());
    let mut anew = fleet.follow("/api/v1/events?after=0").await;
    assert_eq!((anew.event().await.0, anew.event().await.1["seq"].clone()), ("epoch".to_owned(), json!(5)));
}

/// Events that were not taken yet are in the store and not in memory: when retention removes them, they cannot be sent
/// any more.
#[tokio::test]
async fn nothing_is_gathered_for_a_client_that_does_not_read() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://example.com/feed.xml").await;
    let entries: Vec<String> = (1..=500).map(|number| number.to_string()).collect();
    fleet.polled(id, &entries.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut reader = fleet.follow("/api/v1/events").await;
    assert_eq!(reader.event().await.0, "epoch");
    fleet.ops.store.prune(fleet.clock.now().after(Duration::from_secs(1)), None).await.unwrap();
    let mut received = 0;
    while reader.next().await.is_some() {
        received += 1;
    }
    assert!((1..100).contains(&received), "{received} of 500 were in memory");
    assert_eq!(fleet.refusal(&format!("/api/v1/events?after={received}")).await.status, 410);
}

#[tokio::test]
async fn a_new_epoch_is_told_and_ends_the_stream() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://example.com/feed.xml").await;
    let mut reader = fleet.follow("/api/v1/events?after=1").await;
    assert_eq!(reader.event().await.0, "epoch");
    let epoch = fleet.ops.store.begin_epoch().await.unwrap();
    fleet.polled(id, &["1"]).await;
    let (kind, data) = reader.event().await;
    assert_eq!((kind.as_str(), &data["epoch"]), ("epoch", &json!(epoch)));
    assert_eq!(reader.next().await, None);
}

#[tokio::test]
async fn a_stream_without_news_says_now_and_then_that_it_lives() {
    let fleet = Fleet::new().await;
    let mut reader = fleet.follow("/api/v1/events").await;
    assert_eq!(reader.event().await.0, "epoch");
    let said = tokio::time::timeout(PATIENCE, reader.body.next()).await.expect("a heartbeat").unwrap().unwrap();
    assert!(said.starts_with(b":"), "{said:?}");
}

#[tokio::test]
async fn streams_end_when_the_fleet_stops() {
    let fleet = Fleet::new().await;
    let mut reader = fleet.follow("/api/v1/events").await;
    assert_eq!(reader.event().await.0, "epoch");
    // While it drains, a stream continues: a client that came back at once might reach the same process again.
    fleet.ops.quiet.cancel();
    assert!(fleet.stream("/api/v1/events", &[]).await.is_ok());
    fleet.closing.cancel();
    assert_eq!(reader.next().await, None);
}

#[tokio::test]
async fn there_are_places_for_so_many_streams_and_no_more() {
    let fleet = Fleet::new().await;
    let mut readers = Vec::new();
    for _ in 0..500 {
        readers.push(fleet.follow("/api/v1/events").await);
    }
    assert_eq!(fleet.refusal("/api/v1/events").await.status, 503);
    readers.pop();
    assert!(fleet.stream("/api/v1/events", &[]).await.is_ok());
}

#[tokio::test]
async fn streams_share_the_room_for_large_events() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://example.com/feed.xml").await;
    let large = common::entry::Entry {
        id: "1".to_owned(),
        content: Some("x".repeat(1 << 20)),
        ..common::entry::Entry::default()
    };
    fleet.polled_with(id, vec![large]).await;
    let mut readers = Vec::new();
    for _ in 0..6 {
        let mut reader = fleet.follow("/api/v1/events?after=1").await;
        assert_eq!(reader.event().await.0, "epoch");
        readers.push(reader);
    }
    let mut waiting = readers.split_off(3);
    for reader in &mut readers {
        assert_eq!(reader.event().await.0, "entry.new");
    }
    let mut received = 0;
    for reader in &mut waiting {
        received += usize::from(tokio::time::timeout(Duration::from_millis(300), reader.event()).await.is_ok());
    }
    assert!(received <= 1, "{received} more than 3 megabytes are held");
    let mut last = waiting.pop().unwrap();
    drop((readers, waiting));
    assert_eq!(last.event().await.0, "entry.new", "those who wait get it when others have gone");
}

#[tokio::test]
async fn a_stream_needs_a_token_where_there_are_tokens() {
    let token = ApiToken::new("look", "0123456789abcdef", ApiRole::Read);
    let fleet = Fleet::with_tokens(vec![token]).await;
    assert_eq!(fleet.refusal("/api/v1/events").await.status, 401);
    assert!(fleet.stream("/api/v1/events", &[("authorization", "Bearer 0123456789abcdef")]).await.is_ok());
}

#[tokio::test]
async fn a_stream_tells_only_what_was_asked_for_and_says_how_far_it_looked() {
    let fleet = Fleet::new().await;
    let label = json!({ "url": "https://a.example/feed.xml", "labels": ["green"] });
    let green = fleet.post("/api/v1/feeds", label).await.body["id"].as_i64().unwrap();
    let other = fleet.feed("https://b.example/feed.xml").await;
    fleet.polled(green, &["1"]).await;
    fleet.polled(other, &["2", "3"]).await;
    let mut reader = fleet.follow("/api/v1/events/stream?label=green&kind=entry.*").await;
    assert_eq!(reader.event().await.0, "epoch");
    let (kind, data) = reader.event().await;
    assert_eq!((kind.as_str(), &data["entry"]["id"], &data["labels"]), ("entry.new", &json!("1"), &json!(["green"])));
    let newest = fleet.ops.store.latest_seq().await.unwrap();
    let said = tokio::time::timeout(PATIENCE, reader.body.next()).await.expect("a heartbeat").unwrap().unwrap();
    let said = std::str::from_utf8(&said).unwrap();
    assert!(said.contains(&format!("id: {newest}\n")) && !said.contains("data"), "{said:?}");
    fleet.polled(other, &["4"]).await;
    fleet.polled(green, &["5"]).await;
    assert_eq!(reader.event().await.1["entry"]["id"], "5");
    let list = fleet.get("/api/v1/events?label=green&order=newest&limit=1").await.body;
    assert_eq!((&list["items"][0]["entry"]["id"], &list["more"]), (&json!("5"), &json!(true)));
}
