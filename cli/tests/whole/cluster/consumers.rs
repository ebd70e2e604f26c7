//! The example consumers, killed repeatedly together with the scheduler that publishes events: no event is missed, and
//! the order is kept.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rand::RngExt;
use rand::rngs::StdRng;
use sqlx::{ConnectOptions, Connection};

use super::harness::{Cluster, Kind, Role, Servers, Urls};
use super::load::{Load, Size};
use crate::harness::PATIENCE;
use store::Events;

const SIZE: Size = Size {
    feeds: 120,
    hosts: 40,
    interval: Duration::from_secs(6),
    gap: Duration::from_millis(20),
    trouble: Duration::ZERO,
    leases: 1,
};
/// Kills of each consumer, and of the scheduler that currently publishes events.
const SHORT: (usize, usize) = (3, 1);
const LONG: (usize, usize) = (50, 10);
/// The interpreter for the examples: the system's, which has the modules from Debian's packages.
const PYTHON: &str = "/usr/bin/python3";

/// An example as a process that is killed and restarted with the same file.
pub(super) struct Consumer {
    file: PathBuf,
    script: &'static str,
    child: Option<Child>,
}

impl Consumer {
    pub(super) fn new(folder: &Path, script: &'static str) -> Self {
        Consumer { file: folder.join(script).with_extension("db"), script, child: None }
    }

    pub(super) fn start(&mut self, arguments: &[&str]) {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/example").join(self.script);
        let mut command = Command::new(PYTHON);
        command.arg("-B").arg(example).arg(&self.file).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        self.child = Some(command.spawn().unwrap());
    }

    /// Waits until it reports that its queue exists.
    fn wait_until_it_listens(&mut self) {
        let output = self.child.as_mut().unwrap().stdout.take().unwrap();
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert_eq!(line, "listening\n", "is python3-pika installed? dev/install does that");
    }

    /// Kills it with kill -9; it must still be running.
    fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        assert_eq!(child.try_wait().unwrap(), None, "{} ended by itself", self.script);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Returns the sequence numbers that it stored, in order.
    async fn stored(&self) -> Vec<i64> {
        let file = sqlx::sqlite::SqliteConnectOptions::new().filename(&self.file).busy_timeout(PATIENCE);
        // Before the first one there may be no file, or no table in it.
        let Ok(mut connection) = file.connect().await else { return Vec::new() };
        let rows = sqlx::query_scalar("SELECT seq FROM event ORDER BY position").fetch_all(&mut connection).await;
        connection.close().await.unwrap();
        rows.unwrap_or_default()
    }

