//! Entries, in the order in which they were stored, and what calm readers see of them.

use super::*;

#[tokio::test]
async fn entries_are_read_on_from_a_seq_and_an_outdated_one_is_told() {
    let fleet = Fleet::new().await;
    let (first, second) = (fleet.feed("https://a.example/").await, fleet.feed("https://b.example/").await);
    fleet.polled(first, &["1", "2"]).await;
    fleet.polled(second, &["3"]).await;
    let page = fleet.get("/api/v1/entries?limit=2").await.body;
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    assert!(page["epoch"].is_string() && page["oldest"].is_i64());
    let rest = fleet.get(&format!("/api/v1/entries?after={}", page["next"])).await.body;
    assert_eq!((&rest["items"][0]["id"], &rest["items"][0]["feed_id"]), (&json!("3"), &json!(second)));
    let none = fleet.get(&format!("/api/v1/entries?after={}", rest["next"])).await.body;
    assert_eq!((&none["items"], &none["next"]), (&json!([]), &rest["next"]));
    let own = fleet.get(&format!("/api/v1/feeds/{first}/entries")).await.body;
    assert_eq!(own["items"].as_array().unwrap().len(), 2);

    let later = fleet.clock.advance(Duration::from_secs(3600));
    let _: u64 = fleet.ops.store.prune(later, Some(later)).await.unwrap();
    let missed = fleet.get("/api/v1/entries?after=1").await;
    assert_eq!(missed.status, 410, "{}", missed.body);
    assert!(missed.body["oldest"].as_i64().unwrap() > 2 && missed.body["epoch"].is_string());
    assert_eq!(fleet.get("/api/v1/entries").await.status, 200);
}

#[tokio::test]
async fn calm_groups_without_a_count_are_all_the_subscribers_there_are() {
    let fleet = Fleet::new().await;
    let calm = json!([{ "zone": "Europe/Paris", "subscribers": 30 }]);
    let counts = |feed: &Value| (feed["subscribers"].as_u64(), feed["active_subscribers"].as_u64());
    let added = fleet.post("/api/v1/feeds", json!({ "url": "https://a.org/1", "calm": calm })).await.body;
    assert_eq!((counts(&added), &added["category"]), ((Some(0), Some(0)), &json!("B")));
    let counted = json!({ "url": "https://a.org/2", "calm": calm, "subscribers": 7 });
    assert_eq!(counts(&fleet.post("/api/v1/feeds", counted).await.body), (Some(7), Some(7)));

    let plain = fleet.feed("https://a.org/3").await;
    let set = |id: i64, body: Value| {
        let path = format!("/api/v1/feeds/{id}");
        let fleet = &fleet;
        async move { fleet.ask("PATCH", &path, Some(body)).await.body }
    };
    let changed = set(plain, json!({ "calm": calm })).await;
    assert_eq!(
        (counts(&changed), &changed["category"]),
        ((Some(0), Some(0)), &json!("B")),
        "in place of the one that was meant"
    );
    let both = set(plain, json!({ "subscribers": 1 })).await;
    assert_eq!(counts(&both), (Some(1), Some(1)));
    let more = set(plain, json!({ "calm": [{ "zone": "Asia/Tokyo", "subscribers": 1 }] })).await;
    assert_eq!(counts(&more), (Some(1), Some(1)), "who was counted beside calm ones stays");
    let counted = fleet.feed("https://a.org/4").await;
    set(counted, json!({ "subscribers": 9 })).await;
    assert_eq!(counts(&set(counted, json!({ "calm": calm })).await), (Some(9), Some(9)), "a count is not lost");

    let lines = json!({ "url": "https://a.org/5", "calm": calm }).to_string();
    let request = Request::post("/api/v1/feeds/bulk").header(header::HOST, "127.0.0.1:7878");
    let request = request.header(header::CONTENT_TYPE, "application/x-ndjson").body(Body::from(lines)).unwrap();
    assert_eq!(fleet.send(request).await.status, 200);
    let listed = fleet.get("/api/v1/feeds/lookup?url=https://a.org/5").await.body;
    assert_eq!(counts(&listed), (Some(0), Some(0)));
}

