//! What failovers of all three servers have in common: the load, how often and how long, and what holds at the end.

use std::time::Duration;

use common::time::Timestamp;
use load_tests::Record;
use sqlx::PgPool;

use super::harness::Role;
use super::load::{Load, Size, now};

pub(super) const SHORT: Size = Size {
    feeds: 300,
    hosts: 100,
    interval: Duration::from_secs(6),
    gap: Duration::from_millis(50),
    trouble: Duration::ZERO,
    leases: 1,
};
pub(super) const LONG: Size = Size { feeds: 10_000, hosts: 1_000, interval: Duration::from_secs(30), ..SHORT };

/// The number of failovers: half of them by kill -9.
pub(super) fn rounds() -> usize {
    std::env::var("SOAK_FAILOVERS").map_or(2, |rounds| rounds.parse().expect("SOAK_FAILOVERS is a number"))
}

/// The time from an election or promotion until feeds are polled at the usual rate: seconds, unless the machine is very busy.
pub(super) fn back_within() -> Duration {
    Duration::from_secs(if std::env::var_os("SOAK").is_some() { 30 } else { 120 })
}

/// Every half second from then to now: a poll whose report or result was lost at one of these may be repeated.
pub(super) fn moments_since(begun: Timestamp) -> Vec<Timestamp> {
    let until = now();
    (0_u32..).map(|n| begun.after(n * Duration::from_millis(500))).take_while(|moment| *moment <= until).collect()
}

/// Has the fleet go on for a while, and stops it: every feed is polled, every entry stored once, and no report accepted twice.
pub(super) async fn assert_nothing_lost(load: &Load, roles: Vec<Role>, database: &PgPool, troubled: &[Timestamp]) {
    let (truth, settled) = (load.truth(), now());
    tokio::time::sleep(load.size.worst_gap()).await;
    load.until_known(&truth).await;
    let (log, until) = (load.origin.log(), now());
    for role in roles {
        role.stop().await;
    }
    let (lost, doubled) = load.lost_and_doubled(&truth).await;
    let (twice, reports) = load.cluster.versions_reached_twice(database).await;
    println!("{} requests, {reports} accepted reports; without allowance: {:?}", log.len(), load.manners(&log, &[]));
    assert_eq!((lost.len(), doubled, twice), (0, 0, 0), "{lost:?}");
    let last: Vec<Record> = log.iter().filter(|record| record.wall >= settled).cloned().collect();
    let silence = load.longest_silence(&last, until);
    assert!(silence <= load.size.longest_gap(), "{silence:?}");
    load.manners(&log, troubled).assert_clean();
}
