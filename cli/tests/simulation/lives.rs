//! Simulated lives of fleets: a small one for a fault at each call, and one of two schedulers and three workers for everything
//! at once.

use std::time::Duration;

use common::host::HostKey;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::events::judge_events;
use crate::fleet::Fleet;
use crate::history::Happened;
use crate::life::{Kind, Server};
use crate::line::{Fate, Weather};
use crate::origin::FeedScript;
use crate::rules::Counts;
use crate::trouble::{cut, lose_gate, throttle, trouble};
use crate::weather::{Calm, Plan, Planned, SlowStore, Storm};
use crate::world::{Sabotage, World, config, lease, usual};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// How long after its due time a feed may be polled in a healthy fleet: others of its host come first.
pub(crate) const PATIENCE: Duration = seconds(10);
/// The largest error of a clock that the fleet tolerates.
const SKEW: Duration = Duration::from_millis(900);

/// The outcome of a life.
pub(crate) struct Verdict {
    pub(crate) broken: Vec<String>,
    pub(crate) hash: u64,
    pub(crate) counts: Counts,
    pub(crate) lasted: Duration,
    pub(crate) story: String,
}

/// Runs a life in virtual time: the clock advances when all tasks wait.
pub(crate) fn simulated<T>(life: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(life)
}

/// Runs the life of a small fleet, in which one fault strikes: a scheduler and a worker, six feeds on three hosts, of
/// which one throttles for a while.
pub(crate) fn small(weather: Box<dyn Weather>, relays: bool, sabotage: Option<Sabotage>) -> Verdict {
    small_life(weather, relays, sabotage, |_| None)
}

/// The same with a third of its feeds redirected to the host of others, and another third to a host that has none.
pub(crate) fn redirected(weather: Box<dyn Weather>) -> Verdict {
    small_life(weather, false, None, |number| match number % 3 {
        0 => Some(HostKey::new("h2.example:443")),
        1 => Some(HostKey::new("elsewhere.example:443")),
        _ => None,
    })
}

fn small_life(
    weather: Box<dyn Weather>,
    relays: bool,
    sabotage: Option<Sabotage>,
    leads_to: fn(usize) -> Option<HostKey>,
) -> Verdict {
    simulated(async move {
        let (deaths, died) = mpsc::unbounded_channel();
        let world = World::new(config(), false, Duration::ZERO, 1, weather, deaths, sabotage);
        let mut fleet = Fleet::new(world, died, 1, relays);
        fleet.subscribe(6, 3, |number| FeedScript { leads_to: leads_to(number), ..FeedScript::every(seconds(9)) });
        let begun = fleet.world.begun();
        throttle(&fleet, &HostKey::new("h1.example:443"), begun.after(seconds(1)), seconds(2), seconds(15));
        fleet.start(Kind::Scheduler, 0, 0);
        fleet.start(Kind::Worker, 0, 0);
        fleet.live(seconds(45)).await;
        heal_and_judge(&mut fleet).await
    })
}

/// Runs the life of two workers with these errors of their clocks, on one host, which throttles for a while if it
/// `throttles`. When the first request is in flight, no process can reach the queue for this long.
pub(crate) fn pair(ahead: [i64; 2], queue_away: Duration, throttles: bool) -> Verdict {
    simulated(async move {
        let (deaths, died) = mpsc::unbounded_channel();
        let world = World::new(config(), false, Duration::ZERO, 1, Box::new(Calm), deaths, None);
        let mut fleet = Fleet::new(world, died, 1, false);
        fleet.subscribe(8, 1, |_| FeedScript::every(seconds(9)));
        if throttles {
            let begun = fleet.world.begun();
            throttle(&fleet, &HostKey::new("h0.example:443"), begun, seconds(18), seconds(5));
        }
        fleet.start(Kind::Scheduler, 0, 0);
        for (place, ahead) in ahead.into_iter().enumerate() {
            fleet.start(Kind::Worker, place, ahead);
        }
        while !fleet.world.judge().is_anybody_asked() {
            fleet.live(Duration::from_millis(50)).await;
        }
        cut(&fleet, &[0, 1, 2], Server::Queue, queue_away);
        fleet.live(seconds(20)).await;
        heal_and_judge(&mut fleet).await
    })
}

