//! What two reviews did to a cluster, done again as they did it: a fault of a real server, and how the fleet reacts.

use std::time::{Duration, Instant};

use common::feed::Feed as StoredFeed;
use common::outcome::FailureKind;
use load_tests::proxy::{FaultProxy, Faults};
use load_tests::{Origin, Record, Script, loopback};

use super::harness::{Cluster, Kind, Role, Servers, Urls, address, through, until};
use super::readiness::until as until_status;
use crate::harness::PATIENCE;

fn config(interval: Duration) -> String {
    let interval = format!("\"{}ms\"", interval.as_millis());
    format!(
        r#"
[policy]
mode = "classes"
min_interval = {interval}
salt = 0.0
hot_minutes = false
no_validator_factor = 1.0
category.d = {{ interval = {interval}, interval_max = {interval} }}
penalty.transient_first = {interval}
[host]
gap = "0s"
[scheduler]
claim_lease = "2s"
queue_lease = "5s"
fetch_lease = "8s"
[fetch]
allow_networks = ["127.0.0.0/8"]
allow_ports = ["1-65535"]
timeout = "6s"
"#
    )
}

/// Feeds on a host each, and a cluster that polls them.
struct Replay {
    origin: Origin,
    cluster: Cluster,
    interval: Duration,
    feeds: usize,
}

impl Replay {
    async fn new(
        feeds: u16,
        interval: Duration,
        servers: &Servers,
        urls: Urls,
        script: impl Fn(u16) -> Script,
    ) -> Self {
        let origin = Origin::listen(&loopback(feeds, 0)).await.unwrap();
        let added: Vec<String> = (0..feeds)
            .map(|n| {
                origin.set(&path(n), script(n));
                origin.url_on(usize::from(n), &path(n))
            })
            .collect();
        let cluster = Cluster::new(servers, urls, &config(interval)).await;
        cluster.add(&added, interval).await;
        Replay { origin, cluster, interval, feeds: usize::from(feeds) }
    }

    /// Starts a scheduler and a worker, and waits until every feed was polled.
    async fn begin(&self) -> [Role; 2] {
        let roles = [Kind::Scheduler, Kind::Worker].map(|kind| self.cluster.start(kind));
        assert!(self.origin.wait_for_total(self.feeds, PATIENCE).await, "{}", roles[0].stderr());
        roles
    }

    /// Waits until each feed was polled twice more, and returns how long that took.
    async fn two_rounds(&self, roles: &[Role]) -> Duration {
        let begun = Instant::now();
        let paths: Vec<String> = (0..u16::try_from(self.feeds).unwrap()).map(path).collect();
        let before: Vec<usize> = paths.iter().map(|path| self.origin.requests(path).len()).collect();
        for (path, before) in paths.iter().zip(before) {
            let requests = self.origin.wait_for(path, before + 2, PATIENCE).await.len();
            assert!(requests >= before + 2, "{path}\n{}", roles.iter().map(Role::stderr).collect::<String>());
        }
        begun.elapsed()
    }

    async fn quarantined(&self) -> Vec<StoredFeed> {
        let is_blamed =
            |feed: &StoredFeed| feed.state.penalty.is_some_and(|penalty| penalty.kind == FailureKind::Crashed);
        self.cluster.feeds().await.into_iter().filter(is_blamed).collect()
    }
}

fn path(n: u16) -> String {
    format!("/{n}.xml")
}

fn feed(_: u16) -> Script {
    Script::feed(load_tests::Feed::rss())
}

fn redis(servers: &Servers) -> redis::Connection {
    redis::Client::open(servers.redis.clone()).unwrap().get_connection().unwrap()
}

/// A Redis of this test alone, beside the shared servers.
fn with_own_redis() -> (Servers, Servers, Urls) {
    let (shared, own) = (Servers::shared(), Servers::own_with(&["redis"], false));
    let urls = Urls { redis: own.redis.clone(), ..Urls::of(&shared) };
    (shared, own, urls)
}

