//! The store's speed. `store_bench` applies reports of 304 beside a bare SQLite loop that writes the same columns;
//! `store_bench million FEEDFLEET` fills a store with a million feeds and looks how the program bears it.
//!
//! Called by dev/bench.

mod bare;
mod feeds;
mod million;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::ensure;
use common::time::{Clock, SystemClock};
use scheduler::store::sqlite::SqliteStore;
use scheduler::store::{Applied, Store, Verdict};

use crate::bare::Bare;
use crate::feeds::Fleet;

/// Reports in a transaction.
pub(crate) const BATCH: usize = 500;
const FEEDS: usize = 100_000;
const ROUNDS: usize = 5;
const SKEW: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = Folder::new()?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => beside_bare(&folder.0).await,
        ["million", program] => million::million(&folder.0, Path::new(program)).await,
        _ => anyhow::bail!("usage: store_bench [million FEEDFLEET]"),
    }
}

/// T8: the same database twice, sides alternating over the same feeds in the same order.
async fn beside_bare(folder: &Path) -> anyhow::Result<()> {
    let (ours, theirs) = (folder.join("ours.db"), folder.join("bare.db"));
    let mut fleet = Fleet::new(FEEDS)?;
    let store = SqliteStore::open(path(&ours)?).await?;
    fleet.add(&store).await?;
    for verdicts in fleet.first_answers().chunks(BATCH) {
        apply(&store, verdicts).await?;
    }
    store.close().await;
    // Lets go of the lock.
    drop(store);
    bare::fill_histories(&ours)?;
    std::fs::copy(&ours, &theirs)?;
    let store = SqliteStore::open(path(&ours)?).await?;
    let mut bare = Bare::open(&theirs)?;

    println!("{FEEDS} feeds, reports of 304 in transactions of {BATCH}, rows/s");
    println!("{:>5}  {:>10}  {:>12}  {:>5}", "round", "feedfleet", "bare SQLite", "ratio");
    let mut ratios = Vec::new();
    // The first round is the warm-up of both caches.
    for round in 0..=ROUNDS {
        let verdicts = fleet.unchanged_answers();
        let rows: Vec<_> = verdicts.iter().map(bare::row).collect::<Result<_, _>>()?;
        let begun = Instant::now();
        for batch in verdicts.chunks(BATCH) {
            apply(&store, batch).await?;
        }
        let ours = rate(FEEDS, begun);
        let begun = Instant::now();
        for batch in rows.chunks(BATCH) {
            bare.update(batch)?;
        }
        let theirs = rate(FEEDS, begun);
        if round > 0 {
            println!("{round:>5}  {ours:>10.0}  {theirs:>12.0}  {:>5.2}", ours / theirs);
            ratios.push(ours / theirs);
        }
    }
    ratios.sort_by(f64::total_cmp);
    println!("T8 rows/s over bare SQLite's: {:.2} (floor 0.5, stretch 0.8)", ratios[ROUNDS / 2]);
    store.close().await;
    Ok(())
}

/// Applies a batch, none of which may be stale.
pub(crate) async fn apply(store: &SqliteStore, verdicts: &[Verdict]) -> anyhow::Result<()> {
    let answers = store.apply(verdicts, SKEW, SystemClock.now()).await?;
    ensure!(!answers.contains(&Applied::Stale), "a report was stale");
    Ok(())
}

pub(crate) fn rate(count: usize, begun: Instant) -> f64 {
    count as f64 / begun.elapsed().as_secs_f64()
}

pub(crate) fn path(path: &Path) -> anyhow::Result<&str> {
    path.to_str().ok_or_else(|| anyhow::anyhow!("the folder for temporary files has no plain name"))
}

/// A folder for one benchmark, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("feedfleet-store-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
