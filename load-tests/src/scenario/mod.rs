//! Load scenarios: a file states the question, the set-up, the events, and the expected figures; a real fleet runs
//! against the scripted origin, and is judged by the origin's log.
//!
//! The fleet consists of separate processes of the real program: all in one, or roles with real servers. The feeds are
//! added through the API while the fleet is paused; time zero is when it resumes. Nothing here depends on feedfleet's
//! internals.

mod callers;
mod disk;
mod error;
mod exposition;
mod figures;
pub mod file;
mod fleet;
mod picture;
mod report;
mod samples;
mod world;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use self::callers::Callers;
pub use self::error::ScenarioError;
use self::figures::{Run, figures};
use self::file::{Deployment, Form, Scenario, What};
use self::fleet::FleetProcesses;
pub use self::report::Report;
use self::samples::{Sample, Servers, look};
use self::world::World;

/// How to run scenarios.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The path of the program `feedfleet`.
    pub binary: PathBuf,
    /// The form of the file.
    pub form: Form,
    /// Whether to print a line of progress each second on standard error.
    pub progress: bool,
}

/// The interval between two samples.
const LOOK: Duration = Duration::from_secs(1);
/// The interval between two lines of progress where they cannot be overwritten.
const LINE: f64 = 10.0;
/// The timer interval against which stalls of this process are measured.
const TICK: Duration = Duration::from_millis(10);
/// A new gate stays closed for the lifetime of a fetch and a gap, because earlier requests are unknown.
const GATE_OPENS: Duration = Duration::from_secs(15);
/// How long it may take to store reports in flight.
const DRAIN: Duration = Duration::from_secs(60);

/// Runs the scenario of a file, after the baseline if the file has one.
///
/// # Errors
/// If it cannot be run. A figure that misses its bound is not an error: see [`Report::is_good`].
pub async fn run(path: &Path, setting: &Setting) -> Result<Report, ScenarioError> {
    let (scenario, baseline) = file::read(path, setting.form)?;
    let name = path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let compared = match &baseline {
        None => None,
        Some(baseline) => {
            let run = play(baseline, &format!("{name}, to compare with"), setting).await?;
            Some(figures(baseline, &run))
        }
    };
    let run = play(&scenario, &name, setting).await?;
    let figures = figures(&scenario, &run);
    Ok(Report::new(&name, &scenario, run, figures, compared.as_ref()))
}

/// Runs a scenario from the first process to the last request.
async fn play(scenario: &Scenario, name: &str, setting: &Setting) -> Result<Run, ScenarioError> {
    let world = World::start(scenario).await?;
    let mut fleet = FleetProcesses::new(scenario, &setting.binary, world.root.as_deref()).await?;
    if setting.progress {
        eprintln!("{name}: {}", scenario.question);
    }
    let (began, servers, stalls) = (Instant::now(), Servers::find(), Stalls::measure());
    assemble(scenario, &world, &mut fleet).await?;
    if setting.progress {
        eprintln!("{} feeds added, the fleet is ready after {:.0?}", feeds(scenario), began.elapsed());
    }
    let go = world.go();
    fleet.post("/fleet/resume", "application/json", String::new()).await?;
    let mut callers = None;
    let (samples, claims) = live(scenario, &world, &mut fleet, &mut callers, &servers, go, setting).await?;
    let stall = stalls.longest();
    // Fetches in flight end, so that stored items can be compared.
    fleet.post("/fleet/pause", "application/json", String::new()).await.ok();
    let mut log = world.origin.log();
    log.sort_by_key(|record| (record.start, record.number));
    let end = go + scenario.duration;
    log.retain(|record| record.start < end);
    let missing = match scenario.expect.contains_key("items_missing") {
        false => None,
        true => Some(missing_in_the_end(&world, &fleet, end).await?),
    };
    let mut counters = fleet.counters().await;
    counters.extend(callers.into_iter().flatten());
    if setting.progress {
        eprint!("{}", fleet.logs());
    }
    Ok(Run { log, samples, go, stall, missing, counters, claims })
}

fn feeds(scenario: &Scenario) -> usize {
    scenario.feeds.values().map(|group| group.count).sum()
}

