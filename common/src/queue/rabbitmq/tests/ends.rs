//! Beginnings, ends and shares.

use futures_util::future::join_all;
use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;

use super::*;
use crate::job::FetchJob;
use crate::queue::conformance::{job, report};
use crate::report::FetchReport;
use crate::testing::Stalls;

/// For what must come in the end, also on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::test]
async fn many_may_start_at_once() {
    let first = TestQueue::<FetchJob>::make().await;
    let others: Vec<_> = join_all((0..8).map(|_| first.another(1))).await;
    for published in join_all(others.iter().map(|(_, queue)| async { queue.publish(&[job(1)]).await })).await {
        published.unwrap();
    }
    for (broker, _) in others {
        broker.close().await;
    }
    for _ in 0..8 {
        first.receive().await.unwrap().ack().await.unwrap();
    }
    assert_eq!(first.depth().await.unwrap().items, 0);
    first.end().await;
}

#[tokio::test]
async fn nothing_is_consumed_before_somebody_receives_and_each_receiver_is_counted() {
    let queue = TestQueue::<FetchReport>::with_prefetch(Prefetch::Unacked(1)).await;
    queue.publish(&[report(1)]).await.unwrap();
    assert_eq!(queue.depth().await.unwrap().consumers, Some(0));
    // The first consumer's hands are full now.
    let delivery = queue.receive().await.unwrap();
    let (broker, other) = queue.another(1).await;
    queue.publish(&[report(2)]).await.unwrap();
    other.receive().await.unwrap().ack().await.unwrap();
    assert_eq!(queue.depth().await.unwrap().consumers, Some(2));
    delivery.ack().await.unwrap();
    broker.close().await;
    queue.end().await;
}

#[tokio::test]
async fn what_is_taken_stops_nothing_from_coming_where_only_the_untaken_count() {
    let queue = TestQueue::<FetchJob>::with_prefetch(Prefetch::Untaken(4)).await;
    for n in 0..30 {
        queue.publish(&[job(n)]).await.unwrap();
    }
    let mut taken = Vec::new();
    for _ in 0..20 {
        taken.push(queue.receive().await.unwrap());
    }
    // At most four messages are prefetched and not taken; other consumers can get the rest.
    let (broker, other) = queue.another(10).await;
    for _ in 0..6 {
        other.receive().await.unwrap().ack().await.unwrap();
    }
    broker.close().await;
    for delivery in taken {
        delivery.ack().await.unwrap();
    }
    for _ in 0..4 {
        queue.receive().await.unwrap().ack().await.unwrap();
    }
    assert_eq!(queue.depth().await.unwrap().items, 0);
    queue.end().await;
}

#[tokio::test]
async fn a_quiet_queue_returns_what_nobody_took_and_acks_what_was_taken() {
    let queue = TestQueue::<FetchReport>::with_prefetch(Prefetch::Unacked(10)).await;
    for n in 0..10 {
        queue.publish(&[report(n)]).await.unwrap();
    }
    let taken = queue.receive().await.unwrap();
    queue.quiet().await;
    assert!(matches!(queue.receive().await, Err(QueueError::Closed)));
    queue.publish(&[report(10)]).await.unwrap();
    taken.ack().await.unwrap();
    queue.broker.close().await;
    let (broker, other) = queue.another(20).await;
    let mut seen = Vec::new();
    for _ in 0..10 {
        let delivery = other.receive().await.unwrap();
        seen.push(delivery.items[0].feed.0);
        delivery.ack().await.unwrap();
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=10).collect::<Vec<_>>());
    assert_eq!(other.depth().await.unwrap().items, 0);
    broker.close().await;
    queue.end().await;
}

#[tokio::test]
async fn while_one_pauses_another_gets_what_was_sent_to_it_ahead_and_what_it_gives_up() {
    let queue = TestQueue::<FetchJob>::with_prefetch(Prefetch::Unacked(10)).await;
    for n in 0..10 {
        queue.publish(&[job(n)]).await.unwrap();
    }
    let (kept, given_up) = (queue.receive().await.unwrap(), queue.receive().await.unwrap());
    let (broker, other) = queue.another(10).await;
    queue.pause().await;
    drop(given_up);
    let mut seen = Vec::new();
    for _ in 0..9 {
        let delivery = other.receive().await.unwrap();
        seen.push(delivery.items[0].feed.0);
        delivery.ack().await.unwrap();
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..10).collect::<Vec<_>>());
    // It receives again, while an earlier message is still unacknowledged.
    broker.close().await;
    queue.publish(&[job(10)]).await.unwrap();
    let next = queue.receive().await.unwrap();
    assert_eq!((next.items.as_slice(), next.redelivered), ([job(10)].as_slice(), false));
    next.ack().await.unwrap();
    kept.ack().await.unwrap();
    queue.end().await;
}

