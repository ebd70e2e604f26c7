//! Faults that were fixed, put back one by one: a simulated life finds each of them, and finds nothing without it.
//!
//! The names are those of the review that found them first. A sabotage does what the program did before its fix, at the seam where it
//! shows.

use std::time::Duration;

use common::host::HostKey;
use store::Upkeep;
use tokio::sync::mpsc;

use crate::blocking;
use crate::fleet::Fleet;
use crate::life::{Kind, Server};
use crate::line::{Fate, Weather};
use crate::lives::{Verdict, heal_and_judge, simulated, throttle};
use crate::origin::FeedScript;
use crate::rules::Rule;
use crate::weather::{Calm, LostAnswers, Plan, Planned};
use crate::world::{Sabotage, World, config};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns a fleet of six feeds on three hosts that has not begun. Its messages carry one job each.
fn fleet(weather: Box<dyn Weather>, sabotage: Option<Sabotage>) -> Fleet {
    let (deaths, died) = mpsc::unbounded_channel();
    let mut config = config();
    config.worker.job_batch = 1;
    let world = World::new(config, Duration::ZERO, 1, weather, deaths, sabotage);
    let fleet = Fleet::new(world, died, 1, false);
    fleet.subscribe(6, 3, |_| FeedScript::every(seconds(9)));
    fleet
}

/// One of two schedulers cannot store reports until it claims nothing any more. The other one stores all that is left, and is
/// stopped for good.
fn latched(sabotage: Option<Sabotage>) -> Verdict {
    simulated(async move {
        let mut fleet = fleet(Box::new(Calm), sabotage);
        for (kind, place) in [(Kind::Scheduler, 0), (Kind::Scheduler, 1), (Kind::Worker, 0)] {
            fleet.start(kind, place, 0);
        }
        fleet.live(seconds(6)).await;
        fleet.processes[0].life.set_way(Server::Store, false);
        fleet.live(seconds(25)).await;
        let world = fleet.world.clone();
        blocking::run(world.store.store.set_paused(true)).expect("in memory");
        fleet.live(seconds(30)).await;
        let scheduler = fleet.processes[0].scheduler.clone().expect("the first process is a scheduler");
        assert!(!scheduler.ops.condition.storing.works(), "it could not store reports");
        fleet.retire(1);
        blocking::run(world.store.store.set_paused(false)).expect("in memory");
        heal_and_judge(&mut fleet).await
    })
}

/// Runs a scheduler and a worker for this time in this weather. All feeds are due when they begin, and one host
/// throttles at first. The worker starts later.
fn lives(weather: Box<dyn Weather>, late: Duration, lasts: Duration, sabotage: Option<Sabotage>) -> Verdict {
    simulated(async move {
        let mut fleet = fleet(weather, sabotage);
        let begun = fleet.world.begun();
        throttle(&fleet, &HostKey::new("h1.example:443"), begun, seconds(5), seconds(15));
        fleet.live(seconds(2)).await;
        fleet.start(Kind::Scheduler, 0, 0);
        fleet.live(late).await;
        fleet.start(Kind::Worker, 0, 0);
        fleet.live(lasts).await;
        heal_and_judge(&mut fleet).await
    })
}

/// The gate loses its memory while a host is on hold.
fn emptied(sabotage: Option<Sabotage>) -> Verdict {
    simulated(async move {
        let mut fleet = fleet(Box::new(Calm), sabotage);
        let begun = fleet.world.begun();
        throttle(&fleet, &HostKey::new("h1.example:443"), begun, seconds(3), seconds(60));
        fleet.start(Kind::Scheduler, 0, 0);
        fleet.start(Kind::Worker, 0, 0);
        fleet.live(seconds(5)).await;
        let (world, deadline) = (fleet.world.clone(), fleet.world.config.fetch.deadline());
        world.gate.lose(false, world.now(), deadline);
        fleet.live(seconds(20)).await;
        // It is open again. A person wants all feeds now, those of the held host too.
        let feeds: Vec<_> = world.origin().feeds.keys().copied().collect();
        feeds.into_iter().for_each(|feed| fleet.wake(feed));
        fleet.live(seconds(25)).await;
        heal_and_judge(&mut fleet).await
    })
}

fn broken(verdict: &Verdict, rule: Rule) -> u64 {
    verdict.counts.broken[rule as usize]
}

/// Lives once as the program is, and once with a fault put back, which breaks this rule.
fn is_found(fault: &str, life: impl Fn(Option<Sabotage>) -> Verdict, sabotage: Sabotage, rule: Rule) {
    let now = life(None);
    assert!(now.broken.is_empty(), "{fault} is fixed: {}\n{}", now.story, now.broken.join("\n"));
    let before = life(Some(sabotage));
    println!("{fault} put back: {}", before.counts);
    assert!(broken(&before, rule) > 0, "{fault} is not found: {:?}", before.broken);
}

#[test]
fn a_scheduler_that_never_asks_whether_it_can_store_again_is_found() {
    is_found("A2", latched, Sabotage::NeverProbes, Rule::Stranded);
}

#[test]
fn a_start_that_never_was_and_is_counted_is_found() {
    is_found(
        "A4",
        |sabotage| lives(Box::new(LostAnswers::to("acquire")), Duration::ZERO, seconds(300), sabotage),
        Sabotage::KeepsStarts,
        Rule::Innocent,
    );
}

#[test]
fn a_hold_that_is_thrown_away_is_found() {
    let away = || Box::new(Planned::first("hold", Plan::Once(Fate::Before)));
    is_found(
        "B1",
        |sabotage| lives(away(), Duration::ZERO, seconds(45), sabotage),
        Sabotage::DropsThrottled,
        Rule::Hold,
    );
}

#[test]
fn a_feed_that_is_claimed_again_while_its_job_is_in_the_queue_is_found() {
    let unconfirmed = || Box::new(Planned::first("publish jobs", Plan::Once(Fate::Before)));
    // The worker comes when the claims' leases have ended.
    let life = |sabotage| lives(unconfirmed(), seconds(6), seconds(20), sabotage);
    let (now, before) = (life(None), life(Some(Sabotage::HidesBriefly)));
    assert!(now.broken.is_empty(), "{}\n{}", now.story, now.broken.join("\n"));
    println!("C3 put back: {} feeds claimed twice, {} without it", before.counts.doubled, now.counts.doubled);
    assert_eq!(now.counts.doubled, 0);
    assert!(before.counts.doubled > 0);
}

#[test]
fn stored_holds_that_never_reach_the_gate_are_found() {
    is_found("C4", emptied, Sabotage::LoadsNoHolds, Rule::Hold);
}
