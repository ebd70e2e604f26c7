//! Clusters: each part is found, also after its slot moved or its master was lost, and no caller waits for a server
//! that is away.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use super::*;
use crate::redis::testing::cluster::{Clustered, NODE_TIMEOUT};

/// Adds to a key of a part, beside a key that never exists; returns the run of the server that did.
async fn add(server: &RedisServer, part: &Part) -> Result<String, ServerError> {
    let script = Script::new("redis.call('GET', KEYS[2]) redis.call('INCR', KEYS[1]) return ARGV[1]");
    let answer = server.eval(part.slot, &script, |call, run| {
        call.key(format!("{}:count", part.tag)).key(format!("{}:absent", part.tag)).arg(run);
    });
    answer.await
}

fn hurried_in(cluster: &Clustered, namespace: &str) -> RedisServer {
    RedisServer::connect(&ServerConfig::at(&cluster.url()), namespace).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_part_is_kept_by_the_master_of_its_slot() {
    let cluster = Clustered::started(3, false);
    let server = hurried_in(&cluster, "parts");
    let mut masters = HashSet::new();
    for part in server.parts(16) {
        let run = add(&server, &part).await.unwrap();
        let owner = cluster.owner(part.slot);
        assert_eq!(cluster.servers[owner].cli(&["GET", &format!("{}:count", part.tag)]), "1");
        masters.insert((run, owner));
    }
    assert_eq!(masters.len(), 3, "{masters:?}");
    let checked = server.check(&server.parts(16), ":mark", &SystemClock).await;
    assert_eq!(checked.iter().flatten().count(), 3);
    assert!(fault(&checked, true).is_none());

    // A node that is named as a single server.
    let single = RedisServer::connect(&ServerConfig::at(&cluster.servers[0].url()), "parts").unwrap();
    let elsewhere = server.parts(16).into_iter().find(|part| cluster.owner(part.slot) != 0).unwrap();
    let refused = add(&single, &elsewhere).await.unwrap_err();
    assert!(refused.to_string().contains("redis-cluster://"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_moves_under_load_delays_calls_and_fails_none() {
    let cluster = Clustered::started(3, false);
    let server = cluster.client("moves");
    let part = server.whole();
    let from = cluster.owner(part.slot);
    let to = (from + 1) % 3;
    let (over, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let (server, part, over, calls) = (server.clone(), part.clone(), Arc::clone(&over), Arc::clone(&calls));
            tokio::spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    add(&server, &part).await.unwrap();
                    calls.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let until_calls = async |more: u64| {
        let (before, begun) = (calls.load(Ordering::SeqCst), Instant::now());
        while calls.load(Ordering::SeqCst) < before + more {
            assert!(begun.elapsed() < Duration::from_secs(60), "no calls any more");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    // There and back.
    for (from, to) in [(from, to), (to, from)] {
        until_calls(50).await;
        cluster.begin_move(part.slot, to);
        // TRYAGAIN from the one, as a key is there and another is not; ASK once it is away.
        tokio::time::sleep(Duration::from_millis(300)).await;
        cluster.move_keys(part.slot, from, to, 100);
        tokio::time::sleep(Duration::from_millis(300)).await;
        // A caller with the program's patience gets an error that names the node, in time.
        let (refused, begun) = (add(&hurried_in(&cluster, "moves"), &part).await.unwrap_err(), Instant::now());
        assert!(begun.elapsed() < Duration::from_secs(10) && refused.is_away(), "{refused:?}");
        assert!(refused.to_string().contains(&format!("127.0.0.1:{}", cluster.servers[from].port)), "{refused}");
        cluster.finish_move(part.slot, from, to);
        until_calls(50).await;
    }
    over.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.unwrap();
    }
    let counted: u64 = cluster.servers[from].cli(&["GET", &format!("{}:count", part.tag)]).parse().unwrap();
    assert!(counted >= calls.load(Ordering::SeqCst), "{counted} of {}", calls.load(Ordering::SeqCst));
}

/// What calls to a part cost.
#[derive(Default)]
struct Seen {
    failures: AtomicU64,
    /// Microseconds.
    slowest: AtomicU64,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_is_killed_or_freezes_is_replaced_and_the_others_are_not_delayed() {
    let mut cluster = Clustered::started(3, true);
    let server = hurried_in(&cluster, "failover");
    let parts = server.parts(16);
    let stalls = Arc::new(Stalls::watched());
    for frozen in [false, true] {
        tokio::task::block_in_place(|| cluster.wait_until_whole());
        let lost = tokio::task::block_in_place(|| cluster.owner(parts[5].slot));
        let owners: Vec<usize> =
            tokio::task::block_in_place(|| parts.iter().map(|part| cluster.owner(part.slot)).collect());
        for part in &parts {
            add(&server, part).await.unwrap();
        }
        let over = Arc::new(AtomicBool::new(false));
        let mut callers = Vec::new();
        for (part, owner) in parts.iter().zip(&owners) {
            let (server, part, over, stalls) = (server.clone(), part.clone(), Arc::clone(&over), Arc::clone(&stalls));
            let seen = Arc::new(Seen::default());
            callers.push((
                *owner,
                Arc::clone(&seen),
                tokio::spawn(async move {
                    while !over.load(Ordering::SeqCst) {
                        let (answer, took) = timed(&stalls, add(&server, &part)).await;
                        seen.failures.fetch_add(u64::from(answer.is_err()), Ordering::SeqCst);
                        seen.slowest.fetch_max(u64::try_from(took.as_micros()).unwrap(), Ordering::SeqCst);
                    }
                }),
            ));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        if frozen {
            cluster.servers[lost].signal("STOP");
        } else {
            cluster.servers[lost].kill();
        }
        tokio::task::block_in_place(|| cluster.wait_for_another(lost, parts[5].slot));
        let elected = Instant::now();
        for (part, owner) in parts.iter().zip(&owners).filter(|(_, owner)| **owner == lost) {
            while add(&server, part).await.is_err() {
                assert!(elected.elapsed() < Duration::from_secs(30), "slot {:?} of {owner} is not found", part.slot);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        let found = elected.elapsed();
        over.store(true, Ordering::SeqCst);
        let (mut slowest, mut own_slowest) = (0, 0);
        for (owner, seen, caller) in callers {
            caller.await.unwrap();
            let took = seen.slowest.load(Ordering::SeqCst) / 1000;
            if owner == lost {
                own_slowest = own_slowest.max(took);
            } else {
                slowest = slowest.max(took);
                assert_eq!(seen.failures.load(Ordering::SeqCst), 0, "a call to another master failed");
            }
        }
        println!(
            "frozen: {frozen}: used {found:?} after the election; slowest call {own_slowest} ms, to other masters {slowest} ms"
        );
        assert!(slowest < 1000, "a call to another master took {slowest} ms");
        assert!(found < NODE_TIMEOUT * 2, "{found:?}");
        if frozen {
            cluster.servers[lost].signal("CONT");
        } else {
            cluster.servers[lost].start();
        }
    }
}
