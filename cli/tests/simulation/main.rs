//! Whole fleets in virtual time: real schedulers, workers and relays with their loops, over servers in memory, with faults at
//! every call, crashes, partitions, pauses, clocks that differ or are set, servers that lose their memory, and servers that fail over.
//!
//! `docs/decisions/0028-simulation.md` says what is real and what is not. Short forms run among all tests, long ones by
//! `dev/soak simulate --seeds N`; SIMULATE_FIRST=N SIMULATE_SEEDS=1 repeats one seed and prints its history if it fails; SIMULATE_STORY=1
//! has a fault that is not found print it too.

mod blocking;
mod events;
mod fleet;
mod gate;
mod history;
mod holds;
mod judge;
mod life;
mod line;
mod lives;
mod origin;
mod queue;
mod rules;
mod schedule;
mod seen;
mod store;
mod teeth;
mod trouble;
mod weather;
mod world;

use std::time::{Duration, Instant};

use crate::line::{Fate, Weather};
use crate::lives::{
    Verdict, clock_set_while_report_waits, deadly_feed_and_lost_permit, long, pair, redirected, slow_holds, slow_store,
    small, whole,
};
use crate::rules::Counts;
use crate::weather::{Calm, Plan, Planned};
use crate::world::Sabotage;

/// Returns a number from the environment, or the short form's.
fn number(name: &str, short: u64) -> u64 {
    std::env::var(name)
        .map_or(short, |text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text}")))
}

/// Everything that may become of a call.
fn plans() -> Vec<Plan> {
    let seconds = Duration::from_secs;
    vec![
        Plan::Once(Fate::Before),
        Plan::Once(Fate::After),
        Plan::Once(Fate::Late(seconds(6))),
        Plan::Once(Fate::LateAnswer(Duration::from_millis(1_500))),
        Plan::Once(Fate::Silent),
        Plan::Outage(seconds(12)),
        Plan::Spell(Fate::After, seconds(40)),
    ]
}

/// Lives once for each call and each plan, with the fault at that call, and once without any before.
fn every_call_fails_once(every: u64, life: impl Fn(Box<dyn Weather>) -> Verdict) {
    let begun = Instant::now();
    let calm = life(Box::new(Calm));
    assert!(calm.broken.is_empty(), "{}\n{}", calm.story, calm.broken.join("\n"));
    let calls = calm.counts.calls;
    // The short form ends where a life does the same again.
    let last = number("SIMULATE_CALLS", if every == 1 { calls } else { 700 }).min(calls);
    let first = number("SIMULATE_FROM", 0);
    let (mut tried, mut total) = (0, Counts::default());
    let mut findings = Vec::new();
    for plan in plans() {
        for at in (first..last).step_by(usize::try_from(every).expect("few")) {
            tried += 1;
            let verdict = life(Box::new(Planned::new(usize::try_from(at).expect("few"), plan)));
            total.add(&verdict.counts);
            if !verdict.broken.is_empty() {
                println!("call {at}, {plan:?}:\n  {}", verdict.broken.join("\n  "));
                findings.push((plan, at, verdict));
            }
        }
    }
    println!("{tried} lives of {calls} calls each, {} findings, {:.1?}; {total}", findings.len(), begun.elapsed());
    if let Some((plan, at, verdict)) = findings.first() {
        println!("{}", verdict.story);
        println!("call {at}, {plan:?}:\n{}", verdict.broken.join("\n"));
    }
    assert!(findings.is_empty());
}

#[test]
fn nothing_is_lost_late_or_impolite_whichever_call_fails() {
    let relays = number("SIMULATE_RELAY", 0) > 0;
    every_call_fails_once(number("SIMULATE_EVERY", 49), |weather| small(weather, relays, None));
}

#[test]
fn nothing_is_lost_late_or_impolite_whichever_call_fails_of_a_fleet_whose_feeds_redirect() {
    every_call_fails_once(number("SIMULATE_EVERY", 101), redirected);
}

#[test]
fn nothing_is_lost_late_or_impolite_whatever_happens_to_a_fleet() {
    every_seed(number("SIMULATE_SEEDS", 50), whole);
}

#[test]
fn nothing_is_lost_late_or_impolite_in_a_long_life_of_a_large_fleet() {
    let (feeds, hours) = (number("SIMULATE_FEEDS", 40), number("SIMULATE_HOURS", 3));
    let feeds = usize::try_from(feeds).expect("some thousands");
    every_seed(number("SIMULATE_LONG", 1), |seed| long(seed, feeds, Duration::from_secs(hours * 3600)));
}

