//! Least privilege: a fleet whose roles have the users that `feedfleet setup` prints, and everything that a worker's users may not do.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::causes::causes;
use common::config::ServerConfig;
use common::host::HostKey;
use common::job::FetchJob;
use common::metrics::Metrics;
use common::policy::Status;
use common::queue::Queue;
use common::queue::rabbitmq::{Broker, Prefetch};
use common::report::{FetchReport, Outcome};
use common::secrets::{Keyring, Login};
use common::testing::Port;
use common::time::{Clock, SystemClock};
use common::url::Version;
use load_tests::{Feed, Origin, Script, loopback};
use rand::RngExt;
use sqlx::Connection;
use store::{FeedChange, FeedRef, Feeds};

use super::forged_gate::{is_held, try_gate};
use super::harness::{Cluster, Kind, Role, Servers, Urls, until};
use crate::harness::PATIENCE;

const CONFIG: &str = r#"
[host]
gap = "1ms"
[policy]
mode = "classes"
min_interval = "1s"
salt = 0.0
hot_minutes = false
no_validator_factor = 1.0
[policy.category.c]
interval = "2s"
interval_max = "2s"
[policy.category.d]
interval = "2s"
interval_max = "2s"
# A fetch that a stall of the machine makes time out is repeated soon, and not minutes later.
[policy.penalty]
transient_first = "2s"
[scheduler]
reconcile_interval = "2s"
queue_lease = "5s"
fetch_lease = "10s"
[fetch]
timeout = "2s"
connect_timeout = "2s"
idle_timeout = "2s"
allow_networks = ["127.0.0.0/8"]
allow_ports = ["1-65535"]
"#;
const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const OTHER_KEY: &str = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";

/// What `feedfleet setup` printed: the commands, and the settings after them.
struct Printed {
    commands: String,
    settings: String,
}

impl Printed {
    fn setting(&self, name: &str) -> String {
        let found = self.settings.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("no {name} in {}", self.settings)).to_owned()
    }
}

fn setup(servers: &Servers, namespace: &str, arguments: &[&str], admin: Option<&str>) -> Printed {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedfleet"));
    command.arg("setup").args(arguments).env("FEEDFLEET_NAMESPACE", namespace);
    command.env("FEEDFLEET_STORE__URL", &servers.postgres).env("FEEDFLEET_GATE__URL", &servers.redis);
    command.env("FEEDFLEET_SCHEDULE__URL", &servers.redis).env("FEEDFLEET_QUEUE__URL", &servers.rabbitmq);
    if let Some(admin) = admin {
        command.arg("--apply").env("FEEDFLEET_ADMIN_URL", admin);
    }
    let output = command.output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success(), "{arguments:?}: {err}");
    match admin {
        None => Printed { commands: out, settings: err },
        Some(_) => Printed { commands: String::new(), settings: out },
    }
}

/// Pastes text into a program, and returns what it printed.
fn paste(command: &mut Command, text: &str) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let printed = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{command:?}: {printed}");
    printed
}

fn port(servers: &Servers, name: &str) -> String {
    std::fs::read_to_string(servers.folder().join(format!("{name}.port"))).unwrap().trim().to_owned()
}

/// Returns a shell with the broker's own tools on its path, as at a node of the broker.
fn with_rabbitmqctl(servers: &Servers, folder: &Path) -> Command {
    for name in ["rabbitmqctl", "rabbitmq-plugins"] {
        tool(servers, folder, name);
    }
    let mut shell = Command::new("sh");
    shell.arg("-es").env("PATH", format!("{}:{}", folder.display(), std::env::var("PATH").unwrap()));
    shell
}

