//! A PostgreSQL that only one test uses, and its standby: a test can kill one and promote the other.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection};

pub(super) const FIRST: &str = "postgres";
pub(super) const SECOND: &str = "postgres2";
/// How long anything may take: far beyond what a loaded machine needs.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// Private servers, stopped when dropped.
pub(super) struct Own(tempfile::TempDir);

impl Own {
    /// Starts one that keeps what it confirmed.
    pub(super) fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("feedfleet-own").tempdir().unwrap();
        // PostgreSQL runs as a separate user.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let own = Own(folder);
        own.ask(&["up", FIRST]);
        own
    }

    /// The same with a standby, which streams.
    pub(super) fn pair() -> Self {
        let own = Own::start();
        own.ask(&["standby", SECOND, FIRST]);
        own
    }

    fn ask(&self, arguments: &[&str]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev/services");
        let mut command = Command::new(script);
        command.args(arguments).env("FEEDFLEET_SERVICES", self.0.path().join("services"));
        command.env("FEEDFLEET_DURABLE", "1").stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = command.output().unwrap();
        assert!(output.status.success(), "dev/services {arguments:?} ended with {}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    pub(super) fn kill(&self, name: &str) {
        self.ask(&["signal", name, "KILL"]);
    }

    /// Returns the folder of a server's data.
    pub(super) fn data(&self, name: &str) -> PathBuf {
        self.0.path().join("services").join(name).join("data")
    }

    pub(super) fn port(&self, name: &str) -> u16 {
        let file = self.0.path().join("services").join(format!("{name}.port"));
        std::fs::read_to_string(file).unwrap().trim().parse().unwrap()
    }

    /// Returns a URL with these servers, in this order.
    pub(super) fn url(&self, names: &[&str]) -> String {
        let hosts: Vec<String> = names.iter().map(|name| format!("127.0.0.1:{}", self.port(name))).collect();
        format!("postgres://postgres@{}/postgres", hosts.join(","))
    }

    /// Connects as an administrator.
    pub(super) async fn on(&self, name: &str) -> PgConnection {
        self.url(&[name]).parse::<PgConnectOptions>().unwrap().connect().await.unwrap()
    }

    /// Changes settings of a server, and waits until new sessions have them.
    pub(super) async fn set(&self, name: &str, settings: &str) {
        let mut on = self.on(name).await;
        for setting in settings.split(';') {
            on.execute(AssertSqlSafe(format!("ALTER SYSTEM {setting}"))).await.unwrap();
        }
        on.execute("SELECT pg_reload_conf()").await.unwrap();
        on.close().await.unwrap();
    }

    /// Has the first confirm what the second has stored too.
    pub(super) async fn synchronous(&self) {
        self.set(FIRST, "SET synchronous_standby_names = 'postgres2'").await;
        self.until(FIRST, "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'").await;
    }

    /// Has the second fall behind from now on.
    pub(super) async fn lagging(&self) {
        self.set(SECOND, "SET primary_conninfo = ''").await;
        self.until(FIRST, "SELECT count(*) = 0 FROM pg_stat_replication").await;
    }

    /// Makes the second a primary that waits for no standby.
    pub(super) async fn promote(&self) {
        self.set(SECOND, "SET synchronous_standby_names = ''").await;
        let mut on = self.on(SECOND).await;
        assert!(sqlx::query_scalar::<_, bool>("SELECT pg_promote()").fetch_one(&mut on).await.unwrap());
    }

    /// Waits until a statement answers true.
    pub(super) async fn until(&self, name: &str, sql: &str) {
        let mut on = self.on(name).await;
        let begun = Instant::now();
        while !sqlx::query_scalar::<_, bool>(AssertSqlSafe(sql)).fetch_one(&mut on).await.unwrap() {
            assert!(begun.elapsed() < PATIENCE, "never true on {name}: {sql}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.ask(&["down"]);
    }
}
