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
use crate::lives::{Verdict, heal_and_judge, simulated};
use crate::origin::FeedScript;
use crate::rules::Rule;
use crate::trouble::{fail_over_store, lag, lose_gate, switch_gate, throttle};
use crate::weather::{Calm, LostAnswers, Plan, Planned};
use crate::world::{Sabotage, World, config};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns a fleet of six feeds on three hosts that has not begun. Its messages carry one job each.
fn fleet(weather: Box<dyn Weather>, sabotage: Option<Sabotage>) -> Fleet {
    fleet_with(false, weather, sabotage)
}

/// The same, of which the store has a standby, and which passes events on to an exchange, if `more`.
fn fleet_with(more: bool, weather: Box<dyn Weather>, sabotage: Option<Sabotage>) -> Fleet {
    let (deaths, died) = mpsc::unbounded_channel();
    let mut config = config();
    config.worker.job_batch = 1;
    let world = World::new(config, more, Duration::ZERO, 1, weather, deaths, sabotage);
    let fleet = Fleet::new(world, died, 1, more);
    fleet.subscribe(6, 3, |_| FeedScript::every(seconds(9)));
    fleet
}

/// A worker hears late that it may begin its first fetch, and all feeds redirect to another host.
fn redirects_late(sabotage: Option<Sabotage>) -> Verdict {
    simulated(async move {
        let late = Plan::Once(Fate::LateAnswer(Duration::from_millis(1_500)));
        let mut fleet = fleet(Box::new(Planned::first("acquire", late)), sabotage);
        let elsewhere = Some(HostKey::new("elsewhere.example:443"));
        fleet.world.origin().feeds.values_mut().for_each(|feed| feed.leads_to.clone_from(&elsewhere));
        start(&mut fleet);
        fleet.live(seconds(45)).await;
        heal_and_judge(&mut fleet).await
    })
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
        blocking::run(world.store.current().set_paused(true)).expect("in memory");
        fleet.live(seconds(30)).await;
        let scheduler = fleet.processes[0].scheduler.clone().expect("the first process is a scheduler");
        assert!(!scheduler.ops.condition.storing.works(), "it could not store reports");
        fleet.retire(1);
        blocking::run(world.store.current().set_paused(false)).expect("in memory");
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
        let world = fleet.world.clone();
        lose_gate(&world, false);
        fleet.live(seconds(20)).await;
        // It is open again.
        want_all(&fleet);
        fleet.live(seconds(25)).await;
        heal_and_judge(&mut fleet).await
    })
}

/// Starts a scheduler and a worker.
fn start(fleet: &mut Fleet) {
    fleet.start(Kind::Scheduler, 0, 0);
    fleet.start(Kind::Worker, 0, 0);
}

/// The gate fails over and back. While the other server was the gate, a host was put on hold.
fn fails_back(sabotage: Option<Sabotage>) -> Verdict {
    simulated(async move {
        let mut fleet = fleet(Box::new(Calm), sabotage);
        start(&mut fleet);
        fleet.live(seconds(5)).await;
        let world = fleet.world.clone();
        switch_gate(&world, false, false);
        fleet.live(world.config.fetch.deadline() + seconds(2)).await;
        throttle(&fleet, &HostKey::new("h1.example:443"), world.now(), seconds(20), seconds(60));
        fleet.live(seconds(25)).await;
        switch_gate(&world, true, false);
        want_all(&fleet);
        fleet.live(seconds(25)).await;
        heal_and_judge(&mut fleet).await
    })
}

/// The gate fails over and back, and the only scheduler that saw the other server is killed.
fn fails_back_to_a_new_scheduler(sabotage: Option<Sabotage>) -> Verdict {
    simulated(async move {
        let mut fleet = fleet(Box::new(Calm), sabotage);
        start(&mut fleet);
        fleet.live(seconds(5)).await;
        let world = fleet.world.clone();
        switch_gate(&world, false, false);
        fleet.live(world.config.fetch.deadline() + seconds(10)).await;
        fleet.kill(0);
        switch_gate(&world, true, false);
        fleet.live(seconds(10)).await;
        heal_and_judge(&mut fleet).await
    })
}

/// The gate fails over while a host throttles, and back before the other server was open.
fn fails_back_after(meanwhile: Duration, sabotage: Option<Sabotage>) -> Verdict {
    simulated(async move {
        let mut fleet = fleet(Box::new(Calm), sabotage);
        let (world, begun) = (fleet.world.clone(), fleet.world.begun());
        for host in 0..3 {
            throttle(&fleet, &HostKey::new(&format!("h{host}.example:443")), begun, seconds(5), seconds(60));
        }
        start(&mut fleet);
        while !world.judge().is_anybody_asked() {
            fleet.live(Duration::from_millis(20)).await;
        }
        switch_gate(&world, false, false);
        fleet.live(meanwhile).await;
        switch_gate(&world, true, false);
        want_all(&fleet);
        fleet.live(seconds(25)).await;
        heal_and_judge(&mut fleet).await
    })
}

/// The same, while no scheduler is loading it.
fn fails_back_soon(sabotage: Option<Sabotage>) -> Verdict {
    fails_back_after(Duration::from_millis(3_500), sabotage)
}

/// The same, before a scheduler has looked at it.
fn fails_back_at_once(sabotage: Option<Sabotage>) -> Verdict {
    fails_back_after(Duration::from_millis(400), sabotage)
}

