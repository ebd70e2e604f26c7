//! PgBouncer in both modes, and proxies that end idle connections.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::config::ServerConfig;
use common::testing::Port;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Executor};

use super::faults::Proxy;
use super::own::PATIENCE;
use crate::StoreError;
use crate::Upkeep;
use crate::conformance::{add, entry, modified, new_entries, poll, published};
use crate::postgres::{Limits, PostgresStore};
use crate::testing::{Schema, url};

/// A PgBouncer with its default settings, before the tests' server.
struct PgBouncer {
    child: Child,
    url: String,
    port: Port,
    folder: tempfile::TempDir,
}

impl PgBouncer {
    async fn start(mode: &str) -> Self {
        let server: PgConnectOptions = url().parse().unwrap();
        let folder = tempfile::tempdir().unwrap();
        // It does not run as root.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let reserved = Port::reserved();
        let port = reserved.number();
        let is_root = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(folder.path()).unwrap()) == 0;
        let user = if is_root { "user = postgres" } else { "" };
        let config = format!(
            "[databases]\npostgres = user={} host={} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = any\n{user}\nadmin_users = postgres\npool_mode = {mode}\n",
            server.get_username(),
            server.get_host(),
            server.get_port()
        );
        let file = folder.path().join("pgbouncer.ini");
        std::fs::write(&file, config).unwrap();
        let child = listening(&file, port).await;
        let url = url().replace(&format!(":{}/", server.get_port()), &format!(":{port}/"));
        PgBouncer { child, url, port: reserved, folder }
    }

    /// Ends all connections, and starts again at the same address.
    async fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = listening(&self.folder.path().join("pgbouncer.ini"), self.port.number()).await;
    }

    async fn open(&self, schema: &Schema) -> Result<PostgresStore, StoreError> {
        PostgresStore::open_within(Limits::default(), &ServerConfig::at(&self.url), &schema.0).await
    }
}

/// Starts the program, and waits until it listens.
async fn listening(file: &Path, port: u16) -> Child {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("pgbouncer");
    command.arg(file).env("PATH", path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().expect("PgBouncer is missing; dev/install installs it");
    let begun = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begun.elapsed() < PATIENCE, "PgBouncer never listened");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    child
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[tokio::test]
async fn pgbouncer_that_gives_each_transaction_another_session_is_refused_with_what_to_do() {
    let schema = Schema::default();
    // In the other mode each statement gets another one.
    for (mode, others) in [("statement", 0), ("transaction", 0), ("transaction", 8)] {
        let bouncer = PgBouncer::start(mode).await;
        // Others that use the same sessions.
        let busy: Vec<_> = (0..others)
            .map(|_| {
                let options: PgConnectOptions = bouncer.url.parse().unwrap();
                tokio::spawn(async move {
                    let mut on = options.extra_float_digits(None).connect().await.unwrap();
                    while on.execute("SELECT 1").await.is_ok() {}
                })
            })
            .collect();
        for attempt in 0..20 {
            let error = bouncer
                .open(&schema)
                .await
                .map(drop)
                .expect_err(&format!("{mode}, {others} others, attempt {attempt}"));
            assert!(matches!(error, StoreError::SharedSessions), "{error:?}");
            assert!(error.to_string().contains("pool_mode = session") && !error.may_pass(), "{error}");
        }
        for task in busy {
            task.abort();
        }
    }
    let made = sqlx::query_scalar("SELECT to_regnamespace($1) IS NOT NULL").bind(format!("\"{}\"", schema.0));
    let made: bool = made.fetch_one(&mut schema.connection().await).await.unwrap();
    assert!(!made, "nothing was written through it");
}

#[tokio::test]
async fn pgbouncer_that_gives_each_connection_a_session_works_as_the_server_does() {
    let schema = Schema::default();
    let bouncer = PgBouncer::start("session").await;
    let store = bouncer.open(&schema).await.unwrap();
    let id = add(&store, "https://a.org/feed").await;
    assert_eq!(new_entries(&poll(&store, id, 10, modified(vec![entry("1", "one")])).await), (1, 0));
    assert_eq!(published(&store).await.len(), 1);
    let mut on = store.acquire("test").await.unwrap();
    let sql = "SELECT current_setting('enable_seqscan'), current_setting('application_name')";
    let (seqscan, name): (String, String) = sqlx::query_as(sql).fetch_one(&mut *on).await.unwrap();
    assert_eq!(seqscan, "off");
    // The look for silent connections counts by this name.
    assert!(name.starts_with("feedfleet ") && name.ends_with(&schema.0), "{name}");
    drop(on);
    store.close().await;
    // The next client of the session has none of the settings.
    let options: PgConnectOptions = bouncer.url.parse().unwrap();
    let mut on = options.extra_float_digits(None).connect().await.unwrap();
    let seqscan: String = sqlx::query_scalar("SHOW enable_seqscan").fetch_one(&mut on).await.unwrap();
    assert_eq!(seqscan, "on");
}

#[tokio::test]
async fn idle_connections_that_a_proxy_closed_are_not_used_for_a_call() {
    let schema = Schema::default();
    let mut bouncer = PgBouncer::start("session").await;
    let store = bouncer.open(&schema).await.unwrap();
    for _ in 0..3 {
        let calls = futures_util::future::join_all((0..6).map(|_| store.paused())).await;
        assert!(calls.iter().all(Result::is_ok), "{calls:?}");
        bouncer.restart().await;
        // Connections that were idle for less than a second are used unchecked.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
    }
    store.paused().await.unwrap();
}

#[tokio::test]
async fn idle_connections_that_a_proxy_dropped_silently_are_not_used_for_a_call() {
    let schema = Schema::default();
    schema.store().await.close().await;
    let proxy = Proxy::before(&url()).await;
    let server = url().parse::<PgConnectOptions>().unwrap().get_port();
    let through = url().replace(&format!(":{server}/"), &format!(":{}/", proxy.port));
    let store = PostgresStore::open(&ServerConfig::at(&through), &schema.0).await.unwrap();
    let calls = futures_util::future::join_all((0..6).map(|_| store.paused())).await;
    assert!(calls.iter().all(Result::is_ok), "{calls:?}");
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    proxy.silence();
    let begun = Instant::now();
    let calls = futures_util::future::join_all((0..6).map(|_| store.paused())).await;
    assert!(calls.iter().all(Result::is_ok), "{calls:?}");
    println!("six calls over connections that were dropped while idle: {:?}", begun.elapsed());
}
