//! The gate over a Redis Cluster: its groups are at several masters, and one that is lost closes alone.

use std::collections::BTreeSet;
use std::time::Instant;

use super::*;
use crate::config::ServerConfig;
use crate::host::HostLimits;
use crate::redis::rights;
use crate::redis::testing::cluster::Clustered;
use crate::time::SystemClock;
use crate::url::FeedId;

/// Far beyond what a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longer than a failover takes here, so that a gap that is forgotten is seen.
const LIMITS: HostLimits = HostLimits { gap: Duration::from_secs(20), burst: 1, parallel: 1 };
const QUICK: HostLimits = HostLimits { gap: Duration::from_millis(20), burst: 1, parallel: 1 };
const FETCH: Duration = Duration::from_millis(300);

fn now() -> Timestamp {
    SystemClock.now()
}

fn gate(cluster: &Clustered) -> RedisGate {
    RedisGate::new(RedisServer::connect(&ServerConfig::at(&cluster.url()), "lost").unwrap(), FETCH)
}

fn hosts() -> Vec<HostKey> {
    (0..64).map(|host| HostKey::new(&format!("h{host}.example:443"))).collect()
}

/// Loads and opens as a scheduler does; returns which of the hosts were closed.
async fn opened(gate: &RedisGate, stored: &[(HostKey, Timestamp)]) -> BTreeSet<HostKey> {
    let (begun, mut closed) = (Instant::now(), BTreeSet::new());
    loop {
        assert!(begun.elapsed() < PATIENCE, "the gate stays closed");
        match gate.begin_loading(now()).await {
            Ok(None) => return closed,
            Ok(Some(mark)) => {
                let lost = |host: &HostKey| gate.is_lost(&mark, host);
                closed.extend(hosts().into_iter().filter(lost));
                let holds: Vec<_> = stored.iter().filter(|(host, _)| lost(host)).cloned().collect();
                let loaded = gate.hold(&holds, now()).await.is_ok();
                let _ = loaded && gate.open(&mark, now()).await.unwrap_or(false);
            }
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn reserve(gate: &RedisGate, hosts: &[HostKey], limits: HostLimits) -> Vec<Reservation> {
    let request = |host: &HostKey| ReserveRequest { host: host.clone(), limits, expires: now().after(PATIENCE) };
    gate.reserve(&hosts.iter().map(request).collect::<Vec<_>>(), now()).await.unwrap()
}

/// Starts a request at a host as soon as the gate permits it; returns when it started at last.
async fn started(gate: &RedisGate, host: &HostKey, limits: HostLimits, feed: i64) -> Timestamp {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < PATIENCE, "nothing starts at {host}");
        if let Reservation::Ticket(ticket) = reserve(gate, std::slice::from_ref(host), limits).await[0] {
            let asked = now();
            let request = AcquireRequest {
                host: host.clone(),
                limits,
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
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gate_keeps_every_rule_over_a_cluster() {
    let cluster = Clustered::started(3, false);
    let namespace = std::sync::atomic::AtomicU64::new(0);
    let fresh = || async {
        let number = namespace.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        RedisGate::new(cluster.client(&format!("rules{number}")), Duration::ZERO).on_callers_time()
    };
    crate::host_gate_conformance!(fresh; in_turn);
    for server in &cluster.servers {
        assert!(server.cli(&["KEYS", "*"]).lines().all(|key| key.contains(":gate:")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_is_lost_closes_alone_and_no_gap_and_no_hold_is_broken() {
    let mut cluster = Clustered::started(3, true);
    let [scheduler, worker] = [(); 2].map(|()| gate(&cluster));
    let hosts = hosts();
    assert_eq!(opened(&scheduler, &[]).await.len(), hosts.len());
    worker.check_whole(&SystemClock).await.unwrap();
    for (round, frozen) in [(1, false), (2, true)] {
        tokio::task::block_in_place(|| cluster.wait_until_whole());
        let at = |host: &HostKey| scheduler.slot_of(host);
        let owner = |host: &HostKey| tokio::task::block_in_place(|| cluster.owner(at(host)));
        let lost = owner(&hosts[0]);
        let (of_lost, others): (Vec<HostKey>, Vec<HostKey>) =
            hosts.iter().cloned().partition(|host| owner(host) == lost);
        assert!(!others.is_empty() && of_lost.len() > 3);
        let (busy, held, other) = (&of_lost[round], &of_lost[0], &others[0]);
        let start = started(&worker, busy, LIMITS, 1).await;
        let hold = now().after(Duration::from_secs(3600 * round as u64));
        let stored = vec![(held.clone(), hold)];
        scheduler.hold(&stored, now()).await.unwrap();
        if frozen {
            cluster.servers[lost].signal("STOP");
        } else {
            cluster.servers[lost].kill();
        }
        // Until the failover: the other masters continue, and calls to the one that is away are refused as if it were
        // closed.
        let begun = Instant::now();
        let (mut starts, mut slowest) = (0, Duration::ZERO);
        while begun.elapsed() < Duration::from_secs(3) {
            let one = Instant::now();
            let mixed = [other.clone(), of_lost[3].clone()];
            let answers = reserve(&worker, &mixed, QUICK).await;
            assert!(matches!(answers[1], Reservation::Refused { .. }), "{answers:?}");
            if let Reservation::Ticket(ticket) = answers[0] {
                worker.cancel(other, ticket, now()).await.unwrap();
            }
            started(&worker, other, QUICK, 2 + starts).await;
            starts += 1;
            slowest = slowest.max(one.elapsed());
        }
        println!("round {round}: {starts} starts at another host meanwhile, the slowest took {slowest:?}");
        assert!(starts > 5);
        worker.check(&SystemClock).await.unwrap();
        let refused = worker.check_whole(&SystemClock).await.unwrap_err();
        let refused = crate::causes::causes(&refused);
        assert!(refused.contains(&format!("127.0.0.1:{}", cluster.servers[lost].port)), "{refused}");

        tokio::task::block_in_place(|| cluster.wait_for_another(lost, at(held)));
        let elected = Instant::now();
        let closed = opened(&scheduler, &stored).await;
        assert_eq!(closed, of_lost.iter().cloned().collect(), "others were closed too, or these were not");
        println!("round {round}: open again {:?} after the election", elected.elapsed());
        if frozen {
            cluster.servers[lost].signal("CONT");
        } else {
            cluster.servers[lost].start();
        }
        let next = started(&worker, busy, LIMITS, 1000 + starts).await;
        assert!(next.since(start) >= LIMITS.gap, "{:?} after the last start", next.since(start));
        let answer = reserve(&worker, std::slice::from_ref(held), LIMITS).await[0];
        // For as long from the call on as from the caller's time to the hold's end.
        let Reservation::Refused { until } = answer else { panic!("{answer:?}") };
        assert!(until >= hold && until.since(hold) < PATIENCE, "{until} in place of {hold}");
    }
    assert!(opened(&scheduler, &[]).await.is_empty(), "it was open");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_moves_to_another_server_is_loaded_there() {
    let cluster = Clustered::started(3, false);
    let scheduler = gate(&cluster);
    let hosts = hosts();
    opened(&scheduler, &[]).await;
    let group = scheduler.group_of(&hosts[0]);
    let slot = scheduler.groups[group].part.slot;
    let hold = now().after(Duration::from_secs(3600));
    let stored = vec![(hosts[0].clone(), hold)];
    scheduler.hold(&stored, now()).await.unwrap();
    let first = tokio::task::block_in_place(|| cluster.owner(slot));
    for (from, to) in [(first, (first + 1) % 3), ((first + 1) % 3, first)] {
        tokio::task::block_in_place(|| {
            cluster.begin_move(slot, to);
            cluster.finish_move(slot, from, to);
        });
        let begun = Instant::now();
        let mark = loop {
            assert!(begun.elapsed() < PATIENCE, "the gate stays open");
            if let Ok(Some(mark)) = scheduler.begin_loading(now()).await {
                break mark;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert_eq!(scheduler.parts_lost(&mark), (1, GROUPS));
        let closed = opened(&scheduler, &stored).await;
        let expected = hosts.iter().filter(|host| scheduler.group_of(host) == group).cloned();
        assert_eq!(closed, expected.collect());
        let answer = reserve(&scheduler, &hosts[..1], LIMITS).await[0];
        // For as long from the call on as from the caller's time to the hold's end.
        let Reservation::Refused { until } = answer else { panic!("{answer:?}") };
        assert!(until >= hold && until.since(hold) < PATIENCE, "{until} in place of {hold}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_the_printed_rights_does_its_work_over_a_cluster_and_nothing_else() {
    let cluster = Clustered::started(3, false);
    let nodes = rights::servers(&cluster.url()).await.unwrap();
    assert_eq!(nodes.len(), 3, "{nodes:?}");
    // Of "secret".
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    for node in &nodes {
        rights::set_user(node, "worker", Some(hash), &rights::of_worker("lost")).await.unwrap();
    }
    let url = cluster.url().replace("redis-cluster://", "redis-cluster://worker:secret@");
    let open = |namespace| RedisGate::new(RedisServer::connect(&ServerConfig::at(&url), namespace).unwrap(), FETCH);
    let (worker, scheduler) = (open("lost"), gate(&cluster));
    opened(&scheduler, &[]).await;
    worker.check_whole(&SystemClock).await.unwrap();
    for host in &hosts()[..20] {
        started(&worker, host, QUICK, 1).await;
        worker.hold(&[(host.clone(), now().after(PATIENCE))], now()).await.unwrap();
    }
    assert_eq!(worker.held(now()).await.unwrap(), 20);
    assert_eq!(worker.shown_rules(None).await.unwrap(), None);
    let refused = open("other").begin_loading(now()).await.unwrap_err();
    assert!(crate::causes::causes(&refused).to_lowercase().contains("noperm"), "{refused:?}");
}
