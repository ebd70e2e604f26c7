//! A requeue does not belong to a scheduler: started at one, continued by another when the first is killed. A pause set
//! at one of them applies to all.

use std::collections::HashMap;

use common::time::{Clock, SystemClock};
use load_tests::{Feed, Origin, Script, loopback};
use store::RequeueState;

use super::harness::{Cluster, Kind, Role, Servers, Urls};
use crate::harness::PATIENCE;
use store::{Feeds, Requeues};

const FEEDS: usize = 90;
const HOSTS: u16 = 15;
const CONFIG: &str = r#"
[policy]
hot_minutes = false
[host]
gap = "50ms"
[scheduler]
reconcile_interval = "5s"
[fetch]
timeout = "2s"
allow_networks = ["127.0.0.0/8"]
allow_ports = ["1-65535"]
"#;

async fn post(role: &mut Role, path: &str, body: &str) {
    let url = format!("{}/api/v1{path}", role.address());
    let request = reqwest::Client::new().post(url).header("content-type", "application/json");
    let answer = request.body(body.to_owned()).send().await.unwrap();
    let status = answer.status();
    assert!(status.is_success(), "{path}: {status}: {}", answer.text().await.unwrap());
}

/// Waits until the store satisfies the predicate.
async fn until(cluster: &Cluster, what: &str, mut says: impl AsyncFnMut(&Cluster) -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !says(cluster).await {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never came: {what}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requeue_is_gone_on_with_by_any_scheduler_and_waits_for_a_paused_fleet() {
    let servers = Servers::shared();
    let cluster = Cluster::new(&servers, Urls::of(&servers), CONFIG).await;
    let origin = Origin::listen(&loopback(HOSTS, 0)).await.unwrap();
    let urls: Vec<String> = (0..FEEDS)
        .map(|number| {
            let path = format!("/feed{number}");
            origin.set(&path, Script::feed(Feed::rss().initial(1)));
            origin.url_on(number % usize::from(HOSTS), &path)
        })
        .collect();
    cluster.add(&urls, std::time::Duration::ZERO).await;
    let mut first = cluster.start(Kind::Scheduler);
    let mut second = cluster.start(Kind::Scheduler);
    let workers = [cluster.start(Kind::Worker), cluster.start(Kind::Worker)];
    until(&cluster, "the first polls", async |cluster| {
        cluster.feeds().await.iter().all(|feed| feed.state.last_polled.is_some())
    })
    .await;

    post(&mut second, "/fleet/pause", "").await;
    let (before, began) = (origin.request_count(), SystemClock.now());
    post(&mut first, "/requeue", r#"{"filter": {"all": true}, "rate": 30}"#).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(origin.request_count(), before, "the fleet is paused");
    assert_eq!(cluster.store.requeues(true).await.unwrap()[0].woken, 0);
    post(&mut second, "/fleet/resume", "").await;
    assert!(origin.wait_for_total(before + FEEDS / 3, PATIENCE).await, "the requeue does not begin");
    first.kill();
    until(&cluster, "the end of the requeue", async |cluster| {
        cluster.store.requeues(false).await.unwrap()[0].state == RequeueState::Done
    })
    .await;
    until(&cluster, "an answer to each wish", async |cluster| {
        cluster.feeds().await.iter().all(|feed| feed.wake_at.is_none())
    })
    .await;
    for role in [second].into_iter().chain(workers) {
        role.stop().await;
    }

    let requeue = &cluster.store.requeues(false).await.unwrap()[0];
    assert_eq!((requeue.woken, requeue.by.as_str()), (FEEDS as u64, "loopback"));
    let mut asked: HashMap<String, usize> = HashMap::new();
    for record in origin.log_from(before) {
        assert!(record.is_conditional(), "{record:?}");
        *asked.entry(record.target().to_owned()).or_default() += 1;
    }
    assert_eq!(asked.len(), FEEDS);
    for feed in cluster.feeds().await {
        let polls = cluster.store.history(feed.id).await.unwrap().unwrap();
        assert_eq!(polls.iter().filter(|poll| poll.at >= began).count(), 1, "{polls:?}");
    }
}
