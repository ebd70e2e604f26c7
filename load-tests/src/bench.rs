//! 304 polls of the embedded fleet, of a cluster, or of the worker alone, beside the bare parts that they are made of, over the same
//! feeds of the same origin in the same run. Sides alternate; medians of ratios count, single numbers do not.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use load_tests::{Feed, Origin, Script, loopback};

use crate::bare::Client;
use crate::cluster::Cluster;
use crate::measure::{Figures, Folder, Running, measure, median};

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// What stands beside the bare parts.
    #[arg(long, value_enum, default_value_t = Part::Embedded)]
    part: Part,
    /// The program of that part; built by dev/bench.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// How many feeds, each on a host of its own.
    #[arg(long, default_value_t = 4000)]
    feeds: u16,
    /// How long each measurement takes.
    #[arg(long, default_value = "5s")]
    time: humantime::Duration,
    /// How many rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Fetches at once, on all sides but the cluster's, whose workers have 256 places each.
    #[arg(long, default_value_t = 128)]
    concurrency: usize,
    /// Every poll opens a connection, because the origin closes each.
    #[arg(long)]
    new_connections: bool,
}

/// A part of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// `feedfleet run`: scheduler, store, queues and worker in one process.
    Embedded,
    /// `feedfleet scheduler` and two of `feedfleet worker` over the servers that FEEDFLEET_TEST_* name.
    Cluster,
    /// The worker's loop alone: gate, fetch and report, neither store nor queue.
    Worker,
}

/// Who polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Ours,
    Bare(Client),
}

/// What is promised of a part, as a number that the rounds give.
struct Target {
    name: &'static str,
    of: fn(&Round) -> f64,
    floor: f64,
    stretch: f64,
}

/// The sides' figures in their order: ours, bare reqwest, and for the worker bare hyper.
type Round = Vec<Figures>;

impl Part {
    fn binary(self) -> &'static str {
        match self {
            Part::Embedded | Part::Cluster => "target/release/feedfleet",
            Part::Worker => "target/release/examples/polls",
        }
    }

    fn sides(self) -> &'static [Side] {
        match self {
            Part::Embedded | Part::Cluster => &[Side::Ours, Side::Bare(Client::Reqwest)],
            Part::Worker => &[Side::Ours, Side::Bare(Client::Reqwest), Side::Bare(Client::Hyper)],
        }
    }

    fn targets(self, new_connections: bool) -> Vec<Target> {
        let over_reqwest = |round: &Round| round[0].polls_per_second / round[1].polls_per_second;
        let rate = |round: &Round| round[0].polls_per_second;
        let target = |name, of, floor, stretch| Target { name, of, floor, stretch };
        match (self, new_connections) {
            (Part::Embedded, false) => vec![target("T12 polls/s", rate, 10_000.0, 20_000.0)],
            (Part::Embedded, true) => vec![target("T12 polls/s", rate, 5_000.0, 9_000.0)],
            (Part::Cluster, false) => vec![target("T10 polls/s", rate, 4_000.0, 10_000.0)],
            (Part::Cluster, true) => vec![target("T11 polls/s", rate, 2_500.0, 6_000.0)],
            (Part::Worker, false) => vec![
                target("T1 CPU a poll over bare hyper's", cpu_over_hyper, 4.0, 2.5),
                target("T2 polls/s over bare reqwest's", over_reqwest, 0.6, 0.8),
            ],
            (Part::Worker, true) => vec![target("T3 polls/s over bare reqwest's", over_reqwest, 0.8, 0.9)],
        }
    }
}

fn cpu_over_hyper(round: &Round) -> f64 {
    round[0].cpu_micros_per_poll / round[2].cpu_micros_per_poll
}

impl Side {
    fn name(self, part: Part) -> &'static str {
        match (self, part) {
            (Side::Ours, Part::Embedded) => "feedfleet",
            (Side::Ours, Part::Cluster) => "cluster",
            (Side::Ours, Part::Worker) => "worker",
            (Side::Bare(Client::Reqwest), _) => "bare reqwest",
            (Side::Bare(Client::Hyper), _) => "bare hyper",
        }
    }
}