async fn metric(role: &mut Role, name: &str) -> Option<f64> {
    let text = role.get("/metrics").await.1;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// A1, and the same at the other servers: established connections swallow everything, and new ones work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_go_silent_cost_seconds() {
    let servers = Servers::shared();
    let plain = Urls::of(&servers);
    let mut proxies = Vec::new();
    for url in [&plain.redis, &plain.store, &plain.queue] {
        proxies.push(FaultProxy::before(address(url)).await.unwrap());
    }
    let urls = Urls {
        redis: through(&plain.redis, &proxies[0]),
        store: through(&plain.store, &proxies[1]),
        queue: through(&plain.queue, &proxies[2]),
    };
    let replay = Replay::new(10, Duration::from_secs(3), &servers, urls, feed).await;
    let roles = replay.begin().await;
    for (name, proxy) in ["Redis", "PostgreSQL", "RabbitMQ"].into_iter().zip(&proxies) {
        proxy.set(Faults { silent_before: Some(tokio::time::Instant::now()), ..Faults::default() });
        let all = replay.two_rounds(&roles).await;
        println!("{name}: each feed was polled twice within {all:.1?} after its connections became silent");
        // On a quiet machine 10 s; 230 s and more before.
        assert!(all < Duration::from_secs(60), "{name}: {all:?}");
    }
}

/// 1.1: each answer of PostgreSQL is 0.6 s late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgresql_with_late_answers_slows_the_fleet_and_is_not_taken_for_a_clock() {
    let servers = Servers::shared();
    let plain = Urls::of(&servers);
    let proxy = FaultProxy::before(address(&plain.store)).await.unwrap();
    let urls = Urls { store: through(&plain.store, &proxy), ..plain };
    let replay = Replay::new(20, Duration::from_secs(2), &servers, urls, feed).await;
    let mut roles = replay.begin().await;
    proxy.set(Faults { delay: Duration::from_millis(300), ..Faults::default() });
    tokio::time::sleep(replay.interval * 2).await;
    let all = replay.two_rounds(&roles).await;
    println!("two rounds of {} feeds took {all:.1?} with answers that are 0.6 s late", replay.feeds);
    assert_eq!(roles[0].get("/healthz").await.0, 200);
    let log = roles[0].stderr();
    assert!(!log.contains("clock"), "{log}");
}

/// 1.4: `noeviction`, and `maxmemory` is reached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_redis_makes_no_role_ready_and_is_named() {
    let (shared, own, urls) = with_own_redis();
    let replay = Replay::new(5, Duration::from_secs(2), &shared, urls, feed).await;
    let mut roles = replay.begin().await;
    let set = |bytes: &str| {
        redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(bytes).exec(&mut redis(&own)).unwrap();
    };
    set("1");
    for role in &mut roles {
        until_status(role, "/readyz", 503).await;
        let why = role.get("/readyz").await.1;
        assert!(why.contains("OOM"), "{:?}: {why}", role.kind);
    }
    set("0");
    for role in &mut roles {
        until_status(role, "/readyz", 200).await;
    }
    replay.two_rounds(&roles).await;
}

/// 1.2 and 1.3: both roles name the cause, in the log and in their readiness.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_named_by_both_roles() {
    let (shared, own, urls) = with_own_redis();
    redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("right").exec(&mut redis(&own)).unwrap();
    let wrong = Urls { redis: own.redis.replace("redis://", "redis://:wrong@"), ..urls };
    let cluster = Cluster::new(&shared, wrong, "").await;
    let why = "Password authentication failed";
    for kind in [Kind::Scheduler, Kind::Worker] {
        let mut role = cluster.start(kind);
        until_status(&mut role, "/readyz", 503).await;
        until("the cause is reported", async || role.get("/readyz").await.1.contains(why)).await;
        until("the cause is logged", async || role.stderr().contains(why)).await;
        assert!(!role.stderr().contains(":wrong@"), "{}", role.stderr());
    }
}

/// 1.8: PostgreSQL is not there when a scheduler starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduler_without_postgresql_answers_calls_with_the_reason() {
    let servers = Servers::shared();
    let cluster = Cluster::new(&servers, Urls::of(&servers), "").await;
    let away = Urls { store: "postgres://u:hunter2@127.0.0.1:1/x".to_owned(), ..Urls::of(&servers) };
    let mut scheduler = cluster.start_with(Kind::Scheduler, &away, &[]);
    until("the reason is reported", async || {
        let (status, why) = scheduler.get("/api/v1/stats").await;
        assert!(!why.contains("hunter2"), "{why}");
        status == 503 && why.contains("Connection refused")
    })
    .await;
}

