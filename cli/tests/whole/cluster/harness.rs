//! A cluster as processes: schedulers and workers with real servers, which a test can kill, stop and start.

use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::config::ServerConfig;
use common::feed::Feed;
use common::host::HostRules;
use common::policy::Category;
use common::time::{Clock, SystemClock};
use load_tests::GateLog;
use load_tests::process::Process;
use load_tests::proxy::FaultProxy;
use rand::RngExt;
use store::postgres::PostgresStore;
use store::{FeedQuery, NewFeed, StoredEntry};

use crate::harness::PATIENCE;
use store::{Events, Feeds};

/// PostgreSQL, Redis and RabbitMQ.
pub(crate) struct Servers {
    /// The folder of servers that belong to this test alone.
    own: Option<Own>,
    pub(crate) postgres: String,
    pub(crate) redis: String,
    pub(crate) rabbitmq: String,
}

struct Own {
    folder: tempfile::TempDir,
    durable: bool,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dev/services")
}

impl Servers {
    /// Returns the servers that all tests share.
    pub(crate) fn shared() -> Self {
        let url = |name: &str| {
            std::env::var(name).unwrap_or_else(|_| {
                panic!("{name} is not set: run dev/test, or start the servers with dev/services up and then eval \"$(dev/services urls)\"")
            })
        };
        Servers {
            own: None,
            postgres: url("FEEDFLEET_TEST_POSTGRES"),
            redis: url("FEEDFLEET_TEST_REDIS"),
            rabbitmq: url("FEEDFLEET_TEST_RABBITMQ"),
        }
    }

    /// Starts servers that only this test uses, so that it may disrupt them. Durable ones keep what they confirmed
    /// across a crash.
    pub(crate) fn own(durable: bool) -> Self {
        Self::own_with(&[], durable)
    }

