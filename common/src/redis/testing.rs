//! Redis servers for tests: the shared one of `dev/services`, and private ones that a test may stop, kill and restore.
#![expect(clippy::unwrap_used, reason = "for tests")]

pub mod cluster;
pub mod groups;
pub mod network;

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::RngExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;

use super::RedisServer;
use super::node::Limits;
use crate::config::ServerConfig;
use crate::testing::Port;

/// Far beyond what a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns a client that has time: a test on a busy machine may be away in the middle of a call for longer than a
/// worker may.
pub(super) fn patient(url: &str, namespace: &str) -> RedisServer {
    let limits = Limits { call: PATIENCE, connect: PATIENCE / 2 };
    RedisServer::connect_within(limits, &ServerConfig::at(url), namespace).unwrap()
}

/// Returns a name that no other test has.
fn fresh_name() -> String {
    format!("test-{:016x}", rand::rng().random::<u64>())
}

/// Returns the server that tests share, under a separate namespace.
pub fn shared() -> RedisServer {
    let url = std::env::var("FEEDFLEET_TEST_REDIS").expect(
        "this test needs a Redis: run dev/test, or `dev/services up redis` and `eval \"$(dev/services urls)\"`",
    );
    patient(&url, &fresh_name())
}

/// A server of one test, gone with it.
pub struct PrivateServer {
    /// Where it listens, whether it runs or not.
    pub port: u16,
    /// It speaks TLS, and nothing else.
    pub tls: bool,
    folder: PathBuf,
    arguments: Vec<String>,
    /// Of its environment.
    variables: Vec<(String, String)>,
    /// It reads all it needs from this file.
    config: Option<PathBuf>,
    process: Option<Child>,
    _reserved: Port,
}

impl PrivateServer {
    /// Returns a server that does not run yet.
    pub fn stopped(arguments: &[&str]) -> Self {
        let reserved = Port::reserved();
        let folder = std::env::temp_dir().join(fresh_name());
        std::fs::create_dir(&folder).unwrap();
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let port = reserved.number();
        let variables = Vec::new();
        PrivateServer {
            port,
            tls: false,
            folder,
            arguments,
            variables,
            config: None,
            process: None,
            _reserved: reserved,
        }
    }

    /// Returns a server that answers.
    pub fn started(arguments: &[&str]) -> Self {
        let mut server = Self::stopped(arguments);
        server.start();
        server
    }

    /// Returns one that answers, and was started with these environment variables.
    pub fn started_with(variables: &[(&str, &str)]) -> Self {
        let mut server = Self::stopped(&[]);
        server.variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        server.start();
        server
    }

