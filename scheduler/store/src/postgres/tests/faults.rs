//! A server that ends connections, or stops answering.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::config::ServerConfig;
use sqlx::{Acquire, Executor, PgConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::conformance::{SKEW, add, apply, at, entry, feed, modified, new_entries, published, verdict};
use crate::postgres::Limits;
use crate::postgres::PostgresStore;
use crate::testing::{Schema, url};
use crate::{Feeds, Polls, Upkeep, Verdict};

/// How long anything may take: far beyond what a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::test]
async fn a_connection_that_is_killed_in_the_middle_of_apply_leaves_nothing_half_written() {
    let schema = Schema::default();
    let store = schema.store().await;
    let id = add(&store, "https://a.org/feed").await;
    let mut fetched = verdict(&store, id, 10, modified(vec![entry("1", "one")])).await;
    fetched.decision.host_hold = Some(at(500));
    let before = feed(&store, id).await;

    // Holds the lock under which events are numbered: by then all of the feed's row is written.
    let mut other = schema.connection().await;
    let mut numbering = other.begin().await.unwrap();
    sqlx::query("UPDATE store SET seq = seq").execute(&mut *numbering).await.unwrap();
    let batch = std::slice::from_ref(&fetched);
    let (applied, ()) = tokio::join!(store.apply(batch, SKEW, at(12)), async {
        let killed = schema.waiting().await;
        let kill = sqlx::query("SELECT pg_terminate_backend($1)").bind(killed);
        kill.execute(&mut *numbering).await.unwrap();
    });
    let error = applied.unwrap_err();
    assert!(!error.refuses_data(), "the report is good: {error:?}");
    numbering.rollback().await.unwrap();

    assert_eq!(feed(&store, id).await, before, "the store goes on by itself");
    assert_eq!((published(&store).await, store.holds(at(12)).await.unwrap()), (vec![], vec![]));
    assert_eq!(new_entries(&apply(&store, batch, 13).await[0]), (1, 0));
}

#[tokio::test]
async fn connections_that_were_killed_while_idle_are_replaced() {
    let schema = Schema::default();
    let store = schema.store().await;
    store.paused().await.unwrap();
    let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE $1";
    let killed = sqlx::query_scalar(sql).bind(format!("feedfleet % {}", schema.0));
    let killed: i64 = killed.fetch_one(&mut schema.connection().await).await.unwrap();
    assert!(killed > 0);
    // At most one call a dead connection pays for it.
    for _ in 0..killed {
        let _ = store.paused().await;
    }
    store.paused().await.unwrap();
}

#[tokio::test]
async fn a_server_that_stops_answering_is_given_up_in_time_and_used_again_when_it_answers() {
    let schema = Schema::default();
    let proxy = Proxy::start().await;
    let limits = Limits { call: Duration::from_secs(2), acquire: Duration::from_secs(1), ..Limits::default() };
    let patient = schema.store().await;
    let id = add(&patient, "https://a.org/feed").await;
    let fetched = verdict(&patient, id, 10, modified(vec![entry("1", "one")])).await;
    let store = in_time("it opens", async || {
        PostgresStore::open_within(limits, &ServerConfig::at(&proxy.url), &schema.0).await.ok()
    })
    .await;
    in_time("it answers", async || store.paused().await.ok()).await;

    proxy.stalled.store(true, Ordering::SeqCst);
    // More calls than the pool has places.
    let calls = (0..12).map(|_| async {
        let error = store.apply(std::slice::from_ref(&fetched), SKEW, at(12)).await.unwrap_err();
        assert!(
            !error.refuses_data() && error.to_string().starts_with("the store could not apply reports"),
            "{error:?}"
        );
    });
    let calls = futures_util::future::join_all(calls);
    tokio::time::timeout(PATIENCE, calls).await.expect("the server is given up");
    let late = store.feed(&crate::FeedRef::Id(id)).await.unwrap_err();
    assert!(late.is_servers(), "{late:?}");

    proxy.stalled.store(false, Ordering::SeqCst);
    let apply = async || store.apply(std::slice::from_ref(&fetched), SKEW, at(13)).await.ok();
    in_time("the places of the pool come back", apply).await;
    assert_eq!(feed(&patient, id).await.entries, 1);
}

/// A server whose answers take 0.6 s has to be reached within the time that a call waits for a connection.
#[tokio::test]
async fn making_a_connection_asks_the_server_five_questions() {
    let schema = Schema::default();
    let proxy = Proxy::start().await;
    let store = PostgresStore::open(&ServerConfig::at(&proxy.url), &schema.0).await.unwrap();
    store.paused().await.unwrap();
    // The first connection of all stored the timeline.
    let store = PostgresStore::open(&ServerConfig::at(&proxy.url), &schema.0).await.unwrap();
    let asked = async || {
        store.paused().await.unwrap();
        in_time("the connection is idle", async || {
            tokio::task::yield_now().await;
            (store.pool.num_idle() == 1).then_some(())
        })
        .await;
        let questions = proxy.questions.lock().unwrap();
        questions.last().unwrap().load(Ordering::SeqCst)
    };
    let first = asked().await;
    // For TLS, the user, the settings, the timeline and the stored one; the statement is prepared and asked; a ping follows, before the
    // connection is idle.
    assert_eq!(first, 5 + 2 + 1);
    // One ping more if it was idle for a second.
    let second = asked().await - first;
    assert!((2..=3).contains(&second), "{second}");
}

/// Repeats a query until it has an answer, and returns that.
async fn in_time<T>(what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
    }
}