    /// Starts these servers of `dev/services`, all if there are none named.
    pub(crate) fn own_with(names: &[&str], durable: bool) -> Self {
        let folder = tempfile::Builder::new().prefix("feedfleet-own").tempdir().unwrap();
        // PostgreSQL runs as a separate user.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let mut servers = Servers {
            own: Some(Own { folder, durable }),
            postgres: String::new(),
            redis: String::new(),
            rabbitmq: String::new(),
        };
        servers.ask(&[&["up"], names].concat());
        for line in servers.ask(&["urls"]).lines() {
            let (name, url) = line.trim_start_matches("export ").split_once('=').unwrap();
            match name {
                "FEEDFLEET_TEST_POSTGRES" => url.clone_into(&mut servers.postgres),
                "FEEDFLEET_TEST_REDIS" => url.clone_into(&mut servers.redis),
                _ => url.clone_into(&mut servers.rabbitmq),
            }
        }
        servers
    }

    fn call(&self, arguments: &[&str]) -> Output {
        let own = self.own.as_ref().expect("shared servers are nobody's to hurt");
        Command::new(script())
            .args(arguments)
            .env("FEEDFLEET_SERVICES", own.folder.path().join("services"))
            .env("FEEDFLEET_DURABLE", if own.durable { "1" } else { "" })
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .unwrap()
    }

    fn ask(&self, arguments: &[&str]) -> String {
        let output = self.call(arguments);
        assert!(output.status.success(), "dev/services {arguments:?} ended with {}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the folder of servers that belong to this test alone.
    pub(crate) fn folder(&self) -> PathBuf {
        self.own.as_ref().expect("shared servers are nobody's to change").folder.path().join("services")
    }

    /// Calls rabbitmqctl for a node; returns what it prints.
    pub(crate) fn control(&self, node: &str, arguments: &[&str]) -> String {
        self.ask(&[&["control", node], arguments].concat())
    }

    /// Returns what a node of RabbitMQ evaluates this to; nothing while it cannot: it is starting, say, or writes down who its peers are.
    pub(crate) fn evaluated(&self, node: &str, question: &str) -> Option<String> {
        let output = self.call(&["control", node, "eval", question]);
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }

    /// Returns the port of one of the own servers.
    pub(crate) fn port(&self, name: &str) -> String {
        let own = self.own.as_ref().expect("shared servers are known by their URLs");
        let file = own.folder.path().join(format!("services/{name}.port"));
        std::fs::read_to_string(file).unwrap().trim().to_owned()
    }

    /// Sends a signal to a server's main process.
    pub(crate) fn signal(&self, name: &str, signal: &str) {
        self.ask(&["signal", name, signal]);
    }

    /// Shuts a server down gracefully; its data stays.
    pub(crate) fn stop(&self, name: &str) {
        self.ask(&["stop", name]);
    }

    /// Makes one PostgreSQL the standby of the other one, from a new copy of its data.
    pub(crate) fn standby(&self, name: &str, of: &str) {
        self.ask(&["standby", name, of]);
    }

    /// Returns the URLs of PostgreSQL and of its standby.
    pub(crate) fn postgres_pair(&self) -> [String; 2] {
        let urls = self.ask(&["urls"]);
        ["POSTGRES", "POSTGRES2"].map(|name| {
            let start = format!("export FEEDFLEET_TEST_{name}=");
            urls.lines().find_map(|line| line.strip_prefix(&start)).unwrap().to_owned()
        })
    }

    /// Starts a stopped server again, at the same address.
    pub(crate) fn up(&self, name: &str) {
        self.ask(&["up", name]);
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if self.own.is_some() {
            self.ask(&["down"]);
        }
    }
}

/// The URLs of the roles' servers, or of proxies in front of them.
#[derive(Clone)]
pub(crate) struct Urls {
    pub(crate) store: String,
    pub(crate) redis: String,
    pub(crate) queue: String,
}

impl Urls {
    pub(crate) fn of(servers: &Servers) -> Self {
        Urls { store: servers.postgres.clone(), redis: servers.redis.clone(), queue: servers.rabbitmq.clone() }
    }
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Returns the address in a server's URL.
pub(crate) fn address(url: &str) -> SocketAddr {
    let url: url::Url = url.parse().unwrap();
    format!("{}:{}", url.host_str().unwrap(), url.port().unwrap()).parse().unwrap()
}

/// Returns the URL of the same server through a proxy.
pub(crate) fn through(url: &str, proxy: &FaultProxy) -> String {
    let mut url: url::Url = url.parse().unwrap();
    url.set_port(Some(proxy.address().port())).unwrap();
    url.into()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Scheduler,
    Worker,
}

/// A namespace on the servers, and the processes that use it.
pub(crate) struct Cluster {
    folder: tempfile::TempDir,
    /// The name of the schema, and the prefix of every key and queue.
    pub(crate) namespace: String,
    urls: Urls,
    /// Direct access to the store, without the roles.
    pub(crate) store: PostgresStore,
    /// `api.drain` of the schedulers: none, because nothing is in front of them.
    pub(crate) drain: Duration,
    /// What its workers did at the host gate, if their log shows it (`gate=trace`).
    pub(crate) gate: GateLog,
}

/// A running role. Killed when dropped.
pub(crate) struct Role {
    pub(crate) kind: Kind,
    process: Process,
}

impl Cluster {
    /// Creates a cluster in its own namespace with these lines of configuration, without roles.
    pub(crate) async fn new(servers: &Servers, urls: Urls, config: &str) -> Self {
        let namespace = format!("whole-{}-{}", std::process::id(), rand::rng().random::<u32>());
        Self::named(namespace, servers, urls, config).await
    }

    /// Creates a cluster in this namespace.
    pub(crate) async fn named(namespace: String, servers: &Servers, urls: Urls, config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = PostgresStore::open(&ServerConfig::at(&servers.postgres), &namespace).await.unwrap();
        let (drain, gate) = (Duration::ZERO, GateLog::default());
        let cluster = Cluster { folder, namespace, urls, store, drain, gate };
        cluster.configure(config);
        cluster
    }

    /// Creates a cluster whose schema an older program is to make: until [`Cluster::open_store`], `store` is another namespace's.
    pub(crate) async fn of_an_older_program(servers: &Servers, urls: Urls, config: &str) -> Self {
        let mut cluster = Self::new(servers, urls, config).await;
        cluster.namespace.push_str("-older");
        cluster.configure(config);
        cluster
    }

    /// Opens the store, and brings its schema up to date.
    pub(crate) async fn open_store(&mut self, servers: &Servers) {
        self.store = PostgresStore::open(&ServerConfig::at(&servers.postgres), &self.namespace).await.unwrap();
    }

    /// Writes the roles' configuration file.
    pub(crate) fn configure(&self, config: &str) {
        let config = format!("namespace = \"{}\"\n{config}", self.namespace);
        std::fs::write(self.folder.path().join("config.toml"), config).unwrap();
    }

    /// Returns the configuration as the roles read it.
    pub(crate) fn config(&self) -> common::config::Config {
        common::config::load(Some(&self.folder.path().join("config.toml")), std::iter::empty(), &[]).unwrap().config
    }

    /// Adds feeds of category D with one subscriber each, first due spread evenly over `spread`.
    pub(crate) async fn add(&self, urls: &[String], spread: Duration) {
        let config = self.config();
        let rules = HostRules::new(config.host.clone(), config.host_rule.clone());
        let now = SystemClock.now();
        for (page, some) in urls.chunks(1000).enumerate() {
            let feeds: Vec<NewFeed> = some
                .iter()
                .enumerate()
                .map(|(n, url)| {
                    let url: common::url::FeedUrl = url.parse().unwrap();
                    let place = (page * 1000 + n) as f64 / urls.len() as f64;
                    NewFeed::of(rules.for_url(url.as_url()).key, url, Category::D, now.after(spread.mul_f64(place)))
                })
                .collect();
            self.store.add_feeds(&feeds, now).await.unwrap();
        }
    }

    /// Starts a role and waits until it reports its address.
    pub(crate) fn start(&self, kind: Kind) -> Role {
        self.start_with(kind, &self.urls, &[])
    }

    /// Starts a role with these servers and these further variables.
    pub(crate) fn start_with(&self, kind: Kind, urls: &Urls, variables: &[(&str, &str)]) -> Role {
        self.start_program(Path::new(env!("CARGO_BIN_EXE_feedfleet")), kind, urls, variables)
    }

    /// Starts a role of another build of the program.
    pub(crate) fn start_as(&self, kind: Kind, program: &Path) -> Role {
        self.start_program(program, kind, &self.urls, &[])
    }

    fn start_program(&self, program: &Path, kind: Kind, urls: &Urls, variables: &[(&str, &str)]) -> Role {
        let name = match kind {
            Kind::Scheduler => "scheduler",
            Kind::Worker => "worker",
        };
        let mut command = Command::new(program);
        command.args([name, "--config", "config.toml", "--listen", "127.0.0.1:0"]).current_dir(self.folder.path());
        command.env("FEEDFLEET_GATE__URL", &urls.redis).env("FEEDFLEET_QUEUE__URL", &urls.queue);
        command.envs(variables.iter().copied());
        if kind == Kind::Scheduler {
            // An older program does not know it.
            if program == Path::new(env!("CARGO_BIN_EXE_feedfleet")) {
                command.env("FEEDFLEET_API__DRAIN", format!("{}ms", self.drain.as_millis()));
            }
            command.env("FEEDFLEET_STORE__URL", &urls.store).env("FEEDFLEET_SCHEDULE__URL", &urls.redis);
        }
        Role { kind, process: Process::start_watched(&mut command, &self.gate) }
    }

    /// Returns every feed.
    pub(crate) async fn feeds(&self) -> Vec<Feed> {
        let (mut feeds, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.feeds(&FeedQuery { after, limit: 1000, ..FeedQuery::default() }).await.unwrap();
            feeds.extend(page.items);
            match page.next {
                Some(next) => after = Some(next),
                None => return feeds,
            }
        }
    }

    /// Returns every entry.
    pub(crate) async fn entries(&self) -> Vec<StoredEntry> {
        let mut entries: Vec<StoredEntry> = Vec::new();
        loop {
            let after = entries.last().map_or(0, |entry| entry.seq);
            let page = self.store.entries(None, after, 1000).await.unwrap();
            if page.items.is_empty() {
                return entries;
            }
            entries.extend(page.items);
        }
    }
}

impl Role {
    /// Returns its address, once it reports it; a scheduler's, once it answers calls.
    pub(crate) fn address(&mut self) -> String {
        let address = self.process.address();
        let deadline = Instant::now() + PATIENCE;
        while self.kind == Kind::Scheduler && is_starting(&address) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        address
    }

    /// Returns what it wrote to stderr so far.
    pub(crate) fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// Returns the id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: &str) {
        self.process.signal(signal);
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Waits for a clean exit after SIGTERM.
    pub(crate) async fn stopped(mut self) {
        tokio::task::spawn_blocking(move || self.process.wait()).await.unwrap();
    }

    /// Sends SIGTERM, and waits for a clean exit.
    pub(crate) async fn stop(mut self) {
        // The origin, which it may wait for, runs in this process.
        tokio::task::spawn_blocking(move || self.process.stop()).await.unwrap();
    }

    /// Returns its current memory, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.process.memory("VmRSS:")
    }

    /// Sends a GET to its HTTP port: returns status and text.
    pub(crate) async fn get(&mut self, path: &str) -> (u16, String) {
        let answer = reqwest::get(format!("{}{path}", self.process.address())).await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }
}

/// Returns whether a scheduler answers that its store is not open yet, or nothing at all.
fn is_starting(address: &str) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address.trim_start_matches("http://"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /api/v1/feeds?limit=1 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().map_or(true, |answer| answer.starts_with("HTTP/1.1 503"))
}

impl Drop for Role {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("-- {:?}:\n{}", self.kind, self.stderr());
        }
    }
}