/// Lives once for each seed.
fn every_seed(seeds: u64, life: impl Fn(u64) -> Verdict) {
    let first = number("SIMULATE_FIRST", 1);
    let begun = Instant::now();
    let (mut hours, mut findings) = (0.0, Vec::new());
    let mut total = Counts::default();
    for seed in first..first + seeds {
        let verdict = life(seed);
        hours += verdict.lasted.as_secs_f64() / 3600.0;
        total.add(&verdict.counts);
        if !verdict.broken.is_empty() {
            println!("seed {seed}:\n  {}", verdict.broken.join("\n  "));
            findings.push((seed, verdict));
        }
    }
    let took = begun.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds, {hours:.1} fleet-hours, {:.2} a second; {} findings; {total}",
        hours / took,
        findings.len()
    );
    if let Some((seed, verdict)) = findings.first() {
        println!("{}", verdict.story);
        println!("seed {seed}:\n{}", verdict.broken.join("\n"));
    }
    assert!(findings.is_empty());
}

#[test]
fn a_seed_tells_the_same_story_each_time() {
    for seed in 1..=number("SIMULATE_TWICE", 3) {
        let [one, other]: [Verdict; 2] = [whole(seed), whole(seed)];
        assert_eq!(one.hash, other.hash, "seed {seed}");
    }
}

#[test]
fn the_judge_sees_servers_that_break_their_promises() {
    let broken = [
        (Sabotage::NoHolds, "held until"),
        (Sabotage::NoGap, "after the last request there"),
        (Sabotage::NoLimit, "another request is in flight"),
        (Sabotage::Early, "it is due at"),
        (Sabotage::Forgetful, "its last report was stored at"),
        (Sabotage::Twice, "is stored after"),
        (Sabotage::Deaf, "the exchange did not receive"),
    ];
    let silence = Planned::new(120, Plan::Outage(Duration::from_secs(5)));
    let verdict = small(Box::new(silence), false, Some(Sabotage::KeptLinks));
    assert!(!verdict.broken.is_empty(), "a connection that was silent is kept, and nothing happens any more");
    for (sabotage, what) in broken {
        let verdict = small(Box::new(Calm), true, Some(sabotage));
        assert!(verdict.broken.iter().any(|line| line.contains(what)), "{sabotage:?}: {:?}", verdict.broken);
    }
}

#[test]
fn a_worker_with_a_wrong_clock_shortens_no_gap() {
    let verdict = pair([-900, 900], Duration::ZERO, false);
    assert!(verdict.broken.is_empty(), "{}\n{}", verdict.story, verdict.broken.join("\n"));
    assert!(verdict.counts.requests > 20);
}

#[test]
fn a_worker_with_a_wrong_clock_shortens_no_hold() {
    let verdict = pair([-900, 900], Duration::ZERO, true);
    assert!(verdict.broken.is_empty(), "{}\n{}", verdict.story, verdict.broken.join("\n"));
    assert!(verdict.counts.requests > 3);
}

#[test]
fn a_slow_store_slows_the_fleet_and_never_stops_it() {
    for late in [600, 1_000] {
        let (verdict, requests) = slow_store(Duration::from_millis(late));
        assert!(verdict.broken.is_empty(), "{}\n{}", verdict.story, verdict.broken.join("\n"));
        // Six feeds, each due every 20 s.
        assert!(requests >= 9, "{requests} requests in a minute with a store that takes {late} ms");
        assert_eq!(verdict.counts.deaths, 0, "nobody had to restart anything");
    }
}

#[test]
fn a_feed_whose_report_waits_for_the_queue_is_not_fetched_again_when_its_token_ends() {
    let verdict = pair([0, 0], Duration::from_secs(8), false);
    assert!(verdict.broken.is_empty(), "{}\n{}", verdict.story, verdict.broken.join("\n"));
    assert_eq!(verdict.counts.repeated, 0, "{}", verdict.story);
}

#[test]
fn a_feed_whose_report_waits_is_not_fetched_again_when_its_worker_s_clock_is_set() {
    let verdict = clock_set_while_report_waits();
    assert!(verdict.broken.is_empty(), "{}\n{}", verdict.story, verdict.broken.join("\n"));
    assert_eq!(verdict.counts.repeated, 0, "{}", verdict.story);
}

#[test]
fn a_feed_whose_permit_is_lost_is_not_blamed_for_the_death_of_its_worker_by_another_one() {
    for start in 0..24 {
        let verdict = deadly_feed_and_lost_permit(start);
        assert!(verdict.broken.is_empty(), "start {start}: {}\n{}", verdict.story, verdict.broken.join("\n"));
        assert!(verdict.counts.deaths > 0);
    }
}

#[test]
fn a_hold_is_not_longer_because_the_store_is_slow_when_the_gate_is_loaded() {
    let (verdict, waited) = slow_holds(Duration::from_millis(4_500));
    assert!(verdict.broken.is_empty(), "{}\n{}", verdict.story, verdict.broken.join("\n"));
    assert!(waited < Duration::from_secs(3), "{waited:?}");
}
