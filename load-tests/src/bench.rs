//! The embedded fleet's speed beside the bare part that it uses: 304 polls a second and CPU a poll, against a reqwest loop
//! over the same feeds of the same origin in the same run. Sides alternate; medians count, single numbers do not.
//!
//! Both sides are processes of their own, so that their CPU can be told from the origin's, which shares the machine.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use load_tests::{Feed, Origin, Script, loopback};

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The program.
    #[arg(long, default_value = "target/release/feedfleet")]
    binary: PathBuf,
    /// How many feeds, each on a host of its own.
    #[arg(long, default_value_t = 4000)]
    feeds: u16,
    /// How long each measurement takes.
    #[arg(long, default_value = "5s")]
    time: humantime::Duration,
    /// How many rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Fetches at once, on both sides.
    #[arg(long, default_value_t = 128)]
    concurrency: usize,
    /// Every poll opens a connection, because the origin closes each.
    #[arg(long)]
    new_connections: bool,
}

/// One side in one round.
#[derive(Clone, Copy, Debug)]
struct Figures {
    polls_per_second: f64,
    cpu_micros_per_poll: f64,
}

/// Time for a side to reach its speed before it is measured.
const WARM_UP: Duration = Duration::from_secs(3);
/// Unit of the times in `/proc/PID/stat` on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Measures and prints a table.
pub(crate) async fn bench(options: &Options) -> anyhow::Result<()> {
    ensure!(options.binary.is_file(), "{} is missing: cargo build --release", options.binary.display());
    let origin = Origin::listen(&loopback(options.feeds, 0)).await.context("cannot listen on so many addresses")?;
    let mut urls = Vec::new();
    for host in 0..usize::from(options.feeds) {
        let path = format!("/{host}");
        let script = Script::feed(Feed::rss());
        origin.set(&path, if options.new_connections { script.header("Connection", "close") } else { script });
        urls.push(origin.url_on(host, &path));
    }
    let folder = Folder::new()?;
    std::fs::write(folder.0.join("urls"), urls.join("\n"))?;
    println!("{:>5}  {:>22}  {:>22}  {:>7}", "round", "feedfleet", "bare reqwest", "ratio");
    let (mut fleet, mut bare) = (Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        let ours = measure_fleet(options, &folder.0, &urls, &origin).await?;
        let theirs = measure_bare(options, &folder.0, &origin).await?;
        print_row(&round.to_string(), ours, theirs);
        fleet.push(ours);
        bare.push(theirs);
    }
    print_row("med.", median(&fleet), median(&bare));
    Ok(())
}

fn print_row(name: &str, ours: Figures, theirs: Figures) {
    let side =
        |figures: Figures| format!("{:6.0}/s {:6.1} us CPU", figures.polls_per_second, figures.cpu_micros_per_poll);
    let ratio = ours.polls_per_second / theirs.polls_per_second;
    println!("{name:>5}  {:>22}  {:>22}  {ratio:7.2}", side(ours), side(theirs));
}

fn median(figures: &[Figures]) -> Figures {
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Figures {
        polls_per_second: middle(figures.iter().map(|round| round.polls_per_second).collect()),
        cpu_micros_per_poll: middle(figures.iter().map(|round| round.cpu_micros_per_poll).collect()),
    }
}

async fn measure_fleet(options: &Options, folder: &Path, urls: &[String], origin: &Origin) -> anyhow::Result<Figures> {
    let data = folder.join("data");
    let _ = std::fs::remove_dir_all(&data);
    let config = format!(
        "[policy]\nmode = \"classes\"\nmin_interval = \"1ms\"\nsalt = 0.0\nhot_minutes = false\nno_validator_factor = 1.0\n\
         import_spread = \"0s\"\n[policy.category.d]\ninterval = \"1ms\"\ninterval_max = \"1ms\"\n\
         [fetch]\nallow_networks = [\"127.0.0.0/8\"]\nallow_ports = [\"1-65535\"]\n\
         [host]\ngap = \"0s\"\n[worker]\nconcurrency = {}\n[log]\nlevel = \"error\"\n",
        options.concurrency
    );
    std::fs::write(folder.join("config.toml"), config)?;
    let outlines: String = urls.iter().map(|url| format!("<outline xmlUrl=\"{url}\"/>")).collect();
    std::fs::write(folder.join("feeds.opml"), format!("<opml><body>{outlines}</body></opml>"))?;
    let mut command = Command::new(std::fs::canonicalize(&options.binary)?);
    command.args(["run", "feeds.opml", "--data", "data", "--config", "config.toml", "--listen", "127.0.0.1:0"]);
    measure(command.current_dir(folder), options, origin).await
}

async fn measure_bare(options: &Options, folder: &Path, origin: &Origin) -> anyhow::Result<Figures> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("bare").arg("--urls").arg(folder.join("urls"));
    measure(command.arg("--concurrency").arg(options.concurrency.to_string()), options, origin).await
}

/// Runs a side, and counts by the origin's log what it asked and by the kernel's what it cost.
async fn measure(command: &mut Command, options: &Options, origin: &Origin) -> anyhow::Result<Figures> {
    let child = Running(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    let first = origin.request_count();
    // The first requests bring the feeds; only what follows is a 304.
    let patience = Instant::now() + Duration::from_secs(60);
    while origin.request_count() < first + usize::from(options.feeds) {
        ensure!(Instant::now() < patience, "a side did not start to poll");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(WARM_UP).await;
    let (polls, cpu, at) = (origin.request_count(), child.cpu()?, Instant::now());
    tokio::time::sleep(options.time.into()).await;
    let (polls, cpu, time) = (origin.request_count() - polls, child.cpu()? - cpu, at.elapsed());
    if polls == 0 {
        bail!("a side made no polls");
    }
    let polls = polls as f64;
    Ok(Figures { polls_per_second: polls / time.as_secs_f64(), cpu_micros_per_poll: cpu.as_secs_f64() * 1e6 / polls })
}

/// A process, killed when dropped.
struct Running(Child);

impl Running {
    /// User and system time so far.
    fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).context("a side died")?;
        // Fields 14 and 15; the second field, the name, is in parentheses and may hold spaces.
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: f64 =
            after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
        Ok(Duration::from_secs_f64(ticks / TICKS_PER_SECOND))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Already dead is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder for one benchmark, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("feedfleet-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
