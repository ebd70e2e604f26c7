//! A fleet as a separate process, and access to its store while it is stopped.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::feed::Feed;
use common::time::{Clock, SystemClock, Timestamp};
use common::url::FeedId;
pub(crate) use load_tests::process::PATIENCE;
use load_tests::process::Process;
use load_tests::{GateLog, Memory, Origin, Promises, Proof, Record, StallWatch, prove};
use store::sqlite::SqliteStore;
use store::{Events, Feeds};
use store::{FeedQuery, StoredEntry};

/// Lines of the section `fetch` that allow loopback, where the tests' servers are.
pub(crate) const OPEN: &str = "allow_networks = [\"127.0.0.0/8\"]\nallow_ports = [\"1-65535\"]\n";

/// Returns a client without connection reuse: if the server closed an idle connection, the next request would fail.
pub(crate) fn client() -> reqwest::Client {
    reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap()
}

/// Starts to watch this process, in which the origin runs, for stalls: because of them, requests are recorded late.
pub(crate) fn watch_stalls(origin: &Origin) -> StallWatch {
    let stalls = StallWatch::since(Instant::now() - origin.elapsed());
    tokio::spawn(stalls.clone().watch_runtime());
    stalls
}

/// A folder with a configuration, in which the program can be run repeatedly.
pub(crate) struct Home {
    folder: tempfile::TempDir,
    environment: Vec<(String, String)>,
    /// What its fleets did at the host gate, if their log shows it (`gate=trace`).
    pub(crate) gate: GateLog,
}

/// A running `feedfleet run`.
pub(crate) struct Fleet {
    process: Process,
    /// `http://127.0.0.1:PORT`
    pub(crate) api: String,
    /// One for all requests: creating one reads the machine's certificates.
    pub(crate) client: reqwest::Client,
}

impl Home {
    /// Creates a home with these lines of configuration, and access to loopback, which every test needs.
    pub(crate) fn new(config: &str) -> Self {
        Self::with_fetch(config, "")
    }

    /// The same, with more lines in the section `fetch`.
    pub(crate) fn with_fetch(config: &str, fetch: &str) -> Self {
        Self::written(&format!("{config}\n[fetch]\n{OPEN}{fetch}"))
    }

    /// Creates a home with exactly this configuration.
    pub(crate) fn written(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.toml"), config).unwrap();
        Home { folder, environment: Vec::new(), gate: GateLog::default() }
    }

    /// Sets a variable of the program's environment.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Returns a path inside the home.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the command `feedfleet` with these arguments, with its output captured.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_feedfleet"));
        // The addresses of the tests' servers are not part of the program's configuration.
        command.args(arguments).current_dir(self.folder.path()).env_clear();
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Writes an OPML file with these feeds and returns its path.
    pub(crate) fn opml(&self, urls: impl IntoIterator<Item = String>) -> String {
        let outlines = urls.into_iter().fold(String::new(), |mut text, url| {
            writeln!(text, "<outline type=\"rss\" xmlUrl=\"{url}\"/>").unwrap();
            text
        });
        let path = self.path("feeds.opml");
        std::fs::write(&path, format!("<opml version=\"2.0\"><body>{outlines}</body></opml>")).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Starts `feedfleet run` with these sources and waits until it reports its API's address.
    pub(crate) fn start(&self, sources: &[&str]) -> Fleet {
        self.start_at("127.0.0.1:0", sources)
    }

    /// The same, at this address.
    pub(crate) fn start_at(&self, address: &str, sources: &[&str]) -> Fleet {
        let mut arguments = vec!["run", "--data", "data", "--config", "config.toml", "--listen", address];
        // A test that began at the full hour would wait for minutes.
        if !std::fs::read_to_string(self.path("config.toml")).unwrap().contains("hot_minutes") {
            arguments.extend(["--set", "policy.hot_minutes=false"]);
        }
        arguments.extend(sources);
        let mut process = Process::start_watched(&mut self.command(&arguments), &self.gate);
        let api = process.address();
        Fleet { process, api, client: client() }
    }

    /// Returns all feeds in the store, while no fleet runs.
    pub(crate) async fn feeds(&self) -> Vec<Feed> {
        self.feeds_of(&self.store().await).await
    }

    /// Returns all feeds in an opened store.
    pub(crate) async fn feeds_of(&self, store: &SqliteStore) -> Vec<Feed> {
        let (mut feeds, mut after) = (Vec::new(), None);
        loop {
            let page = store.feeds(&FeedQuery { after, limit: 1000, ..FeedQuery::default() }).await.unwrap();
            feeds.extend(page.items);
            match page.next {
                Some(next) => after = Some(next),
                None => return feeds,
            }
        }
    }

    /// Returns all entries in the store, while no fleet runs.
    pub(crate) async fn entries(&self, feed: Option<FeedId>) -> Vec<StoredEntry> {
        let store = self.store().await;
        let mut entries: Vec<StoredEntry> = Vec::new();
        loop {
            let after = entries.last().map_or(0, |entry| entry.seq);
            let page = store.entries(feed, after, 1000).await.unwrap();
            if page.items.is_empty() {
                return entries;
            }
            entries.extend(page.items);
        }
    }

    /// Opens the store, while no fleet runs.
    pub(crate) async fn store(&self) -> SqliteStore {
        SqliteStore::open(&self.store_url()).await.unwrap()
    }

    pub(crate) fn store_url(&self) -> String {
        format!("sqlite://{}", self.path("data/feedfleet.db").display())
    }

    /// Returns the result of SQLite's integrity check, and of a recount of the counters of feeds.
    pub(crate) async fn integrity(&self) -> String {
        use sqlx::{ConnectOptions, Connection};
        let options: sqlx::sqlite::SqliteConnectOptions = self.store_url().parse().unwrap();
        let mut connection = options.connect().await.unwrap();
        let verdict = sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut connection).await.unwrap();
        let recount = include_str!("../../../scheduler/store/src/conformance/recount.sql");
        let counters = "SELECT kind, name, feeds FROM feed_counts WHERE feeds <> 0 ORDER BY 1, 2";
        let counted: Vec<(String, String, i64)> = sqlx::query_as(counters).fetch_all(&mut connection).await.unwrap();
        assert_eq!(
            counted,
            sqlx::query_as(recount).fetch_all(&mut connection).await.unwrap(),
            "the counters are wrong"
        );
        connection.close().await.unwrap();
        verdict
    }
}

