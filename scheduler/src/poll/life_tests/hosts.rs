//! Feeds that wait for their host.

use common::document::Document;
use common::host::HostRule;

use super::*;
use crate::ops::hosts::{RuleChange, set_rule};

#[tokio::test]
async fn a_deferred_or_stale_job_does_not_keep_its_hosts_other_feeds_waiting() {
    let fleet = Fleet::new().await;
    for n in 0..3 {
        fleet.add(&format!("http://busy.example/{n}")).await;
    }
    let first = &fleet.dispatched().await[0];
    let far = fleet.clock.now().after(Duration::from_secs(600));
    let deferred = fleet.work(first, Outcome::Deferred { until: far }).await;
    fleet.settle(deferred).await;
    fleet.clock.advance(GAP);
    let second = fleet.dispatched().await;
    assert_eq!(second.len(), 1, "after a deferred one");
    let stale = fleet.work(&second[0], not_modified()).await;
    fleet.settle(FetchReport { version: Version(99), ..stale }).await;
    fleet.clock.advance(GAP);
    assert_eq!(fleet.dispatched().await.len(), 1, "after a stale one");
}

#[tokio::test]
async fn a_parked_feed_that_is_not_due_after_all_makes_way_for_the_next() {
    let fleet = Fleet::new().await;
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(fleet.add(&format!("http://busy.example/{n}")).await);
    }
    let job = &fleet.dispatched().await[0];
    assert_eq!(job.feed, ids[0]);
    // The second goes while it waits for its host.
    let pause = store::FeedChange { status: Some(Status::Paused), ..Default::default() };
    fleet.ops.store.change_feed(ids[1], &pause, fleet.clock.now()).await.unwrap();
    let report = fleet.work(job, not_modified()).await;
    fleet.settle(report).await;
    fleet.clock.advance(GAP);
    let mut asked = fleet.dispatched_ids().await;
    asked.extend(fleet.dispatched_ids().await);
    assert_eq!(asked, [ids[2]]);
}

#[tokio::test]
async fn feeds_of_one_host_are_asked_one_by_one_a_gap_apart() {
    let fleet = Fleet::new().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(fleet.add(&format!("http://busy.example/{n}")).await);
    }
    let other = fleet.add("http://free.example/").await;
    let mut asked = Vec::new();
    for second in 0..5 {
        let jobs = fleet.dispatched().await;
        let (busy, free): (Vec<_>, Vec<_>) = jobs.iter().partition(|job| job.feed != other);
        assert_eq!(busy.len(), 1, "second {second}");
        assert_eq!(free.len(), usize::from(second == 0), "the free host waits for nobody");
        for job in jobs {
            asked.push(job.feed);
            let report = fleet.work(&job, not_modified()).await;
            fleet.settle(report).await;
        }
        assert!(fleet.dispatched().await.is_empty(), "within the gap");
        fleet.clock.advance(GAP);
    }
    ids.push(other);
    asked.sort();
    assert_eq!(asked, ids);
}

#[tokio::test]
async fn a_feed_that_became_due_just_now_is_not_served_before_one_that_was_parked() {
    let fleet = Fleet::new().await;
    let old = fleet.add("http://busy.example/old").await;
    let job = fleet.dispatched().await.remove(0);
    let report = fleet.work(&job, not_modified()).await;
    fleet.settle(report).await;

    let before = GAP / 2;
    fleet.clock.advance(fleet.feed(old).await.next_due.unwrap().since(fleet.clock.now()) - before);
    let first = fleet.add("http://busy.example/1").await;
    let parked = fleet.add("http://busy.example/2").await;
    let job = fleet.dispatched().await.remove(0);
    assert_eq!(job.feed, first);
    let report = fleet.work(&job, not_modified()).await;
    fleet.settle(report).await;

    fleet.clock.advance(GAP);
    assert_eq!(fleet.dispatched_ids().await, [parked]);
}

#[tokio::test]
async fn a_throttled_host_rests_over_a_restart_and_is_then_asked_one_by_one() {
    let fleet = Fleet::new().await;
    for n in 0..3 {
        fleet.add(&format!("http://busy.example/{n}")).await;
    }
    let jobs = fleet.dispatched().await;
    let retry_after = Some(fleet.clock.now().after(Duration::from_secs(600)));
    let report = fleet.work(&jobs[0], Outcome::Throttled { retry_after }).await;
    fleet.settle(report).await;
    let fleet = fleet.restart().await;
    fleet.clock.advance(Duration::from_secs(599));
    assert!(fleet.dispatched().await.is_empty(), "the host is held");
    fleet.clock.advance(Duration::from_secs(1));
    assert_eq!(fleet.dispatched().await.len(), 1, "the release is spread");
}

