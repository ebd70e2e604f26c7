//! Events at the exchange: consumers choose by text, and a scheduler's log says when events do not reach it.

use std::process::Command;
use std::time::{Duration, Instant};

use load_tests::{Feed, Origin, Script};

use super::harness::{Cluster, Kind, Role, Servers, Urls};
use crate::harness::PATIENCE;

/// Debian's interpreter, which has pika.
const PYTHON: &str = "/usr/bin/python3";
const CONFIG: &str = "[host]\ngap = \"0s\"\n[fetch]\nallow_networks = [\"127.0.0.0/8\"]\nallow_ports = [\"1-65535\"]\n";
/// The log messages at the start and at the end of the failure.
const REFUSED: &str = "RabbitMQ refused the message";
pub(super) const WORKS: &str = "passing events on to the exchange works again";
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

/// Binds a queue to the messages about entries that contain "item 2" and "scripted", or prints their titles.
const CHOOSING: &str = r##"
import json, pika, sys
do, url, exchange = sys.argv[1:]
channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
chosen = queue = exchange + ".chosen"
if do == "bind":
    channel.exchange_declare(exchange, "topic", durable=True)
    channel.exchange_declare(chosen, "headers", durable=True)
    channel.exchange_bind(chosen, exchange, "entry.#")
    channel.queue_declare(queue, durable=True)
    channel.queue_bind(queue, chosen, arguments={"x-match": "all", "text.item 2": "yes", "text.scripted": "yes"})
else:
    while (got := channel.basic_get(queue, auto_ack=True))[0]:
        print(json.loads(got[2])["entry"]["title"])
    channel.queue_delete(queue)
    channel.exchange_delete(chosen)
"##;

/// Runs a script at the fleet's exchange of events; returns what it printed.
pub(super) fn at_exchange(script: &str, what: &str, servers: &Servers, cluster: &Cluster) -> String {
    let exchange = format!("{}.events", cluster.namespace);
    let ran = Command::new(PYTHON).args(["-c", script, what, &servers.rabbitmq, &exchange]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

async fn added(scheduler: &mut Role, url: &str) {
    let feeds = format!("{}/api/v1/feeds", scheduler.address());
    let body = format!(r#"{{"url": "{url}"}}"#);
    let request = reqwest::Client::new().post(&feeds).header("content-type", "application/json").body(body);
    assert_eq!(request.send().await.unwrap().status().as_u16(), 201);
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
    let cluster = Cluster::new(&servers, Urls::of(&servers), CONFIG).await;
    let origin = Origin::start().await.unwrap();
    let mut scheduler = cluster.start(Kind::Scheduler);
    let worker = cluster.start(Kind::Worker);
    for (round, path) in ["/first", "/second"].into_iter().enumerate() {
        at_exchange(REFUSING, "bind", &servers, &cluster);
        origin.set(path, Script::feed(Feed::rss().initial(3)));
        added(&mut scheduler, &origin.url(path)).await;
        logged(&scheduler, REFUSED, round + 1).await;
        // In the meantime it retries repeatedly.
        tokio::time::sleep(Duration::from_secs(4)).await;
        let ends = scheduler.stderr().matches(WORKS).count();
        at_exchange(REFUSING, "delete", &servers, &cluster);
        logged(&scheduler, WORKS, ends + 1).await;
    }
    let log = scheduler.stderr();
    let times = |what: &str| log.matches(what).count();
    assert_eq!((times(REFUSED), times("it is this process that passes events on")), (2, 1), "{log}");
    worker.stop().await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_choose_the_entries_that_contain_a_text() {
    let servers = Servers::shared();
    let config = format!("{CONFIG}[delivery]\nexchange_texts = [\"Item 2\", \"scripted\", \"item 3\"]\n");
    let cluster = Cluster::new(&servers, Urls::of(&servers), &config).await;
    let origin = Origin::start().await.unwrap();
    origin.set("/scripted", Script::feed(Feed::rss().initial(4)));
    origin.set("/other", Script::feed(Feed::rss().initial(4)));
    let mut scheduler = cluster.start(Kind::Scheduler);
    at_exchange(CHOOSING, "bind", &servers, &cluster);
    let worker = cluster.start(Kind::Worker);
    for path in ["/other", "/scripted"] {
        added(&mut scheduler, &origin.url(path)).await;
        // The event of its first success comes after its entries.
        let status = format!("{}/api/v1/entries?limit=100", scheduler.address());
        let wanted = if path == "/other" { 4 } else { 8 };
        let deadline = Instant::now() + PATIENCE;
        while reqwest::get(&status).await.unwrap().text().await.unwrap().matches("urn:scripted:").count() < wanted {
            assert!(Instant::now() < deadline, "not {wanted} entries");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    // Its turn ends after everything that is stored was published.
    worker.stop().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    scheduler.stop().await;
    assert_eq!(at_exchange(CHOOSING, "read", &servers, &cluster), "Item 2 of scripted\n");
}
