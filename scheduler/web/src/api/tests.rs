//! The API over the embedded backends, request by request, without a network.

mod entries;
mod events;
mod filters;
mod hosts;
mod hub;
mod lists;
mod moves;
mod requeue;
mod subscriptions;

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use common::config::{ApiRole, ApiToken};
use common::entry::Entry;
use common::time::{Clock, Timestamp};
use common::url::FeedId;
use scheduler::condition::gate::Closed;
use serde_json::{Value, json};
use store::FeedRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use crate::listener::DRAIN;
use crate::request::MAX_BODY_BYTES;
use crate::serve::serve;
use crate::testing::{Answer, Fleet};

#[tokio::test]
async fn a_feed_is_added_once_and_due_at_once() {
    let fleet = Fleet::new().await;
    let url = "https://example.com/feed.xml";
    let first = fleet.post("/api/v1/feeds", json!({ "url": url, "subscribers": 30, "interval": 1800.5 })).await;
    assert_eq!(first.status, 201, "{}", first.body);
    assert_eq!(first.body["new"], true);
    assert_eq!(first.body["category"], "B");
    assert_eq!(first.body["active_subscribers"], 30);
    assert_eq!(first.body["interval"], 1800.5);
    assert_eq!(first.body["next_due"], fleet.clock.now().to_string());
    assert_eq!(first.body["host"], "example.com:443");
    let depth = fleet.ops.schedule.depth(fleet.clock.now()).await.unwrap();
    assert_eq!((depth.feeds, depth.due), (1, 1));

    let again = fleet.post("/api/v1/feeds", json!({ "url": url })).await;
    assert_eq!((again.status, &again.body["new"], &again.body["id"]), (200, &json!(false), &first.body["id"]));
    assert_eq!(again.body["subscribers"], 30);
    let found = fleet.get("/api/v1/feeds/lookup?url=https://example.com/feed.xml").await;
    assert_eq!((found.status, &found.body["id"]), (200, &first.body["id"]));
}

#[tokio::test]
async fn the_fields_of_a_feed_are_the_ones_that_are_documented() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://example.com/feed.xml").await;
    let feed = fleet.get(&format!("/api/v1/feeds/{id}")).await.body;
    for field in [
        "id",
        "url",
        "host",
        "title",
        "category",
        "status",
        "subscribers",
        "active_subscribers",
        "sla",
        "important",
        "credentials",
        "etag",
        "last_modified",
        "content_hash",
        "next_due",
        "last_polled",
        "last_success",
        "last_changed",
        "last_status",
        "last_outcome",
        "consecutive_failures",
        "failing_since",
        "failing",
        "private",
        "version",
        "entries",
    ] {
        assert!(feed.get(field).is_some(), "{field} is missing in {feed}");
    }
}

#[tokio::test]
async fn what_an_operation_does_not_read_is_refused() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("http://a.example/feed").await;
    let feed = format!("/api/v1/feeds/{id}");
    let [refresh, pause, explain] = ["refresh", "pause", "explain"].map(|what| format!("{feed}/{what}"));
    let until = json!({ "until": "2027-01-01T00:00:00Z" });
    let refused = [
        ("DELETE", format!("{feed}?dry_run=true"), None, "unknown parameter dry_run; none is read here"),
        ("POST", format!("{refresh}?when=tomorrow"), None, "unknown parameter when"),
        ("GET", format!("{explain}?x=1"), None, "unknown parameter x"),
        ("HEAD", "/api/v1/stats?x=1".to_owned(), None, ""),
        ("POST", pause.clone(), Some(until), "unknown field until; none is read here"),
        ("POST", pause.clone(), Some(json!([1])), "the body must be a JSON object"),
    ];
    for (method, path, body, expected) in refused {
        let answer = fleet.ask(method, &path, body).await;
        let error = answer.body["error"].as_str().unwrap_or_default();
        assert!(answer.status == 400 && error.contains(expected), "{method} {path}: {} {}", answer.status, answer.body);
    }
    let shown = fleet.get(&feed).await;
    assert_eq!((shown.status, &shown.body["status"]), (200, &json!("active")));
    for body in [None, Some(json!({})), Some(json!(null))] {
        assert_eq!(fleet.ask("POST", &pause, body).await.status, 200);
    }
}

