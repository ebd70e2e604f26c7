//! What goes wrong in the life of a whole fleet, drawn at random.

use std::time::Duration;

use common::host::HostKey;
use common::time::Timestamp;
use common::url::FeedId;
use rand::RngExt;
use rand::rngs::StdRng;

use crate::fleet::Fleet;
use crate::history::Happened;
use crate::life::Server;
use crate::world::{Sabotage, World};

/// Something goes wrong, for `longest` at most.
pub(crate) fn trouble(fleet: &mut Fleet, random: &mut StdRng, longest: Duration) {
    let world = fleet.world.clone();
    let now = world.now();
    let running = fleet.processes.len();
    let chosen = (running > 0).then(|| random.random_range(0..running));
    let server = Server::ALL[random.random_range(0..4)];
    let longest = u64::try_from(longest.as_millis()).expect("a simulation is short");
    let lasts = Duration::from_millis(random.random_range(200..longest));
    match (random.random_range(0..20), chosen) {
        (0 | 1, Some(index)) => fleet.kill(index),
        (2, Some(index)) => fleet.stop(index),
        (3 | 4, Some(index)) => {
            note(&world, format!("{} is stopped for {lasts:?}", fleet.processes[index].life));
            fleet.processes[index].life.pause(lasts);
            world.judge().stopped(&fleet.processes[index].life, now.after(lasts));
        }
        (5 | 6, Some(index)) => {
            note(&world, format!("{} cannot reach {server:?} for {lasts:?}", fleet.processes[index].life));
            cut(fleet, &[index], server, lasts);
        }
        (7, _) => {
            note(&world, format!("nobody can reach {server:?} for {lasts:?}"));
            cut_all(fleet, server, lasts);
        }
        (8, _) => {
            note(&world, "copies are made".to_owned());
            world.gate.copy();
            world.schedule.copy();
        }
        (9, _) => {
            let restored = random.random_bool(0.5);
            lose_gate(&world, restored);
            if random.random_bool(0.7) {
                note(&world, "and so does the schedule".to_owned());
                world.schedule.lose(restored, now);
            }
        }
        (10, _) => {
            let restored = random.random_bool(0.5);
            note(&world, format!("the schedule loses its memory; restored: {restored}"));
            world.schedule.lose(restored, now);
        }
        (11, _) => {
            let feeds: Vec<FeedId> = world.origin().feeds.keys().copied().collect();
            let feed = feeds[random.random_range(0..feeds.len())];
            note(&world, format!("feed {feed} is wanted now"));
            fleet.wake(feed);
        }
        (12 | 13, Some(index)) => set_clock(fleet, index, random),
        (14, _) if world.store.has_standby() => lag(&world),
        (15, _) if world.store.has_standby() => {
            fail_over_store(&world);
            cut_all(fleet, Server::Store, lasts / 4);
        }
        (16 | 17, _) => {
            switch_gate(&world, random.random_bool(0.6), random.random_bool(0.5));
            if random.random_bool(0.7) {
                switch_schedule(&world, random.random_bool(0.6));
            }
        }
        (18, _) => switch_schedule(&world, random.random_bool(0.6)),
        _ => {
            let hosts: Vec<HostKey> = world.origin().hosts.keys().cloned().collect();
            let host = hosts[random.random_range(0..hosts.len())].clone();
            let rest = Duration::from_secs(random.random_range(5..30));
            note(&world, format!("{host} throttles for {lasts:?}"));
            throttle(fleet, &host, now, lasts, rest);
        }
    }
}

fn note(world: &World, what: String) {
    world.judge().note("driver", Happened::Driver(what), world.now());
}

/// Sets the clock of a process: to an error that is tolerated in this fleet, or to one that no fleet tolerates.
fn set_clock(fleet: &Fleet, index: usize, random: &mut StdRng) {
    let tolerated = fleet.world.skew();
    let ahead = match random.random_range(0..4) {
        0 | 1 => random.random_range(-tolerated..=tolerated),
        // Enough that it is noticed at once.
        2 => random.random_range(1_600..60_000),
        _ => -random.random_range(1_600..60_000),
    };
    fleet.set_clock(index, ahead);
}

/// The standby of the store receives nothing more.
pub(crate) fn lag(world: &World) {
    note(world, "the store's standby lags from now on".to_owned());
    world.store.copy();
    world.judge().standby_lags(world.now());
}

/// The standby of the store is promoted.
pub(crate) fn fail_over_store(world: &World) {
    note(world, "the store's standby is promoted".to_owned());
    world.store.fail_over(world.is_sabotaged(Sabotage::KeepsEpoch));
    world.judge().store_fell_back();
}

/// The gate loses its memory, or has what was in its last copy.
pub(crate) fn lose_gate(world: &World, restored: bool) {
    note(world, format!("the gate loses its memory; restored: {restored}"));
    world.gate.lose(restored);
    world.judge().gate_lost();
}

/// The gate fails over to another server, or `back` to the one that was the gate before.
pub(crate) fn switch_gate(world: &World, back: bool, lags: bool) {
    if back && world.gate.has_failed_over() {
        note(world, "the gate fails back to the server that was it before".to_owned());
        world.gate.fail_back();
        world.judge().gate_failed_back();
    } else {
        note(world, format!("the gate fails over; to a copy that lags: {lags}"));
        world.gate.fail_over(lags);
        world.judge().gate_failed_over();
    }
}

fn switch_schedule(world: &World, back: bool) {
    if back {
        note(world, "the schedule fails back to the server that was it before".to_owned());
        world.schedule.fail_back();
    } else {
        note(world, "the schedule fails over to what was copied last".to_owned());
        world.schedule.fail_over(world.now());
    }
}

pub(crate) fn throttle(fleet: &Fleet, host: &HostKey, from: Timestamp, lasts: Duration, rest: Duration) {
    let mut origin = fleet.world.origin();
    origin.hosts.get_mut(host).expect("a host of the fleet").throttles = Some((from, from.after(lasts), rest));
}

/// Cuts all processes off from a server for a while.
fn cut_all(fleet: &Fleet, server: Server, lasts: Duration) {
    cut(fleet, &(0..fleet.processes.len()).collect::<Vec<_>>(), server, lasts);
}

/// Cuts processes off from a server for a while.
pub(crate) fn cut(fleet: &Fleet, processes: &[usize], server: Server, lasts: Duration) {
    for index in processes {
        let life = fleet.processes[*index].life.clone();
        life.set_way(server, false);
        if server == Server::Gate {
            fleet.world.judge().cut_from_gate(&life, fleet.world.now().after(lasts));
        }
        tokio::spawn(async move {
            tokio::time::sleep(lasts).await;
            life.set_way(server, true);
        });
    }
}
