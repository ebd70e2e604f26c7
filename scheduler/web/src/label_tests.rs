//! Tokens that are limited to labels: no route shows or changes what others have.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, header};
use axum::response::Response;
use common::config::{ApiRole, ApiToken};
use common::entry::Entry;
use common::feed::Feed;
use common::url::FeedId;
use futures_util::StreamExt;
use serde_json::{Value, json};
use store::{FeedRef, Subscription};
use tower_service::Service;

use crate::api::scope;
use crate::route_tests::{Route, routes};
use crate::testing::Fleet;

const ANN: &str = "Bearer 0123456789abcdef";
const BLUE: &str = "Bearer fedcba9876543210";
/// Has the labels of feeds 1 and 2.
const BOTH: &str = "Bearer bothbothbothboth";
/// Appears in everything that others have.
const MARK: &str = "othersmark";
const OTHERS: &str = "https://red.example/othersmark";

/// Feed 1 and subscription 2 are the caller's, feed 2 and subscription 1 those of others.
async fn fleet() -> Fleet {
    let limited = |name: &str, token: &str, labels: &[&str]| ApiToken {
        labels: Some(labels.iter().map(|label| (*label).to_owned()).collect()),
        ..ApiToken::new(name, token, ApiRole::Write)
    };
    let blue = limited("blue", "fedcba9876543210", &["blue"]);
    let both = limited("both", "bothbothbothboth", &["blue", MARK]);
    let fleet = Fleet::with(|config| {
        config.api.tokens = vec![ApiToken::new("ann", "0123456789abcdef", ApiRole::Write), blue, both];
        config.secrets.key = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, [7; 32]);
    })
    .await;
    let own = json!({ "url": "https://blue.example/feed", "labels": ["blue"] });
    let others = json!({ "url": OTHERS, "labels": [MARK], "external_id": MARK });
    for feed in [own, others] {
        assert_eq!(fleet.send_as(ANN, "POST", "/api/v1/feeds", &feed.to_string()).await.0, 201);
    }
    let entry = |id: &str| Entry { id: id.to_owned(), title: Some(format!("{id} title")), ..Entry::default() };
    fleet.polled_with(1, vec![entry("own-entry")]).await;
    fleet.polled_with(2, vec![entry("othersmark-entry")]).await;
    let hook = |target: &str| json!({ "kind": "webhook", "target": target }).to_string();
    assert_eq!(
        fleet.send_as(ANN, "POST", "/api/v1/subscriptions", &hook("https://hook.example/othersmark")).await.0,
        201
    );
    assert_eq!(fleet.send_as(BLUE, "POST", "/api/v1/subscriptions", &hook("https://hook.example/own")).await.0, 201);
    fleet
}

impl Fleet {
    async fn send_as(&self, who: &str, method: &str, path: &str, body: &str) -> (u16, String) {
        let kind = match path {
            "/api/v1/feeds/bulk" => "application/x-ndjson",
            path if path.starts_with("/api/") => "application/json",
            _ => "application/x-www-form-urlencoded",
        };
        let headers = [("authorization", who), ("content-type", kind), ("accept", "application/json")];
        let (status, _, body) = self.call(method, path, &headers, body).await;
        (status, body)
    }