#[tokio::test]
async fn calm_readers_see_nothing_before_their_midnight() {
    // The clock shows 14:13 UTC.
    let fleet = Fleet::new().await;
    let calm = json!([{ "zone": "Europe/Paris", "subscribers": 3 }]);
    let body = json!({ "url": "https://a.org/1", "subscribers": 0, "calm": calm });
    let added = fleet.post("/api/v1/feeds", body).await.body;
    assert_eq!(added["calm"], calm);
    let id = added["id"].as_i64().unwrap();
    fleet.polled(id, &["today"]).await;
    let seen = async |zone: &str| {
        fleet.get(&format!("/api/v1/entries?calm={zone}")).await.body["items"].as_array().unwrap().len()
    };
    assert_eq!((seen("Europe/Paris").await, seen("Asia/Tokyo").await), (0, 0));
    assert_eq!(
        fleet.get("/api/v1/entries?calm=Europe/Paris&after=0").await.body["next"],
        0,
        "and misses nothing later"
    );
    fleet.clock.advance(Duration::from_secs(3600));
    assert_eq!((seen("Europe/Paris").await, seen("Asia/Tokyo").await), (0, 1), "a new day in Tokyo");
    fleet.clock.advance(Duration::from_secs(7 * 3600));
    assert_eq!(seen("Europe/Paris").await, 1);

    let refused = fleet.get("/api/v1/entries?calm=Mars").await;
    assert_eq!(refused.status, 400);
    assert!(refused.body.to_string().contains("calm: 'Mars' is not an IANA time zone"), "{}", refused.body);
    let patched = fleet.ask("PATCH", &format!("/api/v1/feeds/{id}"), Some(json!({ "calm": [] }))).await;
    assert_eq!((patched.status, patched.body.get("calm")), (200, None));
    let body = json!({ "url": "https://a.org/2", "calm": [{ "zone": "Mars", "subscribers": 3 }] });
    let refused = fleet.post("/api/v1/feeds", body).await;
    assert!(refused.body.to_string().contains("calm must be a list of groups"), "{}", refused.body);
}

#[tokio::test]
async fn pages_of_large_entries_are_bounded_and_complete_when_followed() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://example.com/feed.xml").await;
    let large = |number: usize| Entry {
        id: number.to_string(),
        content: Some("<p>wide</p>".repeat(90_000)),
        ..Entry::default()
    };
    fleet.polled_with(id, (0..24).map(large).collect()).await;
    for path in ["/api/v1/entries?limit=1000", "/api/v1/events?limit=1000"] {
        // Behind the event of the feed.
        let (mut seen, mut after) = (Vec::new(), 1);
        loop {
            let page = fleet.get(&format!("{path}&after={after}")).await;
            assert_eq!(page.status, 200, "{}", page.body);
            assert!(page.body.to_string().len() < 10 << 20, "{path}: {}", page.body.to_string().len());
            let items = page.body["items"].as_array().unwrap();
            if items.is_empty() {
                break;
            }
            seen.extend(items.iter().map(|item| item["seq"].as_i64().unwrap()));
            after = page.body["next"].as_i64().unwrap();
        }
        assert_eq!(seen, (2..=25).collect::<Vec<i64>>(), "{path}");
    }
}

/// Each is shorter than the limit of one text, and many of them are not.
#[tokio::test]
async fn a_page_of_short_texts_that_multiply_stays_short() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://example.com/feed.xml").await;
    let summary = format!("<p><b title='{}'>x{}", "y".repeat(3_400), "<p>x".repeat(866));
    let hostile = |number: usize| Entry {
        id: number.to_string(),
        summary: Some(format!("{summary}{number}")),
        ..Entry::default()
    };
    fleet.polled_with(id, (0..100).map(hostile).collect()).await;
    let page = fleet.get("/api/v1/entries?html=sanitised&limit=100").await;
    assert_eq!(page.body["items"].as_array().unwrap().len(), 100);
    let bytes = page.body.to_string().len();
    assert!(bytes < 100 * (64 * 1024 + 10 * summary.len()), "{bytes} bytes");
}

/// HTML may be several times as long as the text that it is made of. This one is refused early, and shown without markup.
#[tokio::test]
async fn a_page_ends_where_its_html_would_take_too_much() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://example.com/feed.xml").await;
    let hostile = format!("<p><b title='{}'>x{}", "y".repeat(3_400), "<p>x".repeat(500));
    let growing = |number: usize| Entry {
        id: number.to_string(),
        content: Some(format!("{hostile}{}{number}", "&".repeat(150_000))),
        ..Entry::default()
    };
    fleet.polled_with(id, (0..30).map(growing).collect()).await;
    for order in ["oldest", "newest"] {
        let (mut seen, mut after, mut pages) = (Vec::new(), 0, 0);
        loop {
            let path = format!("/api/v1/entries?html=sanitised&limit=1000&order={order}&after={after}");
            let page = fleet.get(&path).await.body;
            assert!(page.to_string().len() < 24 << 20, "{} bytes", page.to_string().len());
            let items = page["items"].as_array().unwrap();
            seen.extend(items.iter().map(|item| item["seq"].as_i64().unwrap()));
            pages += 1;
            after = page["next"].as_i64().unwrap();
            if page["more"] != true {
                break;
            }
            assert!(!items.is_empty() && Some(after) == seen.last().copied(), "it goes on behind its last entry");
        }
        seen.sort_unstable();
        assert_eq!(seen, (2..=31).collect::<Vec<i64>>(), "{order}");
        assert!(pages > 1, "one page has all of it");
    }
    let feed = fleet.get("/entries.json?limit=200").await.body;
    let shown = feed["items"].as_array().unwrap();
    assert!((1..30).contains(&shown.len()), "{} entries", shown.len());
    let last = shown.last().unwrap()["_feedfleet"]["seq"].to_string();
    assert!(feed["next_url"].as_str().unwrap().ends_with(&format!("after={last}")), "{}", feed["next_url"]);
}

