//! A fleet that reaches all three servers over TLS, with a private authority and client certificates.

use std::path::{Path, PathBuf};
use std::time::Duration;

use common::testing::Port;
use load_tests::tls::Authority;
use sqlx::{AssertSqlSafe, PgPool};

use super::harness::{Kind, Servers, Urls, until};
use super::load::{Load, Size};
use super::readiness;

const SIZE: Size = Size {
    feeds: 40,
    hosts: 20,
    interval: Duration::from_secs(6),
    gap: Duration::from_millis(50),
    trouble: Duration::ZERO,
    leases: 1,
};
/// The user at PostgreSQL that the clients' certificate names.
const OWNER: &str = "fleet";

/// A folder with the authority's certificate, and one with its key for servers and for clients each.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let authority = Authority::new("authority").unwrap();
        let files = Files(tempfile::tempdir().unwrap());
        std::fs::write(files.path("ca.pem"), authority.pem()).unwrap();
        for (name, owner) in [("server", "server"), ("client", OWNER)] {
            let [certificate, key] = authority.issue("127.0.0.1", owner).unwrap();
            std::fs::write(files.path(&format!("{name}.pem")), certificate).unwrap();
            std::fs::write(files.path(&format!("{name}.key")), key).unwrap();
            let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(files.path(&format!("{name}.key")), private).unwrap();
        }
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Returns a role's settings: for each of its servers the authority, and the clients' certificate if it shows one.
    fn settings(&self, kind: Kind, certified: bool) -> Vec<(String, String)> {
        let keys = [("CA_FILE", "ca.pem"), ("CLIENT_CERT", "client.pem"), ("CLIENT_KEY", "client.key")];
        let keys = &keys[..if certified { 3 } else { 1 }];
        let sections = ["GATE", "QUEUE", "STORE", "SCHEDULE"];
        let sections = &sections[..if kind == Kind::Worker { 2 } else { 4 }];
        let of = |section| keys.iter().map(move |(key, file)| (format!("FEEDFLEET_{section}__{key}"), self.text(file)));
        sections.iter().flat_map(of).collect()
    }
}

/// PostgreSQL accepts its user over TLS with its certificate only. The test's own connections stay as they are.
async fn secure_postgres(servers: &Servers, files: &Files) -> String {
    let admin = PgPool::connect(&servers.postgres).await.unwrap();
    let data: String = sqlx::query_scalar("SHOW data_directory").fetch_one(&admin).await.unwrap();
    let data = Path::new(&data);
    let user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(data).unwrap());
    for name in ["ca.pem", "server.pem", "server.key"] {
        std::fs::copy(files.path(name), data.join(name)).unwrap();
        std::os::unix::fs::chown(data.join(name), Some(user), None).unwrap();
    }
    let rules = format!(
        "local all all trust\nhostssl all {OWNER} 127.0.0.1/32 cert\nhost all {OWNER} 127.0.0.1/32 reject\n\
         host all all 127.0.0.1/32 trust\n"
    );
    std::fs::write(data.join("pg_hba.conf"), rules).unwrap();
    for statement in [
        &*format!("CREATE ROLE {OWNER} LOGIN SUPERUSER"),
        "ALTER SYSTEM SET ssl_cert_file = 'server.pem'",
        "ALTER SYSTEM SET ssl_key_file = 'server.key'",
        "ALTER SYSTEM SET ssl_ca_file = 'ca.pem'",
        "ALTER SYSTEM SET ssl = on",
        "SELECT pg_reload_conf()",
    ] {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&admin).await.unwrap();
    }
    let is_on = "SELECT setting = 'on' FROM pg_settings WHERE name = 'ssl'";
    until("PostgreSQL has TLS", async || sqlx::query_scalar(is_on).fetch_one(&admin).await.unwrap()).await;
    servers.postgres.replace("postgres@", &format!("{OWNER}@"))
}

async fn secure_redis(servers: &Servers, files: &Files, port: u16) -> String {
    let client = redis::Client::open(servers.redis.as_str()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut set = redis::cmd("CONFIG");
    set.arg("SET").arg("tls-cert-file").arg(files.text("server.pem")).arg("tls-key-file").arg(files.text("server.key"));
    set.arg("tls-ca-cert-file").arg(files.text("ca.pem")).arg("tls-auth-clients").arg("yes");
    set.arg("tls-port").arg(port);
    let () = set.query_async(&mut connection).await.unwrap();
    format!("rediss://127.0.0.1:{port}/")
}

fn secure_rabbitmq(servers: &Servers, files: &Files, port: u16) -> String {
    let [ca, certificate, key] = ["ca.pem", "server.pem", "server.key"].map(|name| files.text(name));
    let start = format!(
        "rabbit_networking:ensure_ssl(), rabbit_networking:start_ssl_listener({{\"127.0.0.1\", {port}}}, \
         [{{cacertfile, \"{ca}\"}}, {{certfile, \"{certificate}\"}}, {{keyfile, \"{key}\"}}, {{verify, verify_peer}}, \
         {{fail_if_no_peer_cert, true}}], 2)."
    );
    servers.control("rabbitmq", &["eval", &start]);
    format!("amqps://guest:guest@127.0.0.1:{port}/%2f")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_works_over_tls_with_a_private_authority_and_client_certificates_everywhere() {
    let servers = Servers::own(false);
    let files = Files::new();
    let (redis, rabbitmq) = (Port::reserved(), Port::reserved());
    let urls = Urls {
        store: secure_postgres(&servers, &files).await,
        redis: secure_redis(&servers, &files, redis.number()).await,
        queue: tokio::task::block_in_place(|| secure_rabbitmq(&servers, &files, rabbitmq.number())),
    };
    let load = Load::new(SIZE, &servers, urls.clone(), "").await;
    let start = |kind, certified| {
        let settings = files.settings(kind, certified);
        let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (&**name, &**value)).collect();
        load.cluster.start_with(kind, &urls, &settings)
    };
    let (mut scheduler, mut worker) = (start(Kind::Scheduler, true), start(Kind::Worker, true));
    load.warm_up().await;
    let truth = load.truth();
    load.until_known(&truth).await;
    assert_eq!(load.lost_and_doubled(&truth).await, (Vec::new(), 0));
    for role in [&mut scheduler, &mut worker] {
        readiness::until(role, "/readyz", 200).await;
    }
    let admin = PgPool::connect(&servers.postgres).await.unwrap();
    let sql = "SELECT count(*) FILTER (WHERE ssl), count(*) FILTER (WHERE NOT ssl) \
               FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = $1";
    let (secure, plain): (i64, i64) = sqlx::query_as(sql).bind(OWNER).fetch_one(&admin).await.unwrap();
    assert!(secure > 0 && plain == 0, "{secure} {plain}");

    // Without its certificate a role is let in nowhere.
    let (mut stranger, mut uncertified) = (start(Kind::Scheduler, false), start(Kind::Worker, false));
    for role in [&mut stranger, &mut uncertified] {
        until("its readiness names the certificate", async || {
            let (status, why) = role.get("/readyz").await;
            status == 503 && why.to_lowercase().contains("certificate")
        })
        .await;
    }
    drop((stranger, uncertified));
    for role in [worker, scheduler] {
        role.stop().await;
    }
}