#[tokio::test]
async fn after_a_restart_nothing_is_early_and_no_host_is_asked_within_its_gap() {
    let fleet = Fleet::new().await;
    let polled = fleet.add("http://a.example/feed").await;
    let job = &fleet.dispatched().await[0];
    let report = fleet.work(job, not_modified()).await;
    fleet.settle(report).await;
    let next = fleet.feed(polled).await.next_due.unwrap();
    let waiting = fleet.add("http://b.example/feed").await;

    let fleet = fleet.restart().await;
    assert!(fleet.dispatched().await.is_empty(), "somebody may have asked b.example a moment ago");
    fleet.clock.advance(GAP);
    assert_eq!(fleet.dispatched_ids().await, [waiting]);
    fleet.clock.advance(next.since(fleet.clock.now()) - Duration::from_millis(1));
    assert!(!fleet.dispatched_ids().await.contains(&polled));
    fleet.clock.advance(Duration::from_millis(1));
    assert!(fleet.dispatched_ids().await.contains(&polled));
}

#[tokio::test]
async fn a_host_that_allows_several_requests_at_once_is_asked_again_although_nobody_has_reported() {
    for burst in [1_u32, 3] {
        let fleet = Fleet::new().await;
        let (r#match, reason) = ("wide.example".to_owned(), "a test".to_owned());
        let rule = HostRule { r#match, reason, parallel: Some(3), burst: Some(burst), ..HostRule::default() };
        assert_eq!(set_rule(&fleet.ops, &rule).await.unwrap(), RuleChange::Done);
        let mut ids = Vec::new();
        for n in 0..if burst == 1 { 3 } else { 6 } {
            ids.push(fleet.add(&format!("https://wide.example/{n}")).await);
        }
        if burst == 1 {
            for id in ids {
                assert_eq!(fleet.dispatched_ids().await, [id], "a gap apart");
                fleet.clock.advance(GAP);
            }
            continue;
        }
        let jobs = fleet.dispatched().await;
        assert_eq!(jobs.len(), 3);
        // They end; their reports are on their way.
        for job in &jobs {
            fleet.work(job, not_modified()).await;
        }
        fleet.clock.advance(GAP * 3);
        for id in &ids[3..] {
            assert_eq!(fleet.dispatched_ids().await, [*id], "one after the other at once");
        }
    }
}

#[tokio::test]
async fn a_feed_that_waits_for_its_host_counts_once_as_demand() {
    let fleet = Fleet::new().await;
    let Ops { store, schedule, config, condition, .. } = &*fleet.ops;
    let correct = async || {
        let now = fleet.clock.now();
        condition.price.correct(&**store, &**schedule, 0, now, config).await.unwrap();
    };
    correct().await;
    for n in 0..3 {
        fleet.add(&format!("http://busy.example/{n}")).await;
    }
    for _ in 0..3 {
        for job in fleet.dispatched().await {
            let report = fleet.work(&job, not_modified()).await;
            fleet.settle(report).await;
        }
        fleet.clock.advance(GAP);
    }
    fleet.clock.advance(Duration::from_secs(57));
    correct().await;
    assert!((condition.price.demand() - 3.0 / 60.0).abs() < 1e-9, "{}", condition.price.demand());
}

#[tokio::test]
async fn in_a_hot_minute_only_category_a_and_what_a_person_wants_are_polled() {
    const HOUR: i64 = 3_600_000;
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let store = Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap());
    let fleet = Fleet::over(common::config::defaults(), store, clock, Timestamp::EPOCH).await;
    let [overdue, woken] = [fleet.add("http://a.example/").await, fleet.add("http://b.example/").await];
    let audience = Audience { sla: true, ..Audience::default() };
    let sla = AddFeed { audience, ..AddFeed::of("http://c.example/".parse().unwrap()) };
    let sla = fleet.ops.add(&[sla], None).await.unwrap()[0].id;
    for job in fleet.dispatched().await {
        let validators = Validators { etag: Some("\"a\"".into()), ..Validators::default() };
        let read = Outcome::Modified(Box::new(Document { validators, ..Document::default() }));
        let report = fleet.work(&job, read).await;
        fleet.settle(report).await;
    }
    // A full hour, long after all of them were due.
    let hot = Timestamp::from_millis((fleet.clock.now().millis() / HOUR + 100) * HOUR);
    fleet.clock.advance(hot.since(fleet.clock.now()));
    let new = fleet.add("http://d.example/").await;
    fleet.ops.wake(&[woken]).await.unwrap();
    let mut asked = fleet.dispatched_ids().await;
    asked.sort();
    assert_eq!(asked, [woken, sla, new]);
    // The open minutes are 4, 6, 7 and 8; the place of feed 1 is in the seventh.
    fleet.clock.advance(Duration::from_secs(7 * 60) - Duration::from_millis(1));
    assert!(!fleet.dispatched_ids().await.contains(&overdue));
    fleet.clock.advance(Duration::from_secs(60));
    assert!(fleet.dispatched_ids().await.contains(&overdue));
}
