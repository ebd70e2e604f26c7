//! Runs the conformance suite on a real server, and tests what needs several processes or shards.

use std::collections::HashMap;
use std::sync::Arc;

use common::config::ServerConfig;
use common::redis::testing::{CuttingProxy, PrivateServer, shared};
use common::time::SystemClock;
use store::sqlite::SqliteStore;

use super::*;
use crate::condition::price::Price;
use crate::schedule::Band;
use crate::upkeep::configurations::Configurations;

crate::schedule_conformance!(|| async { RedisSchedule::new(shared(), 1).on_callers_time() });

mod in_four_shards {
    use super::*;

    crate::schedule_conformance!(|| async { RedisSchedule::new(shared(), 4).on_callers_time() }; a_claim_hides_a_feed_until_its_lease_ends);
    crate::schedule_conformance!(|| async { RedisSchedule::new(shared(), 4).on_callers_time() }; a_lower_under_a_lease_is_remembered_for_the_next_put);
    crate::schedule_conformance!(|| async { RedisSchedule::new(shared(), 4).on_callers_time() }; what_one_band_leaves_the_others_take);
    crate::schedule_conformance!(|| async { RedisSchedule::new(shared(), 4).on_callers_time() }; a_removed_feed_is_never_claimed);
    crate::schedule_conformance!(|| async { RedisSchedule::new(shared(), 4).on_callers_time() }; removing_the_last_parked_feed_removes_the_head);
    crate::schedule_conformance!(|| async { RedisSchedule::new(shared(), 4).on_callers_time() }; depth_tells_feeds_due_parked_and_the_oldest);
    crate::schedule_conformance!(|| async { RedisSchedule::new(shared(), 4).on_callers_time() }; what_waits_is_listed_in_order_from_any_place);
    crate::schedule_conformance!(|| async { RedisSchedule::new(shared(), 4).on_callers_time() }; a_schedule_wants_to_be_filled_until_it_was);
    crate::schedule_conformance!(|| async { RedisSchedule::new(shared(), 4).on_callers_time() }; nothing_is_lost_or_doubled_in_a_random_life);
}

const LEASE: Duration = Duration::from_secs(120);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_790_000_000_000 + seconds * 1000)
}

fn slot(feed: i64, due: i64, band: Band) -> Slot {
    Slot { feed: FeedId(feed), due_at: at(due), band }
}

fn band(number: i64) -> Band {
    Band::ALL[usize::try_from(number % 4).unwrap()]
}

async fn claim(schedule: &RedisSchedule, now: i64, limit: usize) -> Vec<i64> {
    schedule.claim_due(at(now), limit, LEASE).await.unwrap().iter().map(|claim| claim.feed.0).collect()
}