    async fn json_as(&self, who: &str, path: &str) -> Value {
        let (status, body) = self.send_as(who, "GET", path, "").await;
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    async fn response_as(&self, who: &str, path: &str) -> Response {
        let request = Request::get(path).header(header::HOST, "127.0.0.1:7878").header(header::AUTHORIZATION, who);
        self.router.clone().call(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    /// Returns what others have.
    async fn of_others(&self) -> (Option<Feed>, Vec<Subscription>) {
        let feed = self.ops.feed(&FeedRef::Id(FeedId(2))).await.unwrap();
        (feed, self.ops.store.subscriptions_among(&[1]).await.unwrap())
    }
}

/// Returns the paths of a route with the numbers of what others have, and of what the caller has.
fn paths(route: &Route) -> [String; 2] {
    let numbers = if route.declared.contains("subscriptions") { ["1", "2"] } else { ["2", "1"] };
    // The third and the fourth event are those of the entries of the first and the second feed.
    numbers.map(|number| {
        let seq = if number == "1" { "3" } else { "4" };
        route.path_with(number, seq)
    })
}

#[tokio::test]
async fn every_open_route_exists() {
    let routes = routes().await;
    for open in scope::OPEN {
        assert!(routes.iter().any(|route| route.declared == open), "{open}");
    }
    for refused in ["/api/v1/hosts", "/api/v1/requeue", "/api/v1/stats", "/api/v1/config", "/hub", "/audit", "/live"] {
        assert!(!scope::OPEN.contains(&refused), "{refused}");
    }
}

#[tokio::test]
async fn no_route_shows_what_others_have() {
    let fleet = fleet().await;
    let mut opened = 0;
    for route in routes().await.into_iter().filter(|route| route.method == "GET" && !route.is_public()) {
        if route.declared == "/api/v1/events/stream" {
            continue;
        }
        for path in paths(&route) {
            let (status, body) = fleet.send_as(BLUE, "GET", &path, "").await;
            assert!(!body.contains(MARK), "{path}: {status} {body}");
            let is_open = scope::OPEN.contains(&route.declared.as_str());
            assert_eq!(status == 403, !is_open, "{path}: {status} {body}");
            opened += u32::from(status == 200);
        }
    }
    assert!(opened > 20, "{opened} were answered");
    // Callers that may see the marks see them.
    for path in ["/api/v1/feeds", "/api/v1/entries", "/api/v1/events", "/api/v1/subscriptions", "/feeds", "/entries"] {
        assert!(fleet.send_as(ANN, "GET", path, "").await.1.contains(MARK), "{path}");
        assert!(!fleet.send_as(BLUE, "GET", path, "").await.1.contains(MARK), "{path}");
    }
    // A request for one of these by name gets the same answer as for what does not exist.
    for path in [
        "/api/v1/feeds/lookup?url=https%3A%2F%2Fred.example%2Fothersmark",
        "/api/v1/entries/lookup?feed=2&id=othersmark-entry",
        "/api/v1/entries?feed=https%3A%2F%2Fred.example%2Fothersmark",
        "/api/v1/entries?feed=2",
    ] {
        assert_eq!(fleet.send_as(BLUE, "GET", path, "").await.0, 404, "{path}");
        assert_eq!(fleet.send_as(ANN, "GET", path, "").await.0, 200, "{path}");
    }
    for query in ["label=othersmark", "external_id=othersmark", "host=red.example:443", "q=red", "sort=next_due"] {
        for path in ["/api/v1/feeds", "/feeds"] {
            let (_, body) = fleet.send_as(BLUE, "GET", &format!("{path}?{query}"), "").await;
            assert!(!body.contains("red.example/"), "{path}?{query}: {body}");
        }
    }
}

#[tokio::test]
async fn a_stream_shows_only_feeds_with_the_label() {
    let fleet = fleet().await;
    fleet.send_as(ANN, "DELETE", "/api/v1/feeds/2", "").await;
    fleet.send_as(ANN, "DELETE", "/api/v1/feeds/1", "").await;
    let response = fleet.response_as(BLUE, "/api/v1/events/stream?after=0").await;
    assert_eq!(response.status(), 200);
    let (mut body, mut text) = (response.into_body().into_data_stream(), String::new());
    let has_come = |text: &str| text.contains("feed.removed") && text.contains("https://blue.example/feed");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        // What must not come would come together with the rest.
        let soon = tokio::time::Instant::now() + Duration::from_millis(500);
        let until = if has_come(&text) { soon } else { deadline };
        let Ok(Some(Ok(part))) = tokio::time::timeout_at(until, body.next()).await else { break };
        text += std::str::from_utf8(&part).unwrap();
    }
    assert!(has_come(&text), "{text}");
    assert!(!text.contains(MARK), "{text}");
}

#[tokio::test]
async fn no_route_changes_what_others_have() {
    let fleet = fleet().await;
    let before = fleet.of_others().await;
    assert!(before.0.is_some() && before.1.len() == 1);
    let as_json = [
        json!({}),
        json!({ "subscribers": 99 }),
        json!({ "labels": ["blue"] }),
        json!({ "target": "https://elsewhere.example/", "filter": {} }),
        json!({ "after": 0 }),
        json!({ "url": OTHERS, "subscribers": 99 }),
        json!({ "id": 2, "subscribers": 99, "add_labels": ["blue"] }),
        json!({ "filter": {}, "lift_penalties": true }),
    ];
    let form = "id=2&sure=yes&label=blue&subscribers=99&url=https%3A%2F%2Fred.example%2Fothersmark&after=0";
    for route in routes().await.into_iter().filter(|route| route.method != "GET" && !route.is_public()) {
        let [path, _] = paths(&route);
        let bodies =
            if route.is_api() { as_json.iter().map(Value::to_string).collect() } else { vec![form.to_owned()] };
        for body in bodies {
            let (status, answer) = fleet.send_as(BLUE, &route.method, &path, &body).await;
            assert!(!answer.contains("othersmark title"), "{} {path}: {answer}", route.method);
            if !scope::OPEN.contains(&route.declared.as_str()) {
                assert_eq!(status, 403, "{} {path}: {answer}", route.method);
            }
            assert_eq!(fleet.of_others().await, before, "{} {path} {body}: {answer}", route.method);
        }
    }
    assert!(!fleet.ops.store.paused().await.unwrap());
    assert!(fleet.ops.store.requeues(false).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_a_token_with_labels_adds_has_them() {
    let fleet = fleet().await;
    let add = async |body: Value| fleet.send_as(BLUE, "POST", "/api/v1/feeds", &body.to_string()).await;
    let (status, added) = add(json!({ "url": "https://blue.example/2" })).await;
    let added: Value = serde_json::from_str(&added).unwrap();
    assert_eq!((status, &added["labels"]), (201, &json!(["blue"])));
    assert_eq!(add(json!({ "url": "https://blue.example/3", "labels": ["blue", "red"] })).await.0, 403);
    let (status, answer) = add(json!({ "url": OTHERS })).await;
    assert!(status == 409 && answer.contains("feed_of_others"), "{answer}");
    let change = async |body: Value| fleet.send_as(BLUE, "PATCH", "/api/v1/feeds/1", &body.to_string()).await.0;
    assert_eq!(change(json!({ "subscribers": 5 })).await, 200);
    assert_eq!(change(json!({ "add_labels": ["red"] })).await, 403);
    assert_eq!(change(json!({ "remove_labels": ["blue"] })).await, 403, "it would lose the feed");
    let lines = [json!({ "url": "https://blue.example/4" }), json!({ "url": OTHERS }), json!({ "id": 2, "sla": true })];
    let lines = lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    let (_, answers) = fleet.send_as(BLUE, "POST", "/api/v1/feeds/bulk", &lines).await;
    let is_refused = |line: &str| serde_json::from_str::<Value>(line).unwrap()["error"].is_string();
    let refused: Vec<bool> = answers.lines().map(is_refused).collect();
    assert_eq!(refused, [false, true, true], "{answers}");
    let listed = fleet.json_as(BLUE, "/api/v1/feeds").await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_subscription_keeps_the_limit_of_the_token_that_added_it() {
    let fleet = fleet().await;
    let listed = fleet.json_as(BLUE, "/api/v1/subscriptions").await;
    assert_eq!((listed["items"].as_array().unwrap().len(), &listed["items"][0]["limited_to"]), (1, &json!(["blue"])));
    let change = json!({ "filter": { "kind": "entry.*" } }).to_string();
    for who in [BLUE, BOTH, ANN] {
        assert_eq!(fleet.send_as(who, "PATCH", "/api/v1/subscriptions/2", &change).await.0, 200);
        let stored = fleet.ops.store.subscriptions_among(&[2]).await.unwrap().remove(0);
        assert_eq!(stored.wish.filter.visible, ["blue"], "{who}");
    }
    let all = fleet.json_as(ANN, "/api/v1/subscriptions").await;
    assert_eq!(all["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn replaced_tokens_count_at_once_and_open_streams_end() {
    let fleet = fleet().await;
    let mut stream = fleet.response_as(BLUE, "/api/v1/events/stream?after=latest").await.into_body().into_data_stream();
    let mut next = async || tokio::time::timeout(Duration::from_secs(60), stream.next()).await.expect("an answer");
    assert!(next().await.is_some());
    let mut config = (*fleet.ops.config).clone();
    config.api.tokens[1].labels = Some(vec![MARK.to_owned()]);
    config.api.tokens[0] = ApiToken::new("ann", "another-token-1234", ApiRole::Write);
    assert!(fleet.ops.condition.tokens.replace(&config));
    assert!(!fleet.ops.condition.tokens.replace(&config), "they are the same");
    assert_eq!(fleet.send_as(ANN, "GET", "/api/v1/feeds", "").await.0, 401);
    assert_eq!(fleet.send_as("Bearer another-token-1234", "GET", "/api/v1/feeds", "").await.0, 200);
    let listed = fleet.json_as(BLUE, "/api/v1/feeds").await;
    assert_eq!(listed["items"][0]["url"], OTHERS);
    fleet.polled(1, &["later"]).await;
    while let Some(part) = next().await {
        let part = part.unwrap();
        assert!(!String::from_utf8_lossy(&part).contains("later"), "the stream goes on without its token");
    }
    config.api.tokens.clear();
    assert!(!fleet.ops.condition.tokens.replace(&config), "nobody is let in without a token");
    assert_eq!(fleet.send_as("", "GET", "/api/v1/feeds", "").await.0, 401);
}
