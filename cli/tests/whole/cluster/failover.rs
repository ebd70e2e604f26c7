//! What failovers of all three servers have in common: the load, how often and how long, and what holds at the end.

use std::collections::BTreeSet;
use std::time::Duration;

use common::time::Timestamp;
use load_tests::Record;
use sqlx::PgPool;
use store::Events;

use super::consumers::{Consumer, event_seqs};
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

/// Returns the number of failovers: this many in the short form.
pub(super) fn rounds(short: usize) -> usize {
    std::env::var("SOAK_FAILOVERS").map_or(short, |rounds| rounds.parse().expect("SOAK_FAILOVERS is a number"))
}

/// Returns the time from an election or promotion until feeds are polled at the usual rate: seconds, unless the machine
/// is very busy.
pub(super) fn back_within() -> Duration {
    Duration::from_secs(if std::env::var_os("SOAK").is_some() { 30 } else { 120 })
}

/// Lets the fleet run for a while, and stops it: every feed is polled, every entry stored once, no report accepted
/// twice, no hold broken, and the consumer, which follows the first of the roles, has every event once and in order.
/// The workers are the last two roles. The gate lost what it knew last at the moments of `gate_lost`.
pub(super) async fn assert_nothing_lost(
    load: &Load,
    mut roles: Vec<Role>,
    database: &PgPool,
    gate_lost: &[Timestamp],
    consumer: &Consumer,
) {
    let (truth, settled) = (load.truth(), now());
    // A host that throttles is held meanwhile.
    tokio::time::sleep(load.size.worst_gap() + load.size.hold()).await;
    load.until_known(&truth).await;
    let (log, until) = (load.origin.log(), now());
    for worker in roles.drain(2..) {
        worker.stop().await;
    }
    load.until_quiet().await;
    let events = event_seqs(&load.cluster).await;
    let epoch = load.cluster.store.events(0, 1).await.unwrap().epoch;
    let followed = consumer.wait_for_all(&epoch, &events).await;
    for scheduler in roles {
        scheduler.stop().await;
    }
    let (lost, doubled) = load.lost_and_doubled(&truth).await;
    let (twice, reports) = load.cluster.versions_reached_twice(database).await;
    let throttled = log.iter().filter(|record| record.status == Some(429)).count();
    println!(
        "{} requests, of which {throttled} were throttled, {reports} accepted reports, {} events; without allowance: {:?}",
        log.len(),
        events.len(),
        load.manners(&log, BTreeSet::new())
    );
    assert_eq!((lost.len(), doubled, twice), (0, 0, 0), "{lost:?}");
    assert!(
        followed == events,
        "the consumer has every event, once and in order: {} of {}",
        followed.len(),
        events.len()
    );
    assert!(throttled > 0, "no host was held");
    let last: Vec<Record> = log.iter().filter(|record| record.wall >= settled).cloned().collect();
    let silence = load.longest_silence(&last, until);
    assert!(silence <= load.size.longest_gap() + load.size.hold(), "{silence:?}");
    let proof = load.prove(&log, database, gate_lost, &[]).await;
    proof.assert_holds();
    load.manners(&log, proof.undone()).assert_clean();
}
