//! When load balancers send requests to a scheduler: while it can answer, also when it cannot poll, and not when it is about to stop.

use std::time::{Duration, Instant};

use futures_util::StreamExt;

use super::harness::{Cluster, Kind, Role, Servers, Urls};
use crate::harness::PATIENCE;

/// What operators, consumers and publishers need while Redis and RabbitMQ are unavailable.
const PATHS: [(&str, u16); 9] = [
    ("/", 200),
    ("/feeds", 200),
    ("/entries", 200),
    // No such feed.
    ("/status?url=http%3A%2F%2Fexample.com%2Ffeed.xml", 404),
    ("/hosts", 200),
    ("/api/v1/stats", 200),
    ("/api/v1/feeds", 200),
    ("/api/v1/entries", 200),
    ("/healthz", 200),
];

/// Waits until a path is answered with this status.
pub(super) async fn until(role: &mut Role, path: &str, status: u16) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (found, why) = role.get(path).await;
        if found == status {
            return;
        }
        assert!(Instant::now() < deadline, "{path} is {found}, not {status}: {why}\n{}", role.stderr());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn api_and_pages_need_postgresql_alone() {
    let servers = Servers::own(false);
    let cluster = Cluster::new(&servers, Urls::of(&servers), "").await;
    let mut scheduler = cluster.start(Kind::Scheduler);
    until(&mut scheduler, "/readyz", 200).await;
    until(&mut scheduler, "/readyz/api", 200).await;
    servers.stop("redis");
    servers.stop("rabbitmq");
    until(&mut scheduler, "/readyz", 503).await;
    assert_eq!(scheduler.get("/readyz/api").await.0, 200);
    let address = scheduler.address();
    for (path, wanted) in PATHS {
        let (status, text) = scheduler.get(path).await;
        assert_eq!(status, wanted, "{path}: {text}");
    }
    let page = scheduler.get("/").await.1;
    assert!(page.contains("Nothing is polled, and due times are unknown: the schedule is not usable"), "{page}");
    let stats: serde_json::Value = serde_json::from_str(&scheduler.get("/api/v1/stats").await.1).unwrap();
    assert!(stats["schedule_unavailable"].is_string(), "{stats}");
    let client = reqwest::Client::new();
    for (path, body) in
        [("/api/v1/fleet/pause", ""), ("/api/v1/fleet/resume", ""), ("/ping", "url=http://example.com/feed.xml")]
    {
        let request = client.post(format!("{address}{path}")).body(body);
        let answer = request.header("content-type", "application/x-www-form-urlencoded").send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {} {}", answer.status(), answer.text().await.unwrap());
    }
    servers.stop("postgres");
    until(&mut scheduler, "/readyz/api", 503).await;
    servers.up("postgres");
    until(&mut scheduler, "/readyz/api", 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_scheduler_with_a_wrong_address_takes_no_requests() {
    let servers = Servers::shared();
    let wrong = Urls { redis: "redis://127.0.0.1:1/".to_owned(), ..Urls::of(&servers) };
    let cluster = Cluster::new(&servers, wrong, "").await;
    let mut scheduler = cluster.start(Kind::Scheduler);
    // The API itself answers.
    until(&mut scheduler, "/api/v1/feeds", 200).await;
    let (status, why) = scheduler.get("/readyz/api").await;
    assert_eq!(status, 503);
    assert!(why.contains("the schedule is not usable"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_that_is_stopped_answers_until_proxies_know() {
    const DRAIN: Duration = Duration::from_secs(12);
    /// The last call is made this long before the end, so that a stall of the machine does not make it too late.
    const BEFORE_THE_END: Duration = Duration::from_secs(5);
    let servers = Servers::shared();
    let mut cluster = Cluster::new(&servers, Urls::of(&servers), "").await;
    cluster.drain = DRAIN;
    let mut scheduler = cluster.start(Kind::Scheduler);
    until(&mut scheduler, "/readyz/api", 200).await;
    let address = scheduler.address();
    let kept = reqwest::Client::new();
    let feeds = format!("{address}/api/v1/feeds");
    assert!(kept.get(&feeds).send().await.unwrap().headers().get("connection").is_none());
    let stream = kept.get(format!("{address}/api/v1/events/stream")).send().await.unwrap();
    let stream = tokio::spawn(async move {
        let mut body = stream.bytes_stream();
        // An error is a stream that was cut off.
        while let Some(part) = body.next().await {
            part.unwrap();
        }
        Instant::now()
    });
    let stopped = Instant::now();
    scheduler.signal("TERM");
    until(&mut scheduler, "/readyz/api", 503).await;
    assert!(stopped.elapsed() < DRAIN - BEFORE_THE_END, "readiness was lost after {:?}", stopped.elapsed());
    let mut answered = 0;
    while stopped.elapsed() < DRAIN - BEFORE_THE_END {
        let answer = kept.get(&feeds).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.headers()["connection"].as_bytes()), (200, b"close".as_slice()));
        answered += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let ended = stream.await.unwrap();
    assert!(ended >= stopped + DRAIN, "the stream ended {:?} after the signal", ended - stopped);
    // In order, and in time.
    scheduler.stopped().await;
    println!("{answered} calls were answered while it drained; it ended {:?} after the signal", stopped.elapsed());
    assert!(stopped.elapsed() < DRAIN + PATIENCE / 2, "{:?}", stopped.elapsed());
}
