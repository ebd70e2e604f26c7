//! Computes named figures from a run's log and samples, all of them from what the origin observed.
//!
//! A feed's lag is the time between two of its requests minus its interval: salt and avoided minutes are disabled in
//! scenarios, and intervals count from the start of a fetch. Figures of a group end in its name, those of an event in
//! the event's.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::file::{Answers, Group, Scenario, What};
use super::samples::Sample;
use super::world::split;
use crate::origin::log::Record;
use crate::{Fault, Rules, ScoreCard, judge};

/// The observations of a run.
pub(super) struct Run {
    /// All requests since polling started.
    pub(super) log: Vec<Record>,
    pub(super) samples: Vec<Sample>,
    /// When polling started, since the origin's start.
    pub(super) go: Duration,
    /// The longest stall of the machine, as far as this process noticed.
    pub(super) stall: Duration,
    /// The number of items that were sent and are not stored, if that was checked.
    pub(super) missing: Option<usize>,
    /// The processes' counters of rare events.
    pub(super) counters: BTreeMap<String, f64>,
    /// The fleet's own histogram of lag, bucket bounds in seconds with cumulative counts: after settling, and at the
    /// end.
    pub(super) claims: [Vec<(f64, f64)>; 2],
}

/// The figures of a run.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) values: BTreeMap<String, f64>,
    pub(super) card: ScoreCard,
    /// In order of time.
    pub(super) lags: Vec<Lag>,
    /// The seconds between two starts at a host, ascending.
    pub(super) gaps: Vec<f64>,
}

/// How late a poll was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lag {
    /// Seconds since polling started.
    pub(super) at: f64,
    pub(super) seconds: f64,
    /// The index of its group.
    group: usize,
}

/// The part of an event's time that is ignored while its effect sets in.
const LATE_PART: f64 = 0.5;
/// The rate that counts as recovered, as a part of the rate before.
const RECOVERED: f64 = 0.9;

