//! Feeds whose redirects lead to a busy host: they wait there, and their own host is free.

use common::host_gate::{AcquireRequest, Acquired, Isolation, Release, fresh_nonce};
use common::job::Detour;

use super::*;

const HUB: &str = "http://hub.example/feed";

/// Returns what a worker reports whose redirect led to the hub, when that allows no requests before `until`.
pub(super) async fn interrupted(fleet: &Fleet, job: &FetchJob, until: Timestamp) -> FetchReport {
    let now = fleet.clock.now();
    let limits = fleet.ops.rules.get().limits_of(&job.host);
    let (host, deadline) = (job.host.clone(), now.after(Duration::from_secs(30)));
    let FetchJob { feed, version, ticket, .. } = *job;
    let (nonce, isolation) = (fresh_nonce(), Isolation::None);
    let request = AcquireRequest {
        host,
        limits,
        ticket,
        feed,
        version,
        deadline,
        leased_until: Timestamp::EPOCH,
        nonce,
        isolation,
    };
    let Acquired::Granted(permit) = fleet.ops.gate.acquire(&request, now).await.unwrap() else { panic!("not granted") };
    fleet.ops.gate.release(&permit, Release::default(), now).await.unwrap();
    let (next, way) = (HUB.parse().unwrap(), format!("of feed {}", job.feed));
    let detour = Some(Detour { next, way, page: false, not_before: None });
    FetchReport { detour, ..report(job, now, Outcome::Deferred { until }) }
}

/// Returns feeds on separate hosts that all lead to the hub, at which a request has just begun.
async fn on_their_way(count: usize) -> (Fleet, Vec<FeedId>) {
    let fleet = Fleet::new().await;
    let direct = fleet.add(HUB).await;
    let mut ids = Vec::new();
    for n in 0..count {
        ids.push(fleet.add(&format!("http://a{n}.example/feed")).await);
    }
    let jobs = fleet.dispatched().await;
    assert_eq!(jobs.len(), count + 1);
    let until = fleet.clock.now().after(GAP);
    for job in &jobs {
        let report = match job.feed == direct {
            true => fleet.work(job, not_modified()).await,
            false => interrupted(&fleet, job, until).await,
        };
        fleet.settle(report).await;
    }
    (fleet, ids)
}

#[tokio::test]
async fn p29_feeds_on_their_way_to_a_busy_host_wait_there_and_go_on_one_by_one() {
    let (fleet, ids) = on_their_way(4).await;
    let depth = fleet.ops.schedule.depth(fleet.clock.now()).await.unwrap();
    assert_eq!((depth.parked, depth.leased), (4, 0));
    assert!(fleet.dispatched().await.is_empty(), "the hub was asked just now");
    let mut asked = Vec::new();
    for _ in &ids {
        fleet.clock.advance(GAP);
        let mut jobs = fleet.dispatched().await;
        let job = jobs.pop().unwrap();
        assert!(jobs.is_empty(), "one at a time");
        let detour = job.detour.clone().unwrap();
        assert_eq!((job.host.name(), detour.way), ("hub.example", format!("of feed {}", job.feed)));
        let report = fleet.work(&job, not_modified()).await;
        fleet.settle(report).await;
        let feed = fleet.feed(job.feed).await;
        assert!(feed.host.name().starts_with('a') && feed.version.0 == job.version.0 + 1, "{}", feed.host);
        asked.push(job.feed);
    }
    assert_eq!(asked, ids, "those who wait longest come first");
    assert!(fleet.dispatched().await.is_empty());
}

