//! Feeds with credentials, over the API.

use common::config::Config;
use common::secrets::Keyring;
use common::time::Clock;
use common::url::FeedId;
use serde_json::{Value, json};

use crate::testing::Fleet;

fn with_key(config: &mut Config) {
    config.secrets.key = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, [7; 32]);
}

#[tokio::test]
async fn a_feed_with_credentials_is_known_by_them_and_shows_that_it_has_some() {
    let fleet = Fleet::with(with_key).await;
    let body = json!({ "url": "https://ann:s3cr%65t@example.com/feed" });
    let by_url = fleet.post("/api/v1/feeds", body).await;
    assert_eq!((by_url.status, &by_url.body["url"]), (201, &json!("https://example.com/feed")));
    assert_eq!((&by_url.body["credentials"], &by_url.body["private"]), (&json!(true), &json!(true)));
    assert_eq!(by_url.body["category"], "C", "whoever has a login is polled like several readers");
    let fields = |name: &str, password: &str| json!({ "url": "https://example.com/feed", "username": name, "password": password });
    let by_fields = fleet.post("/api/v1/feeds", fields("ann", "s3cret")).await;
    assert_eq!((by_fields.status, &by_fields.body["id"]), (200, &by_url.body["id"]));
    assert_eq!(fleet.post("/api/v1/feeds", fields("ann", "other")).await.status, 201);
    let plain = fleet.feed("https://example.com/feed").await;
    let shown = fleet.get(&format!("/api/v1/feeds/{plain}")).await.body;
    assert_eq!((&shown["credentials"], &shown["private"]), (&json!(false), &json!(false)));
    let found = fleet.get("/api/v1/feeds/lookup?url=https://example.com/feed").await;
    assert_eq!(found.body["id"], plain);
    let everything = fleet.get("/api/v1/feeds").await.body.to_string();
    assert!(!everything.contains("s3cret") && !everything.contains("ann"), "{everything}");
}

#[tokio::test]
async fn credentials_are_changed_and_taken_away() {
    let fleet = Fleet::with(with_key).await;
    let id = fleet.feed("https://example.com/feed").await;
    fleet.polled(id, &["1"]).await;
    let path = format!("/api/v1/feeds/{id}");
    let before = fleet.get(&path).await.body;
    let changed = fleet.ask("PATCH", &path, Some(json!({ "username": "ann", "password": "s3cret" }))).await;
    assert_eq!((changed.status, &changed.body["credentials"]), (200, &json!(true)));
    assert_eq!(
        (&before["etag"], &changed.body["etag"]),
        (&json!("\"1\""), &Value::Null),
        "validators belong to a login"
    );
    assert_eq!(changed.body["next_due"], json!(fleet.clock.now()), "it is tried at once");
    let other = fleet.feed("https://example.com/feed").await;
    let taken = fleet.ask("PATCH", &path, Some(json!({ "username": null }))).await;
    assert_eq!(taken.status, 409, "{}", taken.body);
    fleet.ask("DELETE", &format!("/api/v1/feeds/{other}"), None).await;
    let bare = fleet.ask("PATCH", &path, Some(json!({ "username": null }))).await;
    assert_eq!((bare.status, &bare.body["credentials"]), (200, &json!(false)));
}

#[tokio::test]
async fn credentials_that_cannot_be_kept_are_refused_without_being_repeated() {
    let (without, with) = (Fleet::new().await, Fleet::with(with_key).await);
    let url = "https://example.com/feed";
    let refusals = [
        (&without, json!({ "url": "https://ann:s3cret@example.com/feed" }), "secrets.key"),
        (&without, json!({ "url": url, "username": "ann", "password": "s3cret" }), "secrets.key"),
        (&with, json!({ "url": url, "username": "a:s3cret" }), "colon"),
        (&with, json!({ "url": url, "password": "s3cret" }), "username"),
        (&with, json!({ "url": url, "username": "ann", "password": "s3cret\n" }), "control"),
        (&with, json!({ "url": "https://ann:s3cret@exa mple.com/", "username": "x" }), "is not a URL"),
        (&with, json!({ "url": "https://ann:s3cret@example.com/", "username": "x" }), "once"),
        (&with, json!({ "url": url, "username": { "s3cret": 1 } }), "username must be text"),
    ];
    for (fleet, body, expected) in refusals {
        let answer = fleet.post("/api/v1/feeds", body.clone()).await;
        let text = answer.body.to_string();
        assert_eq!(answer.status, 400, "{body}: {text}");
        assert!(text.contains(expected) && !text.contains("s3cret"), "{body}: {text}");
    }
    let stats = without.get("/api/v1/stats").await.body;
    assert_eq!(stats["feeds"], 0);
}

#[tokio::test]
async fn a_login_that_no_key_opens_is_explained() {
    let fleet = Fleet::with(with_key).await;
    let added = fleet.post("/api/v1/feeds", json!({ "url": "https://ann:s3cret@example.com/feed" })).await;
    let id = added.body["id"].as_i64().unwrap();
    let path = format!("/api/v1/feeds/{id}/explain");
    assert!(!fleet.get(&path).await.body["text"].as_str().unwrap().contains("secrets."));
    let other_key = Keyring::fresh();
    let store = fleet.ops.store.clone();
    let old = store.old_seals(&other_key.current().unwrap(), FeedId(0), 1).await.unwrap().remove(0);
    let login = common::secrets::Login::new("ann", "s3cret").unwrap();
    assert!(store.reseal(&old, &other_key.seal(&login, &old.url).unwrap()).await.unwrap());
    let text = fleet.get(&path).await.body["text"].as_str().unwrap().to_owned();
    assert!(text.contains("secrets.old_keys") && !text.contains("s3cret"), "{text}");

    let mut resealing = scheduler::upkeep::reseal::Resealing::default();
    assert_eq!(resealing.round(&*store, &fleet.ops.secrets).await.unwrap(), 0, "it cannot be opened");
    let key = fleet.ops.secrets.seal(&login, &old.url).unwrap();
    let old = store.old_seals(&fleet.ops.secrets.current().unwrap(), FeedId(0), 1).await.unwrap().remove(0);
    assert!(store.reseal(&old, &key).await.unwrap());
    assert_eq!(resealing.round(&*store, &fleet.ops.secrets).await.unwrap(), 0, "nothing is left to do");
    assert_eq!(resealing.round(&*store, &other_key).await.unwrap(), 0);
}
