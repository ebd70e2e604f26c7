//! Subscriptions by request: what is accepted, what is refused, what is shown.

use super::*;

const PATH: &str = "/api/v1/subscriptions";

#[tokio::test]
async fn a_subscription_is_added_changed_listed_and_removed() {
    let fleet = Fleet::with_secrets().await;
    let filter =
        json!({ "kind": "entry.new,feed.*", "label": "News", "host": "a.example:443", "part": "1/4", "q": "x" });
    let wish = json!({
        "kind": "webhook", "target": "https://A.example/hook", "filter": filter, "batch": 7, "delay": 1.5,
        "format": "jsonfeed", "signature": "ed25519",
    });
    let added = fleet.post(PATH, wish).await;
    assert_eq!(added.status, 201, "{}", added.body);
    assert_eq!((&added.body["target"], &added.body["filter"]), (&json!("https://a.example/hook"), &filter));
    assert_eq!(
        (&added.body["batch"], &added.body["delay"], &added.body["by"]),
        (&json!(7), &json!(1.5), &json!("loopback"))
    );
    assert!(added.body["secret"].as_str().unwrap().starts_with("whsk_"));
    assert!(added.body["public_key"].as_str().unwrap().starts_with("whpk_"));
    let shown = fleet.get("/api/v1/subscriptions/1").await.body;
    assert_eq!((&shown["secret"], &shown["signature"]), (&Value::Null, &json!("ed25519")));

    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let changed = fleet.ask("PATCH", "/api/v1/subscriptions/1", Some(json!({ "secret": secret, "batch": 1 }))).await;
    assert_eq!((changed.status, &changed.body["secret"], &changed.body["batch"]), (200, &json!(secret), &json!(1)));
    assert_eq!((&changed.body["signature"], &changed.body["filter"]), (&json!("hmac-sha256"), &filter));
    assert!(changed.body["old_secret_until"].is_string());
    let refused = fleet.ask("PATCH", "/api/v1/subscriptions/1", Some(json!({ "secret": "new" }))).await;
    let detail = refused.body["detail"].as_str().unwrap();
    assert!(refused.status == 409 && detail.contains("with the earlier one too until"), "{}", refused.body);
    fleet.clock.advance(std::time::Duration::from_secs(86_401));
    assert_eq!(fleet.get("/api/v1/subscriptions/1").await.body["old_secret_until"], Value::Null);

    for _ in 0..2 {
        let more = fleet.post(PATH, json!({ "kind": "webhook", "target": "https://b.example/" })).await;
        assert!(more.body["secret"].as_str().unwrap().starts_with("whsec_"));
        assert_eq!((&more.body["batch"], &more.body["filter"]), (&json!(100), &json!({})));
    }
    let page = fleet.get(&format!("{PATH}?limit=2")).await.body;
    assert_eq!((page["items"].as_array().unwrap().len(), &page["next"]), (2, &json!("2")));
    let page = fleet.get(&format!("{PATH}?limit=2&after=2")).await.body;
    assert_eq!((&page["items"][0]["id"], &page["next"]), (&json!(3), &Value::Null));
    assert_eq!(fleet.ask("DELETE", "/api/v1/subscriptions/3", None).await.status, 204);
    for (method, path) in [("DELETE", ""), ("GET", ""), ("POST", "/pause"), ("GET", "/deliveries")] {
        let answer = fleet.ask(method, &format!("/api/v1/subscriptions/3{path}"), None).await;
        assert_eq!((answer.status, &answer.body["code"]), (404, &json!("unknown_subscription")), "{method} {path}");
    }
}

