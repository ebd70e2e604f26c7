//! Three nodes of which some are killed, frozen or full, under traffic.

use tokio::time::Instant;

use super::own_broker::{NODES, OwnBroker};
use super::traffic::{PATIENCE, Traffic, until};
use super::*;

/// Returns how long after the election of a leader messages flow again, at most: seconds, unless the machine is very
/// busy.
fn recovery() -> Duration {
    if std::env::var_os("SOAK").is_some() { Duration::from_secs(30) } else { PATIENCE }
}
/// How long a node that was frozen may take to join the others.
const JOINS: Duration = Duration::from_secs(40);

struct Cluster {
    own: OwnBroker,
    broker: Broker,
    traffic: Traffic,
    metrics: Metrics,
    queue: String,
}

impl Cluster {
    async fn start() -> Self {
        let (own, namespace, metrics) = (OwnBroker::cluster().await, namespace(), Metrics::new());
        let broker = Broker::connect(&ServerConfig::at(&own.url()), &namespace, &metrics).unwrap();
        let traffic = Traffic::over(broker.queue(Prefetch::Unacked(20)));
        Cluster { own, broker, traffic, metrics, queue: format!("{namespace}.reports") }
    }

    async fn leader(&self, asked: &str) -> &'static str {
        loop {
            if let Some(leader) = self.own.leader(&self.queue, asked).await {
                return leader;
            }
        }
    }

    /// Takes the leader away and returns it, with the time from then until the others have elected another one, and
    /// from there until a published item was received.
    async fn lose_leader(&self, signal: &str) -> (&'static str, Duration, Duration) {
        let lost = self.leader(NODES[0]).await;
        let other = NODES.into_iter().find(|node| *node != lost).unwrap();
        let begun = Instant::now();
        self.own.signal_node(lost, signal).await;
        let (elected, ended) = tokio::join!(
            async {
                while self.leader(other).await == lost {}
                begun.elapsed()
            },
            async {
                // What was in flight may still be confirmed.
                tokio::time::sleep(Duration::from_secs(1)).await;
                self.traffic.next_round().await;
                begun.elapsed()
            }
        );
        (lost, elected, ended.saturating_sub(elected))
    }

    async fn is_whole(&self) -> bool {
        self.own.running(NODES[0]).await == Some(3) && self.traffic.connection_error().await.is_none()
    }

    /// Waits until all nodes run. RabbitMQ 3.10 sometimes leaves those that were frozen outside of the cluster: they are restarted then, as
    /// an operator would do.
    async fn until_whole(&self, frozen: &[&str]) {
        let joined = async { while !self.is_whole().await {} };
        if tokio::time::timeout(JOINS, joined).await.is_err() {
            for node in frozen {
                println!("{node} does not join the others; it is restarted");
                self.own.signal_node(node, "KILL").await;
                self.own.up_node(node).await;
            }
        }
        until("all nodes run", async || self.is_whole().await).await;
    }
}

#[tokio::test]
async fn confirmed_items_survive_killed_and_frozen_leaders_and_a_lost_quorum() {
    let cluster = Cluster::start().await;
    let (own, traffic) = (&cluster.own, &cluster.traffic);
    let outages = async {
        traffic.next_round().await;
        // How a frozen node comes back is RabbitMQ's affair, which takes a minute or two at times: in the long form only.
        let is_long = std::env::var_os("SOAK").is_some();
        let (mut frozen, freeze) = (Vec::new(), ("STOP", "CONT"));
        let rounds = if is_long { vec![("KILL", ""), freeze, ("KILL", "")] } else { vec![("KILL", "")] };
        for (signal, back) in rounds {
            cluster.until_whole(&frozen).await;
            // A quorum queue that is killed in its first second may never find a leader again.
            tokio::time::sleep(Duration::from_secs(2)).await;
            let (lost, elected, recovered) = cluster.lose_leader(signal).await;
            println!("{lost} {signal}: elected after {elected:?}, an item went round {recovered:?} later");
            assert!(recovered < recovery(), "{recovered:?}");
            frozen.clear();
            if back.is_empty() {
                own.up_node(lost).await;
            } else {
                own.signal_node(lost, back).await;
                frozen.push(lost);
            }
            println!("{lost} is back: an item went round after {:?}", traffic.next_round().await);
        }

        cluster.until_whole(&[]).await;
        for node in &NODES[1..] {
            own.signal_node(node, if is_long { "STOP" } else { "KILL" }).await;
        }
        until("the loss of the quorum is noticed", async || traffic.connection_error().await.is_some()).await;
        let confirmed = || traffic.seen.lock().unwrap().confirmed.len();
        // What the lost nodes have accepted by now.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = confirmed();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(confirmed(), before, "nothing is safe on one node");
        for node in &NODES[1..] {
            if is_long {
                own.signal_node(node, "CONT").await;
            } else {
                own.up_node(node).await;
            }
        }
        let recovered = traffic.next_round().await;
        println!("quorum restored: an item went round after {recovered:?}");
        assert!(recovered < recovery(), "{recovered:?}");
        cluster.until_whole(&NODES[1..]).await;
    };
    traffic.during(outages).await;
    cluster.broker.close().await;
}

#[tokio::test]
async fn a_leader_that_is_cut_off_from_its_peers_serves_nobody_and_nothing_confirmed_is_lost() {
    let cluster = Cluster::start().await;
    let (own, traffic) = (&cluster.own, &cluster.traffic);
    let partition = async {
        traffic.next_round().await;
        cluster.until_whole(&[]).await;
        // A quorum queue that loses its leader in its first second may never find another one.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let cut_off = cluster.leader(NODES[0]).await;
        let other = NODES.into_iter().find(|node| *node != cut_off).unwrap();
        own.cut_off(cut_off).await;
        let paused = until("the minority pauses", async || !own.accepts(cut_off)).await;
        while cluster.leader(other).await == cut_off {}
        println!("{cut_off} paused after {paused:?}; an item went round {:?} later", traffic.next_round().await);
        assert!(!own.accepts(cut_off), "the minority serves clients");
        own.join(cut_off).await;
        cluster.until_whole(&[cut_off]).await;
        assert!(own.accepts(cut_off));
        traffic.next_round().await;
    };
    traffic.during(partition).await;
    cluster.broker.close().await;
}

#[tokio::test]
async fn an_alarm_of_any_node_is_shown_and_messages_flow_when_it_ends() {
    let cluster = Cluster::start().await;
    let (own, traffic) = (&cluster.own, &cluster.traffic);
    let alarms = async {
        for (node, on, off, reason) in [
            (NODES[0], ["set_vm_memory_high_watermark", "0.0001"], ["set_vm_memory_high_watermark", "0.4"], "memory"),
            (NODES[1], ["set_disk_free_limit", "9000GB"], ["set_disk_free_limit", "50MB"], "disk"),
        ] {
            traffic.next_round().await;
            own.control_node(node, &on).await;
            until("the alarm is known", async || traffic.queue.blocked().is_some()).await;
            let why = traffic.queue.blocked().unwrap();
            assert!(why.contains("accepts no messages") && why.contains(reason), "{why}");
            assert_eq!(traffic.connection_error().await.as_ref(), Some(&why));
            assert_eq!(cluster.metrics.queue_blocked.get(), 1);
            own.control_node(node, &off).await;
            println!("{reason} alarm of {node} over: an item went round after {:?}", traffic.next_round().await);
            assert_eq!((traffic.queue.blocked(), cluster.metrics.queue_blocked.get()), (None, 0));
        }
    };
    traffic.during(alarms).await;
    cluster.broker.close().await;
}