/// 1.9: Redis is emptied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_that_is_closed_after_a_loss_is_reported_wherever_one_looks() {
    let (shared, own, urls) = with_own_redis();
    let replay = Replay::new(5, Duration::from_secs(2), &shared, urls, feed).await;
    let [mut scheduler, worker] = replay.begin().await;
    assert_eq!(metric(&mut scheduler, "feedfleet_gate_open").await, Some(1.0));
    let _: () = redis::cmd("FLUSHALL").query(&mut redis(&own)).unwrap();
    until("the metric says it", async || metric(&mut scheduler, "feedfleet_gate_open").await == Some(0.0)).await;
    let stats: serde_json::Value = serde_json::from_str(&scheduler.get("/api/v1/stats").await.1).unwrap();
    let closed = stats["gate_closed"].as_str().unwrap();
    assert!(closed.contains("it opens at"), "{closed}");
    let explained = scheduler.get("/api/v1/feeds/1/explain").await.1;
    assert!(explained.contains("the host gate is closed"), "{explained}");
    until("it opens", async || metric(&mut scheduler, "feedfleet_gate_open").await == Some(1.0)).await;
    replay.two_rounds(&[scheduler, worker]).await;
}

/// 1.10: another scheduler of the fleet has another policy, and other keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedulers_share_one_policy_and_say_so_when_other_keys_differ() {
    let servers = Servers::shared();
    let cluster = Cluster::new(&servers, Urls::of(&servers), &config(Duration::from_secs(2))).await;
    let mut first = cluster.start(Kind::Scheduler);
    first.address();
    cluster.configure(&format!("{}[retention]\nevents = \"90d\"\n", config(Duration::from_secs(60))));
    let second = cluster.start(Kind::Scheduler);
    let adopted = "new policy and host rules are in force";
    until("the first one works by the newer policy", async || first.stderr().contains(adopted)).await;
    let line = "another scheduler of this fleet has a different configuration";
    until("both say that they differ", async || [&first, &second].iter().all(|role| role.stderr().contains(line)))
        .await;
}

/// B1: Redis is killed while a host throttles, and comes back empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_429_is_heeded_although_redis_was_killed_meanwhile_and_is_empty() {
    const REST: Duration = Duration::from_secs(40);
    let (shared, own, urls) = with_own_redis();
    let interval = Duration::from_secs(2);
    let throttling = |n: u16| match n {
        0 => {
            let throttled = Script::status(429).header("Retry-After", REST.as_secs().to_string());
            feed(n).then(throttled.delay(Duration::from_secs(4))).then(feed(n))
        }
        _ => feed(n),
    };
    let replay = Replay::new(4, interval, &shared, urls, throttling).await;
    let roles = replay.begin().await;
    replay.origin.wait_for_start(&path(0), 2, PATIENCE).await;
    own.signal("redis", "KILL");
    let throttled = replay.origin.wait_for(&path(0), 2, PATIENCE).await[1].clone();
    assert_eq!(throttled.status, Some(429));
    own.up("redis");
    replay.two_rounds(&roles).await;
    let requests = replay.origin.wait_for(&path(0), 3, REST + PATIENCE).await;
    let waited = requests[2].start - throttled.end.unwrap();
    println!("requested again {waited:.1?} after its 429 with {REST:?}");
    // The origin notes the end of its answer when the worker may have read it already.
    assert!(waited >= REST - Duration::from_secs(1), "{waited:?}");
}

