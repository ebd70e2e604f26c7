//! The store's speed. `store_bench` applies reports of 304 beside a bare SQLite loop that writes the same columns;
//! `store_bench postgres URL` does it beside a bare loop on that PostgreSQL; `store_bench million FEEDFLEET` fills a
//! store with a million feeds and measures the program over it; `store_bench lists FEEDS [POSTGRES]` times every list
//! and search (`lists-of` on a store that is there), `store_bench writes [POSTGRES]` what their counters and indexes
//! cost. `store_bench fill FEEDS ENTRIES FILE` and `.. fill FEEDS ENTRIES POSTGRES SCHEMA` make a new store for
//! measurements of the pages.
//!
//! Called by dev/bench.

mod bare;
mod console;
mod entries;
mod feeds;
mod lists;
mod million;
mod postgres;
mod writes;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::ensure;
use common::config::ServerConfig;
use common::time::{Clock, SystemClock};
use common::url::FeedId;
use store::postgres::PostgresStore;
use store::sqlite::SqliteStore;
use store::{Applied, Seen, Store, Verdict};

use crate::bare::{Bare, Row};
use crate::feeds::BenchFeeds;
use store::Upkeep;

/// Reports in a transaction.
pub(crate) const BATCH: usize = 500;
const FEEDS: usize = 100_000;
const ROUNDS: usize = 5;
const WARM_UP: usize = 1;
const SKEW: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = Folder::new()?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => beside_sqlite(&folder.0).await,
        ["postgres", url] => postgres::beside_postgres(url).await,
        ["million", program] => million::million(&folder.0, Path::new(program)).await,
        ["lists", feeds] => lists_on_sqlite(&folder.0.join("lists.db"), feeds.parse()?).await,
        ["lists", feeds, url] => lists_on_postgres(url, feeds.parse()?).await,
        ["lists-of", file] => lists::lists(&SqliteStore::open(file).await?).await,
        ["lists-of", url, schema] => lists::lists(&PostgresStore::open(&ServerConfig::at(url), schema).await?).await,
        ["fill", feeds, entries, file] => {
            let amount = entries::Amount::read(feeds, entries)?;
            SqliteStore::open(file).await?.close().await;
            amount.fill_sqlite(file).await?;
            let store = SqliteStore::open(file).await?;
            console::fill(&store, amount.last_event()).await?;
            store.close().await;
            Ok(())
        }
        ["fill", feeds, entries, url, schema] => {
            let amount = entries::Amount::read(feeds, entries)?;
            PostgresStore::open(&ServerConfig::at(url), schema).await?.close().await;
            amount.fill_postgres(url, schema).await?;
            let store = PostgresStore::open(&ServerConfig::at(url), schema).await?;
            console::fill(&store, amount.last_event()).await?;
            store.close().await;
            Ok(())
        }
        ["writes"] => writes::on_sqlite(&folder.0).await,
        ["writes", url] => writes::on_postgres(url).await,
        _ => anyhow::bail!(
            "usage: store_bench [postgres URL | million FEEDFLEET | lists FEEDS [POSTGRES] | lists-of FILE | \
             lists-of POSTGRES SCHEMA | writes [POSTGRES] | fill FEEDS ENTRIES FILE | fill FEEDS ENTRIES POSTGRES SCHEMA]"
        ),
    }
}

async fn lists_on_sqlite(file: &Path, feeds: usize) -> anyhow::Result<()> {
    let store = SqliteStore::open(path(file)?).await?;
    lists::fill_sqlite(path(file)?, feeds).await?;
    println!("SQLite, {feeds} feeds");
    lists::lists(&store).await?;
    store.close().await;
    Ok(())
}

async fn lists_on_postgres(url: &str, feeds: usize) -> anyhow::Result<()> {
    let schema = format!("feedfleet-bench-lists-{}", std::process::id());
    let store = PostgresStore::open(&ServerConfig::at(url), &schema).await?;
    lists::fill_postgres(url, &schema, feeds).await?;
    println!("PostgreSQL, {feeds} feeds");
    lists::lists(&store).await?;
    store.close().await;
    lists::drop_schema(url, &schema).await
}