/// Without tokens callers are not distinguished: all of them share the turns. With tokens each has a part of them.
#[tokio::test]
async fn a_page_that_is_not_read_yet_keeps_its_turn() {
    let fleet = Fleet::new().await;
    let path = "/api/v1/entries";
    let mut unread = Vec::new();
    for _ in 0..8 {
        unread.push(fleet.respond(path).await);
    }
    let mut further = Box::pin(fleet.respond(path));
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut further).await.is_err());
    unread.pop();
    assert_eq!(further.await.status(), 200);
}

/// A request with a token, on a connection with buffers as small as the system allows; its response is not read.
async fn unread(address: std::net::SocketAddr, token: &str) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(1).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let head = "GET /api/v1/entries?limit=1000 HTTP/1.1\r\nHost: localhost";
    stream.write_all(format!("{head}\r\nAuthorization: Bearer {token}\r\n\r\n").as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn slow_readers_of_one_token_leave_turns_to_the_others() {
    let tokens = [("ann", "0123456789abcdef"), ("eve", "fedcba9876543210")];
    let fleet = Fleet::with_tokens(tokens.map(|(name, token)| ApiToken::new(name, token, ApiRole::Write)).into()).await;
    let added = json!({ "url": "https://example.com/feed.xml" }).to_string();
    let fields = [("authorization", "Bearer 0123456789abcdef"), ("content-type", "application/json")];
    let (status, _, added) = fleet.call("POST", "/api/v1/feeds", &fields, &added).await;
    assert_eq!(status, 201, "{added}");
    let id = serde_json::from_str::<Value>(&added).unwrap()["id"].as_i64().unwrap();
    let large =
        |number: usize| Entry { id: number.to_string(), content: Some("wide ".repeat(200_000)), ..Entry::default() };
    // More than the system's buffers take.
    fleet.polled_with(id, (0..7).map(large).collect()).await;

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn(serve(listener, fleet.ops.clone(), shutdown.clone()));
    let mut slow = Vec::new();
    for _ in 0..8 {
        slow.push(unread(address, "0123456789abcdef").await);
    }
    // Until those that have a turn wait for their readers, and the others were refused.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut other = unread(address, "fedcba9876543210").await;
    let mut line = [0; 15];
    let read = tokio::time::timeout(Duration::from_secs(60), other.read_exact(&mut line)).await;
    read.expect("it is answered").unwrap();
    assert_eq!(&line, b"HTTP/1.1 200 OK");
    drop(slow);
    shutdown.cancel();
    serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn entries_are_offered_as_html_that_may_be_shown() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://example.com/feed.xml").await;
    let entry = Entry {
        id: "1".to_owned(),
        url: Some("https://example.com/2026/one".to_owned()),
        summary: Some("<b onclick=x()>short</b>".to_owned()),
        content: Some("<script>x()</script><a href=../about>about</a>".to_owned()),
        ..Entry::default()
    };
    fleet.polled_with(id, vec![entry, Entry { id: "2".to_owned(), ..Entry::default() }]).await;
    for path in ["/api/v1/entries".to_owned(), format!("/api/v1/feeds/{id}/entries")] {
        let raw = fleet.get(&path).await.body;
        let first =
            |body: &Value| body["items"].as_array().unwrap().iter().find(|item| item["id"] == "1").unwrap().clone();
        assert_eq!(first(&raw)["summary_html"], Value::Null, "only when asked for");
        let safe = first(&fleet.get(&format!("{path}?html=sanitised")).await.body);
        assert_eq!(safe["content"], first(&raw)["content"], "the publisher's own text stays");
        assert_eq!(safe["summary_html"], "<b>short</b>");
        let link = "<a href=\"https://example.com/about\" rel=\"noopener noreferrer\">about</a>";
        assert_eq!(safe["content_html"], link);
        assert_eq!(fleet.get(&format!("{path}?html=raw")).await.status, 400);
    }
}
