//! What goes to the dead letters, and what does not.

use lapin::BasicProperties;
use lapin::options::{BasicGetOptions, BasicPublishOptions};

use super::*;
use crate::job::FetchJob;
use crate::queue::conformance::{job, report};
use crate::report::FetchReport;

const JOBS_OF_VERSION_1: &str = include_str!("../../golden/jobs.v1.json");
const REPORTS_OF_VERSION_1: &str = include_str!("../../golden/reports.v1.json");

/// Puts bytes into a queue, as another program would.
async fn put<T: Message>(queue: &TestQueue<T>, bytes: &str) {
    let (_connection, channel) = bare().await;
    let name = format!("{}.{}", queue.namespace, T::QUEUE).into();
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    channel.confirm_select(Default::default()).await.unwrap();
    let confirm = channel.basic_publish("".into(), name, options, bytes.as_bytes(), BasicProperties::default());
    assert_eq!(confirm.await.unwrap().await.unwrap(), lapin::Confirmation::Ack(None));
}

/// Waits until this many messages are dead-lettered, and returns the bytes of the first.
async fn dead<T: Message>(queue: &TestQueue<T>, count: usize) -> Vec<u8> {
    let patience = tokio::time::Instant::now() + Duration::from_secs(120);
    while queue.dead_letters().await.unwrap() < count {
        assert!(tokio::time::Instant::now() < patience, "nothing arrived in the dead letters");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (_connection, channel) = bare().await;
    let name = format!("{}.{}.dead", queue.namespace, T::QUEUE).into();
    channel.basic_get(name, BasicGetOptions::default()).await.unwrap().unwrap().delivery.data
}

/// Waits until a message is in the queue, and takes it from there.
async fn returned(name: &str) -> Vec<u8> {
    let (_connection, channel) = bare().await;
    let patience = tokio::time::Instant::now() + Duration::from_secs(120);
    loop {
        assert!(tokio::time::Instant::now() < patience, "it did not come back");
        if let Some(found) = channel.basic_get(name.into(), BasicGetOptions { no_ack: true }).await.unwrap() {
            return found.delivery.data;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn an_undecodable_message_is_buried_counted_and_blocks_nothing() {
    let queue = TestQueue::<FetchReport>::make().await;
    queue.check().await.unwrap();
    put(&queue, "not json").await;
    put(&queue, "[]").await;
    queue.publish(&[report(1)]).await.unwrap();
    let delivery = queue.receive().await.unwrap();
    assert_eq!((delivery.items.as_slice(), delivery.redelivered), ([report(1)].as_slice(), false));
    delivery.ack().await.unwrap();
    assert_eq!(dead(&queue, 2).await, b"not json");
    assert!(queue.metrics.render().contains("feedfleet_dead_letters_total{queue=\"reports\"} 2\n"));
    assert_eq!(queue.depth().await.unwrap().items, 0);
    queue.end().await;
}

#[tokio::test]
async fn a_newer_message_goes_back_to_the_queue_and_blocks_nothing() {
    let queue = TestQueue::<FetchReport>::make().await;
    queue.check().await.unwrap();
    let newer = r#"{"v":2,"items":[]}"#;
    put(&queue, newer).await;
    queue.publish(&[report(1)]).await.unwrap();
    let delivery = queue.receive().await.unwrap();
    assert_eq!(delivery.items, [report(1)]);
    delivery.ack().await.unwrap();
    assert!(queue.metrics.render().contains("feedfleet_too_new_messages_total{queue=\"reports\"} 1\n"));
    // The process that was upgraded gets it.
    queue.quiet().await;
    assert_eq!(returned(&format!("{}.reports", queue.namespace)).await, newer.as_bytes());
    assert_eq!(queue.dead_letters().await.unwrap(), 0);
    queue.end().await;
}

#[tokio::test]
async fn a_newer_job_is_kept_longer_each_time_and_is_not_dead_lettered_in_an_upgrade() {
    const SEEN: u32 = 8;
    let mut queue = TestQueue::<FetchJob>::make().await;
    queue.check().await.unwrap();
    let first = Duration::from_millis(10);
    queue.broker.limits.too_new = TooNewPauses { first, longest: Duration::from_secs(60) };
    let old = queue.broker.queue::<FetchJob>(Prefetch::Untaken(4));
    let newer = r#"{"v":2,"items":[]}"#;
    let begun = tokio::time::Instant::now();
    put(&queue, newer).await;
    let too_new = queue.metrics.too_new.with_label_values(&["jobs"]);
    let seen = async {
        while too_new.get() < SEEN.into() {
            assert!(begun.elapsed() < Duration::from_secs(120), "seen {} times", too_new.get());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        received = old.receive() => panic!("{:?}", received.map(|delivery| delivery.items)),
        () = seen => {}
    }
    // 10 ms, 20 ms, 40 ms, ..
    let pauses = first * (2_u32.pow(SEEN - 1) - 1);
    assert!(begun.elapsed() >= pauses, "{SEEN} times within {:?}", begun.elapsed());
    old.quiet().await;
    assert_eq!(returned(&format!("{}.jobs", queue.namespace)).await, newer.as_bytes());
    assert_eq!(queue.dead_letters().await.unwrap(), 0);
    queue.end().await;
}

#[tokio::test]
async fn a_job_that_was_delivered_twenty_times_lies_in_the_dead_letters() {
    let queue = TestQueue::<FetchJob>::make().await;
    queue.publish(&[job(1)]).await.unwrap();
    for delivery in 1..=20 {
        let delivered = queue.receive().await.unwrap();
        assert_eq!(delivered.redelivered, delivery > 1);
        drop(delivered);
    }
    assert_eq!(dead(&queue, 1).await, encode(&[job(1)]).unwrap());
    queue.end().await;
}

#[tokio::test]
async fn messages_of_version_1_are_read_from_the_broker() {
    let jobs = TestQueue::<FetchJob>::make().await;
    jobs.check().await.unwrap();
    put(&jobs, JOBS_OF_VERSION_1).await;
    assert_eq!(encode(&jobs.receive().await.unwrap().items).unwrap(), JOBS_OF_VERSION_1.trim_end().as_bytes());
    let reports = jobs.broker.queue::<FetchReport>(Prefetch::Unacked(1));
    reports.check().await.unwrap();
    let reports = TestQueue { queue: reports, broker: jobs.broker, namespace: jobs.namespace, metrics: jobs.metrics };
    put(&reports, REPORTS_OF_VERSION_1).await;
    assert_eq!(encode(&reports.receive().await.unwrap().items).unwrap(), REPORTS_OF_VERSION_1.trim_end().as_bytes());
    reports.end().await;
}