#[tokio::test]
async fn mistakes_are_refused_with_a_sentence_that_names_them() {
    let fleet = Fleet::new().await;
    let refusals = [
        (json!({}), "url is missing"),
        (json!({ "url": "example.com" }), "url: 'example.com' is not a URL"),
        (json!({ "url": "http://a/", "subscriber": 1 }), "did you mean subscribers?"),
        (json!({ "url": "http://a/", "sla": "yes" }), "sla must be true or false"),
        (json!({ "url": "http://a/", "interval": 0 }), "interval must be longer than 0 s"),
        (json!({ "url": "http://a/", "subscribers": 1, "active_subscribers": 2 }), "active_subscribers must not"),
    ];
    for (body, expected) in refusals {
        let answer = fleet.post("/api/v1/feeds", body).await;
        assert_eq!(answer.status, 400);
        assert!(answer.body["error"].as_str().unwrap().contains(expected), "{expected}: {}", answer.body);
    }
    let paths = [
        ("/api/v1/feeds?limit=1001", 400, "limit must be a whole number from 1 to 1000"),
        ("/api/v1/feeds?catgory=A", 400, "did you mean category?"),
        ("/api/v1/feeds?category=Z", 400, "category must be one of A, B, C, D, F"),
        ("/api/v1/feeds?status=fine", 400, "status must be one of active"),
        ("/api/v1/feeds?failure=bad", 400, "failure must be one of dns"),
        ("/api/v1/feeds?sort=age", 400, "sort must be one of id"),
        ("/api/v1/feeds?host=http://a.org", 400, "host must be a name such as example.com"),
        ("/api/v1/feeds?after=nonsense", 400, "is not a cursor of this list"),
        ("/api/v1/feeds/abc", 400, "id must be a whole number"),
        ("/api/v1/feeds/7", 404, "there is no feed 7"),
        ("/api/v1/feeds/7/history", 404, "there is no feed 7"),
        ("/api/v1/feeds/7/explain", 404, "there is no feed 7"),
        ("/api/v1/feeds/7/entries", 404, "there is no feed 7"),
        ("/api/v1/feeds/lookup", 400, "url is missing"),
        ("/api/v1/feeds/lookup?url=http://a/", 404, "no feed has the URL http://a/"),
        ("/api/v1/entries?after=x", 400, "after must be a seq"),
        ("/api/v1/events/stream?limit=1", 400, "a stream has no limit"),
        ("/entries.json?before=x", 400, "before must be a seq"),
        ("/entries.json?epoch=x", 400, "epoch is a parameter of GET /api/v1/entries"),
        ("/api/v2/feeds", 404, "nothing is served at /api/v2/feeds"),
        ("/api/v1/fleet/pause", 405, "does not take GET"),
    ];
    for (path, status, expected) in paths {
        let answer = fleet.get(path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.body["error"].as_str().unwrap().contains(expected), "{path}: {}", answer.body);
    }
}

#[tokio::test]
async fn bodies_must_be_small_json() {
    let fleet = Fleet::new().await;
    let request = |media_type: &str, body: String| {
        let request = Request::builder().method("POST").uri("/api/v1/feeds").header(header::HOST, "localhost");
        request.header(header::CONTENT_TYPE, media_type).body(Body::from(body)).unwrap()
    };
    let form = fleet.send(request("application/x-www-form-urlencoded", "url=http://a/".into())).await;
    assert_eq!((form.status, form.body["error"].is_string()), (415, true));
    let large = json!({ "url": format!("http://a/{}", "a".repeat(MAX_BODY_BYTES)) }).to_string();
    let large = fleet.send(request("application/json; charset=utf-8", large)).await;
    let expected = format!("the body is too large; it must be at most {MAX_BODY_BYTES} bytes");
    assert_eq!((large.status, &large.body["error"]), (413, &json!(expected)));
}

