use common::config::Config;
use common::document::Document;
use common::entry::Entry;
use common::known::KnownEntries;
use common::push::{PushKind, PushState};
use common::url::FeedId;
use scheduler::push::callback::MAX_BODY_BYTES;
use serde_json::json;
use store::{NewPush, PushSubscription, PushWish};

use crate::testing::Fleet;

const FEED: &str = "https://a.example/feed";

fn open(config: &mut Config) {
    config.api.public_url = "https://fleet.example".into();
    config.secrets.key = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, [7; 32]);
}

/// Returns a feed with a subscription that waits for its verification.
async fn asked(fleet: &Fleet, kind: PushKind, secret: Option<&str>) -> (i64, String) {
    let id = fleet.feed(FEED).await;
    let mut document = Document::default();
    document.keep_news(vec![Entry { id: "1".into(), ..Entry::default() }], &KnownEntries::default());
    fleet.read(id, document).await;
    let token = "0123456789abcdef".repeat(2);
    let secret = secret.map(|secret| fleet.ops.secrets.seal_push(secret).unwrap());
    let wanted = NewPush { id: token.clone(), kind, hub: "https://hub.example/".into(), topic: FEED.into(), secret };
    let now = common::time::Clock::now(&*fleet.clock);
    let wish = PushWish { feed: FeedId(id), wanted: Some(wanted) };
    fleet.ops.store.want_pushes(&[wish], now).await.unwrap();
    let of = fleet.ops.store.push(&token).await.unwrap().unwrap();
    assert!(fleet.ops.store.store_push(&PushSubscription { asked_at: Some(now), ..of }).await.unwrap());
    (id, token)
}

/// Hubs reach the fleet through a proxy, under its public name.
const PROXIED: [(&str, &str); 2] = [("x-forwarded-for", "192.0.2.1"), ("host", "fleet.example")];

async fn call(fleet: &Fleet, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
    let headers = [&PROXIED[..1], headers].concat();
    let (status, _, body) = fleet.call(method, path, &headers, body).await;
    (status, body)
}

