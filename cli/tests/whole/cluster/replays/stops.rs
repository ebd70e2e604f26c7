//! A1 to A4: what stopped the fleet.

use std::time::Duration;

use common::redis::testing::CuttingProxy;
use load_tests::Script;
use load_tests::proxy::{FaultProxy, Faults};

use super::super::harness::{Kind, Servers, Urls, address, through, until};
use super::super::readiness::until as until_status;
use super::{Replay, feed, path, with_own_redis};
use crate::harness::PATIENCE;

/// A1, and the same at the other servers: established connections swallow everything, and new ones work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_go_silent_cost_seconds() {
    let servers = Servers::shared();
    let plain = Urls::of(&servers);
    let mut proxies = Vec::new();
    for url in [&plain.redis, &plain.store, &plain.queue] {
        proxies.push(FaultProxy::before(address(url)).await.unwrap());
    }
    let urls = Urls {
        redis: through(&plain.redis, &proxies[0]),
        store: through(&plain.store, &proxies[1]),
        queue: through(&plain.queue, &proxies[2]),
    };
    let replay = Replay::new(10, Duration::from_secs(3), &servers, urls, feed).await;
    let roles = replay.begin().await;
    for (name, proxy) in ["Redis", "PostgreSQL", "RabbitMQ"].into_iter().zip(&proxies) {
        proxy.set(Faults { silent_before: Some(tokio::time::Instant::now()), ..Faults::default() });
        let all = replay.two_rounds(&roles).await;
        println!("{name}: each feed was polled twice within {all:.1?} after its connections became silent");
        // On a quiet machine 10 s; 230 s and more before.
        assert!(all < Duration::from_secs(60), "{name}: {all:?}");
    }
}

/// A3: a feed kills its worker a moment after each request, beside forty slow innocent ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_that_kills_worker_processes_is_found_and_no_other_is_blamed() {
    const DEADLY: u16 = 40;
    let servers = Servers::shared();
    let slow = |n: u16| if n == DEADLY { Script::silent() } else { feed(n).delay(Duration::from_secs(4)) };
    let replay = Replay::new(DEADLY + 1, Duration::from_secs(5), &servers, Urls::of(&servers), slow).await;
    let scheduler = replay.cluster.start(Kind::Scheduler);
    let mut worker = replay.cluster.start(Kind::Worker);
    for deaths in 1..=3 {
        let begun = replay.origin.wait_for_start(&path(DEADLY), deaths, PATIENCE).await;
        assert!(begun.len() >= deaths, "{}", scheduler.stderr());
        tokio::time::sleep(Duration::from_millis(300)).await;
        worker.kill();
        worker = replay.cluster.start(Kind::Worker);
    }
    until("the feed is quarantined", async || !replay.quarantined().await.is_empty()).await;
    let before = replay.origin.request_count();
    assert!(replay.origin.wait_for_total(before + 80, PATIENCE).await);
    let blamed: Vec<String> = replay.quarantined().await.iter().map(|feed| feed.url.to_string()).collect();
    assert_eq!(blamed, [replay.origin.url_on(usize::from(DEADLY), &path(DEADLY))]);
    assert_eq!(replay.origin.requests(&path(DEADLY)).len(), 3);
}

/// A2: a scheduler cannot store while another one settles everything, which is then stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduler_that_could_not_store_claims_again_once_it_is_alone() {
    let servers = Servers::shared();
    let plain = Urls::of(&servers);
    let proxy = FaultProxy::before(address(&plain.store)).await.unwrap();
    let through_it = Urls { store: through(&plain.store, &proxy), ..plain.clone() };
    let replay = Replay::new(6, Duration::from_secs(6), &servers, plain, feed).await;
    let other = replay.cluster.start(Kind::Scheduler);
    let mut first = replay.cluster.start_with(Kind::Scheduler, &through_it, &[]);
    let worker = replay.cluster.start(Kind::Worker);
    until_status(&mut first, "/readyz", 200).await;
    let mut roles = [first, worker];
    replay.two_rounds(&roles).await;
    let for_ever = tokio::time::Instant::now() + Duration::from_secs(3600);
    proxy.set(Faults { silent_before: Some(for_ever), ..Faults::default() });
    let line = "reports cannot be stored";
    until("the first scheduler cannot store", async || roles[0].stderr().contains(line)).await;
    // The other one settles its reports.
    replay.two_rounds(&roles).await;
    proxy.set(Faults::default());
    other.stop().await;
    let all = replay.two_rounds(&roles).await;
    println!("each feed was polled twice within {all:.1?} by the scheduler that could not store");
    until_status(&mut roles[0], "/readyz", 200).await;
}

/// A4: answers to a worker that starts a fetch are lost, three in a row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_whose_starts_are_granted_in_vain_is_not_quarantined() {
    let (shared, own, urls) = with_own_redis();
    let proxy = CuttingProxy::before(address(&own.redis).port()).await;
    let replay = Replay::new(1, Duration::from_secs(3), &shared, urls.clone(), feed).await;
    let scheduler = replay.cluster.start(Kind::Scheduler);
    let worker = replay.cluster.start_with(Kind::Worker, &Urls { redis: proxy.url(), ..urls }, &[]);
    let roles = [scheduler, worker];
    assert!(replay.origin.wait_for_total(1, PATIENCE).await, "{}", roles[1].stderr());
    for _ in 0..3 {
        // Longer than a call to Redis may take.
        proxy.delay_answer_to("acquire", Duration::from_millis(2_600));
        until("a start is granted late", async || proxy.has_delayed()).await;
    }
    let before = replay.origin.request_count();
    let all = replay.two_rounds(&roles).await;
    println!("polled twice within {all:.1?} after three starts whose grants came too late, {before} requests before");
    assert_eq!(replay.quarantined().await.len(), 0);
}