#[tokio::test]
async fn a_change_replaces_what_is_given_and_leaves_the_rest() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://example.com/feed.xml").await;
    let path = format!("/api/v1/feeds/{id}");
    let changed = fleet.ask("PATCH", &path, Some(json!({ "sla": true, "interval": 600 }))).await;
    assert_eq!((changed.status, &changed.body["category"]), (200, &json!("A")));
    let changed = fleet.ask("PATCH", &path, Some(json!({ "subscribers": 5, "sla": false }))).await;
    assert_eq!((&changed.body["category"], &changed.body["active_subscribers"]), (&json!("C"), &json!(5)));
    assert_eq!(changed.body["interval"], 600.0);
    let changed = fleet.ask("PATCH", &path, Some(json!({ "interval": null }))).await;
    assert!(changed.body.get("interval").is_none());
    let refused = fleet.ask("PATCH", &path, Some(json!({ "url": "http://b/" }))).await;
    assert_eq!(refused.status, 400);
}

#[tokio::test]
async fn an_interval_of_more_than_a_year_is_refused_and_changes_nothing() {
    const YEAR: f64 = 365.0 * 86_400.0;
    const REASON: &str = "interval must be longer than 0 s and at most 365 days, or none";
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://example.com/feed.xml").await;
    let path = format!("/api/v1/feeds/{id}");
    assert_eq!(fleet.ask("PATCH", &path, Some(json!({ "interval": 600 }))).await.status, 200);
    let before = fleet.get(&path).await.body;
    for interval in [400.0 * 86_400.0, YEAR + 1.0, 1.8e19, 1e300, 0.0, -1.0] {
        let added = fleet.post("/api/v1/feeds", json!({ "url": "https://b.example/", "interval": interval })).await;
        let changed = fleet.ask("PATCH", &path, Some(json!({ "interval": interval, "sla": true }))).await;
        for refused in [added, changed] {
            let said = refused.body["error"].as_str().unwrap_or_default();
            assert!(refused.status == 400 && said.contains(REASON), "{interval}: {} {said}", refused.status);
        }
    }
    assert_eq!(fleet.get(&path).await.body, before);
    assert_eq!(fleet.get("/api/v1/feeds").await.body["items"].as_array().unwrap().len(), 1);
    let longest = fleet.ask("PATCH", &path, Some(json!({ "interval": YEAR }))).await;
    assert_eq!((longest.status, &longest.body["interval"]), (200, &json!(YEAR)));
}

#[tokio::test]
async fn a_paused_feed_leaves_the_schedule_and_comes_back() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://example.com/feed.xml").await;
    let act = |action: &'static str| fleet.post_action(id, action);
    let feeds = async || fleet.ops.schedule.depth(fleet.clock.now()).await.unwrap().feeds;
    assert_eq!(act("pause").await.body["status"], "paused");
    assert_eq!(feeds().await, 0);
    let refresh = act("refresh").await;
    assert_eq!(
        (refresh.status, refresh.body["error"].as_str()),
        (409, Some(format!("feed {id} is paused and is not polled; resume it first").as_str()))
    );
    assert_eq!(act("resume").await.body["status"], "active");
    assert_eq!(feeds().await, 1);
    let refresh = act("refresh").await;
    assert_eq!((refresh.status, refresh.body["wake_at"].is_string()), (202, true));
    let erased = fleet.ask("DELETE", &format!("/api/v1/feeds/{id}"), None).await;
    assert_eq!((erased.status, feeds().await), (204, 0));
    assert_eq!(fleet.ask("DELETE", &format!("/api/v1/feeds/{id}"), None).await.status, 404);
}

impl Fleet {
    async fn post_action(&self, id: i64, action: &str) -> Answer {
        self.ask("POST", &format!("/api/v1/feeds/{id}/{action}"), None).await
    }
}

#[tokio::test]
async fn a_feed_whose_validators_are_forgotten_is_read_whole_at_its_next_poll() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://example.com/feed.xml").await;
    fleet.polled(id, &["1"]).await;
    let before = fleet.get(&format!("/api/v1/feeds/{id}")).await.body;
    assert!(before["etag"].is_string(), "{before}");
    let forgotten = fleet.post_action(id, "forget").await;
    assert_eq!((forgotten.status, &forgotten.body["etag"]), (200, &Value::Null));
    assert_eq!(forgotten.body["next_due"], before["next_due"], "it is due when it was");
    assert_eq!(fleet.post_action(99, "forget").await.status, 404);
}

