//! Compares 304 polls of the embedded fleet, of a cluster, or of the worker alone with the bare clients that they are
//! built on, with the same feeds of the same origin in the same run. Sides alternate; the result is medians of ratios,
//! not single numbers.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use load_tests::tls::{Authority, secure_hosts};
use load_tests::{Feed, Origin, Script, loopback};

use crate::bare::Client;
use crate::cluster::Cluster;
use crate::measure::{Figures, Folder, Running, measure, median};
use crate::settings::config;

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// What stands beside the bare parts.
    #[arg(long, value_enum, default_value_t = Part::Embedded)]
    part: Part,
    /// The program of that part; built by dev/bench.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// The same part of another revision, measured in the same rounds.
    #[arg(long, value_name = "PATH")]
    against: Option<PathBuf>,
    /// How many feeds, each on a separate host.
    #[arg(long, default_value_t = 4000)]
    feeds: u16,
    /// How long each measurement takes.
    #[arg(long, default_value = "5s")]
    time: humantime::Duration,
    /// How many rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Fetches at once, on all sides but the cluster's, whose workers have 256 slots each.
    #[arg(long, default_value_t = 128)]
    concurrency: usize,
    /// Every poll opens a connection, because the origin closes each.
    #[arg(long)]
    new_connections: bool,
    /// Every poll opens a TLS connection: by a full handshake, or by resuming a session where the client can.
    #[arg(long, value_enum, value_name = "HANDSHAKE")]
    tls: Option<Handshake>,
}

/// What a TLS connection costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Handshake {
    /// The servers know no sessions.
    Full,
    /// They do.
    Resumed,
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

/// The program that polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Ours,
    /// Ours of another revision.
    Theirs,
    Bare(Client),
}

/// A promise about a part, as a number computed from the rounds.
struct Target {
    name: &'static str,
    of: fn(&Round) -> f64,
    floor: f64,
    stretch: f64,
}

