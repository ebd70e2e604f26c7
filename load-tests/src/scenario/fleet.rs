//! The fleet under load: real processes of the real program, with a separate namespace and folder.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use toml::{Table, Value};

use super::disk::Disk;
use super::error::ScenarioError;
use super::exposition::series;
use super::file::{Deployment, Scenario, lay_over};
use crate::FakeClock;
use crate::proxy::{FaultProxy, Faults};

/// How long a process may take to become ready.
const PATIENCE: Duration = Duration::from_secs(120);
/// The number of feeds per request to add feeds: the API's limit is 10,000 lines and 4 MB.
const ADDED_AT_ONCE: usize = 5_000;

/// The processes and their dependencies. Killed when dropped.
pub(super) struct FleetProcesses {
    binary: PathBuf,
    folder: tempfile::TempDir,
    deployment: Deployment,
    environment: Vec<(String, String)>,
    /// Of the processes whose clocks will be moved, by their names.
    clocks: HashMap<String, FakeClock>,
    store: Option<FaultProxy>,
    disk: Option<Disk>,
    pub(super) processes: Vec<Process>,
    client: reqwest::Client,
}

/// A role, or the whole fleet in one process.
pub(super) struct Process {
    /// `run`, `scheduler 0`, `worker 3`.
    pub(super) name: String,
    child: Child,
    /// `http://127.0.0.1:PORT`
    pub(super) address: String,
}

impl FleetProcesses {
    /// Creates a fleet with its servers, without starting it.
    pub(super) async fn new(scenario: &Scenario, binary: &Path, root: Option<&str>) -> Result<Self, ScenarioError> {
        let binary = std::fs::canonicalize(binary)
            .map_err(|error| ScenarioError::Io(format!("finding {} (cargo build -p cli)", binary.display()), error))?;
        let folder = tempfile::Builder::new().prefix("feedfleet-load-").tempdir();
        let folder = folder.map_err(|error| ScenarioError::Io("making a folder".to_owned(), error))?;
        let written = std::fs::write(folder.path().join("config.toml"), config(scenario).to_string());
        written.map_err(|error| ScenarioError::Io("writing the configuration".to_owned(), error))?;
        let namespace = format!("load-{}-{}", std::process::id(), rand::RngExt::random::<u16>(&mut rand::rng()));
        let mut fleet = FleetProcesses {
            binary,
            deployment: scenario.deployment,
            environment: vec![("FEEDFLEET_NAMESPACE".to_owned(), namespace)],
            clocks: HashMap::new(),
            store: None,
            disk: None,
            processes: Vec::new(),
            client: reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?,
            folder,
        };
        if let Some(root) = root {
            let path = fleet.folder.path().join("root.pem");
            std::fs::write(&path, root)
                .map_err(|error| ScenarioError::Io("writing a certificate".to_owned(), error))?;
            fleet.environment.push(("SSL_CERT_FILE".to_owned(), path.display().to_string()));
        }
        if let Some(megabytes) = scenario.disk_megabytes {
            fleet.disk = Some(Disk::new(&fleet.folder.path().join("data"), megabytes)?);
        }
        if scenario.deployment == Deployment::Cluster {
            fleet.find_servers().await?;
        }
        for name in scenario.jumping() {
            let clock = FakeClock::right(&fleet.folder.path().join(format!("{}.clock", name.replace(' ', "-"))));
            let clock = clock.map_err(|error| ScenarioError::Io("making a clock".to_owned(), error))?;
            fleet.clocks.insert(name, clock);
        }
        Ok(fleet)
    }

    /// Finds the test servers, and puts the database behind a proxy that can delay traffic.
    async fn find_servers(&mut self) -> Result<(), ScenarioError> {
        let url = |name: &str| {
            let missing = || ScenarioError::Set(format!("{name} is not set: run it by `dev/services with COMMAND`"));
            std::env::var(name).map_err(|_| missing())
        };
        let (store, redis) = (url("FEEDFLEET_TEST_POSTGRES")?, url("FEEDFLEET_TEST_REDIS")?);
        let parsed = reqwest::Url::parse(&store).map_err(|_| ScenarioError::Set(format!("{store} is no URL")))?;
        let addresses = parsed.socket_addrs(|| Some(5432)).unwrap_or_default();
        let address = *addresses.first().ok_or_else(|| ScenarioError::Set(format!("{store} names no address")))?;
        let proxy = FaultProxy::before(address).await;
        let proxy = proxy.map_err(|error| ScenarioError::Io("starting a proxy".to_owned(), error))?;
        let mut late = parsed;
        // Both succeed for any URL with a host.
        let _ = late.set_ip_host(proxy.address().ip());
        let _ = late.set_port(Some(proxy.address().port()));
        self.store = Some(proxy);
        let urls = [
            ("FEEDFLEET_STORE__URL", late.to_string()),
            ("FEEDFLEET_SCHEDULE__URL", redis.clone()),
            ("FEEDFLEET_GATE__URL", redis),
            ("FEEDFLEET_QUEUE__URL", url("FEEDFLEET_TEST_RABBITMQ")?),
        ];
        self.environment.extend(urls.map(|(name, url)| (name.to_owned(), url)));
        Ok(())
    }