/// Has a report wait for the lock under which events are numbered, for longer than a call is trusted without a look.
async fn applied_behind_a_lock(store: &PostgresStore, fetched: &Verdict, other: &mut PgConnection) {
    let mut numbering = other.begin().await.unwrap();
    sqlx::query("UPDATE store SET seq = seq").execute(&mut *numbering).await.unwrap();
    let (applied, ()) = tokio::join!(store.apply(std::slice::from_ref(fetched), SKEW, at(12)), async {
        tokio::time::sleep(Duration::from_secs(7)).await;
        numbering.rollback().await.unwrap();
    });
    applied.unwrap();
}

#[tokio::test]
async fn connections_that_went_silent_are_replaced_within_seconds_and_slow_statements_are_left_alone() {
    let schema = Schema::default();
    let proxy = Proxy::start().await;
    let open =
        async || PostgresStore::open_within(Limits::default(), &ServerConfig::at(&proxy.url), &schema.0).await.ok();
    let store = in_time("it opens", open).await;
    let id = add(&store, "https://a.org/feed").await;
    let fetched = verdict(&store, id, 10, modified(vec![entry("1", "one")])).await;

    // A statement that waits for a lock is not lost.
    let mut other = schema.connection().await;
    applied_behind_a_lock(&store, &fetched, &mut other).await;

    // Some connections are in use when it happens, and some are idle.
    let busy = futures_util::future::join_all((0..6).map(|_| store.paused()));
    assert!(busy.await.iter().all(Result::is_ok));
    proxy.silence();
    let begun = Instant::now();
    in_time("it answers again", async || store.paused().await.ok()).await;
    let took = begun.elapsed();
    println!("connections that went silent: used again after {took:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[tokio::test]
async fn a_statement_that_waits_is_left_alone_where_the_server_keeps_no_list_of_sessions() {
    let schema = Schema::default();
    let role = schema.0.clone();
    let mut other = schema.connection().await;
    let make = format!("CREATE ROLE \"{role}\" SUPERUSER LOGIN; ALTER ROLE \"{role}\" SET track_activities = off");
    other.execute(sqlx::AssertSqlSafe(make)).await.unwrap();
    let url = url().replacen("//postgres@", &format!("//{role}@"), 1);
    assert!(url.contains(&role), "{url}");
    let store = PostgresStore::open(&ServerConfig::at(&url), &schema.0).await.unwrap();
    let id = add(&store, "https://a.org/feed").await;
    let fetched = verdict(&store, id, 10, modified(vec![entry("1", "one")])).await;
    applied_behind_a_lock(&store, &fetched, &mut other).await;
    drop((store, schema));
    other.execute(sqlx::AssertSqlSafe(format!("DROP ROLE \"{role}\""))).await.unwrap();
}

/// Forwards to the server; while stalled it accepts, and forwards nothing. Connections that were silenced stay open and carry
/// nothing any more.
pub(super) struct Proxy {
    url: String,
    pub(super) port: u16,
    stalled: Arc<AtomicBool>,
    /// The number of connections, and up to which of them all are silent.
    numbers: Arc<(AtomicUsize, AtomicUsize)>,
    /// How often the client of each connection sent something and then waited.
    questions: Arc<Mutex<Vec<Arc<AtomicUsize>>>>,
}

impl Proxy {
    async fn start() -> Self {
        Self::before(&url()).await
    }

    pub(super) async fn before(url: &str) -> Self {
        let server = sqlx::postgres::PgConnectOptions::clone(&url.parse().unwrap());
        let to = (server.get_host().to_owned(), server.get_port());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = url.replace(&format!(":{}/", to.1), &format!(":{port}/"));
        let stalled = Arc::new(AtomicBool::new(false));
        let seen = stalled.clone();
        let numbers = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let questions = Arc::new(Mutex::new(Vec::new()));
        let (counted, all) = (numbers.clone(), questions.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = counted.0.fetch_add(1, Ordering::SeqCst);
                let is_silent = {
                    let counted = counted.clone();
                    move || counted.1.load(Ordering::SeqCst) > number
                };
                let Ok(server) = TcpStream::connect(to.clone()).await else { continue };
                let (client_read, client_write) = client.into_split();
                let (server_read, server_write) = server.into_split();
                let (asked, answered) = (Arc::<AtomicUsize>::default(), Arc::default());
                all.lock().unwrap().push(asked.clone());
                tokio::spawn(forward(client_read, server_write, seen.clone(), asked, is_silent.clone()));
                tokio::spawn(forward(server_read, client_write, seen.clone(), answered, is_silent));
            }
        });
        Proxy { url, port, stalled, numbers, questions }
    }

    /// Forwards nothing, on present and new connections, or everything again.
    pub(super) fn stall(&self, stalled: bool) {
        self.stalled.store(stalled, Ordering::SeqCst);
    }

    /// Lets the present connections carry nothing any more. New ones work.
    pub(super) fn silence(&self) {
        self.numbers.1.store(self.numbers.0.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

async fn forward(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    stalled: Arc<AtomicBool>,
    reads: Arc<AtomicUsize>,
    is_silent: impl Fn() -> bool,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        reads.fetch_add(1, Ordering::SeqCst);
        while stalled.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if !is_silent() {
            to.write_all(&buffer[..read]).await?;
        }
    }
}
