//! A pause of all polling: from when on it holds, and what is served meanwhile.

use super::*;

#[tokio::test]
async fn a_pause_holds_from_the_moment_on_in_which_it_is_stored() {
    let fleet = Fleet::new().await;
    fleet.ops.set_paused(true).await.unwrap();
    let id = fleet.add("http://a.example/feed").await;
    fleet.ops.wake(&[id]).await.unwrap();
    assert!(fleet.dispatched().await.is_empty(), "added right after the pause");
    fleet.ops.set_paused(false).await.unwrap();
    assert_eq!(fleet.dispatched_ids().await, [id]);
}

#[tokio::test]
async fn where_the_operator_wants_it_a_refresh_is_served_while_all_polling_is_paused_and_nothing_else() {
    let mut config = config();
    config.scheduler.refresh_while_paused = true;
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let store = Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap());
    let fleet = Fleet::over(config, store, clock, Timestamp::EPOCH).await;
    fleet.ops.set_paused(true).await.unwrap();
    let wanted = fleet.add("http://a.example/feed").await;
    let audience = Audience { sla: true, ..Audience::default() };
    let url = "http://c.example/sla".parse().unwrap();
    let sla = AddFeed { audience, ..AddFeed::of(url) };
    let sla = fleet.ops.add(&[sla], None).await.unwrap()[0].id;
    let other = fleet.add("http://b.example/feed").await;
    assert!(fleet.dispatched().await.is_empty());
    fleet.ops.wake(&[wanted]).await.unwrap();
    let jobs = fleet.dispatched().await;
    assert_eq!(jobs.iter().map(|job| job.feed).collect::<Vec<_>>(), [wanted]);
    let report = fleet.work(&jobs[0], not_modified()).await;
    fleet.settle(report).await;
    fleet.clock.advance(Duration::from_secs(60));
    assert!(fleet.dispatched().await.is_empty(), "category A waits too");
    fleet.ops.set_paused(false).await.unwrap();
    fleet.clock.advance(Duration::from_secs(10));
    let mut all = fleet.dispatched_ids().await;
    all.sort();
    assert_eq!(all, [sla, other]);
}