/// Starts all processes, and adds all groups while the fleet is paused, those with the widest spread first, so that
/// feeds that are due soon do not wait for long.
async fn assemble(scenario: &Scenario, world: &World, fleet: &mut FleetProcesses) -> Result<(), ScenarioError> {
    let spread = |name: &String| scenario.feeds[name].spread.unwrap_or(scenario.feeds[name].interval);
    let spreads: BTreeSet<Duration> = scenario.feeds.keys().map(spread).collect();
    for (turn, wanted) in spreads.iter().rev().enumerate() {
        if turn > 0 {
            // The spread is part of the process' configuration.
            fleet.stop(0).await?;
        }
        fleet.start_first(*wanted).await?;
        fleet.post("/fleet/pause", "application/json", String::new()).await?;
        if turn == 0 && scenario.deployment == Deployment::Cluster {
            let began = Instant::now();
            for number in 1..scenario.schedulers {
                fleet.start(&format!("scheduler {number}"), &[]).await?;
            }
            fleet.set_workers(scenario.workers).await?;
            tokio::time::sleep((GATE_OPENS + scenario.gap).saturating_sub(began.elapsed())).await;
        }
        for (name, group) in scenario.feeds.iter().filter(|(name, _)| spread(name) == *wanted) {
            let body = |number| {
                json!({
                    "url": world.url(name, number),
                    "sla": group.sla,
                    "subscribers": group.subscribers,
                    "interval": group.interval.as_secs_f64(),
                })
            };
            fleet.add((0..group.count).map(body)).await?;
        }
    }
    Ok(())
}

/// Something to do at a certain time.
struct Step<'a> {
    at: Duration,
    what: &'a What,
    begins: bool,
}

/// Runs the scenario's time line: takes a sample each second, and executes due steps. Returns the samples, and the
/// histogram of lag after settling and at the end.
async fn live(
    scenario: &Scenario,
    world: &World,
    fleet: &mut FleetProcesses,
    called: &mut Option<BTreeMap<String, f64>>,
    servers: &Servers,
    go: Duration,
    setting: &Setting,
) -> Result<(Vec<Sample>, [Vec<(f64, f64)>; 2]), ScenarioError> {
    let begins = scenario.event.values().map(|event| Step { at: event.at, what: &event.what, begins: true });
    let ends = scenario
        .event
        .values()
        .filter_map(|event| event.until.map(|until| Step { at: until, what: &event.what, begins: false }));
    let mut steps: Vec<Step> = begins.chain(ends).collect();
    steps.sort_by_key(|step| step.at);
    let mut steps = steps.into_iter().peekable();
    let (mut progress, mut callers) = (Progress::default(), None);
    let (mut samples, mut claims): (Vec<Sample>, Vec<(f64, f64)>) = (Vec::new(), Vec::new());
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    while world.origin.elapsed() < go + scenario.duration {
        while let Some(step) = steps.next_if(|step| go + step.at <= world.origin.elapsed()) {
            if let What::Callers(numbers) = step.what {
                *called = callers.take().map(|callers: Callers| callers.figures());
                callers = step.begins.then(|| Callers::start(fleet.api(), *numbers));
            }
            act(fleet, step.what, step.begins).await?;
        }
        let sample = look(fleet, servers, &world.origin, go).await;
        if setting.progress {
            progress.show(&sample, scenario);
        }
        if claims.is_empty() && sample.at >= scenario.settle.as_secs_f64() {
            claims = fleet.claims_by_lag().await;
        }
        samples.push(sample);
        looks.tick().await;
    }
    if setting.progress {
        eprintln!();
    }
    Ok((samples, [claims, fleet.claims_by_lag().await]))
}

async fn act(fleet: &mut FleetProcesses, what: &What, begins: bool) -> Result<(), ScenarioError> {
    match what {
        What::Workers { count } if begins => fleet.set_workers(*count).await,
        What::SlowStore { delay } => {
            fleet.slow_store(if begins { *delay } else { Duration::ZERO });
            Ok(())
        }
        What::FillDisk => fleet.fill_disk(begins),
        What::Jump { seconds, processes } => {
            let seconds = if begins { *seconds } else { 0 };
            processes.iter().try_for_each(|name| fleet.set_clock(name, seconds))
        }
        // The origin's scripts already contain these times.
        What::Workers { .. } | What::Throttle { .. } | What::Fail { .. } | What::Callers(_) => Ok(()),
    }
}

