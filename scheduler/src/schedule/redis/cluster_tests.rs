//! The schedule over a Redis Cluster: its shards are at several masters, and while one is away the others continue.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use common::config::ServerConfig;
use common::redis::testing::cluster::Clustered;
use common::time::SystemClock;

use super::*;
use crate::schedule::Band;

const LEASE: Duration = Duration::from_secs(120);
const SHARDS: u16 = 16;
const FEEDS: i64 = 800;

fn open(cluster: &Clustered) -> RedisSchedule {
    let server = RedisServer::connect(&ServerConfig::at(&cluster.url()), "lost").unwrap();
    RedisSchedule::new(server, SHARDS).on_callers_time()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_790_000_000_000 + seconds * 1000)
}

fn slots(due: i64) -> Vec<Slot> {
    (0..FEEDS).map(|feed| Slot { feed: FeedId(feed), due_at: at(due), band: Band::Steady }).collect()
}

async fn claimed(schedule: &RedisSchedule, now: i64, limit: usize) -> HashSet<i64> {
    let claims = schedule.claim_due(at(now), limit, LEASE).await.unwrap();
    let feeds: HashSet<i64> = claims.iter().map(|claim| claim.feed.0).collect();
    assert_eq!(feeds.len(), claims.len(), "a feed was claimed twice");
    feeds
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schedule_keeps_every_guarantee_over_a_cluster() {
    let cluster = Clustered::started(3, false);
    let namespace = AtomicU64::new(0);
    let fresh = || async {
        let number = namespace.fetch_add(1, Ordering::Relaxed);
        RedisSchedule::new(cluster.client(&format!("many{number}")), SHARDS).on_callers_time()
    };
    // Those that order feeds within a claim have one shard in the suite of a server too.
    let in_one = || async {
        let number = namespace.fetch_add(1, Ordering::Relaxed);
        RedisSchedule::new(cluster.client(&format!("one{number}")), 1).on_callers_time()
    };
    crate::schedule_conformance!(in_one; in_turn);
    for _ in 0..2 {
        crate::schedule::conformance::a_claim_hides_a_feed_until_its_lease_ends(&fresh().await).await;
        crate::schedule::conformance::removing_the_last_parked_feed_removes_the_head(&fresh().await).await;
        crate::schedule::conformance::what_waits_is_listed_in_order_from_any_place(&fresh().await).await;
        crate::schedule::conformance::nothing_is_lost_or_doubled_in_a_random_life(&fresh().await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_master_is_away_the_others_feeds_are_claimed_and_then_its_own_are_filled_again() {
    let mut cluster = Clustered::started(3, true);
    let schedule = open(&cluster);
    let mark = schedule.begin_rebuild().await.unwrap().unwrap();
    assert!(schedule.finish_rebuild(&mark).await.unwrap());
    for (round, frozen) in [(1, false), (2, true)] {
        tokio::task::block_in_place(|| cluster.wait_until_whole());
        schedule.put(&slots(0), at(0)).await.unwrap();
        let lost = tokio::task::block_in_place(|| cluster.owner(schedule.shards.all[0].part.slot));
        let at_lost: Vec<bool> = schedule
            .shards
            .all
            .iter()
            .map(|shard| tokio::task::block_in_place(|| cluster.owner(shard.part.slot)) == lost)
            .collect();
        let is_lost = |feed: i64| at_lost[schedule.shards.shard_of(FeedId(feed))];
        let others = (0..FEEDS).filter(|feed| !is_lost(*feed)).count();
        assert!(others > 300 && others < 700);
        if frozen {
            cluster.servers[lost].signal("STOP");
        } else {
            cluster.servers[lost].kill();
        }
        let (mut claims, mut slowest) = (HashSet::new(), Duration::ZERO);
        while claims.len() < others {
            let begun = Instant::now();
            for feed in claimed(&schedule, 0, 100).await {
                assert!(!is_lost(feed) && claims.insert(feed), "feed {feed}");
            }
            slowest = slowest.max(begun.elapsed());
        }
        println!(
            "round {round}: {others} feeds of other masters claimed meanwhile, the slowest claim took {slowest:?}"
        );
        assert!(slowest < Duration::from_secs(4), "{slowest:?}");
        assert!(claimed(&schedule, 0, 100).await.is_empty());
        let done: Vec<Slot> = slots(600).into_iter().filter(|slot| !is_lost(slot.feed.0)).collect();
        schedule.put(&done, at(0)).await.unwrap();
        let part = schedule.put(&slots(600), at(0)).await.unwrap_err();
        assert!(matches!(part, ScheduleError::PartAway { .. }), "{part}");
        schedule.unpark(&[(HostKey::new("h:80"), at(0))]).await.unwrap();
        schedule.check(&SystemClock).await.unwrap();
        let refused = schedule.check_whole(&SystemClock).await.unwrap_err();
        let refused = common::causes::causes(&refused);
        assert!(refused.contains(&format!("127.0.0.1:{}", cluster.servers[lost].port)), "{refused}");

        tokio::task::block_in_place(|| cluster.wait_for_another(lost, schedule.shards.all[0].part.slot));
        let (elected, patience) = (Instant::now(), Duration::from_secs(60));
        let mark = loop {
            assert!(elected.elapsed() < patience, "no shard was found lost");
            if let Ok(Some(mark)) = schedule.begin_rebuild().await
                && (0..FEEDS).all(|feed| schedule.is_lost(&mark, FeedId(feed)) == is_lost(feed))
            {
                break mark;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        println!("round {round}: the lost shards are known {:?} after the election", elected.elapsed());
        let stored: Vec<Slot> = slots(600).into_iter().filter(|slot| schedule.is_lost(&mark, slot.feed)).collect();
        schedule.remove(&[stored[0].feed]).await.unwrap();
        assert!(schedule.correct(&stored, LEASE, at(0)).await.unwrap() >= 1);
        assert!(schedule.finish_rebuild(&mark).await.unwrap());
        assert_eq!(schedule.begin_rebuild().await.unwrap(), None);
        if frozen {
            cluster.servers[lost].signal("CONT");
        } else {
            cluster.servers[lost].start();
        }
        let mut all = HashSet::new();
        while all.len() < usize::try_from(FEEDS).unwrap() {
            let more = claimed(&schedule, 1000, 500).await;
            assert!(!more.is_empty(), "{} of {FEEDS}", all.len());
            all.extend(more);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_moves_is_compared_with_the_store_and_no_claim_is_made_twice() {
    let cluster = Clustered::started(3, false);
    let schedule = std::sync::Arc::new(open(&cluster));
    let mark = schedule.begin_rebuild().await.unwrap().unwrap();
    assert!(schedule.finish_rebuild(&mark).await.unwrap());
    schedule.put(&slots(0), at(0)).await.unwrap();
    let slot = schedule.shards.all[3].part.slot;
    let (from, to) = tokio::task::block_in_place(|| {
        let from = cluster.owner(slot);
        (from, (from + 1) % 3)
    });
    let claiming = {
        let schedule = std::sync::Arc::clone(&schedule);
        tokio::spawn(async move {
            let mut feeds = HashSet::new();
            while feeds.len() < usize::try_from(FEEDS).unwrap() {
                for feed in claimed(&schedule, 0, 20).await {
                    assert!(feeds.insert(feed), "feed {feed} was claimed twice");
                }
            }
        })
    };
    tokio::task::block_in_place(|| {
        cluster.begin_move(slot, to);
        cluster.move_keys(slot, from, to, 1);
        cluster.finish_move(slot, from, to);
    });
    tokio::time::timeout(Duration::from_secs(60), claiming).await.unwrap().unwrap();
    let mark = schedule.begin_rebuild().await.unwrap().unwrap();
    let lost: Vec<i64> = (0..FEEDS).filter(|feed| schedule.is_lost(&mark, FeedId(*feed))).collect();
    assert!(lost.iter().all(|feed| schedule.shards.shard_of(FeedId(*feed)) == 3) && lost.len() == 50);
}
