//! A broker for one test, and an ear for its log lines.

use std::process::Command;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber, span};

/// The nodes of a cluster.
pub(super) const NODES: [&str; 3] = ["rabbitmq", "rabbitmq2", "rabbitmq3"];

/// `dev/services` in a separate folder; down when dropped.
pub(super) struct OwnBroker {
    folder: TempDir,
}

impl OwnBroker {
    pub(super) async fn start() -> Self {
        let broker = OwnBroker { folder: tempfile::tempdir().unwrap() };
        broker.up().await;
        broker
    }

    /// Three nodes.
    pub(super) async fn cluster() -> Self {
        let broker = Self::start().await;
        run(broker.services(&["up", "rabbitmq2", "rabbitmq3"])).await;
        broker
    }

    /// Returns the URL with all nodes.
    pub(super) fn url(&self) -> String {
        let is_there = |node: &&str| self.folder.path().join(format!("{node}.port")).exists();
        let hosts = NODES.into_iter().filter(is_there).map(|node| format!("127.0.0.1:{}", self.port(node)));
        format!("amqp://guest:guest@{}/%2f", hosts.collect::<Vec<_>>().join(","))
    }

    pub(super) async fn up(&self) {
        self.up_node(NODES[0]).await;
    }

    pub(super) async fn up_node(&self, node: &str) {
        run(self.services(&["up", node])).await;
    }

    /// Stops it in order.
    pub(super) async fn stop(&self) {
        run(self.services(&["stop", "rabbitmq"])).await;
    }

    pub(super) async fn signal(&self, signal: &str) {
        self.signal_node(NODES[0], signal).await;
    }

    pub(super) async fn signal_node(&self, node: &str, signal: &str) {
        run(self.services(&["signal", node, signal])).await;
    }

    /// Calls the broker's own tool.
    pub(super) async fn control(&self, arguments: &[&str]) {
        self.control_node(NODES[0], arguments).await;
    }

    pub(super) async fn control_node(&self, node: &str, arguments: &[&str]) -> String {
        run(self.services(&[&["control", node], arguments].concat())).await
    }

    /// Returns what a node evaluates this to; nothing while it cannot: it is starting, say, or writes down who its peers are.
    async fn evaluated(&self, node: &str, question: &str) -> Option<String> {
        let mut command = self.services(&["control", node, "eval", question]);
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns how many nodes run, as a node knows it.
    pub(super) async fn running(&self, asked: &str) -> Option<usize> {
        let count = self.evaluated(asked, "length(rabbit_mnesia:cluster_nodes(running)).").await?;
        count.trim().parse().ok()
    }

    /// Cuts a node off from its peers, which no longer share its cookie. Clients and the broker's own tool still reach all nodes.
    pub(super) async fn cut_off(&self, node: &str) {
        let peers = self.peers(node);
        let refuse = peers.iter().map(|peer| format!("erlang:set_cookie('{peer}', cut_off)"));
        let leave = peers.iter().map(|peer| format!("erlang:disconnect_node('{peer}')"));
        let calls: Vec<String> = refuse.chain(leave).collect();
        self.control_node(node, &["eval", &format!("{}.", calls.join(", "))]).await;
    }

    /// Ends that.
    pub(super) async fn join(&self, node: &str) {
        let peers = self.peers(node);
        let accept = peers.iter().map(|peer| format!("erlang:set_cookie('{peer}', erlang:get_cookie())"));
        self.control_node(node, &["eval", &format!("{}.", accept.collect::<Vec<_>>().join(", "))]).await;
    }

    fn peers(&self, node: &str) -> Vec<String> {
        let others = NODES.into_iter().filter(|other| *other != node);
        others.map(|other| format!("t{}@localhost", self.port(other))).collect()
    }

    /// Returns whether a node accepts connections of clients.
    pub(super) fn accepts(&self, node: &str) -> bool {
        std::net::TcpStream::connect(format!("127.0.0.1:{}", self.port(node))).is_ok()
    }

    /// Returns the node that leads a queue, as another node knows it.
    pub(super) async fn leader(&self, queue: &str, asked: &str) -> Option<&'static str> {
        let question = format!("ra_leaderboard:lookup_leader('%2F_{queue}').");
        let answer = self.evaluated(asked, &question).await?;
        NODES.into_iter().find(|node| answer.contains(&format!("t{}@", self.port(node))))
    }

    fn port(&self, of: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("{of}.port"))).unwrap().trim().to_owned()
    }

    fn services(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../dev/services"));
        command.args(arguments).env("FEEDFLEET_SERVICES", self.folder.path());
        command
    }
}

impl Drop for OwnBroker {
    fn drop(&mut self) {
        // The folder goes with it, and a test that failed has said so.
        let _ = self.services(&["down"]).status();
    }
}

/// Returns what it prints.
async fn run(mut command: Command) -> String {
    // A broker that it leaves running must not hold the pipe: its own output goes to a file.
    let output = tokio::task::spawn_blocking(move || command.stderr(std::process::Stdio::inherit()).output());
    let output = output.await.unwrap().unwrap();
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

type Levels = Arc<Mutex<Vec<Level>>>;

/// Notes the levels of what this crate logs on this thread, from information upwards, until dropped.
pub(super) struct Lines {
    levels: Levels,
    _guard: DefaultGuard,
    /// While there is only one subscriber, tracing checks on the thread that logs a line first, which may be another
    /// test's, whether the line is wanted, and caches that answer for good.
    _second: Dispatch,
}

impl Lines {
    pub(super) fn heard() -> Self {
        let levels = Levels::default();
        let second = Dispatch::new(Ear(Arc::default()));
        Lines { _guard: tracing::subscriber::set_default(Ear(Arc::clone(&levels))), levels, _second: second }
    }

    pub(super) fn levels(&self) -> Vec<Level> {
        self.levels.lock().unwrap().clone()
    }
}

struct Ear(Levels);

impl Subscriber for Ear {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("common::")
    }

    fn event(&self, event: &Event<'_>) {
        self.0.lock().unwrap().push(*event.metadata().level());
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
