//! The sides of a benchmark: separate processes, so that their CPU time is separate from the origin's, which shares the
//! machine. The origin counts requests, the kernel accounts for their cost.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use load_tests::{Origin, usage};

/// The figures of one side in one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) polls_per_second: f64,
    pub(crate) cpu_micros_per_poll: f64,
}

/// How long a side may take to reach its speed before it is measured.
const WARM_UP: Duration = Duration::from_secs(3);
/// How long a side may take to poll each feed once.
const START: Duration = Duration::from_secs(60);

/// Measures a side that polls `feeds` feeds of the origin, for `time`.
pub(crate) async fn measure(side: &Running, origin: &Origin, feeds: usize, time: Duration) -> anyhow::Result<Figures> {
    // The first requests return the feeds; only later ones a 304.
    let patience = Instant::now() + START;
    while origin.request_count() < side.first + feeds {
        let asked = origin.request_count() - side.first;
        ensure!(Instant::now() < patience, "{} asked for {asked} of {feeds} feeds in {START:?}", side.name);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(WARM_UP).await;
    let (polls, cpu, at) = (origin.request_count(), side.cpu()?, Instant::now());
    tokio::time::sleep(time).await;
    let (polls, cpu, time) = (origin.request_count() - polls, side.cpu()? - cpu, at.elapsed());
    ensure!(polls > 0, "{} made no polls", side.name);
    let polls = polls as f64;
    Ok(Figures { polls_per_second: polls / time.as_secs_f64(), cpu_micros_per_poll: cpu.as_secs_f64() * 1e6 / polls })
}

/// Returns the median; of an even number of values the upper one.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The processes of a side, killed when dropped.
pub(crate) struct Running {
    name: String,
    children: Vec<Child>,
    /// The origin's number of requests before its start.
    first: usize,
}

impl Running {
    pub(crate) fn start(commands: &mut [Command], origin: &Origin) -> anyhow::Result<Self> {
        let mut side = Running { name: String::new(), children: Vec::new(), first: origin.request_count() };
        for command in commands {
            side.name = command.get_program().to_string_lossy().into_owned();
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            side.children.push(child.with_context(|| format!("{} did not start", side.name))?);
        }
        Ok(side)
    }

    /// Returns the user and system time so far.
    fn cpu(&self) -> anyhow::Result<Duration> {
        self.children.iter().map(|child| usage::cpu(child.id()).context("a side died")).sum()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may already have exited.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A folder for one benchmark, removed when dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> anyhow::Result<Self> {
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
