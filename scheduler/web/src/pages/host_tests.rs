//! Hosts as people write them, and what the pages say of those that rest.

use std::time::Duration;

use common::host::HostKey;
use common::outcome::FailureKind;
use common::time::Clock;
use common::url::FeedId;
use serde_json::json;
use store::RefusedHost;

use crate::testing::Fleet;

async fn get(fleet: &Fleet, path: &str) -> String {
    let (status, _, page) = fleet.call("GET", path, &[], "").await;
    assert_eq!(status, 200, "{path}: {page}");
    page
}

#[tokio::test]
async fn a_bare_name_finds_the_feeds_of_its_host_at_any_port() {
    let fleet = Fleet::new().await;
    let plain = fleet.feed("http://example.com:8080/plain").await;
    fleet.polled(plain, &["1"]).await;
    let feeds = get(&fleet, "/feeds?host=example.com").await;
    assert!(feeds.contains("http://example.com:8080/plain"), "{feeds}");
    for path in ["/entries?host=example.com", "/entries?host=Example.com."] {
        let river = get(&fleet, path).await;
        assert!(river.contains("<article>") && river.contains("feeds/1"), "{path}: {river}");
    }
    assert_eq!(fleet.get("/entries.json?host=example.com").await.body["items"].as_array().unwrap().len(), 1);

    fleet.feed("https://example.com/secure").await;
    let both = get(&fleet, "/feeds?host=example.com").await;
    assert!(both.contains("https://example.com/secure") && both.contains("http://example.com:8080/plain"), "{both}");
    let one = get(&fleet, "/feeds?host=example.com:8080").await;
    assert!(one.contains("http://example.com:8080/plain") && !one.contains("https://example.com/secure"), "{one}");
    for (host, feeds) in [("Example.com", 2), ("example.com:80", 1), ("example.com:8080", 1), ("www.example.com", 0)] {
        let listed = fleet.get(&format!("/api/v1/feeds?host={host}")).await.body;
        assert_eq!(listed["items"].as_array().unwrap().len(), feeds, "{host}: {listed}");
    }
    assert!(get(&fleet, "/feeds?host=nobody.example").await.contains("No feeds match."));
}

/// Stores that the host refuses us and rests.
async fn refuses(fleet: &Fleet, host: &HostKey) {
    let hour = Duration::from_secs(3600);
    let refused = RefusedHost {
        host,
        feed: FeedId(1),
        failure: FailureKind::Status,
        status: Some(403),
        first: hour,
        ceiling: 24 * hour,
        is_known: false,
    };
    fleet.ops.store.refuse_host(&refused, fleet.clock.now()).await.unwrap().unwrap();
    // Has the scheduler read what the store says of hosts.
    fleet.post("/api/v1/hosts/other.example/block", json!({ "for": 60 })).await;
}

#[tokio::test]
async fn a_host_that_refuses_us_did_not_ask_for_its_rest() {
    let fleet = Fleet::new().await;
    fleet.feed("https://a.example/feed").await;
    refuses(&fleet, &HostKey::new("a.example:443")).await;
    for path in ["/hosts", "/hosts/a.example"] {
        let page = get(&fleet, path).await;
        assert!(page.contains("refuses us"), "{path}: {page}");
        assert!(!page.contains("server's request") && !page.contains("server&#39;s request"), "{path}: {page}");
    }
    let feed = get(&fleet, "/feeds/1").await;
    assert!(feed.contains(">in 1 h</time></b> <span>next poll</span>"), "{feed}");
}
