//! The WebSub hub by request: what is accepted, what is refused, and which callers are allowed.

use common::config::{ApiRole, ApiToken, HubAccess};

use super::*;

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const WISH: &str =
    "hub.mode=subscribe&hub.topic=https%3A%2F%2Fa.example%2Ffeed&hub.callback=https%3A%2F%2Fs.example%2F";

async fn fleet(access: HubAccess, tokens: Vec<ApiToken>) -> Fleet {
    Fleet::with(|config| {
        config.secrets.key = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, [7; 32]);
        config.api.public_url = "https://fleet.example".into();
        config.api.tokens = tokens;
        config.delivery.hub = access;
    })
    .await
}

#[tokio::test]
async fn a_request_is_accepted_and_waits_for_its_confirmation() {
    let fleet = fleet(HubAccess::Open, Vec::new()).await;
    let wish = format!("{WISH}&hub.lease_seconds=1&hub.secret=s3cret&hub.verify=async&foo=bar&hub.format=json");
    assert_eq!(fleet.call("POST", "/hub", &[FORM], &wish).await.0, 202);
    let shown = fleet.get("/api/v1/subscriptions/1").await.body;
    assert_eq!(
        (&shown["kind"], &shown["target"], &shown["asks"]),
        (&json!("websub"), &json!("https://s.example/"), &json!("subscribe"))
    );
    assert_eq!(
        (&shown["topic"], &shown["by"], &shown["format"]),
        (&json!("https://a.example/feed"), &json!("hub"), &json!("jsonfeed"))
    );
    assert!(!shown.to_string().contains("s3cret"));
    let refused = fleet.ask("PATCH", "/api/v1/subscriptions/1", Some(json!({ "batch": 1 }))).await;
    assert!(refused.status == 409 && refused.body["detail"].as_str().unwrap().contains("its subscriber changes it"));
    for body in [WISH.to_owned(), WISH.replace("=subscribe", "=unsubscribe")] {
        let (status, headers, text) = fleet.call("POST", "/hub", &[FORM], &body).await;
        assert!(status == 429 && headers.contains_key("retry-after") && text.contains("verified"), "{status} {text}");
    }
    assert_eq!(fleet.get("/api/v1/subscriptions/1").await.body["asks"], json!("subscribe"), "the first one waits");
    assert_eq!(fleet.get("/api/v1/subscriptions").await.body["items"].as_array().unwrap().len(), 1);
    assert_eq!(fleet.ask("DELETE", "/api/v1/subscriptions/1", None).await.status, 204);
}

#[tokio::test]
async fn refusals_are_texts_that_say_what_is_wrong() {
    let fleet = fleet(HubAccess::Open, Vec::new()).await;
    let long = "x".repeat(200);
    for (body, status, expected) in [
        (WISH.replace("hub.mode=subscribe&", ""), 400, "hub.mode is missing"),
        (WISH.replace("=subscribe", "=query"), 400, "hub.mode must be"),
        (WISH.replace("hub.topic", "topic"), 400, "hub.topic is missing"),
        (WISH.replace("hub.callback", "callback"), 400, "hub.callback is missing"),
        (WISH.replace("https%3A%2F%2Fs", "gopher%3A%2F%2Fs"), 400, "hub.callback cannot be used"),
        (WISH.replace("https%3A%2F%2Fa.example", "nonsense"), 400, "hub.topic is not the URL of a feed"),
        (format!("{WISH}&hub.lease_seconds=-1"), 400, "hub.lease_seconds must be"),
        (format!("{WISH}&hub.secret={long}"), 400, "1 to 199 bytes"),
        (format!("{WISH}&hub.secret=%ff%fe"), 400, "hub.secret must be UTF-8"),
        (WISH.replace("s.example%2F", "s.example%2F%ff"), 400, "hub.callback must be UTF-8"),
        (format!("{WISH}&hub.format=rss"), 400, "hub.format must be"),
        (WISH.replace("=subscribe", "=unsubscribe"), 404, "no subscription"),
        ("hub.mode=publish".into(), 400, "hub.url is missing"),
        ("hub.mode=publish&hub.url=https%3A%2F%2Fa.example%2Ffeed".into(), 204, ""),
    ] {
        let (found, headers, text) = fleet.call("POST", "/hub", &[FORM], &body).await;
        assert!(found == status && text.contains(expected), "{body}: {found} {text}");
        assert!(status == 204 || headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    }
    assert_eq!(fleet.call("POST", "/hub", &[("content-type", "application/json")], "{}").await.0, 415);
    assert_eq!(fleet.get("/hub").await.status, 405);
    assert_eq!(fleet.get("/api/v1/subscriptions").await.body["items"], json!([]));
    for _ in 0..600 {
        fleet.call("POST", "/hub", &[FORM], "").await;
    }
    let (status, headers, _) = fleet.call("POST", "/hub", &[FORM], WISH).await;
    assert!(status == 429 && headers.contains_key("retry-after"), "{status}");
}

#[tokio::test]
async fn the_hub_is_closed_unless_it_is_opened_and_may_ask_for_a_token() {
    let closed = fleet(HubAccess::Off, Vec::new()).await;
    assert_eq!(closed.call("POST", "/hub", &[FORM], WISH).await.0, 404);
    let token = |name: &str, token: &str, role| ApiToken::new(name, token, role);
    let tokens =
        vec![token("look", "0123456789abcdef", ApiRole::Read), token("sub", "fedcba9876543210", ApiRole::Write)];
    let known = fleet(HubAccess::Known, tokens.clone()).await;
    let host = ("host", "fleet.example");
    assert_eq!(known.call("POST", "/hub", &[FORM, host], WISH).await.0, 404, "no such feed");
    let with_token = fleet(HubAccess::Token, tokens).await;
    let status =
        async |value: &'static str| with_token.call("POST", "/hub", &[FORM, ("authorization", value)], WISH).await.0;
    assert_eq!(with_token.call("POST", "/hub", &[FORM], WISH).await.0, 401);
    assert_eq!(status("Bearer 0123456789abcdef").await, 403);
    assert_eq!(status("Bearer fedcba9876543210").await, 202);
    let basic = ("authorization", "Basic YW55Ym9keTpmZWRjYmE5ODc2NTQzMjEw");
    let other = WISH.replace("s.example", "t.example");
    // A browser that knows the password sends it along with another site's form.
    for foreign in [("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")] {
        assert_eq!(with_token.call("POST", "/hub", &[FORM, basic, foreign], &other).await.0, 403);
    }
    assert_eq!(with_token.call("POST", "/hub", &[FORM, basic], &other).await.0, 202);
    let shown = with_token.send_with("/api/v1/subscriptions/1", &[(header::AUTHORIZATION, "Bearer 0123456789abcdef")]);
    assert_eq!(shown.await.body["by"], "sub");
}
