//! A private broker that is killed, stopped, paused and filled, under traffic.

use std::collections::HashSet;

use lapin::uri::AMQPUri;
use tokio::time::Instant;
use tracing::Level;

use super::own_broker::{Lines, OwnBroker};
use super::traffic::{PATIENCE, Traffic, until};
use super::*;
use crate::queue::conformance::report;
use crate::report::FetchReport;

#[tokio::test]
async fn confirmed_items_survive_a_killed_a_stopped_and_a_paused_broker() {
    let own = OwnBroker::start().await;
    let lines = Lines::heard();
    // A short heartbeat, so that the pause need not be long.
    let url = format!("{}?heartbeat=2", own.url());
    let broker = Broker::connect(&ServerConfig::at(&url), &namespace(), &Metrics::new()).unwrap();
    let traffic = Traffic::over(broker.queue(Prefetch::Unacked(20)));
    let outages = async {
        traffic.next_round().await;
        for outage in ["pause", "stop", "kill"] {
            // A quorum queue that is killed in its first second may never find a leader again.
            tokio::time::sleep(Duration::from_secs(2)).await;
            match outage {
                "kill" => own.signal("KILL").await,
                "stop" => own.stop().await,
                _ => own.signal("STOP").await,
            }
            // A pause is noticed by two missing heartbeats, the others at once.
            let unreachable =
                async || traffic.connection_error().await.is_some_and(|why| why.contains("cannot be reached"));
            until("the loss is noticed", unreachable).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            match outage {
                "pause" => own.signal("CONT").await,
                _ => own.up().await,
            }
            let recovery = traffic.next_round().await;
            println!("{outage}: back after {} ms", recovery.as_millis());
            until("the queue is as it was", async || traffic.connection_error().await.is_none()).await;
        }
    };
    traffic.during(outages).await;
    // Once at the start, and twice an outage, however many attempts there were. On a starved machine heartbeats may be late
    // without one.
    let (said, errors): (Vec<Level>, Vec<Level>) = lines.levels().into_iter().partition(|level| *level > Level::ERROR);
    assert!(errors.len() <= said.len() / 2, "more than one an outage: {errors:?}");
    assert!(said.len() >= 7 && said.len() % 2 == 1, "{said:?}");
    for (place, level) in said.into_iter().enumerate() {
        assert_eq!(level, if place % 2 == 0 { Level::INFO } else { Level::WARN }, "line {place}");
    }
}

#[tokio::test]
async fn a_queue_may_be_there_before_its_broker_and_says_why_nothing_is_taken() {
    let own = OwnBroker::start().await;
    own.stop().await;
    let (namespace, metrics) = (namespace(), Metrics::new());
    let broker = Broker::connect(&ServerConfig::at(&own.url()), &namespace, &metrics).unwrap();
    let queue = broker.queue::<FetchReport>(Prefetch::Unacked(1));
    let patient_broker = patient(&own.url(), &namespace, &Metrics::new());
    let patient_queue = patient_broker.queue::<FetchReport>(Prefetch::Unacked(1));
    assert!(queue.check().await.is_err());
    assert!(queue.depth().await.is_err());
    let (received, ()) = tokio::join!(queue.receive(), async {
        own.up().await;
        patient_queue.publish(&[report(1)]).await.unwrap();
    });
    let received = received.unwrap();
    until("it is ready", async || queue.check().await.is_ok()).await;

    own.control(&["set_vm_memory_high_watermark", "absolute", "1"]).await;
    // The broker reports it to a connection at its next message.
    let error = queue.publish(&[report(2)]).await.unwrap_err();
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("may or may not"), "{error:?}");
    for error in [queue.check().await.unwrap_err(), queue.publish(&[report(3)]).await.unwrap_err()] {
        let reason = std::error::Error::source(&error).unwrap().to_string();
        assert!(reason.contains("accepts no messages"), "{reason}");
    }
    assert!(queue.blocked().is_some_and(|why| why.contains("low on memory")), "{:?}", queue.blocked());
    assert_eq!(metrics.queue_blocked.get(), 1);
    received.ack().await.unwrap();

    own.control(&["set_vm_memory_high_watermark", "absolute", "1GB"]).await;
    patient_queue.publish(&[report(4)]).await.unwrap();
    until("it is ready", async || queue.check().await.is_ok()).await;
    assert_eq!((queue.blocked(), metrics.queue_blocked.get()), (None, 0));
    let mut items = Vec::new();
    while items.last() != Some(&report(4)) {
        let delivery = queue.receive().await.unwrap();
        items.extend(delivery.items.clone());
        delivery.ack().await.unwrap();
    }
    assert!(!items.contains(&report(1)), "acked while the broker took no messages");
    patient_broker.close().await;
    broker.close().await;
}

/// Returns a broker of ours whose connections outlive a pause.
fn without_haste(own: &OwnBroker, namespace: &str) -> Broker {
    patient(&format!("{}?heartbeat=120", own.url()), namespace, &Metrics::new())
}

/// Publishes these reports, a message each.
async fn publish_each(queue: &RabbitQueue<FetchReport>, reports: i64) {
    for n in 0..reports {
        queue.publish(&[report(n)]).await.unwrap();
    }
}

