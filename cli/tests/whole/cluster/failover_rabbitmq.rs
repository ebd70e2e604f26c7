//! Three nodes of RabbitMQ, of which the one that leads a queue is killed or frozen, again and again, under a fleet.

use std::time::Duration;

use tokio::time::Instant;

use super::consumers::Consumer;
use super::failover::{LONG, SHORT, assert_nothing_lost, back_within, rounds};
use super::harness::{Kind, Role, Servers, Urls};
use super::load::{Load, Size};
use super::recovery::until_usual_rate;
use crate::harness::PATIENCE;

const NODES: [&str; 3] = ["rabbitmq", "rabbitmq2", "rabbitmq3"];

fn leader(servers: &Servers, queue: &str, asked: &str) -> &'static str {
    let question = format!("ra_leaderboard:lookup_leader('%2F_{queue}').");
    loop {
        let answer = servers.evaluated(asked, &question).unwrap_or_default();
        let is_leader = |node: &&str| answer.contains(&format!("t{}@", servers.port(node)));
        if let Some(leader) = NODES.into_iter().find(is_leader) {
            return leader;
        }
    }
}

/// RabbitMQ 3.10 sometimes leaves a node that was frozen outside of the cluster: it is restarted then, as an operator would do.
fn until_all_nodes_run(servers: &Servers, mut frozen: Option<&str>) {
    let begun = Instant::now();
    let running = || servers.evaluated(NODES[0], "length(rabbit_mnesia:cluster_nodes(running)).");
    while running().as_deref() != Some("3") {
        assert!(begun.elapsed() < Duration::from_secs(180), "the nodes do not find each other");
        if let Some(node) = frozen.take_if(|_| begun.elapsed() > Duration::from_secs(40)) {
            println!("{node} does not join the others; it is restarted");
            servers.signal(node, "KILL");
            servers.up(node);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A disk alarm of one node is shown wherever an operator looks, and ends.
async fn show_alarm(servers: &Servers, scheduler: &mut Role) {
    let set = |limit| tokio::task::block_in_place(|| servers.control(NODES[1], &["set_disk_free_limit", limit]));
    let is_shown = async |scheduler: &mut Role, path: &str, shown: bool| {
        let begun = Instant::now();
        while scheduler.get(path).await.1.contains("accepts no messages") != shown {
            assert!(begun.elapsed() < PATIENCE, "{path}: {:?}", scheduler.get(path).await);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    set("9000GB");
    for path in ["/readyz", "/api/v1/stats", "/"] {
        is_shown(scheduler, path, true).await;
    }
    assert_eq!(scheduler.get("/readyz").await.0, 503);
    let (_, metrics) = scheduler.get("/metrics").await;
    let blocked = metrics.lines().find_map(|line| line.strip_prefix("feedfleet_queue_blocked ")).unwrap();
    assert_ne!(blocked, "0");
    set("50MB");
    for path in ["/readyz", "/api/v1/stats", "/"] {
        is_shown(scheduler, path, false).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn leaders_of_rabbitmq_that_are_killed_or_freeze_cost_seconds_and_nothing_else() {
    let size = Size::pick(SHORT, LONG);
    let servers = Servers::own_with(&["postgres", "redis", "rabbitmq", "rabbitmq2", "rabbitmq3"], true);
    let load = Load::new(size, &servers, Urls::of(&servers), "").await;
    let database = sqlx::PgPool::connect(&servers.postgres).await.unwrap();
    load.cluster.watch_versions(&database).await;
    load.throttle_some_hosts();
    let kinds = [Kind::Scheduler, Kind::Scheduler, Kind::Worker, Kind::Worker];
    let mut roles: Vec<Role> = kinds.into_iter().map(|kind| load.cluster.start(kind)).collect();
    let folder = tempfile::tempdir().unwrap();
    let mut consumer = Consumer::new(folder.path(), "consumer.py");
    consumer.start(&[&roles[0].address()]);
    load.warm_up().await;

    show_alarm(&servers, &mut roles[0]).await;

    let mut slowest = Duration::ZERO;
    let rounds = rounds(2);
    for round in 0..rounds {
        until_usual_rate(&load).await;
        let queue = format!("{}.{}", load.cluster.namespace, if round / 2 % 2 == 0 { "jobs" } else { "reports" });
        // How a frozen node comes back is RabbitMQ's affair, which takes a minute or two at times: in the long form only.
        let frozen = std::env::var_os("SOAK").is_some() && round % 2 == 1;
        let (lost, elected) = tokio::task::block_in_place(|| {
            let lost = leader(&servers, &queue, NODES[0]);
            let asked = NODES.into_iter().find(|node| *node != lost).unwrap();
            let begun = Instant::now();
            servers.signal(lost, if frozen { "STOP" } else { "KILL" });
            while leader(&servers, &queue, asked) == lost {}
            (lost, begun.elapsed())
        });
        let back = until_usual_rate(&load).await;
        slowest = slowest.max(back);
        println!(
            "{}. {lost}, which led {queue}, {}: another leader after {elected:?}, usual rate {back:?} later",
            round + 1,
            if frozen { "frozen" } else { "killed" },
        );
        tokio::task::block_in_place(|| {
            if frozen {
                servers.signal(lost, "CONT");
            } else {
                servers.up(lost);
            }
            until_all_nodes_run(&servers, frozen.then_some(lost));
        });
        load.until_stored().await;
    }
    println!("{rounds} failovers, usual rate after at most {slowest:?}");
    assert_nothing_lost(&load, roles, &database, &[], &consumer).await;
    assert!(slowest < back_within(), "{slowest:?}");
}