#[tokio::test]
async fn a_redirect_to_its_own_host_that_says_when_is_followed_then_and_not_when_the_host_is_free() {
    let fleet = Fleet::new().await;
    let id = fleet.add(HUB).await;
    let job = &fleet.dispatched().await[0];
    let until = fleet.clock.now().after(Duration::from_secs(600));
    let report = FetchReport { retry_after: Some(until), ..interrupted(&fleet, job, until).await };
    fleet.settle(report).await;
    // Within the slack that the comparison with the store allows leases.
    fleet.clock.advance(Duration::from_secs(200));
    assert_eq!(fleet.reconciler.schedule_once(&*fleet.clock).await.unwrap(), 0, "the store knows of the wait");
    let fleet = fleet.restart().await;
    fleet.clock.advance(Duration::from_secs(399));
    assert!(fleet.dispatched().await.is_empty(), "its host is free, but it was told to wait");
    fleet.clock.advance(Duration::from_secs(1));
    let jobs = fleet.dispatched().await;
    assert_eq!(jobs.iter().map(|job| (job.feed, job.detour.is_some())).collect::<Vec<_>>(), [(id, true)]);
}

#[tokio::test]
async fn a_hold_for_a_limit_that_a_redirect_used_up_outlives_the_gate() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    let job = &fleet.dispatched().await[0];
    let now = fleet.clock.now();
    let until = now.after(Duration::from_secs(600));
    let deferred = interrupted(&fleet, job, until).await;
    fleet.settle(FetchReport { retry_after: Some(until), limited_until: Some(until), ..deferred }).await;
    let feed = fleet.feed(id).await;
    assert_eq!((feed.version, feed.state.last_polled), (job.version, None));
    assert_eq!(fleet.ops.store.holds(now).await.unwrap(), [(feed.host, until)]);
    let fleet = fleet.restart().await;
    assert_eq!(fleet.ops.gate.held(now).await.unwrap(), 1);
}

#[tokio::test]
async fn the_way_of_a_feed_survives_a_restart_and_ends_with_its_report() {
    let (fleet, ids) = on_their_way(1).await;
    let fleet = fleet.restart().await;
    fleet.clock.advance(Duration::from_secs(60));
    let job = &fleet.dispatched().await[0];
    assert_eq!((job.feed, job.host.name()), (ids[0], "hub.example"));
    let report = fleet.work(job, not_modified()).await;
    fleet.settle(report).await;
    let due = fleet.feed(ids[0]).await.next_due.unwrap();
    fleet.clock.advance(due.since(fleet.clock.now()));
    let job = fleet.dispatched().await.into_iter().find(|job| job.feed == ids[0]).unwrap();
    assert_eq!((job.detour, job.host.name()), (None, "a0.example"), "the next poll begins at its own host");
}

#[tokio::test]
async fn a_feed_that_no_longer_goes_there_lets_the_next_one_of_the_busy_host_come() {
    let (fleet, ids) = on_their_way(2).await;
    let pause = |status| store::FeedChange { status: Some(status), ..Default::default() };
    // Its version rises, and with that its way ends, while it waits at the hub.
    for status in [Status::Paused, Status::Active] {
        fleet.ops.store.change_feed(ids[0], &pause(status), fleet.clock.now()).await.unwrap();
    }
    fleet.clock.advance(GAP);
    let mut jobs = fleet.dispatched().await;
    jobs.extend(fleet.dispatched().await);
    let asked: Vec<_> = jobs.iter().map(|job| (job.feed, job.host.name())).collect();
    assert_eq!(asked, [(ids[0], "a0.example"), (ids[1], "hub.example")]);
}

#[tokio::test]
async fn a_hold_of_the_host_at_which_a_fetch_continued_is_stored_for_that_host() {
    let (fleet, ids) = on_their_way(1).await;
    fleet.clock.advance(GAP);
    let job = fleet.dispatched().await.remove(0);
    assert_eq!((job.feed, job.host.name()), (ids[0], "hub.example"));
    let now = fleet.clock.now();
    let until = now.after(Duration::from_secs(600));
    let throttled = fleet.work(&job, Outcome::Throttled { retry_after: Some(until) }).await;
    fleet.settle(throttled).await;
    assert_eq!(fleet.ops.store.holds(now).await.unwrap(), [(job.host.clone(), until)]);
    assert_eq!(fleet.feed(ids[0]).await.host.name(), "a0.example");
}
