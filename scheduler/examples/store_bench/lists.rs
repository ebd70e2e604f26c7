//! Every list, search and number of a store of a million feeds: how long a call takes. The feeds are mixed as real ones are: a tenth
//! at one host, most with one reader, some failing, paused or gone.

use std::time::{Duration, Instant};

use anyhow::Context;
use common::host::HostKey;
use common::outcome::FailureKind;
use common::policy::{Category, Status};
use common::time::{Clock, SystemClock};
use common::url::FeedId;
use scheduler::ops::upcoming;
use scheduler::schedule::memory::MemorySchedule;
use scheduler::schedule::{Band, Schedule, Slot};
use sqlx::{AssertSqlSafe, Connection, Executor};
use store::{FeedQuery, FeedRef, FeedSort, HostQuery, Placement, Store};

/// Calls of each kind.
const CALLS: usize = 60;

/// Makes the feeds by a statement of the database's own, with everything that the store's triggers do.
pub(crate) async fn fill_sqlite(path: &str, feeds: usize) -> anyhow::Result<()> {
    let mut on = sqlx::SqliteConnection::connect(&format!("sqlite://{path}")).await?;
    on.execute("PRAGMA cache_size = -262144").await?;
    let sql = include_str!("lists_sqlite.sql");
    sqlx::query(sql).bind(i64::try_from(feeds)?).execute(&mut on).await?;
    on.close().await?;
    Ok(())
}

pub(crate) async fn fill_postgres(url: &str, schema: &str, feeds: usize) -> anyhow::Result<()> {
    let mut on = sqlx::PgConnection::connect(url).await?;
    on.execute(AssertSqlSafe(format!("SET search_path = \"{schema}\""))).await?;
    sqlx::query(include_str!("lists_postgres.sql")).bind(i64::try_from(feeds)?).execute(&mut on).await?;
    on.execute("VACUUM ANALYZE").await?;
    on.close().await?;
    Ok(())
}

pub(crate) async fn drop_schema(url: &str, schema: &str) -> anyhow::Result<()> {
    let mut on = sqlx::PgConnection::connect(url).await?;
    on.execute(AssertSqlSafe(format!("DROP SCHEMA \"{schema}\" CASCADE"))).await?;
    Ok(())
}

/// Measures all of them on a store that was filled.
pub(crate) async fn lists(store: &dyn Store) -> anyhow::Result<()> {
    let schedule = schedule(store).await?;
    println!("{:<64} {:>8} {:>8} {:>8}", "call", "p50 ms", "p99 ms", "items");
    let now = SystemClock.now();
    for (name, query) in queries() {
        let mut after = None;
        let mut times = Vec::new();
        let mut items = 0;
        // One page after the other.
        for _ in 0..CALLS {
            let query = FeedQuery { after: after.take(), ..query.clone() };
            let begun = Instant::now();
            let page = upcoming::feeds(store, &schedule, &query, now).await.with_context(|| name.clone())?;
            times.push(begun.elapsed());
            items = items.max(page.items.len());
            after = page.next;
        }
        tell(&format!("feeds {name}"), times, items);
    }
    let mut after = None;
    let mut times = Vec::new();
    for _ in 0..CALLS {
        let begun = Instant::now();
        let page = store.hosts(&HostQuery::all(after.take(), 100), SystemClock.now()).await?;
        times.push(begun.elapsed());
        after = page.next;
    }
    tell("hosts", times, 100);
    let name = HostQuery::of_name("shared.example");
    timed("hosts, one by name", async |_| Ok(store.hosts(&name, SystemClock.now()).await?.items.len())).await?;
    timed("numbers", async |_| Ok(store.stats(SystemClock.now()).await?.feeds.len())).await?;
    let some = |call: usize| FeedId((1 + call * 15_485_863 % 1_000_000) as i64);
    timed("a feed", async |call| Ok(store.feed(&FeedRef::Id(some(call))).await?.map_or(0, |_| 1))).await?;
    timed("a feed's history", async |call| Ok(store.history(some(call)).await?.map_or(0, |_| 1))).await?;
    timed("a feed's entries", async |call| Ok(store.entries(Some(some(call)), 0, 100).await?.items.len())).await?;
    timed("entries", async |_| Ok(store.entries(None, 0, 100).await?.items.len())).await?;
    timed("events", async |_| Ok(store.events(0, 100).await?.items.len())).await
}