fn tool(servers: &Servers, folder: &Path, name: &str) {
    let tool = folder.join(name);
    let script = format!(
        "#!/bin/sh\nexport HOME='{home}' RABBITMQ_CONF_ENV_FILE=/dev/null ERL_EPMD_PORT={epmd}\n\
         export RABBITMQ_ENABLED_PLUGINS_FILE='{home}/enabled_plugins'\n\
         exec /usr/lib/rabbitmq/bin/{name} --node t{port}@localhost \"$@\"\n",
        home = servers.folder().join("rabbitmq").display(),
        epmd = port(servers, "epmd"),
        port = port(servers, "rabbitmq"),
    );
    std::fs::write(&tool, script).unwrap();
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

/// The users of both roles, made with the printed commands.
struct Users {
    scheduler: Urls,
    worker: Urls,
    /// A worker that may receive jobs with logins.
    trusted: Urls,
}

async fn users(servers: &Servers, namespace: &str) -> Users {
    let folder = tempfile::tempdir().unwrap();
    let redis = || {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &port(servers, "redis")]);
        command
    };
    let made = |server: &str, arguments: &[&str]| {
        let arguments = [&[server][..], arguments].concat();
        let printed = setup(servers, namespace, &arguments, None);
        let keeps = setup(servers, namespace, &[&arguments[..], &["--keep-password"]].concat(), None);
        // Pasted twice, the same is there, and rights set again leave the password.
        for commands in [&printed.commands, &printed.commands, &keeps.commands] {
            let said = match server {
                "redis" => paste(&mut redis(), commands),
                "rabbitmq" => paste(&mut with_rabbitmqctl(servers, folder.path()), commands),
                _ => paste(Command::new("psql").arg(&servers.postgres), commands),
            };
            assert!(server != "redis" || said.trim() == "OK", "{said}");
        }
        printed
    };
    let worker = |more: &[&str]| {
        let arguments = [&["--role", "worker"][..], more].concat();
        Urls {
            store: String::new(),
            redis: made("redis", &arguments).setting("FEEDFLEET_GATE__URL"),
            queue: made("rabbitmq", &arguments).setting("FEEDFLEET_QUEUE__URL"),
        }
    };
    let scheduler = ["--role", "scheduler"];
    let (postgres, queue) = (made("postgres", &scheduler), made("rabbitmq", &scheduler));
    Users {
        scheduler: Urls {
            store: postgres.setting("FEEDFLEET_STORE__URL"),
            redis: made("redis", &scheduler).setting("FEEDFLEET_SCHEDULE__URL"),
            queue: queue.setting("FEEDFLEET_QUEUE__URL"),
        },
        worker: worker(&[]),
        trusted: worker(&["--logins", "--user", "trusted-worker"]),
    }
}

/// From now on the schedulers' role needs its password.
async fn ask_for_passwords(servers: &Servers, role: &str) {
    let mut admin = sqlx::PgConnection::connect(&servers.postgres).await.unwrap();
    let file: String = sqlx::query_scalar("SHOW hba_file").fetch_one(&mut admin).await.unwrap();
    let rules = format!(
        "'host all {role} 127.0.0.1/32 scram-sha-256', 'host all all 127.0.0.1/32 trust', 'local all all trust'"
    );
    let write = format!("COPY (SELECT unnest(ARRAY[{rules}])) TO '{file}'");
    sqlx::raw_sql(sqlx::AssertSqlSafe(write)).execute(&mut admin).await.unwrap();
    sqlx::raw_sql("SELECT pg_reload_conf()").execute(&mut admin).await.unwrap();
}