/// Receives and acks until each of these reports came.
async fn receive_each(queue: &RabbitQueue<FetchReport>, reports: i64) {
    let mut missing: HashSet<i64> = (0..reports).collect();
    while !missing.is_empty() {
        let received = tokio::time::timeout(PATIENCE, queue.receive()).await;
        let delivery = received.unwrap_or_else(|_| panic!("never came: {missing:?}")).unwrap();
        missing.remove(&delivery.items[0].feed.0);
        delivery.ack().await.unwrap();
    }
}

#[tokio::test]
async fn a_receiver_whose_window_is_full_when_the_broker_pauses_gets_everything_afterwards() {
    let (own, namespace) = (OwnBroker::start().await, namespace());
    let broker = without_haste(&own, &namespace);
    let queue = broker.queue::<FetchReport>(Prefetch::Untaken(4));
    publish_each(&queue, 40).await;
    let mut held = vec![queue.receive().await.unwrap()];
    // Nobody waits for a message until the window is full.
    until("the others are here", async || queue.halves.receiving.waiting() == 3).await;
    for _ in 0..3 {
        held.push(queue.receive().await.unwrap());
    }
    let before = queue.halves.receiving.channel();
    own.signal("STOP").await;
    // It begins another consumer, and the broker does not answer that the first one has ended.
    let (next, ()) = tokio::join!(tokio::time::timeout(PATIENCE, queue.receive()), async {
        until("the channel is given up", async || before.is_over()).await;
        own.signal("CONT").await;
    });
    // It comes again.
    drop(next.expect("a message comes").unwrap());
    for delivery in held {
        let error = delivery.ack().await.unwrap_err();
        assert!(std::error::Error::source(&error).unwrap().to_string().contains("comes again"), "{error:?}");
    }
    receive_each(&queue, 40).await;
    broker.close().await;
    // What is unacked would be back.
    let broker = without_haste(&own, &namespace);
    let queue = broker.queue::<FetchReport>(Prefetch::Unacked(1));
    until("the broker is there", async || queue.check().await.is_ok()).await;
    assert_eq!(queue.depth().await.unwrap().items, 0);
    broker.close().await;
}

#[tokio::test]
async fn who_pauses_while_the_broker_does_withholds_nothing_from_others() {
    let (own, namespace) = (OwnBroker::start().await, namespace());
    let broker = without_haste(&own, &namespace);
    let queue = broker.queue::<FetchReport>(Prefetch::Unacked(10));
    publish_each(&queue, 10).await;
    let held = queue.receive().await.unwrap();
    own.signal("STOP").await;
    queue.pause().await;
    own.signal("CONT").await;
    let other_broker = without_haste(&own, &namespace);
    receive_each(&other_broker.queue(Prefetch::Unacked(10)), 10).await;
    let error = held.ack().await.unwrap_err();
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("comes again"), "{error:?}");
    other_broker.close().await;
    broker.close().await;
}

#[tokio::test]
async fn a_message_that_the_broker_finds_too_large_is_told_from_its_neighbours() {
    let own = OwnBroker::start().await;
    own.control(&["eval", "application:set_env(rabbit, max_message_size, 100000)."]).await;
    let broker = patient(&own.url(), &namespace(), &Metrics::new());
    let queue = broker.queue::<FetchReport>(Prefetch::Unacked(50));
    let detail = "x".repeat(200_000);
    let outcome = crate::report::Outcome::Failed { failure: crate::outcome::FailureKind::Malformed, detail };
    let large = FetchReport { outcome, ..report(0) };
    for round in 0..5 {
        let small = async {
            // Its channel may have been closed over its neighbour: then it is published again.
            while let Err(error) = queue.publish(&[report(round + 1)]).await {
                assert!(!matches!(error, QueueError::TooLarge { .. }), "{error:?}");
            }
        };
        let (refused, ()) = tokio::join!(queue.publish(std::slice::from_ref(&large)), small);
        assert!(matches!(refused, Err(QueueError::TooLarge { bytes }) if bytes > 200_000), "{refused:?}");
    }
    broker.close().await;
}

#[tokio::test]
async fn connections_that_went_silent_are_replaced_within_ten_seconds() {
    let server: AMQPUri = url().parse().unwrap();
    let proxy = crate::redis::testing::CuttingProxy::before(server.authority.port).await;
    let through = url().replace(&format!(":{}", server.authority.port), &format!(":{}", proxy.port));
    let namespace = namespace();
    let broker = Broker::connect(&ServerConfig::at(&through), &namespace, &Metrics::new()).unwrap();
    let queue = broker.queue::<FetchReport>(Prefetch::Unacked(20));
    let stalls = crate::testing::Stalls::watched();
    let round = async |first: i64| {
        let publishing = async {
            let mut n = first;
            while queue.publish(&[report(n)]).await.is_err() {
                n += 1;
            }
        };
        let receiving = async {
            loop {
                let delivery = queue.receive().await.unwrap();
                let new = delivery.items[0].feed.0 >= first;
                // It may be of a connection that is gone: then it comes again.
                let _ = delivery.ack().await;
                if new {
                    return;
                }
            }
        };
        tokio::join!(publishing, receiving);
    };
    round(1).await;
    let before = stalls.so_far();
    proxy.silence_connections();
    let begun = Instant::now();
    tokio::time::timeout(PATIENCE, round(1_000)).await.expect("the queue works again");
    let took = begun.elapsed();
    println!("connections that went silent: an item went round after {took:?}");
    assert!(took.saturating_sub(stalls.so_far() - before) < Duration::from_secs(10), "{took:?}");
    broker.close().await;
    let queue = TestQueue::<FetchReport>::over(namespace).await;
    queue.end().await;
}