    /// Waits until it has the last of these events in an epoch, as long as it stores any: it writes each event to the disk. Returns the
    /// sequence numbers that it stored of that epoch.
    pub(super) async fn wait_for_all(&self, epoch: &str, events: &[i64]) -> Vec<i64> {
        let (mut known, mut deadline) = (0, Instant::now() + PATIENCE);
        loop {
            let file = sqlx::sqlite::SqliteConnectOptions::new().filename(&self.file).busy_timeout(PATIENCE);
            let mut connection = file.connect().await.unwrap();
            let rows = sqlx::query_scalar("SELECT seq FROM event WHERE epoch = ? ORDER BY position").bind(epoch);
            let stored: Vec<i64> = rows.fetch_all(&mut connection).await.unwrap();
            connection.close().await.unwrap();
            if stored.len() > known {
                (known, deadline) = (stored.len(), Instant::now() + PATIENCE);
            }
            if stored.last() >= events.last() || Instant::now() > deadline {
                return stored;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn wait_for(&self, seq: i64) {
        let deadline = Instant::now() + PATIENCE;
        while self.stored().await.last().is_none_or(|last| *last < seq) {
            assert!(Instant::now() < deadline, "{} never stored {seq}", self.script);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns the scheduler that publishes events, by its own name; empty: none yet.
pub(super) async fn holder(cluster: &Cluster, database: &sqlx::PgPool) -> String {
    let text = format!(r#"SELECT holder FROM "{}".relay"#, cluster.namespace);
    sqlx::query_scalar(sqlx::AssertSqlSafe(text)).fetch_one(database).await.unwrap()
}

/// Kills the scheduler that publishes events, and waits for its successor; returns how long that took.
async fn kill_the_relay(load: &Load, database: &sqlx::PgPool, schedulers: &mut [Role]) -> Duration {
    let deadline = Instant::now() + PATIENCE;
    let (before, place) = loop {
        let before = holder(&load.cluster, database).await;
        // Its log says so a moment after it takes over. Between two of them there is none.
        let logs_it = |role: &Role| !before.is_empty() && role.stderr().contains(&before);
        if let Some(place) = schedulers.iter().position(logs_it) {
            break (before, place);
        }
        assert!(Instant::now() < deadline, "nobody says that it passes events on");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    schedulers[place].kill();
    let killed = Instant::now();
    schedulers[place] = load.cluster.start(Kind::Scheduler);
    while holder(&load.cluster, database).await == before {
        assert!(killed.elapsed() < PATIENCE, "nobody took over");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    killed.elapsed()
}

/// Returns every sequence number.
pub(super) async fn event_seqs(cluster: &Cluster) -> Vec<i64> {
    let mut seqs: Vec<i64> = Vec::new();
    loop {
        let page = cluster.store.events(seqs.last().copied().unwrap_or(0), 1000).await.unwrap();
        if page.items.is_empty() {
            return seqs;
        }
        seqs.extend(page.items.iter().map(|event| event.seq));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_killed_at_random_miss_nothing_and_keep_the_order() {
    let soak = std::env::var_os("SOAK").is_some();
    let (kills, relay_kills) = if soak { LONG } else { SHORT };
    // The long form disrupts RabbitMQ too.
    let servers = if soak { Servers::own(true) } else { Servers::shared() };
    let load = Load::new(SIZE, &servers, Urls::of(&servers), "").await;
    let database = sqlx::PgPool::connect(&servers.postgres).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let exchange = format!("{}.events", load.cluster.namespace);
    let queue = format!("{exchange}.test");
    let listening = [servers.rabbitmq.as_str(), &exchange, &queue];
    let (mut stream, mut queued) =
        (Consumer::new(folder.path(), "consumer.py"), Consumer::new(folder.path(), "consumer_amqp.py"));
    queued.start(&listening);
    queued.wait_until_it_listens();
    let mut schedulers = [load.cluster.start(Kind::Scheduler), load.cluster.start(Kind::Scheduler)];
    let worker = load.cluster.start(Kind::Worker);
    stream.start(&[&schedulers[0].address()]);
    stream.wait_for(1).await;
    queued.wait_for(1).await;

    let mut rng: StdRng = rand::SeedableRng::seed_from_u64(20_261_122);
    let mut takeovers = Vec::new();
    for kill in 0..kills {
        tokio::time::sleep(Duration::from_millis(rng.random_range(50..1500))).await;
        stream.kill();
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..700))).await;
        queued.kill();
        if kill % (kills / relay_kills) == 1 {
            takeovers.push(kill_the_relay(&load, &database, &mut schedulers).await);
        }
        stream.start(&[&schedulers[kill % 2].address()]);
        queued.start(&listening);
        if soak && kill % 20 == 10 {
            servers.signal("rabbitmq", "KILL");
            tokio::time::sleep(Duration::from_secs(3)).await;
            servers.up("rabbitmq");
        }
    }
    worker.stop().await;
    load.until_quiet().await;
    let events = event_seqs(&load.cluster).await;
    stream.wait_for(events[events.len() - 1]).await;
    queued.wait_for(events[events.len() - 1]).await;
    println!("{} events; {kills} kills of each consumer; turns taken over after {takeovers:?}", events.len());
    assert_eq!(takeovers.len(), relay_kills);
    assert_eq!(stream.stored().await, events);
    assert_eq!(queued.stored().await, events);
    drop((stream, queued));
    for role in schedulers {
        role.stop().await;
    }
}