/// T8: the same database twice.
async fn beside_sqlite(folder: &Path) -> anyhow::Result<()> {
    let (ours, theirs) = (folder.join("ours.db"), folder.join("bare.db"));
    let mut fleet = BenchFeeds::new(FEEDS)?;
    let store = SqliteStore::open(path(&ours)?).await?;
    fill(&mut fleet, &[&store]).await?;
    store.close().await;
    // Lets go of the lock.
    drop(store);
    bare::fill_histories(&ours)?;
    std::fs::copy(&ours, &theirs)?;
    let store = SqliteStore::open(path(&ours)?).await?;
    let mut bare = Bare::open(&theirs)?;
    let ratio = compare(&mut fleet, &store, "bare SQLite", async |rows| bare.update(rows)).await?;
    println!("T8 rows/s over bare SQLite's: {ratio:.2} (floor 0.5, stretch 0.8)");
    store.close().await;
    Ok(())
}

/// Adds the fleet to each of the stores, with a first answer from every feed.
pub(crate) async fn fill(fleet: &mut BenchFeeds, stores: &[&dyn Store]) -> anyhow::Result<()> {
    for store in stores {
        fleet.add(*store).await?;
    }
    let answers = fleet.first_answers();
    for store in stores {
        for verdicts in answers.chunks(BATCH) {
            apply(*store, verdicts).await?;
        }
    }
    Ok(())
}

/// The median ratio of both sides' rows a second, alternating over the same feeds in the same order.
pub(crate) async fn compare(
    fleet: &mut BenchFeeds,
    store: &dyn Store,
    name: &str,
    mut bare: impl AsyncFnMut(&[Row]) -> anyhow::Result<()>,
) -> anyhow::Result<f64> {
    println!("{FEEDS} feeds, reports of 304 in transactions of {BATCH}, rows/s");
    println!("{:>5}  {:>10}  {:>10}  {name:>15}  {:>5}", "round", "feedfleet", "with reads", "ratio");
    let mut ratios = Vec::new();
    // The first rounds are the warm-up of both caches.
    for round in 0..WARM_UP + ROUNDS {
        let mut verdicts = fleet.unchanged_answers();
        let rows: Vec<Row> = verdicts.iter().map(bare::row).collect::<Result<_, _>>()?;
        let begun = Instant::now();
        for batch in verdicts.chunks_mut(BATCH) {
            read(store, batch).await?;
        }
        let reading = begun.elapsed();
        let begun = Instant::now();
        for batch in verdicts.chunks(BATCH) {
            apply(store, batch).await?;
        }
        let ours = rate(FEEDS, begun);
        let with_reads = FEEDS as f64 / (begun.elapsed() + reading).as_secs_f64();
        let begun = Instant::now();
        for batch in rows.chunks(BATCH) {
            bare(batch).await?;
        }
        let theirs = rate(FEEDS, begun);
        if round >= WARM_UP {
            println!(
                "{:>5}  {ours:>10.0}  {with_reads:>10.0}  {theirs:>15.0}  {:>5.2}",
                round - WARM_UP + 1,
                ours / theirs
            );
            ratios.push(ours / theirs);
        }
    }
    ratios.sort_by(f64::total_cmp);
    Ok(ratios[ROUNDS / 2])
}

/// Reads the feeds' states as the scheduler does before it decides; the verdicts get what it saw.
async fn read(store: &dyn Store, verdicts: &mut [Verdict]) -> anyhow::Result<()> {
    let ids: Vec<FeedId> = verdicts.iter().map(|verdict| verdict.report.feed).collect();
    let feeds = store.states_for(&ids).await?;
    let mut seen: HashMap<FeedId, Seen> = feeds.iter().map(|feed| (feed.id, Seen::of(feed))).collect();
    for verdict in verdicts {
        verdict.seen = seen.remove(&verdict.report.feed).map(Box::new);
    }
    Ok(())
}

/// Applies a batch, none of which may be stale.
pub(crate) async fn apply(store: &dyn Store, verdicts: &[Verdict]) -> anyhow::Result<()> {
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