/// Computes all figures of a run.
pub(super) fn figures(scenario: &Scenario, run: &Run) -> Figures {
    let lags = lags(scenario, run);
    let mut values = BTreeMap::new();
    let mut set = |name: String, value: f64| {
        values.insert(name, value);
    };
    rates(scenario, run, &mut set);
    let groups = scenario.feeds.keys().enumerate().map(|(place, name)| (Some(place), format!(".{name}")));
    for (group, suffix) in std::iter::once((None, String::new())).chain(groups) {
        let settled = |lag: &&Lag| lag.at >= scenario.settle.as_secs_f64();
        let own = lags.iter().filter(settled).filter(|lag| group.is_none_or(|group| group == lag.group));
        let mut seconds: Vec<f64> = own.map(|lag| lag.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        for (name, share) in [("lag_p50", 0.5), ("lag_p99", 0.99), ("lag_max", 1.0)] {
            if let Some(lag) = quantile(&seconds, share) {
                set(format!("{name}{suffix}"), lag);
            }
        }
    }
    presence(scenario, run, &mut set);
    events(scenario, run, &mut set);
    usage(scenario, run, &mut set);
    let card = judge(&run.log, &rules(scenario, run));
    for (name, fault) in [
        ("early", Fault::EarlyPoll),
        ("gap_broken", Fault::Gap),
        ("at_once_host", Fault::HostOverlap),
        ("at_once_feed", Fault::PathOverlap),
        ("during_hold", Fault::PollDuringHold),
        ("unconditional", Fault::UnconditionalRepeat),
    ] {
        set(name.to_owned(), card.count(fault) as f64);
    }
    set("breaches".to_owned(), card.violations.len() as f64);
    set("stall".to_owned(), run.stall.as_secs_f64());
    if let Some(bound) = claimed_within(&run.claims, 0.99) {
        set("fleet_lag_p99".to_owned(), bound);
    }
    run.counters.iter().for_each(|(name, count)| set(name.clone(), *count));
    waits(run, &mut set);
    if let Some(missing) = run.missing {
        set("items_missing".to_owned(), missing as f64);
    }
    Figures { values, card, lags, gaps: gaps(&run.log) }
}

/// Adds how often feeds had to wait for their host, as counted by the fleet, because the origin cannot observe it.
fn waits(run: &Run, set: &mut impl FnMut(String, f64)) {
    let count = |name: &str| run.counters.get(name).copied().unwrap_or_default();
    let waited = count("waited");
    if waited > 0.0 {
        set("parks_per_wait".to_owned(), (waited + count("waited_again")) / waited);
    }
    // A feed that was unparked and did not have to wait again was polled.
    let turns = count("unparks") - count("waited_again");
    if turns > 0.0 {
        set("unparks_per_turn".to_owned(), count("unparks") / turns);
    }
}

/// Returns the bucket bound that this share of the claims between two samples of the histogram met.
fn claimed_within([before, after]: &[Vec<(f64, f64)>; 2], share: f64) -> Option<f64> {
    let earlier =
        |bound: f64| before.iter().find(|(known, _)| known.total_cmp(&bound).is_eq()).map_or(0.0, |found| found.1);
    let claims: Vec<(f64, f64)> = after.iter().map(|(bound, count)| (*bound, count - earlier(*bound))).collect();
    let all = claims.last()?.1;
    claims.iter().find(|(_, count)| all > 0.0 && *count >= all * share).map(|(bound, _)| *bound)
}

/// Returns the quantile of an ascending list.
pub(super) fn quantile(ascending: &[f64], share: f64) -> Option<f64> {
    let last = ascending.len().checked_sub(1)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the list")]
    let at = (last as f64 * share).ceil() as usize;
    ascending.get(at).copied()
}

/// Returns the judge's rules: no feed is polled before its interval, and no host before its gap.
fn rules(scenario: &Scenario, run: &Run) -> Rules {
    let mut floors = HashMap::new();
    for record in &run.log {
        if let Some(group) = split(&record.path).and_then(|(name, _)| scenario.feeds.get(name))
            && !floors.contains_key(&*record.path)
        {
            // While the origin itself stalls, arrivals are recorded late, and the next ones seem early.
            let paused = run.stall.min(group.interval / 20);
            floors.insert(record.path.to_string(), group.interval.saturating_sub(scenario.arrival + paused));
        }
    }
    // A stall of the machine delays an arrival, but the tolerance is at most half a gap.
    let slack = (scenario.noise + run.stall).min((scenario.gap / 2).max(scenario.noise));
    Rules { floors, gap: scenario.gap, slack, ..Rules::default() }
}

/// Returns whether a group responds correctly.
fn is_well(group: &Group) -> bool {
    group.answers == Answers::Well
}

fn since(run: &Run, record: &Record) -> f64 {
    record.start.saturating_sub(run.go).as_secs_f64()
}

fn lags(scenario: &Scenario, run: &Run) -> Vec<Lag> {
    let places: HashMap<&str, usize> =
        scenario.feeds.keys().enumerate().map(|(place, name)| (&**name, place)).collect();
    let mut last: HashMap<&str, &Record> = HashMap::new();
    let mut lags = Vec::new();
    for record in &run.log {
        let Some((name, _)) = split(&record.path) else { continue };
        let Some(group) = scenario.feeds.get(name).filter(|group| is_well(group)) else { continue };
        // After a failure another interval applies.
        let before = last.insert(&record.path, record).filter(|before| matches!(before.status, Some(200 | 304)));
        if let Some(before) = before {
            let distance = record.start.saturating_sub(before.start);
            let seconds = distance.saturating_sub(group.interval).as_secs_f64();
            lags.push(Lag { at: since(run, record), seconds, group: places.get(name).copied().unwrap_or_default() });
        }
    }
    lags
}

fn rates(scenario: &Scenario, run: &Run, set: &mut impl FnMut(String, f64)) {
    let (from, until) = (scenario.settle.as_secs_f64(), scenario.duration.as_secs_f64());
    let rate = polls_between(run, from, until) / (until - from);
    let demand: f64 = scenario.feeds.values().map(|group| group.count as f64 / group.interval.as_secs_f64()).sum();
    set("requests".to_owned(), run.log.len() as f64);
    set("polls_per_second".to_owned(), rate);
    set("demand_per_second".to_owned(), demand);
    set("kept".to_owned(), rate / demand);
    let not_modified = run.log.iter().filter(|record| record.status == Some(304)).count();
    set("not_modified_share".to_owned(), not_modified as f64 / (run.log.len() as f64).max(1.0));
}

fn polls_between(run: &Run, from: f64, until: f64) -> f64 {
    run.log.iter().map(|record| since(run, record)).filter(|at| (from..until).contains(at)).count() as f64
}

/// Adds the number of feeds that were never polled or fell silent, and how long it took to poll each once.
fn presence(scenario: &Scenario, run: &Run, set: &mut impl FnMut(String, f64)) {
    let end = scenario.duration.as_secs_f64();
    let mut times: HashMap<&str, (f64, f64, f64)> = HashMap::new();
    let mut hosts: HashMap<_, Vec<&str>> = HashMap::new();
    for record in &run.log {
        let at = since(run, record);
        let (_, last, longest) = times.entry(&record.path).or_insert_with(|| {
            hosts.entry(record.local).or_default().push(&record.path);
            (at, at, 0.0)
        });
        *longest = longest.max(at - *last);
        *last = at;
    }
    let (mut lost, mut first_all, mut asked) = (0, 0.0_f64, 0.0);
    for (name, group) in &scenario.feeds {
        let spread = group.spread.unwrap_or(group.interval).as_secs_f64();
        let late = scenario.silence.as_secs_f64();
        for number in 0..group.count {
            let path = format!("/{name}/{number}");
            let found = times.get(path.as_str());
            first_all = first_all.max(found.map_or(end, |(first, ..)| *first));
            let silent = match found {
                None => end > spread + late,
                Some((first, last, longest)) => {
                    *first > spread + late || longest.max(end - last) > group.interval.as_secs_f64() + late
                }
            };
            lost += usize::from(silent && is_well(group));
            asked += f64::from(u8::from(found.is_some()));
        }
    }
    set("lost".to_owned(), lost as f64);
    set("feeds_asked".to_owned(), asked);
    set("all_asked_after".to_owned(), first_all);
    // If all were due at once, no fleet could have been faster.
    let crowd = hosts.values().map(Vec::len).max().unwrap_or(1).saturating_sub(1);
    let ideal = crowd as f64 * scenario.gap.as_secs_f64();
    if ideal > 0.0 {
        set("catch_up".to_owned(), first_all / ideal);
    }
}

fn events(scenario: &Scenario, run: &Run, set: &mut impl FnMut(String, f64)) {
    let end = scenario.duration.as_secs_f64();
    let mut phases: BTreeMap<usize, f64> = BTreeMap::new();
    let mut begins: Vec<(f64, usize)> = vec![(scenario.settle.as_secs_f64(), scenario.workers)];
    for (name, event) in &scenario.event {
        let (from, until) = (event.at.as_secs_f64(), event.until.map_or(end, |until| until.as_secs_f64()));
        if let What::Workers { count } = event.what {
            begins.push((from, count));
            continue;
        }
        let half = from + (until - from) * LATE_PART;
        let before = polls_between(run, scenario.settle.as_secs_f64(), from)
            / (from - scenario.settle.as_secs_f64()).max(f64::EPSILON);
        let during = polls_between(run, half, until) / (until - half);
        set(format!("polls_per_second.{name}"), during);
        // Without a rate before it is NaN, which meets no bound.
        set(format!("kept.{name}"), if before > 0.0 { during / before } else { f64::NAN });
        let within = |sample: &&Sample| (half..until).contains(&sample.at);
        let looks: Vec<&Sample> = run.samples.iter().filter(within).collect();
        let ready = looks.iter().filter(|sample| sample.ready).count();
        set(format!("ready.{name}"), ready as f64 / (looks.len() as f64).max(1.0));
        let whole = |second: f64| polls_between(run, second, second + 2.0) / 2.0 >= before * RECOVERED;
        let mut seconds = std::iter::successors(Some(until), |second| Some(second + 1.0)).take_while(|at| *at < end);
        set(format!("back_after.{name}"), seconds.find(|at| whole(*at)).map_or(f64::INFINITY, |at| at - until));
    }
    if begins.len() > 1 {
        begins.sort_by(|one, other| one.0.total_cmp(&other.0));
        begins.push((end, 0));
        for pair in begins.windows(2) {
            // The first half of a phase is for workers to start and to fill their slots.
            let half = f64::midpoint(pair[0].0, pair[1].0);
            phases.insert(pair[0].1, polls_between(run, half, pair[1].0) / (pair[1].0 - half));
        }
        let one = phases.first_key_value().map_or(f64::NAN, |(workers, rate)| rate / *workers as f64);
        for (workers, rate) in &phases {
            set(format!("polls_per_second.{workers}_workers"), *rate);
            set(format!("scaling.{workers}_workers"), rate / (*workers as f64 * one));
        }
    }
}

fn usage(scenario: &Scenario, run: &Run, set: &mut impl FnMut(String, f64)) {
    let settled = |sample: &&Sample| sample.at >= scenario.settle.as_secs_f64();
    let polls = polls_between(run, scenario.settle.as_secs_f64(), scenario.duration.as_secs_f64()).max(1.0);
    let (mut memory, mut cpu) = (BTreeMap::<&str, f64>::new(), BTreeMap::<&str, f64>::new());
    let mut last: HashMap<&str, f64> = HashMap::new();
    for sample in run.samples.iter().filter(settled) {
        let mut now: BTreeMap<&str, f64> = BTreeMap::new();
        for (name, usage) in &sample.processes {
            let role = name.split(' ').next().unwrap_or(name);
            *now.entry(role).or_default() += usage.memory;
            let before = last.insert(name, usage.cpu).unwrap_or(usage.cpu);
            *cpu.entry(role).or_default() += (usage.cpu - before).max(0.0);
        }
        for (role, megabytes) in now {
            let most = memory.entry(role).or_default();
            *most = most.max(megabytes);
        }
    }
    memory.into_iter().for_each(|(role, megabytes)| set(format!("memory_mb.{role}"), megabytes));
    cpu.into_iter().for_each(|(role, seconds)| set(format!("cpu_us_per_poll.{role}"), seconds * 1e6 / polls));
    for (name, of) in
        [("parked_most", (|sample| sample.parked) as fn(&Sample) -> f64), ("due_most", |sample| sample.due)]
    {
        set(name.to_owned(), run.samples.iter().map(of).fold(0.0, f64::max));
    }
}

fn gaps(log: &[Record]) -> Vec<f64> {
    let mut last = HashMap::new();
    let mut gaps: Vec<f64> = Vec::new();
    for record in log {
        if let Some(before) = last.insert(record.local, record.start) {
            gaps.push(record.start.saturating_sub(before).as_secs_f64());
        }
    }
    gaps.sort_by(f64::total_cmp);
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::file::{Form, parse};

    const FILE: &str = r#"
        question = "?"
        deployment = "embedded"
        duration = "20s"
        noise = "0s"
        silence = "2s"
        [feeds.good]
        count = 2
        hosts = 1
        interval = "5s"
        [event.dark]
        at = "10s"
        until = "14s"
        do = "fail"
        feeds = "good"
        status = 503
        [expect]
    "#;

    /// Returns the figures of requests to these feeds at these milliseconds.
    fn of(requests: &[(&str, u64)]) -> Figures {
        let (scenario, _) = parse(FILE, Form::default()).unwrap();
        let made = |(number, (path, at)): (usize, &(&str, u64))| {
            let validators: &[&str] = if *at < 5000 { &[] } else { &["If-None-Match: \"1\""] };
            let sent = [&["User-Agent: x"], validators].concat();
            Record::made(number, path, *at, &sent, 200, &["ETag: \"1\""])
        };
        let run = Run {
            log: requests.iter().enumerate().map(made).collect(),
            samples: Vec::new(),
            go: Duration::ZERO,
            stall: Duration::ZERO,
            missing: Some(3),
            counters: BTreeMap::new(),
            claims: [
                vec![(1.0, 5.0), (5.0, 5.0), (f64::INFINITY, 9.0)],
                vec![(1.0, 7.0), (5.0, 105.0), (f64::INFINITY, 109.0)],
            ],
        };
        figures(&scenario, &run)
    }

    fn value(figures: &Figures, name: &str) -> f64 {
        *figures.values.get(name).unwrap_or(&f64::NAN)
    }

    #[test]
    fn a_punctual_fleet_has_no_lag_and_loses_nothing() {
        let (one, other) = ("/good/0", "/good/1");
        let steady = [0, 5000, 10_000, 15_000].map(|at| [(one, at), (other, at + 2000)]).concat();
        let figures = of(&steady);
        assert_eq!((value(&figures, "lag_p99"), value(&figures, "lost"), value(&figures, "breaches")), (0.0, 0.0, 0.0));
        assert!((value(&figures, "kept") - 1.0).abs() < 1e-9);
        assert!((value(&figures, "all_asked_after") - 2.0).abs() < 1e-9);
        assert_eq!(value(&figures, "items_missing"), 3.0);
        // Of a hundred claims after settling, 2 were within a second, and all within five.
        assert_eq!(value(&figures, "fleet_lag_p99"), 5.0);
        assert!(value(&figures, "no such").is_nan());
    }

    #[test]
    fn what_is_late_early_close_or_silent_is_told() {
        let figures =
            of(&[("/good/0", 0), ("/good/1", 200), ("/good/0", 8500), ("/good/1", 9900), ("/good/0", 11_000)]);
        assert!((value(&figures, "lag_max") - 4.7).abs() < 1e-9);
        assert_eq!((value(&figures, "gap_broken"), value(&figures, "early")), (1.0, 1.0));
        // The last request to both was more than seven seconds before the end.
        assert_eq!(value(&figures, "lost"), 2.0);
        assert_eq!(value(&of(&[("/good/0", 0)]), "lost"), 2.0);
    }

    #[test]
    fn an_event_is_told_by_its_late_half_and_by_when_the_rate_is_back() {
        let every = |from: u64, until: u64| (from..until).step_by(500).map(|at| ("/good/0", at));
        let figures = of(&every(0, 10_000).chain(every(17_000, 20_000)).collect::<Vec<_>>());
        assert_eq!(value(&figures, "polls_per_second.dark"), 0.0);
        assert_eq!(value(&figures, "kept.dark"), 0.0);
        assert_eq!(value(&figures, "back_after.dark"), 3.0);
        let figures = of(&every(0, 10_000).collect::<Vec<_>>());
        assert!(value(&figures, "back_after.dark").is_infinite());
    }
}