fn signature(secret: &str, body: &str) -> String {
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA512, secret.as_bytes());
    let tag = aws_lc_rs::hmac::sign(&key, body.as_bytes());
    format!("sha512={}", tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

#[tokio::test]
async fn a_hub_verifies_and_delivers_under_whatever_name_it_reaches_us() {
    for tokens in [false, true] {
        let fleet = Fleet::with(|config| {
            open(config);
            if tokens {
                let token = common::config::ApiToken::new("ann", &"t".repeat(20), common::config::ApiRole::Write);
                config.api.tokens = vec![token];
            }
        })
        .await;
        // Feeds are added past the API's guard.
        let id = fleet.ops.add(&[added()], None).await.unwrap()[0].id;
        let token = "fedcba9876543210".repeat(2);
        let secret = Some(fleet.ops.secrets.seal_push("secret").unwrap());
        let wanted = NewPush {
            id: token.clone(),
            kind: PushKind::WebSub,
            hub: "https://hub.example/".into(),
            topic: FEED.into(),
            secret,
        };
        let now = common::time::Clock::now(&*fleet.clock);
        fleet.ops.store.want_pushes(&[PushWish { feed: id, wanted: Some(wanted) }], now).await.unwrap();
        let of = fleet.ops.store.push(&token).await.unwrap().unwrap();
        fleet.ops.store.store_push(&PushSubscription { asked_at: Some(now), ..of }).await.unwrap();

        let path = format!("/websub/{token}");
        let query = format!("hub.mode=subscribe&hub.topic={FEED}&hub.challenge=a%2Bb&hub.lease_seconds=60");
        assert_eq!(call(&fleet, "GET", &format!("{path}?{query}"), &[], "").await, (200, "a+b".to_owned()));
        assert_eq!(fleet.ops.store.push(&token).await.unwrap().unwrap().state, PushState::Verified);
        assert_eq!(call(&fleet, "GET", &format!("{path}?{query}"), &[], "").await.0, 200, "its answer was lost");
        let other = query.replace("=60", "=86400");
        assert_eq!(call(&fleet, "GET", &format!("{path}?{other}"), &[], "").await.0, 404, "no request waits");

        let body = "<feed xmlns='http://www.w3.org/2005/Atom'/>";
        let right = signature("secret", body);
        let atom = ("content-type", "application/atom+xml");
        assert_eq!(call(&fleet, "POST", &path, &[atom, ("x-hub-signature", &right)], body).await, (202, String::new()));
        let forged = call(&fleet, "POST", &path, &[atom, ("x-hub-signature", "sha512=00")], body).await;
        assert_eq!(forged, (202, String::new()), "answered alike");
        assert_eq!(fleet.ops.jobs.depth().await.unwrap().items, 1);
        assert_eq!(call(&fleet, "POST", &format!("/websub/{}", "0".repeat(32)), &[], body).await.0, 410);
    }
}

fn added() -> scheduler::ops::AddFeed {
    scheduler::ops::AddFeed::of(FEED.parse().unwrap())
}

#[tokio::test]
async fn a_delivery_that_is_too_large_causes_a_poll_and_a_page_is_never_shown() {
    let fleet = Fleet::with(open).await;
    let (id, token) = asked(&fleet, PushKind::WebSub, None).await;
    let path = format!("/websub/{token}");
    let query = format!("hub.mode=subscribe&hub.topic={FEED}&hub.challenge=<script>");
    let (status, headers, body) =
        fleet.call("GET", &format!("{path}?{query}").replace('<', "%3C").replace('>', "%3E"), &[], "").await;
    assert_eq!((status, &*body), (200, "<script>"));
    assert_eq!(headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(call(&fleet, "POST", &path, &[], &"x".repeat(MAX_BODY_BYTES + 1)).await.0, 202);
    let shown = fleet.get(&format!("/api/v1/feeds/{id}")).await.body;
    assert!(!shown["wake_at"].is_null());
    let push = &shown["push"];
    assert_eq!(
        (&push["kind"], &push["state"], &push["reliable"], &push["deliveries"]),
        (&json!("websub"), &json!("verified"), &json!(false), &json!(1))
    );
    let explained = fleet.get(&format!("/api/v1/feeds/{id}/explain")).await.body;
    assert!(explained["text"].as_str().unwrap().contains("its hub announces new entries until"), "{explained}");
}

#[tokio::test]
async fn a_denial_is_noted_and_shown() {
    let fleet = Fleet::with(open).await;
    let (id, token) = asked(&fleet, PushKind::WebSub, Some("secret")).await;
    let query = format!("hub.mode=denied&hub.topic={FEED}&hub.reason=no");
    assert_eq!(call(&fleet, "GET", &format!("/websub/{token}?{query}"), &[], "").await.0, 200);
    assert_eq!(fleet.get(&format!("/api/v1/feeds/{id}")).await.body["push"]["state"], "denied");
    let explained = fleet.get(&format!("/api/v1/feeds/{id}/explain")).await.body;
    assert!(explained["text"].as_str().unwrap().contains("its hub denied the subscription"), "{explained}");
}

#[tokio::test]
async fn a_cloud_is_challenged_and_notifies() {
    let fleet = Fleet::with(open).await;
    let (id, token) = asked(&fleet, PushKind::RssCloud, None).await;
    let path = format!("/rsscloud/{token}");
    let challenge = |url: &str| format!("{path}?url={url}&challenge=abc");
    assert_eq!(call(&fleet, "GET", &challenge(FEED), &[], "").await, (200, "abc".to_owned()));
    assert_eq!(call(&fleet, "GET", &challenge("https://b.example/"), &[], "").await.0, 404);
    let form = ("content-type", "application/x-www-form-urlencoded");
    assert_eq!(call(&fleet, "POST", &path, &[form], "url=https%3A%2F%2Fb.example%2F").await.0, 202);
    assert!(fleet.get(&format!("/api/v1/feeds/{id}")).await.body["wake_at"].is_null(), "another feed's");
    assert_eq!(call(&fleet, "POST", &path, &[form], "url=https%3A%2F%2Fa.example%2Ffeed").await.0, 202);
    assert!(!fleet.get(&format!("/api/v1/feeds/{id}")).await.body["wake_at"].is_null());
}

#[tokio::test]
async fn a_check_says_what_to_do() {
    let off = Fleet::new().await.post("/api/v1/push/check", json!({})).await;
    assert_eq!((off.status, &off.body["reachable"]), (200, &json!(false)));
    assert!(off.body["detail"].as_str().unwrap().contains("set api.public_url"), "{}", off.body);
    let fleet = Fleet::with(open).await;
    assert!(call(&fleet, "POST", "/websub/check", &[], "").await.1.starts_with("feedfleet takes deliveries here"));
}

/// Returns a body that must not be read.
fn unread() -> axum::body::Body {
    let chunk = || -> Result<Vec<u8>, std::io::Error> { panic!("the body was read") };
    axum::body::Body::from_stream(futures_util::stream::once(async move { chunk() }))
}

#[tokio::test]
async fn of_a_delivery_for_nobody_not_a_byte_is_read() {
    let fleet = Fleet::with(open).await;
    for path in ["websub", "rsscloud"] {
        for token in ["0".repeat(32), "x".repeat(5000)] {
            let request = axum::http::Request::post(format!("/{path}/{token}"));
            let request = PROXIED.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            assert_eq!(fleet.send(request.body(unread()).unwrap()).await.status, 410);
        }
    }
}