/// The polls whose results the store had whenever a process was dead, and the feeds' paths.
#[derive(Default)]
pub(crate) struct Stored {
    polls: HashMap<(i64, Timestamp), Timestamp>,
    paths: HashMap<i64, String>,
}

impl Stored {
    /// Adds the last poll of a feed.
    pub(crate) fn add(&mut self, feed: &Feed) {
        self.paths.insert(feed.id.0, feed.url.as_url().path().to_owned());
        self.polls.extend(feed.state.last_polled.map(|polled| ((feed.id.0, polled), SystemClock.now())));
    }

    /// Proves from the history of the gate that every promise was kept. To be called when no fleet runs.
    pub(crate) fn prove(
        &self,
        home: &Home,
        log: &[Record],
        gap: &dyn Fn(SocketAddr) -> Duration,
        floor: Duration,
    ) -> Proof {
        let promises = Promises {
            paths: &self.paths,
            gap,
            floor,
            hold_ceiling: Duration::MAX,
            memory: Memory::OfProcess,
            stored: &self.polls,
            losses: &[],
            rollbacks: &[],
        };
        let proof = prove(&home.gate.history(), log, &promises);
        println!("{proof}");
        proof
    }
}

impl Fleet {
    /// Returns what it wrote to stderr so far.
    pub(crate) fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// Takes its stalls into account until it ends: because of them, requests are sent late.
    pub(crate) fn watch(&self, stalls: &StallWatch) {
        tokio::spawn(stalls.clone().watch_process(self.client.clone(), self.api.clone()));
    }

    /// kill -9.
    pub(crate) fn kill(mut self) {
        self.process.kill();
    }

    /// Sends SIGTERM, and waits for a clean exit.
    pub(crate) fn stop(mut self) {
        self.process.stop();
    }

    /// Returns whether it is still running.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.process.is_alive()
    }

    /// Returns its peak memory, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.process.memory("VmHWM:")
    }

    /// Returns a JSON response of the API.
    pub(crate) async fn get(&self, path: &str) -> serde_json::Value {
        let answer = self.client.get(format!("{}{path}", self.api)).send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        serde_json::from_str(&answer.text().await.unwrap()).unwrap()
    }

    /// Returns the value of a metric's series; zero if it does not exist.
    pub(crate) async fn metric(&self, series: &str) -> f64 {
        let answer = self.client.get(format!("{}/metrics", self.api)).send().await.unwrap();
        let text = answer.text().await.unwrap();
        let line = text.lines().find(|line| line.split(' ').next() == Some(series));
        line.and_then(|line| line.rsplit(' ').next()).map_or(0.0, |value| value.parse().unwrap())
    }

    /// Waits until `ready` returns `Some`.
    pub(crate) async fn wait_for<T>(&mut self, what: &str, ready: impl AsyncFnMut(&Fleet) -> Option<T>) -> T {
        self.wait_within(PATIENCE, what, ready).await
    }

    /// The same, with another time limit.
    pub(crate) async fn wait_within<T>(
        &mut self,
        limit: Duration,
        what: &str,
        mut ready: impl AsyncFnMut(&Fleet) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(found) = ready(self).await {
                return found;
            }
            assert!(self.is_alive(), "the fleet died while the test waited for {what}:\n{}", self.stderr());
            assert!(Instant::now() < deadline, "never came: {what}:\n{}", self.stderr());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