#[tokio::test]
async fn a_list_goes_on_where_its_cursor_says() {
    let fleet = Fleet::new().await;
    for number in 0..5 {
        fleet.feed(&format!("https://example.com/{number}")).await;
    }
    let mut path = "/api/v1/feeds?limit=2&host=example.com:443".to_owned();
    let mut seen = Vec::new();
    loop {
        let page = fleet.get(&path).await.body;
        seen.extend(page["items"].as_array().unwrap().iter().map(|feed| feed["id"].as_i64().unwrap()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/v1/feeds?limit=2&host=example.com:443&after={next}");
    }
    assert_eq!(seen.len(), 5);
    assert!(seen.is_sorted());
    let one = fleet.get("/api/v1/feeds?q=com/3").await.body;
    assert_eq!(one["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_due_time_is_explained_and_a_history_kept() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://example.com/feed.xml").await;
    let fresh = fleet.get(&format!("/api/v1/feeds/{id}/explain")).await.body;
    assert!(fresh["text"].as_str().unwrap().contains("just added"), "{fresh}");
    fleet.polled(id, &["1"]).await;
    let explained = fleet.get(&format!("/api/v1/feeds/{id}/explain")).await.body;
    assert_eq!(explained["terms"][0]["rule"], "category");
    assert_eq!(explained["terms"][0]["by"], 6000.0);
    assert_eq!(explained["text"], "category D: 1 h 40 min");
    fleet.ask("POST", "/api/v1/fleet/pause", None).await;
    let paused = fleet.get(&format!("/api/v1/feeds/{id}/explain")).await.body;
    assert_eq!(paused["notes"], json!(["all polling is paused"]));
    let history = fleet.get(&format!("/api/v1/feeds/{id}/history")).await.body;
    let poll = &history["items"][0];
    assert_eq!((&poll["outcome"], &poll["duration"], &poll["bytes"]), (&json!("modified"), &json!(0.25), &json!(1000)));
}

#[tokio::test]
async fn the_fleet_tells_its_numbers_and_its_health() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://example.com/feed.xml").await;
    fleet.feed("https://www.craigslist.org/feed.xml").await;
    fleet.polled(id, &["1", "2"]).await;
    let stats = fleet.get("/api/v1/stats").await.body;
    assert_eq!((&stats["feeds"], &stats["entries"]), (&json!(2), &json!(2)), "{stats}");
    assert_eq!(stats["by_category"], json!({ "D": 1, "F": 1 }));
    assert_eq!(stats["paused"], false);
    assert_eq!(fleet.ask("POST", "/api/v1/fleet/pause", None).await.body, json!({ "paused": true }));
    assert_eq!(fleet.get("/api/v1/stats").await.body["paused"], true);
    assert_eq!(fleet.get("/healthz").await.body, "ok\n");
    assert_eq!(fleet.get("/readyz").await.body, json!({ "ready": true }));
    fleet.ops.condition.storing.failed("the disk is full".to_owned());
    let unready = fleet.get("/readyz").await;
    assert_eq!(unready.status, 503);
    assert!(unready.body["error"].as_str().unwrap().ends_with(": the disk is full"), "{}", unready.body);
    let id = fleet.feed("https://stored.example/feed").await;
    let explained = fleet.get(&format!("/api/v1/feeds/{id}/explain")).await.body["notes"].to_string();
    let stopped = fleet.get("/api/v1/stats").await.body["dispatch_stopped"].to_string();
    assert!(explained.contains("the disk is full") && stopped.contains("the disk is full"), "{explained} {stopped}");
    fleet.ops.condition.storing.recovered();
    fleet.ops.condition.dispatching.note(&Err::<(), _>(std::io::Error::other("NOPERM")));
    assert_eq!(fleet.get("/readyz").await.body["error"], "due feeds cannot be dispatched: NOPERM");
    fleet.ops.condition.dispatching.note(&Ok::<(), std::io::Error>(()));
    assert_eq!(fleet.get("/readyz").await.status, 200);
    let metrics = fleet.get("/metrics").await.body;
    assert!(metrics.as_str().unwrap().contains("feedfleet_polls_total{outcome=\"modified\"} 0"));
}

#[tokio::test]
async fn the_api_is_ready_while_the_scheduler_cannot_poll_but_not_before_it_ever_could() {
    let fleet = Fleet::new().await;
    let unable = || fleet.ops.condition.storing.failed("the disk is full".to_owned());
    unable();
    for path in ["/readyz", "/readyz/api"] {
        let answer = fleet.get(path).await;
        assert_eq!(answer.status, 503, "{path}: {}", answer.body);
    }
    fleet.ops.condition.storing.recovered();
    assert_eq!(fleet.get("/readyz").await.status, 200);
    unable();
    assert_eq!(fleet.get("/readyz").await.status, 503);
    assert_eq!(fleet.get("/readyz/api").await.body, json!({ "ready": true }));
}

#[tokio::test]
async fn a_closed_host_gate_is_not_ready_and_a_part_of_it_that_is_closed_is_named() {
    let fleet = Fleet::new().await;
    let since = fleet.clock.now();
    let until = Some(since.after(Duration::from_secs(35)));
    let close = |parts| {
        let closed = Closed { since, why: "it lost its memory", until, parts };
        fleet.ops.condition.gate.note(Some(closed), since);
    };
    close((16, 16));
    let unready = fleet.get("/readyz").await;
    let why = unready.body["error"].as_str().unwrap();
    assert_eq!(unready.status, 503);
    assert!(why.starts_with("the host gate is closed since") && why.contains("; it opens at"), "{why}");
    assert_eq!(fleet.get("/readyz/api").await.status, 200, "the API works meanwhile");
    close((5, 16));
    let ready = fleet.get("/readyz").await;
    let why = ready.body["gate_closed"].as_str().unwrap();
    assert_eq!((ready.status, &ready.body["ready"]), (200, &json!(true)));
    assert!(why.contains("in 5 of 16 parts") && why.contains("it lost its memory; it opens at"), "{why}");
    fleet.ops.condition.gate.note(None, since);
    assert_eq!(fleet.get("/readyz").await.body, json!({ "ready": true }));
}

#[tokio::test]
async fn a_scheduler_that_shuts_down_is_not_ready_answers_and_closes_connections() {
    let fleet = Fleet::new().await;
    let before = fleet.respond("/api/v1/feeds").await;
    assert_eq!((before.status().as_u16(), before.headers().get(header::CONNECTION)), (200, None));
    assert_eq!(fleet.get("/readyz/api").await.status, 200);
    fleet.ops.quiet.cancel();
    for (path, status) in [("/readyz", 503), ("/readyz/api", 503), ("/healthz", 200), ("/api/v1/feeds", 200)] {
        let answer = fleet.respond(path).await;
        assert_eq!(answer.status().as_u16(), status, "{path}");
        assert_eq!(answer.headers()[header::CONNECTION], "close", "{path}");
    }
}

#[tokio::test]
async fn without_tokens_pages_of_other_sites_are_kept_out() {
    let fleet = Fleet::new().await;
    let rebound = Request::builder().uri("/api/v1/feeds").header(header::HOST, "evil.example:7878");
    assert_eq!(fleet.send(rebound.body(Body::empty()).unwrap()).await.status, 421);
    let foreign = Request::builder().method("POST").uri("/api/v1/fleet/pause").header(header::HOST, "127.0.0.1:7878");
    let foreign = foreign.header(header::ORIGIN, "http://evil.example").body(Body::empty()).unwrap();
    assert_eq!(fleet.send(foreign).await.status, 403);
    assert_eq!(fleet.get("/api/v1/stats").await.body["paused"], false);
}

#[tokio::test]
async fn with_tokens_the_api_is_closed_and_health_stays_open() {
    let secret = "0123456789abcdef";
    let reader = ApiToken::new("look", secret, ApiRole::Read);
    let fleet = Fleet::with_tokens(vec![reader]).await;
    let bare = fleet.get("/api/v1/feeds").await;
    assert_eq!((bare.status, bare.body["error"].is_string()), (401, true));
    assert_eq!(fleet.get("/healthz").await.status, 200);
    let shown = |method: &str, path: &str| {
        let request = Request::builder().method(method).uri(path).header(header::HOST, "fleet.example");
        request.header(header::AUTHORIZATION, format!("Bearer {secret}")).body(Body::empty()).unwrap()
    };
    assert_eq!(fleet.send(shown("GET", "/api/v1/feeds")).await.status, 200);
    assert_eq!(fleet.send(shown("POST", "/api/v1/fleet/pause")).await.status, 403);
}

#[tokio::test]
async fn a_token_opens_what_its_role_allows() {
    let tokens = [("look", "0123456789abcdef", ApiRole::Read), ("do", "fedcba9876543210", ApiRole::Write)];
    let fleet = Fleet::with_tokens(tokens.map(|(name, token, role)| ApiToken::new(name, token, role)).to_vec()).await;
    let status = async |method: &str, path: &str, shown: &str| {
        let request = Request::builder().method(method).uri(path).header(header::HOST, "fleet.example");
        let request = request.header(header::CONTENT_TYPE, "application/json").header(header::AUTHORIZATION, shown);
        fleet.send(request.body(Body::empty()).unwrap()).await.status
    };
    assert_eq!(status("GET", "/api/v1/feeds", "Bearer 0123456789abcdef").await, 200);
    assert_eq!(status("POST", "/api/v1/fleet/pause", "Bearer 0123456789abcdef").await, 403);
    assert_eq!(status("POST", "/api/v1/fleet/pause", "bearer fedcba9876543210").await, 200);
    let password = "Basic YW55Ym9keTowMTIzNDU2Nzg5YWJjZGVm";
    for wrong in ["Bearer 0123456789abcde", "Bearer ", "", "Basic 0123456789abcdef", password, "0123456789abcdef"] {
        assert_eq!(status("GET", "/api/v1/feeds", wrong).await, 401, "{wrong}");
    }
}

#[tokio::test]
async fn a_caller_that_never_finishes_does_not_hold_up_the_end() {
    let fleet = Fleet::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn(serve(listener, fleet.ops.clone(), shutdown.clone()));
    let mut unfinished = TcpStream::connect(address).await.unwrap();
    unfinished.write_all(b"GET /healthz HTT").await.unwrap();
    // Connections are accepted in order: this one's answer shows that the one before was.
    let mut finished = TcpStream::connect(address).await.unwrap();
    finished.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    finished.read_u8().await.unwrap();
    shutdown.cancel();
    let ended = tokio::time::timeout(DRAIN * 60, serving).await;
    ended.expect("it ends although a caller is connected").unwrap().unwrap();
}

#[tokio::test]
async fn an_account_is_added_by_its_name() {
    let fleet = Fleet::new().await;
    let added = fleet.post("/api/v1/feeds", json!({ "url": "at://ada.example" })).await;
    assert_eq!(added.status, 201, "{}", added.body);
    let url = "https://public.api.bsky.app/xrpc/app.bsky.feed.getAuthorFeed?actor=ada.example&filter=posts_and_author_threads";
    assert_eq!(added.body["url"], url);
    let known = fleet.get("/api/v1/feeds/lookup?url=https%3A%2F%2Fbsky.app%2Fprofile%2Fada.example").await;
    assert_eq!(known.body["id"], added.body["id"]);
    assert_eq!(fleet.post("/api/v1/feeds", json!({ "url": "at://nobody" })).await.status, 400);
}

#[tokio::test]
async fn a_search_has_a_length_and_no_control_characters() {
    let fleet = Fleet::new().await;
    for (query, status) in
        [("x".repeat(200), 200), ("x".repeat(201), 400), ("%00".to_owned(), 400), ("%C3%BC".repeat(200), 200)]
    {
        let answer = fleet.get(&format!("/api/v1/feeds?q={query}")).await;
        assert_eq!(answer.status, status, "{} {}", query.len(), answer.body);
    }
}

#[tokio::test]
async fn without_tokens_a_proxy_opens_the_public_pages_only() {
    let fleet = Fleet::new().await;
    let proxied = |path: &str| {
        let request = Request::get(path).header(header::HOST, "127.0.0.1:7878").header("x-forwarded-for", "192.0.2.1");
        request.body(Body::empty()).unwrap()
    };
    for (path, status) in [("/api/v1/stats", 403), ("/", 403), ("/feeds", 403), ("/status", 200), ("/healthz", 200)] {
        assert_eq!(fleet.send(proxied(path)).await.status, status, "{path}");
    }
}