/// The sides' figures in order: ours, bare reqwest, for the worker bare hyper, and last the other revision's.
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

    /// Returns the sides that support the origin's protocol.
    fn sides_for(self, options: &Options) -> Vec<Side> {
        let can = |side: &Side| options.tls.is_none() || *side != Side::Bare(Client::Hyper);
        self.sides().iter().copied().filter(can).chain(options.against.is_some().then_some(Side::Theirs)).collect()
    }

    fn targets(self, options: &Options) -> Vec<Target> {
        let over_reqwest = |round: &Round| round[0].polls_per_second / round[1].polls_per_second;
        let rate = |round: &Round| round[0].polls_per_second;
        let target = |name, of, floor, stretch| Target { name, of, floor, stretch };
        let per_core = |round: &Round| round[1].cpu_micros_per_poll / round[0].cpu_micros_per_poll;
        match (self, options.tls) {
            (Part::Worker, Some(Handshake::Full)) => {
                return vec![target("T4 polls per core over bare reqwest's", per_core, 0.8, 1.6)];
            }
            (Part::Cluster, Some(Handshake::Full)) => {
                let headroom = |round: &Round| round[0].polls_per_second / MIX;
                return vec![target("T14 polls/s over the mix's 1,106", headroom, 1.5, 3.0)];
            }
            (_, Some(_)) => return Vec::new(),
            (_, None) => {}
        }
        match (self, options.new_connections) {
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

/// The polls per second of 2.5 million feeds: 1 % of them each minute, 10 % every 15 minutes, the rest every 90
/// minutes.
const MIX: f64 = 1106.0;

fn cpu_over_hyper(round: &Round) -> f64 {
    round[0].cpu_micros_per_poll / round[2].cpu_micros_per_poll
}

impl Side {
    fn name(self, part: Part) -> &'static str {
        match (self, part) {
            (Side::Ours, Part::Embedded) => "feedfleet",
            (Side::Ours, Part::Cluster) => "cluster",
            (Side::Ours, Part::Worker) => "worker",
            (Side::Theirs, _) => "other revision",
            (Side::Bare(Client::Reqwest), _) => "bare reqwest",
            (Side::Bare(Client::Hyper), _) => "bare hyper",
        }
    }
}

/// Runs the benchmark and prints a table.
pub(crate) async fn bench(options: &Options) -> anyhow::Result<()> {
    let part = options.part;
    let found = |binary: &Path| {
        ensure!(binary.is_file(), "{} is missing: dev/bench builds it", binary.display());
        Ok(std::fs::canonicalize(binary)?)
    };
    let binary = found(options.binary.as_deref().unwrap_or(Path::new(part.binary())))?;
    let other = options.against.as_deref().map(found).transpose()?;
    let folder = Folder::new()?;
    let origin = listen(options, &folder).await.context("cannot listen on an address for each host")?;
    let urls = script(&origin, options);
    std::fs::write(folder.0.join("urls"), urls.join("\n"))?;

    let sides = part.sides_for(options);
    let heads: String = sides.iter().map(|side| format!("  {:>22}", side.name(part))).collect();
    println!("{:>5}{heads}", "round");
    let mut rounds: Vec<Round> = Vec::new();
    for number in 1..=options.rounds {
        let mut round = Round::new();
        for side in &sides {
            let start = |commands: &mut [Command]| {
                commands.iter_mut().for_each(|command| trust(command, options, &folder));
                Running::start(commands, &origin)
            };
            let binary = if *side == Side::Theirs { other.as_deref().unwrap_or(&binary) } else { &binary };
            let side = match (side, part) {
                (Side::Bare(client), _) => start(&mut [bare(*client, options, &folder.0)?])?,
                (_, Part::Embedded) => start(&mut [fleet(binary, options, &folder.0, &urls)?])?,
                (_, Part::Worker) => start(&mut [polls(binary, options, &folder.0)])?,
                (_, Part::Cluster) => {
                    let cluster = Cluster::new(binary, &folder.0, 2 * number + usize::from(*side == Side::Theirs))?;
                    let side = start(&mut cluster.roles())?;
                    cluster.add(&urls).await?;
                    side
                }
            };
            round.push(measure(&side, &origin, usize::from(options.feeds), options.time.into()).await?);
        }
        print_row(&number.to_string(), &round);
        rounds.push(round);
    }
    let middle = |side: usize, of: fn(&Figures) -> f64| median(rounds.iter().map(|round| of(&round[side])));
    let medians = (0..sides.len()).map(|side| Figures {
        polls_per_second: middle(side, |figures| figures.polls_per_second),
        cpu_micros_per_poll: middle(side, |figures| figures.cpu_micros_per_poll),
    });
    print_row("med.", &medians.collect());
    for Target { name, of, floor, stretch } in part.targets(options) {
        println!("{name}: {:.2} (floor {floor}, stretch {stretch})", median(rounds.iter().map(of)));
    }
    if options.against.is_some() {
        let last = sides.len() - 1;
        let ratio = |of: fn(&Figures) -> f64| median(rounds.iter().map(|round| of(&round[0]) / of(&round[last])));
        let (rate, cpu) = (ratio(|figures| figures.polls_per_second), ratio(|figures| figures.cpu_micros_per_poll));
        println!("over the other revision's: polls/s {rate:.3}, CPU a poll {cpu:.3}");
    }
    Ok(())
}

async fn listen(options: &Options, folder: &Folder) -> anyhow::Result<Origin> {
    let addresses = loopback(options.feeds, 0);
    let Some(handshake) = options.tls else { return Ok(Origin::listen(&addresses).await?) };
    let root = Authority::new("Bench root")?;
    std::fs::write(folder.0.join("root.pem"), root.pem())?;
    Ok(Origin::listen_behind(secure_hosts(&root, &addresses, handshake == Handshake::Full)?).await?)
}

/// Makes a side trust the origin's certificates.
fn trust(command: &mut Command, options: &Options, folder: &Folder) {
    if options.tls.is_some() {
        command.env("SSL_CERT_FILE", folder.0.join("root.pem"));
    }
}

/// Sets a feed on each of the origin's hosts; returns their URLs.
fn script(origin: &Origin, options: &Options) -> Vec<String> {
    let urls = (0..usize::from(options.feeds)).map(|host| {
        let path = format!("/{host}");
        let script = Script::feed(Feed::rss());
        origin.set(
            &path,
            if options.new_connections || options.tls.is_some() {
                script.header("Connection", "close")
            } else {
                script
            },
        );
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