/// The gate fails over, back before the other server was open, and over again. The only scheduler that saw the other server the first
/// time is killed, and no worker has anything to do meanwhile.
fn fails_back_and_forth(sabotage: Option<Sabotage>) -> Verdict {
    simulated(async move {
        let (deaths, died) = mpsc::unbounded_channel();
        let mut config = config();
        config.host.gap = seconds(6);
        let world = World::new(config, false, Duration::ZERO, 1, Box::new(Calm), deaths, sabotage);
        let mut fleet = Fleet::new(world.clone(), died, 1, false);
        fleet.subscribe(3, 1, |_| FeedScript::every(seconds(9)));
        start(&mut fleet);
        fleet.live(seconds(3)).await;
        switch_gate(&world, false, false);
        fleet.live(world.config.fetch.deadline()).await;
        fleet.kill(0);
        switch_gate(&world, true, false);
        let before = world.judge().counts.requests;
        for _ in 0..400 {
            fleet.live(Duration::from_millis(50)).await;
            if world.judge().counts.requests > before {
                break;
            }
        }
        // Its worker does not release it.
        let worker = fleet.processes.iter().position(|process| process.life.kind == Kind::Worker).expect("it runs");
        fleet.kill(worker);
        switch_gate(&world, true, false);
        want_all(&fleet);
        fleet.live(seconds(40)).await;
        heal_and_judge(&mut fleet).await
    })
}

/// A person wants all feeds now, those of held hosts too.
fn want_all(fleet: &Fleet) {
    let feeds: Vec<_> = fleet.world.origin().feeds.keys().copied().collect();
    feeds.into_iter().for_each(|feed| fleet.wake(feed));
}

/// The store fails over to a copy that lags by half a minute.
fn falls_back(sabotage: Option<Sabotage>) -> Verdict {
    simulated(async move {
        let mut fleet = fleet_with(true, Box::new(Calm), sabotage);
        start(&mut fleet);
        fleet.live(seconds(30)).await;
        lag(&fleet.world);
        fleet.live(seconds(30)).await;
        fail_over_store(&fleet.world);
        fleet.live(seconds(40)).await;
        heal_and_judge(&mut fleet).await
    })
}

/// The clocks of a scheduler and a worker are set wrong while others are right.
fn wrong_clocks(sabotage: Option<Sabotage>) -> Verdict {
    simulated(async move {
        let mut fleet = fleet(Box::new(Calm), sabotage);
        for (kind, place) in [(Kind::Scheduler, 0), (Kind::Worker, 0), (Kind::Scheduler, 1), (Kind::Worker, 1)] {
            fleet.start(kind, place, 0);
        }
        fleet.live(seconds(5)).await;
        fleet.set_clock(0, -3_000);
        fleet.set_clock(1, 3_000);
        fleet.live(seconds(60)).await;
        heal_and_judge(&mut fleet).await
    })
}

/// The clock of a worker is set back while a host throttles it. Another worker takes over.
fn set_back(sabotage: Option<Sabotage>) -> Verdict {
    simulated(async move {
        let slow = Planned::first("fetch", Plan::Once(Fate::LateAnswer(seconds(2))));
        let mut fleet = fleet(Box::new(slow), sabotage);
        let begun = fleet.world.begun();
        for host in 0..3 {
            throttle(&fleet, &HostKey::new(&format!("h{host}.example:443")), begun, seconds(5), seconds(40));
        }
        start(&mut fleet);
        while !fleet.world.judge().is_anybody_asked() {
            fleet.live(Duration::from_millis(20)).await;
        }
        fleet.set_clock(1, -20_000);
        fleet.start(Kind::Worker, 1, 0);
        fleet.live(seconds(45)).await;
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
    assert!(broken(&before, rule) > 0, "{fault} is not found: {:?}\n{}", before.broken, before.story);
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

#[test]
fn a_gate_that_fails_back_to_a_server_that_missed_a_hold_is_found() {
    is_found("B3", fails_back, Sabotage::NoGenerations, Rule::Hold);
}

#[test]
fn a_store_that_keeps_its_epoch_when_it_falls_back_is_found() {
    is_found("B6", falls_back, Sabotage::KeepsEpoch, Rule::Lost);
}

#[test]
fn a_process_that_works_by_a_wrong_clock_is_found() {
    is_found("a clock that nobody compares", wrong_clocks, Sabotage::AnyClock, Rule::Clock);
}

#[test]
fn a_hold_that_is_shortened_by_a_clock_that_is_set_during_a_fetch_is_found() {
    is_found("a fetch by a clock that may be set", set_back, Sabotage::SetInFetch, Rule::Hold);
}

#[test]
fn a_gap_that_begins_before_its_request_is_found_when_hosts_redirect() {
    is_found("a start that is forgotten after a redirect", redirects_late, Sabotage::ForgetsStart, Rule::Gap);
}

#[test]
fn a_gate_that_stays_closed_to_a_worker_that_saw_a_newer_one_is_found() {
    is_found("an old mark", fails_back_to_a_new_scheduler, Sabotage::KeepsOldMark, Rule::Stranded);
}

#[test]
fn a_gate_that_fails_back_before_the_other_was_open_is_found() {
    is_found("a loading that nobody remembers", fails_back_soon, Sabotage::ForgetsLoadings, Rule::Hold);
}

#[test]
fn a_gate_that_fails_back_before_anybody_looked_at_the_other_is_found() {
    is_found("a hold that nobody remembers", fails_back_at_once, Sabotage::ForgetsWrites, Rule::Hold);
}

#[test]
fn a_gate_whose_loading_nobody_remembers_is_found() {
    is_found("a loading that is continued", fails_back_and_forth, Sabotage::HidesLoadings, Rule::Gap);
}
