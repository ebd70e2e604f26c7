//! A broker for one test, and an ear for its log lines.

use std::process::Command;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber, span};

/// `dev/services` in a folder of its own; down when dropped.
pub(super) struct OwnBroker {
    folder: TempDir,
}

impl OwnBroker {
    pub(super) async fn start() -> Self {
        let broker = OwnBroker { folder: tempfile::tempdir().unwrap() };
        broker.up().await;
        broker
    }

    pub(super) fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.port("rabbitmq"))
    }

    pub(super) async fn up(&self) {
        run(self.services(&["up", "rabbitmq"])).await;
    }

    /// Stops it in order.
    pub(super) async fn stop(&self) {
        run(self.services(&["stop", "rabbitmq"])).await;
    }

    pub(super) async fn signal(&self, signal: &str) {
        run(self.services(&["signal", "rabbitmq", signal])).await;
    }

    /// Calls the broker's own tool.
    pub(super) async fn control(&self, arguments: &[&str]) {
        let mut command = Command::new("/usr/lib/rabbitmq/bin/rabbitmqctl");
        command.args(["--node", &format!("t{}@localhost", self.port("rabbitmq"))]).args(arguments);
        command.env("HOME", self.folder.path().join("rabbitmq")).env("RABBITMQ_CONF_ENV_FILE", "/dev/null");
        command.env("ERL_EPMD_PORT", self.port("epmd"));
        run(command).await;
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

async fn run(mut command: Command) {
    let status = tokio::task::spawn_blocking(move || command.stdout(std::process::Stdio::null()).status());
    assert!(status.await.unwrap().unwrap().success());
}

type Levels = Arc<Mutex<Vec<Level>>>;

/// Notes the levels of what this crate logs on this thread, from information upwards, until dropped.
pub(super) struct Lines {
    levels: Levels,
    _guard: DefaultGuard,
    /// While there is one ear only, tracing asks the thread that logs a line first, which may be another test's, whether
    /// anybody listens to it, and believes that for good.
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