/// Runs the life of a worker that one of its three feeds kills. The gate permits one of its starts without its knowing.
pub(crate) fn deadly_feed_and_lost_permit(start: usize) -> Verdict {
    simulated(async move {
        let (deaths, died) = mpsc::unbounded_channel();
        let weather = Box::new(Planned::nth("acquire", start, Plan::Once(Fate::After)));
        let world = World::new(config(), false, Duration::ZERO, 1, weather, deaths, None);
        let mut fleet = Fleet::new(world, died, 1, false);
        fleet.subscribe(3, 3, |number| FeedScript { deadly: number == 2, ..FeedScript::every(seconds(9)) });
        fleet.live(seconds(1)).await;
        fleet.start(Kind::Scheduler, 0, 0);
        fleet.live(seconds(2)).await;
        fleet.start(Kind::Worker, 0, 0);
        fleet.live(seconds(120)).await;
        heal_and_judge(&mut fleet).await
    })
}

/// Runs the life of a worker whose clock is set wrong while its first request is in flight, and which cannot send its report. Another
/// worker takes over.
pub(crate) fn clock_set_while_report_waits() -> Verdict {
    simulated(async move {
        let (deaths, died) = mpsc::unbounded_channel();
        let world = World::new(config(), false, Duration::ZERO, 1, Box::new(Calm), deaths, None);
        let mut fleet = Fleet::new(world, died, 1, false);
        fleet.subscribe(1, 1, |_| FeedScript::every(seconds(9)));
        fleet.start(Kind::Scheduler, 0, 0);
        fleet.start(Kind::Worker, 0, 0);
        while !fleet.world.judge().is_anybody_asked() {
            fleet.live(Duration::from_millis(50)).await;
        }
        fleet.set_clock(1, -20_000);
        cut(&fleet, &[1], Server::Queue, seconds(8));
        fleet.start(Kind::Worker, 1, 0);
        fleet.live(seconds(20)).await;
        heal_and_judge(&mut fleet).await
    })
}

/// Runs the life of a small fleet whose store is away, whose scheduler claims nothing any more because of that, and
/// whose store takes this long for each call after that. Returns the outcome, and how many requests it made in a minute
/// of that.
pub(crate) fn slow_store(late: Duration) -> (Verdict, u64) {
    simulated(async move {
        let (deaths, died) = mpsc::unbounded_channel();
        let begun = Instant::now();
        let weather = SlowStore { away: [begun + seconds(1), begun + seconds(30)], late };
        let world = World::new(config(), false, Duration::ZERO, 1, Box::new(weather), deaths, None);
        let mut fleet = Fleet::new(world, died, 1, false);
        fleet.subscribe(6, 3, |_| FeedScript::every(seconds(9)));
        fleet.start(Kind::Scheduler, 0, 0);
        fleet.start(Kind::Worker, 0, 0);
        fleet.live(seconds(29)).await;
        let scheduler = fleet.processes[0].scheduler.as_ref().expect("the first process is a scheduler");
        scheduler.ops.condition.storing.failed("the store was away".to_owned());
        fleet.live(lease(&fleet.world.config)).await;
        let before = fleet.world.judge().counts.requests;
        fleet.live(seconds(60)).await;
        let requests = fleet.world.judge().counts.requests - before;
        (heal_and_judge(&mut fleet).await, requests)
    })
}

/// Runs the life of a small fleet whose gate loses its memory while a host is on hold, and whose store takes this long to list the
/// holds. Returns the outcome, and how long after the hold's end the host was requested again.
pub(crate) fn slow_holds(late: Duration) -> (Verdict, Duration) {
    simulated(async move {
        let (deaths, died) = mpsc::unbounded_channel();
        let weather = Planned::first("holds", Plan::Spell(Fate::LateAnswer(late), seconds(600)));
        let world = World::new(config(), false, Duration::ZERO, 1, Box::new(weather), deaths, None);
        let mut fleet = Fleet::new(world.clone(), died, 1, false);
        fleet.subscribe(2, 1, |_| FeedScript::every(seconds(9)));
        let host = HostKey::new("h0.example:443");
        throttle(&fleet, &host, world.begun(), seconds(3), seconds(40));
        fleet.start(Kind::Scheduler, 0, 0);
        fleet.start(Kind::Worker, 0, 0);
        fleet.live(seconds(5)).await;
        lose_gate(&world, false);
        let (Some(asked), Some(held)) = world.judge().last_request(&host) else {
            panic!("it was requested, and throttled")
        };
        let again = loop {
            fleet.live(Duration::from_millis(100)).await;
            match world.judge().last_request(&host).0 {
                Some(last) if last > asked => break last,
                _ => {}
            }
        };
        (heal_and_judge(&mut fleet).await, again.since(held))
    })
}