/// Returns all of the feeds, at their times.
async fn schedule(store: &dyn Store) -> anyhow::Result<MemorySchedule> {
    let (schedule, mut after) = (MemorySchedule::default(), FeedId(0));
    loop {
        let places = store.placements(after, 10_000).await?;
        let Some(last) = places.last() else { return Ok(schedule) };
        after = last.id;
        let slot =
            |place: &Placement| Slot { feed: place.id, due_at: place.due, band: Band::of(place.category, place.wake) };
        schedule.put(&places.iter().map(slot).collect::<Vec<_>>(), SystemClock.now()).await?;
    }
}

fn queries() -> Vec<(String, FeedQuery)> {
    let none = FeedQuery { limit: 100, ..FeedQuery::default() };
    let host = |name: &str| vec![HostKey::new(name)];
    let text = |text: &str| FeedQuery { text: Some(text.to_owned()), ..none.clone() };
    let filters = [
        ("", none.clone()),
        ("host of 100,000", FeedQuery { hosts: host("shared.example:443"), ..none.clone() }),
        ("host of few", FeedQuery { hosts: host("h2501.example.org:443"), ..none.clone() }),
        ("category D", FeedQuery { category: Some(Category::D), ..none.clone() }),
        ("category A", FeedQuery { category: Some(Category::A), ..none.clone() }),
        ("status active", FeedQuery { status: Some(Status::Active), ..none.clone() }),
        ("status paused", FeedQuery { status: Some(Status::Paused), ..none.clone() }),
        ("failure dns", FeedQuery { failure: Some(FailureKind::Dns), ..none.clone() }),
        ("failure tls", FeedQuery { failure: Some(FailureKind::Tls), ..none.clone() }),
        (
            "host of 100,000, category C, failure dns",
            FeedQuery {
                hosts: host("shared.example:443"),
                category: Some(Category::C),
                failure: Some(FailureKind::Dns),
                ..none.clone()
            },
        ),
        (
            "category B, status paused, failure status (few)",
            FeedQuery {
                category: Some(Category::B),
                status: Some(Status::Paused),
                failure: Some(FailureKind::Status),
                ..none.clone()
            },
        ),
        ("q 'feed-777770'", text("feed-777770")),
        ("q 'wombat' (none)", text("wombat")),
        ("q 'https' (all)", text("https")),
        ("q 'journal' (a quarter)", text("journal")),
        ("q 'great 7' (some)", text("great 7")),
        ("q 'example.org/feed-7' (some)", text("example.org/feed-7")),
        ("q 'ed' (two letters)", text("ed")),
        ("q 'qz' (two letters, none)", text("qz")),
        (
            "q 'news', category A, failure dns",
            FeedQuery { category: Some(Category::A), failure: Some(FailureKind::Dns), ..text("news") },
        ),
    ];
    let mut queries = Vec::new();
    for (name, query) in filters {
        for sort in FeedSort::ALL {
            queries.push((format!("{name} by {sort}"), FeedQuery { sort, ..query.clone() }));
            queries.push((format!("{name} by {sort}, reversed"), FeedQuery { sort, reversed: true, ..query.clone() }));
        }
    }
    queries
}

async fn timed(name: &str, call: impl AsyncFn(usize) -> anyhow::Result<usize>) -> anyhow::Result<()> {
    let (mut times, mut items) = (Vec::new(), 0);
    for number in 0..CALLS {
        let begun = Instant::now();
        items = items.max(call(number).await?);
        times.push(begun.elapsed());
    }
    tell(name, times, items);
    Ok(())
}

fn tell(name: &str, mut times: Vec<Duration>, items: usize) {
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1e3;
    println!("{name:<64} {:>8.2} {:>8.2} {items:>8}", at(50), at(99));
}
