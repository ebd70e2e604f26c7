//! What counters, lists' indexes and the index of texts cost where feeds are written: the same store with and without them,
//! sides alternating.

use std::path::Path;
use std::time::Instant;

use common::config::ServerConfig;
use sqlx::{AssertSqlSafe, Connection, Executor};
use store::Store;
use store::postgres::PostgresStore;
use store::sqlite::SqliteStore;

use crate::feeds::BenchFeeds;
use crate::{BATCH, apply, path};
use store::Upkeep;

/// Feeds that a round adds and polls.
const FEEDS: usize = 20_000;
const ROUNDS: usize = 5;

/// Takes off all that this release added, back to the indexes of the one before.
const OFF_SQLITE: &str = "
    DROP TRIGGER feed_was_added; DROP TRIGGER troubled_feed_was_added; DROP TRIGGER feed_changed_class; DROP TRIGGER feed_changed_host;
    DROP TRIGGER feed_changed_failure; DROP TRIGGER feed_changed_penalty; DROP TRIGGER feed_changed_url;
    DROP TRIGGER feed_changed_title; DROP TRIGGER feed_was_erased;
    DROP INDEX feeds_by_readers; DROP INDEX feeds_by_category; DROP INDEX feeds_by_category_readers; DROP INDEX feeds_by_status;
    DROP INDEX feeds_by_status_readers; DROP INDEX feeds_by_failure_readers; DROP INDEX host_holds_by_end;
    CREATE INDEX feeds_by_class ON feeds (category, status); CREATE INDEX feeds_by_subscribers ON feeds (subscribers)";
const OFF_POSTGRES: &str = "
    DROP TRIGGER feeds_were_added ON feeds; DROP TRIGGER feed_was_changed ON feeds; DROP TRIGGER feed_was_renamed ON feeds;
    DROP TRIGGER feed_was_erased ON feeds;
    DROP INDEX feeds_by_readers, feeds_by_host, feeds_by_category, feeds_by_category_readers, feeds_by_status,
        feeds_by_status_readers, feeds_by_failure, feeds_by_failure_readers;
    CREATE INDEX feeds_by_host ON feeds (host); CREATE INDEX feeds_by_class ON feeds (category, status);
    CREATE INDEX feeds_by_subscribers ON feeds (subscribers);
    CREATE INDEX feeds_by_failure ON feeds (failure) WHERE failure IS NOT NULL";

pub(crate) async fn on_sqlite(folder: &Path) -> anyhow::Result<()> {
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let mut sides = Vec::new();
        for off in [false, true] {
            let file = folder.join(format!("{round}-{off}.db"));
            SqliteStore::open(path(&file)?).await?.close().await;
            if off {
                let mut on = sqlx::SqliteConnection::connect(&format!("sqlite://{}", path(&file)?)).await?;
                on.execute(OFF_SQLITE).await?;
                on.close().await?;
            }
            sides.push(written(&SqliteStore::open(path(&file)?).await?).await?);
        }
        rounds.push([sides[0], sides[1]]);
    }
    tell("SQLite", &rounds);
    Ok(())
}

pub(crate) async fn on_postgres(url: &str) -> anyhow::Result<()> {
    let mut rounds = Vec::new();
    let mut on = sqlx::PgConnection::connect(url).await?;
    for round in 0..ROUNDS {
        let mut sides = Vec::new();
        for off in [false, true] {
            let schema = format!("feedfleet-writes-{round}-{off}-{}", std::process::id());
            let store = PostgresStore::open(&ServerConfig::at(url), &schema).await?;
            if off {
                let switch = format!("SET search_path = \"{schema}\"; {OFF_POSTGRES}");
                on.execute(AssertSqlSafe(switch)).await?;
            }
            sides.push(written(&store).await?);
            on.execute(AssertSqlSafe(format!("DROP SCHEMA \"{schema}\" CASCADE"))).await?;
        }
        rounds.push([sides[0], sides[1]]);
    }
    tell("PostgreSQL", &rounds);
    Ok(())
}

/// Microseconds a feed: to add it, for its first answer (with a title), for a 304.
async fn written(store: &dyn Store) -> anyhow::Result<[f64; 3]> {
    let mut fleet = BenchFeeds::new(FEEDS)?;
    let each = |begun: Instant| begun.elapsed().as_secs_f64() * 1e6 / FEEDS as f64;
    let begun = Instant::now();
    fleet.add(store).await?;
    let added = each(begun);
    let mut polls = Vec::new();
    for verdicts in [fleet.first_answers(), fleet.unchanged_answers()] {
        let begun = Instant::now();
        for batch in verdicts.chunks(BATCH) {
            apply(store, batch).await?;
        }
        polls.push(each(begun));
    }
    store.close().await;
    Ok([added, polls[0], polls[1]])
}

fn tell(name: &str, rounds: &[[[f64; 3]; 2]]) {
    for (what, number) in [("added", 0), ("first answer", 1), ("304", 2)] {
        let median = |side: usize| {
            let mut times: Vec<f64> = rounds.iter().map(|round| round[side][number]).collect();
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        let mut ratios: Vec<f64> = rounds.iter().map(|[with, without]| with[number] / without[number]).collect();
        ratios.sort_by(f64::total_cmp);
        println!(
            "{name}, {what}: {:.1} us a feed, without {:.1} us; median ratio {:.2}",
            median(0),
            median(1),
            ratios[ratios.len() / 2]
        );
    }
}
