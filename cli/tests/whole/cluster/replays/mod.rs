//! What two reviews did to a cluster, done again as they did it: a fault of a real server, and how the fleet reacts.

use std::time::{Duration, Instant};

use common::feed::Feed as StoredFeed;
use common::outcome::FailureKind;
use load_tests::{Origin, Record, Script, loopback};

use super::harness::{Cluster, Kind, Role, Servers, Urls};
use crate::harness::PATIENCE;

mod clocks;
mod day;
mod promises;
mod stops;

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
        Self::with(&config(interval), feeds, interval, servers, urls, script).await
    }

    /// The same with another configuration.
    async fn with(
        config: &str,
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
        let cluster = Cluster::new(servers, urls, config).await;
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

/// Checks that a host that throttled had its rest before the next request.
fn assert_rested(throttled: &Record, next: &Record, rest: Duration) {
    let waited = next.start - throttled.end.unwrap();
    println!("requested again {waited:.1?} after its 429 with {rest:?}");
    // The origin notes the end of its answer when the worker may have read it already.
    assert!(waited >= rest - Duration::from_secs(1), "{waited:?}");
}