async fn refused(scheduler: &mut Role, reason: &str) -> u64 {
    let name = format!("feedfleet_refused_reports_total{{reason=\"{reason}\"}} ");
    let metrics = scheduler.get("/metrics").await.1;
    metrics.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |count| count.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_works_with_the_printed_users_and_a_taken_over_worker_can_do_nothing_else() {
    let mut servers = Servers::own(false);
    let admin = Urls::of(&servers);
    let namespace = format!("least-{}", rand::rng().random::<u32>());
    let Users { scheduler: for_scheduler, worker: for_worker, trusted: _ } = users(&servers, &namespace).await;
    ask_for_passwords(&servers, &format!("\"{namespace}-scheduler\"")).await;
    servers.postgres.clone_from(&for_scheduler.store);

    let origin = Origin::listen(&loopback(3, 0)).await.unwrap();
    let paths = ["/one", "/two", "/victim"];
    let urls: Vec<String> = (0..3).map(|host| origin.url_on(host, paths[host])).collect();
    for path in paths {
        origin.set(path, Script::feed(Feed::rss().title(path)));
    }
    let cluster = Cluster::named(namespace.clone(), &servers, for_scheduler.clone(), CONFIG).await;
    cluster.add(&urls, Duration::from_millis(500)).await;
    let mut worker = cluster.start_with(Kind::Worker, &for_worker, &[]);
    let mut scheduler = cluster.start_with(Kind::Scheduler, &for_scheduler, &[]);
    for path in paths {
        assert!(origin.wait_for(path, 3, PATIENCE).await.len() >= 3, "{path} is polled as usual");
    }
    until("entries are stored", async || cluster.entries().await.len() >= 3).await;
    for role in [&mut worker, &mut scheduler] {
        super::readiness::until(role, "/readyz", 200).await;
    }
    for reason in ["missing", "mismatch", "unknown_key", "time"] {
        assert_eq!(refused(&mut scheduler, reason).await, 0, "{reason}");
    }

    // An attacker takes the worker over.
    worker.stop().await;
    try_redis(&for_worker.redis, &admin.redis, &namespace).await;
    try_postgres(&for_scheduler.store, &for_worker.redis).await;
    let [held, free] = try_reports(&cluster, &mut scheduler, &for_worker, &admin).await;
    try_gate(&for_worker.redis, &admin.redis, &namespace, &held, &free).await;
    scheduler.stop().await;
}

/// With a worker's user at Redis: no key but the gate's, no command but its scripts'.
async fn try_redis(worker: &str, admin: &str, namespace: &str) {
    let mut admin = redis::Client::open(admin).unwrap().get_multiplexed_async_connection().await.unwrap();
    let () = redis::cmd("SET").arg("{another}:gate:host:a:80").arg("x").query_async(&mut admin).await.unwrap();
    let schedule: Vec<String> =
        redis::cmd("KEYS").arg(format!("{{{namespace}:*}}:schedule:*")).query_async(&mut admin).await.unwrap();
    assert!(!schedule.is_empty());
    let before: usize = redis::cmd("DBSIZE").query_async(&mut admin).await.unwrap();
    let mut worker = redis::Client::open(worker).unwrap().get_multiplexed_async_connection().await.unwrap();
    let schedule = schedule[0].as_str();
    let script = "return redis.call('DEL', ARGV[1])";
    let tried: [&[&str]; 17] = [
        &["FLUSHALL"],
        &["FLUSHDB"],
        &["CONFIG", "GET", "*"],
        &["CONFIG", "SET", "maxmemory", "1"],
        &["ACL", "LIST"],
        &["ACL", "SETUSER", "default", "off"],
        &["KEYS", "*"],
        &["SCAN", "0"],
        &["MONITOR"],
        &["SCRIPT", "FLUSH"],
        &["CLIENT", "LIST"],
        &["REPLICAOF", "NO", "ONE"],
        &["GET", schedule],
        &["DEL", schedule],
        &["GET", "{another}:gate:host:a:80"],
        &["EVAL", script, "0", schedule],
        &["EVAL", script, "1", "{another}:gate:host:a:80", "{another}:gate:host:a:80"],
    ];
    for words in tried {
        let mut command = redis::cmd(words[0]);
        let answer: Result<redis::Value, _> = command.arg(&words[1..]).query_async(&mut worker).await;
        let error = answer.map(|_| "done".to_owned()).unwrap_or_else(|error| error.to_string());
        assert!(
            error.contains("NOPERM") || error.contains("ermission") || error.contains("can't access"),
            "{words:?}: {error}"
        );
    }
    let after: usize = redis::cmd("DBSIZE").query_async(&mut admin).await.unwrap();
    // Keys of the gate expire meanwhile.
    assert!(after <= before && after > 0);
}

/// A worker has no role at PostgreSQL, and its password opens none.
async fn try_postgres(scheduler: &str, worker: &str) {
    let login = |url: &str| common::config::hosts_of(url).unwrap().0.split_once("://").unwrap().1.to_owned();
    let (scheduler_login, worker_login) = (login(scheduler), login(worker));
    let (name, _) = scheduler_login.split_once(':').unwrap();
    let (_, stolen) = worker_login.split_once(':').unwrap();
    for tried in [worker_login.clone(), format!("{name}:{stolen}"), format!("{name}@")] {
        let url = scheduler.replace(&scheduler_login, &tried);
        let error = sqlx::PgConnection::connect(&url).await.map(drop).unwrap_err().to_string();
        assert!(error.contains("does not exist") || error.contains("password"), "{error}");
    }
}

/// With a worker's user at RabbitMQ: reports on jobs that it was not given change nothing, and are counted. Returns the host that
/// its own job held, and one that is not held.
async fn try_reports(cluster: &Cluster, scheduler: &mut Role, worker: &Urls, admin: &Urls) -> [HostKey; 2] {
    const PREFETCH: Prefetch = Prefetch::Unacked(1);
    let broker = Broker::connect(&ServerConfig::at(&worker.queue), &cluster.namespace, &Metrics::new())
        .unwrap()
        .declaring_nothing();
    let (jobs, reports) = (broker.queue::<FetchJob>(PREFETCH), broker.queue::<FetchReport>(PREFETCH));
    // As any worker it may take a job. No other worker runs: all feeds but this one stay as they are.
    let job = loop {
        let delivery = jobs.receive().await.unwrap();
        let job = delivery.items[0].clone();
        delivery.ack().await.unwrap();
        if job.expires > SystemClock.now() && job.mac.is_some() {
            break job;
        }
    };
    let feeds = cluster.feeds().await;
    let victim = feeds.iter().find(|feed| feed.id != job.feed).unwrap();
    let of = |feed: &common::feed::Feed, version, outcome| {
        let report = FetchReport::of(feed.id, version, feed.host.clone(), SystemClock.now(), outcome);
        FetchReport { mac: job.mac.clone(), answers_wake: job.wake_at, ..report }
    };
    let mut forged: Vec<FetchReport> =
        (0..20).map(|ahead| of(victim, Version(victim.version.0 + ahead), Outcome::Gone)).collect();
    let hour = || Outcome::Throttled { retry_after: Some(SystemClock.now().after(Duration::from_secs(3000))) };
    let own = FetchReport {
        mac: job.mac.clone(),
        answers_wake: job.wake_at,
        ..FetchReport::of(job.feed, job.version, job.host.clone(), SystemClock.now(), hour())
    };
    // Another host, and a host without feeds.
    for host in [victim.host.clone(), HostKey::new("unrelated.example:443")] {
        forged.push(FetchReport { host, ..own.clone() });
    }
    let mismatched = forged.len() as u64;
    forged.push(FetchReport { mac: None, ..own.clone() });
    forged.push(FetchReport { mac: None, ..of(victim, victim.version, Outcome::Gone) });
    reports.publish(&forged).await.unwrap();
    until("forged reports are counted", async || {
        refused(scheduler, "mismatch").await == mismatched && refused(scheduler, "missing").await == 2
    })
    .await;
    let held = async |host: &HostKey| is_held(&admin.redis, &cluster.namespace, host).await;
    for host in [victim.host.clone(), job.host.clone(), HostKey::new("unrelated.example:443")] {
        assert!(!held(&host).await, "{host} is held");
    }
    let now = cluster.store.feed(&FeedRef::Id(victim.id)).await.unwrap().unwrap();
    assert_eq!((now.status, now.version), (Status::Active, victim.version));

    // It can lie about the job that it was given, once.
    reports.publish(std::slice::from_ref(&own)).await.unwrap();
    until("its own job is answered", async || {
        let feed = cluster.store.feed(&FeedRef::Id(job.feed)).await.unwrap().unwrap();
        feed.version > job.version
    })
    .await;
    assert!(held(&job.host).await);
    let answered = cluster.store.feed(&FeedRef::Id(job.feed)).await.unwrap().unwrap();
    reports.publish(&[FetchReport { outcome: Outcome::Gone, ..own }]).await.unwrap();
    until("the second answer is stale", async || {
        let metrics = scheduler.get("/metrics").await.1;
        metrics
            .lines()
            .any(|line| line.strip_prefix("feedfleet_stale_reports_total ").is_some_and(|count| count != "0"))
    })
    .await;
    let now = cluster.store.feed(&FeedRef::Id(job.feed)).await.unwrap().unwrap();
    assert_eq!((now.status, now.version), (answered.status, answered.version));
    broker.close().await;
    [job.host, victim.host.clone()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_with_logins_go_to_workers_with_the_key_and_no_other_can_take_or_open_them() {
    let mut servers = Servers::own(false);
    let namespace = format!("least-{}", rand::rng().random::<u32>());
    let Users { scheduler: for_scheduler, worker: for_worker, trusted } = users(&servers, &namespace).await;
    servers.postgres.clone_from(&for_scheduler.store);
    let origin = Origin::listen(&loopback(2, 0)).await.unwrap();
    for path in ["/open", "/members"] {
        origin.set(path, Script::feed(Feed::rss().title(path)));
    }
    let urls = [origin.url_on(0, "/open"), origin.url_on(1, "/members")];
    let config = format!("{CONFIG}[secrets]\nkey = \"{KEY}\"\n");
    let cluster = Cluster::named(namespace.clone(), &servers, for_scheduler.clone(), &config).await;
    let keyed = cluster.start_with(Kind::Worker, &trusted, &[]);
    let mut keyless = cluster.start_with(Kind::Worker, &for_worker, &[("FEEDFLEET_SECRETS__KEY", "")]);
    let scheduler = cluster.start_with(Kind::Scheduler, &for_scheduler, &[]);
    cluster.add(&urls[..1], Duration::ZERO).await;
    assert!(origin.wait_for("/open", 3, PATIENCE).await.len() >= 3);
    cluster.add(&urls[1..], Duration::from_secs(20)).await;
    let members = cluster.feeds().await.into_iter().find(|feed| feed.url.to_string() == urls[1]).unwrap();
    let login = Login::new("ann", "a-secret-of-hers").unwrap();
    let credentials = Keyring::new(&cluster.config().secrets).seal(&login, &members.url).unwrap();
    let change = FeedChange { credentials: Some(Some(credentials)), ..FeedChange::default() };
    cluster.store.change_feed(members.id, &change, SystemClock.now()).await.unwrap().unwrap();
    assert!(origin.wait_for("/members", 5, PATIENCE).await.len() >= 5);
    // None went to the common queue once a worker consumed the queue of logins.
    let unreadable = |metrics: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix("feedfleet_unreadable_credentials_total "));
        line.unwrap().parse::<u64>().unwrap()
    };
    let before = unreadable(&keyless.get("/metrics").await.1);
    let polled = origin.requests("/members").len();
    origin.wait_for("/members", polled + 5, PATIENCE).await;
    assert_eq!(unreadable(&keyless.get("/metrics").await.1), before);
    keyed.stop().await;

    // A taken-over worker reads the queue of logins with its user: refused. What it gets otherwise it cannot open.
    let thief =
        Broker::connect(&ServerConfig::at(&for_worker.queue), &namespace, &Metrics::new()).unwrap().declaring_nothing();
    let logins = thief.queue_of_logins(Prefetch::Unacked(1));
    assert!(tokio::time::timeout(Duration::from_secs(2), logins.receive()).await.is_err(), "it received a job");
    let sealed = cluster.store.feed(&FeedRef::Id(members.id)).await.unwrap().unwrap().credentials.unwrap();
    let mut without = cluster.config().secrets;
    without.key = OTHER_KEY.to_owned();
    let error = Keyring::new(&without).open(&sealed, &members.url).map(drop).unwrap_err();
    println!("{}", causes(&error));
    thief.close().await;
    keyless.stop().await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn setup_applies_the_same_users_over_administrators_urls() {
    let servers = Servers::own(false);
    let namespace = format!("least-{}", rand::rng().random::<u32>());
    let folder = tempfile::tempdir().unwrap();
    let management = Port::reserved();
    let enable = format!(
        "rabbitmqctl eval 'application:load(rabbitmq_management), application:set_env(rabbitmq_management, tcp_config, \
         [{{port, {}}}, {{ip, \"127.0.0.1\"}}]).'\nrabbitmq-plugins enable rabbitmq_management\n",
        management.number()
    );
    paste(&mut with_rabbitmqctl(&servers, folder.path()), &enable);
    let broker = format!("http://guest:guest@{}", management.address());

    let worker = ["--role", "worker"];
    let scheduler = ["--role", "scheduler"];
    let applied = |server: &str, arguments: &[&str], admin: &str| {
        let arguments = [&[server][..], arguments].concat();
        setup(&servers, &namespace, &arguments, Some(admin));
        // The second password counts, and a third call keeps it.
        let second = setup(&servers, &namespace, &arguments, Some(admin));
        let third = setup(&servers, &namespace, &[&arguments[..], &["--keep-password"]].concat(), Some(admin));
        assert_eq!(third.settings, "");
        second
    };
    let redis = applied("redis", &worker, &servers.redis).setting("FEEDFLEET_GATE__URL");
    let mut connection = redis::Client::open(redis).unwrap().get_multiplexed_async_connection().await.unwrap();
    let ours = format!("{{{namespace}}}:gate:host:a:80");
    let none: Option<String> = redis::cmd("GET").arg(ours).query_async(&mut connection).await.unwrap();
    assert_eq!(none, None);
    redis::cmd("FLUSHALL").exec_async(&mut connection).await.unwrap_err();

    let more = [&scheduler[..], &["--database", "fleetdb"]].concat();
    let postgres = applied("postgres", &more, &servers.postgres).setting("FEEDFLEET_STORE__URL");
    ask_for_passwords(&servers, &format!("\"{namespace}-scheduler\"")).await;
    let store = store::postgres::PostgresStore::open(&ServerConfig::at(&postgres), &namespace).await.unwrap();
    assert!(store.feeds(&store::FeedQuery { limit: 1, ..store::FeedQuery::default() }).await.unwrap().items.is_empty());
    let refused = setup_fails(&servers, &["postgres", "--role", "scheduler", "--apply"], &postgres);
    assert!(refused.contains("make the role") && !refused.contains(&postgres), "{refused}");
    assert!(setup(&servers, &namespace, &["postgres", "--role", "worker"], None).commands.contains("need no role"));

    let more = [&worker[..], &["--vhost", "fleets"]].concat();
    let worker_queue = applied("rabbitmq", &more, &broker).setting("FEEDFLEET_QUEUE__URL");
    let more = [&scheduler[..], &["--vhost", "fleets"]].concat();
    let scheduler_queue = applied("rabbitmq", &more, &broker).setting("FEEDFLEET_QUEUE__URL");
    // A user that keeps its password loses its tags all the same.
    let name = format!("{namespace}-worker");
    let ctl = |line: &str| paste(&mut with_rabbitmqctl(&servers, folder.path()), line);
    ctl(&format!("rabbitmqctl set_user_tags '{name}' administrator\n"));
    let keeps = [&["rabbitmq"][..], &worker[..], &["--vhost", "fleets", "--keep-password"]].concat();
    setup(&servers, &namespace, &keeps, Some(&broker));
    let listed = ctl("rabbitmqctl list_users --silent\n");
    assert!(listed.lines().any(|line| line.split_whitespace().eq([name.as_str(), "[]"])), "{listed}");
    let metrics = Metrics::new();
    let schedulers = Broker::connect(&ServerConfig::at(&scheduler_queue), &namespace, &metrics).unwrap();
    let workers = Broker::connect(&ServerConfig::at(&worker_queue), &namespace, &metrics).unwrap().declaring_nothing();
    let (sent, received) =
        (schedulers.queue::<FetchReport>(Prefetch::Unacked(1)), workers.queue::<FetchReport>(Prefetch::Unacked(1)));
    until("the queue is declared", async || sent.depth().await.is_ok() && received.check().await.is_ok()).await;
    let refused = setup_fails(
        &servers,
        &["rabbitmq", "--role", "worker", "--apply"],
        &format!("http://guest:wrong@{}", management.address()),
    );
    assert!(refused.contains("401") && !refused.contains("wrong"), "{refused}");
    schedulers.close().await;
    workers.close().await;
}

/// Returns what it says when it does not work.
fn setup_fails(servers: &Servers, arguments: &[&str], admin: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedfleet"));
    command.arg("setup").args(arguments).env("FEEDFLEET_QUEUE__URL", &servers.rabbitmq);
    let output = command.env("FEEDFLEET_ADMIN_URL", admin).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}