/// Runs the life of a whole fleet with everything that may happen to it.
pub(crate) fn whole(seed: u64) -> Verdict {
    simulated(async move {
        let mut random = StdRng::seed_from_u64(seed);
        let (deaths, died) = mpsc::unbounded_channel();
        let skew = if random.random_bool(0.5) { SKEW } else { Duration::ZERO };
        let relays = random.random_bool(0.3);
        let has_standby = random.random_bool(0.5);
        let world = World::new(config(), has_standby, skew, seed, Box::new(Storm::new(random.random())), deaths, None);
        let mut fleet = Fleet::new(world, died, seed, relays);
        let (feeds, hosts) = (random.random_range(3..14), random.random_range(1..6));
        let deadly = random.random_bool(0.1).then(|| random.random_range(0..feeds));
        let every = seconds(random.random_range(5..40));
        fleet.subscribe(feeds, hosts, |number| FeedScript {
            deadly: deadly == Some(number),
            ..FeedScript::every(every)
        });
        start_all(&mut fleet, &mut random);
        for _ in 0..random.random_range(5..25) {
            fleet.live(Duration::from_millis(random.random_range(100..6_000))).await;
            trouble(&mut fleet, &mut random, seconds(20));
        }
        fleet.live(seconds(10)).await;
        heal_and_judge(&mut fleet).await
    })
}

/// Starts two schedulers and three workers, each with an error of its clock that is tolerated in this fleet.
fn start_all(fleet: &mut Fleet, random: &mut StdRng) {
    let error = fleet.world.skew();
    let processes = [(Kind::Scheduler, 2), (Kind::Worker, 3)];
    for (kind, places) in processes {
        for place in 0..places {
            fleet.start(kind, place, random.random_range(-error..=error));
        }
    }
}

/// Runs the life of a large fleet for this long, with the leases and intervals of the default configuration. Every so often something
/// fails, for minutes at most.
pub(crate) fn long(seed: u64, feeds: usize, lasts: Duration) -> Verdict {
    simulated(async move {
        let mut random = StdRng::seed_from_u64(seed);
        let (deaths, died) = mpsc::unbounded_channel();
        let skew = if random.random_bool(0.5) { SKEW } else { Duration::ZERO };
        let relays = random.random_bool(0.5);
        let has_standby = random.random_bool(0.5);
        let weather = Box::new(Storm::seldom(random.random()));
        let world = World::new(usual(), has_standby, skew, seed, weather, deaths, None);
        let mut fleet = Fleet::new(world, died, seed, relays);
        let deadly = random.random_bool(0.3).then(|| random.random_range(0..feeds));
        let publishes: Vec<u64> = (0..feeds).map(|_| random.random_range(2..48)).collect();
        fleet.subscribe(feeds, feeds.div_ceil(4), |number| FeedScript {
            deadly: deadly == Some(number),
            ..FeedScript::every(seconds(publishes[number] * 3600))
        });
        start_all(&mut fleet, &mut random);
        let end = Instant::now() + lasts;
        while Instant::now() < end {
            fleet.live(seconds(random.random_range(10..3_600))).await;
            trouble(&mut fleet, &mut random, seconds(300));
        }
        fleet.live(seconds(300)).await;
        heal_and_judge(&mut fleet).await
    })
}

/// Heals everything, and judges the fleet after two leases and another round of polls.
pub(crate) async fn heal_and_judge(fleet: &mut Fleet) -> Verdict {
    let world = fleet.world.clone();
    world.set_weather(Box::new(Calm));
    for process in &fleet.processes {
        Server::ALL.iter().for_each(|server| process.life.set_way(*server, true));
        process.life.pause(Duration::ZERO);
    }
    fleet.synchronise();
    let healed = world.now();
    world.judge().note("driver", Happened::Driver("all is well from now on".to_owned()), healed);
    let interval = world.config.policy.interval.mul_f64(1.0 + world.config.policy.salt);
    fleet.live(lease(&world.config) * 2 + interval + PATIENCE).await;
    world.judge().judge_liveness(healed, PATIENCE, world.now());
    judge_events(&world, fleet.relays);
    let judge = world.judge();
    Verdict {
        broken: judge.broken().to_vec(),
        hash: judge.hash(),
        counts: judge.counts,
        lasted: world.now().since(world.begun()),
        story: if judge.broken().is_empty() && std::env::var_os("SIMULATE_STORY").is_none() {
            String::new()
        } else {
            judge.story()
        },
    }
}
