//! Rules and blocks reach every role of a cluster, and survive a loss of Redis' memory.

use load_tests::{Feed, Origin, Script, loopback};
use redis::AsyncCommands;
use serde_json::{Value, json};

use super::harness::{Cluster, Kind, Role, Servers, Urls};
use crate::harness::PATIENCE;

const CONFIG: &str = r#"
[policy]
mode = "classes"
min_interval = "300ms"
salt = 0.0
hot_minutes = false
no_validator_factor = 1.0
[policy.category.d]
interval = "300ms"
interval_max = "300ms"
# A fetch that a stall of the machine makes time out is repeated soon, and not minutes later.
[policy.penalty]
transient_first = "300ms"
[host]
gap = "10ms"
[fetch]
# A gate that lost its memory stays closed for so long, and five seconds more.
timeout = "1s"
allow_networks = ["127.0.0.0/8"]
allow_ports = ["1-65535"]
"#;

async fn ask(role: &mut Role, method: reqwest::Method, path: &str, body: Value) -> Value {
    let url = format!("{}/api/v1/hosts/127.0.0.1{path}", role.address());
    let request = reqwest::Client::new().request(method, url).header("content-type", "application/json");
    let answer = request.body(body.to_string()).send().await.unwrap();
    let (status, text) = (answer.status(), answer.text().await.unwrap());
    assert!(status.is_success(), "{status}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// Waits for `requests` more requests.
async fn more(origin: &Origin, path: &str, requests: usize) {
    let wanted = origin.requests(path).len() + requests;
    assert!(origin.wait_for(path, wanted, PATIENCE).await.len() >= wanted, "{path} is not polled");
}

async fn wait_for_name(origin: &Origin, name: &str) {
    let last = || origin.requests("/ruled").last().and_then(|record| record.header("user-agent"));
    while last().as_deref() != Some(name) {
        more(origin, "/ruled", 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_and_blocks_reach_every_role_and_outlive_a_wiped_redis() {
    let servers = Servers::shared();
    let cluster = Cluster::new(&servers, Urls::of(&servers), CONFIG).await;
    let origin = Origin::listen(&loopback(2, 0)).await.unwrap();
    for path in ["/ruled", "/free"] {
        origin.set(path, Script::feed(Feed::rss().initial(1)));
    }
    cluster.add(&[origin.url("/ruled"), origin.url_on(1, "/free")], std::time::Duration::ZERO).await;
    let mut first = cluster.start(Kind::Scheduler);
    let mut second = cluster.start(Kind::Scheduler);
    let _worker = cluster.start(Kind::Worker);
    more(&origin, "/ruled", 1).await;

    let rule = json!({ "user_agent": "slow reader", "reason": "asked by mail" });
    ask(&mut first, reqwest::Method::PUT, "", rule).await;
    wait_for_name(&origin, "slow reader").await;

    let blocked = ask(&mut second, reqwest::Method::POST, "/block", json!({ "for": 3600 })).await;
    assert!(blocked["blocked_until"].is_string(), "{blocked}");
    // Requests that were in flight when the block was set end before this.
    more(&origin, "/free", 2).await;
    let asked = origin.requests("/ruled").len();
    more(&origin, "/free", 5).await;
    assert_eq!(origin.requests("/ruled").len(), asked);

    let mut redis =
        redis::Client::open(servers.redis.as_str()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let keys: Vec<String> = redis.keys(format!("*{}*", cluster.namespace)).await.unwrap();
    assert!(!keys.is_empty());
    let _: () = redis.del(keys).await.unwrap();
    more(&origin, "/free", 5).await;
    assert_eq!(origin.requests("/ruled").len(), asked, "the gate opened with the block");

    ask(&mut first, reqwest::Method::POST, "/unblock", Value::Null).await;
    more(&origin, "/ruled", 2).await;
    wait_for_name(&origin, "slow reader").await;
    let taken = ask(&mut second, reqwest::Method::DELETE, "", Value::Null).await;
    assert_eq!(taken["rule"], Value::Null);
    for role in [first, second] {
        role.stop().await;
    }
}
