//! A cluster as one side of a benchmark: a scheduler and two workers, with servers that the caller provides.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::task::JoinSet;

use crate::settings::config;

const WORKERS: usize = 2;
/// The default. A slot is taken until its report is confirmed; for most of that time it only waits.
const FETCHES_PER_WORKER: usize = 256;
/// The variables of the test servers, and those of the configuration that take their values.
const SERVERS: [(&str, &[&str]); 3] = [
    ("FEEDFLEET_TEST_POSTGRES", &["FEEDFLEET_STORE__URL"]),
    ("FEEDFLEET_TEST_REDIS", &["FEEDFLEET_SCHEDULE__URL", "FEEDFLEET_GATE__URL"]),
    ("FEEDFLEET_TEST_RABBITMQ", &["FEEDFLEET_QUEUE__URL"]),
];
/// How long the scheduler may take to connect to its servers.
const START: Duration = Duration::from_secs(30);
/// Feeds that are added concurrently.
const AT_ONCE: usize = 32;

/// How its processes are started; uses its own namespace.
pub(crate) struct Cluster {
    binary: PathBuf,
    folder: PathBuf,
    urls: Vec<(&'static str, String)>,
    namespace: String,
    address: String,
}

impl Cluster {
    pub(crate) fn new(binary: &Path, folder: &Path, round: usize) -> anyhow::Result<Self> {
        std::fs::write(folder.join("config.toml"), config(FETCHES_PER_WORKER))?;
        let mut urls = Vec::new();
        for (from, to) in SERVERS {
            let url =
                std::env::var(from).with_context(|| format!("{from} is not set; dev/bench starts the servers"))?;
            urls.extend(to.iter().map(|name| (*name, url.clone())));
        }
        // Free until the scheduler binds it, most likely.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let namespace = format!("bench-{}-{round}", std::process::id());
        Ok(Cluster { binary: binary.into(), folder: folder.into(), urls, namespace, address })
    }

    /// Returns where its scheduler listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn roles(&self) -> Vec<Command> {
        let role = |name: &str, listen: &str| {
            let mut command = Command::new(&self.binary);
            command.args([name, "--config", "config.toml", "--listen", listen]).current_dir(&self.folder);
            command.env("FEEDFLEET_NAMESPACE", &self.namespace).envs(self.urls.iter().cloned());
            command
        };
        let mut roles = vec![role("scheduler", &self.address)];
        roles.extend((0..WORKERS).map(|_| role("worker", "127.0.0.1:0")));
        roles
    }

    /// Adds feeds once the scheduler is ready.
    pub(crate) async fn add(&self, urls: &[String]) -> anyhow::Result<()> {
        let client = reqwest::Client::new();
        let ready = format!("http://{}/readyz", self.address);
        let patience = Instant::now() + START;
        while !client.get(&ready).send().await.is_ok_and(|answer| answer.status().is_success()) {
            ensure!(Instant::now() < patience, "the scheduler was not ready within {START:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let mut adding = JoinSet::new();
        for url in urls {
            if adding.len() == AT_ONCE {
                adding.join_next().await.transpose()?.transpose()?;
            }
            let request = client.post(format!("http://{}/api/v1/feeds", self.address));
            let request = request.header("Content-Type", "application/json");
            let request = request.body(serde_json::json!({ "url": url }).to_string());
            adding.spawn(async { request.send().await?.error_for_status() });
        }
        while let Some(added) = adding.join_next().await {
            added??;
        }
        Ok(())
    }
}