    /// Starts the process with the API: the scheduler, or the whole fleet.
    pub(super) async fn start_first(&mut self, spread: Duration) -> Result<(), ScenarioError> {
        let spread = ("FEEDFLEET_POLICY__IMPORT_SPREAD".to_owned(), format!("{}ms", spread.as_millis()));
        let name = if self.deployment == Deployment::Embedded { "run" } else { "scheduler 0" };
        self.start(name, &[spread]).await?;
        self.processes.rotate_right(1);
        Ok(())
    }

    /// Starts a process by its name and waits until it is ready.
    pub(super) async fn start(&mut self, name: &str, more: &[(String, String)]) -> Result<(), ScenarioError> {
        let role = name.split(' ').next().unwrap_or(name);
        let mut command = Command::new(&self.binary);
        command.arg(role).args(["--config", "config.toml", "--listen", "127.0.0.1:0"]);
        if role == "run" {
            command.args(["--data", "data"]);
        }
        command.current_dir(self.folder.path()).envs(self.environment.iter().cloned()).envs(more.iter().cloned());
        if self.clocks.contains_key(name) {
            self.set_clock(name, 0)?;
        }
        command.envs(self.clocks.get(name).into_iter().flat_map(FakeClock::variables));
        let path = self.folder.path().join(format!("{}.log", name.replace(' ', "-")));
        let starting = |error| ScenarioError::Io(format!("starting {name}"), error);
        let log = File::create(&path).map_err(starting)?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().map_err(starting)?;
        let mut process = Process { name: name.to_owned(), child, address: String::new() };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            if process.address.is_empty()
                && let Some(found) = text.find("http://127.0.0.1:")
            {
                process.address = text[found..].split([';', ' ', '\n']).next().unwrap_or_default().to_owned();
            }
            if !process.address.is_empty() && self.is_ready(&process.address).await {
                self.processes.push(process);
                return Ok(());
            }
            if Instant::now() > deadline || process.child.try_wait().ok().flatten().is_some() {
                return Err(ScenarioError::Set(format!("{name} did not start:\n{text}")));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns whether a process is ready.
    pub(super) async fn is_ready(&self, address: &str) -> bool {
        let asked = self.client.get(format!("{address}/readyz")).timeout(Duration::from_secs(2)).send().await;
        asked.is_ok_and(|answer| answer.status().is_success())
    }

    /// Returns the text of a process' metrics; none while it does not respond.
    pub(super) async fn metrics(&self, address: &str) -> Option<String> {
        let asked = self.client.get(format!("{address}/metrics")).timeout(Duration::from_secs(2)).send().await;
        asked.ok()?.text().await.ok()
    }

    /// Returns all processes' counters of rare events, by the metric's name.
    pub(super) async fn counters(&self) -> BTreeMap<String, f64> {
        let mut counters = BTreeMap::new();
        for process in &self.processes {
            let text = self.metrics(&process.address).await.unwrap_or_default();
            for name in ["deferred", "failures", "leases_expired", "stale_reports", "dead_letters", "unparks"] {
                *counters.entry(name.to_owned()).or_default() +=
                    series(&text, &format!("feedfleet_{name}_total")).sum::<f64>();
            }
            for (name, of) in
                [("waited", "parks_total{kind=\"first\"}"), ("waited_again", "parks_total{kind=\"again\"}")]
            {
                *counters.entry(name.to_owned()).or_default() += series(&text, &format!("feedfleet_{of}")).sum::<f64>();
            }
        }
        counters
    }

    /// Returns the schedulers' histogram of claims by lag: bucket bounds in seconds with cumulative counts.
    pub(super) async fn claims_by_lag(&self) -> Vec<(f64, f64)> {
        let mut claims: Vec<(f64, f64)> = Vec::new();
        for process in self.processes.iter().filter(|process| !process.name.starts_with("worker")) {
            let text = self.metrics(&process.address).await.unwrap_or_default();
            for line in text.lines().filter_map(|line| line.strip_prefix("feedfleet_lag_seconds_bucket{")) {
                let bound = line.split("le=\"").nth(1).and_then(|rest| rest.split('"').next());
                let bound = bound.and_then(|bound| bound.parse().ok()).unwrap_or(f64::INFINITY);
                let count: f64 = line.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or_default();
                match claims.iter_mut().find(|(known, _)| known.total_cmp(&bound).is_eq()) {
                    Some((_, claims)) => *claims += count,
                    None => claims.push((bound, count)),
                }
            }
        }
        claims.sort_by(|one, other| one.0.total_cmp(&other.0));
        claims
    }

    /// Sends a POST to the API.
    pub(super) async fn post(&self, path: &str, kind: &str, body: String) -> Result<String, ScenarioError> {
        let url = format!("{}/api/v1{path}", self.api());
        let answer = self.client.post(url).header("Content-Type", kind).body(body).send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        match status.is_success() {
            true => Ok(text),
            false => Err(ScenarioError::Set(format!("{path} answered {status}: {text}"))),
        }
    }

    /// Sends a GET to the API.
    pub(super) async fn get(&self, path: &str) -> Result<serde_json::Value, ScenarioError> {
        let answer = self.client.get(format!("{}/api/v1{path}", self.api())).send().await?.error_for_status()?;
        let text = answer.text().await?;
        serde_json::from_str(&text).map_err(|_| ScenarioError::Set(format!("{path} answered no JSON: {text}")))
    }

    /// Returns the address of the API.
    pub(super) fn api(&self) -> &str {
        self.processes.first().map_or("", |process| &process.address)
    }

    /// Adds feeds: bodies of the API, one per feed.
    pub(super) async fn add(&self, bodies: impl Iterator<Item = serde_json::Value>) -> Result<(), ScenarioError> {
        let mut bodies = bodies.peekable();
        while bodies.peek().is_some() {
            let lines: String = bodies.by_ref().take(ADDED_AT_ONCE).map(|body| format!("{body}\n")).collect();
            let answer = self.post("/feeds/bulk", "application/x-ndjson", lines).await?;
            if let Some(refused) = answer.lines().find(|line| line.contains("\"error\"")) {
                return Err(ScenarioError::Set(format!("a feed was refused: {refused}")));
            }
        }
        Ok(())
    }

    /// Shuts a process down gracefully, by its index.
    pub(super) async fn stop(&mut self, place: usize) -> Result<(), ScenarioError> {
        let mut process = self.processes.remove(place);
        let pid = process.child.id().to_string();
        // If it has already ended, the wait ends at once.
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let deadline = Instant::now() + PATIENCE;
        while process.child.try_wait().ok().flatten().is_none() {
            if Instant::now() > deadline {
                return Err(ScenarioError::Set(format!("{} does not stop", process.name)));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Starts or stops workers until there are `count`; stops those started last.
    pub(super) async fn set_workers(&mut self, count: usize) -> Result<(), ScenarioError> {
        let workers =
            |fleet: &Self| fleet.processes.iter().filter(|process| process.name.starts_with("worker")).count();
        while workers(self) > count {
            self.stop(self.processes.len() - 1).await?;
        }
        for number in workers(self)..count {
            self.start(&format!("worker {number}"), &[]).await?;
        }
        Ok(())
    }

    /// Delays all traffic with the database.
    pub(super) fn slow_store(&self, delay: Duration) {
        if let Some(proxy) = &self.store {
            proxy.set(Faults { delay, ..Faults::default() });
        }
    }

    /// Fills the store's disk, or frees it.
    pub(super) fn fill_disk(&self, full: bool) -> Result<(), ScenarioError> {
        self.disk.as_ref().map_or_else(
            || Err(ScenarioError::Set("fill_disk needs disk_megabytes".to_owned())),
            |disk| disk.fill(full),
        )
    }

    /// Moves a process' clock; takes effect within a second.
    pub(super) fn set_clock(&self, name: &str, seconds: i64) -> Result<(), ScenarioError> {
        let set = self.clocks.get(name).map_or(Ok(()), |clock| clock.set(1000 * seconds));
        set.map_err(|error| ScenarioError::Io("moving a clock".to_owned(), error))
    }

    /// Returns the processes' output, for reports of failures.
    pub(super) fn logs(&self) -> String {
        let mut text = String::new();
        for process in &self.processes {
            let path = self.folder.path().join(format!("{}.log", process.name.replace(' ', "-")));
            let log = std::fs::read_to_string(path).unwrap_or_default();
            let last: Vec<&str> = log.lines().rev().take(5).collect();
            for line in last.into_iter().rev() {
                text.push_str(&format!("{}: {line}\n", process.name));
            }
        }
        text
    }
}

impl Process {
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may already have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the configuration common to all scenarios, overridden by the scenario's own keys.
fn config(scenario: &Scenario) -> Table {
    let base = r#"
        [policy]
        mode = "classes"
        min_interval = "1ms"
        salt = 0.0
        hot_minutes = false
        no_validator_factor = 1.0
        [fetch]
        allow_networks = ["127.0.0.0/8"]
        allow_ports = ["1-65535"]
        timeout = "10s"
        connect_timeout = "5s"
        idle_timeout = "10s"
        [log]
        level = "warn"
    "#;
    let mut config: Table = base.parse().unwrap_or_default();
    let mut gap = Table::new();
    gap.insert("gap".to_owned(), Value::String(format!("{}ms", scenario.gap.as_millis())));
    lay_over(&mut config, Table::from_iter([("host".to_owned(), Value::Table(gap))]));
    lay_over(&mut config, scenario.config.clone());
    config
}

impl Scenario {
    /// Returns the processes whose clocks an event moves.
    fn jumping(&self) -> Vec<String> {
        let of = |event: &super::file::Event| match &event.what {
            super::file::What::Jump { processes, .. } => processes.clone(),
            _ => Vec::new(),
        };
        self.event.values().flat_map(of).collect()
    }
}