async fn fill(schedule: &RedisSchedule) {
    let mark = schedule.begin_rebuild().await.unwrap().unwrap();
    assert!(schedule.finish_rebuild(&mark).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn however_many_claim_each_feed_is_claimed_once_a_lease() {
    const FEEDS: i64 = 20_000;
    let private = PrivateServer::started(&[]);
    for shards in [1, 3] {
        let open = || Arc::new(RedisSchedule::new(private.client("hammer"), shards).on_callers_time());
        let slots: Vec<Slot> = (0..FEEDS).map(|feed| slot(feed, -feed % 90, band(feed))).collect();
        open().put(&slots, at(0)).await.unwrap();
        for round in 0..2 {
            let mut claimers = Vec::new();
            for _ in 0..4 {
                let schedule = open();
                for limit in [77, 500] {
                    let schedule = Arc::clone(&schedule);
                    claimers.push(tokio::spawn(async move {
                        let mut claimed = Vec::new();
                        loop {
                            let more = claim(&schedule, round * 121, limit).await;
                            if more.is_empty() {
                                return claimed;
                            }
                            claimed.extend(more);
                        }
                    }));
                }
            }
            let mut times: HashMap<i64, u32> = HashMap::new();
            for claimer in claimers {
                claimer.await.unwrap().into_iter().for_each(|feed| *times.entry(feed).or_default() += 1);
            }
            assert_eq!(times.len() as i64, FEEDS);
            assert!(times.values().all(|times| *times == 1));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn feeds_that_many_move_about_stay_in_one_place_each() {
    let private = PrivateServer::started(&[]);
    let open = || Arc::new(RedisSchedule::new(private.client("moves"), 2).on_callers_time());
    let all: Vec<Slot> = (0..200).map(|feed| slot(feed, 0, Band::Steady)).collect();
    open().put(&all, at(0)).await.unwrap();
    let movers: Vec<_> = (0..6_i64)
        .map(|mover| {
            let schedule = open();
            tokio::spawn(async move {
                for now in 0..150 {
                    let band = band(now + mover);
                    let claims = schedule.claim_due(at(now), 20, Duration::from_secs(5)).await.unwrap();
                    let feeds: Vec<i64> = claims.iter().map(|claim| claim.feed.0).collect();
                    let slots: Vec<Slot> = feeds.iter().map(|feed| slot(*feed, now + 3, band)).collect();
                    let host = HostKey::new(&format!("h{}:80", now % 4));
                    let parkings = feeds.iter().map(|feed| Parking {
                        feed: FeedId(*feed),
                        host: host.clone(),
                        until: at(now + 2),
                        band,
                        rank: now,
                    });
                    match (now + mover) % 4 {
                        0 => schedule.put(&slots, at(now)).await.unwrap(),
                        1 => schedule.park(&parkings.collect::<Vec<_>>()).await.unwrap(),
                        2 => schedule.lower(&slots, at(now)).await.unwrap(),
                        _ => schedule.unpark(&[(host, at(now))]).await.unwrap(),
                    }
                }
            })
        })
        .collect();
    for mover in movers {
        mover.await.unwrap();
    }
    assert_eq!(open().depth(at(200)).await.unwrap().feeds, 200);
    let schedule = open();
    let mut seen: HashMap<i64, u32> = HashMap::new();
    // Claims until each host's head has released all of its feeds.
    for now in (1000..90_000).step_by(130) {
        let claimed = claim(&schedule, now, 500).await;
        schedule.remove(&claimed.iter().map(|feed| FeedId(*feed)).collect::<Vec<_>>()).await.unwrap();
        claimed.into_iter().for_each(|feed| *seen.entry(feed).or_default() += 1);
    }
    assert_eq!(seen.len(), 200);
    assert!(seen.values().all(|times| *times == 1));
    assert_eq!(schedule.depth(at(90_000)).await.unwrap(), Depth::default());
    assert!(private.cli(&["KEYS", "*:schedule:[^c]*"]).is_empty(), "something stays of an empty schedule");
}

#[tokio::test]
async fn a_call_whose_answer_was_lost_is_sent_again_and_done_once() {
    let private = PrivateServer::started(&[]);
    let proxy = CuttingProxy::before(private.port).await;
    let server = proxy.client("lost");
    let schedule = RedisSchedule::new(server, 1).on_callers_time();
    let slots: Vec<Slot> = (0..100).map(|feed| slot(feed, 0, Band::Steady)).collect();
    // The server knows the script after that: a lost answer is that of a claim.
    assert!(claim(&schedule, 0, 1).await.is_empty());
    schedule.put(&slots, at(0)).await.unwrap();

    proxy.cut_next_answer();
    assert_eq!(claim(&schedule, 0, 60).await.len(), 60);
    assert!(proxy.has_cut());
    assert_eq!(claim(&schedule, 0, 60).await.len(), 40, "the lost answer was given again, not another one");

    schedule.lower(&[slot(7, 1, Band::Urgent)], at(1)).await.unwrap();
    proxy.cut_next_answer();
    schedule.put_off(&[slot(7, 900, Band::Steady)], at(2)).await.unwrap();
    assert!(proxy.has_cut());
    assert_eq!(claim(&schedule, 2, 10).await, [7], "the wake was swallowed by the second run");
}

#[tokio::test]
async fn as_many_parked_feeds_are_listed_as_there_are() {
    let schedule = RedisSchedule::new(shared(), 1).on_callers_time();
    let slots: Vec<Slot> = (0..1000).map(|feed| slot(feed, 0, Band::Steady)).collect();
    schedule.put(&slots, at(0)).await.unwrap();
    let feeds = claim(&schedule, 0, 1000).await;
    let host = HostKey::new("busy:80");
    let parked = |feed| Parking { feed, host: host.clone(), until: at(9), band: Band::Steady, rank: feed.0 };
    schedule.park(&feeds.into_iter().map(|feed| parked(FeedId(feed))).collect::<Vec<_>>()).await.unwrap();
    // The server lists 950 places of its table at once, some of which are empty.
    assert_eq!(schedule.taken(950).await.unwrap().len(), 950);
}

/// A restored dump, or a program with an error, may leave such a shard.
#[tokio::test]
async fn a_shard_that_contradicts_itself_is_corrected() {
    let private = PrivateServer::started(&[]);
    let schedule = RedisSchedule::new(private.client("odd"), 1).on_callers_time();
    let key = |name: &str| format!("{{odd:0/1}}:schedule:{name}");
    let park = async |feed: i64, host: &str| {
        schedule.put(&[slot(feed, 0, Band::Steady)], at(0)).await.unwrap();
        assert_eq!(claim(&schedule, 0, 1).await, [feed]);
        let host = HostKey::new(host);
        let parking = Parking { feed: FeedId(feed), host, until: at(9000), band: Band::Steady, rank: 0 };
        schedule.park(&[parking]).await.unwrap();
    };
    for (feed, host) in [(1, "gone:443"), (2, "headless:443"), (3, "empty:443")] {
        park(feed, host).await;
    }
    let keys = private.cli(&["KEYS", "*"]);
    assert_eq!(private.cli(&["DEL", &key("parked:gone:443")]), "1", "{keys}");
    assert_eq!(private.cli(&["ZREM", &key("heads:steady"), "headless:443", "gone:443"]), "2", "{keys}");
    assert_eq!(private.cli(&["DEL", &key("parked:empty:443")]), "1", "{keys}");

    let truth = [slot(1, 50, Band::Steady), slot(2, 50, Band::Steady)];
    assert_eq!(schedule.correct(&truth, LEASE, at(60)).await.unwrap(), 2);
    assert_eq!(schedule.depth(at(60)).await.unwrap().parked, 2, "the first one is parked nowhere any more");
    let mut claimed = claim(&schedule, 60, 10).await;
    claimed.sort_unstable();
    assert_eq!(claimed, [1, 2]);
    schedule.put(&[slot(1, 9900, Band::Steady), slot(2, 9900, Band::Steady)], at(60)).await.unwrap();
    assert!(claim(&schedule, 9000, 10).await.is_empty(), "a head without feeds is never claimed");
    assert_eq!(private.cli(&["EXISTS", &key("heads:steady")]), "0");
}

#[tokio::test]
async fn emptied_or_restored_from_an_old_dump_it_says_that_it_must_be_filled() {
    let mut private = PrivateServer::started(&[]);
    let schedule = RedisSchedule::new(private.client("loss"), 2).on_callers_time();
    let other = RedisSchedule::new(private.client("loss"), 2).on_callers_time();
    fill(&schedule).await;
    assert_eq!(other.begin_rebuild().await.unwrap(), None);

    private.cli(&["FLUSHALL"]);
    let overtaken = schedule.begin_rebuild().await.unwrap().unwrap();
    private.cli(&["FLUSHALL"]);
    assert!(!schedule.finish_rebuild(&overtaken).await.unwrap());
    fill(&other).await;
    assert_eq!(schedule.begin_rebuild().await.unwrap(), None);

    // The dump has a later due time for feed 1 than the store, and lacks feed 2.
    schedule.put(&[slot(1, 5000, Band::Steady), slot(3, 10, Band::Prompt)], at(0)).await.unwrap();
    private.dump();
    let truth = [slot(1, 50, Band::Steady), slot(2, 60, Band::Urgent), slot(3, 10, Band::Prompt)];
    schedule.put(&truth, at(0)).await.unwrap();
    private.kill();
    private.start();
    let mark = loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if let Ok(mark) = schedule.begin_rebuild().await {
            break mark.expect("the dump brought the mark along");
        }
    };
    assert_eq!(schedule.correct(&truth, LEASE, at(0)).await.unwrap(), 2);
    assert!(schedule.finish_rebuild(&mark).await.unwrap());
    assert_eq!(private.cli(&["KEYS", "*:filling"]), "");
    assert_eq!(claim(&schedule, 49, 10).await, [3]);
    let mut rest = claim(&schedule, 60, 10).await;
    rest.sort_unstable();
    assert_eq!(rest, [1, 2]);
}

#[tokio::test]
async fn with_another_number_of_shards_the_old_ones_are_deleted_and_whoever_still_has_them_is_told() {
    let private = PrivateServer::started(&[]);
    let old = RedisSchedule::new(private.client("layout"), 3).on_callers_time();
    fill(&old).await;
    let slots: Vec<Slot> = (0..30).map(|feed| slot(feed, 0, Band::Steady)).collect();
    old.put(&slots, at(0)).await.unwrap();
    let parking = |feed| Parking { feed, host: HostKey::new("a:80"), until: at(9), band: Band::Steady, rank: 0 };
    let claims = old.claim_due(at(0), 10, LEASE).await.unwrap();
    old.park(&claims.iter().map(|claim| parking(claim.feed)).collect::<Vec<_>>()).await.unwrap();

    let new = RedisSchedule::new(private.client("layout"), 1).on_callers_time();
    fill(&new).await;
    assert_eq!(new.correct(&slots, LEASE, at(0)).await.unwrap(), 30);
    assert_eq!(private.cli(&["KEYS", "*/3}*:schedule:[^c]*"]), "");
    let told = old.begin_rebuild().await.unwrap_err();
    let told = std::error::Error::source(&told).unwrap().to_string();
    assert!(told.contains("schedule.shards = 1") && told.contains("this one has 3"), "{told}");
    assert_eq!(new.begin_rebuild().await.unwrap(), None);
}

#[tokio::test]
async fn what_is_due_is_decided_by_the_servers_clock_whatever_callers_say() {
    use common::time::Clock;
    let schedule = RedisSchedule::new(shared(), 1);
    let (now, hour) = (SystemClock.now(), Duration::from_secs(3600));
    let due = |feed, due_at| Slot { feed: FeedId(feed), due_at, band: Band::Steady };
    schedule.put(&[due(1, now.before(Duration::from_secs(1))), due(2, now.after(hour))], now).await.unwrap();
    let early = schedule.claim_due(now.after(hour * 2), 10, LEASE).await.unwrap();
    assert_eq!(early.iter().map(|claim| claim.feed.0).collect::<Vec<_>>(), [1]);
    assert_eq!(schedule.depth(now.before(hour)).await.unwrap().feeds, 2);
}

/// A call may wait for the election of a master, and a caller's clock may be behind.
#[tokio::test]
async fn a_claim_that_reaches_its_server_late_hides_its_feeds_for_the_whole_lease() {
    use common::time::Clock;
    let schedule = RedisSchedule::new(shared(), 2);
    let lease = Duration::from_secs(30);
    let begun = SystemClock.now().before(lease * 2);
    // Of one shard, which fills its part of the limit and is claimed from again.
    let slots = [2, 4].map(|feed| Slot { feed: FeedId(feed), due_at: begun, band: Band::Steady });
    schedule.put(&slots, begun).await.unwrap();
    let mut claimed: Vec<i64> =
        schedule.claim_due(begun, 4, lease).await.unwrap().iter().map(|claim| claim.feed.0).collect();
    claimed.sort_unstable();
    assert_eq!(claimed, [2, 4], "each is claimed once");
    assert!(
        schedule.claim_due(SystemClock.now(), 4, lease).await.unwrap().is_empty(),
        "their leases had already ended"
    );
}

#[tokio::test]
async fn schedulers_see_each_others_configurations_while_they_run() {
    let private = PrivateServer::started(&[]);
    let [one, two] = [(); 2].map(|()| RedisSchedule::new(private.client("configurations"), 2));
    let [mut first, mut second] = [(); 2].map(|()| Configurations::default());
    first.compare("0f", &one).await.unwrap();
    second.compare("0f", &two).await.unwrap();
    assert!(!first.differ() && !second.differ());
    second.compare("1e", &two).await.unwrap();
    first.compare("0f", &one).await.unwrap();
    assert!(first.differ() && second.differ());
    let left: i64 = private.cli(&["PTTL", "{configurations}:schedule:configurations"]).parse().unwrap();
    assert!(left > 0, "it is deleted when all have ended");
    // What the second one had before is forgotten half a minute after it was noted last.
    private.cli(&["ZADD", "{configurations}:schedule:configurations", "1", "0f", "1", "1e"]);
    first.compare("0f", &one).await.unwrap();
    assert!(!first.differ());
}

#[tokio::test]
async fn each_scheduler_measures_the_demand_of_the_whole_fleet() {
    let private = PrivateServer::started(&[]);
    let store = SqliteStore::open("sqlite::memory:").await.unwrap();
    let mut config = common::config::defaults();
    config.policy.polls_per_second = 3.0;
    let schedulers =
        [60, 120].map(|polls| (Price::new(&config), RedisSchedule::new(private.client("rates"), 2), polls));
    let begun = Timestamp::from_millis(1_790_000_000_000);
    for minute in 0..4 {
        for (price, schedule, polls) in &schedulers {
            price.dispatched(*polls, *polls);
            price.correct(&store, schedule, 0, begun.after(minute * Duration::from_secs(60)), &config).await.unwrap();
        }
        // One that ended, and one of another version.
        private.cli(&["ZADD", "{rates}:schedule:rates", "1", "ended 50 50", "2000000000000", "other many"]);
    }
    for (price, ..) in &schedulers {
        assert!((price.demand() - 3.0).abs() < 0.01, "{}", price.demand());
        assert_eq!(price.get(), config.policy.price, "they want what they may");
    }
}

#[tokio::test]
async fn a_clock_that_is_ahead_for_a_moment_claims_nothing() {
    let private = PrivateServer::started(&[]);
    let server = RedisServer::connect(&ServerConfig::at(&private.url()), "ahead").unwrap();
    let (patience, schedule) = (server.patience(), RedisSchedule::new(server, 1));
    fill(&schedule).await;
    let (now, lease) = (SystemClock.now(), Duration::from_secs(10));
    schedule.put(&[Slot { feed: FeedId(7), due_at: now.before(lease), band: Band::Prompt }], now).await.unwrap();
    // As the server sees it, the caller gave up a second ago.
    let asked = now.before(patience + Duration::from_secs(1));
    assert_eq!(schedule.claim_due(asked, 9, lease).await.unwrap().len(), 0);
    assert_eq!(schedule.claim_due(SystemClock.now(), 9, lease).await.unwrap().len(), 1);
}