#[tokio::test]
async fn a_channel_from_before_a_pause_ends_when_its_last_message_is_settled() {
    let queue = TestQueue::<FetchReport>::make().await;
    let channel = |queue: &TestQueue<FetchReport>| queue.halves.receiving.channel();
    queue.publish(&[report(1)]).await.unwrap();
    let taken = queue.receive().await.unwrap();
    let before = channel(&queue);
    queue.pause().await;
    queue.publish(&[report(2)]).await.unwrap();
    queue.receive().await.unwrap().ack().await.unwrap();
    assert!(!before.is_over(), "a message of it is in somebody's hands");
    taken.ack().await.unwrap();
    let ended = async {
        while !before.is_over() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.unwrap();
    assert!(!channel(&queue).is_over());
    queue.pause().await;
    // A consumer counts until what it had is settled.
    let uncounted = async {
        while queue.depth().await.unwrap() != (QueueDepth { consumers: Some(0), ..QueueDepth::default() }) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, uncounted).await.unwrap();
    queue.end().await;
}

#[tokio::test]
async fn a_queue_that_nobody_received_from_is_quiet_and_closed_at_once() {
    let queue = TestQueue::<FetchReport>::make().await;
    queue.publish(&[report(1)]).await.unwrap();
    queue.quiet().await;
    let (begun, stalls) = (tokio::time::Instant::now(), Stalls::watched());
    queue.broker.close().await;
    let took = begun.elapsed().saturating_sub(stalls.so_far());
    assert!(took < FAREWELL, "{took:?}");
    assert!(matches!(queue.receive().await, Err(QueueError::Closed)));
    assert!(matches!(queue.publish(&[report(2)]).await, Err(QueueError::Closed)));
    queue.end().await;
}

#[tokio::test]
async fn close_sends_the_last_acks() {
    let queue = TestQueue::<FetchReport>::make().await;
    for n in 0..100 {
        queue.publish(&[report(n)]).await.unwrap();
    }
    for _ in 0..100 {
        queue.receive().await.unwrap().ack().await.unwrap();
    }
    queue.broker.close().await;
    let (broker, other) = queue.another(1).await;
    assert_eq!(other.depth().await.unwrap().items, 0);
    broker.close().await;
    queue.end().await;
}

#[tokio::test]
async fn a_receipt_from_before_the_end_fails_and_its_message_comes_again() {
    let queue = TestQueue::<FetchReport>::make().await;
    queue.publish(&[report(1)]).await.unwrap();
    let delivery = queue.receive().await.unwrap();
    queue.broker.close().await;
    let error = delivery.ack().await.unwrap_err();
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("comes again"), "{error:?}");
    let (broker, other) = queue.another(1).await;
    assert!(other.receive().await.unwrap().redelivered);
    broker.close().await;
    queue.end().await;
}

#[tokio::test]
async fn a_queue_with_other_settings_is_refused_with_what_to_do() {
    let queue = TestQueue::<FetchReport>::make().await;
    let (_connection, channel) = bare().await;
    let name = format!("{}.reports", queue.namespace);
    channel.queue_declare(name.into(), QueueDeclareOptions::durable(), FieldTable::default()).await.unwrap();
    for error in [queue.check().await.unwrap_err(), queue.publish(&[report(1)]).await.unwrap_err()] {
        let reason = std::error::Error::source(&error).unwrap().to_string();
        assert!(reason.contains("other settings") && reason.contains("delete it"), "{reason}");
    }
    queue.end().await;
}

#[tokio::test]
async fn a_deleted_queue_is_declared_again() {
    let queue = TestQueue::<FetchReport>::make().await;
    queue.publish(&[report(1)]).await.unwrap();
    queue.receive().await.unwrap().ack().await.unwrap();
    let (_connection, channel) = bare().await;
    let name = format!("{}.reports", queue.namespace);
    channel.queue_delete(name.into(), QueueDeleteOptions::default()).await.unwrap();
    // The consumer declares it again too: then nothing fails.
    if let Err(error) = queue.publish(&[report(2)]).await {
        assert!(std::error::Error::source(&error).unwrap().to_string().contains("gone"), "{error:?}");
        queue.publish(&[report(2)]).await.unwrap();
    }
    assert_eq!(queue.receive().await.unwrap().items, [report(2)]);
    queue.end().await;
}

#[tokio::test]
async fn a_consumer_that_is_refused_leaves_nothing_behind() {
    let queue = TestQueue::<FetchReport>::make().await;
    queue.check().await.unwrap();
    let (_connection, channel) = bare().await;
    let name = format!("{}.reports", queue.namespace);
    let only = lapin::options::BasicConsumeOptions { exclusive: true, ..Default::default() };
    let consumer = channel.basic_consume(name.as_str().into(), "".into(), only, FieldTable::default()).await.unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let waited = |time| tokio::time::timeout(time, queue.receive());
    assert!(waited(Duration::from_secs(1)).await.is_err());
    let before = tasks();
    assert!(waited(Duration::from_secs(10)).await.is_err());
    assert!(tasks() <= before + 1, "{} tasks, {before} before", tasks());
    channel.basic_cancel(consumer.tag(), Default::default()).await.unwrap();
    queue.publish(&[report(1)]).await.unwrap();
    queue.receive().await.unwrap().ack().await.unwrap();
    queue.end().await;
}

/// Returns a report of about this many bytes, each of which JSON doubles.
fn large_report(n: i64, bytes: usize) -> FetchReport {
    let detail = "\"".repeat(bytes);
    let outcome = crate::report::Outcome::Failed { failure: crate::outcome::FailureKind::Malformed, detail };
    FetchReport { outcome, ..report(n) }
}

#[tokio::test]
async fn a_message_that_is_too_large_once_encoded_is_refused_before_it_is_sent() {
    let queue = TestQueue::<FetchReport>::make().await;
    let batch: Vec<FetchReport> = (0..8).map(|n| large_report(n, 1 << 20)).collect();
    let refused = queue.publish(&batch).await.unwrap_err();
    assert!(matches!(refused, QueueError::TooLarge { bytes } if bytes > 16 << 20), "{refused:?}");
    queue.publish(&batch[..4]).await.unwrap();
    assert_eq!(queue.receive().await.unwrap().items.len(), 4);
    queue.end().await;
}