/// Returns the same after all reports in flight had time to be stored.
async fn missing_in_the_end(world: &World, fleet: &FleetProcesses, end: Duration) -> Result<usize, ScenarioError> {
    let deadline = Instant::now() + DRAIN;
    loop {
        let missing = missing(world, fleet, end).await?;
        if missing == 0 || Instant::now() > deadline {
            return Ok(missing);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns the number of items that were sent completely before `end` and are not stored.
async fn missing(world: &World, fleet: &FleetProcesses, end: Duration) -> Result<usize, ScenarioError> {
    let mut stored: BTreeSet<String> = BTreeSet::new();
    let mut after = 0;
    loop {
        let page = fleet.get(&format!("/entries?after={after}&limit=1000")).await?;
        let entries = page["items"].as_array().cloned().unwrap_or_default();
        let Some(last) = entries.last().and_then(|entry| entry["seq"].as_i64()) else { break };
        stored.extend(entries.iter().filter_map(|entry| entry["id"].as_str().map(str::to_owned)));
        after = last;
    }
    let mut sent: HashMap<String, usize> = HashMap::new();
    for record in world.origin.log().iter().filter(|record| record.is_complete() && record.start < end) {
        if let Some(items) = &record.items {
            let most = sent.entry(record.path.to_string()).or_default();
            *most = items.end.max(*most);
        }
    }
    let missing = sent.iter().map(|(path, count)| {
        let truth = world.origin.truth(path);
        truth.iter().take(*count).filter(|item| !stored.contains(&item.id)).count()
    });
    Ok(missing.sum())
}

/// A progress line that is overwritten where possible.
#[derive(Default)]
struct Progress {
    before: Option<(f64, usize)>,
    line: f64,
}

impl Progress {
    fn show(&mut self, sample: &Sample, scenario: &Scenario) {
        let (at, requests) = self.before.replace((sample.at, sample.requests)).unwrap_or_default();
        let terminal = std::io::stderr().is_terminal();
        if !terminal && sample.at < self.line {
            return;
        }
        self.line += LINE;
        let rate = (sample.requests - requests) as f64 / (sample.at - at).max(0.001);
        let memory: f64 =
            sample.processes.iter().filter(|(name, _)| *name != "origin").map(|(_, used)| used.memory).sum();
        let text = format!(
            "+{:.0} of {:.0} s  {rate:.0} polls/s  {} requests  {:.0} due, the oldest {:.1} s ago  {memory:.0} MB{}",
            sample.at,
            scenario.duration.as_secs_f64(),
            sample.requests,
            sample.due,
            sample.oldest_due,
            if sample.ready { "" } else { "  not ready" },
        );
        let _ = match terminal {
            true => write!(std::io::stderr(), "\r{text}\x1b[K"),
            false => writeln!(std::io::stderr(), "{text}"),
        };
    }
}

/// Measures the longest stall of this process, which the machine imposes on all processes.
struct Stalls {
    longest: std::sync::Arc<std::sync::atomic::AtomicU64>,
    _task: tokio_util::task::AbortOnDropHandle<()>,
}

impl Stalls {
    fn measure() -> Self {
        let longest = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        let seen = std::sync::Arc::clone(&longest);
        let task = tokio::spawn(async move {
            loop {
                let began = Instant::now();
                tokio::time::sleep(TICK).await;
                let late = began.elapsed().saturating_sub(TICK);
                let late = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
                seen.fetch_max(late, std::sync::atomic::Ordering::Relaxed);
            }
        });
        Stalls { longest, _task: tokio_util::task::AbortOnDropHandle::new(task) }
    }

    fn longest(&self) -> Duration {
        Duration::from_micros(self.longest.load(std::sync::atomic::Ordering::Relaxed))
    }
}
