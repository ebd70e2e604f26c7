//! Feeds that a person wants polled at once, at a host where many wait.

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_refresh_that_finds_its_host_busy_is_among_the_next_requests_there() {
    let fleet = Fleet::new().await;
    let mut ids = Vec::new();
    for n in 0..50 {
        ids.push(fleet.add(&format!("http://busy.example/{n}")).await);
        fleet.clock.advance(Duration::from_millis(1));
    }
    let first = &fleet.dispatched().await[0];
    assert_eq!(first.feed, ids[0]);
    let report = fleet.work(first, not_modified()).await;
    fleet.settle(report).await;
    let wanted = ids[49];
    fleet.ops.wake(&[wanted]).await.unwrap();
    assert!(fleet.dispatched().await.is_empty(), "the host has just been polled");
    let mut next = Vec::new();
    for _ in 0..2 {
        fleet.clock.advance(GAP);
        for job in fleet.dispatched().await {
            let report = fleet.work(&job, not_modified()).await;
            fleet.settle(report).await;
            next.push(job.feed);
        }
    }
    assert!(next.len() == 2 && next.contains(&wanted), "{next:?}");
}

#[tokio::test]
async fn a_refresh_goes_before_its_hosts_other_feeds_unless_they_have_waited_for_a_day_longer() {
    for (waited, refresh_is_first) in [(23 * HOUR, true), (25 * HOUR, false)] {
        let fleet = Fleet::new().await;
        let other = fleet.add("http://busy.example/other").await;
        fleet.clock.advance(waited);
        let wanted = fleet.add("http://busy.example/wanted").await;
        fleet.ops.wake(&[wanted]).await.unwrap();
        let first = if refresh_is_first { wanted } else { other };
        assert_eq!(fleet.dispatched_ids().await, [first], "{waited:?}");
    }
}
