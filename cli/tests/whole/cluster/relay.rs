//! A scheduler's log about events that do not reach the exchange: each failure once, and its end.

use std::process::Command;
use std::time::{Duration, Instant};

use load_tests::{Feed, Origin, Script};

use super::harness::{Cluster, Kind, Role, Servers, Urls};
use crate::harness::PATIENCE;

/// Debian's interpreter, which has pika.
const PYTHON: &str = "/usr/bin/python3";
/// The log messages at the start and at the end of the failure.
const REFUSED: &str = "RabbitMQ refused the message";
const WORKS: &str = "passing events on to the exchange works again";
/// Binds a queue that accepts one message and rejects all others, or removes it.
const REFUSING: &str = r##"
import pika, sys
do, url, exchange = sys.argv[1:]
channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
queue = exchange + ".refuses"
if do == "bind":
    channel.exchange_declare(exchange, "topic", durable=True)
    channel.queue_declare(queue, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.queue_bind(queue, exchange, "#")
else:
    channel.queue_delete(queue)
"##;

fn refusing(what: &str, servers: &Servers, cluster: &Cluster) {
    let exchange = format!("{}.events", cluster.namespace);
    let ran = Command::new(PYTHON).args(["-c", REFUSING, what, &servers.rabbitmq, &exchange]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// Waits until the log has `times` lines that contain this.
pub(super) async fn logged(role: &Role, what: &str, times: usize) {
    let deadline = Instant::now() + PATIENCE;
    while role.stderr().matches(what).count() < times {
        assert!(Instant::now() < deadline, "not {times} times '{what}':\n{}", role.stderr());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_refuses_events_is_told_once_each_time_and_so_is_its_end() {
    let servers = Servers::shared();
    let config = "[host]\ngap = \"0s\"\n[fetch]\nallow_networks = [\"127.0.0.0/8\"]\nallow_ports = [\"1-65535\"]\n";
    let cluster = Cluster::new(&servers, Urls::of(&servers), config).await;
    let origin = Origin::start().await.unwrap();
    let mut scheduler = cluster.start(Kind::Scheduler);
    let worker = cluster.start(Kind::Worker);
    let feeds = format!("{}/api/v1/feeds", scheduler.address());
    for (round, path) in ["/first", "/second"].into_iter().enumerate() {
        refusing("bind", &servers, &cluster);
        origin.set(path, Script::feed(Feed::rss().initial(3)));
        let body = format!(r#"{{"url": "{}"}}"#, origin.url(path));
        let request = reqwest::Client::new().post(&feeds).header("content-type", "application/json").body(body);
        assert_eq!(request.send().await.unwrap().status().as_u16(), 201);
        logged(&scheduler, REFUSED, round + 1).await;
        // In the meantime it retries repeatedly.
        tokio::time::sleep(Duration::from_secs(4)).await;
        let ends = scheduler.stderr().matches(WORKS).count();
        refusing("delete", &servers, &cluster);
        logged(&scheduler, WORKS, ends + 1).await;
    }
    let log = scheduler.stderr();
    let times = |what: &str| log.matches(what).count();
    assert_eq!((times(REFUSED), times("it is this process that passes events on")), (2, 1), "{log}");
    worker.stop().await;
    scheduler.stop().await;
}
