//! A million feeds on one machine: what they cost in time and memory before a single one is polled.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use common::time::{Clock, SystemClock, Timestamp};
use common::url::FeedId;
use scheduler::schedule::memory::MemorySchedule;
use scheduler::schedule::{Band, Schedule, Slot};
use store::sqlite::SqliteStore;

use crate::feeds::BenchFeeds;
use crate::{BATCH, apply, path, rate};
use store::{Polls, Upkeep};

const FEEDS: usize = 1_000_000;
/// Claims, and reports, that are timed.
const CLAIMS: usize = 500_000;
const REPORTS: usize = 100_000;
const LEASE: Duration = Duration::from_secs(120);
const PATIENCE: Duration = Duration::from_secs(120);

/// Lists, and every page: what a person waits for.
const TARGETS: [&str; 11] = [
    "/api/v1/feeds",
    "/api/v1/feeds?q=feed-777777",
    "/api/v1/feeds?q=nowhere",
    "/api/v1/hosts",
    "/api/v1/stats",
    "/",
    "/feeds",
    "/feeds?q=feed-777777",
    "/feeds/777777",
    "/status",
    "/metrics",
];
const ASKED: usize = 25;

pub(crate) async fn million(folder: &Path, program: &Path) -> anyhow::Result<()> {
    schedule().await?;
    store(folder).await?;
    process(folder, program)
}

/// T13, and the claim rate beside a bare heap.
async fn schedule() -> anyhow::Result<()> {
    let now = SystemClock.now();
    let slots: Vec<Slot> = (0..FEEDS as i64)
        .map(|number| Slot { feed: FeedId(number), due_at: due(now, number), band: Band::Steady })
        .collect();
    let before = resident(std::process::id())?;
    let schedule = MemorySchedule::default();
    let begun = Instant::now();
    for slots in slots.chunks(1_000) {
        schedule.put(slots, now).await?;
    }
    println!("schedule: filled in {:.2} s", begun.elapsed().as_secs_f64());
    let bytes = resident(std::process::id())?.saturating_sub(before);
    println!("T13 schedule, bytes a feed: {:.0} (floor 32, stretch 12)", bytes as f64 / FEEDS as f64);

    let begun = Instant::now();
    for _ in 0..CLAIMS / BATCH {
        let claims = schedule.claim_due(now, BATCH, LEASE).await?;
        ensure!(claims.len() == BATCH, "too few feeds were due");
        let later = claims.iter().map(|claim| Slot {
            feed: claim.feed,
            due_at: now.after(Duration::from_secs(3_600)),
            band: Band::Steady,
        });
        schedule.put(&later.collect::<Vec<_>>(), now).await?;
    }
    let ours = rate(CLAIMS, begun);
    let mut heap: BinaryHeap<Reverse<(Timestamp, FeedId)>> =
        slots.iter().map(|slot| Reverse((slot.due_at, slot.feed))).collect();
    let begun = Instant::now();
    for _ in 0..CLAIMS {
        let Some(Reverse((_, feed))) = heap.pop() else { break };
        heap.push(Reverse((now.after(Duration::from_secs(3_600)), feed)));
    }
    let bare = rate(CLAIMS, begun);
    println!("schedule: {ours:.0} claims and puts/s by {BATCH}; bare heap {bare:.0} pops and pushes/s");
    Ok(())
}

/// Returns all of them due in the last hour, in no order.
fn due(now: Timestamp, number: i64) -> Timestamp {
    Timestamp::from_millis(now.millis() - 1 - number * 61_803 % 3_600_000)
}

async fn store(folder: &Path) -> anyhow::Result<()> {
    let mut fleet = BenchFeeds::new(FEEDS)?;
    let file = folder.join("feedfleet.db");
    let store = SqliteStore::open(path(&file)?).await?;
    let begun = Instant::now();
    fleet.add(&store).await?;
    println!("store: {FEEDS} feeds added in {:.1} s", begun.elapsed().as_secs_f64());

    let verdicts = fleet.unchanged_answers();
    let verdicts = &verdicts[..REPORTS];
    let begun = Instant::now();
    for batch in verdicts.chunks(BATCH) {
        let ids: Vec<FeedId> = batch.iter().map(|verdict| verdict.report.feed).collect();
        ensure!(store.jobs_for(&ids).await?.len() == BATCH, "a feed is missing");
    }
    println!("store: what jobs need, {:.0} rows/s by {BATCH}", rate(REPORTS, begun));
    let begun = Instant::now();
    for batch in verdicts.chunks(BATCH) {
        apply(&store, batch).await?;
    }
    println!("store: {:.0} reports of 304 applied/s by {BATCH}", rate(REPORTS, begun));
    store.close().await;
    println!("store: {:.0} bytes of file a feed", std::fs::metadata(&file)?.len() as f64 / FEEDS as f64);
    Ok(())
}

/// Starts the program over that store. Nothing is due, so that only the number of feeds makes a difference.
fn process(folder: &Path, program: &Path) -> anyhow::Result<()> {
    // Free a moment ago; if another process takes it meanwhile, the program does not start.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let begun = Instant::now();
    let mut command = Command::new(program);
    command.args(["run", "--listen", &address.to_string(), "--data"]).arg(folder);
    let child = Running(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    while !get(address, "/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
        ensure!(begun.elapsed() < PATIENCE, "{} does not become ready", program.display());
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("feedfleet run: ready after {:.2} s", begun.elapsed().as_secs_f64());
    let filled = settled(&child)?.duration_since(begun);
    println!("feedfleet run: memory grows no more after {:.1} s", filled.as_secs_f64());
    println!("feedfleet run: {:.0} MiB resident", resident(child.0.id())? as f64 / f64::from(1 << 20));

    for target in TARGETS {
        let times = (0..ASKED).map(|_| {
            let begun = Instant::now();
            let answer = get(address, target)?;
            ensure!(answer.starts_with("HTTP/1.1 200"), "GET {target}: {answer}");
            Ok(begun.elapsed())
        });
        let times: Vec<Duration> = times.collect::<anyhow::Result<_>>()?;
        let longest = times.iter().max().copied().unwrap_or_default();
        println!("GET {target}: {:.1} ms, at most {:.1} ms", median(times), 1e3 * longest.as_secs_f64());
    }
    let times = (0..5).map(|_| {
        let begun = Instant::now();
        let mut command = Command::new(program);
        command.args(["feed", "list"]).env("FEEDFLEET_SERVER", format!("http://{address}"));
        let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        ensure!(ended.success(), "feedfleet feed list failed");
        Ok(begun.elapsed())
    });
    println!("feedfleet feed list: {:.1} ms", median(times.collect::<anyhow::Result<_>>()?));
    Ok(())
}

/// Waits until the program's memory has not grown for two seconds, and returns when it last did: the schedule is built
/// while the API already answers.
fn settled(child: &Running) -> anyhow::Result<Instant> {
    let begun = Instant::now();
    let (mut most, mut grown) = (0, Instant::now());
    while grown.elapsed() < Duration::from_secs(2) && begun.elapsed() < PATIENCE {
        let now = resident(child.0.id())?;
        if now > most + most / 100 {
            (most, grown) = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(grown)
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(f64::NAN, Duration::as_secs_f64) * 1e3
}

fn get(address: SocketAddr, target: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Resident bytes of a process, by the kernel.
fn resident(process: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}

/// A process, killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Already dead is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