    /// Starts it, over the dump that [`Self::dump`] made if there is one.
    pub fn start(&mut self) {
        let mut command = Command::new("redis-server");
        if let Some(config) = &self.config {
            command.arg(config);
        } else {
            command
                .args([if self.tls { "--tls-port" } else { "--port" }, &self.port.to_string()])
                .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"])
                .arg(&self.folder);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let process = command.args(&self.arguments).stdout(Stdio::null()).spawn();
        self.process = Some(process.expect("redis-server is missing; dev/install installs it"));
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < deadline, "a private Redis did not come up");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns its URL, without user.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Returns a separate connection, as another process would have.
    pub fn client(&self, namespace: &str) -> RedisServer {
        patient(&self.url(), namespace)
    }

    /// Returns a sentinel with these lines in its configuration.
    pub fn sentinel(lines: &str) -> Self {
        let mut server = Self::stopped(&["--sentinel"]);
        let config = server.folder.join("sentinel.conf");
        let own = format!("bind 127.0.0.1\ndir {}\n", server.folder.display());
        let lines = lines.replace("PORT", &server.port.to_string());
        std::fs::write(&config, own + &lines).unwrap();
        server.config = Some(config);
        server.start();
        server
    }

    /// Runs a command in Redis' own client.
    pub fn cli(&self, words: &[&str]) -> String {
        let tls: &[&str] = if self.tls { &["--tls", "--insecure"] } else { &[] };
        let port = self.port.to_string();
        let output = Command::new("redis-cli").args(["-p", &port]).args(tls).args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Writes what it holds to its dump.
    pub fn dump(&self) {
        assert_eq!(self.cli(&["SAVE"]), "OK");
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: &str) {
        let pid = self.process.as_ref().expect("it runs").id();
        assert!(Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status().unwrap().success());
    }

    /// Returns whether it was started, and not killed since then. A frozen one does.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Kills it.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        self.kill();
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

struct LateAnswer {
    word: &'static str,
    by: Duration,
}

/// A TCP proxy in front of a server. It can drop an answer together with its connection, so that the request took
/// effect without a confirmation, and it can let connections go silent, as a lost route or a dead load balancer does.
pub struct CuttingProxy {
    /// Where it listens.
    pub port: u16,
    faults: Arc<ProxyFaults>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct ProxyFaults {
    /// The next answer is dropped, and its connection with it.
    cut: AtomicBool,
    /// Connections with a smaller number carry nothing any more and stay open.
    silent_below: AtomicU64,
    /// The answer to the next request with this word is late.
    late: Mutex<Option<LateAnswer>>,
    connections: AtomicU64,
    /// Where new connections go; older ones are closed when it changes.
    server: watch::Sender<u16>,
}

impl CuttingProxy {
    /// Returns a proxy before the server on this port of this machine.
    pub async fn before(server: u16) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let faults = Arc::new(ProxyFaults { server: watch::Sender::new(server), ..ProxyFaults::default() });
        let task = {
            let faults = Arc::clone(&faults);
            tokio::spawn(async move {
                while let Ok((client, _)) = listener.accept().await {
                    let number = faults.connections.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(carry(client, number, Arc::clone(&faults)));
                }
            })
        };
        CuttingProxy { port, faults, task }
    }

    /// Returns the URL of the server as seen through the proxy.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Returns a connection through it.
    pub fn client(&self, namespace: &str) -> RedisServer {
        patient(&self.url(), namespace)
    }

    /// Drops the next answer, and its connection with it.
    pub fn cut_next_answer(&self) {
        self.faults.cut.store(true, Ordering::SeqCst);
    }

    /// Returns whether the answer that was to be dropped has passed.
    pub fn has_cut(&self) -> bool {
        !self.faults.cut.load(Ordering::SeqCst)
    }

    /// Lets the present connections carry nothing any more, in either direction, without closing them. New ones work.
    pub fn silence_connections(&self) {
        self.faults.silent_below.store(self.faults.connections.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Closes all connections and leads new ones to another server of this machine, as a failover does.
    pub fn lead_to(&self, server: u16) {
        self.faults.server.send_replace(server);
    }

    /// Delivers the answer to the next request that contains this word this much later.
    pub fn delay_answer_to(&self, word: &'static str, by: Duration) {
        *crate::lock(&self.faults.late) = Some(LateAnswer { word, by });
    }

    /// Returns whether the request whose answer is late has come.
    pub fn has_delayed(&self) -> bool {
        crate::lock(&self.faults.late).is_none()
    }
}

impl Drop for CuttingProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(client: tokio::net::TcpStream, number: u64, faults: Arc<ProxyFaults>) {
    let mut target = faults.server.subscribe();
    let server = *target.borrow_and_update();
    let Ok(server) = tokio::net::TcpStream::connect(("127.0.0.1", server)).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let delay = AtomicU64::new(0);
    let is_silent = || faults.silent_below.load(Ordering::SeqCst) > number;
    let asking = async {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
            let contains = |late: &mut LateAnswer| {
                buffer[..count].windows(late.word.len()).any(|part| part == late.word.as_bytes())
            };
            if let Some(late) = crate::lock(&faults.late).take_if(contains) {
                delay.store(u64::try_from(late.by.as_millis()).unwrap(), Ordering::SeqCst);
            }
            if !is_silent() && to_server.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
    };
    let answering = async {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
            tokio::time::sleep(Duration::from_millis(delay.swap(0, Ordering::SeqCst))).await;
            if is_silent() {
                continue;
            }
            if faults.cut.swap(false, Ordering::SeqCst) || to_client.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = asking => {}
        () = answering => {}
        _ = target.changed() => {}
    }
}