/// B4: reports that are far larger as JSON than as text, beside ordinary feeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_full_of_quotes_do_not_keep_other_feeds_waiting() {
    let servers = Servers::shared();
    let quotes = "\"".repeat(975_000);
    let entry = |n| format!("<entry><id>quoted{n}</id><title>{n}</title><content>{quotes}</content></entry>");
    let entries: String = (0..4).map(entry).collect();
    let document = format!("<feed xmlns=\"http://www.w3.org/2005/Atom\"><title>q</title>{entries}</feed>");
    let script = |n: u16| match n {
        0..12 => Script::body("application/atom+xml", document.clone()),
        _ => feed(n),
    };
    let replay = Replay::new(32, Duration::from_secs(5), &servers, Urls::of(&servers), script).await;
    let roles = replay.begin().await;
    let begun = Instant::now();
    for n in 12..32 {
        let requests = replay.origin.wait_for(&path(n), 4, PATIENCE).await;
        assert!(requests.len() >= 4, "{}", roles[1].stderr());
    }
    println!("20 ordinary feeds were polled four times within {:.1?}", begun.elapsed());
    until("the others are stored too", async || {
        let entries = replay.cluster.entries().await;
        entries.iter().filter(|stored| stored.entry.id.starts_with("quoted")).count() == 12 * 4
    })
    .await;
    let log = roles[1].stderr();
    assert!(!log.contains("PRECONDITION"), "{log}");
}

/// Two requests for the same feed are an interval apart.
fn shortest_gap(log: &[Record], feeds: usize) -> Duration {
    let gaps = (0..feeds).filter_map(|n| {
        let path = path(u16::try_from(n).unwrap());
        let starts: Vec<Duration> =
            log.iter().filter(|record| *record.path == *path).map(|record| record.start).collect();
        starts.windows(2).map(|pair| pair[1] - pair[0]).min()
    });
    gaps.min().unwrap()
}

/// B8: a memory alarm blocks all publishers for longer than a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_alarm_no_feed_is_fetched_twice_in_a_row() {
    let (shared, own) = (Servers::shared(), Servers::own_with(&["rabbitmq"], false));
    let urls = Urls { queue: own.rabbitmq.clone(), ..Urls::of(&shared) };
    let interval = Duration::from_secs(2);
    let replay = Replay::new(40, interval, &shared, urls, feed).await;
    let roles = replay.begin().await;
    own.control("rabbitmq", &["set_vm_memory_high_watermark", "absolute", "1000000"]);
    // What was in flight ends, and what was claimed before.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let before = replay.origin.request_count();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(replay.origin.request_count(), before, "the alarm blocks publishers");
    own.control("rabbitmq", &["set_vm_memory_high_watermark", "0.6"]);
    replay.two_rounds(&roles).await;
    replay.two_rounds(&roles).await;
    let gap = shortest_gap(&replay.origin.log(), replay.feeds);
    println!("shortest time between two requests for a feed: {gap:.2?}, of {interval:?}");
    // The origin sees arrivals, which are late on a busy machine. It was 0.75 s before.
    assert!(gap > interval / 2, "{gap:?}");
}

/// A3: a feed kills its worker a moment after each request, beside forty slow innocent ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_that_kills_worker_processes_is_found_and_no_other_is_blamed() {
    const DEADLY: u16 = 40;
    let servers = Servers::shared();
    let slow = |n: u16| if n == DEADLY { Script::silent() } else { feed(n).delay(Duration::from_secs(4)) };
    let replay = Replay::new(DEADLY + 1, Duration::from_secs(5), &servers, Urls::of(&servers), slow).await;
    let scheduler = replay.cluster.start(Kind::Scheduler);
    let mut worker = replay.cluster.start(Kind::Worker);
    for deaths in 1..=3 {
        let begun = replay.origin.wait_for_start(&path(DEADLY), deaths, PATIENCE).await;
        assert!(begun.len() >= deaths, "{}", scheduler.stderr());
        tokio::time::sleep(Duration::from_millis(300)).await;
        worker.kill();
        worker = replay.cluster.start(Kind::Worker);
    }
    until("the feed is quarantined", async || !replay.quarantined().await.is_empty()).await;
    let before = replay.origin.request_count();
    assert!(replay.origin.wait_for_total(before + 80, PATIENCE).await);
    let blamed: Vec<String> = replay.quarantined().await.iter().map(|feed| feed.url.to_string()).collect();
    assert_eq!(blamed, [replay.origin.url_on(usize::from(DEADLY), &path(DEADLY))]);
    assert_eq!(replay.origin.requests(&path(DEADLY)).len(), 3);
}
