//! `feedfleet simulate`: compares policies on posting histories in virtual time, at the same number of polls.

mod answers;
mod crowd;
mod fault;
mod fleet;
mod own;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Context;
use clap::Args;
use common::config::PolicyConfig;
use common::time::Timestamp;
use common::words;
use fault::Fault;
use load_tests::simulate::histories::{self, Series};
use load_tests::simulate::{Comparison, Goals, Recipe, Row, Simulated, Watched, sample, svg};

use crate::output;
use crate::progress::Progress;
use crate::settings::SettingsArgs;
use crate::usage::Usage;

/// Reads a number of feeds that can be compared.
fn some_feeds(text: &str) -> Result<usize, &'static str> {
    text.parse().ok().filter(|feeds| *feeds > 0).ok_or("must be a whole number above 0")
}

/// Compares polling policies on posting histories in virtual time, at the same number of polls
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// Posting histories, in the format of docs/policy.md [default: generated ones]
    #[arg(long, value_name = "FILE")]
    histories: Option<PathBuf>,
    /// Seed of all random choices; the results of several (1,2 or 1-5) are combined
    #[arg(long, value_name = "N", default_value = "1")]
    seed: Seeds,
    /// Feeds in each sample
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = some_feeds)]
    feeds: usize,
    /// Days to simulate
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    days: u32,
    /// Subscribers that one feed can have; they are Zipf-distributed
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    max_subscribers: u32,
    /// The share of feeds whose posts a hub pushes, from 0 to 1; only feedfleet's policy uses pushes
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share, conflicts_with_all = ["crowd", "fault"])]
    pushed: f64,
    /// Only these: feedfleet, newsgator, fixed, miniflux, newsblur, commafeed, square-root, oracle
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    policy: Vec<Simulated>,
    /// Fractions of the polls that newsgator makes by its own intervals
    #[arg(long, value_name = "X", value_delimiter = ',', default_value = "1,0.25", value_parser = budget)]
    budget: Vec<f64>,
    /// Prints the ratios for which the policy has goals, instead of the table
    #[arg(long)]
    goals: bool,
    /// Counts the events feed.silent and feed.overflowed, and lost entries, over whole histories
    #[arg(long, conflicts_with_all = ["policy", "goals", "plot", "crowd", "fault"])]
    watched: bool,
    /// Simulates your own fleet: each feed of the histories once, with its subscribers, over the last days. Prints polls, delays by
    /// category and the busiest hosts; with --set, next to those without --set
    #[arg(long, requires = "histories", conflicts_with_all = ["policy", "goals", "watched", "crowd", "fault"])]
    own: bool,
    #[command(flatten)]
    settings: SettingsArgs,
    /// Simulates all feeds on one clock: how evenly feedfleet spreads polls over minutes, and how fast it decides
    #[arg(long, conflicts_with_all = ["policy", "goals", "plot", "fault", "set"])]
    crowd: bool,
    /// With --crowd: what a poll costs, in subscriber-hours [default: the configuration's]
    #[arg(long, value_name = "HOURS", requires = "crowd")]
    price: Option<f64>,
    /// Simulates one fleet with a fault that begins after a day: outage, hosts (6 h), capacity (halved), none
    #[arg(long, hide_possible_values = true, conflicts_with_all = ["policy", "goals", "plot", "set"])]
    fault: Option<Fault>,
    /// With --fault: hours to simulate after it begins
    #[arg(long, value_name = "N", default_value_t = 24, requires = "fault")]
    hours: usize,
    /// Also draws mean delay against polls into this file; takes several budgets, or with --own several prices of a poll
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Prints JSON, an object a line
    #[arg(long)]
    json: bool,
}

/// Seeds: `3`, `1,2` or `1-5`.
#[derive(Clone, Debug)]
struct Seeds(Vec<u64>);

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = |part: &str| -> Option<RangeInclusive<u64>> {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
        };
        let ranges = text.split(',').map(range).collect::<Option<Vec<_>>>();
        let seeds: Vec<u64> = ranges.unwrap_or_default().into_iter().flatten().take(1000).collect();
        if seeds.is_empty() { Err("seeds are whole numbers, such as 1 or 1,2 or 1-5".into()) } else { Ok(Seeds(seeds)) }
    }
}

fn share(text: &str) -> Result<f64, &'static str> {
    text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or("must be a number from 0 to 1")
}

fn budget(text: &str) -> Result<f64, String> {
    let fraction = text.parse::<f64>().ok().filter(|fraction| (0.001..=100.0).contains(fraction));
    fraction.ok_or_else(|| "a budget is a fraction of newsgator's polls, such as 1 or 0.25".into())
}