/// Measures and prints a table.
pub(crate) async fn bench(options: &Options) -> anyhow::Result<()> {
    let part = options.part;
    let binary = options.binary.clone().unwrap_or_else(|| part.binary().into());
    ensure!(binary.is_file(), "{} is missing: dev/bench builds it", binary.display());
    let binary = std::fs::canonicalize(binary)?;
    let origin = Origin::listen(&loopback(options.feeds, 0)).await.context("cannot listen on so many addresses")?;
    let urls = script(&origin, options);
    let folder = Folder::new()?;
    std::fs::write(folder.0.join("urls"), urls.join("\n"))?;

    let heads: String = part.sides().iter().map(|side| format!("  {:>22}", side.name(part))).collect();
    println!("{:>5}{heads}", "round");
    let mut rounds: Vec<Round> = Vec::new();
    for number in 1..=options.rounds {
        let mut round = Round::new();
        for side in part.sides() {
            let start = |commands: &mut [Command]| Running::start(commands, &origin);
            let side = match (side, part) {
                (Side::Ours, Part::Embedded) => start(&mut [fleet(&binary, options, &folder.0, &urls)?])?,
                (Side::Ours, Part::Worker) => start(&mut [polls(&binary, options, &folder.0)])?,
                (Side::Ours, Part::Cluster) => {
                    let cluster = Cluster::new(&binary, &folder.0, number)?;
                    let side = start(&mut cluster.roles())?;
                    cluster.add(&urls).await?;
                    side
                }
                (Side::Bare(client), _) => start(&mut [bare(*client, options, &folder.0)?])?,
            };
            round.push(measure(&side, &origin, usize::from(options.feeds), options.time.into()).await?);
        }
        print_row(&number.to_string(), &round);
        rounds.push(round);
    }
    let middle = |side: usize, of: fn(&Figures) -> f64| median(rounds.iter().map(|round| of(&round[side])));
    let medians = (0..part.sides().len()).map(|side| Figures {
        polls_per_second: middle(side, |figures| figures.polls_per_second),
        cpu_micros_per_poll: middle(side, |figures| figures.cpu_micros_per_poll),
    });
    print_row("med.", &medians.collect());
    for Target { name, of, floor, stretch } in part.targets(options.new_connections) {
        println!("{name}: {:.2} (floor {floor}, stretch {stretch})", median(rounds.iter().map(of)));
    }
    Ok(())
}

/// A feed on each of the origin's hosts.
fn script(origin: &Origin, options: &Options) -> Vec<String> {
    let urls = (0..usize::from(options.feeds)).map(|host| {
        let path = format!("/{host}");
        let script = Script::feed(Feed::rss());
        origin.set(&path, if options.new_connections { script.header("Connection", "close") } else { script });
        origin.url_on(host, &path)
    });
    urls.collect()
}

fn print_row(name: &str, round: &Round) {
    let cells: String = round
        .iter()
        .map(|side| {
            format!("  {:>22}", format!("{:.0}/s {:6.1} us CPU", side.polls_per_second, side.cpu_micros_per_poll))
        })
        .collect();
    println!("{name:>5}{cells}");
}

fn fleet(binary: &Path, options: &Options, folder: &Path, urls: &[String]) -> anyhow::Result<Command> {
    let _ = std::fs::remove_dir_all(folder.join("data"));
    std::fs::write(folder.join("config.toml"), config(options.concurrency))?;
    let outlines: String = urls.iter().map(|url| format!("<outline xmlUrl=\"{url}\"/>")).collect();
    std::fs::write(folder.join("feeds.opml"), format!("<opml><body>{outlines}</body></opml>"))?;
    let mut command = Command::new(binary);
    command.args(["run", "feeds.opml", "--data", "data", "--config", "config.toml", "--listen", "127.0.0.1:0"]);
    command.current_dir(folder);
    Ok(command)
}

/// Each feed is due again as soon as it was polled.
pub(crate) fn config(concurrency: usize) -> String {
    format!(
        "[policy]\nmode = \"classes\"\nmin_interval = \"1ms\"\nsalt = 0.0\nhot_minutes = false\nno_validator_factor = 1.0\n\
         import_spread = \"0s\"\n[policy.category.d]\ninterval = \"1ms\"\ninterval_max = \"1ms\"\n\
         [fetch]\nallow_networks = [\"127.0.0.0/8\"]\nallow_ports = [\"1-65535\"]\n\
         [host]\ngap = \"0s\"\n[worker]\nconcurrency = {concurrency}\n[log]\nlevel = \"error\"\n"
    )
}

fn polls(binary: &Path, options: &Options, folder: &Path) -> Command {
    let mut command = Command::new(binary);
    command.arg(folder.join("urls")).arg(options.concurrency.to_string());
    command
}

fn bare(client: Client, options: &Options, folder: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("bare").arg("--urls").arg(folder.join("urls"));
    command.args(["--client", client.as_str(), "--concurrency", &options.concurrency.to_string()]);
    Ok(command)
}
