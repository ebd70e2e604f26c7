//! The forms of subscriptions: everything that the API takes can be filled in, and what is there is filled in.

use serde_json::{Value, json};

use super::console_tests::{send, sent};
use crate::testing::Fleet;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

async fn stored(fleet: &Fleet, id: i64) -> Value {
    fleet.get(&format!("/api/v1/subscriptions/{id}")).await.body
}

#[tokio::test]
async fn a_subscription_is_added_with_every_condition_its_own_secret_and_a_beginning() {
    let fleet = Fleet::with_secrets().await;
    let feed = fleet.feed("https://a.example/feed").await;
    let every = [
        ("target", "https://t.example/hook"),
        ("kind", "entry.*"),
        ("feed", "https://a.example/feed"),
        ("host", "a.example:443"),
        ("label", "news"),
        ("category", "B"),
        ("language", "en"),
        ("q", "fog & snow"),
        ("part", "2/3"),
        ("format", "jsonfeed"),
        ("batch", "7"),
        ("delay", "1m 30s"),
        ("after", "0"),
        ("secret", SECRET),
        // A browser sends it whatever was chosen.
        ("signature", "ed25519"),
    ];
    let (status, _, page) = sent(&fleet, "/subscriptions/add", &every).await;
    assert!(status == 201 && page.contains(SECRET), "{status} {page}");
    let added = stored(&fleet, 1).await;
    let filter = json!({
        "kind": "entry.*", "feed": feed, "host": "a.example:443", "label": "news", "category": "B", "language": "en",
        "q": "fog & snow", "part": "2/3"
    });
    assert_eq!((&added["filter"], &added["format"], &added["cursor"]), (&filter, &json!("jsonfeed"), &json!(0)));
    assert_eq!((&added["batch"], &added["delay"]), (&json!(7), &json!(90.0)));
    assert_eq!(added["signature"], "hmac-sha256");

    // What is left empty is not sent; a generated secret signs as was chosen.
    let few =
        [("target", "https://t.example/two"), ("host", ""), ("ago", "2h"), ("secret", ""), ("signature", "ed25519")];
    assert_eq!(sent(&fleet, "/subscriptions/add", &few).await.0, 201);
    let added = stored(&fleet, 2).await;
    assert_eq!((&added["filter"], &added["signature"]), (&json!({}), &json!("ed25519")));
    for wrong in
        [("part", "4/3"), ("host", "a b"), ("secret", "x"), ("after", "-1"), ("ago", "soon"), ("batch", "many")]
    {
        let (status, _, page) = sent(&fleet, "/subscriptions/add", &[few[0], wrong]).await;
        assert_eq!(status, 400, "{wrong:?}: {page}");
    }
    let both = [few[0], ("ago", "1h"), ("after", "0")];
    assert_eq!(sent(&fleet, "/subscriptions/add", &both).await.0, 400);
}

#[tokio::test]
async fn target_and_filter_are_changed_in_a_form_that_shows_what_they_are() {
    let fleet = Fleet::with_secrets().await;
    let wish = json!({
        "kind": "webhook", "target": "https://t.example/hook?a=1&b=\"2\"", "format": "atom", "delay": 5,
        "filter": { "host": "a.example:443", "q": "<b>fog", "part": "1/4", "category": "C" }
    });
    assert_eq!(fleet.post("/api/v1/subscriptions", wish).await.status, 201);
    let (_, _, page) = fleet.call("GET", "/subscriptions/1", &[("accept", "text/html")], "").await;
    for filled in [
        "value=\"a.example:443\"",
        "name=\"q\" value=\"&#60;b&#62;fog\"",
        "value=\"1/4\"",
        "value=\"5s\"",
        "value=\"100\"",
    ] {
        assert!(page.contains(filled), "{filled} in {page}");
    }
    assert!(page.contains("<option selected>C</option>") && page.contains("<option selected>atom</option>"), "{page}");

    let change = [
        ("target", "https://t.example/new"),
        ("host", "b.example:443"),
        ("q", ""),
        ("part", "2/4"),
        ("category", ""),
        ("format", "feedfleet"),
        ("batch", "9"),
        ("delay", "0s"),
    ];
    let (to, page) = send(&fleet, "/subscriptions/1/change", &change).await;
    assert!(to == "/subscriptions/1?done=change" && page.contains("It is changed."), "{to} {page}");
    let changed = stored(&fleet, 1).await;
    assert_eq!(changed["filter"], json!({ "host": "b.example:443", "part": "2/4" }), "empty conditions end");
    assert_eq!((&changed["target"], &changed["format"]), (&json!("https://t.example/new"), &json!("feedfleet")));
    assert_eq!((&changed["batch"], &changed["delay"]), (&json!(9), &json!(0.0)));
    let refused = [("target", "https://t.example/new"), ("kind", "feed.*"), ("format", "atom")];
    assert_eq!(sent(&fleet, "/subscriptions/1/change", &refused).await.0, 400);
    assert_eq!(sent(&fleet, "/subscriptions/2/change", &change).await.0, 404);
}
