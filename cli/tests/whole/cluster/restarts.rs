//! Rolling restarts: every role is shut down gracefully and replaced, repeatedly, without effect on any origin.

use std::collections::BTreeSet;
use std::time::Duration;

use super::harness::{Kind, Role, Servers, Urls};
use super::load::{Load, Size, now};

const SHORT: Size = Size {
    feeds: 400,
    hosts: 80,
    interval: Duration::from_secs(6),
    gap: Duration::from_millis(50),
    trouble: Duration::ZERO,
    leases: 1,
};
const LONG: Size = Size { feeds: 20_000, hosts: 1_000, interval: Duration::from_secs(30), ..SHORT };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_restarts_abort_no_fetch_and_repeat_none() {
    let size = Size::pick(SHORT, LONG);
    let rounds = if std::env::var_os("SOAK").is_some() { 10 } else { 2 };
    let servers = Servers::shared();
    let load = Load::new(size, &servers, Urls::of(&servers), "").await;
    let kinds = [Kind::Scheduler, Kind::Scheduler, Kind::Worker, Kind::Worker, Kind::Worker];
    let mut roles: Vec<Role> = kinds.into_iter().map(|kind| load.cluster.start(kind)).collect();
    load.warm_up().await;
    let before = load.origin.request_count();
    for round in 0..rounds {
        for _ in 0..kinds.len() {
            let old = roles.remove(0);
            let mut new = load.cluster.start(old.kind);
            new.address();
            roles.push(new);
            old.stop().await;
            tokio::time::sleep(size.interval / 4).await;
        }
        println!("round {} of {rounds}, {} requests", round + 1, load.origin.request_count());
    }
    let truth = load.truth();
    tokio::time::sleep(size.worst_gap()).await;
    load.until_known(&truth).await;
    let until = now();
    let log = load.origin.log();
    for role in roles {
        role.stop().await;
    }
    let aborted = log.iter().filter(|record| load.is_aborted(record)).count();
    let (lost, doubled) = load.lost_and_doubled(&truth).await;
    let silence = load.longest_silence(&log, until);
    let manners = load.manners(&log, BTreeSet::new());
    println!(
        "{} requests during {rounds} rounds, {aborted} aborted, longest silence {silence:?}; {manners:?}",
        log.len() - before
    );
    assert_eq!((aborted, lost.len(), doubled), (0, 0, 0), "{lost:?}");
    assert!(silence <= size.longest_gap(), "{silence:?}");
    manners.assert_clean();
}