/// Runs the command.
pub(crate) async fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    let histories = histories_of(args.histories.as_deref())?;
    let seed = args.seed.0.first().copied().unwrap_or(1);
    let recipe =
        Recipe { seed, feeds: args.feeds, days: args.days, max_subscribers: args.max_subscribers, pushed: args.pushed };
    if let Some(fault) = args.fault {
        return run_fault(fault, &histories, args).await;
    }
    if args.crowd {
        let outcome = crowd::run(&histories, &recipe, args.price).ok_or_else(|| too_short(args.days))?;
        output::answer(args.json, &outcome, || outcome.text())?;
        return Ok(ExitCode::SUCCESS);
    }
    let settings = args.settings.load(&[])?.config;
    if args.watched {
        return print_watched(&histories, &settings.policy, args.json);
    }
    if args.own {
        return own::run(&histories, args.days, &args.settings, args.plot.as_deref(), args.json);
    }
    let samples = args.seed.0.iter().map(|seed| sample(&histories, &Recipe { seed: *seed, ..recipe }));
    let samples = samples.collect::<Option<Vec<_>>>().ok_or_else(|| too_short(args.days))?;
    let comparison = Comparison::new(samples, settings.policy);
    if args.goals {
        print_goals(&comparison, args.json)?;
    } else {
        print_table(&comparison, args)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn too_short(days: u32) -> Usage {
    Usage(format!("no history is long enough for --days {days}; it has to be a third longer"))
}

/// 2026-03-02T00:00:00Z, a Monday.
const START: i64 = 1_772_409_600_000;

async fn run_fault(fault: Fault, histories: &[Series], args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    let seed = args.seed.0.first().copied().unwrap_or(1);
    let hours = fault::BEFORE + args.hours;
    // One week more: each feed starts somewhere in the week before.
    let days = u32::try_from(hours / 24 + 8).unwrap_or(u32::MAX);
    let recipe = Recipe { seed, feeds: args.feeds, days, max_subscribers: args.max_subscribers, pushed: 0.0 };
    let sample = sample(histories, &recipe).ok_or_else(|| too_short(days))?;
    let mut progress = Progress::new(hours);
    let setting =
        fault::Setting { fault, before: fault::BEFORE, hours: args.hours, seed, start: Timestamp::from_millis(START) };
    let course = fault::run(sample, &setting, &mut progress).await?;
    drop(progress);
    output::answer(args.json, &course, || course.text())?;
    Ok(ExitCode::SUCCESS)
}

/// Series of each kind in a generated population.
const MADE_UP: usize = 25;

fn histories_of(file: Option<&Path>) -> Result<Vec<Series>, Usage> {
    let Some(file) = file else { return Ok(histories::generated(1, MADE_UP)) };
    let wrong = |problem: String| Usage(format!("--histories {}: {problem}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    histories::read(&text).map_err(|error| wrong(error.to_string()))
}

fn print_table(comparison: &Comparison, args: &SimulateArgs) -> anyhow::Result<()> {
    let policies = if args.policy.is_empty() { &Simulated::ALL[..] } else { &args.policy };
    let all: Vec<(f64, Simulated)> =
        args.budget.iter().flat_map(|budget| policies.iter().map(move |policy| (*budget, *policy))).collect();
    let mut progress = Progress::new(all.len());
    let mut rows = Vec::new();
    for (budget, policy) in all {
        progress.say(&format!("{policy} at {budget} of newsgator's polls"));
        let row = comparison.row(policy, budget);
        progress.step();
        if args.json {
            progress.clear();
            output::json(&row)?;
        }
        rows.push(row);
    }
    drop(progress);
    if !args.json {
        let cells: Vec<_> = rows.iter().map(cells).collect();
        output::line(&output::table(&HEAD, &cells))?;
    }
    match &args.plot {
        Some(file) => draw(file, &rows, args),
        None => Ok(()),
    }
}

fn draw(file: &Path, rows: &[Row], args: &SimulateArgs) -> anyhow::Result<()> {
    let samples = words::counted(args.seed.0.len() as u64, "sample", "samples");
    let of = if args.histories.is_some() { "posting histories" } else { "made-up posting histories" };
    let title = format!("Mean delay by subscribers: {samples} of {} feeds, {} days of {of}", args.feeds, args.days);
    std::fs::write(file, svg(rows, &title)).with_context(|| format!("{} cannot be written", file.display()))
}

/// MISSED counts what no poll every 15 minutes could have seen, CATCHABLE does not.
const HEAD: [&str; 10] = [
    "POLICY",
    "BUDGET",
    "POLLS/FEED/DAY",
    "MEAN min",
    "P95 min",
    "UNWEIGHTED min",
    "POLLS/ITEM",
    "MISSED %",
    "CATCHABLE %",
    "HOT %",
];

fn cells(Row { policy, budget, figures }: &Row) -> Vec<String> {
    let mut cells = vec![policy.to_string(), budget.to_string()];
    cells.extend([
        format!("{:.2}", figures.polls_per_feed_day),
        format!("{:.1}", figures.weighted_mean_minutes),
        format!("{:.1}", figures.weighted_p95_minutes),
        format!("{:.1}", figures.unweighted_mean_minutes),
        format!("{:.2}", figures.polls_per_item),
        format!("{:.2}", 100.0 * figures.missed_share),
        format!("{:.2}", 100.0 * figures.missed_of_catchable),
        format!("{:.1}", 100.0 * figures.hot_share),
    ]);
    cells
}

fn print_goals(comparison: &Comparison, as_json: bool) -> anyhow::Result<()> {
    let mut progress = Progress::new(Comparison::GOAL_STEPS);
    progress.say("goals");
    let goals = comparison.goals(|| {
        progress.step();
        progress.say("goals");
    });
    drop(progress);
    let table = || output::table(&["RATIO", "MEASURED", "MUST", "GOAL"], &goal_rows(&goals));
    Ok(output::answer(as_json, &goals, table)?)
}

fn print_watched(histories: &[Series], policy: &PolicyConfig, as_json: bool) -> anyhow::Result<ExitCode> {
    let watched = Watched::run(histories, policy);
    if as_json {
        output::json(&watched)?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let rows = [
        row("feeds", watched.feeds.to_string()),
        row("years of all feeds together", format!("{:.0}", watched.feed_years)),
        row("feed.silent per feed and year", format!("{:.3}", watched.silent_per_feed_year)),
        row("most feed.silent of one feed per year", format!("{:.2}", watched.most_silent_per_year)),
        row(
            "longest time until the silence of an ended feed is published, in its longest pauses",
            format!("{:.2}", watched.latest_silence),
        ),
        row("ended feeds of whose silence nothing is published within three years", watched.never_silent.to_string()),
        row(
            "median time until the silence of an ended feed is published, in its usual gaps",
            format!("{:.1}", watched.silence_in_usual_gaps),
        ),
        row(
            "ended feeds whose silence is published within three usual gaps",
            watched.silent_within_three_usual_gaps.to_string(),
        ),
        row("bursts of 50 posts, with documents of 20 entries", watched.bursts.to_string()),
        row("polls that found entries pushed out of the document", watched.losses.to_string()),
        row("of these, continuing a published overflow", watched.continued.to_string()),
        row("of these, without feed.overflowed", watched.unnamed.to_string()),
        row("feed.overflowed without a loss", watched.false_overflows.to_string()),
        row("feeds with an archive", watched.archived.to_string()),
        row("entries lost with an archive", watched.lost_with_archive.to_string()),
        row("pages read", watched.pages.to_string()),
        row("entries lost without an archive", watched.lost.to_string()),
        row("feeds that lost entries", watched.feeds_that_lost.to_string()),
    ];
    output::line(&output::table(&["WHAT", "COUNT"], &rows))?;
    Ok(ExitCode::SUCCESS)
}

fn goal_rows(goals: &Goals) -> Vec<Vec<String>> {
    let row = |name: &str, measured: f64, must: &str, goal: &str| {
        vec![name.to_owned(), format!("{measured:.3}"), must.to_owned(), goal.to_owned()]
    };
    vec![
        row("G1 weighted mean at newsgator's polls, of newsgator's", goals.mean_at_equal_polls, "0.25", "0.21"),
        row("G2 polls at newsgator's weighted mean, of newsgator's", goals.polls_at_equal_mean, "0.21", "0.18"),
        row("G3 mean at a quarter, of newsblur's or commafeed's", goals.mean_at_a_quarter, "0.40", "0.38"),
        row("missed items, of newsgator's", goals.missed, "0.50", ""),
        row("the same, of those a poll every 15 minutes would see", goals.missed_of_catchable, "", ""),
        row("polls in hot minutes, % of all", 100.0 * goals.hot_share, "0.20", ""),
        row("polls under the floor of 15 minutes", goals.polls_under_floor, "0", ""),
        row("polls per feed and day at policy.price", goals.polls_per_feed_day, "", ""),
    ]
}