#[tokio::test]
async fn what_cannot_be_sent_is_refused_with_what_would_be_accepted() {
    let fleet = Fleet::with_secrets().await;
    let target = "https://a.example/hook";
    for (wish, expected) in [
        (json!({ "target": target }), "kind is missing"),
        (json!({ "kind": "webhook" }), "target is missing"),
        (json!({ "kind": "websub", "target": target }), "kind must be one of webhook"),
        (json!({ "kind": "webhook", "target": "ftp://a.example/" }), "must be an http or https URL"),
        (json!({ "kind": "webhook", "target": "https://ann:s3cret@a.example/" }), "requests are signed instead"),
        (json!({ "kind": "webhook", "target": target, "filter": { "lable": "x" } }), "did you mean label"),
        (json!({ "kind": "webhook", "target": target, "filter": { "kind": "x" } }), "kind must be one or more of"),
        (json!({ "kind": "webhook", "target": target, "filter": { "feed": 9, "since": "x" } }), "unknown field since"),
        (
            json!({ "kind": "webhook", "target": target, "batch": 501 }),
            "batch must be a number of events from 1 to 500",
        ),
        (json!({ "kind": "webhook", "target": target, "delay": -1 }), "delay must be from 0 s to 1 h"),
        (json!({ "kind": "webhook", "target": target, "secret": "short" }), "secret: a secret is whsec_"),
        (
            json!({ "kind": "webhook", "target": target, "format": "jsonfeed", "filter": { "kind": "feed.*" } }),
            "the formats jsonfeed and atom contain entries only",
        ),
        (
            json!({ "kind": "webhook", "target": target, "secret": "new", "signature": "ed25519" }),
            "leave one of them out",
        ),
        (
            json!({ "kind": "webhook", "target": target, "after": 0, "since": "2026-01-01T00:00:00Z" }),
            "exclude each other",
        ),
        (json!({ "kind": "webhook", "target": target, "since": "yesterday" }), "since must be a time"),
    ] {
        let refused = fleet.post(PATH, wish.clone()).await;
        let detail = refused.body["detail"].as_str().unwrap_or_default();
        assert!(refused.status == 400 && detail.contains(expected), "{wish}: {} {detail}", refused.status);
        assert!(!refused.body.to_string().contains("s3cret"));
    }
    let without = Fleet::new().await;
    let refused = without.post(PATH, json!({ "kind": "webhook", "target": target })).await;
    assert!(
        refused.status == 400 && refused.body["detail"].as_str().unwrap().contains("secrets.key"),
        "{}",
        refused.body
    );
}

#[tokio::test]
async fn a_cursor_that_retention_left_behind_is_refused_with_the_oldest_that_is_kept() {
    let fleet = Fleet::with_secrets().await;
    let id = fleet.feed("https://example.com/feed.xml").await;
    fleet.polled(id, &["1", "2", "3"]).await;
    let wish = json!({ "kind": "webhook", "target": "https://a.example/hook", "after": 2 });
    let added = fleet.post(PATH, wish).await.body;
    assert_eq!(added["cursor"], 2);
    fleet.post("/api/v1/subscriptions/1/pause", json!({})).await;
    let later = fleet.clock.advance(std::time::Duration::from_secs(100));
    fleet.ops.store.prune(later, None).await.unwrap();
    let lost = fleet.post("/api/v1/subscriptions/1/resume", json!({})).await;
    assert_eq!((lost.status, &lost.body["oldest"], &lost.body["code"]), (410, &json!(5), &json!("unknown_cursor")));
    assert!(lost.body["detail"].as_str().unwrap().contains("continue after 4"), "{}", lost.body);
    assert_eq!(fleet.get("/api/v1/subscriptions/1").await.body["state"], "paused");
    for (body, status) in
        [(json!({ "after": 3 }), 410), (json!({ "after": 9 }), 410), (json!({}), 400), (json!({ "after": 4 }), 200)]
    {
        let answer = fleet.post("/api/v1/subscriptions/1/replay", body.clone()).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
    }
    assert_eq!(fleet.post("/api/v1/subscriptions/1/resume", json!({})).await.body["state"], "active");
    let since = later.to_string();
    fleet.polled(id, &["4"]).await;
    let replayed = fleet.post("/api/v1/subscriptions/1/replay", json!({ "since": since })).await;
    assert_eq!((replayed.status, &replayed.body["cursor"]), (200, &json!(4)), "{}", replayed.body);
}
