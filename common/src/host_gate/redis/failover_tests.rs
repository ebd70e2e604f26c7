//! What a failover by sentinels to a replica without the last writes does to the gate.

use std::time::Instant;

use super::*;
use crate::config::ServerConfig;
use crate::host::HostLimits;
use crate::redis::testing::groups::Watched;
use crate::time::SystemClock;
use crate::url::FeedId;

/// Far beyond what a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longer than a failover takes here, so that a gap that is forgotten is seen.
const LIMITS: HostLimits = HostLimits { gap: Duration::from_secs(12), burst: 1, parallel: 1 };
const FETCH: Duration = Duration::from_millis(300);

fn now() -> Timestamp {
    SystemClock.now()
}

fn gate(group: &Watched) -> RedisGate {
    RedisGate::new(RedisServer::connect(&ServerConfig::at(&group.url()), "failover").unwrap(), FETCH)
}

/// Opens the gate as a scheduler does: with the holds that are stored.
async fn opened(gate: &RedisGate, stored: &[(HostKey, Timestamp)]) -> bool {
    let begun = Instant::now();
    let mut was_lost = false;
    loop {
        assert!(begun.elapsed() < PATIENCE, "the gate stays closed");
        match gate.begin_loading(now()).await {
            Ok(None) => return was_lost,
            Ok(Some(mark)) => {
                was_lost = true;
                let loaded = gate.hold(stored, now()).await.is_ok();
                // It answers false until all requests from before the loss have ended.
                let _ = loaded && gate.open(&mark, now()).await.unwrap_or(false);
            }
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Starts a request at a host as soon as the gate lets it; returns when it started at last.
async fn started(gate: &RedisGate, host: &HostKey, feed: i64) -> Timestamp {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < PATIENCE, "nothing starts at {host}");
        let request = ReserveRequest { host: host.clone(), limits: LIMITS, expires: now().after(PATIENCE) };
        if let Ok(answers) = gate.reserve(&[request], now()).await
            && let Reservation::Ticket(ticket) = answers[0]
        {
            let asked = now();
            let request = AcquireRequest {
                host: host.clone(),
                limits: LIMITS,
                ticket,
                feed: FeedId(feed),
                version: Version(1),
                deadline: asked.after(FETCH),
                leased_until: Timestamp::EPOCH,
                nonce: fresh_nonce(),
                isolation: Isolation::Alone,
            };
            if let Ok(Acquired::Granted(permit)) = gate.acquire(&request, asked).await {
                gate.release(&permit, Release::default(), now()).await.unwrap();
                return now();
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_that_loses_the_last_writes_breaks_no_gap_and_no_hold_there_and_back() {
    let mut group = Watched::started(&[]);
    let [scheduler, worker] = [(); 2].map(|()| gate(&group));
    let held = HostKey::new("held:80");
    opened(&scheduler, &[]).await;
    worker.check(&SystemClock).await.unwrap();
    // Every host waits its gap after the opening. Replicas that miss writes for longer than this test's gap are not elected.
    started(&worker, &HostKey::new("first:80"), 0).await;
    let mut stored = Vec::new();
    for (round, frozen) in [(1, false), (2, true)] {
        let old = tokio::task::block_in_place(|| {
            group.wait_until_known();
            group.master().unwrap()
        });
        let busy = HostKey::new(&format!("busy{round}:80"));
        // The last writes: a start, and a hold that the store has too.
        group.cut_replication();
        let start = started(&worker, &busy, round).await;
        let hold = now().after(Duration::from_secs(3600 * round.unsigned_abs()));
        scheduler.hold(&[(held.clone(), hold)], now()).await.unwrap();
        stored = vec![(held.clone(), hold)];
        if frozen {
            group.servers[old].signal("STOP");
        } else {
            group.servers[old].kill();
        }
        let (elected, begun) = tokio::task::block_in_place(|| {
            let others: Vec<usize> = (0..3).filter(|other| *other != old).collect();
            for other in others {
                group.servers[other].cli(&["CONFIG", "SET", "masterauth", ""]);
            }
            (group.wait_for_another(old), Instant::now())
        });
        assert!(opened(&scheduler, &stored).await, "the gate was open with a replica's memory");
        println!("round {round}: server {elected} is the gate {:?} after its election", begun.elapsed());
        if frozen {
            group.servers[old].signal("CONT");
        } else {
            group.servers[old].start();
        }
        let next = started(&worker, &busy, 10 + round).await;
        assert!(next.since(start) >= LIMITS.gap, "{:?} after the last start", next.since(start));
        let request = ReserveRequest { host: held.clone(), limits: LIMITS, expires: now().after(PATIENCE) };
        let answer = scheduler.reserve(&[request], now()).await.unwrap()[0];
        // For as long from the call on as from the caller's time to the hold's end.
        let Reservation::Refused { until } = answer else { panic!("{answer:?}") };
        assert!(until >= hold && until.since(hold) < PATIENCE, "{until} in place of {hold}");
        tokio::task::block_in_place(|| {
            group.resume_replication();
            group.wait_for_replica(old);
        });
    }
    assert!(!opened(&scheduler, &stored).await, "it was open");
}
